//! Places, times and exits in words, the same in live lines, terminal and page. ASCII only.

use std::fmt::Write;

use crate::timeline::{Address, Exit, FaultKind, HeightSource, Landed, Mode, Phase, Tier, WriteAt};

/// `consensus`, `block sync`, `replay`.
pub fn mode(mode: Mode) -> &'static str {
    match mode {
        Mode::Consensus => "consensus",
        Mode::BlockSync => "block sync",
        Mode::Replay => "replay",
    }
}

/// `kill`, `stop`, `pause`, `restart`, `upgrade`, `fail`.
pub fn kind(kind: FaultKind) -> &'static str {
    match kind {
        FaultKind::Kill => "kill",
        FaultKind::Stop => "stop",
        FaultKind::Pause => "pause",
        FaultKind::Restart => "restart",
        FaultKind::Upgrade => "upgrade",
        FaultKind::Fail => "fail",
    }
}

/// `no filter`, `observe`, `record`.
pub fn tier(tier: Tier) -> &'static str {
    match tier {
        Tier::None => "no filter",
        Tier::Observe => "observe",
        Tier::Record => "record",
    }
}

/// `signal 9`, `code 0`.
pub fn exit(exit: Exit) -> String {
    match exit {
        Exit::Code(code) => format!("code {code}"),
        Exit::Signal(signal) => format!("signal {signal}"),
    }
}

/// `before the first write of state.db sync 1`.
fn event(phase: Phase, store: &str, sync: Option<u32>, write: Option<WriteAt>) -> String {
    let side = match phase {
        Phase::Before => "before",
        Phase::After => "after",
    };
    let commit = sync.map_or_else(|| store.to_owned(), |k| format!("{store} sync {k}"));
    match write {
        None => format!("{side} {commit}"),
        Some(WriteAt::First) => format!("{side} the first write of {commit}"),
        Some(WriteAt::Last) => format!("{side} the last write of {commit}"),
        Some(WriteAt::Nth(n)) => format!("{side} write {n} of {commit}"),
    }
}

/// Where a fault is aimed: `height 1000.., before state.db sync 1, block sync, at least 2 blocks`.
pub fn asked(address: &Address) -> String {
    let mut text = String::new();
    if address.height.from == 0 && address.height.to.is_none() {
        text.push_str("any height");
    } else {
        // Writing to a string cannot fail.
        let _ = write!(text, "height {}", address.height);
    }
    let _ = write!(text, ", {}", event(address.phase, &address.store, address.sync, address.write));
    if let Some(m) = address.mode {
        let _ = write!(text, ", {}", mode(m));
    }
    if let Some(window) = address.window {
        let _ = write!(text, ", at least {}", blocks(window));
    }
    text
}

/// Where a fault landed: `height 1412, before state.db sync 1, block sync, 31 blocks`.
pub fn landed(landed: &Landed) -> String {
    let place = event(landed.phase, &landed.store, landed.sync, landed.write);
    let source = match landed.height_source {
        HeightSource::Decoded | HeightSource::Logged => "",
        HeightSource::Counted => " (counted)",
    };
    let window = blocks(landed.window);
    format!("height {}{source}, {place}, {}, {window}", landed.height, mode(landed.mode))
}

/// `1 block`, `31 blocks`.
pub fn blocks(count: u64) -> String {
    counted(count, "block")
}

/// A number with what it counts: `1 height`, `2 heights`, `0 app hashes`.
pub fn counted(count: u64, what: &str) -> String {
    let plural = if what.ends_with("sh") { "es" } else { "s" };
    if count == 1 { format!("1 {what}") } else { format!("{count} {what}{plural}") }
}

/// `410 us`, `3.2 ms`, `510 ms`, `1.9 s`, `75 s`.
pub fn duration(us: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
    let value = us as f64;
    match us {
        0..1_000 => format!("{us} us"),
        1_000..9_950 => format!("{:.1} ms", value / 1e3),
        9_950..999_500 => format!("{:.0} ms", value / 1e3),
        999_500..59_950_000 => format!("{:.1} s", value / 1e6),
        _ => format!("{:.0} s", value / 1e6),
    }
}

/// `410 bytes`, `3.2 KiB`, `51 MiB`, `1.9 GiB`.
pub fn bytes(count: u64) -> String {
    let units = ["KiB", "MiB", "GiB", "TiB"];
    #[expect(clippy::cast_precision_loss, reason = "two digits are shown")]
    let mut value = count as f64 / 1024.0;
    if value < 1.0 {
        return counted(count, "byte");
    }
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < units.len() {
        (value, unit) = (value / 1024.0, unit + 1);
    }
    let digits = usize::from(value < 9.95);
    format!("{value:.digits$} {}", units[unit])
}

/// Quotes a word for a shell where it needs it.
pub fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./=:,@%+".contains(c);
    if !word.is_empty() && word.chars().all(plain) {
        word.to_owned()
    } else {
        format!("'{}'", word.replace('\'', r"'\''"))
    }
}

/// Text that a node wrote, safe on a terminal: one line, and no control character reaches it.
pub fn clean(text: &str) -> String {
    let one = |c: char| match c {
        '\n' | '\t' => ' ',
        c if c.is_control() => '\u{fffd}',
        c => c,
    };
    text.chars().map(one).collect()
}

/// Signs that only typography needs, spelt so that every terminal and every log shows them.
pub fn ascii(text: &str) -> String {
    let spelt = [("\u{2192}", "->"), ("\u{2265}", ">="), ("\u{2264}", "<="), ("\u{2212}", "-"), ("\u{2032}", "'")];
    spelt.iter().fold(text.to_owned(), |text, (sign, plain)| text.replace(sign, plain))
}

/// At most `max` characters, the last two a mark when something is left out.
pub fn cut(text: &str, max: usize) -> String {
    if text.chars().count() <= max {
        return text.to_owned();
    }
    let kept: String = text.chars().take(max.saturating_sub(2)).collect();
    format!("{kept}..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_three_digits_at_most() {
        let words: Vec<_> =
            [7, 3_210, 9_960, 510_000, 999_999, 1_900_000, 75_000_000].into_iter().map(duration).collect();
        assert_eq!(words, ["7 us", "3.2 ms", "10 ms", "510 ms", "1.0 s", "1.9 s", "75 s"]);
    }

    #[test]
    fn bytes_have_three_digits_at_most() {
        let words: Vec<_> = [1, 1_023, 1_024, 3 << 20, 1_023 << 20, 2 << 30].into_iter().map(bytes).collect();
        assert_eq!(words, ["1 byte", "1023 bytes", "1.0 KiB", "3.0 MiB", "1.0 GiB", "2.0 GiB"]);
    }

    #[test]
    fn words_reach_a_shell_as_they_are() {
        let words: Vec<_> = ["a/b.yaml", "", "it's", "$x y"].into_iter().map(quoted).collect();
        assert_eq!(words, ["a/b.yaml", "''", r"'it'\''s'", "'$x y'"]);
    }

    #[test]
    fn a_node_cannot_write_escape_codes_to_the_terminal() {
        assert_eq!(clean("a\u{1b}[2Jb\nc"), "a\u{fffd}[2Jb c");
    }

    #[test]
    fn addresses_read_as_sentences() {
        let address = Address {
            height: "1000..".parse().unwrap(),
            store: "state.db".to_owned(),
            sync: Some(1),
            write: Some(WriteAt::First),
            phase: Phase::Before,
            mode: Some(Mode::BlockSync),
            window: Some(2),
        };
        let words = "height 1000.., before the first write of state.db sync 1, block sync, at least 2 blocks";
        assert_eq!(asked(&address), words);
        let any = Address { height: Default::default(), write: None, mode: None, window: None, ..address };
        assert_eq!(asked(&any), "any height, before state.db sync 1");
    }
}

//! Writing the TOML of a node's configuration: sections of keys, in the order given; and the keys that two families share.

use std::fmt::Write as _;

/// A section and its keys; values are TOML already.
pub(super) fn section(out: &mut String, name: &str, values: &[(&str, String)]) {
    let _ = writeln!(out, "\n[{name}]");
    keys(out, values);
}

/// Keys of the section that is open.
pub(super) fn keys(out: &mut String, values: &[(&str, String)]) {
    for (key, value) in values {
        let _ = writeln!(out, "{key} = {value}");
    }
}

/// Time-outs and pace of consensus, as CometBFT and tm2 have them, with this time between blocks in milliseconds.
pub(super) fn consensus_pace(block_time_ms: u64) -> Vec<(&'static str, String)> {
    let gossip_ms = (block_time_ms / 10).clamp(5, 100);
    vec![
        // A killed proposer costs its rounds this much: long enough for a busy machine, short enough for a test.
        ("timeout_propose", text("1s")),
        ("timeout_propose_delta", text("500ms")),
        ("timeout_prevote", text("500ms")),
        ("timeout_prevote_delta", text("250ms")),
        ("timeout_precommit", text("500ms")),
        ("timeout_precommit_delta", text("250ms")),
        ("timeout_commit", text(&format!("{block_time_ms}ms"))),
        ("skip_timeout_commit", "false".to_owned()),
        ("create_empty_blocks", "true".to_owned()),
        ("create_empty_blocks_interval", text("0s")),
        ("peer_gossip_sleep_duration", text(&format!("{gossip_ms}ms"))),
    ]
}

/// A basic string.
pub(super) fn text(value: &str) -> String {
    let mut quoted = String::with_capacity(value.len() + 2);
    quoted.push('"');
    for c in value.chars() {
        match c {
            '"' | '\\' => quoted.extend(['\\', c]),
            c if c.is_control() => {
                let _ = write!(quoted, "\\u{:04X}", u32::from(c));
            }
            c => quoted.push(c),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    #[test]
    fn text_cannot_break_out_of_its_quotes() {
        assert_eq!(super::text("a\"\nb\\"), r#""a\"\u000Ab\\""#);
    }
}

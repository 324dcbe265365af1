//! What the node's output tells: modes, heights, troubles.

use std::borrow::Cow;

use crate::timeline::line::{self, number};
use crate::timeline::{Heights, LogMark, LogMeaning, Mode};

/// The meaning of one line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Told {
    Mode(Mode),
    Handshake(Heights),
    FlushPoint { from: u64, to: u64 },
    Trouble { class: String },
}

/// Reads a line without its colour codes against the marks of a layout. A line may mean several things.
pub(crate) fn read(line: &str, marks: &[LogMark]) -> Vec<Told> {
    let folded = line.to_ascii_lowercase();
    marks
        .iter()
        .filter(|mark| mark.tokens.iter().all(|token| folded.contains(&token.to_ascii_lowercase())))
        .filter_map(|mark| meaning(line, &mark.meaning))
        .collect()
}

fn meaning(line: &str, meaning: &LogMeaning) -> Option<Told> {
    match meaning {
        LogMeaning::Mode(mode) => Some(Told::Mode(*mode)),
        LogMeaning::Handshake { app, state, store } => {
            let heights = Heights { app: number(line, app), state: number(line, state), store: number(line, store) };
            (heights != Heights::default()).then_some(Told::Handshake(heights))
        }
        LogMeaning::FlushPoint { from, to } => {
            Some(Told::FlushPoint { from: number(line, from)?, to: number(line, to)? })
        }
        LogMeaning::Trouble { class } => Some(Told::Trouble { class: class.clone() }),
    }
}

/// A line as text, without terminal colour codes and without its end.
pub(crate) fn plain(line: &[u8]) -> String {
    let text: Cow<'_, str> = String::from_utf8_lossy(line);
    line::plain(text.trim_end_matches(['\r', '\n']))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(tokens: &[&str], meaning: LogMeaning) -> LogMark {
        LogMark { tokens: tokens.iter().map(|t| (*t).to_owned()).collect(), meaning }
    }

    #[test]
    fn the_handshake_line_of_a_cometbft_node() {
        let marks = [mark(
            &["ABCI Replay Blocks"],
            LogMeaning::Handshake { app: "appHeight".into(), state: "stateHeight".into(), store: "storeHeight".into() },
        )];
        let coloured = b"\x1b[32mI[2026-11-30|10:00:00.123]\x1b[0m ABCI Replay Blocks   module=consensus appHeight=125 storeHeight=126 stateHeight=125\n";
        let line = plain(coloured);
        assert!(line.starts_with("I[2026"), "{line}");
        assert_eq!(read(&line, &marks), [Told::Handshake(Heights::new(125, 125, 126))]);
        let json = r#"{"level":"info","appHeight":1,"storeHeight":"3","stateHeight":2,"_msg":"ABCI replay blocks"}"#;
        assert_eq!(read(json, &marks), [Told::Handshake(Heights::new(1, 2, 3))]);
        assert_eq!(read("ABCI Replay Blocks", &marks), []);
    }

    #[test]
    fn a_flush_point_needs_both_heights() {
        let marks = [mark(&["flush point"], LogMeaning::FlushPoint { from: "from".into(), to: "to".into() })];
        assert_eq!(read("Flush point from=10 to=42", &marks), [Told::FlushPoint { from: 10, to: 42 }]);
        assert_eq!(read("flush point to=42", &marks), []);
    }

    #[test]
    fn a_key_is_a_whole_word() {
        assert_eq!(number("lastheight=4 height=5", "height"), Some(5));
        assert_eq!(number("height_max=4", "height"), None);
        assert_eq!(number("height=-1", "height"), None);
    }
}

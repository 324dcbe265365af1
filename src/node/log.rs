//! The node's log: plain lines on standard error, a few words and then `key=value` pairs, no colour.
//!
//! Each line is one write(2), made before the call returns, so that whoever holds the node's next disk write has seen it.
//! The tokens of the lines made here are an interface: tools find modes, heights and flush points by them.

use std::fmt::{Display, Write as _};
use std::io::Write as _;
use std::sync::{Arc, Mutex, PoisonError};

use super::types::Height;

/// What the node is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Bringing the stores together after a start.
    Replay,
    /// Fetching decided blocks from peers.
    BlockSync,
    /// Deciding blocks.
    Consensus,
}

impl Mode {
    /// As it stands in the log.
    pub fn name(self) -> &'static str {
        match self {
            Self::Replay => "replay",
            Self::BlockSync => "block_sync",
            Self::Consensus => "consensus",
        }
    }
}

#[derive(Clone, Debug)]
enum Sink {
    Stderr,
    Memory(Arc<Mutex<Vec<String>>>),
}

/// Where lines go. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Log {
    sink: Sink,
}

impl Log {
    /// To standard error.
    pub fn stderr() -> Self {
        Self { sink: Sink::Stderr }
    }

    /// Into memory, without times, for tests.
    pub fn memory() -> Self {
        Self { sink: Sink::Memory(Arc::default()) }
    }

    /// The lines kept in memory.
    pub fn lines(&self) -> Vec<String> {
        match &self.sink {
            Sink::Stderr => Vec::new(),
            Sink::Memory(lines) => lines.lock().unwrap_or_else(PoisonError::into_inner).clone(),
        }
    }

    fn line(&self, level: &str, words: &str, fields: &[(&str, &dyn Display)]) {
        let mut line = words.to_owned();
        for (key, value) in fields {
            let value = value.to_string();
            let plain = !value.is_empty() && !value.contains([' ', '"', '=', '\n']);
            let _ = if plain { write!(line, " {key}={value}") } else { write!(line, " {key}={value:?}") };
        }
        match &self.sink {
            Sink::Memory(lines) => lines.lock().unwrap_or_else(PoisonError::into_inner).push(line),
            Sink::Stderr => {
                let text = format!("{} {level} {line}\n", jiff::Timestamp::now());
                // Standard error is unbuffered: this is one write(2). A reader that is gone is no reason to stop.
                let _ = std::io::stderr().write_all(text.as_bytes());
            }
        }
    }

    /// A line of the usual kind. `words` has no `=`.
    pub fn info(&self, words: &str, fields: &[(&str, &dyn Display)]) {
        self.line("INFO", words, fields);
    }

    /// Something that needs attention.
    pub fn error(&self, words: &str, fields: &[(&str, &dyn Display)]) {
        self.line("ERROR", words, fields);
    }

    /// `mode=…`, written by whoever enters the mode, before its first write to a store.
    pub fn mode(&self, mode: Mode, height: Height) {
        self.info("enter", &[("mode", &mode.name()), ("height", &height)]);
    }

    /// The handshake line: the three heights found on disk.
    pub fn handshake(&self, app: Height, store: Height, state: Height) {
        self.info("handshake", &[("appHeight", &app), ("storeHeight", &store), ("stateHeight", &state)]);
    }

    /// The line before the first write of a flush of blocks `from`+1 to `to`.
    pub fn flush_point(&self, from: Height, to: Height) {
        self.info("flush point", &[("from", &from), ("to", &to)]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_have_stable_tokens() {
        let log = Log::memory();
        log.handshake(1, 3, 2);
        log.flush_point(2, 9);
        log.mode(Mode::BlockSync, 9);
        log.error("stop", &[("reason", &"no space left")]);
        assert_eq!(
            log.lines(),
            [
                "handshake appHeight=1 storeHeight=3 stateHeight=2",
                "flush point from=2 to=9",
                "enter mode=block_sync height=9",
                "stop reason=\"no space left\"",
            ]
        );
    }
}

//! What `run` shows on stderr while the run goes on: live lines on a terminal, plain lines elsewhere.

use std::io::{IsTerminal, stderr};
use std::time::Duration;

use indicatif::{MultiProgress, ProgressBar, ProgressStyle};

use crate::report::live::{Heights, PlainLines, node_lines};
use crate::report::words;
use crate::timeline::Record;

/// Most lines that live nodes take on a terminal.
const ROWS_MAX: usize = 16;
/// Longest line above them, in characters: the whole one is in the timeline.
const LINE_MAX: usize = 118;
/// Time between two drawings, in microseconds of the run.
const DRAW_EVERY_US: u64 = 100_000;

/// Shows records on stderr as they come. Drop it before anything else is printed.
#[derive(Debug)]
pub(crate) struct LiveDisplay {
    lines: PlainLines,
    terminal: Option<Terminal>,
}

#[derive(Debug)]
struct Terminal {
    bars: MultiProgress,
    rows: Vec<ProgressBar>,
    drawn_at_us: u64,
}

impl LiveDisplay {
    /// Live lines when stderr is a terminal that they can be drawn on, plain ones when not.
    pub(crate) fn new() -> Self {
        // One that cannot move its cursor gets plain lines as well: nothing would be drawn on it.
        let live = stderr().is_terminal() && std::env::var_os("TERM").is_none_or(|name| name != "dumb");
        let terminal = live.then(|| Terminal { bars: MultiProgress::new(), rows: Vec::new(), drawn_at_us: 0 });
        Self { lines: PlainLines::default(), terminal }
    }

    /// Takes one record in.
    pub(crate) fn apply(&mut self, record: &Record) {
        let heights = if self.terminal.is_some() { Heights::Elsewhere } else { Heights::NowAndThen };
        for line in self.lines.apply(record, heights) {
            match &self.terminal {
                // A terminal that went away must not end the run.
                Some(terminal) => drop(terminal.bars.println(words::cut(&line, LINE_MAX))),
                None => super::tell(format_args!("{line}")),
            }
        }
        if let Some(terminal) = &mut self.terminal
            && record.at_us >= terminal.drawn_at_us + DRAW_EVERY_US
        {
            terminal.drawn_at_us = record.at_us;
            terminal.draw(&node_lines(self.lines.state(), ROWS_MAX));
        }
    }
}

impl Terminal {
    fn draw(&mut self, lines: &[String]) {
        while self.rows.len() < lines.len() {
            let style = ProgressStyle::with_template("{spinner:.dim} {msg}");
            let row = self.bars.add(ProgressBar::new_spinner().with_style(style.expect("a constant template")));
            row.enable_steady_tick(Duration::from_millis(200));
            self.rows.push(row);
        }
        for (row, line) in self.rows.iter().zip(lines) {
            row.set_message(line.clone());
        }
    }
}

impl Drop for LiveDisplay {
    fn drop(&mut self) {
        if let Some(terminal) = &self.terminal {
            for row in &terminal.rows {
                row.finish_and_clear();
            }
            drop(terminal.bars.clear());
        }
    }
}

//! What people read, made from timelines alone: no clock, no file, no process.
//!
//! * [`RunReport`]: takes a timeline in, record by record, and gives every form below.
//! * [`state`]: what is known so far, record by record; the live lines and the page show the same one.
//! * [`syncs`]: syncs a block by node, mode and store, with the tier that they were counted in.
//! * [`live`]: the lines while a run goes on.
//! * [`terminal`]: what is printed at the end.
//! * [`markdown`]: the same as Markdown.
//! * [`words`]: places, times and exits in words.

pub mod live;
pub mod markdown;
pub mod state;
pub mod syncs;
pub mod terminal;
pub mod words;

#[cfg(test)]
mod sample;

use crate::judge::{Judge, Judgement};
use crate::timeline::Record;

/// A timeline taken in, whole or as far as it has come.
#[derive(Default)]
pub struct RunReport {
    /// What is known of nodes and faults.
    pub state: state::LiveState,
    /// Syncs counted so far.
    pub syncs: syncs::Syncs,
    judge: Judge,
}

impl RunReport {
    /// Takes the next record in.
    pub fn push(&mut self, record: &Record) {
        self.state.apply(record);
        self.syncs.apply(record);
        self.judge.push(record);
    }

    /// What the judge says; `results` is the run's folder, as it is printed.
    pub fn judgement(&self, results: &str) -> Judgement {
        Judgement { results: results.to_owned(), ..self.judge.judgement() }
    }

    /// What is printed at the end of a run.
    pub fn terminal(&self, judgement: &Judgement, style: &terminal::Style) -> String {
        terminal::render(&self.state, &self.syncs.group_rows(), judgement, style)
    }

    /// The end of a run as Markdown.
    pub fn markdown(&self, judgement: &Judgement) -> String {
        markdown::render(&self.state, &self.syncs.group_rows(), judgement)
    }
}

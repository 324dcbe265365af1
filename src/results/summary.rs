//! What the list of runs says about one run, read from its folder.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::timeline::{Event, Record};

use super::timeline::ends;
use super::{Document, Ownership, ownership};

/// How far a run has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunState {
    /// Its controller is at work.
    Running,
    /// It came to its end.
    Ended,
    /// The user stopped it.
    Interrupted,
    /// Its controller died before the end.
    ControllerGone,
    /// Its folder cannot be read.
    Unreadable,
}

impl RunState {
    /// For people.
    pub fn words(self) -> &'static str {
        match self {
            Self::Running => "running",
            Self::Ended => "ended",
            Self::Interrupted => "interrupted",
            Self::ControllerGone => "interrupted (controller gone)",
            Self::Unreadable => "unreadable",
        }
    }

    /// Whether nothing more will be written.
    pub fn is_final(self) -> bool {
        self != Self::Running
    }
}

/// One run in the list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunSummary {
    /// Run id.
    pub run: String,
    /// How far it has come.
    pub state: RunState,
    /// The verdict's machine name; `None` until there is one.
    pub verdict: Option<String>,
    /// What the first finding says, or why the folder cannot be read.
    pub why: Option<String>,
    /// Topology name; empty when the run died before it was written.
    pub topology: String,
    /// Seed of the plan.
    pub seed: u64,
    /// Engine name.
    pub engine: String,
    /// Wall clock at the start, RFC 3339; empty when unknown.
    pub started: String,
    /// From the first record to the last, in milliseconds.
    pub duration_ms: u64,
    /// Planned nodes.
    pub nodes: u64,
    /// Planned faults, occurrences counted.
    pub faults: u64,
    /// Faults that the judge holds proven.
    pub faults_proven: u64,
    /// The run's folder.
    pub folder: PathBuf,
}

/// The parts of `verdict.json` that the list shows. Unknown keys are allowed: the file grows with the judge.
#[derive(Default, Deserialize)]
struct Verdict {
    verdict: Option<String>,
    #[serde(default)]
    findings: Vec<BTreeMap<String, serde_json::Value>>,
    #[serde(default)]
    faults: Vec<BTreeMap<String, serde_json::Value>>,
}

/// Reads the summary of the run in `folder`, from the ends of its timeline and its verdict. What cannot be read is
/// said in the summary, so that one bad folder never hides the others.
pub fn summarise(folder: &Path) -> RunSummary {
    let run = folder.file_name().map(|n| n.to_string_lossy().into_owned()).unwrap_or_default();
    let mut summary = RunSummary {
        run,
        state: RunState::Unreadable,
        verdict: None,
        why: None,
        topology: String::new(),
        seed: 0,
        engine: String::new(),
        started: String::new(),
        duration_ms: 0,
        nodes: 0,
        faults: 0,
        faults_proven: 0,
        folder: folder.to_owned(),
    };
    let ends = match ends(folder) {
        Ok(ends) => ends,
        Err(error) => {
            summary.why = Some(format!("failed to {error}"));
            return summary;
        }
    };
    for record in &ends.head {
        describe(&mut summary, record);
    }
    summary.duration_ms = ends.tail.last().map_or(0, |record| record.at_us / 1000);
    summary.state = state(folder, &ends.tail);
    add_verdict(&mut summary, folder);
    summary
}

fn describe(summary: &mut RunSummary, record: &Record) {
    match &record.event {
        Event::RunStarted(started) => {
            summary.topology.clone_from(&started.topology);
            summary.seed = started.seed;
            summary.engine.clone_from(&started.engine);
            summary.started.clone_from(&started.started);
        }
        Event::Setup(setup) => {
            summary.nodes = setup.nodes.len() as u64;
            summary.faults = setup.faults.len() as u64;
        }
        _ => {}
    }
}

fn state(folder: &Path, tail: &[Record]) -> RunState {
    let ended = tail.iter().any(|r| r.event == Event::RunEnded);
    if tail.iter().any(|r| r.event == Event::Interrupted) && (ended || ownership(folder) == Ownership::Gone) {
        RunState::Interrupted
    } else if ended {
        RunState::Ended
    } else if ownership(folder) == Ownership::Alive {
        RunState::Running
    } else {
        RunState::ControllerGone
    }
}

fn add_verdict(summary: &mut RunSummary, folder: &Path) {
    let Ok(bytes) = fs::read(folder.join(Document::Verdict.file_name())) else { return };
    let verdict: Verdict = match serde_json::from_slice(&bytes) {
        Ok(verdict) => verdict,
        Err(error) => {
            summary.why = Some(format!("failed to read verdict.json: {error}"));
            return;
        }
    };
    summary.verdict = verdict.verdict;
    summary.why = verdict.findings.first().and_then(|f| f.get("detail")?.as_str()).map(str::to_owned);
    let proven = |fault: &&BTreeMap<String, serde_json::Value>| fault.get("proven").is_some_and(|p| p == true);
    summary.faults_proven = verdict.faults.iter().filter(proven).count() as u64;
}

//! Observation files: what was written down about a network that midflush did not run, brought into the same neutral
//! picture that a timeline gives and judged by the same rules, plus those for things that no timeline holds.

mod build;
mod clock;
mod config;
mod file;
mod measure;
mod place;
mod processes;
mod rpc;
mod sense;
mod shape;
mod sign;
mod stores;
mod value;

use super::model::Model;
use super::{Consequence, Finding, Judgement, Said, Verdict, conclude, rules};
use file::File;

/// An observation file makes no sense.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {message}")]
pub struct ObservationError {
    /// `line 7, column 3`, or the path of the value in the file.
    pub place: String,
    /// What is wrong.
    pub message: String,
}

impl ObservationError {
    fn at(place: impl Into<String>, message: impl Into<String>) -> Self {
        Self { place: place.into(), message: message.into() }
    }
}

/// Judges an observation file, YAML or JSON.
pub fn judge_observation(text: &str) -> Result<Judgement, ObservationError> {
    let mut file = parse(text)?;
    let judged = sense::check(&file).and_then(|()| {
        file.once();
        judge_file(&file)
    });
    judged.map_err(|error| match place::of(text, &error.place) {
        Some((line, column)) => {
            ObservationError::at(format!("line {line}, column {column}, {}", error.place), error.message)
        }
        None => error,
    })
}

fn judge_file(file: &File) -> Result<Judgement, ObservationError> {
    let mut said = Said::default();
    let answers = rpc::decode(file, &mut said)?;
    let strangers = config::check(file, &answers, &mut said);
    let mut models = build::models(file, &answers, &strangers)?;
    for model in &mut models {
        processes::add(file, model);
    }
    for model in &models {
        let Said { findings, notes, faults } = rules(model);
        said.findings.extend(findings);
        said.notes.extend(notes);
        said.faults.extend(faults);
    }
    build::ranges(file, &mut said);
    build::same_hash(file, &mut said)?;
    rpc::nothing_to_compare(file, &models, &mut said);
    processes::check(file, &models, &mut said);
    sign::check(file, &mut said)?;
    stores::check(file, &mut said);
    clock::check(file, &models, &mut said)?;
    measure::check(file, &mut said);
    told(file, &mut said);
    nothing_seen(file, &models, &mut said);
    let all: Vec<&Model> = models.iter().collect();
    let mut judgement = conclude(&all, said);
    // There are no records to point at.
    for finding in &mut judgement.findings {
        finding.evidence.clear();
        finding.consequences.iter_mut().for_each(|c| c.evidence.clear());
    }
    Ok(judgement)
}

/// No finding must not pass for agreement where nothing was looked at, or only one node's hashes.
fn nothing_seen(file: &File, models: &[Model], said: &mut Said) {
    let compared: u64 = models.iter().map(|m| m.states.compared() + m.blocks.compared()).sum();
    let hashes = file.app_hashes.is_some() || file.block_ids.is_some();
    if !said.findings.is_empty() || !said.notes.is_empty() || compared > 0 || file.tells_more_than_hashes() {
        return;
    }
    let what =
        if hashes { "hashes of one node only, and nothing to compare them with" } else { "nothing was observed" };
    said.findings.push(
        Finding::new(Verdict::Inconclusive, what)
            .why("what was not seen cannot be judged")
            .next("observe two nodes at least"),
    );
}

fn parse(text: &str) -> Result<File, ObservationError> {
    let file: File = if text.trim_start().starts_with('{') {
        serde_json::from_str(text).map_err(|e| {
            ObservationError::at(format!("line {}, column {}", e.line(), e.column()), in_words(&e.to_string()))
        })?
    } else {
        serde_yaml::from_str(text).map_err(|e| {
            let place = e
                .location()
                .map_or_else(|| "the file".to_owned(), |l| format!("line {}, column {}", l.line(), l.column()));
            ObservationError::at(place, in_words(&e.to_string()))
        })?
    };
    if file.observation != file::VERSION {
        let message = format!("format version {}, this midflush reads {}", file.observation, file::VERSION);
        return Err(ObservationError::at("observation", message));
    }
    Ok(file)
}

/// The message of a parser without the place, which stands in front already, and without names of types.
fn in_words(message: &str) -> String {
    let words = [
        ("expected u32", "expected a whole number"),
        ("expected u64", "expected a whole number"),
        ("expected u16", "expected a whole number"),
        ("expected i32", "expected a whole number"),
        ("expected f64", "expected a number"),
        ("expected a sequence", "expected a list"),
        ("invalid type: sequence", "invalid type: a list"),
        ("invalid type: unit value", "invalid type: nothing"),
        ("invalid type: map", "invalid type: a map"),
    ];
    let message = message.split(" at line ").next().unwrap_or(message);
    let mut message = words.iter().fold(message.to_owned(), |text, (name, plain)| text.replace(name, plain));
    if let Some((before, name)) = message.split_once("expected struct ") {
        let rest = name.split_once(char::is_whitespace).map_or("", |(_, rest)| rest);
        message = format!("{before}expected a map {rest}").trim_end().to_owned();
    }
    message
}

/// Findings as told by others, to be brought to one a cause.
fn told(file: &File, said: &mut Said) {
    let mut told: Vec<&file::FindingTold> = file.findings.iter().collect();
    told.sort_by_key(|f| f.t);
    for finding in told {
        let class = finding.class.as_deref().map(|c| format!(" ({c})")).unwrap_or_default();
        let at = finding.t.map(|t| format!(" at t={} s", t.0 as f64 / 1e6)).unwrap_or_default();
        let mut made = Finding::new(finding.finding, format!("as told{class}{at}"))
            .height(finding.height.map(|h| h.0))
            .why("told by the observation")
            .next("look at the first of them; the rest follows");
        made.node.clone_from(&finding.node);
        made.class.clone_from(&finding.class);
        said.findings.push(made);
    }
}

/// A finding whose cause is another, which is known here and not by the general rules.
fn caused(finding: &mut Finding, verdict: Verdict, detail: impl Into<String>) {
    finding.consequences.push(Consequence {
        verdict,
        node: finding.node.clone(),
        height: finding.height,
        detail: detail.into(),
        evidence: Vec::new(),
    });
}

//! Timeline to findings to verdict; pure, and the only thing that decides a verdict.
//!
//! Every rule is a function of one neutral picture ([`model`]), which is gathered from a timeline record by record or read
//! from an observation file. Rules give findings; [`merge`] folds consequences into their causes; the worst finding is
//! the verdict.

mod acknowledged;
mod agreement;
mod double_sign;
mod exits;
mod expectations;
mod expected;
mod failed_calls;
mod faults;
mod gather;
mod judgement;
mod liveness;
mod merge;
mod model;
mod observe;
mod pace;
mod power;
mod predict;
mod published;
mod restarts;
mod series;
mod signature;
mod signed;
mod table;
mod triage;
mod verdict;

#[cfg(test)]
mod tests;

pub use judgement::{ExpectedRow, FaultRow, JSON_VERSION, Judgement, NodeRow};
pub use observe::{ObservationError, judge_observation};
pub use predict::{Expected, Predicted, predict};
pub use verdict::{Consequence, Finding, Note, Outcome, Verdict};

use gather::Gather;
use model::Model;

use crate::timeline::{Record, Role};

/// Judges a timeline, whole or as far as it has come.
pub fn judge(records: &[Record]) -> Judgement {
    let mut judge = Judge::new();
    for record in records {
        judge.push(record);
    }
    judge.judgement()
}

/// Judges a timeline as it grows.
#[derive(Clone, Debug)]
pub struct Judge {
    gather: Gather,
}

impl Default for Judge {
    fn default() -> Self {
        let mut gather = Gather::default();
        // Of a timeline all is expected to be there, even before its first record.
        gather.model.complete = true;
        Self { gather }
    }
}

impl Judge {
    /// Before the first record.
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes the next record in.
    pub fn push(&mut self, record: &Record) {
        self.gather.push(record);
    }

    /// What can be said so far. Costs time in proportion to the heights seen, not to the records.
    pub fn judgement(&self) -> Judgement {
        conclude(&[&self.gather.model], rules(&self.gather.model))
    }
}

/// What the rules say about one model, before causes and consequences are told apart.
#[derive(Debug, Default)]
struct Said {
    findings: Vec<Finding>,
    notes: Vec<Note>,
    faults: Vec<FaultRow>,
}

/// Runs every rule over a model.
fn rules(model: &Model) -> Said {
    let (faults, mut findings) = faults::table(model);
    let mut notes = Vec::new();
    findings.extend(agreement::check(model));
    findings.extend(agreement::nothing_in_common(model));
    findings.extend(double_sign::check(model));
    findings.extend(published::check(model));
    findings.extend(acknowledged::check(model));
    for (found, noted) in [restarts::check(model), failed_calls::check(model)] {
        for finding in found {
            if !double_sign::known(&mut findings, &finding) {
                findings.push(finding);
            }
        }
        notes.extend(noted);
    }
    let growth = pace::growth(model);
    let bounds = pace::bounds(model, &growth);
    let of_the_end = [
        (expectations::check(model), Vec::new()),
        liveness::check(model, &bounds),
        power::check(model, &growth, &bounds),
        exits::check(model),
    ];
    for (found, noted) in of_the_end {
        findings.extend(found.into_iter().map(|f| if model.breaks_off() { so_far(f) } else { f }));
        notes.extend(noted);
    }
    notes.extend(expectations::notes(model));
    Said { findings, notes, faults }
}

/// A finding by rules that look at how things end, where the record breaks off before its end: what did not come about so far
/// may come yet. What has happened for good stays as it is.
fn so_far(mut finding: Finding) -> Finding {
    let open = matches!(
        finding.verdict,
        Verdict::Stuck
            | Verdict::NeverCatchesUp
            | Verdict::ChainHalted
            | Verdict::ExpectationFailed
            | Verdict::ConvergedSlow
    );
    if open {
        finding.detail = format!("so far {}: {}", finding.verdict, finding.detail);
        finding.verdict = Verdict::Inconclusive;
    }
    finding
}

/// The judgement of models that share a run, one a chain.
fn conclude(models: &[&Model], said: Said) -> Judgement {
    let mut findings = merge::merge(said.findings);
    let mut notes: Vec<Note> = Vec::new();
    for note in said.notes {
        if !notes.contains(&note) {
            notes.push(note);
        }
    }
    let expected = models.first().and_then(|m| m.expect.verdict.as_ref());
    let expected = expected.map(|wanted| expected::compare(wanted, &mut findings));
    let identity = models.first().map(|m| m.identity.clone()).unwrap_or_default();
    Judgement {
        version: JSON_VERSION,
        run: identity.run,
        topology: identity.topology,
        seed: identity.seed,
        engine: identity.engine,
        verdict: findings.first().map_or(Verdict::Converged, |f| f.verdict),
        nodes: models.iter().flat_map(|m| node_rows(m, &findings)).collect(),
        findings,
        notes,
        faults: said.faults,
        heights_compared: models.iter().map(|m| m.states.compared()).sum(),
        distinct_app_hashes: models.iter().map(|m| m.states.distinct()).sum(),
        expected,
        results: String::new(),
        interrupted: models.iter().any(|m| m.end.interrupted),
    }
}

fn node_rows(model: &Model, findings: &[Finding]) -> Vec<NodeRow> {
    let about = |f: &&Finding, name: &str| f.names().any(|n| n == name) || f.concerns.iter().any(|n| n == name);
    let row = |(index, node): (usize, &model::Node)| NodeRow {
        name: node.name.clone(),
        role: node.role.unwrap_or(Role::Full),
        verdict: match findings.iter().find(|f| about(f, &node.name)) {
            Some(finding) => finding.verdict,
            // A node of a run whose hashes nobody has read agrees with nobody.
            None if model.complete && [&model.states, &model.blocks].iter().all(|t| t.range_of(index).is_none()) => {
                Verdict::Inconclusive
            }
            None => Verdict::Converged,
        },
        height: node.samples.last().map(|s| s.height),
        app_hash: node.app_hash.as_ref().map(|(_, hash)| hash.clone()),
        starts: node.lives.keys().next_back().copied().unwrap_or(0),
        heights: node.heights_at_the_end(),
    };
    model.nodes.iter().enumerate().map(row).collect()
}

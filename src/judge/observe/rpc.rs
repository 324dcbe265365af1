//! RPC answers as they came, told apart from errors and from silence.

use serde_json::Value;

use super::file::{Family, File, RpcAnswer};
use super::shape::{Facts, family_by_shape, read};
use super::value::Seconds;
use super::{Model, ObservationError};
use crate::judge::{Finding, Note, Said, Verdict};
use crate::timeline::wire::{WireError, unwrap};
use crate::timeline::{CommitVotes, DoubleVote};

/// One answer that could be read.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) node: String,
    pub(super) t: Option<Seconds>,
    pub(super) status: Option<(u64, Option<bool>)>,
    pub(super) states: Vec<(u64, String)>,
    pub(super) blocks: Vec<(u64, String)>,
    pub(super) app_hash: Option<String>,
    pub(super) chain_id: Option<String>,
    pub(super) app_version: Option<String>,
    pub(super) app_height: Option<u64>,
    pub(super) signs_as: Option<String>,
    pub(super) votes: Option<CommitVotes>,
    pub(super) evidence: Vec<DoubleVote>,
}

/// Reads all answers; those that are errors or say nothing become findings about that height.
pub(super) fn decode(file: &File, said: &mut Said) -> Result<Vec<Answer>, ObservationError> {
    let mut answers = Vec::new();
    for (number, answer) in file.rpc.iter().enumerate() {
        // The same answer written down twice is one; it does not agree with itself.
        if file.rpc[..number].contains(answer) {
            continue;
        }
        let place = format!("rpc[{number}]");
        let body = match &answer.body {
            Value::String(text) if !text.trim_start().starts_with(['{', '[']) => {
                said.findings.push(no_answer(answer, &format!("the answer is no JSON: {text}")));
                continue;
            }
            Value::String(text) => serde_json::from_str(text)
                .map_err(|e| ObservationError::at(format!("{place}.body"), format!("is no JSON: {e}")))?,
            other => other.clone(),
        };
        let told = answer.family.or_else(|| file.nodes.get(&answer.node).and_then(|n| n.family)).or(file.family);
        let family = told.or_else(|| family_by_shape(&body)).unwrap_or(Family::Cometbft);
        match facts(answer, family, body) {
            Ok(facts) => {
                let words = format!("{}: {}", answer.endpoint, facts.words.join(", "));
                let block = facts.blocks.first().map(|(h, _)| *h);
                let height = facts.status.map(|(h, _)| h).or(block).or(facts.app_height);
                said.notes.push(Note::about("rpc", &answer.node, words).height(height));
                contradictions(answer, &facts, said);
                let Facts {
                    status,
                    states,
                    blocks,
                    app_hash,
                    chain_id,
                    app_version,
                    app_height,
                    signs_as,
                    votes,
                    evidence,
                    words: _,
                } = facts;
                answers.push(Answer {
                    node: answer.node.clone(),
                    t: answer.t,
                    status,
                    states,
                    blocks,
                    app_hash,
                    chain_id,
                    app_version,
                    app_height,
                    signs_as,
                    votes,
                    evidence,
                });
            }
            Err(error) if error.message.contains("no known endpoint") => {
                return Err(ObservationError::at(format!("{place}.endpoint"), error.message));
            }
            Err(error) => said.findings.push(no_answer(answer, &error.message)),
        }
    }
    self_agreement(&answers, said);
    Ok(answers)
}

fn facts(answer: &RpcAnswer, family: Family, body: Value) -> Result<Facts, WireError> {
    if body.is_null() {
        return Err(WireError { message: "the node has no such data: null".to_owned(), absent: true });
    }
    let object = unwrap(body)?;
    let facts = read(&answer.endpoint, family, &object, answer.height.map(|h| h.0))?;
    match answer.http {
        Some(code) if code >= 400 => Err(WireError::new(format!("HTTP {code}"))),
        _ => Ok(facts),
    }
}

/// An error answer is no block, no height 0 and no disagreement.
fn no_answer(answer: &RpcAnswer, why: &str) -> Finding {
    let height = answer.height.map(|h| h.0);
    let at = height.map(|h| format!(" at height {h}")).unwrap_or_default();
    Finding::new(Verdict::Inconclusive, format!("{}{at}: no data (pruned, or not yet there): {why}", answer.endpoint))
        .node(&answer.node)
        .height(height)
        .why("an error or an empty answer is neither a block nor a disagreement")
        .next("ask again later, or a node that keeps this height")
}

/// A block whose height is not the one that was asked for.
fn contradictions(answer: &RpcAnswer, facts: &Facts, said: &mut Said) {
    let Some(asked) = answer.height.map(|h| h.0) else { return };
    if let Some((height, _)) = facts.blocks.first().filter(|(height, _)| *height != asked && facts.blocks.len() == 1) {
        let words = format!("asked for height {asked}, answered with {height}");
        said.notes.push(Note::about("rpc", &answer.node, words).height(*height));
    }
}

/// Several sources of one node have to agree on the same state.
fn self_agreement(answers: &[Answer], said: &mut Said) {
    let mut seen: Vec<(&str, u64, &str)> = Vec::new();
    let mut agreed = 0_u64;
    for answer in answers {
        for (height, hash) in &answer.states {
            match seen.iter().find(|(node, h, _)| *node == answer.node && h == height) {
                Some((_, _, other)) if other == hash => agreed += 1,
                Some((_, _, other)) => said.findings.push(
                    Finding::new(
                        Verdict::Diverged,
                        format!("its own answers give {other} and {hash} for the state after {height}"),
                    )
                    .node(&answer.node)
                    .height(*height)
                    .why("one node gives two app hashes for the same state")
                    .next("compare its block results, the next header and its application"),
                ),
                None => seen.push((&answer.node, *height, hash)),
            }
        }
    }
    if agreed > 0 {
        said.notes
            .push(Note::run("self-agreement", format!("{agreed} states were given by two sources of one node, equal")));
    }
}

/// A single look at a single node is no comparison.
pub(super) fn nothing_to_compare(file: &File, models: &[Model], said: &mut Said) {
    let compared: u64 = models.iter().map(|m| m.states.compared() + m.blocks.compared()).sum();
    let agreed = said.notes.iter().any(|n| n.kind == "self-agreement");
    let other = file.app_hashes.is_some() || file.block_ids.is_some() || !file.heights.is_empty();
    if file.rpc.is_empty() || compared > 0 || agreed || other || !said.findings.is_empty() {
        return;
    }
    said.findings.push(
        Finding::new(Verdict::Inconclusive, "answers were read, and there is nothing to compare them with")
            .why("one look says neither that a node advances nor that it agrees")
            .next("look twice, and at two nodes"),
    );
}

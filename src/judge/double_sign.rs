//! Validators that signed two blocks at one height, round and type, from commits and from the evidence in blocks; and validator keys
//! that two nodes share.
//!
//! Two blocks in different rounds are no double sign: a validator may vote anew in each round.

use std::collections::{BTreeMap, BTreeSet};

use super::model::{Model, Proof, Vote};
use super::{Finding, Verdict, signed};
use crate::timeline::VoteType;

/// Height, round and type of votes.
type Place = (u64, u64, VoteType);

/// The block ids that a validator signed at one place: where each was seen, and the records.
#[derive(Default)]
struct Signed<'a>(BTreeMap<&'a str, BTreeSet<(Proof, u64)>>);

/// One finding a validator, at the first place.
pub(super) fn check(model: &Model) -> Vec<Finding> {
    let mut votes: BTreeMap<&str, BTreeMap<Place, Signed>> = BTreeMap::new();
    for vote in &model.votes {
        let Vote { validator, height, round, kind, id, proof, seq } = vote;
        let place = votes.entry(validator).or_default().entry((*height, *round, *kind)).or_default();
        place.0.entry(id).or_default().insert((*proof, *seq));
    }
    let mut findings: Vec<Finding> = votes
        .into_iter()
        .filter_map(|(validator, mut places)| {
            places.retain(|_, signed| signed.0.len() > 1);
            (!places.is_empty()).then(|| twice(model, validator, &places))
        })
        .collect();
    findings.extend(
        shared(model)
            .into_iter()
            .filter(|finding| {
                // The finding about these nodes says so too.
                !findings.iter().any(|known| known.node == finding.node)
            })
            .collect::<Vec<_>>(),
    );
    findings
}

/// What the log of a node says about a double sign that votes show already.
pub(super) fn known(findings: &mut [Finding], told: &Finding) -> bool {
    let about = |f: &&mut Finding| told.names().any(|name| f.names().any(|n| n == name));
    let mut double_signs = findings.iter_mut().filter(|f| f.verdict == Verdict::DoubleSign && f.class.is_none());
    let Some(known) = double_signs.find(about).filter(|_| told.verdict == Verdict::DoubleSign) else { return false };
    known.consequences.push(told.clone().into());
    true
}

fn twice(model: &Model, validator: &str, places: &BTreeMap<Place, Signed>) -> Finding {
    let mut all = places.iter();
    let ((height, round, kind), signed) = all.next().expect("only validators with such a place come here");
    let side = |(id, proofs): (&&str, &BTreeSet<(Proof, u64)>)| ((*id).to_owned(), seen_in(model, proofs));
    let sides: Vec<(String, String)> = signed.0.iter().map(side).collect();
    let mut detail = format!("validator {validator}: {}", signed::two_votes(*kind, *height, *round, &sides));
    if let Some((last, _, _)) = all.next_back().map(|(place, _)| place) {
        detail.push_str(&format!("; and at {} further places up to height {last}", places.len() - 1));
    }
    let nodes = nodes_of(model, validator);
    if nodes.len() > 1 {
        detail.push_str(&format!("; {} sign with this key", model.names(&nodes)));
    }
    let seqs = places.values().flat_map(|signed| signed.0.values().flatten().map(|(_, seq)| *seq));
    let finding = signed::twice(detail).height(*height).evidence(seqs);
    match nodes.is_empty() {
        // Whoever wrote an observation may know validators by their addresses only.
        true if model.complete => finding,
        true => finding.node(validator),
        false => finding.node(model.names(&nodes)),
    }
}

/// In words, where one of the votes was seen.
fn seen_in(model: &Model, proofs: &BTreeSet<(Proof, u64)>) -> String {
    let mut blocks: Vec<u64> = Vec::new();
    let mut commits: Vec<usize> = Vec::new();
    for (proof, _) in proofs {
        match proof {
            Proof::Commit(node) if !commits.contains(node) => commits.push(*node),
            Proof::Evidence(block) if !blocks.contains(block) => blocks.push(*block),
            _ => {}
        }
    }
    let mut words: Vec<String> = Vec::new();
    if !commits.is_empty() {
        words.push(format!("in the commit of {}", model.names(&commits)));
    }
    words.extend(blocks.iter().map(|block| format!("in the evidence of block {block}")));
    words.join(", ")
}

/// The nodes that sign under an address, in plan order.
fn nodes_of(model: &Model, validator: &str) -> Vec<usize> {
    let of = |node: &usize| model.nodes[*node].signs_as.contains(validator);
    (0..model.nodes.len()).filter(of).collect()
}

/// Validator keys of more than one node. An observation tells them, and who may share one, among its settings.
fn shared(model: &Model) -> Vec<Finding> {
    if !model.complete {
        return Vec::new();
    }
    let keys: BTreeSet<&String> = model.nodes.iter().flat_map(|node| &node.signs_as).collect();
    let nodes = keys.into_iter().map(|key| (key, nodes_of(model, key))).filter(|(_, nodes)| nodes.len() > 1);
    nodes.map(|(key, nodes)| signed::one_key(&model.names(&nodes), key)).collect()
}

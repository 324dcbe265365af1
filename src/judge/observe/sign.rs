//! Sign states over a restart, and votes: what a validator signed, and whether it may sign again.

use std::collections::BTreeMap;
use std::fmt;

use serde::de::{Error, Visitor};
use serde::{Deserialize, Deserializer};

use super::ObservationError;
use super::file::{File, Spelling};
use super::value::{HashText, Int};
use crate::judge::{Finding, Note, Said, Verdict, signed};
use crate::timeline::VoteType;
use crate::timeline::wire::{Encoding, hash_text};

/// The sign state of one validator before and after a restart.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SignStates {
    pub(super) node: String,
    #[serde(default)]
    pub(super) before: Option<SignPlace>,
    #[serde(default)]
    pub(super) after: Option<SignPlace>,
    /// The file's text, where it does not parse or was not parsed.
    #[serde(default)]
    pub(super) after_text: Option<String>,
    /// The file's size, where only that is known.
    #[serde(default)]
    pub(super) after_bytes: Option<Int>,
    /// Block store height after the restart.
    #[serde(default)]
    pub(super) store: Option<Int>,
    /// Whether the node started and signs, where known.
    #[serde(default)]
    pub(super) started: Option<bool>,
}

/// Last signed height, round and step. Further keys of the file are allowed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub(super) struct SignPlace {
    pub(super) height: Int,
    #[serde(default)]
    pub(super) round: Int,
    #[serde(default)]
    pub(super) step: Int,
}

/// One vote or proposal.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct VoteSeen {
    pub(super) validator: String,
    pub(super) height: Int,
    pub(super) round: Int,
    /// `prevote`, `precommit`, `proposal`, or their numbers 1, 2, 32.
    #[serde(rename = "type", deserialize_with = "vote_type")]
    pub(super) kind: VoteType,
    /// Empty or null is a vote for nil.
    #[serde(default)]
    pub(super) block_id: HashText,
    #[serde(default)]
    pub(super) encoding: Option<Spelling>,
    #[serde(default)]
    pub(super) timestamp: Option<String>,
    #[serde(default)]
    pub(super) signature: Option<String>,
    #[serde(default)]
    pub(super) seen: Option<String>,
}

/// Checks sign states and votes.
pub(super) fn check(file: &File, said: &mut Said) -> Result<(), ObservationError> {
    for states in &file.sign_states {
        sign_state(states, said);
    }
    double_signs(file, said)
}

impl fmt::Display for SignPlace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.height.0, self.round.0, self.step.0)
    }
}

/// Heights, then rounds, then steps decide; the derived order of the type is that order.
fn sign_state(states: &SignStates, said: &mut Said) {
    let after = match read_after(states) {
        Ok(after) => after,
        Err(why) => return unreadable(states, &why, said),
    };
    let height = after.map(|a| a.height.0);
    match (states.before, after) {
        (Some(before), Some(after)) if after < before => {
            said.findings.push(signed::regressed(&states.node, before, after, after.height.0));
        }
        (None, Some(after)) if states.store.is_some_and(|s| s.0 > 0) && after.height.0 < store(states) => {
            said.findings.push(
                Finding::new(
                    Verdict::SignStateRegressed,
                    format!(
                        "a fresh sign state ({after}) beside blocks up to {}: the risk of signing twice",
                        store(states)
                    ),
                )
                .node(&states.node)
                .height(after.height.0)
                .why("a validator with old data and a new sign state does not know what it signed")
                .next("do not start the node; bring back the sign state that belongs to these data"),
            );
        }
        (_, Some(after)) if states.store.is_some() && after.height.0 > store(states) + 1 => {
            let ahead = after.height.0 - store(states);
            let words = format!(
                "its sign state {after} is {ahead} ahead of the block store at {}: the data are an old copy, and it stays silent until {}",
                store(states),
                after.height.0
            );
            said.notes.push(Note::about("sign-state", &states.node, words).height(height));
        }
        (_, Some(after)) => {
            let words = format!("sign state {after} is not below what was signed; one above the block store is usual");
            said.notes.push(Note::about("sign-state", &states.node, words).height(height));
        }
        (Some(before), None) => unreadable(states, &format!("gone; {before} was signed before"), said),
        (None, None) => {}
    }
}

fn store(states: &SignStates) -> u64 {
    states.store.map_or(0, |s| s.0)
}

/// The state after the restart, as told or as its text says.
fn read_after(states: &SignStates) -> Result<Option<SignPlace>, String> {
    if states.after_bytes.is_some_and(|bytes| bytes.0 == 0) {
        return Err("empty, 0 bytes".to_owned());
    }
    match &states.after_text {
        Some(text) => {
            let place = serde_json::from_str(text).map_err(|e| format!("no whole JSON ({e}): {text}"))?;
            Ok(Some(place))
        }
        None => Ok(states.after),
    }
}

fn unreadable(states: &SignStates, why: &str, said: &mut Said) {
    said.findings.push(signed::unreadable(&states.node, states.before.map(|b| b.height.0), why, states.started));
}

/// Validator, height, round and type.
type Place<'a> = (&'a str, Int, Int, VoteType);

/// Two signatures for one height, round and type with different block ids, in whatever order they were seen.
fn double_signs(file: &File, said: &mut Said) -> Result<(), ObservationError> {
    let mut places: BTreeMap<Place, Vec<(String, &VoteSeen)>> = BTreeMap::new();
    for (number, vote) in file.votes.iter().enumerate() {
        let encoding = vote.encoding.map_or(Encoding::Hex, Encoding::from);
        let id = hash_text(&vote.block_id.0, encoding).ok_or_else(|| {
            let message = format!("`{}` is no hash in {}", vote.block_id.0, encoding.words());
            ObservationError::at(format!("votes[{number}].block_id"), message)
        })?;
        places.entry((&vote.validator, vote.height, vote.round, vote.kind)).or_default().push((id, vote));
    }
    for ((validator, height, round, kind), votes) in places {
        let mut sides: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
        for (id, vote) in &votes {
            let seen = sides.entry(id).or_default();
            seen.extend(vote.seen.as_deref().filter(|words| !seen.contains(words)));
        }
        let again = votes
            .iter()
            .any(|(_, vote)| (&vote.signature, &vote.timestamp) != (&votes[0].1.signature, &votes[0].1.timestamp));
        if sides.len() > 1 {
            let side = |(id, mut seen): (&str, Vec<&str>)| {
                seen.sort_unstable();
                (id.to_owned(), seen.join(", "))
            };
            let sides: Vec<(String, String)> = sides.into_iter().map(side).collect();
            let detail = signed::two_votes(kind, height.0, round.0, &sides);
            said.findings.push(signed::twice(detail).node(validator).height(height.0));
        } else if again {
            let words = format!("signed {kind} of {}/{} twice for the same block: no double sign", height.0, round.0);
            said.notes.push(Note::about("votes", validator, words).height(height.0));
        }
    }
    Ok(())
}

fn vote_type<'de, D: Deserializer<'de>>(deserializer: D) -> Result<VoteType, D::Error> {
    deserializer.deserialize_any(VoteTypeVisitor)
}

struct VoteTypeVisitor;

impl Visitor<'_> for VoteTypeVisitor {
    type Value = VoteType;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("`prevote`, `precommit`, `proposal`, or 1, 2, 32")
    }

    fn visit_u64<E: Error>(self, v: u64) -> Result<VoteType, E> {
        VoteType::numbered(v).ok_or_else(|| E::invalid_value(serde::de::Unexpected::Unsigned(v), &self))
    }

    fn visit_str<E: Error>(self, v: &str) -> Result<VoteType, E> {
        let name = v.to_ascii_lowercase();
        let known = match name.trim_start_matches("signed_msg_type_") {
            "prevote" => Some(VoteType::Prevote),
            "precommit" => Some(VoteType::Precommit),
            "proposal" => Some(VoteType::Proposal),
            number => number.parse().ok().and_then(VoteType::numbered),
        };
        known.ok_or_else(|| E::invalid_value(serde::de::Unexpected::Str(v), &self))
    }
}

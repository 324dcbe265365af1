//! Findings about sign states, in the same words whether they were read in a run or written down by somebody.

use std::fmt::Display;

use super::{Finding, Verdict};
use crate::timeline::VoteType;

/// The last signed place went back.
pub(crate) fn regressed(node: &str, before: impl Display, after: impl Display, height: u64) -> Finding {
    Finding::new(Verdict::SignStateRegressed, format!("{before} → {after} (height/round/step)"))
        .node(node)
        .height(height)
        .why("the validator has forgotten what it signed, and may sign it again with another block")
        .next("stop it; restore the sign state of the last signature, never an older copy")
}

/// The sign state makes no sense or is gone. Refusing to start is the safe thing; starting all the same is not.
pub(crate) fn unreadable(node: &str, height: Option<u64>, why: &str, started: Option<bool>) -> Finding {
    let (verdict, detail) = if started == Some(true) {
        (
            Verdict::SignStateRegressed,
            format!("the sign state is {why}, and the node started all the same: it has made a fresh one"),
        )
    } else {
        let detail = format!("class sign-state-unreadable: the file is {why}; the node has to refuse, which is safe");
        (Verdict::PanicOnRestart, detail)
    };
    Finding::new(verdict, detail)
        .node(node)
        .height(height)
        .class("sign-state-unreadable")
        .why("without its sign state a validator cannot know what it signed")
        .next("restore the file by hand; midflush never makes a fresh one")
}

/// Two or more votes for one place in words; each with its block id, empty for nil, and where it was seen.
pub(crate) fn two_votes(kind: VoteType, height: u64, round: u64, votes: &[(String, String)]) -> String {
    let side = |(id, seen): &(String, String)| {
        let id = if id.is_empty() { "nil" } else { id };
        if seen.is_empty() { id.to_owned() } else { format!("{id} (seen {seen})") }
    };
    let sides: Vec<String> = votes.iter().map(side).collect();
    format!("two signatures for {kind} at height {height}, round {round}: {}", sides.join(" and "))
}

/// A validator signed two blocks at one place.
pub(crate) fn twice(detail: String) -> Finding {
    Finding::new(Verdict::DoubleSign, detail)
        .why("one validator signed two blocks for the same height, round and type")
        .next(
            "stop it, and compare its sign state before and after each restart; look for a second process with its key",
        )
}

/// Two nodes have one validator key.
pub(crate) fn one_key(nodes: &str, key: &str) -> Finding {
    Finding::new(Verdict::ConfigError, format!("{nodes} share the validator key {key}"))
        .node(nodes)
        .why("two nodes that sign with one key sign twice for one height")
        .next("give each a key of its own")
}

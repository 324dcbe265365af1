//! Findings about sign states, in the same words whether they were read in a run or written down by somebody.

use std::fmt::Display;

use super::{Finding, Verdict};

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

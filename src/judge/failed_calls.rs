//! What a node did after a call of it was made to fail: it ends or stands still. One that goes on builds on what may not be
//! on disk.

use super::faults::after;
use super::judgement::exit_words;
use super::model::{Fault, FaultLanded, Model, Node};
use super::predict::predict_failed;
use super::{Finding, Note, Verdict};
use crate::timeline::{Exit, FaultKind, Layout};

/// What failed calls led to.
pub(crate) fn check(model: &Model) -> (Vec<Finding>, Vec<Note>) {
    let (mut findings, mut notes) = (Vec::new(), Vec::new());
    for fault in model.faults.iter().filter(|f| f.setup.kind == FaultKind::Fail) {
        let node = model.nodes.iter().find(|n| n.name == fault.setup.node);
        if let (Some(node), Some(seen)) = (node, &fault.landed) {
            notes.extend(ended(node, fault, seen));
            findings.extend(went_on(node, fault, seen));
        }
    }
    (findings, notes)
}

fn call(fault: &Fault, seen: &FaultLanded) -> String {
    let errno = fault.setup.errno.map_or_else(String::new, |errno| format!(" with {errno}"));
    let what = if seen.landed.write.is_some() { "a write" } else { "a sync" };
    format!("{what} of {} was made to fail{errno} (height {})", seen.landed.store, seen.landed.height)
}

/// How it took the failure.
fn ended(node: &Node, fault: &Fault, seen: &FaultLanded) -> Option<Note> {
    let (_, life) = node.life_ended_by(&fault.setup.id)?;
    let exit = life.exit.as_ref()?.exit?;
    let how = match exit {
        Exit::Signal(9) => "the node lived on until it was killed".to_owned(),
        other => format!("the node ended with {}", exit_words(other)),
    };
    let words = format!("{}: {how}", call(fault, seen));
    Some(Note::about("failed-call", &node.name, words).height(Some(seen.landed.height)))
}

/// Whether this store decides a height, so that a node may not go on without it.
fn decides(layout: &Layout, store: &str) -> bool {
    layout.flush.iter().any(|commit| commit.store == store && commit.advances.is_some())
}

fn went_on(node: &Node, fault: &Fault, seen: &FaultLanded) -> Option<Finding> {
    let (start, life) = node.life_ended_by(&fault.setup.id)?;
    let (heights, seq) = after(Some(life), node.lives.get(&(start + 1)))?;
    let most = predict_failed(&seen.landed, &node.layout);
    if !decides(&node.layout, &seen.landed.store) || !most.exceeded(heights) {
        return None;
    }
    let detail = format!(
        "{}, and the node went on: it left app/state/store {heights}, where {most} is all that may follow",
        call(fault, seen)
    );
    Some(
        Finding::new(Verdict::ExpectationFailed, detail)
            .node(&node.name)
            .height(Some(seen.landed.height))
            .why("after a failed write or sync nobody knows what is on disk, so nothing may be built on it")
            .next("look for an error of this store that is logged and not acted upon")
            .evidence([seen.seq, seq]),
    )
}

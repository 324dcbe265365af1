//! The fault table: what became of every planned fault, and whether it is proven.
//!
//! A fault that did not happen as asked proves nothing about the node, so it makes the run inconclusive, never a pass.

use super::judgement::{FaultRow, exit_words};
use super::liveness::mode_name;
use super::model::{Fault, FaultLanded, Life, Model, Node, Us};
use super::predict::{predict, predict_failed};
use super::series;
use super::{Finding, Verdict};
use crate::timeline::{Address, Exit, FaultKind, Heights, Landed, Layout};

const SIGKILL: i32 = 9;
const SIGTERM: i32 = 15;

/// Rows in plan order, and one finding a fault that is missed or unproven.
pub(crate) fn table(model: &Model) -> (Vec<FaultRow>, Vec<Finding>) {
    let rows: Vec<FaultRow> = model.faults.iter().map(|fault| row(model, fault)).collect();
    let findings = rows.iter().zip(&model.faults).filter_map(|(row, fault)| finding(row, fault)).collect();
    (rows, findings)
}

fn finding(row: &FaultRow, fault: &Fault) -> Option<Finding> {
    let why = row.why_unproven.as_deref()?;
    let landed = fault.effect_us().is_some();
    let what = if landed { "is not proven" } else { "did not land" };
    let finding = Finding::new(Verdict::Inconclusive, format!("fault \"{}\" {what}: {why}", row.name))
        .node(&row.node)
        .height(row.landed.as_ref().map(|l| l.height))
        .why("a fault that did not happen as asked says nothing about how the node would have come back")
        .evidence(row.evidence.iter().copied());
    Some(if landed {
        finding.next(
            "compare the landed address and its progress with the heights found; look for coverage holes of this node",
        )
    } else {
        finding.next("run `midflush observe` on this node for addresses that exist, or give the fault more time")
    })
}

fn row(model: &Model, fault: &Fault) -> FaultRow {
    let setup = &fault.setup;
    let node = model.nodes.iter().position(|n| n.name == setup.node);
    let life = node.and_then(|n| model.nodes[n].life_ended_by(&setup.id));
    let next = node.zip(life).and_then(|(n, (start, _))| model.nodes[n].lives.get(&(start + 1)));
    let after = after(life.map(|(_, life)| life), next);
    let proof = match setup.asked.as_ref() {
        Some(asked) => aimed(model, node, fault, asked, life, next),
        None => plain(fault, life.map(|(_, life)| life), next),
    };
    let predicted = fault
        .landed
        .as_ref()
        .zip(node)
        .and_then(|(landed, n)| {
            let layout = &model.nodes[n].layout;
            match setup.kind {
                _ if !in_flush(&landed.landed, layout) => None,
                FaultKind::Kill => Some(predict(&landed.landed, layout)),
                FaultKind::Fail => Some(predict_failed(&landed.landed, layout)),
                FaultKind::Stop | FaultKind::Pause | FaultKind::Restart | FaultKind::Upgrade => None,
            }
        })
        .map(|predicted| predicted.to_string());
    let back = back_us(fault, next);
    let ended = life.and_then(|(_, life)| life.exit.as_ref());
    FaultRow {
        name: setup.id.name.clone(),
        occurrence: setup.id.occurrence,
        kind: setup.kind,
        node: setup.node.clone(),
        when: setup.when.clone(),
        asked: setup.asked.clone(),
        landed: fault.landed.as_ref().map(|l| l.landed.clone()),
        predicted,
        after: after.map(|(heights, _)| heights),
        proven: proof.is_ok(),
        why_unproven: proof.err(),
        exit: ended.and_then(|e| e.exit).map(exit_words),
        down_ms: ended
            .map(|e| e.at_us)
            .or(fault.effect_us())
            .zip(back)
            .map(|(from, to)| to.saturating_sub(from) / 1000),
        replayed: next.and_then(replayed),
        caught_up_ms: node.zip(back).and_then(|(n, back)| caught_up_ms(model, n, back)),
        evidence: evidence(fault, life.map(|(_, life)| life), next, after.map(|(_, seq)| seq)),
    }
}

/// The heights that a kill left behind: read from its files, else what the next start said.
pub(super) fn after(life: Option<&Life>, next: Option<&Life>) -> Option<(Heights, u64)> {
    life.and_then(|life| life.stored)
        .filter(|(heights, _)| *heights != Heights::default())
        .or_else(|| next.and_then(|next| next.handshake.as_ref()).map(|h| (h.heights, h.seq)))
}

fn replayed(next: &Life) -> Option<u64> {
    let heights = next.handshake.as_ref()?.heights;
    Some(heights.store?.saturating_sub(heights.app?))
}

fn back_us(fault: &Fault, next: Option<&Life>) -> Option<Us> {
    match fault.setup.kind {
        FaultKind::Pause => fault.reverted.as_ref().map(|(at, _, _)| *at),
        FaultKind::Kill | FaultKind::Stop | FaultKind::Restart | FaultKind::Upgrade | FaultKind::Fail => {
            next.and_then(|next| next.started).map(|(at, _)| at)
        }
    }
}

fn caught_up_ms(model: &Model, node: usize, back: Us) -> Option<u64> {
    let graced = || series::first_in_step_graced(model, node, back);
    let at = series::first_in_step(model, node, back).or_else(graced)?;
    Some(at.saturating_sub(back) / 1000)
}

fn evidence(fault: &Fault, life: Option<&Life>, next: Option<&Life>, heights: Option<u64>) -> Vec<u64> {
    let seqs = [
        fault.triggered.map(|(_, seq)| seq),
        fault.landed.as_ref().map(|l| l.seq),
        fault.applied.as_ref().map(|(_, _, seq)| *seq),
        life.and_then(|l| l.exit.as_ref()).map(|e| e.seq),
        heights,
        next.and_then(|l| l.started).map(|(_, seq)| seq),
        fault.reverted.as_ref().map(|(_, _, seq)| *seq),
        fault.missed.as_ref().map(|(_, seq)| *seq),
    ];
    let mut seqs: Vec<u64> = seqs.into_iter().flatten().collect();
    seqs.sort_unstable();
    seqs.dedup();
    seqs
}

/// Proof of an aimed fault: the agent's record, the wait status, and for a kill the heights that the address predicts.
fn aimed(
    model: &Model,
    node: Option<usize>,
    fault: &Fault,
    asked: &Address,
    life: Option<(u32, &Life)>,
    next: Option<&Life>,
) -> Result<(), String> {
    let node = node.ok_or_else(|| format!("there is no node `{}`", fault.setup.node))?;
    let Some(seen) = &fault.landed else { return Err(not_landed(model, fault)) };
    elsewhere(asked, &seen.landed)?;
    let (start, life) = life.ok_or("the process did not end after it, as far as was seen")?;
    if start != seen.start {
        return Err(format!("it landed in start {} but start {start} ended", seen.start));
    }
    let exit = life.exit.as_ref().and_then(|e| e.exit);
    match fault.setup.kind {
        FaultKind::Kill => {
            wanted_exit(exit, SIGKILL)?;
            if !in_flush(&seen.landed, &model.nodes[node].layout) {
                return Ok(());
            }
            heights_as_predicted(&model.nodes[node], seen, life, next)
        }
        FaultKind::Stop | FaultKind::Restart | FaultKind::Upgrade => ended_by_term(exit),
        // It may end as it likes, or be killed because it lives on.
        FaultKind::Fail if exit.is_none() => Err("the end of the process was not seen".to_owned()),
        FaultKind::Fail | FaultKind::Pause => Ok(()),
    }
}

fn not_landed(model: &Model, fault: &Fault) -> String {
    if let Some((why, _)) = &fault.missed {
        return why.clone();
    }
    let ended = if model.end.interrupted {
        "the run was interrupted first"
    } else if model.end.time_limit {
        "the run's time limit came first"
    } else if model.end.ended {
        "the run ended first"
    } else {
        "not yet"
    };
    match fault.triggered {
        Some(_) => format!("it was armed, and never met its address: {ended}"),
        None => format!("its trigger (`{}`) never fired: {ended}", fault.setup.when),
    }
}

/// Whether it landed where it was asked to.
fn elsewhere(asked: &Address, landed: &Landed) -> Result<(), String> {
    let differs =
        |what: &str, asked: String, landed: String| Err(format!("asked for {what} {asked}, landed at {landed}"));
    if asked.store != landed.store {
        return differs("store", asked.store.clone(), landed.store.clone());
    }
    if asked.sync != landed.sync || asked.write != landed.write || asked.phase != landed.phase {
        return differs("address", asked.to_string(), landed.to_string());
    }
    if !asked.height.contains(landed.height) {
        return differs("height", asked.height.to_string(), landed.height.to_string());
    }
    if asked.mode.is_some_and(|mode| mode != landed.mode) {
        return Err(format!("asked for another mode than {}, in which it landed", mode_name(landed.mode)));
    }
    if asked.window.is_some_and(|window| landed.window < window) {
        return Err(format!(
            "asked for a window of at least {}, landed in one of {}",
            asked.window.unwrap_or(0),
            landed.window
        ));
    }
    Ok(())
}

fn wanted_exit(exit: Option<Exit>, signal: i32) -> Result<(), String> {
    match exit {
        Some(Exit::Signal(seen)) if seen == signal => Ok(()),
        Some(other) => Err(format!("the process ended with {}, not with signal {signal}", exit_words(other))),
        None => Err("the end of the process was not seen".to_owned()),
    }
}

/// A node may handle SIGTERM as it likes, as long as it ends; only another signal contradicts.
fn ended_by_term(exit: Option<Exit>) -> Result<(), String> {
    match exit {
        Some(Exit::Code(_)) => Ok(()),
        other => wanted_exit(other, SIGTERM),
    }
}

fn heights_as_predicted(node: &Node, seen: &FaultLanded, life: &Life, next: Option<&Life>) -> Result<(), String> {
    let predicted = predict(&seen.landed, &node.layout);
    let words = |heights: Heights, from: &str| {
        Err(format!("heights {heights} ({from}) are not the {predicted} that {} predicts", at_words(&seen.landed)))
    };
    let stored = life.stored.map(|(heights, _)| heights).filter(|h| *h != Heights::default());
    if let Some(heights) = stored {
        if !predicted.allows(heights) {
            return words(heights, "read off-line");
        }
        if heights.app.is_some() && heights.state.is_some() && heights.store.is_some() {
            return Ok(());
        }
    }
    match next.and_then(|next| next.handshake.as_ref()) {
        Some(handshake) if !predicted.allows_rewound(handshake.heights, &seen.landed) => {
            words(handshake.heights, "in the next handshake")
        }
        Some(_) => Ok(()),
        None if stored.is_some() => Ok(()),
        None => Err("no heights were read after it: neither from the files nor from a handshake".to_owned()),
    }
}

/// Whether the flush of the node has this store. That of an application beside the node is in none: how far the node's own
/// heights had come by then is not known, so that the record and the wait status are all the proof.
pub(super) fn in_flush(landed: &Landed, layout: &Layout) -> bool {
    layout.flush.iter().any(|commit| commit.store == landed.store)
}

fn at_words(landed: &Landed) -> String {
    let window = if landed.window > 1 { format!(" of a window of {}", landed.window) } else { String::new() };
    format!("\"{landed}\"{window}")
}

/// Proof of a fault that is not aimed: that it was done, and what was seen to change.
fn plain(fault: &Fault, life: Option<&Life>, next: Option<&Life>) -> Result<(), String> {
    let exit = life.and_then(|l| l.exit.as_ref()).and_then(|e| e.exit);
    let undone = || match (&fault.missed, fault.triggered) {
        (Some((why, _)), _) => why.clone(),
        (None, Some(_)) => "it fired, and nothing shows that it was done".to_owned(),
        (None, None) => format!("its trigger (`{}`) never fired", fault.setup.when),
    };
    match fault.setup.kind {
        FaultKind::Kill if exit.is_none() => Err(undone()),
        FaultKind::Kill => wanted_exit(exit, SIGKILL),
        FaultKind::Stop if exit.is_none() => Err(undone()),
        FaultKind::Stop => ended_by_term(exit),
        FaultKind::Restart | FaultKind::Upgrade if exit.is_none() => Err(undone()),
        FaultKind::Restart | FaultKind::Upgrade if next.is_none_or(|next| next.started.is_none()) => {
            Err("the node was stopped and never started again".to_owned())
        }
        FaultKind::Restart | FaultKind::Upgrade => ended_by_term(exit),
        FaultKind::Fail => Err("a call can only be made to fail at an address".to_owned()),
        FaultKind::Pause if fault.applied.is_none() => Err(undone()),
        FaultKind::Pause if fault.reverted.is_none() => Err("the node was paused and never resumed".to_owned()),
        FaultKind::Pause => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::{HeightRange, HeightSource, Mode, Phase};

    fn asked() -> Address {
        Address {
            height: HeightRange { from: 40, to: Some(60) },
            store: "state.db".to_owned(),
            sync: Some(1),
            write: None,
            phase: Phase::Before,
            mode: Some(Mode::BlockSync),
            window: Some(2),
        }
    }

    fn landed() -> Landed {
        Landed {
            height: 50,
            height_source: HeightSource::Decoded,
            store: "state.db".to_owned(),
            sync: Some(1),
            write: None,
            phase: Phase::Before,
            mode: Mode::BlockSync,
            window: 5,
            done: std::collections::BTreeMap::new(),
        }
    }

    #[test]
    fn landing_elsewhere_is_no_proof() {
        assert_eq!(elsewhere(&asked(), &landed()), Ok(()));
        let wrong = [
            Landed { store: "cs.wal".to_owned(), ..landed() },
            Landed { sync: Some(2), ..landed() },
            Landed { phase: Phase::After, ..landed() },
            Landed { height: 61, ..landed() },
            Landed { mode: Mode::Consensus, ..landed() },
            Landed { window: 1, ..landed() },
        ];
        for landed in wrong {
            assert!(elsewhere(&asked(), &landed).is_err(), "{landed:?}");
        }
    }
}

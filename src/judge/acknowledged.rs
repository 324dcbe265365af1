//! What a node gave out before its process ended, and must still have afterwards: heights that its application answered with,
//! signatures, and stores that stand at one height between two flushes.

use super::faults::in_flush;
use super::model::{Life, Model, Node};
use super::predict::{Expected, predict};
use super::published::kept;
use super::signed;
use super::{Finding, Verdict};
use crate::timeline::{FaultKind, Heights, LastSigned, Mode};

/// How far behind a node is when its word for being in step is false, in blocks.
const FAR: u64 = 50;
/// How long it has to keep its word before that counts, in microseconds.
const CLAIM_US: u64 = 500_000;

/// Findings of every node.
pub(crate) fn check(model: &Model) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, node) in model.nodes.iter().enumerate() {
        // A node that skips its syncs promises nothing.
        if node.storage.as_deref() != Some("no-sync") {
            findings.extend(answered_and_lost(node));
            findings.extend(signed_and_lost(node));
        }
        findings.extend(thrown_away(node));
        findings.extend(sign_state_went_back(node));
        findings.extend(claims_to_be_ready(model, index));
    }
    findings.extend(split_between_flushes(model));
    findings
}

fn lives(node: &Node) -> impl Iterator<Item = (u32, &Life, Option<&Life>)> {
    node.lives.iter().map(|(start, life)| (*start, life, node.lives.get(&(start + 1))))
}

/// The application answered with a height that not even the block store has after the end of the process. An application
/// that is merely behind its block store is brought forward again by replay, and has lost nothing.
fn answered_and_lost(node: &Node) -> Option<Finding> {
    lives(node).find_map(|(start, life, next)| {
        let (from, _) = life.started?;
        let to = life.exit.as_ref()?.at_us;
        let (_, heights, seen) = kept(life, next)?;
        let during = node.app_told.iter().filter(|(at, _, _)| (from..=to).contains(at));
        let (_, told, seq) = during.max_by_key(|(_, height, _)| *height)?;
        let store = heights.store?;
        let detail = format!(
            "its application answered with height {told} in start {start}, whose end left app/state/store {heights}: {} \
             acknowledged blocks lost",
            told.saturating_sub(store)
        );
        (*told > store).then(|| regressed(node, store, detail).evidence([*seq, seen]))
    })
}

/// A validator signs for the block after its last one, so that its block store is never further behind.
fn signed_and_lost(node: &Node) -> Option<Finding> {
    lives(node).find_map(|(start, life, next)| {
        let Some((LastSigned::At(at), seq)) = &life.signed else { return None };
        let (_, heights, seen) = kept(life, next)?;
        let store = heights.store?;
        let detail = format!(
            "it signed {at} (height/round/step) in start {start}, whose end left app/state/store {heights}: {} blocks that it \
             took part in are gone",
            (at.height - 1).saturating_sub(store)
        );
        (at.height > store + 1).then(|| regressed(node, store, detail).evidence([*seq, seen]))
    })
}

/// A start that begins below what the end before it had left: the node, or somebody, has thrown data away in between. A block
/// store may be lowered before the line is written, the state never.
fn thrown_away(node: &Node) -> Option<Finding> {
    lives(node).find_map(|(start, life, next)| {
        let next = next.filter(|next| !next.fresh)?;
        let ((stored, seen), handshake) = (life.stored?, next.handshake.as_ref()?);
        let (before, after) = (stored.state?, handshake.heights.state?);
        let detail = format!(
            "start {start} left app/state/store {stored}, and start {} began with {}: {} blocks thrown away",
            start + 1,
            handshake.heights,
            before.saturating_sub(after)
        );
        (after < before).then(|| regressed(node, after, detail).evidence([seen, handshake.seq]))
    })
}

fn regressed(node: &Node, height: u64, detail: String) -> Finding {
    Finding::new(Verdict::HeightRegressed, detail)
        .node(&node.name)
        .height(height)
        .why("blocks that the node had told others of were gone after the end of its process")
        .next("look at which store's commits were acknowledged before they were written")
}

/// The last signed place over all starts.
fn sign_state_went_back(node: &Node) -> Option<Finding> {
    let mut best = None;
    for (_, life, next) in lives(node) {
        let Some((last, seq)) = &life.signed else { continue };
        let finding = match (best, last) {
            (Some((before, _)), LastSigned::At(after)) if *after < before => {
                signed::regressed(&node.name, before, after, after.height)
            }
            (_, LastSigned::At(after)) => {
                best = Some((*after, *seq));
                continue;
            }
            (None, LastSigned::Nothing) => continue,
            (Some((before, _)), LastSigned::Nothing) => {
                let started = next.map(|next| next.exit.is_none());
                let why = format!("gone; {before} was signed before");
                signed::unreadable(&node.name, Some(before.height), &why, started)
            }
            (before, LastSigned::Unreadable(why)) => {
                let started = next.map(|next| next.exit.is_none());
                signed::unreadable(&node.name, before.map(|(at, _)| at.height), why, started)
            }
        };
        return Some(finding.evidence(best.map(|(_, seq)| seq).into_iter().chain([*seq])));
    }
    None
}

/// Says that it is not catching up while its own log says that it is in block sync, far behind. A node that fell behind in
/// consensus, paused or behind a partition, may not know yet.
fn claims_to_be_ready(model: &Model, index: usize) -> Option<Finding> {
    let node = &model.nodes[index];
    for life in node.lives.values().filter(|_| model.complete) {
        let to = life.exit.as_ref().map_or(model.end.last_us, |e| e.at_us);
        let claims: Vec<_> = node
            .samples
            .iter()
            .filter(|s| s.at_us <= to && life.mode_at(s.at_us.saturating_sub(CLAIM_US / 2)) == Some(Mode::BlockSync))
            .filter(|s| model.best_of_rest(index, s.at_us).is_some_and(|best| best > s.height + FAR))
            .filter(|s| s.catching_up == Some(false))
            .collect();
        let (Some(first), Some(last)) = (claims.first(), claims.last()) else { continue };
        if last.at_us - first.at_us < CLAIM_US {
            continue;
        }
        let best = model.best_of_rest(index, first.at_us).unwrap_or(0);
        let detail = format!(
            "says `catching_up: false` in block sync at height {} while the rest is at {best}, for {} ms",
            first.height,
            (last.at_us - first.at_us) / 1000
        );
        return Some(
            Finding::new(Verdict::ExpectationFailed, detail)
                .node(&node.name)
                .height(first.height)
                .class("false-readiness")
                .why("whoever waits for `catching_up: false` before using the node is given old answers")
                .next("look at when the flag is set; never take it for readiness without comparing heights")
                .evidence([first.seq, last.seq]),
        );
    }
    None
}

/// A kill between two flushes, where all three heights are known to be the same, and are not.
fn split_between_flushes(model: &Model) -> Vec<Finding> {
    let mut findings = Vec::new();
    for fault in model.faults.iter().filter(|f| f.setup.kind == FaultKind::Kill) {
        let Some(landed) = &fault.landed else { continue };
        let Some(node) = model.nodes.iter().find(|n| n.name == fault.setup.node) else { continue };
        // Commits that are never synced may still be in the node's memory.
        if node.layout.flush.iter().any(|commit| commit.advances.is_some() && commit.sync.is_none()) {
            continue;
        }
        if !in_flush(&landed.landed, &node.layout) {
            continue;
        }
        let predicted = predict(&landed.landed, &node.layout);
        let whole = |e: Expected| matches!(e, Expected::Exactly(_));
        if !whole(predicted.store) || [predicted.app, predicted.state] != [predicted.store; 2] {
            continue;
        }
        let Some((start, life)) = node.life_ended_by(&fault.setup.id) else { continue };
        let Some((_, heights, seq)) = kept(life, node.lives.get(&(start + 1))) else { continue };
        let Heights { app: Some(app), state: Some(state), store: Some(store) } = heights else { continue };
        if app == state && state == store {
            continue;
        }
        findings.push(
            Finding::new(
                Verdict::StoreSplit,
                format!("killed between two flushes, it left app/state/store {heights}, which have to be equal there"),
            )
            .node(&node.name)
            .height(store)
            .why("a flush that is over leaves all stores at one height")
            .next("run `midflush observe` on this node: some store is written outside the flush, or not at all")
            .evidence([landed.seq, seq]),
        );
    }
    findings
}

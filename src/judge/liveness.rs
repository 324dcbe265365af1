//! Whether each node came along: by progress of its height against the best of the rest, never by what it says of itself.

use super::model::{Life, Model, Node, Sample, Us};
use super::pace::Bounds;
use super::power::outages;
use super::{Finding, Note, Verdict, series};
use crate::timeline::{Mode, Role};

/// What each node's heights say.
pub(crate) fn check(model: &Model, bounds: &Bounds) -> (Vec<Finding>, Vec<Note>) {
    let mut findings = Vec::new();
    let outages = outages(model);
    for (index, node) in model.nodes.iter().enumerate() {
        findings.extend(regressed(node));
        let down = outages.iter().any(|o| o.node == index && o.to.is_none());
        if !down && let Some(finding) = came_along(model, bounds, index) {
            findings.push(finding);
        }
    }
    let fresh = model.nodes.iter().filter(|n| n.lives.values().any(|life| life.fresh));
    let note =
        |n: &Node| Note::about("fresh-data", &n.name, "began anew with other data: what it had before is not missed");
    (findings, fresh.map(note).collect())
}

fn came_along(model: &Model, bounds: &Bounds, index: usize) -> Option<Finding> {
    let node = &model.nodes[index];
    let from = healthy_since(model, node);
    if let Some(finding) = silent(model, bounds, index, from) {
        return Some(finding);
    }
    let last = *node.samples.last()?;
    if series::in_step(model, index, &last) {
        let stuck = flag_stuck(model, bounds, index).or_else(|| never_signs(model, index));
        return stuck.or_else(|| over_budget(model, index));
    }
    behind(model, bounds, index, from, &last).or_else(|| over_budget(model, index))
}

/// Since when no fault and no start excuses a node: its last start, the end of its last pause.
fn healthy_since(model: &Model, node: &Node) -> Us {
    let started = node.last_life().and_then(|(_, life)| life.started).map(|(at, _)| at);
    let faults = model.faults.iter().filter(|f| f.setup.node == node.name);
    let reverted = faults.filter_map(|f| f.reverted.as_ref()).map(|(at, _, _)| *at).max();
    started.max(reverted).unwrap_or(0)
}

/// How many times longer than others a node may be silent that said that it replays blocks.
const REPLAY: u64 = 3;

/// Whether the handshake of a life had blocks to replay.
fn replays(life: &Life) -> bool {
    life.handshake.as_ref().is_some_and(|h| h.heights.app < h.heights.store)
}

/// A process that is alive and has stopped answering.
fn silent(model: &Model, bounds: &Bounds, index: usize, from: Us) -> Option<Finding> {
    let node = &model.nodes[index];
    let (at, reason, seq) = node.silences.last()?;
    let last = node.samples.last();
    if last.is_some_and(|s| s.at_us > *at) || node.lives.is_empty() {
        return None;
    }
    let since = (*at).max(from);
    // A handshake that replays keeps RPC closed, for as long as the blocks take.
    let replays = node.last_life().is_some_and(|(_, life)| replays(life));
    let most = if replays { REPLAY.saturating_mul(bounds.halt) } else { bounds.node.max(model.patience.grace_us) };
    if model.end.last_us.saturating_sub(since) < most {
        return None;
    }
    let seconds = model.end.last_us.saturating_sub(since) / 1_000_000;
    let detail = format!("the process lives, and its RPC has not answered for {seconds} s ({reason})");
    Some(
        Finding::new(Verdict::Stuck, detail + &cause_words(node))
            .node(&node.name)
            .height(last.map(|s| s.height))
            .why("a node that does not answer for so long after its start has not come back")
            .next("read the end of its log; a handshake that replays keeps RPC closed, and says so there")
            .evidence([*seq].into_iter().chain(cause_seq(node))),
    )
}

fn behind(model: &Model, bounds: &Bounds, index: usize, from: Us, last: &Sample) -> Option<Finding> {
    let node = &model.nodes[index];
    let best = |at: Us| model.best_of_rest(index, at).unwrap_or(0);
    let frozen = series::frozen_since(&node.samples)?;
    let frozen = Sample { at_us: frozen.at_us.max(from.min(last.at_us)), ..frozen };
    let rest_made = best(last.at_us).saturating_sub(best(frozen.at_us));
    let stood_us = last.at_us - frozen.at_us;
    // Once all nodes had come together the run was over, and what is seen while it is taken down must be as clear as at any time.
    let agreed = matches!(&model.end.settled, Some((true, _, _)));
    let most = if agreed { bounds.halt } else { bounds.node };
    if rest_made >= model.patience.frozen_blocks && stood_us >= most || stood_us >= bounds.halt {
        return Some(stuck(node, &frozen, last, best(last.at_us)));
    }
    if agreed {
        return None;
    }
    // Since it fell out of step: a stall of a moment at the end of a long run is not its rate.
    let trails = |s: &&Sample| s.at_us >= from && s.height + model.patience.blocks < best(s.at_us);
    let late = node.samples.iter().rev().take_while(trails).last();
    let start = *late.unwrap_or(last);
    let own = series::rate((start.at_us, start.height), (last.at_us, last.height));
    let (rest_start, rest_end) = (best(start.at_us), best(last.at_us));
    let rest = series::rate((start.at_us, rest_start), (last.at_us, rest_end));
    let gap = (rest_start.saturating_sub(start.height), rest_end.saturating_sub(last.height));
    let looked_us = last.at_us - start.at_us;
    let short = looked_us == 0 || looked_us < bounds.node;
    if short || rest_end < rest_start + model.patience.frozen_blocks || gap.1 < gap.0 {
        return Some(unfinished(model, node, last, from, gap, own - rest));
    }
    let evidence = [start.seq, last.seq];
    if own < rest {
        let detail = format!(
            "{own:.1} blocks/s against {rest:.1} blocks/s of the rest, {} behind, projected time to catch up: infinite",
            gap.1
        );
        return Some(
            Finding::new(Verdict::NeverCatchesUp, detail + &cause_words(node))
                .node(&node.name)
                .height(last.height)
                .why("its height advances, but more slowly than that of the rest, so the gap grows")
                .next("look at what a block costs it: syncs, verification, peers that are dropped")
                .evidence(evidence),
        );
    }
    let detail = format!(
        "{} blocks behind and the gap does not shrink: {own:.1} blocks/s like the rest ({})",
        gap.1,
        mode_words(last)
    );
    Some(
        Finding::new(Verdict::Stuck, detail + &cause_words(node))
            .node(&node.name)
            .height(last.height)
            .why("a node that never closes its gap does not come back")
            .next("look at which peers serve it, and whether they hold blocks back")
            .evidence(evidence),
    )
}

fn stuck(node: &Node, frozen: &Sample, last: &Sample, best: u64) -> Finding {
    let detail = format!(
        "at height {} since t={} s, mode {}, while the rest is at {best}",
        last.height,
        frozen.at_us / 1_000_000,
        mode_words(last)
    );
    Finding::new(Verdict::Stuck, detail + &cause_words(node))
        .node(&node.name)
        .height(last.height)
        .why("the process is alive and answers, but its height does not move while the rest advances")
        .next("read its log from that moment on; RPC, health checks and `catching_up` say nothing about progress")
        .evidence([frozen.seq, last.seq].into_iter().chain(cause_seq(node)))
}

/// Still on its way when the run ended.
fn unfinished(model: &Model, node: &Node, last: &Sample, from: Us, gap: (u64, u64), gain: f64) -> Finding {
    let left = if gain > 0.0 { format!(", about {:.0} s more", gap.1 as f64 / gain) } else { String::new() };
    let detail = format!("still {} blocks behind at the end, {} at its start{left}", gap.1, gap.0);
    // The time to converge begins when the last fault is done with; a run says itself when it is over.
    let since = model.last_fault_us().unwrap_or(0).max(if model.complete { from } else { 0 });
    let given_up = !model.complete || matches!(&model.end.settled, Some((false, _, _)));
    let budget = model.expect.converge_within_ms.map(|ms| ms.saturating_mul(1000));
    let over = given_up && budget.is_some_and(|budget| last.at_us.saturating_sub(since) > budget);
    let verdict = if over { Verdict::ExpectationFailed } else { Verdict::Inconclusive };
    let why = if over { "the time to converge is over" } else { "it was catching up, and the end came first" };
    Finding::new(verdict, detail)
        .node(&node.name)
        .height(last.height)
        .why(why)
        .next("run it again with more time")
        .evidence([last.seq])
}

/// In step, and still calling itself catching up: it never joins consensus.
fn flag_stuck(model: &Model, bounds: &Bounds, index: usize) -> Option<Finding> {
    let node = &model.nodes[index];
    let row: Vec<&Sample> = node.samples.iter().rev().take_while(|s| s.catching_up == Some(true)).collect();
    let (last, first) = (*row.first()?, *row.last()?);
    let since = series::in_step_since(model, index, first.at_us)?;
    let stood = last.at_us - since;
    let never_signs = node.signed == Some(0) && stood > 0;
    if stood < bounds.flag && !never_signs {
        return None;
    }
    let signs = if node.signed == Some(0) { " and never signs" } else { "" };
    let detail = format!(
        "mode sync: its height follows the rest, but it has called itself catching up for {} s{signs}",
        stood / 1_000_000
    );
    Some(
        Finding::new(Verdict::Stuck, detail + &cause_words(node))
            .node(&node.name)
            .height(last.height)
            .why("it has all blocks and never leaves block sync, so a validator's votes are missing")
            .next("look at what its block sync waits for: a peer that claims a higher tip, or the switch to consensus")
            .evidence([first.seq, last.seq]),
    )
}

/// In step, and yet a validator that takes no part.
fn never_signs(model: &Model, index: usize) -> Option<Finding> {
    let node = &model.nodes[index];
    let validator = node.role == Some(Role::Validator) && node.signed == Some(0);
    let last = node.samples.last().filter(|_| validator)?;
    let since = series::in_step_since(model, index, 0).filter(|since| *since < last.at_us)?;
    let detail =
        format!("mode consensus: its height follows the rest since t={} s, and it never signs", since / 1_000_000);
    Some(
        Finding::new(Verdict::Stuck, detail + &cause_words(node))
            .node(&node.name)
            .height(last.height)
            .why("a validator that has all blocks and signs none of them has not come back")
            .next("compare its key with the validator set, and its sign state with the chain's height")
            .evidence([last.seq]),
    )
}

fn over_budget(model: &Model, index: usize) -> Option<Finding> {
    let budget = model.expect.converge_within_ms?.saturating_mul(1000);
    let node = &model.nodes[index];
    let from = if model.complete { quiet_since(model) } else { model.last_fault_us().unwrap_or(0) };
    let in_step = series::in_step_since(model, index, 0)?;
    let joined = node.samples.iter().rev().take_while(|s| s.catching_up != Some(true)).last()?;
    // A node that agreed when the run was over has agreed by then, whatever a busy machine made of it afterwards.
    let over_us = model.end.settled_us.filter(|_| matches!(&model.end.settled, Some((true, _, _))));
    let came = in_step.max(joined.at_us).min(over_us.unwrap_or(Us::MAX));
    let took = came.saturating_sub(from);
    if took <= budget {
        return None;
    }
    let all_blocks = series::first_in_step(model, index, from).unwrap_or(came);
    let waited = came.saturating_sub(all_blocks);
    let mut detail = format!("agreed {} s after it should start to, budget {} s", took / 1_000_000, budget / 1_000_000);
    if waited > 0 {
        detail.push_str(&format!(", {} s of it with all blocks present", waited / 1_000_000));
    }
    let start = node.samples.partition_point(|s| s.at_us < from);
    let stalls = series::rates(&node.samples[start..]).map(|r| r.stalls).unwrap_or_default();
    if let Some((a, b)) = stalls.iter().max_by_key(|(a, b)| b - a) {
        detail.push_str(&format!("; longest stall {} s from t={} s", (b - a) / 1_000_000, a / 1_000_000));
    }
    Some(
        Finding::new(Verdict::ConvergedSlow, detail)
            .node(&node.name)
            .height(joined.height)
            .why("it came back, but not within the time that the topology allows")
            .next("look at where the time went: down, replaying, catching up, or waiting with all blocks present")
            .evidence([joined.seq]),
    )
}

/// When the last fault was done with and the last node started, which is when the time to converge begins.
fn quiet_since(model: &Model) -> Us {
    let since = model.nodes.iter().map(|node| healthy_since(model, node)).max();
    since.unwrap_or(0).max(model.last_fault_us().unwrap_or(0))
}

/// A height that goes down, apart from what a node that defers its flushes may lose.
fn regressed(node: &Node) -> Option<Finding> {
    let mut best: Option<Sample> = None;
    for sample in &node.samples {
        let Some(top) = best.filter(|top| top.height > sample.height) else {
            best = Some(*sample);
            continue;
        };
        let held = node.defers() && top.catching_up == Some(true);
        if fresh_between(node, top.at_us, sample.at_us) || held && sample.height >= durable_before(node, sample.at_us) {
            best = Some(*sample);
            continue;
        }
        let lost = top.height - sample.height;
        let later = node.samples.iter().map(|s| s.height).max().filter(|later| *later > top.height);
        let later = later.map(|later| format!(", later at {later}")).unwrap_or_default();
        return Some(
            Finding::new(
                Verdict::HeightRegressed,
                format!("{} → {}: {lost} acknowledged blocks lost{later}", top.height, sample.height),
            )
            .node(&node.name)
            .height(sample.height)
            .why("a height that the node had reported was gone after the restart")
            .next("look at which store's commits were acknowledged before they were written")
            .evidence([top.seq, sample.seq]),
        );
    }
    None
}

/// Whether it began anew with an empty folder, so that nothing of before is missed.
fn fresh_between(node: &Node, from: Us, to: Us) -> bool {
    let mut fresh = node.lives.values().filter(|life| life.fresh).filter_map(|life| life.started);
    fresh.any(|(at, _)| at > from && at <= to)
}

/// The highest height known to be flushed whole when the last process before `at` ended.
fn durable_before(node: &Node, at: Us) -> u64 {
    let ends = node.lives.values().filter_map(|life| life.exit.as_ref()).map(|e| e.at_us);
    let end = ends.filter(|end| *end <= at).max().unwrap_or(at);
    let flushed = node.tallies.iter().filter(|(t, tally, _)| *t <= end && tally.flushes > 0);
    flushed.map(|(_, tally, _)| tally.height).max().unwrap_or(0)
}

fn mode_words(sample: &Sample) -> &'static str {
    match sample.catching_up {
        Some(true) => "sync",
        Some(false) => "consensus",
        None => "unknown",
    }
}

/// What its log says about the cause.
fn cause_words(node: &Node) -> String {
    cause(node).map_or_else(String::new, |t| format!("; its log says ({}): {}", t.class, t.line))
}

fn cause_seq(node: &Node) -> Option<u64> {
    cause(node).map(|t| t.seq)
}

fn cause(node: &Node) -> Option<&super::model::Trouble> {
    use super::signature::{Weight, by_class};
    let (_, life) = node.last_life()?;
    let matters = |class: &str| by_class(class).is_none_or(|s| s.weight != Weight::Harmless);
    life.troubles.iter().rev().find(|t| matters(&t.class))
}

/// The mode's word in findings and notes.
pub(crate) fn mode_name(mode: Mode) -> &'static str {
    match mode {
        Mode::Consensus => "consensus",
        Mode::BlockSync => "block sync",
        Mode::Replay => "replay",
    }
}

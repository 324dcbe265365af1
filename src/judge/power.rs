//! Voting power over time: when the chain must move, and when it may not.
//!
//! Blocks need more than two thirds of the power. While a fault holds a third or more away, a halt is what should happen; a
//! chain that stands still with more than two thirds online has failed.

use super::model::{Model, Sample, Us};
use super::pace::Bounds;
use super::{Finding, Note, Verdict};
use crate::timeline::{ExitCause, FaultKind};

/// Why a node does not vote, from when, and until when (open at the end).
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Outage {
    pub(crate) node: usize,
    pub(crate) from: Us,
    pub(crate) to: Option<Us>,
}

/// All outages of all nodes.
pub(crate) fn outages(model: &Model) -> Vec<Outage> {
    let mut all = Vec::new();
    for (index, node) in model.nodes.iter().enumerate() {
        for (start, life) in &node.lives {
            let Some(ended) = &life.exit else { continue };
            if model.complete && ended.cause == ExitCause::Asked && !node.lives.contains_key(&(start + 1)) {
                // The end of the run, which says nothing about how the node did before.
                continue;
            }
            let to = node.lives.get(&(start + 1)).and_then(|next| next.started).map(|(at, _)| at);
            all.push(Outage { node: index, from: ended.at_us, to });
        }
        for fault in model.faults.iter().filter(|f| f.setup.node == node.name) {
            let by_pause = fault.setup.kind == FaultKind::Pause || node.lives.is_empty();
            if let Some((from, _, _)) = fault.applied.as_ref().filter(|_| by_pause) {
                let to = fault.reverted.as_ref().map(|(at, _, _)| *at);
                all.push(Outage { node: index, from: *from, to });
            }
        }
    }
    let told = model.told.iter().filter(|f| f.away);
    all.extend(told.filter_map(|f| Some(Outage { node: f.node?, from: f.from, to: f.to })));
    all
}

/// The same, and when nodes have not answered yet since their start: they may be starting, replaying or unreachable, so that
/// nobody can say that they vote.
fn unready(model: &Model) -> Vec<Outage> {
    let mut all = outages(model);
    for (index, node) in model.nodes.iter().enumerate().filter(|_| model.complete) {
        if let Some((_, life)) = node.lives.first_key_value() {
            all.push(Outage { node: index, from: 0, to: life.started.map(|(at, _)| at) });
        }
        for life in node.lives.values() {
            let Some((from, _)) = life.started else { continue };
            let end = life.exit.as_ref().map(|e| e.at_us);
            let first = node.samples.get(node.samples.partition_point(|s| s.at_us < from)).map(|s| s.at_us);
            let answered = first.filter(|at| end.is_none_or(|end| *at <= end));
            all.push(Outage { node: index, from, to: answered.or(end) });
        }
    }
    all
}

/// Share of the voting power online.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Online {
    pub(crate) power: u64,
    pub(crate) total: u64,
}

impl Online {
    /// More than two thirds, so that blocks can be made.
    pub(crate) fn suffices(self) -> bool {
        3 * self.power > 2 * self.total
    }

    /// In percent, rounded down.
    pub(crate) fn percent(self) -> u64 {
        let percent = (100 * u128::from(self.power)).checked_div(u128::from(self.total)).unwrap_or(0);
        u64::try_from(percent).unwrap_or(u64::MAX)
    }
}

/// The power that no outage holds away at a time.
pub(crate) fn online(model: &Model, outages: &[Outage], at: Us) -> Online {
    let total = (0..model.nodes.len()).map(|n| model.weight(n)).sum();
    let down = |node: usize| outages.iter().any(|o| o.node == node && o.from <= at && o.to.is_none_or(|to| to > at));
    let power = (0..model.nodes.len()).filter(|n| !down(*n)).map(|n| model.weight(n)).sum();
    Online { power, total }
}

/// Stretches of constant power between two times, each with its share.
fn stretches(model: &Model, outages: &[Outage], from: Us, to: Us) -> Vec<(Us, Us, Online)> {
    let mut edges = vec![from, to];
    edges.extend(outages.iter().flat_map(|o| [Some(o.from), o.to]).flatten().filter(|at| *at > from && *at < to));
    edges.sort_unstable();
    edges.dedup();
    edges.windows(2).map(|pair| (pair[0], pair[1], online(model, outages, pair[0]))).collect()
}

/// A stretch with enough power ready to vote, and the power lacking in it least.
type Ready = (Us, Us, Online);

/// The stretches of a standstill in which blocks had to be made, neighbours joined, each without the time that a chain takes to
/// come back from the stretch before it: its rounds have grown as long as that.
fn must_move(stood: &[(Us, Us, Online)]) -> Vec<Ready> {
    let mut ready: Vec<Ready> = Vec::new();
    let mut lacking = 0;
    for (from, to, online) in stood {
        if !online.suffices() {
            lacking += to - from;
        } else if let Some(last) = ready.last_mut().filter(|(_, end, _)| end == from) {
            *last = (last.0, *to, if online.power < last.2.power { *online } else { last.2 });
        } else {
            ready.push((from.saturating_add(lacking).min(*to), *to, *online));
        }
    }
    ready
}

/// Whether the chain moved when it had to, and stood when it had to.
pub(crate) fn check(model: &Model, growth: &[Sample], bounds: &Bounds) -> (Vec<Finding>, Vec<Note>) {
    let (mut findings, mut notes) = (Vec::new(), Vec::new());
    let last_look = model.nodes.iter().filter_map(|n| n.samples.last()).map(|s| s.at_us).max();
    let (Some(best), Some(end)) = (growth.last().copied(), last_look) else { return (findings, notes) };
    let outages = unready(model);
    let halt = model.expect.halt_height;
    for (index, from) in growth.iter().enumerate() {
        let (to, last) = match growth.get(index + 1) {
            Some(next) => (next.at_us, false),
            None => (end, true),
        };
        if to.saturating_sub(from.at_us) < bounds.halt {
            continue;
        }
        let stood = stretches(model, &outages, from.at_us, to);
        let longest =
            must_move(&stood).into_iter().filter(|(a, b, _)| b - a >= bounds.halt).max_by_key(|(a, b, _)| b - a);
        match longest {
            None if stood.iter().any(|(_, _, online)| !online.suffices()) => {
                notes.push(expected_halt(from, to, &stood));
            }
            None => {}
            Some(_) if last && halt.is_some_and(|halt| best.height >= halt) => {
                let words = format!("the chain stands at its halt height {}", best.height);
                notes.push(Note::run("expected-halt", words).height(best.height));
            }
            Some(stretch) if last && !agreed(model) => findings.push(halted(model, &best, stretch)),
            // Where nobody looked in between, blocks may have been made all the time.
            Some(_) if !looked_at_standing(model, bounds, from, to) => {}
            Some((a, b, online)) => {
                let then = if last { "when the run ended" } else { "then it went on" };
                let words = format!(
                    "no block for {} s after height {} with {} % of the voting power online, {then}",
                    (b - a) / 1_000_000,
                    from.height,
                    online.percent()
                );
                notes.push(Note::run("stall", words).height(from.height));
            }
        }
    }
    findings.extend(moved_without_quorum(model, bounds, growth));
    (findings, notes)
}

/// Whether the run was over because all nodes had made blocks since the last fault: what happens while it is taken down says
/// nothing.
fn agreed(model: &Model) -> bool {
    matches!(&model.end.settled, Some((true, _, _)))
}

/// Whether somebody saw the chain stand so late before it went on that it had stood for too long.
fn looked_at_standing(model: &Model, bounds: &Bounds, from: &Sample, to: Us) -> bool {
    let late = from.at_us + bounds.halt;
    model.nodes.iter().flat_map(|n| &n.samples).chain(&model.rest).any(|s| s.at_us >= late && s.at_us < to)
}

fn expected_halt(from: &Sample, to: Us, stood: &[(Us, Us, Online)]) -> Note {
    let least = stood.iter().map(|(_, _, online)| online.percent()).min().unwrap_or(0);
    let words = format!(
        "no block for {} s after height {}, expected: {least} % of the voting power online, more than two thirds are needed",
        to.saturating_sub(from.at_us) / 1_000_000,
        from.height
    );
    Note::run("expected-halt", words).height(from.height)
}

fn halted(model: &Model, best: &Sample, (a, b, online): (Us, Us, Online)) -> Finding {
    let seconds = (b - a) / 1_000_000;
    let evidence = model.nodes.iter().filter_map(|n| n.samples.last()).map(|s| s.seq).chain([best.seq]);
    Finding::new(
        Verdict::ChainHalted,
        format!(
            "no node advances beyond height {} for {seconds} s, with {} % of the voting power online",
            best.height,
            online.percent()
        ),
    )
    .height(best.height)
    .why("more than two thirds of the voting power is online, so blocks must be made")
    .next("look at the round and step of each validator, and at who is connected to whom")
    .evidence(evidence)
    .concerns(model.nodes.iter().map(|n| n.name.clone()))
}

/// A chain that makes blocks with a third or more of the power away.
fn moved_without_quorum(model: &Model, bounds: &Bounds, growth: &[Sample]) -> Option<Finding> {
    let (first, last) = (growth.first()?.at_us, growth.last()?.at_us);
    stretches(model, &outages(model), first, last).into_iter().filter(|(_, _, online)| !online.suffices()).find_map(
        |(a, b, online)| {
            // What was decided before the outage may be seen a moment later, the last block may be made as it begins, and
            // word of the next start may come after its first blocks.
            let (from, to) = (a + bounds.late, b.saturating_sub(bounds.late));
            let during: Vec<&Sample> = growth.iter().filter(|s| s.at_us > from && s.at_us < to).collect();
            let (from, to) = (during.first()?, during.last()?);
            (to.height > from.height + 1).then(|| {
                Finding::new(
                    Verdict::ExpectationFailed,
                    format!(
                        "heights {} to {} were made with {} % of the voting power online",
                        from.height,
                        to.height,
                        online.percent()
                    ),
                )
                .height(from.height)
                .why("two thirds or less of the voting power cannot make blocks")
                .next("compare the voting power in the topology with the validator set of these heights")
                .evidence([from.seq, to.seq])
            })
        },
    )
}

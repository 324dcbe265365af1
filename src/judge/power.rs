//! Voting power over time: when the chain must move, and when it may not.
//!
//! Blocks need more than two thirds of the power. While a fault holds a third or more away, a halt is what should happen; a
//! chain that stands still with more than two thirds online has failed.

use super::model::{Model, Sample, Us};
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
        (100 * self.power).checked_div(self.total).unwrap_or(0)
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

/// When the chain's best height grew: (time, height, record), strictly rising in both.
fn growth(model: &Model) -> Vec<Sample> {
    let mut all: Vec<Sample> = model.nodes.iter().flat_map(|n| n.samples.iter().copied()).collect();
    all.extend(&model.rest);
    all.sort_by_key(|s| (s.at_us, std::cmp::Reverse(s.height)));
    let mut best: Vec<Sample> = Vec::new();
    for sample in all {
        if best.last().is_none_or(|b| sample.height > b.height) {
            best.push(sample);
        }
    }
    best
}

/// Whether the chain moved when it had to, and stood when it had to.
pub(crate) fn check(model: &Model) -> (Vec<Finding>, Vec<Note>) {
    let (mut findings, mut notes) = (Vec::new(), Vec::new());
    let growth = growth(model);
    let last_look = model.nodes.iter().filter_map(|n| n.samples.last()).map(|s| s.at_us).max();
    let (Some(best), Some(end)) = (growth.last().copied(), last_look) else { return (findings, notes) };
    let outages = outages(model);
    let halt = model.expect.halt_height;
    for (index, from) in growth.iter().enumerate() {
        let (to, last) = match growth.get(index + 1) {
            Some(next) => (next.at_us, false),
            None => (end, true),
        };
        if to.saturating_sub(from.at_us) < model.patience.halt_us {
            continue;
        }
        let stood = stretches(model, &outages, from.at_us, to);
        let must_move = stood.iter().filter(|(a, b, online)| online.suffices() && b - a >= model.patience.halt_us);
        let longest = must_move.max_by_key(|(a, b, _)| b - a);
        match longest {
            None => notes.push(expected_halt(from, to, &stood)),
            Some(_) if last && halt.is_some_and(|halt| best.height >= halt) => {
                let words = format!("the chain stands at its halt height {}", best.height);
                notes.push(Note::run("expected-halt", words).height(best.height));
            }
            Some(stretch) if last => findings.push(halted(model, &best, *stretch)),
            // Where nobody looked in between, blocks may have been made all the time.
            Some(_) if !looked_at_standing(model, from, to) => {}
            Some((a, b, online)) => {
                let words = format!(
                    "no block for {} s after height {} with {} % of the voting power online, then it went on",
                    (b - a) / 1_000_000,
                    from.height,
                    online.percent()
                );
                notes.push(Note::run("stall", words).height(from.height));
            }
        }
    }
    findings.extend(moved_without_quorum(model, &outages, &growth));
    (findings, notes)
}

/// Whether somebody saw the chain stand so late before it went on that it had stood for too long.
fn looked_at_standing(model: &Model, from: &Sample, to: Us) -> bool {
    let late = from.at_us + model.patience.halt_us;
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
}

/// A chain that makes blocks with a third or more of the power away.
fn moved_without_quorum(model: &Model, outages: &[Outage], growth: &[Sample]) -> Option<Finding> {
    let (first, last) = (growth.first()?.at_us, growth.last()?.at_us);
    stretches(model, outages, first, last).into_iter().filter(|(_, _, online)| !online.suffices()).find_map(
        |(a, b, online)| {
            // What was decided before the outage may be seen a moment later, and the last block may be made as it begins.
            let settled = a + model.patience.grace_us;
            let during: Vec<&Sample> = growth.iter().filter(|s| s.at_us > settled && s.at_us < b).collect();
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

//! How fast the chain is, how closely it was looked at, and how long the judge waits therefore before it calls anything
//! too long.
//!
//! A bound never hangs on the wall clock alone: the same standstill is a halt of a chain with ten blocks a second and nothing
//! at all for one with a block a minute, and on a machine so busy that looks come late everything else comes late too.

use super::model::{Model, Node, Sample, Us};
use super::series::median;

/// Block intervals without a block after which a chain that should move has halted: rounds that fail take longer each.
const INTERVALS: u64 = 10;

/// The same where somebody else looked, now and then: what is seen between two looks is no block interval, but more.
const INTERVALS_TOLD: u64 = 2;

/// Late looks in a row that may come to nothing before a standstill is believed.
const LOOKS: u64 = 5;

/// The part of an explicit time to converge that a node has to spend doing nothing, in fifths.
const FIFTHS_OF_BUDGET: u64 = 3;

/// The least of it, in microseconds.
const BUDGET_MIN_US: Us = 2_000_000;

/// How long things may take in this run before they are called a finding, in microseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bounds {
    /// No node advances, with enough voting power ready to vote.
    pub(crate) halt: Us,
    /// One node stands still, is silent, or is slower than the rest.
    pub(crate) node: Us,
    /// A node in step calls itself catching up.
    pub(crate) flag: Us,
    /// How much later than it happens something may be seen.
    pub(crate) late: Us,
}

/// The bounds of a run whose chain grew so.
pub(crate) fn bounds(model: &Model, growth: &[Sample]) -> Bounds {
    let patience = &model.patience;
    let interval = block_interval(growth).unwrap_or(0);
    if !model.complete {
        let halt = patience.halt_us.max(INTERVALS_TOLD.saturating_mul(interval));
        return Bounds { halt, node: patience.grace_us, flag: patience.flag_us, late: patience.grace_us };
    }
    let late = latest_look(model).max(patience.grace_us);
    let slow = INTERVALS.saturating_mul(interval).max(LOOKS * late);
    let halt = patience.halt_us.max(slow);
    // Whoever names a time to converge, and has waited it out in vain, is owed an answer about the nodes that did nothing.
    let given_up = matches!(&model.end.settled, Some((false, _, _)));
    let budget = model.expect.converge_within_ms.filter(|_| given_up).map(|ms| ms.saturating_mul(1000));
    let within = |most: Us| budget.map_or(most, |us| (us / 5 * FIFTHS_OF_BUDGET).max(BUDGET_MIN_US).min(most));
    Bounds { halt, node: within(halt), flag: within(patience.flag_us.max(slow)), late }
}

/// When the chain's best height grew, strictly rising in time and height.
pub(crate) fn growth(model: &Model) -> Vec<Sample> {
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

/// The median time that a block took, as far as looks show it.
fn block_interval(growth: &[Sample]) -> Option<Us> {
    let each = |pair: &[Sample]| (pair[1].at_us - pair[0].at_us) as f64 / (pair[1].height - pair[0].height) as f64;
    let mut intervals: Vec<f64> = growth.windows(2).map(each).collect();
    median(&mut intervals).map(|interval| interval as Us)
}

/// The longest time between two looks at a node that was up all the time.
fn latest_look(model: &Model) -> Us {
    let mut longest = 0;
    for node in &model.nodes {
        for pair in node.samples.windows(2) {
            let (a, b) = (&pair[0], &pair[1]);
            // Equal looks are kept as their first and last only, which says nothing about those between.
            let told = (a.height, a.catching_up) != (b.height, b.catching_up);
            let gap = b.at_us.saturating_sub(a.at_us);
            if told && gap > longest && undisturbed(model, node, a, b) {
                longest = gap;
            }
        }
    }
    longest
}

/// Whether no end, no silence and no pause of the node lies between two looks.
fn undisturbed(model: &Model, node: &Node, a: &Sample, b: &Sample) -> bool {
    let between = |at: Us| at >= a.at_us && at <= b.at_us;
    let ended = node.lives.values().any(|life| {
        life.exit.as_ref().is_some_and(|e| between(e.at_us)) || life.started.is_some_and(|(at, _)| between(at))
    });
    let silent = node.silences.iter().any(|(at, _, _)| between(*at));
    let faults = model.faults.iter().filter(|f| f.setup.node == node.name);
    let faulted = faults
        .filter_map(|f| Some((f.effect_us()?, f.reverted.as_ref().map(|r| r.0))))
        .any(|(from, to)| from <= b.at_us && to.is_none_or(|to| to >= a.at_us));
    !ended && !silent && !faulted
}

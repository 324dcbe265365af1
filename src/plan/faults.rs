//! Faults as written become occurrences: one a node and a time, with everything drawn that the seed decides.

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha20Rng;

use super::build;
use super::draw::delay_ms;
use super::{FaultPlan, Trigger};
use crate::timeline::{Address, FaultId, FaultSetup, HeightRange, Mode};
use crate::topology::{Fault, Topology, Trigger as Written};

/// All occurrences, in file order and then in time.
pub(super) fn faults(topology: &Topology, rng: &mut impl Rng) -> Vec<FaultPlan> {
    let plans = topology.faults.iter().flat_map(|fault| {
        let mut plans = occurrences(fault, rng);
        if let Some(upgrade) = &fault.upgrade {
            for plan in &mut plans {
                plan.upgrade = build::named(topology, &upgrade.to);
                plan.setup.when = format!("to `{}` {}", upgrade.to, plan.setup.when);
            }
            if let Some(pace_ms) = upgrade.pace_ms {
                one_by_one(&mut plans, pace_ms);
            }
        }
        plans
    });
    plans.collect()
}

/// Makes each occurrence follow the one before. Only the last keeps the fault's name, so that what follows the fault follows
/// them all.
fn one_by_one(plans: &mut [FaultPlan], pace_ms: u64) {
    let last = plans.len().saturating_sub(1);
    let mut before: Option<String> = None;
    for (index, plan) in plans.iter_mut().enumerate() {
        if index < last {
            plan.setup.id.name = format!("{}: {}", plan.setup.id.name, plan.setup.node);
        }
        plan.setup.id.occurrence = 1;
        if let Some(fault) = before.replace(plan.setup.id.name.clone()) {
            let to = plan.setup.when.split(" when ").next().unwrap_or_default().to_owned();
            plan.setup.when = format!("{to} {} after `{fault}`", span(pace_ms));
            plan.trigger = Trigger::After { fault, ms: pace_ms };
        }
    }
}

/// Each fault draws from streams of its own, times apart from the rest: changing one leaves the others as they were.
fn occurrences(fault: &Fault, rng: &mut impl Rng) -> Vec<FaultPlan> {
    let mut times = ChaCha20Rng::seed_from_u64(rng.random());
    let mut rest = ChaCha20Rng::seed_from_u64(rng.random());
    let triggers: Vec<(Trigger, String)> = match &fault.trigger {
        Written::Address(address) => vec![(Trigger::Address, format!("at {}", aim(address)))],
        Written::Height(height) => vec![(Trigger::Height(*height), format!("when the chain is at height {height}"))],
        Written::Time(delay) => {
            let ms = delay_ms(&mut times, *delay);
            vec![(Trigger::AtMs(ms), format!("{} after the start", span(ms)))]
        }
        Written::After { fault: other, delay } => {
            let ms = delay_ms(&mut times, *delay);
            let trigger = Trigger::After { fault: other.clone(), ms };
            let when = if ms == 0 { format!("after `{other}`") } else { format!("{} after `{other}`", span(ms)) };
            vec![(trigger, when)]
        }
        Written::Every { interval_ms, jitter_ms, times: count } => every(*interval_ms, *jitter_ms, *count, &mut times),
    };
    let mut plans: Vec<FaultPlan> = Vec::new();
    for (trigger, when) in triggers {
        let nodes = if fault.target.one_of {
            let chosen = rest.random_range(0..fault.target.nodes.len());
            &fault.target.nodes[chosen..=chosen]
        } else {
            &fault.target.nodes[..]
        };
        for node in nodes {
            let asked = if let Written::Address(address) = &fault.trigger { Some(address.clone()) } else { None };
            let occurrence = u32::try_from(plans.len() + 1).unwrap_or(u32::MAX);
            plans.push(FaultPlan {
                setup: FaultSetup {
                    id: FaultId { name: fault.name.clone(), occurrence },
                    kind: fault.kind,
                    node: node.clone(),
                    asked,
                    errno: fault.errno,
                    when: when.clone(),
                },
                trigger: trigger.clone(),
                down_ms: delay_ms(&mut rest, fault.down),
                upgrade: None,
                lives_on_ms: fault.lives_on.map(|delay| delay_ms(&mut rest, delay)),
                give_up_ms: fault.within_ms,
            });
        }
    }
    plans
}

/// The n-th time lies at n intervals, give or take the jitter.
fn every(interval_ms: u64, jitter_ms: u64, times: u32, rng: &mut impl Rng) -> Vec<(Trigger, String)> {
    let mut at: Vec<u64> = (1..=u64::from(times))
        .map(|n| (n * interval_ms + rng.random_range(0..=2 * jitter_ms)).saturating_sub(jitter_ms))
        .collect();
    at.sort_unstable();
    let words = |(n, ms): (usize, u64)| {
        let when = format!("{} after the start, time {} of {times} every {}", span(ms), n + 1, span(interval_ms));
        (Trigger::AtMs(ms), when)
    };
    at.into_iter().enumerate().map(words).collect()
}

/// An address in words, with what [`Address`] itself does not print.
fn aim(address: &Address) -> String {
    let mut words = address.to_string();
    if address.height == HeightRange::default() {
        words = words.replacen("height 0..", "any height", 1);
    }
    if let Some(mode) = address.mode {
        words.push_str(match mode {
            Mode::Consensus => ", in consensus",
            Mode::BlockSync => ", in block sync",
            Mode::Replay => ", in replay",
        });
    }
    if let Some(window) = address.window {
        words.push_str(&format!(", {window} blocks or more"));
    }
    words
}

/// Milliseconds in the shortest exact form.
pub(crate) fn span(ms: u64) -> String {
    match ms {
        0 => "0 s".to_owned(),
        ms if ms < 1_000 => format!("{ms} ms"),
        ms if ms % 1_000 == 0 => format!("{} s", ms / 1_000),
        ms => format!("{}.{:03} s", ms / 1_000, ms % 1_000).replace("00 s", " s").replace("0 s", " s"),
    }
}

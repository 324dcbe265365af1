//! When a run is over: every fault is done with, and all nodes reached a height that the chain made afterwards.

use super::Progress;
use crate::plan::Plan;

/// Blocks that must be made after the last fault before agreement means anything.
const BLOCKS_AFTER: u64 = 2;

/// Time for the nodes to agree where the topology names none, in milliseconds.
const CONVERGE_WITHIN_MS: u64 = 60_000;

/// How long a chain must rest at its halt height before that counts, in milliseconds.
const HALT_REST_MS: u64 = 2_000;

/// Why a run is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    /// Every node reached the common target.
    pub converged: bool,
    /// In words.
    pub why: String,
}

/// Where the settling phase began.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quiet {
    /// When the last fault was done with, microseconds since the run began.
    pub since_us: u64,
    /// Best height at that moment.
    pub best: u64,
}

/// Decides whether the run is over. `quiet` is `None` while faults are still to come or nodes still to be started.
pub fn settled(progress: &Progress, plan: &Plan, quiet: Option<Quiet>, now_us: u64) -> Option<Settled> {
    let quiet = quiet?;
    let within_ms = plan.expect.converge_within_ms.unwrap_or(CONVERGE_WITHIN_MS);
    let late = now_us.saturating_sub(quiet.since_us) / 1000 > within_ms;
    if let Some(name) = progress.nodes.iter().find(|(_, n)| n.gone).map(|(name, _)| name) {
        return Some(Settled { converged: false, why: format!("`{name}` does not come back") });
    }
    if let Some(halt) = plan.expect.halt_height {
        return halted(progress, halt, now_us, late);
    }
    let target = quiet.best + BLOCKS_AFTER;
    let behind: Vec<String> = plan
        .nodes
        .iter()
        .filter_map(|node| {
            let seen = progress.nodes.get(&node.name);
            match seen {
                // One that has all blocks and never leaves block sync has not come back.
                Some(n) if n.answered && n.height >= target && !n.catching_up => None,
                Some(n) if n.answered && n.height >= target => Some(format!("{} still catching up", node.name)),
                Some(n) if n.running => Some(format!("{} at {}", node.name, n.height)),
                _ => Some(format!("{} down", node.name)),
            }
        })
        .collect();
    if behind.is_empty() {
        return Some(Settled { converged: true, why: format!("every node is at height {target} or above") });
    }
    late.then(|| Settled {
        converged: false,
        why: format!("height {target} was not reached within {} s: {}", within_ms / 1000, behind.join(", ")),
    })
}

fn halted(progress: &Progress, halt: u64, now_us: u64, late: bool) -> Option<Settled> {
    let rest = |since_us: u64| now_us.saturating_sub(since_us) / 1000 >= HALT_REST_MS;
    let nodes = || progress.nodes.values();
    if nodes().any(|n| n.height > halt) {
        return Some(Settled { converged: false, why: format!("a node went past the halt height {halt}") });
    }
    if nodes().all(|n| n.height == halt && rest(n.height_since_us)) {
        return Some(Settled { converged: true, why: format!("every node halted at {halt}") });
    }
    late.then(|| Settled { converged: false, why: format!("not every node reached the halt height {halt}") })
}

//! When a run is over: every fault is done with, and all nodes reached a height that the chain made afterwards.

use super::Progress;
use crate::plan::Plan;

/// Blocks that must be made after the last fault before agreement means anything.
const BLOCKS_AFTER: u64 = 2;

/// Blocks that a run makes at least, so that there is something to agree on.
const BLOCKS_MIN: u64 = 5;

/// Time for the nodes to agree where the topology names none, in milliseconds.
const CONVERGE_WITHIN_MS: u64 = 60_000;

/// How long a chain must rest at its halt height before that counts, in milliseconds.
const HALT_REST_MS: u64 = 2_000;

/// How long no node's height may move while faults or first starts are still waited for, beside the longest downtime of a
/// fault, in milliseconds: a network that never comes up, or stands for good, meets none of them.
const STILL_MS: u64 = 120_000;

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
    let Some(quiet) = quiet else { return stuck(progress, plan, now_us) };
    let within_ms = plan.expect.converge_within_ms.unwrap_or(CONVERGE_WITHIN_MS);
    let late = now_us.saturating_sub(quiet.since_us) / 1000 > within_ms;
    if let Some(name) = progress.nodes.iter().find(|(_, n)| n.gone).map(|(name, _)| name) {
        return Some(Settled { converged: false, why: format!("`{name}` does not come back") });
    }
    if let Some(halt) = plan.expect.halt_height {
        return halted(progress, halt, now_us, late);
    }
    let made = (plan.initial_height + plan.built_blocks).saturating_sub(1) + BLOCKS_MIN;
    let target = (quiet.best + BLOCKS_AFTER).max(made);
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

/// Whether nothing that is waited for can come any more.
fn stuck(progress: &Progress, plan: &Plan, now_us: u64) -> Option<Settled> {
    let no_more = |why: String| Some(Settled { converged: false, why });
    let gone = |name: &String| progress.nodes.get(name).is_some_and(|node| node.gone);
    let mut validators = plan.nodes.iter().filter(|node| node.power > 0).map(|node| &node.name).peekable();
    if validators.peek().is_some() && validators.all(gone) {
        return no_more("no validator comes back".to_owned());
    }
    let moved_us = progress.nodes.values().map(|node| node.height_since_us.max(node.started_us)).max()?;
    let down_ms = plan.faults.iter().map(|fault| fault.down_ms).max().unwrap_or(0);
    let still_ms = now_us.saturating_sub(moved_us) / 1000;
    if still_ms <= STILL_MS + down_ms {
        return None;
    }
    if progress.nodes.values().any(|node| node.height > 0) {
        no_more(format!("no node's height has moved for {} s", still_ms / 1000))
    } else {
        no_more(format!("no node has answered with a height for {} s", still_ms / 1000))
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::build;
    use crate::run::progress::NodeProgress;
    use crate::topology::load;

    const S: u64 = 1_000_000;

    fn plan(more: &str) -> Plan {
        let text = format!(
            "midflush: 1\nname: n\nchain: {{ reference: {{}} }}\nnodes:\n  val: {{ role: validator, count: 2 }}\n{more}"
        );
        build(&load("n.yaml", text.as_bytes(), &[]).expect("a topology").topology, 1).expect("a plan")
    }

    fn progress(nodes: &[(&str, NodeProgress)]) -> Progress {
        Progress { nodes: nodes.iter().map(|(name, node)| ((*name).to_owned(), node.clone())).collect() }
    }

    fn at(height: u64, since_us: u64) -> NodeProgress {
        NodeProgress {
            running: true,
            answered: true,
            starts: 1,
            height,
            height_since_us: since_us,
            ..Default::default()
        }
    }

    #[test]
    fn every_node_must_pass_a_height_made_after_the_last_fault() {
        let plan = plan("expect: { converge: { within: 30s } }\n");
        let quiet = Some(Quiet { since_us: 10 * S, best: 8 });
        let two = |a, b| progress(&[("val-1", at(a, 0)), ("val-2", at(b, 0))]);
        assert_eq!(settled(&two(10, 9), &plan, quiet, 20 * S), None);
        assert!(settled(&two(10, 10), &plan, quiet, 20 * S).expect("over").converged);
        let late = settled(&two(10, 9), &plan, quiet, 41 * S).expect("over");
        assert_eq!((late.converged, late.why.as_str()), (false, "height 10 was not reached within 30 s: val-2 at 9"));
    }

    #[test]
    fn a_node_that_nobody_starts_again_ends_the_wait() {
        let quiet = Some(Quiet { since_us: 10 * S, best: 8 });
        let gone = NodeProgress { gone: true, starts: 3, ..Default::default() };
        let seen = progress(&[("val-1", at(20, 0)), ("val-2", gone.clone())]);
        assert_eq!(settled(&seen, &plan(""), quiet, 11 * S).expect("over").why, "`val-2` does not come back");
        assert_eq!(settled(&seen, &plan(""), None, 11 * S), None, "the other validator may still meet the faults");
        let all = progress(&[("val-1", gone.clone()), ("val-2", gone)]);
        assert_eq!(settled(&all, &plan(""), None, 11 * S).expect("over").why, "no validator comes back");
    }

    #[test]
    fn a_network_that_never_comes_up_or_stands_for_good_ends_the_wait() {
        let fault = "faults: [{ name: f, kill: val-1, at: { height: 50 }, restart: { after: 60s } }]\n";
        let silent = NodeProgress { running: true, starts: 1, started_us: 5 * S, ..Default::default() };
        let silent = progress(&[("val-1", silent.clone()), ("val-2", silent)]);
        assert_eq!(settled(&silent, &plan(""), None, 125 * S), None);
        let over = settled(&silent, &plan(""), None, 126 * S).expect("over");
        assert_eq!(over.why, "no node has answered with a height for 121 s");
        let still = progress(&[("val-1", at(7, 9 * S)), ("val-2", at(7, 10 * S))]);
        assert_eq!(settled(&still, &plan(fault), None, 190 * S), None, "a fault may take a node away for 60 s");
        let over = settled(&still, &plan(fault), None, 191 * S).expect("over");
        assert_eq!((over.converged, over.why.as_str()), (false, "no node's height has moved for 181 s"));
    }

    #[test]
    fn a_halt_is_reached_by_all_and_passed_by_none() {
        let mut plan = plan("");
        plan.expect.halt_height = Some(9);
        let quiet = Some(Quiet { since_us: S, best: 8 });
        let two = |a, b| progress(&[("val-1", at(a, 2 * S)), ("val-2", at(b, 2 * S))]);
        assert_eq!(settled(&two(9, 9), &plan, quiet, 3 * S), None, "it must rest there");
        assert!(settled(&two(9, 9), &plan, quiet, 4 * S).expect("over").converged);
        assert!(!settled(&two(9, 10), &plan, quiet, 3 * S).expect("over").converged);
    }
}

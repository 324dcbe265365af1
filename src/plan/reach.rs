//! Heights that are waited for, against the time that a run may take.

use std::time::Duration;

use super::{ChainPlan, FaultPlan, Plan, StartAt, Trigger};

/// How long a run waits for a height where no time limit says it.
pub const HEIGHT_WAIT: Duration = Duration::from_secs(3_600);

/// Why a fault cannot land within `limit`: the chain, at its block time, cannot be at the fault's height by then. `None` where it
/// can, and for families whose blocks may come faster than they are told to.
pub fn too_far(plan: &Plan, fault: &FaultPlan, limit: Duration) -> Option<String> {
    let asked = fault.setup.asked.as_ref().map(|address| address.height.from);
    let height = if let Trigger::Height(height) = fault.trigger { Some(height) } else { asked }?;
    beyond(plan, height, limit)
}

/// The same for the first start of each node: its name, and why it is never started.
pub fn starts_too_far(plan: &Plan, limit: Duration) -> Option<(String, String)> {
    plan.nodes.iter().find_map(|node| match node.start {
        StartAt::Height(height) => Some((node.name.clone(), beyond(plan, height, limit)?)),
        StartAt::Run | StartAt::AfterMs(_) => None,
    })
}

fn beyond(plan: &Plan, height: u64, limit: Duration) -> Option<String> {
    // Of these it is no least time.
    if matches!(plan.chain, ChainPlan::Tenderdash(_) | ChainPlan::Custom(_)) {
        return None;
    }
    let block_ms = plan.chain.block_time_ms();
    let there = (plan.initial_height + plan.built_blocks).saturating_sub(1);
    let needs = Duration::from_millis(height.saturating_sub(there).saturating_mul(block_ms));
    (needs > limit).then(|| {
        format!(
            "height {height} is {} away at a block every {}, and a run waits {} for a height; lower it, or give a longer \
             `--time-limit`",
            rough(needs),
            super::span(block_ms),
            rough(limit)
        )
    })
}

/// A time in its two largest units.
fn rough(time: Duration) -> String {
    let s = time.as_secs();
    match s {
        0..60 => format!("{s} s"),
        60..3_600 => format!("{} min {} s", s / 60, s % 60),
        3_600..172_800 => format!("{} h {} min", s / 3_600, s / 60 % 60),
        _ => format!("{} days {} h", s / 86_400, s / 3_600 % 24),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::build;
    use crate::topology::load;

    fn plan(more: &str) -> Plan {
        let text = format!(
            "midflush: 1\nname: n\nchain: {{ reference: {{ block_time: 200ms }} }}\nnodes:\n  val: {{ role: validator, count: 2 }}\n{more}"
        );
        build(&load("n.yaml", text.as_bytes(), &[]).expect("a topology").topology, 1).expect("a plan")
    }

    #[test]
    fn a_height_is_too_far_where_the_block_time_says_so() {
        let minute = Duration::from_secs(60);
        for (at, far) in [
            ("{ height: 300 }", false),
            ("{ height: 301 }", true),
            ("{ store: state.db, sync: 1, phase: before, height: 1000000.. }", true),
            ("{ store: state.db, sync: 1, phase: before, height: 12..1000000 }", false),
            ("{ store: state.db, sync: 1, phase: before }", false),
            ("{ time: 900s }", false),
        ] {
            let plan = plan(&format!("faults: [{{ name: f, kill: val-1, at: {at} }}]\n"));
            assert_eq!(too_far(&plan, &plan.faults[0], minute).is_some(), far, "{at}");
        }
        let plan = plan("faults: [{ name: f, kill: val-1, at: { height: 1000000 } }]\n");
        let why = too_far(&plan, &plan.faults[0], HEIGHT_WAIT).expect("far");
        assert!(
            why.starts_with("height 1000000 is 2 days 7 h away at a block every 200 ms, and a run waits 1 h 0 min"),
            "{why}"
        );
    }

    #[test]
    fn a_node_that_would_never_be_started_is_found() {
        let plan = plan("  late: { role: full, start: { height: 1000000 } }\n");
        assert_eq!(starts_too_far(&plan, HEIGHT_WAIT).expect("far").0, "late");
        assert_eq!(starts_too_far(&plan, Duration::from_secs(1_000_000)), None);
    }
}

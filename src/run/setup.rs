//! Plan to the facts that the timeline carries for the judge. Pure.

use crate::chain::Chain;
use crate::plan::Plan;
use crate::timeline::{NodeSetup, Setup};

/// What a verdict depends on, taken from the plan and the node family.
pub fn setup(plan: &Plan, chain: &dyn Chain) -> Setup {
    Setup {
        family: plan.chain.family().to_owned(),
        chain_id: plan.chain_id.clone(),
        initial_height: plan.initial_height,
        built_blocks: plan.built_blocks,
        app_hash_offset: chain.rpc().app_hash_offset(),
        load: plan.load.is_some(),
        nodes: plan
            .nodes
            .iter()
            .map(|node| NodeSetup {
                name: node.name.clone(),
                role: node.role,
                power: node.power,
                group: node.group.clone(),
                storage: node.storage.clone(),
                layout: chain.layout(plan, node),
            })
            .collect(),
        faults: plan.faults.iter().map(|f| f.setup.clone()).collect(),
        expect: plan.expect.clone(),
    }
}

//! A small plan and binding for the tests of the families.

use std::collections::BTreeMap;

use indexmap::IndexMap;

use crate::engine::{Binding, NodeBinding};
use crate::plan::{ApplicationPlan, ChainPlan, NodePlan, Plan, StartAt};
use crate::timeline::{Expect, Role};

/// Validators `val-1` to `val-N` and one full node `late` that dials them all.
pub(crate) fn plan(chain: ChainPlan, validators: usize) -> Plan {
    let names: Vec<String> = (1..=validators).map(|n| format!("val-{n}")).collect();
    let mut nodes: Vec<NodePlan> = names.iter().enumerate().map(|(i, name)| node(i, name, Role::Validator)).collect();
    nodes.push(node(validators, "late", Role::Full));
    for node in &mut nodes {
        node.peers = names.iter().filter(|name| **name != node.name).cloned().collect();
    }
    Plan {
        name: "sample".to_owned(),
        seed: 7,
        chain_id: "sample-7".to_owned(),
        initial_height: 1,
        built_blocks: 0,
        genesis_time: "2026-01-01T00:00:00Z".to_owned(),
        chain,
        application: None,
        nodes,
        load: None,
        faults: Vec::new(),
        expect: Expect::default(),
    }
}

fn node(index: usize, name: &str, role: Role) -> NodePlan {
    NodePlan {
        name: name.to_owned(),
        group: name.split('-').next().unwrap_or(name).to_owned(),
        role,
        power: if role == Role::Validator { 10 } else { 0 },
        build: None,
        key_seed: hex::encode([u8::try_from(index + 1).expect("few nodes"); 32]),
        start: StartAt::Run,
        holds_built: true,
        storage: None,
        peers: Vec::new(),
        sync_latency: IndexMap::new(),
        watch: None,
        options: BTreeMap::new(),
    }
}

/// One loopback address a node, and one an application beside it.
pub(crate) fn binding(plan: &Plan, program: &str) -> Binding {
    let names = plan.nodes.iter().map(|node| node.name.clone());
    let beside = names.clone().filter(|_| plan.application.is_some()).map(|name| ApplicationPlan::name(&name));
    let nodes = names.chain(beside).enumerate().map(|(i, name)| {
        let place = NodeBinding {
            ip: format!("127.80.3.{}", i + 1).parse().expect("an address"),
            p2p_port: 26656,
            rpc_port: 26657,
            metrics_port: 26660,
            home: format!("/run/sample/{name}").into(),
            program: vec![program.to_owned()],
            env: BTreeMap::new(),
            place: format!("127.80.3.{}", i + 1),
        };
        (name, place)
    });
    Binding { engine: "process".to_owned(), nodes: nodes.collect() }
}

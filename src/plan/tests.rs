//! Plans from whole topologies.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;

use super::*;
use crate::timeline::{Commit, Layout, Mode, Store};
use crate::topology::{Loaded, Problems, load};

const QUICK: &str = r"midflush: 1
name: quick
chain: { reference: { block_time: 200ms, start_from: { built_blocks: 300 } } }
nodes:
  val: { role: validator, count: 4 }
  late: { role: full, start: { after: 1s..4s }, storage: deferred, peers: 3 }
load: { rate: 40/s, size: 200B }
faults:
  - { name: aimed, kill: late, at: { store: state.db, sync: 1, write: first, mode: block_sync, window: 2.. } }
  - { name: random, kill: { one_of: val }, every: { interval: 8s, jitter: 3s, times: 5 }, restart: { after: 1s..3s } }
  - { name: all, stop: val, after: random }
";

fn loaded(text: &str) -> Loaded {
    load("t.yaml", text.as_bytes(), &[]).unwrap_or_else(|problems| panic!("{problems}"))
}

fn plan(text: &str, seed: u64) -> Plan {
    build(&loaded(text).topology, seed).unwrap_or_else(|problem| panic!("{problem:?}"))
}

fn bytes(plan: &Plan) -> String {
    serde_json::to_string_pretty(plan).unwrap()
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_seed_others() {
    let one = bytes(&plan(QUICK, 7));
    assert_eq!(one, bytes(&plan(QUICK, 7)));
    assert_ne!(one, bytes(&plan(QUICK, 8)));
    assert_eq!(serde_json::from_str::<Plan>(&one).unwrap(), plan(QUICK, 7));
}

#[test]
fn what_a_seed_means_does_not_change_unnoticed() {
    insta::assert_snapshot!(bytes(&plan(QUICK, 7)));
}

#[test]
fn a_change_in_one_part_moves_no_other() {
    let before = plan(QUICK, 7);
    let after = plan(&QUICK.replace("peers: 3", "peers: 2").replace("times: 5", "times: 2"), 7);
    let keys = |plan: &Plan| plan.nodes.iter().map(|node| node.key_seed.clone()).collect::<Vec<_>>();
    assert_eq!(keys(&before), keys(&after));
    assert_eq!(before.genesis_time, after.genesis_time);
    assert_eq!(before.load, after.load);
    assert_eq!(before.faults[1].setup.node, after.faults[1].setup.node);
}

#[test]
fn only_nodes_that_start_with_the_run_hold_built_blocks() {
    let plan = plan(QUICK, 7);
    let holders: Vec<&str> = plan.nodes.iter().filter(|node| node.holds_built).map(|node| node.name.as_str()).collect();
    assert_eq!(holders, ["val-1", "val-2", "val-3", "val-4"]);
    let StartAt::AfterMs(ms) = plan.nodes[4].start else { panic!("late starts later") };
    assert!((1_000..=4_000).contains(&ms), "{ms}");
}

#[test]
fn repeated_faults_are_spread_over_time_and_nodes() {
    let mut nodes = BTreeSet::new();
    for seed in 0..20 {
        let plan = plan(QUICK, seed);
        let random: Vec<&FaultPlan> = plan.faults.iter().filter(|fault| fault.setup.id.name == "random").collect();
        assert_eq!(random.len(), 5);
        for (index, fault) in random.iter().enumerate() {
            assert_eq!(fault.setup.id.occurrence as usize, index + 1);
            let Trigger::AtMs(ms) = fault.trigger else { panic!("a time") };
            let middle = 8_000 * (index as u64 + 1);
            assert!((middle - 3_000..=middle + 3_000).contains(&ms), "{ms}");
            assert!((1_000..=3_000).contains(&fault.down_ms));
            nodes.insert(fault.setup.node.clone());
        }
        let all: Vec<&str> =
            plan.faults.iter().filter(|f| f.setup.id.name == "all").map(|f| f.setup.node.as_str()).collect();
        assert_eq!(all, ["val-1", "val-2", "val-3", "val-4"]);
    }
    assert_eq!(nodes.len(), 4, "{nodes:?}");
}

#[test]
fn an_upgrade_goes_from_node_to_node_and_keeps_its_name_for_the_last() {
    let text = "midflush: 1
name: up
chain: { cometbft: { binary: /a } }
builds: { new: { binary: /b } }
nodes: { val: { role: validator, count: 3 }, full: { role: full, build: new } }
faults:
  - { name: all, upgrade: { node: val, to: new, pace: 2s }, at: { height: 9 } }
  - { name: next, kill: full, after: all }
";
    let mut plan = plan(text, 1);
    let told: Vec<(String, String)> =
        plan.faults.iter().map(|fault| (fault.setup.id.name.clone(), fault.setup.when.clone())).collect();
    let told: Vec<(&str, &str)> = told.iter().map(|(name, when)| (name.as_str(), when.as_str())).collect();
    assert_eq!(
        told,
        [
            ("all: val-1", "to `new` when the chain is at height 9"),
            ("all: val-2", "to `new` 2 s after `all: val-1`"),
            ("all", "to `new` 2 s after `all: val-2`"),
            ("next", "after `all`"),
        ]
    );
    assert_eq!(plan.faults[0].trigger, Trigger::Height(9));
    assert_eq!(plan.faults[2].trigger, Trigger::After { fault: "all: val-2".to_owned(), ms: 2_000 });
    let new = BuildPlan::Binary("/b".to_owned());
    assert_eq!(plan.nodes[3].build.as_ref(), Some(&new));
    let (fault, after) = plan.upgrades(&plan.nodes[1]).next().expect("an upgrade");
    assert_eq!((fault.name.as_str(), after.build.as_ref()), ("all: val-2", Some(&new)));
    // The chain's own, the full node's, and one for each upgrade.
    assert_eq!(plan.builds_mut().count(), 5);
    for node in &mut plan.nodes {
        node.build = Some(new.clone());
    }
    assert_eq!(plan.builds_mut().count(), 7, "nothing is made from the chain's own");
}

fn reaches_all(plan: &Plan) -> bool {
    let mut links: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    for node in &plan.nodes {
        for peer in &node.peers {
            links.entry(&node.name).or_default().insert(peer);
            links.entry(peer).or_default().insert(&node.name);
        }
    }
    let mut reached = BTreeSet::from([plan.nodes[0].name.as_str()]);
    let mut next: Vec<&str> = reached.iter().copied().collect();
    while let Some(node) = next.pop() {
        for other in links.get(node).into_iter().flatten() {
            if reached.insert(other) {
                next.push(other);
            }
        }
    }
    reached.len() == plan.nodes.len()
}

fn network(groups: &str) -> String {
    format!("midflush: 1\nname: t\nchain: {{ reference: {{}} }}\nnodes:\n{groups}")
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    #[test]
    fn regular_graphs_are_regular_and_connected(count in 3..40_usize, peers in 2..39_usize, seed in any::<u64>()) {
        prop_assume!(peers < count && peers * count % 2 == 0);
        let plan = plan(&network(&format!("  a: {{ role: validator, count: {count}, peers: {peers} }}\n")), seed);
        for node in &plan.nodes {
            prop_assert_eq!(node.peers.len(), peers);
            prop_assert!(!node.peers.contains(&node.name));
            for peer in &node.peers {
                let other = plan.nodes.iter().find(|other| other.name == *peer).unwrap();
                prop_assert!(other.peers.contains(&node.name), "both ends dial");
            }
        }
        prop_assert!(reaches_all(&plan));
    }

    #[test]
    fn mixed_graphs_are_connected(vals in 2..8_usize, fulls in 1..30_usize, peers in 1..6_usize, seed in any::<u64>()) {
        prop_assume!(peers < vals + fulls);
        let text = network(&format!(
            "  v: {{ role: validator, count: {vals} }}\n  f: {{ role: full, count: {fulls}, peers: {peers} }}\n  late: {{ role: full, start: {{ after: 1s }}, peers: [v] }}\n"
        ));
        let plan = plan(&text, seed);
        prop_assert!(reaches_all(&plan));
        for node in &plan.nodes {
            let wanted = match node.group.as_str() { "v" => vals - 1, "f" => peers, _ => vals };
            prop_assert_eq!(node.peers.len(), wanted, "{}", node.name);
        }
    }
}

#[test]
fn two_hundred_nodes_get_their_peers() {
    let plan =
        plan(&network("  v: { role: validator, count: 20, peers: 8 }\n  f: { role: full, count: 180, peers: 6 }\n"), 1);
    assert!(reaches_all(&plan));
    assert_eq!(plan.nodes.iter().map(|node| node.peers.len()).sum::<usize>(), 20 * 8 + 180 * 6);
}

/// A node that syncs its block store once and its application never.
fn layout() -> Layout {
    let store = |name: &str| Store { name: name.to_owned(), paths: vec![format!("data/{name}/")], except: Vec::new() };
    let commit = |store: &str, sync, modes: &[Mode]| Commit {
        store: store.to_owned(),
        sync,
        modes: modes.to_vec(),
        advances: None,
        what: "a commit".to_owned(),
    };
    Layout {
        stores: ["blockstore.db", "cs.wal", "state.db", "application.db", "evidence.db"].map(store).to_vec(),
        flush: vec![
            commit("blockstore.db", Some(1), &[Mode::Consensus, Mode::BlockSync]),
            commit("cs.wal", Some(1), &[Mode::Consensus]),
            commit("state.db", Some(1), &[]),
            commit("application.db", None, &[]),
            commit("state.db", Some(2), &[]),
        ],
        height_mark: None,
        log_marks: Vec::new(),
    }
}

/// The problems of one fault on a node with that layout.
fn against_layout(address: &str) -> Option<String> {
    let text = format!(
        "{}faults:\n  - {{ name: x, kill: a, at: {address} }}\n",
        network("  a: { role: validator, count: 2 }\n")
    );
    let loaded = loaded(&text);
    let plan = build(&loaded.topology, 1).unwrap();
    let layouts = plan.nodes.iter().map(|node| (node.name.clone(), layout())).collect();
    let problems = check_layout(&loaded.topology, &plan, &layouts);
    assert!(problems.len() <= 1, "told once: {problems:?}");
    (!problems.is_empty()).then(|| Problems::new(&loaded.source, problems).to_string())
}

#[test]
fn addresses_that_exist_are_accepted() {
    for address in [
        "{ store: blockstore.db, sync: 1 }",
        "{ store: state.db, sync: 2, write: first }",
        "{ store: application.db, write: first }",
        "{ store: application.db, write: 2, phase: after }",
        "{ store: cs.wal, sync: 1, mode: consensus }",
    ] {
        assert_eq!(against_layout(address), None, "{address}");
    }
}

#[test]
fn addresses_that_do_not_exist_are_explained() {
    for (address, code, words) in [
        ("{ store: statedb, sync: 1 }", "unknown-store", "did you mean `state.db`?"),
        ("{ store: state.db, sync: 3 }", "no-such-event", "the last is `sync: 2`"),
        (
            "{ store: application.db, sync: 1, write: first }",
            "never-synced",
            "{ store: application.db, write: first, phase: before }",
        ),
        ("{ store: state.db, write: first }", "vague-address", "add `sync: 1` to `sync: 2`"),
        ("{ store: cs.wal, sync: 1, mode: block_sync }", "no-such-event", "no part of a flush in block sync"),
        ("{ store: evidence.db, sync: 1 }", "no-such-event", "no part of a flush"),
    ] {
        let found = against_layout(address).unwrap_or_default();
        assert!(found.contains(code) && found.contains(words), "{address}: {found}");
    }
}

#[test]
fn stores_of_latencies_and_expectations_are_checked() {
    let text = format!(
        "{}expect: {{ syncs_per_block: {{ a: {{ consensus: {{ stat.db: 1 }} }} }} }}\n",
        network("  a: { role: validator, disk: { sync: { aplication.db: 4ms, \"*\": 1ms } } }\n")
    );
    let loaded = loaded(&text);
    let plan = build(&loaded.topology, 1).unwrap();
    assert_eq!(plan.nodes[0].sync_latency["*"], Latency::Fixed(1_000));
    let layouts = BTreeMap::from([("a".to_owned(), layout())]);
    let problems = Problems::new(&loaded.source, check_layout(&loaded.topology, &plan, &layouts));
    assert_eq!(problems.places(), [("t.yaml".to_owned(), 5, 41), ("t.yaml".to_owned(), 6, 48)], "{problems}");
}

#[test]
fn times_are_printed_short() {
    for (ms, text) in
        [(0, "0 s"), (500, "500 ms"), (2_000, "2 s"), (2_500, "2.5 s"), (2_050, "2.05 s"), (2_005, "2.005 s")]
    {
        assert_eq!(span(ms), text);
    }
}

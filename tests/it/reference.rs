//! The reference family against the node in this tree: what one writes, the other takes.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use midflush::chain::reference::Reference;
use midflush::chain::{Chain, Made, NodeFiles};
use midflush::node::config::{Home, Storage};
use midflush::plan::{ChainPlan, Plan, ReferencePlan};
use midflush::timeline::{Heights, LogMeaning, Mode};

use crate::aimed::Net;
use crate::network::{self, Node, marked};

#[test]
fn the_node_takes_the_files_of_every_discipline() {
    let options = BTreeMap::from([
        ("verify_window".to_owned(), serde_json::json!(8)),
        ("checkpoints".to_owned(), serde_json::json!({ "every_ms": 1000, "keep": 3, "historical": "skip" })),
        ("timing".to_owned(), serde_json::json!(true)),
        ("flush".to_owned(), serde_json::json!({ "every_ms": 250, "max_bytes": 1 << 20 })),
    ]);
    let mut plan =
        network::plan(ChainPlan::Reference(ReferencePlan { block_time_ms: 50, halt_height: Some(90), options }));
    let folder = tempfile::tempdir().expect("a folder");
    let disciplines = [
        ("per-block", Storage::PerBlock),
        ("single-flush", Storage::SingleFlush),
        ("deferred", Storage::Deferred),
        ("no-sync", Storage::NoSync),
    ];
    for (node, (name, _)) in plan.nodes.iter_mut().zip(disciplines) {
        node.storage = Some(name.to_owned());
    }
    let program = Path::new("midflush");
    let binding = network::binding(&plan, folder.path(), program);
    for (node, (_, storage)) in plan.nodes.iter().zip(disciplines) {
        let place = &binding.nodes[&node.name];
        network::write(
            &Reference::new(program).render(&plan, &binding, &Made::new(), node).expect("files"),
            &place.home,
        );
        let home = Home::new(&place.home);
        let config = home.node_config().expect("a configuration");
        assert_eq!((config.name.as_str(), config.storage, config.halt_height), (node.name.as_str(), storage, Some(90)));
        assert_eq!((config.rpc_listen.ip(), config.peers.len()), (place.ip, 3));
        let genesis = home.genesis().expect("a genesis, its proofs of possession checked");
        assert_eq!((genesis.validators.len(), genesis.initial_height), (4, 1));
        let own = genesis.validators.iter().find(|v| v.name == node.name).expect("its own entry");
        assert_eq!(home.secret_key().expect("a key").public_key(), own.pub_key);
    }
}

#[test]
fn the_built_chain_lies_where_heights_are_read() {
    let options = ReferencePlan { block_time_ms: 50, halt_height: None, options: BTreeMap::new() };
    let mut plan = network::plan(ChainPlan::Reference(options));
    plan.built_blocks = 60;
    let folder = tempfile::tempdir().expect("a folder");
    let chain = Reference::new(env!("CARGO_BIN_EXE_midflush"));
    let fixture = chain.fixture(&plan).expect("a fixture").expect("blocks to build");
    let build = || {
        let home = tempfile::tempdir_in(folder.path()).expect("a folder");
        let files = NodeFiles { files: fixture.files.clone(), ..NodeFiles::default() };
        network::write(&files, home.path());
        let mut command = Command::new(&fixture.command[0]);
        let output = command.args(&fixture.command[1..]).current_dir(home.path()).output().expect("it runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let heights = chain.stored_heights(home.path()).expect("heights");
        assert_eq!(heights, Heights::new(60, 60, 60));
        assert!(home.path().join(&fixture.into).join("blockstore.db").exists());
        String::from_utf8(output.stdout).expect("text")
    };
    assert_eq!(build(), build(), "the same chain twice");
}

/// A network of the given disciplines, one a validator, and a full node.
fn small(disciplines: [&str; 4], late: &str) -> Plan {
    let options = ReferencePlan { block_time_ms: 100, halt_height: None, options: BTreeMap::new() };
    let mut plan = network::plan(ChainPlan::Reference(options));
    for (node, name) in plan.nodes.iter_mut().zip(disciplines.into_iter().chain([late])) {
        node.storage = Some(name.to_owned());
    }
    plan
}

#[tokio::test]
async fn rendered_files_make_a_network_that_the_family_can_read() {
    let program = Path::new(env!("CARGO_BIN_EXE_midflush"));
    let plan = small(["per-block", "single-flush", "deferred", "no-sync"], "deferred");
    let folder = tempfile::tempdir().expect("a folder");
    let binding = network::binding(&plan, folder.path(), program);
    let chain = Reference::new(program);
    let launch = |node| network::launch(&chain, &plan, &binding, node);
    let validators: Vec<Node> = plan.nodes[..4].iter().map(launch).collect();
    // Three of four make blocks without the last one: each is waited for before it is asked anything.
    for node in &validators {
        node.at(&chain, 3).await;
    }
    for (n, kind) in (0..12).zip(["set", "validator", "params", "halt"].into_iter().cycle()) {
        let transaction = chain.transaction(&plan, &Made::new(), kind, n, 200).expect("a transaction");
        network::taken_once(&chain, &validators[1], &transaction).await;
    }
    let target = validators[0].height(&chain).await.expect("a height") + 5;
    let mut late = launch(&plan.nodes[4]);
    let app_hashes = network::late_follows(&chain, &validators, &late, target).await;
    assert!(app_hashes.len() > 1, "the app hash never changed: {app_hashes:?}");
    network::went_through(&chain, &plan, &late, &[Mode::BlockSync, Mode::Consensus]).await;
    assert!(!marked(&late.log(), &chain, &plan, |m| matches!(m, LogMeaning::FlushPoint { .. })).is_empty());

    late.kill();
    let home = &binding.nodes["late"].home;
    let heights = chain.stored_heights(home).expect("heights");
    assert!(heights.store >= Some(target) && heights.app.is_some() && heights.state.is_some(), "{heights}");
    let again = launch(&plan.nodes[4]);
    let lines = network::two_handshakes(&chain, &plan, &again).await;
    let [app, state, store] = [heights.app, heights.state, heights.store].map(|h| h.expect("known"));
    let expected = format!("appHeight={app} storeHeight={store} stateHeight={state}");
    assert!(lines[1].contains(&expected), "{} is not {expected}", lines[1]);
}

/// Addresses of one block's flush in block sync, with the disciplines that have them.
const BLOCK_BY_BLOCK: [(&str, &str); 7] = [
    ("block", "{mode: block_sync, store: blockstore.db, sync: 1, write: first, phase: before}"),
    ("block synced", "{mode: block_sync, store: blockstore.db, sync: 1, phase: after}"),
    ("results", "{mode: block_sync, store: state.db, sync: 1, write: first, phase: before}"),
    ("application", "{mode: block_sync, store: application.db, sync: 1, write: first, phase: before}"),
    ("application written", "{mode: block_sync, store: application.db, sync: 1, phase: before}"),
    ("state", "{mode: block_sync, store: state.db, sync: 2, write: first, phase: before}"),
    ("state synced", "{mode: block_sync, store: state.db, sync: 2, phase: after}"),
];

/// Addresses of a flush point.
const FLUSH_POINT: [(&str, &str); 6] = [
    ("blocks", "{mode: block_sync, window: 2, store: blockstore.db, sync: 1, write: first, phase: before}"),
    ("blocks synced", "{mode: block_sync, window: 2, store: blockstore.db, sync: 1, phase: after}"),
    ("states", "{mode: block_sync, window: 2, store: state.db, sync: 1, write: first, phase: before}"),
    ("states written", "{mode: block_sync, window: 2, store: state.db, sync: 1, write: last, phase: after}"),
    ("application", "{mode: block_sync, window: 2, store: application.db, sync: 1, write: first, phase: before}"),
    ("application synced", "{mode: block_sync, window: 2, store: application.db, sync: 1, phase: after}"),
];

/// Addresses while blocks are followed one by one.
const CONSENSUS: [(&str, &str); 4] = [
    ("block in consensus", "{mode: consensus, store: blockstore.db, sync: 1, write: first, phase: before}"),
    ("results in consensus", "{mode: consensus, store: state.db, sync: 1, write: first, phase: before}"),
    ("application in consensus", "{mode: consensus, store: application.db, sync: 1, write: first, phase: before}"),
    ("state in consensus", "{mode: consensus, store: state.db, sync: 2, write: first, phase: before}"),
];

/// Kills a late node of this discipline at the addresses, in block sync over a built chain first.
async fn kills(name: &str, discipline: &str, block_sync: &[(&str, &str)]) {
    let chain = Reference::new(env!("CARGO_BIN_EXE_midflush"));
    let mut plan = small(["per-block", "single-flush", "deferred", "per-block"], discipline);
    plan.built_blocks = 1500;
    plan.nodes[4].options.insert("flush".to_owned(), serde_json::json!({ "every_ms": 100 }));
    let fixture = chain.fixture(&plan).expect("a fixture").expect("blocks to build");
    let built = tempfile::tempdir().expect("a folder");
    network::write(&NodeFiles { files: fixture.files.clone(), ..NodeFiles::default() }, built.path());
    let mut command = Command::new(&fixture.command[0]);
    let output = command.args(&fixture.command[1..]).current_dir(built.path()).output().expect("it runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));

    let net = Net::launch(name, &chain, plan).await;
    for node in 0..4 {
        net.put_folder(node, &built.path().join(&fixture.into), &fixture.into).await;
        net.start(&chain, node).await;
    }
    net.kill_at_each(&chain, 4, 0, &[block_sync, &CONSENSUS].concat()).await;
    net.end().await;
}

#[tokio::test]
async fn kills_with_per_block_leave_the_heights_predicted() {
    kills("per-block", "per-block", &BLOCK_BY_BLOCK).await;
}

#[tokio::test]
async fn kills_with_single_flush_leave_the_heights_predicted() {
    kills("single-flush", "single-flush", &BLOCK_BY_BLOCK).await;
}

#[tokio::test]
async fn kills_with_deferred_leave_the_heights_predicted() {
    kills("deferred", "deferred", &FLUSH_POINT).await;
}

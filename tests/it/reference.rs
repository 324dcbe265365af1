//! The reference family against the node in this tree: what one writes, the other takes.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;

use midflush::chain::reference::Reference;
use midflush::chain::{Chain, NodeFiles};
use midflush::node::config::{Home, Storage};
use midflush::plan::{ChainPlan, ReferencePlan};
use midflush::timeline::Heights;

use crate::network;

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
        network::write(&Reference::new(program).render(&plan, &binding, node).expect("files"), &place.home);
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

//! The reference family against the node in this tree: what one writes, the other takes.

use std::collections::BTreeMap;
use std::path::Path;

use midflush::chain::Chain;
use midflush::chain::reference::Reference;
use midflush::node::config::{Home, Storage};
use midflush::plan::{ChainPlan, ReferencePlan};

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

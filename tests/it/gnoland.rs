//! The gnoland family against the unmodified node: files rendered by the plan make a network, and what the family says about
//! answers, log and stores is what the node does.

use std::path::PathBuf;

use midflush::chain::gnoland::Gnoland;
use midflush::chain::{Chain, Made};
use midflush::plan::{BuildPlan, ChainPlan, GnolandPlan, LoadPlan, Plan};
use midflush::timeline::Mode;

use crate::aimed::Net;
use crate::network::{self, Node};

/// The binary: `MIDFLUSH_GNOLAND`, or `gnoland` on the path. `None`, and said so, where there is none and
/// `MIDFLUSH_REQUIRE_GNOLAND=1` does not demand one.
fn binary() -> Option<PathBuf> {
    if let Some(path) = std::env::var_os("MIDFLUSH_GNOLAND") {
        return Some(path.into());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join("gnoland")).find(|file| file.is_file());
    if found.is_none() {
        let missing = "no gnoland binary: set MIDFLUSH_GNOLAND to what `images/gnoland/build --binary` prints, or put \
                       `gnoland` on PATH";
        let demanded = std::env::var("MIDFLUSH_REQUIRE_GNOLAND").is_ok_and(|value| value == "1");
        assert!(!demanded, "MIDFLUSH_REQUIRE_GNOLAND is set, but there is {missing}");
        println!("not tested, there is {missing}");
    }
    found
}

fn plan(binary: &std::path::Path, database: &str) -> Plan {
    let mut plan = network::plan(ChainPlan::Gnoland(GnolandPlan {
        database: database.to_owned(),
        block_time_ms: 200,
        genesis: None,
        root: None,
        build: BuildPlan::Binary(binary.to_string_lossy().into_owned()),
    }));
    plan.load = Some(LoadPlan { rate: 1.0, size: 0, kinds: [("send".to_owned(), 1)].into_iter().collect(), seed: 1 });
    plan
}

#[tokio::test]
async fn rendered_files_make_a_network_that_the_family_can_read() {
    let Some(binary) = binary() else { return };
    let plan = plan(&binary, "pebbledb");
    let folder = tempfile::tempdir().expect("a folder");
    let binding = network::binding(&plan, folder.path(), &binary);
    let chain = Gnoland::for_plan(&plan).expect("the family");
    let launch = |node| network::launch(&chain, &plan, &binding, node);
    let validators: Vec<Node> = plan.nodes[..4].iter().map(launch).collect();
    for node in &validators {
        node.at(&chain, 2).await;
    }
    for n in 0..8 {
        let transaction = chain.transaction(&plan, &Made::new(), "send", n, 500).expect("a transaction");
        network::taken_once(&chain, &validators[1], &transaction).await;
    }
    let target = validators[0].height(&chain).await.expect("a height") + 5;
    let mut late = launch(&plan.nodes[4]);
    let app_hashes = network::late_follows(&chain, &validators, &late, target).await;
    assert!(app_hashes.len() > 2, "no transaction changed the app hash: {app_hashes:?}");

    network::went_through(&chain, &plan, &late, &[Mode::Replay, Mode::BlockSync, Mode::Consensus]).await;
    network::stores_exist(&chain, &plan, &binding);

    late.kill();
    let again = launch(&plan.nodes[4]);
    let lines = network::two_handshakes(&chain, &plan, &again).await;
    assert!(lines[0].contains("\"storeHeight\": 0,"), "{}", lines[0]);
    assert!(!lines[1].contains("\"storeHeight\": 0,"), "{}", lines[1]);
}

/// Addresses of the flush, in the order in which they are tried. In block sync the node has blocks to fetch after each
/// restart, since the others go on.
const ADDRESSES: [(&str, &str); 9] = [
    ("block store", "{mode: consensus, store: blockstore.db, sync: 1, write: first, phase: before}"),
    ("end of height", "{mode: consensus, store: cs.wal, sync: 1, write: first, phase: before}"),
    ("results", "{mode: consensus, store: state.db, sync: 1, write: first, phase: before}"),
    ("application", "{mode: consensus, store: application.db, sync: 1, write: first, phase: before}"),
    ("state", "{mode: consensus, store: state.db, sync: 2, write: first, phase: before}"),
    ("state synced", "{mode: consensus, store: state.db, sync: 2, phase: after}"),
    ("results in block sync", "{mode: block_sync, store: state.db, sync: 1, write: first, phase: before}"),
    ("application in block sync", "{mode: block_sync, store: application.db, sync: 1, phase: before}"),
    ("state in block sync", "{mode: block_sync, store: state.db, sync: 2, write: first, phase: before}"),
];

async fn kills(database: &str, addresses: &[(&str, &str)]) {
    let Some(binary) = binary() else { return };
    let plan = plan(&binary, database);
    let chain = Gnoland::for_plan(&plan).expect("the family");
    let net = Net::launch(&format!("gnoland-{database}"), &chain, plan).await;
    for node in 0..3 {
        net.start(&chain, node).await;
    }
    net.kill_at_each(&chain, 3, 0, addresses).await;
    net.end().await;
}

#[tokio::test]
async fn kills_at_addresses_leave_the_heights_predicted() {
    kills("pebbledb", &ADDRESSES).await;
}

/// goleveldb writes a commit in several pieces.
#[tokio::test]
async fn kills_on_goleveldb_leave_the_heights_predicted() {
    kills("goleveldb", &[ADDRESSES[0], ADDRESSES[2], ADDRESSES[4], ADDRESSES[5]]).await;
}

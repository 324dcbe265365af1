//! The CometBFT family against the unmodified node: files rendered by the plan make a network, and what the family
//! says about answers, log and stores is what the node does.

use std::path::{Path, PathBuf};
use std::process::Command;

use midflush::chain::cometbft::Cometbft;
use midflush::chain::{Chain, Made};
use midflush::plan::{BuildPlan, ChainPlan, CometbftPlan, Plan};
use midflush::timeline::Mode;

use crate::aimed::Net;
use crate::network::{self, Node};

/// A binary: the variable names it, or for 0.38 it is `cometbft` on the path. `None`, and said so, where there is none and
/// `MIDFLUSH_REQUIRE_COMETBFT=1` does not demand one.
pub(crate) fn binary(variable: &str) -> Option<PathBuf> {
    if let Some(path) = std::env::var_os(variable) {
        return Some(path.into());
    }
    let path = std::env::var_os("PATH").filter(|_| variable == "MIDFLUSH_COMETBFT").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|folder| folder.join("cometbft")).find(|file| file.is_file());
    if found.is_none() {
        let missing = format!("no such CometBFT binary: set {variable} to what `images/cometbft/build` prints for it");
        let demanded = std::env::var("MIDFLUSH_REQUIRE_COMETBFT").is_ok_and(|value| value == "1");
        assert!(!demanded, "MIDFLUSH_REQUIRE_COMETBFT is set, but there is {missing}");
        println!("not tested, there is {missing}");
    }
    found
}

fn plan(binary: &Path, app: &str, database: &str, block_time_ms: u64) -> Plan {
    network::plan(ChainPlan::Cometbft(CometbftPlan {
        app: app.to_owned(),
        version: None,
        database: database.to_owned(),
        block_time_ms,
        build: BuildPlan::Binary(binary.to_string_lossy().into_owned()),
    }))
}

#[tokio::test]
async fn rendered_files_make_a_network_that_the_family_can_read() {
    let Some(binary) = binary("MIDFLUSH_COMETBFT") else { return };
    let plan = plan(&binary, "persistent_kvstore", "goleveldb", 100);
    let folder = tempfile::tempdir().expect("a folder");
    let binding = network::binding(&plan, folder.path(), &binary);
    let chain = Cometbft::for_plan(&plan).expect("the family");
    let launch = |node| network::launch(&chain, &plan, &binding, node);
    let validators: Vec<Node> = plan.nodes[..4].iter().map(launch).collect();

    // Three of four make blocks without the last one: each is waited for before it is asked anything.
    for node in &validators {
        node.at(&chain, 3).await;
    }
    for n in 0..8 {
        let transaction = chain.transaction(&plan, &Made::new(), "set", n, 64).expect("a transaction");
        network::taken_once(&chain, &validators[1], &transaction).await;
    }
    let update = chain.transaction(&plan, &Made::new(), "validator", 0, 0).expect("a transaction");
    let answer = validators[2].get(&chain.rpc().submit_request(&update)).await.expect("an answer");
    assert!(chain.rpc().submitted(&answer), "{}", String::from_utf8_lossy(&answer));

    let target = validators[0].height(&chain).await.expect("a height") + 5;
    let mut late = launch(&plan.nodes[4]);
    let app_hashes = network::late_follows(&chain, &validators, &late, target).await;
    assert!(app_hashes.len() > 1, "the app hash never changed: {app_hashes:?}");

    network::went_through(&chain, &plan, &late, &[Mode::Replay, Mode::BlockSync, Mode::Consensus]).await;
    network::stores_exist(&chain, &plan, &binding);

    late.kill();
    let again = launch(&plan.nodes[4]);
    let lines = network::two_handshakes(&chain, &plan, &again).await;
    assert!(lines[0].contains("appHeight=0 storeHeight=0 stateHeight=0"), "{}", lines[0]);
    assert!(!lines[1].contains("storeHeight=0"), "{}", lines[1]);
}

/// Addresses of the flush of CometBFT 0.38, as YAML flow mappings, in the order in which they are tried. In block sync the
/// node has blocks to fetch after each restart, since the others go on.
const ADDRESSES: [(&str, &str); 12] = [
    ("block store", "{mode: consensus, store: blockstore.db, sync: 1, write: first, phase: before}"),
    ("end of height", "{mode: consensus, store: cs.wal, sync: 1, write: first, phase: before}"),
    ("results", "{mode: consensus, store: state.db, sync: 1, write: first, phase: before}"),
    ("results written", "{mode: consensus, store: state.db, sync: 1, phase: before}"),
    ("application", "{mode: consensus, store: application.db, write: first, phase: before}"),
    ("state", "{mode: consensus, store: state.db, sync: 2, write: first, phase: before}"),
    ("state written", "{mode: consensus, store: state.db, sync: 2, write: last, phase: after}"),
    ("block store in block sync", "{mode: block_sync, store: blockstore.db, sync: 1, write: first, phase: before}"),
    ("results in block sync", "{mode: block_sync, store: state.db, sync: 1, write: first, phase: before}"),
    ("application in block sync", "{mode: block_sync, store: application.db, write: first, phase: before}"),
    ("state in block sync", "{mode: block_sync, store: state.db, sync: 2, write: first, phase: before}"),
    ("after the flush in block sync", "{mode: block_sync, store: state.db, sync: 2, phase: after}"),
];

async fn kills(name: &str, variable: &str, app: &str, database: &str, addresses: &[(&str, &str)]) {
    let Some(binary) = binary(variable) else { return };
    let plan = plan(&binary, app, database, 200);
    let chain = Cometbft::for_plan(&plan).expect("the family");
    let net = Net::launch(name, &chain, plan).await;
    for node in 0..3 {
        net.start(&chain, node).await;
    }
    net.kill_at_each(&chain, 3, 0, addresses).await;
    net.end().await;
}

#[tokio::test]
async fn kills_at_addresses_leave_the_heights_predicted() {
    kills("cometbft", "MIDFLUSH_COMETBFT", "persistent_kvstore", "goleveldb", &ADDRESSES).await;
}

#[tokio::test]
async fn kills_of_0_37_leave_the_heights_predicted() {
    let addresses = [ADDRESSES[0], ADDRESSES[2], ADDRESSES[4], ADDRESSES[5], ADDRESSES[9], ADDRESSES[11]];
    kills("cometbft-037", "MIDFLUSH_COMETBFT_037", "persistent_kvstore", "goleveldb", &addresses).await;
}

/// The kvstore of 1.x gathers in its own memory: it has no address, and any height after a death.
#[tokio::test]
async fn kills_of_1_x_leave_the_heights_predicted() {
    let addresses = [ADDRESSES[0], ADDRESSES[1], ADDRESSES[2], ADDRESSES[5], ADDRESSES[8], ADDRESSES[11]];
    kills("cometbft-1", "MIDFLUSH_COMETBFT_1", "persistent_kvstore", "pebbledb", &addresses).await;
}

#[tokio::test]
async fn kills_of_1_x_with_the_e2e_application_leave_the_heights_predicted() {
    let addresses = [ADDRESSES[0], ADDRESSES[2], ADDRESSES[4], ADDRESSES[5], ADDRESSES[9], ADDRESSES[11]];
    kills("cometbft-e2e", "MIDFLUSH_COMETBFT_E2E", "e2e", "goleveldb", &addresses).await;
}

#[test]
fn validators_are_upgraded_one_after_another() {
    upgraded("process");
}

/// A container of the other image takes the place of each.
#[tokio::test]
async fn validators_in_containers_are_upgraded_one_after_another() {
    if crate::engine_docker::docker().await.is_some() {
        upgraded("docker");
    }
}

/// Validators go from one release to another while the chain goes on, and a kill afterwards is one of the new release.
fn upgraded(engine: &str) {
    let (Some(old), Some(new)) = (binary("MIDFLUSH_COMETBFT"), binary("MIDFLUSH_COMETBFT_NEXT")) else { return };
    let results = tempfile::tempdir().expect("a folder");
    let set = |name: &str, path: &Path| format!("--set=builds.{name}.binary={}", path.display());
    let output = Command::new(env!("CARGO_BIN_EXE_midflush"))
        .args(["run", "topologies/upgrade.yaml", "--engine", engine, "--json"])
        .args([set("old", &old), set("new", &new)])
        .arg("--results")
        .arg(results.path())
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("midflush runs");
    let errors = String::from_utf8_lossy(&output.stderr);
    let verdict: serde_json::Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    assert_eq!(verdict["verdict"], "CONVERGED", "{verdict:#} {errors}");
    let proven = verdict["faults"].as_array().expect("faults").iter().filter(|fault| fault["proven"] == true).count();
    assert_eq!(proven, 5, "{verdict:#}");
    let run = std::fs::read_dir(results.path()).expect("runs").find_map(|entry| {
        let path = entry.expect("an entry").path();
        path.join("timeline.ndjson").is_file().then_some(path)
    });
    let log = |node: &str, start: u32| {
        let path = run.as_ref().expect("a run").join(format!("logs/{node}/start-{start}.log"));
        std::fs::read_to_string(path).expect("a log")
    };
    let version = |path: &Path| {
        let output = Command::new(path).arg("version").output().expect("it runs");
        format!("tendermint_version={}", String::from_utf8_lossy(&output.stdout).trim())
    };
    assert_ne!(version(&old), version(&new));
    for node in ["val-1", "val-2", "val-3", "val-4"] {
        assert!(log(node, 1).contains(&version(&old)), "{node} began with another release");
        assert!(log(node, 2).contains(&version(&new)), "{node} was not upgraded");
    }
    assert!(log("late", 1).contains(&version(&new)));
}

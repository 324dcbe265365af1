//! SIGKILL at random instants while the node's binary writes a chain, then a start on what is left: each time the three
//! heights come together, at the application hash that an undisturbed build has there.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use midflush::node::build::{BuildOptions, Forge, build_chain, building_config};
use midflush::node::config::{Home, Storage};
use midflush::node::init::{Network, init};
use midflush::node::ledger::Ledger;
use midflush::node::log::Log;
use midflush::node::types::Hash;
use rand::RngExt as _;
use rand::SeedableRng as _;
use rand_chacha::ChaCha20Rng;

const BLOCKS: u64 = 300;
const TXS: u64 = 4;
/// So large that `deferred` flushes about every hundred blocks.
const TX_BYTES: usize = 40_000;
const SEED: u64 = 11;

fn network(out: &Path) -> Vec<Home> {
    let network = Network {
        chain_id: "kills".into(),
        genesis_time: "2026-01-01T00:00:00Z".parse().expect("a time"),
        validators: 2,
        full: 0,
        seed: 5,
        base_port: 26600,
        storage: Storage::PerBlock,
        block_time_ms: 1000,
    };
    init(out, &network).expect("homes")
}

/// The application hash after each height, from 0.
fn undisturbed(home: &Home, keys: &[Home]) -> Vec<Hash> {
    let genesis = home.genesis().expect("a genesis file");
    let keys = keys.iter().map(|home| home.secret_key().expect("a key")).collect();
    let mut forge = Forge::new(&genesis.chain_id, keys);
    let config = building_config(Storage::NoSync);
    let mut ledger = Ledger::open(home, &config, &genesis, Log::memory(), Box::new(())).expect("a ledger");
    let options = BuildOptions { blocks: BLOCKS, txs: TXS, tx_bytes: TX_BYTES, block_time_ms: 1000, seed: SEED };
    build_chain(&mut ledger, &mut forge, &options).expect("a chain");
    let view = ledger.view();
    let header = |height| view.meta(height).expect("readable").expect("there").header;
    (1..=BLOCKS).map(|height| header(height).app_hash).chain([ledger.state().app_hash]).collect()
}

fn start_build(home: &Home, keys: &[Home], storage: &str) -> std::process::Child {
    let mut command = Command::new(env!("CARGO_BIN_EXE_midflush"));
    command.args(["node", "build-chain", "--storage", storage, "--home"]).arg(home.root());
    command.arg("--keys").args(keys.iter().map(|home| home.config("key.json")));
    command.args(["--blocks", &BLOCKS.to_string(), "--txs", &TXS.to_string()]);
    command.args(["--tx-bytes", &TX_BYTES.to_string(), "--seed", &SEED.to_string()]);
    command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("a process")
}

fn copy_config(from: &Home, to: &Home) {
    std::fs::create_dir_all(to.root().join("config")).expect("a folder");
    std::fs::copy(from.config("genesis.json"), to.config("genesis.json")).expect("a copy");
}

#[test]
fn a_kill_at_any_instant_leaves_what_a_start_can_bring_together() {
    let folder = tempfile::tempdir().expect("a folder");
    let homes = network(folder.path());
    let hashes = undisturbed(&homes[0], &homes);
    let genesis = homes[0].genesis().expect("a genesis file");
    let mut random = ChaCha20Rng::seed_from_u64(3);
    let mut cut_short = 0;
    for storage in ["per-block", "single-flush", "deferred"] {
        for round in 0..4 {
            let home = Home::new(folder.path().join(format!("{storage}-{round}")));
            copy_config(&homes[0], &home);
            let mut child = start_build(&home, &homes, storage);
            let mut lines = BufReader::new(child.stderr.take().expect("piped")).lines();
            let first = lines.next().expect("a line").expect("text");
            assert!(first.contains("handshake appHeight=0 storeHeight=0 stateHeight=0"), "{first}");
            // The instant is the point of this test: nothing is waited for.
            std::thread::sleep(Duration::from_millis(random.random_range(0..600)));
            child.kill().expect("killed");
            child.wait().expect("waited for");
            let config = building_config(Storage::PerBlock);
            let log = Log::memory();
            let ledger = Ledger::open(&home, &config, &genesis, log.clone(), Box::new(()));
            let ledger = ledger.unwrap_or_else(|error| panic!("{storage}, round {round}: {error}; {:?}", log.lines()));
            let heights = ledger.heights().expect("heights");
            let state = ledger.state();
            assert_eq!((heights.app, heights.store), (heights.state, heights.state));
            assert_eq!(state.last_height, heights.state);
            assert_eq!(state.app_hash, hashes[heights.state as usize], "{storage} at {}", heights.state);
            cut_short += usize::from(heights.state < BLOCKS);
        }
    }
    assert!(cut_short >= 6, "only {cut_short} of 12 builds were cut short: the kills came too late to show anything");
}

//! The chain thread of a fresh full node against peers in the same process that serve a built chain, one of them badly.

use std::collections::BTreeMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::AtomicU8;
use std::time::Duration;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::*;
use crate::node::app;
use crate::node::build::{Forge, building_config};
use crate::node::codec::Codec as _;
use crate::node::config::{Home, Peer, Storage};
use crate::node::consensus::Setup;
use crate::node::crypto::SecretKey;
use crate::node::ledger::View;
use crate::node::p2p::{self, BlockSource, Hello};
use crate::node::sign_state::SignState;
use crate::node::types::{ConsensusParams, Genesis, GenesisValidator};
use crate::node::wal::{Wal, WalOptions};

const CHAIN: &str = "sync";
const BLOCKS: u64 = 90;
/// The block whose transaction adds a validator, so that the set changes in the middle of the sync.
const CHANGE: u64 = 40;

fn key(i: u8) -> SecretKey {
    SecretKey::from_ikm(&[i; 32]).unwrap()
}

fn genesis() -> Genesis {
    let validator = |i: u8| GenesisValidator {
        name: format!("v{i}"),
        pub_key: key(i).public_key(),
        proof_of_possession: key(i).prove_possession(),
        power: 10,
    };
    Genesis {
        chain_id: CHAIN.into(),
        genesis_time: "2026-01-01T00:00:00Z".parse().unwrap(),
        initial_height: 1,
        consensus_params: ConsensusParams::default(),
        validators: (1..=4).map(validator).collect(),
        app_state: BTreeMap::new(),
    }
}

/// A chain of [`BLOCKS`] blocks, whose set of validators grows after [`CHANGE`].
fn built(home: &Home) -> Ledger {
    let mut ledger = open(home, &building_config(Storage::Deferred), Log::memory());
    let mut forge = Forge::new(CHAIN, (1..=5).map(key).collect());
    for height in 1..=BLOCKS {
        let mut txs = vec![format!("set k{} {height}", height % 7).into_bytes()];
        if height == CHANGE {
            let new = key(5);
            let (public, proof) = (hex::encode(new.public_key().to_bytes()), hex::encode(new.prove_possession().0));
            txs.push(format!("validator {public} 10 {proof}").into_bytes());
        }
        let time_ms = ledger.state().last_time_ms + 1000;
        forge.extend(&mut ledger, txs, time_ms).unwrap();
    }
    ledger.flush_point().unwrap();
    assert_eq!(ledger.state().validators.len(), 5, "the set has grown");
    ledger
}

fn open(home: &Home, config: &NodeConfig, log: Log) -> Ledger {
    Ledger::open(home, config, &genesis(), log, Box::new(())).unwrap()
}

/// What a peer does to the blocks that it serves.
#[derive(Clone, Copy)]
enum Peering {
    Honest,
    /// Another byte in each block.
    Tampers,
    /// The right block with another's commit.
    OtherCommit,
    /// Says that it holds all and gives nothing.
    Denies,
}

struct Server {
    view: View,
    peering: Peering,
}

impl BlockSource for Server {
    fn block(&self, height: u64) -> Option<Bytes> {
        let mut block = self.view.block(height).ok()??.to_bytes();
        let mut commit_of = height;
        match self.peering {
            Peering::Honest => {}
            Peering::Tampers => {
                let middle = block.len() / 2;
                block[middle] ^= 1;
            }
            Peering::OtherCommit => commit_of = height % BLOCKS + 1,
            Peering::Denies => return None,
        }
        Some(p2p::block_body(&block, &self.view.commit(commit_of).ok()??.to_bytes()))
    }
}

fn address() -> SocketAddr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let [_, _, high, low] = std::process::id().to_be_bytes();
    SocketAddr::new(Ipv4Addr::new(127, high | 128, low, NEXT.fetch_add(1, Ordering::Relaxed)).into(), 26656)
}

struct Parts {
    network: Network,
    mempool: Arc<Mempool>,
    events: inbox::Receiver<Event>,
    wake: inbox::Sender<Event>,
}

async fn network(
    name: &str,
    listen: SocketAddr,
    dial: &[Peer],
    blocks: Arc<dyn BlockSource>,
    stop: &CancellationToken,
    tasks: &TaskTracker,
) -> Parts {
    let (wake, events) = inbox::inbox(1 << 16);
    let mempool = Arc::new(Mempool::new(app::check_tx));
    let options = p2p::Options {
        hello: Hello { chain_id: CHAIN.into(), genesis_hash: [0; 32], name: name.into(), public_key: [0; 48], boot: 1 },
        listen,
        dial: dial.to_vec(),
        blocks,
        mempool: mempool.clone(),
        events: wake.clone(),
    };
    let network = Network::start(options, stop.clone(), tasks).await.unwrap();
    Parts { network, mempool, events, wake }
}

/// Syncs a fresh node from the peers and gives its log. Fails after 60 seconds.
async fn sync_from(peering: &[Peering], storage: Storage, verify_window: u32) -> Log {
    let folder = tempfile::tempdir().unwrap();
    let chain = built(&Home::new(folder.path().join("built")));
    let (stop_tasks, tasks) = (CancellationToken::new(), TaskTracker::new());
    let mut peers = Vec::new();
    let mut servers = Vec::new();
    for (i, peering) in peering.iter().enumerate() {
        let peer = Peer { name: format!("peer-{i}"), address: address() };
        let source = Arc::new(Server { view: chain.view(), peering: *peering });
        let parts = network(&peer.name, peer.address, &[], source, &stop_tasks, &tasks).await;
        parts.network.set_status(1, BLOCKS);
        servers.push(parts);
        peers.push(peer);
    }
    let home = Home::new(folder.path().join("late"));
    let mut config = NodeConfig { verify_window, ..NodeConfig::new("late".into(), storage) };
    config.peers = peers.clone();
    config.flush.every_ms = 100;
    let log = Log::memory();
    let ledger = open(&home, &config, log.clone());
    let view = ledger.view();
    let source = Arc::new(Server { view: ledger.view(), peering: Peering::Honest });
    let parts = network("late", address(), &peers, source, &stop_tasks, &tasks).await;
    let stop = Arc::new(AtomicBool::new(false));
    let (wal, recovered) = Wal::open(&home.data().join("cs.wal"), WalOptions::default()).unwrap();
    let host = Host::new(Setup {
        chain_id: CHAIN.into(),
        key: key(9),
        wal,
        recovered: recovered.records,
        sign_state: SignState::open(&home.sign_state(), true).unwrap(),
        outlet: Box::new(parts.network.clone()),
        log: log.clone(),
    });
    let driver = Driver {
        ledger,
        host,
        network: parts.network,
        mempool: parts.mempool,
        events: parts.events,
        wake: parts.wake,
        status: Arc::new(SyncStatus::new(None)),
        stop: stop.clone(),
        config: Arc::new(config),
        log: log.clone(),
        peers: PeerBook::default(),
    };
    let thread = std::thread::spawn(move || driver.run());
    let end = Instant::now() + Duration::from_secs(60);
    while view.heights().unwrap().state < BLOCKS {
        assert!(Instant::now() < end && !thread.is_finished(), "not synced: {:#?}", log.lines());
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    stop.store(true, Ordering::Relaxed);
    assert_eq!(thread.join().unwrap().unwrap(), End::Stopped);
    for height in 1..=BLOCKS {
        assert_eq!(view.meta(height).unwrap(), chain.view().meta(height).unwrap());
        let commit = view.commit(height).unwrap().unwrap();
        let validators = view.validators(height).unwrap().unwrap();
        let id = view.meta(height).unwrap().unwrap().block_id;
        commit.verify(CHAIN, &validators, height, &id).unwrap();
    }
    assert_eq!(view.app_info().unwrap().app_hash, chain.view().app_info().unwrap().app_hash);
    stop_tasks.cancel();
    tasks.close();
    drop(servers);
    tokio::time::timeout(Duration::from_secs(5), tasks.wait()).await.expect("all tasks end");
    log
}

fn dropped(log: &Log, peer: &str) -> bool {
    log.lines().iter().any(|line| line.starts_with("drop peer") && line.contains(&format!("peer={peer}")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_liar_among_three_is_dropped_and_harms_nothing() {
    use Peering::{Honest, OtherCommit, Tampers};
    for (lie, storage, window) in
        [(Tampers, Storage::PerBlock, 1), (OtherCommit, Storage::Deferred, 1), (Tampers, Storage::Deferred, 16)]
    {
        let log = sync_from(&[Honest, lie, Honest], storage, window).await;
        assert!(dropped(&log, "peer-1"), "{:#?}", log.lines());
        assert!(!dropped(&log, "peer-0") && !dropped(&log, "peer-2"), "{:#?}", log.lines());
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_window_of_linked_headers_needs_one_commit() {
    let log = sync_from(&[Peering::Honest], Storage::SingleFlush, 32).await;
    assert!(!dropped(&log, "peer-0"), "{:#?}", log.lines());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_peer_that_holds_less_than_it_says_delays_nobody() {
    let log = sync_from(&[Peering::Denies, Peering::Honest], Storage::Deferred, 1).await;
    assert!(!dropped(&log, "peer-1"), "{:#?}", log.lines());
    let lines = log.lines();
    let sync = lines.iter().position(|line| line.starts_with("enter mode=block_sync")).expect("block sync");
    let flush = lines.iter().position(|line| line.starts_with("flush point")).expect("a flush point");
    let consensus = lines.iter().position(|line| line.starts_with("enter mode=consensus")).expect("consensus");
    assert!(sync < flush && flush < consensus, "{lines:#?}");
}

//! The node's main loop: opens everything, runs the chain thread beside the network and RPC, and ends.
//!
//! | how it ends | exit |
//! |---|---|
//! | SIGTERM or SIGINT: after the write in progress, nothing more is written | 0 |
//! | the halt height is on disk: after two seconds in which peers may fetch the last block | 0, after the line `halt height reached` |
//! | a write failed, or the stores are in no shape to start from | 1, after an ERROR line |
//!
//! Two threads do the work: this one drives the network and RPC and is idle when nothing happens; the chain thread owns the
//! stores. A third verifies while block sync runs.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::app;
use super::block_sync::PeerBook;
use super::codec::Codec as _;
use super::config::{ConfigError, Home, NodeConfig, Storage};
use super::consensus::{Host, Setup};
use super::crypto::SecretKey;
use super::defect::Defect;
use super::driver::{Driver, DriverError, End};
use super::handle::{Handle, SyncStatus};
use super::inbox;
use super::ledger::{Ledger, LedgerError, View};
use super::log::Log;
use super::mempool::Mempool;
use super::p2p::{self, BlockSource, Event, Hello, Network};
use super::rpc::{self, EventHub};
use super::sign_state::{SignError, SignState};
use super::types::{Genesis, Height, sha256};
use super::wal::{Recovered, Wal, WalError, WalOptions};

/// Weight of the queue to the chain thread, in KiB.
const INBOX_KIB: u32 = 64 << 10;
/// How long a halted node serves its last block.
const HALT_LINGER: Duration = Duration::from_secs(2);
/// How long the tasks may take to end after the chain thread has.
const TASKS_WAIT: Duration = Duration::from_secs(3);

/// Why a node could not start or go on.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The home.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The stores.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// The log of consensus.
    #[error(transparent)]
    Wal(#[from] WalError),
    /// The sign state.
    #[error(transparent)]
    Sign(#[from] SignError),
    /// An address, a signal, a thread.
    #[error("{what}: {source}")]
    Io {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
    /// The chain thread failed.
    #[error("{0}")]
    Chain(String),
}

impl StartError {
    fn io(what: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { what, source }
    }
}

/// What is read from the home.
struct Parts {
    home: Home,
    config: Arc<NodeConfig>,
    genesis: Arc<Genesis>,
    genesis_hash: [u8; 32],
    key: SecretKey,
    log: Log,
}

/// Runs the node of `home` until it is told to stop or reaches its halt height. Failures are logged before they are
/// returned.
pub fn start(home: &Path) -> Result<(), StartError> {
    let log = Log::stderr();
    let result = start_logged(home, &log);
    if let Err(error) = &result {
        log.error("stop", &[("reason", error)]);
    }
    result
}

fn start_logged(home: &Path, log: &Log) -> Result<(), StartError> {
    let home = Home::new(home);
    let genesis_bytes = std::fs::read(home.config("genesis.json")).map_err(StartError::io("read the genesis file"))?;
    let parts = Parts {
        config: Arc::new(home.node_config()?),
        genesis: Arc::new(home.genesis()?),
        genesis_hash: sha256(&genesis_bytes).0,
        key: home.secret_key()?,
        home,
        log: log.clone(),
    };
    count_starts(&parts)?;
    let version = env!("CARGO_PKG_VERSION");
    log.info("start node", &[("name", &parts.config.name), ("version", &version), ("pid", &std::process::id())]);
    let events = EventHub::new();
    let sink = Box::new(events.clone());
    let ledger = Ledger::open(&parts.home, &parts.config, &parts.genesis, log.clone(), sink)?;
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(StartError::io("start the runtime"))?;
    runtime.block_on(run(parts, ledger, events))
}

/// Planted: the third start of a folder panics.
fn count_starts(parts: &Parts) -> Result<(), StartError> {
    if parts.config.planted_defect != Some(Defect::PanicSecondRestart) {
        return Ok(());
    }
    let path = parts.home.data().join("starts");
    let starts = std::fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0u32) + 1;
    std::fs::create_dir_all(parts.home.data()).map_err(StartError::io("create the data folder"))?;
    std::fs::write(&path, starts.to_string()).map_err(StartError::io("count the starts"))?;
    assert!(starts != 3, "index out of range: the height index has no entry for start {starts}");
    Ok(())
}

async fn run(parts: Parts, ledger: Ledger, hub: EventHub) -> Result<(), StartError> {
    let (stop_tasks, tasks) = (CancellationToken::new(), TaskTracker::new());
    let mut terminate = signal(SignalKind::terminate()).map_err(StartError::io("listen to signals"))?;
    let mut interrupt = signal(SignalKind::interrupt()).map_err(StartError::io("listen to signals"))?;
    let (sender, receiver) = inbox::inbox(INBOX_KIB);
    let mempool = Arc::new(Mempool::new(app::check_tx));
    let status = Arc::new(SyncStatus::new(parts.config.planted_defect));
    let options = p2p::Options {
        hello: hello(&parts),
        listen: parts.config.p2p_listen,
        dial: parts.config.peers.clone(),
        blocks: Arc::new(Served(ledger.view())),
        mempool: mempool.clone(),
        events: sender.clone(),
    };
    let network =
        Network::start(options, stop_tasks.clone(), &tasks).await.map_err(StartError::io("listen for peers"))?;
    let handle = Handle { network: network.clone(), mempool: mempool.clone(), status: status.clone() };
    serve_rpc(&parts, handle, ledger.view(), hub, &stop_tasks, &tasks).await?;
    let stop = Arc::new(AtomicBool::new(false));
    let driver = Driver {
        host: host(&parts, &ledger, &network)?,
        ledger,
        network,
        mempool,
        events: receiver,
        wake: sender.clone(),
        status,
        stop: stop.clone(),
        config: parts.config.clone(),
        log: parts.log.clone(),
        peers: PeerBook::default(),
    };
    let (thread, mut ended) = start_chain_thread(driver)?;
    let result = tokio::select! {
        result = &mut ended => result,
        _ = terminate.recv() => told_to_stop(&parts.log, &stop, &sender, ended).await,
        _ = interrupt.recv() => told_to_stop(&parts.log, &stop, &sender, ended).await,
    };
    if let Ok(Ok(End::Halted(height))) = &result {
        // A peer that missed the last decision has nobody else to ask for it.
        parts.log.info("halt height is on disk", &[("height", height)]);
        linger(&mut terminate, &mut interrupt).await;
    }
    // The thread has sent its result or panicked; it ends now.
    let joined = thread.join();
    stop_tasks.cancel();
    tasks.close();
    let _ = tokio::time::timeout(TASKS_WAIT, tasks.wait()).await;
    if let Err(panic) = joined {
        std::panic::resume_unwind(panic);
    }
    finish(&parts.log, result)
}

/// Serves peers for a little longer, unless told to stop.
async fn linger(terminate: &mut Signal, interrupt: &mut Signal) {
    tokio::select! {
        () = tokio::time::sleep(HALT_LINGER) => {}
        _ = terminate.recv() => {}
        _ = interrupt.recv() => {}
    }
}

async fn told_to_stop(
    log: &Log,
    stop: &AtomicBool,
    wake: &inbox::Sender<Event>,
    ended: oneshot::Receiver<Result<End, DriverError>>,
) -> Result<Result<End, DriverError>, oneshot::error::RecvError> {
    log.info("stop on a signal", &[]);
    stop.store(true, Ordering::Relaxed);
    wake.send_now(Event::Wake);
    // A write in progress is waited for, however long the disk takes.
    ended.await
}

fn finish(log: &Log, result: Result<Result<End, DriverError>, oneshot::error::RecvError>) -> Result<(), StartError> {
    match result {
        Ok(Ok(End::Stopped)) => log.info("stopped", &[]),
        Ok(Ok(End::Halted(height))) => log.info("halt height reached", &[("height", &height)]),
        Ok(Err(error)) => return Err(StartError::Chain(error.to_string())),
        Err(_) => return Err(StartError::Chain("the chain thread ended without a word".into())),
    }
    Ok(())
}

type Ended = oneshot::Receiver<Result<End, DriverError>>;

fn start_chain_thread(driver: Driver) -> Result<(std::thread::JoinHandle<()>, Ended), StartError> {
    let (done, ended) = oneshot::channel();
    let thread = std::thread::Builder::new()
        .name("chain".into())
        .spawn(move || {
            // The receiver waits for this as long as the process lives.
            let _ = done.send(driver.run());
        })
        .map_err(StartError::io("start the chain thread"))?;
    Ok((thread, ended))
}

async fn serve_rpc(
    parts: &Parts,
    handle: Handle,
    view: View,
    events: EventHub,
    stop: &CancellationToken,
    tasks: &TaskTracker,
) -> Result<(), StartError> {
    let context = rpc::Context {
        handle,
        view,
        events,
        genesis: parts.genesis.clone(),
        config: parts.config.clone(),
        public_key: parts.key.public_key(),
    };
    let listener = rpc::bind(parts.config.rpc_listen).await.map_err(StartError::io("serve RPC"))?;
    tasks.spawn(rpc::serve(listener, context.clone(), stop.clone()));
    if let Some(address) = parts.config.metrics_listen {
        let listener = rpc::bind(address).await.map_err(StartError::io("serve metrics"))?;
        tasks.spawn(rpc::serve_metrics(listener, context, stop.clone()));
    }
    Ok(())
}

fn hello(parts: &Parts) -> Hello {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Hello {
        chain_id: parts.genesis.chain_id.clone(),
        genesis_hash: parts.genesis_hash,
        name: parts.config.name.clone(),
        public_key: parts.key.public_key().to_bytes(),
        boot: now.as_nanos() as u64 ^ u64::from(std::process::id()),
    }
}

fn host(parts: &Parts, ledger: &Ledger, network: &Network) -> Result<Host, StartError> {
    let defect = parts.config.planted_defect;
    let options = WalOptions {
        sync: parts.config.storage != Storage::NoSync,
        refuse_torn: defect == Some(Defect::WalTailRefused),
        ..WalOptions::default()
    };
    let file = parts.home.wal();
    let folder = file.parent().unwrap_or(parts.home.root());
    let (wal, recovered) = Wal::open(folder, options)?;
    report(&parts.log, &recovered, ledger.state().last_height);
    let sign_state = SignState::open(&parts.home.sign_state(), defect != Some(Defect::SignStateUnsynced))?;
    Ok(Host::new(Setup {
        chain_id: parts.genesis.chain_id.clone(),
        key: parts.key.clone(),
        wal,
        recovered: recovered.records,
        sign_state,
        outlet: Box::new(network.clone()),
        log: parts.log.clone(),
    }))
}

fn report(log: &Log, recovered: &Recovered, last_height: Height) {
    if recovered.torn_bytes > 0 {
        log.error("repaired consensus log", &[("torn_bytes", &recovered.torn_bytes)]);
    }
    if recovered.records.iter().any(|(height, _)| *height <= last_height) {
        log.info("consensus log has no end of height", &[("height", &last_height)]);
    }
}

/// Blocks for peers, from the version on disk.
struct Served(View);

impl BlockSource for Served {
    fn block(&self, height: u64) -> Option<Bytes> {
        let block = self.0.block(height).ok()??;
        let commit = self.0.commit(height).ok()??;
        Some(p2p::block_body(&block.to_bytes(), &commit.to_bytes()))
    }
}

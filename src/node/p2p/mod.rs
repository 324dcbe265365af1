//! The network of one node: TCP, bounded frames and queues, persistent peers dialled again with a growing wait, gossip
//! that floods a graph of any shape once, and answers to block requests straight from the store.
//!
//! What arrives goes as an [`Event`] into the inbox of the chain thread. Nothing here decides anything about blocks.

mod connection;
mod message;
mod peers;
mod seen;
#[cfg(test)]
mod tests;

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha20Rng;
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

pub(crate) use connection::block_body;
pub use message::{Gossip, Hello, Message, SALT_DIRECT};
pub use peers::{PeerId, PeerInfo};

use crate::node::config::Peer;
use crate::node::inbox;
use crate::node::mempool::{Mempool, SubmitError};
use crate::node::types::Hash;
use peers::{Admitted, Peers, Refused};
use seen::Seen;

/// How long a dial may take.
const DIAL_WAIT: Duration = Duration::from_secs(3);
/// Wait after the first failed dial; doubles up to [`BACKOFF_MAX`].
const BACKOFF_MIN: Duration = Duration::from_millis(100);
/// Longest wait between dials.
const BACKOFF_MAX: Duration = Duration::from_secs(2);
/// Messages that are remembered as passed on.
const SEEN_MAX: usize = 8192;
/// Connections that wait to be accepted.
const BACKLOG: u32 = 256;

/// What the chain thread is told.
#[derive(Debug)]
pub enum Event {
    /// A peer connected.
    PeerUp {
        /// The connection.
        peer: PeerId,
        /// Its name.
        name: String,
    },
    /// A connection ended.
    PeerDown {
        /// The connection.
        peer: PeerId,
    },
    /// A peer says which blocks it holds.
    Status {
        /// The connection.
        peer: PeerId,
        /// Lowest block.
        base: u64,
        /// Highest block.
        height: u64,
    },
    /// A peer answers a block request.
    Block {
        /// The connection.
        peer: PeerId,
        /// Which block.
        height: u64,
        /// Block and commit, or nothing when it does not hold them.
        body: Option<Bytes>,
    },
    /// A message of consensus, seen for the first time.
    Gossip {
        /// From whom.
        peer: PeerId,
        /// Its height.
        height: u64,
        /// The message.
        payload: Bytes,
    },
    /// A peer asks for all that is known of a height.
    HeightRequest {
        /// The connection.
        peer: PeerId,
        /// Which height.
        height: u64,
    },
    /// Nothing from the network: another thread of the node has something for the chain thread.
    Wake,
}

/// Blocks to serve.
pub trait BlockSource: Send + Sync {
    /// Block and commit as a peer wants them, or nothing when the store does not hold the height.
    fn block(&self, height: u64) -> Option<Bytes>;
}

/// What the network is told at its start.
pub struct Options {
    /// What this node says of itself.
    pub hello: Hello,
    /// Where it listens.
    pub listen: SocketAddr,
    /// Whom it dials.
    pub dial: Vec<Peer>,
    /// Blocks to serve.
    pub blocks: Arc<dyn BlockSource>,
    /// Where transactions go.
    pub mempool: Arc<Mempool>,
    /// Where events go.
    pub events: inbox::Sender<Event>,
}

struct Inner {
    options: Options,
    peers: Mutex<Peers>,
    changed: watch::Sender<u64>,
    seen: Mutex<Seen>,
    base: AtomicU64,
    height: AtomicU64,
    wants_consensus: AtomicBool,
    stop: CancellationToken,
}

/// The network of one node; cheap to clone.
#[derive(Clone)]
pub struct Network(Arc<Inner>);

impl Network {
    /// Listens and dials until `stop`. The tasks are owned by `tasks`.
    pub async fn start(options: Options, stop: CancellationToken, tasks: &TaskTracker) -> io::Result<Self> {
        let listener = listen(options.listen)?;
        let network = Self(Arc::new(Inner {
            options,
            peers: Mutex::default(),
            changed: watch::Sender::new(0),
            seen: Mutex::new(Seen::new(SEEN_MAX)),
            base: AtomicU64::new(0),
            height: AtomicU64::new(0),
            wants_consensus: AtomicBool::new(false),
            stop,
        }));
        for peer in network.0.options.dial.clone() {
            let dialler = network.clone();
            tasks.spawn(async move { dialler.keep_dialling(&peer).await });
        }
        let acceptor = network.clone();
        let connections = tasks.clone();
        tasks.spawn(async move { acceptor.keep_accepting(listener, &connections).await });
        Ok(network)
    }

    /// Floods a message of consensus. `salt` is 0 for the first time.
    pub fn publish(&self, height: u64, salt: u32, payload: Bytes) {
        self.is_new(seen::digest(salt, &payload));
        let frame = Message::Gossip(Gossip { height, salt, payload }).encode();
        self.peers().broadcast(&frame, None);
    }

    /// Sends to one peer; false when it is gone or its queue is full.
    pub fn send(&self, peer: PeerId, message: &Message) -> bool {
        let queue = self.peers().queue(peer);
        queue.is_some_and(|queue| queue.push(message.encode()))
    }

    /// Sends to all peers.
    pub fn broadcast(&self, message: &Message) {
        let frame = message.encode();
        self.peers().broadcast(&frame, None);
    }

    /// Tells the peers which blocks this node holds.
    pub fn set_status(&self, base: u64, height: u64) {
        self.0.base.store(base, Ordering::Relaxed);
        self.0.height.store(height, Ordering::Relaxed);
        self.broadcast(&Message::Status { base, height });
    }

    /// Whether messages of consensus are wanted as events; they are passed on in any case.
    pub fn set_wants_consensus(&self, wants: bool) {
        self.0.wants_consensus.store(wants, Ordering::Relaxed);
    }

    /// The connected peers.
    pub fn peer_infos(&self) -> Vec<PeerInfo> {
        self.peers().infos()
    }

    /// Ends a connection and refuses the peer's name for a while.
    pub fn drop_peer(&self, peer: PeerId, refuse_for: Duration) {
        self.peers().stop(peer, refuse_for);
    }

    /// Takes a transaction of this node's RPC and passes it on.
    pub fn submit(&self, bytes: Bytes) -> Result<Hash, SubmitError> {
        self.transaction(bytes, None)
    }

    fn transaction(&self, bytes: Bytes, from: Option<PeerId>) -> Result<Hash, SubmitError> {
        let hash = self.0.options.mempool.add(bytes.clone())?;
        let frame = Message::Transaction(bytes).encode();
        self.peers().broadcast(&frame, from);
        Ok(hash)
    }

    fn peers(&self) -> MutexGuard<'_, Peers> {
        // The table is consistent between calls whatever a panicking thread did.
        self.0.peers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hello(&self) -> &Hello {
        &self.0.options.hello
    }

    fn height(&self) -> u64 {
        self.0.height.load(Ordering::Relaxed)
    }

    fn wants_consensus(&self) -> bool {
        self.0.wants_consensus.load(Ordering::Relaxed)
    }

    fn status_frame(&self) -> Bytes {
        Message::Status { base: self.0.base.load(Ordering::Relaxed), height: self.height() }.encode()
    }

    fn stored_block(&self, height: u64) -> Option<Bytes> {
        self.0.options.blocks.block(height)
    }

    fn is_new(&self, digest: u128) -> bool {
        self.0.seen.lock().unwrap_or_else(PoisonError::into_inner).insert(digest)
    }

    fn relay(&self, message: &Message, from: PeerId) {
        let frame = message.encode();
        self.peers().broadcast(&frame, Some(from));
    }

    async fn deliver(&self, event: Event, weight: u32) {
        // A chain thread that is gone is about to stop the node; nothing else is to be done here.
        self.0.options.events.send(event, weight).await;
    }

    fn admit(&self, hello: &Hello, address: SocketAddr, outbound: bool) -> Result<Admitted, Refused> {
        let admitted = self.peers().admit(&self.hello().name, hello, address, outbound);
        self.note_change();
        admitted
    }

    fn forget(&self, id: PeerId) {
        self.peers().remove(id);
        self.note_change();
    }

    fn note_change(&self) {
        self.0.changed.send_modify(|generation| *generation += 1);
    }

    fn set_peer_height(&self, id: PeerId, height: u64) {
        self.peers().set_height(id, height);
    }

    async fn keep_accepting(&self, listener: TcpListener, tasks: &TaskTracker) {
        loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                () = self.0.stop.cancelled() => return,
            };
            let Ok((stream, _)) = accepted else {
                // Out of descriptors, most likely: wait until some connection ends.
                tokio::time::sleep(BACKOFF_MIN).await;
                continue;
            };
            let network = self.clone();
            tasks.spawn(async move { network.run(stream, None).await });
        }
    }

    async fn keep_dialling(&self, peer: &Peer) {
        let mut jitter = ChaCha20Rng::from_seed(jitter_seed(&self.hello().name, &peer.name));
        let mut wait = BACKOFF_MIN;
        while self.wait_until_wanted(&peer.name).await {
            if let Ok(Ok(stream)) = timeout(DIAL_WAIT, dial(self.0.options.listen.ip(), peer.address)).await {
                let started = Instant::now();
                self.run(stream, Some(&peer.name)).await;
                if started.elapsed() > BACKOFF_MAX {
                    wait = BACKOFF_MIN;
                }
            }
            let pause = wait.mul_f64(jitter.random_range(0.75..1.25));
            wait = (wait * 2).min(BACKOFF_MAX);
            tokio::select! {
                () = tokio::time::sleep(pause) => {}
                () = self.0.stop.cancelled() => return,
            }
        }
    }

    /// Waits until the peer is neither connected nor refused; false when the node stops.
    async fn wait_until_wanted(&self, name: &str) -> bool {
        let mut changed = self.0.changed.subscribe();
        loop {
            let (connected, banned) = {
                let peers = self.peers();
                (peers.is_connected(name), peers.banned_until(name))
            };
            if self.0.stop.is_cancelled() {
                return false;
            }
            let until = match (connected, banned) {
                (false, None) => return true,
                (_, Some(until)) => until,
                (true, None) => Instant::now() + Duration::from_secs(3600),
            };
            tokio::select! {
                _ = changed.changed() => {}
                () = tokio::time::sleep_until(until.into()) => {}
                () = self.0.stop.cancelled() => return false,
            }
        }
    }

    async fn run(&self, stream: TcpStream, dialled: Option<&str>) {
        let ended = tokio::select! {
            ended = connection::run(self, stream, dialled) => ended,
            () = self.0.stop.cancelled() => return,
        };
        tracing::debug!(%ended, dialled, "connection ended");
    }
}

/// A listener that a restarted node can bind again at once.
fn listen(address: SocketAddr) -> io::Result<TcpListener> {
    let socket = socket_for(address)?;
    socket.set_reuseaddr(true)?;
    socket.bind(address)?;
    socket.listen(BACKLOG)
}

/// Dials from the node's own address, so that peers and partitions see where a connection comes from.
async fn dial(own: IpAddr, address: SocketAddr) -> io::Result<TcpStream> {
    let socket = socket_for(address)?;
    if !own.is_unspecified() && own.is_ipv4() == address.is_ipv4() {
        socket.set_reuseaddr(true)?;
        socket.bind(SocketAddr::new(own, 0))?;
    }
    socket.connect(address).await
}

fn socket_for(address: SocketAddr) -> io::Result<TcpSocket> {
    if address.is_ipv4() { TcpSocket::new_v4() } else { TcpSocket::new_v6() }
}

fn jitter_seed(local: &str, remote: &str) -> [u8; 32] {
    crate::node::types::sha256(format!("dial jitter {local} {remote}").as_bytes()).0
}

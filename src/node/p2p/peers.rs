//! The table of connected peers: one connection a name, a bounded queue each, and who is refused for a while.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::message::Hello;

/// Most messages that wait for one peer.
const QUEUE_MESSAGES_MAX: usize = 1024;
/// Most bytes that wait for one peer.
const QUEUE_BYTES_MAX: usize = 64 << 20;
/// Most connected peers.
const PEERS_MAX: usize = 512;
/// Most names that are refused at a time.
const BANNED_MAX: usize = 512;

/// Names a connection; never used again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PeerId(pub u64);

/// What is known of a connected peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerInfo {
    /// The connection.
    pub id: PeerId,
    /// Its name.
    pub name: String,
    /// Its public key.
    pub public_key: [u8; crate::node::crypto::PUBLIC_KEY_BYTES],
    /// The other end as this node sees it.
    pub address: SocketAddr,
    /// Whether this node dialled.
    pub outbound: bool,
    /// Highest block it said it holds.
    pub height: u64,
}

/// The sending side of one peer's queue.
#[derive(Clone, Debug)]
pub(super) struct Queue {
    sender: mpsc::Sender<Bytes>,
    bytes: Arc<AtomicUsize>,
}

impl Queue {
    /// Puts a frame into the queue; false when it is full, and the frame is dropped.
    pub(super) fn push(&self, frame: Bytes) -> bool {
        let length = frame.len();
        if self.bytes.load(Ordering::Relaxed) + length > QUEUE_BYTES_MAX && length < QUEUE_BYTES_MAX {
            return false;
        }
        self.bytes.fetch_add(length, Ordering::Relaxed);
        let sent = self.sender.try_send(frame).is_ok();
        if !sent {
            self.bytes.fetch_sub(length, Ordering::Relaxed);
        }
        sent
    }
}

/// The receiving side, owned by the connection's task.
#[derive(Debug)]
pub(super) struct Outgoing {
    receiver: mpsc::Receiver<Bytes>,
    bytes: Arc<AtomicUsize>,
}

impl Outgoing {
    pub(super) async fn next(&mut self) -> Option<Bytes> {
        let frame = self.receiver.recv().await?;
        self.bytes.fetch_sub(frame.len(), Ordering::Relaxed);
        Some(frame)
    }

    pub(super) fn try_next(&mut self) -> Option<Bytes> {
        let frame = self.receiver.try_recv().ok()?;
        self.bytes.fetch_sub(frame.len(), Ordering::Relaxed);
        Some(frame)
    }
}

#[derive(Debug)]
struct Slot {
    info: PeerInfo,
    boot: u64,
    queue: Queue,
    stop: CancellationToken,
}

/// A connection that was let in.
#[derive(Debug)]
pub(super) struct Admitted {
    pub(super) id: PeerId,
    pub(super) outgoing: Outgoing,
    pub(super) stop: CancellationToken,
}

/// Why a connection was not let in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refused {
    Duplicate,
    Full,
    Banned,
}

/// The table.
#[derive(Debug, Default)]
pub(super) struct Peers {
    slots: BTreeMap<PeerId, Slot>,
    banned: BTreeMap<String, Instant>,
    next: u64,
}

impl Peers {
    /// Lets a connection in, in place of an older one of the same name where that is right: a restarted peer replaces
    /// its former self; of two connections that crossed, both ends keep the one that the lesser name dialled.
    pub(super) fn admit(
        &mut self,
        local_name: &str,
        hello: &Hello,
        address: SocketAddr,
        outbound: bool,
    ) -> Result<Admitted, Refused> {
        if self.banned_until(&hello.name).is_some() {
            return Err(Refused::Banned);
        }
        if let Some((id, slot)) = self.slots.iter().find(|(_, slot)| slot.info.name == hello.name) {
            let by_lesser = |outbound: bool| outbound == (local_name < hello.name.as_str());
            let better = by_lesser(outbound) && !by_lesser(slot.info.outbound);
            if slot.boot == hello.boot && !better {
                return Err(Refused::Duplicate);
            }
            slot.stop.cancel();
            let id = *id;
            self.slots.remove(&id);
        }
        if self.slots.len() >= PEERS_MAX {
            return Err(Refused::Full);
        }
        let id = PeerId(self.next);
        self.next += 1;
        let (sender, receiver) = mpsc::channel(QUEUE_MESSAGES_MAX);
        let bytes = Arc::new(AtomicUsize::new(0));
        let stop = CancellationToken::new();
        let info =
            PeerInfo { id, name: hello.name.clone(), public_key: hello.public_key, address, outbound, height: 0 };
        let queue = Queue { sender, bytes: bytes.clone() };
        self.slots.insert(id, Slot { info, boot: hello.boot, queue, stop: stop.clone() });
        Ok(Admitted { id, outgoing: Outgoing { receiver, bytes }, stop })
    }

    pub(super) fn remove(&mut self, id: PeerId) {
        self.slots.remove(&id);
    }

    pub(super) fn stop(&mut self, id: PeerId, refuse_for: Duration) {
        let Some(slot) = self.slots.remove(&id) else { return };
        slot.stop.cancel();
        self.banned.retain(|_, until| *until > Instant::now());
        if !refuse_for.is_zero() && self.banned.len() < BANNED_MAX {
            self.banned.insert(slot.info.name, Instant::now() + refuse_for);
        }
    }

    pub(super) fn banned_until(&self, name: &str) -> Option<Instant> {
        self.banned.get(name).copied().filter(|until| *until > Instant::now())
    }

    pub(super) fn is_connected(&self, name: &str) -> bool {
        self.slots.values().any(|slot| slot.info.name == name)
    }

    pub(super) fn queue(&self, id: PeerId) -> Option<Queue> {
        self.slots.get(&id).map(|slot| slot.queue.clone())
    }

    /// Puts a frame into every queue but one peer's.
    pub(super) fn broadcast(&self, frame: &Bytes, except: Option<PeerId>) {
        for (id, slot) in &self.slots {
            if Some(*id) != except {
                slot.queue.push(frame.clone());
            }
        }
    }

    pub(super) fn set_height(&mut self, id: PeerId, height: u64) {
        if let Some(slot) = self.slots.get_mut(&id) {
            slot.info.height = height;
        }
    }

    pub(super) fn infos(&self) -> Vec<PeerInfo> {
        self.slots.values().map(|slot| slot.info.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hello(name: &str, boot: u64) -> Hello {
        Hello { chain_id: "c".into(), genesis_hash: [0; 32], name: name.into(), public_key: [0; 48], boot }
    }

    fn admit(peers: &mut Peers, name: &str, boot: u64, outbound: bool) -> Result<PeerId, Refused> {
        peers.admit("m", &hello(name, boot), "127.0.0.1:1".parse().unwrap(), outbound).map(|a| a.id)
    }

    #[test]
    fn of_two_crossing_connections_the_lesser_names_stays() {
        for first_outbound in [false, true] {
            let mut peers = Peers::default();
            let first = admit(&mut peers, "z", 1, first_outbound);
            let second = admit(&mut peers, "z", 1, !first_outbound);
            // "m" is less than "z", so the connection that "m" dialled stays.
            let kept = if first_outbound { first } else { second };
            assert_eq!(peers.infos().iter().map(|i| i.id).collect::<Vec<_>>(), [kept.unwrap()]);
            assert!(peers.infos()[0].outbound);
        }
    }

    #[test]
    fn a_restarted_peer_replaces_its_former_self() {
        let mut peers = Peers::default();
        let old = peers.admit("m", &hello("z", 1), "127.0.0.1:1".parse().unwrap(), true).unwrap();
        let new = admit(&mut peers, "z", 2, false).unwrap();
        assert!(old.stop.is_cancelled());
        assert_eq!(peers.infos()[0].id, new);
        assert_eq!(admit(&mut peers, "z", 2, false), Err(Refused::Duplicate));
    }

    #[test]
    fn a_banned_name_is_refused_for_a_while() {
        let mut peers = Peers::default();
        let id = admit(&mut peers, "z", 1, true).unwrap();
        peers.stop(id, Duration::from_secs(60));
        assert_eq!(admit(&mut peers, "z", 1, true), Err(Refused::Banned));
        assert!(peers.infos().is_empty());
        let id = admit(&mut peers, "y", 1, true).unwrap();
        peers.stop(id, Duration::ZERO);
        assert!(admit(&mut peers, "y", 1, true).is_ok());
    }
}

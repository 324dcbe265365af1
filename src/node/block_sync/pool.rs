//! Whom to ask for which block: a bounded window of heights, a bounded number of open requests a peer, deadlines, and
//! marks against peers that do not answer.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bytes::Bytes;

use super::{Actions, Body};
use crate::node::p2p::PeerId;

/// Heights ahead of the applier that are asked for.
const WINDOW: u64 = 256;
/// Bytes of bodies that wait; above this nothing is asked for.
const BODIES_BYTES_MAX: usize = 64 << 20;
/// Open requests a peer.
const PER_PEER: usize = 24;
/// How long a peer may take for one block.
const ANSWER_WAIT: Duration = Duration::from_secs(3);
/// Requests in a row that a peer may leave open.
const MISSES_MAX: u32 = 3;

/// What peers say that they hold.
#[derive(Debug, Default)]
pub(crate) struct PeerBook {
    peers: BTreeMap<PeerId, (u64, u64)>,
    names: BTreeMap<PeerId, String>,
}

impl PeerBook {
    pub(crate) fn up(&mut self, peer: PeerId, name: String) {
        self.names.insert(peer, name);
    }

    pub(crate) fn down(&mut self, peer: PeerId) {
        self.names.remove(&peer);
        self.peers.remove(&peer);
    }

    pub(crate) fn status(&mut self, peer: PeerId, base: u64, height: u64) {
        if self.names.contains_key(&peer) {
            self.peers.insert(peer, (base, height));
        }
    }

    pub(crate) fn name(&self, peer: PeerId) -> &str {
        self.names.get(&peer).map_or("?", String::as_str)
    }

    /// Peers that have said what they hold.
    pub(crate) fn heard(&self) -> usize {
        self.peers.len()
    }

    /// Highest block that any peer says it holds.
    pub(crate) fn best(&self) -> u64 {
        self.peers.values().map(|(_, height)| *height).max().unwrap_or(0)
    }

    /// Peers that say they hold a block.
    pub(crate) fn holders(&self, height: u64) -> impl Iterator<Item = PeerId> + '_ {
        self.peers.iter().filter(move |(_, (base, top))| *base <= height && height <= *top).map(|(peer, _)| *peer)
    }
}

#[derive(Debug)]
struct Asked {
    peer: PeerId,
    until: Instant,
}

#[derive(Debug)]
pub(super) struct Pool {
    /// Lowest height that was not taken.
    from: u64,
    asked: BTreeMap<u64, Asked>,
    bodies: BTreeMap<u64, Body>,
    bytes: usize,
    misses: BTreeMap<PeerId, u32>,
    /// Who said for a height that it does not hold it after all, or sent a wrong one.
    not_there: BTreeMap<u64, Vec<PeerId>>,
}

impl Pool {
    pub(super) fn new(from: u64) -> Self {
        Self {
            from,
            asked: BTreeMap::new(),
            bodies: BTreeMap::new(),
            bytes: 0,
            misses: BTreeMap::new(),
            not_there: BTreeMap::new(),
        }
    }

    pub(super) fn on_block(&mut self, peer: PeerId, height: u64, body: Option<Bytes>) {
        if self.asked.get(&height).is_none_or(|asked| asked.peer != peer) {
            return;
        }
        self.asked.remove(&height);
        self.misses.remove(&peer);
        match body {
            Some(bytes) => self.put_back(Body { height, peer, bytes }),
            None => self.not_there.entry(height).or_default().push(peer),
        }
    }

    pub(super) fn on_peer_down(&mut self, peer: PeerId) {
        self.asked.retain(|_, asked| asked.peer != peer);
        self.misses.remove(&peer);
    }

    /// Puts a body where the verifier takes it from.
    pub(super) fn put_back(&mut self, body: Body) {
        self.bytes += body.bytes.len();
        self.from = self.from.min(body.height);
        if let Some(old) = self.bodies.insert(body.height, body) {
            self.bytes -= old.bytes.len();
        }
    }

    /// A height must be asked for once more.
    pub(super) fn give_up(&mut self, height: u64) {
        self.from = self.from.min(height);
        if let Some(body) = self.bodies.remove(&height) {
            self.bytes -= body.bytes.len();
        }
    }

    /// Takes the bodies from `from` on that are there without a gap.
    pub(super) fn take_run(&mut self, from: u64, count: usize) -> Vec<Body> {
        let mut run = Vec::new();
        while run.len() < count
            && let Some(body) = self.bodies.remove(&(from + run.len() as u64))
        {
            self.bytes -= body.bytes.len();
            run.push(body);
        }
        self.from = self.from.max(from + run.len() as u64);
        self.not_there = self.not_there.split_off(&self.from);
        run
    }

    /// Gives up what took too long and asks for what is missing. `held` proven blocks wait for the applier.
    pub(super) fn step(&mut self, now: Instant, peers: &PeerBook, held: usize, actions: &mut Actions) {
        let late: Vec<(u64, PeerId)> =
            self.asked.iter().filter(|(_, a)| a.until <= now).map(|(h, a)| (*h, a.peer)).collect();
        for (height, peer) in late {
            self.asked.remove(&height);
            let misses = self.misses.entry(peer).or_default();
            *misses += 1;
            if *misses == MISSES_MAX {
                actions.stalled.push(peer);
            }
        }
        for peer in &actions.stalled {
            self.on_peer_down(*peer);
        }
        let mut load: BTreeMap<PeerId, usize> = BTreeMap::new();
        for asked in self.asked.values() {
            *load.entry(asked.peer).or_default() += 1;
        }
        let end = (self.from + WINDOW.saturating_sub(held as u64)).min(peers.best() + 1);
        for height in self.from..end {
            if self.bytes > BODIES_BYTES_MAX {
                return;
            }
            if self.asked.contains_key(&height) || self.bodies.contains_key(&height) {
                continue;
            }
            let Some(peer) = self.choose(height, peers, &load, actions) else { continue };
            *load.entry(peer).or_default() += 1;
            self.asked.insert(height, Asked { peer, until: now + ANSWER_WAIT });
            actions.requests.push((peer, height));
        }
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.asked.values().map(|asked| asked.until).min()
    }

    /// The holder with the fewest open requests; one that has said no is asked again only when all have.
    fn choose(
        &mut self,
        height: u64,
        peers: &PeerBook,
        load: &BTreeMap<PeerId, usize>,
        actions: &Actions,
    ) -> Option<PeerId> {
        let usable =
            |peer: &PeerId| !actions.stalled.contains(peer) && !actions.liars.iter().any(|liar| liar.peer == *peer);
        let holders: Vec<PeerId> = peers.holders(height).filter(usable).collect();
        let refused = self.not_there.get(&height).cloned().unwrap_or_default();
        if !refused.is_empty() && holders.iter().all(|peer| refused.contains(peer)) {
            self.not_there.remove(&height);
            return None;
        }
        holders
            .into_iter()
            .filter(|peer| !refused.contains(peer))
            .map(|peer| (load.get(&peer).copied().unwrap_or(0), peer))
            .filter(|(open, _)| *open < PER_PEER)
            .min()
            .map(|(_, peer)| peer)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn book(peers: &[(u64, u64)]) -> PeerBook {
        let mut book = PeerBook::default();
        for (id, height) in peers {
            book.up(PeerId(*id), format!("p{id}"));
            book.status(PeerId(*id), 1, *height);
        }
        book
    }

    fn step(pool: &mut Pool, now: Instant, book: &PeerBook) -> Actions {
        let mut actions = Actions::default();
        pool.step(now, book, 0, &mut actions);
        actions
    }

    #[test]
    fn requests_are_spread_and_bounded() {
        let mut pool = Pool::new(1);
        let actions = step(&mut pool, Instant::now(), &book(&[(1, 1000), (2, 1000), (3, 20)]));
        let of = |id| actions.requests.iter().filter(|(peer, _)| *peer == PeerId(id)).count();
        assert_eq!(of(1), PER_PEER);
        assert_eq!(of(2), PER_PEER);
        assert!(of(3) >= 6 && actions.requests.iter().all(|(peer, h)| *peer != PeerId(3) || *h <= 20));
        assert!(step(&mut pool, Instant::now(), &book(&[(1, 1000), (2, 1000)])).requests.is_empty());
    }

    #[test]
    fn a_stalled_peer_is_named_and_others_are_asked() {
        let mut pool = Pool::new(1);
        let now = Instant::now();
        assert_eq!(step(&mut pool, now, &book(&[(1, 5)])).requests.len(), 5);
        let actions = step(&mut pool, now + ANSWER_WAIT, &book(&[(1, 5), (2, 5)]));
        assert_eq!(actions.stalled, [PeerId(1)]);
        assert_eq!(actions.requests, (1..=5).map(|h| (PeerId(2), h)).collect::<Vec<_>>());
    }

    #[test]
    fn only_what_was_asked_for_is_taken_in_order() {
        let mut pool = Pool::new(1);
        step(&mut pool, Instant::now(), &book(&[(1, 4)]));
        for height in [2, 1, 4, 9] {
            pool.on_block(PeerId(1), height, Some(Bytes::from_static(b"b")));
        }
        pool.on_block(PeerId(7), 3, Some(Bytes::from_static(b"b")));
        assert_eq!(pool.take_run(1, 10).iter().map(|b| b.height).collect::<Vec<_>>(), [1, 2]);
        assert!(pool.take_run(3, 10).is_empty());
        pool.on_block(PeerId(1), 3, None);
        let actions = step(&mut pool, Instant::now(), &book(&[(1, 4), (2, 4)]));
        assert_eq!(actions.requests, [(PeerId(2), 3)], "another than who said no");
    }
}

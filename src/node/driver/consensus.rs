//! Consensus mode: deciding blocks where this node is a validator, following decided blocks one by one where it is not,
//! or where it missed a decision.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use bytes::Bytes;

use super::{Driver, DriverError, End, Left, WAIT_MAX};
use crate::node::block_sync::split_body;
use crate::node::codec::Codec;
use crate::node::consensus::{Application, Host, Outlet};
use crate::node::crypto::Address;
use crate::node::ledger::Ledger;
use crate::node::log::Mode;
use crate::node::mempool::Mempool;
use crate::node::p2p::{Event, Gossip, Message, Network, PeerId, SALT_DIRECT};
use crate::node::types::{Block, BlockId, Commit};

/// Heights that the best peer may be ahead before this node goes back to block sync.
const BEHIND_MAX: u64 = 20;
/// How long a validator tries to decide a height itself after a peer said that it is decided.
const GRACE: Duration = Duration::from_millis(400);
/// How long a peer may take to send a decided block.
const ANSWER_WAIT: Duration = Duration::from_secs(1);
/// Wait after a peer answered that it does not hold a block.
const RETRY_WAIT: Duration = Duration::from_millis(100);
/// How long a peer that lied is refused.
const LIAR_REFUSED: Duration = Duration::from_secs(60);
/// Events handled at once, so that votes which say the same are verified together.
const EVENTS_A_TURN: usize = 256;

impl Outlet for Network {
    fn publish(&self, height: u64, salt: u32, payload: Bytes) {
        Network::publish(self, height, salt, payload);
    }
}

/// The ledger and the mempool, as consensus sees them.
struct Proposals<'a> {
    ledger: &'a Ledger,
    mempool: &'a Mempool,
}

impl Application for Proposals<'_> {
    fn build_block(&self, proposer: Address) -> Block {
        let state = self.ledger.state();
        let bytes_max = usize::try_from(state.params.block_max_bytes).unwrap_or(usize::MAX);
        let last_commit = self.ledger.load_commit(state.last_height).ok().flatten().unwrap_or_default();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let time_ms = u64::try_from(now.as_millis()).unwrap_or(u64::MAX);
        self.ledger.build_block(self.mempool.reap(bytes_max), last_commit, time_ms, proposer)
    }

    fn validate_block(&self, block: &Block) -> Result<(), String> {
        self.ledger.validate_block(block).map_err(|error| error.to_string())
    }
}

/// A decided block that is asked of a peer.
#[derive(Debug, Default)]
struct Fetch {
    /// Since when it is known that a peer holds the height.
    known: Option<Instant>,
    asked: Option<(PeerId, Instant)>,
    /// Counts the requests for one height, to ask another peer each time.
    tries: usize,
}

impl Driver {
    /// Decides or follows until a stop, the halt height, or until the others are far ahead.
    pub(super) fn consensus(&mut self) -> Result<Left, DriverError> {
        self.ledger.end_block_sync()?;
        self.tell_status();
        if self.stopping() {
            return Ok(Left::End(End::Stopped));
        }
        if let Some(height) = self.ledger.halted() {
            return Ok(Left::End(End::Halted(height)));
        }
        self.log.mode(Mode::Consensus, self.ledger.next_height());
        self.status.set_catching_up(false);
        let mut run = Run { next_start: Instant::now(), fetch: Fetch::default(), first: true };
        loop {
            if self.stopping() {
                return Ok(Left::End(End::Stopped));
            }
            if let Some(decision) = self.host.take_decision() {
                if let Some(end) = self.commit(&decision.block, &decision.block_id, &decision.commit)? {
                    return Ok(Left::End(end));
                }
                run.fetch = Fetch::default();
            }
            self.start_due_height(&mut run)?;
            if self.peers.best() > self.ledger.next_height() + BEHIND_MAX {
                self.host.stop_height();
                return Ok(Left::Behind);
            }
            self.fetch_if_due(&mut run.fetch);
            if let Some(end) = self.take_turn(&mut run)? {
                return Ok(Left::End(end));
            }
        }
    }

    /// Starts the next height when its time has come, where this node decides it.
    fn start_due_height(&mut self, run: &mut Run) -> Result<(), DriverError> {
        let height = self.ledger.next_height();
        let validators = &self.ledger.state().validators;
        if validators.is_empty() {
            return Err(DriverError::NoValidators(height));
        }
        let decides = validators.find(&self.address()).is_some();
        self.network.set_wants_consensus(decides);
        let now = Instant::now();
        if !decides || self.host.is_running() || now < run.next_start {
            return Ok(());
        }
        run.next_start = now + Duration::from_millis(self.config.block_time_ms);
        if std::mem::take(&mut run.first) {
            self.network.broadcast(&Message::HeightRequest(height));
        }
        let validators = Arc::new(validators.clone());
        let proposals = Proposals { ledger: &self.ledger, mempool: &self.mempool };
        self.host.start_height(&proposals, height, validators)?;
        Ok(())
    }

    /// Waits for events and timeouts, and handles what came.
    fn take_turn(&mut self, run: &mut Run) -> Result<Option<End>, DriverError> {
        let now = Instant::now();
        let start = (!self.host.is_running()).then_some(run.next_start).filter(|at| *at > now);
        let deadline = [Some(now + WAIT_MAX), self.host.deadline(), start, run.fetch.deadline(now)];
        let deadline = deadline.into_iter().flatten().min().unwrap_or(now);
        let mut payloads = Vec::new();
        let mut next = self.events.recv_until(deadline);
        let mut taken = 0;
        while let Some(event) = next {
            match self.note_and_greet(event) {
                Some(Event::Gossip { payload, .. }) => payloads.push(payload),
                Some(Event::HeightRequest { peer, height }) => self.answer_height_request(peer, height),
                Some(Event::PeerDown { peer }) => {
                    self.peers.down(peer);
                    run.fetch.forget(peer);
                }
                Some(Event::Block { peer, height, body }) => {
                    if let Some(end) = self.on_fetched(run, peer, height, body)? {
                        return Ok(Some(end));
                    }
                }
                _ => {}
            }
            taken += 1;
            next = if taken < EVENTS_A_TURN { self.events.try_recv() } else { None };
        }
        let proposals = Proposals { ledger: &self.ledger, mempool: &self.mempool };
        self.host.on_messages(&proposals, payloads)?;
        self.host.on_time(&proposals, Instant::now())?;
        Ok(None)
    }

    /// As [`Driver::note`]; a peer that comes while a height runs is asked what it knows of it.
    fn note_and_greet(&mut self, event: Event) -> Option<Event> {
        if let Event::PeerUp { peer, .. } = &event
            && self.host.is_running()
        {
            self.network.send(*peer, &Message::HeightRequest(self.host.height()));
        }
        self.note(event)
    }

    fn answer_height_request(&mut self, peer: PeerId, height: u64) {
        if height == self.host.height() && self.host.is_running() {
            for payload in self.host.heard() {
                let gossip = Gossip { height, salt: SALT_DIRECT, payload: payload.clone() };
                self.network.send(peer, &Message::Gossip(gossip));
            }
        }
    }

    /// Asks a peer for the block of the next height, if one says that it is decided.
    fn fetch_if_due(&mut self, fetch: &mut Fetch) {
        let height = self.ledger.next_height();
        let now = Instant::now();
        if self.peers.best() < height {
            return;
        }
        let known = *fetch.known.get_or_insert(now);
        // A validator that is only just behind decides by the votes on their way.
        let patient = self.host.is_running() && self.peers.best() <= height + 1;
        if fetch.asked.is_some_and(|(_, until)| now < until) || (patient && now < known + GRACE) {
            return;
        }
        let holders: Vec<PeerId> = self.peers.holders(height).collect();
        let Some(peer) = holders.get(fetch.tries % holders.len().max(1)) else { return };
        fetch.tries += 1;
        fetch.asked = Some((*peer, now + ANSWER_WAIT));
        self.network.send(*peer, &Message::BlockRequest(height));
    }

    fn on_fetched(
        &mut self,
        run: &mut Run,
        peer: PeerId,
        height: u64,
        body: Option<Bytes>,
    ) -> Result<Option<End>, DriverError> {
        if height != self.ledger.next_height() || run.fetch.asked.is_none_or(|(asked, _)| asked != peer) {
            return Ok(None);
        }
        let Some(body) = body else {
            // It said too much; another one is asked a little later.
            run.fetch.asked = Some((peer, Instant::now() + RETRY_WAIT));
            return Ok(None);
        };
        run.fetch.asked = None;
        match self.prove(height, &body) {
            Ok((block, block_id, commit)) => {
                self.host.stop_height();
                run.next_start = Instant::now();
                run.fetch = Fetch::default();
                self.commit(&block, &block_id, &commit)
            }
            Err(reason) => {
                let name = self.peers.name(peer).to_owned();
                self.log.error("drop peer", &[("peer", &name), ("height", &height), ("reason", &reason)]);
                self.network.drop_peer(peer, LIAR_REFUSED);
                self.peers.down(peer);
                Ok(None)
            }
        }
    }

    fn prove(&self, height: u64, body: &[u8]) -> Result<(Arc<Block>, BlockId, Commit), String> {
        let (block_bytes, commit_bytes) = split_body(body).map_err(|e| e.to_string())?;
        let block = Block::from_bytes(block_bytes).map_err(|e| e.to_string())?;
        let commit = Commit::from_bytes(commit_bytes).map_err(|e| e.to_string())?;
        let block_id = block.id_of_encoded(block_bytes);
        if block.header.height != height {
            return Err("it is of another height".into());
        }
        let state = self.ledger.state();
        commit.verify(&state.chain_id, &state.validators, height, &block_id).map_err(|e| e.to_string())?;
        Ok((Arc::new(block), block_id, commit))
    }

    /// Makes a decided block durable, with the end of its height in the log between the block store and the execution.
    fn commit(&mut self, block: &Arc<Block>, block_id: &BlockId, commit: &Commit) -> Result<Option<End>, DriverError> {
        let decides = self.ledger.state().validators.find(&self.address()).is_some();
        let host: &mut Host = &mut self.host;
        let mut end_height = |height| {
            if decides { host.end_height(height).map_err(io::Error::other) } else { Ok(()) }
        };
        let applied = self.ledger.commit_decided(block, block_id, commit, &mut end_height)?;
        let end = self.after_applied(&applied, block);
        self.tell_status();
        Ok(end)
    }
}

/// What lasts over one stay in consensus mode.
struct Run {
    /// When the next height may start.
    next_start: Instant,
    fetch: Fetch,
    /// No height was started yet: peers may know more of the first than this node.
    first: bool,
}

impl Fetch {
    fn forget(&mut self, peer: PeerId) {
        if self.asked.is_some_and(|(asked, _)| asked == peer) {
            self.asked = None;
        }
    }

    /// When there may be something to ask for again.
    fn deadline(&self, now: Instant) -> Option<Instant> {
        let again = self.asked.map(|(_, until)| until);
        let grace = self.known.map(|known| known + GRACE).filter(|at| *at > now);
        again.or(grace)
    }
}

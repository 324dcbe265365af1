//! Block sync mode.

use std::time::{Duration, Instant};

use super::{Driver, DriverError, End, Left, WAIT_MAX};
use crate::node::block_sync::{Actions, BlockSync, Proven};
use crate::node::defect::Defect;
use crate::node::ledger::{LedgerError, Stage};
use crate::node::log::Mode;
use crate::node::p2p::{Event, Message};

/// How long a start waits for more peers once one has told its height.
const MORE_PEERS_WAIT: Duration = Duration::from_millis(300);
/// How long a start waits for any peer before it goes on alone.
const ANY_PEER_WAIT: Duration = Duration::from_secs(5);
/// How long a peer that lied is refused.
const LIAR_REFUSED: Duration = Duration::from_secs(60);
/// How long a peer that did not answer is refused.
const STALLED_REFUSED: Duration = Duration::from_secs(5);
/// Blocks between two status messages while catching up.
const STATUS_BLOCKS: u64 = 50;
/// Events handled between two blocks.
const EVENTS_A_TURN: usize = 64;

impl Driver {
    /// Fetches and applies blocks until the tip is reached.
    pub(super) fn block_sync(&mut self) -> Result<Left, DriverError> {
        let started = Instant::now();
        let mut entered = false;
        self.status.set_catching_up(true);
        self.network.set_wants_consensus(false);
        let window = self.config.verify_window as usize;
        let (timings, wake) = (self.ledger.timings(), self.wake.clone());
        let mut sync =
            BlockSync::start(self.ledger.next_height(), window, timings, wake).map_err(DriverError::Thread)?;
        let mut gap: Option<Instant> = None;
        loop {
            if self.stopping() {
                return Ok(Left::End(End::Stopped));
            }
            if self.has_caught_up(started) {
                break;
            }
            let actions = sync.step(Instant::now(), &self.peers, self.ledger.state());
            self.act(actions);
            let block = sync.next_proven();
            match block {
                Some(proven) => {
                    if !entered {
                        self.log.mode(Mode::BlockSync, self.ledger.next_height());
                        entered = true;
                    }
                    if let Some(since) = gap.take() {
                        self.ledger.timings().lap(Stage::ApplyGap, since);
                    }
                    if let Some(end) = self.apply(&mut sync, proven)? {
                        return Ok(Left::End(end));
                    }
                    gap = Some(Instant::now());
                }
                None => self.wait(&mut sync, started),
            }
            self.take_events(&mut sync);
            if self.ledger.flush_if_due()? {
                self.tell_status();
            }
        }
        // The verifier is joined before the flush: nothing can arrive any more.
        drop(sync);
        Ok(Left::CaughtUp)
    }

    /// At the start some patience for the peers to connect; then the height of the best decides.
    fn has_caught_up(&self, started: Instant) -> bool {
        let waited = started.elapsed();
        if self.config.peers.is_empty() && self.peers.heard() == 0 && self.network.peer_infos().is_empty() {
            return self.is_alone_at_once() || waited >= ANY_PEER_WAIT;
        }
        if self.peers.heard() == 0 {
            return waited >= ANY_PEER_WAIT;
        }
        let all = self.peers.heard() >= self.config.peers.len();
        (all || waited >= MORE_PEERS_WAIT) && self.ledger.next_height() >= self.peers.best()
    }

    /// Whether this node decides without anybody.
    fn is_alone_at_once(&self) -> bool {
        let validators = &self.ledger.state().validators;
        let own = validators.find(&self.address()).map_or(0, |(_, validator)| validator.power);
        validators.is_quorum(own)
    }

    fn act(&mut self, actions: Actions) {
        for (peer, height) in actions.requests {
            self.network.send(peer, &Message::BlockRequest(height));
        }
        for liar in actions.liars {
            let name = self.peers.name(liar.peer).to_owned();
            self.log.error("drop peer", &[("peer", &name), ("height", &liar.height), ("reason", &liar.reason)]);
            self.network.drop_peer(liar.peer, LIAR_REFUSED);
            self.peers.down(liar.peer);
        }
        for peer in actions.stalled {
            let name = self.peers.name(peer).to_owned();
            self.log.info("drop peer", &[("peer", &name), ("reason", &"it does not answer")]);
            self.network.drop_peer(peer, STALLED_REFUSED);
            self.peers.down(peer);
        }
    }

    fn apply(&mut self, sync: &mut BlockSync, proven: Proven) -> Result<Option<End>, DriverError> {
        if self.config.planted_defect == Some(Defect::TooSlow) {
            std::thread::sleep(Duration::from_millis(self.config.block_time_ms * 5));
        }
        let applied = match self.ledger.apply_synced(&proven.block, &proven.block_id, &proven.commit) {
            Ok(applied) => applied,
            // More than two thirds signed it, and this node's state says that it cannot follow.
            Err(LedgerError::Invalid(invalid)) => {
                self.log.error("decided block does not follow", &[("reason", &invalid)]);
                return Err(LedgerError::Invalid(invalid).into());
            }
            Err(error) => return Err(error.into()),
        };
        if applied.height.is_multiple_of(STATUS_BLOCKS) {
            self.tell_status();
        }
        let sync_end = self.after_applied(&applied, &proven.block);
        let actions = sync.step(Instant::now(), &self.peers, self.ledger.state());
        self.act(actions);
        Ok(sync_end)
    }

    /// Waits for the next event, or for what is due.
    fn wait(&mut self, sync: &mut BlockSync, started: Instant) {
        let now = Instant::now();
        let patience = [MORE_PEERS_WAIT, ANY_PEER_WAIT].map(|wait| started + wait).into_iter().find(|at| *at > now);
        let deadline = [Some(now + WAIT_MAX), self.ledger.flush_deadline(), sync.deadline(), patience];
        let deadline = deadline.into_iter().flatten().min().unwrap_or(now);
        if let Some(event) = self.events.recv_until(deadline) {
            self.on_sync_event(sync, event);
        }
    }

    fn take_events(&mut self, sync: &mut BlockSync) {
        for _ in 0..EVENTS_A_TURN {
            let Some(event) = self.events.try_recv() else { return };
            self.on_sync_event(sync, event);
        }
    }

    fn on_sync_event(&mut self, sync: &mut BlockSync, event: Event) {
        match self.note(event) {
            Some(Event::Block { peer, height, body }) => sync.on_block(peer, height, body),
            Some(Event::PeerDown { peer }) => {
                self.peers.down(peer);
                sync.on_peer_down(peer);
            }
            _ => {}
        }
    }
}

//! The chain thread: the one owner of the ledger. It brings the node forward by block sync while it is behind, then by
//! consensus, or by following decided blocks where this node does not decide, and goes back when it falls behind.

mod consensus;
mod sync;
#[cfg(test)]
mod tests;

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use super::block_sync::PeerBook;
use super::config::NodeConfig;
use super::consensus::{Host, HostError};
use super::crypto::Address;
use super::defect::Defect;
use super::handle::SyncStatus;
use super::inbox;
use super::ledger::{Applied, Ledger, LedgerError, Stage};
use super::log::Log;
use super::mempool::Mempool;
use super::p2p::{Event, Network};
use super::types::{Block, Height};

/// Longest wait for anything, so that a stop is seen also when its wake-up is lost.
const WAIT_MAX: std::time::Duration = std::time::Duration::from_secs(1);

/// Why the chain thread cannot go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DriverError {
    /// The stores.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
    /// Consensus.
    #[error(transparent)]
    Host(#[from] HostError),
    /// A thread could not be started.
    #[error("start the verifier: {0}")]
    Thread(#[source] io::Error),
    /// The chain has nobody who could decide.
    #[error("start height {0}: it has no validators")]
    NoValidators(Height),
}

/// Why the chain thread ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// It was told to stop.
    Stopped,
    /// The halt height is reached; everything is on disk.
    Halted(Height),
}

/// How a mode was left.
enum Left {
    End(End),
    /// Block sync: the tip is reached.
    CaughtUp,
    /// Consensus: the others are far ahead.
    Behind,
}

/// What the chain thread is made from.
pub(crate) struct Driver {
    pub(crate) ledger: Ledger,
    pub(crate) host: Host,
    pub(crate) network: Network,
    pub(crate) mempool: Arc<Mempool>,
    pub(crate) events: inbox::Receiver<Event>,
    /// For the verifier thread.
    pub(crate) wake: inbox::Sender<Event>,
    pub(crate) status: Arc<SyncStatus>,
    pub(crate) stop: Arc<AtomicBool>,
    pub(crate) config: Arc<NodeConfig>,
    pub(crate) log: Log,
    pub(crate) peers: PeerBook,
}

impl Driver {
    /// Runs until a stop, the halt height, or a failure.
    pub(crate) fn run(mut self) -> Result<End, DriverError> {
        self.tell_status();
        if let Some(height) = self.ledger.halted() {
            return Ok(End::Halted(height));
        }
        if self.config.planted_defect == Some(Defect::SilentStall) && self.ledger.state().last_height != 0 {
            return Ok(self.do_nothing());
        }
        loop {
            match self.block_sync()? {
                Left::End(end) => return Ok(end),
                Left::CaughtUp | Left::Behind => {}
            }
            match self.consensus()? {
                Left::End(end) => return Ok(end),
                Left::CaughtUp | Left::Behind => self.ledger.begin_block_sync(),
            }
        }
    }

    fn stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    fn address(&self) -> Address {
        self.host.address()
    }

    /// Tells the peers which blocks this node can serve. Held ones it cannot: peers are served from the disk.
    fn tell_status(&self) {
        let last = self.ledger.state().last_height;
        if self.ledger.flush_deadline().is_none() {
            let base = if last == 0 { 0 } else { self.ledger.view().base().unwrap_or(last) };
            self.network.set_status(base, last);
        }
    }

    /// After a block was applied, in any mode.
    fn after_applied(&mut self, applied: &Applied, block: &Block) -> Option<End> {
        let start = Instant::now();
        self.mempool.committed(&block.txs);
        self.ledger.timings().lap(Stage::ExecMempool, start);
        applied.halt.then_some(End::Halted(applied.height))
    }

    /// Events of peers coming, going and telling their heights; the rest is given back.
    fn note(&mut self, event: Event) -> Option<Event> {
        match event {
            Event::PeerUp { peer, name } => self.peers.up(peer, name),
            Event::Status { peer, base, height } => self.peers.status(peer, base, height),
            Event::Wake => {}
            other => return Some(other),
        }
        None
    }

    /// Planted: the node lives and does nothing.
    fn do_nothing(&mut self) -> End {
        self.status.set_catching_up(false);
        while !self.stopping() {
            self.events.recv_until(Instant::now() + WAIT_MAX);
        }
        End::Stopped
    }
}

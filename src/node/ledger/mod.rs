//! The durable half of the node: blocks, state and application in three databases, brought forward block by block and
//! made durable in the order and at the moments that the storage discipline says.
//!
//! One [`Ledger`] has one owner on one thread, and every write of a flush happens on that thread in program order.
//! Everybody else looks at a [`View`], which answers from the version on disk and never from what is held in memory.
//!
//! * **An error in the middle of a flush is final.** The ledger is poisoned and refuses everything after it: nobody knows
//!   what a failed write left, and going on could put a later store ahead of an earlier one.
//! * **A block is held or written as a whole.** Flush points are taken between blocks, by construction.
//! * **Nothing decided in consensus is held.** [`Ledger::end_block_sync`] flushes before consensus may start.
//! * **Dropping a ledger writes nothing**: a stop leaves what a kill would.

mod apply;
mod blocks;
mod events;
mod handshake;
mod open;
mod rollback;
mod state;
mod states;
#[cfg(test)]
mod tests;
mod timing;
mod view;

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

pub use events::{BlockEvent, EventSink};
pub use handshake::{Heights, Refusal};
pub use rollback::{RolledBack, rollback};
pub use state::{ChainState, InvalidBlock};
pub use timing::{Stage, Timings, Total};
pub use view::{AppInfo, QueryAnswer, QueryError, View};

use super::app::App;
use super::app::checkpoint::{CheckpointError, Schedule};
use super::config::{Checkpoints, Flush, Storage};
use super::crypto::Address;
use super::defect::Defect;
use super::log::Log;
use super::store::{Store, StoreError};
use super::types::{Block, BlockId, Commit, Hash, Height, ValidatorSet, data_hash};
use state::HeaderParts;

/// The ledger could not do what it was asked for.
#[derive(Debug, thiserror::Error)]
pub enum LedgerError {
    /// A database failed. In the middle of a flush this is final.
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The heights found at the start are none that a crash leaves.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The block does not follow from the state. Nothing was changed.
    #[error(transparent)]
    Invalid(#[from] InvalidBlock),
    /// The stores contradict each other.
    #[error("bring the stores together: {0}")]
    Inconsistent(String),
    /// The folder is of another chain.
    #[error("use the data of chain {found}: the genesis file is of {expected}")]
    OtherChain {
        /// On disk.
        found: String,
        /// In the genesis file.
        expected: String,
    },
    /// A checkpoint.
    #[error(transparent)]
    Checkpoint(#[from] CheckpointError),
    /// What the caller does between block store and execution.
    #[error("write the end of height {height}: {source}")]
    AfterSave {
        /// The height.
        height: Height,
        /// Why.
        source: std::io::Error,
    },
    /// A call that does not fit the phase, such as a decided block before the end of block sync.
    #[error("{0}")]
    Phase(&'static str),
    /// An earlier write failed.
    #[error("go on after a failed write: {0}")]
    Poisoned(String),
}

/// What one applied block asks of the caller.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Applied {
    /// The block's height.
    pub height: Height,
    /// Application hash after it.
    pub app_hash: Hash,
    /// The halt height is reached and everything is on disk: stop.
    pub halt: bool,
}

/// Where blocks come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    BlockSync,
    Consensus,
}

/// Checkpoints, where they are switched on.
struct Checkpointing {
    settings: Checkpoints,
    schedule: Schedule,
    folder: std::path::PathBuf,
}

/// The three databases and the state that they are at.
pub struct Ledger {
    storage: Storage,
    flush: Flush,
    own_halt: Option<Height>,
    defect: Option<Defect>,
    log: Log,
    log_timing: bool,
    events: Box<dyn EventSink>,
    blocks: Store,
    states: Store,
    app: App,
    state: ChainState,
    /// The commit of the last block, known to be good.
    last_commit: Option<Commit>,
    /// Height on disk: F of the next flush.
    flushed: Height,
    held_events: Vec<BlockEvent>,
    last_flush: Instant,
    /// Only for a planted defect: when the last events fire once more.
    fire_again_at: Option<Instant>,
    window_on_disk: bool,
    phase: Phase,
    poisoned: Option<String>,
    checkpoints: Option<Checkpointing>,
    timings: Arc<Timings>,
    applied: Arc<AtomicU64>,
    last_set: Arc<states::LastSet>,
    /// The state on disk.
    durable: Arc<Mutex<Option<Arc<ChainState>>>>,
    held_app: Arc<Mutex<(Height, Hash)>>,
}

impl Ledger {
    /// The state after the last applied block, held or not.
    pub fn state(&self) -> &ChainState {
        &self.state
    }

    /// The height of the next block.
    pub fn next_height(&self) -> Height {
        self.state.next_height()
    }

    /// The three heights on disk.
    pub fn heights(&self) -> Result<Heights, LedgerError> {
        Ok(open::heights(&self.blocks, &self.states, self.app.store())?)
    }

    /// The height at which this node must stop, if it is reached.
    pub fn halted(&self) -> Option<Height> {
        let halt = [self.own_halt, self.state.params.halt_height].into_iter().flatten().min()?;
        let last = self.state.last_height;
        let reached = if self.defect == Some(Defect::HaltOvershoot) { last > halt } else { last >= halt };
        (last != 0 && reached).then_some(halt)
    }

    /// A block, held or on disk.
    pub fn load_block(&self, height: Height) -> Result<Option<Block>, LedgerError> {
        Ok(blocks::block(&self.blocks, height)?)
    }

    /// The commit of a block that this node was given with it, held or on disk.
    pub fn load_commit(&self, height: Height) -> Result<Option<Commit>, LedgerError> {
        Ok(blocks::commit(&self.blocks, height)?)
    }

    /// Who decides a height, known up to one above the next.
    pub fn validators_at(&self, height: Height) -> Result<Option<ValidatorSet>, LedgerError> {
        let next = self.next_height();
        if height < self.state.initial_height || height > next + 1 {
            return Ok(None);
        }
        if height >= next {
            let set = if height == next { &self.state.validators } else { &self.state.next_validators };
            return Ok(Some(set.clone()));
        }
        Ok(states::validators_at(&|prefix, key| self.states.last_until(prefix, key), height, &self.last_set)?)
    }

    /// The next block with these transactions; its time is raised above the last block's where it is not.
    pub fn build_block(&self, txs: Vec<Vec<u8>>, last_commit: Commit, time_ms: u64, proposer: Address) -> Block {
        let header = self.state.header(HeaderParts {
            time_ms: time_ms.max(self.state.last_time_ms + 1),
            last_commit_hash: last_commit.hash(),
            data_hash: data_hash(&txs),
            proposer,
        });
        Block { header, txs, last_commit }
    }

    /// Checks the next block, with the signature of its last commit unless that is the commit which is known to be good.
    pub fn validate_block(&self, block: &Block) -> Result<(), LedgerError> {
        self.state.check(block)?;
        if self.state.last_height != 0 && self.last_commit.as_ref() != Some(&block.last_commit) {
            let state = &self.state;
            block
                .last_commit
                .verify(&state.chain_id, &state.last_validators, state.last_height, &state.last_block_id)
                .map_err(|_| InvalidBlock { height: block.header.height, field: "last_commit" })?;
        }
        Ok(())
    }

    /// Applies a block that consensus decided: nothing of it is held. `after_save` is called between the block store and
    /// the execution; the caller writes the end of the height into its WAL there.
    pub fn commit_decided(
        &mut self,
        block: &Arc<Block>,
        block_id: &BlockId,
        commit: &Commit,
        after_save: &mut dyn FnMut(Height) -> std::io::Result<()>,
    ) -> Result<Applied, LedgerError> {
        if self.phase != Phase::Consensus {
            return Err(LedgerError::Phase("commit a decided block: block sync has not ended"));
        }
        if self.flushed != self.state.last_height && self.defect != Some(Defect::SwitchWithoutFlush) {
            return Err(LedgerError::Phase("commit a decided block: blocks of block sync are held"));
        }
        self.guarded(|ledger| ledger.apply(block, block_id, commit, after_save))
    }

    /// Goes (back) to block sync. A ledger that was just opened is there.
    pub fn begin_block_sync(&mut self) {
        self.phase = Phase::BlockSync;
        self.last_flush = Instant::now();
    }

    /// Applies a block from a peer. The caller has proven `block_id` by a commit, of this block or of a later one
    /// whose header is linked to it by hashes; `commit` is stored with the block and handed to peers.
    pub fn apply_synced(
        &mut self,
        block: &Arc<Block>,
        block_id: &BlockId,
        commit: &Commit,
    ) -> Result<Applied, LedgerError> {
        if self.phase != Phase::BlockSync {
            return Err(LedgerError::Phase("apply a synced block: block sync has ended"));
        }
        self.guarded(|ledger| ledger.apply(block, block_id, commit, &mut |_| Ok(())))
    }

    /// When the next flush point is due; `None` while nothing is held.
    pub fn flush_deadline(&self) -> Option<Instant> {
        (self.flushed != self.state.last_height).then(|| self.last_flush + Duration::from_millis(self.flush.every_ms))
    }

    /// Takes a flush point if one is due. Returns whether it did.
    pub fn flush_if_due(&mut self) -> Result<bool, LedgerError> {
        if self.flush_deadline().is_none_or(|deadline| Instant::now() < deadline) {
            return Ok(false);
        }
        self.flush_point()?;
        Ok(true)
    }

    /// Writes what is held. Does nothing when nothing is.
    pub fn flush_point(&mut self) -> Result<(), LedgerError> {
        self.guarded(Self::flush_held)
    }

    /// Ends block sync: flushes, and lets [`Ledger::commit_decided`] be called. To be called only when no block can
    /// arrive from block sync any more.
    pub fn end_block_sync(&mut self) -> Result<(), LedgerError> {
        if self.defect != Some(Defect::SwitchWithoutFlush) {
            self.flush_point()?;
        }
        self.guarded(Self::checkpoint_if_due)?;
        self.phase = Phase::Consensus;
        Ok(())
    }

    /// The stage timings, shared with whoever verifies and whoever serves metrics.
    pub fn timings(&self) -> Arc<Timings> {
        Arc::clone(&self.timings)
    }

    /// The log.
    pub fn log(&self) -> &Log {
        &self.log
    }

    /// Refuses after a failure, and remembers one. A block that was found invalid changed nothing and is no failure.
    fn guarded<T>(&mut self, act: impl FnOnce(&mut Self) -> Result<T, LedgerError>) -> Result<T, LedgerError> {
        if let Some(reason) = &self.poisoned {
            return Err(LedgerError::Poisoned(reason.clone()));
        }
        let result = act(self);
        if let Err(error) = &result
            && !matches!(error, LedgerError::Invalid(_))
        {
            self.poisoned = Some(error.to_string());
        }
        result
    }
}

impl Drop for Ledger {
    fn drop(&mut self) {
        if self.defect == Some(Defect::FlushOnStop) {
            // Planted: half of what is held.
            let _ = self.blocks.commit();
        }
    }
}

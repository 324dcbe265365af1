//! Applying a block, and the order of its writes under each storage discipline.
//!
//! | discipline | commits of one block, each one sync |
//! | --- | --- |
//! | `per-block`, `no-sync` | block store: block and height · block store: flush · state: results · application · state: state |
//! | `single-flush` | block store · state: results · application · state: state |
//! | `deferred` in block sync | none; at a flush point block store with the window's record · state · application |
//! | `deferred` otherwise | as `single-flush` |

use std::sync::Arc;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::Instant;

use super::events::BlockEvent;
use super::{Applied, Ledger, LedgerError, Phase, Stage, blocks, states};
use crate::node::app::checkpoint;
use crate::node::codec::Codec;
use crate::node::config::Storage;
use crate::node::defect::Defect;
use crate::node::store::StoreError;
use crate::node::types::{Block, BlockId, BlockResults, Commit, Height};

impl Ledger {
    /// Whether blocks are held at this moment.
    fn holds(&self) -> bool {
        let switch_lost = self.defect == Some(Defect::SwitchWithoutFlush);
        self.storage == Storage::Deferred && (self.phase == Phase::BlockSync || switch_lost)
    }

    pub(super) fn apply(
        &mut self,
        block: &Arc<Block>,
        block_id: &BlockId,
        commit: &Commit,
        after_save: &mut dyn FnMut(Height) -> std::io::Result<()>,
    ) -> Result<Applied, LedgerError> {
        let height = block.header.height;
        let start = Instant::now();
        self.state.check(block)?;
        if block_id.hash != block.header.hash() {
            return Err(super::InvalidBlock { height, field: "block id" }.into());
        }
        let mut lap = self.timings.lap(Stage::VerifyBlock, start);
        self.save_block(block, block_id, commit)?;
        lap = self.timings.lap(Stage::Save, lap);
        if self.defect == Some(Defect::FlushInsideBlock) && self.is_flush_due() {
            self.write_window(height)?;
        }
        after_save(height).map_err(|source| LedgerError::AfterSave { height, source })?;
        let results = self.app.execute(height, &block.txs)?;
        self.timings.lap(Stage::ExecAbci, lap);
        self.last_commit = Some(commit.clone());
        let halt_before = self.state.params.halt_height;
        self.take_results(block, block_id, results)?;
        let halt = self.halted().is_some();
        if self.holds() {
            let halts = halt || self.state.params.halt_height != halt_before;
            let flush = (halts && self.defect != Some(Defect::HaltUnflushed)) || self.is_flush_due();
            if flush {
                self.flush_held()?;
            }
        }
        self.checkpoint_if_due()?;
        if self.fire_again_at.is_some_and(|at| Instant::now() >= at) {
            self.fire_again_at = None;
            self.fire_again()?;
        }
        self.timings.block_done(self.log_timing.then_some(&self.log), height);
        Ok(Applied { height, app_hash: self.state.app_hash, halt })
    }

    /// Puts the block into the block store and, where nothing is held, writes it.
    fn save_block(&mut self, block: &Block, block_id: &BlockId, commit: &Commit) -> Result<(), LedgerError> {
        let height = block.header.height;
        let initial = self.state.initial_height;
        if self.defect == Some(Defect::HeightRecordEarly) && !self.holds() {
            blocks::put_height(&mut self.blocks, height, initial);
            self.blocks.commit()?;
        }
        blocks::put_block(&mut self.blocks, block, block.to_bytes(), block_id, commit);
        blocks::put_height(&mut self.blocks, height, initial);
        if self.holds() {
            return Ok(());
        }
        if self.window_on_disk {
            blocks::clear_window(&mut self.blocks);
            self.window_on_disk = false;
        }
        self.blocks.commit()?;
        if matches!(self.storage, Storage::PerBlock | Storage::NoSync) {
            blocks::put_flushed(&mut self.blocks, height);
            self.blocks.commit()?;
        }
        Ok(())
    }

    /// Saves results, application and state of an executed block in this order, then tells about it.
    pub(super) fn take_results(
        &mut self,
        block: &Arc<Block>,
        block_id: &BlockId,
        results: BlockResults,
    ) -> Result<(), LedgerError> {
        let height = block.header.height;
        let held = self.holds();
        let mut lap = Instant::now();
        states::put_results(&mut self.states, height, &results);
        if !held && self.defect != Some(Defect::ResultsUnsynced) {
            self.states.commit()?;
        }
        lap = self.timings.lap(Stage::ExecSaveResults, lap);
        if !held {
            self.app.commit()?;
        }
        lap = self.timings.lap(Stage::ExecAppCommit, lap);
        self.take_state(block, block_id, &results);
        if !held {
            self.states.commit()?;
            self.publish_durable();
        }
        lap = self.timings.lap(Stage::ExecSaveState, lap);
        let event = BlockEvent { height, block: Arc::clone(block), block_id: *block_id, results: Arc::new(results) };
        if !held || self.defect == Some(Defect::EventsEarly) {
            self.events.fire(event);
        } else {
            self.held_events.push(event);
        }
        self.timings.lap(Stage::ExecEvents, lap);
        Ok(())
    }

    /// Goes to the state after the block, in memory and in the overlay.
    pub(super) fn take_state(&mut self, block: &Block, block_id: &BlockId, results: &BlockResults) {
        let state = self.state.after(&block.header, block_id, results);
        states::put_state(&mut self.states, &self.state, &state);
        self.applied.store(state.last_height, Ordering::Release);
        *self.held_app.lock().unwrap_or_else(PoisonError::into_inner) = (state.last_height, state.app_hash);
        self.state = state;
    }

    /// The state is on disk: that is what others may see from now on.
    pub(super) fn publish_durable(&mut self) {
        self.flushed = self.state.last_height;
        let state = (self.flushed != 0).then(|| Arc::new(self.state.clone()));
        *self.durable.lock().unwrap_or_else(PoisonError::into_inner) = state;
    }

    /// Whether a flush point is due by time or by size.
    fn is_flush_due(&self) -> bool {
        let held = self.blocks.held_bytes() + self.states.held_bytes() + self.app.store().held_bytes();
        held > self.flush.max_bytes || self.flush_deadline().is_some_and(|deadline| Instant::now() >= deadline)
    }

    /// A flush point: the window's blocks become durable together, then its events fire.
    pub(super) fn flush_held(&mut self) -> Result<(), LedgerError> {
        let to = self.state.last_height;
        if self.flushed == to {
            return Ok(());
        }
        self.write_window(to)?;
        for event in std::mem::take(&mut self.held_events) {
            if self.defect != Some(Defect::EventsSkipEmpty) || !event.block.txs.is_empty() {
                self.events.fire(event);
            }
        }
        Ok(())
    }

    /// Block store with the record of the window, then state, then application: each one synced batch.
    fn write_window(&mut self, to: Height) -> Result<(), LedgerError> {
        let start = Instant::now();
        self.log.flush_point(self.flushed, to);
        blocks::put_window(&mut self.blocks, self.flushed, to);
        self.window_on_disk = true;
        let ignore = self.defect == Some(Defect::IgnoreFailedWrite);
        let step = |result: Result<(), StoreError>| if ignore { Ok(()) } else { result };
        match self.defect {
            Some(Defect::StateBeforeStore) => {
                step(self.states.commit())?;
                step(self.blocks.commit())?;
                step(self.app.commit())?;
            }
            Some(Defect::AppBeforeState) => {
                step(self.blocks.commit())?;
                step(self.app.commit())?;
                step(self.states.commit())?;
            }
            _ => {
                step(self.blocks.commit())?;
                step(self.states.commit())?;
                step(self.app.commit())?;
            }
        }
        self.publish_durable();
        self.last_flush = Instant::now();
        self.timings.record(Stage::Flush, self.last_flush - start);
        Ok(())
    }

    /// Makes a checkpoint if the last block calls for one. A checkpoint is a copy of the version on disk, so that blocks
    /// held are flushed first.
    pub(super) fn checkpoint_if_due(&mut self) -> Result<(), LedgerError> {
        let time_ms = self.state.last_time_ms;
        let now_ms = u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap_or(0);
        let due = self.checkpoints.as_ref().is_some_and(|checkpoints| checkpoints.schedule.is_due(time_ms, now_ms));
        if !due || self.state.last_height == 0 {
            return Ok(());
        }
        self.flush_held()?;
        let start = Instant::now();
        if let Some(checkpoints) = &mut self.checkpoints {
            checkpoint::make(self.app.store().reader(), &checkpoints.folder, checkpoints.settings.keep)?;
            checkpoints.schedule.made(time_ms);
        }
        self.timings.record(Stage::ExecCheckpoint, start.elapsed());
        Ok(())
    }
}

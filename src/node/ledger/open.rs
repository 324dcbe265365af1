//! Opening a home: the handshake between the three heights, and what brings them together.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::blocks;
use super::events::{BlockEvent, EventSink};
use super::handshake::{self, Heights, LastBlock, Steps};
use super::{ChainState, Checkpointing, Ledger, LedgerError, Phase, Timings, states};
use crate::node::app::App;
use crate::node::app::checkpoint::{self, Schedule};
use crate::node::config::{Home, NodeConfig, Storage};
use crate::node::defect::Defect;
use crate::node::log::{Log, Mode};
use crate::node::store::{Disk, FileDisk, Store, StoreError, StoreName};
use crate::node::types::{Block, BlockId, Commit, Genesis, Hash, Height};

/// The heights on disk.
pub(super) fn heights(blocks: &Store, states: &Store, app: &Store) -> Result<Heights, StoreError> {
    Ok(Heights { app: app.reader().height()?, state: states.reader().height()?, store: blocks.reader().height()? })
}

impl Ledger {
    /// Opens the databases of a home, logs the handshake line, and brings the three heights together: lowers the block
    /// store after a flush that was cut, executes again what the application lacks, takes over what the state lacks.
    pub fn open(
        home: &Home,
        config: &NodeConfig,
        genesis: &Genesis,
        log: Log,
        events: Box<dyn EventSink>,
    ) -> Result<Self, LedgerError> {
        if config.planted_defect == Some(Defect::HeightRegress) {
            for name in StoreName::ALL {
                let _ = std::fs::remove_file(home.data().join(name.file()));
            }
        }
        let disk = FileDisk::new(&home.data(), config.storage != Storage::NoSync);
        Self::open_on(&disk, home, config, genesis, log, events)
    }

    /// As [`Ledger::open`], on any disk.
    pub fn open_on(
        disk: &dyn Disk,
        home: &Home,
        config: &NodeConfig,
        genesis: &Genesis,
        log: Log,
        events: Box<dyn EventSink>,
    ) -> Result<Self, LedgerError> {
        let defect = config.planted_defect;
        let blocks = Store::open(disk, StoreName::Blocks)?;
        let mut states = Store::open(disk, StoreName::State)?;
        let app_store = Store::open(disk, StoreName::App)?;
        let heights = heights(&blocks, &states, &app_store)?;
        log.handshake(heights.app, heights.store, heights.state);
        let steps = steps(heights, &blocks, genesis, defect)?;
        let app = App::open(app_store, genesis, defect)?;
        let state = match states::state(states.reader())? {
            Some(state) => state,
            None => {
                // The genesis state's hash is that of an application which has executed nothing.
                let hash = if heights.app == 0 { app.hash() } else { first_app_hash(&blocks, genesis)? };
                let state = ChainState::genesis(genesis, hash);
                states::put_genesis(&mut states, &state);
                state
            }
        };
        if state.chain_id != genesis.chain_id {
            return Err(LedgerError::OtherChain { found: state.chain_id, expected: genesis.chain_id.clone() });
        }
        let last_commit = blocks::commit(&blocks, state.last_height)?;
        let window_on_disk = blocks::window(blocks.reader())?.is_some();
        let checkpoints = checkpointing(home, config, &blocks)?;
        let mut ledger = Self {
            storage: config.storage,
            flush: config.flush,
            own_halt: config.halt_height,
            defect,
            log,
            log_timing: config.timing,
            events,
            blocks,
            states,
            app,
            flushed: state.last_height,
            applied: Arc::new(AtomicU64::new(state.last_height)),
            last_set: Arc::default(),
            durable: Arc::default(),
            held_app: Arc::new(Mutex::new((heights.app, Hash::default()))),
            state,
            last_commit,
            held_events: Vec::new(),
            last_flush: Instant::now(),
            fire_again_at: None,
            window_on_disk,
            // So that the blocks of the handshake are written singly, whatever the discipline.
            phase: Phase::Consensus,
            poisoned: None,
            checkpoints,
            timings: Arc::new(Timings::default()),
        };
        ledger.publish_durable();
        ledger.bring_together(heights, steps)?;
        ledger.begin_block_sync();
        Ok(ledger)
    }

    fn bring_together(&mut self, heights: Heights, steps: Steps) -> Result<(), LedgerError> {
        if !steps.is_nothing() {
            self.log.mode(Mode::Replay, heights.store);
        }
        if let Some(to) = steps.lower_to {
            self.log.info("rewind", &[("store", &StoreName::Blocks), ("from", &heights.store), ("to", &to)]);
            blocks::lower(&mut self.blocks, heights.store, to);
            self.blocks.commit()?;
            self.window_on_disk = false;
        }
        if let Some((first, last)) = steps.app {
            self.log.info("replay on the application", &[("from", &first), ("to", &last)]);
            for height in first..=last {
                self.replay_on_app(height)?;
            }
        }
        match steps.last {
            LastBlock::Done => {}
            LastBlock::Execute(height) => {
                self.log.info("replay the last block", &[("height", &height), ("application", &"real")]);
                self.execute_last(height)?;
            }
            LastBlock::StoredResults(height) => {
                self.log.info("replay the last block", &[("height", &height), ("application", &"stored results")]);
                self.take_stored_results(height)?;
            }
        }
        if self.app.hash() != self.state.app_hash {
            let text = format!(
                "application hash at height {} is {}, the state says {}",
                self.app.height(),
                self.app.hash(),
                self.state.app_hash
            );
            return Err(LedgerError::Inconsistent(text));
        }
        if self.defect == Some(Defect::EventsTwice) && self.state.last_height != 0 {
            self.fire_again()?;
            // And late enough for somebody to listen again.
            self.fire_again_at = Some(Instant::now() + Duration::from_millis(700));
        }
        Ok(())
    }

    /// The application executes a block that the state has; the hash must be the one that was agreed on.
    fn replay_on_app(&mut self, height: Height) -> Result<(), LedgerError> {
        let block = self.stored_block(height)?;
        let results = self.app.execute(height, &block.txs)?;
        let agreed = if height == self.state.last_height {
            self.state.app_hash
        } else {
            let next = blocks::meta(&self.blocks, height + 1)?.ok_or_else(|| missing("block", height + 1))?;
            next.header.app_hash
        };
        if results.app_hash != agreed {
            let text = format!("replay of block {height} gives application hash {}, not {agreed}", results.app_hash);
            return Err(LedgerError::Inconsistent(text));
        }
        Ok(self.app.commit()?)
    }

    /// The application executes the block that the state lacks.
    fn execute_last(&mut self, height: Height) -> Result<(), LedgerError> {
        let block = Arc::new(self.stored_block(height)?);
        let (block_id, commit) = self.stored_proof(height)?;
        self.state.check(&block)?;
        let results = self.app.execute(height, &block.txs)?;
        self.last_commit = Some(commit);
        self.take_results(&block, &block_id, results)
    }

    /// The state takes over the results that were saved before the application committed.
    fn take_stored_results(&mut self, height: Height) -> Result<(), LedgerError> {
        let block = Arc::new(self.stored_block(height)?);
        let (block_id, commit) = self.stored_proof(height)?;
        self.state.check(&block)?;
        let results = states::results(&self.states, height)?.ok_or_else(|| missing("results", height))?;
        if results.app_hash != self.app.hash() {
            let text = format!(
                "application hash at height {height} is {}, its results say {}",
                self.app.hash(),
                results.app_hash
            );
            return Err(LedgerError::Inconsistent(text));
        }
        self.last_commit = Some(commit);
        self.take_state(&block, &block_id, &results);
        self.states.commit()?;
        self.publish_durable();
        self.events.fire(BlockEvent { height, block, block_id, results: Arc::new(results) });
        Ok(())
    }

    /// Planted: the last blocks' events once more.
    pub(super) fn fire_again(&mut self) -> Result<(), LedgerError> {
        let last = self.state.last_height;
        for height in last.saturating_sub(2).max(self.state.initial_height)..=last {
            let block = Arc::new(self.stored_block(height)?);
            let results = states::results(&self.states, height)?.ok_or_else(|| missing("results", height))?;
            let (block_id, _) = self.stored_proof(height)?;
            self.events.fire(BlockEvent { height, block, block_id, results: Arc::new(results) });
        }
        Ok(())
    }

    fn stored_block(&self, height: Height) -> Result<Block, LedgerError> {
        blocks::block(&self.blocks, height)?.ok_or_else(|| missing("block", height))
    }

    fn stored_proof(&self, height: Height) -> Result<(BlockId, Commit), LedgerError> {
        let meta = blocks::meta(&self.blocks, height)?.ok_or_else(|| missing("block", height))?;
        let commit = blocks::commit(&self.blocks, height)?.ok_or_else(|| missing("commit", height))?;
        Ok((meta.block_id, commit))
    }
}

fn missing(what: &str, height: Height) -> LedgerError {
    LedgerError::Inconsistent(format!("could not find {what} for height {height}"))
}

fn steps(heights: Heights, blocks: &Store, genesis: &Genesis, defect: Option<Defect>) -> Result<Steps, LedgerError> {
    let window = match defect {
        Some(Defect::NoRewind) => None,
        Some(Defect::RewindAlways) => Some((heights.state, heights.store)),
        _ => blocks::window(blocks.reader())?,
    };
    let base = blocks::base(blocks)?;
    Ok(handshake::decide(heights, handshake::Blocks { initial: genesis.initial_height, base, window })?)
}

/// The application hash before the first block, as its header says.
fn first_app_hash(blocks: &Store, genesis: &Genesis) -> Result<Hash, LedgerError> {
    let first = blocks::meta(blocks, genesis.initial_height)?;
    Ok(first.ok_or_else(|| missing("block", genesis.initial_height))?.header.app_hash)
}

fn checkpointing(home: &Home, config: &NodeConfig, blocks: &Store) -> Result<Option<Checkpointing>, LedgerError> {
    let Some(settings) = config.checkpoints else { return Ok(None) };
    let folder = home.checkpoints();
    let last_ms = match checkpoint::list(&folder).last() {
        Some(height) => blocks::meta(blocks, *height)?.map(|meta| meta.header.time_ms),
        None => None,
    };
    Ok(Some(Checkpointing { settings, schedule: Schedule::new(settings, last_ms), folder }))
}

//! What others may see of the ledger: the version on disk.
//!
//! A node that holds blocks in memory answers as if it did not have them yet, so that it never says what a crash takes back.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use super::{ChainState, Heights, Ledger, LedgerError, Timings, blocks, states};
use crate::node::app;
use crate::node::config::Storage;
use crate::node::defect::Defect;
use crate::node::store::{Gate, Reader, StoreError, StoreName};
use crate::node::types::{Block, BlockMeta, BlockResults, Commit, Hash, Height, TxResult, ValidatorSet};

/// Why the application cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum QueryError {
    /// A fresh node that holds its first blocks.
    #[error("answer from the version on disk: nothing is on disk before the first flush point")]
    NoFlushYet,
    /// The database.
    #[error(transparent)]
    Store(#[from] StoreError),
}

/// The application's height and hash.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AppInfo {
    /// Height of its last block.
    pub height: Height,
    /// Hash after it.
    pub app_hash: Hash,
    /// Transactions executed since the start of the chain.
    pub tx_count: u64,
}

/// The answer to a query.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueryAnswer {
    /// The height of the version that it is from.
    pub height: Height,
    /// The value, if there is one.
    pub value: Option<Vec<u8>>,
}

/// Read access to a ledger from any thread. Cheap to clone.
#[derive(Clone)]
pub struct View {
    blocks: Reader,
    states: Reader,
    app: Reader,
    gates: [(StoreName, Arc<Gate>); 3],
    deferred: bool,
    applied: Arc<AtomicU64>,
    last_set: Arc<states::LastSet>,
    durable: Arc<Mutex<Option<Arc<ChainState>>>>,
    timings: Arc<Timings>,
    /// Only for a planted defect: the application's height and hash with what is held.
    held_app: Option<Arc<Mutex<(Height, Hash)>>>,
}

impl Ledger {
    /// Read access for others.
    pub fn view(&self) -> View {
        let app = self.app.store();
        View {
            blocks: self.blocks.reader().clone(),
            states: self.states.reader().clone(),
            app: app.reader().clone(),
            gates: [
                (StoreName::Blocks, Arc::clone(self.blocks.gate())),
                (StoreName::State, Arc::clone(self.states.gate())),
                (StoreName::App, Arc::clone(app.gate())),
            ],
            deferred: self.storage == Storage::Deferred,
            applied: Arc::clone(&self.applied),
            last_set: Arc::clone(&self.last_set),
            durable: Arc::clone(&self.durable),
            timings: Arc::clone(&self.timings),
            held_app: (self.defect == Some(Defect::QueriesFromHeld)).then(|| Arc::clone(&self.held_app)),
        }
    }
}

impl View {
    /// The three heights on disk.
    pub fn heights(&self) -> Result<Heights, LedgerError> {
        Ok(Heights { app: self.app.height()?, state: self.states.height()?, store: self.blocks.height()? })
    }

    /// Height of the last applied block, held or not: progress, not an answer about the chain.
    pub fn applied_height(&self) -> Height {
        self.applied.load(Ordering::Acquire)
    }

    /// Lowest height kept, 0 when there is none.
    pub fn base(&self) -> Result<Height, LedgerError> {
        Ok(blocks::base(&self.blocks)?)
    }

    /// The state after the last block on disk; `None` before the first.
    pub fn state(&self) -> Result<Option<Arc<ChainState>>, LedgerError> {
        Ok(self.durable.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }

    /// A block.
    pub fn block(&self, height: Height) -> Result<Option<Block>, LedgerError> {
        Ok(blocks::block(&self.blocks, height)?)
    }

    /// Header, name and size of a block.
    pub fn meta(&self, height: Height) -> Result<Option<BlockMeta>, LedgerError> {
        Ok(blocks::meta(&self.blocks, height)?)
    }

    /// The commit of a block.
    pub fn commit(&self, height: Height) -> Result<Option<Commit>, LedgerError> {
        Ok(blocks::commit(&self.blocks, height)?)
    }

    /// The results of a block.
    pub fn results(&self, height: Height) -> Result<Option<BlockResults>, LedgerError> {
        Ok(states::results(&self.states, height)?)
    }

    /// Who decides a height, known up to two above the state's.
    pub fn validators(&self, height: Height) -> Result<Option<ValidatorSet>, LedgerError> {
        if height > self.states.height()? + 2 {
            return Ok(None);
        }
        Ok(states::validators_at(&|prefix, key| self.states.last_until(prefix, key), height, &self.last_set)?)
    }

    /// Height and hash of the application.
    pub fn app_info(&self) -> Result<AppInfo, QueryError> {
        if let Some(held) = &self.held_app {
            let (height, app_hash) = *held.lock().unwrap_or_else(PoisonError::into_inner);
            return Ok(AppInfo { height, app_hash, tx_count: app::tx_count(&self.app)? });
        }
        let height = self.answering_height()?;
        Ok(AppInfo { height, app_hash: app::stored_hash(&self.app)?, tx_count: app::tx_count(&self.app)? })
    }

    /// The value that a transaction stored under `key`.
    pub fn query(&self, key: &[u8]) -> Result<QueryAnswer, QueryError> {
        Ok(QueryAnswer { height: self.answering_height()?, value: self.app.get(&app::user_row(key))? })
    }

    /// Whether a transaction would take effect in the next block: a simulation against the version on disk.
    pub fn simulate(&self, tx: &[u8]) -> Result<TxResult, QueryError> {
        Ok(app::simulate(&self.app, self.answering_height()? + 1, tx)?)
    }

    /// The stage timings.
    pub fn timings(&self) -> &Timings {
        &self.timings
    }

    /// Writes and syncs of each database since the start.
    pub fn disk_counts(&self) -> [(StoreName, u64, u64); 3] {
        self.gates.each_ref().map(|(name, gate)| (*name, gate.writes(), gate.syncs()))
    }

    /// The application's height on disk; refused where the first window is still held.
    fn answering_height(&self) -> Result<Height, QueryError> {
        let height = self.app.height()?;
        if height == 0 && self.deferred { Err(QueryError::NoFlushYet) } else { Ok(height) }
    }
}

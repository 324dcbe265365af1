//! Taking a node back by one block, off-line.
//!
//! The state goes back to what it was before the last block; the block stays in the block store, and the next start
//! brings it in again. Where the state lacks the last block already, there is nothing to take back.

use super::handshake::Heights;
use super::open::heights;
use super::{ChainState, LedgerError, blocks, states};
use crate::node::store::{Disk, Store, StoreName};
use crate::node::types::{Genesis, Height};

/// What a rollback found and did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RolledBack {
    /// The heights before.
    pub before: Heights,
    /// The height of the state after.
    pub state: Height,
}

/// Rolls back the folder on `disk`. `refuse_far_ahead` is false only for a planted defect.
///
/// A block store more than one block ahead of its state is refused: it is what a cut flush leaves, and the next start
/// mends it; taking the state back on top of it would lose more than one block.
pub fn rollback(disk: &dyn Disk, genesis: &Genesis, refuse_far_ahead: bool) -> Result<RolledBack, LedgerError> {
    let block_store = Store::open(disk, StoreName::Blocks)?;
    let mut state_store = Store::open(disk, StoreName::State)?;
    let app = Store::open(disk, StoreName::App)?;
    let before = heights(&block_store, &state_store, &app)?;
    let refuse = |text: String| Err(LedgerError::Inconsistent(format!("roll back app/state/store {before}: {text}")));
    let next = if before.state == 0 { genesis.initial_height } else { before.state + 1 };
    if before.store > next && refuse_far_ahead {
        return refuse(format!("the block store is {} blocks ahead of the state", before.store + 1 - next));
    }
    if before.state > before.store || before.app > before.store {
        return refuse("the block store is behind".to_owned());
    }
    if before.store == next {
        return Ok(RolledBack { before, state: before.state });
    }
    if before.state <= genesis.initial_height {
        return refuse("there is no block before this one".to_owned());
    }
    let Some(state) = states::state(state_store.reader())? else {
        return refuse("there is no state".to_owned());
    };
    let earlier = earlier(&block_store, &state_store, &state)?;
    states::overwrite_state(&mut state_store, &earlier);
    state_store.commit()?;
    Ok(RolledBack { before, state: earlier.last_height })
}

/// The state before the last block, put together from that block's header and what was in force then.
fn earlier(block_store: &Store, state_store: &Store, state: &ChainState) -> Result<ChainState, LedgerError> {
    let height = state.last_height;
    let missing = |what: &str| LedgerError::Inconsistent(format!("could not find {what} for height {height}"));
    let header = blocks::meta(block_store, height)?.ok_or_else(|| missing("block"))?.header;
    let before = blocks::meta(block_store, height - 1)?.ok_or_else(|| missing("the block before"))?;
    let last_until = |prefix: &[u8], key: &[u8]| state_store.last_until(prefix, key);
    let last_set = states::LastSet::default();
    let validators_at = |height| states::validators_at(&last_until, height, &last_set);
    Ok(ChainState {
        chain_id: state.chain_id.clone(),
        initial_height: state.initial_height,
        last_height: height - 1,
        last_block_id: before.block_id,
        last_time_ms: before.header.time_ms,
        last_validators: validators_at(height - 1)?.ok_or_else(|| missing("earlier validators"))?,
        validators: validators_at(height)?.ok_or_else(|| missing("validators"))?,
        next_validators: validators_at(height + 1)?.ok_or_else(|| missing("next validators"))?,
        params: states::params_at(&last_until, height)?.ok_or_else(|| missing("parameters"))?,
        app_hash: header.app_hash,
        last_results_hash: header.last_results_hash,
    })
}

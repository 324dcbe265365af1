//! Rows of the state database: `state` and `height` after the last block, `R:<height>` results, and, where they change,
//! `V:<height>` validators and `P:<height>` parameters in force from that height on (20 digits, so that they sort).

use std::sync::{Mutex, PoisonError};

use super::blocks::Get;
use super::state::ChainState;
use crate::node::codec::Codec;
use crate::node::store::{Reader, Row, Store, StoreError, StoreName};
use crate::node::types::{BlockResults, ConsensusParams, Height, ValidatorSet};

const STATE: &[u8] = b"state";
const VALIDATORS: &str = "V:";
const PARAMS: &str = "P:";

fn results_key(height: Height) -> Vec<u8> {
    format!("R:{height}").into_bytes()
}

fn from_key(prefix: &str, height: Height) -> Vec<u8> {
    format!("{prefix}{height:020}").into_bytes()
}

/// Puts what is in force from the first height on.
pub(super) fn put_genesis(store: &mut Store, state: &ChainState) {
    store.put(from_key(VALIDATORS, state.initial_height), state.validators.to_bytes());
    store.put(from_key(PARAMS, state.initial_height), state.params.to_bytes());
}

/// Puts the results of a block.
pub(super) fn put_results(store: &mut Store, height: Height, results: &BlockResults) {
    store.put(results_key(height), results.to_bytes());
}

/// Puts the state after a block; `before` is the state before it.
pub(super) fn put_state(store: &mut Store, before: &ChainState, state: &ChainState) {
    let height = state.last_height;
    if state.next_validators != before.next_validators {
        store.put(from_key(VALIDATORS, height + 2), state.next_validators.to_bytes());
    }
    if state.params != before.params {
        store.put(from_key(PARAMS, height + 1), state.params.to_bytes());
    }
    overwrite_state(store, state);
}

/// Puts the state and its height, nothing else.
pub(super) fn overwrite_state(store: &mut Store, state: &ChainState) {
    store.put(STATE, state.to_bytes());
    store.put_height(state.last_height);
}

fn decoded<T: Codec>(bytes: &[u8], what: &str) -> Result<T, StoreError> {
    T::from_bytes(bytes).map_err(|error| StoreError::corrupt(StoreName::State, format!("{what}: {error}")))
}

/// The state in the version on disk; `None` before the first block.
pub(super) fn state(reader: &Reader) -> Result<Option<ChainState>, StoreError> {
    reader.get(STATE)?.map(|bytes| decoded(&bytes, "state")).transpose()
}

/// The results of a block.
pub(super) fn results(from: &dyn Get, height: Height) -> Result<Option<BlockResults>, StoreError> {
    from.row(&results_key(height))?.map(|bytes| decoded(&bytes, "results")).transpose()
}

type LastUntil<'a> = &'a dyn Fn(&[u8], &[u8]) -> Result<Option<Row>, StoreError>;

/// The set that was decoded last. Decoding checks every key to be a point of its group, 0.1 ms each, and the set rarely
/// changes from one height to the next.
#[derive(Debug, Default)]
pub(super) struct LastSet(Mutex<Option<(Vec<u8>, ValidatorSet)>>);

/// Who decides a height.
pub(super) fn validators_at(
    last_until: LastUntil<'_>,
    height: Height,
    last_set: &LastSet,
) -> Result<Option<ValidatorSet>, StoreError> {
    let Some((_, bytes)) = last_until(VALIDATORS.as_bytes(), &from_key(VALIDATORS, height))? else { return Ok(None) };
    let mut last = last_set.0.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some((known, set)) = &*last
        && *known == bytes
    {
        return Ok(Some(set.clone()));
    }
    let set: ValidatorSet = decoded(&bytes, "validators")?;
    *last = Some((bytes, set.clone()));
    Ok(Some(set))
}

/// The parameters in force for a height.
pub(super) fn params_at(last_until: LastUntil<'_>, height: Height) -> Result<Option<ConsensusParams>, StoreError> {
    let row = last_until(PARAMS.as_bytes(), &from_key(PARAMS, height))?;
    row.map(|(_, bytes)| decoded(&bytes, "parameters")).transpose()
}

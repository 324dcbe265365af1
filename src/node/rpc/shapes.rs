//! Blocks, commits and results as CometBFT writes them in JSON: 64-bit integers as text, 32-bit ones as numbers, hashes
//! in upper-case hex, keys and transactions in base64.
//!
//! Two things have no counterpart there. A commit here is one aggregated signature without times: `signatures` tells who
//! signed, each with a `null` signature, and `aggregated_signature` holds the sum. And keys are BLS keys.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::node::crypto::PublicKey;
use crate::node::types::{
    Block, BlockId, BlockMeta, BlockResults, Commit, Hash, Header, TxResult, ValidatorSet, sha256,
};

/// Hash of nothing, which CometBFT gives for empty evidence.
const EMPTY: &[u8] = b"";
/// Time where there is none.
const NO_TIME: &str = "0001-01-01T00:00:00Z";
/// Flag of a validator that did not sign.
const ABSENT: u8 = 1;
/// Flag of a validator that signed for the block.
const COMMIT: u8 = 2;

/// Upper-case hex; empty for "none".
pub(super) fn hash(hash: &Hash) -> String {
    if hash.is_zero() { String::new() } else { hash.to_string() }
}

/// RFC 3339; a time out of range, which no valid block has, is shown as none.
pub(super) fn time(ms: u64) -> String {
    let stamp = i64::try_from(ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    stamp.map_or_else(|| NO_TIME.to_owned(), |stamp| stamp.to_string())
}

/// `{type, value}`.
pub(super) fn public_key(key: &PublicKey) -> Value {
    json!({ "type": "cometbft/PubKeyBls12_381", "value": STANDARD.encode(key.to_bytes()) })
}

/// `{hash, parts}`.
pub(super) fn block_id(id: &BlockId) -> Value {
    json!({ "hash": hash(&id.hash), "parts": { "total": id.parts.total, "hash": hash(&id.parts.hash) } })
}

/// A header.
pub(super) fn header(header: &Header) -> Value {
    json!({
        "version": { "block": "1", "app": "1" },
        "chain_id": header.chain_id,
        "height": header.height.to_string(),
        "time": time(header.time_ms),
        "last_block_id": block_id(&header.last_block_id),
        "last_commit_hash": hash(&header.last_commit_hash),
        "data_hash": hash(&header.data_hash),
        "validators_hash": hash(&header.validators_hash),
        "next_validators_hash": hash(&header.next_validators_hash),
        "consensus_hash": hash(&header.consensus_hash),
        "app_hash": hash(&header.app_hash),
        "last_results_hash": hash(&header.last_results_hash),
        "evidence_hash": sha256(EMPTY).to_string(),
        "proposer_address": header.proposer.to_string().to_ascii_uppercase(),
    })
}

/// A commit; `validators` are those of its height, where they are still known.
pub(super) fn commit(commit: &Commit, validators: Option<&ValidatorSet>) -> Value {
    let all = validators.map(ValidatorSet::validators).unwrap_or_default();
    let signature = |(index, validator): (usize, &crate::node::types::Validator)| {
        let signed = commit.signers.contains(index);
        json!({
            "block_id_flag": if signed { COMMIT } else { ABSENT },
            "validator_address": if signed { validator.address.to_string().to_ascii_uppercase() } else { String::new() },
            "timestamp": NO_TIME,
            "signature": Value::Null,
        })
    };
    let empty = commit.height == 0;
    let signatures: Vec<Value> = if empty { Vec::new() } else { all.iter().enumerate().map(signature).collect() };
    json!({
        "height": commit.height.to_string(),
        "round": commit.round,
        "block_id": block_id(&commit.block_id),
        "signatures": signatures,
        "aggregated_signature": if empty { Value::Null } else { json!(STANDARD.encode(commit.signature.0)) },
    })
}

/// A block; `validators` are those that signed the commit in it.
pub(super) fn block(block: &Block, validators: Option<&ValidatorSet>) -> Value {
    json!({
        "header": header(&block.header),
        "data": { "txs": block.txs.iter().map(|tx| STANDARD.encode(tx)).collect::<Vec<_>>() },
        "evidence": { "evidence": [] },
        "last_commit": commit(&block.last_commit, validators),
    })
}

/// An entry of `/blockchain`.
pub(super) fn meta(meta: &BlockMeta) -> Value {
    json!({
        "block_id": block_id(&meta.block_id),
        "block_size": meta.block_size.to_string(),
        "header": header(&meta.header),
        "num_txs": meta.num_txs.to_string(),
    })
}

/// The result of one transaction.
fn tx_result(result: &TxResult) -> Value {
    json!({
        "code": result.code,
        "data": Value::Null,
        "log": result.log,
        "info": "",
        "gas_wanted": "0",
        "gas_used": "0",
        "events": [],
        "codespace": "",
    })
}

/// `/block_results`; empty lists are `null`, as there.
pub(super) fn results(height: u64, results: &BlockResults) -> Value {
    let list = |all: Vec<Value>| if all.is_empty() { Value::Null } else { Value::Array(all) };
    let update = |update: &crate::node::types::ValidatorUpdate| json!({ "pub_key": public_key(&update.pub_key), "power": update.power.to_string() });
    let params = results.params.map(|params| {
        json!({
            "block": { "max_bytes": params.block_max_bytes.to_string(), "max_gas": "-1" },
            "halt_height": params.halt_height.unwrap_or(0).to_string(),
        })
    });
    json!({
        "height": height.to_string(),
        "txs_results": list(results.txs.iter().map(tx_result).collect()),
        "finalize_block_events": Value::Null,
        "validator_updates": list(results.validator_updates.iter().map(update).collect()),
        "consensus_param_updates": params,
        "app_hash": STANDARD.encode(results.app_hash.0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_hashes() {
        assert_eq!(time(0), "1970-01-01T00:00:00Z");
        assert_eq!(time(1_767_225_600_250), "2026-01-01T00:00:00.25Z");
        assert_eq!(time(u64::MAX), NO_TIME);
        assert_eq!(hash(&Hash::default()), "");
        assert_eq!(hash(&sha256(b"")).len(), 64);
    }

    #[test]
    fn the_commit_in_the_first_block_is_empty() {
        let value = commit(&Commit::default(), None);
        assert_eq!(value["height"], "0");
        assert_eq!(value["signatures"], json!([]));
        assert_eq!(value["aggregated_signature"], Value::Null);
        assert_eq!(value["block_id"]["hash"], "");
    }

    #[test]
    fn empty_results_are_null_and_the_hash_is_base64() {
        let value = results(6, &BlockResults { app_hash: sha256(b"x"), ..BlockResults::default() });
        assert_eq!(value["height"], "6");
        assert_eq!(value["txs_results"], Value::Null);
        assert_eq!(STANDARD.decode(value["app_hash"].as_str().expect("text")).expect("base64"), sha256(b"x").0);
    }
}

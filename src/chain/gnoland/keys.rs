//! Keys of a gnoland node and of the accounts that send, derived from the plan, and their files in tm2's amino JSON.

use bech32::{Bech32, Hrp};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::chain::ChainError;
use crate::chain::ed25519::Key;
use crate::plan::Plan;

/// The human part of every address: of validators, nodes and accounts.
const PREFIX: &str = "g";

/// The key that signs votes and proposals.
pub(super) fn validator(key_seed: &str) -> Result<Key, ChainError> {
    Key::derive(key_seed, "midflush gnoland validator")
}

/// The key that names the node among its peers; its address is the node's id.
pub(super) fn node(key_seed: &str) -> Result<Key, ChainError> {
    Key::derive(key_seed, "midflush gnoland node")
}

/// The key of the n-th account that sends.
pub(super) fn account(plan: &Plan, n: u64) -> Result<Key, ChainError> {
    let seed = Sha256::digest(format!("midflush gnoland accounts {}", plan.seed));
    Key::derive(&hex::encode(seed), &format!("account {n}"))
}

/// An address as text, `g1…`.
pub(super) fn address_text(address: [u8; 20]) -> Result<String, ChainError> {
    bech32::encode::<Bech32>(Hrp::parse_unchecked(PREFIX), &address)
        .map_err(|e| ChainError::new(format!("write an address: {e}")))
}

/// A public key where any kind may stand.
pub(super) fn public_json(key: &Key) -> Value {
    json!({ "@type": "/tm.PubKeyEd25519", "value": key.public_base64() })
}

/// `secrets/priv_validator_key.json`.
pub(super) fn validator_file(key: &Key) -> Result<Value, ChainError> {
    Ok(json!({
        "priv_key": { "@type": "/tm.PrivKeyEd25519", "value": key.private_base64() },
        "pub_key": public_json(key),
        "address": address_text(key.address())?,
    }))
}

/// `secrets/node_key.json`.
pub(super) fn node_file(key: &Key) -> Value {
    json!({ "priv_key": key.private_base64() })
}

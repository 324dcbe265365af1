//! The RPC shapes of tm2: those of CometBFT with hashes in base64, and an answer of its own to a transaction.
//!
//! Seen on v1.7.1: `/status` has no `earliest_*`, `/block` has `block_meta` beside `block`, `/abci_info` spells its fields
//! `LastBlockHeight` and so on, and a GET is answered with `"id":""`. Apart from the application's height, status, peers and
//! headers are read from fields that both have.

use serde_json::Value;

use crate::chain::Rpc;
use crate::timeline::wire::{Encoding, answer};

/// Shapes of gno's tm2: header H carries the app hash after H−1, hashes are base64.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tm2Shapes;

impl Rpc for Tm2Shapes {
    fn hash_encoding(&self) -> Encoding {
        Encoding::Base64
    }

    fn app_height_name(&self) -> &'static str {
        "LastBlockHeight"
    }

    /// A transaction that was taken has `"error": null`.
    fn submitted(&self, body: &[u8]) -> bool {
        answer(body).is_ok_and(|result| result.contains_key("hash") && result.get("error") == Some(&Value::Null))
    }
}

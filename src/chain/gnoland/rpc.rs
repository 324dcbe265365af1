//! The RPC shapes of tm2: those of CometBFT with hashes in base64, and an answer of its own to a transaction.
//!
//! Seen on v1.7.1: `/status` has no `earliest_*`, `/block` has `block_meta` beside `block`, `/abci_info` spells its fields
//! `LastBlockHeight` and so on, and a GET is answered with `"id":""`. Apart from the application's height, status, peers and
//! headers are read from fields that both have.

use serde_json::Value;

use crate::chain::rpc::{APP_REQUEST, app_height, headers, headers_request, peers, status};
use crate::chain::{ChainError, Rpc};
use crate::timeline::wire::{Encoding, answer};
use crate::timeline::{Hashes, Status};

/// Shapes of gno's tm2: header H carries the app hash after H−1, hashes are base64.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Tm2Shapes;

impl Rpc for Tm2Shapes {
    fn app_hash_offset(&self) -> u64 {
        1
    }

    fn status_request(&self) -> String {
        "/status".to_owned()
    }

    fn status(&self, body: &[u8]) -> Result<Status, ChainError> {
        status(body, Encoding::Base64)
    }

    fn peers_request(&self) -> String {
        "/net_info".to_owned()
    }

    fn peers(&self, body: &[u8]) -> Result<u32, ChainError> {
        peers(body)
    }

    fn app_request(&self) -> String {
        APP_REQUEST.to_owned()
    }

    fn app_height(&self, body: &[u8]) -> Result<u64, ChainError> {
        app_height(body, "LastBlockHeight")
    }

    fn hashes_request(&self, first: u64, last: u64) -> String {
        headers_request(first, last)
    }

    fn hashes(&self, body: &[u8]) -> Result<Hashes, ChainError> {
        headers(body, Encoding::Base64)
    }

    fn submit_request(&self, transaction: &[u8]) -> String {
        format!("/broadcast_tx_sync?tx=0x{}", hex::encode(transaction))
    }

    /// A transaction that was taken has `"error": null`.
    fn submitted(&self, body: &[u8]) -> bool {
        answer(body).is_ok_and(|result| result.contains_key("hash") && result.get("error") == Some(&Value::Null))
    }
}

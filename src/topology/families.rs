//! What the language allows for each node family.

use super::types::Chain;

/// Storage disciplines of the reference node.
pub(super) const STORAGE: &[&str] = &["per-block", "single-flush", "deferred", "no-sync"];
/// Kinds of transactions of the reference application.
pub(super) const REFERENCE_KINDS: &[&str] = &["set", "validator", "params", "halt"];
/// Kinds of transactions of CometBFT's kvstore.
pub(super) const COMETBFT_KINDS: &[&str] = &["set", "validator"];
/// Built-in applications of CometBFT.
pub(super) const COMETBFT_APPS: &[&str] = &["persistent_kvstore"];
/// Databases of CometBFT 0.38.
pub(super) const COMETBFT_DATABASES: &[&str] = &["goleveldb"];
/// Settings of a reference node that the plan makes, so that `options` may not.
pub(super) const RESERVED_OPTIONS: &[&str] = &[
    "name",
    "p2p_listen",
    "rpc_listen",
    "metrics_listen",
    "peers",
    "storage",
    "unsafe",
    "block_time_ms",
    "halt_height",
];

/// The transactions that a chain's application understands.
pub(super) fn kinds(chain: &Chain) -> &'static [&'static str] {
    match chain {
        Chain::Reference(_) => REFERENCE_KINDS,
        Chain::Cometbft(_) => COMETBFT_KINDS,
    }
}

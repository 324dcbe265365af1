//! What the language allows for each node family.

use super::types::Chain;

/// Storage disciplines of the reference node.
pub(super) const STORAGE: &[&str] = &["per-block", "single-flush", "deferred", "no-sync"];
/// Kinds of transactions of the reference application.
pub(super) const REFERENCE_KINDS: &[&str] = &["set", "validator", "param"];
/// Kinds of transactions of CometBFT's kvstore.
pub(super) const COMETBFT_KINDS: &[&str] = &["set", "validator"];
/// Applications of CometBFT; the first is the default.
pub(super) const COMETBFT_APPS: &[&str] = &["persistent_kvstore", "e2e"];
/// What the `app` of a node is that has an application in a process of its own beside it.
pub const BESIDE: &str = "application";
/// What the names of such an application's stores begin with in addresses.
pub const APPLICATION_STORES: &str = "app/";
/// Databases of CometBFT; the first is the default.
pub(super) const COMETBFT_DATABASES: &[&str] = &["goleveldb", "pebbledb"];
/// Lines of CometBFT's releases.
pub(super) const COMETBFT_VERSIONS: &[&str] = &["0.37", "0.38", "1"];
/// Kinds of transactions of gnoland.
pub(super) const GNOLAND_KINDS: &[&str] = &["send"];
/// Databases of gnoland; the first is the default.
pub(super) const GNOLAND_DATABASES: &[&str] = &["pebbledb", "goleveldb"];
/// Kinds of transactions of Tenderdash's kvstore.
pub(super) const TENDERDASH_KINDS: &[&str] = &["set"];
/// Built-in applications of Tenderdash.
pub(super) const TENDERDASH_APPS: &[&str] = &["persistent_kvstore"];
/// Kinds of transactions of a chain made with the Cosmos SDK.
pub(super) const COSMOS_SDK_KINDS: &[&str] = &["send"];
/// The only kind of transactions of a family that the topology describes.
pub(super) const CUSTOM_KINDS: &[&str] = &["transaction"];
/// Settings of a reference node that a topology may hand over as they are; all others have keys of their own.
pub(super) const REFERENCE_OPTIONS: &[&str] = &["verify_window", "checkpoints", "timing", "flush", "planted_defect"];

/// The transactions that a chain's application understands, the usual one first.
pub(super) fn kinds(chain: Option<&Chain>) -> &'static [&'static str] {
    match chain {
        Some(Chain::Cometbft(cometbft)) if cometbft.app == "e2e" => &COMETBFT_KINDS[..1],
        Some(Chain::Cometbft(_)) => COMETBFT_KINDS,
        Some(Chain::Gnoland(_)) => GNOLAND_KINDS,
        Some(Chain::Tenderdash(_)) => TENDERDASH_KINDS,
        Some(Chain::CosmosSdk(_)) => COSMOS_SDK_KINDS,
        Some(Chain::Custom(_)) => CUSTOM_KINDS,
        // An unknown chain has its own problem; the longer list adds none.
        Some(Chain::Reference(_)) | None => REFERENCE_KINDS,
    }
}

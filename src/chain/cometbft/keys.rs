//! Keys of a CometBFT node, derived from the plan's key material, and their files in amino JSON.

use crate::chain::ChainError;
use crate::chain::ed25519;

/// What a key is for; each purpose has its own key from the same seed.
#[derive(Clone, Copy, Debug)]
pub(in crate::chain) enum Purpose {
    /// Signs votes and proposals.
    Validator,
    /// Names the node among its peers.
    Node,
}

/// An ed25519 key.
pub(in crate::chain) struct Key(ed25519::Key);

impl Key {
    /// Derives a key from the plan's seed, 32 bytes as hex.
    pub(in crate::chain) fn derive(key_seed: &str, purpose: Purpose) -> Result<Self, ChainError> {
        let label = match purpose {
            Purpose::Validator => "midflush cometbft validator",
            Purpose::Node => "midflush cometbft node",
        };
        ed25519::Key::derive(key_seed, label).map(Self)
    }

    /// Node id as in `id@host:port`.
    pub(in crate::chain) fn node_id(&self) -> String {
        hex::encode(self.0.address())
    }

    /// Validator address as in the genesis.
    pub(in crate::chain) fn validator_address(&self) -> String {
        hex::encode_upper(self.0.address())
    }

    /// The public key in base64.
    pub(in crate::chain) fn public_base64(&self) -> String {
        self.0.public_base64()
    }

    /// The public key in amino JSON.
    pub(in crate::chain) fn public_json(&self) -> serde_json::Value {
        serde_json::json!({ "type": "tendermint/PubKeyEd25519", "value": self.public_base64() })
    }

    /// The private key in amino JSON.
    fn private_json(&self) -> serde_json::Value {
        serde_json::json!({ "type": "tendermint/PrivKeyEd25519", "value": self.0.private_base64() })
    }

    /// `priv_validator_key.json`.
    pub(in crate::chain) fn validator_file(&self) -> serde_json::Value {
        serde_json::json!({
            "address": self.validator_address(),
            "pub_key": self.public_json(),
            "priv_key": self.private_json(),
        })
    }

    /// `node_key.json`.
    pub(in crate::chain) fn node_file(&self) -> serde_json::Value {
        serde_json::json!({ "priv_key": self.private_json() })
    }
}

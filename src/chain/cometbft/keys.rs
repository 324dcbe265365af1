//! Keys of a CometBFT node, derived from the plan's key material, and their files in amino JSON.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::SigningKey;
use sha2::{Digest, Sha256};

use crate::chain::ChainError;

/// What a key is for; each purpose has its own key from the same seed.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    /// Signs votes and proposals.
    Validator,
    /// Names the node among its peers.
    Node,
}

/// An ed25519 key.
pub(super) struct Key(SigningKey);

impl Key {
    /// Derives a key from the plan's seed, 32 bytes as hex.
    pub(super) fn derive(key_seed: &str, purpose: Purpose) -> Result<Self, ChainError> {
        let seed = hex::decode(key_seed).ok().filter(|seed| seed.len() == 32);
        let seed = seed.ok_or_else(|| ChainError::new("derive keys: the seed is not 32 bytes as hex"))?;
        let label: &[u8] = match purpose {
            Purpose::Validator => b"midflush cometbft validator",
            Purpose::Node => b"midflush cometbft node",
        };
        let secret: [u8; 32] = Sha256::new().chain_update(label).chain_update(&seed).finalize().into();
        Ok(Self(SigningKey::from_bytes(&secret)))
    }

    /// The first 20 bytes of SHA-256 over the public key; a node's id is its lower-case hex.
    fn address(&self) -> Vec<u8> {
        Sha256::digest(self.0.verifying_key().as_bytes())[..20].to_vec()
    }

    /// Node id as in `id@host:port`.
    pub(super) fn node_id(&self) -> String {
        hex::encode(self.address())
    }

    /// Validator address as in the genesis.
    pub(super) fn validator_address(&self) -> String {
        hex::encode_upper(self.address())
    }

    /// The public key in base64.
    pub(super) fn public_base64(&self) -> String {
        STANDARD.encode(self.0.verifying_key().as_bytes())
    }

    /// The public key in amino JSON.
    pub(super) fn public_json(&self) -> serde_json::Value {
        serde_json::json!({ "type": "tendermint/PubKeyEd25519", "value": self.public_base64() })
    }

    /// The private key in amino JSON: seed and public key together, 64 bytes.
    fn private_json(&self) -> serde_json::Value {
        serde_json::json!({
            "type": "tendermint/PrivKeyEd25519",
            "value": STANDARD.encode(self.0.to_keypair_bytes()),
        })
    }

    /// `priv_validator_key.json`.
    pub(super) fn validator_file(&self) -> serde_json::Value {
        serde_json::json!({
            "address": self.validator_address(),
            "pub_key": self.public_json(),
            "priv_key": self.private_json(),
        })
    }

    /// `node_key.json`.
    pub(super) fn node_file(&self) -> serde_json::Value {
        serde_json::json!({ "priv_key": self.private_json() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_two_keys_and_always_the_same() {
        let seed = "11".repeat(32);
        let key = |purpose| Key::derive(&seed, purpose).expect("a key");
        assert_eq!(key(Purpose::Node).node_id(), key(Purpose::Node).node_id());
        assert_ne!(key(Purpose::Node).node_id(), key(Purpose::Validator).node_id());
        assert!(Key::derive("11", Purpose::Node).is_err());
        assert!(Key::derive("zz", Purpose::Node).is_err());
    }

    /// Address and id of a key that `cometbft init` made.
    #[test]
    fn addresses_are_those_that_the_node_derives() {
        let made = STANDARD
            .decode("IDSkAiP9s7YdJprTZxi6+fehqWzGgQ22wjOG+ILWRcMc5Da0S42sdVOV3nXyX4+UWJjXl6NWb74U3FViPFdfYA==")
            .expect("base64");
        let secret: [u8; 32] = made[..32].try_into().expect("32 bytes");
        let key = Key(SigningKey::from_bytes(&secret));
        assert_eq!(key.0.to_keypair_bytes().to_vec(), made);
        assert_eq!(key.public_base64(), "HOQ2tEuNrHVTld518l+PlFiY15ejVm++FNxVYjxXX2A=");
        assert_eq!(key.validator_address(), "430B056E712F1C72529A957FBD36FCF635D83C25");
    }
}

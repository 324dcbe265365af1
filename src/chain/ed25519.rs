//! Ed25519 keys as CometBFT and its relatives use them: one seed of the plan gives one key for each purpose.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ed25519_dalek::{Signer as _, SigningKey};
use sha2::{Digest, Sha256};

use super::ChainError;

/// A key pair.
pub(super) struct Key(SigningKey);

impl Key {
    /// Derives a key from the plan's seed, 32 bytes as hex. Each `label` gives another key.
    pub(super) fn derive(key_seed: &str, label: &str) -> Result<Self, ChainError> {
        let seed = hex::decode(key_seed).ok().filter(|seed| seed.len() == 32);
        let seed = seed.ok_or_else(|| ChainError::new("derive keys: the seed is not 32 bytes as hex"))?;
        let secret: [u8; 32] = Sha256::new().chain_update(label).chain_update(&seed).finalize().into();
        Ok(Self(SigningKey::from_bytes(&secret)))
    }

    /// The first 20 bytes of SHA-256 over the public key.
    pub(super) fn address(&self) -> [u8; 20] {
        let digest: [u8; 32] = Sha256::digest(self.public()).into();
        std::array::from_fn(|at| digest[at])
    }

    /// The public key.
    pub(super) fn public(&self) -> [u8; 32] {
        self.0.verifying_key().to_bytes()
    }

    /// The public key in base64.
    pub(super) fn public_base64(&self) -> String {
        STANDARD.encode(self.public())
    }

    /// Secret seed and public key together, 64 bytes, in base64: how these nodes store a private key.
    pub(super) fn private_base64(&self) -> String {
        STANDARD.encode(self.0.to_keypair_bytes())
    }

    /// Signs.
    pub(super) fn sign(&self, bytes: &[u8]) -> [u8; 64] {
        self.0.sign(bytes).to_bytes()
    }

    /// A key that a node made, for tests.
    #[cfg(test)]
    pub(super) fn from_private_base64(text: &str) -> Self {
        let made = STANDARD.decode(text).expect("base64");
        let secret: [u8; 32] = made[..32].try_into().expect("32 bytes");
        Self(SigningKey::from_bytes(&secret))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_a_key_for_each_label_and_always_the_same() {
        let seed = "11".repeat(32);
        let key = |label| Key::derive(&seed, label).expect("a key").address();
        assert_eq!(key("node"), key("node"));
        assert_ne!(key("node"), key("validator"));
        assert!(Key::derive("11", "node").is_err());
        assert!(Key::derive("zz", "node").is_err());
    }

    /// A key that `cometbft init` made.
    #[test]
    fn address_and_private_form_are_those_of_the_node() {
        let made = "IDSkAiP9s7YdJprTZxi6+fehqWzGgQ22wjOG+ILWRcMc5Da0S42sdVOV3nXyX4+UWJjXl6NWb74U3FViPFdfYA==";
        let key = Key::from_private_base64(made);
        assert_eq!(key.private_base64(), made);
        assert_eq!(key.public_base64(), "HOQ2tEuNrHVTld518l+PlFiY15ejVm++FNxVYjxXX2A=");
        assert_eq!(hex::encode_upper(key.address()), "430B056E712F1C72529A957FBD36FCF635D83C25");
    }
}

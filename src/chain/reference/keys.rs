//! Keys of a reference node, derived from the plan's key material: BLS12-381, public keys in G1, and the proof that
//! their secret is known, which the genesis file carries.

use blst::min_pk::SecretKey;

use crate::chain::ChainError;

/// Domain of proofs of possession (draft-irtf-cfrg-bls-signature, proof-of-possession scheme), as the node checks them.
const DST_POSSESSION: &[u8] = b"BLS_POP_BLS12381G2_XMD:SHA-256_SSWU_RO_POP_";

/// A validator's key.
pub(super) struct Key {
    secret: SecretKey,
    /// What the node's key file holds: it derives the same key.
    material: String,
}

impl Key {
    /// Derives a key from the plan's seed, 32 bytes as hex.
    pub(super) fn derive(key_seed: &str) -> Result<Self, ChainError> {
        let seed = hex::decode(key_seed).ok().filter(|seed| seed.len() == 32);
        let seed = seed.ok_or_else(|| ChainError::new("derive keys: the seed is not 32 bytes as hex"))?;
        let secret = SecretKey::key_gen(&seed, &[]).map_err(|e| ChainError::new(format!("derive keys: {e:?}")))?;
        Ok(Self { secret, material: hex::encode(seed) })
    }

    /// The compressed public key as hex.
    pub(super) fn public_hex(&self) -> String {
        hex::encode(self.secret.sk_to_pk().to_bytes())
    }

    /// The proof of possession as hex.
    pub(super) fn proof_hex(&self) -> String {
        hex::encode(self.secret.sign(&self.secret.sk_to_pk().to_bytes(), DST_POSSESSION, &[]).to_bytes())
    }

    /// `config/key.json`.
    pub(super) fn file(&self) -> serde_json::Value {
        serde_json::json!({ "secret": self.material })
    }
}

//! The genesis file: who starts the chain, when, and with which state.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use super::{ConsensusParams, Height, VALIDATORS_MAX, Validator, ValidatorSet};
use crate::node::crypto::{PublicKey, Signature};

/// A validator at the start.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GenesisValidator {
    /// For people.
    pub name: String,
    /// Public key, 48 bytes as hex.
    pub pub_key: PublicKey,
    /// Proof that somebody holds the secret key: without it, keys could be chosen to cancel others in a sum.
    pub proof_of_possession: Signature,
    /// Voting power, above 0.
    pub power: u64,
}

/// `config/genesis.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Genesis {
    /// Chain id, 1 to 50 bytes.
    pub chain_id: String,
    /// Block times start after this.
    pub genesis_time: jiff::Timestamp,
    /// Height of the first block, from 1. Default 1.
    #[serde(default = "default_initial_height")]
    pub initial_height: Height,
    /// Parameters of the first block.
    #[serde(default)]
    pub consensus_params: ConsensusParams,
    /// The first validators.
    pub validators: Vec<GenesisValidator>,
    /// Keys and values that the application starts with.
    #[serde(default)]
    pub app_state: BTreeMap<String, String>,
}

fn default_initial_height() -> Height {
    1
}

impl Genesis {
    /// Checks sizes, powers, duplicates and the proofs of possession (1.5 ms each); the error is the reason.
    pub fn check(&self) -> Result<(), String> {
        if self.chain_id.is_empty() || self.chain_id.len() > 50 {
            return Err(format!("chain_id has {} bytes, not 1 to 50", self.chain_id.len()));
        }
        if self.initial_height == 0 {
            return Err("initial_height is 0".into());
        }
        if self.genesis_time.as_millisecond() < 0 {
            return Err("genesis_time is before 1970".into());
        }
        if self.validators.is_empty() || self.validators.len() > VALIDATORS_MAX {
            return Err(format!("{} validators, not 1 to {VALIDATORS_MAX}", self.validators.len()));
        }
        let mut seen = BTreeSet::new();
        for validator in &self.validators {
            let name = &validator.name;
            if validator.power == 0 {
                return Err(format!("validator {name} has power 0"));
            }
            if !seen.insert(validator.pub_key) {
                return Err(format!("validator {name} has a key that is there already"));
            }
            if !validator.pub_key.verify_possession(&validator.proof_of_possession) {
                return Err(format!("validator {name} has a wrong proof of possession"));
            }
        }
        Ok(())
    }

    /// Genesis time in milliseconds since the epoch.
    pub fn time_ms(&self) -> u64 {
        u64::try_from(self.genesis_time.as_millisecond()).unwrap_or(0)
    }

    /// The validators of the first two heights.
    pub fn validator_set(&self) -> ValidatorSet {
        ValidatorSet::new(self.validators.iter().map(|v| Validator::new(v.pub_key, v.power)).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::crypto::SecretKey;

    fn genesis() -> Genesis {
        let key = SecretKey::from_ikm(&[1; 32]).unwrap();
        Genesis {
            chain_id: "test".into(),
            genesis_time: "2026-01-01T00:00:00Z".parse().unwrap(),
            initial_height: 1,
            consensus_params: ConsensusParams::default(),
            validators: vec![GenesisValidator {
                name: "val-1".into(),
                pub_key: key.public_key(),
                proof_of_possession: key.prove_possession(),
                power: 10,
            }],
            app_state: BTreeMap::new(),
        }
    }

    #[test]
    fn a_file_round_trips_and_unknown_keys_are_refused() {
        let text = serde_json::to_string(&genesis()).unwrap();
        assert_eq!(serde_json::from_str::<Genesis>(&text).unwrap(), genesis());
        let error = serde_json::from_str::<Genesis>(&text.replace("\"power\"", "\"powr\"")).unwrap_err();
        assert!(error.to_string().contains("unknown field `powr`"), "{error}");
    }

    #[test]
    fn what_no_chain_can_start_from_is_refused() {
        genesis().check().unwrap();
        let mut twice = genesis();
        twice.validators.push(twice.validators[0].clone());
        assert!(twice.check().unwrap_err().to_string().contains("there already"));
        let mut unproven = genesis();
        unproven.validators[0].proof_of_possession = SecretKey::from_ikm(&[2; 32]).unwrap().prove_possession();
        assert!(unproven.check().unwrap_err().to_string().contains("wrong proof"));
        let mut zero = genesis();
        zero.initial_height = 0;
        assert!(zero.check().is_err());
    }
}

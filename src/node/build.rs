//! Building a signed chain off-line: the same application, ledger and rules as a running node, without its peers.
//!
//! Whoever builds a chain holds the validators' keys, so that one signature with the sum of the keys stands for one
//! signature of each. Blocks depend on genesis, keys and options alone: the same bytes on every machine.

use std::sync::Arc;

use rand::RngExt as _;
use rand::SeedableRng as _;
use rand_chacha::ChaCha20Rng;

use super::codec::Codec as _;
use super::config::{Flush, NodeConfig, Storage};
use super::crypto::{SecretKey, SignerBitmap, sum_of_secrets};
use super::ledger::{Ledger, LedgerError};
use super::types::{BlockId, Commit, Height, ValidatorSet};

/// Keys that the transactions write to in turn, so that the state of a long chain stays bounded.
const KEYS: u64 = 4096;
/// Bytes held before they are written, while building.
const BATCH_BYTES: u64 = 16 << 20;
/// Stream of the transactions' contents.
const STREAM: u64 = 1;

/// A chain could not be built.
#[derive(Debug, thiserror::Error)]
pub enum BuildError {
    /// The keys at hand are too few.
    #[error("sign block {height}: the keys given have power {power} of {total}")]
    Power {
        /// The block.
        height: Height,
        /// Power of the keys at hand.
        power: u64,
        /// Power of all.
        total: u64,
    },
    /// The ledger.
    #[error(transparent)]
    Ledger(#[from] LedgerError),
}

/// Signs for all validators whose keys it holds.
pub struct Forge {
    chain_id: String,
    keys: Vec<SecretKey>,
    /// The set that the signers below belong to.
    validators: ValidatorSet,
    signers: SignerBitmap,
    power: u64,
    sum: Option<SecretKey>,
}

impl Forge {
    /// A signer for a chain.
    pub fn new(chain_id: &str, keys: Vec<SecretKey>) -> Self {
        Self {
            chain_id: chain_id.to_owned(),
            keys,
            validators: ValidatorSet::default(),
            signers: SignerBitmap::default(),
            power: 0,
            sum: None,
        }
    }

    /// The commit of a block in round 0 by all validators of the set whose keys are here.
    pub fn sign(&mut self, validators: &ValidatorSet, height: Height, block_id: BlockId) -> Result<Commit, BuildError> {
        if self.validators != *validators {
            self.take_set(validators);
        }
        let key = match &self.sum {
            Some(key) if validators.is_quorum(self.power) => key,
            _ => return Err(BuildError::Power { height, power: self.power, total: validators.total_power() }),
        };
        let mut commit = Commit { height, block_id, signers: self.signers.clone(), ..Commit::default() };
        commit.signature = key.sign(&commit.sign_bytes(&self.chain_id));
        Ok(commit)
    }

    fn take_set(&mut self, validators: &ValidatorSet) {
        self.signers = SignerBitmap::empty(validators.len());
        self.power = 0;
        let mut signing = Vec::new();
        for key in &self.keys {
            if let Some((index, validator)) = validators.find(&key.public_key().address()) {
                self.signers.set(index);
                self.power += validator.power;
                signing.push(key);
            }
        }
        self.sum = sum_of_secrets(&signing);
        self.validators = validators.clone();
    }

    /// Builds, signs and applies the next block; the ledger is in block sync.
    pub fn extend(&mut self, ledger: &mut Ledger, txs: Vec<Vec<u8>>, time_ms: u64) -> Result<(), BuildError> {
        let height = ledger.next_height();
        let last_commit = ledger.load_commit(ledger.state().last_height)?.unwrap_or_default();
        let validators = ledger.state().validators.clone();
        let Some(proposer) = validators.proposer(height, 0) else {
            return Err(BuildError::Power { height, power: 0, total: 0 });
        };
        let block = Arc::new(ledger.build_block(txs, last_commit, time_ms, proposer.address));
        let block_id = block.id_of_encoded(&block.to_bytes());
        let commit = self.sign(&validators, height, block_id)?;
        ledger.apply_synced(&block, &block_id, &commit)?;
        Ok(())
    }
}

/// What the blocks of a built chain hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuildOptions {
    /// How many blocks.
    pub blocks: u64,
    /// Transactions in each.
    pub txs: u64,
    /// Bytes of each transaction, where it is shorter.
    pub tx_bytes: usize,
    /// Milliseconds of chain time between blocks.
    pub block_time_ms: u64,
    /// Seed of the transactions' contents.
    pub seed: u64,
}

/// Appends blocks to a ledger that was just opened, and writes all of them.
pub fn build_chain(ledger: &mut Ledger, forge: &mut Forge, options: &BuildOptions) -> Result<Height, BuildError> {
    let mut random = ChaCha20Rng::seed_from_u64(options.seed);
    random.set_stream(STREAM);
    let mut sent = 0;
    for _ in 0..options.blocks {
        let txs = (0..options.txs).map(|i| transaction(&mut random, sent + i, options.tx_bytes)).collect();
        sent += options.txs;
        let time_ms = ledger.state().last_time_ms + options.block_time_ms;
        forge.extend(ledger, txs, time_ms)?;
    }
    ledger.flush_point()?;
    Ok(ledger.state().last_height)
}

fn transaction(random: &mut ChaCha20Rng, n: u64, size: usize) -> Vec<u8> {
    const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let mut tx = format!("set k{} {n}.", n % KEYS).into_bytes();
    let length = tx.len().max(size);
    tx.resize_with(length, || LETTERS[random.random_range(0..LETTERS.len())]);
    tx
}

/// The configuration that a ledger is opened with to build a chain. Flush points depend on bytes alone, not on the clock.
pub fn building_config(storage: Storage) -> NodeConfig {
    NodeConfig {
        accept_unsafe: true,
        flush: Flush { every_ms: u64::MAX >> 32, max_bytes: BATCH_BYTES },
        ..NodeConfig::new("build".to_owned(), storage)
    }
}

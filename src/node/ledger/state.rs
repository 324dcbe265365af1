//! The state after a block: all that is needed to validate, build and decide the next one.

use crate::node::codec::{Codec, CodecError, Reader, put_bytes};
use crate::node::types::{Block, BlockId, BlockResults, ConsensusParams, Genesis, Hash, Header, Height, ValidatorSet};

/// The state after `last_height`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChainState {
    /// The chain.
    pub chain_id: String,
    /// Height of its first block.
    pub initial_height: Height,
    /// Height of the last block; 0 before the first.
    pub last_height: Height,
    /// Its name.
    pub last_block_id: BlockId,
    /// Its time in milliseconds; genesis time before the first.
    pub last_time_ms: u64,
    /// Who decided it; empty before the first.
    pub last_validators: ValidatorSet,
    /// Who decides the next block.
    pub validators: ValidatorSet,
    /// Who decides the block after the next.
    pub next_validators: ValidatorSet,
    /// In force for the next block.
    pub params: ConsensusParams,
    /// Application hash after the last block.
    pub app_hash: Hash,
    /// Hash of its results.
    pub last_results_hash: Hash,
}

impl ChainState {
    /// The state before the first block. The application hash is that after loading the genesis state.
    pub fn genesis(genesis: &Genesis, app_hash: Hash) -> Self {
        let validators = genesis.validator_set();
        Self {
            chain_id: genesis.chain_id.clone(),
            initial_height: genesis.initial_height,
            last_height: 0,
            last_block_id: BlockId::default(),
            last_time_ms: genesis.time_ms(),
            last_validators: ValidatorSet::default(),
            validators: validators.clone(),
            next_validators: validators,
            params: genesis.consensus_params,
            app_hash,
            last_results_hash: Hash::default(),
        }
    }

    /// The height of the next block.
    pub fn next_height(&self) -> Height {
        if self.last_height == 0 { self.initial_height } else { self.last_height + 1 }
    }

    /// The state after one more block.
    pub fn after(&self, header: &Header, block_id: &BlockId, results: &BlockResults) -> Self {
        let next_validators = if results.validator_updates.is_empty() {
            self.next_validators.clone()
        } else {
            self.next_validators.updated(&results.validator_updates)
        };
        Self {
            chain_id: self.chain_id.clone(),
            initial_height: self.initial_height,
            last_height: header.height,
            last_block_id: *block_id,
            last_time_ms: header.time_ms,
            last_validators: self.validators.clone(),
            validators: self.next_validators.clone(),
            next_validators,
            params: results.params.unwrap_or(self.params),
            app_hash: results.app_hash,
            last_results_hash: results.hash(),
        }
    }

    /// The header of the next block.
    pub(super) fn header(&self, parts: HeaderParts) -> Header {
        Header {
            chain_id: self.chain_id.clone(),
            height: self.next_height(),
            time_ms: parts.time_ms,
            last_block_id: self.last_block_id,
            last_commit_hash: parts.last_commit_hash,
            data_hash: parts.data_hash,
            validators_hash: self.validators.hash(),
            next_validators_hash: self.next_validators.hash(),
            consensus_hash: self.params.hash(),
            app_hash: self.app_hash,
            last_results_hash: self.last_results_hash,
            proposer: parts.proposer,
        }
    }

    /// Checks a block against this state: everything but the signature of its last commit.
    pub fn check(&self, block: &Block) -> Result<(), InvalidBlock> {
        let header = &block.header;
        let expected = self.header(HeaderParts {
            time_ms: header.time_ms,
            last_commit_hash: block.last_commit.hash(),
            data_hash: crate::node::types::data_hash(&block.txs),
            proposer: header.proposer,
        });
        let invalid = |field| Err(InvalidBlock { height: header.height, field });
        match () {
            () if header.chain_id != expected.chain_id => invalid("chain_id"),
            () if header.height != expected.height => invalid("height"),
            () if header.last_block_id != expected.last_block_id => invalid("last_block_id"),
            () if header.last_commit_hash != expected.last_commit_hash => invalid("last_commit_hash"),
            () if header.data_hash != expected.data_hash => invalid("data_hash"),
            () if header.validators_hash != expected.validators_hash => invalid("validators_hash"),
            () if header.next_validators_hash != expected.next_validators_hash => invalid("next_validators_hash"),
            () if header.consensus_hash != expected.consensus_hash => invalid("consensus_hash"),
            () if header.app_hash != expected.app_hash => invalid("app_hash"),
            () if header.last_results_hash != expected.last_results_hash => invalid("last_results_hash"),
            () if header.time_ms <= self.last_time_ms => invalid("time"),
            () if self.validators.find(&header.proposer).is_none() => invalid("proposer"),
            () if block.txs.iter().map(|tx| tx.len() as u64).sum::<u64>() > self.params.block_max_bytes => {
                invalid("block_max_bytes")
            }
            () if self.last_height == 0 && block.last_commit != Default::default() => invalid("last_commit"),
            () if self.last_height != 0
                && block.last_commit.check(&self.last_validators, self.last_height, &self.last_block_id).is_err() =>
            {
                invalid("last_commit")
            }
            () => Ok(()),
        }
    }
}

/// What of a header the state does not say.
pub(super) struct HeaderParts {
    pub(super) time_ms: u64,
    pub(super) last_commit_hash: Hash,
    pub(super) data_hash: Hash,
    pub(super) proposer: crate::node::crypto::Address,
}

/// A block that does not follow from the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("accept block {height}: wrong {field}")]
pub struct InvalidBlock {
    /// Its height, as it says.
    pub height: Height,
    /// The first field that is wrong.
    pub field: &'static str,
}

impl Codec for ChainState {
    fn write(&self, out: &mut Vec<u8>) {
        put_bytes(out, self.chain_id.as_bytes());
        out.extend_from_slice(&self.initial_height.to_le_bytes());
        out.extend_from_slice(&self.last_height.to_le_bytes());
        self.last_block_id.write(out);
        out.extend_from_slice(&self.last_time_ms.to_le_bytes());
        self.last_validators.write(out);
        self.validators.write(out);
        self.next_validators.write(out);
        self.params.write(out);
        self.app_hash.write(out);
        self.last_results_hash.write(out);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, CodecError> {
        Ok(Self {
            chain_id: reader.string(64, "chain id")?,
            initial_height: reader.u64("initial height")?,
            last_height: reader.u64("last height")?,
            last_block_id: BlockId::read(reader)?,
            last_time_ms: reader.u64("time")?,
            last_validators: ValidatorSet::read(reader)?,
            validators: ValidatorSet::read(reader)?,
            next_validators: ValidatorSet::read(reader)?,
            params: ConsensusParams::read(reader)?,
            app_hash: Hash::read(reader)?,
            last_results_hash: Hash::read(reader)?,
        })
    }
}

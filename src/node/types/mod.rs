//! What the nodes of the reference chain agree on and exchange: blocks, commits, validator sets, parameters, genesis.
//!
//! Pure data with one binary encoding ([`super::codec`]) and SHA-256 hashes over it. Header H carries the application
//! hash and the results hash after block H−1, so that a block's effect is signed one height later.

mod block;
mod commit;
mod genesis;
mod hash;
mod params;
mod results;
mod validators;

pub use block::{BLOCK_BYTES_MAX, Block, BlockId, BlockMeta, Header, PART_BYTES, PartSetHeader, data_hash};
pub use commit::{Commit, CommitError, VoteKind, vote_sign_bytes};
pub use genesis::{Genesis, GenesisValidator};
pub use hash::{Hash, merkle_root, sha256};
pub use params::ConsensusParams;
pub use results::{BlockResults, TxResult};
pub use validators::{VALIDATORS_MAX, Validator, ValidatorSet, ValidatorUpdate};

/// A height. 0 is before the first block; the first block has the genesis file's initial height.
pub type Height = u64;

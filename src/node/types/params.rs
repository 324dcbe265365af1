//! Consensus parameters: on chain, changed by transactions, hashed into every header.

use serde::{Deserialize, Serialize};

use super::{Hash, Height, sha256};
use crate::node::codec::{Codec, CodecError, Reader};

/// Parameters in force for a block. A change made by block H is in force from H+1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ConsensusParams {
    /// Most bytes of all transactions of one block. Default 1 MiB.
    #[serde(default = "default_block_max_bytes")]
    pub block_max_bytes: u64,
    /// Every node stops after committing this height; `null` is never. Default `null`.
    #[serde(default)]
    pub halt_height: Option<Height>,
}

fn default_block_max_bytes() -> u64 {
    1 << 20
}

impl Default for ConsensusParams {
    fn default() -> Self {
        Self { block_max_bytes: default_block_max_bytes(), halt_height: None }
    }
}

impl ConsensusParams {
    /// The hash in the header.
    pub fn hash(&self) -> Hash {
        sha256(&self.to_bytes())
    }
}

impl Codec for ConsensusParams {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.block_max_bytes.to_le_bytes());
        // No block has height 0, so that 0 can stand for "never".
        out.extend_from_slice(&self.halt_height.unwrap_or(0).to_le_bytes());
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, CodecError> {
        let block_max_bytes = reader.u64("block_max_bytes")?;
        let halt_height = Some(reader.u64("halt_height")?).filter(|h| *h != 0);
        Ok(Self { block_max_bytes, halt_height })
    }
}

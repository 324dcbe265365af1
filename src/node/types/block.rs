//! Blocks, headers and the two ways to name a block: by its header's hash and by the root of its parts.

use super::{Commit, Hash, Height, VALIDATORS_MAX, merkle_root, sha256};
use crate::node::codec::{Codec, CodecError, Reader, put_bytes, put_length};
use crate::node::crypto::{ADDRESS_BYTES, Address};

/// A block travels and is hashed in parts of this many bytes.
pub const PART_BYTES: usize = 64 << 10;
/// Most bytes of an encoded block that anybody decodes.
pub const BLOCK_BYTES_MAX: usize = 16 << 20;
/// Most transactions of one block.
const TXS_MAX: usize = 1 << 20;
/// Most bytes of a chain id.
const CHAIN_ID_MAX: usize = 64;
/// Version of the header's encoding.
const VERSION: u32 = 1;

/// Number and root of a block's parts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct PartSetHeader {
    /// How many parts.
    pub total: u32,
    /// Merkle root over their digests.
    pub hash: Hash,
}

/// Names a block and its bytes; the default names none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct BlockId {
    /// The header's hash.
    pub hash: Hash,
    /// The parts.
    pub parts: PartSetHeader,
}

impl Codec for BlockId {
    fn write(&self, out: &mut Vec<u8>) {
        self.hash.write(out);
        out.extend_from_slice(&self.parts.total.to_le_bytes());
        self.parts.hash.write(out);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, CodecError> {
        let hash = Hash::read(reader)?;
        let parts = PartSetHeader { total: reader.u32("parts")?, hash: Hash::read(reader)? };
        Ok(Self { hash, parts })
    }
}

/// What is signed of a block. Everything about the chain's state is the state *before* this block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Header {
    /// The chain.
    pub chain_id: String,
    /// The height.
    pub height: Height,
    /// The proposer's clock in milliseconds since the epoch; above that of the block before.
    pub time_ms: u64,
    /// The block before; default for the first.
    pub last_block_id: BlockId,
    /// Of the commit in this block, which is the block's before.
    pub last_commit_hash: Hash,
    /// Of the transactions.
    pub data_hash: Hash,
    /// Of the validators that decide this height.
    pub validators_hash: Hash,
    /// Of those of the next.
    pub next_validators_hash: Hash,
    /// Of the parameters in force.
    pub consensus_hash: Hash,
    /// Of the application's state after the block before.
    pub app_hash: Hash,
    /// Of the results of the block before.
    pub last_results_hash: Hash,
    /// Who proposed it.
    pub proposer: Address,
}

impl Header {
    /// The hash that names the block.
    pub fn hash(&self) -> Hash {
        sha256(&self.to_bytes())
    }
}

impl Codec for Header {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&VERSION.to_le_bytes());
        put_bytes(out, self.chain_id.as_bytes());
        out.extend_from_slice(&self.height.to_le_bytes());
        out.extend_from_slice(&self.time_ms.to_le_bytes());
        self.last_block_id.write(out);
        for hash in [
            &self.last_commit_hash,
            &self.data_hash,
            &self.validators_hash,
            &self.next_validators_hash,
            &self.consensus_hash,
            &self.app_hash,
            &self.last_results_hash,
        ] {
            hash.write(out);
        }
        out.extend_from_slice(&self.proposer.0);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, CodecError> {
        if reader.u32("header version")? != VERSION {
            return Err(CodecError::Invalid { what: "header version" });
        }
        Ok(Self {
            chain_id: reader.string(CHAIN_ID_MAX, "chain id")?,
            height: reader.u64("height")?,
            time_ms: reader.u64("time")?,
            last_block_id: BlockId::read(reader)?,
            last_commit_hash: Hash::read(reader)?,
            data_hash: Hash::read(reader)?,
            validators_hash: Hash::read(reader)?,
            next_validators_hash: Hash::read(reader)?,
            consensus_hash: Hash::read(reader)?,
            app_hash: Hash::read(reader)?,
            last_results_hash: Hash::read(reader)?,
            proposer: Address(reader.array::<ADDRESS_BYTES>("proposer")?),
        })
    }
}

/// A block.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Block {
    /// What is signed.
    pub header: Header,
    /// Transactions in order of execution.
    pub txs: Vec<Vec<u8>>,
    /// The commit of the block before; default in the first block.
    pub last_commit: Commit,
}

impl Block {
    /// Hash and part root of the whole block. Encodes and hashes all of it: keep the result.
    pub fn id(&self) -> BlockId {
        self.id_of_encoded(&self.to_bytes())
    }

    /// As [`Block::id`], from bytes that the caller already has: those that [`Codec::to_bytes`] gives.
    pub fn id_of_encoded(&self, encoded: &[u8]) -> BlockId {
        let digests: Vec<Hash> = encoded.chunks(PART_BYTES).map(sha256).collect();
        let parts = PartSetHeader { total: digests.len() as u32, hash: merkle_root(&digests) };
        BlockId { hash: self.header.hash(), parts }
    }
}

/// The hash over transactions in the header.
pub fn data_hash(txs: &[Vec<u8>]) -> Hash {
    merkle_root(&txs.iter().map(|tx| sha256(tx)).collect::<Vec<_>>())
}

impl Codec for Block {
    fn write(&self, out: &mut Vec<u8>) {
        self.header.write(out);
        put_length(out, self.txs.len());
        for tx in &self.txs {
            put_bytes(out, tx);
        }
        self.last_commit.write(out);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, CodecError> {
        if reader.remaining() > BLOCK_BYTES_MAX {
            let length = reader.remaining() as u64;
            return Err(CodecError::Limit { what: "block", length, limit: BLOCK_BYTES_MAX as u64 });
        }
        let header = Header::read(reader)?;
        let count = reader.length(TXS_MAX, "transactions")?;
        // Each takes at least its length prefix, so that a claim cannot allocate more than what was sent.
        let mut txs = Vec::with_capacity(count.min(reader.remaining() / 4));
        for _ in 0..count {
            txs.push(reader.bytes(BLOCK_BYTES_MAX, "transaction")?.to_vec());
        }
        Ok(Self { header, txs, last_commit: Commit::read(reader)? })
    }
}

/// What is kept beside a block for quick answers: its name, header and size.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockMeta {
    /// The name.
    pub block_id: BlockId,
    /// The header.
    pub header: Header,
    /// Bytes of the encoded block.
    pub block_size: u64,
    /// Number of transactions.
    pub num_txs: u64,
}

impl Codec for BlockMeta {
    fn write(&self, out: &mut Vec<u8>) {
        self.block_id.write(out);
        self.header.write(out);
        out.extend_from_slice(&self.block_size.to_le_bytes());
        out.extend_from_slice(&self.num_txs.to_le_bytes());
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, CodecError> {
        Ok(Self {
            block_id: BlockId::read(reader)?,
            header: Header::read(reader)?,
            block_size: reader.u64("block size")?,
            num_txs: reader.u64("transactions")?,
        })
    }
}

const _: () = assert!(VALIDATORS_MAX <= 1024, "a commit must stay small beside its block");

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn block() -> Block {
        Block {
            header: Header {
                chain_id: "c".into(),
                height: 3,
                time_ms: 4,
                last_block_id: BlockId::default(),
                last_commit_hash: Hash::default(),
                data_hash: Hash::default(),
                validators_hash: Hash::default(),
                next_validators_hash: Hash::default(),
                consensus_hash: Hash::default(),
                app_hash: Hash::default(),
                last_results_hash: Hash::default(),
                proposer: Address::default(),
            },
            txs: vec![b"set a 1".to_vec(), vec![7; 100_000]],
            last_commit: Commit::default(),
        }
    }

    proptest! {
        #[test]
        fn whatever_a_peer_sends_is_refused_or_is_the_one_encoding_of_a_block(
            at in any::<prop::sample::Index>(),
            bytes in prop::collection::vec(any::<u8>(), 1..9),
        ) {
            let mut encoded = Block { txs: vec![b"set a 1".to_vec()], ..block() }.to_bytes();
            let at = at.index(encoded.len());
            for (place, byte) in encoded[at..].iter_mut().zip(bytes) {
                *place = byte;
            }
            if let Ok(decoded) = Block::from_bytes(&encoded) {
                prop_assert_eq!(decoded.to_bytes(), encoded);
            }
        }
    }

    #[test]
    fn a_block_round_trips_and_is_strict() {
        let block = block();
        let bytes = block.to_bytes();
        assert_eq!(Block::from_bytes(&bytes).unwrap(), block);
        assert!(Block::from_bytes(&bytes[..bytes.len() - 1]).is_err());
        let mut longer = bytes;
        longer.push(0);
        assert_eq!(Block::from_bytes(&longer), Err(CodecError::Trailing(1)));
    }

    #[test]
    fn the_id_covers_the_header_and_every_byte() {
        let one = block();
        assert_eq!(one.id().parts.total, 2);
        let mut other = block();
        other.txs[1][99_999] = 8;
        assert_eq!(other.id().hash, one.id().hash, "the header alone names the hash");
        assert_ne!(other.id().parts.hash, one.id().parts.hash);
        assert_ne!(data_hash(&other.txs), data_hash(&one.txs));
    }
}

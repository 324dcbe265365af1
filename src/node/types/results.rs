//! What executing a block gave: the part of it that headers hash, and what the state takes over.

use super::{ConsensusParams, Hash, ValidatorUpdate, merkle_root, sha256};
use crate::node::codec::{Codec, CodecError, Reader, put_bytes, put_length};

/// Most results of one block that are decoded.
const RESULTS_MAX: usize = 1 << 20;
/// Most bytes of a result's text.
const LOG_MAX: usize = 1 << 10;

/// The result of one transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TxResult {
    /// 0 when it took effect.
    pub code: u32,
    /// Why it did not; not hashed.
    pub log: String,
}

/// The results of one block, saved before the application commits it, so that a restart between the two needs not
/// execute it again.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct BlockResults {
    /// One a transaction.
    pub txs: Vec<TxResult>,
    /// Changes of the validator set, in force two heights later.
    pub validator_updates: Vec<ValidatorUpdate>,
    /// Changed parameters, in force at the next height.
    pub params: Option<ConsensusParams>,
    /// Application hash after the block.
    pub app_hash: Hash,
}

impl BlockResults {
    /// The hash in the next header: codes only, so that wording can change.
    pub fn hash(&self) -> Hash {
        merkle_root(&self.txs.iter().map(|tx| sha256(&tx.code.to_le_bytes())).collect::<Vec<_>>())
    }
}

impl Codec for BlockResults {
    fn write(&self, out: &mut Vec<u8>) {
        put_length(out, self.txs.len());
        for tx in &self.txs {
            out.extend_from_slice(&tx.code.to_le_bytes());
            put_bytes(out, tx.log.as_bytes());
        }
        put_length(out, self.validator_updates.len());
        for update in &self.validator_updates {
            update.write(out);
        }
        match &self.params {
            None => out.push(0),
            Some(params) => {
                out.push(1);
                params.write(out);
            }
        }
        self.app_hash.write(out);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, CodecError> {
        let count = reader.length(RESULTS_MAX, "results")?;
        let mut txs = Vec::with_capacity(count.min(reader.remaining() / 8));
        for _ in 0..count {
            txs.push(TxResult { code: reader.u32("code")?, log: reader.string(LOG_MAX, "log")? });
        }
        let count = reader.length(RESULTS_MAX, "validator updates")?;
        let mut validator_updates = Vec::new();
        for _ in 0..count {
            validator_updates.push(ValidatorUpdate::read(reader)?);
        }
        let params = match reader.u8("params")? {
            0 => None,
            1 => Some(ConsensusParams::read(reader)?),
            _ => return Err(CodecError::Invalid { what: "params" }),
        };
        Ok(Self { txs, validator_updates, params, app_hash: Hash::read(reader)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn results_round_trip_and_hash_codes_only() {
        let one = BlockResults {
            txs: vec![TxResult { code: 0, log: String::new() }, TxResult { code: 2, log: "no".into() }],
            validator_updates: Vec::new(),
            params: Some(ConsensusParams { halt_height: Some(9), ..ConsensusParams::default() }),
            app_hash: sha256(b"x"),
        };
        assert_eq!(BlockResults::from_bytes(&one.to_bytes()).unwrap(), one);
        let mut reworded = one.clone();
        reworded.txs[1].log = "never".into();
        assert_eq!(reworded.hash(), one.hash());
        reworded.txs[1].code = 3;
        assert_ne!(reworded.hash(), one.hash());
    }
}

//! Transactions: one line of text each.
//!
//! ```text
//! set KEY VALUE                   stores a value
//! validator PUB_KEY POWER PROOF   admits a validator, or changes its power (then without PROOF); power 0 removes it
//! param block_max_bytes N         changes a parameter
//! halt HEIGHT                     every node stops after committing HEIGHT; 0 takes it back
//! ```
//!
//! Words are separated by one space. ` #` and anything after it is padding, so that any kind can have any size.

use crate::node::crypto::{PublicKey, Signature};
use crate::node::types::Height;

/// Most bytes of one transaction.
pub const TX_BYTES_MAX: usize = 1 << 20;
/// Most bytes of a key.
const KEY_BYTES_MAX: usize = 256;

/// A well-formed transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tx {
    /// Stores a value.
    Set {
        /// The key.
        key: String,
        /// The value.
        value: String,
    },
    /// Changes a validator's power.
    Validator {
        /// Whose.
        pub_key: Box<PublicKey>,
        /// New power; 0 removes it.
        power: u64,
        /// Needed for one that is not there yet.
        proof: Option<Signature>,
    },
    /// Changes the most bytes of a block.
    BlockMaxBytes(u64),
    /// Sets the height to halt at.
    Halt(Option<Height>),
}

/// Why a transaction has no effect; the code is hashed into the next header.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TxError {
    /// Not a transaction.
    #[error("read the transaction: {0}")]
    Form(String),
    /// Well-formed, but not possible in this state.
    #[error("apply the transaction: {0}")]
    State(String),
}

impl TxError {
    /// The result's code.
    pub fn code(&self) -> u32 {
        match self {
            Self::Form(_) => 1,
            Self::State(_) => 2,
        }
    }
}

impl Tx {
    /// Reads one.
    pub fn parse(bytes: &[u8]) -> Result<Self, TxError> {
        let wrong = |text: &str| TxError::Form(text.to_owned());
        if bytes.len() > TX_BYTES_MAX {
            return Err(wrong("longer than 1 MiB"));
        }
        let text = std::str::from_utf8(bytes).map_err(|_| wrong("not UTF-8"))?;
        let text = text.split_once(" #").map_or(text, |(text, _)| text);
        let words: Vec<&str> = text.split(' ').collect();
        match words[..] {
            ["set", key, value] if !key.is_empty() && key.len() <= KEY_BYTES_MAX => {
                Ok(Self::Set { key: key.to_owned(), value: value.to_owned() })
            }
            ["validator", key, power] => validator(key, power, None),
            ["validator", key, power, proof] => validator(key, power, Some(proof)),
            ["param", "block_max_bytes", bytes] => {
                let bytes = number(bytes)?;
                // Smaller than the smallest useful transaction would stop the chain's use for good.
                if bytes < 1024 || bytes > TX_BYTES_MAX as u64 * 8 {
                    return Err(wrong("block_max_bytes is between 1024 and 8388608"));
                }
                Ok(Self::BlockMaxBytes(bytes))
            }
            ["halt", height] => Ok(Self::Halt(Some(number(height)?).filter(|height| *height != 0))),
            _ => Err(wrong("not set, validator, param or halt with their words")),
        }
    }
}

fn number(text: &str) -> Result<u64, TxError> {
    text.parse().map_err(|_| TxError::Form(format!("{text:.20} is not a number")))
}

fn validator(key: &str, power: &str, proof: Option<&str>) -> Result<Tx, TxError> {
    let bytes = |text: &str| hex::decode(text).map_err(|_| TxError::Form("not hex".into()));
    let pub_key = PublicKey::from_bytes(&bytes(key)?).map_err(|error| TxError::Form(error.to_string()))?;
    let power = number(power)?;
    // A sum over the largest set must not overflow.
    if power > u64::MAX >> 12 {
        return Err(TxError::Form("power is too large".into()));
    }
    let proof = proof
        .map(|text| Signature::from_bytes(&bytes(text)?).map_err(|error| TxError::Form(error.to_string())))
        .transpose()?;
    Ok(Tx::Validator { pub_key: Box::new(pub_key), power, proof })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn padding_changes_the_bytes_and_not_the_meaning() {
        let plain = Tx::parse(b"set k v").unwrap();
        assert_eq!(plain, Tx::Set { key: "k".into(), value: "v".into() });
        assert_eq!(Tx::parse(b"set k v # 00000").unwrap(), plain);
        assert_eq!(Tx::parse(b"halt 12 #x").unwrap(), Tx::Halt(Some(12)));
        assert_eq!(Tx::parse(b"halt 0").unwrap(), Tx::Halt(None));
        assert_eq!(Tx::parse(b"param block_max_bytes 4096").unwrap(), Tx::BlockMaxBytes(4096));
    }

    #[test]
    fn what_is_not_a_transaction_says_why() {
        for wrong in ["", "set k", "set  v", "set k v w", "halt x", "param block_max_bytes 1", "validator zz 1"] {
            let error = Tx::parse(wrong.as_bytes()).unwrap_err();
            assert_eq!(error.code(), 1, "{wrong}: {error}");
        }
        assert!(Tx::parse(&[0xff]).is_err());
        assert!(Tx::parse(format!("set {} v", "k".repeat(257)).as_bytes()).is_err());
    }
}

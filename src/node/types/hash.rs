//! SHA-256 digests and the Merkle root over a list of them.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

use crate::node::codec::{Codec, CodecError, Reader};

/// A SHA-256 digest; all zeros stands for "none".
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Hash(pub [u8; 32]);

impl Hash {
    /// Whether it stands for "none".
    pub fn is_zero(&self) -> bool {
        self.0 == [0; 32]
    }
}

impl fmt::Display for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode_upper(self.0))
    }
}

impl fmt::Debug for Hash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl Serialize for Hash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.to_string())
    }
}

impl<'de> Deserialize<'de> for Hash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        let bytes = hex::decode(text).map_err(serde::de::Error::custom)?;
        bytes.try_into().map(Self).map_err(|_| serde::de::Error::custom("a hash has 32 bytes"))
    }
}

impl Codec for Hash {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.0);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, CodecError> {
        reader.array("hash").map(Self)
    }
}

/// The digest of `bytes`.
pub fn sha256(bytes: &[u8]) -> Hash {
    Hash(Sha256::digest(bytes).into())
}

/// The root of a binary tree over `leaves` in order; an odd one moves up a level unpaired. Leaves and inner nodes are
/// hashed in domains of their own, so that neither can stand for the other. No leaf gives the zero hash.
pub fn merkle_root(leaves: &[Hash]) -> Hash {
    let mut level: Vec<Hash> = leaves
        .iter()
        .map(|leaf| {
            let mut bytes = [0; 33];
            bytes[1..].copy_from_slice(&leaf.0);
            sha256(&bytes)
        })
        .collect();
    while level.len() > 1 {
        level = level
            .chunks(2)
            .map(|pair| match pair {
                [left, right] => inner(left, right),
                _ => pair[0],
            })
            .collect();
    }
    level.first().copied().unwrap_or_default()
}

fn inner(left: &Hash, right: &Hash) -> Hash {
    let mut bytes = [1; 65];
    bytes[1..33].copy_from_slice(&left.0);
    bytes[33..].copy_from_slice(&right.0);
    sha256(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_depends_on_order_number_and_every_leaf() {
        let leaves: Vec<Hash> = (0..5u8).map(|i| sha256(&[i])).collect();
        let root = merkle_root(&leaves);
        let mut swapped = leaves.clone();
        swapped.swap(1, 2);
        assert_ne!(merkle_root(&swapped), root);
        assert_ne!(merkle_root(&leaves[..4]), root);
        assert!(merkle_root(&[]).is_zero());
        assert_ne!(merkle_root(&leaves[..1]), leaves[0], "a leaf is not its own root");
        assert_ne!(merkle_root(&[root]), root, "a root cannot stand for a list");
    }

    #[test]
    fn text_is_upper_case_hex_both_ways() {
        let hash = sha256(b"x");
        let text = serde_json::to_string(&hash).unwrap();
        assert_eq!(text, format!("\"{hash}\""));
        assert_eq!(serde_json::from_str::<Hash>(&text).unwrap(), hash);
    }
}

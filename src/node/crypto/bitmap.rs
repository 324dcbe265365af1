//! The signers of a commit, as bits.

use super::SIGNERS_MAX;

/// Which validators of a set signed: bit i is the i-th validator in the set's order.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct SignerBitmap(Vec<u8>);

impl SignerBitmap {
    /// No signer among `validators`.
    pub fn empty(validators: usize) -> Self {
        Self(vec![0; validators.div_ceil(8)])
    }

    /// Reads the bytes of a bitmap; longer than [`SIGNERS_MAX`] bits is refused.
    pub fn from_bytes(bytes: Vec<u8>) -> Option<Self> {
        (bytes.len() <= SIGNERS_MAX / 8).then_some(Self(bytes))
    }

    /// The bytes, least significant bit first.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// Marks the validator at `index`, which must be below the number the bitmap was made for.
    pub fn set(&mut self, index: usize) {
        self.0[index / 8] |= 1 << (index % 8);
    }

    /// Whether the validator at `index` signed.
    pub fn contains(&self, index: usize) -> bool {
        self.0.get(index / 8).is_some_and(|byte| byte & (1 << (index % 8)) != 0)
    }

    /// The signers, in order.
    pub fn signers(&self) -> impl Iterator<Item = usize> + '_ {
        (0..self.0.len() * 8).filter(|index| self.contains(*index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bitmaps_name_signers() {
        let mut bitmap = SignerBitmap::empty(11);
        bitmap.set(0);
        bitmap.set(10);
        assert_eq!(bitmap.signers().collect::<Vec<_>>(), [0, 10]);
        assert!(!bitmap.contains(99));
        assert_eq!(SignerBitmap::from_bytes(bitmap.as_bytes().to_vec()), Some(bitmap));
        assert_eq!(SignerBitmap::from_bytes(vec![0; 129]), None);
    }
}

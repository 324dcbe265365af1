//! What was passed on already, so that a message floods a graph of any shape once.

use std::collections::{BTreeSet, VecDeque};

use sha2::{Digest, Sha256};

/// A bounded memory of digests; the oldest is forgotten first.
#[derive(Debug)]
pub(super) struct Seen {
    known: BTreeSet<u128>,
    order: VecDeque<u128>,
    capacity: usize,
}

impl Seen {
    pub(super) fn new(capacity: usize) -> Self {
        Self { known: BTreeSet::new(), order: VecDeque::new(), capacity }
    }

    /// Remembers a digest; true when it was new.
    pub(super) fn insert(&mut self, digest: u128) -> bool {
        if !self.known.insert(digest) {
            return false;
        }
        self.order.push_back(digest);
        if self.order.len() > self.capacity
            && let Some(oldest) = self.order.pop_front()
        {
            self.known.remove(&oldest);
        }
        true
    }
}

/// The digest of a message under which it is remembered.
pub(super) fn digest(salt: u32, bytes: &[u8]) -> u128 {
    let full: [u8; 32] = Sha256::new().chain_update(salt.to_le_bytes()).chain_update(bytes).finalize().into();
    let mut half = [0; 16];
    half.copy_from_slice(&full[..16]);
    u128::from_le_bytes(half)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_new_once_until_it_is_forgotten() {
        let mut seen = Seen::new(2);
        assert!(seen.insert(1) && !seen.insert(1));
        assert!(seen.insert(2) && seen.insert(3));
        assert!(seen.insert(1), "forgotten");
        assert!(!seen.insert(3));
        assert_ne!(digest(0, b"x"), digest(1, b"x"));
    }
}

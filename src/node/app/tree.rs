//! The hash over all of the application's rows, kept up to date at a cost that follows what a block changes.
//!
//! Rows are spread over 4,096 buckets by the hash of their key. A bucket is the sorted list of its rows' digests, and a
//! binary tree of twelve levels lies over the buckets. Changing a row rehashes its bucket and twelve inner nodes, shared
//! where rows of a block meet. The tree lives in memory and is built again from the rows at every start, so that a start
//! checks the whole state against the hash that was agreed on.

use std::collections::BTreeSet;

use sha2::{Digest, Sha256};

use crate::node::types::Hash;

/// Levels below the root.
const DEPTH: u32 = 12;
/// Number of buckets.
const BUCKETS: usize = 1 << DEPTH;

/// The tree. Node 1 is the root, node i has the children 2i and 2i+1, bucket b is node `BUCKETS + b`.
#[derive(Clone, Debug)]
pub(super) struct StateTree {
    nodes: Vec<Hash>,
    buckets: Vec<Vec<Hash>>,
    dirty: BTreeSet<usize>,
}

impl StateTree {
    /// The tree over no row.
    pub(super) fn new() -> Self {
        let mut tree = Self {
            nodes: vec![Hash::default(); 2 * BUCKETS],
            buckets: vec![Vec::new(); BUCKETS],
            dirty: BTreeSet::new(),
        };
        for node in (1..BUCKETS).rev() {
            tree.nodes[node] = inner(&tree.nodes[2 * node], &tree.nodes[2 * node + 1]);
        }
        tree
    }

    /// Takes a change of one row: its old value, if it was there, and its new one, if it still is.
    pub(super) fn change(&mut self, key: &[u8], old: Option<&[u8]>, new: Option<&[u8]>) {
        let bucket = bucket_of(key);
        let rows = &mut self.buckets[bucket];
        if let Some(old) = old
            && let Ok(position) = rows.binary_search(&leaf(key, old))
        {
            rows.remove(position);
        }
        if let Some(new) = new {
            let leaf = leaf(key, new);
            let position = rows.binary_search(&leaf).unwrap_or_else(|position| position);
            rows.insert(position, leaf);
        }
        self.dirty.insert(BUCKETS + bucket);
    }

    /// The hash over all rows.
    pub(super) fn root(&mut self) -> Hash {
        let mut level = std::mem::take(&mut self.dirty);
        for node in &level {
            self.nodes[*node] = bucket_hash(&self.buckets[*node - BUCKETS]);
        }
        for _ in 0..DEPTH {
            level = level.into_iter().map(|node| node / 2).collect();
            for node in &level {
                self.nodes[*node] = inner(&self.nodes[2 * node], &self.nodes[2 * node + 1]);
            }
        }
        self.nodes[1]
    }
}

fn bucket_of(key: &[u8]) -> usize {
    let digest: [u8; 32] = Sha256::digest(key).into();
    usize::from(u16::from_le_bytes([digest[0], digest[1]])) % BUCKETS
}

/// Leaves, buckets and inner nodes are hashed in domains of their own.
fn leaf(key: &[u8], value: &[u8]) -> Hash {
    let length = (key.len() as u64).to_le_bytes();
    Hash(Sha256::new().chain_update([0]).chain_update(length).chain_update(key).chain_update(value).finalize().into())
}

fn bucket_hash(rows: &[Hash]) -> Hash {
    if rows.is_empty() {
        return Hash::default();
    }
    let mut hasher = Sha256::new().chain_update([1]);
    for row in rows {
        hasher.update(row.0);
    }
    Hash(hasher.finalize().into())
}

fn inner(left: &Hash, right: &Hash) -> Hash {
    Hash(Sha256::new().chain_update([2]).chain_update(left.0).chain_update(right.0).finalize().into())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn built(rows: &BTreeMap<Vec<u8>, Vec<u8>>) -> Hash {
        let mut tree = StateTree::new();
        for (key, value) in rows {
            tree.change(key, None, Some(value));
        }
        tree.root()
    }

    proptest! {
        #[test]
        fn changes_one_by_one_give_the_root_of_the_rows_that_are_left(
            changes in prop::collection::vec((0u8..20, prop::option::of(0u8..4)), 1..60),
            asks in prop::collection::vec(any::<bool>(), 60),
        ) {
            let mut rows: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
            let mut tree = StateTree::new();
            for ((key, value), ask) in changes.into_iter().zip(asks) {
                let key = vec![key];
                let old = rows.get(&key).cloned();
                let new = value.map(|value| vec![value]);
                tree.change(&key, old.as_deref(), new.as_deref());
                match new {
                    Some(new) => rows.insert(key, new),
                    None => rows.remove(&key),
                };
                if ask {
                    prop_assert_eq!(tree.root(), built(&rows));
                }
            }
            prop_assert_eq!(tree.root(), built(&rows));
        }
    }

    #[test]
    fn every_row_and_every_value_counts() {
        let rows: BTreeMap<Vec<u8>, Vec<u8>> = (0..9u8).map(|i| (vec![i], vec![i])).collect();
        let root = built(&rows);
        for i in 0..9u8 {
            let mut other = rows.clone();
            other.insert(vec![i], vec![99]);
            assert_ne!(built(&other), root);
            other.remove(&vec![i]);
            assert_ne!(built(&other), root);
        }
        assert_ne!(leaf(b"ab", b"c"), leaf(b"a", b"bc"));
    }
}

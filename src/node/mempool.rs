//! Transactions that wait for a block: bounded in number and bytes, first come first served, each held once.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use indexmap::IndexMap;

use super::types::{Hash, TxResult, sha256};

/// Most transactions held.
pub const TRANSACTIONS_MAX: usize = 20_000;
/// Most bytes held.
pub const BYTES_MAX: usize = 32 << 20;
/// Committed transactions that are remembered, so that a late copy is not committed once more.
const COMMITTED_MAX: usize = 20_000;

/// Why a transaction was not taken.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SubmitError {
    /// It is held already, or was committed lately.
    #[error("take a transaction: it is known already")]
    Known,
    /// There is no room.
    #[error("take a transaction: the mempool is full")]
    Full,
    /// The application refuses its form.
    #[error("take a transaction: code {code}: {log}")]
    Refused {
        /// The application's code, not 0.
        code: u32,
        /// Why.
        log: String,
    },
}

#[derive(Debug, Default)]
struct Pool {
    waiting: IndexMap<Hash, Bytes>,
    bytes: usize,
    committed: BTreeSet<Hash>,
    order: VecDeque<Hash>,
}

/// The mempool of a node, shared by the network, RPC and the chain thread.
#[derive(Debug)]
pub struct Mempool {
    pool: Mutex<Pool>,
    check: fn(&[u8]) -> TxResult,
}

impl Mempool {
    /// An empty pool; `check` is the application's look at a transaction's form.
    pub fn new(check: fn(&[u8]) -> TxResult) -> Self {
        Self { pool: Mutex::default(), check }
    }

    /// Takes a transaction and says under which hash.
    pub fn add(&self, bytes: Bytes) -> Result<Hash, SubmitError> {
        let hash = sha256(&bytes);
        {
            let pool = self.pool();
            if pool.waiting.contains_key(&hash) || pool.committed.contains(&hash) {
                return Err(SubmitError::Known);
            }
        }
        let checked = (self.check)(&bytes);
        if checked.code != 0 {
            return Err(SubmitError::Refused { code: checked.code, log: checked.log });
        }
        let mut pool = self.pool();
        if pool.waiting.len() >= TRANSACTIONS_MAX || pool.bytes + bytes.len() > BYTES_MAX {
            return Err(SubmitError::Full);
        }
        let length = bytes.len();
        if pool.waiting.insert(hash, bytes).is_none() {
            pool.bytes += length;
        }
        Ok(hash)
    }

    /// The oldest transactions of at most `bytes_max` in all; they stay until committed.
    pub fn reap(&self, bytes_max: usize) -> Vec<Vec<u8>> {
        let mut room = bytes_max;
        self.pool()
            .waiting
            .values()
            .map_while(|tx| {
                room = room.checked_sub(tx.len())?;
                Some(tx.to_vec())
            })
            .collect()
    }

    /// Forgets what a block committed, and takes none of it again.
    pub fn committed(&self, txs: &[Vec<u8>]) {
        if txs.is_empty() {
            return;
        }
        let hashes: BTreeSet<Hash> = txs.iter().map(|tx| sha256(tx)).collect();
        let mut pool = self.pool();
        for hash in &hashes {
            if pool.committed.insert(*hash) {
                pool.order.push_back(*hash);
            }
        }
        while pool.order.len() > COMMITTED_MAX {
            let oldest = pool.order.pop_front();
            oldest.map(|hash| pool.committed.remove(&hash));
        }
        let mut freed = 0;
        pool.waiting.retain(|hash, tx| {
            let keep = !hashes.contains(hash);
            freed += if keep { 0 } else { tx.len() };
            keep
        });
        pool.bytes -= freed;
    }

    /// How many wait, and their bytes.
    pub fn size(&self) -> (usize, usize) {
        let pool = self.pool();
        (pool.waiting.len(), pool.bytes)
    }

    fn pool(&self) -> MutexGuard<'_, Pool> {
        self.pool.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pool() -> Mempool {
        Mempool::new(|bytes| TxResult { code: u32::from(!bytes.starts_with(b"set ")), log: String::new() })
    }

    fn tx(text: &str) -> Bytes {
        Bytes::from(text.to_owned())
    }

    #[test]
    fn a_transaction_is_held_once_and_never_after_its_commit() {
        let pool = pool();
        pool.add(tx("set a 1")).unwrap();
        assert_eq!(pool.add(tx("set a 1")), Err(SubmitError::Known));
        pool.add(tx("set b 2")).unwrap();
        assert_eq!(pool.reap(1000), [b"set a 1".to_vec(), b"set b 2".to_vec()]);
        assert_eq!(pool.reap(8), [b"set a 1".to_vec()], "whole transactions only");
        pool.committed(&[b"set a 1".to_vec()]);
        assert_eq!(pool.size(), (1, 7));
        assert_eq!(pool.add(tx("set a 1")), Err(SubmitError::Known));
    }

    #[test]
    fn what_the_application_refuses_is_not_held() {
        let pool = pool();
        assert!(matches!(pool.add(tx("nonsense")), Err(SubmitError::Refused { .. })));
        assert_eq!(pool.size(), (0, 0));
    }

    #[test]
    fn the_number_held_is_bounded() {
        let pool = pool();
        for n in 0..TRANSACTIONS_MAX {
            pool.add(tx(&format!("set k {n}"))).unwrap();
        }
        assert_eq!(pool.add(tx("set k x")), Err(SubmitError::Full));
    }
}

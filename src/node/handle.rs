//! What RPC may know and do of the running node. Cheap to clone, callable from any thread.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;

use super::defect::Defect;
use super::mempool::{Mempool, SubmitError};
use super::p2p::{Network, PeerInfo};
use super::types::Hash;

/// Whether the node is behind, as RPC tells it.
#[derive(Debug)]
pub(crate) struct SyncStatus {
    catching_up: AtomicBool,
    defect: Option<Defect>,
}

impl SyncStatus {
    pub(crate) fn new(defect: Option<Defect>) -> Self {
        Self { catching_up: AtomicBool::new(true), defect }
    }

    pub(crate) fn set_catching_up(&self, catching_up: bool) {
        self.catching_up.store(catching_up, Ordering::Relaxed);
    }

    fn catching_up(&self) -> bool {
        match self.defect {
            Some(Defect::CatchingUpStuck) => true,
            Some(Defect::CatchingUpFalse) => false,
            _ => self.catching_up.load(Ordering::Relaxed),
        }
    }
}

/// The running node, seen from RPC.
#[derive(Clone)]
pub struct Handle {
    pub(crate) network: Network,
    pub(crate) mempool: Arc<Mempool>,
    pub(crate) status: Arc<SyncStatus>,
}

impl Handle {
    /// The connected peers.
    pub fn peers(&self) -> Vec<PeerInfo> {
        self.network.peer_infos()
    }

    /// True while the node replays or fetches old blocks; false once it takes part in consensus or follows it.
    pub fn catching_up(&self) -> bool {
        self.status.catching_up()
    }

    /// Takes a transaction and passes it on to the peers; gives its hash.
    pub fn submit(&self, transaction: Bytes) -> Result<Hash, SubmitError> {
        self.network.submit(transaction)
    }

    /// Transactions that wait, and their bytes.
    pub fn mempool_size(&self) -> (usize, usize) {
        self.mempool.size()
    }
}

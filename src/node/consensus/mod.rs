//! Consensus: the host of the state machine that decides blocks.
//!
//! The host is plain and synchronous: messages and expired timeouts go in, decisions come out, and what the state machine
//! asks for meanwhile (signatures, log records, publications) is done before the call returns. It knows no network, no
//! store and no clock but the one its deadlines are read against.

mod context;
mod core;
mod host;
#[cfg(test)]
mod tests;
mod timers;
mod verify;
mod wire;

use std::sync::Arc;

use bytes::Bytes;

use context::Height;
pub(crate) use host::{Host, Setup};

use crate::node::crypto::Address;
use crate::node::sign_state::SignError;
use crate::node::types::{Block, BlockId, Commit};
use crate::node::wal::WalError;

/// Why consensus cannot go on; the node must stop.
#[derive(Debug, thiserror::Error)]
pub(crate) enum HostError {
    /// The log.
    #[error(transparent)]
    Wal(#[from] WalError),
    /// The sign state could not be read or written.
    #[error(transparent)]
    Sign(#[from] SignError),
    /// The state machine is in a state it should not be in.
    #[error("run consensus: {0}")]
    Core(String),
}

/// What consensus asks of the application and the stores, at the height in progress.
pub(crate) trait Application {
    /// Makes the block to propose.
    fn build_block(&self, proposer: Address) -> Block;

    /// Whether a proposed block may follow; the text says why not.
    fn validate_block(&self, block: &Block) -> Result<(), String>;
}

/// Where messages leave.
pub(crate) trait Outlet: Send {
    /// Floods a message. `salt` above 0 repeats one.
    fn publish(&self, height: u64, salt: u32, payload: Bytes);
}

/// A decided block with the commit that proves it.
#[derive(Clone, Debug)]
pub(crate) struct Decision {
    pub(crate) block: Arc<Block>,
    pub(crate) block_id: BlockId,
    pub(crate) commit: Commit,
}

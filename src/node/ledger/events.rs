//! What is told about a block once it is durable.

use std::sync::Arc;

use crate::node::types::{Block, BlockId, BlockResults, Height};

/// A block that is durable in all three stores.
#[derive(Clone, Debug)]
pub struct BlockEvent {
    /// Its height.
    pub height: Height,
    /// The block.
    pub block: Arc<Block>,
    /// Its name.
    pub block_id: BlockId,
    /// What its execution gave.
    pub results: Arc<BlockResults>,
}

/// Takes events in block order, each at most once over all starts of a node.
pub trait EventSink: Send {
    /// Takes one. Called on the thread that applies blocks: it must not wait.
    fn fire(&mut self, event: BlockEvent);
}

/// Nobody listens.
impl EventSink for () {
    fn fire(&mut self, _: BlockEvent) {}
}

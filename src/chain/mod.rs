//! What knows one node family, in three parts: its files and command, its RPC shapes, its stores.
//!
//! A new family is a new file or folder here and one arm in `cli::chains`. Nothing in this module opens a
//! connection or starts a process: effects are the engine's, the agent's and the run's.

mod application;
pub mod cometbft;
pub mod cosmos_sdk;
pub mod custom;
mod ed25519;
pub mod gnoland;
mod journal;
mod marks;
mod metrics;
mod patch;
mod program;
pub mod reference;
mod rpc;
#[cfg(test)]
mod sample;
mod signed;
pub mod tenderdash;
mod toml;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use crate::engine::{Binding, Build, NodeBinding};
use crate::plan::{NodePlan, Plan};
use crate::timeline::{Heights, LastSigned, Layout};

pub use application::beside;
pub use rpc::{CometShapes, Rpc};

/// Files and command of one node, ready to be put into its home.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct NodeFiles {
    /// Path below home → contents.
    pub files: BTreeMap<String, FileContents>,
    /// Program and arguments.
    pub command: Vec<String>,
    /// Environment, complete.
    pub env: BTreeMap<String, String>,
}

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileContents {
    /// Its bytes.
    pub bytes: Vec<u8>,
    /// Permission bits.
    pub mode: u32,
}

/// A chain built off-line, made once and cached by `key`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fixture {
    /// Digest over all that the chain depends on: genesis, keys, blocks, transactions, format.
    pub key: String,
    /// Files that the command needs, relative to its working folder.
    pub files: BTreeMap<String, FileContents>,
    /// Program and arguments, run in an empty folder; makes `data/` there.
    pub command: Vec<String>,
    /// Where `data/` goes below a node's home.
    pub into: String,
}

/// What the blocks of a chain hold that is made for a bench.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockContents {
    /// Transactions in each block.
    pub transactions: u64,
    /// Bytes of each.
    pub size: usize,
}

/// Where a node's own count says that the time goes, since its start.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Stages {
    /// Blocks applied; `None` where the family does not tell.
    pub blocks: Option<u64>,
    /// Seconds by stage.
    pub seconds: BTreeMap<String, f64>,
}

/// What a family's own command line makes once, before any node starts; kept by `key` and the build's digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetUp {
    /// Digest over everything that the outcome depends on beside the program itself.
    pub key: String,
    /// Whose program runs the steps.
    pub build: Build,
    /// Files that are there before the first step, by path below the working folder.
    pub files: BTreeMap<String, FileContents>,
    /// In order; one that fails ends the set-up.
    pub steps: Vec<Step>,
    /// Files that are kept, by path below the working folder. One that no step made is an error.
    pub keep: Vec<String>,
}

/// One command of a set-up, run in the folder that all of its steps share.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Step {
    /// Arguments of the program.
    pub arguments: Vec<String>,
    /// The same in the spelling of other versions, tried where the program does not know the first.
    pub or: Option<Vec<String>>,
    /// What it reads from standard input.
    pub input: String,
}

/// What a set-up made, by path below its working folder; empty for families without one.
pub type Made = BTreeMap<String, Vec<u8>>;

/// A family could not do what the plan asks, or a node's answer or file makes no sense to it.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct ChainError(pub String);

impl From<crate::timeline::wire::WireError> for ChainError {
    fn from(error: crate::timeline::wire::WireError) -> Self {
        Self(error.message)
    }
}

impl ChainError {
    fn new(what: impl Into<String>) -> Self {
        Self(what.into())
    }
}

/// Where a node lives.
fn bound<'a>(binding: &'a Binding, node: &str) -> Result<&'a NodeBinding, ChainError> {
    binding.nodes.get(node).ok_or_else(|| ChainError::new(format!("render a node: `{node}` is not bound")))
}

/// `id@address` of each node that this one dials, in the order of the plan.
fn peers(
    plan: &Plan,
    binding: &Binding,
    node: &NodePlan,
    id: impl Fn(&NodePlan) -> Result<String, ChainError>,
) -> Result<Vec<String>, ChainError> {
    let dialled = node.peers.iter().map(|name| {
        let peer = plan.nodes.iter().find(|other| other.name == *name);
        let peer = peer.ok_or_else(|| ChainError::new(format!("render a node: peer `{name}` is not in the plan")))?;
        let there = bound(binding, name)?;
        Ok(format!("{}@{}", id(peer)?, SocketAddr::new(there.ip, there.p2p_port)))
    });
    dialled.collect()
}

impl FileContents {
    /// A file that everybody may read.
    fn plain(bytes: impl Into<Vec<u8>>) -> Self {
        Self { bytes: bytes.into(), mode: 0o644 }
    }

    /// A file with a secret.
    fn secret(bytes: impl Into<Vec<u8>>) -> Self {
        Self { bytes: bytes.into(), mode: 0o600 }
    }
}

/// One node family.
pub trait Chain: Send + Sync {
    /// What a node of this plan is made from.
    fn build(&self, plan: &Plan, node: &NodePlan) -> Build;

    /// What a plain program of this family needs of this machine, so that no container can be made from it alone.
    fn tied_to_machine(&self) -> Option<&'static str> {
        None
    }

    /// The node's stores, the order of one flush, and how its output is read.
    fn layout(&self, plan: &Plan, node: &NodePlan) -> Layout;

    /// What the node's own command line makes once before any node starts; `None` where the plan makes everything.
    fn set_up(&self, _plan: &Plan) -> Result<Option<SetUp>, ChainError> {
        Ok(None)
    }

    /// Files and command. Pure: the same plan, binding and outcome of the set-up give the same bytes.
    fn render(&self, plan: &Plan, binding: &Binding, made: &Made, node: &NodePlan) -> Result<NodeFiles, ChainError>;

    /// The chain to start from, where the plan asks for built blocks. A family without a command that builds one refuses.
    fn fixture(&self, plan: &Plan) -> Result<Option<Fixture>, ChainError> {
        if plan.built_blocks > 0 {
            return Err(ChainError::new(
                "start from built blocks: these nodes have no command that builds a chain off-line",
            ));
        }
        Ok(None)
    }

    /// The chain that a bench syncs; `None` where the family cannot build one off-line and its validators must make it.
    fn filled_fixture(&self, _plan: &Plan, _blocks: BlockContents) -> Result<Option<Fixture>, ChainError> {
        Ok(None)
    }

    /// What the node's metrics say about blocks and stages; nothing where the family has no such metrics.
    fn stages(&self, _metrics: &str) -> Stages {
        Stages::default()
    }

    /// Folders below home that hold a node's chain. Another node serves the chain when it has the first of them alone.
    fn folders(&self) -> &'static [&'static str] {
        &["data"]
    }

    /// The RPC shapes.
    fn rpc(&self) -> &dyn Rpc;

    /// Paths below home that [`Chain::stored_heights`] reads; none where heights cannot be read off-line and the handshake
    /// line of the next start tells them.
    fn stored_paths(&self) -> Vec<String> {
        Vec::new()
    }

    /// The three heights in a copy of these paths, made while the node was down.
    fn stored_heights(&self, _copy: &Path) -> Result<Heights, ChainError> {
        Err(ChainError::new("read heights off-line: these nodes tell them only in their handshake line"))
    }

    /// Path below home of the file that [`Chain::last_signed`] reads.
    fn signed_path(&self) -> &'static str;

    /// What the validator signed last, in a copy of that path, made while the node was down.
    fn last_signed(&self, copy: &Path) -> LastSigned {
        signed::privval(&copy.join(self.signed_path()))
    }

    /// The request for an endless stream of one line a committed block; `None` where events come only over a WebSocket, as
    /// JSON-RPC answers.
    fn events_request(&self) -> Option<String> {
        None
    }

    /// The height in one line of it; `None` for a line that is about no block.
    fn event_height(&self, _line: &[u8]) -> Result<Option<u64>, ChainError> {
        Err(ChainError::new("read an event: these nodes have no stream of lines"))
    }

    /// The n-th transaction of the load, `size` bytes where the kind allows it.
    fn transaction(&self, plan: &Plan, made: &Made, kind: &str, n: u64, size: usize) -> Result<Vec<u8>, ChainError>;
}

//! Why an experiment could not be carried out. All of these are the tool's own failures, never a node's.

use std::path::PathBuf;

use crate::agent_client::ClientError;
use crate::chain::ChainError;
use crate::engine::EngineError;
use crate::results::ResultsError;

/// An experiment failed before a verdict could be reached; reads after "failed to".
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The engine could not do its part.
    #[error("{doing}: {source}")]
    Engine {
        /// What it was to do.
        doing: String,
        /// The engine's words.
        #[source]
        source: EngineError,
    },
    /// An agent could not be reached or refused.
    #[error("{doing} through the agent of `{node}`: {source}")]
    Agent {
        /// The node.
        node: String,
        /// What it was to do.
        doing: String,
        /// The client's words.
        #[source]
        source: ClientError,
    },
    /// The chain family cannot do what the plan asks.
    #[error("make the files of `{node}`: {source}")]
    Chain {
        /// The node.
        node: String,
        /// The family's words.
        #[source]
        source: ChainError,
    },
    /// The run folder could not be written.
    #[error("write the results: {0}")]
    Results(#[from] ResultsError),
    /// The chain to start from could not be built.
    #[error("build the chain to start from in {}: {reason}", folder.display())]
    Fixture {
        /// Where it was built.
        folder: PathBuf,
        /// Why not, with the command's last lines.
        reason: String,
    },
    /// The node's own command line could not set up the chain.
    #[error("set up the chain with the node's own command line: {reason}")]
    SetUp {
        /// Why not: the command, how it ended, and its last lines.
        reason: String,
    },
    /// The machine cannot do what the plan needs; found before any node starts.
    #[error("aim faults at `{node}`, which this machine cannot: {reason}")]
    CannotIntercept {
        /// The node.
        node: String,
        /// Why not.
        reason: String,
    },
    /// Files could not be packed for an agent.
    #[error("pack files for the agents: {what}")]
    Archive {
        /// Why not.
        what: String,
    },
    /// The user stopped the run.
    #[error("go on after an interruption")]
    Interrupted,
}

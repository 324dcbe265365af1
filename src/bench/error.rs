//! Why a bench ended without figures.

use crate::agent_client::ClientError;
use crate::chain::ChainError;
use crate::engine::EngineError;
use crate::results::ResultsError;
use crate::run::RunError;
use crate::topology::Problem;

/// A bench failed. Reads after "failed to".
#[derive(Debug, thiserror::Error)]
pub enum BenchError {
    /// What is asked for cannot be had; nothing was measured.
    #[error("{0}")]
    Input(String),
    /// The node under test did something that a fast node must not do either.
    #[error("{0}")]
    Node(String),
    /// The plan of a cell cannot be drawn.
    #[error("plan a cell: {}", .0.title)]
    Plan(Box<Problem>),
    /// The engine could not do its part.
    #[error("{doing}: {source}")]
    Engine {
        /// What it was to do.
        doing: &'static str,
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
        doing: &'static str,
        /// The client's words.
        #[source]
        source: ClientError,
    },
    /// The family cannot do what the bench asks.
    #[error(transparent)]
    Chain(#[from] ChainError),
    /// The chain to be synced could not be made.
    #[error(transparent)]
    Fixture(#[from] RunError),
    /// The results could not be written.
    #[error(transparent)]
    Results(#[from] ResultsError),
    /// Something of this machine failed.
    #[error("{what}: {source}")]
    Machine {
        /// What was to be done.
        what: &'static str,
        /// Why not.
        #[source]
        source: std::io::Error,
    },
    /// The user stopped it.
    #[error("go on: interrupted")]
    Interrupted,
}

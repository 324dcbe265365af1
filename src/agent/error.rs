//! What the agent could not do, and whose fault that is.

use std::io;

use crate::sys::launch::LaunchError;

/// The agent could not do what was asked. Reads after "failed to".
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    /// The request makes no sense.
    #[error("do what was asked: {0}")]
    Refused(String),
    /// The request does not fit the node's present state.
    #[error("do it now: {0}")]
    Conflict(String),
    /// There is no such thing.
    #[error("find it: {0}")]
    Missing(String),
    /// The node's program could not be started.
    #[error("start the node: {source}")]
    Launch {
        /// The step that failed.
        source: LaunchError,
    },
    /// The machine said no.
    #[error("{doing}: {source}")]
    Io {
        /// What was being done.
        doing: &'static str,
        /// What the machine said.
        source: io::Error,
    },
}

impl AgentError {
    pub(crate) fn io(doing: &'static str) -> impl FnOnce(io::Error) -> Self {
        move |source| Self::Io { doing, source }
    }
}

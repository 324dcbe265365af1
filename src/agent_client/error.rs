//! Why a request to an agent did not succeed.

use std::time::Duration;

/// A request to an agent failed. Reads after "failed to".
#[derive(Debug, thiserror::Error)]
#[error("{request}: {kind}")]
pub struct ClientError {
    /// The request in words, such as `start the node`.
    pub request: &'static str,
    /// What went wrong.
    #[source]
    pub kind: ClientErrorKind,
}

/// What went wrong with a request.
#[derive(Debug, thiserror::Error)]
pub enum ClientErrorKind {
    /// No byte stream to the agent.
    #[error("the agent cannot be dialled: {0}")]
    Dial(#[source] std::io::Error),
    /// The byte stream broke.
    #[error("the connection to the agent broke: {0}")]
    Transport(#[source] hyper::Error),
    /// No answer in time.
    #[error("no answer within {} ms", .0.as_millis())]
    Deadline(Duration),
    /// The agent said no.
    #[error("the agent refused ({status}): {message}")]
    Refused {
        /// HTTP status.
        status: u16,
        /// The agent's words.
        message: String,
    },
    /// The answer is not what the protocol says, or it is larger than allowed.
    #[error("the agent's answer makes no sense: {0}")]
    Answer(String),
}

impl ClientError {
    pub(crate) fn new(request: &'static str, kind: ClientErrorKind) -> Self {
        Self { request, kind }
    }

    /// The HTTP status with which the agent refused, if it did.
    pub fn refused_with(&self) -> Option<u16> {
        match &self.kind {
            ClientErrorKind::Refused { status, .. } => Some(*status),
            _ => None,
        }
    }

    /// Whether the agent itself could not be reached, as opposed to having answered with a refusal.
    pub fn is_unreachable(&self) -> bool {
        matches!(self.kind, ClientErrorKind::Dial(_) | ClientErrorKind::Transport(_) | ClientErrorKind::Deadline(_))
    }
}

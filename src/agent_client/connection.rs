//! HTTP/1.1 connections to one agent: dialled when needed, kept while they are idle, driven by tasks that end with
//! the client.

use std::sync::Mutex;
use std::sync::{Arc, PoisonError};

use bytes::Bytes;
use http_body_util::Full;
use hyper::client::conn::http1;
use hyper::{Request, Response, body::Incoming};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::task::JoinSet;

use super::error::ClientErrorKind;

/// A connection to an agent.
pub trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// What gives byte streams to one agent: a socket, a forwarded port, a container's attached input and output.
#[async_trait::async_trait]
pub trait Dial: Send + Sync {
    /// A new byte stream.
    async fn dial(&self) -> std::io::Result<Box<dyn ByteStream>>;
}

pub(super) type Sender = http1::SendRequest<Full<Bytes>>;

/// Idle connections kept at most. More only cost sockets at the agent.
const IDLE_MAX: usize = 4;

pub(super) struct Connections {
    dialer: Arc<dyn Dial>,
    idle: Mutex<Vec<Sender>>,
    drivers: Mutex<JoinSet<()>>,
}

impl Connections {
    pub(super) fn new(dialer: Arc<dyn Dial>) -> Self {
        Self { dialer, idle: Mutex::default(), drivers: Mutex::new(JoinSet::new()) }
    }

    /// Sends on an idle connection, or on a new one. A kept connection may have been closed by the agent
    /// meanwhile; hyper then gives the request back unsent, and it goes over a new one.
    pub(super) async fn send(
        &self,
        mut request: Request<Full<Bytes>>,
    ) -> Result<(Response<Incoming>, Sender), ClientErrorKind> {
        while let Some(mut sender) = self.pop_idle() {
            if sender.ready().await.is_err() {
                continue;
            }
            match sender.try_send_request(request).await {
                Ok(response) => return Ok((response, sender)),
                Err(mut error) => match error.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(ClientErrorKind::Transport(error.into_error())),
                },
            }
        }
        let mut sender = self.connect().await?;
        let response = sender.send_request(request).await.map_err(ClientErrorKind::Transport)?;
        Ok((response, sender))
    }

    /// Keeps a connection whose answer was read to its end.
    pub(super) fn keep(&self, sender: Sender) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if idle.len() < IDLE_MAX && !sender.is_closed() {
            idle.push(sender);
        }
    }

    fn pop_idle(&self) -> Option<Sender> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()
    }

    async fn connect(&self) -> Result<Sender, ClientErrorKind> {
        let stream = self.dialer.dial().await.map_err(ClientErrorKind::Dial)?;
        let (sender, connection) = http1::handshake(TokioIo::new(stream)).await.map_err(ClientErrorKind::Transport)?;
        let mut drivers = self.drivers.lock().unwrap_or_else(PoisonError::into_inner);
        while drivers.try_join_next().is_some() {}
        drivers.spawn(async move {
            // How the connection ended reaches the requests that were on it.
            let _ended = connection.await;
        });
        Ok(sender)
    }
}

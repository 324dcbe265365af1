//! Requests for benches: processors, what a node has used, what the disk takes.

use bytes::Bytes;
use hyper::Method;

use super::client::{Client, FILES, QUICK};
use super::error::ClientError;
use super::protocol::{PinRequest, Probe, Usage};

impl Client {
    /// Keeps the agent, and every node that it starts from now on, on these processors.
    pub async fn pin(&self, request: &PinRequest) -> Result<(), ClientError> {
        self.order("pin the node", Method::POST, "/v1/pin", request, QUICK).await
    }

    /// What the running node has used since its start. Status 409 when it does not run.
    pub async fn usage(&self) -> Result<Usage, ClientError> {
        self.ask("read what the node has used", Method::GET, "/v1/usage", Bytes::new(), QUICK).await
    }

    /// Makes real syncs on the disk below the node's home. Status 409 when the node runs.
    pub async fn probe(&self) -> Result<Probe, ClientError> {
        self.ask("probe the disk", Method::POST, "/v1/probe", Bytes::new(), FILES).await
    }

    /// The node's metrics, from `host:port` where it serves them.
    pub async fn scrape(&self, at: &str) -> Result<Bytes, ClientError> {
        self.bytes("read the node's metrics", Method::GET, &format!("/v1/scrape?at={at}"), Bytes::new(), QUICK).await
    }
}

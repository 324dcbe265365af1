//! The controller's side of the protocol: one method a request, each with a deadline.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::{Method, Request, Response, StatusCode, header};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::time::timeout;

use super::connection::{Connections, Dial};
use super::error::{ClientError, ClientErrorKind};
use super::events::{EventStream, LineStream};
use super::protocol::{
    Arm, CloneRequest, Disarm, Hello, Refusal, RestoreRequest, SignalRequest, StartRequest, Started,
};
use crate::timeline::FaultId;

/// Deadline of a request that only touches the agent's memory.
pub(super) const QUICK: Duration = Duration::from_secs(10);
/// Deadline of a request that moves files.
pub(super) const FILES: Duration = Duration::from_secs(120);
/// Deadline of a relayed RPC request; the agent itself gives up earlier.
const RPC: Duration = Duration::from_secs(15);
/// Largest answer held in memory: an exported data folder of a small testnet's node.
const ANSWER_MAX: usize = 1 << 30;

/// An answer of the node's RPC, as it came.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RpcAnswer {
    /// HTTP status.
    pub status: u16,
    /// Body.
    pub body: Bytes,
}

/// Speaks to one agent. Cheap to share behind an `Arc`; requests may run side by side.
pub struct Client {
    connections: Connections,
    authorization: String,
}

impl Client {
    /// A client that dials with `dialer` and shows `token`. Nothing is dialled yet.
    pub fn new(dialer: Arc<dyn Dial>, token: &str) -> Self {
        Self { connections: Connections::new(dialer), authorization: format!("Bearer {token}") }
    }

    /// What the agent is and what its machine can do.
    pub async fn hello(&self) -> Result<Hello, ClientError> {
        self.ask("greet the agent", Method::GET, "/v1/hello", Bytes::new(), QUICK).await
    }

    /// Unpacks a tar archive of plain files and folders below the node's home.
    pub async fn put_files(&self, tar: Bytes) -> Result<(), ClientError> {
        self.bytes("put files", Method::PUT, "/v1/files", tar, FILES).await.map(drop)
    }

    /// A tar archive of these paths below the node's home; a missing one is left out.
    pub async fn export(&self, paths: &[String]) -> Result<Bytes, ClientError> {
        let query: Vec<String> = paths.iter().map(|path| format!("path={}", encode(path))).collect();
        let target = format!("/v1/files?{}", query.join("&"));
        self.bytes("export files", Method::GET, &target, Bytes::new(), FILES).await
    }

    /// Copies a folder of the agent's machine to a path below home, which must not exist.
    pub async fn clone_from(&self, request: &CloneRequest) -> Result<(), ClientError> {
        self.order("copy a folder", Method::POST, "/v1/clone", request, FILES).await
    }

    /// Replaces a path below home by another one below home.
    pub async fn restore(&self, request: &RestoreRequest) -> Result<(), ClientError> {
        self.order("restore a folder", Method::POST, "/v1/restore", request, FILES).await
    }

    /// Starts the node. The answer comes when the program runs: an `exec` that fails is a refusal.
    pub async fn start(&self, request: &StartRequest) -> Result<Started, ClientError> {
        let body = json("start the node", request)?;
        self.ask("start the node", Method::POST, "/v1/start", body, QUICK).await
    }

    /// Whether something accepts at `IP:PORT` of the node. Status 409 when the node does not run.
    pub async fn listens(&self, at: SocketAddr) -> Result<bool, ClientError> {
        let target = format!("/v1/listens?at={at}");
        self.ask("look whether the node listens", Method::GET, &target, Bytes::new(), QUICK).await
    }

    /// Sends a signal to the node. Status 409 when it does not run.
    pub async fn signal(&self, request: &SignalRequest) -> Result<(), ClientError> {
        self.order("signal the node", Method::POST, "/v1/signal", request, QUICK).await
    }

    /// Waits for an address. Status 400 when the address can never be met as asked.
    pub async fn arm(&self, request: &Arm) -> Result<(), ClientError> {
        self.order("arm a fault", Method::POST, "/v1/arm", request, QUICK).await
    }

    /// Takes an armed fault back. Status 404 when it is not armed: it has landed, or its process has ended.
    pub async fn disarm(&self, fault: &FaultId) -> Result<(), ClientError> {
        let request = Disarm { fault: fault.clone() };
        self.order("disarm a fault", Method::DELETE, "/v1/arm", &request, QUICK).await
    }

    /// Everything that the agent saw after position `after` (0 is all), and then what it sees, as it happens.
    pub async fn events(&self, after: u64) -> Result<EventStream, ClientError> {
        let what = "follow the agent's events";
        let request = self.request(what, Method::GET, &format!("/v1/events?after={after}"), Bytes::new())?;
        let sent = timeout(QUICK, self.connections.send(request)).await;
        let (response, sender) = late(what, QUICK, sent)?;
        let response = refuse(what, response).await?;
        Ok(EventStream::new(response.into_body(), sender))
    }

    /// Asks the node's RPC for an answer without an end: path with query, with a leading slash. It ends with the node.
    pub async fn follow(&self, path_and_query: &str) -> Result<LineStream, ClientError> {
        let what = "follow what the node tells";
        let request = self.request(what, Method::GET, &format!("/v1/follow{path_and_query}"), Bytes::new())?;
        let sent = timeout(RPC, self.connections.send(request)).await;
        let (response, sender) = late(what, RPC, sent)?;
        let response = refuse(what, response).await?;
        Ok(LineStream::new(what, response.into_body(), sender, None))
    }

    /// The captured output of a start.
    pub async fn log(&self, start: u32) -> Result<Bytes, ClientError> {
        self.bytes("read the node's log", Method::GET, &format!("/v1/log?start={start}"), Bytes::new(), FILES).await
    }

    /// Asks the node's RPC: path with query, with a leading slash.
    pub async fn rpc(&self, path_and_query: &str) -> Result<RpcAnswer, ClientError> {
        self.relay(Method::GET, path_and_query, Bytes::new()).await
    }

    /// Posts a JSON body to the node's RPC.
    pub async fn rpc_post(&self, path_and_query: &str, body: Bytes) -> Result<RpcAnswer, ClientError> {
        self.relay(Method::POST, path_and_query, body).await
    }

    async fn relay(&self, method: Method, path_and_query: &str, body: Bytes) -> Result<RpcAnswer, ClientError> {
        let what = "ask the node's RPC";
        let request = self.request(what, method, &format!("/v1/rpc{path_and_query}"), body)?;
        let exchange = async {
            let (response, sender) = self.connections.send(request).await?;
            let relayed = response.headers().contains_key(super::protocol::RELAYED);
            let status = response.status().as_u16();
            let body = collect(response.into_body()).await?;
            self.connections.keep(sender);
            if relayed {
                return Ok(RpcAnswer { status, body });
            }
            Err(ClientErrorKind::Refused { status, message: refusal(&body) })
        };
        late(what, RPC, timeout(RPC, exchange).await)
    }

    pub(super) async fn ask<T: DeserializeOwned>(
        &self,
        what: &'static str,
        method: Method,
        target: &str,
        body: Bytes,
        deadline: Duration,
    ) -> Result<T, ClientError> {
        let answer = self.bytes(what, method, target, body, deadline).await?;
        serde_json::from_slice(&answer)
            .map_err(|error| ClientError::new(what, ClientErrorKind::Answer(error.to_string())))
    }

    /// Sends a request with a JSON body to which the answer is empty.
    pub(super) async fn order<T: Serialize>(
        &self,
        what: &'static str,
        method: Method,
        target: &str,
        request: &T,
        deadline: Duration,
    ) -> Result<(), ClientError> {
        self.bytes(what, method, target, json(what, request)?, deadline).await.map(drop)
    }

    pub(super) async fn bytes(
        &self,
        what: &'static str,
        method: Method,
        target: &str,
        body: Bytes,
        deadline: Duration,
    ) -> Result<Bytes, ClientError> {
        let request = self.request(what, method, target, body)?;
        let exchange = async {
            let (response, sender) = self.connections.send(request).await?;
            let status = response.status();
            let body = collect(response.into_body()).await?;
            self.connections.keep(sender);
            if status.is_success() {
                return Ok(body);
            }
            Err(ClientErrorKind::Refused { status: status.as_u16(), message: refusal(&body) })
        };
        late(what, deadline, timeout(deadline, exchange).await)
    }

    fn request(
        &self,
        what: &'static str,
        method: Method,
        target: &str,
        body: Bytes,
    ) -> Result<Request<Full<Bytes>>, ClientError> {
        Request::builder()
            .method(method)
            .uri(target)
            .header(header::HOST, "agent")
            .header(header::AUTHORIZATION, &self.authorization)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .map_err(|error| ClientError::new(what, ClientErrorKind::Answer(error.to_string())))
    }
}

fn json<T: Serialize>(what: &'static str, value: &T) -> Result<Bytes, ClientError> {
    serde_json::to_vec(value)
        .map(Bytes::from)
        .map_err(|error| ClientError::new(what, ClientErrorKind::Answer(error.to_string())))
}

fn late<T>(
    what: &'static str,
    deadline: Duration,
    result: Result<Result<T, ClientErrorKind>, tokio::time::error::Elapsed>,
) -> Result<T, ClientError> {
    result.unwrap_or(Err(ClientErrorKind::Deadline(deadline))).map_err(|kind| ClientError::new(what, kind))
}

async fn collect(body: Incoming) -> Result<Bytes, ClientErrorKind> {
    match Limited::new(body, ANSWER_MAX).collect().await {
        Ok(whole) => Ok(whole.to_bytes()),
        Err(error) => Err(match error.downcast::<hyper::Error>() {
            Ok(error) => ClientErrorKind::Transport(*error),
            Err(error) => ClientErrorKind::Answer(error.to_string()),
        }),
    }
}

async fn refuse(what: &'static str, response: Response<Incoming>) -> Result<Response<Incoming>, ClientError> {
    if response.status() == StatusCode::OK {
        return Ok(response);
    }
    let status = response.status().as_u16();
    let collected = timeout(QUICK, collect(response.into_body())).await;
    let body = late(what, QUICK, collected)?;
    Err(ClientError::new(what, ClientErrorKind::Refused { status, message: refusal(&body) }))
}

fn refusal(body: &[u8]) -> String {
    serde_json::from_slice::<Refusal>(body)
        .map_or_else(|_| String::from_utf8_lossy(&body[..body.len().min(500)]).into_owned(), |refusal| refusal.error)
}

/// Percent-encodes one value of a query.
fn encode(value: &str) -> String {
    let mut encoded = String::with_capacity(value.len());
    for byte in value.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            encoded.push(char::from(byte));
        } else {
            encoded.push_str(&format!("%{byte:02X}"));
        }
    }
    encoded
}

#[cfg(test)]
mod tests {
    use super::encode;

    #[test]
    fn paths_survive_in_a_query() {
        assert_eq!(encode("data/cs.wal/wal"), "data/cs.wal/wal");
        assert_eq!(encode("a b&c=%"), "a%20b%26c%3D%25");
    }
}

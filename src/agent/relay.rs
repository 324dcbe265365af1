//! Passes requests on to the node's RPC, so that one endpoint a node is enough.

use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, Method, Request, Response, header};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

use crate::agent_client::protocol::RELAYED;

/// Time for the whole exchange with the node.
const EXCHANGE_MAX: Duration = Duration::from_secs(10);
/// Largest answer of a node: a page of big blocks.
const ANSWER_MAX: usize = 64 << 20;

/// Sends one request to `address` and returns the answer; an error tells why there is none.
pub(crate) async fn relay(
    address: &str,
    method: Method,
    path_and_query: &str,
    content_type: Option<&HeaderValue>,
    body: Bytes,
) -> Result<Response<Body>, String> {
    let exchange = exchange(address, method, path_and_query, content_type, body);
    match timeout(EXCHANGE_MAX, exchange).await {
        Ok(answer) => answer,
        Err(_) => Err(format!("{address} did not answer within {} s", EXCHANGE_MAX.as_secs())),
    }
}

async fn exchange(
    address: &str,
    method: Method,
    path_and_query: &str,
    content_type: Option<&HeaderValue>,
    body: Bytes,
) -> Result<Response<Body>, String> {
    let stream = TcpStream::connect(address).await.map_err(|e| format!("{address} does not accept: {e}"))?;
    let broke = |e: hyper::Error| format!("{address} broke the connection: {e}");
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(broke)?;
    let mut request = Request::builder().method(method).uri(path_and_query).header(header::HOST, address);
    if let Some(content_type) = content_type {
        request = request.header(header::CONTENT_TYPE, content_type);
    }
    let request = request.body(Full::new(body)).map_err(|e| format!("the request makes no sense: {e}"))?;
    let answered = async {
        let (head, body) = sender.send_request(request).await.map_err(broke)?.into_parts();
        let body = Limited::new(body, ANSWER_MAX).collect().await;
        let body = body.map_err(|e| format!("{address} sent an answer that cannot be taken: {e}"))?.to_bytes();
        let mut answer = Response::builder().status(head.status).header(RELAYED, "1");
        if let Some(kind) = head.headers.get(header::CONTENT_TYPE) {
            answer = answer.header(header::CONTENT_TYPE, kind);
        }
        answer.body(Body::from(body)).map_err(|e| e.to_string())
    };
    // The connection is driven by this future alone, and ends with it.
    tokio::pin!(connection);
    tokio::pin!(answered);
    tokio::select! {
        biased;
        answer = &mut answered => answer,
        ended = &mut connection => match ended {
            // What was received before the end is still there to be read.
            Ok(()) => answered.await,
            Err(error) => Err(broke(error)),
        },
    }
}

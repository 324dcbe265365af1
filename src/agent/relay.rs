//! Passes requests on to the node's RPC, so that one endpoint a node is enough.

use std::pin::Pin;
use std::time::Duration;

use axum::body::Body;
use axum::http::{HeaderValue, Method, Request, Response, header};
use bytes::Bytes;
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Incoming;
use hyper::client::conn::http1::Connection;
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

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

/// Asks `address` for an answer that has no end, such as a stream of events, and passes it on piece by piece until the
/// node, the caller or `ending` ends it. The beginning of the answer has to come in time; what follows may take as long as it
/// likes, since a chain that rests has nothing to say.
pub(crate) async fn follow(
    address: &str,
    path_and_query: &str,
    ending: CancellationToken,
) -> Result<Response<Body>, String> {
    match timeout(EXCHANGE_MAX, begin(address, path_and_query, ending)).await {
        Ok(answer) => answer,
        Err(_) => Err(format!("{address} did not answer within {} s", EXCHANGE_MAX.as_secs())),
    }
}

async fn begin(address: &str, path_and_query: &str, ending: CancellationToken) -> Result<Response<Body>, String> {
    let stream = TcpStream::connect(address).await.map_err(|e| format!("{address} does not accept: {e}"))?;
    let broke = |e: hyper::Error| format!("{address} broke the connection: {e}");
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await.map_err(broke)?;
    let request = Request::builder().uri(path_and_query).header(header::HOST, address).body(Full::default());
    let request = request.map_err(|e| format!("the request makes no sense: {e}"))?;
    let mut connection = Box::pin(connection);
    let (head, body) = tokio::select! {
        biased;
        answer = sender.send_request(request) => answer.map_err(broke)?.into_parts(),
        ended = &mut connection => return Err(ended.map_or_else(broke, |()| format!("{address} closed the connection"))),
    };
    let following = Following { connection: Some(connection), body, ending };
    let pieces = futures_util::stream::unfold(following, |mut following| async {
        following.next().await.map(|piece| (piece, following))
    });
    let mut answer = Response::builder().status(head.status).header(RELAYED, "1");
    if let Some(kind) = head.headers.get(header::CONTENT_TYPE) {
        answer = answer.header(header::CONTENT_TYPE, kind);
    }
    answer.body(Body::from_stream(pieces)).map_err(|e| e.to_string())
}

/// One connection to a node, driven by whoever reads from it.
type NodeConnection = Connection<TokioIo<TcpStream>, Full<Bytes>>;

/// An endless answer with the connection that it comes on, which nothing else drives.
struct Following {
    connection: Option<Pin<Box<NodeConnection>>>,
    body: Incoming,
    ending: CancellationToken,
}

impl Following {
    async fn next(&mut self) -> Option<Result<Bytes, hyper::Error>> {
        loop {
            let Self { connection, body, ending } = self;
            let driven = async {
                match connection {
                    // How it ended reaches the body.
                    Some(connection) => drop(connection.await),
                    None => std::future::pending().await,
                }
            };
            let frame = tokio::select! {
                biased;
                () = ending.cancelled() => return None,
                frame = body.frame() => frame?,
                () = driven => {
                    self.connection = None;
                    continue;
                }
            };
            match frame.map(hyper::body::Frame::into_data) {
                Ok(Ok(piece)) => return Some(Ok(piece)),
                // Trailers carry nothing of it.
                Ok(Err(_)) => {}
                Err(error) => return Some(Err(error)),
            }
        }
    }
}

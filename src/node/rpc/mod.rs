//! The node's RPC in the shapes of CometBFT, its event stream, and its metrics.
//!
//! | request | answer |
//! |---|---|
//! | `GET /METHOD?name=value` | JSON-RPC envelope, id −1; HTTP status 500 for an error |
//! | `POST /` | JSON-RPC 2.0, one request or at most ten |
//! | `GET /events` | NDJSON, a line a block |
//! | `GET /metrics` | on the metrics address, Prometheus text |
//!
//! All is answered from the versions on disk, never from what is held in memory. Connections, requests at once, bodies and
//! times are limited.

mod answer;
mod blocks;
mod events;
mod listener;
mod methods;
mod metrics;
mod request;
mod shapes;
#[cfg(test)]
mod tests;

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::extract::{DefaultBodyLimit, Path, Query, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse as _, Response};
use axum::routing::get;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tower::limit::GlobalConcurrencyLimitLayer;
use tower_http::timeout::TimeoutLayer;

use self::answer::RpcError;
use self::listener::Limited;
use self::metrics::Metrics;
use self::request::Params;
use super::config::NodeConfig;
use super::crypto::PublicKey;
use super::handle::Handle;
use super::ledger::View;
use super::types::Genesis;

pub use events::EventHub;

/// Connections at once, on each address.
const CONNECTIONS_MAX: usize = 128;
/// Calls answered at once.
const CALLS_MAX: usize = 32;
/// Most bytes of a body: a transaction of 1 MiB in base64 and its envelope.
const BODY_MAX: usize = 1_500_000;
/// Requests of one batch.
const BATCH_MAX: usize = 10;
/// Longest time for one call, waiting for others included.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);
/// Longest wait for open calls when the node stops.
const STOP_TIMEOUT: Duration = Duration::from_secs(2);

/// What is asked about.
#[derive(Clone)]
pub struct Context {
    /// The running node.
    pub handle: Handle,
    /// Its stores.
    pub view: View,
    /// Where its events come from.
    pub events: EventHub,
    /// Its chain.
    pub genesis: Arc<Genesis>,
    /// Its configuration.
    pub config: Arc<NodeConfig>,
    /// Its key.
    pub public_key: PublicKey,
}

/// Binds an address of the configuration (with `SO_REUSEADDR`, as a restart needs it); the error names it.
pub async fn bind(address: SocketAddr) -> io::Result<TcpListener> {
    TcpListener::bind(address).await.map_err(|e| io::Error::new(e.kind(), format!("listen on {address}: {e}")))
}

/// Serves RPC and events until `shutdown`.
pub async fn serve(listener: TcpListener, context: Context, shutdown: CancellationToken) -> io::Result<()> {
    let calls = Router::new()
        .route("/", get(list).post(post_call))
        .route("/{method}", get(get_call))
        .layer(DefaultBodyLimit::max(BODY_MAX))
        .layer(GlobalConcurrencyLimitLayer::new(CALLS_MAX))
        .layer(TimeoutLayer::with_status_code(StatusCode::SERVICE_UNAVAILABLE, CALL_TIMEOUT))
        .with_state(context.clone());
    let (events, stop) = (context.events, shutdown.clone());
    let stream = Router::new().route("/events", get(move || async move { events.subscribe(stop) }));
    run(listener, calls.merge(stream), shutdown).await
}

/// Serves metrics until `shutdown`.
pub async fn serve_metrics(listener: TcpListener, context: Context, shutdown: CancellationToken) -> io::Result<()> {
    let metrics = Metrics::new(context);
    let router = Router::new()
        .route("/metrics", get(move || async move { metrics.answer() }))
        .layer(GlobalConcurrencyLimitLayer::new(CALLS_MAX))
        .layer(TimeoutLayer::with_status_code(StatusCode::SERVICE_UNAVAILABLE, CALL_TIMEOUT));
    run(listener, router, shutdown).await
}

async fn run(listener: TcpListener, router: Router, shutdown: CancellationToken) -> io::Result<()> {
    let stopped = shutdown.clone();
    let server = axum::serve(Limited::new(listener, CONNECTIONS_MAX), router)
        .with_graceful_shutdown(async move { stopped.cancelled().await });
    tokio::select! {
        result = server => result,
        () = async { shutdown.cancelled().await; tokio::time::sleep(STOP_TIMEOUT).await } => Ok(()),
    }
}

/// `GET /`: the methods, for people.
async fn list() -> String {
    let mut text = String::from("methods:\n");
    for method in methods::METHODS {
        text.push_str(&format!("  /{}?{}\n", method.name, method.parameters.join("=&")));
    }
    text.push_str("  /events\n");
    text
}

async fn get_call(
    State(context): State<Context>,
    Path(method): Path<String>,
    Query(query): Query<Vec<(String, String)>>,
) -> Response {
    let Some(method) = methods::find(&method) else {
        return (StatusCode::NOT_FOUND, "404 page not found\n").into_response();
    };
    answer::get((method.call)(&context, &Params::from_query(query)))
}

async fn post_call(State(context): State<Context>, body: axum::body::Bytes) -> Response {
    let failed = |error| answer::body(StatusCode::INTERNAL_SERVER_ERROR, &answer::envelope(&Value::Null, Err(error)));
    let request: Value = match serde_json::from_slice(&body) {
        Ok(request) => request,
        Err(error) => return failed(RpcError::parse(error)),
    };
    let value = match request {
        Value::Array(batch) if batch.is_empty() || batch.len() > BATCH_MAX => {
            return failed(RpcError::request(format!("a batch has 1 to {BATCH_MAX} requests, not {}", batch.len())));
        }
        Value::Array(batch) => Value::Array(batch.into_iter().map(|request| call(&context, request)).collect()),
        request => call(&context, request),
    };
    answer::body(StatusCode::OK, &value)
}

/// One request of a body. A notification, which has no id, is answered like the rest: a client that sent one by mistake sees it.
fn call(context: &Context, request: Value) -> Value {
    let Value::Object(mut request) = request else {
        return answer::envelope(&Value::Null, Err(RpcError::request("a request is an object")));
    };
    let id = request.remove("id").unwrap_or(Value::Null);
    let outcome = match request.get("method") {
        Some(Value::String(name)) => match methods::find(name) {
            None => Err(RpcError::method()),
            Some(method) => Params::from_json(request.remove("params"), method.parameters)
                .and_then(|params| (method.call)(context, &params)),
        },
        _ => Err(RpcError::request("`method` is no text")),
    };
    answer::envelope(&id, outcome)
}

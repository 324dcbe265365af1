//! The agent's side of the protocol over HTTP.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, Query, RawQuery, Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{any, get, post};
use bytes::Bytes;
use futures_util::StreamExt;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;

use super::bridge::{BodyReader, BodyWriter};
use super::{AgentError, Supervisor, files, relay};
use crate::agent_client::protocol::{
    Arm, CloneRequest, Disarm, PinRequest, Refusal, RestoreRequest, SignalRequest, StartRequest,
};

/// Largest JSON body: a start request with a measured latency distribution.
const JSON_MAX: usize = 16 << 20;
/// Largest body that is relayed to the node.
const RELAY_MAX: usize = 8 << 20;
/// Events sent in one piece.
const EVENTS_AT_ONCE: usize = 256;
/// An empty line is sent when nothing happens for this long, so that a dead connection is noticed.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// Pieces that wait between a blocking reader or writer and the connection.
const PIECES: usize = 16;

/// How long an attempt to connect to the node may take.
const CONNECT: Duration = Duration::from_secs(1);

#[derive(Clone)]
struct Context {
    supervisor: Arc<Supervisor>,
    authorization: Arc<str>,
    ending: CancellationToken,
}

/// Serves until `ending` is cancelled, then ends open event streams.
pub async fn serve(
    listener: TcpListener,
    supervisor: Arc<Supervisor>,
    token: &str,
    ending: CancellationToken,
) -> io::Result<()> {
    let context = Context { supervisor, authorization: format!("Bearer {token}").into(), ending: ending.clone() };
    let router = Router::new()
        .route("/v1/hello", get(hello))
        .route("/v1/files", get(export).put(put_files))
        .route("/v1/clone", post(clone))
        .route("/v1/restore", post(restore))
        .route("/v1/start", post(start))
        .route("/v1/signal", post(signal))
        .route("/v1/arm", post(arm).delete(disarm))
        .route("/v1/events", get(events))
        .route("/v1/log", get(log))
        .route("/v1/usage", get(usage))
        .route("/v1/pin", post(pin))
        .route("/v1/probe", post(probe))
        .route("/v1/scrape", get(scrape))
        .route("/v1/listens", get(listens))
        .route("/v1/rpc", any(rpc))
        .route("/v1/rpc/{*path}", any(rpc))
        .route("/v1/follow/{*path}", get(follow))
        .fallback(|| async { refuse(StatusCode::NOT_FOUND, "no such request") })
        .layer(middleware::from_fn_with_state(context.clone(), check_token))
        .layer(DefaultBodyLimit::disable())
        .with_state(context);
    axum::serve(listener, router).with_graceful_shutdown(async move { ending.cancelled().await }).await
}

fn refuse(status: StatusCode, error: impl Into<String>) -> Response {
    (status, axum::Json(Refusal { error: error.into() })).into_response()
}

impl IntoResponse for AgentError {
    fn into_response(self) -> Response {
        let status = match self {
            Self::Refused(_) | Self::Launch { .. } => StatusCode::BAD_REQUEST,
            Self::Conflict(_) => StatusCode::CONFLICT,
            Self::Missing(_) => StatusCode::NOT_FOUND,
            Self::Io { .. } => StatusCode::INTERNAL_SERVER_ERROR,
        };
        refuse(status, self.to_string())
    }
}

async fn check_token(State(context): State<Context>, request: Request, next: Next) -> Response {
    let shown = request.headers().get(header::AUTHORIZATION).map_or(&b""[..], |value| value.as_bytes());
    if same(shown, context.authorization.as_bytes()) {
        next.run(request).await
    } else {
        refuse(StatusCode::UNAUTHORIZED, "the token is missing or wrong")
    }
}

/// Compares in a time that does not depend on where the first difference is.
fn same(one: &[u8], two: &[u8]) -> bool {
    one.len() == two.len() && one.iter().zip(two).fold(0, |seen, (a, b)| seen | (a ^ b)) == 0
}

/// Runs what blocks away from the runtime's own threads.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, AgentError> + Send + 'static,
) -> Result<T, AgentError> {
    let joined = tokio::task::spawn_blocking(work).await;
    joined.unwrap_or_else(|error| Err(AgentError::io("finish the work")(io::Error::other(error))))
}

async fn body<T: DeserializeOwned>(request: Request) -> Result<T, AgentError> {
    let bytes = axum::body::to_bytes(request.into_body(), JSON_MAX).await;
    let bytes = bytes.map_err(|error| AgentError::Refused(format!("the body cannot be read: {error}")))?;
    serde_json::from_slice(&bytes).map_err(|error| AgentError::Refused(format!("the body makes no sense: {error}")))
}

async fn hello(State(context): State<Context>) -> Result<Response, AgentError> {
    let hello = blocking(move || Ok(context.supervisor.hello())).await?;
    Ok(axum::Json(hello).into_response())
}

async fn put_files(State(context): State<Context>, request: Request) -> Result<StatusCode, AgentError> {
    context.supervisor.files_change()?;
    let (pieces, reader) = BodyReader::pair(PIECES);
    let supervisor = Arc::clone(&context.supervisor);
    let unpacked = blocking(move || files::unpack(supervisor.home(), reader));
    let mut stream = request.into_body().into_data_stream();
    let feed = async move {
        while let Some(piece) = stream.next().await {
            let piece = piece.map_err(io::Error::other);
            let broken = piece.is_err();
            // The reader ends early where it refuses the archive; then the rest is not wanted.
            if pieces.send(piece).await.is_err() || broken {
                return;
            }
        }
    };
    let ((), unpacked) = tokio::join!(feed, unpacked);
    unpacked.map(|()| StatusCode::NO_CONTENT)
}

async fn export(State(context): State<Context>, RawQuery(query): RawQuery) -> Result<Response, AgentError> {
    let paths: Vec<String> =
        pairs(query.as_deref().unwrap_or_default()).filter(|(key, _)| key == "path").map(|(_, value)| value).collect();
    if paths.is_empty() {
        return Err(AgentError::Refused("no path is asked for".to_owned()));
    }
    for path in &paths {
        files::below(context.supervisor.home(), path)?;
    }
    let (pieces, receiver) = mpsc::channel::<io::Result<Bytes>>(PIECES);
    let supervisor = Arc::clone(&context.supervisor);
    // Ends with the body: once that is dropped, the next piece cannot be sent.
    let _ends_with_the_body = tokio::task::spawn_blocking(move || {
        if let Err(error) = files::pack(supervisor.home(), &paths, BodyWriter::new(pieces.clone())) {
            let _not_wanted_any_more = pieces.blocking_send(Err(io::Error::other(error)));
        }
    });
    Ok(Body::from_stream(ReceiverStream::new(receiver)).into_response())
}

async fn clone(State(context): State<Context>, request: Request) -> Result<StatusCode, AgentError> {
    let request: CloneRequest = body(request).await?;
    context.supervisor.files_change()?;
    blocking(move || files::clone(context.supervisor.home(), request.from.as_ref(), &request.to)).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn restore(State(context): State<Context>, request: Request) -> Result<StatusCode, AgentError> {
    let request: RestoreRequest = body(request).await?;
    context.supervisor.files_change()?;
    blocking(move || files::restore(context.supervisor.home(), &request.from, &request.to)).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn start(State(context): State<Context>, request: Request) -> Result<Response, AgentError> {
    let request: StartRequest = body(request).await?;
    let started = blocking(move || context.supervisor.start(request)).await?;
    Ok(axum::Json(started).into_response())
}

async fn signal(State(context): State<Context>, request: Request) -> Result<StatusCode, AgentError> {
    let request: SignalRequest = body(request).await?;
    blocking(move || context.supervisor.signal(request.signal, request.fault)).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Deserialize)]
struct ListensQuery {
    at: SocketAddr,
}

async fn listens(
    State(context): State<Context>,
    Query(query): Query<ListensQuery>,
) -> Result<axum::Json<bool>, AgentError> {
    context.supervisor.usage()?;
    let reached = tokio::time::timeout(CONNECT, TcpStream::connect(query.at)).await;
    Ok(axum::Json(reached.is_ok_and(|stream| stream.is_ok())))
}

async fn arm(State(context): State<Context>, request: Request) -> Result<StatusCode, AgentError> {
    let arm: Arm = body(request).await?;
    blocking(move || context.supervisor.arm(arm)).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn disarm(State(context): State<Context>, request: Request) -> Result<StatusCode, AgentError> {
    let disarm: Disarm = body(request).await?;
    blocking(move || context.supervisor.disarm(&disarm.fault)).await?;
    Ok(StatusCode::NO_CONTENT)
}

#[derive(Deserialize)]
struct EventsQuery {
    #[serde(default)]
    after: u64,
}

async fn events(State(context): State<Context>, Query(query): Query<EventsQuery>) -> Response {
    let follow = context.supervisor.journal.follow();
    let state = (context, follow, query.after);
    let stream = futures_util::stream::unfold(state, |(context, mut follow, mut after)| async move {
        loop {
            follow.mark_unchanged();
            let records = context.supervisor.journal.read(after, EVENTS_AT_ONCE);
            if let Some(last) = records.last() {
                after = last.seq;
                let lines: Result<Vec<String>, _> = records.iter().map(serde_json::to_string).collect();
                let piece = lines.map(|lines| Bytes::from(lines.join("\n") + "\n")).map_err(io::Error::other);
                return Some((piece, (context, follow, after)));
            }
            tokio::select! {
                biased;
                changed = follow.changed() => if changed.is_err() { return None },
                () = context.ending.cancelled() => return None,
                () = tokio::time::sleep(HEARTBEAT) => {
                    return Some((Ok(Bytes::from_static(b"\n")), (context, follow, after)));
                }
            }
        }
    });
    ([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(stream)).into_response()
}

#[derive(Deserialize)]
struct LogQuery {
    start: u32,
}

async fn log(State(context): State<Context>, Query(query): Query<LogQuery>) -> Result<Response, AgentError> {
    let path = context.supervisor.log_path(query.start);
    match tokio::fs::File::open(path).await {
        Ok(file) => {
            let body = Body::from_stream(tokio_util::io::ReaderStream::new(file));
            Ok(([(header::CONTENT_TYPE, "text/plain; charset=utf-8")], body).into_response())
        }
        Err(_) => Err(AgentError::Missing(format!("there was no start {}", query.start))),
    }
}

async fn usage(State(context): State<Context>) -> Result<Response, AgentError> {
    let used = blocking(move || context.supervisor.usage()).await?;
    Ok(axum::Json(used).into_response())
}

async fn pin(request: Request) -> Result<StatusCode, AgentError> {
    let request: PinRequest = body(request).await?;
    blocking(move || super::usage::pin(&request.cpus)).await?;
    Ok(StatusCode::NO_CONTENT)
}

async fn probe(State(context): State<Context>) -> Result<Response, AgentError> {
    let probed = blocking(move || context.supervisor.probe()).await?;
    Ok(axum::Json(probed).into_response())
}

#[derive(Deserialize)]
struct ScrapeQuery {
    at: String,
}

async fn scrape(Query(query): Query<ScrapeQuery>) -> Response {
    match relay::relay(&query.at, axum::http::Method::GET, "/metrics", None, Bytes::new()).await {
        Ok(answer) => answer,
        Err(why) => refuse(StatusCode::BAD_GATEWAY, why),
    }
}

async fn rpc(State(context): State<Context>, request: Request) -> Response {
    let Some(address) = context.supervisor.rpc() else {
        return refuse(StatusCode::CONFLICT, "the node was not started with an RPC address");
    };
    let (head, body) = request.into_parts();
    let whole = head.uri.path_and_query().map_or("/", |both| both.as_str());
    let wanted = whole.strip_prefix("/v1/rpc").unwrap_or(whole).to_owned();
    let wanted = if wanted.starts_with('/') { wanted } else { format!("/{wanted}") };
    let Ok(body) = axum::body::to_bytes(body, RELAY_MAX).await else {
        return refuse(StatusCode::PAYLOAD_TOO_LARGE, "the body is too large to be relayed");
    };
    let kind = head.headers.get(header::CONTENT_TYPE);
    match relay::relay(&address, head.method, &wanted, kind, body).await {
        Ok(answer) => answer,
        Err(why) => refuse(StatusCode::BAD_GATEWAY, why),
    }
}

async fn follow(State(context): State<Context>, request: Request) -> Response {
    let Some(address) = context.supervisor.rpc() else {
        return refuse(StatusCode::CONFLICT, "the node was not started with an RPC address");
    };
    let whole = request.uri().path_and_query().map_or("/", |both| both.as_str());
    let wanted = whole.strip_prefix("/v1/follow").unwrap_or(whole);
    match relay::follow(&address, wanted, context.ending.clone()).await {
        Ok(answer) => answer,
        Err(why) => refuse(StatusCode::BAD_GATEWAY, why),
    }
}

/// Key and value of each part of a query, percent-decoded.
fn pairs(query: &str) -> impl Iterator<Item = (String, String)> {
    query.split('&').filter(|part| !part.is_empty()).map(|part| {
        let (key, value) = part.split_once('=').unwrap_or((part, ""));
        (decode(key), decode(value))
    })
}

fn decode(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        let pair = tail.get(..2).and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
        (rest, _) = match (first, pair) {
            (b'%', Some(byte)) => (&tail[2..], bytes.push(byte)),
            (b'+', _) => (tail, bytes.push(b' ')),
            _ => (tail, bytes.push(*first)),
        };
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn queries_are_decoded() {
        let read: Vec<_> = pairs("path=data%2Fcs.wal&path=a+b%25&x").collect();
        let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
        assert_eq!(read, [pair("path", "data/cs.wal"), pair("path", "a b%"), pair("x", "")]);
        assert_eq!(decode("100%"), "100%");
    }

    #[test]
    fn tokens_are_compared_whole() {
        assert!(same(b"Bearer abc", b"Bearer abc"));
        assert!(!same(b"Bearer ab", b"Bearer abc") && !same(b"", b"Bearer abc") && !same(b"Bearer abd", b"Bearer abc"));
    }
}

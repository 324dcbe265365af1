//! `/events`: one line of JSON a committed block with its transactions, after the block is on disk, in block order.
//!
//! A subscriber sees blocks from its connection on; nothing is stored or repeated, so that over a crash an event is seen at
//! most once. One that reads too slowly is told so and cut off, since a stream with a hole would pass for a whole one.

use std::convert::Infallible;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use serde_json::{Value, json};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, broadcast};
use tokio_util::sync::CancellationToken;

use super::shapes;
use crate::node::ledger::{BlockEvent, EventSink};
use crate::node::types::sha256;

/// Blocks that a subscriber may be behind.
const BACKLOG: usize = 1024;
/// Subscribers at once.
const SUBSCRIBERS_MAX: usize = 16;

/// Passes events from the applying thread to subscribers.
#[derive(Clone, Debug)]
pub struct EventHub {
    lines: broadcast::Sender<Bytes>,
    free: Arc<Semaphore>,
}

impl EventHub {
    /// A hub without subscribers.
    pub fn new() -> Self {
        Self { lines: broadcast::channel(BACKLOG).0, free: Arc::new(Semaphore::new(SUBSCRIBERS_MAX)) }
    }

    /// The endless answer of one subscriber.
    pub(super) fn subscribe(&self, shutdown: CancellationToken) -> Response {
        let Ok(permit) = Arc::clone(&self.free).try_acquire_owned() else {
            return (StatusCode::SERVICE_UNAVAILABLE, format!("{SUBSCRIBERS_MAX} subscribers already\n"))
                .into_response();
        };
        let subscriber = Subscriber { lines: self.lines.subscribe(), shutdown, cut_off: false, _permit: permit };
        let lines = stream::unfold(subscriber, |mut subscriber| async {
            subscriber.next().await.map(|line| (Ok::<_, Infallible>(line), subscriber))
        });
        ([(header::CONTENT_TYPE, "application/x-ndjson")], Body::from_stream(lines)).into_response()
    }
}

impl Default for EventHub {
    fn default() -> Self {
        Self::new()
    }
}

impl EventSink for EventHub {
    fn fire(&mut self, event: BlockEvent) {
        // Without a subscriber nothing is rendered: this runs on the thread that applies blocks.
        if self.lines.receiver_count() > 0 {
            let _ = self.lines.send(line(&event_json(&event)));
        }
    }
}

struct Subscriber {
    lines: broadcast::Receiver<Bytes>,
    shutdown: CancellationToken,
    cut_off: bool,
    _permit: OwnedSemaphorePermit,
}

impl Subscriber {
    async fn next(&mut self) -> Option<Bytes> {
        if self.cut_off {
            return None;
        }
        let received = tokio::select! {
            () = self.shutdown.cancelled() => return None,
            received = self.lines.recv() => received,
        };
        match received {
            Ok(line) => Some(line),
            Err(broadcast::error::RecvError::Closed) => None,
            Err(broadcast::error::RecvError::Lagged(missed)) => {
                self.cut_off = true;
                Some(line(&json!({ "lagged": { "missed": missed } })))
            }
        }
    }
}

/// `{"block": …}`.
fn event_json(event: &BlockEvent) -> Value {
    let txs: Vec<Value> = event
        .block
        .txs
        .iter()
        .zip(&event.results.txs)
        .map(|(tx, result)| json!({ "hash": sha256(tx).to_string(), "code": result.code, "log": result.log }))
        .collect();
    json!({
        "block": {
            "height": event.height.to_string(),
            "block_id": shapes::block_id(&event.block_id),
            "time": shapes::time(event.block.header.time_ms),
            "app_hash": shapes::hash(&event.results.app_hash),
            "txs": txs,
        }
    })
}

fn line(value: &Value) -> Bytes {
    Bytes::from(format!("{value}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::types::{Block, BlockId, BlockResults, Commit, Header, TxResult};

    fn event(height: u64) -> BlockEvent {
        let header = Header {
            chain_id: "c".to_owned(),
            height,
            time_ms: 1,
            last_block_id: BlockId::default(),
            last_commit_hash: Default::default(),
            data_hash: Default::default(),
            validators_hash: Default::default(),
            next_validators_hash: Default::default(),
            consensus_hash: Default::default(),
            app_hash: Default::default(),
            last_results_hash: Default::default(),
            proposer: Default::default(),
        };
        let block = Block { header, txs: vec![b"set a b".to_vec()], last_commit: Commit::default() };
        let block_id = block.id();
        let txs = vec![TxResult { code: 0, log: String::new() }];
        let results = BlockResults { txs, ..BlockResults::default() };
        BlockEvent { height, block: Arc::new(block), block_id, results: Arc::new(results) }
    }

    async fn body(response: Response) -> String {
        let bytes = axum::body::to_bytes(response.into_body(), 1 << 20).await.expect("a body");
        String::from_utf8(bytes.to_vec()).expect("text")
    }

    #[tokio::test]
    async fn subscribers_see_blocks_in_order_from_their_connection_on() {
        let shutdown = CancellationToken::new();
        let mut hub = EventHub::new();
        hub.fire(event(1));
        let response = hub.subscribe(shutdown.clone());
        hub.fire(event(2));
        hub.fire(event(3));
        drop(hub);
        let text = body(response).await;
        let heights: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
        assert_eq!(heights.len(), 2, "{text}");
        assert_eq!(heights[0]["block"]["height"], "2");
        assert_eq!(heights[0]["block"]["txs"][0]["code"], 0);
        assert_eq!(heights[1]["block"]["height"], "3");
    }

    #[tokio::test]
    async fn one_that_falls_behind_is_cut_off_and_told_so() {
        let mut hub = EventHub::new();
        let response = hub.subscribe(CancellationToken::new());
        for height in 0..BACKLOG as u64 + 7 {
            hub.fire(event(height));
        }
        assert_eq!(body(response).await, "{\"lagged\":{\"missed\":7}}\n");
    }

    #[tokio::test]
    async fn streams_end_with_the_node_and_are_limited() {
        let shutdown = CancellationToken::new();
        let hub = EventHub::new();
        let open: Vec<Response> = (0..SUBSCRIBERS_MAX).map(|_| hub.subscribe(shutdown.clone())).collect();
        assert_eq!(hub.subscribe(shutdown.clone()).status(), StatusCode::SERVICE_UNAVAILABLE);
        shutdown.cancel();
        for response in open {
            assert_eq!(body(response).await, "");
        }
        assert_eq!(hub.subscribe(shutdown).status(), StatusCode::OK);
    }
}

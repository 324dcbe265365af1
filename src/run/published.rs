//! Follows the stream of one line a committed block that a node publishes, and writes down which heights came: whoever acts on
//! an event must be able to rely on its block after a crash, so that the judge compares them with what the crash left.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::dispatcher::Witness;
use crate::agent_client::{Client, LineStream};
use crate::chain::Chain;
use crate::timeline::Event;

/// What the follower of one node needs.
pub(super) struct Follower {
    pub(super) node: String,
    pub(super) client: Arc<Client>,
    pub(super) chain: Arc<dyn Chain>,
    /// The request for the stream.
    pub(super) request: String,
    pub(super) witness: Witness,
    /// The start that is alive now.
    pub(super) running: watch::Receiver<Option<u32>>,
    /// Heights are gathered for so long before they are told, so that a node that catches up does not fill the timeline.
    pub(super) pace: Duration,
}

impl Follower {
    /// Follows one start after the other until cancelled.
    pub(super) async fn run(mut self, cancel: CancellationToken) {
        loop {
            let start = *self.running.borrow_and_update();
            let Some(start) = start else {
                tokio::select! {
                    () = cancel.cancelled() => return,
                    changed = self.running.changed() => if changed.is_err() { return },
                }
                continue;
            };
            tokio::select! {
                () = cancel.cancelled() => return,
                () = self.one_start(start) => {}
            }
        }
    }

    /// Until the node's process is gone. A stream that ends earlier, because this side was too slow for it, is opened again.
    async fn one_start(&mut self, start: u32) {
        let mut stream = 0;
        // Soon after the node listens, so that little is missed.
        let again = self.pace / 5;
        loop {
            let opened = tokio::select! {
                // First, so that no stream of the next start is taken for one of this.
                biased;
                _ = self.running.changed() => return,
                opened = self.client.follow(&self.request) => opened,
            };
            match opened {
                Ok(lines) => {
                    stream += 1;
                    self.one_stream(start, stream, lines).await;
                }
                Err(error) => tracing::trace!(node = %self.node, %error, "no stream of events yet"),
            }
            tokio::select! {
                () = tokio::time::sleep(again) => {}
                _ = self.running.changed() => return,
            }
        }
    }

    async fn one_stream(&self, start: u32, stream: u32, mut lines: LineStream) {
        let mut row: Option<(u64, u64)> = None;
        let mut tick = tokio::time::interval(self.pace);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let line = tokio::select! {
                line = lines.next() => line,
                _ = tick.tick() => {
                    self.tell(start, stream, row.take()).await;
                    continue;
                }
            };
            let height = match line {
                Some(Ok(line)) => self.chain.event_height(&line),
                // The end of a process breaks its connections in the middle of anything.
                Some(Err(_)) | None => break,
            };
            match (height, row) {
                (Ok(None), _) => {}
                (Ok(Some(height)), Some((first, last))) if height == last + 1 => row = Some((first, height)),
                (Ok(Some(height)), _) => {
                    self.tell(start, stream, row.take()).await;
                    row = Some((height, height));
                }
                (Err(error), _) => {
                    let what = format!("an event of `{}` makes no sense: {error}", self.node);
                    self.witness.tell(&self.node, Event::ToolError { what }).await;
                    break;
                }
            }
        }
        self.tell(start, stream, row).await;
    }

    async fn tell(&self, start: u32, stream: u32, row: Option<(u64, u64)>) {
        if let Some((first, last)) = row {
            self.witness.tell(&self.node, Event::Published { start, stream, first, last }).await;
        }
    }
}

//! Looks at one node's RPC at a steady pace, and reads the block ids and app hashes of new heights while it is at the tip.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use super::dispatcher::Witness;
use crate::agent_client::Client;
use crate::chain::Rpc;
use crate::timeline::{Event, Status};

/// Looks between two counts of peers.
const PEERS_EVERY: u32 = 8;

/// An unchanged status is written again after this many looks, so that silence and standstill differ.
const REPEAT_EVERY: u32 = 8;

/// Most heights whose hashes one look asks for; a node further behind is read at the end.
const HASHES_MAX: u64 = 20;

/// Time between two looks at one node: 4 a second up to 20 nodes, fewer beyond, since looking costs the nodes CPU.
pub(super) fn pace(nodes: usize) -> Duration {
    Duration::from_millis(250) * u32::try_from(nodes.div_ceil(20)).unwrap_or(u32::MAX).max(1)
}

/// Samples until cancelled; pauses while the node is down.
pub(super) async fn sample(
    node: String,
    client: Arc<Client>,
    rpc: &dyn Rpc,
    witness: Witness,
    mut running: watch::Receiver<Option<u32>>,
    pace: Duration,
    cancel: CancellationToken,
) {
    let mut look = Look {
        node,
        client,
        rpc,
        witness,
        last: None,
        looks: 0,
        peers: None,
        app: None,
        key: None,
        silent: false,
        hashed: 0,
    };
    let mut tick = tokio::time::interval(pace);
    tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        let up = running.borrow().is_some();
        if !up {
            look.restarted();
            tokio::select! {
                () = cancel.cancelled() => return,
                changed = running.changed() => if changed.is_err() { return },
            }
            continue;
        }
        tokio::select! {
            () = cancel.cancelled() => return,
            _ = tick.tick() => {}
        }
        tokio::select! {
            () = cancel.cancelled() => return,
            () = look.once() => {}
        }
    }
}

struct Look<'a> {
    node: String,
    client: Arc<Client>,
    rpc: &'a dyn Rpc,
    witness: Witness,
    last: Option<Status>,
    looks: u32,
    peers: Option<u32>,
    /// The application's height, as last told.
    app: Option<u64>,
    /// The address under which it signs, as last told.
    key: Option<String>,
    silent: bool,
    hashed: u64,
}

impl Look<'_> {
    fn restarted(&mut self) {
        self.last = None;
        self.peers = None;
        self.app = None;
        self.silent = false;
    }

    async fn once(&mut self) {
        let body = match self.client.rpc(&self.rpc.status_request()).await {
            Ok(answer) => answer.body,
            Err(error) => return self.nothing(error.to_string()).await,
        };
        let mut status = match self.rpc.status(&body) {
            Ok(status) => status,
            Err(error) => return self.nothing(error.to_string()).await,
        };
        self.silent = false;
        self.key(&body).await;
        if self.looks.is_multiple_of(PEERS_EVERY) {
            self.peers = self.peer_count().await.or(self.peers);
        }
        self.looks += 1;
        status.peers = self.peers;
        if self.last.as_ref() != Some(&status) || self.looks.is_multiple_of(REPEAT_EVERY) {
            self.witness.tell(&self.node, Event::Status(status.clone())).await;
        }
        self.app().await;
        self.tip(&status).await;
        self.last = Some(status);
    }

    async fn nothing(&mut self, reason: String) {
        if !self.silent {
            self.silent = true;
            self.witness.tell(&self.node, Event::RpcSilent { reason }).await;
        }
    }

    /// Two nodes that sign with one key are told by it, and whose a signature is.
    async fn key(&mut self, status: &[u8]) {
        let Some(address) = self.rpc.signs_as(status) else { return };
        if self.key.as_ref() != Some(&address) {
            self.key = Some(address.clone());
            self.witness.tell(&self.node, Event::SignsAs { address }).await;
        }
    }

    /// The height that the application answers with. A node may refuse; then nothing is acknowledged.
    async fn app(&mut self) {
        let Ok(answer) = self.client.rpc(&self.rpc.app_request()).await else { return };
        let Ok(height) = self.rpc.app_height(&answer.body) else { return };
        if self.app != Some(height) {
            self.app = Some(height);
            self.witness.tell(&self.node, Event::AppHeight { height }).await;
        }
    }

    async fn peer_count(&self) -> Option<u32> {
        let answer = self.client.rpc(&self.rpc.peers_request()).await.ok()?;
        self.rpc.peers(&answer.body).ok()
    }

    /// Reads the hashes of the heights since the last look, unless there are too many for a node at the tip.
    async fn tip(&mut self, status: &Status) {
        let first = self.hashed + 1;
        if status.height < first {
            // The node lost heights: what it serves from here on is read anew.
            self.hashed = status.height;
            return;
        }
        if status.catching_up || status.height - first >= HASHES_MAX || self.hashed == 0 {
            self.hashed = status.height;
            return;
        }
        let Ok(answer) = self.client.rpc(&self.rpc.hashes_request(first, status.height)).await else { return };
        let Ok(hashes) = self.rpc.hashes(&answer.body) else { return };
        if hashes.blocks.is_empty() {
            return;
        }
        self.hashed = hashes.first + hashes.blocks.len() as u64 - 1;
        self.witness.tell(&self.node, Event::Hashes(hashes)).await;
    }
}

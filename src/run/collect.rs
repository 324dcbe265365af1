//! At the end of a run: the block ids and app hashes of every height of every node that answers, and the output of
//! every process that is still alive.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use tokio_util::sync::CancellationToken;

use super::dispatcher::Witness;
use crate::agent_client::Client;
use crate::chain::Chain;
use crate::timeline::Event;

/// Heights asked for at once: what CometBFT's `/blockchain` gives.
const STEP: u64 = 20;

/// Nodes read side by side.
const NODES_AT_ONCE: usize = 8;

/// Reads all nodes within `limit`; what was read by then is in the timeline, and what is missing is missing there.
pub(super) async fn hashes(
    nodes: Vec<(String, Arc<Client>, u64)>,
    first: u64,
    chain: &dyn Chain,
    witness: &Witness,
    limit: Duration,
    cancel: &CancellationToken,
) {
    let all = stream::iter(nodes).for_each_concurrent(NODES_AT_ONCE, |(node, client, height)| async move {
        if let Err(reason) = one(&node, &client, first, height, chain, witness).await {
            let what = format!("not all of its hashes could be read: {reason}");
            witness.tell(&node, Event::Notice { what }).await;
        }
    });
    tokio::select! {
        () = cancel.cancelled() => {}
        done = tokio::time::timeout(limit, all) => if done.is_err() {
            let what = format!("reading the hashes took longer than {} s and was cut short", limit.as_secs());
            witness.tell_run(Event::Notice { what }).await;
        },
    }
}

async fn one(
    node: &str,
    client: &Client,
    first: u64,
    height: u64,
    chain: &dyn Chain,
    witness: &Witness,
) -> Result<(), String> {
    let rpc = chain.rpc();
    let mut next = first;
    while next <= height {
        let last = height.min(next + STEP - 1);
        let answer = client.rpc(&rpc.hashes_request(next, last)).await.map_err(|e| e.to_string())?;
        let hashes = rpc.hashes(&answer.body).map_err(|e| e.to_string())?;
        if hashes.blocks.is_empty() {
            return Err(format!("the node serves no block from {next} to {last}"));
        }
        next = (hashes.first + hashes.blocks.len() as u64).max(next + 1);
        witness.tell(node, Event::Hashes(hashes)).await;
    }
    Ok(())
}

//! At the end of a run: the block ids and app hashes of every height of every node that answers, and who signed what where the
//! nodes disagree or a block holds evidence.
//!
//! Signatures are read only where they can show a double sign, so that a long run of many nodes stays small: the commits of the first
//! heights with two blocks, one a block, and the first blocks with evidence, which their headers tell.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream;
use tokio_util::sync::CancellationToken;

use super::dispatcher::Witness;
use crate::agent_client::Client;
use crate::chain::{Chain, Rpc};
use crate::timeline::{Event, Hashes};

/// Heights asked for at once: what CometBFT's `/blockchain` gives.
const STEP: u64 = 20;

/// Nodes read side by side.
const NODES_AT_ONCE: usize = 8;

/// Heights with two blocks whose commits are read. More than one, since the two commits may be of different rounds.
const FORKED_MAX: usize = 10;

/// Blocks whose evidence is read.
const EVIDENCE_MAX: usize = 20;

/// A node that answers: its name, its agent, its height.
type Answering = (String, Arc<Client>, u64);

/// What the nodes' headers have shown so far.
#[derive(Default)]
struct Seen {
    /// By height, each block id with the lowest index of a node that has it.
    ids: BTreeMap<u64, Vec<(String, usize)>>,
    /// Blocks with evidence, by height and id, with such an index.
    evidence: BTreeMap<(u64, String), usize>,
}

impl Seen {
    fn add(&mut self, node: usize, hashes: &Hashes, with_evidence: &[u64]) {
        for (height, (id, _)) in (hashes.first..).zip(&hashes.blocks) {
            let known = self.ids.entry(height).or_default();
            match known.iter_mut().find(|(other, _)| other == id) {
                Some((_, first)) => *first = node.min(*first),
                None => known.push((id.clone(), node)),
            }
            if with_evidence.contains(&height) {
                let first = self.evidence.entry((height, id.clone())).or_insert(node);
                *first = node.min(*first);
            }
        }
    }

    /// Height and node of the commits to read.
    fn forked(&self) -> impl Iterator<Item = (u64, usize)> {
        let forked = self.ids.iter().filter(|(_, ids)| ids.len() > 1).take(FORKED_MAX);
        forked.flat_map(|(height, ids)| ids.iter().map(|(_, node)| (*height, *node)))
    }
}

/// Reads all nodes within `limit`; what was read by then is in the timeline, and what is missing is missing there.
pub(super) async fn all(
    nodes: Vec<Answering>,
    first: u64,
    chain: &dyn Chain,
    witness: &Witness,
    limit: Duration,
    cancel: &CancellationToken,
) {
    let (rpc, seen) = (chain.rpc(), Mutex::new(Seen::default()));
    let hashes = stream::iter(nodes.iter().enumerate()).for_each_concurrent(NODES_AT_ONCE, |(index, node)| {
        let seen = &seen;
        async move {
            if let Err(reason) = one(index, node, first, rpc, (witness, seen)).await {
                let what = format!("not all of its hashes could be read: {reason}");
                witness.tell(&node.0, Event::Notice { what }).await;
            }
        }
    });
    let all = async {
        hashes.await;
        signatures(&nodes, &taken(&seen), rpc, witness).await;
    };
    tokio::select! {
        () = cancel.cancelled() => {}
        done = tokio::time::timeout(limit, all) => if done.is_err() {
            let what = format!("reading the hashes took longer than {} s and was cut short", limit.as_secs());
            witness.tell_run(Event::Notice { what }).await;
        },
    }
}

async fn one(
    index: usize,
    (node, client, height): &Answering,
    first: u64,
    rpc: &dyn Rpc,
    (witness, seen): (&Witness, &Mutex<Seen>),
) -> Result<(), String> {
    let mut next = first;
    while next <= *height {
        let last = (*height).min(next + STEP - 1);
        let answer = client.rpc(&rpc.hashes_request(next, last)).await.map_err(|e| e.to_string())?;
        let hashes = rpc.hashes(&answer.body).map_err(|e| e.to_string())?;
        if hashes.blocks.is_empty() {
            return Err(format!("the node serves no block from {next} to {last}"));
        }
        next = (hashes.first + hashes.blocks.len() as u64).max(next + 1);
        let with_evidence = rpc.with_evidence(&answer.body);
        seen.lock().unwrap_or_else(PoisonError::into_inner).add(index, &hashes, &with_evidence);
        witness.tell(node, Event::Hashes(hashes)).await;
    }
    Ok(())
}

/// What was seen, out of its lock.
fn taken(seen: &Mutex<Seen>) -> Seen {
    std::mem::take(&mut seen.lock().unwrap_or_else(PoisonError::into_inner))
}

/// The commits of the first heights with two blocks, and the evidence in the first blocks that hold any.
async fn signatures(nodes: &[Answering], seen: &Seen, rpc: &dyn Rpc, witness: &Witness) {
    for (height, index) in seen.forked() {
        let (node, client, _) = &nodes[index];
        match client.rpc(&rpc.commit_request(height)).await.map_err(|e| e.to_string()) {
            Ok(answer) => match rpc.commit(&answer.body) {
                Ok(Some(commit)) => witness.tell(node, Event::Commit(commit)).await,
                Ok(None) => unread(node, height, "the commit does not tell who signed it", witness).await,
                Err(error) => unread(node, height, &error.to_string(), witness).await,
            },
            Err(reason) => unread(node, height, &reason, witness).await,
        }
    }
    for ((height, _), index) in seen.evidence.iter().take(EVIDENCE_MAX) {
        let (node, client, _) = &nodes[*index];
        let answer = client.rpc(&rpc.block_request(*height)).await.map_err(|e| e.to_string());
        match answer.and_then(|answer| rpc.evidence(&answer.body).map_err(|e| e.to_string())) {
            Ok(found) if found.is_empty() => {
                unread(node, *height, "evidence that is about no two votes", witness).await
            }
            Ok(found) => {
                for double in found.into_iter().take(EVIDENCE_MAX) {
                    witness.tell(node, Event::Evidence(double)).await;
                }
            }
            Err(reason) => unread(node, *height, &reason, witness).await,
        }
    }
    if let Some(more) = seen.evidence.len().checked_sub(EVIDENCE_MAX).filter(|more| *more > 0) {
        let what = format!("{more} further blocks hold evidence, which was not read");
        witness.tell_run(Event::Notice { what }).await;
    }
}

async fn unread(node: &str, height: u64, why: &str, witness: &Witness) {
    let what = format!("who signed what at height {height} could not be read: {why}");
    witness.tell(node, Event::Notice { what }).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hashes(first: u64, ids: &[&str]) -> Hashes {
        Hashes { first, blocks: ids.iter().map(|id| ((*id).to_owned(), String::new())).collect() }
    }

    #[test]
    fn commits_are_read_once_a_block_where_there_are_two() {
        let mut seen = Seen::default();
        seen.add(0, &hashes(1, &["a", "b", "c"]), &[2]);
        seen.add(2, &hashes(2, &["b", "x", "y"]), &[2, 4]);
        seen.add(1, &hashes(1, &["a", "b", "x"]), &[2]);
        assert_eq!(seen.forked().collect::<Vec<_>>(), [(3, 0), (3, 1)]);
        assert_eq!(seen.evidence, [((2, "b".to_owned()), 0), ((4, "y".to_owned()), 2)].into());
    }

    #[test]
    fn however_long_the_fork_only_its_beginning_is_read() {
        let mut seen = Seen::default();
        let blocks = |id: &str| Hashes { first: 1, blocks: vec![(id.to_owned(), String::new()); 5000] };
        seen.add(0, &blocks("a"), &[]);
        seen.add(1, &blocks("b"), &[]);
        assert_eq!(seen.forked().count(), 2 * FORKED_MAX);
        assert_eq!(seen.forked().last(), Some((FORKED_MAX as u64, 1)));
    }
}

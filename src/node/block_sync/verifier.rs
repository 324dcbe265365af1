//! Proves blocks on a thread of its own, ahead of the applier.
//!
//! A block is proven by its own commit, or, within a window, by the commit of the window's last block to which it is linked
//! by hashes: a header names the block before it by the hash of its header and of all its bytes. Either way the validators
//! must be known, so that a window ends where they change.

use std::io;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Instant;

use super::{Body, JOBS_MAX, split_body};
use crate::node::codec::Codec;
use crate::node::inbox;
use crate::node::ledger::{Stage, Timings};
use crate::node::p2p::{Event, PeerId};
use crate::node::types::{Block, BlockId, Commit, Hash, ValidatorSet};

/// What the verifier is told when it cannot know it from the job before.
#[derive(Clone, Debug)]
pub(super) struct Start {
    /// Of the block before the job's first.
    pub(super) last_block_id: BlockId,
    /// Who decides the job's first height.
    pub(super) validators: Arc<ValidatorSet>,
}

/// Consecutive blocks.
#[derive(Debug)]
pub(super) struct Job {
    pub(super) chain_id: String,
    pub(super) start: Option<Start>,
    pub(super) blocks: Vec<Body>,
}

/// A block that may be applied.
#[derive(Clone, Debug)]
pub(crate) struct Proven {
    pub(crate) block: Arc<Block>,
    pub(crate) block_id: BlockId,
    /// Its own commit, or the one that the next block carries.
    pub(crate) commit: Commit,
}

/// A block that is not what its sender said.
#[derive(Clone, Debug)]
pub(crate) struct Rejected {
    pub(crate) height: u64,
    pub(crate) peer: PeerId,
    pub(crate) reason: String,
}

/// What became of a job.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    pub(super) proven: Vec<Proven>,
    pub(super) rejected: Option<Rejected>,
    /// Not looked at: they follow a rejected block, or one of other validators.
    pub(super) unproven: Vec<Body>,
}

/// The thread.
#[derive(Debug)]
pub(super) struct Verifier {
    jobs: Option<SyncSender<Job>>,
    outcomes: Receiver<Outcome>,
    thread: Option<JoinHandle<()>>,
}

impl Verifier {
    pub(super) fn start(window: usize, timings: Arc<Timings>, wake: inbox::Sender<Event>) -> io::Result<Self> {
        let (jobs, incoming) = sync_channel::<Job>(JOBS_MAX);
        let (done, outcomes) = sync_channel(JOBS_MAX);
        let thread = std::thread::Builder::new().name("verify".into()).spawn(move || {
            let mut prover = Prover { window: window.max(1), timings, at: None };
            while let Ok(job) = incoming.recv() {
                if done.send(prover.prove(job)).is_err() {
                    return;
                }
                wake.send_now(Event::Wake);
            }
        })?;
        Ok(Self { jobs: Some(jobs), outcomes, thread: Some(thread) })
    }

    /// Gives a job; false when the thread is gone.
    pub(super) fn give(&self, job: Job) -> bool {
        self.jobs.as_ref().is_some_and(|jobs| jobs.send(job).is_ok())
    }

    pub(super) fn try_outcome(&self) -> Option<Outcome> {
        self.outcomes.try_recv().ok()
    }
}

impl Drop for Verifier {
    fn drop(&mut self) {
        self.jobs = None;
        // The thread ends after the jobs it has; it cannot wait on the outcomes, which have room for all of them.
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

/// Where the next block must follow.
#[derive(Debug)]
struct At {
    last_block_id: BlockId,
    validators: Arc<ValidatorSet>,
    validators_hash: Hash,
    /// Nothing was proven from here yet: the next block must be of these validators.
    fresh: bool,
}

#[derive(Debug)]
struct Prover {
    window: usize,
    timings: Arc<Timings>,
    /// Unknown after a rejected block, until a job says where to start.
    at: Option<At>,
}

/// A decoded body.
struct Decoded {
    body: Body,
    block: Arc<Block>,
    block_id: BlockId,
    commit: Commit,
}

impl Prover {
    fn prove(&mut self, job: Job) -> Outcome {
        if let Some(start) = job.start {
            let validators_hash = start.validators.hash();
            self.at = Some(At {
                last_block_id: start.last_block_id,
                validators: start.validators,
                validators_hash,
                fresh: true,
            });
        }
        let mut outcome = Outcome::default();
        let mut bodies = job.blocks.into_iter().peekable();
        while bodies.peek().is_some() && self.at.is_some() {
            let chunk: Vec<Body> = bodies.by_ref().take(self.window).collect();
            self.prove_window(&job.chain_id, chunk, &mut outcome);
        }
        outcome.unproven.extend(bodies);
        outcome
    }

    fn prove_window(&mut self, chain_id: &str, chunk: Vec<Body>, outcome: &mut Outcome) {
        let mut decoded: Vec<Decoded> = Vec::with_capacity(chunk.len());
        let mut rest = chunk.into_iter();
        for body in rest.by_ref() {
            match self.decode(&body) {
                Ok((block, block_id, commit)) => decoded.push(Decoded { body, block, block_id, commit }),
                Err(reason) => {
                    outcome.rejected = Some(Rejected { height: body.height, peer: body.peer, reason });
                    break;
                }
            }
        }
        let Some(at) = &mut self.at else { return };
        let fresh = std::mem::replace(&mut at.fresh, false);
        let same = decoded.iter().take_while(|d| d.block.header.validators_hash == at.validators_hash).count();
        let mut others = decoded.split_off(same);
        let validators_change = !others.is_empty();
        if fresh && same == 0 && validators_change {
            let Body { height, peer, .. } = others.remove(0).body;
            outcome.rejected = Some(Rejected { height, peer, reason: "it names other validators".into() });
        }
        outcome.unproven.extend(others.into_iter().map(|d| d.body));
        outcome.unproven.extend(rest);
        let start = Instant::now();
        let linked = is_linked(at, &decoded);
        let last_holds = decoded.last().is_some_and(|d| holds(chain_id, at, d));
        self.timings.lap(Stage::VerifyCommit, start);
        if linked && last_holds {
            take_linked(decoded, outcome, &mut self.at);
        } else if !decoded.is_empty() {
            self.prove_each(chain_id, decoded, outcome);
        }
        if outcome.rejected.is_some() || validators_change {
            self.at = None;
        }
    }

    fn decode(&self, body: &Body) -> Result<(Arc<Block>, BlockId, Commit), String> {
        let start = Instant::now();
        let (block_bytes, commit_bytes) = split_body(&body.bytes).map_err(|e| e.to_string())?;
        let block = Block::from_bytes(block_bytes).map_err(|e| e.to_string())?;
        let commit = Commit::from_bytes(commit_bytes).map_err(|e| e.to_string())?;
        if block.header.height != body.height {
            return Err(format!("it is of height {}", block.header.height));
        }
        let block_id = block.id_of_encoded(block_bytes);
        self.timings.lap(Stage::Partset, start);
        Ok((Arc::new(block), block_id, commit))
    }

    /// Each by its own commit, to find who lied.
    fn prove_each(&mut self, chain_id: &str, decoded: Vec<Decoded>, outcome: &mut Outcome) {
        let mut decoded = decoded.into_iter();
        for one in decoded.by_ref() {
            let Some(at) = &mut self.at else { break };
            let start = Instant::now();
            let linked = one.block.header.last_block_id == at.last_block_id;
            let valid = linked && holds(chain_id, at, &one);
            self.timings.lap(Stage::VerifyCommit, start);
            if !valid {
                let reason =
                    if linked { "its commit does not prove it" } else { "it does not follow the block before" };
                let Body { height, peer, .. } = one.body;
                outcome.rejected = Some(Rejected { height, peer, reason: reason.into() });
                break;
            }
            at.last_block_id = one.block_id;
            outcome.proven.push(Proven { block: one.block, block_id: one.block_id, commit: one.commit });
        }
        // Those behind a rejected one may be good: in height order before what was put aside already.
        let mut rest: Vec<Body> = decoded.map(|d| d.body).collect();
        rest.append(&mut outcome.unproven);
        outcome.unproven = rest;
    }
}

/// Whether the blocks follow `at` and one another, each carrying a commit of the one before.
fn is_linked(at: &At, decoded: &[Decoded]) -> bool {
    let firsts = decoded.first().is_none_or(|d| d.block.header.last_block_id == at.last_block_id);
    firsts
        && decoded.windows(2).all(|pair| {
            let next = &pair[1].block;
            next.header.last_block_id == pair[0].block_id
                && next.header.last_commit_hash == next.last_commit.hash()
                && next.last_commit.block_id == pair[0].block_id
        })
}

fn holds(chain_id: &str, at: &At, one: &Decoded) -> bool {
    one.commit.verify(chain_id, &at.validators, one.body.height, &one.block_id).is_ok()
}

/// All blocks of a proven window. The commit kept with a block is the one that the next block carries, which is proven with
/// it; only the last has its own.
fn take_linked(decoded: Vec<Decoded>, outcome: &mut Outcome, at: &mut Option<At>) {
    let carried: Vec<Commit> = decoded.iter().skip(1).map(|d| d.block.last_commit.clone()).collect();
    let mut carried = carried.into_iter();
    for one in decoded {
        if let Some(at) = at {
            at.last_block_id = one.block_id;
        }
        let commit = carried.next().unwrap_or(one.commit);
        outcome.proven.push(Proven { block: one.block, block_id: one.block_id, commit });
    }
}

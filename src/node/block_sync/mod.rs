//! Block sync: old blocks from several peers at once, proven on a second thread, handed out in order.
//!
//! The pool decides whom to ask and what to give up; the verifier proves blocks ahead of the applier. Whoever sent a block
//! that is not what its commit says is named, and the driver drops that peer.

mod pool;
mod verifier;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;

pub(crate) use pool::PeerBook;
use pool::Pool;
use verifier::{Job, Outcome, Start, Verifier};
pub(crate) use verifier::{Proven, Rejected};

use crate::node::codec::{CodecError, Reader};
use crate::node::inbox;
use crate::node::ledger::{ChainState, Timings};
use crate::node::p2p::{Event, PeerId};
use crate::node::types::BLOCK_BYTES_MAX;

/// Most blocks of one job where each is verified by itself: small, so that the applier never waits long.
const JOB_BLOCKS: usize = 16;
/// Jobs given to the verifier at a time: one in progress and one that waits.
const JOBS_MAX: usize = 2;
/// Proven blocks that wait for the applier; the verifier pauses above this.
const PROVEN_MAX: usize = 128;

/// Longest encoded commit.
const COMMIT_BYTES_MAX: usize = 4096;

/// Block and commit as a peer sent them.
#[derive(Clone, Debug)]
pub(crate) struct Body {
    pub(crate) height: u64,
    pub(crate) peer: PeerId,
    pub(crate) bytes: Bytes,
}

/// Splits a body into the block's bytes and the commit's.
pub(crate) fn split_body(bytes: &[u8]) -> Result<(&[u8], &[u8]), CodecError> {
    let mut reader = Reader::new(bytes);
    let block = reader.bytes(BLOCK_BYTES_MAX, "block")?;
    let commit = reader.bytes(COMMIT_BYTES_MAX, "commit")?;
    reader.finish()?;
    Ok((block, commit))
}

/// What the driver must do for block sync now.
#[derive(Debug, Default)]
pub(crate) struct Actions {
    /// Blocks to ask for.
    pub(crate) requests: Vec<(PeerId, u64)>,
    /// Peers that sent what is not so.
    pub(crate) liars: Vec<Rejected>,
    /// Peers that do not answer.
    pub(crate) stalled: Vec<PeerId>,
}

/// One run of block sync.
pub(crate) struct BlockSync {
    pool: Pool,
    verifier: Verifier,
    window: usize,
    proven: VecDeque<Proven>,
    /// Height of the first block that was not given to the verifier yet.
    next_job: u64,
    jobs: usize,
    /// The verifier must be told where to start: at the beginning, after a rejected block, and where the validators change.
    must_restart: bool,
}

impl BlockSync {
    /// Starts the verifier thread; it says on `wake` when it has something.
    pub(crate) fn start(
        next_height: u64,
        window: usize,
        timings: Arc<Timings>,
        wake: inbox::Sender<Event>,
    ) -> std::io::Result<Self> {
        Ok(Self {
            pool: Pool::new(next_height),
            verifier: Verifier::start(window, timings, wake)?,
            window,
            proven: VecDeque::new(),
            next_job: next_height,
            jobs: 0,
            must_restart: true,
        })
    }

    /// Takes a peer's answer to a block request. Unasked ones are ignored.
    pub(crate) fn on_block(&mut self, peer: PeerId, height: u64, body: Option<Bytes>) {
        self.pool.on_block(peer, height, body);
    }

    /// Forgets a peer: what it was asked for is asked of others.
    pub(crate) fn on_peer_down(&mut self, peer: PeerId) {
        self.pool.on_peer_down(peer);
    }

    /// The next proven block.
    pub(crate) fn next_proven(&mut self) -> Option<Proven> {
        self.proven.pop_front()
    }

    /// Moves everything on: results, jobs, requests. `state` is after the last applied block.
    pub(crate) fn step(&mut self, now: Instant, peers: &PeerBook, state: &ChainState) -> Actions {
        let mut actions = Actions::default();
        while let Some(outcome) = self.verifier.try_outcome() {
            self.on_outcome(outcome, &mut actions);
        }
        self.give_jobs(state);
        for liar in &actions.liars {
            self.pool.on_peer_down(liar.peer);
        }
        let held = self.proven.len();
        self.pool.step(now, peers, held, &mut actions);
        actions
    }

    /// When [`BlockSync::step`] has something to do again without any event.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.pool.deadline()
    }

    fn on_outcome(&mut self, outcome: Outcome, actions: &mut Actions) {
        self.jobs -= 1;
        self.proven.extend(outcome.proven);
        if let Some(first) = outcome.unproven.first() {
            self.next_job = self.next_job.min(first.height);
            self.must_restart = true;
        }
        if let Some(rejected) = outcome.rejected {
            self.pool.give_up(rejected.height);
            self.next_job = self.next_job.min(rejected.height);
            self.must_restart = true;
            actions.liars.push(rejected);
        }
        for body in outcome.unproven {
            self.pool.put_back(body);
        }
    }

    fn give_jobs(&mut self, state: &ChainState) {
        while self.jobs < JOBS_MAX && self.proven.len() < PROVEN_MAX {
            let start = if self.must_restart {
                // Only from what is applied is it known what must follow.
                if self.jobs > 0 || state.next_height() != self.next_job {
                    return;
                }
                Some(Start { last_block_id: state.last_block_id, validators: Arc::new(state.validators.clone()) })
            } else {
                None
            };
            let blocks = self.pool.take_run(self.next_job, JOB_BLOCKS.max(self.window));
            let Some(last) = blocks.last() else { return };
            self.next_job = last.height + 1;
            let job = Job { chain_id: state.chain_id.clone(), start, blocks };
            if !self.verifier.give(job) {
                return;
            }
            self.must_restart = false;
            self.jobs += 1;
        }
    }
}

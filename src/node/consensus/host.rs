//! The state machine and its host: heights started, messages and timeouts fed, the log replayed after a restart.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::{Duration, Instant};

use arc_malachitebft_core_consensus::{Input, Params, ProposedValue, State, process};
use arc_malachitebft_core_types::{
    LinearTimeouts, Round, SignedVote, ThresholdParams, Validity, ValueOrigin, ValuePayload, VoteExtensionPolicy,
};
use bytes::Bytes;

use super::context::{Ctx, Height, Validators, Value};
use super::core::{Core, Refused};
use super::timers::Timers;
use super::verify::Verified;
use super::wire::{ProposedBlock, Wire};
use super::{Application, Decision, HostError, Outlet};
use crate::node::codec::Codec;
use crate::node::crypto::{Address, SecretKey};
use crate::node::log::Log;
use crate::node::sign_state::SignState;
use crate::node::types::{Block, ValidatorSet};
use crate::node::wal::Wal;

/// Heights ahead whose messages are kept for later.
const FUTURE_HEIGHTS: u64 = 2;
/// Most messages kept for later.
const FUTURE_MESSAGES_MAX: usize = 4096;
/// Most bytes kept for later.
const FUTURE_BYTES_MAX: usize = 32 << 20;
/// The state machine's own queue for messages that come too early; the host keeps them itself, so this stays empty.
const QUEUE: usize = 16;

/// What a host is made from.
pub(crate) struct Setup {
    pub(crate) chain_id: String,
    pub(crate) key: SecretKey,
    pub(crate) wal: Wal,
    /// Records found in the log, with their heights.
    pub(crate) recovered: Vec<(u64, Vec<u8>)>,
    pub(crate) sign_state: SignState,
    pub(crate) outlet: Box<dyn Outlet>,
    pub(crate) log: Log,
}

/// Consensus of one node.
pub(crate) struct Host {
    state: State<Ctx>,
    core: Core,
    recovered: Vec<(u64, Vec<u8>)>,
    future: BTreeMap<u64, Vec<Bytes>>,
    future_bytes: usize,
    started: bool,
}

impl Host {
    /// A host that has started no height yet.
    pub(crate) fn new(setup: Setup) -> Self {
        let address = setup.key.public_key().address();
        let validators = Validators(Arc::new(ValidatorSet::default()));
        let params = Params {
            address,
            threshold_params: ThresholdParams::default(),
            value_payload: ValuePayload::ProposalAndParts,
            enabled: true,
        };
        let state = State::new(Ctx, Height(0), validators.clone(), params, QUEUE, QUEUE);
        let core = Core {
            verified: Verified::new(&setup.chain_id),
            chain_id: setup.chain_id,
            address,
            key: setup.key,
            wal: setup.wal,
            sign_state: setup.sign_state,
            outlet: setup.outlet,
            log: setup.log,
            timeouts: timeouts_for(0),
            timers: Timers::default(),
            height: 0,
            validators,
            blocks: BTreeMap::new(),
            pending: VecDeque::new(),
            heard: Vec::new(),
            decision: None,
            replayed: BTreeSet::new(),
            replaying: false,
            wanted: None,
            salt: 0,
            fatal: None,
        };
        Self { state, core, recovered: setup.recovered, future: BTreeMap::new(), future_bytes: 0, started: false }
    }

    /// The height in progress; 0 before the first.
    pub(crate) fn height(&self) -> u64 {
        self.core.height
    }

    /// This node's address.
    pub(crate) fn address(&self) -> Address {
        self.core.address
    }

    /// Whether the height in progress is running: started and not decided.
    pub(crate) fn is_running(&self) -> bool {
        self.started && self.core.decision.is_none()
    }

    /// Starts a height, with what the log holds of it, and with the messages that came early.
    pub(crate) fn start_height(
        &mut self,
        application: &dyn Application,
        height: u64,
        validators: Arc<ValidatorSet>,
    ) -> Result<(), HostError> {
        let core = &mut self.core;
        core.height = height;
        core.timeouts = timeouts_for(validators.len());
        core.validators = Validators(validators.clone());
        core.timers.next_epoch();
        core.verified.clear();
        core.blocks.clear();
        core.pending.clear();
        core.heard.clear();
        core.decision = None;
        core.wanted = None;
        self.started = true;
        let records: Vec<Vec<u8>> =
            std::mem::take(&mut self.recovered).into_iter().filter(|(h, _)| *h == height).map(|(_, r)| r).collect();
        self.replay(application, &records)?;
        let early = self.future.remove(&height).unwrap_or_default();
        self.future.retain(|later, _| *later > height);
        self.future_bytes = self.future.values().flatten().map(Bytes::len).sum();
        self.on_messages(application, early)
    }

    /// Stops the height in progress: its block came from a peer, or the node leaves consensus.
    pub(crate) fn stop_height(&mut self) {
        self.core.timers.next_epoch();
        self.started = false;
    }

    /// Feeds gossiped messages of the height in progress; those of the next heights are kept.
    pub(crate) fn on_messages(&mut self, application: &dyn Application, payloads: Vec<Bytes>) -> Result<(), HostError> {
        let mut messages = Vec::new();
        for payload in payloads {
            // What is no message is dropped: who passed it on need not be who made it.
            let Ok(wire) = Wire::decode(&payload) else { continue };
            match height_of(&wire) {
                Some(height) if height == self.core.height && self.is_running() => messages.push(wire),
                Some(height) if height > self.core.height => self.keep(height, payload),
                _ => {}
            }
        }
        self.verify_ahead(&messages);
        for wire in messages {
            if self.is_running() {
                self.on_wire(application, wire)?;
            }
        }
        Ok(())
    }

    /// Feeds the timeouts that are due.
    pub(crate) fn on_time(&mut self, application: &dyn Application, now: Instant) -> Result<(), HostError> {
        // Those that are scheduled meanwhile wait for the next call, so that this one ends.
        for _ in 0..self.core.timers.len() {
            if !self.is_running() {
                break;
            }
            let Some(timeout) = self.core.timers.pop_due(now) else { break };
            self.feed(application, Input::TimeoutElapsed(timeout))?;
        }
        Ok(())
    }

    /// When [`Host::on_time`] has something to do next.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.core.timers.deadline().filter(|_| self.is_running())
    }

    /// The decision, once. The next height starts only after it has been made durable and marked in the log.
    pub(crate) fn take_decision(&mut self) -> Option<Decision> {
        let decision = self.core.decision.clone();
        if decision.is_some() && self.started {
            self.started = false;
            return decision;
        }
        None
    }

    /// Marks a height as finished in the log.
    pub(crate) fn end_height(&mut self, height: u64) -> Result<(), HostError> {
        Ok(self.core.wal.end_height(height)?)
    }

    /// What was accepted at the height in progress, for a peer who asks.
    pub(crate) fn heard(&self) -> &[Bytes] {
        &self.core.heard
    }

    fn keep(&mut self, height: u64, payload: Bytes) {
        let count: usize = self.future.values().map(Vec::len).sum();
        let room = count < FUTURE_MESSAGES_MAX && self.future_bytes + payload.len() <= FUTURE_BYTES_MAX;
        if room && height <= self.core.height + FUTURE_HEIGHTS {
            self.future_bytes += payload.len();
            self.future.entry(height).or_default().push(payload);
        }
    }

    /// Verifies together the votes that are new.
    fn verify_ahead(&mut self, messages: &[Wire]) {
        let known = self.state.driver.votes();
        let votes: Vec<SignedVote<Ctx>> = messages
            .iter()
            .filter_map(|wire| match wire {
                Wire::Vote(vote) if vote.address != self.core.address && !known.has_vote(vote) => Some(vote.clone()),
                _ => None,
            })
            .collect();
        self.core.verified.check_ahead(&votes, &self.core.validators);
    }

    fn on_wire(&mut self, application: &dyn Application, wire: Wire) -> Result<(), HostError> {
        let own = self.core.address;
        let input = match wire {
            // This node's own messages are known to it; from elsewhere they are forgeries or echoes.
            Wire::Vote(vote) if vote.address == own => return Ok(()),
            Wire::Proposal(proposal) if proposal.address == own => return Ok(()),
            Wire::Vote(vote) => Input::Vote(vote),
            Wire::Proposal(proposal) => Input::Proposal(proposal),
            Wire::Polka(certificate) => Input::PolkaCertificate(certificate),
            Wire::Round(certificate) => Input::RoundCertificate(certificate),
            Wire::Block(proposed) => match self.on_block(application, proposed)? {
                Some(value) => Input::ProposedValue(value, ValueOrigin::Consensus),
                None => return Ok(()),
            },
            Wire::Proposed(_) | Wire::Timeout(_) => return Ok(()),
        };
        self.feed(application, input)
    }

    /// Checks and keeps a proposed block.
    fn on_block(
        &mut self,
        application: &dyn Application,
        proposed: ProposedBlock,
    ) -> Result<Option<ProposedValue<Ctx>>, HostError> {
        let Ok(block) = Block::from_bytes(&proposed.bytes) else { return Ok(None) };
        let id = block.id_of_encoded(&proposed.bytes);
        if self.core.blocks.contains_key(&id) {
            return Ok(None);
        }
        let Some(proposer) = proposed.round.as_u32().and_then(|r| self.core.validators.0.proposer(self.height(), r))
        else {
            return Ok(None);
        };
        let proposer = proposer.address;
        let round = proposed.round;
        let validity = match application.validate_block(&block) {
            Ok(()) => Validity::Valid,
            Err(reason) => {
                self.core.log.error(
                    "invalid proposed block",
                    &[("height", &self.height()), ("round", &round), ("proposer", &proposer), ("reason", &reason)],
                );
                Validity::Invalid
            }
        };
        let held = self.core.hold(id, Arc::new(block), proposed);
        let held = self.fatal_of(held)?;
        let height = Height(self.height());
        let value = ProposedValue { height, round, valid_round: Round::Nil, proposer, value: Value(id), validity };
        Ok(held.then_some(value))
    }

    /// Starts the height in the state machine and feeds what the log holds of it.
    fn replay(&mut self, application: &dyn Application, records: &[Vec<u8>]) -> Result<(), HostError> {
        let height = self.height();
        let mut inputs = Vec::new();
        self.core.replayed = records.iter().cloned().collect();
        for record in records {
            match Wire::decode(record) {
                Ok(Wire::Block(proposed)) => self.hold_replayed(proposed)?,
                Ok(Wire::Vote(vote)) => inputs.push(Input::Vote(vote)),
                Ok(Wire::Proposal(proposal)) => inputs.push(Input::Proposal(proposal)),
                Ok(Wire::Polka(certificate)) => inputs.push(Input::PolkaCertificate(certificate)),
                Ok(Wire::Proposed(value)) => inputs.push(Input::ProposedValue(value, ValueOrigin::Consensus)),
                Ok(Wire::Timeout(timeout)) => inputs.push(Input::TimeoutElapsed(timeout)),
                Ok(Wire::Round(_)) | Err(_) => {
                    return Err(HostError::Core(format!("a record of the log makes no sense at height {height}")));
                }
            }
        }
        self.core.replaying = !inputs.is_empty();
        if self.core.replaying {
            self.core.log.info("replay consensus log", &[("height", &height), ("records", &records.len())]);
            self.state.index_wal_entries(inputs.iter());
        }
        let validators = self.core.validators.clone();
        let start = Input::StartHeight(Height(height), validators, false, None, VoteExtensionPolicy::Disabled);
        self.feed(application, start)?;
        let own: Vec<ProposedValue<Ctx>> = inputs
            .iter()
            .filter_map(|input| match input {
                Input::ProposedValue(value, _) if value.proposer == self.core.address => Some(value.clone()),
                _ => None,
            })
            .collect();
        for input in inputs {
            if self.core.decision.is_none() {
                self.feed(application, input)?;
            }
        }
        self.state.reset_entries_index();
        self.core.replayed.clear();
        if std::mem::take(&mut self.core.replaying) {
            self.propose_after_replay(application, &own)?;
        }
        Ok(())
    }

    fn hold_replayed(&mut self, proposed: ProposedBlock) -> Result<(), HostError> {
        if let Ok(block) = Block::from_bytes(&proposed.bytes) {
            let id = block.id_of_encoded(&proposed.bytes);
            let held = self.core.hold(id, Arc::new(block), proposed);
            self.fatal_of(held)?;
        }
        Ok(())
    }

    /// A value asked for during replay is made now, unless the log held the proposal. The block that the log holds is
    /// proposed again, not another one: its signature may have left before the crash.
    fn propose_after_replay(
        &mut self,
        application: &dyn Application,
        own: &[ProposedValue<Ctx>],
    ) -> Result<(), HostError> {
        let Some(round) = self.core.wanted.take() else { return Ok(()) };
        let height = Height(self.height());
        let proposed = self.state.full_proposal_at_round_and_proposer(&height, round, &self.core.address).is_some();
        if self.core.decision.is_some() || self.state.round() != round || proposed {
            return Ok(());
        }
        match own.iter().find(|value| value.round == round && self.core.blocks.contains_key(&value.value.0)) {
            Some(value) => self.core.propose_held(value.value.0, round),
            None => {
                let proposed = self.core.propose(application, round);
                self.fatal_of(proposed)?;
            }
        }
        self.feed_pending(application)
    }

    fn feed(&mut self, application: &dyn Application, input: Input<Ctx>) -> Result<(), HostError> {
        self.core.pending.push_back(input);
        self.feed_pending(application)
    }

    fn feed_pending(&mut self, application: &dyn Application) -> Result<(), HostError> {
        while let Some(input) = self.core.pending.pop_front() {
            let (state, core) = (&mut self.state, &mut self.core);
            let done: Result<(), arc_malachitebft_core_consensus::Error<Ctx>> = process!(
                input: input,
                state: state,
                metrics: &(),
                with: effect => core.on_effect(application, effect)
            );
            if let Some(fatal) = self.core.fatal.take() {
                return Err(fatal);
            }
            match done {
                Ok(()) => {}
                // A signature was refused; the log says why.
                Err(arc_malachitebft_core_consensus::Error::UnexpectedResume(..)) => {}
                Err(error) => return Err(HostError::Core(error.to_string())),
            }
        }
        Ok(())
    }

    fn fatal_of<T>(&mut self, result: Result<T, Refused>) -> Result<T, HostError> {
        result.map_err(|Refused| {
            self.core.fatal.take().unwrap_or_else(|| HostError::Core("an effect was refused without a reason".into()))
        })
    }
}

fn height_of(wire: &Wire) -> Option<u64> {
    match wire {
        Wire::Vote(vote) => Some(vote.height.0),
        Wire::Proposal(proposal) => Some(proposal.height.0),
        Wire::Block(block) => Some(block.height.0),
        Wire::Polka(certificate) => Some(certificate.height.0),
        Wire::Round(certificate) => Some(certificate.height.0),
        Wire::Proposed(_) | Wire::Timeout(_) => None,
    }
}

/// Timeouts grow with the number of validators, since each verifies the votes of all.
fn timeouts_for(validators: usize) -> LinearTimeouts {
    let share = Duration::from_millis(100) * u32::try_from(validators).unwrap_or(u32::MAX).min(100);
    let propose = Duration::from_millis(800) + share;
    let vote = Duration::from_millis(400) + share / 2;
    LinearTimeouts {
        propose,
        propose_delta: Duration::from_millis(500),
        prevote: vote,
        prevote_delta: Duration::from_millis(300),
        precommit: vote,
        precommit_delta: Duration::from_millis(300),
        rebroadcast: propose + vote * 2,
        max_timeout: Duration::from_secs(30),
    }
}

//! What the state machine's effects do: sign, verify, log, publish, wait. Everything is done before the effect returns,
//! on the calling thread.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Instant;

use arc_malachitebft_core_consensus::{
    ConsensusMsg, Effect, Input, LivenessMsg, LocallyProposedValue, MisbehaviorEvidence, Resumable, Resume,
    SignedConsensusMsg,
};
use arc_malachitebft_core_types::{
    CertificateError, CommitCertificate, LinearTimeouts, Round, SignedMessage, ValueOrigin, VoteType,
};
use bytes::Bytes;

use super::context::{Ctx, Proposal, Validators, Value, Vote};
use super::timers::Timers;
use super::verify::Verified;
use super::wire::{ProposedBlock, Wire};
use super::{Application, Decision, HostError, Outlet};
use crate::node::codec::Codec;
use crate::node::crypto::{Address, PublicKey, SecretKey, Signature, SignerBitmap, aggregate};
use crate::node::log::Log;
use crate::node::sign_state::{Position, SignError, SignState, Step};
use crate::node::types::{Block, BlockId, Commit};
use crate::node::wal::Wal;

/// Most blocks held at a height: one a round is proposed, and more come only from liars.
const BLOCKS_MAX: usize = 16;
/// Most messages of a height that are kept for peers who ask.
const HEARD_MAX: usize = 4096;

/// A proposed block of the height in progress.
pub(super) struct Held {
    pub(super) block: Arc<Block>,
    /// The gossip message that carries it.
    payload: Bytes,
}

/// All that the host owns beside the state machine.
pub(super) struct Core {
    pub(super) chain_id: String,
    pub(super) address: Address,
    pub(super) key: SecretKey,
    pub(super) wal: Wal,
    pub(super) sign_state: SignState,
    pub(super) outlet: Box<dyn Outlet>,
    pub(super) log: Log,
    pub(super) timeouts: LinearTimeouts,
    pub(super) timers: Timers,
    pub(super) verified: Verified,
    pub(super) height: u64,
    pub(super) validators: Validators,
    pub(super) blocks: BTreeMap<BlockId, Held>,
    /// Inputs that effects gave rise to, for after the input in progress.
    pub(super) pending: VecDeque<Input<Ctx>>,
    /// Messages accepted at this height, for peers who come late to it.
    pub(super) heard: Vec<Bytes>,
    pub(super) decision: Option<Decision>,
    /// Records of the log being replayed; empty outside of replay.
    pub(super) replayed: BTreeSet<Vec<u8>>,
    pub(super) replaying: bool,
    /// Round for which a value was asked for during replay.
    pub(super) wanted: Option<Round>,
    /// Counts repetitions, so that they pass through nodes that saw the first.
    pub(super) salt: u32,
    pub(super) fatal: Option<HostError>,
}

/// An effect was refused; the reason is in [`Core::fatal`], or in the log where it is no reason to stop.
#[derive(Debug)]
pub(super) struct Refused;

impl Core {
    pub(super) fn on_effect(
        &mut self,
        application: &dyn Application,
        effect: Effect<Ctx>,
    ) -> Result<Resume<Ctx>, Refused> {
        match effect {
            Effect::CancelAllTimeouts(r) => {
                self.timers.cancel_all();
                Ok(r.resume_with(()))
            }
            Effect::CancelTimeout(timeout, r) => {
                self.timers.cancel(timeout);
                Ok(r.resume_with(()))
            }
            Effect::ScheduleTimeout(timeout, r) => {
                self.timers.schedule(timeout, Instant::now(), self.timeouts.duration_for(timeout));
                Ok(r.resume_with(()))
            }
            Effect::StartRound(height, round, proposer, _, r) => {
                if round.as_i64() > 0 {
                    self.log.info("start round", &[("height", &height), ("round", &round), ("proposer", &proposer)]);
                }
                Ok(r.resume_with(()))
            }
            Effect::GetValue(_, round, _, r) => {
                if self.replaying {
                    self.wanted = Some(round);
                } else {
                    self.propose(application, round)?;
                }
                Ok(r.resume_with(()))
            }
            Effect::Decide(certificate, _, r) => {
                self.flush()?;
                self.decide(&certificate)?;
                Ok(r.resume_with(()))
            }
            Effect::Finalize(_, _, evidence, r) => {
                self.report(&evidence);
                Ok(r.resume_with(()))
            }
            Effect::WalAppend(_, input, r) => {
                self.append(&input)?;
                Ok(r.resume_with(()))
            }
            Effect::SignVote(vote, r) => Ok(r.resume_with(self.sign_vote(vote)?)),
            Effect::SignProposal(proposal, r) => Ok(r.resume_with(self.sign_proposal(proposal)?)),
            Effect::ExtendVote(.., r) => Ok(r.resume_with(None)),
            Effect::VerifyVoteExtension(.., r) => Ok(r.resume_with(Ok(()))),
            Effect::CertVerifiedSyncValue(_, _, r) => Ok(r.resume_with(())),
            Effect::CertRejectedSyncValue(_, _, _, r) => Ok(r.resume_with(())),
            publish @ (Effect::PublishConsensusMsg(..)
            | Effect::PublishLivenessMsg(..)
            | Effect::RepublishVote(..)
            | Effect::RepublishRoundCertificate(..)
            | Effect::RestreamProposal(..)) => self.on_publish(publish),
            verify => self.on_verify(verify),
        }
    }

    fn on_publish(&mut self, effect: Effect<Ctx>) -> Result<Resume<Ctx>, Refused> {
        // Nothing leaves this node that a restart would not know of.
        self.flush()?;
        match effect {
            Effect::PublishConsensusMsg(SignedConsensusMsg::Proposal(proposal), _) => {
                self.publish_block(&proposal.value.0, 0);
                self.publish(&Wire::Proposal(proposal), 0);
            }
            Effect::PublishConsensusMsg(SignedConsensusMsg::Vote(vote), _)
            | Effect::PublishLivenessMsg(LivenessMsg::Vote(vote), _) => self.publish(&Wire::Vote(vote), 0),
            Effect::PublishLivenessMsg(LivenessMsg::PolkaCertificate(certificate), _) => {
                self.publish(&Wire::Polka(certificate), 0);
            }
            Effect::PublishLivenessMsg(LivenessMsg::SkipRoundCertificate(certificate), _) => {
                self.publish(&Wire::Round(certificate), 0);
            }
            Effect::RepublishVote(vote, _) => {
                let salt = self.next_salt();
                self.publish(&Wire::Vote(vote), salt);
                self.publish_heard_proposals(salt);
            }
            Effect::RepublishRoundCertificate(certificate, _) => {
                let salt = self.next_salt();
                self.publish(&Wire::Round(certificate), salt);
            }
            Effect::RestreamProposal(_, _, _, _, value, _) => {
                let salt = self.next_salt();
                self.publish_block(&value.0, salt);
            }
            _ => {}
        }
        Ok(Resume::Continue)
    }

    fn on_verify(&mut self, effect: Effect<Ctx>) -> Result<Resume<Ctx>, Refused> {
        match effect {
            Effect::VerifySignature(message, key, r) => Ok(r.resume_with(self.verify(&message, &key))),
            Effect::VerifyCommitCertificate(certificate, validators, thresholds, r) => {
                Ok(r.resume_with(self.verified.check_commit(&certificate, &validators, thresholds)))
            }
            Effect::VerifyPolkaCertificate(certificate, validators, thresholds, r) => {
                Ok(r.resume_with(self.verified.check_polka(&certificate, &validators, thresholds)))
            }
            Effect::VerifyRoundCertificate(certificate, validators, thresholds, r) => {
                Ok(r.resume_with(self.verified.check_round(&certificate, &validators, thresholds)))
            }
            // Decided blocks of peers are verified outside the state machine, so none is ever offered to it.
            Effect::VerifyExtendedCommitCertificate(.., r) => {
                Ok(r.resume_with(Err(CertificateError::VerificationError(None))))
            }
            _ => Ok(Resume::Continue),
        }
    }

    /// Messages of this node's own name come from itself alone: the network's are dropped before.
    fn verify(&mut self, message: &SignedMessage<Ctx, ConsensusMsg<Ctx>>, key: &PublicKey) -> bool {
        let (address, bytes) = match &message.message {
            ConsensusMsg::Vote(vote) => (vote.address, vote.sign_bytes(&self.chain_id)),
            ConsensusMsg::Proposal(proposal) => (proposal.address, proposal.sign_bytes(&self.chain_id)),
        };
        address == self.address || self.verified.check(key, &bytes, &message.signature)
    }

    fn sign_vote(&mut self, vote: Vote) -> Result<SignedMessage<Ctx, Vote>, Refused> {
        let step = match vote.kind {
            VoteType::Prevote => Step::Prevote,
            VoteType::Precommit => Step::Precommit,
        };
        let bytes = vote.sign_bytes(&self.chain_id);
        let signature = self.sign(vote.round, step, &bytes)?;
        Ok(SignedMessage::new(vote, signature))
    }

    fn sign_proposal(&mut self, proposal: Proposal) -> Result<SignedMessage<Ctx, Proposal>, Refused> {
        let bytes = proposal.sign_bytes(&self.chain_id);
        let signature = self.sign(proposal.round, Step::Propose, &bytes)?;
        Ok(SignedMessage::new(proposal, signature))
    }

    fn sign(&mut self, round: Round, step: Step, bytes: &[u8]) -> Result<Signature, Refused> {
        let round = round.as_u32().expect("the core signs in started rounds only");
        let position = Position { height: self.height, round, step };
        self.sign_state.sign(position, bytes, &self.key).map_err(|error| {
            match error {
                // The node lives on and is silent at this step; its peers decide without it.
                SignError::Conflict(_) | SignError::Regression { .. } => {
                    self.log.error("refused to sign", &[("reason", &error)]);
                }
                error => self.fatal = Some(HostError::Sign(error)),
            }
            Refused
        })
    }

    /// Makes a block and hands it to the state machine after the input in progress.
    pub(super) fn propose(&mut self, application: &dyn Application, round: Round) -> Result<(), Refused> {
        let block = application.build_block(self.address);
        let bytes = block.to_bytes();
        let id = block.id_of_encoded(&bytes);
        self.hold(id, Arc::new(block), ProposedBlock { height: super::Height(self.height), round, bytes })?;
        self.propose_held(id, round);
        Ok(())
    }

    pub(super) fn propose_held(&mut self, id: BlockId, round: Round) {
        let value = LocallyProposedValue::new(super::Height(self.height), round, Value(id));
        self.pending.push_back(Input::Propose(value));
    }

    /// Keeps a block and writes it to the log, ahead of the record that names it. False: there are too many already.
    pub(super) fn hold(&mut self, id: BlockId, block: Arc<Block>, proposed: ProposedBlock) -> Result<bool, Refused> {
        if self.blocks.contains_key(&id) || self.blocks.len() >= BLOCKS_MAX {
            return Ok(false);
        }
        let payload = Bytes::from(Wire::Block(proposed).encode());
        if !self.replayed.contains(payload.as_ref()) {
            let written = self.wal.append(self.height, &payload);
            self.or_fatal(written.map_err(HostError::Wal))?;
        }
        self.note_heard(payload.clone());
        self.blocks.insert(id, Held { block, payload });
        Ok(true)
    }

    fn append(&mut self, input: &Input<Ctx>) -> Result<(), Refused> {
        let wire = match input {
            Input::Vote(vote) => Wire::Vote(vote.clone()),
            Input::Proposal(proposal) => Wire::Proposal(proposal.clone()),
            Input::PolkaCertificate(certificate) => Wire::Polka(certificate.clone()),
            Input::ProposedValue(value, ValueOrigin::Consensus) => Wire::Proposed(value.clone()),
            Input::TimeoutElapsed(timeout) => Wire::Timeout(*timeout),
            _ => return Ok(()),
        };
        let record = wire.encode();
        if matches!(wire, Wire::Vote(_) | Wire::Proposal(_) | Wire::Polka(_)) {
            self.note_heard(Bytes::copy_from_slice(&record));
        }
        if self.replayed.contains(&record) {
            return Ok(());
        }
        let written = self.wal.append(self.height, &record);
        self.or_fatal(written.map_err(HostError::Wal))
    }

    fn note_heard(&mut self, payload: Bytes) {
        if self.heard.len() < HEARD_MAX {
            self.heard.push(payload);
        }
    }

    fn flush(&mut self) -> Result<(), Refused> {
        let flushed = self.wal.flush();
        self.or_fatal(flushed.map_err(HostError::Wal))
    }

    fn or_fatal<T>(&mut self, result: Result<T, HostError>) -> Result<T, Refused> {
        result.map_err(|error| {
            self.fatal = Some(error);
            Refused
        })
    }

    fn publish(&self, wire: &Wire, salt: u32) {
        self.outlet.publish(self.height, salt, Bytes::from(wire.encode()));
    }

    fn publish_block(&self, id: &BlockId, salt: u32) {
        if let Some(held) = self.blocks.get(id) {
            self.outlet.publish(self.height, salt, held.payload.clone());
        }
    }

    /// Repeats proposals and blocks for those who missed them: a vote alone does not move a round that lacks its block.
    fn publish_heard_proposals(&self, salt: u32) {
        for payload in &self.heard {
            if matches!(Wire::decode(payload), Ok(Wire::Proposal(_) | Wire::Block(_))) {
                self.outlet.publish(self.height, salt, payload.clone());
            }
        }
    }

    fn next_salt(&mut self) -> u32 {
        self.salt = self.salt.wrapping_add(1).max(1);
        self.salt
    }

    fn decide(&mut self, certificate: &CommitCertificate<Ctx>) -> Result<(), Refused> {
        let block_id = certificate.value_id.0;
        let decision = self.commit_of(certificate).and_then(|commit| {
            let held = self.blocks.get(&block_id).ok_or(HostError::Core("decided on an unknown block".into()))?;
            Ok(Decision { block: held.block.clone(), block_id, commit })
        });
        self.decision = Some(self.or_fatal(decision)?);
        Ok(())
    }

    /// Sums the precommits of a certificate into one commit.
    fn commit_of(&self, certificate: &CommitCertificate<Ctx>) -> Result<Commit, HostError> {
        let mut signers = SignerBitmap::empty(self.validators.0.len());
        let mut signatures = Vec::new();
        for signed in &certificate.commit_signatures {
            if let Some((index, _)) = self.validators.0.find(&signed.address)
                && !signers.contains(index)
            {
                signers.set(index);
                signatures.push(signed.signature);
            }
        }
        let signature = aggregate(&signatures).map_err(|error| HostError::Core(error.to_string()))?;
        let round = certificate.round.as_u32().unwrap_or(0);
        Ok(Commit { height: self.height, round, block_id: certificate.value_id.0, signers, signature })
    }

    fn report(&self, evidence: &MisbehaviorEvidence<Ctx>) {
        for (address, pairs) in evidence.votes.iter() {
            let rounds: Vec<String> = pairs.iter().map(|(vote, _)| vote.round.to_string()).collect();
            self.log.error(
                "conflicting votes",
                &[("validator", address), ("height", &self.height), ("rounds", &rounds.join(","))],
            );
        }
        for (address, _) in evidence.proposals.iter() {
            self.log.error("conflicting proposals", &[("validator", address), ("height", &self.height)]);
        }
    }
}

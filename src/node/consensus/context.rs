//! The types that the consensus core works on. A value is the name of a block; the blocks themselves stay in the host.

use std::fmt;
use std::sync::Arc;

use arc_malachitebft_core_types as core;
use arc_malachitebft_core_types::{Context, LinearTimeouts, NilOrVal, Round, SignedExtension, VoteType, VotingPower};

use crate::node::crypto::{Address, CryptoError, PublicKey, SecretKey, Signature};
use crate::node::types::{BlockId, Validator, ValidatorSet, VoteKind, vote_sign_bytes};

/// The context: no state of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ctx;

/// A height.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Height(pub(crate) u64);

impl fmt::Display for Height {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl core::Height for Height {
    const ZERO: Self = Self(0);
    const INITIAL: Self = Self(1);

    fn increment_by(&self, n: u64) -> Self {
        Self(self.0 + n)
    }

    fn decrement_by(&self, n: u64) -> Option<Self> {
        self.0.checked_sub(n).map(Self)
    }

    fn as_u64(&self) -> u64 {
        self.0
    }
}

/// What is decided on: a block's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Value(pub(crate) BlockId);

impl fmt::Display for Value {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.hash.fmt(f)
    }
}

impl core::Value for Value {
    type Id = Self;

    fn id(&self) -> Self {
        *self
    }
}

impl core::Address for Address {}

impl core::Validator<Ctx> for Validator {
    fn address(&self) -> &Address {
        &self.address
    }

    fn public_key(&self) -> &PublicKey {
        &self.pub_key
    }

    fn voting_power(&self) -> VotingPower {
        self.power
    }
}

/// The validators of one height; cheap to clone, since the core clones it often.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Validators(pub(crate) Arc<ValidatorSet>);

impl core::ValidatorSet<Ctx> for Validators {
    fn count(&self) -> usize {
        self.0.len()
    }

    fn total_voting_power(&self) -> VotingPower {
        self.0.total_power()
    }

    fn get_by_address(&self, address: &Address) -> Option<&Validator> {
        self.0.find(address).map(|(_, validator)| validator)
    }

    fn get_by_index(&self, index: usize) -> Option<&Validator> {
        self.0.validators().get(index)
    }
}

/// A proposal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Proposal {
    pub(crate) height: Height,
    pub(crate) round: Round,
    pub(crate) pol_round: Round,
    pub(crate) value: Value,
    pub(crate) address: Address,
}

impl Proposal {
    /// What is signed.
    pub(crate) fn sign_bytes(&self, chain_id: &str) -> Vec<u8> {
        let mut out = b"midflush proposal".to_vec();
        let round = self.round.as_u32().unwrap_or(u32::MAX);
        out.extend(vote_sign_bytes(chain_id, VoteKind::Prevote, self.height.0, round, Some(&self.value.0)));
        out.extend_from_slice(&self.pol_round.as_i64().to_le_bytes());
        out
    }
}

impl core::Proposal<Ctx> for Proposal {
    fn height(&self) -> Height {
        self.height
    }

    fn round(&self) -> Round {
        self.round
    }

    fn value(&self) -> &Value {
        &self.value
    }

    fn take_value(self) -> Value {
        self.value
    }

    fn pol_round(&self) -> Round {
        self.pol_round
    }

    fn validator_address(&self) -> &Address {
        &self.address
    }
}

/// A vote.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Vote {
    pub(crate) kind: VoteType,
    pub(crate) height: Height,
    pub(crate) round: Round,
    pub(crate) value: NilOrVal<Value>,
    pub(crate) address: Address,
}

impl Vote {
    /// What is signed: neither the address nor a time, so that equal votes of many aggregate.
    pub(crate) fn sign_bytes(&self, chain_id: &str) -> Vec<u8> {
        let kind = match self.kind {
            VoteType::Prevote => VoteKind::Prevote,
            VoteType::Precommit => VoteKind::Precommit,
        };
        let value = match &self.value {
            NilOrVal::Nil => None,
            NilOrVal::Val(value) => Some(&value.0),
        };
        vote_sign_bytes(chain_id, kind, self.height.0, self.round.as_u32().unwrap_or(u32::MAX), value)
    }
}

impl core::Vote<Ctx> for Vote {
    fn height(&self) -> Height {
        self.height
    }

    fn round(&self) -> Round {
        self.round
    }

    fn value(&self) -> &NilOrVal<Value> {
        &self.value
    }

    fn take_value(self) -> NilOrVal<Value> {
        self.value
    }

    fn vote_type(&self) -> VoteType {
        self.kind
    }

    fn validator_address(&self) -> &Address {
        &self.address
    }

    // Vote extensions are not used: the policy of every height is that there are none.

    fn extension(&self) -> Option<&SignedExtension<Ctx>> {
        None
    }

    fn take_extension(&mut self) -> Option<SignedExtension<Ctx>> {
        None
    }

    fn extend(self, _extension: SignedExtension<Ctx>) -> Self {
        self
    }
}

/// A block travels whole, so that a part is all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct WholeBlock;

impl core::ProposalPart<Ctx> for WholeBlock {
    fn is_first(&self) -> bool {
        true
    }

    fn is_last(&self) -> bool {
        true
    }
}

/// BLS over BLS12-381.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Bls;

impl core::SigningScheme for Bls {
    type DecodingError = CryptoError;
    type Signature = Signature;
    type PublicKey = PublicKey;
    type PrivateKey = SecretKey;

    fn decode_signature(bytes: &[u8]) -> Result<Signature, CryptoError> {
        Signature::from_bytes(bytes)
    }

    fn encode_signature(signature: &Signature) -> Vec<u8> {
        signature.0.to_vec()
    }

    fn decode_public_key(bytes: &[u8]) -> Result<PublicKey, CryptoError> {
        PublicKey::from_bytes(bytes)
    }

    fn encode_public_key(key: &PublicKey) -> Vec<u8> {
        key.to_bytes().to_vec()
    }
}

impl Context for Ctx {
    type Address = Address;
    type Height = Height;
    type ProposalPart = WholeBlock;
    type Proposal = Proposal;
    type Validator = Validator;
    type ValidatorSet = Validators;
    type Timeouts = LinearTimeouts;
    type Value = Value;
    type Vote = Vote;
    type Extension = ();
    type SigningScheme = Bls;

    fn select_proposer<'a>(&self, validators: &'a Validators, height: Height, round: Round) -> &'a Validator {
        let round = round.as_u32().expect("the core asks for proposers of started rounds only");
        validators.0.proposer(height.0, round).expect("no height starts without validators")
    }

    fn new_proposal(&self, height: Height, round: Round, value: Value, pol_round: Round, address: Address) -> Proposal {
        Proposal { height, round, pol_round, value, address }
    }

    fn new_prevote(&self, height: Height, round: Round, value: NilOrVal<Value>, address: Address) -> Vote {
        Vote { kind: VoteType::Prevote, height, round, value, address }
    }

    fn new_precommit(&self, height: Height, round: Round, value: NilOrVal<Value>, address: Address) -> Vote {
        Vote { kind: VoteType::Precommit, height, round, value, address }
    }
}

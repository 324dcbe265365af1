//! Signatures of one height: each is verified once, votes that agree are verified together, and certificates cost
//! nothing where their votes are known already.

#![expect(clippy::result_large_err, reason = "the error is the state machine's own type")]

use std::collections::{BTreeMap, BTreeSet};

use arc_malachitebft_core_types::{
    CertificateError, CommitCertificate, Context, NilOrVal, PolkaCertificate, RoundCertificate, RoundCertificateType,
    SignedVote, ThresholdParams, VoteType,
};
use sha2::{Digest, Sha256};

use super::context::{Ctx, Validators, Vote};
use crate::node::crypto::{Address, PublicKey, Signature, verify_same_message};

/// Signatures known to be valid at the height in progress.
#[derive(Debug, Default)]
pub(crate) struct Verified {
    known: BTreeSet<[u8; 32]>,
    chain_id: String,
}

/// A signature to be verified.
#[derive(Clone, Copy, Debug)]
struct Claim<'a> {
    key: &'a PublicKey,
    signature: &'a Signature,
}

impl Verified {
    pub(crate) fn new(chain_id: &str) -> Self {
        Self { known: BTreeSet::new(), chain_id: chain_id.to_owned() }
    }

    /// Forgets all, at the start of a height.
    pub(crate) fn clear(&mut self) {
        self.known.clear();
    }

    /// Whether the signature is valid; asked again, it costs nothing.
    pub(crate) fn check(&mut self, key: &PublicKey, message: &[u8], signature: &Signature) -> bool {
        self.check_all(&[Claim { key, signature }], message)
    }

    /// Verifies votes ahead of their use: those that say the same together. Valid ones are remembered; of the others
    /// nothing is said, so that each meets its own check later.
    pub(crate) fn check_ahead(&mut self, votes: &[SignedVote<Ctx>], validators: &Validators) {
        let mut groups: BTreeMap<Vec<u8>, Vec<Claim<'_>>> = BTreeMap::new();
        for vote in votes {
            if let Some((_, validator)) = validators.0.find(&vote.address) {
                let claim = Claim { key: &validator.pub_key, signature: &vote.signature };
                groups.entry(vote.sign_bytes(&self.chain_id)).or_default().push(claim);
            }
        }
        for (message, claims) in groups {
            if claims.len() > 1 {
                self.check_all(&claims, &message);
            }
        }
    }

    fn check_all(&mut self, claims: &[Claim<'_>], message: &[u8]) -> bool {
        let mut keys = Vec::new();
        let mut pairs = Vec::new();
        for claim in claims {
            let known: [u8; 32] = Sha256::new()
                .chain_update(claim.key.to_bytes())
                .chain_update(claim.signature.0)
                .chain_update(message)
                .finalize()
                .into();
            if !self.known.contains(&known) {
                keys.push(known);
                pairs.push((claim.key, claim.signature));
            }
        }
        let valid = pairs.is_empty() || verify_same_message(&pairs, message);
        if valid {
            self.known.extend(keys);
        }
        valid
    }

    /// The certificate that decided a height.
    pub(crate) fn check_commit(
        &mut self,
        certificate: &CommitCertificate<Ctx>,
        validators: &Validators,
        thresholds: ThresholdParams,
    ) -> Result<(), CertificateError<Ctx>> {
        let message = vote(VoteType::Precommit, certificate.height, certificate.round, certificate.value_id)
            .sign_bytes(&self.chain_id);
        let signers = certificate.commit_signatures.iter().map(|s| (s.address, &s.signature));
        let (power, claims) = collect(signers, validators)?;
        require(power, thresholds.quorum.min_expected(validators.0.total_power()), validators)?;
        if self.check_all(&claims, &message) { Ok(()) } else { Err(CertificateError::VerificationError(None)) }
    }

    /// A certificate of a quorum of equal prevotes.
    pub(crate) fn check_polka(
        &mut self,
        certificate: &PolkaCertificate<Ctx>,
        validators: &Validators,
        thresholds: ThresholdParams,
    ) -> Result<(), CertificateError<Ctx>> {
        let message = vote(VoteType::Prevote, certificate.height, certificate.round, certificate.value_id)
            .sign_bytes(&self.chain_id);
        let signers = certificate.polka_signatures.iter().map(|s| (s.address, &s.signature));
        let (power, claims) = collect(signers, validators)?;
        require(power, thresholds.quorum.min_expected(validators.0.total_power()), validators)?;
        if self.check_all(&claims, &message) { Ok(()) } else { Err(CertificateError::VerificationError(None)) }
    }

    /// A certificate that justifies entering a round: a quorum of precommits of the round before, or enough votes of any
    /// kind of the round itself that one is from an honest validator.
    pub(crate) fn check_round(
        &mut self,
        certificate: &RoundCertificate<Ctx>,
        validators: &Validators,
        thresholds: ThresholdParams,
    ) -> Result<(), CertificateError<Ctx>> {
        let total = validators.0.total_power();
        let expected = match certificate.cert_type {
            RoundCertificateType::Precommit => {
                let prevote = certificate.round_signatures.iter().find(|s| s.vote_type == VoteType::Prevote);
                if let Some(signed) = prevote {
                    return Err(CertificateError::InvalidVoteType(signed.address));
                }
                thresholds.quorum.min_expected(total)
            }
            RoundCertificateType::Skip => thresholds.honest.min_expected(total),
        };
        let signers = certificate.round_signatures.iter().map(|s| (s.address, &s.signature));
        let (power, _) = collect(signers, validators)?;
        require(power, expected, validators)?;
        let votes: Vec<_> = certificate.votes(&Ctx).collect();
        self.check_ahead(&votes, validators);
        for signed in &votes {
            let Some((_, validator)) = validators.0.find(&signed.address) else {
                return Err(CertificateError::UnknownValidator(signed.address));
            };
            if !self.check(&validator.pub_key, &signed.sign_bytes(&self.chain_id.clone()), &signed.signature) {
                return Err(CertificateError::VerificationError(None));
            }
        }
        Ok(())
    }
}

fn vote(
    kind: VoteType,
    height: super::context::Height,
    round: arc_malachitebft_core_types::Round,
    value: super::context::Value,
) -> Vote {
    match kind {
        VoteType::Prevote => Ctx.new_prevote(height, round, NilOrVal::Val(value), Address::default()),
        VoteType::Precommit => Ctx.new_precommit(height, round, NilOrVal::Val(value), Address::default()),
    }
}

/// The power and the keys of signers, each known and there once.
fn collect<'a>(
    signers: impl Iterator<Item = (Address, &'a Signature)>,
    validators: &'a Validators,
) -> Result<(u64, Vec<Claim<'a>>), CertificateError<Ctx>> {
    let mut seen = BTreeSet::new();
    let mut power = 0u64;
    let mut claims = Vec::new();
    for (address, signature) in signers {
        let (_, validator) = validators.0.find(&address).ok_or(CertificateError::UnknownValidator(address))?;
        if !seen.insert(address) {
            return Err(CertificateError::DuplicateVote(address));
        }
        power = power
            .checked_add(validator.power)
            .ok_or(CertificateError::VotingPowerOverflow { signed: power, added: validator.power })?;
        claims.push(Claim { key: &validator.pub_key, signature });
    }
    Ok((power, claims))
}

fn require(signed: u64, expected: u64, validators: &Validators) -> Result<(), CertificateError<Ctx>> {
    if signed >= expected {
        return Ok(());
    }
    Err(CertificateError::NotEnoughVotingPower { signed, total: validators.0.total_power(), expected })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arc_malachitebft_core_types::{PolkaSignature, Round, RoundSignature, SignedMessage};

    use super::super::context::{Height, Value};
    use super::*;
    use crate::node::crypto::SecretKey;
    use crate::node::types::{BlockId, Validator, ValidatorSet};

    fn setup() -> (Vec<SecretKey>, Validators) {
        let keys: Vec<_> = (1..=4).map(|i| SecretKey::from_ikm(&[i; 32]).unwrap()).collect();
        let set = ValidatorSet::new(keys.iter().map(|k| Validator::new(k.public_key(), 10)).collect());
        (keys, Validators(Arc::new(set)))
    }

    fn signed(key: &SecretKey, kind: VoteType, value: NilOrVal<Value>) -> SignedVote<Ctx> {
        let address = key.public_key().address();
        let vote = Vote { kind, height: Height(3), round: Round::new(1), value, address };
        let signature = key.sign(&vote.sign_bytes("c"));
        SignedMessage::new(vote, signature)
    }

    #[test]
    fn certificates_need_power_known_signers_and_valid_signatures() {
        let (keys, validators) = setup();
        let value = Value(BlockId::default());
        let polka = |keys: &[SecretKey]| PolkaCertificate {
            height: Height(3),
            round: Round::new(1),
            value_id: value,
            polka_signatures: keys
                .iter()
                .map(|k| {
                    let vote = signed(k, VoteType::Prevote, NilOrVal::Val(value));
                    PolkaSignature::new(vote.address, vote.signature)
                })
                .collect(),
        };
        let check =
            |c: &PolkaCertificate<Ctx>| Verified::new("c").check_polka(c, &validators, ThresholdParams::default());
        assert!(check(&polka(&keys[..3])).is_ok());
        assert!(matches!(check(&polka(&keys[..2])), Err(CertificateError::NotEnoughVotingPower { .. })));
        let mut twice = polka(&keys[..3]);
        twice.polka_signatures[1] = twice.polka_signatures[0].clone();
        assert!(matches!(check(&twice), Err(CertificateError::DuplicateVote(_))));
        let mut forged = polka(&keys[..3]);
        forged.polka_signatures[2].signature = forged.polka_signatures[0].signature;
        assert!(check(&forged).is_err());
        let stranger = SecretKey::from_ikm(&[9; 32]).unwrap();
        assert!(matches!(check(&polka(&[stranger])), Err(CertificateError::UnknownValidator(_))));
    }

    #[test]
    fn a_round_certificate_of_precommits_holds_no_prevote() {
        let (keys, validators) = setup();
        let certificate = |cert_type, kind, count: usize| RoundCertificate {
            height: Height(3),
            round: Round::new(1),
            cert_type,
            round_signatures: keys[..count]
                .iter()
                .map(|k| {
                    let vote = signed(k, kind, NilOrVal::Nil);
                    RoundSignature::new(kind, vote.value, vote.address, vote.signature)
                })
                .collect(),
        };
        let check = |c| Verified::new("c").check_round(&c, &validators, ThresholdParams::default());
        assert!(check(certificate(RoundCertificateType::Precommit, VoteType::Precommit, 3)).is_ok());
        assert!(check(certificate(RoundCertificateType::Precommit, VoteType::Precommit, 2)).is_err());
        assert!(check(certificate(RoundCertificateType::Precommit, VoteType::Prevote, 3)).is_err());
        assert!(check(certificate(RoundCertificateType::Skip, VoteType::Prevote, 2)).is_ok());
        assert!(check(certificate(RoundCertificateType::Skip, VoteType::Prevote, 1)).is_err());
    }

    #[test]
    fn checking_ahead_remembers_the_valid_and_vouches_for_no_forgery() {
        let (keys, validators) = setup();
        let mut votes: Vec<_> = keys.iter().map(|k| signed(k, VoteType::Prevote, NilOrVal::Nil)).collect();
        let mut verified = Verified::new("c");
        verified.check_ahead(&votes, &validators);
        assert_eq!(verified.known.len(), 4);
        verified.clear();
        votes[2].signature = votes[1].signature;
        verified.check_ahead(&votes, &validators);
        assert!(verified.known.is_empty());
        let message = votes[2].sign_bytes("c");
        assert!(!verified.check(&keys[2].public_key(), &message, &votes[2].signature));
        assert!(verified.check(&keys[1].public_key(), &message, &votes[1].signature));
    }
}

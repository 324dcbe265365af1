//! The commit of a block: one aggregated signature of more than two thirds of the voting power, and what a vote signs.

use super::{BlockId, Hash, Height, ValidatorSet, sha256};
use crate::node::codec::{Codec, CodecError, Reader, put_bytes};
use crate::node::crypto::{PublicKey, SIGNATURE_BYTES, SIGNERS_MAX, Signature, SignerBitmap, verify_aggregate};

/// The two kinds of votes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum VoteKind {
    /// First vote of a round.
    Prevote = 1,
    /// Second vote of a round; these make a commit.
    Precommit = 2,
}

/// What a vote signs; `None` is a vote for no block. It names neither time nor signer, so that the signatures of all who
/// vote alike can be summed into one.
pub fn vote_sign_bytes(
    chain_id: &str,
    kind: VoteKind,
    height: Height,
    round: u32,
    block_id: Option<&BlockId>,
) -> Vec<u8> {
    let mut out = b"midflush vote".to_vec();
    put_bytes(&mut out, chain_id.as_bytes());
    out.push(kind as u8);
    out.extend_from_slice(&height.to_le_bytes());
    out.extend_from_slice(&round.to_le_bytes());
    match block_id {
        None => out.push(0),
        Some(id) => {
            out.push(1);
            id.write(&mut out);
        }
    }
    out
}

/// A commit does not prove its block.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CommitError {
    /// It is of another height.
    #[error("check a commit: it is of height {got}, not {expected}")]
    Height {
        /// Of the commit.
        got: Height,
        /// Of the block.
        expected: Height,
    },
    /// It is of another block.
    #[error("check a commit: it is of another block of height {0}")]
    BlockId(Height),
    /// It names a signer that the set does not have.
    #[error("check a commit: signer {0} of a set of {1}")]
    UnknownSigner(usize, usize),
    /// The signers have too little power.
    #[error("check a commit: power {power} of {total} signed")]
    Power {
        /// Of the signers.
        power: u64,
        /// Of the set.
        total: u64,
    },
    /// The aggregated signature is wrong.
    #[error("check a commit: wrong signature at height {0}")]
    Signature(Height),
}

/// More than two thirds signed a precommit for this block in this round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commit {
    /// Height of the block; 0 for the empty commit in the first block.
    pub height: Height,
    /// Round in which it was decided.
    pub round: u32,
    /// The block.
    pub block_id: BlockId,
    /// Who signed, by position in the height's validator set.
    pub signers: SignerBitmap,
    /// The sum of their signatures over [`vote_sign_bytes`].
    pub signature: Signature,
}

impl Default for Commit {
    fn default() -> Self {
        Self {
            height: 0,
            round: 0,
            block_id: BlockId::default(),
            signers: SignerBitmap::default(),
            signature: Signature([0; SIGNATURE_BYTES]),
        }
    }
}

impl Commit {
    /// The hash in the next header.
    pub fn hash(&self) -> Hash {
        sha256(&self.to_bytes())
    }

    /// What every signer signed.
    pub fn sign_bytes(&self, chain_id: &str) -> Vec<u8> {
        vote_sign_bytes(chain_id, VoteKind::Precommit, self.height, self.round, Some(&self.block_id))
    }

    /// All but the signature: height, block, and enough power. Returns the signers' keys, for one verification or a batch.
    pub fn check<'a>(
        &self,
        validators: &'a ValidatorSet,
        height: Height,
        block_id: &BlockId,
    ) -> Result<Vec<&'a PublicKey>, CommitError> {
        if self.height != height {
            return Err(CommitError::Height { got: self.height, expected: height });
        }
        if self.block_id != *block_id {
            return Err(CommitError::BlockId(height));
        }
        let mut keys = Vec::new();
        let mut power = 0u64;
        for index in self.signers.signers() {
            let signer =
                validators.validators().get(index).ok_or(CommitError::UnknownSigner(index, validators.len()))?;
            keys.push(&signer.pub_key);
            power = power.saturating_add(signer.power);
        }
        if !validators.is_quorum(power) {
            return Err(CommitError::Power { power, total: validators.total_power() });
        }
        Ok(keys)
    }

    /// Everything, with one verification of the aggregated signature (about 1.5 ms).
    pub fn verify(
        &self,
        chain_id: &str,
        validators: &ValidatorSet,
        height: Height,
        block_id: &BlockId,
    ) -> Result<(), CommitError> {
        let keys = self.check(validators, height, block_id)?;
        if verify_aggregate(&keys, &self.sign_bytes(chain_id), &self.signature) {
            Ok(())
        } else {
            Err(CommitError::Signature(height))
        }
    }
}

impl Codec for Commit {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.height.to_le_bytes());
        out.extend_from_slice(&self.round.to_le_bytes());
        self.block_id.write(out);
        put_bytes(out, self.signers.as_bytes());
        out.extend_from_slice(&self.signature.0);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, CodecError> {
        let height = reader.u64("commit height")?;
        let round = reader.u32("commit round")?;
        let block_id = BlockId::read(reader)?;
        let signers = SignerBitmap::from_bytes(reader.bytes(SIGNERS_MAX / 8, "signers")?.to_vec())
            .ok_or(CodecError::Invalid { what: "signers" })?;
        Ok(Self { height, round, block_id, signers, signature: Signature(reader.array("signature")?) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::crypto::{SecretKey, aggregate};
    use crate::node::types::Validator;

    fn signed(signers: &[usize]) -> (ValidatorSet, Commit) {
        let keys: Vec<SecretKey> = (1..=4).map(|i| SecretKey::from_ikm(&[i; 32]).unwrap()).collect();
        let set = ValidatorSet::new(keys.iter().map(|k| Validator::new(k.public_key(), 10)).collect());
        let mut commit = Commit { height: 5, round: 1, signers: SignerBitmap::empty(4), ..Commit::default() };
        commit.block_id.hash = sha256(b"block");
        let message = commit.sign_bytes("c");
        let mut signatures = Vec::new();
        for key in &keys {
            let (index, _) = set.find(&key.public_key().address()).unwrap();
            if signers.contains(&index) {
                commit.signers.set(index);
                signatures.push(key.sign(&message));
            }
        }
        commit.signature = aggregate(&signatures).unwrap();
        (set, commit)
    }

    #[test]
    fn three_of_four_prove_a_block_and_two_do_not() {
        let (set, commit) = signed(&[0, 2, 3]);
        let id = commit.block_id;
        commit.verify("c", &set, 5, &id).unwrap();
        assert_eq!(commit.verify("other", &set, 5, &id), Err(CommitError::Signature(5)));
        assert_eq!(commit.verify("c", &set, 6, &id), Err(CommitError::Height { got: 5, expected: 6 }));
        let other = BlockId { hash: sha256(b"other"), ..id };
        assert_eq!(commit.verify("c", &set, 5, &other), Err(CommitError::BlockId(5)));
        let mut claims = commit.clone();
        claims.signers.set(1);
        assert_eq!(claims.verify("c", &set, 5, &id), Err(CommitError::Signature(5)), "a signer who did not sign");
        claims.signers.set(6);
        assert_eq!(claims.verify("c", &set, 5, &id), Err(CommitError::UnknownSigner(6, 4)));
        let (set, few) = signed(&[0, 1]);
        assert_eq!(few.verify("c", &set, 5, &id), Err(CommitError::Power { power: 20, total: 40 }));
        assert_eq!(Commit::from_bytes(&commit.to_bytes()).unwrap(), commit);
    }

    #[test]
    fn prevotes_precommits_and_nil_votes_sign_different_bytes() {
        let id = BlockId::default();
        let bytes = |kind, id| vote_sign_bytes("c", kind, 1, 0, id);
        assert_ne!(bytes(VoteKind::Prevote, Some(&id)), bytes(VoteKind::Precommit, Some(&id)));
        assert_ne!(bytes(VoteKind::Precommit, None), bytes(VoteKind::Precommit, Some(&id)));
    }
}

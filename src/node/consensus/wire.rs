//! The messages of consensus and the records of its log, as bytes. A record of the log and a gossiped message of the
//! same kind are the same bytes.

use arc_malachitebft_core_consensus::ProposedValue;
use arc_malachitebft_core_types::{
    NilOrVal, PolkaCertificate, PolkaSignature, Round, RoundCertificate, RoundCertificateType, RoundSignature,
    SignedMessage, SignedProposal, SignedVote, Timeout, TimeoutKind, Validity, VoteType,
};

use super::context::{Ctx, Height, Proposal, Value, Vote};
use crate::node::codec::{Codec, CodecError, Reader, put_bytes, put_length};
use crate::node::crypto::{ADDRESS_BYTES, Address, SIGNATURE_BYTES, Signature};
use crate::node::types::{BLOCK_BYTES_MAX, BlockId, VALIDATORS_MAX};

/// A block for a round of consensus.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ProposedBlock {
    pub(crate) height: Height,
    pub(crate) round: Round,
    /// The encoded block.
    pub(crate) bytes: Vec<u8>,
}

/// A message or a record. The last two kinds are never gossiped.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Wire {
    Vote(SignedVote<Ctx>),
    Proposal(SignedProposal<Ctx>),
    Block(ProposedBlock),
    Polka(PolkaCertificate<Ctx>),
    Round(RoundCertificate<Ctx>),
    Proposed(ProposedValue<Ctx>),
    Timeout(Timeout),
}

impl Wire {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(256);
        match self {
            Self::Vote(vote) => {
                out.push(1);
                put_vote_type(&mut out, vote.kind);
                put_place(&mut out, vote.height, vote.round);
                put_value(&mut out, &vote.value);
                put_signed(&mut out, &vote.address, &vote.signature);
            }
            Self::Proposal(proposal) => {
                out.push(2);
                put_place(&mut out, proposal.height, proposal.round);
                put_round(&mut out, proposal.pol_round);
                proposal.value.0.write(&mut out);
                put_signed(&mut out, &proposal.address, &proposal.signature);
            }
            Self::Block(block) => {
                out.push(3);
                put_place(&mut out, block.height, block.round);
                put_bytes(&mut out, &block.bytes);
            }
            Self::Polka(certificate) => {
                out.push(4);
                put_place(&mut out, certificate.height, certificate.round);
                certificate.value_id.0.write(&mut out);
                put_length(&mut out, certificate.polka_signatures.len());
                for signed in &certificate.polka_signatures {
                    put_signed(&mut out, &signed.address, &signed.signature);
                }
            }
            Self::Round(certificate) => {
                out.push(5);
                put_place(&mut out, certificate.height, certificate.round);
                out.push(u8::from(certificate.cert_type == RoundCertificateType::Precommit));
                put_length(&mut out, certificate.round_signatures.len());
                for signed in &certificate.round_signatures {
                    put_vote_type(&mut out, signed.vote_type);
                    put_value(&mut out, &signed.value_id);
                    put_signed(&mut out, &signed.address, &signed.signature);
                }
            }
            Self::Proposed(proposed) => {
                out.push(6);
                put_place(&mut out, proposed.height, proposed.round);
                put_round(&mut out, proposed.valid_round);
                proposed.value.0.write(&mut out);
                out.extend_from_slice(&proposed.proposer.0);
                out.push(u8::from(proposed.validity.is_valid()));
            }
            Self::Timeout(timeout) => {
                out.push(7);
                put_round(&mut out, timeout.round);
                out.push(match timeout.kind {
                    TimeoutKind::Propose => 1,
                    TimeoutKind::Prevote => 2,
                    TimeoutKind::Precommit => 3,
                    TimeoutKind::Rebroadcast | TimeoutKind::FinalizeHeight(_) => 0,
                });
            }
        }
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Result<Self, CodecError> {
        let mut reader = Reader::new(bytes);
        let wire = match reader.u8("kind")? {
            1 => Self::Vote(read_vote(&mut reader)?),
            2 => Self::Proposal(read_proposal(&mut reader)?),
            3 => {
                let (height, round) = read_place(&mut reader)?;
                Self::Block(ProposedBlock { height, round, bytes: reader.bytes(BLOCK_BYTES_MAX, "block")?.to_vec() })
            }
            4 => Self::Polka(read_polka(&mut reader)?),
            5 => Self::Round(read_round_certificate(&mut reader)?),
            6 => Self::Proposed(read_proposed(&mut reader)?),
            7 => {
                let round = read_round(&mut reader)?;
                let kind = match reader.u8("timeout")? {
                    1 => TimeoutKind::Propose,
                    2 => TimeoutKind::Prevote,
                    3 => TimeoutKind::Precommit,
                    _ => return Err(CodecError::Invalid { what: "timeout" }),
                };
                Self::Timeout(Timeout::new(round, kind))
            }
            _ => return Err(CodecError::Invalid { what: "kind" }),
        };
        reader.finish()?;
        Ok(wire)
    }
}

fn put_vote_type(out: &mut Vec<u8>, kind: VoteType) {
    out.push(match kind {
        VoteType::Prevote => 1,
        VoteType::Precommit => 2,
    });
}

fn put_round(out: &mut Vec<u8>, round: Round) {
    out.extend_from_slice(&round.as_i64().to_le_bytes());
}

fn put_place(out: &mut Vec<u8>, height: Height, round: Round) {
    out.extend_from_slice(&height.0.to_le_bytes());
    put_round(out, round);
}

fn put_value(out: &mut Vec<u8>, value: &NilOrVal<Value>) {
    match value {
        NilOrVal::Nil => out.push(0),
        NilOrVal::Val(value) => {
            out.push(1);
            value.0.write(out);
        }
    }
}

fn put_signed(out: &mut Vec<u8>, address: &Address, signature: &Signature) {
    out.extend_from_slice(&address.0);
    out.extend_from_slice(&signature.0);
}

fn read_vote_type(reader: &mut Reader<'_>) -> Result<VoteType, CodecError> {
    match reader.u8("vote type")? {
        1 => Ok(VoteType::Prevote),
        2 => Ok(VoteType::Precommit),
        _ => Err(CodecError::Invalid { what: "vote type" }),
    }
}

fn read_round(reader: &mut Reader<'_>) -> Result<Round, CodecError> {
    match reader.u64("round")? as i64 {
        -1 => Ok(Round::Nil),
        round => u32::try_from(round).map(Round::new).map_err(|_| CodecError::Invalid { what: "round" }),
    }
}

/// A height and a round that is not nil.
fn read_place(reader: &mut Reader<'_>) -> Result<(Height, Round), CodecError> {
    let height = Height(reader.u64("height")?);
    match read_round(reader)? {
        Round::Nil => Err(CodecError::Invalid { what: "round" }),
        round => Ok((height, round)),
    }
}

fn read_value(reader: &mut Reader<'_>) -> Result<NilOrVal<Value>, CodecError> {
    match reader.u8("value")? {
        0 => Ok(NilOrVal::Nil),
        1 => Ok(NilOrVal::Val(Value(BlockId::read(reader)?))),
        _ => Err(CodecError::Invalid { what: "value" }),
    }
}

fn read_address(reader: &mut Reader<'_>) -> Result<Address, CodecError> {
    reader.array::<ADDRESS_BYTES>("address").map(Address)
}

fn read_signed(reader: &mut Reader<'_>) -> Result<(Address, Signature), CodecError> {
    Ok((read_address(reader)?, Signature(reader.array::<SIGNATURE_BYTES>("signature")?)))
}

fn read_vote(reader: &mut Reader<'_>) -> Result<SignedVote<Ctx>, CodecError> {
    let kind = read_vote_type(reader)?;
    let (height, round) = read_place(reader)?;
    let value = read_value(reader)?;
    let (address, signature) = read_signed(reader)?;
    Ok(SignedMessage::new(Vote { kind, height, round, value, address }, signature))
}

fn read_proposal(reader: &mut Reader<'_>) -> Result<SignedProposal<Ctx>, CodecError> {
    let (height, round) = read_place(reader)?;
    let pol_round = read_round(reader)?;
    let value = Value(BlockId::read(reader)?);
    let (address, signature) = read_signed(reader)?;
    Ok(SignedMessage::new(Proposal { height, round, pol_round, value, address }, signature))
}

fn read_polka(reader: &mut Reader<'_>) -> Result<PolkaCertificate<Ctx>, CodecError> {
    let (height, round) = read_place(reader)?;
    let value_id = Value(BlockId::read(reader)?);
    let count = reader.length(VALIDATORS_MAX, "signatures")?;
    let mut polka_signatures = Vec::new();
    for _ in 0..count {
        let (address, signature) = read_signed(reader)?;
        polka_signatures.push(PolkaSignature::new(address, signature));
    }
    Ok(PolkaCertificate { height, round, value_id, polka_signatures })
}

fn read_round_certificate(reader: &mut Reader<'_>) -> Result<RoundCertificate<Ctx>, CodecError> {
    let (height, round) = read_place(reader)?;
    let cert_type = match reader.u8("certificate")? {
        0 => RoundCertificateType::Skip,
        1 => RoundCertificateType::Precommit,
        _ => return Err(CodecError::Invalid { what: "certificate" }),
    };
    let count = reader.length(2 * VALIDATORS_MAX, "signatures")?;
    let mut round_signatures = Vec::new();
    for _ in 0..count {
        let vote_type = read_vote_type(reader)?;
        let value = read_value(reader)?;
        let (address, signature) = read_signed(reader)?;
        round_signatures.push(RoundSignature::new(vote_type, value, address, signature));
    }
    Ok(RoundCertificate { height, round, cert_type, round_signatures })
}

fn read_proposed(reader: &mut Reader<'_>) -> Result<ProposedValue<Ctx>, CodecError> {
    let (height, round) = read_place(reader)?;
    let valid_round = read_round(reader)?;
    let value = Value(BlockId::read(reader)?);
    let proposer = read_address(reader)?;
    let validity = match reader.u8("validity")? {
        0 => Validity::Invalid,
        1 => Validity::Valid,
        _ => return Err(CodecError::Invalid { what: "validity" }),
    };
    Ok(ProposedValue { height, round, valid_round, proposer, value, validity })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::types::sha256;

    fn samples() -> Vec<Wire> {
        let (height, round, address) = (Height(7), Round::new(2), Address([3; 20]));
        let signature = Signature([9; 96]);
        let value = Value(BlockId { hash: sha256(b"block"), ..BlockId::default() });
        let vote = |kind, value| SignedMessage::new(Vote { kind, height, round, value, address }, signature);
        vec![
            Wire::Vote(vote(VoteType::Prevote, NilOrVal::Nil)),
            Wire::Vote(vote(VoteType::Precommit, NilOrVal::Val(value))),
            Wire::Proposal(SignedMessage::new(
                Proposal { height, round, pol_round: Round::Nil, value, address },
                signature,
            )),
            Wire::Block(ProposedBlock { height, round, bytes: vec![1, 2, 3] }),
            Wire::Polka(PolkaCertificate {
                height,
                round,
                value_id: value,
                polka_signatures: vec![PolkaSignature::new(address, signature); 3],
            }),
            Wire::Round(RoundCertificate {
                height,
                round,
                cert_type: RoundCertificateType::Precommit,
                round_signatures: vec![RoundSignature::new(VoteType::Precommit, NilOrVal::Nil, address, signature)],
            }),
            Wire::Proposed(ProposedValue {
                height,
                round,
                valid_round: Round::Nil,
                proposer: address,
                value,
                validity: Validity::Invalid,
            }),
            Wire::Timeout(Timeout::prevote(round)),
        ]
    }

    #[test]
    fn every_kind_round_trips() {
        for wire in samples() {
            assert_eq!(Wire::decode(&wire.encode()), Ok(wire));
        }
    }

    #[test]
    fn no_bytes_make_decoding_panic() {
        for wire in samples() {
            let bytes = wire.encode();
            for end in 0..bytes.len() {
                assert!(Wire::decode(&bytes[..end]).is_err());
            }
            for at in 0..bytes.len() {
                let mut broken = bytes.clone();
                broken[at] ^= 0xff;
                let _ = Wire::decode(&broken);
            }
        }
    }
}

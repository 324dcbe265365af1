//! Votes that validators signed, as commits and the evidence in blocks tell them, over all families.
//!
//! CometBFT 0.34 to 1.x and the reference node list a commit's `signatures`, each for the committed block or for nil; tm2 lists
//! `precommits` with a block id each, and has no evidence. Tenderdash has one threshold signature a commit, which names nobody, so that
//! of its validators only evidence tells.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::wire::{Encoding, Object, WireError, field, hash, integer, number, object};

/// What a vote is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VoteType {
    /// The first vote of a round.
    Prevote,
    /// The second, of which a commit is made.
    Precommit,
    /// A block that is proposed for a round.
    Proposal,
}

impl VoteType {
    /// The type of this number in CometBFT's messages.
    pub fn numbered(number: u64) -> Option<Self> {
        match number {
            1 => Some(Self::Prevote),
            2 => Some(Self::Precommit),
            32 => Some(Self::Proposal),
            _ => None,
        }
    }
}

impl fmt::Display for VoteType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// Who precommitted what in the round that decided a height, as one node's commit says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CommitVotes {
    /// Height of the block.
    pub height: u64,
    /// Round that decided it.
    pub round: u64,
    /// Validator address, in lower case → block id hash in lower-case hex, empty for nil.
    pub votes: BTreeMap<String, String>,
}

/// Two votes of one validator for different blocks, as the evidence in a block says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DoubleVote {
    /// Height of the block that holds the evidence.
    pub block: u64,
    /// Address of the validator, in lower case.
    pub validator: String,
    /// Height voted on.
    pub height: u64,
    /// Round.
    pub round: u64,
    /// Type of both votes.
    pub kind: VoteType,
    /// The two block id hashes in lower-case hex, empty for nil.
    pub ids: [String; 2],
}

/// The address under which a node signs, out of its status; `None` where it tells none.
pub fn signs_as(status: &Object) -> Option<String> {
    let info = status.get("validator_info").or_else(|| status.get("ValidatorInfo"))?;
    let told = ["address", "Address", "pro_tx_hash"].iter().find_map(|key| info.get(*key)?.as_str())?;
    // Tenderdash writes nothing or zeros for a node that is no validator.
    (!told.is_empty() && !told.bytes().all(|b| b == b'0')).then(|| told.to_ascii_lowercase())
}

/// The votes in an answer to `/commit`; `None` where the commit names nobody.
pub fn commit_votes(answer: &Object, encoding: Encoding) -> Result<Option<CommitVotes>, WireError> {
    let signed = object(field(answer, "signed_header")?, "signed_header")?;
    let commit = object(field(signed, "commit")?, "commit")?;
    let decided = object(field(commit, "block_id")?, "block_id")?;
    let decided = hash(decided, "hash", encoding)?;
    let height = number(object(field(signed, "header")?, "header")?, "height")?;
    if let Some(Value::Array(signatures)) = commit.get("signatures") {
        let vote = |signature: &Value| {
            let id = match signature.get("block_id_flag").and_then(integer) {
                Some(2) => decided.clone(),
                Some(3) => String::new(),
                _ => return None,
            };
            Some((signature.get("validator_address")?.as_str()?.to_ascii_lowercase(), id))
        };
        let votes = signatures.iter().filter_map(vote).collect();
        return Ok(Some(CommitVotes { height, round: number(commit, "round")?, votes }));
    }
    let Some(Value::Array(precommits)) = commit.get("precommits") else { return Ok(None) };
    let votes = precommits.iter().filter(|v| !v.is_null()).map(|v| Vote::read(v, encoding));
    let votes = votes.collect::<Result<Vec<_>, _>>()?;
    let for_block = votes.iter().find(|v| v.id == decided);
    let Some(round) = for_block.map(|vote| vote.round) else { return Ok(None) };
    let votes = votes.into_iter().filter(|v| (v.height, v.round) == (height, round));
    Ok(Some(CommitVotes { height, round, votes: votes.map(|v| (v.validator, v.id)).collect() }))
}

/// Heights of the blocks with evidence in an answer to `/blockchain`, with their ids; what cannot be read has none.
pub fn with_evidence(answer: &Object) -> Vec<u64> {
    /// SHA-256 of nothing.
    const NONE: &str = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
    let Some(Value::Array(metas)) = answer.get("block_metas") else { return Vec::new() };
    let height = |meta: &Value| {
        let header = meta.get("header")?.as_object()?;
        let evidence = hash(header, "evidence_hash", Encoding::Hex).ok()?;
        (!evidence.is_empty() && evidence != NONE).then(|| number(header, "height").ok()).flatten()
    };
    metas.iter().filter_map(height).collect()
}

/// The double votes in the evidence of an answer to `/block`. Evidence of other kinds is left out.
pub fn evidence(answer: &Object, encoding: Encoding) -> Result<Vec<DoubleVote>, WireError> {
    let block = object(field(answer, "block")?, "block")?;
    let height = number(object(field(block, "header")?, "header")?, "height")?;
    // Tenderdash writes the bare list.
    let list = match block.get("evidence") {
        Some(Value::Object(outer)) => outer.get("evidence"),
        other => other,
    };
    let all = list.and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let pairs = all.iter().filter_map(|one| {
        let value = one.get("value").unwrap_or(one);
        Some((value.get("vote_a")?, value.get("vote_b")?))
    });
    let double = |(a, b)| {
        let (a, b) = (Vote::read(a, encoding)?, Vote::read(b, encoding)?);
        if (&a.validator, a.height, a.round, a.kind) != (&b.validator, b.height, b.round, b.kind) {
            return Err(WireError::new("the two votes of the evidence are not for one place"));
        }
        let Vote { validator, height: voted, round, kind, id } = a;
        Ok(DoubleVote { block: height, validator, height: voted, round, kind, ids: [id, b.id] })
    };
    pairs.map(double).collect()
}

/// A vote as written in evidence and by tm2 in commits.
struct Vote {
    validator: String,
    height: u64,
    round: u64,
    kind: VoteType,
    id: String,
}

impl Vote {
    fn read(value: &Value, encoding: Encoding) -> Result<Self, WireError> {
        let vote = object(value, "vote")?;
        let validator = ["validator_address", "validator_pro_tx_hash"].iter().find_map(|key| vote.get(*key)?.as_str());
        let validator = validator.ok_or_else(|| WireError::new("a vote names no validator"))?.to_ascii_lowercase();
        let kind =
            VoteType::numbered(number(vote, "type")?).ok_or_else(|| WireError::new("a vote of no known type"))?;
        let id = match vote.get("block_id") {
            None | Some(Value::Null) => String::new(),
            Some(id) => hash(object(id, "block_id")?, "hash", encoding)?,
        };
        Ok(Self { validator, height: number(vote, "height")?, round: number(vote, "round")?, kind, id })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object_of(value: Value) -> Object {
        value.as_object().expect("an object").clone()
    }

    fn commit_of(commit: Value) -> Result<Option<CommitVotes>, WireError> {
        let answer = object_of(json!({ "signed_header": { "header": { "height": "7" }, "commit": commit } }));
        let encoding = if answer["signed_header"]["commit"].get("precommits").is_some() {
            Encoding::Base64
        } else {
            Encoding::Hex
        };
        commit_votes(&answer, encoding)
    }

    #[test]
    fn signatures_are_for_the_block_for_nil_or_not_there() {
        let votes = commit_of(json!({
            "height": "7", "round": 1, "block_id": { "hash": "AA07" },
            "signatures": [
                { "block_id_flag": 2, "validator_address": "0A", "signature": "x" },
                { "block_id_flag": 3, "validator_address": "0B", "signature": "x" },
                { "block_id_flag": 1, "validator_address": "", "signature": null },
            ],
        }));
        let votes = votes.expect("a commit").expect("with votes");
        assert_eq!((votes.height, votes.round), (7, 1));
        assert_eq!(votes.votes, [("0a", "aa07"), ("0b", "")].map(|(v, id)| (v.to_owned(), id.to_owned())).into());
    }

    #[test]
    fn precommits_of_tm2_have_block_ids_of_their_own_and_may_be_of_another_round() {
        let vote = |validator: &str, round: &str, hash: Value| json!({ "type": 2, "height": "7", "round": round, "validator_address": validator, "block_id": { "hash": hash } });
        let votes = commit_of(json!({
            "block_id": { "hash": "qgc=" },
            "precommits": [vote("g1a", "1", json!("qgc=")), null, vote("g1b", "1", Value::Null), vote("g1c", "0", json!("qgc="))],
        }));
        let votes = votes.expect("a commit").expect("with votes");
        assert_eq!(votes.round, 1);
        assert_eq!(votes.votes, [("g1a", "aa07"), ("g1b", "")].map(|(v, id)| (v.to_owned(), id.to_owned())).into());
    }

    #[test]
    fn a_threshold_signature_names_nobody() {
        let commit = json!({ "height": 7, "round": 0, "block_id": { "hash": "AA" }, "threshold_block_signature": "x" });
        assert_eq!(commit_of(commit), Ok(None));
    }

    #[test]
    fn evidence_in_both_forms() {
        let vote = |key: &str, hash: &str| json!({ "type": 1, "height": "5", "round": 0, "block_id": { "hash": hash }, (key): "0A" });
        let other = json!({ "type": "tendermint/LightClientAttackEvidence", "value": { "CommonHeight": "3" } });
        let block = |key: &str, wrapped: bool| {
            let value = json!({ "vote_a": vote(key, "AA"), "vote_b": vote(key, "") });
            let list = json!([other, { "type": "tendermint/DuplicateVoteEvidence", "value": value }]);
            let evidence = if wrapped { json!({ "evidence": list }) } else { list };
            object_of(json!({ "block": { "header": { "height": "6" }, "evidence": evidence } }))
        };
        for (key, wrapped) in [("validator_address", true), ("validator_pro_tx_hash", false)] {
            let found = evidence(&block(key, wrapped), Encoding::Hex).expect("evidence");
            let wanted = DoubleVote {
                block: 6,
                validator: "0a".to_owned(),
                height: 5,
                round: 0,
                kind: VoteType::Prevote,
                ids: ["aa".to_owned(), String::new()],
            };
            assert_eq!(found, [wanted]);
        }
    }

    #[test]
    fn only_blocks_with_evidence_are_looked_into() {
        let none = "E3B0C44298FC1C149AFBF4C8996FB92427AE41E4649B934CA495991B7852B855";
        let meta = |height: &str, hash: Value| json!({ "header": { "height": height, "evidence_hash": hash } });
        let metas = json!([meta("9", json!("AB")), meta("8", json!(none)), meta("7", json!("")), { "header": { "height": "6" } }]);
        assert_eq!(with_evidence(&object_of(json!({ "block_metas": metas }))), [9]);
    }

    #[test]
    fn the_key_that_a_node_signs_with() {
        let status = |info: Value| object_of(json!({ "validator_info": info }));
        assert_eq!(signs_as(&status(json!({ "address": "AB01" }))).as_deref(), Some("ab01"));
        assert_eq!(signs_as(&status(json!({ "pro_tx_hash": "C27A" }))).as_deref(), Some("c27a"));
        assert_eq!(signs_as(&status(json!({ "pro_tx_hash": "0000" }))), None);
        assert_eq!(signs_as(&status(json!({ "address": "" }))), None);
    }
}

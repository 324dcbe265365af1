//! The validators' quorum: one threshold key on BLS12-381, and a share of it for each validator.
//!
//! The secret is the value at 0 of a polynomial with as many secret coefficients as there have to be votes; a validator's
//! share is the value at its id, so that any that many shares make a signature of the whole. Tenderdash reads a
//! validator's `pro_tx_hash` as its id with the bytes reversed, the most significant first, modulo the order of the group.
//! Keys are 32 bytes, the most significant first, public keys 48 bytes, compressed points of G1: the basic scheme of
//! BLS12-381 and not Dash's older one.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use blst::min_pk::SecretKey;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::chain::ChainError;
use crate::plan::{NodePlan, Plan};
use crate::sys::scalar::Scalar;
use crate::timeline::Role;

/// Tenderdash's number for a quorum of whatever validators the genesis lists: no type of Dash has it, and then the node
/// counts votes by their number.
pub(super) const TYPE: u64 = 100;

/// The quorum of a plan's validators.
pub(super) struct Quorum {
    /// Upper-case hex.
    pub(super) hash: String,
    threshold: SecretKey,
    members: Vec<Member>,
}

/// One validator in it.
pub(super) struct Member {
    /// The node.
    pub(super) name: String,
    /// What the chain knows it by, upper-case hex.
    pub(super) pro_tx_hash: String,
    share: SecretKey,
}

impl Quorum {
    /// Derives all keys from the key seeds of the plan's validators.
    pub(super) fn of(plan: &Plan) -> Result<Self, ChainError> {
        let validators: Vec<&NodePlan> = plan.nodes.iter().filter(|node| node.role == Role::Validator).collect();
        if validators.is_empty() {
            return Err(ChainError::new("derive keys: the plan has no validator"));
        }
        let seeds = validators.iter().map(|node| seed(node)).collect::<Result<Vec<_>, _>>()?;
        let all = seeds.concat();
        let polynomial: Vec<Scalar> = (0..threshold(validators.len())).map(|at| coefficient(&all, at)).collect();
        let members = validators.iter().zip(&seeds).map(|(node, seed)| {
            let pro_tx_hash = digest(&[b"midflush tenderdash pro-tx-hash", seed]);
            let share = secret(&value(&polynomial, &id(&pro_tx_hash)))?;
            Ok(Member { name: node.name.clone(), pro_tx_hash: hex::encode_upper(pro_tx_hash), share })
        });
        Ok(Self {
            hash: hex::encode_upper(digest(&[b"midflush tenderdash quorum", &all])),
            threshold: secret(&value(&polynomial, &Scalar::default()))?,
            members: members.collect::<Result<_, ChainError>>()?,
        })
    }

    /// The validators, in plan order.
    pub(super) fn members(&self) -> &[Member] {
        &self.members
    }

    /// The threshold key's public half.
    pub(super) fn public_json(&self) -> Value {
        public_json(&self.threshold)
    }

    /// `priv_validator_key.json` of a validator; `None` for other nodes.
    pub(super) fn validator_file(&self, node: &str) -> Option<Value> {
        let member = self.members.iter().find(|member| member.name == node)?;
        let keys = json!({
            "priv_key": {
                "type": "tendermint/PrivKeyBLS12381",
                "value": STANDARD.encode(member.share.to_bytes()),
            },
            "pub_key": member.public_json(),
            "threshold_public_key": self.public_json(),
        });
        Some(json!({
            "private_keys": { self.hash.clone(): keys },
            "update_heights": null,
            "first_height_of_quorums": null,
            "pro_tx_hash": member.pro_tx_hash,
        }))
    }
}

impl Member {
    /// Its share's public half.
    pub(super) fn public_json(&self) -> Value {
        public_json(&self.share)
    }
}

/// Votes that decide, of this many validators.
fn threshold(validators: usize) -> usize {
    validators * 2 / 3 + 1
}

fn seed(node: &NodePlan) -> Result<Vec<u8>, ChainError> {
    let seed = hex::decode(&node.key_seed).ok().filter(|seed| seed.len() == 32);
    seed.ok_or_else(|| ChainError::new("derive keys: the seed is not 32 bytes as hex"))
}

fn digest(parts: &[&[u8]]) -> [u8; 32] {
    parts.iter().fold(Sha256::new(), |hash, part| hash.chain_update(part)).finalize().into()
}

/// A coefficient from twice as many bits as it has, so that every value is as likely as any other.
fn coefficient(seeds: &[u8], at: usize) -> Scalar {
    let at = (at as u64).to_be_bytes();
    let half = |number: u8| digest(&[b"midflush tenderdash coefficient", &at, &[number], seeds]);
    Scalar::from_be_bytes(&[half(0), half(1)].concat())
}

fn id(pro_tx_hash: &[u8; 32]) -> Scalar {
    let mut reversed = *pro_tx_hash;
    reversed.reverse();
    Scalar::from_be_bytes(&reversed)
}

/// The polynomial's value, lowest coefficient first.
fn value(polynomial: &[Scalar], at: &Scalar) -> Scalar {
    polynomial.iter().rev().fold(Scalar::default(), |sum, coefficient| sum.times(at).plus(coefficient))
}

fn secret(scalar: &Scalar) -> Result<SecretKey, ChainError> {
    SecretKey::from_bytes(&scalar.to_be_bytes())
        .map_err(|_| ChainError::new("derive keys: a key of the quorum is zero; choose another seed"))
}

fn public_json(key: &SecretKey) -> Value {
    json!({ "type": "tendermint/PubKeyBLS12381", "value": STANDARD.encode(key.sk_to_pk().compress()) })
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;

    use super::*;
    use crate::chain::sample;
    use crate::chain::tenderdash::tests::{recorded, sample_plan};

    /// Keys of a network that made blocks.
    #[derive(Deserialize)]
    struct Vector {
        threshold_public_key: String,
        quorum_hash: String,
        quorum_type: u64,
        validators: Vec<VectorMember>,
    }

    #[derive(Deserialize)]
    struct VectorMember {
        pro_tx_hash: String,
        private_share: String,
        public_share: String,
    }

    fn vector() -> Vector {
        serde_json::from_slice(&recorded("quorum_vector.json")).expect("a vector")
    }

    fn inverse(of: &Scalar) -> Scalar {
        // By the exponent r − 2, bit by bit from the top.
        let exponent = hex::decode("73eda753299d7d483339d80809a1d80553bda402fffe5bfefffffffeffffffff").expect("hex");
        let bits = exponent.iter().flat_map(|byte| (0..8).rev().map(move |bit| byte >> bit & 1 == 1));
        bits.fold(Scalar::from_be_bytes(&[1]), |power, bit| {
            let square = power.times(&power);
            if bit { square.times(of) } else { square }
        })
    }

    fn minus(of: &Scalar) -> Scalar {
        let order_less_one =
            hex::decode("73eda753299d7d483339d80809a1d80553bda402fffe5bfeffffffff00000000").expect("hex");
        of.times(&Scalar::from_be_bytes(&order_less_one))
    }

    /// The value at `at` of the polynomial through these points.
    fn interpolated(points: &[(Scalar, Scalar)], at: &Scalar) -> Scalar {
        points.iter().enumerate().fold(Scalar::default(), |sum, (i, (x, y))| {
            let others = points.iter().enumerate().filter(|(j, _)| *j != i).map(|(_, (other, _))| other);
            let term = others.fold(y.clone(), |term, other| {
                term.times(&at.plus(&minus(other))).times(&inverse(&x.plus(&minus(other))))
            });
            sum.plus(&term)
        })
    }

    fn point(pro_tx_hash: &str, share: &[u8]) -> (Scalar, Scalar) {
        let hash: [u8; 32] = hex::decode(pro_tx_hash).expect("hex").try_into().expect("32 bytes");
        (id(&hash), Scalar::from_be_bytes(share))
    }

    #[test]
    fn ids_and_encodings_are_those_of_a_network_that_made_blocks() {
        let vector = vector();
        let points: Vec<(Scalar, Scalar)> = vector
            .validators
            .iter()
            .map(|member| {
                let share = STANDARD.decode(&member.private_share).expect("base64");
                let key = SecretKey::from_bytes(&share).expect("a key");
                assert_eq!(public_json(&key)["value"], member.public_share.as_str());
                point(&member.pro_tx_hash, &share)
            })
            .collect();
        assert_eq!((points.len(), threshold(points.len()), vector.quorum_type), (4, 3, TYPE));
        assert_eq!(vector.quorum_hash.len(), 64);
        for left_out in 0..4 {
            let three: Vec<_> = (0..4).filter(|at| *at != left_out).map(|at| points[at].clone()).collect();
            let whole = secret(&interpolated(&three, &Scalar::default())).expect("a key");
            assert_eq!(public_json(&whole)["value"], vector.threshold_public_key.as_str());
            // The fourth share is the value at its id of the same polynomial.
            assert_eq!(interpolated(&three, &points[left_out].0), points[left_out].1);
        }
    }

    #[test]
    fn any_three_of_four_shares_make_the_threshold_key_and_two_do_not() {
        let quorum = Quorum::of(&sample_plan()).expect("a quorum");
        let points: Vec<_> = quorum.members().iter().map(|m| point(&m.pro_tx_hash, &m.share.to_bytes())).collect();
        let at_nought = |points: &[(Scalar, Scalar)]| interpolated(points, &Scalar::default()).to_be_bytes();
        assert_eq!(at_nought(&points[..3]), quorum.threshold.to_bytes());
        assert_eq!(at_nought(&points[1..]), quorum.threshold.to_bytes());
        assert_ne!(at_nought(&points[..2]), quorum.threshold.to_bytes());
    }

    #[test]
    fn keys_follow_from_the_seeds_of_all_validators() {
        let plan = sample_plan();
        let file = |plan: &Plan| Quorum::of(plan).expect("a quorum").validator_file("val-1").expect("a file");
        assert_eq!(file(&plan), file(&plan));
        let mut other = plan.clone();
        other.nodes[3].key_seed = "ff".repeat(32);
        assert_ne!(file(&plan)["private_keys"], file(&other)["private_keys"]);
        assert_eq!(file(&plan)["pro_tx_hash"], file(&other)["pro_tx_hash"]);
        other.nodes[3].key_seed = "ff".to_owned();
        assert!(Quorum::of(&other).is_err());
        assert!(Quorum::of(&sample::plan(plan.chain.clone(), 0)).is_err());
    }

    #[test]
    fn one_validator_alone_has_the_key_itself() {
        let plan = sample::plan(sample_plan().chain, 1);
        let quorum = Quorum::of(&plan).expect("a quorum");
        assert_eq!(quorum.members()[0].public_json(), quorum.public_json());
        assert!(quorum.validator_file("late").is_none());
    }

    #[test]
    fn votes_that_decide() {
        assert_eq!([1, 2, 3, 4, 6, 7, 10].map(threshold), [1, 2, 3, 3, 5, 5, 7]);
    }
}

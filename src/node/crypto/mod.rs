//! BLS12-381 keys and signatures (public keys in G1), the aggregation of one block's precommits into one
//! signature, and its verification: one at a time or many in one pairing product.
//!
//! Keys that sign together are proven to be possessed (a proof in the genesis file and in each transaction that
//! adds a validator), so that a plain sum of keys is safe. Everything here runs on the calling thread: callers
//! choose where the 0.6 ms of a signature and the 1.5 ms of a verification are spent.

mod bitmap;

use std::fmt;

use blst::min_pk;
use blst::{BLST_ERROR, Pairing, blst_p1_affine, blst_p2_affine};
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use sha2::{Digest, Sha256};

pub use bitmap::SignerBitmap;

/// Length of a compressed public key.
pub const PUBLIC_KEY_BYTES: usize = 48;
/// Length of a compressed signature.
pub const SIGNATURE_BYTES: usize = 96;
/// Length of an address.
pub const ADDRESS_BYTES: usize = 20;
/// Most signers that a bitmap may name: a limit on what a peer can make a node decode.
pub const SIGNERS_MAX: usize = 1024;

/// Domain of signatures over messages (the proof-of-possession scheme of draft-irtf-cfrg-bls-signature).
const DST_MESSAGE: &[u8] = b"BLS_SIG_BLS12381G2_XMD:SHA-256_SSWU_RO_POP_";
/// Domain of proofs of possession, disjoint from the one above.
const DST_POSSESSION: &[u8] = b"BLS_POP_BLS12381G2_XMD:SHA-256_SSWU_RO_POP_";
/// Bits of the coefficients of a batch: a forged member passes with probability 2^-128.
const COEFFICIENT_BITS: usize = 128;

/// What bytes from outside can be wrong with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CryptoError {
    /// Not the encoding of a public key in the right group.
    #[error("read a public key: not a point of the group")]
    PublicKey,
    /// Not the encoding of a signature in the right group.
    #[error("read a signature: not a point of the group")]
    Signature,
    /// Fewer than 32 bytes of key material.
    #[error("make a key: less than 32 bytes of key material")]
    KeyMaterial,
    /// Nothing to aggregate.
    #[error("aggregate signatures: none given")]
    Empty,
}

/// A secret key. It has no `Debug` output of its bytes.
#[derive(Clone)]
pub struct SecretKey(min_pk::SecretKey);

impl SecretKey {
    /// The key derived from 32 bytes of key material (the standard `KeyGen`).
    pub fn from_ikm(ikm: &[u8]) -> Result<Self, CryptoError> {
        min_pk::SecretKey::key_gen(ikm, &[]).map(Self).map_err(|_| CryptoError::KeyMaterial)
    }

    /// The public key.
    pub fn public_key(&self) -> PublicKey {
        let point = self.0.sk_to_pk();
        PublicKey { bytes: point.to_bytes(), point }
    }

    /// Signs a message.
    pub fn sign(&self, message: &[u8]) -> Signature {
        Signature(self.0.sign(message, DST_MESSAGE, &[]).to_bytes())
    }

    /// Proves possession of this key: a signature of its public key in a domain of its own.
    pub fn prove_possession(&self) -> Signature {
        Signature(self.0.sign(&self.public_key().bytes, DST_POSSESSION, &[]).to_bytes())
    }
}

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey(..)")
    }
}

/// A public key, known to be a point of the right group other than infinity.
#[derive(Clone, Copy)]
pub struct PublicKey {
    bytes: [u8; PUBLIC_KEY_BYTES],
    point: min_pk::PublicKey,
}

impl PublicKey {
    /// Reads and checks a compressed key.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, CryptoError> {
        let bytes: [u8; PUBLIC_KEY_BYTES] = bytes.try_into().map_err(|_| CryptoError::PublicKey)?;
        let point = min_pk::PublicKey::key_validate(&bytes).map_err(|_| CryptoError::PublicKey)?;
        Ok(Self { bytes, point })
    }

    /// The compressed key.
    pub fn to_bytes(&self) -> [u8; PUBLIC_KEY_BYTES] {
        self.bytes
    }

    /// The address: the first 20 bytes of the SHA-256 of the compressed key.
    pub fn address(&self) -> Address {
        let digest: [u8; 32] = Sha256::digest(self.bytes).into();
        let mut address = [0; ADDRESS_BYTES];
        address.copy_from_slice(&digest[..ADDRESS_BYTES]);
        Address(address)
    }

    /// Whether `signature` is this key's signature of `message`.
    pub fn verify(&self, message: &[u8], signature: &Signature) -> bool {
        pairing_holds(&self.point, message, signature, DST_MESSAGE)
    }

    /// Whether `proof` shows that somebody holds the secret key.
    pub fn verify_possession(&self, proof: &Signature) -> bool {
        pairing_holds(&self.point, &self.bytes, proof, DST_POSSESSION)
    }
}

impl PartialEq for PublicKey {
    fn eq(&self, other: &Self) -> bool {
        self.bytes == other.bytes
    }
}
impl Eq for PublicKey {}
impl PartialOrd for PublicKey {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for PublicKey {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.bytes.cmp(&other.bytes)
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({})", hex::encode(self.bytes))
    }
}

/// A compressed signature. That it is a point of the group is checked where it is verified.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Signature(pub [u8; SIGNATURE_BYTES]);

impl Signature {
    /// Takes the bytes as they are; only the length is checked.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, CryptoError> {
        bytes.try_into().map(Self).map_err(|_| CryptoError::Signature)
    }

    fn point(&self) -> Option<min_pk::Signature> {
        min_pk::Signature::uncompress(&self.0).ok()
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signature({}..)", hex::encode(&self.0[..8]))
    }
}

/// An address of a validator.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address(pub [u8; ADDRESS_BYTES]);

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&hex::encode_upper(self.0))
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

macro_rules! hex_serde {
    ($type:ident, $self:ident => $bytes:expr, $slice:ident => $read:expr) => {
        impl Serialize for $type {
            fn serialize<S: Serializer>(&$self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.serialize_str(&hex::encode($bytes))
            }
        }
        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = String::deserialize(deserializer)?;
                let $slice = hex::decode(text).map_err(serde::de::Error::custom)?;
                $read.map_err(serde::de::Error::custom)
            }
        }
    };
}
hex_serde!(PublicKey, self => self.bytes, bytes => PublicKey::from_bytes(&bytes));
hex_serde!(Signature, self => self.0, bytes => Signature::from_bytes(&bytes));
hex_serde!(Address, self => self.0, bytes => bytes.try_into().map(Address).map_err(|_| "an address has 20 bytes"));

/// Sums signatures, each checked to be in the group. The members' validity is the caller's affair.
pub fn aggregate(signatures: &[Signature]) -> Result<Signature, CryptoError> {
    let points: Vec<_> =
        signatures.iter().map(Signature::point).collect::<Option<_>>().ok_or(CryptoError::Signature)?;
    if points.is_empty() {
        return Err(CryptoError::Empty);
    }
    let references: Vec<_> = points.iter().collect();
    let sum = min_pk::AggregateSignature::aggregate(&references, true).map_err(|_| CryptoError::Signature)?;
    Ok(Signature(sum.to_signature().to_bytes()))
}

/// The key whose signature is the sum of the signatures of all these keys: one signature where a program holds all of
/// them, as when a chain is built off-line. `None` for no key.
pub fn sum_of_secrets(keys: &[&SecretKey]) -> Option<SecretKey> {
    let mut sum = [0u64; 4];
    for key in keys {
        sum = add_scalars(sum, limbs(&key.0.to_bytes()));
    }
    let mut bytes = [0; 32];
    for (chunk, limb) in bytes.rchunks_mut(8).zip(sum) {
        chunk.copy_from_slice(&limb.to_be_bytes());
    }
    // Refuses zero, which is the sum of no key.
    min_pk::SecretKey::from_bytes(&bytes).ok().map(SecretKey)
}

/// Order of the group, least significant limb first.
const ORDER: [u64; 4] = [0xffff_ffff_0000_0001, 0x53bd_a402_fffe_5bfe, 0x3339_d808_09a1_d805, 0x73ed_a753_299d_7d48];

fn limbs(bytes: &[u8; 32]) -> [u64; 4] {
    let mut limbs = [0; 4];
    for (limb, chunk) in limbs.iter_mut().zip(bytes.rchunks(8)) {
        *limb = chunk.iter().fold(0, |value, byte| value << 8 | u64::from(*byte));
    }
    limbs
}

/// Adds two scalars below the group's order, modulo that order. Not in constant time.
fn add_scalars(a: [u64; 4], b: [u64; 4]) -> [u64; 4] {
    // The order has 255 bits, so that the sum of two fits into 256.
    let (mut sum, mut carry) = ([0; 4], 0u128);
    for i in 0..4 {
        carry += u128::from(a[i]) + u128::from(b[i]);
        sum[i] = carry as u64;
        carry >>= 64;
    }
    let (mut less, mut borrow) = ([0; 4], false);
    for i in 0..4 {
        let (value, first) = sum[i].overflowing_sub(ORDER[i]);
        let (value, second) = value.overflowing_sub(borrow.into());
        (less[i], borrow) = (value, first || second);
    }
    if borrow { sum } else { less }
}

/// Whether `signature` is the sum of the signatures of all `keys` over the same `message`.
pub fn verify_aggregate(keys: &[&PublicKey], message: &[u8], signature: &Signature) -> bool {
    sum_of_keys(keys).is_some_and(|key| pairing_holds(&key, message, signature, DST_MESSAGE))
}

/// One aggregate signature of a batch.
#[derive(Clone, Copy, Debug)]
pub struct BatchMember<'a> {
    /// The keys of the signers.
    pub keys: &'a [&'a PublicKey],
    /// What all of them signed.
    pub message: &'a [u8],
    /// The sum of their signatures.
    pub signature: &'a Signature,
}

/// Whether every member of the batch is valid, in one product of pairings with one final exponentiation.
///
/// Each member is weighted with a coefficient hashed from the whole batch, so that wrong members cannot cancel out.
/// An empty batch is valid.
pub fn verify_batch(batch: &[BatchMember<'_>]) -> bool {
    if batch.is_empty() {
        return true;
    }
    let mut transcript = Sha256::new();
    for member in batch {
        transcript.update((member.keys.len() as u64).to_le_bytes());
        for key in member.keys {
            transcript.update(key.bytes);
        }
        transcript.update((member.message.len() as u64).to_le_bytes());
        transcript.update(member.message);
        transcript.update(member.signature.0);
    }
    let seed: [u8; 32] = transcript.finalize().into();
    let mut pairing = Pairing::new(true, DST_MESSAGE);
    for (index, member) in batch.iter().enumerate() {
        let (Some(key), Some(point)) = (sum_of_keys(member.keys), member.signature.point()) else { return false };
        let coefficient = coefficient(&seed, index);
        let key: &blst_p1_affine = (&key).into();
        let point: &blst_p2_affine = (&point).into();
        let added =
            pairing.mul_n_aggregate(key, false, point, true, &coefficient, COEFFICIENT_BITS, member.message, &[]);
        if added != BLST_ERROR::BLST_SUCCESS {
            return false;
        }
    }
    pairing.commit();
    pairing.finalverify(None)
}

/// Whether each signature of `pairs` is its key's over the same `message`, for the price of one verification and a
/// little for each. Weighted as in [`verify_batch`], so that wrong ones cannot cancel out. Nothing to check is valid.
pub fn verify_same_message(pairs: &[(&PublicKey, &Signature)], message: &[u8]) -> bool {
    if let [(key, signature)] = pairs {
        return key.verify(message, signature);
    }
    let mut transcript = Sha256::new();
    let (mut keys, mut points) = (Vec::with_capacity(pairs.len()), Vec::with_capacity(pairs.len()));
    for (key, signature) in pairs {
        transcript.update(key.bytes);
        transcript.update(signature.0);
        let Some(point) = signature.point().filter(|point| point.validate(false).is_ok()) else { return false };
        keys.push(key.point);
        points.push(point);
    }
    let seed: [u8; 32] = transcript.chain_update(message).finalize().into();
    let coefficients: Vec<u8> = (0..pairs.len()).flat_map(|index| coefficient(&seed, index)).collect();
    let key = min_pk::AggregatePublicKey::aggregate_with_randomness(&keys, &coefficients, COEFFICIENT_BITS, false);
    let sum = min_pk::AggregateSignature::aggregate_with_randomness(&points, &coefficients, COEFFICIENT_BITS, false);
    match (key, sum) {
        (Ok(key), Ok(sum)) => points_hold(&key.to_public_key(), message, &sum.to_signature(), DST_MESSAGE),
        _ => pairs.is_empty(),
    }
}

/// The weight of a batch's member; odd, so never zero.
fn coefficient(seed: &[u8; 32], index: usize) -> [u8; COEFFICIENT_BITS / 8] {
    let digest: [u8; 32] =
        Sha256::new().chain_update(seed).chain_update((index as u64).to_le_bytes()).finalize().into();
    let mut coefficient = [0; COEFFICIENT_BITS / 8];
    coefficient.copy_from_slice(&digest[..COEFFICIENT_BITS / 8]);
    coefficient[0] |= 1;
    coefficient
}

/// The sum of keys that were checked when they were read; nothing for no key.
fn sum_of_keys(keys: &[&PublicKey]) -> Option<min_pk::PublicKey> {
    let points: Vec<_> = keys.iter().map(|k| &k.point).collect();
    min_pk::AggregatePublicKey::aggregate(&points, false).ok().map(|sum| sum.to_public_key())
}

fn pairing_holds(key: &min_pk::PublicKey, message: &[u8], signature: &Signature, domain: &[u8]) -> bool {
    signature.point().is_some_and(|point| points_hold(key, message, &point, domain))
}

fn points_hold(key: &min_pk::PublicKey, message: &[u8], point: &min_pk::Signature, domain: &[u8]) -> bool {
    let key: &blst_p1_affine = key.into();
    let point: &blst_p2_affine = point.into();
    let mut pairing = Pairing::new(true, domain);
    if pairing.aggregate(key, false, point, true, message, &[]) != BLST_ERROR::BLST_SUCCESS {
        return false;
    }
    pairing.commit();
    pairing.finalverify(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys(n: u8) -> Vec<SecretKey> {
        (0..n).map(|i| SecretKey::from_ikm(&[i + 1; 32]).unwrap()).collect()
    }

    #[test]
    fn signatures_bind_key_message_and_domain() {
        let keys = keys(2);
        let signature = keys[0].sign(b"block 7");
        assert!(keys[0].public_key().verify(b"block 7", &signature));
        assert!(!keys[0].public_key().verify(b"block 8", &signature));
        assert!(!keys[1].public_key().verify(b"block 7", &signature));
        let proof = keys[0].prove_possession();
        assert!(keys[0].public_key().verify_possession(&proof));
        assert!(!keys[1].public_key().verify_possession(&proof));
        assert!(!keys[0].public_key().verify(&keys[0].public_key().to_bytes(), &proof), "domains are disjoint");
        assert!(!keys[0].public_key().verify(b"block 7", &Signature([0xff; 96])));
        assert!(SecretKey::from_ikm(&[1; 31]).is_err());
    }

    #[test]
    fn one_aggregate_stands_for_all_signers_and_no_fewer() {
        let keys = keys(4);
        let publics: Vec<_> = keys.iter().map(SecretKey::public_key).collect();
        let sum = aggregate(&keys[..3].iter().map(|k| k.sign(b"m")).collect::<Vec<_>>()).unwrap();
        let signers: Vec<_> = publics[..3].iter().collect();
        assert!(verify_aggregate(&signers, b"m", &sum));
        assert!(!verify_aggregate(&signers[..2], b"m", &sum));
        assert!(!verify_aggregate(&publics.iter().collect::<Vec<_>>(), b"m", &sum));
        assert!(!verify_aggregate(&[], b"m", &sum));
        assert_eq!(aggregate(&[]), Err(CryptoError::Empty));
    }

    #[test]
    fn the_sum_of_secrets_signs_for_all() {
        let keys = keys(9);
        let references: Vec<_> = keys.iter().collect();
        for n in 1..=9 {
            let each: Vec<_> = keys[..n].iter().map(|k| k.sign(b"m")).collect();
            assert_eq!(sum_of_secrets(&references[..n]).unwrap().sign(b"m"), aggregate(&each).unwrap());
        }
        assert!(sum_of_secrets(&[]).is_none());
    }

    #[test]
    fn a_batch_holds_only_if_each_member_does() {
        let keys = keys(4);
        let publics: Vec<_> = keys.iter().map(SecretKey::public_key).collect();
        let signers: Vec<_> = publics.iter().collect();
        let messages: Vec<Vec<u8>> = (0..5u8).map(|i| vec![i; 40]).collect();
        let sums: Vec<_> =
            messages.iter().map(|m| aggregate(&keys.iter().map(|k| k.sign(m)).collect::<Vec<_>>()).unwrap()).collect();
        let batch = |sums: &[Signature]| {
            let members: Vec<_> = messages
                .iter()
                .zip(sums)
                .map(|(message, signature)| BatchMember { keys: &signers, message, signature })
                .collect();
            verify_batch(&members)
        };
        assert!(batch(&sums));
        let mut swapped = sums.clone();
        swapped.swap(1, 3);
        assert!(!batch(&swapped), "the sum of all is unchanged, each member is not");
        let mut forged = sums;
        forged[4] = keys[0].sign(&messages[4]);
        assert!(!batch(&forged));
        assert!(verify_batch(&[]));
    }

    #[test]
    fn votes_of_many_are_checked_at_once_and_a_forged_one_fails() {
        let keys = keys(5);
        let publics: Vec<_> = keys.iter().map(SecretKey::public_key).collect();
        let mut signatures: Vec<_> = keys.iter().map(|k| k.sign(b"m")).collect();
        let check = |signatures: &[Signature], message: &[u8]| {
            verify_same_message(&publics.iter().zip(signatures).collect::<Vec<_>>(), message)
        };
        assert!(check(&signatures, b"m"));
        assert!(!check(&signatures, b"n"));
        assert!(check(&signatures[..1], b"m"));
        assert!(verify_same_message(&[], b"m"));
        signatures.swap(0, 1);
        assert!(!check(&signatures, b"m"), "the plain sum is unchanged, each is another's");
    }

    #[test]
    fn keys_round_trip_and_have_addresses() {
        let key = keys(1)[0].public_key();
        let text = serde_json::to_string(&key).unwrap();
        assert_eq!(serde_json::from_str::<PublicKey>(&text).unwrap(), key);
        assert_eq!(key.address().to_string().len(), 40);
        assert!(PublicKey::from_bytes(&[0; 48]).is_err());
        assert!(PublicKey::from_bytes(&[1; 47]).is_err());
    }
}

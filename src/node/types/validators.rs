//! Validators and the set of them that decides a height.

use super::{Hash, Height, merkle_root, sha256};
use crate::node::codec::{Codec, CodecError, Reader, put_length};
use crate::node::crypto::{Address, PUBLIC_KEY_BYTES, PublicKey, SIGNERS_MAX};

/// Most validators of one set: as many as a commit's bitmap may name.
pub const VALIDATORS_MAX: usize = SIGNERS_MAX;

/// One validator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Validator {
    /// First 20 bytes of the key's SHA-256.
    pub address: Address,
    /// Its key; possession was proven when it was admitted.
    pub pub_key: PublicKey,
    /// Voting power, above 0.
    pub power: u64,
}

impl Validator {
    /// A validator with the address of its key.
    pub fn new(pub_key: PublicKey, power: u64) -> Self {
        Self { address: pub_key.address(), pub_key, power }
    }
}

/// A change of one validator's power, made by a transaction; power 0 removes it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValidatorUpdate {
    /// Whose.
    pub pub_key: PublicKey,
    /// The new power.
    pub power: u64,
}

impl Codec for ValidatorUpdate {
    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.pub_key.to_bytes());
        out.extend_from_slice(&self.power.to_le_bytes());
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, CodecError> {
        let bytes: [u8; PUBLIC_KEY_BYTES] = reader.array("public key")?;
        let pub_key = PublicKey::from_bytes(&bytes).map_err(|_| CodecError::Invalid { what: "public key" })?;
        Ok(Self { pub_key, power: reader.u64("power")? })
    }
}

/// The validators of one height, ordered by power (largest first), then address. Bit i of a commit's bitmap is the
/// i-th of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ValidatorSet {
    validators: Vec<Validator>,
}

impl ValidatorSet {
    /// Orders the validators. Callers have made sure that there are at most [`VALIDATORS_MAX`], none twice, none with power 0.
    pub fn new(mut validators: Vec<Validator>) -> Self {
        validators.sort_by(|a, b| b.power.cmp(&a.power).then(a.address.cmp(&b.address)));
        Self { validators }
    }

    /// The validators in order.
    pub fn validators(&self) -> &[Validator] {
        &self.validators
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.validators.len()
    }

    /// Whether there is none, which stops the chain.
    pub fn is_empty(&self) -> bool {
        self.validators.is_empty()
    }

    /// The sum of all powers.
    pub fn total_power(&self) -> u64 {
        self.validators.iter().map(|v| v.power).fold(0, u64::saturating_add)
    }

    /// Whether `power` is more than two thirds of the whole.
    pub fn is_quorum(&self, power: u64) -> bool {
        u128::from(power) * 3 > u128::from(self.total_power()) * 2
    }

    /// Position and validator of an address.
    pub fn find(&self, address: &Address) -> Option<(usize, &Validator)> {
        self.validators.iter().enumerate().find(|(_, v)| v.address == *address)
    }

    /// Who proposes in this round: each in turn. `None` for the empty set.
    pub fn proposer(&self, height: Height, round: u32) -> Option<&Validator> {
        let n = self.validators.len() as u64;
        let turn = height.wrapping_add(round.into()).checked_rem(n)?;
        self.validators.get(turn as usize)
    }

    /// The set after the updates; a removal of somebody unknown changes nothing.
    pub fn updated(&self, updates: &[ValidatorUpdate]) -> Self {
        let mut validators = self.validators.clone();
        for update in updates {
            validators.retain(|v| v.pub_key != update.pub_key);
            if update.power > 0 {
                validators.push(Validator::new(update.pub_key, update.power));
            }
        }
        Self::new(validators)
    }

    /// The hash in headers.
    pub fn hash(&self) -> Hash {
        let leaves: Vec<Hash> = self
            .validators
            .iter()
            .map(|v| {
                let mut bytes = v.pub_key.to_bytes().to_vec();
                bytes.extend_from_slice(&v.power.to_le_bytes());
                sha256(&bytes)
            })
            .collect();
        merkle_root(&leaves)
    }
}

impl Codec for ValidatorSet {
    fn write(&self, out: &mut Vec<u8>) {
        put_length(out, self.validators.len());
        for v in &self.validators {
            out.extend_from_slice(&v.pub_key.to_bytes());
            out.extend_from_slice(&v.power.to_le_bytes());
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, CodecError> {
        let length = reader.length(VALIDATORS_MAX, "validators")?;
        let mut validators = Vec::with_capacity(length);
        for _ in 0..length {
            let update = ValidatorUpdate::read(reader)?;
            validators.push(Validator::new(update.pub_key, update.power));
        }
        Ok(Self::new(validators))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::crypto::SecretKey;

    fn key(i: u8) -> PublicKey {
        SecretKey::from_ikm(&[i; 32]).unwrap().public_key()
    }

    #[test]
    fn updates_add_change_and_remove() {
        let set = ValidatorSet::new((1..=3).map(|i| Validator::new(key(i), 10)).collect());
        let changed = set.updated(&[
            ValidatorUpdate { pub_key: key(4), power: 30 },
            ValidatorUpdate { pub_key: key(1), power: 0 },
            ValidatorUpdate { pub_key: key(2), power: 11 },
            ValidatorUpdate { pub_key: key(9), power: 0 },
        ]);
        assert_eq!(changed.validators().iter().map(|v| v.power).collect::<Vec<_>>(), [30, 11, 10]);
        assert_ne!(changed.hash(), set.hash());
        assert_eq!(ValidatorSet::from_bytes(&changed.to_bytes()).unwrap(), changed);
    }

    #[test]
    fn a_quorum_is_more_than_two_thirds() {
        let set = ValidatorSet::new((1..=3).map(|i| Validator::new(key(i), 10)).collect());
        assert!(!set.is_quorum(20));
        assert!(set.is_quorum(21));
        assert!(!ValidatorSet::default().is_quorum(0));
    }

    #[test]
    fn proposers_take_turns() {
        let set = ValidatorSet::new((1..=3).map(|i| Validator::new(key(i), 10)).collect());
        let address = |h, r| set.proposer(h, r).unwrap().address;
        assert_eq!(address(1, 1), address(2, 0));
        assert_ne!(address(1, 0), address(2, 0));
        assert!(ValidatorSet::default().proposer(1, 0).is_none());
    }
}

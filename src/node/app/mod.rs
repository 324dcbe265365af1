//! The application: a store of keys and values, the validators' powers and the parameters, all changed by transactions
//! and all covered by the application hash.
//!
//! Executing a block puts its changes into the overlay over the database; nothing is written before [`App::commit`].
//! Every transaction changes the hash, since a counter of them is part of the state.

pub mod checkpoint;
mod tree;
mod tx;

use std::collections::BTreeMap;
use std::hash::BuildHasher;

pub use tx::{TX_BYTES_MAX, Tx, TxError};

use super::crypto::PublicKey;
use super::defect::Defect;
use super::store::{Reader, Store, StoreError, StoreName};
use super::types::{BlockResults, ConsensusParams, Genesis, Hash, Height, TxResult, VALIDATORS_MAX, ValidatorUpdate};
use tree::StateTree;

/// The hash after the last committed block; beside the height the only row that the hash does not cover.
const HASH: &[u8] = b"hash";
/// Rows of users.
const USER: &str = "k/";
/// A validator's power, by its key in hex.
const VALIDATOR: &str = "v/";
/// Parameters.
const BLOCK_MAX_BYTES: &str = "p/block_max_bytes";
const HALT_HEIGHT: &str = "p/halt_height";
/// How many transactions were ever executed.
const TX_COUNT: &str = "c/txs";

/// Whether a transaction is well-formed; needs no state.
pub fn check_tx(bytes: &[u8]) -> TxResult {
    result_of(Tx::parse(bytes).map(drop))
}

fn result_of(outcome: Result<(), TxError>) -> TxResult {
    match outcome {
        Ok(()) => TxResult { code: 0, log: String::new() },
        Err(error) => TxResult { code: error.code(), log: error.to_string() },
    }
}

/// Whether a transaction would take effect on the version on disk, as a block of `height`.
pub fn simulate(reader: &Reader, height: Height, bytes: &[u8]) -> Result<TxResult, StoreError> {
    let rows = |key: &str| reader.get(key.as_bytes());
    let count = || Ok(reader.scan(VALIDATOR.as_bytes())?.len());
    Ok(match Tx::parse(bytes) {
        Err(error) => result_of(Err(error)),
        Ok(tx) => result_of(possible(&tx, height, &rows, &count)?),
    })
}

/// The key of a user's row in the database.
pub fn user_row(key: &[u8]) -> Vec<u8> {
    [USER.as_bytes(), key].concat()
}

/// Whether a database row is part of the hashed state.
fn is_state(key: &[u8]) -> bool {
    key.get(1) == Some(&b'/')
}

type Rows<'a> = &'a dyn Fn(&str) -> Result<Option<Vec<u8>>, StoreError>;
type Count<'a> = &'a dyn Fn() -> Result<usize, StoreError>;

/// Whether the state allows a transaction.
fn possible(tx: &Tx, height: Height, row: Rows<'_>, validators: Count<'_>) -> Result<Result<(), TxError>, StoreError> {
    let refuse = |text: &str| Ok(Err(TxError::State(text.to_owned())));
    match tx {
        Tx::Set { .. } | Tx::BlockMaxBytes(_) | Tx::Halt(None) => Ok(Ok(())),
        Tx::Halt(Some(halt)) if *halt < height => refuse("the height to halt at has passed"),
        Tx::Halt(Some(_)) => Ok(Ok(())),
        Tx::Validator { pub_key, power, proof } => {
            let known = row(&validator_row(pub_key))?.is_some();
            match (known, *power, proof) {
                (false, 0, _) => refuse("no such validator"),
                (true, 0, _) if validators()? == 1 => refuse("the last validator stays"),
                (true, _, _) => Ok(Ok(())),
                (false, _, None) => refuse("a new validator needs a proof of possession"),
                (false, _, Some(_)) if validators()? >= VALIDATORS_MAX => refuse("the validator set is full"),
                (false, _, Some(proof)) if !pub_key.verify_possession(proof) => refuse("wrong proof of possession"),
                (false, _, Some(_)) => Ok(Ok(())),
            }
        }
    }
}

fn validator_row(pub_key: &PublicKey) -> String {
    format!("{VALIDATOR}{}", hex::encode(pub_key.to_bytes()))
}

/// The application over its database.
pub struct App {
    store: Store,
    tree: StateTree,
    height: Height,
    hash: Hash,
    defect: Option<Defect>,
}

impl App {
    /// Takes over the database, builds the tree from all rows and checks it against the stored hash. An empty database is
    /// given the genesis state, in the overlay: it is written with the first block.
    pub fn open(store: Store, genesis: &Genesis, defect: Option<Defect>) -> Result<Self, StoreError> {
        let height = store.reader().height()?;
        let mut app = Self { store, tree: StateTree::new(), height, hash: Hash::default(), defect };
        if height == 0 {
            app.init(genesis)?;
        } else {
            app.load()?;
        }
        Ok(app)
    }

    fn init(&mut self, genesis: &Genesis) -> Result<(), StoreError> {
        for (key, value) in &genesis.app_state {
            self.set(&format!("{USER}{key}"), Some(value.clone()))?;
        }
        for validator in &genesis.validators {
            self.set(&validator_row(&validator.pub_key), Some(validator.power.to_string()))?;
        }
        self.set_params(&genesis.consensus_params)?;
        self.set(TX_COUNT, Some("0".into()))?;
        self.hash = self.tree.root();
        Ok(())
    }

    fn load(&mut self) -> Result<(), StoreError> {
        let tree = &mut self.tree;
        let mut skipped = self.defect != Some(Defect::IndexRebuiltWrong);
        self.store.reader().for_each(&mut |key, value| {
            if !is_state(key) {
            } else if skipped || !key.starts_with(VALIDATOR.as_bytes()) {
                tree.change(key, None, Some(value));
            } else {
                // Planted: a row is left out, of those that a block's transactions do not put right again.
                skipped = true;
            }
        })?;
        let root = self.tree.root();
        let stored = self.store.reader().get(HASH)?.and_then(|bytes| bytes.try_into().ok()).map(Hash);
        let stored = stored.ok_or_else(|| StoreError::corrupt(StoreName::App, "no hash beside the height"))?;
        let deviates = matches!(self.defect, Some(Defect::IndexRebuiltWrong | Defect::AppHashOrder));
        if root != stored && !deviates {
            let text = format!("the rows at height {} hash to {root}, not to {stored}", self.height);
            return Err(StoreError::corrupt(StoreName::App, text));
        }
        self.hash = if self.defect == Some(Defect::AppHashOrder) { stored } else { root };
        Ok(())
    }

    /// The height of the last executed block, committed or held.
    pub fn height(&self) -> Height {
        self.height
    }

    /// The hash after it.
    pub fn hash(&self) -> Hash {
        self.hash
    }

    /// Its database.
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Executes a block; its changes are held until [`App::commit`].
    pub fn execute(&mut self, height: Height, txs: &[Vec<u8>]) -> Result<BlockResults, StoreError> {
        let mut results = BlockResults::default();
        let mut updates = BTreeMap::new();
        let mut params_changed = false;
        let mut set_keys = Vec::new();
        for bytes in txs {
            let outcome = match Tx::parse(bytes) {
                Err(error) => Err(error),
                Ok(tx) => {
                    let rows = |key: &str| self.store.get(key.as_bytes());
                    let count = || Ok(self.store.scan(VALIDATOR.as_bytes())?.len());
                    let outcome = possible(&tx, height, &rows, &count)?;
                    if outcome.is_ok() {
                        params_changed |= matches!(tx, Tx::BlockMaxBytes(_) | Tx::Halt(_));
                        self.apply(tx, &mut updates, &mut set_keys)?;
                    }
                    outcome
                }
            };
            results.txs.push(result_of(outcome));
        }
        if !txs.is_empty() {
            let count = self.number(TX_COUNT)?.unwrap_or(0) + txs.len() as u64;
            self.set(TX_COUNT, Some(count.to_string()))?;
        }
        results.validator_updates =
            updates.into_iter().map(|(pub_key, power)| ValidatorUpdate { pub_key, power }).collect();
        results.params = if params_changed { Some(self.params()?) } else { None };
        self.hash = self.tree.root();
        if self.defect == Some(Defect::AppHashOrder) {
            self.hash = in_map_order(self.hash, &set_keys);
        }
        results.app_hash = self.hash;
        self.height = height;
        self.store.put_height(height);
        self.store.put(HASH, self.hash.0);
        Ok(results)
    }

    fn apply(
        &mut self,
        tx: Tx,
        updates: &mut BTreeMap<PublicKey, u64>,
        set_keys: &mut Vec<String>,
    ) -> Result<(), StoreError> {
        match tx {
            Tx::Set { key, value } => {
                self.set(&format!("{USER}{key}"), Some(value))?;
                set_keys.push(key);
            }
            Tx::Validator { pub_key, power, .. } => {
                self.set(&validator_row(&pub_key), (power > 0).then(|| power.to_string()))?;
                updates.insert(*pub_key, power);
            }
            Tx::BlockMaxBytes(bytes) => self.set(BLOCK_MAX_BYTES, Some(bytes.to_string()))?,
            Tx::Halt(height) => self.set(HALT_HEIGHT, height.map(|height| height.to_string()))?,
        }
        Ok(())
    }

    /// Changes one row of the state, in the overlay and in the tree.
    fn set(&mut self, key: &str, value: Option<String>) -> Result<(), StoreError> {
        let old = self.store.get(key.as_bytes())?;
        self.tree.change(key.as_bytes(), old.as_deref(), value.as_deref().map(str::as_bytes));
        match value {
            Some(value) => self.store.put(key, value),
            None => self.store.delete(key),
        }
        Ok(())
    }

    fn number(&self, key: &str) -> Result<Option<u64>, StoreError> {
        self.store.get(key.as_bytes())?.map(|value| parse_number(key, &value)).transpose()
    }

    fn set_params(&mut self, params: &ConsensusParams) -> Result<(), StoreError> {
        self.set(BLOCK_MAX_BYTES, Some(params.block_max_bytes.to_string()))?;
        self.set(HALT_HEIGHT, params.halt_height.map(|height| height.to_string()))
    }

    fn params(&self) -> Result<ConsensusParams, StoreError> {
        let default = ConsensusParams::default();
        Ok(ConsensusParams {
            block_max_bytes: self.number(BLOCK_MAX_BYTES)?.unwrap_or(default.block_max_bytes),
            halt_height: self.number(HALT_HEIGHT)?,
        })
    }

    /// Writes all that is held as one synced batch.
    pub fn commit(&mut self) -> Result<(), StoreError> {
        self.store.commit()
    }
}

fn parse_number(key: &str, value: &[u8]) -> Result<u64, StoreError> {
    let number = std::str::from_utf8(value).ok().and_then(|text| text.parse().ok());
    number.ok_or_else(|| StoreError::corrupt(StoreName::App, format!("{key} is not a number")))
}

/// How many transactions were executed up to the version on disk.
pub fn tx_count(reader: &Reader) -> Result<u64, StoreError> {
    Ok(reader.get(TX_COUNT.as_bytes())?.map(|value| parse_number(TX_COUNT, &value)).transpose()?.unwrap_or(0))
}

/// The hash in the version on disk.
pub fn stored_hash(reader: &Reader) -> Result<Hash, StoreError> {
    Ok(reader.get(HASH)?.and_then(|bytes| bytes.try_into().ok()).map(Hash).unwrap_or_default())
}

/// Planted: what a program does that walks a map with an order of its own in every process.
fn in_map_order(root: Hash, keys: &[String]) -> Hash {
    static ORDER: std::sync::LazyLock<std::hash::RandomState> = std::sync::LazyLock::new(std::hash::RandomState::new);
    match keys {
        [first, .., last] if ORDER.hash_one(first) > ORDER.hash_one(last) => super::types::sha256(&root.0),
        _ => root,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::node::crypto::SecretKey;
    use crate::node::store::FileDisk;
    use crate::node::types::GenesisValidator;

    fn key(i: u8) -> SecretKey {
        SecretKey::from_ikm(&[i; 32]).unwrap()
    }

    fn app(dir: &tempfile::TempDir) -> App {
        let genesis = Genesis {
            chain_id: "test".into(),
            genesis_time: jiff::Timestamp::UNIX_EPOCH,
            initial_height: 1,
            consensus_params: ConsensusParams::default(),
            validators: vec![GenesisValidator {
                name: "val-1".into(),
                pub_key: key(1).public_key(),
                proof_of_possession: key(1).prove_possession(),
                power: 10,
            }],
            app_state: BTreeMap::new(),
        };
        App::open(Store::open(&FileDisk::new(dir.path(), true), StoreName::App).unwrap(), &genesis, None).unwrap()
    }

    fn run(app: &mut App, txs: &[&str]) -> BlockResults {
        let txs: Vec<Vec<u8>> = txs.iter().map(|tx| tx.as_bytes().to_vec()).collect();
        app.execute(app.height() + 1, &txs).unwrap()
    }

    fn validator(i: u8, power: u64, proof: Option<u8>) -> String {
        let proof = proof.map(|i| format!(" {}", hex::encode(key(i).prove_possession().0))).unwrap_or_default();
        format!("validator {} {power}{proof}", hex::encode(key(i).public_key().to_bytes()))
    }

    #[test]
    fn every_transaction_changes_the_hash_and_an_empty_block_does_not() {
        let dir = tempfile::tempdir().unwrap();
        let mut app = app(&dir);
        let mut hashes = vec![app.hash()];
        for tx in ["set a 1", "set a 1", "nonsense", "halt 0"] {
            hashes.push(run(&mut app, &[tx]).app_hash);
        }
        assert!(hashes.windows(2).all(|pair| pair[0] != pair[1]));
        assert_eq!(run(&mut app, &[]).app_hash, hashes[4]);
    }

    #[test]
    fn validators_are_admitted_with_a_proof_and_the_last_one_stays() {
        let dir = tempfile::tempdir().unwrap();
        let mut app = app(&dir);
        let codes = |results: &BlockResults| results.txs.iter().map(|tx| tx.code).collect::<Vec<_>>();
        let results = run(&mut app, &[&validator(1, 0, None), &validator(2, 5, None), &validator(2, 5, Some(3))]);
        assert_eq!(codes(&results), [2, 2, 2]);
        assert!(results.validator_updates.is_empty());
        let results = run(&mut app, &[&validator(2, 5, Some(2)), &validator(2, 6, None), &validator(1, 0, None)]);
        assert_eq!(codes(&results), [0, 0, 0]);
        let powers: Vec<u64> = results.validator_updates.iter().map(|update| update.power).collect();
        assert_eq!(powers.iter().sum::<u64>(), 6, "one update a validator, the last one");
        assert_eq!(powers.len(), 2);
    }

    #[test]
    fn parameters_come_with_the_results_of_their_block() {
        let dir = tempfile::tempdir().unwrap();
        let mut app = app(&dir);
        let results = run(&mut app, &["param block_max_bytes 2048", "halt 9"]);
        assert_eq!(results.params, Some(ConsensusParams { block_max_bytes: 2048, halt_height: Some(9) }));
        assert_eq!(run(&mut app, &["set a b"]).params, None);
        assert_eq!(run(&mut app, &["halt 2"]).txs[0].code, 2, "height 2 has passed");
        let results = run(&mut app, &["halt 0"]);
        assert_eq!(results.params, Some(ConsensusParams { block_max_bytes: 2048, halt_height: None }));
    }

    #[test]
    fn nothing_is_on_disk_before_the_commit() {
        let dir = tempfile::tempdir().unwrap();
        let mut app = app(&dir);
        run(&mut app, &["set a 1"]);
        let reader = app.store().reader().clone();
        assert_eq!((reader.height().unwrap(), tx_count(&reader).unwrap()), (0, 0));
        app.commit().unwrap();
        assert_eq!((reader.height().unwrap(), tx_count(&reader).unwrap()), (1, 1));
        assert_eq!(stored_hash(&reader).unwrap(), app.hash());
        assert_eq!(simulate(&reader, 2, b"halt 1").unwrap().code, 2);
    }
}

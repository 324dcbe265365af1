//! What is kept beside the flush: rollback, checkpoints, the application's index, and folders of other chains.

use super::*;
use crate::node::app::checkpoint::{self, CheckpointError};
use crate::node::config::{Checkpoints, Historical};
use crate::node::ledger::{Heights, rollback};
use crate::node::store::FileDisk;

#[test]
fn a_rollback_takes_back_one_block_which_the_next_start_brings_in_again() {
    let chain = Chain::mixed(1, 8);
    let node = Node::new(Storage::SingleFlush, None);
    let mut ledger = node.open(&chain).unwrap();
    let mut states = vec![ledger.state().clone()];
    for i in 0..7 {
        sync(&mut ledger, &chain, i).unwrap();
        states.push(ledger.state().clone());
    }
    drop(ledger);
    for height in [7, 6] {
        let before = rollback(&node.disk, &chain.genesis, true).unwrap();
        assert_eq!(before.state, 6);
        let again = rollback(&node.disk, &chain.genesis, true).unwrap();
        assert_eq!(again.state, 6, "the block store is one ahead: nothing more is taken back");
        let state_store = crate::node::store::Store::open(&node.disk, crate::node::store::StoreName::State).unwrap();
        let rolled = crate::node::ledger::states::state(state_store.reader()).unwrap().unwrap();
        assert_eq!(rolled, states[6], "at {height}");
        drop(state_store);
        let ledger = node.open(&chain).unwrap();
        assert_eq!(*ledger.state(), states[7]);
        assert_eq!(ledger.heights().unwrap(), Heights { app: 7, state: 7, store: 7 });
    }
}

#[test]
fn an_index_that_is_rebuilt_wrongly_shows_at_the_next_block() {
    for defect in [None, Some(Defect::IndexRebuiltWrong)] {
        let chain = Chain::mixed(1, 8);
        let node = Node::new(Storage::PerBlock, defect);
        let mut ledger = node.open(&chain).unwrap();
        for i in 0..4 {
            sync(&mut ledger, &chain, i).unwrap();
        }
        drop(ledger);
        let went_on = node.open(&chain).and_then(|mut ledger| sync_rest(&mut ledger, &chain));
        assert_eq!(went_on.is_ok(), defect.is_none(), "{defect:?}");
    }
}

#[test]
fn a_folder_of_another_chain_is_refused() {
    let chain = Chain::mixed(1, 3);
    let node = Node::new(Storage::PerBlock, None);
    let mut ledger = node.open(&chain).unwrap();
    sync(&mut ledger, &chain, 0).unwrap();
    drop(ledger);
    let mut other = Chain::mixed(1, 2);
    other.genesis.chain_id = "other".into();
    assert!(matches!(node.open(&other), Err(LedgerError::OtherChain { .. })));
}

#[test]
fn a_replaced_application_row_is_found_at_the_start() {
    let chain = Chain::mixed(1, 3);
    let node = Node::new(Storage::PerBlock, None);
    let mut ledger = node.open(&chain).unwrap();
    sync(&mut ledger, &chain, 0).unwrap();
    drop(ledger);
    let mut store = crate::node::store::Store::open(&node.disk, crate::node::store::StoreName::App).unwrap();
    store.put("k/a", "forged");
    store.commit().unwrap();
    drop(store);
    let error = node.open(&chain).err().unwrap().to_string();
    assert!(error.contains("hash to"), "{error}");
}

/// A node on files, with checkpoints every three blocks of chain time.
struct Files {
    _dir: tempfile::TempDir,
    home: Home,
    config: NodeConfig,
}

impl Files {
    fn new(storage: Storage, historical: Historical) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let mut config = building_config(storage);
        config.checkpoints = Some(Checkpoints { every_ms: 3 * BLOCK_MS, keep: 2, historical });
        Self { home: Home::new(dir.path()), _dir: dir, config }
    }

    fn open(&self, chain: &Chain) -> Result<Ledger, LedgerError> {
        Ledger::open(&self.home, &self.config, &chain.genesis, Log::memory(), Box::new(()))
    }

    fn checkpoints(&self) -> Vec<Height> {
        checkpoint::list(&self.home.checkpoints())
    }

    fn restore(&self, height: Height, shift: Height) -> Result<Height, CheckpointError> {
        let disk = FileDisk::new(&self.home.data(), true);
        checkpoint::restore(&self.home.checkpoints(), height, &disk, shift)
    }
}

#[test]
fn checkpoints_follow_chain_time_and_only_the_newest_are_kept() {
    let chain = Chain::mixed(1, 12);
    for storage in [Storage::PerBlock, Storage::Deferred] {
        let files = Files::new(storage, Historical::Take);
        let mut ledger = files.open(&chain).unwrap();
        let mut seen = Vec::new();
        for i in 0..11 {
            sync(&mut ledger, &chain, i).unwrap();
            seen.push(files.checkpoints().last().copied().unwrap());
        }
        assert_eq!(seen, [1, 1, 1, 4, 4, 4, 7, 7, 7, 10, 10], "{storage:?}");
        assert_eq!(files.checkpoints(), [7, 10]);
        assert_eq!(ledger.state().app_hash, chain.app_hash_after(11), "no hash changes");
    }
}

#[test]
fn history_makes_no_checkpoint_and_the_tip_does() {
    let chain = Chain::mixed(1, 6);
    let files = Files::new(Storage::PerBlock, Historical::Skip);
    let mut ledger = files.open(&chain).unwrap();
    for i in 0..5 {
        sync(&mut ledger, &chain, i).unwrap();
    }
    ledger.end_block_sync().unwrap();
    assert!(files.checkpoints().is_empty(), "the chain is older than ten minutes");
    let mut forge = Forge::new("test", (1..=4).map(key).collect());
    ledger.begin_block_sync();
    let now = u64::try_from(jiff::Timestamp::now().as_millisecond()).unwrap();
    forge.extend(&mut ledger, Vec::new(), now).unwrap();
    assert_eq!(files.checkpoints(), [6]);
}

#[test]
fn a_restored_checkpoint_is_followed_by_replay() {
    let chain = Chain::mixed(1, 12);
    let files = Files::new(Storage::PerBlock, Historical::Take);
    let mut ledger = files.open(&chain).unwrap();
    for i in 0..11 {
        sync(&mut ledger, &chain, i).unwrap();
    }
    drop(ledger);
    assert_eq!(files.restore(7, 0).unwrap(), 7);
    let mut ledger = files.open(&chain).unwrap();
    assert_eq!(ledger.heights().unwrap(), Heights { app: 11, state: 11, store: 11 });
    sync_rest(&mut ledger, &chain).unwrap();
    drop(ledger);
    // Planted: a restore that claims one block more.
    files.restore(7, 1).unwrap();
    assert!(files.open(&chain).is_err());
}

#[test]
fn a_damaged_checkpoint_is_refused() {
    let chain = Chain::mixed(1, 3);
    let files = Files::new(Storage::PerBlock, Historical::Take);
    let mut ledger = files.open(&chain).unwrap();
    sync(&mut ledger, &chain, 0).unwrap();
    drop(ledger);
    let path = files.home.checkpoints().join("1");
    let mut bytes = std::fs::read(&path).unwrap();
    *bytes.last_mut().unwrap() ^= 1;
    std::fs::write(&path, bytes).unwrap();
    assert!(files.restore(1, 0).unwrap_err().to_string().contains("digest"));
    assert!(files.restore(9, 0).is_err());
}

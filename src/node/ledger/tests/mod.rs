//! Tests of the ledger: what a node keeps, loses and does again after a death at any write, in every discipline.

mod crashes;
mod disciplines;
mod disk;
mod kept;
mod rules;

use std::sync::{Arc, Mutex};

use disk::MemDisk;

use super::{BlockEvent, EventSink, Ledger, LedgerError};
use crate::node::build::{Forge, building_config};
use crate::node::config::{Home, NodeConfig, Storage};
use crate::node::crypto::SecretKey;
use crate::node::defect::Defect;
use crate::node::log::Log;
use crate::node::types::{Block, BlockId, Commit, ConsensusParams, Genesis, GenesisValidator, Height};

/// Milliseconds between the blocks of test chains.
const BLOCK_MS: u64 = 1000;

fn key(i: u8) -> SecretKey {
    SecretKey::from_ikm(&[i; 32]).unwrap()
}

fn genesis(initial_height: Height) -> Genesis {
    let validator = |i: u8| GenesisValidator {
        name: format!("val-{i}"),
        pub_key: key(i).public_key(),
        proof_of_possession: key(i).prove_possession(),
        power: 10,
    };
    Genesis {
        chain_id: "test".into(),
        genesis_time: "2026-01-01T00:00:00Z".parse().unwrap(),
        initial_height,
        consensus_params: ConsensusParams::default(),
        validators: (1..=3).map(validator).collect(),
        app_state: [("a".to_owned(), "1".to_owned())].into(),
    }
}

/// A decided chain, as a peer would hand it out.
struct Chain {
    genesis: Genesis,
    blocks: Vec<(Arc<Block>, BlockId, Commit)>,
}

impl Chain {
    /// One block for each list of transactions.
    fn new(initial_height: Height, contents: &[Vec<String>]) -> Self {
        let genesis = genesis(initial_height);
        let config = building_config(Storage::Deferred);
        let mut forge = Forge::new("test", (1..=5).map(key).collect());
        let mut ledger =
            Ledger::open_on(&MemDisk::new(), &Home::new("/nowhere"), &config, &genesis, Log::memory(), Box::new(()))
                .unwrap();
        for txs in contents {
            let txs = txs.iter().map(|tx| tx.as_bytes().to_vec()).collect();
            let time_ms = ledger.state().last_time_ms + BLOCK_MS;
            forge.extend(&mut ledger, txs, time_ms).unwrap();
        }
        let blocks = (initial_height..)
            .map_while(|height| {
                let block = ledger.load_block(height).unwrap()?;
                let commit = ledger.load_commit(height).unwrap().unwrap();
                Some((Arc::new(block), commit.block_id, commit))
            })
            .collect();
        Self { genesis, blocks }
    }

    /// A chain whose blocks set keys, with an empty block, a change of validators and one of parameters among them.
    fn mixed(initial_height: Height, blocks: u64) -> Self {
        let proof = hex::encode(key(4).prove_possession().0);
        let contents: Vec<Vec<String>> = (0..blocks)
            .map(|i| match i % 5 {
                1 => Vec::new(),
                2 if i == 2 => {
                    let added = hex::encode(key(4).public_key().to_bytes());
                    vec![format!("validator {added} 7 {proof}"), format!("set k{i} {i}")]
                }
                3 => vec![format!("param block_max_bytes {}", 100_000 + i)],
                _ => vec![format!("set k{i} {i}"), format!("set a {i}"), "nonsense".to_owned()],
            })
            .collect();
        Self::new(initial_height, &contents)
    }

    /// The application hash after the block at `height`, as the next header says.
    fn app_hash_after(&self, height: Height) -> crate::node::types::Hash {
        let first = self.blocks[0].0.header.height;
        self.blocks[(height - first + 1) as usize].0.header.app_hash
    }
}

/// Collects the heights of events.
#[derive(Clone, Default)]
struct Heard(pub(super) Arc<Mutex<Vec<Height>>>);

impl Heard {
    fn heights(&self) -> Vec<Height> {
        self.0.lock().unwrap().clone()
    }
}

impl EventSink for Heard {
    fn fire(&mut self, event: BlockEvent) {
        self.0.lock().unwrap().push(event.height);
    }
}

/// A node without a network, on a disk in memory.
struct Node {
    disk: MemDisk,
    config: NodeConfig,
    log: Log,
    heard: Heard,
}

impl Node {
    fn new(storage: Storage, defect: Option<Defect>) -> Self {
        let mut config = building_config(storage);
        config.planted_defect = defect;
        let disk = MemDisk::new();
        disk.set_syncs(storage != Storage::NoSync);
        Self { disk, config, log: Log::memory(), heard: Heard::default() }
    }

    fn open(&self, chain: &Chain) -> Result<Ledger, LedgerError> {
        let home = Home::new("/nowhere");
        let events = Box::new(self.heard.clone());
        Ledger::open_on(&self.disk, &home, &self.config, &chain.genesis, self.log.clone(), events)
    }
}

/// Applies block `i` of the chain, from 0.
fn sync(ledger: &mut Ledger, chain: &Chain, i: usize) -> Result<super::Applied, LedgerError> {
    let (block, id, commit) = &chain.blocks[i];
    ledger.apply_synced(block, id, commit)
}

/// Applies what is left of the chain.
fn sync_rest(ledger: &mut Ledger, chain: &Chain) -> Result<(), LedgerError> {
    let first = chain.blocks[0].0.header.height;
    for i in (ledger.next_height() - first) as usize..chain.blocks.len() {
        sync(ledger, chain, i)?;
    }
    ledger.flush_point()
}

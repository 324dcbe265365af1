//! Which syncs each discipline makes, and in which order.

use super::*;
use crate::node::store::StoreName::{App, Blocks, State};

/// The most frequent number of syncs a block: growth of a file adds one now and then.
fn usual(mut counts: Vec<[usize; 3]>) -> [usize; 3] {
    counts.sort_unstable();
    counts[counts.len() / 2]
}

fn syncs_a_block(storage: Storage) -> [usize; 3] {
    let chain = Chain::mixed(1, 21);
    let node = Node::new(storage, None);
    let mut ledger = node.open(&chain).unwrap();
    let counts = (0..21)
        .map(|i| {
            let before = node.disk.op_count();
            sync(&mut ledger, &chain, i).unwrap();
            node.disk.syncs_since(before)
        })
        .collect();
    usual(counts)
}

#[test]
fn syncs_a_block_in_block_sync() {
    assert_eq!(syncs_a_block(Storage::PerBlock), [2, 2, 1]);
    assert_eq!(syncs_a_block(Storage::SingleFlush), [1, 2, 1]);
    assert_eq!(syncs_a_block(Storage::Deferred), [0, 0, 0]);
    assert_eq!(syncs_a_block(Storage::NoSync), [0, 0, 0]);
}

#[test]
fn a_flush_point_is_one_sync_a_database() {
    let chain = Chain::mixed(1, 30);
    let node = Node::new(Storage::Deferred, None);
    let mut ledger = node.open(&chain).unwrap();
    let mut counts = Vec::new();
    for i in 0..30 {
        sync(&mut ledger, &chain, i).unwrap();
        if i % 3 == 2 {
            let before = node.disk.op_count();
            ledger.flush_point().unwrap();
            counts.push(node.disk.syncs_since(before));
            assert_eq!(node.disk.order_since(before), [Blocks, State, App]);
        }
    }
    assert_eq!(usual(counts), [1, 1, 1]);
    let before = node.disk.op_count();
    ledger.flush_point().unwrap();
    assert_eq!(node.disk.op_count(), before, "nothing is held, nothing is written");
}

#[test]
fn deferred_writes_single_blocks_once_block_sync_has_ended() {
    let chain = Chain::mixed(1, 20);
    let node = Node::new(Storage::Deferred, None);
    let mut ledger = node.open(&chain).unwrap();
    sync(&mut ledger, &chain, 0).unwrap();
    ledger.end_block_sync().unwrap();
    let mut counts = Vec::new();
    for (block, id, commit) in &chain.blocks[1..] {
        let before = node.disk.op_count();
        let mut saved = None;
        ledger
            .commit_decided(block, id, commit, &mut |height| {
                saved = Some((height, node.disk.order_since(before)));
                Ok(())
            })
            .unwrap();
        assert_eq!(saved, Some((block.header.height, vec![Blocks])), "the end of the height follows the block");
        assert_eq!(node.disk.order_since(before), [Blocks, State, App, State]);
        counts.push(node.disk.syncs_since(before));
    }
    assert_eq!(usual(counts), [1, 2, 1]);
}

#[test]
fn the_order_of_one_block() {
    let chain = Chain::mixed(1, 3);
    for storage in [Storage::PerBlock, Storage::SingleFlush, Storage::NoSync] {
        let node = Node::new(storage, None);
        let mut ledger = node.open(&chain).unwrap();
        let before = node.disk.op_count();
        sync(&mut ledger, &chain, 0).unwrap();
        assert_eq!(node.disk.order_since(before), [Blocks, State, App, State], "{storage:?}");
    }
}

#[test]
fn every_discipline_comes_to_the_same_state() {
    let chain = Chain::mixed(1, 12);
    for storage in [Storage::PerBlock, Storage::SingleFlush, Storage::Deferred, Storage::NoSync] {
        let node = Node::new(storage, None);
        let mut ledger = node.open(&chain).unwrap();
        for i in 0..12 {
            let applied = sync(&mut ledger, &chain, i).unwrap();
            if i < 11 {
                assert_eq!(applied.app_hash, chain.app_hash_after(applied.height));
            }
        }
        assert_eq!(ledger.state().next_validators.len(), 4);
        assert_eq!(ledger.state().params.block_max_bytes, 100_008);
        assert_eq!(ledger.validators_at(4).unwrap().unwrap().len(), 3, "a change at 3 is in force from 5");
        assert_eq!(ledger.validators_at(5).unwrap().unwrap().len(), 4);
    }
}

//! The rules of the deferred discipline that do not show in the shapes a crash leaves. Each is tried on a healthy node and on
//! one that breaks it.

use super::*;
use crate::node::ledger::{Heights, QueryError, rollback};
use crate::node::store::StoreName;

fn healthy_and_not(defect: Defect, holds: impl Fn(Option<Defect>) -> bool) {
    assert!(holds(None), "on a healthy node");
    assert!(!holds(Some(defect)), "with {defect:?}");
}

fn same(height: Height) -> Heights {
    Heights { app: height, state: height, store: height }
}

#[test]
fn flush_points_fall_between_blocks() {
    healthy_and_not(Defect::FlushInsideBlock, |defect| {
        let chain = Chain::mixed(1, 6);
        let mut node = Node::new(Storage::Deferred, defect);
        // So that each block is above it.
        node.config.flush.max_bytes = 0;
        let mut ledger = node.open(&chain).unwrap();
        (0..5).all(|i| {
            sync(&mut ledger, &chain, i).unwrap();
            let from = i as Height;
            let flushes: Vec<_> = node.log.lines().into_iter().filter(|line| line.starts_with("flush point")).collect();
            flushes.len() == i + 1
                && flushes[i] == format!("flush point from={from} to={}", from + 1)
                && ledger.heights().unwrap() == same(from + 1)
        })
    });
}

#[test]
fn the_line_of_a_flush_point_comes_before_its_first_write() {
    let chain = Chain::mixed(1, 3);
    let node = Node::new(Storage::Deferred, None);
    let mut ledger = node.open(&chain).unwrap();
    sync(&mut ledger, &chain, 0).unwrap();
    sync(&mut ledger, &chain, 1).unwrap();
    node.disk.fail(StoreName::Blocks);
    ledger.flush_point().unwrap_err();
    assert_eq!(node.log.lines().last().unwrap(), "flush point from=0 to=2");
}

#[test]
fn a_failed_write_stops_the_node_before_the_next_step() {
    healthy_and_not(Defect::IgnoreFailedWrite, |defect| {
        let chain = Chain::mixed(1, 6);
        let node = Node::new(Storage::Deferred, defect);
        let mut ledger = node.open(&chain).unwrap();
        sync(&mut ledger, &chain, 0).unwrap();
        sync(&mut ledger, &chain, 1).unwrap();
        node.disk.fail(StoreName::State);
        let before = node.disk.op_count();
        let stopped = ledger.flush_point().is_err();
        let refused = matches!(sync(&mut ledger, &chain, 2), Err(LedgerError::Poisoned(_)));
        let untouched = !node.disk.order_since(before).contains(&StoreName::App);
        stopped && refused && untouched && node.heard.heights().is_empty()
    });
}

#[test]
fn a_failed_write_of_a_single_block_stops_the_node_too() {
    let chain = Chain::mixed(1, 6);
    for (store, steps) in [(StoreName::Blocks, 0), (StoreName::State, 1), (StoreName::App, 2)] {
        let node = Node::new(Storage::PerBlock, None);
        let mut ledger = node.open(&chain).unwrap();
        sync(&mut ledger, &chain, 0).unwrap();
        node.disk.fail(store);
        let before = node.disk.op_count();
        sync(&mut ledger, &chain, 1).unwrap_err();
        assert_eq!(node.disk.order_since(before).len(), steps);
        assert!(matches!(ledger.flush_point(), Err(LedgerError::Poisoned(_))));
        assert_eq!(node.heard.heights(), [1]);
    }
}

#[test]
fn an_invalid_block_changes_nothing_and_stops_nothing() {
    let chain = Chain::mixed(1, 3);
    let node = Node::new(Storage::PerBlock, None);
    let mut ledger = node.open(&chain).unwrap();
    let (block, id, commit) = &chain.blocks[0];
    let mut other = (**block).clone();
    other.txs.push(b"set x y".to_vec());
    let before = node.disk.op_count();
    let error = ledger.apply_synced(&Arc::new(other), id, commit).unwrap_err();
    assert_eq!(error.to_string(), "accept block 1: wrong data_hash");
    assert_eq!(node.disk.op_count(), before);
    sync(&mut ledger, &chain, 0).unwrap();
}

#[test]
fn events_of_a_window_fire_in_order_after_it_is_durable_also_of_empty_blocks() {
    healthy_and_not(Defect::EventsSkipEmpty, |defect| {
        let chain = Chain::mixed(1, 6);
        let node = Node::new(Storage::Deferred, defect);
        let mut ledger = node.open(&chain).unwrap();
        for i in 0..5 {
            sync(&mut ledger, &chain, i).unwrap();
        }
        assert!(node.heard.heights().is_empty());
        ledger.flush_point().unwrap();
        node.heard.heights() == [1, 2, 3, 4, 5]
    });
}

#[test]
fn queries_are_answered_from_the_version_on_disk() {
    healthy_and_not(Defect::QueriesFromHeld, |defect| {
        let chain = Chain::mixed(1, 6);
        let node = Node::new(Storage::Deferred, defect);
        let mut ledger = node.open(&chain).unwrap();
        let view = ledger.view();
        sync(&mut ledger, &chain, 0).unwrap();
        let fresh_refuses = matches!(view.app_info(), Err(QueryError::NoFlushYet));
        assert!(matches!(view.query(b"a"), Err(QueryError::NoFlushYet)));
        assert!(matches!(view.simulate(b"set a 1"), Err(QueryError::NoFlushYet)));
        ledger.flush_point().unwrap();
        let first = view.app_info().unwrap();
        for i in 1..5 {
            sync(&mut ledger, &chain, i).unwrap();
        }
        assert_eq!(view.applied_height(), 5);
        assert_eq!(view.block(2).unwrap(), None);
        assert_eq!(view.heights().unwrap(), same(1));
        fresh_refuses && view.app_info().unwrap() == first && view.query(b"a").unwrap().height == 1
    });
}

#[test]
fn a_node_that_writes_every_block_answers_from_the_start() {
    let chain = Chain::mixed(1, 2);
    let node = Node::new(Storage::PerBlock, None);
    let mut ledger = node.open(&chain).unwrap();
    assert_eq!(ledger.view().app_info().unwrap().height, 0);
    sync(&mut ledger, &chain, 0).unwrap();
    let view = ledger.view();
    assert_eq!(view.query(b"k0").unwrap().value, Some(b"0".to_vec()));
    assert_eq!(view.app_info().unwrap().tx_count, 3);
    assert_eq!(view.simulate(b"halt 1").unwrap().code, 2);
    assert_eq!(view.simulate(b"halt 2").unwrap().code, 0);
    let codes: Vec<u32> = view.results(1).unwrap().unwrap().txs.iter().map(|tx| tx.code).collect();
    assert_eq!(codes, [0, 0, 1]);
}

#[test]
fn no_block_of_consensus_lands_in_a_held_database() {
    healthy_and_not(Defect::SwitchWithoutFlush, |defect| {
        let chain = Chain::mixed(1, 6);
        let node = Node::new(Storage::Deferred, defect);
        let mut ledger = node.open(&chain).unwrap();
        for i in 0..3 {
            sync(&mut ledger, &chain, i).unwrap();
        }
        let (block, id, commit) = &chain.blocks[3];
        let early = ledger.commit_decided(block, id, commit, &mut |_| Ok(()));
        assert!(matches!(early, Err(LedgerError::Phase(_))));
        ledger.end_block_sync().unwrap();
        let flushed = ledger.heights().unwrap() == same(3);
        ledger.commit_decided(block, id, commit, &mut |_| Ok(())).unwrap();
        assert!(matches!(sync(&mut ledger, &chain, 4), Err(LedgerError::Phase(_))));
        flushed && ledger.heights().unwrap() == same(4)
    });
}

#[test]
fn a_stop_while_behind_writes_nothing() {
    healthy_and_not(Defect::FlushOnStop, |defect| {
        let chain = Chain::mixed(1, 6);
        let node = Node::new(Storage::Deferred, defect);
        let mut ledger = node.open(&chain).unwrap();
        for i in 0..3 {
            sync(&mut ledger, &chain, i).unwrap();
        }
        let before = node.disk.op_count();
        drop(ledger);
        node.disk.op_count() == before
    });
}

/// A chain whose third block sets the height to halt at.
fn halting(height: Height) -> Chain {
    let contents: Vec<Vec<String>> =
        (1..=6).map(|i| if i == 3 { vec![format!("halt {height}")] } else { vec![format!("set k {i}")] }).collect();
    let mut chain = Chain::new(1, &contents[..3.max(height as usize)]);
    chain.genesis = genesis(1);
    chain
}

#[test]
fn the_halt_height_is_on_disk_before_the_halt() {
    healthy_and_not(Defect::HaltUnflushed, |defect| {
        let chain = Chain::mixed(1, 6);
        let mut node = Node::new(Storage::Deferred, defect);
        node.config.halt_height = Some(4);
        let mut ledger = node.open(&chain).unwrap();
        assert!((0..3).all(|i| !sync(&mut ledger, &chain, i).unwrap().halt));
        assert!(sync(&mut ledger, &chain, 3).unwrap().halt);
        ledger.heights().unwrap() == same(4)
    });
}

#[test]
fn a_block_that_writes_the_halt_parameter_is_on_disk_before_the_halt() {
    for height in [3, 5] {
        let chain = halting(height);
        let node = Node::new(Storage::Deferred, None);
        let mut ledger = node.open(&chain).unwrap();
        for i in 0..3 {
            sync(&mut ledger, &chain, i).unwrap();
        }
        assert_eq!(ledger.heights().unwrap(), same(3));
        if height == 5 {
            assert_eq!(ledger.halted(), None);
            assert!(!sync(&mut ledger, &chain, 3).unwrap().halt);
            assert!(sync(&mut ledger, &chain, 4).unwrap().halt);
            assert_eq!(ledger.heights().unwrap(), same(5));
        }
        drop(ledger);
        assert_eq!(node.open(&chain).unwrap().halted(), Some(height), "a restart does not go on");
    }
}

#[test]
fn the_halt_height_is_not_overshot() {
    healthy_and_not(Defect::HaltOvershoot, |defect| {
        let chain = Chain::mixed(1, 6);
        let mut node = Node::new(Storage::PerBlock, defect);
        node.config.halt_height = Some(2);
        let mut ledger = node.open(&chain).unwrap();
        (0..5).find(|i| sync(&mut ledger, &chain, *i).unwrap().halt) == Some(1)
    });
}

#[test]
fn flush_points_are_due_by_size_and_by_time_also_when_no_block_arrives() {
    let chain = Chain::mixed(1, 6);
    let mut node = Node::new(Storage::Deferred, None);
    node.config.flush.max_bytes = 3000;
    let mut ledger = node.open(&chain).unwrap();
    assert_eq!(ledger.flush_deadline(), None);
    for i in 0..5 {
        sync(&mut ledger, &chain, i).unwrap();
    }
    let by_size = ledger.heights().unwrap().app;
    assert!(by_size > 1 && by_size < 5 || node.log.lines().len() > 2, "at {by_size}");
    drop(ledger);
    node.config.flush.every_ms = 0;
    node.config.flush.max_bytes = u64::MAX;
    let mut ledger = node.open(&chain).unwrap();
    ledger.flush.every_ms = 3_600_000;
    let next = (ledger.next_height() - 1) as usize;
    sync(&mut ledger, &chain, next).unwrap();
    assert!(!ledger.flush_if_due().unwrap());
    ledger.flush.every_ms = 0;
    assert!(ledger.flush_if_due().unwrap());
    assert_eq!(ledger.heights().unwrap(), same(next as Height + 1));
    assert_eq!(ledger.flush_deadline(), None);
}

/// A folder that a cut flush left at 2/2/5.
fn cut_in_a_window(defect: Option<Defect>, chain: &Chain) -> Node {
    let node = Node::new(Storage::Deferred, defect);
    let mut ledger = node.open(chain).unwrap();
    for i in 0..5 {
        sync(&mut ledger, chain, i).unwrap();
        if i == 1 {
            ledger.flush_point().unwrap();
        }
    }
    node.disk.fail(StoreName::State);
    ledger.flush_point().unwrap_err();
    drop(ledger);
    Node { disk: MemDisk::from(node.disk.images()), ..node }
}

#[test]
fn a_rollback_refuses_a_block_store_far_ahead() {
    healthy_and_not(Defect::RollbackAlways, |defect| {
        let chain = Chain::mixed(1, 6);
        let node = cut_in_a_window(None, &chain);
        let result = rollback(&node.disk, &chain.genesis, defect.is_none());
        result.is_err_and(|error| error.to_string().contains("2/2/5"))
    });
}

#[test]
fn the_block_store_is_lowered_only_where_its_record_says_so() {
    healthy_and_not(Defect::RewindAlways, |defect| {
        let chain = Chain::mixed(1, 6);
        let node = cut_in_a_window(defect, &chain);
        // What a tool or a mixed-up copy could leave: the heights of a cut window, and a record that is of another.
        let mut store = crate::node::store::Store::open(&node.disk, StoreName::Blocks).unwrap();
        crate::node::ledger::blocks::put_window(&mut store, 1, 5);
        store.commit().unwrap();
        drop(store);
        match node.open(&chain) {
            Err(LedgerError::Refused(refusal)) => refusal.to_string().contains("2/2/5"),
            _ => false,
        }
    });
}

#[test]
fn a_rewind_is_logged_and_block_sync_goes_on() {
    let chain = Chain::mixed(1, 6);
    let node = cut_in_a_window(None, &chain);
    let log = Log::memory();
    let node = Node { log: log.clone(), ..node };
    let mut ledger = node.open(&chain).unwrap();
    assert_eq!(ledger.next_height(), 4);
    assert_eq!(ledger.load_block(4).unwrap(), None, "blocks above are gone");
    assert_eq!(
        log.lines(),
        [
            "handshake appHeight=2 storeHeight=5 stateHeight=2",
            "enter mode=replay height=5",
            "rewind store=blockstore.db from=5 to=3",
            "replay the last block height=3 application=real",
        ]
    );
    sync_rest(&mut ledger, &chain).unwrap();
}

//! A death at every single write and sync, by kill and by power cut, in every discipline; then a start, and the rest of
//! the chain.

use std::collections::BTreeSet;

use rand::SeedableRng as _;
use rand_chacha::ChaCha20Rng;

use super::disk::Images;
use super::*;
use crate::node::ledger::Heights;

/// After which blocks (from 1) a flush point is taken.
const WINDOWS: [usize; 4] = [1, 2, 5, 9];
/// Blocks applied: one after the last window, or a few where each is written by itself.
const BLOCKS: usize = 10;
const SINGLE_BLOCKS: usize = 4;

struct Recorded {
    chain: Chain,
    node: Node,
    /// Operations before the first block, and events heard by then and after.
    first_op: usize,
    /// How many operations there were when each event was heard.
    heard_at: Vec<usize>,
}

fn record(storage: Storage, defect: Option<Defect>, initial: Height) -> Recorded {
    let blocks = if storage == Storage::Deferred { BLOCKS } else { SINGLE_BLOCKS };
    let chain = Chain::mixed(initial, blocks as u64 + 1);
    let node = Node::new(storage, defect);
    let mut ledger = node.open(&chain).unwrap();
    let first_op = node.disk.op_count();
    let mut heard_at = Vec::new();
    for i in 0..blocks {
        sync(&mut ledger, &chain, i).unwrap();
        if WINDOWS.contains(&(i + 1)) {
            ledger.flush_point().unwrap();
        }
        heard_at.resize(node.heard.heights().len(), node.disk.op_count());
    }
    drop(ledger);
    Recorded { chain, node, first_op, heard_at }
}

/// Starts on what is left, checks the handshake, and syncs the rest. Returns the shape, or why it went wrong.
fn come_back(recorded: &Recorded, images: Images, heard_before: usize) -> Result<Heights, String> {
    let chain = &recorded.chain;
    let node = Node {
        disk: MemDisk::from(images),
        log: Log::memory(),
        heard: Heard::default(),
        config: recorded.node.config.clone(),
    };
    let mut ledger = node.open(chain).map_err(|error| error.to_string())?;
    let line = node.log.lines()[0].clone();
    let number = |key: &str| -> Height {
        line.split(' ').find_map(|field| field.strip_prefix(key)?.strip_prefix('=')).unwrap().parse().unwrap()
    };
    let shape = Heights { app: number("appHeight"), state: number("stateHeight"), store: number("storeHeight") };
    sync_rest(&mut ledger, chain).map_err(|error| error.to_string())?;
    let heights = ledger.heights().unwrap();
    let last = chain.blocks.last().unwrap().0.header.height;
    assert_eq!(heights, Heights { app: last, state: last, store: last });
    let mut all = recorded.node.heard.heights()[..heard_before].to_vec();
    all.extend(node.heard.heights());
    if !all.windows(2).all(|pair| pair[0] < pair[1]) {
        return Err(format!("events {all:?}"));
    }
    Ok(shape)
}

fn shapes(recorded: &Recorded, seed: Option<u64>) -> Result<BTreeSet<Heights>, String> {
    let mut random = seed.map(ChaCha20Rng::seed_from_u64);
    let mut shapes = BTreeSet::new();
    for at in recorded.first_op..=recorded.node.disk.op_count() {
        let images = match &mut random {
            None => recorded.node.disk.killed_at(at),
            Some(random) => recorded.node.disk.cut_at(at, random),
        };
        let heard = recorded.heard_at.iter().filter(|ops| **ops <= at).count();
        shapes.insert(come_back(recorded, images, heard).map_err(|error| format!("at operation {at}: {error}"))?);
    }
    Ok(shapes)
}

/// Whether every shape is one that a window F→F′ can leave: F/F/F, F/F/F′, F/F′/F′, F′/F′/F′.
fn are_shapes_of_windows(shapes: &BTreeSet<Heights>) -> bool {
    let ends = [0].iter().chain(&WINDOWS).map(|end| *end as Height).collect::<Vec<_>>();
    let next = |height: Height| ends.iter().copied().find(|end| *end > height);
    shapes.iter().all(|s| {
        let behind = |low: Height, high: Height| low == high || next(low) == Some(high);
        ends.contains(&s.app) && s.app <= s.state && s.state <= s.store && behind(s.app, s.store)
    })
}

#[test]
fn a_kill_or_power_cut_at_any_write_of_a_window_leaves_one_of_four_shapes() {
    let recorded = record(Storage::Deferred, None, 1);
    for seed in [None, Some(1), Some(2)] {
        let shapes = shapes(&recorded, seed).unwrap();
        assert!(are_shapes_of_windows(&shapes), "{shapes:?}");
        let shape = |app, state, store| Heights { app, state, store };
        for wanted in [shape(5, 5, 5), shape(5, 5, 9), shape(5, 9, 9), shape(9, 9, 9), shape(0, 0, 1), shape(2, 2, 5)] {
            assert!(shapes.contains(&wanted), "{wanted} is not among {shapes:?}");
        }
    }
}

#[test]
fn single_blocks_come_back_from_a_death_at_any_write() {
    for storage in [Storage::PerBlock, Storage::SingleFlush] {
        let recorded = record(storage, None, 1);
        for seed in [None, Some(3)] {
            let shapes = shapes(&recorded, seed).unwrap();
            let shape = |app, state, store| Heights { app, state, store };
            for wanted in [shape(0, 0, 1), shape(1, 0, 1), shape(3, 3, 3), shape(3, 3, 4), shape(4, 3, 4)] {
                assert!(shapes.contains(&wanted), "{storage:?}: {wanted} is not among {shapes:?}");
            }
            assert!(shapes.iter().all(|s| s.store <= s.state + 1 && s.app <= s.store && s.app >= s.state));
        }
    }
}

#[test]
fn a_chain_that_starts_higher_comes_back_too() {
    let recorded = record(Storage::Deferred, None, 1000);
    let shapes = shapes(&recorded, None).unwrap();
    assert!(shapes.contains(&Heights { app: 0, state: 0, store: 1000 }));
    assert!(shapes.contains(&Heights { app: 1004, state: 1004, store: 1008 }));
}

#[test]
fn without_syncs_a_kill_is_harmless_and_a_power_cut_is_not() {
    let recorded = record(Storage::NoSync, None, 1);
    shapes(&recorded, None).unwrap();
    assert!((0..4).any(|seed| shapes(&recorded, Some(seed)).is_err()), "a power cut leaves nothing to trust");
}

#[test]
fn a_wrong_order_of_the_databases_shows() {
    for defect in [Defect::StateBeforeStore, Defect::AppBeforeState] {
        let recorded = record(Storage::Deferred, Some(defect), 1);
        let right = shapes(&recorded, None).is_ok_and(|shapes| are_shapes_of_windows(&shapes));
        assert!(!right, "{defect:?}");
    }
}

#[test]
fn a_restart_that_does_not_lower_the_block_store_shows() {
    let recorded = record(Storage::Deferred, Some(Defect::NoRewind), 1);
    let error = shapes(&recorded, None).unwrap_err();
    assert!(error.contains("2/2/5") || error.contains("5/5/9"), "{error}");
}

#[test]
fn results_that_are_not_synced_before_the_application_show() {
    let recorded = record(Storage::SingleFlush, Some(Defect::ResultsUnsynced), 1);
    let error = shapes(&recorded, None).unwrap_err();
    assert!(error.contains("could not find results for height"), "{error}");
}

#[test]
fn a_height_record_before_its_block_shows() {
    let recorded = record(Storage::PerBlock, Some(Defect::HeightRecordEarly), 1);
    let error = shapes(&recorded, None).unwrap_err();
    assert!(error.contains("could not find block for height"), "{error}");
}

#[test]
fn events_of_a_window_that_fire_again_show() {
    let recorded = record(Storage::Deferred, Some(Defect::EventsTwice), 1);
    assert!(shapes(&recorded, None).unwrap_err().contains("events"));
}

#[test]
fn events_before_the_flush_show() {
    let recorded = record(Storage::Deferred, Some(Defect::EventsEarly), 1);
    assert!(shapes(&recorded, None).unwrap_err().contains("events"));
}

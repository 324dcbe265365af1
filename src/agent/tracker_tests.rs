//! The tracker against event sequences as real nodes make them.

use super::*;
use crate::timeline::{HeightKind, LogMeaning, Store};

const BLOCKS: StoreIndex = 0;
const WAL: StoreIndex = 1;
const STATE: StoreIndex = 2;
const APP: StoreIndex = 3;

fn store(name: &str) -> Store {
    Store { name: name.into(), paths: vec![format!("data/{name}/")], except: Vec::new() }
}

fn commit(store: &str, sync: Option<u32>, modes: &[Mode]) -> Commit {
    Commit {
        store: store.into(),
        sync,
        modes: modes.to_vec(),
        advances: (store == "application.db").then_some(HeightKind::App),
        what: "a commit".into(),
    }
}

fn mark(token: &str, meaning: LogMeaning) -> LogMark {
    LogMark { tokens: vec![token.into()], meaning }
}

/// CometBFT 0.38 with the key-value store: the application writes and never syncs.
fn cometbft() -> Layout {
    Layout {
        stores: ["blockstore.db", "cs.wal", "state.db", "application.db"].map(store).to_vec(),
        flush: vec![
            commit("blockstore.db", Some(1), &[]),
            commit("cs.wal", Some(1), &[Mode::Consensus]),
            commit("state.db", Some(1), &[]),
            commit("application.db", None, &[]),
            commit("state.db", Some(2), &[]),
        ],
        height_mark: Some(HeightMark { store: "blockstore.db".into(), prefix: "H:".into() }),
        log_marks: vec![
            mark("block sync", LogMeaning::Mode(Mode::BlockSync)),
            mark("switch to consensus", LogMeaning::Mode(Mode::Consensus)),
            mark("flush point", LogMeaning::FlushPoint { from: "from".into(), to: "to".into() }),
            mark(
                "replay blocks",
                LogMeaning::Handshake { app: "app".into(), state: "state".into(), store: "store".into() },
            ),
            mark("panic", LogMeaning::Trouble { class: "panic".into() }),
        ],
    }
}

fn tracker(height: u64) -> Tracker {
    Tracker::new(&cometbft(), 1, height, None, true)
}

fn write(tracker: &mut Tracker, store: StoreIndex, bytes: &str) -> Place {
    let place = tracker.begin(store, Kind::Write { synced: false }, bytes.as_bytes());
    tracker.end(&place, None);
    place
}

fn sync(tracker: &mut Tracker, store: StoreIndex) -> Place {
    let place = tracker.begin(store, Kind::Sync, b"");
    tracker.end(&place, Some(100));
    place
}

/// An application beside its node that writes and never syncs, and whose last write of a block has the height.
#[test]
fn where_nothing_is_synced_the_write_with_the_height_ends_a_flush() {
    let layout = |mark: bool| Layout {
        stores: vec![store("kvstore.db")],
        flush: vec![commit("kvstore.db", None, &[])],
        height_mark: mark.then(|| HeightMark { store: "kvstore.db".into(), prefix: "height:".into() }),
        log_marks: Vec::new(),
    };
    let mut tracker = Tracker::new(&layout(true), 1, 0, None, true);
    write(&mut tracker, 0, "a validator");
    // A chain that goes on from somewhere: the first height is taken as it stands.
    write(&mut tracker, 0, "height:40");
    for height in [41, 42] {
        let inside = write(&mut tracker, 0, "key=value").inside.expect("in a flush");
        assert_eq!((inside.at.height, inside.write_of_flush), (height, 1));
        let last = write(&mut tracker, 0, &format!("height:{height}")).inside.expect("in a flush");
        assert_eq!((last.at.source, last.write_of_flush), (HeightSource::Decoded, 2));
    }
    let holes = |event: &NodeEvent| matches!(event, NodeEvent::CoverageHole { .. });
    assert!(!tracker.take_events().iter().any(holes), "a first height is no drift");

    // Without a height all is one flush, whose writes are counted from the start.
    let mut tracker = Tracker::new(&layout(false), 1, 0, None, true);
    for n in 1..=5 {
        let inside = write(&mut tracker, 0, "height:7").inside.expect("in a flush");
        assert_eq!((inside.flush, inside.write_of_flush), (1, n));
    }
}

/// One block as the node makes it in consensus.
fn block(tracker: &mut Tracker, height: u64) {
    sync_wal(tracker);
    write(tracker, BLOCKS, &format!("H:{height}"));
    sync(tracker, BLOCKS);
    sync_wal(tracker);
    write(tracker, STATE, "results");
    sync(tracker, STATE);
    write(tracker, APP, "height");
    write(tracker, STATE, "state");
    sync(tracker, STATE);
    sync_wal(tracker);
}

fn sync_wal(tracker: &mut Tracker) {
    write(tracker, WAL, "message");
    sync(tracker, WAL);
}

fn inside(place: &Place) -> Inside {
    place.inside.expect("inside a flush")
}

#[test]
fn writes_are_numbered_by_the_sync_that_ends_them() {
    let mut t = tracker(125);
    let first = write(&mut t, BLOCKS, "parts");
    let second = write(&mut t, BLOCKS, "H:126");
    assert_eq!((inside(&first).sync, inside(&first).write), (Some(1), 1));
    assert_eq!((inside(&second).sync, inside(&second).write), (Some(1), 2));
    let ends = sync(&mut t, BLOCKS);
    assert_eq!((inside(&ends).sync, inside(&ends).write), (Some(1), 2));
    write(&mut t, STATE, "results");
    sync(&mut t, STATE);
    let state = write(&mut t, STATE, "state");
    assert_eq!((inside(&state).sync, inside(&state).write, inside(&state).write_of_flush), (Some(2), 1, 2));
    let app = write(&mut t, APP, "height");
    assert_eq!((inside(&app).sync, inside(&app).write_of_flush), (Some(1), 1));
    let done = t.progress();
    assert_eq!(done["state.db"], StoreProgress { syncs: 1, writes: 1, emptied: false });
    assert_eq!(done["application.db"], StoreProgress { syncs: 0, writes: 1, emptied: false });
    assert_eq!(done["blockstore.db"], StoreProgress { syncs: 1, writes: 0, emptied: false });
    assert_eq!(done["cs.wal"], StoreProgress::default(), "nothing done is said too");
}

#[test]
fn an_event_that_never_passes_is_numbered_and_not_done() {
    let mut t = tracker(125);
    let held = t.begin(BLOCKS, Kind::Write { synced: false }, b"H:126");
    assert_eq!((inside(&held).sync, inside(&held).write), (Some(1), 1));
    assert_eq!(t.progress()["blockstore.db"], StoreProgress::default());
    assert_eq!(t.heights_possible(), (125, 126));
}

#[test]
fn the_height_is_counted_until_it_is_read() {
    let mut t = tracker(125);
    let first = inside(&write(&mut t, BLOCKS, "parts")).at;
    assert_eq!(first, Reached { height: 126, source: HeightSource::Counted, window: 1 });
    let read = inside(&write(&mut t, BLOCKS, "BH:12 H:126")).at;
    assert_eq!(read, Reached { height: 126, source: HeightSource::Decoded, window: 1 });
    let later = inside(&write(&mut t, STATE, "")).at;
    assert_eq!(later.source, HeightSource::Decoded);
}

#[test]
fn a_window_is_read_from_the_writes_or_from_the_output() {
    let mut t = tracker(9);
    let read = inside(&write(&mut t, BLOCKS, "H:10 H:11 H:12")).at;
    assert_eq!(read, Reached { height: 12, source: HeightSource::Decoded, window: 3 });
    let mut t = tracker(9);
    t.line("I flush point from=9 to=40");
    let told = inside(&write(&mut t, BLOCKS, "header page")).at;
    assert_eq!(told, Reached { height: 40, source: HeightSource::Logged, window: 31 });
    assert_eq!(t.heights_possible(), (9, 40));
}

#[test]
fn a_flush_ends_with_the_last_commit_of_the_mode() {
    let mut t = tracker(0);
    block(&mut t, 1);
    assert_eq!(t.heights_possible(), (1, 1));
    assert_eq!(write(&mut t, STATE, "pruning").inside, None);
    assert_eq!(sync(&mut t, WAL).inside, None);
    let next = inside(&write(&mut t, BLOCKS, "H:2"));
    assert_eq!((next.flush, next.sync, next.write), (2, Some(1), 1));
}

#[test]
fn a_flush_that_does_not_end_by_itself_ends_when_the_next_begins() {
    let mut layout = cometbft();
    layout.flush.pop();
    let mut t = Tracker::new(&layout, 1, 0, None, true);
    for height in 1..=3 {
        write(&mut t, BLOCKS, &format!("H:{height}"));
        let own = sync(&mut t, BLOCKS);
        assert_eq!((inside(&own).flush, inside(&own).at.height), (height, height));
        write(&mut t, STATE, "results");
        sync(&mut t, STATE);
        write(&mut t, APP, "height");
    }
    assert_eq!(t.finish().unwrap().flushes, 2);
}

#[test]
fn tallies_tell_syncs_of_the_flush_from_syncs_of_the_block() {
    let mut t = tracker(0);
    t.line("switch to consensus");
    (1..=3).for_each(|height| block(&mut t, height));
    let tally = t.tally().unwrap();
    assert_eq!((tally.flushes, tally.blocks, tally.height, tally.mode), (3, 3, 3, Some(Mode::Consensus)));
    assert_eq!(tally.per_flush["state.db"], BTreeMap::from([(2, 3)]));
    assert_eq!(tally.per_flush["cs.wal"], BTreeMap::from([(1, 3)]));
    assert_eq!(tally.per_flush["application.db"], BTreeMap::from([(0, 3)]));
    assert_eq!(tally.per_block["cs.wal"], BTreeMap::from([(3, 2)]), "the third block is not over");
    assert_eq!((tally.latency["state.db"].count, tally.syncs["state.db"]), (6, 6));
    sync(&mut t, STATE);
    assert!(t.finish().unwrap().per_block.is_empty(), "what the node does at its end costs no block");
}

#[test]
fn a_window_counts_as_many_blocks() {
    let mut t = tracker(9);
    t.line("block sync");
    t.line("flush point from=9 to=19");
    write(&mut t, BLOCKS, "");
    sync(&mut t, BLOCKS);
    write(&mut t, STATE, "");
    sync(&mut t, STATE);
    write(&mut t, STATE, "");
    sync(&mut t, STATE);
    write(&mut t, BLOCKS, "");
    let tally = t.finish().unwrap();
    assert_eq!((tally.blocks, tally.height, tally.mode), (10, 19, Some(Mode::BlockSync)));
    assert_eq!(tally.per_block["blockstore.db"], BTreeMap::from([(0, 9), (1, 1)]));
    assert_eq!(tally.per_block["state.db"], BTreeMap::from([(0, 9), (2, 1)]));
}

#[test]
fn counts_of_two_modes_are_not_mixed() {
    let mut t = tracker(0);
    t.line("block sync");
    write(&mut t, BLOCKS, "H:1");
    sync(&mut t, BLOCKS);
    (0..2).for_each(|_| {
        write(&mut t, STATE, "");
        sync(&mut t, STATE);
    });
    t.line("Switch to consensus");
    let events = t.take_events();
    let NodeEvent::Tally(tally) = &events[1] else { panic!("{events:?}") };
    assert_eq!((tally.mode, tally.flushes), (Some(Mode::BlockSync), 1));
    assert_eq!(events[2], NodeEvent::ModeChanged { start: 1, mode: Mode::Consensus });
}

#[test]
fn a_store_that_only_consensus_flushes_tells_the_mode() {
    let mut t = tracker(0);
    t.line("block sync");
    sync_wal(&mut t);
    assert_eq!(t.take_events(), [NodeEvent::ModeChanged { start: 1, mode: Mode::BlockSync }], "outside of a flush");
    write(&mut t, BLOCKS, "H:1");
    sync(&mut t, BLOCKS);
    let place = sync(&mut t, WAL);
    assert_eq!(inside(&place).mode, Some(Mode::Consensus));
}

#[test]
fn a_sync_that_ends_no_write_has_no_number() {
    let mut t = tracker(0);
    write(&mut t, BLOCKS, "H:1");
    sync(&mut t, BLOCKS);
    let grown = t.begin(BLOCKS, Kind::Change, b"");
    t.end(&grown, None);
    assert_eq!(inside(&sync(&mut t, BLOCKS)).sync, None);
    assert_eq!(t.progress()["blockstore.db"].syncs, 1);
    write(&mut t, STATE, "");
    assert_eq!(inside(&sync(&mut t, STATE)).sync, Some(1));
}

#[test]
fn without_writes_every_sync_has_a_number() {
    let mut t = Tracker::new(&cometbft(), 1, 7, None, false);
    assert_eq!(inside(&sync(&mut t, BLOCKS)).sync, Some(1));
    assert_eq!(inside(&sync(&mut t, STATE)).sync, Some(1));
    let last = sync(&mut t, STATE);
    assert_eq!((inside(&last).sync, inside(&last).at.height), (Some(2), 8));
    assert_eq!(t.heights_possible(), (8, 8));
    let tally = t.finish().unwrap();
    assert_eq!((tally.flushes, tally.height), (1, 8));
}

#[test]
fn a_synced_write_is_a_write_and_a_sync() {
    let mut t = tracker(0);
    write(&mut t, BLOCKS, "H:1");
    let place = t.begin(WAL, Kind::Write { synced: true }, b"");
    assert_eq!((inside(&place).sync, inside(&place).write), (Some(1), 1));
    t.end(&place, None);
    assert_eq!(t.progress()["cs.wal"], StoreProgress { syncs: 1, writes: 0, emptied: false });
}

#[test]
fn a_burst_without_a_height_is_no_block() {
    let mut t = tracker(5);
    write(&mut t, BLOCKS, "pruned");
    sync(&mut t, BLOCKS);
    write(&mut t, STATE, "pruned");
    sync(&mut t, STATE);
    sync(&mut t, STATE);
    let next = inside(&write(&mut t, BLOCKS, "H:6")).at;
    assert_eq!(next.height, 6);
    assert!(t.tally().is_none_or(|tally| tally.flushes == 0));
}

#[test]
fn a_height_that_continues_nothing_is_drift() {
    let mut t = tracker(5);
    block(&mut t, 9);
    let events = t.take_events();
    let said = |e: &NodeEvent| matches!(e, NodeEvent::CoverageHole { hole, .. } if hole == "height_drift");
    assert!(events.iter().any(said), "{events:?}");
    assert_eq!(t.heights_possible(), (9, 9), "what was written is believed");
    let mut t = tracker(0);
    block(&mut t, 1000);
    assert!(!t.take_events().iter().any(said), "a chain may begin at any height");
    assert_eq!(t.heights_possible(), (1000, 1000));
}

#[test]
fn the_handshake_checks_what_was_counted() {
    let said = |t: &mut Tracker| {
        t.take_events().iter().any(|e| matches!(e, NodeEvent::CoverageHole { hole, .. } if hole == "height_drift"))
    };
    let mut t = Tracker::new(&cometbft(), 2, 125, Some((125, 126)), true);
    t.line("replay blocks app=125 store=126 state=125");
    assert!(!said(&mut t));
    assert_eq!(inside(&write(&mut t, BLOCKS, "parts")).at.height, 127, "counted on from the handshake");
    let mut t = Tracker::new(&cometbft(), 2, 125, Some((125, 126)), true);
    t.line("replay blocks app=125 store=128 state=125");
    assert!(said(&mut t));
}

#[test]
fn an_announced_flush_closes_the_one_before() {
    let mut t = tracker(9);
    t.line("block sync");
    for (from, to) in [(9, 19), (19, 30)] {
        t.line(&format!("flush point from={from} to={to}"));
        write(&mut t, BLOCKS, "");
        assert_eq!(inside(&sync(&mut t, BLOCKS)).at.height, to);
        write(&mut t, STATE, "");
        sync(&mut t, STATE);
    }
    assert_eq!(t.finish().unwrap().flushes, 1, "the second has no last commit yet");
}

#[test]
fn troubles_are_told_with_their_line() {
    let mut t = tracker(0);
    t.line("panic: runtime error");
    let line = "panic: runtime error".to_owned();
    assert_eq!(t.take_events(), [NodeEvent::Trouble { start: 1, class: "panic".into(), line }]);
}

#[test]
fn the_steps_of_a_flush_are_kept_in_order() {
    let mut t = tracker(0);
    block(&mut t, 1);
    write(&mut t, BLOCKS, "H:2");
    let steps: Vec<(StoreIndex, u32, u32, bool)> =
        t.steps().iter().map(|s| (s.store, s.sync, s.writes, s.synced)).collect();
    assert_eq!(
        steps,
        [(BLOCKS, 1, 1, true), (WAL, 1, 1, true), (STATE, 1, 1, true), (APP, 1, 1, false), (STATE, 2, 1, true)]
    );
}

#[test]
fn a_replay_counts_from_the_state_and_leaves_the_block_store_s_height() {
    let mut layout = cometbft();
    layout.flush[0].modes = vec![Mode::Consensus, Mode::BlockSync];
    layout.log_marks.push(mark("handshake", LogMeaning::Mode(Mode::Replay)));
    let mut t = Tracker::new(&layout, 2, 126, None, true);
    // A database that is mended at its opening.
    write(&mut t, BLOCKS, "H:125");
    sync(&mut t, BLOCKS);
    t.line("handshake");
    t.line("replay blocks app=124 store=126 state=125");
    write(&mut t, APP, "replayed without state");
    let replayed = write(&mut t, STATE, "results");
    assert_eq!((inside(&replayed).at.height, inside(&replayed).mode), (126, Some(Mode::Replay)));
    sync(&mut t, STATE);
    write(&mut t, APP, "height");
    write(&mut t, STATE, "state");
    sync(&mut t, STATE);
    assert_eq!(t.heights_possible(), (126, 126));
    // CometBFT saves the state once more before it leaves the handshake.
    write(&mut t, STATE, "state");
    sync(&mut t, STATE);
    t.line("switch to consensus");
    assert_eq!(inside(&write(&mut t, BLOCKS, "H:127")).at.height, 127);
}

#[test]
fn the_state_of_a_genesis_is_no_block() {
    let mut layout = cometbft();
    layout.flush[0].modes = vec![Mode::Consensus, Mode::BlockSync];
    layout.log_marks.push(mark("handshake", LogMeaning::Mode(Mode::Replay)));
    let mut t = Tracker::new(&layout, 1, 0, None, true);
    t.line("handshake");
    t.line("replay blocks app=0 store=0 state=0");
    for _ in 0..4 {
        write(&mut t, APP, "genesis");
        write(&mut t, STATE, "genesis");
        sync(&mut t, STATE);
    }
    t.line("switch to consensus");
    block(&mut t, 1);
    let tally = t.finish_whole();
    assert_eq!((tally.blocks, tally.flushes, tally.height), (1, 1, 1));
}

#[test]
fn a_fault_behind_the_last_event_of_a_flush_has_its_height() {
    let mut t = Tracker::new(&cometbft(), 1, 7, None, false);
    sync(&mut t, BLOCKS);
    sync(&mut t, STATE);
    sync(&mut t, STATE);
    assert_eq!(t.reached_now().unwrap().height, 8);
}

#[test]
fn a_block_store_that_a_restart_lowers_counts_from_where_the_flush_point_says() {
    let mut t = Tracker::new(&cometbft(), 2, 2, Some((2, 34)), true);
    t.line("replay blocks app=2 store=34 state=2");
    assert_eq!(t.heights_possible(), (2, 34));
    t.line("flush point from=3 to=16");
    write(&mut t, BLOCKS, "H:16");
    assert_eq!(t.heights_possible(), (3, 16));
    assert!(t.take_events().iter().all(|event| matches!(event, NodeEvent::Handshake { .. })));
}

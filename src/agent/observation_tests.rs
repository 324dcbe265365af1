//! Observations of made-up nodes, known and unknown.

use super::*;
use crate::timeline::{Address, Commit, LogMark, LogMeaning, Store};

const HOME: &str = "/srv/node";

struct Script {
    events: Vec<Tapped>,
    at_us: u64,
    /// Lines that come with the next event.
    said: Vec<String>,
}

impl Script {
    fn new() -> Self {
        Self { events: Vec::new(), at_us: 1_000_000, said: Vec::new() }
    }

    fn event(&mut self, path: &str, kind: TappedKind, heights: &[u64]) {
        self.at_us += 300;
        let took_us = (kind == TappedKind::Sync).then_some(250);
        let path = Path::new(HOME).join(path);
        let heights = heights.to_vec();
        let said = std::mem::take(&mut self.said);
        self.events.push(Tapped { at_us: self.at_us, tid: 1, path, kind, length: 100, heights, took_us, said });
    }

    fn write(&mut self, path: &str) {
        self.event(path, TappedKind::Write, &[]);
    }

    fn sync(&mut self, path: &str) {
        self.event(path, TappedKind::Sync, &[]);
    }

    /// A block of some unknown node, once a second.
    fn block(&mut self, height: u64) {
        for _ in 0..3 {
            self.write("data/cs.wal/wal");
            self.sync("data/cs.wal/wal");
        }
        self.event("data/write-file-atomic-9", TappedKind::SyncedWrite, &[]);
        self.write("data/priv_validator_state.json");
        self.event("data/chain.db/000001.log", TappedKind::Write, &[height]);
        self.sync("data/chain.db/000001.log");
        self.write("data/chain.db/LOG");
        self.write("data/cs.wal/wal");
        self.sync("data/cs.wal/wal");
        self.write("data/app.db/000003.log");
        self.write("data/app.db/000003.log");
        self.write("data/state.db/000002.log");
        self.sync("data/state.db/000002.log");
        self.at_us += 1_000_000;
    }
}

fn unknown() -> Observation {
    let mut script = Script::new();
    script.write("config/addrbook.json");
    script.sync("data/chain.db");
    (41..=50).for_each(|height| script.block(height));
    observe(&script.events, None, &[]).unwrap()
}

#[test]
fn stores_of_an_unknown_node_are_found_by_their_files() {
    let seen = unknown();
    assert_eq!((seen.home.as_path(), seen.family.as_deref()), (Path::new(HOME), None));
    let store = |name: &str| seen.stores.iter().find(|store| store.name == name).unwrap();
    assert_eq!(seen.stores.len(), 5, "{:?}", seen.stores);
    assert_eq!(store("chain.db").paths, ["data/chain.db/"]);
    assert_eq!(store("privval").paths, ["data/priv_validator_state.json", "data/write-file-atomic-*"]);
    assert_eq!((store("cs.wal").syncs, store("cs.wal").syncs_per_block), (40, Some(4)));
    assert_eq!((store("app.db").writes, store("app.db").syncs, store("app.db").sync_p50_us), (20, 0, None));
    assert_eq!((store("chain.db").writes, store("chain.db").sync_p50_us), (10, Some(250)), "without LOG");
}

#[test]
fn the_flush_of_an_unknown_node_is_the_burst_behind_its_block_store() {
    let seen = unknown();
    let flush: Vec<(&str, Option<u32>, u32)> =
        seen.flush.iter().map(|commit| (commit.store.as_str(), commit.sync, commit.writes)).collect();
    assert_eq!(
        flush,
        [("chain.db", Some(1), 1), ("cs.wal", Some(1), 1), ("app.db", None, 2), ("state.db", Some(1), 1)]
    );
    assert_eq!((seen.height, seen.blocks), (50, 10));
    assert!(seen.addresses.contains(&"{ store: app.db, write: first, phase: before }".to_owned()));
    for address in &seen.addresses {
        let _parses: Address = serde_yaml::from_str(address).unwrap();
    }
}

#[test]
fn a_family_is_taken_when_all_its_stores_are_seen() {
    let mut script = Script::new();
    (1..=4).for_each(|height| script.block(height));
    let store = |name: &str, path: &str| Store { name: name.into(), paths: vec![path.into()], except: Vec::new() };
    let commit =
        |store: &str| Commit { store: store.into(), sync: Some(1), modes: vec![], advances: None, what: "x".into() };
    let family = |paths: [&str; 2]| Layout {
        stores: vec![store("blocks", paths[0]), store("state", paths[1])],
        flush: vec![commit("blocks"), commit("state")],
        ..Layout::default()
    };
    let families = [
        ("other".to_owned(), family(["data/chain.db/", "data/nothing.db/"])),
        ("this".to_owned(), family(["data/chain.db/", "data/state.db/"])),
    ];
    let seen = observe(&script.events, Some(Path::new(HOME)), &families).unwrap();
    assert_eq!(seen.family.as_deref(), Some("this"));
    assert_eq!((seen.flush.len(), seen.blocks), (2, 4));
}

#[test]
fn addresses_are_of_the_mode_in_which_they_were_seen() {
    let mark = |token: &str, mode| LogMark { tokens: vec![token.into()], meaning: LogMeaning::Mode(mode) };
    let store = |name: &str, path: &str| Store { name: name.into(), paths: vec![path.into()], except: Vec::new() };
    let commit =
        |store: &str| Commit { store: store.into(), sync: Some(1), modes: vec![], advances: None, what: "x".into() };
    let layout = Layout {
        stores: vec![store("chain.db", "data/chain.db/"), store("state.db", "data/state.db/")],
        flush: vec![commit("chain.db"), commit("state.db")],
        log_marks: vec![mark("replaying", Mode::Replay), mark("consensus begins", Mode::Consensus)],
        ..Layout::default()
    };
    let families = [("this".to_owned(), layout)];
    let seen = |replayed: u64, decided: u64| {
        let mut script = Script::new();
        script.said.push("replaying blocks".to_owned());
        (1..=replayed).for_each(|height| script.block(height));
        script.said.push("consensus begins".to_owned());
        (replayed + 1..=replayed + decided).for_each(|height| script.block(height));
        observe(&script.events, Some(Path::new(HOME)), &families).unwrap()
    };
    for (replayed, decided, mode) in [(2, 5, Mode::Consensus), (5, 2, Mode::Replay), (0, 3, Mode::Consensus)] {
        let seen = seen(replayed, decided);
        assert_eq!(seen.mode, Some(mode), "{replayed} {decided}");
        assert!(!seen.addresses.is_empty());
        for address in &seen.addresses {
            let address: Address = serde_yaml::from_str(address).unwrap();
            assert_eq!(address.mode, Some(mode));
        }
    }
}

#[test]
fn a_node_that_makes_nothing_durable_is_not_guessed_about() {
    assert_eq!(observe(&[], None, &[]), None);
    let mut script = Script::new();
    script.write("config/addrbook.json");
    assert_eq!(observe(&script.events, None, &[]), None);
    assert_eq!(observe(&script.events, Some(Path::new(HOME)), &[]), None);
}

//! Timelines made by hand, and what they are judged to be.

use std::collections::BTreeMap;

use super::*;
use crate::timeline::{
    Address, Commit, Errno, Event, Exit, ExitCause, Expect, FaultId, FaultKind, FaultSetup, Hashes, HeightKind,
    HeightRange, HeightSource, Heights, Landed, Layout, Mode, NodeEvent, NodeSetup, Phase, RunStarted, Setup, Status,
    StoreProgress, Tally, Tier, WriteAt,
};

mod acknowledged;
mod double_sign;
mod liveness;
mod properties;
mod verdicts;

const SECOND: u64 = 1_000_000;

/// A run of four validators and a full node that makes a block each second, as records.
struct Run {
    records: Vec<Record>,
    /// Starts that have not ended, which the end of a run does.
    alive: BTreeMap<String, u32>,
}

fn layout() -> Layout {
    let commit = |store: &str, advances| Commit {
        store: store.to_owned(),
        sync: Some(1),
        modes: Vec::new(),
        advances: Some(advances),
        what: String::new(),
    };
    let flush = vec![
        commit("blockstore.db", HeightKind::Store),
        commit("state.db", HeightKind::State),
        commit("application.db", HeightKind::App),
    ];
    Layout { flush, ..Layout::default() }
}

fn kill() -> FaultSetup {
    FaultSetup {
        id: FaultId { name: "cut".to_owned(), occurrence: 1 },
        kind: FaultKind::Kill,
        node: "late".to_owned(),
        asked: Some(Address {
            height: HeightRange::default(),
            store: "state.db".to_owned(),
            sync: Some(1),
            write: Some(WriteAt::First),
            phase: Phase::Before,
            mode: Some(Mode::BlockSync),
            window: Some(2),
        }),
        errno: None,
        when: "at the address".to_owned(),
    }
}

impl Run {
    fn new(faults: Vec<FaultSetup>, expect: Expect) -> Self {
        let mut run = Self { records: Vec::new(), alive: BTreeMap::new() };
        let start = RunStarted {
            version: 1,
            run: "r1".to_owned(),
            topology: "t".to_owned(),
            seed: 7,
            engine: "process".to_owned(),
            midflush: "0".to_owned(),
            kernel: "6".to_owned(),
            cpus: 2,
            started: String::new(),
            again: String::new(),
            builds: BTreeMap::new(),
        };
        run.push(0, None, Event::RunStarted(start));
        let node = |name: &str, power: u64| NodeSetup {
            name: name.to_owned(),
            role: if power > 0 { Role::Validator } else { Role::Full },
            power,
            group: name[..1].to_owned(),
            storage: Some(if power > 0 { "per-block" } else { "deferred" }.to_owned()),
            layout: layout(),
        };
        let setup = Setup {
            family: "reference".to_owned(),
            chain_id: "c".to_owned(),
            initial_height: 1,
            built_blocks: 0,
            app_hash_offset: 1,
            load: true,
            nodes: [("v0", 10), ("v1", 10), ("v2", 10), ("v3", 10), ("late", 0)].map(|(n, p)| node(n, p)).into(),
            faults,
            expect,
        };
        run.push(0, None, Event::Setup(Box::new(setup)));
        run
    }

    fn push(&mut self, at: u64, node: Option<&str>, event: Event) {
        let seq = self.records.len() as u64;
        self.records.push(Record { seq, at_us: at * SECOND, node: node.map(str::to_owned), event });
    }

    fn agent(&mut self, at: u64, node: &str, event: NodeEvent) {
        self.push(at, Some(node), Event::Node(event));
    }

    fn started(&mut self, at: u64, node: &str, start: u32) {
        self.alive.insert(node.to_owned(), start);
        self.agent(at, node, NodeEvent::Started { start, pid: 1, tier: Tier::Observe });
    }

    fn exited(&mut self, at: u64, node: &str, start: u32, exit: Exit, cause: ExitCause, tail: &[&str]) {
        self.alive.remove(node);
        let tail = tail.iter().map(|&l| l.to_owned()).collect();
        self.agent(at, node, NodeEvent::Exited { start, exit, cause, tail });
    }

    fn status(&mut self, at: u64, node: &str, height: u64, catching_up: bool) {
        let app_hash = format!("{height:04x}");
        self.push(at, Some(node), Event::Status(Status { height, catching_up, peers: Some(4), app_hash }));
    }

    fn hashes(&mut self, node: &str, first: u64, last: u64, change: impl Fn(u64) -> (String, String)) {
        let blocks = (first..=last).map(change).collect();
        self.push(60, Some(node), Event::Hashes(Hashes { first, blocks }));
    }

    /// Everyone follows the chain from second `from` to `to`, a block each second.
    fn follow(&mut self, from: u64, to: u64, nodes: &[&str]) {
        for at in from..=to {
            for node in nodes {
                self.status(at, node, 100 + at, false);
            }
        }
    }

    fn end(&mut self, converged: bool) {
        self.push(60, None, Event::Load { submitted: 9, accepted: 9, failed: 0 });
        self.push(60, None, Event::Settled { converged, why: "as it is".to_owned() });
        for node in ALL {
            self.hashes(node, 1, 150, block);
        }
        for (node, start) in std::mem::take(&mut self.alive) {
            self.exited(61, &node, start, Exit::Code(0), ExitCause::Asked, &[]);
        }
        self.push(61, None, Event::RunEnded);
    }

    fn verdict(&self) -> Judgement {
        judge(&self.records)
    }
}

const ALL: [&str; 5] = ["v0", "v1", "v2", "v3", "late"];

/// A full node beside four validators that ended by itself twice and is started for the third time.
fn third_start() -> Run {
    let mut run = Run::new(Vec::new(), Expect::default());
    run.follow(1, 60, &ALL[..4]);
    for start in 1..=2 {
        run.started(u64::from(start), "late", start);
        run.exited(u64::from(start), "late", start, Exit::Code(1), ExitCause::Own, &["error: boom"]);
    }
    run.started(3, "late", 3);
    run
}

fn block(height: u64) -> (String, String) {
    (format!("b{height:04x}"), format!("a{height:04x}"))
}

fn healthy() -> Run {
    let mut run = Run::new(Vec::new(), Expect::default());
    for node in ALL {
        run.started(0, node, 1);
    }
    run.follow(1, 60, &ALL);
    run.end(true);
    run
}

fn landed(window: u64) -> Landed {
    let done = BTreeMap::from([("blockstore.db".to_owned(), StoreProgress { syncs: 1, writes: 0, emptied: false })]);
    Landed {
        height: 120,
        height_source: HeightSource::Decoded,
        store: "state.db".to_owned(),
        sync: Some(1),
        write: Some(WriteAt::First),
        phase: Phase::Before,
        mode: Mode::BlockSync,
        window,
        done,
    }
}

/// The late node is killed at second 20 and left these heights.
fn killed(exit: Exit, stored: Option<Heights>, handshake: Option<Heights>) -> Run {
    let mut run = Run::new(vec![kill()], Expect::default());
    for node in ALL {
        run.started(0, node, 1);
    }
    run.follow(1, 60, &["v0", "v1", "v2", "v3"]);
    let fault = kill().id;
    run.status(15, "late", 89, true);
    run.agent(20, "late", NodeEvent::Landed { fault: fault.clone(), start: 1, landed: landed(31), held_us: 9 });
    run.exited(20, "late", 1, exit, ExitCause::Fault(fault), &[]);
    if let Some(heights) = stored {
        run.push(20, Some("late"), Event::Stored { after_start: 1, heights });
    }
    run.started(21, "late", 2);
    if let Some(heights) = handshake {
        run.agent(21, "late", NodeEvent::Handshake { start: 2, heights, line: String::new() });
    }
    run.follow(25, 60, &["late"]);
    run.end(true);
    run
}

fn found(judgement: &Judgement) -> Vec<(Verdict, Option<&str>, Option<u64>)> {
    judgement.findings.iter().map(|f| (f.verdict, f.node.as_deref(), f.height)).collect()
}

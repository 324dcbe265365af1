//! The agent with real processes: what is seen, what is held, what a kill leaves behind.

#![expect(clippy::unwrap_used, reason = "every function here is part of a test, and a panic is its failure")]

mod observe;
mod program;
mod server;

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use midflush::agent::Supervisor;
use midflush::agent_client::protocol::{AgentRecord, Arm, ArmAction, Signal, StartRequest};
use midflush::timeline::{
    Commit, Errno, Exit, ExitCause, FaultId, HeightMark, HeightSource, Heights, Landed, Latency, Layout, LogMark,
    LogMeaning, Mode, NodeEvent, Store, Tier,
};

use program::{BIG, PROGRAM};

/// Longest wait for anything in these tests; only a failure takes so long.
const DEADLINE: Duration = Duration::from_secs(60);

fn layout() -> Layout {
    let store =
        |name: &str, folder: &str| Store { name: name.into(), paths: vec![format!("{folder}/")], except: Vec::new() };
    let commit = |store: &str, sync, advances| Commit {
        store: store.into(),
        sync,
        modes: Vec::new(),
        advances,
        what: "a commit".into(),
    };
    let mark = |token: &str, meaning| LogMark { tokens: vec![token.into()], meaning };
    Layout {
        stores: vec![
            store("blockstore.db", "blocks"),
            store("state.db", "state"),
            store("application.db", "app"),
            store("cs.wal", "wal"),
            store("other.db", "other"),
        ],
        flush: vec![
            commit("blockstore.db", Some(1), None),
            commit("state.db", Some(1), None),
            commit("application.db", None, None),
            commit("state.db", Some(2), None),
        ],
        height_mark: Some(HeightMark { store: "blockstore.db".into(), prefix: "H:".into() }),
        log_marks: vec![
            mark("mode=block_sync", LogMeaning::Mode(Mode::BlockSync)),
            mark("mode=consensus", LogMeaning::Mode(Mode::Consensus)),
            mark(
                "handshake",
                LogMeaning::Handshake { app: "app".into(), state: "state".into(), store: "store".into() },
            ),
        ],
    }
}

fn request(program: &str, tier: Tier) -> StartRequest {
    let own = std::env::current_exe().unwrap().to_string_lossy().into_owned();
    let arguments = ["--exact", "agent::program::program", "--nocapture", "--test-threads=1"];
    StartRequest {
        command: [own].into_iter().chain(arguments.map(str::to_owned)).collect(),
        input: String::new(),
        env: BTreeMap::from([(PROGRAM.to_owned(), program.to_owned())]),
        tier,
        layout: layout(),
        sync_latency: BTreeMap::new(),
        seed: 7,
        height: 0,
        rpc: None,
        arms: Vec::new(),
        output_max: 1 << 20,
    }
}

fn fault(name: &str) -> FaultId {
    FaultId { name: name.to_owned(), occurrence: 1 }
}

fn arm(address: &str, action: ArmAction) -> Arm {
    Arm { fault: fault("aimed"), address: serde_yaml::from_str(address).unwrap(), action }
}

/// Waits for an event among those after `after`; all events up to it.
fn until(supervisor: &Supervisor, after: u64, wanted: impl Fn(&NodeEvent) -> bool) -> Vec<AgentRecord> {
    let deadline = Instant::now() + DEADLINE;
    loop {
        let seen = supervisor.events(after);
        if let Some(at) = seen.iter().position(|record| wanted(&record.event)) {
            return seen[..=at].to_vec();
        }
        assert!(Instant::now() < deadline, "not seen in time: {seen:#?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

fn exited(event: &NodeEvent) -> bool {
    matches!(event, NodeEvent::Exited { .. })
}

/// Starts, waits for the end, returns all events.
fn run(home: &Path, request: StartRequest) -> Vec<AgentRecord> {
    let supervisor = Supervisor::new(home).unwrap();
    supervisor.start(request).unwrap();
    until(&supervisor, 0, exited)
}

fn landed(events: &[AgentRecord]) -> &Landed {
    let found = events.iter().find_map(|record| match &record.event {
        NodeEvent::Landed { landed, .. } => Some(landed),
        _ => None,
    });
    found.unwrap_or_else(|| panic!("nothing landed: {events:#?}"))
}

fn end(events: &[AgentRecord]) -> (&Exit, &ExitCause) {
    match &events.last().unwrap().event {
        NodeEvent::Exited { exit, cause, .. } => (exit, cause),
        other => panic!("{other:?} is not the last event"),
    }
}

fn holes(events: &[AgentRecord]) -> Vec<String> {
    let hole = |record: &AgentRecord| match &record.event {
        NodeEvent::CoverageHole { hole, detail } => Some(format!("{hole}: {detail}")),
        _ => None,
    };
    events.iter().filter_map(hole).collect()
}

/// Syncs by store over all tallies.
fn syncs(events: &[AgentRecord]) -> BTreeMap<String, u64> {
    let mut sum = BTreeMap::new();
    for record in events {
        if let NodeEvent::Tally(tally) = &record.event {
            for (store, syncs) in &tally.syncs {
                *sum.entry(store.clone()).or_default() += syncs;
            }
        }
    }
    sum
}

fn stored(home: &Path) -> Heights {
    let height = |path: &str| {
        let text = fs::read_to_string(home.join(path)).unwrap_or_default();
        Some(text.get(2..12).and_then(|digits| digits.trim().parse().ok()).unwrap_or(0))
    };
    Heights { app: height("app/1"), state: height("state/1"), store: height("blocks/1") }
}

#[test]
fn a_kill_leaves_what_had_returned_and_nothing_of_what_was_held() {
    for (address, heights) in [
        ("{ height: 3, store: blockstore.db, sync: 1, write: first, phase: before }", (2, 2, 2)),
        ("{ height: 3, store: blockstore.db, sync: 1, write: first, phase: after }", (2, 2, 3)),
        ("{ height: 3, store: blockstore.db, sync: 1, write: last, phase: after }", (2, 2, 3)),
        ("{ height: 3, store: blockstore.db, sync: 1, phase: before }", (2, 2, 3)),
        ("{ height: 3, store: state.db, sync: 1, phase: after }", (2, 2, 3)),
        ("{ height: 3, store: application.db, write: first, phase: before }", (2, 2, 3)),
        ("{ height: 3, store: application.db, write: first, phase: after }", (3, 2, 3)),
        ("{ height: 3, store: state.db, sync: 2, write: first, phase: before, mode: block_sync }", (3, 2, 3)),
        ("{ height: 3, store: state.db, sync: 2, write: 1, phase: after, window: 1 }", (3, 3, 3)),
        ("{ height: 3, store: state.db, sync: 2, phase: after }", (3, 3, 3)),
    ] {
        let home = tempfile::tempdir().unwrap();
        let mut request = request("chain", Tier::Record);
        request.arms = vec![arm(address, ArmAction::Kill)];
        let events = run(home.path(), request);
        let (app, state, store) = heights;
        assert_eq!(stored(home.path()), Heights::new(app, state, store), "{address}");
        let landed = landed(&events);
        assert_eq!((landed.height, landed.window, landed.mode), (3, 1, Mode::BlockSync), "{address}");
        assert_eq!(end(&events), (&Exit::Signal(9), &ExitCause::Fault(fault("aimed"))), "{address}");
        assert_eq!(holes(&events), [""; 0], "{address}");
    }
}

#[test]
fn a_file_that_is_emptied_to_be_written_anew_holds_nothing_until_its_first_write() {
    for (address, app, emptied) in [
        ("{ height: 3, store: state.db, sync: 1, phase: after }", 2, false),
        ("{ height: 3, store: application.db, write: first, phase: before }", 0, true),
        ("{ height: 3, store: application.db, write: first, phase: after }", 3, true),
        ("{ height: 3, store: state.db, sync: 2, write: first, phase: before }", 3, true),
    ] {
        let home = tempfile::tempdir().unwrap();
        let mut request = request("rewriter", Tier::Record);
        request.arms = vec![arm(address, ArmAction::Kill)];
        let events = run(home.path(), request);
        assert_eq!(stored(home.path()), Heights::new(app, 2, 3), "{address}");
        let landed = landed(&events);
        assert_eq!(landed.done["application.db"].emptied, emptied, "{address}");
    }
}

#[test]
fn what_landed_says_what_every_store_had_done() {
    let home = tempfile::tempdir().unwrap();
    let mut request = request("chain", Tier::Record);
    request.arms =
        vec![arm("{ height: 5.., store: state.db, sync: 2, phase: before, mode: consensus }", ArmAction::Kill)];
    let events = run(home.path(), request);
    let landed = landed(&events);
    assert_eq!((landed.height, landed.height_source), (5, HeightSource::Decoded));
    let done = |store: &str| (landed.done[store].syncs, landed.done[store].writes);
    assert_eq!((done("blockstore.db"), done("state.db"), done("application.db")), ((1, 0), (1, 1), (0, 1)));
}

#[test]
fn a_restart_counts_on_from_the_handshake() {
    let home = tempfile::tempdir().unwrap();
    let supervisor = Supervisor::new(home.path()).unwrap();
    let mut after = 0;
    for height in [3, 6, 7, 9] {
        let mut request = request("chain", Tier::Record);
        let address = format!("{{ height: {height}, store: state.db, sync: 1, write: first, phase: before }}");
        request.arms = vec![arm(&address, ArmAction::Kill)];
        supervisor.start(request).unwrap();
        let events = until(&supervisor, after, exited);
        after = events.last().unwrap().seq;
        assert_eq!(landed(&events).height, height);
        assert_eq!(holes(&events), [""; 0]);
    }
}

#[test]
fn a_cut_tears_no_write_of_another_thread() {
    for round in 0..4 {
        let home = tempfile::tempdir().unwrap();
        let mut request = request("writers", Tier::Record);
        let address = format!("{{ height: {}.., store: state.db, sync: 1, phase: before }}", 5 + round);
        request.arms = vec![arm(&address, ArmAction::Kill)];
        let events = run(home.path(), request);
        assert_eq!(holes(&events), [""; 0]);
        for n in 0..3 {
            let bytes = fs::read(home.path().join(format!("other/{n}"))).unwrap();
            assert_eq!(bytes.len(), BIG, "file {n}");
            assert!(bytes.iter().all(|byte| *byte == bytes[0]), "a write to file {n} is torn");
        }
    }
}

/// The kernel offers a signal to the process to its first thread, and that one waits for the agent's answer.
#[test]
fn a_cut_stops_the_others_when_the_first_thread_is_the_one_held() {
    let home = tempfile::tempdir().unwrap();
    // libtest opens the file before the program makes its folder.
    fs::create_dir(home.path().join("blocks")).unwrap();
    let mut request = request("leader", Tier::Record);
    request.command.push("--logfile=blocks/log".to_owned());
    let address = "{ height: 1, store: blockstore.db, sync: 1, write: first, phase: before }";
    request.arms = vec![arm(address, ArmAction::Kill)];
    let events = run(home.path(), request);
    assert_eq!(landed(&events).height, 1);
    assert_eq!(holes(&events), [""; 0]);
}

#[test]
fn an_aimed_stop_delivers_sigterm_and_lets_the_event_go() {
    let home = tempfile::tempdir().unwrap();
    let mut request = request("chain", Tier::Record);
    request.arms = vec![arm("{ height: 3, store: state.db, sync: 1, phase: before }", ArmAction::Stop)];
    let events = run(home.path(), request);
    assert_eq!(landed(&events).height, 3);
    assert_eq!(end(&events), (&Exit::Signal(15), &ExitCause::Fault(fault("aimed"))));
}

#[test]
fn a_call_that_fails_is_not_made_and_the_end_that_follows_is_the_faults() {
    for (address, heights) in [
        ("{ height: 3, store: state.db, sync: 1, phase: before }", (2, 2, 3)),
        ("{ height: 3, store: application.db, write: first, phase: before }", (2, 2, 3)),
        ("{ height: 3, store: blockstore.db, sync: 1, write: first, phase: before }", (2, 2, 2)),
    ] {
        let home = tempfile::tempdir().unwrap();
        let mut request = request("chain", Tier::Record);
        request.arms = vec![arm(address, ArmAction::Fail(Errno::NoSpace))];
        let events = run(home.path(), request);
        assert_eq!(landed(&events).height, 3, "{address}");
        let (app, state, store) = heights;
        assert_eq!(stored(home.path()), Heights::new(app, state, store), "{address}");
        // The program panics at the first error.
        assert_eq!(end(&events), (&Exit::Code(101), &ExitCause::Fault(fault("aimed"))), "{address}");
        let NodeEvent::Exited { tail, .. } = &events.last().unwrap().event else { unreachable!("checked above") };
        assert!(tail.iter().any(|line| line.contains("code: 28")), "{tail:?}");
    }
    let home = tempfile::tempdir().unwrap();
    let supervisor = Supervisor::new(home.path()).unwrap();
    let mut request = request("chain", Tier::Record);
    request.arms = vec![arm("{ store: state.db, sync: 1, phase: after }", ArmAction::Fail(Errno::Io))];
    supervisor.start(request).unwrap_err();
}

#[test]
fn a_sync_that_is_not_made_succeeds_and_counts() {
    let home = tempfile::tempdir().unwrap();
    let events = run(home.path(), request("pipe", Tier::Observe));
    assert_ne!(end(&events).0, &Exit::Code(0), "a pipe cannot be synced");
    let mut request = request("pipe", Tier::Observe);
    request.sync_latency = BTreeMap::from([("*".to_owned(), Latency::NotMade)]);
    let events = run(home.path(), request);
    assert_eq!(end(&events), (&Exit::Code(0), &ExitCause::Own));
    let flushes = events.iter().filter_map(|record| match &record.event {
        NodeEvent::Tally(tally) => Some(tally.flushes),
        _ => None,
    });
    assert_eq!(flushes.sum::<u64>(), 3);
}

#[test]
fn a_held_sync_of_one_store_does_not_stall_another() {
    let home = tempfile::tempdir().unwrap();
    let mut request = request("two", Tier::Observe);
    request.sync_latency = BTreeMap::from([("blockstore.db".to_owned(), Latency::Fixed(2_000_000))]);
    let events = run(home.path(), request);
    assert_eq!(end(&events), (&Exit::Code(0), &ExitCause::Own));
    let NodeEvent::Exited { tail, .. } = &events.last().unwrap().event else { unreachable!("checked above") };
    let line = |text: &str| tail.iter().position(|line| line.ends_with(text)).expect(text);
    assert!(line("quick is done") < line("slow is done"), "{tail:?}");
    assert_eq!(syncs(&events), BTreeMap::from([("blockstore.db".to_owned(), 1), ("state.db".to_owned(), 20)]));
}

#[test]
fn an_injected_latency_is_what_a_sync_takes_in_all() {
    let home = tempfile::tempdir().unwrap();
    let mut request = request("storm", Tier::Observe);
    request.sync_latency = BTreeMap::from([("*".to_owned(), Latency::Fixed(20_000))]);
    let events = run(home.path(), request);
    let mut count = 0;
    for record in &events {
        if let NodeEvent::Tally(tally) = &record.event {
            for (store, latency) in &tally.latency {
                count += latency.count;
                println!("{store}: asked for 20000 us, got p50 {} p99 {} us", latency.p50_us, latency.p99_us);
                assert!(latency.sum_us / latency.count >= 20_000, "never shorter than asked for");
            }
        }
    }
    assert_eq!(count, 100);
}

#[test]
fn events_are_counted_once_in_a_storm_of_signals() {
    for tier in [Tier::Observe, Tier::Record] {
        let home = tempfile::tempdir().unwrap();
        let events = run(home.path(), request("storm", tier));
        assert_eq!(end(&events), (&Exit::Code(0), &ExitCause::Own));
        assert_eq!(syncs(&events), BTreeMap::from([("blockstore.db".to_owned(), 100)]), "{tier:?}");
    }
}

#[test]
fn a_descriptor_that_is_used_again_is_looked_up_again() {
    let home = tempfile::tempdir().unwrap();
    let events = run(home.path(), request("reuse", Tier::Observe));
    let expected = [("application.db", 150), ("blockstore.db", 50), ("state.db", 100)];
    assert_eq!(syncs(&events), expected.map(|(store, count)| (store.to_owned(), count)).into());
}

#[test]
fn a_synced_write_and_a_rename_can_be_aimed_at() {
    for (address, left) in [
        ("{ height: 3, store: application.db, sync: 1, phase: before }", "H:2"),
        ("{ height: 3, store: application.db, sync: 1, phase: after }", "H:2"),
        ("{ height: 3, store: application.db, sync: 2, write: first, phase: before }", "H:2"),
        ("{ height: 3, store: application.db, sync: 2, write: first, phase: after }", "H:3"),
    ] {
        let home = tempfile::tempdir().unwrap();
        let mut request = request("synced", Tier::Record);
        request.layout.flush.truncate(1);
        request.layout.flush.extend(layout().flush.into_iter().filter(|commit| commit.store == "application.db"));
        request.arms = vec![arm(address, ArmAction::Kill)];
        let events = run(home.path(), request);
        assert_eq!(landed(&events).height, 3, "{address}");
        assert_eq!(fs::read_to_string(home.path().join("app/1")).unwrap(), left, "{address}");
    }
}

#[test]
fn a_fault_taken_back_says_what_there_was_instead() {
    let home = tempfile::tempdir().unwrap();
    let supervisor = Supervisor::new(home.path()).unwrap();
    supervisor.start(request("chain", Tier::Record)).unwrap();
    supervisor.arm(arm("{ store: state.db, sync: 7, phase: before }", ArmAction::Kill)).unwrap();
    until(&supervisor, 0, |event| matches!(event, NodeEvent::Tally(tally) if tally.flushes > 0));
    supervisor.disarm(&fault("aimed")).unwrap();
    let events = until(&supervisor, 0, |event| matches!(event, NodeEvent::NotLanded { .. }));
    let NodeEvent::NotLanded { seen, nearest, .. } = &events.last().unwrap().event else { unreachable!("waited for") };
    assert_eq!(nearest.as_deref(), Some("{ store: state.db, sync: 2, phase: before }"));
    assert!(seen.contains(&"{ store: application.db, write: first, phase: before }".to_owned()), "{seen:?}");
    supervisor.disarm(&fault("aimed")).unwrap_err();
    supervisor.arm(arm("{ store: state.db, phase: before }", ArmAction::Kill)).unwrap_err();
    supervisor.arm(arm("{ store: nowhere.db, sync: 1, phase: before }", ArmAction::Kill)).unwrap_err();
    supervisor.signal(Signal::Kill, None).unwrap();
    let events = until(&supervisor, 0, exited);
    assert_eq!(end(&events), (&Exit::Signal(9), &ExitCause::Asked));
}

#[test]
fn without_a_filter_the_output_is_still_read() {
    let home = tempfile::tempdir().unwrap();
    let supervisor = Supervisor::new(home.path()).unwrap();
    supervisor.start(request("chain", Tier::None)).unwrap();
    until(&supervisor, 0, |event| *event == NodeEvent::ModeChanged { start: 1, mode: Mode::Consensus });
    supervisor.start(request("chain", Tier::None)).unwrap_err();
    supervisor.signal(Signal::Pause, None).unwrap();
    supervisor.signal(Signal::Resume, None).unwrap();
    supervisor.signal(Signal::Terminate, Some(fault("plain"))).unwrap();
    let events = until(&supervisor, 0, exited);
    assert_eq!(end(&events), (&Exit::Signal(15), &ExitCause::Fault(fault("plain"))));
    supervisor.signal(Signal::Terminate, None).unwrap_err();
    let log = fs::read_to_string(supervisor.log_path(1)).unwrap();
    assert!(log.contains("enter mode=consensus"), "{log}");
}

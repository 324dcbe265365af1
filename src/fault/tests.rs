//! The schedule against what a run may see, in order and out of order.

use std::time::Duration;

use proptest::prelude::*;

use super::{Command, Input, Schedule};
use crate::agent_client::protocol::{ArmAction, Signal};
use crate::plan::{ChainPlan, FaultPlan, NodePlan, Plan, ReferencePlan, StartAt, Trigger};
use crate::timeline::{Address, Errno, Expect, FaultId, FaultKind, FaultSetup, HeightRange, Phase, Role};

fn node(name: &str) -> NodePlan {
    NodePlan {
        name: name.to_owned(),
        group: name.to_owned(),
        role: Role::Validator,
        power: 10,
        build: None,
        key_seed: String::new(),
        start: StartAt::Run,
        holds_built: true,
        storage: None,
        peers: Vec::new(),
        sync_latency: Default::default(),
        watch: None,
        options: Default::default(),
    }
}

fn id(name: &str) -> FaultId {
    FaultId { name: name.to_owned(), occurrence: 1 }
}

fn fault(name: &str, kind: FaultKind, node: &str, trigger: Trigger) -> FaultPlan {
    FaultPlan {
        setup: FaultSetup { id: id(name), kind, node: node.to_owned(), asked: None, errno: None, when: String::new() },
        trigger,
        down_ms: 500,
        upgrade: None,
        lives_on_ms: None,
        give_up_ms: 60_000,
    }
}

fn aimed(name: &str, node: &str, from: u64) -> FaultPlan {
    let mut plan = fault(name, FaultKind::Kill, node, Trigger::Address);
    plan.setup.asked = Some(Address {
        height: HeightRange { from, to: None },
        store: "state.db".to_owned(),
        sync: Some(1),
        write: None,
        phase: Phase::Before,
        mode: None,
        window: None,
    });
    plan
}

fn schedule(faults: Vec<FaultPlan>) -> Schedule {
    let plan = Plan {
        name: "test".to_owned(),
        seed: 1,
        chain_id: "test-1".to_owned(),
        initial_height: 1,
        built_blocks: 0,
        genesis_time: "2026-01-01T00:00:00Z".to_owned(),
        chain: ChainPlan::Reference(ReferencePlan {
            block_time_ms: 200,
            halt_height: None,
            options: Default::default(),
        }),
        application: None,
        nodes: vec![node("val-1"), node("val-2")],
        load: None,
        faults,
        expect: Expect::default(),
    };
    Schedule::new(&plan, Duration::from_secs(3_600))
}

/// The commands without their words, which other tests read.
fn brief(commands: &[Command]) -> Vec<String> {
    commands
        .iter()
        .map(|command| match command {
            Command::Arm { fault, node, .. } => format!("arm {} {node}", fault.name),
            Command::Disarm { fault, node } => format!("disarm {} {node}", fault.name),
            Command::Signal { fault, node, signal, .. } => format!("{signal:?} {} {node}", fault.name).to_lowercase(),
            Command::Finish { fault, node } => format!("finish {} {node}", fault.name),
            Command::Start { fault, node } => format!("start {} {node}", fault.name),
            Command::Miss { fault, .. } => format!("miss {}", fault.name),
            Command::Lost { fault, .. } => format!("lost {}", fault.name),
        })
        .collect()
}

fn running(node: &str) -> Input {
    Input::Running { node: node.to_owned() }
}

fn exited(node: &str) -> Input {
    Input::Exited { node: node.to_owned() }
}

fn not_landed(name: &str) -> Input {
    Input::NotLanded { fault: id(name), seen: "the last flush had 2 syncs".to_owned() }
}

fn landed(name: &str) -> Input {
    Input::Landed { fault: id(name) }
}

fn given_back(name: &str) -> Input {
    Input::GivenBack { fault: id(name) }
}

#[test]
fn aimed_faults_of_one_node_are_armed_one_after_another() {
    let mut schedule = schedule(vec![aimed("a", "val-1", 0), aimed("b", "val-1", 0)]);
    let commands = schedule.on(10, running("val-1"));
    assert!(
        matches!(&commands[..], [Command::Arm { fault, action: ArmAction::Kill, .. }] if *fault == id("a")),
        "{commands:?}"
    );
    assert!(schedule.on(100, landed("a")).is_empty());
    assert!(schedule.on(101, exited("val-1")).is_empty());
    assert_eq!(schedule.wake_at(), Some(601));
    assert!(schedule.on(600, Input::Tick).is_empty(), "down for 500 ms");
    assert_eq!(brief(&schedule.on(601, Input::Tick)), ["start a val-1"]);
    assert!(schedule.on(700, running("val-1")).is_empty(), "the first fault still holds the node");
    assert_eq!(brief(&schedule.on(900, given_back("a"))), ["arm b val-1"]);
    assert!(!schedule.finished());
    for input in [landed("b"), exited("val-1"), Input::Tick] {
        schedule.on(1000, input);
    }
    assert_eq!(brief(&schedule.on(1500, Input::Tick)), ["start b val-1"]);
    schedule.on(1600, given_back("b"));
    assert!(schedule.finished());
    assert_eq!(schedule.wake_at(), None);
}

#[test]
fn a_node_that_lives_on_after_a_failed_call_is_killed() {
    let failing = || {
        let mut plan = aimed("a", "val-1", 0);
        plan.setup.kind = FaultKind::Fail;
        plan.setup.errno = Some(Errno::NoSpace);
        plan.lives_on_ms = Some(3_000);
        let mut schedule = schedule(vec![plan]);
        let commands = schedule.on(10, running("val-1"));
        assert!(
            matches!(&commands[..], [Command::Arm { action: ArmAction::Fail(Errno::NoSpace), .. }]),
            "{commands:?}"
        );
        assert!(schedule.on(100, landed("a")).is_empty());
        assert_eq!(schedule.holder("val-1"), Some(id("a")), "its end is no surprise");
        schedule
    };
    let mut ends = failing();
    assert!(ends.on(200, exited("val-1")).is_empty());
    assert_eq!(brief(&ends.on(700, Input::Tick)), ["start a val-1"]);
    let mut lives_on = failing();
    assert!(lives_on.on(3_099, Input::Tick).is_empty());
    assert_eq!(brief(&lives_on.on(3_100, Input::Tick)), ["finish a val-1"]);
    lives_on.on(3_110, exited("val-1"));
    assert_eq!(brief(&lives_on.on(3_610, Input::Tick)), ["start a val-1"]);
    lives_on.on(3_700, given_back("a"));
    assert!(lives_on.finished());
}

#[test]
fn a_fault_can_be_armed_before_the_first_instruction() {
    let mut schedule = schedule(vec![aimed("a", "val-1", 0)]);
    assert!(schedule.on(0, Input::Tick).is_empty(), "the node is not there yet");
    assert_eq!(brief(&schedule.on(0, Input::Starting { node: "val-1".to_owned() })), ["arm a val-1"]);
    assert!(schedule.on(50, running("val-1")).is_empty(), "armed once");
}

#[test]
fn height_and_time_fire_when_reached() {
    let at_height = fault("height", FaultKind::Stop, "val-1", Trigger::Height(40));
    let at_time = fault("time", FaultKind::Kill, "val-2", Trigger::AtMs(5_000));
    let mut schedule = schedule(vec![at_height, at_time]);
    for node in ["val-1", "val-2"] {
        assert!(schedule.on(0, running(node)).is_empty());
    }
    assert!(schedule.on(1_000, Input::Height(39)).is_empty());
    let commands = schedule.on(2_000, Input::Height(41));
    assert_eq!(brief(&commands), ["terminate height val-1"]);
    assert!(matches!(&commands[0], Command::Signal { why, .. } if why == "the chain is at height 41"));
    assert_eq!(schedule.wake_at(), Some(5_000));
    assert_eq!(brief(&schedule.on(5_000, Input::Tick)), ["kill time val-2"]);
}

#[test]
fn a_pause_ends_by_itself() {
    let mut schedule = schedule(vec![fault("p", FaultKind::Pause, "val-1", Trigger::AtMs(100))]);
    schedule.on(0, running("val-1"));
    assert_eq!(brief(&schedule.on(100, Input::Tick)), ["pause p val-1"]);
    assert_eq!(schedule.holder("val-1"), Some(id("p")));
    let commands = schedule.on(600, Input::Tick);
    assert!(matches!(&commands[..], [Command::Signal { signal: Signal::Resume, .. }]), "{commands:?}");
    schedule.on(650, given_back("p"));
    assert!(schedule.finished());
}

#[test]
fn after_waits_until_the_other_node_is_given_back() {
    let first = fault("a", FaultKind::Kill, "val-1", Trigger::AtMs(0));
    let second = fault("b", FaultKind::Kill, "val-2", Trigger::After { fault: "a".to_owned(), ms: 250 });
    let mut schedule = schedule(vec![first, second]);
    schedule.on(0, running("val-2"));
    assert_eq!(brief(&schedule.on(0, running("val-1"))), ["kill a val-1"]);
    schedule.on(10, exited("val-1"));
    assert_eq!(brief(&schedule.on(510, Input::Tick)), ["start a val-1"]);
    assert!(schedule.on(900, given_back("a")).is_empty());
    assert_eq!(schedule.wake_at(), Some(1_150));
    assert_eq!(brief(&schedule.on(1_150, Input::Tick)), ["kill b val-2"]);
}

#[test]
fn what_follows_a_missed_fault_is_missed() {
    let first = fault("a", FaultKind::Kill, "val-1", Trigger::Height(40));
    let second = fault("b", FaultKind::Kill, "val-2", Trigger::After { fault: "a".to_owned(), ms: 250 });
    let mut schedule = schedule(vec![first, second]);
    let commands = schedule.on(60_000, Input::Tick);
    assert_eq!(brief(&commands), ["miss a", "miss b"]);
    assert!(
        matches!(&commands[0], Command::Miss { why, .. } if why == "the chain stayed at height 0 for 60.0 s"),
        "{commands:?}"
    );
    assert!(schedule.finished());
}

#[test]
fn an_address_that_is_not_met_is_taken_back_and_says_what_was_seen() {
    let mut schedule = schedule(vec![aimed("a", "val-1", 100)]);
    schedule.on(0, running("val-1"));
    schedule.on(50_000, Input::Height(99));
    assert_eq!(schedule.wake_at(), Some(110_000), "below the height only a standstill counts");
    schedule.on(80_000, Input::Height(100));
    assert!(schedule.on(139_999, Input::Tick).is_empty());
    assert_eq!(brief(&schedule.on(140_000, Input::Tick)), ["disarm a val-1"]);
    let commands = schedule.on(140_001, not_landed("a"));
    let wanted = "the address was not met within 60.0 s; the last flush had 2 syncs";
    assert!(matches!(&commands[..], [Command::Miss { why, .. }] if why == wanted), "{commands:?}");
    assert!(schedule.finished());
}

#[test]
fn a_silent_agent_does_not_hold_up_the_run() {
    let mut schedule = schedule(vec![aimed("a", "val-1", 0)]);
    schedule.on(0, running("val-1"));
    schedule.on(0, Input::Height(1));
    assert_eq!(brief(&schedule.on(60_000, Input::Tick)), ["disarm a val-1"]);
    assert_eq!(brief(&schedule.on(65_000, Input::Tick)), ["miss a"]);
}

#[test]
fn a_timed_fault_goes_before_an_armed_one_which_is_armed_again() {
    let timed = fault("t", FaultKind::Kill, "val-1", Trigger::AtMs(1_000));
    let mut schedule = schedule(vec![aimed("a", "val-1", 0), timed]);
    assert_eq!(brief(&schedule.on(0, running("val-1"))), ["arm a val-1"]);
    assert_eq!(brief(&schedule.on(1_000, Input::Tick)), ["disarm a val-1"]);
    assert_eq!(brief(&schedule.on(1_001, not_landed("a"))), ["kill t val-1"]);
    schedule.on(1_002, exited("val-1"));
    assert_eq!(brief(&schedule.on(1_502, Input::Tick)), ["start t val-1"]);
    assert_eq!(brief(&schedule.on(1_600, given_back("t"))), ["arm a val-1"]);
}

#[test]
fn an_armed_fault_that_lands_while_it_is_taken_back_keeps_the_node() {
    let timed = fault("t", FaultKind::Kill, "val-1", Trigger::AtMs(1_000));
    let mut schedule = schedule(vec![aimed("a", "val-1", 0), timed]);
    schedule.on(0, running("val-1"));
    schedule.on(1_000, Input::Tick);
    assert!(schedule.on(1_001, landed("a")).is_empty());
    schedule.on(1_002, exited("val-1"));
    assert_eq!(brief(&schedule.on(1_502, Input::Tick)), ["start a val-1"]);
    assert_eq!(brief(&schedule.on(1_600, given_back("a"))), ["kill t val-1"]);
}

#[test]
fn an_armed_fault_is_armed_again_after_its_node_ended_by_itself() {
    let mut schedule = schedule(vec![aimed("a", "val-1", 0)]);
    schedule.on(0, running("val-1"));
    schedule.on(100, not_landed("a"));
    schedule.on(101, exited("val-1"));
    assert_eq!(brief(&schedule.on(5_000, running("val-1"))), ["arm a val-1"]);
}

#[test]
fn a_node_that_does_not_come_back_is_lost_and_later_faults_on_it_are_missed() {
    let later = fault("b", FaultKind::Kill, "val-1", Trigger::AtMs(50));
    let mut schedule = schedule(vec![fault("a", FaultKind::Kill, "val-1", Trigger::AtMs(0)), later]);
    schedule.on(0, running("val-1"));
    schedule.on(10, exited("val-1"));
    assert_eq!(brief(&schedule.on(510, Input::Tick)), ["start a val-1"]);
    assert_eq!(brief(&schedule.on(900, exited("val-1"))), ["lost a"]);
    assert_eq!(brief(&schedule.on(60_900, Input::Tick)), ["miss b"]);
    assert!(schedule.finished());
}

#[test]
fn a_stop_that_the_node_ignores_is_reported() {
    let next = fault("n", FaultKind::Kill, "val-1", Trigger::AtMs(10));
    let mut schedule = schedule(vec![fault("s", FaultKind::Stop, "val-1", Trigger::AtMs(0)), next]);
    schedule.on(0, running("val-1"));
    schedule.on(10, Input::Tick);
    let commands = schedule.on(60_010, Input::Tick);
    assert_eq!(brief(&commands), ["lost s", "kill n val-1"], "the next one has the node");
    assert!(
        matches!(&commands[0], Command::Lost { why, .. } if why.contains("did not end within 60.0 s")),
        "{commands:?}"
    );
}

#[test]
fn giving_up_ends_what_has_not_landed() {
    let timed = fault("t", FaultKind::Kill, "val-2", Trigger::AtMs(90_000));
    let mut schedule = schedule(vec![aimed("a", "val-1", 0), timed]);
    schedule.on(0, running("val-1"));
    let why = "the time limit ran out".to_owned();
    assert_eq!(brief(&schedule.on(1_000, Input::GiveUp { why })), ["disarm a val-1", "miss t"]);
    let commands = schedule.on(1_001, not_landed("a"));
    assert!(
        matches!(&commands[..], [Command::Miss { why, .. }] if why.starts_with("the time limit ran out; ")),
        "{commands:?}"
    );
    assert!(schedule.finished());
}

fn any_input() -> impl Strategy<Value = Input> {
    let nodes = prop::sample::select(vec!["val-1", "val-2", "nobody"]);
    let faults = prop::sample::select(vec!["a", "b", "c", "d", "e", "nothing"]);
    (0..8_u8, nodes, faults, 0..50_u64).prop_map(|(kind, node, fault, height)| match kind {
        0 => Input::Tick,
        1 => Input::Height(height),
        2 => Input::Starting { node: node.to_owned() },
        3 => running(node),
        4 => exited(node),
        5 => landed(fault),
        6 => not_landed(fault),
        _ => given_back(fault),
    })
}

proptest! {
    /// Whatever is seen, in whatever order: no panic, one fault a node at most, each fault is over once, and an end comes.
    #[test]
    fn every_order_of_inputs_comes_to_an_end(inputs in prop::collection::vec((0..3_000_u64, any_input()), 0..60)) {
        let mut schedule = schedule(vec![
            aimed("a", "val-1", 10),
            aimed("b", "val-1", 0),
            fault("c", FaultKind::Pause, "val-1", Trigger::AtMs(2_000)),
            fault("d", FaultKind::Restart, "val-2", Trigger::Height(20)),
            fault("e", FaultKind::Kill, "val-2", Trigger::After { fault: "a".to_owned(), ms: 5 }),
        ]);
        let mut now = 0;
        let mut commands = Vec::new();
        for (step, input) in inputs {
            now += step;
            commands.extend(schedule.on(now, input));
        }
        commands.extend(schedule.on(now, Input::GiveUp { why: "over".to_owned() }));
        for _ in 0..40 {
            let Some(at) = schedule.wake_at() else { break };
            prop_assert!(at > now, "a wake-up that is already over");
            now = at;
            commands.extend(schedule.on(now, Input::Tick));
        }
        prop_assert!(schedule.finished(), "still open: {:?}", schedule.open());
        for name in ["a", "b", "c", "d", "e"] {
            let ends = brief(&commands).iter().filter(|c| **c == format!("miss {name}") || **c == format!("lost {name}")).count();
            prop_assert!(ends <= 1, "{name} ended {ends} times");
        }
    }
}

#[test]
fn a_height_that_the_chain_cannot_reach_in_time_is_missed_and_holds_nothing_up() {
    let far = fault("far", FaultKind::Kill, "val-1", Trigger::Height(1_000_000));
    let mut schedule = schedule(vec![far, aimed("far aim", "val-2", 1_000_000), aimed("near", "val-2", 5)]);
    let running = |node: &str| Input::Running { node: node.to_owned() };
    assert!(schedule.on(0, running("val-1")).is_empty());
    let missed = |commands: Vec<Command>| -> Vec<String> {
        commands.into_iter().filter_map(|c| if let Command::Miss { why, .. } = c { Some(why) } else { None }).collect()
    };
    let why = missed(schedule.on(10, Input::Height(3)));
    assert_eq!(why.len(), 2, "{why:?}");
    assert!(why.iter().all(|why| why.starts_with("height 1000000 is 2 days 7 h away")), "{why:?}");
    let commands = schedule.on(20, running("val-2"));
    assert!(matches!(&commands[..], [Command::Arm { fault, .. }] if fault.name == "near"), "{commands:?}");
}

#[test]
fn a_chain_that_is_slower_than_its_block_time_is_not_followed_for_ever() {
    let mut schedule = schedule(vec![fault("late", FaultKind::Kill, "val-1", Trigger::Height(10_000))]);
    for minute in 0..60 {
        assert!(schedule.on(minute * 60_000, Input::Height(minute + 1)).is_empty(), "the chain moves");
    }
    let commands = schedule.on(3_600_000, Input::Height(61));
    let why = "the chain came to height 61 within 3600.0 s";
    assert!(matches!(&commands[..], [Command::Miss { why: said, .. }] if said == why), "{commands:?}");
    assert!(schedule.finished());
}

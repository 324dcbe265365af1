//! The reducer on a whole timeline and on its pieces.

use super::*;
use crate::report::sample;

/// The state just after the first record that `is` the one looked for.
fn after(is: impl Fn(&Record) -> bool) -> LiveState {
    let records = sample::records();
    let end = records.iter().position(is).expect("such a record");
    LiveState::of(&records[..=end])
}

#[test]
fn a_killed_node_is_down_until_its_next_start() {
    let down = after(|r| matches!(&r.event, Event::Node(NodeEvent::Exited { .. })));
    assert!(matches!(down.nodes["late"].doing, Doing::Down(7_603_000)), "{:?}", down.nodes["late"].doing);
    assert_eq!(down.faults[0].stage, FaultStage::Landed);
    assert_eq!((down.faults[0].exit, down.faults[0].after), (Some(Exit::Signal(9)), None));

    let back = after(|r| matches!(&r.event, Event::FaultReverted { .. }));
    assert_eq!(back.nodes["late"].doing, Doing::Starting);
    let fault = &back.faults[0];
    assert_eq!((fault.stage, fault.down_us), (FaultStage::Over, Some(497_000)));
    let landed = fault.landed.as_ref().unwrap();
    assert_eq!(fault.after, Some(Heights::new(900, 900, 1050)));
    assert_eq!(fault.height, Some(landed.height));
}

#[test]
fn a_silent_rpc_is_forgotten_with_the_next_answer() {
    let silent = after(|r| matches!(&r.event, Event::RpcSilent { .. }));
    assert!(silent.nodes["late"].rpc_silent.is_some());
    assert_eq!(LiveState::of(&sample::records()).nodes["late"].rpc_silent, None);
}

#[test]
fn a_resumed_node_is_in_its_mode_again() {
    let mut node = LiveState::of(&sample::records()[..20]).nodes["val-1"].clone();
    node.works_in(Mode::Consensus);
    node.agent_saw(1, &NodeEvent::Signalled { start: 1, signal: SIGSTOP });
    assert_eq!(node.doing, Doing::Paused);
    node.agent_saw(2, &NodeEvent::Signalled { start: 1, signal: SIGCONT });
    assert_eq!(node.doing, Doing::Working(Mode::Consensus));
}

#[test]
fn the_end_is_known() {
    let records = sample::records();
    let end = LiveState::of(&records);
    assert_eq!((end.phase.clone(), end.next_seq), (RunPhase::Ended, records.len() as u64));
    assert!(end.is_over() && !LiveState::of(&records[..records.len() - 1]).is_over());
    assert!(end.faults.iter().all(|f| f.stage == FaultStage::Over));
    assert_eq!(end.nodes["val-2"].start, 2);
    assert!(end.load.unwrap().accepted > 0);
}

//! A validator that decides alone: what a healthy one does after a crash, and what the planted defects of the live half do.

use std::fs::File;
use std::io::Write as _;

use serde_json::json;

use crate::node_net::{Net, Spec};

/// One validator, with a planted defect unless that is `None`.
fn alone(defect: Option<&str>) -> Net {
    let mut settings = json!({"block_time_ms": 20});
    if let Some(defect) = defect {
        settings["planted_defect"] = json!(defect);
    }
    Net::new(&Spec { validators: 1, full: 0, settings, full_settings: json!({}), built_blocks: 0 })
}

/// Runs the node to a height and kills it.
fn run_and_kill(net: &mut Net, height: u64) {
    net.start(0);
    net.until_height(&[0], height);
    net.kill(0);
}

/// Writes half a record behind the log of consensus.
fn tear_the_log(net: &Net) {
    let wal = net.home(0).join("data/cs.wal/wal");
    let mut file = File::options().append(true).open(wal).expect("a log");
    file.write_all(&[200, 0, 0, 0, 1, 2, 3]).expect("written");
}

#[test]
fn a_torn_log_is_repaired_and_the_node_goes_on() {
    let mut net = alone(None);
    run_and_kill(&mut net, 3);
    tear_the_log(&net);
    net.start(0);
    net.until_height(&[0], 6);
    assert!(net.log(0).contains("repaired consensus log torn_bytes=7"), "{}", net.log(0));
    assert!(!net.log(0).contains("refused to sign"), "{}", net.log(0));
}

#[test]
fn a_failed_write_ends_the_node_with_code_1() {
    let mut net = alone(None);
    run_and_kill(&mut net, 3);
    let temporary = net.home(0).join("data/sign_state.tmp");
    // The kill may have come between the write and the renaming.
    let _ = std::fs::remove_file(&temporary);
    std::fs::create_dir(temporary).expect("something in the way of the sign state");
    net.start(0);
    assert_eq!(net.wait(0).code(), Some(1), "{}", net.log(0));
    assert!(net.log(0).contains("ERROR stop reason="), "{}", net.log(0));
}

#[test]
fn planted_wal_tail_refused() {
    let mut net = alone(Some("wal-tail-refused"));
    run_and_kill(&mut net, 3);
    tear_the_log(&net);
    net.start(0);
    assert_eq!(net.wait(0).code(), Some(1), "{}", net.log(0));
}

#[test]
fn planted_silent_stall() {
    let mut net = alone(Some("silent-stall"));
    run_and_kill(&mut net, 3);
    let before = net.log(0).matches("mode=consensus").count();
    net.start(0);
    net.until("it answers", |net| net.rpc(0, "/status").is_some());
    let height = net.height(0);
    for _ in 0..50 {
        assert_eq!(net.height(0), height);
    }
    assert_eq!(net.terminate(0).code(), Some(0));
    assert_eq!(net.log(0).matches("mode=consensus").count(), before);
}

#[test]
fn planted_panic_on_the_second_restart_only() {
    let mut net = alone(Some("panic-second-restart"));
    run_and_kill(&mut net, 2);
    run_and_kill(&mut net, 3);
    net.start(0);
    assert_eq!(net.wait(0).code(), Some(101), "{}", net.log(0));
    assert!(net.log(0).contains("panicked at"), "{}", net.log(0));
}

#[test]
fn planted_flags_say_the_contrary() {
    let mut net = alone(Some("catching-up-stuck"));
    net.start(0);
    net.until_height(&[0], 3);
    let status = net.rpc(0, "/status").expect("a status");
    assert_eq!(status["sync_info"]["catching_up"], true);
}

//! Late nodes as processes: block sync, kills in the middle of it, stops while behind.

use serde_json::json;

use crate::node_net::{Net, Spec};

const BUILT: u64 = 500;
/// Position of the late node.
const LATE: usize = 2;

fn spec(full_settings: serde_json::Value) -> Spec {
    Spec { validators: 2, full: 1, settings: json!({"block_time_ms": 500}), full_settings, built_blocks: BUILT }
}

fn app_height(net: &Net) -> u64 {
    let info = net.rpc(LATE, "/abci_info");
    let height = info.as_ref().and_then(|i| i["response"]["last_block_height"].as_str());
    height.and_then(|h| h.parse().ok()).unwrap_or(0)
}

#[test]
fn a_late_deferred_node_killed_twice_in_block_sync_catches_up() {
    let mut net = Net::new(&spec(json!({"storage": "deferred", "flush": {"every_ms": 50}, "verify_window": 8})));
    net.start(0);
    net.start(1);
    net.until_height(&[0, 1], BUILT + 1);
    for part in [1, 2] {
        net.start(LATE);
        net.until("a part is synced", |net| app_height(net) > part * BUILT / 4);
        net.kill(LATE);
    }
    assert!(net.log(LATE).contains("mode=block_sync"), "{}", net.log(LATE));
    net.start(LATE);
    net.until_height(&[LATE], BUILT + 2);
    net.until("it follows", |net| net.log(LATE).contains("mode=consensus"));
    net.until("it says so", |net| {
        net.rpc(LATE, "/status").is_some_and(|status| status["sync_info"]["catching_up"] == false)
    });
    net.assert_agreement(&[0, LATE], (1..=BUILT + 2).step_by(50).chain([BUILT + 1, BUILT + 2]));
    let log = net.log(LATE);
    assert_eq!(log.matches("handshake appHeight").count(), 3, "{log}");
    assert!(!log.contains("ERROR"), "{log}");
}

#[test]
fn a_stop_while_behind_writes_nothing_and_ends_well() {
    let mut net = Net::new(&spec(json!({"storage": "deferred", "flush": {"every_ms": 3_600_000}})));
    net.start(0);
    net.start(1);
    net.until_height(&[0, 1], BUILT);
    net.start(LATE);
    net.until("it is block-syncing", |net| net.log(LATE).contains("mode=block_sync"));
    assert_eq!(net.terminate(LATE).code(), Some(0), "{}", net.log(LATE));
    let log = net.log(LATE);
    // Unless it was faster than the signal, and had reached the tip.
    if !log.contains("mode=consensus") {
        assert!(!log.contains("flush point"), "{log}");
        net.start(LATE);
        net.until("it starts again", |net| net.log(LATE).matches("handshake").count() == 2);
        let last = net.log(LATE);
        let line = last.lines().rfind(|line| line.contains("handshake")).unwrap();
        assert!(line.contains("appHeight=0 storeHeight=0 stateHeight=0"), "{line}");
    }
}

#[test]
fn a_validator_that_was_away_is_brought_back_by_block_sync_and_decides_again() {
    let mut net = Net::new(&Spec { validators: 4, full: 0, settings: json!({"block_time_ms": 10}), ..spec(json!({})) });
    for i in 0..3 {
        net.start(i);
    }
    net.until_height(&[0, 1, 2], BUILT + 5);
    net.start(3);
    net.until_height(&[3], BUILT + 8);
    net.kill(1);
    let height = net.height(0);
    net.until_height(&[0, 2, 3], height + 3);
    net.assert_agreement(&[0, 2, 3], BUILT + 1..=height + 3);
}

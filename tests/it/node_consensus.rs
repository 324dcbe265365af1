//! Validators as processes: agreement, deaths, restarts, halts.

use serde_json::json;

use crate::node_net::{Net, Spec};

fn spec(block_time_ms: u64) -> Spec {
    Spec {
        validators: 4,
        full: 0,
        settings: json!({"block_time_ms": block_time_ms}),
        full_settings: json!({}),
        built_blocks: 0,
    }
}

fn assert_nobody_equivocated(net: &Net) {
    for i in 0..net.names.len() {
        let log = net.log(i);
        assert!(!log.contains("conflicting"), "{}:\n{log}", net.names[i]);
        assert!(!log.contains("panicked"), "{}:\n{log}", net.names[i]);
    }
}

#[test]
fn four_validators_and_a_follower_agree_under_load_and_stop_cleanly() {
    let mut net = Net::new(&Spec { full: 1, ..spec(0) });
    for i in 0..5 {
        net.start(i);
    }
    net.until_height(&[0], 2);
    for n in 0..10 {
        let tx = hex::encode(format!("set key-{n} value-{n}"));
        net.until("the transaction is taken", |net| {
            net.rpc(n % 5, &format!("/broadcast_tx_sync?tx=0x{tx}")).is_some_and(|answer| answer["code"] == 0)
        });
    }
    net.until_height(&[0, 1, 2, 3, 4], 20);
    net.until("the transactions are committed", |net| {
        (1..=net.height(4)).any(|h| {
            let block = net.rpc(4, &format!("/block?height={h}"));
            block.is_some_and(|b| b["block"]["data"]["txs"].as_array().is_some_and(|txs| !txs.is_empty()))
        })
    });
    net.assert_agreement(&[0, 1, 2, 3, 4], 1..=20);
    assert!(net.log(4).contains("mode=consensus"), "the follower is at the tip");
    for i in 0..5 {
        assert_eq!(net.terminate(i).code(), Some(0), "{}", net.log(i));
    }
    assert_nobody_equivocated(&net);
}

#[test]
fn one_of_four_is_not_missed_and_comes_back() {
    let mut net = Net::new(&spec(20));
    for i in 0..4 {
        net.start(i);
    }
    net.until_height(&[0, 1, 2, 3], 3);
    net.kill(2);
    let height = net.height(0);
    net.until_height(&[0, 1, 3], height + 6);
    net.start(2);
    let height = net.height(0);
    net.until_height(&[0, 1, 2, 3], height + 4);
    net.assert_agreement(&[0, 1, 2, 3], 1..=height + 4);
    assert_nobody_equivocated(&net);
}

#[test]
fn kills_and_restarts_make_no_validator_sign_twice() {
    let mut net = Net::new(&spec(0));
    for i in 0..4 {
        net.start(i);
    }
    net.until_height(&[0, 1, 2, 3], 2);
    for round in 0..8 {
        let victim = round % 4;
        net.kill(victim);
        net.start(victim);
        let others: Vec<usize> = (0..4).filter(|i| *i != victim).collect();
        let height = net.height(others[0]);
        net.until_height(&[0, 1, 2, 3], height + 2);
    }
    let height = (0..4).map(|i| net.height(i)).min().unwrap();
    net.assert_agreement(&[0, 1, 2, 3], 1..=height);
    assert_nobody_equivocated(&net);
}

#[test]
fn all_die_at_once_and_go_on() {
    let mut net = Net::new(&spec(0));
    for _ in 0..3 {
        for i in 0..4 {
            net.start(i);
        }
        let height = (0..4).map(|i| net.height(i)).max().unwrap();
        net.until_height(&[0, 1, 2, 3], height + 5);
        for i in 0..4 {
            net.kill(i);
        }
    }
    for i in 0..4 {
        net.start(i);
    }
    net.until_height(&[0, 1, 2, 3], 20);
    net.assert_agreement(&[0, 1, 2, 3], 1..=20);
    assert_nobody_equivocated(&net);
}

#[test]
fn every_node_ends_at_the_halt_height_and_stays_ended() {
    let mut net = Net::new(&Spec { settings: json!({"block_time_ms": 0, "halt_height": 7}), ..spec(0) });
    for _ in 0..2 {
        for i in 0..4 {
            net.start(i);
        }
        for i in 0..4 {
            assert_eq!(net.wait(i).code(), Some(0), "{}", net.log(i));
            assert!(net.log(i).contains("halt height reached height=7"), "{}", net.log(i));
        }
    }
}

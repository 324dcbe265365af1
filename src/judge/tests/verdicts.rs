//! One test a rule.

use super::*;

#[test]
fn a_healthy_run_converges_without_a_finding() {
    let judgement = healthy().verdict();
    assert_eq!(found(&judgement), []);
    assert_eq!((judgement.verdict, judgement.outcome()), (Verdict::Converged, Outcome::Converged));
    assert_eq!((judgement.heights_compared, judgement.distinct_app_hashes), (150, 150));
    assert_eq!(judgement.nodes.iter().map(|n| n.height).collect::<Vec<_>>(), [Some(160); 5]);
}

#[test]
fn the_json_object_has_the_promised_keys() {
    let run = killed(Exit::Signal(9), Some(Heights::new(89, 89, 120)), None);
    let json = serde_json::to_value(run.verdict()).unwrap();
    for key in ["version", "run", "topology", "seed", "engine", "verdict", "findings", "faults", "nodes", "results"] {
        assert!(json.get(key).is_some(), "{key}");
    }
    let fault = &json["faults"][0];
    assert_eq!(fault["landed"]["window"], 31);
    assert_eq!(fault["asked"]["height"], "0..");
    assert_eq!(fault["after"], serde_json::json!({"app": 89, "state": 89, "store": 120}));
    assert_eq!((&fault["proven"], &fault["exit"]), (&serde_json::json!(true), &serde_json::json!("signal 9")));
    assert_eq!(fault["down_ms"], 1000);
    assert_eq!(fault["caught_up_ms"], 4000);
    assert_eq!(json["nodes"][4]["starts"], 2);
}

#[test]
fn a_kill_with_the_predicted_heights_is_proven() {
    let run = killed(Exit::Signal(9), Some(Heights::new(89, 89, 120)), Some(Heights::new(89, 89, 90)));
    let judgement = run.verdict();
    assert_eq!(found(&judgement), []);
    assert!(judgement.faults[0].proven);
    assert_eq!(judgement.faults[0].predicted.as_deref(), Some("89 / 89 / 120"));
    // From the handshake alone, before or after the node lowered its block store.
    for heights in [Heights::new(89, 89, 120), Heights::new(89, 89, 90)] {
        assert!(killed(Exit::Signal(9), None, Some(heights)).verdict().faults[0].proven);
    }
}

#[test]
fn an_unproven_kill_makes_the_run_inconclusive() {
    let unproven = [
        killed(Exit::Signal(9), Some(Heights::new(120, 120, 120)), None),
        killed(Exit::Signal(9), None, Some(Heights::new(89, 120, 120))),
        killed(Exit::Signal(9), None, None),
        killed(Exit::Code(1), Some(Heights::new(89, 89, 120)), None),
    ];
    for run in unproven {
        let judgement = run.verdict();
        assert_eq!(found(&judgement), [(Verdict::Inconclusive, Some("late"), Some(120))], "{judgement:?}");
        assert!(judgement.faults[0].why_unproven.is_some());
        assert_eq!(judgement.outcome(), Outcome::Inconclusive);
    }
}

/// A sync of the late node's state is made to fail at second 20; then it ends so, and leaves these heights.
fn failed(exit: Exit, stored: Heights) -> Run {
    let mut asked = kill();
    asked.kind = FaultKind::Fail;
    asked.errno = Some(Errno::NoSpace);
    asked.asked = asked.asked.map(|address| Address { write: None, ..address });
    let mut run = Run::new(vec![asked.clone()], Expect::default());
    for node in ALL {
        run.started(0, node, 1);
    }
    run.follow(1, 60, &["v0", "v1", "v2", "v3"]);
    let landed = Landed { write: None, ..landed(31) };
    run.agent(20, "late", NodeEvent::Landed { fault: asked.id.clone(), start: 1, landed, held_us: 0 });
    run.exited(21, "late", 1, exit, ExitCause::Fault(asked.id), &["No space left on device (os error 28)"]);
    run.push(21, Some("late"), Event::Stored { after_start: 1, heights: stored });
    run.started(22, "late", 2);
    run.follow(25, 60, &["late"]);
    run.end(true);
    run
}

#[test]
fn a_node_that_ends_where_its_disk_fails_has_done_well() {
    for exit in [Exit::Code(1), Exit::Signal(6), Exit::Signal(9)] {
        for heights in [Heights::new(89, 89, 120), Heights::new(89, 120, 120)] {
            let judgement = failed(exit, heights).verdict();
            assert_eq!(found(&judgement), [], "{exit:?}, {heights}");
            assert!(judgement.faults[0].proven, "{judgement:?}");
            assert_eq!(judgement.faults[0].predicted.as_deref(), Some("89 / 89 or 120 / 120"));
            assert_eq!(judgement.notes.iter().filter(|n| n.kind == "failed-call").count(), 1);
            assert!(judgement.notes.iter().all(|n| n.kind != "unclean-stop"), "{:?}", judgement.notes);
        }
    }
}

#[test]
fn a_node_that_goes_on_after_a_failed_sync_is_found() {
    for heights in [Heights::new(120, 89, 120), Heights::new(89, 120, 151)] {
        let judgement = failed(Exit::Signal(9), heights).verdict();
        assert_eq!(found(&judgement), [(Verdict::ExpectationFailed, Some("late"), Some(120))], "{heights}");
        assert!(judgement.findings[0].detail.contains("ENOSPC"), "{}", judgement.findings[0].detail);
    }
}

#[test]
fn a_missed_fault_says_what_was_seen() {
    let mut run = Run::new(vec![kill()], Expect::default());
    run.follow(1, 60, &ALL);
    let why = NodeEvent::NotLanded {
        fault: kill().id,
        seen: vec!["height 150, state.db, sync 1, before".to_owned()],
        nearest: Some("height 150, state.db, sync 1, before".to_owned()),
    };
    run.agent(59, "late", why);
    run.end(true);
    let judgement = run.verdict();
    assert_eq!(judgement.verdict, Verdict::Inconclusive);
    assert!(
        judgement.findings[0].detail.contains("nearest address is: height 150"),
        "{}",
        judgement.findings[0].detail
    );
}

#[test]
fn another_app_hash_names_the_minority_once() {
    let mut run = healthy();
    run.hashes("v2", 151, 160, |h| (block(h).0, format!("c{h}")));
    for node in ["v0", "v1", "v3"] {
        run.hashes(node, 151, 160, block);
    }
    let judgement = run.verdict();
    assert_eq!(found(&judgement), [(Verdict::Diverged, Some("v2"), Some(151))]);
    assert!(judgement.findings[0].detail.contains("after height 150"));
}

#[test]
fn another_block_is_a_fork() {
    let mut run = healthy();
    for node in ["v0", "v1"] {
        run.hashes(node, 151, 160, block);
    }
    for node in ["v2", "v3"] {
        run.hashes(node, 151, 160, |h| (format!("d{h}"), format!("e{h}")));
    }
    let judgement = run.verdict();
    assert_eq!(judgement.findings[0].verdict, Verdict::Forked);
    assert!(judgement.findings[0].detail.contains("no majority"));
    assert_eq!(judgement.findings[0].node, None);
}

#[test]
fn a_node_that_stands_still_is_stuck_whatever_it_says() {
    let mut run = Run::new(Vec::new(), Expect::default());
    for node in ALL {
        run.started(0, node, 1);
    }
    run.follow(1, 60, &ALL[..4]);
    run.follow(1, 30, &["late"]);
    for at in 31..=60 {
        run.status(at, "late", 130, false);
    }
    run.end(false);
    let judgement = run.verdict();
    assert_eq!(found(&judgement), [(Verdict::Stuck, Some("late"), Some(130))]);
    assert!(judgement.findings[0].detail.contains("since t=30 s"), "{}", judgement.findings[0].detail);
}

#[test]
fn too_slow_to_catch_up_and_still_catching_up() {
    let series = |gain: u64| {
        let mut run = Run::new(Vec::new(), Expect::default());
        run.follow(1, 60, &ALL[..4]);
        for at in 1..=60 {
            run.status(at, "late", at * gain / 2, true);
        }
        run.end(false);
        run.verdict()
    };
    assert_eq!(found(&series(1)), [(Verdict::NeverCatchesUp, Some("late"), Some(30))]);
    assert_eq!(found(&series(2))[0].0, Verdict::Stuck);
    assert_eq!(found(&series(4))[0].0, Verdict::Inconclusive);
}

#[test]
fn the_flag_that_never_falls_is_stuck_in_sync() {
    let mut run = Run::new(Vec::new(), Expect::default());
    run.follow(1, 60, &ALL[..4]);
    for at in 1..=60 {
        run.status(at, "late", 100 + at, true);
    }
    run.end(false);
    let judgement = run.verdict();
    assert_eq!(found(&judgement), [(Verdict::Stuck, Some("late"), Some(160))]);
    assert!(judgement.findings[0].detail.contains("mode sync"));
}

#[test]
fn a_chain_that_stands_with_enough_power_has_halted() {
    let mut run = Run::new(Vec::new(), Expect::default());
    run.follow(1, 30, &ALL);
    for at in 31..=60 {
        for node in ALL {
            run.status(at, node, 130, false);
        }
    }
    run.end(false);
    let judgement = run.verdict();
    assert_eq!(found(&judgement), [(Verdict::ChainHalted, None, Some(130))]);
    assert!(judgement.findings[0].detail.contains("100 % of the voting power"));
}

#[test]
fn a_chain_may_stand_while_a_fault_holds_a_third_away() {
    let pause = |node: &str, name: &str| FaultSetup {
        id: FaultId { name: name.to_owned(), occurrence: 1 },
        kind: FaultKind::Pause,
        node: node.to_owned(),
        asked: None,
        errno: None,
        when: "at 20 s".to_owned(),
    };
    let faults = vec![pause("v2", "a"), pause("v3", "b")];
    let mut run = Run::new(faults.clone(), Expect::default());
    for node in ALL {
        run.started(0, node, 1);
    }
    run.follow(1, 20, &ALL);
    for fault in &faults {
        let evidence = "stopped".to_owned();
        run.push(20, Some(&fault.node), Event::FaultApplied { fault: fault.id.clone(), evidence });
    }
    for at in 21..=40 {
        for node in ["v0", "v1", "late"] {
            run.status(at, node, 120, false);
        }
    }
    for fault in &faults {
        let evidence = "running".to_owned();
        run.push(40, Some(&fault.node), Event::FaultReverted { fault: fault.id.clone(), evidence });
    }
    for at in 41..=60 {
        for node in ALL {
            run.status(at, node, 80 + at, false);
        }
    }
    run.end(true);
    let judgement = run.verdict();
    assert_eq!(found(&judgement), [], "{judgement:#?}");
    assert!(judgement.notes.iter().any(|n| n.kind == "expected-halt"), "{:?}", judgement.notes);
    assert!(judgement.faults.iter().all(|f| f.proven));
}

#[test]
fn a_node_that_does_not_come_back_has_its_class_and_triple() {
    let mut run = killed(Exit::Signal(9), Some(Heights::new(89, 89, 120)), None);
    run.exited(60, "late", 2, Exit::Code(2), ExitCause::Own, &["panic: could not find results for height #120"]);
    let judgement = run.verdict();
    assert_eq!(found(&judgement), [(Verdict::PanicOnRestart, Some("late"), Some(160))]);
    assert_eq!(judgement.findings[0].class.as_deref(), Some("results-lost"));
}

#[test]
fn the_third_start_is_a_finding_though_it_came_back() {
    let mut run = third_start();
    run.follow(4, 60, &["late"]);
    run.end(true);
    let judgement = run.verdict();
    assert_eq!(found(&judgement)[0].0, Verdict::ConvergedSlow);
    assert!(judgement.findings[0].detail.contains("needed 3 starts"), "{}", judgement.findings[0].detail);
}

#[test]
fn acknowledged_blocks_may_not_be_lost() {
    let mut run = healthy();
    let at = run.records.len();
    run.status(30, "v1", 101, false);
    let lost = run.records.remove(at);
    run.records.insert(at / 2, lost);
    let judgement = run.verdict();
    assert_eq!(found(&judgement), [(Verdict::HeightRegressed, Some("v1"), Some(101))]);
}

#[test]
fn no_load_proves_nothing() {
    let mut run = healthy();
    for record in &mut run.records {
        if let Event::Load { accepted, .. } = &mut record.event {
            *accepted = 0;
        }
    }
    assert_eq!(found(&run.verdict()), [(Verdict::ConvergedUnproven, None, None)]);
}

#[test]
fn a_hash_that_never_moves_proves_nothing() {
    let mut run = healthy();
    for record in &mut run.records {
        if let Event::Hashes(hashes) = &mut record.event {
            for (_, app) in &mut hashes.blocks {
                "00".clone_into(app);
            }
        }
    }
    assert_eq!(run.verdict().verdict, Verdict::ConvergedUnproven);
}

#[test]
fn syncs_a_block_are_expected_by_node_or_group() {
    let tally = |syncs: u64| Tally {
        start: 1,
        mode: Some(Mode::Consensus),
        flushes: 40,
        blocks: 40,
        height: 140,
        per_block: BTreeMap::from([("state.db".to_owned(), BTreeMap::from([(syncs, 39), (syncs + 1, 1)]))]),
        ..Tally::default()
    };
    let stores = BTreeMap::from([("state.db".to_owned(), 2), ("application.db".to_owned(), 0)]);
    let syncs_per_block = BTreeMap::from([("v".to_owned(), BTreeMap::from([(Mode::Consensus, stores)]))]);
    let with = |syncs: u64| {
        let mut run = Run::new(Vec::new(), Expect { syncs_per_block: syncs_per_block.clone(), ..Expect::default() });
        run.follow(1, 60, &ALL);
        for node in &ALL[..4] {
            run.agent(50, node, NodeEvent::Tally(tally(syncs)));
        }
        run.end(true);
        run.verdict()
    };
    assert_eq!(found(&with(2)), []);
    let wrong = with(3);
    assert_eq!(wrong.findings.len(), 4);
    assert_eq!(wrong.verdict, Verdict::ExpectationFailed);
    assert!(wrong.findings[0].detail.contains("median 3 over 40 blocks, expected 2"), "{}", wrong.findings[0].detail);
}

#[test]
fn the_halt_height_holds_for_every_node() {
    let expect = Expect { halt_height: Some(130), ..Expect::default() };
    let mut run = Run::new(Vec::new(), expect);
    run.follow(1, 30, &ALL);
    for at in 31..=60 {
        for node in ALL {
            run.status(at, node, if node == "late" { 131 } else { 130 }, false);
        }
    }
    run.push(60, None, Event::Load { submitted: 9, accepted: 9, failed: 0 });
    for node in ALL {
        run.hashes(node, 1, 130, block);
    }
    run.push(61, None, Event::RunEnded);
    assert_eq!(found(&run.verdict()), [(Verdict::HaltMissed, Some("late"), Some(131))]);
}

#[test]
fn the_tool_failed_and_no_node_is_blamed() {
    let mut run = killed(Exit::Signal(9), None, None);
    run.push(61, None, Event::ToolError { what: "the disk is full".to_owned() });
    run.exited(61, "v1", 1, Exit::Code(2), ExitCause::Own, &["no space left on device"]);
    let judgement = run.verdict();
    assert!(judgement.findings.iter().all(|f| f.verdict == Verdict::ToolError), "{:?}", found(&judgement));
    assert_eq!(judgement.outcome(), Outcome::Inconclusive);
}

#[test]
fn an_interrupted_run_is_judged_as_far_as_it_came() {
    let mut run = healthy();
    run.records.pop();
    run.push(61, None, Event::Interrupted);
    let judgement = run.verdict();
    assert_eq!((judgement.verdict, judgement.outcome()), (Verdict::Inconclusive, Outcome::Interrupted));
}

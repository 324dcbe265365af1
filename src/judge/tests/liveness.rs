//! How long is too long: bounds follow the chain's own pace and that of whoever looks, on a floor that a busy machine needs.

use super::*;

/// A run of four validators and a full node that all started at once.
fn begun(expect: Expect) -> Run {
    let mut run = Run::new(Vec::new(), expect);
    for node in ALL {
        run.started(0, node, 1);
    }
    run
}

/// Everyone makes blocks, one in `every` seconds, until second `to`, and is looked at until second `end`.
fn stands(run: &mut Run, every: u64, to: u64, end: u64) {
    for at in 0..=end {
        for node in ALL {
            run.status(at, node, 100 + at.min(to) / every, false);
        }
    }
}

fn budget(seconds: u64) -> Expect {
    Expect { converge_within_ms: Some(seconds * 1000), ..Expect::default() }
}

/// Verdicts of findings about nodes and the chain, not about the run.
fn verdicts(judgement: &Judgement) -> Vec<Verdict> {
    judgement.findings.iter().map(|f| f.verdict).filter(|v| *v != Verdict::Inconclusive).collect()
}

#[test]
fn a_few_seconds_without_a_block_are_no_halt() {
    for (to, halted) in [(45, false), (56, false), (30, true)] {
        let mut run = begun(budget(60));
        stands(&mut run, 1, to, 60);
        run.end(false);
        let judgement = run.verdict();
        let wanted = if halted { vec![Verdict::ChainHalted] } else { Vec::new() };
        assert_eq!(verdicts(&judgement), wanted, "stands from second {to}: {judgement:#?}");
        assert!(halted || judgement.outcome() == Outcome::Inconclusive);
    }
}

#[test]
fn a_slow_chain_is_given_more_time() {
    // A block in 6 seconds: half a minute is five blocks.
    for (to, halted) in [(90, false), (48, true)] {
        let mut run = begun(budget(60));
        stands(&mut run, 6, to, 120);
        run.end(false);
        assert_eq!(verdicts(&run.verdict()).contains(&Verdict::ChainHalted), halted, "stands from second {to}");
    }
}

#[test]
fn who_looks_late_believes_late() {
    // Nine seconds between two looks, while the chain makes a block a second: 36 seconds are four looks.
    for (stood, halted) in [(36, false), (63, true)] {
        let mut run = begun(budget(60));
        let end = 90 + stood;
        for at in (0..=end).step_by(9) {
            for node in ALL {
                run.status(at, node, 100 + at.min(90), false);
            }
        }
        run.end(false);
        assert_eq!(verdicts(&run.verdict()).contains(&Verdict::ChainHalted), halted, "stands for {stood} s");
    }
}

#[test]
fn validators_that_do_not_answer_yet_need_not_vote() {
    let mut run = Run::new(Vec::new(), budget(60));
    for node in ALL {
        run.started(0, node, 1);
    }
    run.follow(1, 10, &ALL);
    for node in ["v1", "v2"] {
        run.exited(10, node, 1, Exit::Signal(9), ExitCause::Asked, &[]);
        run.started(12, node, 2);
    }
    // Both are up again, and say nothing before second 50.
    for at in 11..=60 {
        for node in ["v0", "v3", "late"] {
            run.status(at, node, 110, false);
        }
        for node in ["v1", "v2"].into_iter().filter(|_| at >= 50) {
            run.status(at, node, 110, false);
        }
    }
    run.end(false);
    let judgement = run.verdict();
    assert_eq!(verdicts(&judgement), [], "{judgement:#?}");
    assert!(judgement.notes.iter().any(|n| n.kind == "expected-halt"), "{:?}", judgement.notes);
}

#[test]
fn a_chain_comes_back_from_a_long_lack_of_power_slowly() {
    // Two of four away for 30 seconds: the rounds after it are as long.
    for (end, halted) in [(75, false), (105, true)] {
        let mut run = begun(budget(60));
        run.follow(1, 10, &ALL);
        for node in ["v1", "v2"] {
            run.exited(10, node, 1, Exit::Signal(9), ExitCause::Asked, &[]);
            run.started(40, node, 2);
        }
        for at in 11..=end {
            for node in ALL.iter().filter(|n| at >= 41 || !["v1", "v2"].contains(n)) {
                run.status(at, node, 110, false);
            }
        }
        run.end(false);
        assert_eq!(verdicts(&run.verdict()).contains(&Verdict::ChainHalted), halted, "looked at until {end}");
    }
}

#[test]
fn power_that_changes_hands_suffices_all_the_same() {
    // One validator after the other is away; three of four are always there, and no block is made.
    let mut run = begun(budget(60));
    run.follow(1, 10, &ALL);
    for at in 11..=60 {
        for (turn, node) in ALL.into_iter().enumerate() {
            let away = 12 + 10 * turn as u64;
            match at {
                _ if node == "late" || !(away..=away + 8).contains(&at) => run.status(at, node, 110, false),
                _ if at == away => run.exited(at, node, 1, Exit::Signal(9), ExitCause::Asked, &[]),
                _ if at == away + 8 => run.started(at, node, 2),
                _ => {}
            }
        }
    }
    run.end(false);
    let judgement = run.verdict();
    assert_eq!(verdicts(&judgement), [Verdict::ChainHalted], "{:#?} {:#?}", judgement.findings, judgement.notes);
}

#[test]
fn a_run_that_came_together_is_not_judged_by_what_follows() {
    let mut run = begun(budget(30));
    run.follow(1, 20, &ALL);
    run.push(20, None, Event::Settled { converged: true, why: "every node is at height 118".to_owned() });
    // The nodes are read and taken down, one of them starved.
    run.follow(21, 60, &["v0", "v1", "v2", "v3"]);
    for at in 21..=30 {
        run.status(at, "late", 120, true);
    }
    run.push(60, None, Event::Load { submitted: 9, accepted: 9, failed: 0 });
    for node in ALL {
        run.hashes(node, 1, 120, block);
        run.exited(61, node, 1, Exit::Code(0), ExitCause::Asked, &[]);
    }
    run.push(61, None, Event::RunEnded);
    let judgement = run.verdict();
    assert_eq!(found(&judgement), [], "{judgement:#?}");
}

#[test]
fn a_node_that_spent_its_time_doing_nothing_is_stuck() {
    for (budgeted, wanted) in [(budget(5), vec![Verdict::Stuck]), (Expect::default(), Vec::new())] {
        let mut run = begun(budgeted);
        run.follow(1, 60, &ALL[..4]);
        run.follow(1, 55, &["late"]);
        for at in 56..=60 {
            run.status(at, "late", 155, false);
        }
        run.end(false);
        let judgement = run.verdict();
        assert_eq!(verdicts(&judgement), wanted, "{judgement:#?}");
    }
}

#[test]
fn the_time_to_converge_begins_when_the_faults_are_over() {
    // Killed at second 20, started again at 21, in step at 25, and the run is over then.
    let mut run = killed(Exit::Signal(9), Some(Heights::new(89, 89, 120)), None);
    let limit = |run: &mut Run, ms| {
        for record in &mut run.records {
            if let Event::Setup(setup) = &mut record.event {
                setup.expect.converge_within_ms = Some(ms);
            }
        }
    };
    limit(&mut run, 4_500);
    assert_eq!(found(&run.verdict()), []);
    limit(&mut run, 3_500);
    assert_eq!(verdicts(&run.verdict()), [Verdict::ConvergedSlow]);
}

#[test]
fn a_start_that_never_answered_is_no_coming_back() {
    let mut run = third_start();
    run.end(false);
    let judgement = run.verdict();
    assert_eq!(verdicts(&judgement), [Verdict::PanicOnRestart], "{judgement:#?}");
}

#[test]
fn a_port_that_was_still_taken_is_no_fault_of_the_node() {
    let mut run = healthy();
    let words = &["error: listen tcp 127.0.0.1:26657: bind: address already in use"];
    run.started(5, "late", 1);
    run.exited(5, "late", 1, Exit::Code(1), ExitCause::Own, words);
    run.started(6, "late", 2);
    let judgement = run.verdict();
    assert_eq!(found(&judgement), [], "{judgement:#?}");
    assert!(judgement.notes.iter().any(|n| n.detail.contains("address-in-use")), "{:?}", judgement.notes);
}

#[test]
fn what_breaks_off_is_not_judged_by_its_end() {
    let mut run = begun(Expect::default());
    run.follow(1, 10, &ALL);
    run.follow(11, 60, &["v0", "v1", "v2", "v3"]);
    for at in 11..=60 {
        run.status(at, "late", 110, true);
    }
    let judgement = run.verdict();
    assert_eq!(found(&judgement), [(Verdict::Inconclusive, None, None)]);
    let also: Vec<&str> = judgement.findings[0].consequences.iter().map(|c| c.detail.as_str()).collect();
    assert!(also.iter().any(|detail| detail.starts_with("so far STUCK")), "{also:?}");
    assert_eq!(judge(&[]).outcome(), Outcome::Inconclusive);
    // A fork is one, whatever comes after it.
    run.hashes("v3", 50, 50, |_| ("other".to_owned(), "same".to_owned()));
    run.hashes("v2", 50, 50, |_| ("one".to_owned(), "same".to_owned()));
    assert_eq!(run.verdict().verdict, Verdict::Forked);
}

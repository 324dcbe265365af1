//! What a node gave out and lost, as a run shows it.

use super::*;
use crate::timeline::{ExpectedVerdict, LastSigned, SignedAt};

const KEPT: Option<Heights> = Some(Heights { app: Some(89), state: Some(89), store: Some(120) });

/// The late node, killed and back, with one more thing seen of it.
fn with(at: u64, node: &str, event: Event) -> Judgement {
    let mut run = killed(Exit::Signal(9), KEPT, None);
    let seq = run.records.len() as u64;
    let record = Record { seq, at_us: at * SECOND, node: Some(node.to_owned()), event };
    run.records.insert(run.records.len() - 1, record);
    run.verdict()
}

fn published(first: u64, last: u64) -> Event {
    Event::Published { start: 1, stream: 1, first, last }
}

#[test]
fn events_of_blocks_that_are_gone() {
    let judgement = with(18, "late", published(60, 89));
    assert_eq!(found(&judgement), []);
    let judgement = with(18, "late", published(60, 95));
    assert_eq!(found(&judgement), [(Verdict::EventBeforeDurable, Some("late"), Some(90))]);
}

#[test]
fn the_application_may_be_behind_its_blocks_and_not_ahead_of_them() {
    assert_eq!(found(&with(18, "late", Event::AppHeight { height: 120 })), []);
    let judgement = with(18, "late", Event::AppHeight { height: 121 });
    assert_eq!(found(&judgement), [(Verdict::HeightRegressed, Some("late"), Some(120))]);
}

#[test]
fn what_was_signed_is_at_most_one_block_ahead() {
    let signed =
        |height| Event::Signed { after_start: 1, last: LastSigned::At(SignedAt { height, round: 0, step: 3 }) };
    assert_eq!(found(&with(20, "late", signed(121))), []);
    let judgement = with(20, "late", signed(122));
    assert_eq!(found(&judgement), [(Verdict::HeightRegressed, Some("late"), Some(120))]);
}

#[test]
fn a_sign_state_that_goes_back_or_away() {
    let after = |last: LastSigned| {
        let mut run = killed(Exit::Signal(9), KEPT, None);
        let end = run.records.len() - 1;
        let first = LastSigned::At(SignedAt { height: 90, round: 1, step: 2 });
        for (start, last) in [(1, first), (2, last)] {
            let event = Event::Signed { after_start: start, last };
            run.records
                .insert(end, Record { seq: end as u64, at_us: 61 * SECOND, node: Some("late".to_owned()), event });
            run.records.swap(end, end + 1);
        }
        run.records.sort_by_key(|r| matches!(r.event, Event::RunEnded));
        found(&run.verdict()).iter().map(|(verdict, ..)| *verdict).collect::<Vec<_>>()
    };
    let at = |height, round, step| LastSigned::At(SignedAt { height, round, step });
    assert_eq!(after(at(90, 1, 3)), []);
    assert_eq!(after(at(90, 1, 1)), [Verdict::SignStateRegressed]);
    assert_eq!(after(LastSigned::Nothing), [Verdict::PanicOnRestart]);
    assert_eq!(after(LastSigned::Unreadable("empty".to_owned())), [Verdict::PanicOnRestart]);
}

#[test]
fn a_start_that_begins_below_what_was_left() {
    let run = killed(Exit::Signal(9), KEPT, Some(Heights::new(0, 0, 0)));
    let judgement = run.verdict();
    assert_eq!(found(&judgement), [(Verdict::HeightRegressed, Some("late"), Some(0))]);
}

#[test]
fn a_flag_that_contradicts_the_log() {
    let run = |mode| {
        let mut run = Run::new(Vec::new(), Expect::default());
        for node in ALL {
            run.started(0, node, 1);
        }
        run.agent(1, "late", NodeEvent::ModeChanged { start: 1, mode });
        run.follow(1, 20, &["v0", "v1", "v2", "v3"]);
        for at in 3..20 {
            run.status(at, "late", at, false);
        }
        run.follow(21, 60, &ALL);
        run.end(true);
        run.verdict()
    };
    assert_eq!(found(&run(Mode::BlockSync)), [(Verdict::ExpectationFailed, Some("late"), Some(3))]);
    assert_eq!(found(&run(Mode::Consensus)), []);
}

#[test]
fn an_expected_finding_is_a_success_and_its_absence_is_none() {
    let expect = |kind| {
        let verdict = Some(ExpectedVerdict { kind, node: Some("late".to_owned()), height: None });
        let mut run = Run::new(Vec::new(), Expect { verdict, ..Expect::default() });
        for node in ALL {
            run.started(0, node, 1);
        }
        run.follow(1, 60, &["v0", "v1", "v2", "v3"]);
        for at in 1..=60 {
            run.status(at, "late", 103, false);
        }
        run.end(false);
        run.verdict()
    };
    let stuck = expect(Verdict::Stuck);
    assert_eq!((stuck.verdict, stuck.outcome()), (Verdict::Stuck, Outcome::Converged), "{:?}", found(&stuck));
    let other = expect(Verdict::Diverged);
    assert_eq!((other.verdict, other.outcome()), (Verdict::Stuck, Outcome::Finding));
}

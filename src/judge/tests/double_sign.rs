//! Double signs from commits and evidence, and keys that two nodes share.

use super::*;
use crate::timeline::{CommitVotes, DoubleVote, VoteType};

fn key(node: usize) -> String {
    format!("0a{node:02}")
}

/// Each node tells its own key.
fn keys(run: &mut Run) {
    for (index, node) in ALL.iter().enumerate() {
        run.push(1, Some(node), Event::SignsAs { address: key(index) });
    }
}

/// A commit of a node, in which these validators precommitted a block, or nil.
fn commit(run: &mut Run, node: &str, round: u64, votes: &[(usize, &str)]) {
    let votes = votes.iter().map(|(index, id)| (key(*index), (*id).to_owned())).collect();
    run.push(60, Some(node), Event::Commit(CommitVotes { height: 40, round, votes }));
}

fn evidence(run: &mut Run, node: &str, validator: usize, height: u64) {
    let ids = ["aa".to_owned(), String::new()];
    let double =
        DoubleVote { block: height + 1, validator: key(validator), height, round: 0, kind: VoteType::Prevote, ids };
    run.push(60, Some(node), Event::Evidence(double));
}

/// A validator that is in the commits of both blocks of one height, and in the evidence of two nodes.
pub(super) fn signed_twice(run: &mut Run, validator: usize) {
    keys(run);
    commit(run, "v0", 0, &[(0, "aa"), (validator, "aa")]);
    commit(run, "v2", 0, &[(1, "bb"), (validator, "bb")]);
    commit(run, "late", 0, &[(validator, "bb")]);
    evidence(run, "v1", validator, 50);
    evidence(run, "v2", validator, 50);
}

fn double_signs(run: &Run) -> Vec<Finding> {
    run.verdict().findings.into_iter().filter(|f| f.verdict == Verdict::DoubleSign).collect()
}

#[test]
fn who_is_in_the_commits_of_two_blocks_signed_twice() {
    let mut run = healthy();
    signed_twice(&mut run, 3);
    let judgement = run.verdict();
    assert_eq!((judgement.verdict, judgement.findings.len()), (Verdict::DoubleSign, 1), "{:?}", judgement.findings);
    let found = &judgement.findings[0];
    assert_eq!((found.node.as_deref(), found.height), (Some("v3"), Some(40)));
    assert_eq!(
        found.detail,
        "validator 0a03: two signatures for precommit at height 40, round 0: aa (seen in the commit of v0) and bb \
         (seen in the commit of v2, late); and at 1 further places up to height 50"
    );
    let row = judgement.nodes.iter().find(|row| row.name == "v3").expect("a row");
    assert_eq!(row.verdict, Verdict::DoubleSign);
    let records: Vec<&Event> = found.evidence.iter().map(|seq| &run.records[*seq as usize].event).collect();
    assert!(records.len() == 5 && records.iter().all(|e| matches!(e, Event::Commit(_) | Event::Evidence(_))));
}

#[test]
fn two_rounds_one_block_or_one_of_two_votes_are_no_double_sign() {
    let mut run = healthy();
    keys(&mut run);
    commit(&mut run, "v0", 0, &[(0, "aa"), (1, "aa"), (3, "")]);
    commit(&mut run, "v1", 1, &[(0, "bb"), (1, "bb"), (3, "bb")]);
    commit(&mut run, "v2", 1, &[(0, "bb"), (1, "bb"), (2, "bb")]);
    assert_eq!(run.verdict().verdict, Verdict::Converged);
    // Nil is something else than a block.
    commit(&mut run, "v2", 0, &[(3, "aa")]);
    let found = double_signs(&run);
    assert_eq!((found.len(), found[0].node.as_deref()), (1, Some("v3")));
    assert!(found[0].detail.contains("round 0: nil (seen in the commit of v0) and aa"), "{}", found[0].detail);
}

#[test]
fn evidence_names_the_place_and_the_block_that_holds_it() {
    let mut run = healthy();
    keys(&mut run);
    evidence(&mut run, "v0", 1, 30);
    evidence(&mut run, "v2", 1, 30);
    let found = double_signs(&run);
    assert_eq!((found.len(), found[0].node.as_deref(), found[0].height), (1, Some("v1"), Some(30)));
    let wanted = "two signatures for prevote at height 30, round 0: nil (seen in the evidence of block 31) and aa";
    assert!(found[0].detail.contains(wanted), "{}", found[0].detail);
    // A validator that is none of these nodes.
    evidence(&mut run, "v0", 77, 20);
    let found = double_signs(&run);
    assert_eq!((found.len(), found[0].node.as_deref(), found[0].height), (2, None, Some(20)));
}

#[test]
fn two_nodes_with_one_key_are_named_together_and_what_their_logs_say_follows() {
    let mut run = healthy();
    keys(&mut run);
    run.push(1, Some("late"), Event::SignsAs { address: key(2) });
    let judgement = run.verdict();
    assert_eq!((judgement.verdict, judgement.findings[0].node.as_deref()), (Verdict::ConfigError, Some("v2, late")));
    let line = "ERR found conflicting vote from ourselves; did you unsafe_reset a validator? height=29".to_owned();
    run.agent(40, "late", NodeEvent::Trouble { start: 1, class: "x".to_owned(), line });
    evidence(&mut run, "v0", 2, 30);
    let judgement = run.verdict();
    assert_eq!((judgement.verdict, judgement.findings.len()), (Verdict::DoubleSign, 1), "{:?}", judgement.findings);
    let found = &judgement.findings[0];
    assert_eq!((found.node.as_deref(), found.consequences.len()), (Some("v2, late"), 1));
    assert!(found.detail.ends_with("; v2, late sign with this key"), "{}", found.detail);
}

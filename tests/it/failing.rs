//! Whole runs in which calls are made to fail: what a healthy node does, and what one that ignores it is told.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Runs a shipped topology; its exit code and verdict.
fn run(settings: &[&str]) -> (Option<i32>, Value) {
    let results = tempfile::tempdir().expect("a folder");
    let mut command = Command::new(env!("CARGO_BIN_EXE_midflush"));
    command.args(["run", "topologies/failed-calls.yaml", "--engine", "process", "--json", "--results"]);
    command.arg(results.path()).current_dir(Path::new(env!("CARGO_MANIFEST_DIR")));
    command.args(settings.iter().flat_map(|setting| ["--set", setting]));
    let output = command.output().expect("midflush runs");
    let verdict = serde_json::from_slice(&output.stdout);
    (output.status.code(), verdict.unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr))))
}

fn all_proven(verdict: &Value) -> bool {
    let faults = verdict["faults"].as_array().expect("faults");
    faults.len() == 3 && faults.iter().all(|fault| fault["kind"] == "fail" && fault["proven"] == true)
}

#[test]
fn nodes_end_where_their_disk_fails_and_come_back() {
    let (code, verdict) = run(&[]);
    assert_eq!((code, &verdict["verdict"]), (Some(0), &Value::from("CONVERGED")), "{verdict:#}");
    assert!(all_proven(&verdict), "{verdict:#}");
    for fault in verdict["faults"].as_array().expect("faults") {
        assert_eq!(fault["exit"], "code 1", "the reference node stops at a failed write: {fault:#}");
    }
}

#[test]
fn a_node_that_ignores_a_failed_write_is_found() {
    let (code, verdict) = run(&["nodes.late.options.planted_defect=ignore-failed-write"]);
    assert_eq!(code, Some(1), "{verdict:#}");
    assert!(all_proven(&verdict), "{verdict:#}");
    // A node that went on after the failure panics later, for that very reason: one cause, one finding.
    let findings = verdict["findings"].as_array().expect("findings");
    let below = |finding: &Value| finding["consequences"].as_array().cloned().unwrap_or_default();
    let all: Vec<Value> = findings.iter().flat_map(|f| [vec![f.clone()], below(f)].concat()).collect();
    let went_on = all.iter().find(|told| told["verdict"] == "EXPECTATION_FAILED").expect("a finding");
    assert!(went_on["detail"].as_str().expect("text").contains("the node went on"), "{went_on:#}");
    assert!(findings.iter().all(|finding| finding["node"] == "late"), "nobody else is blamed: {findings:#?}");
}

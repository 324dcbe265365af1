//! Whole runs with an expectation that one discipline meets and another does not: syncs a block by store.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

/// Runs `topologies/syncs-wrong.yaml` with this discipline of the late node; exit code and verdict.
fn run(storage: &str) -> (Option<i32>, Value) {
    let results = tempfile::tempdir().expect("a folder");
    let output = Command::new(env!("CARGO_BIN_EXE_midflush"))
        .args(["run", "topologies/syncs-wrong.yaml", "--engine", "process", "--json", "--results"])
        .arg(results.path())
        .args(["--set", &format!("nodes.late.storage={storage}")])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
        .output()
        .expect("midflush runs");
    let verdict = serde_json::from_slice(&output.stdout);
    (output.status.code(), verdict.unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr))))
}

/// One sync of the block store a block.
#[test]
fn the_syncs_a_block_that_are_asked_for() {
    let (code, verdict) = run("single-flush");
    assert_eq!((code, &verdict["verdict"]), (Some(0), &Value::from("CONVERGED")), "{verdict:#}");
}

/// Two of them: nothing else is wrong with the run.
#[test]
fn one_sync_more_than_asked_for_is_found_by_store_and_mode() {
    let (code, verdict) = run("per-block");
    assert_eq!((code, &verdict["verdict"]), (Some(1), &Value::from("EXPECTATION_FAILED")), "{verdict:#}");
    let findings = verdict["findings"].as_array().expect("findings");
    assert_eq!(findings.len(), 1, "{verdict:#}");
    assert_eq!(findings[0]["node"], "late");
    let detail = findings[0]["detail"].as_str().expect("text");
    for part in ["syncs a block of blockstore.db in block sync", "median 2 over", "expected 1"] {
        assert!(detail.contains(part), "{detail}");
    }
}

//! A whole run of a node family that nothing but a topology describes.

use std::path::Path;
use std::process::Command;

use serde_json::Value;

#[test]
fn a_family_described_in_a_file_is_killed_at_addresses_and_comes_back() {
    let Some(binary) = crate::cometbft::binary("MIDFLUSH_COMETBFT") else { return };
    let results = tempfile::tempdir().expect("a folder");
    let output = Command::new(env!("CARGO_BIN_EXE_midflush"))
        .args(["run", "topologies/custom.yaml", "--engine", "process", "--json", "--results"])
        .arg(results.path())
        .args(["--set", &format!("chain.custom.binary={}", binary.display())])
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
        .output()
        .expect("midflush runs");
    let verdict: Value = serde_json::from_slice(&output.stdout)
        .unwrap_or_else(|_| panic!("{}", String::from_utf8_lossy(&output.stderr)));
    assert_eq!((output.status.code(), &verdict["verdict"]), (Some(0), &Value::from("CONVERGED")), "{verdict:#}");
    let faults = verdict["faults"].as_array().expect("faults");
    assert_eq!(faults.len(), 4);
    assert!(faults.iter().all(|fault| fault["proven"] == true), "{faults:#?}");
}

//! Whole runs of a chain made with the Cosmos SDK: its own command line sets it up, six kills at six addresses, sends as load.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

/// A binary named by a variable. `None`, and said so, where there is none and `MIDFLUSH_REQUIRE_SIMD=1` does not demand one.
fn binary(variable: &str, made_by: &str) -> Option<PathBuf> {
    let found = std::env::var_os(variable).map(PathBuf::from);
    if found.is_none() {
        let missing = format!("no simd: set {variable} to what `{made_by}` prints");
        let demanded = std::env::var("MIDFLUSH_REQUIRE_SIMD").is_ok_and(|value| value == "1");
        assert!(!demanded, "MIDFLUSH_REQUIRE_SIMD is set, but there is {missing}");
        println!("not tested, there is {missing}");
    }
    found
}

/// Runs the shipped topology with this program, with a cache of its own.
fn run(results: &Path, engine: &str, program: &Path) -> Output {
    Command::new(env!("CARGO_BIN_EXE_midflush"))
        .args(["run", "topologies/cosmos.yaml", "--engine", engine, "--json", "--results"])
        .arg(results)
        .args(["--set", &format!("chain.cosmos-sdk.binary={}", program.display())])
        .env("XDG_CACHE_HOME", results.join("cache"))
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")))
        .output()
        .expect("midflush runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Six of six faults proven, agreement, transactions taken but for a few.
fn converges(engine: &str, program: &Path) {
    let results = tempfile::tempdir().expect("a folder");
    let output = run(results.path(), engine, program);
    let verdict: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|_| panic!("{}", text(&output.stderr)));
    assert_eq!((output.status.code(), &verdict["verdict"]), (Some(0), &Value::from("CONVERGED")), "{verdict:#}");
    let faults = verdict["faults"].as_array().expect("faults");
    assert_eq!(faults.len(), 6);
    assert!(faults.iter().all(|fault| fault["proven"] == true), "{faults:#?}");
    let runs = fs::read_dir(results.path())
        .expect("results")
        .filter_map(|entry| fs::read_to_string(entry.expect("an entry").path().join("timeline.ndjson")).ok());
    let timeline = runs.collect::<Vec<_>>().concat();
    let records = timeline.lines().map(|line| serde_json::from_str::<Value>(line).expect("a record"));
    let load = records.map(|record| record["event"]["load"].clone()).rfind(|load| load.is_object());
    let load = load.expect("a load");
    let [accepted, failed] = ["accepted", "failed"].map(|name| load[name].as_u64().expect("a number"));
    // A validator that is down, or has just come up and made no block, costs no transaction: the next one takes it.
    assert!(accepted > 0 && failed * 20 <= accepted, "{load}");
    let made = fs::read_dir(results.path().join("cache/midflush/fixtures")).expect("the cache");
    let folders = made.filter(|entry| entry.as_ref().is_ok_and(|entry| entry.path().is_dir())).count();
    assert_eq!(folders, 1, "what the command line made is kept for the next run");
}

#[test]
fn six_kills_of_a_chain_that_its_command_line_set_up() {
    let Some(simd) = binary("MIDFLUSH_SIMD", "images/simd/build --binary") else { return };
    converges("process", &simd);
}

#[tokio::test]
async fn a_dynamically_linked_chain_in_containers_with_its_libraries() {
    if crate::engine_docker::docker().await.is_none() {
        return;
    }
    let Some(simd) = binary("MIDFLUSH_SIMD_DYNAMIC", "images/simd/build --dynamic") else { return };
    converges("docker", &simd);
}

#[test]
fn a_command_line_that_differs_is_shown_with_what_it_printed() {
    let results = tempfile::tempdir().expect("a folder");
    let output = run(results.path(), "process", Path::new(env!("CARGO_BIN_EXE_midflush")));
    assert_eq!(output.status.code(), Some(3));
    let verdict = text(&output.stdout);
    assert!(!verdict.contains("failed to failed"), "{verdict}");
    for part in [
        "midflush init midflush --chain-id cosmos-1 --home .` ended with exit code 2",
        "unrecognized subcommand 'init'",
    ] {
        assert!(verdict.contains(part), "{verdict}");
    }
}

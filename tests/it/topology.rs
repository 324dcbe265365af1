//! Topologies through the command line: what is refused, and how; what the plans of those that are shipped look like.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn check(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_midflush"))
        .arg("check")
        .args(arguments)
        .current_dir(root())
        .env_remove("RUST_LOG")
        .output()
        .expect("midflush runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

/// Files of a folder, relative to the root, in order.
fn files(folder: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(root().join(folder)).expect("the folder");
    let mut files: Vec<PathBuf> =
        entries.map(|entry| Path::new(folder).join(entry.expect("an entry").file_name())).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    assert!(!files.is_empty(), "{folder}");
    files
}

#[test]
fn each_bad_topology_is_refused_with_its_places() {
    for file in files("tests/it/bad") {
        let name = file.file_stem().expect("a name").to_string_lossy().into_owned();
        let output = check(&[&file.to_string_lossy()]);
        assert_eq!(output.status.code(), Some(2), "{name}");
        assert!(output.stdout.is_empty(), "{name}");
        insta::assert_snapshot!(format!("bad-{name}"), text(&output.stderr));
    }
}

#[test]
fn each_shipped_topology_has_a_plan() {
    for file in files("topologies") {
        let name = file.file_stem().expect("a name").to_string_lossy().into_owned();
        let output = check(&[&file.to_string_lossy(), "--seed", "7"]);
        assert_eq!(output.status.code(), Some(0), "{name}: {}", text(&output.stderr));
        insta::assert_snapshot!(format!("plan-{name}"), text(&output.stdout));
        let again = check(&[&file.to_string_lossy(), "--seed", "7", "--json"]);
        let plan: midflush::plan::Plan = serde_json::from_slice(&again.stdout).expect("one JSON object");
        assert_eq!((plan.name, plan.seed), (name, 7));
    }
}

#[test]
fn the_examples_in_the_language_reference_are_good() {
    let readme = fs::read_to_string(root().join("topologies/README.md")).expect("the reference");
    let blocks: Vec<&str> = readme.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(blocks.len() >= 2, "examples");
    for block in blocks {
        if let Err(problems) = midflush::topology::load("README.md", block.as_bytes(), &[]) {
            panic!("{problems}\n{block}");
        }
    }
}

#[test]
fn settings_on_the_command_line_are_carried_out_and_refused_by_name() {
    let file = "topologies/quickstart.yaml";
    let output = check(&[file, "--set", "nodes.val.count=7", "--set", "load.rate=100/s"]);
    let plan = text(&output.stdout);
    assert!(plan.contains("7 validators") && plan.contains("100/s of 200 B"), "{plan}");
    let output = check(&[file, "--set", "nodes.lat.storage=per-block", "--set", "faults[0].at.hieght=4"]);
    assert_eq!(output.status.code(), Some(2));
    insta::assert_snapshot!(text(&output.stderr));
}

#[test]
fn nothing_is_created_when_the_input_is_bad() {
    let home = tempfile::tempdir().expect("a folder");
    let bad = root().join("tests/it/bad/unknown-key.yaml");
    let output = Command::new(env!("CARGO_BIN_EXE_midflush"))
        .args(["check", &bad.to_string_lossy()])
        .current_dir(home.path())
        .env("HOME", home.path())
        .env("MIDFLUSH_RESULTS", home.path().join("results"))
        .output()
        .expect("midflush runs");
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(fs::read_dir(home.path()).expect("the folder").count(), 0);
    let missing = check(&["no/such/file.yaml"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(text(&missing.stderr).contains("cannot read no/such/file.yaml"));
}

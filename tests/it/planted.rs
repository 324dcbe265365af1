//! Every topology with a planted defect: the finding that it expects comes out, about the right node, and nothing else.

use std::collections::VecDeque;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Mutex;

/// Runs at once: each keeps about one core busy, and other tests run beside them.
const AT_ONCE: usize = 2;

/// Seeds that are tried until one catches the defect: a slow machine may let a fault land where nothing was at stake, and
/// the run says so then. `benches/planted` counts how often that happens.
const SEEDS: [&str; 2] = ["1", "2"];

fn topologies() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("topologies/planted");
    let mut all: Vec<PathBuf> =
        fs::read_dir(folder).expect("the folder").map(|entry| entry.expect("an entry").path()).collect();
    all.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    all.sort();
    all
}

/// Why the defect of this topology was not caught.
fn caught(topology: &Path) -> Result<(), String> {
    let mut why = Vec::new();
    for seed in SEEDS {
        let results = tempfile::tempdir().expect("a folder");
        let output = Command::new(env!("CARGO_BIN_EXE_midflush"))
            .arg("run")
            .arg(topology)
            .args(["--engine", "process", "--json", "--seed", seed, "--time-limit", "90s", "--results"])
            .arg(results.path())
            .env_remove("RUST_LOG")
            .output()
            .expect("midflush runs");
        let verdict: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap_or_default();
        if output.status.success() && verdict["expected"]["met"] == true {
            return Ok(());
        }
        let findings = verdict["findings"].as_array().cloned().unwrap_or_default();
        let words = |f: &serde_json::Value| format!("{} of {}: {}", f["verdict"], f["node"], f["detail"]);
        let findings: Vec<String> = findings.iter().map(words).collect();
        let errors = String::from_utf8_lossy(&output.stderr);
        let errors = errors.lines().rev().take(5).collect::<Vec<_>>().join(" < ");
        why.push(format!("seed {seed}: {}, {}; {errors}", output.status, findings.join("; ")));
    }
    Err(why.join("\n  "))
}

#[test]
fn every_planted_defect_is_caught_and_blamed_on_its_node() {
    let todo = Mutex::new(VecDeque::from(topologies()));
    let missed = Mutex::new(Vec::new());
    assert!(todo.lock().expect("a list").len() > 20, "the topologies are not where they belong");
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let Some(topology) = todo.lock().expect("a list").pop_front() else { return };
                    if let Err(why) = caught(&topology) {
                        missed.lock().expect("a list").push(format!("{}:\n  {why}", topology.display()));
                    }
                }
            });
        }
    });
    let missed = missed.into_inner().expect("a list");
    assert!(missed.is_empty(), "not caught:\n{}", missed.join("\n"));
}

//! `midflush bench` for real, on the reference node and as small as it goes; what is refused; what is shipped. Nothing here
//! depends on how fast anything is.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn bench(folder: &Path, file: &Path, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_midflush"))
        .arg("bench")
        .arg(file)
        .args(["--engine", "process", "--results"])
        .arg(folder.join("results"))
        .args(arguments)
        .current_dir(folder)
        .env_remove("RUST_LOG")
        .output()
        .expect("midflush runs")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).expect("text")
}

/// Syncs slow enough that no machine, however fast, is through between two looks.
const TINY: &str = "
midflush: 1
name: tiny
chain: { reference: {} }
fixture: { heights: 60, transactions_per_block: 2, validators: 1 }
bench:
  window: { from: 5, to: 30 }
  rounds: 2
  disk: { sync: 20ms }
  arms:
    five: { storage: per-block }
    four: { storage: single-flush }
";

fn written(folder: &Path, yaml: &str) -> PathBuf {
    let file = folder.join("bench.yaml");
    fs::write(&file, yaml).expect("written");
    file
}

#[test]
fn a_tiny_bench_runs_from_end_to_end() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = written(folder.path(), TINY);
    let output = bench(folder.path(), &file, &["--json", "--html", "--junit"]);
    // A disk that is slower than what is asked makes a cell inconclusive, as it should.
    assert!(matches!(output.status.code(), Some(0 | 3)), "{}", text(&output.stderr));
    let object: Value = serde_json::from_slice(&output.stdout).expect("one JSON object");
    let cells = object["cells"].as_array().expect("cells");
    let arms: Vec<&str> = cells.iter().filter_map(|cell| cell["arm"].as_str()).collect();
    assert_eq!(arms, ["five", "five again", "four"]);
    for cell in cells {
        let rounds = cell["rounds"].as_array().expect("rounds");
        assert_eq!(rounds.len(), 2, "{cell}");
        for round in rounds {
            let (from, to) = (round["from"].as_u64().expect("a height"), round["to"].as_u64().expect("a height"));
            assert!(from >= 5 && (30..=60).contains(&to), "{round}");
            assert!(round["blocks_per_s"].as_f64().expect("a rate") > 0.0);
            assert_eq!(round["voided"], false);
        }
    }
    let syncs = |cell: &Value, store: &str| cell["syncs_per_block"][store].as_f64().unwrap_or(0.0);
    // The ends of a window lie within a block, and a file that grows is synced once more.
    for (cell, store, count) in [
        (0, "blockstore.db", 2.0),
        (0, "state.db", 2.0),
        (0, "application.db", 1.0),
        (2, "blockstore.db", 1.0),
        (2, "state.db", 2.0),
    ] {
        assert!((syncs(&cells[cell], store) - count).abs() < 0.3, "{}", cells[cell]);
    }
    assert!(object["floor"].is_null(), "two rounds are no floor");
    assert_eq!(object["ratios"][1]["verdict"], "inconclusive", "nor enough for an interval");

    let results = folder.path().join(object["results"].as_str().expect("a folder"));
    assert!(fs::read_to_string(results.join("report.html")).expect("a page").contains("Plotly"));
    assert!(fs::read_to_string(results.join("junit.xml")).expect("JUnit").contains("testcase"));
    let stored: Value = serde_json::from_slice(&fs::read(results.join("bench.json")).expect("kept")).expect("JSON");
    assert!(stored["cells"][0]["spent"]["stages"]["save"].as_f64().expect("a stage") > 0.0);
    assert!(stored["setup"]["disk"]["count"].as_u64().expect("a probe") >= 30);

    let compared = Command::new(env!("CARGO_BIN_EXE_midflush"))
        .arg("compare")
        .args([&results, &results])
        .output()
        .expect("midflush runs");
    assert_eq!(compared.status.code(), Some(0), "{}", text(&compared.stderr));
    assert!(text(&compared.stdout).contains("five"), "{}", text(&compared.stdout));
}

#[test]
fn bad_benches_are_refused_with_their_places_and_nothing_is_created() {
    let cases: [(&str, &str, &str, &[&str]); 9] = [
        ("to: 30", "to: 59", "bench.yaml:7:26", &["too few blocks for the window", "raise `fixture.heights`"]),
        ("rounds: 2", "rounds: 0", "bench.yaml:8:11", &["`bench.rounds` must be between 1 and 1000"]),
        ("single-flush", "no-sync", "bench.yaml:12:22", &["needs consent"]),
        ("rounds: 2", "rounds: 2\n  axes: { peers: [1, 0] }", "bench.yaml:9:22", &["must be between 1 and 64"]),
        ("rounds: 2", "rounds: 2\n  axes: { fixtures.heights: [1] }", "bench.yaml:9:", &["did you mean `fixture`?"]),
        ("rounds: 2", "rounds: 2\n  require: { ratio: six/five, at_least: 1 }", "bench.yaml:9:", &["`six` is no arm"]),
        ("rounds: 2", "rounds: 2\n  until: { half_width: 2 }", "bench.yaml:9:24", &["no share"]),
        ("reference: {}", "cosmos-sdk: { binary: simd, denom: stake }", "bench.yaml:4:", &["sets up has no bench"]),
        ("heights: 60", "hieght: 60", "bench.yaml:5:", &["did you mean `heights`?"]),
    ];
    for (old, new, place, words) in cases {
        let folder = tempfile::tempdir().expect("a folder");
        let file = written(folder.path(), &TINY.replace(old, new));
        let output = bench(folder.path(), &file, &[]);
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{new}: {told}");
        assert!(told.contains(place), "{new}: {told}");
        for word in words {
            assert!(told.contains(word), "{new}: {told}");
        }
        assert!(!folder.path().join("results").exists(), "{new}");
    }
}

#[test]
fn what_cannot_be_measured_is_an_error_and_no_number() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = written(folder.path(), &TINY.replace("rounds: 2", "rounds: 1\n  cell_limit: 1ms"));
    let output = bench(folder.path(), &file, &["--json"]);
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stderr).contains("after 0 s"), "{}", text(&output.stderr));
    assert!(output.stdout.is_empty());

    let program =
        written(folder.path(), &TINY.replace("storage: per-block", "storage: per-block, binary: no-such-program"));
    let output = bench(folder.path(), &program, &[]);
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("no program `no-such-program`"), "{}", text(&output.stderr));
}

#[test]
fn a_chain_of_another_genesis_is_no_fixture() {
    let folder = tempfile::tempdir().expect("a folder");
    let home = folder.path().join("other");
    let made = Command::new(env!("CARGO_BIN_EXE_midflush"))
        .args(["node", "init", "--validators", "1", "--out"])
        .arg(&home)
        .output()
        .expect("midflush runs");
    assert!(made.status.success(), "{}", text(&made.stderr));
    let validator = home.join("val-1");
    let made = Command::new(env!("CARGO_BIN_EXE_midflush"))
        .args(["node", "build-chain", "--blocks", "60", "--home"])
        .arg(&validator)
        .arg("--keys")
        .arg(validator.join("config/key.json"))
        .output()
        .expect("midflush runs");
    assert!(made.status.success(), "{}", text(&made.stderr));
    let data = validator.join("data").display().to_string();
    let yaml = TINY.replace("validators: 1 }", &format!("validators: 1, data: \"{data}\" }}"));
    let output = bench(folder.path(), &written(folder.path(), &yaml), &[]);
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{told}");
    assert!(told.contains("genesis"), "{told}");
}

#[test]
fn each_shipped_bench_is_good() {
    let mut seen = 0;
    for entry in fs::read_dir(root().join("topologies/bench")).expect("the folder") {
        let path = entry.expect("an entry").path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let bytes = fs::read(&path).expect("a file");
        let loaded = midflush::topology::bench::load(&path.to_string_lossy(), &bytes, &[], &[]);
        let bench = loaded.unwrap_or_else(|problems| panic!("{problems}")).bench;
        assert_eq!(path.file_stem().expect("a name").to_string_lossy(), bench.name);
        midflush::bench::design::design(&bench, 1).expect("cells");
        seen += 1;
    }
    assert!(seen >= 8, "{seen}");
    let readme = fs::read_to_string(root().join("topologies/bench/README.md")).expect("the reference");
    let blocks: Vec<&str> = readme.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(!blocks.is_empty(), "examples");
    for block in blocks {
        if let Err(problems) = midflush::topology::bench::load("README.md", block.as_bytes(), &[], &[]) {
            panic!("{problems}\n{block}");
        }
    }
}

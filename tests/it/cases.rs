//! Observation files with their expected judgement: `tests/cases/*.yaml`, each with the trap that it holds.

use std::fs;
use std::path::{Path, PathBuf};

use midflush::judge::judge_observation;
use serde_json::Value;

fn folder() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases")
}

/// What of `expect` the judgement does not have.
fn misses(expect: &Value, judgement: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    let mut same = |what: &str, wanted: &Value, found: &Value| {
        if wanted != found {
            wrong.push(format!("{what}: wanted {wanted}, found {found}"));
        }
    };
    same("verdict", &expect["verdict"], &judgement["verdict"]);
    for key in ["heights_compared", "distinct_app_hashes"] {
        if let Some(wanted) = expect.get(key) {
            same(key, wanted, &judgement[key]);
        }
    }
    if let Some(nodes) = expect.get("nodes").and_then(Value::as_object) {
        for (name, wanted) in nodes {
            let all = judgement["nodes"].as_array().cloned().unwrap_or_default();
            let row = all.iter().find(|row| row["name"] == **name).cloned().unwrap_or_default();
            for (key, wanted) in wanted.as_object().expect("a map of a node's fields") {
                same(&format!("node {name}, {key}"), wanted, &row[key]);
            }
        }
    }
    let found = judgement["findings"].as_array().cloned().unwrap_or_default();
    if let Some(findings) = expect.get("findings").and_then(Value::as_array) {
        same("number of findings", &findings.len().into(), &found.len().into());
        for wanted in findings {
            if !found.iter().any(|finding| finding_fits(wanted, finding)) {
                wrong.push(format!("no finding {wanted}"));
            }
        }
    } else if expect["verdict"] == "CONVERGED" {
        same("number of findings", &0.into(), &found.len().into());
    }
    for wanted in expect.get("notes").and_then(Value::as_array).into_iter().flatten() {
        let notes = judgement["notes"].as_array().cloned().unwrap_or_default();
        let fits = |note: &Value| {
            wanted["kind"] == note["kind"]
                && (wanted["node"].is_null() || wanted["node"] == note["node"])
                && says(wanted, "says", &note["detail"])
        };
        if !notes.iter().any(fits) {
            wrong.push(format!("no note {wanted}"));
        }
    }
    wrong
}

fn finding_fits(wanted: &Value, finding: &Value) -> bool {
    let fields = ["verdict", "node", "height", "class"];
    let equal = fields
        .iter()
        .filter_map(|key| Some((wanted.get(*key)?, &finding[*key])))
        .all(|(wanted, found)| wanted == found);
    let consequences = wanted.get("consequences").and_then(Value::as_array).is_none_or(|wanted| {
        let found = finding["consequences"].as_array().cloned().unwrap_or_default();
        found.len() == wanted.len() && wanted.iter().all(|v| found.iter().any(|c| c["verdict"] == *v))
    });
    let lines = wanted.get("last_lines").and_then(Value::as_u64);
    let lines = lines.is_none_or(|n| finding["last_lines"].as_array().map_or(0, Vec::len) as u64 == n);
    equal && consequences && lines && says(wanted, "says", &finding["detail"]) && says(wanted, "next", &finding["next"])
}

fn says(wanted: &Value, key: &str, text: &Value) -> bool {
    let text = text.as_str().unwrap_or_default();
    let pieces = wanted.get(key).and_then(Value::as_array).cloned().unwrap_or_default();
    pieces.iter().all(|piece| text.contains(piece.as_str().expect("text")))
}

#[test]
fn every_case_gives_the_expected_judgement() {
    let mut files: Vec<PathBuf> = fs::read_dir(folder()).expect("cases").map(|e| e.expect("an entry").path()).collect();
    // The folder also holds the description of the format.
    files.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    let mut wrong = Vec::new();
    for path in &files {
        let text = fs::read_to_string(path).expect("a case");
        let name = path.file_stem().expect("a name").to_string_lossy();
        let raw: Value = serde_yaml::from_str(&text).expect("YAML");
        let expect = raw.get("expect").unwrap_or_else(|| panic!("{name} expects nothing"));
        match judge_observation(&text) {
            Ok(judgement) => {
                let json = serde_json::to_value(&judgement).expect("JSON");
                let misses = misses(expect, &json);
                if !misses.is_empty() {
                    wrong.push(format!("{name}:\n  {}\n  {}", misses.join("\n  "), json["findings"]));
                }
            }
            Err(error) => wrong.push(format!("{name}: {error}")),
        }
    }
    assert!(files.len() >= 60, "only {} cases", files.len());
    assert!(wrong.is_empty(), "{} of {} cases:\n{}", wrong.len(), files.len(), wrong.join("\n"));
}

#[test]
fn every_example_of_the_manual_is_read() {
    let manual = fs::read_to_string(folder().join("README.md")).expect("the manual");
    let examples: Vec<&str> = manual.split("```yaml\n").skip(1).filter_map(|rest| rest.split("```").next()).collect();
    assert!(examples.len() >= 10, "only {} examples", examples.len());
    for example in examples {
        let version = if example.starts_with("observation:") { "" } else { "observation: 1\n" };
        if let Err(error) = judge_observation(&format!("{version}{example}")) {
            panic!("{error}\n{example}");
        }
    }
}

#[test]
fn an_error_names_the_place() {
    for (text, place, message) in [
        ("observation: 1\npwoer: {v0: 1}\n", "line 2, column 1", "unknown field `pwoer`"),
        ("observation: 1\npower: {v0: -1}\n", "line 2", "expected a whole number"),
        ("{\"observation\": 1,\n \"rest\": [[1]]}", "line 2", "expected `[seconds, height]`"),
        ("observation: 1\nnodes:\n\tv0: {}\n", "line 3", "cannot start any token"),
        ("observation: 2\n", "observation", "format version 2"),
        ("power: {v0: 1}\n", "", "missing field `observation`"),
        ("observation: 1\napp_hashes: {nodes: {v0: {7: \"XYZ\"}}}\n", "app_hashes.nodes.v0.7", "no hash in hex"),
        ("observation: 1\nsame_hash: [{source: a, value: \"AB\"}]\n", "same_hash[0]", "say its `encoding`"),
        ("observation: 1\nrpc: [{node: a, endpoint: stats, body: {}}]\n", "rpc[0].endpoint", "no known endpoint"),
        (
            "observation: 1\nfaults:\n  - {kind: tickle, from: 1}\n",
            "line 3, column 12, faults[0].kind",
            "no kind of fault: use one of kill",
        ),
        ("observation: 1\npower: {a: 1}\nfaults: [{kind: kill, nodes: [a, b]}]\n", "line 3, column 34", "known are a"),
        ("observation: 1\nfaults: [{nodes: [a, a]}]\n", "line 2, column 22", "`a` is listed twice"),
        ("observation: 1\nfaults: [{from: 9, to: 4}]\n", "line 2, column 24", "ends at 4 s, before it begins at 9 s"),
        ("observation: 1\nfaults: [{from: -.inf}]\n", "line 2", "no time in seconds"),
        ("observation: 1\nfaults: [{at_height: -3}]\n", "line 2", "a whole number from 0"),
        ("observation: 1\nfaults: [{whom: [a]}]\n", "line 2", "unknown field `whom`"),
        ("observation: 1\npower:\n  a: 1\n  a: 2\n", "line 3", "`a` is given twice"),
        ("observation: 1\nnodes: {a: {}, a: {power: 1}}\n", "line 2", "`a` is given twice"),
        ("observation: 1\nheights:\n  a: [[5, 1], [4, 2]]\n", "line 3, column 15", "goes backward, from 5 s to 4 s"),
        ("observation: 1\nrest: [[1, 18446744073709551615]]\n", "line 2", "to 9223372036854775807"),
        ("observation: 1\nrest: [[1, 1e30]]\n", "line 2", "a whole number from 0"),
        ("observation: 1\npower: {a: 4e18}\n", "line 2", "a whole number from 0"),
        ("observation: 1\npower: {a: 1152921504606846976}\n", "line 2, column 8", "voting power adds up to more"),
        ("observation: 1\nexits: [{node: a, code: 4096}]\n", "line 2, column 25", "no exit code"),
        ("observation: 1\nexits: [{node: a, signal: 0}]\n", "line 2, column 27", "no signal"),
        ("observation: 1\nexpectations: {converge_within_s: -1}\n", "line 2, column 35", "must not be negative"),
        (
            "observation: 1\nclock_skew: {baseline_blocks_per_min: .nan, runs: []}\n",
            "line 2, column 39",
            "give a number from 0",
        ),
        ("observation: 1\nclock_skew: {baseline_blocks_per_min: many, runs: []}\n", "line 2", "expected a number"),
        ("observation: 1\nexpectations: [1, 2, 3]\n", "line 2", "expected"),
        ("observation: 1\nheights: [1]\n", "line 2", "expected a map from names"),
        ("{\"observation\": 1,\n\"faults\": [{\"kind\": \"tickle\"}]}", "line 2", "no kind of fault"),
        ("", "", ""),
    ] {
        let error = judge_observation(text).expect_err(text);
        assert!(error.place.contains(place) && error.message.contains(message), "{text}\n{error}");
        let names_a_type = ["struct ", "f64", "u64", "Some(", "u32"].iter().any(|name| error.message.contains(name));
        assert!(!names_a_type, "{text}\n{error}");
    }
}

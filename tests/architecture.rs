//! Who imports whom, and what the tree may not hold. The table is the one in ARCHITECTURE.md.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

/// Module → modules of this crate that it may import, besides itself.
const MAY_IMPORT: &[(&str, &[&str])] = &[
    ("sys", &[]),
    ("node", &[]),
    ("timeline", &[]),
    ("topology", &["timeline"]),
    ("agent_client", &["timeline"]),
    ("plan", &["topology", "timeline", "agent_client"]),
    ("fault", &["plan", "topology", "timeline", "agent_client"]),
    ("agent", &["agent_client", "timeline", "sys"]),
    ("engine", &["agent_client", "timeline", "sys"]),
    ("chain", &["engine", "plan", "timeline", "agent_client", "sys"]),
    ("judge", &["timeline"]),
    ("report", &["judge", "timeline"]),
    ("results", &["judge", "timeline"]),
    ("run", &["judge", "results", "chain", "engine", "agent_client", "fault", "plan", "topology", "timeline"]),
    ("bench", &["run", "results", "chain", "engine", "agent_client", "plan", "topology", "timeline"]),
    ("dashboard", &["report", "results", "judge", "timeline"]),
    (
        "cli",
        &[
            "bench",
            "dashboard",
            "run",
            "report",
            "results",
            "judge",
            "chain",
            "engine",
            "agent",
            "agent_client",
            "fault",
            "plan",
            "topology",
            "timeline",
            "node",
        ],
    ),
];

fn sources(dir: &Path, found: &mut Vec<PathBuf>) {
    let mut entries: Vec<_> = fs::read_dir(dir).expect("readable folder").map(|e| e.expect("entry").path()).collect();
    entries.sort();
    for path in entries {
        if path.is_dir() {
            sources(&path, found);
        } else if path.extension().is_some_and(|e| e == "rs") {
            found.push(path);
        }
    }
}

fn src() -> Vec<(String, PathBuf, String)> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let mut found = Vec::new();
    sources(&root, &mut found);
    found
        .into_iter()
        .map(|path| {
            let relative = path.strip_prefix(&root).expect("below src");
            let first = relative.components().next().expect("a component").as_os_str().to_string_lossy();
            let module = first.trim_end_matches(".rs").to_owned();
            let text = fs::read_to_string(&path).expect("readable source");
            (module, path, text)
        })
        .collect()
}

#[test]
fn modules_import_only_what_the_table_allows() {
    let table: BTreeMap<&str, &[&str]> = MAY_IMPORT.iter().copied().collect();
    let mut wrong = Vec::new();
    for (module, path, text) in src() {
        if module == "main" || module == "lib" {
            continue;
        }
        let allowed = table.get(module.as_str()).unwrap_or_else(|| panic!("module `{module}` is not in the table"));
        for (number, line) in text.lines().enumerate() {
            if line.trim_start().starts_with("//") {
                continue;
            }
            for rest in line.split("crate::").skip(1) {
                let group = rest.strip_prefix('{').map_or_else(
                    || vec![rest],
                    |inner| inner.split('}').next().unwrap_or_default().split(", ").collect::<Vec<_>>(),
                );
                for name in group {
                    let name: String = name.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect();
                    if table.contains_key(name.as_str()) && name != module && !allowed.contains(&name.as_str()) {
                        wrong.push(format!("{}:{}: `{module}` imports `{name}`", path.display(), number + 1));
                    }
                }
            }
        }
    }
    assert!(wrong.is_empty(), "imports against the table:\n{}", wrong.join("\n"));
}

#[test]
fn unsafe_stays_in_sys() {
    for (module, path, text) in src() {
        if module == "sys" || module == "lib" {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            // The word before a block or an item; alone it is also a setting of the node.
            let words: Vec<&str> = code.split_whitespace().collect();
            let keyword = |pair: &[&str]| {
                let word = pair[0].trim_start_matches(|c: char| !c.is_alphanumeric() && c != '_');
                word == "unsafe" && ["{", "fn", "impl", "trait", "extern"].contains(&pair[1])
            };
            let has = words.windows(2).any(keyword);
            assert!(!has, "{}:{}: `unsafe` outside sys", path.display(), number + 1);
        }
    }
}

#[test]
fn files_are_small_and_say_what_they_are_for() {
    for (_, path, text) in src() {
        let lines = text.lines().count();
        assert!(lines <= 600, "{} has {lines} lines: find the seam", path.display());
        assert!(text.starts_with("//!"), "{} does not say what it is for", path.display());
    }
}

#[test]
fn nothing_is_left_half_built() {
    for (_, path, text) in src() {
        for word in ["todo!(", "unimplemented!(", "FIXME", "dbg!(", "#[allow(", "#[ignore"] {
            assert!(!text.contains(word), "{} holds `{word}`", path.display());
        }
    }
}

#[test]
fn every_task_has_an_owner() {
    for (module, path, text) in src() {
        if module == "sys" {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            assert!(
                !code.trim_start().starts_with("tokio::spawn("),
                "{}:{}: a detached task: use a JoinSet, a TaskTracker or keep the handle",
                path.display(),
                number + 1
            );
        }
    }
}

//! What must not change the judgement of an observation file: the order in which different nodes are written down, their names, and
//! the same thing written down twice. Tried with every case of `tests/cases`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use midflush::judge::judge_observation;
use proptest::prelude::*;
use serde_yaml::{Mapping as File, Value};

/// Sections that are maps by node.
const BY_NODE: [&str; 8] = ["nodes", "power", "heights", "shards", "logs", "starts", "config", "peer_claims"];

/// Lists whose entries are each about the node in this field.
const LISTS: [(&str, &str); 8] = [
    ("rpc", "node"),
    ("exits", "node"),
    ("triples", "node"),
    ("parts", "node"),
    ("sign_states", "node"),
    ("events", "node"),
    ("findings", "node"),
    ("votes", "validator"),
];

fn cases() -> Vec<(String, File)> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cases");
    let mut files: Vec<_> = fs::read_dir(folder).expect("cases").map(|entry| entry.expect("an entry").path()).collect();
    files.retain(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    files.sort();
    let read = |path: &std::path::PathBuf| {
        let text = fs::read_to_string(path).expect("a case");
        let file = serde_yaml::from_str(&text).expect("YAML");
        (path.display().to_string(), file)
    };
    files.iter().map(read).collect()
}

/// All maps by node of a file, those of its hash tables among them.
fn maps_by_node(file: &mut File) -> Vec<&mut File> {
    let mut maps = Vec::new();
    for (key, value) in file {
        let (Some(key), Value::Mapping(section)) = (key.as_str(), value) else { continue };
        if BY_NODE.contains(&key) {
            maps.push(section);
        } else if key == "app_hashes" || key == "block_ids" {
            let by_node = |key: &Value| ["nodes", "rules", "encodings"].iter().any(|name| key == name);
            let tables = section.iter_mut().filter(|(key, _)| by_node(key));
            maps.extend(tables.filter_map(|(_, table)| table.as_mapping_mut()));
        }
    }
    maps
}

fn list_of<'a>(file: &'a mut File, section: &str) -> Option<&'a mut Vec<Value>> {
    file.get_mut(section)?.as_sequence_mut()
}

/// What is said about whom, in no order, without words that list several nodes in the order of the file.
fn said(file: &File, name: impl Fn(&str) -> String) -> Vec<String> {
    let text = serde_yaml::to_string(file).expect("YAML");
    let judgement = judge_observation(&text).unwrap_or_else(|error| panic!("{error}\n{text}"));
    // A validator of an answer is told by its address.
    let votes = file.get("votes").and_then(Value::as_sequence).into_iter().flatten();
    let voters: Vec<&str> = votes.filter_map(|vote| vote["validator"].as_str()).collect();
    let known = |n: &str| voters.contains(&n) || judgement.nodes.iter().any(|row| row.name == n);
    let names = |node: &Option<String>| {
        let all = node.iter().flat_map(|n| n.split(", "));
        let mut names: Vec<String> = all.map(|n| if known(n) { name(n) } else { n.to_owned() }).collect();
        names.sort();
        names
    };
    let mut all = vec![format!("0 {} of {} heights", judgement.verdict, judgement.heights_compared)];
    for finding in &judgement.findings {
        let mut follows: Vec<String> =
            finding.consequences.iter().map(|c| format!("{} {:?} {:?}", c.verdict, names(&c.node), c.height)).collect();
        follows.sort();
        let words = (finding.verdict, names(&finding.node), finding.height, &finding.class, follows);
        all.push(format!("1 {words:?}"));
    }
    all.extend(judgement.notes.iter().map(|n| format!("2 {} {:?} {:?}", n.kind, names(&n.node), n.height)));
    all.extend(judgement.nodes.iter().map(|n| format!("3 {} {} {:?}", name(&n.name), n.verdict, n.height)));
    all.sort();
    all
}

/// Entries in another order, in which those of one node keep theirs.
fn mixed(entries: Vec<Value>, field: &str, picks: &mut impl Iterator<Item = usize>) -> Vec<Value> {
    let mut queues: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for entry in entries.into_iter().rev() {
        queues.entry(format!("{:?}", entry.get(field))).or_default().push(entry);
    }
    let mut queues: Vec<Vec<Value>> = queues.into_values().collect();
    let mut all = Vec::new();
    while queues.iter().any(|queue| !queue.is_empty()) {
        let pick = picks.next().unwrap_or(0) % queues.len();
        all.extend(queues[pick].pop().or_else(|| queues.iter_mut().find_map(Vec::pop)));
    }
    all
}

/// Every second or so entry of a list twice.
fn doubled(entries: &[Value], picks: &mut impl Iterator<Item = usize>) -> Vec<Value> {
    let twice = |entry: &Value| std::iter::repeat_n(entry.clone(), 1 + picks.next().unwrap_or(0) % 2);
    entries.iter().flat_map(twice).collect()
}

/// A name by which no node is called, which sorts otherwise than the old one.
fn other(name: &str) -> String {
    let turned: String = name.chars().rev().collect();
    format!("z{turned}")
}

fn rename(value: &mut Value) {
    match value {
        Value::String(name) => *name = other(name),
        Value::Sequence(list) => list.iter_mut().for_each(rename),
        _ => {}
    }
}

fn renamed(file: &File) -> File {
    let mut file = file.clone();
    for map in maps_by_node(&mut file) {
        for (mut name, value) in std::mem::take(map) {
            rename(&mut name);
            map.insert(name, value);
        }
    }
    for (section, field) in LISTS.into_iter().chain([("faults", "nodes")]) {
        let entries = list_of(&mut file, section).into_iter().flatten();
        entries.filter_map(|entry| entry.get_mut(field)).for_each(rename);
    }
    file.get_mut("twins").into_iter().for_each(rename);
    let runs = file.get_mut("clock_skew").and_then(|skew| skew.get_mut("runs")?.as_sequence_mut());
    runs.into_iter().flatten().filter_map(|run| run.get_mut("skewed")).for_each(rename);
    file.get_mut("host").and_then(|host| host.get_mut("limited_volumes")).into_iter().for_each(rename);
    file
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    #[test]
    fn the_order_of_different_nodes_does_not_matter(picks in prop::collection::vec(0_usize..12, 97)) {
        let mut picks = picks.into_iter().cycle();
        for (case, file) in cases() {
            let mut other = file.clone();
            for map in maps_by_node(&mut other) {
                let mut rest: Vec<(Value, Value)> = std::mem::take(map).into_iter().collect();
                while !rest.is_empty() {
                    let (name, value) = rest.swap_remove(picks.next().unwrap_or(0) % rest.len());
                    map.insert(name, value);
                }
            }
            for (section, field) in LISTS {
                if let Some(entries) = list_of(&mut other, section) {
                    *entries = mixed(std::mem::take(entries), field, &mut picks);
                }
            }
            prop_assert_eq!(said(&other, str::to_owned), said(&file, str::to_owned), "{}", case);
        }
    }

    #[test]
    fn what_is_written_down_twice_changes_nothing(picks in prop::collection::vec(0_usize..12, 97)) {
        let mut picks = picks.into_iter().cycle();
        for (case, file) in cases() {
            let mut other = file.clone();
            for section in ["heights", "shards", "logs", "starts"] {
                let nodes = other.get_mut(section).and_then(Value::as_mapping_mut).into_iter().flatten();
                let lists = nodes.flat_map(|(_, value)| match value {
                    Value::Mapping(shards) => shards.iter_mut().map(|(_, looks)| looks).collect(),
                    list => vec![list],
                });
                for entries in lists.filter_map(Value::as_sequence_mut) {
                    *entries = doubled(entries, &mut picks);
                }
            }
            for section in LISTS.iter().map(|(section, _)| *section).chain(["faults", "rest"]) {
                if let Some(entries) = list_of(&mut other, section) {
                    *entries = doubled(entries, &mut picks);
                }
            }
            prop_assert_eq!(said(&other, str::to_owned), said(&file, str::to_owned), "{}", case);
        }
    }
}

#[test]
fn renaming_only_renames() {
    for (case, file) in cases() {
        assert_eq!(said(&renamed(&file), str::to_owned), said(&file, other), "{case}");
    }
}

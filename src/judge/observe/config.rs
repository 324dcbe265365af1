//! Settings that have to be the same on every node, and keys that must not be: checked before any hash is compared, since
//! nodes of two chains cannot disagree.

use std::collections::BTreeMap;

use super::build::chain_of;
use super::file::File;
use super::rpc::Answer;
use crate::judge::{Finding, Note, Said, Verdict, signed};

/// Settings that make another chain where they differ.
const SAME: [(&str, &[&str]); 2] = [
    ("chain id", &["network", "chain_id"]),
    ("genesis", &["genesis", "genesis_sha", "genesis_hash", "genesis_sha256"]),
];

/// Settings that may differ as long as the hashes agree.
const MAY_DIFFER: [(&str, &[&str]); 3] = [
    ("application version", &["app_version"]),
    ("version", &["version", "binary"]),
    ("image", &["image", "image_digest"]),
];

/// Keys that belong to one node each.
const UNIQUE: [(&str, &[&str]); 2] =
    [("node key", &["node_key", "node_id"]), ("validator key", &["validator_key", "val_key", "priv_validator_key"])];

/// Setting → value → nodes with it.
type Values = BTreeMap<String, Vec<String>>;

/// Finds settings that are wrong; gives the nodes that are on another chain.
pub(super) fn check(file: &File, answers: &[Answer], said: &mut Said) -> Vec<String> {
    let mut strangers = Vec::new();
    for (name, keys) in SAME {
        let mut values = gather(file, keys);
        if name == "chain id" {
            for answer in answers {
                let Some(id) = &answer.chain_id else { continue };
                add(&mut values, id, &answer.node);
            }
        }
        for values in by_chain(file, &values) {
            strangers.extend(differing(file, name, &values, said));
        }
    }
    for (name, keys) in MAY_DIFFER {
        let mut values = gather(file, keys);
        if name == "application version" {
            for answer in answers {
                let Some(version) = &answer.app_version else { continue };
                add(&mut values, version, &answer.node);
            }
        }
        if values.len() > 1 {
            let words = format!("{name} differs: {}; a note only, as long as the hashes agree", sides(&values));
            said.notes.push(Note::run("config", words));
        }
    }
    for (name, keys) in UNIQUE {
        shared(file, name, &gather(file, keys), said);
    }
    strangers
}

/// The same for each chain of the file by itself: nodes of two chains differ on purpose.
fn by_chain(file: &File, values: &Values) -> Vec<Values> {
    let mut chains: BTreeMap<String, Values> = BTreeMap::new();
    for (value, nodes) in values {
        for node in nodes {
            add(chains.entry(chain_of(file, node)).or_default(), value, node);
        }
    }
    chains.into_values().collect()
}

fn gather(file: &File, keys: &[&str]) -> Values {
    let mut values = Values::new();
    for (node, settings) in &file.config {
        for (key, value) in settings {
            if keys.contains(&key.as_str()) && !value.is_null() {
                let text = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
                add(&mut values, &text, node);
            }
        }
    }
    values
}

fn add(values: &mut Values, value: &str, node: &str) {
    let nodes = values.entry(value.to_owned()).or_default();
    if !nodes.iter().any(|n| n == node) {
        nodes.push(node.to_owned());
    }
}

fn sides(values: &Values) -> String {
    let sides: Vec<String> = values.iter().map(|(value, nodes)| format!("{} has {value}", nodes.join(", "))).collect();
    sides.join("; ")
}

fn power(file: &File, nodes: &[String]) -> u64 {
    let known = !file.power.is_empty() || file.nodes.values().any(|n| n.power.is_some());
    let of = |node: &String| {
        let told = file.nodes.get(node).and_then(|n| n.power).or_else(|| file.power.get(node).copied());
        if known { told.map_or(0, |p| p.0) } else { 1 }
    };
    nodes.iter().map(of).sum()
}

/// Nodes that differ from the majority by voting power; without a majority every node is suspect and none is left out.
fn differing(file: &File, name: &str, values: &Values, said: &mut Said) -> Vec<String> {
    if values.len() < 2 {
        return Vec::new();
    }
    let total: u64 = values.values().map(|nodes| power(file, nodes)).sum();
    let majority = values.iter().find(|(_, nodes)| 2 * power(file, nodes) > total).map(|(value, _)| value.clone());
    let wrong: Vec<String> = values
        .iter()
        .filter(|(value, _)| majority.as_ref() != Some(value))
        .flat_map(|(_, nodes)| nodes.clone())
        .collect();
    let blame = if majority.is_some() { "" } else { "; no majority" };
    let finding = Finding::new(Verdict::ConfigError, format!("{name} differs: {}{blame}", sides(values)))
        .node(wrong.join(", "))
        .why("nodes of two chains cannot agree, and their hashes must not be compared")
        .next(format!("give every node the same {name} and start again"));
    said.findings.push(finding);
    wrong
}

/// Keys that two nodes share without being declared twins.
fn shared(file: &File, name: &str, values: &Values, said: &mut Said) {
    for (key, nodes) in values.iter().filter(|(_, nodes)| nodes.len() > 1) {
        let twins = file.twins.iter().any(|twins| nodes.iter().all(|n| twins.contains(n)));
        if twins && name == "validator key" {
            let words = format!("{} share the {name} {key}, as declared twins", nodes.join(", "));
            said.notes.push(Note::run("twins", words));
            continue;
        }
        let nodes = nodes.join(", ");
        said.findings.push(if name == "node key" {
            Finding::new(Verdict::ConfigError, format!("{nodes} share the {name} {key}"))
                .node(nodes)
                .why("peers take two nodes with one key for one, and reject the second")
                .next("give each node a key of its own")
        } else {
            signed::one_key(&nodes, key).next("give each its own key, or declare them twins")
        });
    }
}

//! From the tree to the types, section by section.

mod application;
pub(super) mod bench;
mod builds;
mod chain;
mod cosmos_sdk;
mod custom;
mod expect;
mod faults;
mod nodes;

use self::faults::Known;
use super::path::Path;
use super::reader::{At, Reader};
use super::tree::Tree;
use super::types::{Load, Topology};
use super::{families, units};
use crate::topology::diagnostic::Problem;
use indexmap::IndexMap;

/// Version of the language.
const VERSION: u64 = 1;

const KEYS: &[&str] = &["midflush", "name", "chain", "builds", "nodes", "load", "faults", "expect"];

/// Reads a whole topology. `None` when something is missing that everything else hangs on; the problems are in `reader`.
pub(super) fn topology(reader: &mut Reader, tree: &Tree) -> Option<Topology> {
    let at = At { tree, path: Path::root() };
    if *tree == Tree::Null {
        let problem = Problem::new("empty", &at.path, "the topology is empty");
        reader.push(problem.label("nothing here").help("start with `midflush: 1`, `name: …`, `chain:` and `nodes:`"));
        return None;
    }
    let fields = reader.map(&at, "a map", "midflush: 1", KEYS)?;
    if let Some(version) = reader.required(&fields, "midflush", "midflush: 1") {
        self::version(reader, &version);
    }
    let name = reader.required(&fields, "name", "name: four-validators").and_then(|at| self::name(reader, &at));
    let chain = reader.required(&fields, "chain", "chain: { reference: {} }").and_then(|at| chain::chain(reader, &at));
    let family = chain.as_ref().map(|chain| &chain.family);
    let builds = match fields.get("builds") {
        None => Some(IndexMap::new()),
        Some(at) => builds::builds(reader, &at, family),
    };
    let nodes = reader
        .required(&fields, "nodes", "nodes: { val: { role: validator, count: 4 } }")
        .and_then(|at| nodes::nodes(reader, &at, family, builds.as_ref()));
    let load = fields.get("load").and_then(|at| load(reader, &at, families::kinds(family)));
    let known = Known {
        groups: nodes.iter().flatten().map(|(name, group)| (name.as_str(), group.node_names(name))).collect(),
        whole: nodes.is_some(),
        builds: builds.as_ref(),
    };
    let faults = fields.get("faults").map(|at| faults::faults(reader, &at, &known)).unwrap_or_default();
    let expect = fields.get("expect").and_then(|at| expect::expect(reader, &at, &known)).unwrap_or_default();
    drop(known);
    let chain = chain?;
    Some(Topology {
        name: name?,
        chain: chain.family,
        application: chain.application,
        initial_height: chain.initial_height,
        built_blocks: chain.built_blocks,
        builds: builds?,
        nodes: nodes?,
        load,
        faults,
        expect,
    })
}

fn version(reader: &mut Reader, at: &At) {
    if *at.tree != Tree::Int(VERSION.into()) {
        let title = "this midflush reads version 1 of the language";
        let label = format!("found {}", at.tree.describe());
        reader.push(Problem::new("version", &at.path, title).label(label).help("write `midflush: 1`"));
    }
}

fn name(reader: &mut Reader, at: &At) -> Option<String> {
    let text = reader.text(at, "four-validators")?;
    if is_name(text, 60) {
        return Some(text.to_owned());
    }
    let title = "a topology's name has lower-case letters, digits and `-`, and begins with a letter; at most 60";
    reader.push(Problem::new("bad-name", &at.path, title).label("cannot be a name"));
    None
}

/// Names end in host names, folders and labels.
fn is_name(text: &str, longest: usize) -> bool {
    text.len() <= longest
        && text.starts_with(|c: char| c.is_ascii_lowercase())
        && text.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        && !text.ends_with('-')
}

fn load(reader: &mut Reader, at: &At, known: &[&str]) -> Option<Load> {
    let example = "{ rate: 40/s, size: 200B }";
    let fields = reader.map(at, "a map", example, &["rate", "size", "kinds"])?;
    let rate = reader.required(&fields, "rate", "rate: 40/s").and_then(|at| reader.unit(&at, "40/s", units::rate));
    let size = match fields.get("size") {
        Some(at) => reader.unit(&at, "200B", units::size),
        None => Some(200),
    };
    let kinds = match fields.get("kinds") {
        Some(at) => kinds(reader, &at, known),
        None => Some(known.iter().take(1).map(|kind| ((*kind).to_owned(), 1)).collect()),
    };
    Some(Load { rate: rate?, size: size?, kinds: kinds? })
}

/// `[set, validator]` in equal parts, or `{ set: 9, validator: 1 }`.
fn kinds(reader: &mut Reader, at: &At, known: &[&str]) -> Option<IndexMap<String, u32>> {
    let example = "{ set: 9, validator: 1 }";
    if let Tree::List(_) = at.tree {
        let list = reader.list(at, "a list", "[set]")?;
        let kinds: Option<Vec<_>> =
            list.iter().map(|at| reader.word(at, known).map(|kind| (kind.to_owned(), 1))).collect();
        return some_kinds(reader, at, kinds?.into_iter().collect());
    }
    let fields = reader.map(at, "a map of kinds and weights, or a list of kinds", example, known)?;
    let weights: Option<Vec<_>> = fields
        .iter()
        .map(|(kind, at)| {
            let weight = reader.whole(&at, 1, 1_000)?;
            Some((kind.to_owned(), u32::try_from(weight).ok()?))
        })
        .collect();
    some_kinds(reader, at, weights?.into_iter().collect())
}

fn some_kinds(reader: &mut Reader, at: &At, kinds: IndexMap<String, u32>) -> Option<IndexMap<String, u32>> {
    if kinds.is_empty() {
        let problem = Problem::new("empty", &at.path, "the load has no kinds of transactions");
        reader.push(problem.label("empty").help("leave `kinds` out for the usual kind alone"));
        return None;
    }
    Some(kinds)
}

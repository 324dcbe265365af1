//! Addresses, latencies and expectations of a plan against what is known about each node's stores.
//!
//! A topology names stores; only the node family knows which there are, so this is a step of its own.

use std::collections::{BTreeMap, BTreeSet};

use super::{FaultPlan, Plan};
use crate::timeline::{Address, HeightRange, Layout, Mode};
use crate::topology::{APPLICATION_STORES, Path, Problem, Topology, listed, nearest};

/// Everything in the plan that the nodes' stores do not bear out. `layouts` has an entry for each node, to which the stores
/// of the application beside it are added here; `topology` gives the places in the file.
pub fn check_layout(topology: &Topology, plan: &Plan, layouts: &BTreeMap<String, Layout>) -> Vec<Problem> {
    let mut layouts = layouts.clone();
    if let Some(application) = &plan.application {
        for layout in layouts.values_mut() {
            layout.stores.extend_from_slice(&application.layout.stores);
            layout.flush.extend_from_slice(&application.layout.flush);
        }
    }
    let layouts = &layouts;
    let mut problems = Vec::new();
    for group in topology.nodes.keys() {
        let Some(node) = plan.nodes.iter().find(|node| node.group == *group) else { continue };
        let Some(layout) = layouts.get(&node.name) else { continue };
        let path = Path::root().key("nodes").key(group).key("disk").key("sync");
        for store in node.sync_latency.keys().filter(|store| *store != "*") {
            problems.extend(unknown_store(layout, store, &node.name, |code, title| {
                Problem::at_key(code, &path.key(store), title)
            }));
        }
    }
    for (index, fault) in topology.faults.iter().enumerate() {
        let path = Path::root().key("faults").index(index).key("at");
        let mut seen = BTreeSet::new();
        for occurrence in plan.faults.iter().filter(|plan| plan.setup.id.name == fault.name) {
            // One group has one layout as a rule: the same problem is told once.
            let found = layouts
                .get(&occurrence.setup.node)
                .and_then(|layout| untold(plan, occurrence, &path).or_else(|| address(occurrence, layout, &path)));
            problems.extend(found.filter(|problem| seen.insert(problem.code)));
        }
    }
    expectations(plan, layouts, &mut problems);
    problems
}

fn unknown_store(
    layout: &Layout,
    store: &str,
    node: &str,
    problem: impl Fn(&'static str, String) -> Problem,
) -> Option<Problem> {
    let known = || layout.stores.iter().map(|store| store.name.as_str());
    if known().any(|name| name == store) {
        return None;
    }
    let label =
        nearest(store, known()).map_or_else(|| "no such store".to_owned(), |meant| format!("did you mean `{meant}`?"));
    let title = format!("`{node}` has no store `{store}`");
    let beside = known().any(|name| name.starts_with(APPLICATION_STORES));
    let help = format!("it has {}", listed(known()));
    let help = if store.starts_with(APPLICATION_STORES) && !beside {
        format!("{help}; no application with stores of its own is beside it")
    } else {
        help
    };
    Some(problem("unknown-store", title).label(label).help(help))
}

/// What an application beside a node does not tell: its mode never, and a height only where its writes show it.
fn untold(plan: &Plan, fault: &FaultPlan, path: &Path) -> Option<Problem> {
    if !plan.aims_at_application(&fault.setup) {
        return None;
    }
    let (asked, application) = (fault.setup.asked.as_ref()?, plan.application.as_ref()?);
    let problem = |key: &str, title: &str| Problem::at_key("not-of-an-application", &path.key(key), title);
    if asked.mode.is_some() {
        let title = "an application beside a node does not know the node's mode";
        return Some(problem("mode", title).label("cannot be told").help("leave `mode` out"));
    }
    if asked.height != HeightRange::default() && application.layout.height_mark.is_none() {
        let title = "nothing tells at which height the application's writes are";
        let help = "give `application` a `height_mark`, or leave `height` out";
        return Some(problem("height", title).label("cannot be told").help(help));
    }
    None
}

fn expectations(plan: &Plan, layouts: &BTreeMap<String, Layout>, problems: &mut Vec<Problem>) {
    let words = |mode: &Mode| match mode {
        Mode::Consensus => "consensus",
        Mode::BlockSync => "block_sync",
        Mode::Replay => "replay",
    };
    for (name, modes) in &plan.expect.syncs_per_block {
        let Some(node) = plan.nodes.iter().find(|node| node.name == *name || node.group == *name) else { continue };
        let Some(layout) = layouts.get(&node.name) else { continue };
        let path = Path::root().key("expect").key("syncs_per_block").key(name);
        for (mode, stores) in modes {
            for store in stores.keys() {
                let path = path.key(words(mode)).key(store);
                problems.extend(unknown_store(layout, store, &node.name, |code, title| {
                    Problem::at_key(code, &path, title)
                }));
            }
        }
    }
}

/// Whether an address can exist on a node.
fn address(fault: &FaultPlan, layout: &Layout, path: &Path) -> Option<Problem> {
    let (node, address) = (fault.setup.node.as_str(), fault.setup.asked.as_ref()?);
    let store = address.store.as_str();
    let place = path.key("store");
    if let Some(problem) = unknown_store(layout, store, node, |code, title| Problem::new(code, &place, title)) {
        return Some(problem);
    }
    let in_mode = |modes: &[Mode]| address.mode.is_none_or(|mode| modes.is_empty() || modes.contains(&mode));
    let commits: Vec<Option<u32>> = layout
        .flush
        .iter()
        .filter(|commit| commit.store == store && in_mode(&commit.modes))
        .map(|commit| commit.sync)
        .collect();
    if commits.is_empty() {
        let others: BTreeSet<&str> =
            layout.flush.iter().filter(|commit| in_mode(&commit.modes)).map(|commit| commit.store.as_str()).collect();
        let title = format!("`{store}` of `{node}` is no part of {}", flush_words(address));
        let help = format!("stores in it are {}", listed(others));
        return Some(Problem::new("no-such-event", &place, title).label("no event here").help(help));
    }
    numbers(node, address, &commits, path)
}

fn flush_words(address: &Address) -> &'static str {
    match address.mode {
        None => "a flush",
        Some(Mode::Consensus) => "a flush in consensus",
        Some(Mode::BlockSync) => "a flush in block sync",
        Some(Mode::Replay) => "a flush in replay",
    }
}

/// The sync's number against the commits of its store.
fn numbers(node: &str, address: &Address, commits: &[Option<u32>], path: &Path) -> Option<Problem> {
    let store = &address.store;
    let place = path.key("sync");
    let last = commits.iter().flatten().max();
    match (address.sync, last) {
        (Some(_), None) => {
            let title = format!("`{node}` ends no part of a flush with a sync of `{store}`");
            let write = address.write.map_or_else(|| "first".to_owned(), |write| write.to_string());
            let help =
                format!("leave `sync` out and aim at a write: `{{ store: {store}, write: {write}, phase: before }}`");
            Some(Problem::at_key("never-synced", &place, title).label("there is no sync").help(help))
        }
        (Some(asked), Some(last)) if asked > *last => {
            let times = if *last == 1 { "once".to_owned() } else { format!("{last} times") };
            let title = format!("`{node}` syncs `{store}` {times} in {}", flush_words(address));
            Some(
                Problem::new("no-such-event", &place, title)
                    .label("too high")
                    .help(format!("the last is `sync: {last}`")),
            )
        }
        (None, Some(last)) if commits.iter().all(Option::is_some) => {
            let title = format!("the writes of `{store}` of `{node}` are counted from the sync that ends them");
            let help = if *last == 1 { "add `sync: 1`".to_owned() } else { format!("add `sync: 1` to `sync: {last}`") };
            Some(Problem::at_key("vague-address", path, title).label("needs `sync`").help(help))
        }
        _ => None,
    }
}

//! What holds only between parts of a topology: names, numbers that must fit each other, faults that could never land.

use std::collections::{BTreeMap, BTreeSet};

use super::diagnostic::Problem;
use super::path::Path;
use super::reader::listed;
use super::similar::nearest;
use super::types::{Chain, Fault, Peers, Start, Topology, Trigger};
use crate::timeline::{Mode, Role, Tier};

/// Most nodes of one topology.
const NODES_MAX: usize = 1_000;
/// Most occurrences of all faults.
const OCCURRENCES_MAX: usize = 2_000;

/// Everything that is wrong between the parts. `faults_whole` says that every fault could be read.
pub(super) fn check(topology: &Topology, faults_whole: bool) -> Vec<Problem> {
    let mut problems = Vec::new();
    halting(topology, &mut problems);
    names(topology, &mut problems);
    quorum(topology, &mut problems);
    peers(topology, &mut problems);
    fault_names(topology, faults_whole, &mut problems);
    let total: usize = topology.faults.iter().map(occurrences).fold(0, usize::saturating_add);
    if total > OCCURRENCES_MAX {
        let title = format!("all faults together happen {total} times; at most {OCCURRENCES_MAX} are planned");
        problems.push(Problem::at_key("out-of-bounds", &Path::root().key("faults"), title).label("too many"));
    }
    for fault in &topology.faults {
        reachable(topology, fault, &fault_path(fault), &mut problems);
    }
    problems
}

/// What is allowed and worth knowing.
pub(super) fn notes(topology: &Topology) -> Vec<String> {
    let power: BTreeMap<String, u64> = topology.nodes().map(|(node, _, group)| (node, group.power)).collect();
    let total: u64 = power.values().sum();
    let mut notes = Vec::new();
    for fault in &topology.faults {
        let hit = |node: &String| power.get(node).copied().unwrap_or_default();
        let at_once = if fault.target.one_of {
            fault.target.nodes.iter().map(hit).max().unwrap_or_default()
        } else {
            fault.target.nodes.iter().map(hit).sum()
        };
        if at_once * 3 >= total && at_once > 0 {
            notes.push(format!(
                "fault `{}` takes {at_once} of {total} voting power at once: the chain stands still until it is back",
                fault.name
            ));
        }
    }
    notes
}

fn group_path(name: &str) -> Path {
    Path::root().key("nodes").key(name)
}

fn fault_path(fault: &Fault) -> Path {
    Path::root().key("faults").index(fault.position)
}

fn halting(topology: &Topology, problems: &mut Vec<Problem>) {
    let Some(expected) = topology.expect.halt_height else { return };
    let path = Path::root().key("expect").key("halt");
    let first = topology.built_height() + 1;
    match &topology.chain {
        _ if expected < first => {
            let title = format!("the chain cannot halt at {expected}: its first new block is {first}");
            problems.push(Problem::new("unreachable-height", &path, title).label("too low"));
        }
        Chain::Cometbft(_) | Chain::Gnoland(_) | Chain::Tenderdash(_) | Chain::CosmosSdk(_) | Chain::Custom(_) => {
            let title = "only a reference chain has a halt height here";
            problems.push(Problem::at_key("not-of-this-family", &path, title).label("not for this chain"));
        }
        Chain::Reference(reference) if reference.halt_height != Some(expected) => {
            let title = format!("nothing makes the chain halt at {expected}");
            let help = format!("write `halt_height: {expected}` under `chain.reference`");
            problems.push(Problem::new("never-halts", &path, title).label("never reached").help(help));
        }
        Chain::Reference(_) => {}
    }
}

fn names(topology: &Topology, problems: &mut Vec<Problem>) {
    let mut owners: BTreeMap<String, &str> = BTreeMap::new();
    for (node, group, _) in topology.nodes() {
        if let Some(first) = owners.insert(node.clone(), group)
            && first != group
        {
            let title = format!("two nodes would be called `{node}`: one of group `{first}`, one of `{group}`");
            let problem = Problem::at_key("duplicate-node", &group_path(group), title).label("clashes");
            problems.push(problem.help("give one of the groups another name"));
        }
    }
    // A group of several is no node itself, but faults name both.
    for (name, group) in topology.nodes.iter().filter(|(_, group)| group.count > 1) {
        if let Some(other) = owners.get(name.as_str()) {
            let title = format!("`{name}` is a group of {} and also a node of group `{other}`", group.count);
            problems.push(Problem::at_key("duplicate-node", &group_path(name), title).label("clashes"));
        }
    }
    let count = topology.nodes().count();
    if count > NODES_MAX {
        let title = format!("{count} nodes are more than {NODES_MAX}");
        problems.push(Problem::at_key("out-of-bounds", &Path::root().key("nodes"), title).label("too many"));
    }
}

fn quorum(topology: &Topology, problems: &mut Vec<Problem>) {
    let path = Path::root().key("nodes");
    let sum = |wanted: fn(Start) -> bool| -> u64 {
        let groups = topology.nodes.values().filter(|group| wanted(group.start));
        groups.map(|group| group.power * group.count as u64).sum()
    };
    let total = sum(|_| true);
    if !topology.nodes.values().any(|group| group.role == Role::Validator) {
        let problem = Problem::at_key("no-validator", &path, "there is no validator, so no block is ever made");
        problems.push(problem.label("needs a validator").help("give a group `role: validator`"));
        return;
    }
    if sum(|start| start == Start::Run) == 0 {
        let problem = Problem::at_key("nobody-starts", &path, "no validator starts with the run");
        problems.push(problem.label("all start late").help("leave `start` out for at least one group of validators"));
        return;
    }
    let sure = sum(|start| !matches!(start, Start::Height(_)));
    if sure * 3 > total * 2 {
        return;
    }
    let late = topology.nodes.iter().find(|(_, group)| group.power > 0 && matches!(group.start, Start::Height(_)));
    if let Some((name, _)) = late {
        let title = format!("without `{name}` there are {sure} of {total} voting power, too few to make a block");
        problems.push(
            Problem::at_key("no-quorum", &group_path(name).key("start"), title)
                .label("waits for a height that is never reached")
                .help("more than two thirds must start with the run, or `after:` a time"),
        );
    }
}

fn peers(topology: &Topology, problems: &mut Vec<Problem>) {
    let total = topology.nodes().count();
    let mut ends = 0;
    let mut numbered = 0;
    for (name, group) in &topology.nodes {
        let path = group_path(name).key("peers");
        match &group.peers {
            Peers::All => {}
            Peers::Count(peers) => {
                numbered += group.count;
                ends += peers * group.count;
                if *peers >= total {
                    let others = total - 1;
                    let title = format!("`{name}` cannot have {peers} peers: there are {others} other nodes");
                    problems.push(Problem::new("impossible-graph", &path, title).label("too many"));
                }
            }
            Peers::Named(names) => named_peers(topology, name, names, &path, problems),
        }
    }
    if numbered < total || total < 2 {
        return;
    }
    let first = topology.nodes.keys().next().map_or("", String::as_str);
    let path = group_path(first).key("peers");
    if ends % 2 == 1 {
        let title = format!("no graph has these numbers of peers: they add up to {ends}, and every link has two ends");
        problems.push(
            Problem::new("impossible-graph", &path, title)
                .label("an odd sum")
                .help("make a number of peers or of nodes even, or leave `peers` out in one group"),
        );
    } else if ends < 2 * (total - 1) {
        let title = format!("{} links cannot connect {total} nodes", ends / 2);
        problems
            .push(Problem::new("impossible-graph", &path, title).label("too few").help("write at least `peers: 2`"));
    }
}

fn named_peers(topology: &Topology, group: &str, names: &[String], path: &Path, problems: &mut Vec<Problem>) {
    let known: BTreeSet<String> = topology.nodes().map(|(node, _, _)| node).collect();
    for (index, name) in names.iter().enumerate() {
        if topology.nodes.contains_key(name.as_str()) || known.contains(name) {
            continue;
        }
        let words = known.iter().map(String::as_str).chain(topology.nodes.keys().map(String::as_str));
        let label = nearest(name, words)
            .map_or_else(|| "no such node or group".to_owned(), |meant| format!("did you mean `{meant}`?"));
        let title = format!("`{group}` has a peer `{name}` that is no node or group");
        let help = format!("groups are {}", listed(topology.nodes.keys().map(String::as_str)));
        problems.push(Problem::new("unknown-node", &path.index(index), title).label(label).help(help));
    }
}

fn fault_names(topology: &Topology, faults_whole: bool, problems: &mut Vec<Problem>) {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    for fault in &topology.faults {
        if !seen.insert(&fault.name) {
            let title = format!("two faults are called `{}`", fault.name);
            let problem = Problem::new("duplicate-fault", &fault_path(fault).key("name"), title).label("used before");
            problems.push(problem.help("give each fault a name of its own"));
        }
    }
    for fault in &topology.faults {
        let Trigger::After { fault: before, .. } = &fault.trigger else { continue };
        let place = fault_path(fault).key("after");
        if !seen.contains(before.as_str()) && faults_whole {
            let label = nearest(before, seen.iter().copied())
                .map_or_else(|| "no such fault".to_owned(), |meant| format!("did you mean `{meant}`?"));
            let help = format!("faults are {}", listed(seen.iter().copied()));
            let title = format!("`{}` follows a fault that does not exist", fault.name);
            problems.push(Problem::new("unknown-fault", &place, title).label(label).help(help));
        } else if follows_itself(topology, fault) {
            let title = format!("`{}` would wait for itself", fault.name);
            let problem = Problem::new("circular-faults", &place, title).label("leads back here");
            problems.push(problem.help("one fault of the circle needs `at:` or `every:`"));
        }
    }
}

fn follows_itself(topology: &Topology, start: &Fault) -> bool {
    let mut before: BTreeMap<&str, &str> = BTreeMap::new();
    for fault in &topology.faults {
        if let Trigger::After { fault: other, .. } = &fault.trigger {
            before.insert(&fault.name, other);
        }
    }
    let mut name = start.name.as_str();
    for _ in 0..topology.faults.len() {
        match before.get(name) {
            None => return false,
            Some(other) if *other == start.name => return true,
            Some(other) => name = other,
        }
    }
    false
}

/// How often a fault happens, over all its nodes.
fn occurrences(fault: &Fault) -> usize {
    let times = if let Trigger::Every { times, .. } = fault.trigger { times as usize } else { 1 };
    let nodes = if fault.target.one_of { 1 } else { fault.target.nodes.len() };
    times.saturating_mul(nodes)
}

/// An address can only be met on a node whose writes are seen.
fn watched(topology: &Topology, fault: &Fault, at: &Path, problems: &mut Vec<Problem>) {
    let mut targets = topology.nodes().filter(|(node, _, _)| fault.target.nodes.contains(node));
    let Some((node, name, _)) = targets.find(|(_, _, group)| matches!(group.watch, Some(Tier::None | Tier::Observe)))
    else {
        return;
    };
    let title = format!("`{node}` is not watched closely enough for an address");
    problems.push(
        Problem::at_key("unwatched", at, title)
            .label("needs every write to be seen")
            .help(format!("leave `watch` out of `nodes.{name}`, or write `watch: record`")),
    );
}

/// Heights and windows that can never be met.
fn reachable(topology: &Topology, fault: &Fault, path: &Path, problems: &mut Vec<Problem>) {
    let at = path.key("at");
    let halt = match &topology.chain {
        Chain::Reference(reference) => reference.halt_height,
        Chain::Cometbft(_) | Chain::Gnoland(_) | Chain::Tenderdash(_) | Chain::CosmosSdk(_) | Chain::Custom(_) => None,
    };
    let from = match &fault.trigger {
        Trigger::Address(address) => address.height.from,
        Trigger::Height(height) => *height,
        _ => return,
    };
    if let Some(halt) = halt.filter(|halt| *halt < from) {
        let title = format!("height {from} is never reached: the chain halts at {halt}");
        problems.push(Problem::new("unreachable-height", &at.key("height"), title).label("above the halt"));
    }
    let Trigger::Address(address) = &fault.trigger else { return };
    watched(topology, fault, &at, problems);
    let first = topology.built_height() + 1;
    let consensus = address.mode == Some(Mode::Consensus);
    if let Some(to) = address.height.to.filter(|to| *to < if consensus { first } else { topology.initial_height }) {
        let title = format!("height {to} is not made in this run");
        let help = format!("blocks made by consensus begin at {first}");
        problems.push(Problem::new("unreachable-height", &at.key("height"), title).label("too low").help(help));
    }
    let Some(window) = address.window.filter(|window| *window > 1) else { return };
    let place = at.key("window");
    let title = format!("no flush here holds {window} blocks");
    if address.mode.is_some_and(|mode| mode != Mode::BlockSync) {
        problems.push(
            Problem::new("unreachable-window", &place, title)
                .label("outside block sync a flush is one block")
                .help("write `mode: block_sync`, or leave `window` out"),
        );
        return;
    }
    let mut targets = topology.nodes().filter(|(node, _, _)| fault.target.nodes.contains(node));
    if let Some((node, group, _)) = targets.find(|(_, _, group)| group.storage.as_deref() != Some("deferred")) {
        problems.push(
            Problem::new("unreachable-window", &place, title)
                .label(format!("`{node}` flushes block by block"))
                .help(format!("write `storage: deferred` in `nodes.{group}`, or leave `window` out")),
        );
    }
}

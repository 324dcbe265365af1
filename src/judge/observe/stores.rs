//! Heights inside one node: triples as told, parts of its storage, and events against durability.

use std::collections::BTreeMap;

use super::caused;
use super::file::{EventWhat, File, PartsLook, TripleFacts};
use crate::judge::signature;
use crate::judge::triage::{Does, Triple};
use crate::judge::{Finding, Note, Said, Verdict};

/// Checks all of them.
pub(super) fn check(file: &File, said: &mut Said) {
    for facts in &file.triples {
        triple(file, facts, said);
    }
    let mut nodes: Vec<&str> = file.parts.iter().map(|p| p.node.as_str()).collect();
    nodes.dedup();
    let mut seen = std::collections::BTreeSet::new();
    nodes.retain(|node| seen.insert(*node));
    for node in nodes {
        let looks: Vec<&PartsLook> = file.parts.iter().filter(|p| p.node == node).collect();
        parts(file, node, &looks, said);
    }
    events(file, said);
}

fn triple(file: &File, facts: &TripleFacts, said: &mut Said) {
    let triple = Triple {
        app: facts.app.0,
        state: facts.state.0,
        store: facts.store.0,
        base: facts.base.map(|b| b.0),
        initial: file.initial_height.map_or(1, |h| h.0),
        app_hash_empty: facts.app_hash_empty,
    };
    let row = triple.row();
    let heights = format!("app/state/store {}/{}/{}", triple.app, triple.state, triple.store);
    let did = match (row.does, facts.started) {
        (_, None) => "",
        (Does::Refuses(_), Some(true)) => ", and yet it went on: a departure from the table",
        (Does::Refuses(_), Some(false)) => ", and it did not start",
        (_, Some(true)) => ", and it did",
        (_, Some(false)) => ", and yet it did not start: a departure from the table",
    };
    let kind = if row.does == Does::Passes { "restart-warning" } else { "restart" };
    let words = format!("{heights}, row {}: {}{did}", row.number, row.words);
    said.notes.push(Note::about(kind, &facts.node, words.clone()).height(triple.store));
    let (class, why) = match (row.does, facts.started) {
        (Does::Refuses(class), None | Some(false)) => (class, "from these heights no node of this family can start"),
        (_, Some(false)) => ("other", "from these heights a node has to start, and this one did not"),
        _ => return,
    };
    said.findings.push(
        Finding::new(Verdict::PanicOnRestart, words)
            .node(&facts.node)
            .height(triple.store)
            .class(class)
            .why(why)
            .next(signature::by_class(class).map_or("read its log", |s| s.hint)),
    );
}

/// Parts that are at another height than the node: a failure while it lasts, a warning once it has cleared.
fn parts(file: &File, node: &str, looks: &[&PartsLook], said: &mut Said) {
    let Some(last) = looks.last() else { return };
    let split: Vec<(&&PartsLook, Vec<String>)> =
        looks.iter().map(|look| (look, odd(look))).filter(|(_, odd)| !odd.is_empty()).collect();
    let Some((first, words)) = split.first() else { return };
    let mut when = first.when.as_deref().map(|w| format!(" {w}")).unwrap_or_default();
    if let (Some(app), Some(state), Some(store)) = (first.app, first.state, first.store) {
        when.push_str(&format!(" (app/state/store {}/{}/{})", app.0, state.0, store.0));
    }
    let words = words.join(", ");
    if odd(last).is_empty() {
        let later = last.when.as_deref().unwrap_or("later");
        let words = format!("its parts disagreed{when}: {words}; cleared {later}");
        said.notes.push(Note::about("store-split", node, words).height(usual(first)));
        return;
    }
    let (_, now) = &split[split.len() - 1];
    let mut finding = Finding::new(Verdict::StoreSplit, format!("its parts disagree{when}: {}", now.join(", ")))
        .node(node)
        .height(usual(last))
        .why("parts of one node disagree about the height, so its next write or a query by height goes wrong, whatever its app hash says now")
        .next("compare these parts with another node's; restore the node from one moment");
    let peers: Vec<String> = peers(file, node, last);
    if !peers.is_empty() {
        finding.detail.push_str(&format!("; peers: {}", peers.join(", ")));
    }
    if looks.len() > 1 {
        caused(&mut finding, Verdict::Inconclusive, "answers by height from these parts are not to be trusted");
    }
    said.findings.push(finding);
}

/// The height that a look goes by: the application's, else that of most parts, the higher of two as frequent.
fn usual(look: &PartsLook) -> u64 {
    if let Some(app) = look.app {
        return app.0;
    }
    let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
    for height in look.parts.values() {
        *counts.entry(height.0).or_default() += 1;
    }
    counts.into_iter().max_by_key(|(height, count)| (*count, *height)).map_or(0, |(height, _)| height)
}

fn odd(look: &PartsLook) -> Vec<String> {
    let usual = usual(look);
    let words = |name: &str, height: u64| {
        let by = height.abs_diff(usual);
        let side = if height > usual { "ahead" } else { "behind" };
        format!("{name} at {height}, {by} {side}")
    };
    let parts = look.parts.iter().map(|(name, height)| (name.as_str(), height.0));
    parts.filter(|(_, height)| *height != usual).map(|(name, height)| words(name, height)).collect()
}

/// Where other nodes have the same parts.
fn peers(file: &File, node: &str, look: &PartsLook) -> Vec<String> {
    let usual = usual(look);
    let odd: Vec<&String> = look.parts.iter().filter(|(_, h)| h.0 != usual).map(|(name, _)| name).collect();
    let others = file.parts.iter().filter(|p| p.node != node);
    others
        .flat_map(|p| {
            p.parts
                .iter()
                .filter(|(name, _)| odd.contains(name))
                .map(move |(n, h)| format!("{} has {n} at {}", p.node, h.0))
        })
        .collect()
}

/// A block's events may be published once, and not before the block is durable.
fn events(file: &File, said: &mut Said) {
    let mut published: Vec<(&str, u64)> = Vec::new();
    for event in file.events.iter().filter(|e| e.what == EventWhat::Published) {
        let (node, height) = (event.node.as_str(), event.height.0);
        let durable = file
            .events
            .iter()
            .filter(|e| e.what == EventWhat::Durable && e.node == node && e.height.0 >= height)
            .map(|e| e.t)
            .min();
        let wrong = if published.contains(&(node, height)) {
            Some("published twice".to_owned())
        } else if durable.is_none_or(|t| t > event.t) {
            let when = durable.map_or_else(|| "never".to_owned(), |t| format!("at t={} s", t.0 as f64 / 1e6));
            Some(format!("published at t={} s, durable {when}", event.t.0 as f64 / 1e6))
        } else {
            None
        };
        published.push((node, height));
        if let Some(wrong) = wrong {
            said.findings.push(
                Finding::new(Verdict::EventBeforeDurable, format!("events of block {height} {wrong}"))
                    .node(node)
                    .height(height)
                    .why("whoever acts on an event must be able to rely on its block after a crash")
                    .next("look at where events fire: after the last durable write of their block"),
            );
        }
    }
}

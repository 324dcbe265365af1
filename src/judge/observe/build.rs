//! The file's hashes, heights, powers and faults, as one model a chain.

use std::collections::BTreeMap;

use super::ObservationError;
use super::file::{Family, File, HashTable, Rule, Spelling};
use super::rpc::Answer;
use super::sense::{STAYS, ends, kind};
use super::value::Look;
use crate::judge::model::{Identity, Load, Model, Patience, Sample, ToldFault, Us};
use crate::judge::{Finding, Note, Said, Verdict};
use crate::timeline::Role;
use crate::timeline::wire::{Encoding, hash_text};

/// From the file's times, which may be negative, to microseconds from the first of them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Clock {
    first: i64,
    last: i64,
}

impl Clock {
    pub(super) fn of(file: &File) -> Self {
        let mut times: Vec<i64> = Vec::new();
        let looks = file.heights.values().flatten().chain(&file.rest);
        times.extend(looks.map(|l| l.t.0));
        times.extend(file.faults.iter().flat_map(|f| [f.from, f.to]).flatten().map(|t| t.0));
        times.extend(file.starts.values().flatten().map(|s| s.t.0));
        times.extend(file.exits.iter().filter_map(|e| e.t).map(|t| t.0));
        times.extend(file.logs.values().flat_map(|l| &l.0).filter_map(|l| l.t).map(|t| t.0));
        times.extend(file.rpc.iter().filter_map(|a| a.t).map(|t| t.0));
        let first = times.iter().copied().min().unwrap_or(0).min(0);
        Self { first, last: times.into_iter().max().unwrap_or(0) }
    }

    pub(super) fn us(self, t: super::value::Seconds) -> Us {
        t.0.saturating_sub(self.first).max(0).unsigned_abs()
    }

    /// The last moment in the file.
    pub(super) fn end(self) -> Us {
        self.last.saturating_sub(self.first).max(0).unsigned_abs()
    }
}

/// How families spell the hashes of their headers.
pub(super) fn header_encoding(family: Family) -> Encoding {
    match family {
        Family::Tm2 => Encoding::Base64,
        Family::Cometbft | Family::Reference | Family::Tenderdash => Encoding::Hex,
    }
}

impl From<Spelling> for Encoding {
    fn from(spelling: Spelling) -> Self {
        match spelling {
            Spelling::Hex => Self::Hex,
            Spelling::Base64 => Self::Base64,
        }
    }
}

/// The family of a node.
pub(super) fn family_of(file: &File, node: &str) -> Family {
    file.nodes.get(node).and_then(|n| n.family).or(file.family).unwrap_or(Family::Cometbft)
}

/// The chain that a node belongs to: as told, else one for each family of the file.
pub(super) fn chain_of(file: &File, node: &str) -> String {
    let told = file.nodes.get(node).and_then(|n| n.chain.clone());
    told.unwrap_or_else(|| match family_of(file, node) {
        Family::Cometbft | Family::Reference => "cometbft".to_owned(),
        Family::Tm2 => "tm2".to_owned(),
        Family::Tenderdash => "tenderdash".to_owned(),
    })
}

/// Every node that the file names, in the order of its first mention; on demand those that only faults name as well.
pub(super) fn names(file: &File, faults: bool) -> Vec<String> {
    let tables = [&file.app_hashes, &file.block_ids].into_iter().flatten().flat_map(|t| t.nodes.keys().cloned());
    let mut all: Vec<String> = file.nodes.keys().chain(file.power.keys()).cloned().collect();
    all.extend(tables);
    all.extend(file.heights.keys().chain(file.shards.keys()).chain(file.logs.keys()).cloned());
    all.extend(file.starts.keys().chain(file.config.keys()).cloned());
    all.extend(file.rpc.iter().map(|a| a.node.clone()));
    all.extend(file.exits.iter().map(|e| e.node.clone()));
    all.extend(file.triples.iter().map(|t| t.node.clone()));
    all.extend(file.parts.iter().map(|p| p.node.clone()));
    all.extend(file.sign_states.iter().map(|s| s.node.clone()));
    all.extend(file.events.iter().map(|e| e.node.clone()));
    all.extend(file.faults.iter().filter(|_| faults).flat_map(|f| f.nodes.iter().cloned()));
    all.extend(file.findings.iter().filter_map(|f| f.node.clone()));
    let mut seen = std::collections::BTreeSet::new();
    all.retain(|name| seen.insert(name.clone()));
    all
}

/// One model a chain; `strangers` are on another chain by mistake and are not compared.
pub(super) fn models(file: &File, answers: &[Answer], strangers: &[String]) -> Result<Vec<Model>, ObservationError> {
    let clock = Clock::of(file);
    let mut chains: BTreeMap<String, Model> = BTreeMap::new();
    for name in names(file, true) {
        let model = chains.entry(chain_of(file, &name)).or_insert_with(|| empty(file, clock));
        let index = model.node_index(&name);
        add_node(file, model, index, &name, clock);
    }
    for model in chains.values_mut() {
        for (table, state) in [(&file.app_hashes, true), (&file.block_ids, false)] {
            if let Some(table) = table {
                add_table(file, model, table, state, strangers)?;
            }
        }
        add_answers(model, answers, strangers, clock);
        add_faults(file, model, clock);
        for node in &mut model.nodes {
            node.samples.sort_by_key(|s| s.at_us);
        }
    }
    Ok(chains.into_values().collect())
}

fn empty(file: &File, clock: Clock) -> Model {
    let mut model = Model {
        identity: Identity::default(),
        initial_height: file.initial_height.map_or(1, |h| h.0),
        patience: Patience { grace_us: 0, flag_us: 30_000_000, halt_us: 30_000_000, ..Patience::default() },
        ..Model::default()
    };
    model.end.ended = true;
    model.end.last_us = clock.end();
    model.expect.halt_height = file.expectations.halt_height.map(|h| h.0);
    model.expect.converge_within_ms = file.expectations.converge_within_s.map(|s| s.0.max(0).unsigned_abs() / 1000);
    if let Some(load) = &file.load {
        model.load = Load { known: true, wanted: true, accepted: load.transactions.0, seq: None };
    }
    model.rest = samples(&file.rest, clock);
    // The header that shows a state is named only where headers are what was given.
    let after = |table: &HashTable| table.nodes.keys().all(|node| rule_of(file, table, node) != Rule::HeaderPrev);
    let same = file.app_hashes.as_ref().is_some_and(after);
    model.app_hash_offset = u64::from(!same);
    model
}

fn add_node(file: &File, model: &mut Model, index: usize, name: &str, clock: Clock) {
    let facts = file.nodes.get(name).cloned().unwrap_or_default();
    let node = &mut model.nodes[index];
    node.power = facts.power.or_else(|| file.power.get(name).copied()).map(|p| p.0);
    let validates = node.power.is_none_or(|power| power > 0);
    node.role = facts.role.or(Some(if validates { Role::Validator } else { Role::Full }));
    node.signed = facts.signed.map(|s| s.0);
    node.holds_blocks = facts.defers;
    let limited = file.host.as_ref().filter(|h| h.disk_free.is_none_or(|free| free.0 > 0));
    node.limited_volume = limited.is_some_and(|h| h.limited_volumes.iter().any(|n| n == name));
    if let Some(looks) = file.heights.get(name) {
        node.samples = samples(looks, clock);
        let silent = looks.iter().filter(|l| l.h.is_none());
        node.silences = silent.map(|l| (clock.us(l.t), "no answer".to_owned(), 0)).collect();
    }
}

fn samples(looks: &[Look], clock: Clock) -> Vec<Sample> {
    let sample =
        |look: &Look| Some(Sample { at_us: clock.us(look.t), height: look.h?, catching_up: look.catching_up, seq: 0 });
    let mut samples: Vec<Sample> = looks.iter().filter_map(sample).collect();
    samples.sort_by_key(|s| s.at_us);
    samples
}

fn rule_of(file: &File, table: &HashTable, node: &str) -> Rule {
    let by_family = match family_of(file, node) {
        Family::Tenderdash => Rule::HeaderSame,
        Family::Cometbft | Family::Tm2 | Family::Reference => Rule::HeaderPrev,
    };
    table.rules.get(node).copied().or(table.rule).unwrap_or(by_family)
}

fn add_table(
    file: &File,
    model: &mut Model,
    table: &HashTable,
    state: bool,
    strangers: &[String],
) -> Result<(), ObservationError> {
    let section = if state { "app_hashes" } else { "block_ids" };
    for (name, heights) in &table.nodes {
        let Some(index) = model.nodes.iter().position(|n| &n.name == name) else { continue };
        if strangers.contains(name) {
            continue;
        }
        let told = table.encodings.get(name).copied().or(table.encoding).map(Encoding::from);
        let encoding = told.unwrap_or_else(|| header_encoding(family_of(file, name)));
        for (height, text) in &heights.0 {
            let hash = hash_text(&text.0, encoding).ok_or_else(|| {
                let place = format!("{section}.nodes.{name}.{height}");
                ObservationError::at(place, format!("`{}` is no hash in {}", text.0, encoding.words()))
            })?;
            match (state, rule_of(file, table, name)) {
                (false, _) => model.blocks.insert(index, *height, &hash, 0),
                (true, Rule::HeaderPrev) if *height > 0 => model.states.insert(index, height - 1, &hash, 0),
                (true, _) => model.states.insert(index, *height, &hash, 0),
            }
            if state {
                model.nodes[index].app_hash = Some((0, hash));
            }
        }
    }
    Ok(())
}

fn add_answers(model: &mut Model, answers: &[Answer], strangers: &[String], clock: Clock) {
    for answer in answers {
        let Some(index) = model.nodes.iter().position(|n| n.name == answer.node) else { continue };
        if let Some((height, catching_up)) = answer.status {
            let at_us = answer.t.map_or(clock.end(), |t| clock.us(t));
            model.nodes[index].samples.push(Sample { at_us, height, catching_up, seq: 0 });
        }
        if answer.app_height.is_some() {
            model.nodes[index].app_height = answer.app_height;
        }
        if let Some(hash) = &answer.app_hash {
            model.nodes[index].app_hash = Some((0, hash.clone()));
        }
        if strangers.contains(&answer.node) {
            continue;
        }
        model.nodes[index].signs_as.extend(answer.signs_as.clone());
        if let Some(commit) = &answer.votes {
            model.commit_seen(index, commit, 0);
        }
        for double in &answer.evidence {
            model.evidence_seen(double, 0);
        }
        for (height, hash) in &answer.states {
            model.states.insert(index, *height, hash, 0);
        }
        for (height, id) in &answer.blocks {
            model.blocks.insert(index, *height, id, 0);
        }
    }
}

fn add_faults(file: &File, model: &mut Model, clock: Clock) {
    for fault in &file.faults {
        let from = fault.from.map_or(0, |t| clock.us(t));
        let to = fault.to.map(|t| clock.us(t));
        let height = fault.at_height.map(|h| h.0);
        // Only what ends, stops or cuts off a process takes its voting power away.
        let stays = fault.kind.as_deref().is_some_and(|written| STAYS.contains(&kind(written).as_str()));
        let away = fault.from.is_some() && !stays;
        let ends = ends(fault.kind.as_deref()).filter(|_| away);
        if fault.nodes.is_empty() {
            model.told.push(ToldFault { node: None, from, to, height, away: false, ends: None });
        }
        for name in &fault.nodes {
            let Some(index) = model.nodes.iter().position(|n| &n.name == name) else { continue };
            // Where nobody wrote down when it was over, a process that is seen again says so.
            let back = || {
                let starts = file.starts.get(name).into_iter().flatten().map(|s| clock.us(s.t));
                let seen = model.nodes[index].samples.iter().map(|s| s.at_us);
                starts.chain(seen).filter(|at| *at > from).min()
            };
            let to = to.or_else(|| ends.and_then(|_| back()));
            model.told.push(ToldFault { node: Some(index), from, to, height, away, ends });
        }
    }
}

/// The ranges of blocks that nodes are told to keep.
pub(super) fn ranges(file: &File, said: &mut Said) {
    for (name, facts) in &file.nodes {
        if let (Some(earliest), Some(latest)) = (facts.earliest, facts.latest) {
            let words = format!("keeps heights {} to {}", earliest.0, latest.0);
            said.notes.push(Note::about("range", name, words).height(latest.0));
        }
    }
}

/// Hashes that should all be the same, however they are spelt.
pub(super) fn same_hash(file: &File, said: &mut Said) -> Result<(), ObservationError> {
    let mut values: Vec<(String, &str)> = Vec::new();
    for (number, spelt) in file.same_hash.iter().enumerate() {
        let place = format!("same_hash[{number}]");
        let by_field = |family| match (spelt.field.as_deref(), family) {
            (Some("abci_info" | "block_results"), _) => Encoding::Base64,
            (_, family) => header_encoding(family),
        };
        let encoding = spelt.encoding.map(Encoding::from).or(spelt.family.map(by_field)).ok_or_else(|| {
            ObservationError::at(&place, "say its `encoding`, or `family` and `field`: some values read as both")
        })?;
        let hash = hash_text(&spelt.value.0, encoding).ok_or_else(|| {
            ObservationError::at(&place, format!("`{}` is no hash in {}", spelt.value.0, encoding.words()))
        })?;
        values.push((hash, &spelt.source));
    }
    let Some((first, _)) = values.first() else { return Ok(()) };
    let others: Vec<String> =
        values.iter().filter(|(hash, _)| hash != first).map(|(hash, source)| format!("{source} has {hash}")).collect();
    if others.is_empty() {
        said.notes.push(Note::run("same-hash", format!("{} values are one hash: {first}", values.len())));
    } else {
        let detail = format!("{} has {first}; {}", values[0].1, others.join("; "));
        said.findings.push(
            Finding::new(Verdict::Diverged, detail)
                .why("values that should be one hash are not, after their encodings are taken off")
                .next("check that each value is of the same height and field"),
        );
    }
    Ok(())
}

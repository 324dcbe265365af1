//! What an observer learns about a node from its durable events: stores, syncs a block, the order of one flush, and
//! the addresses in it. Pure.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::timeline::{Layout, Mode, Tally};

use super::aim;
use super::discover;
use super::flush::Step;
use super::stores::Stores;
use super::tap::{Tapped, TappedKind};
use super::tracker::{Kind, Tracker};

/// Everything that was learnt.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Observation {
    /// The node's home: the paths of stores are relative to it.
    pub home: PathBuf,
    /// The family whose layout fits; `None` where the stores were guessed.
    pub family: Option<String>,
    /// The stores in order of their first event.
    pub stores: Vec<SeenStore>,
    /// Complete flushes.
    pub flushes: u64,
    /// Blocks in them.
    pub blocks: u64,
    /// Last height.
    pub height: u64,
    /// What the node was doing in the most frequent flush, where its output tells.
    pub mode: Option<Mode>,
    /// The order of the most frequent flush.
    pub flush: Vec<SeenCommit>,
    /// The addresses in it, as YAML.
    pub addresses: Vec<String>,
    /// The layout that all this was read with.
    pub layout: Layout,
}

/// One store.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SeenStore {
    /// Its name in addresses.
    pub name: String,
    /// Its files, relative to home.
    pub paths: Vec<String>,
    /// Writes and renames.
    pub writes: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Syncs and synced writes.
    pub syncs: u64,
    /// Median syncs a block; `None` without a block.
    pub syncs_per_block: Option<u64>,
    /// Median duration of a sync in microseconds.
    pub sync_p50_us: Option<u64>,
}

/// One commit of the flush.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct SeenCommit {
    /// Its store.
    pub store: String,
    /// The sync that ends it; `None` where the store is never synced.
    pub sync: Option<u32>,
    /// Its writes.
    pub writes: u32,
}

/// Reads the events of a node. A family's layout is taken if every store of its flush was seen; `home` is guessed
/// where it is not given. `None` when nothing durable was seen.
pub fn observe(events: &[Tapped], home: Option<&Path>, families: &[(String, Layout)]) -> Option<Observation> {
    let home = match home {
        Some(home) => home.to_owned(),
        None => discover::home(events)?,
    };
    let fits = families.iter().find(|(_, layout)| fits(layout, events, &home));
    let (family, layout) = match fits {
        Some((name, layout)) => (Some(name.clone()), layout.clone()),
        None => (None, discover::layout(events, &home)),
    };
    if layout.stores.is_empty() {
        return None;
    }
    let read = replay(events, &home, &layout);
    let (mode, steps) = most_frequent(read.flushes);
    let name = |store: usize| layout.stores[store].name.clone();
    let flush = steps.iter().filter(|step| step.synced || step.sync == 1);
    let flush = flush.map(|step| SeenCommit {
        store: name(step.store),
        sync: step.synced.then_some(step.sync),
        writes: step.writes,
    });
    Some(Observation {
        family,
        stores: seen(&layout, &read.stores, &read.tally),
        flushes: read.tally.flushes,
        blocks: read.tally.blocks,
        height: read.tally.height,
        mode,
        flush: flush.collect(),
        addresses: aim::addresses(&steps, mode, name),
        home,
        layout,
    })
}

/// Whether the node writes to every store of the family's flush.
fn fits(layout: &Layout, events: &[Tapped], home: &Path) -> bool {
    let stores = Stores::new(layout);
    let mut touched = vec![false; layout.stores.len()];
    for event in events {
        if let Some(store) = relative(event, home).and_then(|path| stores.find(path)) {
            touched[store] = true;
        }
    }
    let index = |name: &str| layout.stores.iter().position(|store| store.name == name);
    !layout.flush.is_empty() && layout.flush.iter().all(|c| index(&c.store).is_some_and(|store| touched[store]))
}

fn relative<'a>(event: &'a Tapped, home: &Path) -> Option<&'a str> {
    event.path.strip_prefix(home).ok()?.to_str()
}

#[derive(Clone, Default)]
struct Counted {
    writes: u64,
    bytes: u64,
    syncs: u64,
    took_us: Vec<u64>,
}

struct Replayed {
    stores: Vec<Counted>,
    flushes: Vec<(Option<Mode>, Vec<Step>)>,
    tally: Tally,
}

/// Lets the tracker follow the events as it would have when they happened.
fn replay(events: &[Tapped], home: &Path, layout: &Layout) -> Replayed {
    let stores = Stores::new(layout);
    let prefix = layout.height_mark.as_ref().map_or("", |mark| mark.prefix.as_str());
    // The node may have been running for long: the height before its first flush is one below the first one seen.
    let first = events.iter().flat_map(|event| &event.heights).min().copied().unwrap_or(1);
    let mut tracker = Tracker::new(layout, 1, first.saturating_sub(1), None, true);
    let mut counted = vec![Counted::default(); layout.stores.len()];
    let mut flushes = Vec::new();
    let mut mode = None;
    for event in events {
        event.said.iter().for_each(|line| tracker.line(line));
        let Some(store) = relative(event, home).and_then(|path| stores.find(path)) else { continue };
        let kind = match event.kind {
            TappedKind::Write => Kind::Write { synced: false },
            TappedKind::SyncedWrite => Kind::Write { synced: true },
            TappedKind::Sync => Kind::Sync,
            TappedKind::Change => Kind::Change,
            TappedKind::SyncRange => continue,
        };
        let written = matches!(kind, Kind::Write { .. });
        counted[store].writes += u64::from(written);
        counted[store].bytes += event.length as u64;
        counted[store].syncs += u64::from(matches!(kind, Kind::Sync | Kind::Write { synced: true }));
        counted[store].took_us.extend(event.took_us);
        let marks: String = event.heights.iter().map(|height| format!("{prefix}{height} ")).collect();
        let place = tracker.begin(store, kind, marks.as_bytes());
        // A flush may end when the next one begins, in another mode.
        if let Some(steps) = tracker.take_ended() {
            flushes.push((mode, steps));
        }
        tracker.end(&place, event.took_us);
        mode = place.inside.map_or(mode, |inside| inside.mode);
        if let Some(steps) = tracker.take_ended() {
            flushes.push((mode, steps));
        }
    }
    let tally = tracker.finish_whole();
    Replayed { stores: counted, flushes, tally }
}

/// The flush whose commits are seen most often in one mode, and among these the one with the median number of writes.
fn most_frequent(flushes: Vec<(Option<Mode>, Vec<Step>)>) -> (Option<Mode>, Vec<Step>) {
    let mut alike: BTreeMap<_, Vec<Vec<Step>>> = BTreeMap::new();
    for (mode, steps) in flushes {
        let commits: Vec<(usize, u32, bool)> = steps.iter().map(|step| (step.store, step.sync, step.synced)).collect();
        alike.entry((mode, commits)).or_default().push(steps);
    }
    let Some(((mode, _), mut most)) = alike.into_iter().max_by_key(|(_, steps)| steps.len()) else {
        return (None, Vec::new());
    };
    most.sort_by_key(|steps| steps.iter().map(|step| step.writes).sum::<u32>());
    let middle = most.len() / 2;
    (mode, most.swap_remove(middle))
}

fn seen(layout: &Layout, counted: &[Counted], tally: &Tally) -> Vec<SeenStore> {
    let described = layout.stores.iter().zip(counted);
    let described = described.filter(|(_, counted)| counted.writes + counted.syncs > 0);
    described
        .map(|(store, counted)| SeenStore {
            name: store.name.clone(),
            paths: store.paths.clone(),
            writes: counted.writes,
            bytes: counted.bytes,
            syncs: counted.syncs,
            syncs_per_block: tally.per_block.get(&store.name).and_then(median),
            sync_p50_us: {
                let mut took = counted.took_us.clone();
                took.sort_unstable();
                took.get(took.len() / 2).copied()
            },
        })
        .collect()
}

fn median(counts: &BTreeMap<u64, u64>) -> Option<u64> {
    let total: u64 = counts.values().sum();
    let mut before = 0;
    counts.iter().find_map(|(count, times)| {
        before += times;
        (before * 2 >= total).then_some(*count)
    })
}

#[cfg(test)]
#[path = "observation_tests.rs"]
mod tests;

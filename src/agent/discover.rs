//! Finds the stores of a node that nothing is known about, from the files that it writes.
//!
//! Heuristics, in this order, for each file that was written or synced below home:
//! 1. the first part of its path that ends in `.db` is a store, a folder or one file;
//! 2. the first part that is `wal` or ends in `.wal` is a store;
//! 3. files that are written to be durable at once or renamed over each other, with `state` in their name, are the
//!    sign state;
//! 4. any other file belongs to the store that its folder is, if something in that folder is ever synced.
//!
//! The block store is the one in which numbers behind `H:` grow block by block; without any, the one whose name
//! begins with `block`. A flush begins with the first event of the block store, and ends before the longest pause
//! until the next one begins. The commits are those of the most frequent flush.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::timeline::{Commit, HeightMark, Layout, Store};

use super::stores::Stores;
use super::tap::{PREFIX, Tapped, TappedKind};

/// Files in a database's folder that are no part of a commit: logs for people, and what compaction writes.
const NOT_COMMITS: [&str; 10] =
    ["LOG", "LOG.old", "LOCK", "CURRENT*", "MANIFEST-*", "OPTIONS-*", "marker.*", "*.ldb", "*.sst", "*.dbtmp"];
/// Temporary files of a sign state, in the CometBFT family.
const SIGN_STATE_TEMPORARY: &str = "write-file-atomic-*";
/// A pause shorter than this does not end a flush: the disk itself may need as long.
const PAUSE_MIN_US: u64 = 20_000;
/// Heights that must follow each other in a store for it to be the block store.
const HEIGHTS_MIN: usize = 2;

/// The folder that holds the node's files: what all synced files have in common, above its data folder.
pub(super) fn home(events: &[Tapped]) -> Option<PathBuf> {
    let durable = events.iter().filter(|e| matches!(e.kind, TappedKind::Sync | TappedKind::SyncedWrite));
    let mut folders = durable.filter_map(|event| event.path.parent());
    let mut common = folders.next()?.to_owned();
    for folder in folders {
        while !folder.starts_with(&common) {
            common.pop();
        }
    }
    // A database's own folder, when there is only one, or the folder of all of them.
    while common.file_name().is_some_and(|name| name == "data" || is_database(&name.to_string_lossy())) {
        common.pop();
    }
    (common.parent().is_some()).then_some(common)
}

/// Guesses a layout; without commits where no store can be told to hold the blocks.
pub(super) fn layout(events: &[Tapped], home: &Path) -> Layout {
    let stores = stores(events, home);
    let mut layout = Layout { stores, ..Layout::default() };
    let found = Stores::new(&layout);
    let placed: Vec<(usize, &Tapped)> = events
        .iter()
        .filter_map(|event| {
            let relative = event.path.strip_prefix(home).ok()?.to_str()?;
            Some((found.find(relative)?, event))
        })
        .collect();
    let Some((block_store, marked)) = block_store(&layout, &placed) else { return layout };
    if marked {
        let prefix = String::from_utf8_lossy(PREFIX).into_owned();
        layout.height_mark = Some(HeightMark { store: layout.stores[block_store].name.clone(), prefix });
    }
    layout.flush = flush(&layout, &placed, block_store);
    layout
}

fn is_database(name: &str) -> bool {
    name.len() > 3 && name.ends_with(".db")
}

fn is_log(name: &str) -> bool {
    name == "wal" || (name.len() > 4 && name.ends_with(".wal"))
}

fn stores(events: &[Tapped], home: &Path) -> Vec<Store> {
    // Name → patterns and whether it is a folder, in order of appearance.
    let mut order: Vec<String> = Vec::new();
    let mut paths: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    let mut synced: BTreeSet<String> = BTreeSet::new();
    for event in events.iter().filter(|event| event.kind != TappedKind::SyncRange) {
        let Some(relative) = event.path.strip_prefix(home).ok().and_then(Path::to_str) else { continue };
        let Some((name, patterns)) = group(relative) else { continue };
        if !paths.contains_key(&name) {
            order.push(name.clone());
        }
        if matches!(event.kind, TappedKind::Sync | TappedKind::SyncedWrite) {
            synced.insert(name.clone());
        }
        paths.entry(name).or_default().extend(patterns);
    }
    order
        .into_iter()
        .filter(|name| is_database(name) || synced.contains(name))
        .map(|name| {
            // A folder that is synced itself is named without its slash as well.
            let mut all = paths.remove(&name).unwrap_or_default();
            let folders: Vec<String> = all.iter().filter_map(|path| Some(path.strip_suffix('/')?.to_owned())).collect();
            all.retain(|path| !folders.contains(path));
            let paths: Vec<String> = all.into_iter().collect();
            let folder = paths.iter().any(|path| path.ends_with('/'));
            let except = if folder { NOT_COMMITS.map(str::to_owned).to_vec() } else { Vec::new() };
            Store { name, paths, except }
        })
        .collect()
}

/// Name and patterns of the store that a path belongs to.
fn group(relative: &str) -> Option<(String, Vec<String>)> {
    let parts: Vec<&str> = relative.split('/').collect();
    let upto = |count: usize| parts[..count].join("/");
    if let Some(at) = parts.iter().position(|part| is_database(part) || is_log(part)) {
        let last = at + 1 == parts.len();
        let slash = if last { "" } else { "/" };
        return Some((parts[at].to_owned(), vec![format!("{}{slash}", upto(at + 1))]));
    }
    let (file, folder) = (*parts.last()?, upto(parts.len() - 1));
    let at = |name: &str| if folder.is_empty() { name.to_owned() } else { format!("{folder}/{name}") };
    let temporary = SIGN_STATE_TEMPORARY.trim_end_matches('*');
    if file.contains("state") || file.starts_with(temporary) {
        let own = if file.starts_with(temporary) { at(SIGN_STATE_TEMPORARY) } else { at(file) };
        return Some(("privval".to_owned(), vec![own]));
    }
    let name = parts.get(parts.len().checked_sub(2)?)?;
    Some(((*name).to_owned(), vec![format!("{folder}/")]))
}

/// The store with the most heights that follow each other, and whether it was found by heights.
fn block_store(layout: &Layout, placed: &[(usize, &Tapped)]) -> Option<(usize, bool)> {
    let mut heights: Vec<BTreeSet<u64>> = vec![BTreeSet::new(); layout.stores.len()];
    for (store, event) in placed {
        heights[*store].extend(&event.heights);
    }
    let run = |set: &BTreeSet<u64>| set.iter().filter(|height| set.contains(&(**height + 1))).count() + 1;
    let longest = (0..heights.len()).filter(|store| heights[*store].len() >= HEIGHTS_MIN);
    // Of equal ones the first, which is the one that writes a block first.
    let best = longest.rev().max_by_key(|store| run(&heights[*store]));
    match best {
        Some(store) => Some((store, true)),
        None => layout.stores.iter().position(|store| store.name.starts_with("block")).map(|store| (store, false)),
    }
}

/// The commits of the most frequent flush.
fn flush(layout: &Layout, placed: &[(usize, &Tapped)], block_store: usize) -> Vec<Commit> {
    let mut frequent: BTreeMap<Vec<(usize, Option<u32>)>, usize> = BTreeMap::new();
    for segment in segments(placed, block_store) {
        *frequent.entry(commits(&segment)).or_default() += 1;
    }
    let most = frequent.into_iter().max_by_key(|(commits, times)| (*times, std::cmp::Reverse(commits.len())));
    let most = most.map(|(commits, _)| commits).unwrap_or_default();
    most.into_iter()
        .map(|(store, sync)| Commit {
            store: layout.stores[store].name.clone(),
            sync,
            modes: Vec::new(),
            advances: None,
            what: "seen, meaning unknown".to_owned(),
        })
        .collect()
}

/// Whole flushes: from an event of the block store to the longest pause before it comes again.
fn segments<'a>(placed: &[(usize, &'a Tapped)], block_store: usize) -> Vec<Vec<(usize, &'a Tapped)>> {
    let mut all: Vec<Vec<(usize, &Tapped)>> = Vec::new();
    for &(store, event) in placed.iter().filter(|(_, event)| event.kind != TappedKind::Change) {
        let begins =
            store == block_store && all.last().is_none_or(|segment| segment.iter().any(|(s, _)| *s != block_store));
        if begins {
            all.push(Vec::new());
        }
        if let Some(segment) = all.last_mut() {
            segment.push((store, event));
        }
    }
    // The last one may have been cut off.
    all.pop();
    all.into_iter().map(|segment| until_pause(segment)).collect()
}

fn until_pause(mut segment: Vec<(usize, &Tapped)>) -> Vec<(usize, &Tapped)> {
    let pause = |at: usize| segment[at].1.at_us.saturating_sub(segment[at - 1].1.at_us);
    if let Some(longest) = (1..segment.len()).max_by_key(|at| pause(*at))
        && pause(longest) >= PAUSE_MIN_US
    {
        segment.truncate(longest);
    }
    segment
}

/// The commits of one flush in order of their first event: by the sync that ends them, or without one for a store
/// that is written and never synced.
fn commits(segment: &[(usize, &Tapped)]) -> Vec<(usize, Option<u32>)> {
    let mut syncs: BTreeMap<usize, u32> = BTreeMap::new();
    let mut order: Vec<(usize, u32)> = Vec::new();
    let mut ended: BTreeSet<(usize, u32)> = BTreeSet::new();
    for (store, event) in segment {
        let count = syncs.entry(*store).or_default();
        let commit = (*store, *count + 1);
        let known = order.contains(&commit);
        match event.kind {
            TappedKind::Write if !known => order.push(commit),
            TappedKind::Sync | TappedKind::SyncedWrite => {
                // A sync without a write ends nothing.
                if event.kind == TappedKind::SyncedWrite && !known {
                    order.push(commit);
                }
                if order.contains(&commit) {
                    ended.insert(commit);
                    *count += 1;
                }
            }
            _ => {}
        }
    }
    order
        .into_iter()
        .filter(|(store, sync)| ended.contains(&(*store, *sync)) || syncs[store] == 0)
        .map(|(store, sync)| (store, ended.contains(&(store, sync)).then_some(sync)))
        .collect()
}

//! Syncs a block and their latency, by node, mode and store, added up from the agents' tallies.

use std::collections::{BTreeMap, BTreeSet};

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::timeline::{Event, Mode, NodeEvent, Record, SyncLatency, Tally, Tier};

/// One line of the table: one store of one node in one mode and one tier.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SyncRow {
    /// Node name.
    pub node: String,
    /// Storage discipline, where the family has them.
    pub storage: Option<String>,
    /// What the node was doing.
    pub mode: Mode,
    /// How much was intercepted while counting. Lines of different tiers are never compared.
    pub tier: Tier,
    /// Store name.
    pub store: String,
    /// Blocks counted.
    pub blocks: u64,
    /// Flushes counted.
    pub flushes: u64,
    /// Median syncs of this store for one block.
    pub per_block: u64,
    /// Median syncs of this store in one flush.
    pub per_flush: u64,
    /// Syncs timed.
    pub timed: u64,
    /// Median duration in microseconds: the median over the tallies' medians, each weighed by its syncs.
    pub p50_us: u64,
    /// The same of the tallies' 99th percentiles.
    pub p99_us: u64,
    /// The longest sync in microseconds.
    pub max_us: u64,
}

#[derive(Default)]
struct Sum {
    blocks: u64,
    flushes: u64,
    per_block: BTreeMap<u64, u64>,
    per_flush: BTreeMap<u64, u64>,
    p50_us: BTreeMap<u64, u64>,
    p99_us: BTreeMap<u64, u64>,
    max_us: u64,
}

impl Sum {
    fn add(&mut self, other: &Self) {
        self.blocks += other.blocks;
        self.flushes += other.flushes;
        merge(&mut self.per_block, Some(&other.per_block));
        merge(&mut self.per_flush, Some(&other.per_flush));
        merge(&mut self.p50_us, Some(&other.p50_us));
        merge(&mut self.p99_us, Some(&other.p99_us));
        self.max_us = self.max_us.max(other.max_us);
    }
}

type Key = (usize, Mode, u8, String);

/// Adds tallies up as records come.
#[derive(Default)]
pub struct Syncs {
    nodes: IndexMap<String, Option<String>>,
    groups: Vec<String>,
    tiers: BTreeMap<(String, u32), Tier>,
    sums: BTreeMap<Key, Sum>,
}

impl Syncs {
    /// Everything that the records tell.
    pub fn of<'a>(records: impl IntoIterator<Item = &'a Record>) -> Self {
        let mut syncs = Self::default();
        for record in records {
            syncs.apply(record);
        }
        syncs
    }

    /// Takes one record in.
    pub fn apply(&mut self, record: &Record) {
        match (&record.event, record.node.as_deref()) {
            (Event::Setup(setup), _) => {
                self.nodes = setup.nodes.iter().map(|n| (n.name.clone(), n.storage.clone())).collect();
                self.groups = setup.nodes.iter().map(|n| n.group.clone()).collect();
            }
            (Event::Node(NodeEvent::Started { start, tier, .. }), Some(node)) => {
                self.tiers.insert((node.to_owned(), *start), *tier);
            }
            (Event::Node(NodeEvent::Tally(tally)), Some(node)) => self.add(node, tally),
            _ => {}
        }
    }

    fn add(&mut self, node: &str, tally: &Tally) {
        let Some(mode) = tally.mode else { return };
        let Some(position) = self.nodes.get_index_of(node) else { return };
        let tier = self.tiers.get(&(node.to_owned(), tally.start)).copied().unwrap_or(Tier::None);
        let stores = tally.per_block.keys().chain(tally.per_flush.keys()).chain(tally.latency.keys());
        let stores: BTreeSet<&String> = stores.collect();
        for store in stores {
            let sum = self.sums.entry((position, mode, tier as u8, store.clone())).or_default();
            sum.blocks += tally.blocks;
            sum.flushes += tally.flushes;
            merge(&mut sum.per_block, tally.per_block.get(store));
            merge(&mut sum.per_flush, tally.per_flush.get(store));
            if let Some(SyncLatency { count, p50_us, p99_us, max_us, .. }) = tally.latency.get(store) {
                *sum.p50_us.entry(*p50_us).or_default() += count;
                *sum.p99_us.entry(*p99_us).or_default() += count;
                sum.max_us = sum.max_us.max(*max_us);
            }
        }
    }

    /// The table, nodes in plan order, then by mode, tier and store.
    pub fn rows(&self) -> Vec<SyncRow> {
        self.table(&self.sums, |position| self.nodes.get_index(position).map(|(name, _)| name.clone()))
    }

    /// The same with the nodes of a group added up, under the group's name.
    pub fn group_rows(&self) -> Vec<SyncRow> {
        let mut sums: BTreeMap<Key, Sum> = BTreeMap::new();
        for ((node, mode, tier, store), sum) in &self.sums {
            let first = self.groups.iter().position(|g| Some(g) == self.groups.get(*node)).unwrap_or(*node);
            sums.entry((first, *mode, *tier, store.clone())).or_default().add(sum);
        }
        self.table(&sums, |position| self.groups.get(position).cloned())
    }

    fn table(&self, sums: &BTreeMap<Key, Sum>, name: impl Fn(usize) -> Option<String>) -> Vec<SyncRow> {
        let row = |(key, sum): (&Key, &Sum)| {
            let (_, storage) = self.nodes.get_index(key.0)?;
            // A replay of some blocks that left a store alone says nothing about it.
            let synced = |medians: &BTreeMap<u64, u64>| medians.keys().any(|syncs| *syncs > 0);
            if key.1 == Mode::Replay && !synced(&sum.per_block) && !synced(&sum.per_flush) {
                return None;
            }
            Some(SyncRow {
                node: name(key.0)?,
                storage: storage.clone(),
                mode: key.1,
                tier: [Tier::None, Tier::Observe, Tier::Record][usize::from(key.2)],
                store: key.3.clone(),
                blocks: sum.blocks,
                flushes: sum.flushes,
                per_block: median(&sum.per_block),
                per_flush: median(&sum.per_flush),
                timed: sum.p50_us.values().sum(),
                p50_us: median(&sum.p50_us),
                p99_us: median(&sum.p99_us),
                max_us: sum.max_us,
            })
        };
        let mut rows: Vec<SyncRow> = sums.iter().filter_map(row).collect();
        // A store that a node never synced is left out, unless it synced none, which is worth telling.
        let synced = |row: &SyncRow| row.timed > 0 || row.per_block > 0 || row.per_flush > 0;
        let seen: BTreeSet<(String, String)> =
            rows.iter().filter(|r| synced(r)).map(|r| (r.node.clone(), r.store.clone())).collect();
        let syncing: BTreeSet<String> = seen.iter().map(|(node, _)| node.clone()).collect();
        rows.retain(|r| !syncing.contains(&r.node) || seen.contains(&(r.node.clone(), r.store.clone())));
        rows
    }
}

fn merge(into: &mut BTreeMap<u64, u64>, from: Option<&BTreeMap<u64, u64>>) {
    for (value, count) in from.into_iter().flatten() {
        *into.entry(*value).or_default() += count;
    }
}

/// The lower median of value → count; 0 of nothing.
fn median(counts: &BTreeMap<u64, u64>) -> u64 {
    let total: u64 = counts.values().sum();
    let mut seen = 0;
    for (value, count) in counts {
        seen += count;
        if seen * 2 >= total {
            return *value;
        }
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    fn of(node: &str, mode: Mode, store: &str) -> Vec<SyncRow> {
        let rows = Syncs::of(&sample::records()).rows();
        rows.into_iter().filter(|r| r.node == node && r.mode == mode && r.store == store).collect()
    }

    #[test]
    fn a_deferred_flush_syncs_once_for_many_blocks() {
        let rows = of("late", Mode::BlockSync, "application.db");
        assert_eq!(rows.len(), 1, "one tier");
        assert_eq!((rows[0].per_block, rows[0].per_flush, rows[0].tier), (0, 1, Tier::Record));
        assert_eq!((rows[0].p50_us, rows[0].p99_us, rows[0].max_us), (700, 2800, 6300));
    }

    #[test]
    fn tiers_are_kept_apart() {
        let rows = of("val-2", Mode::Consensus, "cs.wal");
        let tiers: Vec<_> = rows.iter().map(|r| r.tier).collect();
        assert_eq!(tiers, [Tier::Observe, Tier::Record]);
        assert!(rows.iter().all(|r| r.per_block == 4 && r.blocks > 0));
    }

    #[test]
    fn nodes_of_a_group_add_up() {
        let syncs = Syncs::of(&sample::records());
        let rows = syncs.group_rows();
        assert!(rows.iter().all(|r| r.node == "val" || r.node == "late"));
        let blocks = |rows: &[SyncRow]| rows.iter().map(|r| r.blocks).sum::<u64>();
        assert_eq!(blocks(&rows), blocks(&syncs.rows()));
    }

    #[test]
    fn the_median_takes_the_middle_count() {
        assert_eq!(median(&BTreeMap::from([(0, 2), (5, 1)])), 0);
        assert_eq!(median(&BTreeMap::from([(0, 1), (5, 2)])), 5);
        assert_eq!(median(&BTreeMap::new()), 0);
    }
}

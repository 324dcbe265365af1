//! Counts of flushes and syncs between two reports.

use std::collections::BTreeMap;

use hdrhistogram::Histogram;

use crate::timeline::{Mode, SyncLatency, Tally};

use super::stores::StoreIndex;

/// Longest sync that is told apart from longer ones: five minutes.
const LATENCY_MAX_US: u64 = 300_000_000;

/// Collects until it is taken. Everything in it happened in one mode.
pub(crate) struct Collector {
    start: u32,
    names: Vec<String>,
    counts: Tally,
    syncs: Vec<u64>,
    latency: Vec<Option<Histogram<u64>>>,
}

impl Collector {
    pub(crate) fn new(start: u32, names: Vec<String>) -> Self {
        let latency = names.iter().map(|_| None).collect();
        let syncs = vec![0; names.len()];
        Self { start, names, syncs, counts: Tally { start, ..Tally::default() }, latency }
    }

    /// Counts a flush that has ended, with the syncs of each store in it.
    pub(crate) fn flush(&mut self, height: u64, window: u64, syncs: &[u32]) {
        self.counts.flushes += 1;
        self.counts.blocks += window;
        self.counts.height = height;
        add(&mut self.counts.per_flush, &self.names, syncs, 1);
    }

    /// Counts all syncs from the beginning of a flush to the beginning of the next: what its blocks cost.
    pub(crate) fn blocks(&mut self, window: u64, syncs: &[u32]) {
        add(&mut self.counts.per_block, &self.names, syncs, 1);
        if window > 1 {
            add(&mut self.counts.per_block, &self.names, &vec![0; syncs.len()], window - 1);
        }
    }

    /// Counts one sync, and how long it took where that is known.
    pub(crate) fn sync(&mut self, store: StoreIndex, took_us: Option<u64>) {
        self.syncs[store] += 1;
        let Some(took_us) = took_us else { return };
        let histogram = self.latency[store].get_or_insert_with(|| {
            Histogram::new_with_bounds(1, LATENCY_MAX_US, 2).expect("bounds in order and two digits")
        });
        histogram.saturating_record(took_us.max(1));
    }

    /// Takes what was collected, all of it in `mode`; `None` when there was nothing.
    pub(crate) fn take(&mut self, mode: Option<Mode>) -> Option<Tally> {
        let mut tally = std::mem::take(&mut self.counts);
        self.counts = Tally { start: self.start, height: tally.height, ..Tally::default() };
        tally.mode = mode;
        for (name, syncs) in self.names.iter().zip(&mut self.syncs) {
            if *syncs > 0 {
                tally.syncs.insert(name.clone(), std::mem::take(syncs));
            }
        }
        for (name, histogram) in self.names.iter().zip(&mut self.latency) {
            if let Some(histogram) = histogram.take() {
                tally.latency.insert(name.clone(), summary(&histogram));
            }
        }
        let empty = tally.flushes == 0 && tally.per_block.is_empty() && tally.syncs.is_empty();
        (!empty).then_some(tally)
    }
}

fn add(into: &mut BTreeMap<String, BTreeMap<u64, u64>>, names: &[String], syncs: &[u32], times: u64) {
    for (name, syncs) in names.iter().zip(syncs) {
        let by_count = match into.get_mut(name) {
            Some(by_count) => by_count,
            None => into.entry(name.clone()).or_default(),
        };
        *by_count.entry(u64::from(*syncs)).or_default() += times;
    }
}

fn summary(histogram: &Histogram<u64>) -> SyncLatency {
    let sum = histogram.iter_recorded().map(|v| v.value_iterated_to() * v.count_at_value()).sum();
    SyncLatency {
        count: histogram.len(),
        sum_us: sum,
        p50_us: histogram.value_at_quantile(0.5),
        p99_us: histogram.value_at_quantile(0.99),
        max_us: histogram.max(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_of_three_blocks_costs_two_of_them_nothing() {
        let mut collector = Collector::new(1, vec!["a".into(), "b".into()]);
        collector.flush(3, 3, &[1, 2]);
        collector.blocks(3, &[1, 5]);
        let tally = collector.take(Some(Mode::BlockSync)).unwrap();
        assert_eq!((tally.flushes, tally.blocks, tally.height), (1, 3, 3));
        assert_eq!(tally.per_flush["b"], BTreeMap::from([(2, 1)]));
        assert_eq!(tally.per_block["a"], BTreeMap::from([(0, 2), (1, 1)]));
        assert_eq!(tally.per_block["b"], BTreeMap::from([(0, 2), (5, 1)]));
        assert_eq!(collector.take(None), None);
    }

    #[test]
    fn latency_is_by_store_and_since_the_last_report() {
        let mut collector = Collector::new(1, vec!["a".into(), "b".into()]);
        (1..=100).for_each(|us| collector.sync(1, Some(us)));
        collector.sync(1, None);
        let tally = collector.take(None).unwrap();
        let seen = tally.latency["b"];
        assert_eq!((seen.count, seen.p50_us, seen.p99_us, seen.max_us), (100, 50, 99, 100));
        assert_eq!((seen.sum_us, tally.syncs["b"]), (5050, 101));
        assert!(!tally.latency.contains_key("a"));
        assert_eq!(collector.take(None), None);
    }
}

//! The rounds of one cell put together. Pure.

use std::collections::BTreeMap;

use super::cell::Used;
use super::design::{Cell, latency_quantiles, latency_words};
use super::result::{CellResult, LatencyResult, RoundResult, Spent};
use crate::timeline::{Latency, Tier};

/// A measured median that differs from the asked one by more than this was not delivered.
const DELIVERED: f64 = 0.10;
/// Nor one that differs by more microseconds than the agent itself may cost.
const DELIVERED_US: f64 = 60.0;

/// What the rounds of one cell gave so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Gathered {
    rounds: Vec<RoundResult>,
    /// Sums over the rounds that count.
    used: Used,
}

impl Gathered {
    /// Takes a round in; one that was voided is kept in the list alone.
    pub(super) fn take(&mut self, used: &Used, round: RoundResult) {
        if round.voided.is_none() {
            self.used.blocks += used.blocks;
            self.used.stage_blocks += used.stage_blocks;
            self.used.cpu_us += used.cpu_us;
            for (store, count) in &used.counts {
                *self.used.counts.entry(store.clone()).or_default() += count;
            }
            for (store, counts) in &used.syncs {
                let into = self.used.syncs.entry(store.clone()).or_default();
                for (us, count) in counts {
                    *into.entry(*us).or_default() += count;
                }
            }
            for (stage, seconds) in &used.stages {
                *self.used.stages.entry(stage.clone()).or_default() += seconds;
            }
        }
        self.rounds.push(round);
    }
}

/// The cell as it is kept; figures over rounds are filled in by the conclusion.
pub(super) fn cell_result(cell: &Cell, gathered: Gathered) -> CellResult {
    let Gathered { rounds, used } = gathered;
    let over = |blocks: u64, value: f64| if blocks == 0 { 0.0 } else { value / blocks as f64 };
    let a_block = |value: f64| over(used.blocks, value);
    // Where only some syncs were timed, their mean stands for all.
    let sync_ms = |(store, count): (&String, &u64)| {
        let mean_us = used.syncs.get(store).and_then(|timed| latency(None, timed)).map_or(0.0, |of| of.mean_us);
        (store.clone(), a_block(*count as f64 * mean_us / 1e3))
    };
    let latencies: BTreeMap<String, LatencyResult> = used
        .syncs
        .iter()
        .filter_map(|(store, counts)| Some((store.clone(), latency(asked(cell, store), counts)?)))
        .collect();
    let inconclusive = latencies.iter().find_map(|(store, of)| not_delivered(asked(cell, store)?, store, of));
    CellResult {
        arm: cell.arm.clone(),
        axes: cell.axes.clone(),
        twin: cell.twin,
        tier: match cell.tier {
            Tier::None => "none",
            Tier::Observe => "observe",
            Tier::Record => "record",
        }
        .to_owned(),
        rounds,
        blocks_per_s: None,
        ms_per_block: None,
        syncs_per_block: used.counts.iter().map(|(store, count)| (store.clone(), a_block(*count as f64))).collect(),
        spent: Spent {
            cpu: a_block(used.cpu_us as f64 / 1e3),
            syncs: used.counts.iter().map(sync_ms).collect(),
            stages: used
                .stages
                .iter()
                .map(|(stage, seconds)| (stage.clone(), over(used.stage_blocks, seconds * 1e3)))
                .collect(),
        },
        latency: latencies,
        inconclusive,
    }
}

fn asked<'c>(cell: &'c Cell, store: &str) -> Option<&'c Latency> {
    let latency = &cell.node().sync_latency;
    latency.get(store).or_else(|| latency.get("*"))
}

fn latency(asked: Option<&Latency>, counts: &BTreeMap<u64, u64>) -> Option<LatencyResult> {
    let count: u64 = counts.values().sum();
    if count == 0 {
        return None;
    }
    let quantile = |share: f64| {
        let wanted = (count as f64 * share).ceil().max(1.0);
        let mut seen = 0;
        let at = counts.iter().find(|(_, count)| {
            seen += **count;
            seen as f64 >= wanted
        });
        at.map_or(0, |(us, _)| *us)
    };
    let sum: u64 = counts.iter().map(|(us, count)| us * count).sum();
    Some(LatencyResult {
        asked: asked.map(latency_words),
        count,
        mean_us: sum as f64 / count as f64,
        p50_us: quantile(0.5),
        p99_us: quantile(0.99),
        histogram: counts.iter().map(|(us, count)| (*us, *count)).collect(),
    })
}

/// Asked but not delivered: figures of this cell are those of another disk.
fn not_delivered(asked: &Latency, store: &str, of: &LatencyResult) -> Option<String> {
    let (p50, _) = latency_quantiles(asked)?;
    let off = (of.p50_us as f64 - p50).abs();
    // Few syncs say nothing about a distribution's median.
    let enough = of.count >= 20 || matches!(asked, Latency::Fixed(_));
    (enough && off > p50 * DELIVERED && off > DELIVERED_US)
        .then(|| format!("a sync of {store} was to take {p50:.0} µs (median) and took {} µs", of.p50_us))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::sample;
    use crate::bench::samples::Rate;

    fn counts(of: &[(u64, u64)]) -> BTreeMap<u64, u64> {
        of.iter().copied().collect()
    }

    #[test]
    fn quantiles_come_from_the_whole_histogram() {
        let of = latency(Some(&Latency::Fixed(500)), &counts(&[(500, 90), (510, 8), (900, 2)])).expect("syncs");
        assert_eq!((of.count, of.p50_us, of.p99_us), (100, 500, 900));
        assert!((of.mean_us - 508.8).abs() < 1e-9);
        assert_eq!(of.asked.as_deref(), Some("500 µs"));
        assert!(latency(None, &counts(&[])).is_none());
    }

    #[test]
    fn a_median_far_from_what_was_asked_is_not_delivered() {
        let of = |us| latency(None, &counts(&[(us, 100)])).expect("syncs");
        assert_eq!(not_delivered(&Latency::Fixed(4_000), "state.db", &of(4_040)), None);
        assert_eq!(not_delivered(&Latency::Fixed(200), "state.db", &of(240)), None, "the agent costs that much");
        let why = not_delivered(&Latency::Fixed(4_000), "state.db", &of(9_000)).expect("not delivered");
        assert!(why.contains("state.db") && why.contains("9000"), "{why}");
    }

    #[test]
    fn voided_rounds_are_kept_and_not_added_up() {
        let round = |voided: Option<&str>| RoundResult {
            rate: Rate { from: 100, to: 200, from_us: 0, to_us: 1_000_000, longest_us: 0 },
            voided: voided.map(str::to_owned),
            ..sample::cell("a", &[], &[100.0]).rounds.remove(0)
        };
        let used = Used {
            blocks: 101,
            stage_blocks: 99,
            cpu_us: 50_000,
            counts: BTreeMap::from([("state.db".to_owned(), 202)]),
            syncs: BTreeMap::from([("state.db".to_owned(), counts(&[(1_000, 200)]))]),
            stages: BTreeMap::from([("save".to_owned(), 0.3)]),
            own_blocks_per_s: None,
        };
        let mut gathered = Gathered::default();
        gathered.take(&used, round(None));
        gathered.take(&used, round(Some("busy")));
        assert_eq!((gathered.rounds.len(), gathered.used.blocks, gathered.used.cpu_us), (2, 101, 50_000));
        assert_eq!(gathered.used.syncs["state.db"][&1_000], 200);
    }
}

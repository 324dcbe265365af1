//! A small made-up result for tests.

use std::collections::BTreeMap;

use indexmap::IndexMap;

use super::result::{BenchResult, CellResult, Disk, RoundResult, Setup, Spent, VERSION};
use super::samples::{Look, Rate};

/// A cell with these rates, one a round.
pub(super) fn cell(arm: &str, axes: &[(&str, &str)], rates: &[f64]) -> CellResult {
    let round = |(round, rate): (u32, &f64)| RoundResult {
        round,
        place: 1,
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "small and positive")]
        rate: Rate { from: 500, to: 1_500, from_us: 0, to_us: (1e9 / rate) as u64, longest_us: 40_000 },
        looks: vec![Look { at_us: 0, height: 500 }, Look { at_us: 9_000_000, height: 1_500 }],
        load1: 0.5,
        cpu_pressure: Some(12.5),
        io_pressure: None,
        own_blocks_per_s: Some(*rate),
        voided: None,
    };
    CellResult {
        arm: arm.to_owned(),
        axes: axes.iter().map(|(axis, value)| ((*axis).to_owned(), (*value).to_owned())).collect::<IndexMap<_, _>>(),
        twin: false,
        tier: "observe".to_owned(),
        rounds: (1..).zip(rates).map(round).collect(),
        blocks_per_s: None,
        ms_per_block: None,
        syncs_per_block: BTreeMap::from([("state.db".to_owned(), 2.0)]),
        spent: Spent {
            cpu: 2.5,
            syncs: BTreeMap::from([("state.db".to_owned(), 8.0)]),
            stages: BTreeMap::from([("save".to_owned(), 4.25), ("apply_gap".to_owned(), 0.125)]),
        },
        latency: BTreeMap::new(),
        inconclusive: None,
    }
}

/// A bench of these cells, not concluded.
pub(super) fn result(cells: Vec<CellResult>) -> BenchResult {
    BenchResult {
        version: VERSION,
        name: "sample".to_owned(),
        seed: 1,
        started: "2026-11-30T20:00:00Z".to_owned(),
        again: "midflush bench sample.yaml --seed 1".to_owned(),
        setup: Setup {
            midflush: "0.1.0 release".to_owned(),
            engine: "process".to_owned(),
            kernel: "6.18.0".to_owned(),
            cpu: "Sample CPU".to_owned(),
            cpus: 4,
            node_cpus: vec![2, 3],
            peer_cpus: vec![0, 1],
            builds: BTreeMap::from([("base".to_owned(), "ab".repeat(32))]),
            fixture: "1600 blocks".to_owned(),
            disk: Disk { filesystem: "tmpfs".to_owned(), count: 200, p50_us: 2, p99_us: 9 },
        },
        cells,
        ratios: Vec::new(),
        floor: None,
        gates: Vec::new(),
        knees: Vec::new(),
        rounds: 0,
        voided: 0,
        ended: "6 rounds measured".to_owned(),
        notes: Vec::new(),
        results: "midflush-results/benches/sample".to_owned(),
    }
}

/// Six rates around a mean, the same little drift each time, with noise that differs by `phase`.
pub(super) fn rates(mean: f64, phase: usize) -> Vec<f64> {
    const NOISE: [f64; 6] = [0.4, -0.9, 0.1, 1.0, -0.5, -0.1];
    const DRIFT: [f64; 6] = [1.0, 1.02, 0.98, 1.01, 0.99, 1.03];
    (0..6).map(|n| mean * DRIFT[n] * (1.0 + NOISE[(n + phase) % 6] / 100.0)).collect()
}

//! A measured bench, as it is kept: everything that reports are made from.

use std::collections::BTreeMap;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use super::samples::{Look, Rate};
use super::statistics::{Interval, Summary};

/// Version of the format. A reader refuses another one.
pub const VERSION: u32 = 1;

/// A bench with all its rounds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct BenchResult {
    /// Version of the format.
    pub version: u32,
    /// Name of the bench.
    pub name: String,
    /// Seed of keys, orders and drawn latencies.
    pub seed: u64,
    /// When it began, RFC 3339.
    pub started: String,
    /// The command that runs it again.
    pub again: String,
    /// What figures depend on beside arms and axes.
    pub setup: Setup,
    /// What was measured, in the order of the file; the first is followed by its twin, the same arm once more.
    pub cells: Vec<CellResult>,
    /// Pairs of cells.
    pub ratios: Vec<Ratio>,
    /// The interval of the first cell against its twin: what cannot be told from noise.
    pub floor: Option<Ends>,
    /// What was required, and whether it holds.
    pub gates: Vec<GateResult>,
    /// Where more of something gains nothing any more, in words.
    pub knees: Vec<String>,
    /// Rounds that count.
    pub rounds: u32,
    /// Rounds that were measured and do not count.
    pub voided: u32,
    /// Why it ended, in words.
    pub ended: String,
    /// What else is worth knowing, a sentence each.
    pub notes: Vec<String>,
    /// Its folder.
    pub results: String,
}

/// Setups that differ are not compared silently.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    /// Version of midflush, and whether it was built with optimisation: the reference node is in it.
    pub midflush: String,
    /// Engine name.
    pub engine: String,
    /// Kernel release.
    pub kernel: String,
    /// Processor, as it names itself.
    pub cpu: String,
    /// How many this process may use.
    pub cpus: u32,
    /// Cores of the syncing node; empty where it was not pinned.
    pub node_cpus: Vec<u32>,
    /// Cores of its peers.
    pub peer_cpus: Vec<u32>,
    /// SHA-256 of what each arm runs.
    pub builds: BTreeMap<String, String>,
    /// The chain that was synced.
    pub fixture: String,
    /// The disk below the nodes' homes, probed before the first round.
    pub disk: Disk,
}

/// What a real sync takes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Disk {
    /// File system type, such as `ext4` or `tmpfs`.
    pub filesystem: String,
    /// Syncs made.
    pub count: u64,
    /// Median in microseconds.
    pub p50_us: u64,
    /// 99th percentile in microseconds.
    pub p99_us: u64,
}

/// One arm with one value for each axis.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CellResult {
    /// The arm.
    pub arm: String,
    /// Value by axis.
    pub axes: IndexMap<String, String>,
    /// Whether it is the first cell once more, for the noise floor.
    pub twin: bool,
    /// How much was intercepted.
    pub tier: String,
    /// Its rounds in the order in which they were measured.
    pub rounds: Vec<RoundResult>,
    /// Over the rounds that count.
    pub blocks_per_s: Option<Summary>,
    /// The same, milliseconds a block.
    pub ms_per_block: Option<Summary>,
    /// Syncs for one block by store, mean.
    pub syncs_per_block: BTreeMap<String, f64>,
    /// Where the time goes.
    pub spent: Spent,
    /// Sync latency asked and measured, by store.
    pub latency: BTreeMap<String, LatencyResult>,
    /// Why its figures mean nothing, if they do not.
    pub inconclusive: Option<String>,
}

/// Milliseconds for one block, mean over the rounds that count.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Spent {
    /// The node's process on all processors.
    pub cpu: f64,
    /// Inside syncs, by store, as the agent sees them.
    pub syncs: BTreeMap<String, f64>,
    /// By the node's own stages, where it has such.
    pub stages: BTreeMap<String, f64>,
}

/// How long syncs of one store took.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LatencyResult {
    /// What was asked for, in words; `None` is the disk as it is.
    pub asked: Option<String>,
    /// How many were measured.
    pub count: u64,
    /// Mean in microseconds.
    pub mean_us: f64,
    /// Median in microseconds.
    pub p50_us: u64,
    /// 99th percentile in microseconds.
    pub p99_us: u64,
    /// Microseconds and count, ascending.
    pub histogram: Vec<(u64, u64)>,
}

/// One cell in one round.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoundResult {
    /// Which round, from 1; a repeated one keeps its number.
    pub round: u32,
    /// Position within the round, from 1.
    pub place: u32,
    /// What was measured.
    pub rate: Rate,
    /// Looks that saw a new height, thinned out.
    pub looks: Vec<Look>,
    /// Load average over one minute at the beginning.
    pub load1: f64,
    /// CPU pressure at the end, `some` over ten seconds in percent; `None` where the kernel does not tell.
    pub cpu_pressure: Option<f64>,
    /// I/O pressure, the same.
    pub io_pressure: Option<f64>,
    /// Blocks a second by the node's own count, where it has one.
    pub own_blocks_per_s: Option<f64>,
    /// Why it does not count, if it does not.
    pub voided: Option<String>,
}

/// Two cells.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ratio {
    /// Label of the cell above.
    pub a: String,
    /// Label of the cell below.
    pub b: String,
    /// Positions of both in the list of cells.
    pub cells: (usize, usize),
    /// What they differ in: two arms, or two values of an axis such as `peers=2`.
    pub sides: (String, String),
    /// The ratio of blocks a second; `None` before two rounds count.
    pub ratio: Option<Interval>,
    /// `faster`, `slower`, `no change` or `inconclusive`.
    pub verdict: String,
    /// Why it is inconclusive, and how much of the difference syncs explain.
    pub why: String,
}

/// Both ends of an interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ends {
    /// Lower.
    pub lo: f64,
    /// Upper.
    pub hi: f64,
}

/// One thing that was required.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct GateResult {
    /// In words.
    pub what: String,
    /// `Some(true)` holds, `Some(false)` does not, `None` cannot be told.
    pub holds: Option<bool>,
    /// The figure beside the bound.
    pub why: String,
}

impl CellResult {
    /// Its name in tables: the arm, with the values of the axes where there are any.
    pub fn label(&self) -> String {
        let twin = if self.twin { " again" } else { "" };
        if self.axes.is_empty() {
            return format!("{}{twin}", self.arm);
        }
        let axes: Vec<String> = self.axes.iter().map(|(axis, value)| format!("{axis}={value}")).collect();
        format!("{}{twin} {}", self.arm, axes.join(" "))
    }

    /// Blocks a second of the rounds that count, by round.
    pub fn counted(&self) -> BTreeMap<u32, f64> {
        let counted = self.rounds.iter().filter(|round| round.voided.is_none());
        counted.map(|round| (round.round, round.rate.blocks_per_s())).collect()
    }

    /// Milliseconds inside syncs for one block, all stores.
    pub fn sync_ms_per_block(&self) -> f64 {
        self.spent.syncs.values().fold(0.0, |sum, ms| sum + ms)
    }

    /// Syncs for one block, all stores.
    pub fn all_syncs_per_block(&self) -> f64 {
        self.syncs_per_block.values().fold(0.0, |sum, count| sum + count)
    }
}

//! Flushes and syncs as they are counted: how many, for how many blocks, and how long they took.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Mode;

/// Flushes and syncs counted from outside, over a stretch of one start in one mode.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tally {
    /// Which start.
    pub start: u32,
    /// Mode of all that is counted here.
    pub mode: Option<Mode>,
    /// Complete flushes.
    pub flushes: u64,
    /// Blocks that they made durable.
    pub blocks: u64,
    /// Last height flushed.
    pub height: u64,
    /// store → syncs in one flush → how many flushes had that many.
    pub per_flush: BTreeMap<String, BTreeMap<u64, u64>>,
    /// store → syncs for one block → how many blocks had that many. A flush of W blocks gives W−1 blocks with none.
    pub per_block: BTreeMap<String, BTreeMap<u64, u64>>,
    /// store → sync system calls.
    #[serde(default)]
    pub syncs: BTreeMap<String, u64>,
    /// store → how long those of its syncs took that were timed: all, or a sample where they are many.
    pub latency: BTreeMap<String, SyncLatency>,
}

/// Duration of syncs, as the node sees them: injected latency included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SyncLatency {
    /// How many were timed.
    pub count: u64,
    /// Sum in microseconds.
    pub sum_us: u64,
    /// Median in microseconds.
    pub p50_us: u64,
    /// 99th percentile in microseconds.
    pub p99_us: u64,
    /// Longest in microseconds.
    pub max_us: u64,
}

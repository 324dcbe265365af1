//! Injected disk latency, as a topology asks for it and an agent keeps to it.

use serde::{Deserialize, Serialize};

/// How long a sync of a store takes in all; what the disk itself needs is part of it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Latency {
    /// Always the same, in microseconds.
    Fixed(u64),
    /// Exponential with this mean in microseconds, cut at 20 times the mean.
    Exponential(u64),
    /// Lognormal by two of its quantiles.
    Lognormal {
        /// Median in microseconds.
        p50_us: u64,
        /// 99th percentile in microseconds.
        p99_us: u64,
    },
    /// One of these measured values, in microseconds, each as likely.
    Empirical(Vec<u64>),
    /// The sync is not made at all and succeeds at once.
    NotMade,
}

//! How long the stages of a block take: totals for metrics, and means over the last hundred blocks for the log.

use std::fmt::Display;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::node::log::Log;
use crate::node::types::Height;

/// Blocks between two lines of means.
const BLOCKS_A_LINE: u64 = 100;

/// A stage of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Stage {
    /// Encoding the block and hashing its parts.
    Partset,
    /// Verifying the commit's signature.
    VerifyCommit,
    /// Validating the block against the state.
    VerifyBlock,
    /// Saving the block.
    Save,
    /// The application executes the block.
    ExecAbci,
    /// Saving its results.
    ExecSaveResults,
    /// Saving the state.
    ExecSaveState,
    /// The application's commit.
    ExecAppCommit,
    /// Making a checkpoint.
    ExecCheckpoint,
    /// Updating the mempool.
    ExecMempool,
    /// Firing events.
    ExecEvents,
    /// Writing a window of blocks at a flush point, all databases.
    Flush,
    /// The applier waits for the next block.
    ApplyGap,
}

impl Stage {
    /// All of them, in the order of a block.
    pub const ALL: [Self; 13] = [
        Self::Partset,
        Self::VerifyCommit,
        Self::VerifyBlock,
        Self::Save,
        Self::ExecAbci,
        Self::ExecSaveResults,
        Self::ExecSaveState,
        Self::ExecAppCommit,
        Self::ExecCheckpoint,
        Self::ExecMempool,
        Self::ExecEvents,
        Self::Flush,
        Self::ApplyGap,
    ];

    /// Its name in metrics and in the log.
    pub fn name(self) -> &'static str {
        match self {
            Self::Partset => "partset",
            Self::VerifyCommit => "verify_commit",
            Self::VerifyBlock => "verify_block",
            Self::Save => "save",
            Self::ExecAbci => "exec_abci",
            Self::ExecSaveResults => "exec_save_results",
            Self::ExecSaveState => "exec_save_state",
            Self::ExecAppCommit => "exec_app_commit",
            Self::ExecCheckpoint => "exec_checkpoint",
            Self::ExecMempool => "exec_mempool",
            Self::ExecEvents => "exec_events",
            Self::Flush => "flush",
            Self::ApplyGap => "apply_gap",
        }
    }
}

/// Count and sum of one stage since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Total {
    /// How often it was taken.
    pub count: u64,
    /// The time of all together.
    pub sum: Duration,
}

#[derive(Debug, Default)]
struct Inner {
    totals: [Total; Stage::ALL.len()],
    at_last_line: [Total; Stage::ALL.len()],
    blocks: u64,
}

/// The totals of all stages. Shared between the applier, the verifier and the metrics.
#[derive(Debug, Default)]
pub struct Timings {
    inner: Mutex<Inner>,
}

impl Timings {
    /// Adds one measurement.
    pub fn record(&self, stage: Stage, took: Duration) {
        let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        let total = &mut inner.totals[stage as usize];
        total.count += 1;
        total.sum += took;
    }

    /// Adds the time since `start`, and returns now, from where the next stage counts.
    pub fn lap(&self, stage: Stage, start: Instant) -> Instant {
        let now = Instant::now();
        self.record(stage, now - start);
        now
    }

    /// The totals in the order of [`Stage::ALL`].
    pub fn totals(&self) -> [(Stage, Total); Stage::ALL.len()] {
        let inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
        Stage::ALL.map(|stage| (stage, inner.totals[stage as usize]))
    }

    /// Counts a block; every hundredth logs the means a block since the last such line, in milliseconds.
    pub(super) fn block_done(&self, log: Option<&Log>, height: Height) {
        let means = {
            let mut inner = self.inner.lock().unwrap_or_else(PoisonError::into_inner);
            inner.blocks += 1;
            if !inner.blocks.is_multiple_of(BLOCKS_A_LINE) {
                return;
            }
            let means = Stage::ALL.map(|stage| {
                let took = inner.totals[stage as usize].sum - inner.at_last_line[stage as usize].sum;
                format!("{:.3}", took.as_secs_f64() * 1000.0 / BLOCKS_A_LINE as f64)
            });
            inner.at_last_line = inner.totals;
            means
        };
        if let Some(log) = log {
            let mut fields: Vec<(&str, &dyn Display)> = vec![("height", &height)];
            fields.extend(Stage::ALL.iter().zip(&means).map(|(stage, mean)| (stage.name(), mean as &dyn Display)));
            log.info("timing, mean ms a block over 100 blocks", &fields);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn means_are_of_the_last_hundred_blocks() {
        let (timings, log) = (Timings::default(), Log::memory());
        for block in 0..200 {
            timings.record(Stage::Save, Duration::from_millis(if block < 100 { 1 } else { 3 }));
            timings.block_done(Some(&log), block + 1);
        }
        let lines = log.lines();
        assert_eq!(lines.len(), 2);
        assert!(lines[0].contains("height=100") && lines[0].contains(" save=1.000 "), "{}", lines[0]);
        assert!(lines[1].contains(" save=3.000 ") && lines[1].contains(" flush=0.000 "), "{}", lines[1]);
        assert_eq!(timings.totals()[3], (Stage::Save, Total { count: 200, sum: Duration::from_millis(400) }));
    }
}

//! Planted defects: mistakes that real nodes have made, switched on one at a time by a hidden setting, for testing the
//! tests and tools that should catch them. A healthy node has none.

use serde::{Deserialize, Serialize};

/// The mistakes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Defect {
    /// A flush writes state before the block store.
    StateBeforeStore,
    /// A flush writes the application before state.
    AppBeforeState,
    /// A restart does not lower the block store.
    NoRewind,
    /// A restart lowers the block store whatever its window's record says.
    RewindAlways,
    /// Results of a block are saved without a sync, after the application's commit.
    ResultsUnsynced,
    /// The height record of the block store is written before the block.
    HeightRecordEarly,
    /// The sign state is not synced.
    SignStateUnsynced,
    /// Events fire before their block is durable.
    EventsEarly,
    /// Events of a window fire again after a restart.
    EventsTwice,
    /// Held results of empty blocks fire no event.
    EventsSkipEmpty,
    /// Queries answer from what is held.
    QueriesFromHeld,
    /// A failed write does not stop the flush.
    IgnoreFailedWrite,
    /// A flush falls inside a block: after the block is held, before it is executed.
    FlushInsideBlock,
    /// The switch to consensus does not flush.
    SwitchWithoutFlush,
    /// A stop while behind flushes half of what is held.
    FlushOnStop,
    /// The halting block is not flushed before the halt.
    HaltUnflushed,
    /// The halt height is overshot by one.
    HaltOvershoot,
    /// A rollback of a folder whose block store is far ahead is not refused.
    RollbackAlways,
    /// The application hash depends on the order in which this process met the keys.
    AppHashOrder,
    /// The index over the application's keys is rebuilt wrongly after a restart.
    IndexRebuiltWrong,
    /// After a restart the node answers and does nothing.
    SilentStall,
    /// `catching_up` stays true.
    CatchingUpStuck,
    /// `catching_up` is false while far behind.
    CatchingUpFalse,
    /// Block sync is slower than the chain.
    TooSlow,
    /// A restart throws away more than a window.
    HeightRegress,
    /// A torn tail of the consensus WAL is refused instead of cut.
    WalTailRefused,
    /// Restoring a checkpoint loses the block after it.
    CheckpointLosesBlock,
    /// The second restart panics, the first does not.
    PanicSecondRestart,
}

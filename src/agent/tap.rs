//! Every durable event of a start, of any file, for an observer of a node that nothing is known about.

use std::path::PathBuf;

use super::tracker::Kind;

/// The bytes before a height in the block store of every node of the CometBFT family.
pub const PREFIX: &[u8] = b"H:";

/// One event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tapped {
    /// The machine's monotonic clock, in microseconds.
    pub at_us: u64,
    /// The calling thread.
    pub tid: i32,
    /// The file, absolute.
    pub path: PathBuf,
    /// What it is.
    pub kind: TappedKind,
    /// Bytes written.
    pub length: usize,
    /// Numbers behind [`PREFIX`] in these bytes.
    pub heights: Vec<u64>,
    /// How long a sync took, in microseconds.
    pub took_us: Option<u64>,
    /// Lines that the node printed since the event before, without colour codes.
    pub said: Vec<String>,
}

/// Kind of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TappedKind {
    /// A write or a rename.
    Write,
    /// A write that is durable on return.
    SyncedWrite,
    /// A sync.
    Sync,
    /// `sync_file_range`, which makes nothing durable.
    SyncRange,
    /// A create, unlink or change of size.
    Change,
}

impl TappedKind {
    pub(super) fn of(kind: Kind) -> Self {
        match kind {
            Kind::Write { synced: false } => Self::Write,
            Kind::Write { synced: true } => Self::SyncedWrite,
            Kind::Sync => Self::Sync,
            Kind::Change | Kind::Empty => Self::Change,
        }
    }
}

//! Every durable event of a start, of any file, for an observer of a node that nothing is known about.

use std::path::PathBuf;

use super::height::numbers;
use super::tracker::Kind;

/// The bytes before a height in the block store of every node of the CometBFT family.
pub const PREFIX: &[u8] = b"H:";

/// The numbers behind [`PREFIX`] in what was written. Beside it CometBFT keeps the block's hash, as text behind `BH:`, and a
/// hash may begin with digits.
pub(super) fn heights(bytes: &[u8]) -> Vec<u64> {
    let number = |(at, digits): (usize, &[u8])| {
        let hash = at > 0 && bytes[at - 1] == b'B';
        std::str::from_utf8(digits).ok().filter(|_| !hash)?.parse().ok()
    };
    numbers(bytes, PREFIX).filter_map(number).collect()
}

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

#[cfg(test)]
mod tests {
    use super::heights;

    #[test]
    fn a_block_s_hash_that_begins_with_digits_is_no_height() {
        assert_eq!(heights(b"\x02H:7\x90\x02meta\x43BH:8040AF\x017"), [7]);
        assert_eq!(heights(b"H:6 H:7"), [6, 7]);
    }
}

//! The append-only record of everything seen in a run; the only input of judge, report and page.
//!
//! Only types live here, and how a line is written and read. The dispatcher in `run` is the only writer.

mod address;
mod event;
mod latency;
mod layout;
pub mod line;
mod read;
mod tally;
mod vocabulary;
pub mod votes;
pub mod wire;

pub use address::{Address, HeightRange, HeightSource, Heights, Landed, Mode, Phase, StoreProgress, WriteAt};
pub use event::{
    Errno, Event, Exit, ExitCause, Expect, FaultId, FaultKind, FaultSetup, Hashes, NodeEvent, NodeSetup, Record, Role,
    RunStarted, Setup, Status, Tier, VERSION,
};
pub use latency::Latency;
pub use layout::{Commit, HeightKind, HeightMark, Layout, LogMark, LogMeaning, Store};
pub use read::{ReadError, Reader, Torn, read_all};
pub use tally::{SyncLatency, Tally};
pub use vocabulary::{ExpectedVerdict, LastSigned, SignedAt, Verdict};
pub use votes::{CommitVotes, DoubleVote, VoteType};

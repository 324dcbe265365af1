//! Run folders and the SQLite index over them.
//!
//! A run folder is the truth about a run: everything else, the index included, can be made from it again. Layout:
//!
//! | file | what |
//! |---|---|
//! | `owner.json` | who writes this folder; locked for as long as that process lives |
//! | `topology.yaml` | the topology as resolved |
//! | `plan.json`, `binding.json` | the plan, and where it was put |
//! | `timeline.ndjson` | everything seen, one record a line, on disk as it happens |
//! | `verdict.json` | what the judge concluded, the object that `run --json` prints |
//! | `logs/NODE/start-N.log` | captured output of each start of each node |
//!
//! Above the folders lies `index.sqlite`, which `runs` and the page read instead of every folder.

mod folder;
mod index;
mod owner;
mod summary;
mod timeline;

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

pub use folder::{Document, Release, RunFolder};
pub use index::{FindError, Index};
pub use owner::{Owner, Ownership, ownership};
pub use summary::{RunState, RunSummary, summarise};
pub use timeline::{TimelineFollower, TimelineWriter};

/// Where results lie when nobody says otherwise: below the working directory.
pub const DEFAULT_RESULTS: &str = "midflush-results";

/// Name of the timeline in a run folder.
pub const TIMELINE: &str = "timeline.ndjson";

/// Something about the results on disk went wrong. Reads after "failed to".
#[derive(Debug, thiserror::Error)]
pub struct ResultsError {
    /// What was being done.
    what: String,
    /// The file or folder.
    path: PathBuf,
    /// How it failed.
    pub kind: ResultsErrorKind,
}

/// How an operation on the results failed.
#[derive(Debug, thiserror::Error)]
pub enum ResultsErrorKind {
    /// The disk is full; what was written before is whole.
    #[error("the disk is full; free some space, what was written before is whole")]
    DiskFull,
    /// Any other failure of the file system.
    #[error(transparent)]
    Io(io::Error),
    /// SQLite failed.
    #[error(transparent)]
    Sqlite(#[from] rusqlite::Error),
    /// A value could not be written or read as JSON.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// The name may not be used in a path, or the order of records is wrong.
    #[error("{0}")]
    Refused(String),
}

impl fmt::Display for ResultsError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} `{}`: {}", self.what, self.path.display(), self.kind)
    }
}

impl From<io::Error> for ResultsErrorKind {
    fn from(error: io::Error) -> Self {
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Self::DiskFull,
            _ => Self::Io(error),
        }
    }
}

impl ResultsError {
    /// An error of `kind` while doing `what` to `path`.
    fn new(what: &str, path: &Path, kind: impl Into<ResultsErrorKind>) -> Self {
        Self { what: what.to_owned(), path: path.to_owned(), kind: kind.into() }
    }

    /// For `map_err`.
    fn at<K: Into<ResultsErrorKind>>(what: &'static str, path: &Path) -> impl FnOnce(K) -> Self {
        move |kind| Self::new(what, path, kind)
    }
}

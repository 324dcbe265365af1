//! What midflush knows about one node family's stores: which files, in which order they are flushed,
//! which commit advances which height, and how heights and modes show in what the node writes.
//!
//! It is data, so that it goes into the timeline for the judge and over the wire to the agent.

use serde::{Deserialize, Serialize};

use super::Mode;

/// One store: a group of files that become durable together.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Store {
    /// Name used in addresses, such as `blockstore.db`.
    pub name: String,
    /// Paths relative to the node's home. One that ends in `/` takes every file below it, any other
    /// is one file exactly (so that `n4/` does not take `n4.log`); `*` there is any text within a file name.
    pub paths: Vec<String>,
    /// Files below `paths` that are never part of a commit, by file name, with `*` for any text: goleveldb's `LOG`,
    /// `MANIFEST-*` and `*.ldb`, which its compaction writes and syncs whenever it likes.
    #[serde(default)]
    pub except: Vec<String>,
}

/// One commit of the flush, in write order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Commit {
    /// The store it goes to.
    pub store: String,
    /// The sync of that store that ends it, from 1; `None` where it is written and never synced, or synced a number of
    /// times that differs from block to block.
    pub sync: Option<u32>,
    /// In which modes it is made; empty is all.
    #[serde(default)]
    pub modes: Vec<Mode>,
    /// The height of the node that it advances, if any.
    #[serde(default)]
    pub advances: Option<HeightKind>,
    /// What it holds, in a few words: "state results".
    pub what: String,
}

/// One of a node's three heights.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HeightKind {
    /// The application's.
    App,
    /// The state store's.
    State,
    /// The block store's.
    Store,
}

/// How a height shows in the bytes written to a store: `prefix` followed by decimal digits.
/// The largest plausible match of a flush is its height.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct HeightMark {
    /// The store whose writes are searched.
    pub store: String,
    /// The bytes before the digits, such as `H:`.
    pub prefix: String,
}

/// A short token in the node's output that tells something. Matched without regard to case or colour codes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LogMark {
    /// Tokens that all occur in the line.
    pub tokens: Vec<String>,
    /// What such a line means.
    pub meaning: LogMeaning,
}

/// What a log line means. Field names are keys in the line, in `key=value` or JSON form.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum LogMeaning {
    /// The node is in this mode from here on.
    Mode(Mode),
    /// The handshake line with the three heights.
    Handshake {
        /// Key of the application's height.
        app: String,
        /// Key of the state store's height.
        state: String,
        /// Key of the block store's height.
        store: String,
    },
    /// The node is about to flush blocks `from`+1 to `to`.
    FlushPoint {
        /// Key of F, the height on disk.
        from: String,
        /// Key of F′, the height after the flush.
        to: String,
    },
    /// A known trouble; `class` is its short name, such as `consensus-failure`.
    Trouble {
        /// Short name of the class.
        class: String,
    },
}

/// All of it for one node.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Layout {
    /// The stores that are watched. A path below none of them is not counted.
    pub stores: Vec<Store>,
    /// The commits of one flush in write order. A flush begins at the first event of the first commit's
    /// store after the last flush ended, and ends when the last commit of the mode is done or when the next begins.
    pub flush: Vec<Commit>,
    /// How heights are decoded from writes.
    #[serde(default)]
    pub height_mark: Option<HeightMark>,
    /// How the output is read.
    #[serde(default)]
    pub log_marks: Vec<LogMark>,
}

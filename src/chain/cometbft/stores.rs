//! The stores of a CometBFT 0.38 node with its persistent kvstore, and the order of one flush.
//!
//! Read from `store/store.go`, `consensus/state.go` (`finalizeCommit`), `state/execution.go` and `state/store.go` of v0.38.17
//! and checked against what the node does.

use crate::chain::marks;
use crate::timeline::{Commit, HeightKind, HeightMark, Layout, LogMark, Mode, Store};

/// Files of goleveldb that are no part of a commit: its own log of what it does, and what compaction writes from time to
/// time on another thread. A commit is what goes into the journal, `NNNNNN.log`.
const NOT_JOURNAL: [&str; 6] = ["LOG", "LOG.old", "LOCK", "CURRENT*", "MANIFEST-*", "*.ldb"];

/// Everything that is known about the stores.
pub(super) fn layout() -> Layout {
    Layout {
        stores: stores(),
        flush: flush(),
        // The key of the seen commit, written once a block. `H:` before the block's meta would do as well, were it not
        // the tail of `BH:` before a block hash, which may begin with digits.
        height_mark: Some(HeightMark { store: "blockstore.db".to_owned(), prefix: "SC:".to_owned() }),
        log_marks: log_marks(),
    }
}

fn stores() -> Vec<Store> {
    let store = |name: &str, paths: &[&str], except: &[&str]| Store {
        name: name.to_owned(),
        paths: paths.iter().map(|&p| p.to_owned()).collect(),
        except: except.iter().map(|&e| e.to_owned()).collect(),
    };
    vec![
        store("blockstore.db", &["data/blockstore.db/"], &NOT_JOURNAL),
        store("cs.wal", &["data/cs.wal/"], &[]),
        store("state.db", &["data/state.db/"], &NOT_JOURNAL),
        // The kvstore opens goleveldb by itself, under its own name, whatever `db_backend` says.
        store("application.db", &["data/kvstore.db/"], &NOT_JOURNAL),
        // Filled by another thread after the block's events: outside the flush.
        store("tx_index.db", &["data/tx_index.db/"], &NOT_JOURNAL),
        store("evidence.db", &["data/evidence.db/"], &NOT_JOURNAL),
        // Written to a temporary file opened with O_SYNC, then renamed; never synced by a call.
        store("privval", &["data/priv_validator_state.json", "data/write-file-atomic-*"], &[]),
    ]
}

fn flush() -> Vec<Commit> {
    let commit = |store: &str, sync: Option<u32>, modes: &[Mode], advances: Option<HeightKind>, what: &str| Commit {
        store: store.to_owned(),
        sync,
        modes: modes.to_vec(),
        advances,
        what: what.to_owned(),
    };
    vec![
        // A replay at the handshake starts from blocks that are stored already.
        commit(
            "blockstore.db",
            Some(1),
            &[Mode::Consensus, Mode::BlockSync],
            Some(HeightKind::Store),
            "block parts, meta, commits, height record",
        ),
        commit("cs.wal", Some(1), &[Mode::Consensus], None, "end of height"),
        commit("state.db", Some(1), &[], None, "results of the block"),
        commit("application.db", None, &[], Some(HeightKind::App), "keys set by the block, then size and height"),
        commit("state.db", Some(2), &[], Some(HeightKind::State), "validators, parameters, state"),
    ]
}

fn log_marks() -> Vec<LogMark> {
    let mut all = vec![
        marks::mode(&["ABCI Handshake App Info"], Mode::Replay),
        marks::handshake(&["ABCI Replay Blocks", "appHeight=", "storeHeight=", "stateHeight="]),
        marks::mode(&["module=blocksync", "impl=BlockPool", "Starting BlockPool service"], Mode::BlockSync),
        // Written before the consensus state starts, with or without block sync before it.
        marks::mode(&["module=consensus", "impl=ConsensusState", "Starting State service"], Mode::Consensus),
    ];
    all.extend(marks::troubles());
    all
}

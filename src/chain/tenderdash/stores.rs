//! The stores of a Tenderdash 1.5 node with its persistent kvstore, and the order of one flush.
//!
//! Read from `internal/store/store.go`, `internal/consensus/state_apply_commit.go`, `internal/state/store.go` and
//! `abci/example/kvstore`, and checked against what the node does.

use crate::chain::journal::NOT_JOURNAL;
use crate::chain::marks;
use crate::timeline::{Commit, HeightKind, Layout, LogMark, Mode, Store};

/// Troubles of other families that mean nothing here: what was signed before a kill is signed again at the restart and the
/// sign state refuses it, and heights that came by block sync never have an end in the WAL.
const HARMLESS: [&str; 2] = ["step regression", "WAL does not contain #ENDHEIGHT"];

/// Store of the built-in application.
const APPLICATION: &str = "application.db";

/// Everything that is known about the stores. `alone` where the node is the only validator: then it never fetches blocks
/// from others, and starts consensus before the service that would. `beside` where the application has a process of its own.
pub(super) fn layout(alone: bool, beside: bool) -> Layout {
    let own = |store: &str| !beside || store != APPLICATION;
    Layout {
        stores: stores().into_iter().filter(|store| own(&store.name)).collect(),
        flush: flush().into_iter().filter(|commit| own(&commit.store)).collect(),
        // Keys are binary, and the one place with a height in digits has no bytes before it that are always the same:
        // heights are counted, one block a flush, from the handshake line on.
        height_mark: None,
        log_marks: log_marks(alone),
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
        // The kvstore keeps all it has in one file, which it empties and writes anew with each block.
        store(APPLICATION, &["data/state.json"], &[]),
        store("evidence.db", &["data/evidence.db/"], &NOT_JOURNAL),
        store("peerstore.db", &["data/peerstore.db/"], &NOT_JOURNAL),
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
            "block parts, meta, commits, height by hash",
        ),
        commit("cs.wal", Some(1), &[Mode::Consensus], None, "end of height"),
        commit("state.db", Some(1), &[], None, "results of the block"),
        commit(APPLICATION, None, &[], Some(HeightKind::App), "height and app hash, then every key"),
        commit("state.db", Some(2), &[], Some(HeightKind::State), "validators, parameters, state"),
    ]
}

fn log_marks(alone: bool) -> Vec<LogMark> {
    let mut all = vec![
        marks::mode(&["ABCI Handshake App Info"], Mode::Replay),
        marks::handshake(&["ABCI Replay Blocks", "appHeight=", "storeHeight=", "stateHeight="]),
        // Written before the consensus state starts, with or without block sync before it.
        marks::mode(&["starting service", "impl=State module=consensus service=State"], Mode::Consensus),
    ];
    if !alone {
        all.push(marks::mode(&["starting service", "impl=BlockSync module=blockchain"], Mode::BlockSync));
    }
    all.extend(marks::troubles().into_iter().filter(|mark| !HARMLESS.contains(&mark.tokens.concat().as_str())));
    all
}

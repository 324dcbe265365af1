//! The stores of a CometBFT node and the order of one flush.
//!
//! Read from `store/store.go`, `consensus/state.go` (`finalizeCommit`), `state/execution.go` and `state/store.go` of v0.38.17
//! and checked against what 0.37, 0.38 and 1.0 do: the order is the same, and the applications differ. The kvstore of 0.37 and
//! 0.38 writes and never syncs. That of 1.x keeps what it commits in its own memory until 32 KiB have gathered, so that it has
//! no part in a flush and any height after a death. The e2e application writes its whole state beside the last one and
//! renames, never syncing.

use super::release::{App, Release};
use crate::chain::journal::NOT_JOURNAL;
use crate::chain::marks;
use crate::timeline::{Commit, HeightKind, HeightMark, Layout, LogMark, Mode, Store};

/// Everything that is known about the stores.
pub(super) fn layout(release: Release, app: App) -> Layout {
    Layout {
        stores: stores(app),
        flush: flush(release, app),
        // The key of the seen commit, written once a block. `H:` before the block's meta would do as well, were it not
        // the tail of `BH:` before a block hash, which may begin with digits.
        height_mark: Some(HeightMark { store: "blockstore.db".to_owned(), prefix: "SC:".to_owned() }),
        log_marks: log_marks(),
    }
}

fn stores(app: App) -> Vec<Store> {
    let store = |name: &str, paths: &[&str], except: &[&str]| Store {
        name: name.to_owned(),
        paths: paths.iter().map(|&p| p.to_owned()).collect(),
        except: except.iter().map(|&e| e.to_owned()).collect(),
    };
    let application = match app {
        // The kvstore opens a database by itself, under its own name, whatever `db_backend` says.
        App::Kvstore => Some(store("application.db", &["data/kvstore.db/"], &NOT_JOURNAL)),
        App::E2e => Some(store(
            "application.db",
            &["data/app/app_state.json", "data/app/app_state.json.new", "data/app/prev_app_state.json"],
            &[],
        )),
        App::Beside => None,
    };
    let first = [
        store("blockstore.db", &["data/blockstore.db/"], &NOT_JOURNAL),
        store("cs.wal", &["data/cs.wal/"], &[]),
        store("state.db", &["data/state.db/"], &NOT_JOURNAL),
    ];
    let last = [
        // Filled by another thread after the block's events: outside the flush.
        store("tx_index.db", &["data/tx_index.db/"], &NOT_JOURNAL),
        store("evidence.db", &["data/evidence.db/"], &NOT_JOURNAL),
        // Written to a temporary file opened with O_SYNC, then renamed; never synced by a call.
        store("privval", &["data/priv_validator_state.json", "data/write-file-atomic-*"], &[]),
    ];
    first.into_iter().chain(application).chain(last).collect()
}

fn flush(release: Release, app: App) -> Vec<Commit> {
    let commit = |store: &str, sync: Option<u32>, modes: &[Mode], advances: Option<HeightKind>, what: &str| Commit {
        store: store.to_owned(),
        sync,
        modes: modes.to_vec(),
        advances,
        what: what.to_owned(),
    };
    let application = match (app, release) {
        (App::Kvstore, Release::V1) | (App::Beside, _) => None,
        (App::Kvstore, _) => Some("keys set by the block, then size and height"),
        (App::E2e, _) => Some("the whole state beside the last one, then two renames"),
    };
    let application = application.map(|what| commit("application.db", None, &[], Some(HeightKind::App), what));
    let before = [
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
    ];
    let last = commit("state.db", Some(2), &[], Some(HeightKind::State), "validators, parameters, state");
    before.into_iter().chain(application).chain([last]).collect()
}

fn log_marks() -> Vec<LogMark> {
    let mut all = vec![
        marks::mode(&["ABCI Handshake App Info"], Mode::Replay),
        marks::handshake(&["ABCI Replay Blocks", "appHeight=", "storeHeight=", "stateHeight="]),
        // The module is `blockchain` in 0.37 and `blocksync` later.
        marks::mode(&["impl=BlockPool", "Starting BlockPool service"], Mode::BlockSync),
        // Written before the consensus state starts, with or without block sync before it.
        marks::mode(&["module=consensus", "impl=ConsensusState", "Starting State service"], Mode::Consensus),
    ];
    all.extend(marks::troubles());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_kvstore_of_1_x_has_no_part_in_a_flush() {
        let stores = |release, app| -> Vec<String> {
            layout(release, app).flush.into_iter().map(|commit| commit.store).collect()
        };
        let usual = ["blockstore.db", "cs.wal", "state.db", "application.db", "state.db"];
        for (release, app) in [(Release::V037, App::Kvstore), (Release::V038, App::Kvstore), (Release::V1, App::E2e)] {
            assert_eq!(stores(release, app), usual, "{release:?} {app:?}");
        }
        assert_eq!(stores(Release::V1, App::Kvstore), ["blockstore.db", "cs.wal", "state.db", "state.db"]);
    }
}

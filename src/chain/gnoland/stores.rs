//! The stores of a gnoland node and the order of one flush.
//!
//! Read from `bft/store/store.go`, `bft/consensus/state.go` (`finalizeCommit`), `bft/state/execution.go` and `bft/state/store.go`
//! of v1.7.1 and seen with `midflush observe`, the same with pebbledb and goleveldb: syncs a block are block store 2, results
//! and state 2, application 1, and the write-ahead log 1 at the end of the height (8 in all for a lone validator). On goleveldb a block with transactions writes an index entry for each right after the results,
//! before the application's commit, so that the first write of `state.db` sync 2 is one of these; pebbledb keeps them in memory
//! until that sync. Releases
//! before v1.2.0 left the results without a sync, and this layout does not fit them.

use crate::chain::journal::NOT_JOURNAL;
use crate::chain::marks;
use crate::timeline::{Commit, HeightKind, HeightMark, Layout, LogMark, Mode, Store};

/// Everything that is known about the stores.
pub(super) fn layout() -> Layout {
    Layout {
        stores: stores(),
        flush: flush(),
        // The key of the seen commit, written once a block.
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
        store("blockstore.db", &["db/blockstore.db/"], &NOT_JOURNAL),
        store("cs.wal", &["wal/cs.wal/"], &[]),
        store("state.db", &["db/state.db/"], &NOT_JOURNAL),
        // Always pebbledb, whatever `db_backend` says.
        store("application.db", &["db/gnolang.db/"], &NOT_JOURNAL),
        // Written to a temporary file opened with O_SYNC, then renamed; never synced by a call.
        store("privval", &["secrets/priv_validator_state.json", "secrets/write-file-atomic-*"], &[]),
    ]
}

fn flush() -> Vec<Commit> {
    let commit = |store: &str, sync: u32, modes: &[Mode], advances: Option<HeightKind>, what: &str| Commit {
        store: store.to_owned(),
        sync: Some(sync),
        modes: modes.to_vec(),
        advances,
        what: what.to_owned(),
    };
    // A replay at the handshake starts from blocks that are stored already.
    let new = [Mode::Consensus, Mode::BlockSync];
    vec![
        commit("blockstore.db", 1, &new, Some(HeightKind::Store), "block parts, meta, commits, height record"),
        commit("blockstore.db", 2, &new, None, "nothing: an empty key, written to sync what came before"),
        commit("cs.wal", 1, &[Mode::Consensus], None, "end of height"),
        commit("state.db", 1, &[], None, "results of the block"),
        commit("application.db", 1, &[], Some(HeightKind::App), "state of the application"),
        commit("state.db", 2, &[], Some(HeightKind::State), "validators, parameters, state"),
    ]
}

fn log_marks() -> Vec<LogMark> {
    let mut all = vec![
        marks::mode(&["ABCI Handshake App Info"], Mode::Replay),
        marks::handshake(&["ABCI Replay Blocks", "appHeight", "storeHeight", "stateHeight"]),
        marks::mode(&["Starting BlockPool", "blockchain"], Mode::BlockSync),
        // Written before the consensus state starts, with or without block sync before it.
        marks::mode(&["Starting ConsensusState", "\"impl\": \"ConsensusState\""], Mode::Consensus),
    ];
    all.extend(marks::troubles());
    all
}

#[cfg(test)]
mod tests {
    use crate::timeline::LogMeaning;

    /// Lines as v1.7.1 wrote them: the first start of a validator logs that its log has no end of height 0, in a line that
    /// also names the consensus state.
    #[test]
    fn marks_meet_the_lines_that_they_mean_and_no_others() {
        let lines = [
            (
                "INFO \tABCI Replay Blocks\t{\"module\": \"consensus\", \"appHeight\": 0, \"storeHeight\": 0, \"stateHeight\": 0}",
                "handshake",
            ),
            ("INFO \tStarting BlockPool\t{\"module\": \"blockchain\", \"impl\": \"BlockPool\"}", "BlockSync"),
            ("INFO \tStarting ConsensusState\t{\"module\": \"consensus\", \"impl\": \"ConsensusState\"}", "Consensus"),
            ("INFO \tStarting ConsensusReactor\t{\"module\": \"consensus\", \"impl\": \"ConsensusReactor\"}", ""),
            (
                "ERROR\tError on catchup replay. Proceeding to start ConsensusState anyway\t{\"module\": \"consensus\"}",
                "",
            ),
        ];
        for (line, wanted) in lines {
            let folded = line.to_lowercase();
            let marks = super::log_marks();
            let met = marks.iter().filter(|mark| mark.tokens.iter().all(|t| folded.contains(&t.to_lowercase())));
            let words: Vec<String> = met
                .map(|mark| match &mark.meaning {
                    LogMeaning::Mode(mode) => format!("{mode:?}"),
                    LogMeaning::Handshake { .. } => "handshake".to_owned(),
                    other => format!("{other:?}"),
                })
                .collect();
            assert_eq!(words.join(" "), wanted, "{line}");
        }
    }
}

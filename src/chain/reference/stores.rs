//! The stores of a reference node, the order of one flush in each storage discipline, and how its log is read.
//!
//! A file format and an interface, not shared code: store files, their keys and the log's tokens are what the node's
//! documentation promises.

use crate::chain::{ChainError, marks};
use crate::timeline::{Commit, HeightKind, HeightMark, Layout, LogMark, LogMeaning, Mode, Store};

/// When a node makes its writes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Discipline {
    PerBlock,
    SingleFlush,
    Deferred,
    NoSync,
}

impl Discipline {
    /// By the name in plans and in the node's configuration; the node's default is `per-block`.
    pub(super) fn named(name: Option<&str>) -> Result<Self, ChainError> {
        match name {
            None | Some("per-block") => Ok(Self::PerBlock),
            Some("single-flush") => Ok(Self::SingleFlush),
            Some("deferred") => Ok(Self::Deferred),
            Some("no-sync") => Ok(Self::NoSync),
            Some(other) => Err(ChainError::new(format!(
                "use storage discipline `{other}`: there are per-block, single-flush, deferred and no-sync"
            ))),
        }
    }

    /// As the node's configuration spells it.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::PerBlock => "per-block",
            Self::SingleFlush => "single-flush",
            Self::Deferred => "deferred",
            Self::NoSync => "no-sync",
        }
    }
}

/// Everything that is known about the stores of a node with this discipline.
pub(super) fn layout(discipline: Discipline) -> Layout {
    Layout {
        stores: stores(),
        flush: flush(discipline),
        // The key of a block.
        height_mark: Some(HeightMark { store: "blockstore.db".to_owned(), prefix: "H:".to_owned() }),
        log_marks: log_marks(),
    }
}

fn stores() -> Vec<Store> {
    let store = |name: &str, paths: &[&str]| Store {
        name: name.to_owned(),
        paths: paths.iter().map(|&p| p.to_owned()).collect(),
        except: Vec::new(),
    };
    vec![
        store("blockstore.db", &["data/blockstore.db"]),
        store("cs.wal", &["data/cs.wal/"]),
        store("state.db", &["data/state.db"]),
        store("application.db", &["data/application.db"]),
        store("privval", &["data/sign_state.json", "data/sign_state.tmp"]),
        store("checkpoints", &["data/checkpoints/"]),
    ]
}

/// One commit, before its sync is known to happen.
struct Step {
    store: &'static str,
    sync: u32,
    modes: &'static [Mode],
    advances: Option<HeightKind>,
    what: &'static str,
}

/// Modes in which blocks are new to the node; a replay starts from blocks that are stored already.
const NEW: &[Mode] = &[Mode::Consensus, Mode::BlockSync];
const ANY: &[Mode] = &[];
/// Modes in which `deferred` writes block by block.
const BLOCK_BY_BLOCK: &[Mode] = &[Mode::Consensus, Mode::Replay];

fn flush(discipline: Discipline) -> Vec<Commit> {
    let step = |store, sync, modes, advances, what| Step { store, sync, modes, advances, what };
    let (app, state, store) = (Some(HeightKind::App), Some(HeightKind::State), Some(HeightKind::Store));
    let end_height = step("cs.wal", 1, &[Mode::Consensus], None, "end of height");
    let steps = match discipline {
        Discipline::PerBlock | Discipline::NoSync => vec![
            step("blockstore.db", 1, NEW, store, "block and height record"),
            step("blockstore.db", 2, NEW, None, "flush"),
            end_height,
            step("state.db", 1, ANY, None, "results of the block"),
            step("application.db", 1, ANY, app, "state of the application"),
            step("state.db", 2, ANY, state, "state"),
        ],
        Discipline::SingleFlush => vec![
            step("blockstore.db", 1, NEW, store, "block and height record"),
            end_height,
            step("state.db", 1, ANY, None, "results of the block"),
            step("application.db", 1, ANY, app, "state of the application"),
            step("state.db", 2, ANY, state, "state"),
        ],
        Discipline::Deferred => vec![
            step("blockstore.db", 1, NEW, store, "blocks of the window, its record, height record"),
            end_height,
            step("state.db", 1, &[Mode::BlockSync], state, "results and states of the window"),
            step("state.db", 1, BLOCK_BY_BLOCK, None, "results of the block"),
            step("application.db", 1, ANY, app, "state of the application"),
            step("state.db", 2, BLOCK_BY_BLOCK, state, "state"),
        ],
    };
    let synced = discipline != Discipline::NoSync;
    let commit = |step: Step| Commit {
        store: step.store.to_owned(),
        sync: synced.then_some(step.sync),
        modes: step.modes.to_vec(),
        advances: step.advances,
        what: step.what.to_owned(),
    };
    steps.into_iter().map(commit).collect()
}

fn log_marks() -> Vec<LogMark> {
    let mut all = vec![
        marks::mode(&["enter", "mode=replay"], Mode::Replay),
        marks::mode(&["enter", "mode=block_sync"], Mode::BlockSync),
        marks::mode(&["enter", "mode=consensus"], Mode::Consensus),
        marks::handshake(&["handshake", "appHeight=", "storeHeight=", "stateHeight="]),
        marks::mark(
            &["flush point", "from=", "to="],
            LogMeaning::FlushPoint { from: "from".to_owned(), to: "to".to_owned() },
        ),
    ];
    // How the node words a start that it refuses.
    for (token, class) in [
        ("the application is ahead of the block store", "app-ahead"),
        ("the state is ahead of the block store", "state-ahead"),
        ("more than one block ahead of the state", "store-ahead"),
        ("a window ahead of the state", "store-ahead"),
        ("the application is below the lowest block kept", "app-too-old"),
        ("read the sign state", "sign-state-unreadable"),
        ("was signed already", "sign-regression"),
        ("another message was signed there already", "sign-regression"),
    ] {
        all.push(marks::trouble(&[token], class));
    }
    all.extend(marks::troubles());
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Syncs by store of one flush in one mode.
    fn syncs(discipline: Discipline, mode: Mode) -> Vec<(String, u32)> {
        let commits = layout(discipline).flush;
        let in_mode = commits.into_iter().filter(|c| c.modes.is_empty() || c.modes.contains(&mode));
        in_mode.filter_map(|c| Some((c.store, c.sync?))).collect()
    }

    #[test]
    fn every_discipline_advances_each_height_once_in_each_mode() {
        for name in ["per-block", "single-flush", "deferred", "no-sync"] {
            let discipline = Discipline::named(Some(name)).expect("a discipline");
            assert_eq!(discipline.name(), name);
            for mode in [Mode::Consensus, Mode::BlockSync, Mode::Replay] {
                let commits = layout(discipline).flush;
                let advanced: Vec<HeightKind> = commits
                    .iter()
                    .filter(|c| c.modes.is_empty() || c.modes.contains(&mode))
                    .filter_map(|c| c.advances)
                    .collect();
                let expected: &[HeightKind] = match (discipline, mode) {
                    (Discipline::Deferred, Mode::BlockSync) => &[HeightKind::Store, HeightKind::State, HeightKind::App],
                    (_, Mode::Replay) => &[HeightKind::App, HeightKind::State],
                    _ => &[HeightKind::Store, HeightKind::App, HeightKind::State],
                };
                assert_eq!(advanced, expected, "{name} in {mode:?}");
            }
        }
        assert!(Discipline::named(Some("none")).is_err());
    }

    #[test]
    fn syncs_of_a_flush_in_block_sync_are_five_four_three_and_none() {
        let count = |discipline| syncs(discipline, Mode::BlockSync).len();
        assert_eq!(count(Discipline::PerBlock), 5);
        assert_eq!(count(Discipline::SingleFlush), 4);
        assert_eq!(count(Discipline::Deferred), 3);
        assert_eq!(count(Discipline::NoSync), 0);
        assert_eq!(syncs(Discipline::Deferred, Mode::Consensus), syncs(Discipline::SingleFlush, Mode::Consensus));
    }
}

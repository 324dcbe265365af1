//! What heights a SIGKILL at an address leaves behind: a pure function of where it landed and of the order of the flush.
//!
//! The page cache survives the process, so what counts is what was *written*, not what was synced. A flush takes the node
//! from F to F′. A height is at F′ when all bytes of the commit that advances it were written:
//!
//! * its sync returned, or its sync is the very event that was held (a commit is whole when its sync begins);
//! * the event was after its last write;
//! * for a commit that is never synced: a later commit of the flush was reached and this store was written to.
//!
//! It is at F when the commit had not begun. Between the first and the last write it is one of the two, as the database
//! decides. A store that is never synced and made no system call at all keeps its data in user space: it may lag by
//! any number of blocks. One that is a file rewritten in place holds nothing, and not F, from its emptying to its first write.

use std::fmt;

use crate::timeline::{Commit, HeightKind, Heights, Landed, Layout, Phase, WriteAt};

/// What one height can be after the kill.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Exactly this.
    Exactly(u64),
    /// The flush was in the middle of this commit: the old height or the new one, nothing between.
    Either(u64, u64),
    /// Held in user space: anything up to this.
    AtMost(u64),
    /// The flush does not touch this height.
    Untouched,
}

/// What the three heights can be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Predicted {
    /// The application's.
    pub app: Expected,
    /// The state store's.
    pub state: Expected,
    /// The block store's.
    pub store: Expected,
}

impl Expected {
    /// The highest height that it can be; `None` where there is no such limit.
    fn most(self) -> Option<u64> {
        match self {
            Self::Exactly(height) | Self::Either(_, height) | Self::AtMost(height) => Some(height),
            Self::Untouched => None,
        }
    }

    fn allows(self, seen: Option<u64>) -> bool {
        let Some(seen) = seen else { return true };
        match self {
            Self::Exactly(height) => seen == height,
            Self::Either(old, new) => seen == old || seen == new,
            Self::AtMost(height) => seen <= height,
            Self::Untouched => true,
        }
    }
}

impl fmt::Display for Expected {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(height) => write!(f, "{height}"),
            Self::Either(old, new) => write!(f, "{old} or {new}"),
            Self::AtMost(height) => write!(f, "at most {height}"),
            Self::Untouched => f.write_str("any"),
        }
    }
}

impl fmt::Display for Predicted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} / {} / {}", self.app, self.state, self.store)
    }
}

impl Predicted {
    /// Whether these heights are among those predicted; a height that could not be read is not held against it.
    pub fn allows(&self, seen: Heights) -> bool {
        self.app.allows(seen.app) && self.state.allows(seen.state) && self.store.allows(seen.store)
    }

    /// Whether one of these heights is above all that is predicted.
    pub(crate) fn exceeded(&self, seen: Heights) -> bool {
        let above = |expected: Expected, seen: Option<u64>| seen > expected.most() && expected.most().is_some();
        above(self.app, seen.app) || above(self.state, seen.state) || above(self.store, seen.store)
    }

    /// The same for heights from the node's own handshake line: a node that rewinds a window has, by then, lowered its
    /// block store from F′ to F+1.
    pub(crate) fn allows_rewound(&self, seen: Heights, landed: &Landed) -> bool {
        let floor = landed.height - landed.window.min(landed.height);
        let rewound = self.store.allows(Some(landed.height)) && seen.store == Some(floor + 1);
        self.allows(seen) || (rewound && self.allows(Heights { store: None, ..seen }))
    }
}

/// How far a commit had come when everything was held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    NotBegun,
    Partly,
    Written,
    Buffered,
}

/// Heights after a SIGKILL that landed here, for a node with this order of commits.
pub fn predict(landed: &Landed, layout: &Layout) -> Predicted {
    heights(landed, layout, false)
}

/// Heights of a node that stops where a call of it fails: what the failed call belongs to may be there or not, and nothing
/// that follows it in the flush is.
pub(crate) fn predict_failed(landed: &Landed, layout: &Layout) -> Predicted {
    heights(landed, layout, true)
}

fn heights(landed: &Landed, layout: &Layout, failed: bool) -> Predicted {
    let order: Vec<&Commit> =
        layout.flush.iter().filter(|c| c.modes.is_empty() || c.modes.contains(&landed.mode)).collect();
    // The same store may be written by several commits: the one meant is the one that this sync ends.
    let reached = order
        .iter()
        .rposition(|c| c.store == landed.store && (c.sync.is_none() || landed.sync.is_none() || c.sync <= landed.sync));
    let new = landed.height;
    let old = new.saturating_sub(landed.window);
    let expected = |kind: HeightKind| {
        let Some(index) = order.iter().position(|c| c.advances == Some(kind)) else { return Expected::Untouched };
        let progress = progress(order[index], index, reached, landed);
        let old = if emptied(order[index], landed) { 0 } else { old };
        match progress {
            Progress::Written if failed && landed.write.is_none() && is_here(order[index], landed) => {
                Expected::Either(old, new)
            }
            Progress::NotBegun => Expected::Exactly(old),
            Progress::Partly => Expected::Either(old, new),
            Progress::Written => Expected::Exactly(new),
            Progress::Buffered => Expected::AtMost(new),
        }
    };
    Predicted { app: expected(HeightKind::App), state: expected(HeightKind::State), store: expected(HeightKind::Store) }
}

/// Whether the file that a commit rewrites in place had lost what it held: until the first write there is nothing.
fn emptied(commit: &Commit, landed: &Landed) -> bool {
    commit.sync.is_none() && landed.done.get(&commit.store).is_some_and(|done| done.emptied)
}

fn is_here(commit: &Commit, landed: &Landed) -> bool {
    commit.store == landed.store && landed.sync == commit.sync
}

fn progress(commit: &Commit, index: usize, reached: Option<usize>, landed: &Landed) -> Progress {
    let done = landed.done.get(&commit.store).copied().unwrap_or_default();
    let here = is_here(commit, landed);
    let Some(sync) = commit.sync else {
        let later = reached.is_some_and(|reached| reached > index);
        // Its syncs may differ from block to block, so they tell no more than that something was written.
        return match (later, done.writes > 0 || done.syncs > 0) {
            (true, false) => Progress::Buffered,
            (true, true) => Progress::Written,
            (false, false) => Progress::NotBegun,
            (false, true) => unfinished(landed, here),
        };
    };
    if done.syncs >= sync || (here && landed.write.is_none()) {
        Progress::Written
    } else if here {
        unfinished(landed, here)
    } else if done.syncs + 1 == sync && done.writes > 0 {
        // Its writes were under way on another thread.
        Progress::Partly
    } else {
        Progress::NotBegun
    }
}

/// A commit whose sync has not begun, with the event among its writes.
fn unfinished(landed: &Landed, here: bool) -> Progress {
    match (here, landed.write, landed.phase) {
        (true, Some(WriteAt::Last), Phase::After) => Progress::Written,
        (true, Some(WriteAt::First | WriteAt::Nth(1)), Phase::Before) => Progress::NotBegun,
        _ => Progress::Partly,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::Expected::{AtMost, Either, Exactly};
    use super::*;
    use crate::timeline::{HeightSource, Mode, StoreProgress};

    fn layout(commits: &[(&str, Option<u32>, Option<HeightKind>)]) -> Layout {
        let commit = |(store, sync, advances): &(&str, Option<u32>, Option<HeightKind>)| Commit {
            store: (*store).to_owned(),
            sync: *sync,
            modes: Vec::new(),
            advances: *advances,
            what: String::new(),
        };
        Layout { flush: commits.iter().map(commit).collect(), ..Layout::default() }
    }

    fn deferred() -> Layout {
        use HeightKind::{App, State, Store};
        layout(&[
            ("blockstore.db", Some(1), Some(Store)),
            ("state.db", Some(1), Some(State)),
            ("application.db", Some(1), Some(App)),
        ])
    }

    /// CometBFT with an application that writes and never syncs.
    fn comet() -> Layout {
        use HeightKind::{App, State, Store};
        layout(&[
            ("blockstore.db", Some(1), Some(Store)),
            ("cs.wal", Some(1), None),
            ("state.db", Some(1), None),
            ("application.db", None, Some(App)),
            ("state.db", Some(2), Some(State)),
        ])
    }

    fn landed(at: (&str, Option<u32>, Option<WriteAt>, Phase), window: u64, done: &[(&str, u32, u32)]) -> Landed {
        let progress = |(store, syncs, writes): &(&str, u32, u32)| {
            ((*store).to_owned(), StoreProgress { syncs: *syncs, writes: *writes, emptied: false })
        };
        Landed {
            height: 1412,
            height_source: HeightSource::Decoded,
            store: at.0.to_owned(),
            sync: at.1,
            write: at.2,
            phase: at.3,
            mode: Mode::BlockSync,
            window,
            done: done.iter().map(progress).collect::<BTreeMap<_, _>>(),
        }
    }

    fn heights(predicted: Predicted) -> [Expected; 3] {
        [predicted.app, predicted.state, predicted.store]
    }

    const FIRST: Option<WriteAt> = Some(WriteAt::First);

    #[test]
    fn an_application_that_syncs_now_and_then_counts_as_written() {
        let at = |at, done: &[(&str, u32, u32)]| heights(predict(&landed(at, 1, done), &comet()))[0];
        let (old, new) = (1411, 1412);
        let state = ("state.db", Some(2), FIRST, Phase::Before);
        assert_eq!(at(state, &[("application.db", 2, 0)]), Exactly(new));
        let before = ("application.db", None, FIRST, Phase::Before);
        assert_eq!(at(before, &[("application.db", 0, 0)]), Exactly(old));
        let between = ("application.db", None, Some(WriteAt::Nth(17)), Phase::Before);
        assert_eq!(at(between, &[("application.db", 1, 0)]), Either(old, new));
    }

    #[test]
    fn a_deferred_window_is_lost_store_by_store() {
        let at = |store, done: &[(&str, u32, u32)]| {
            heights(predict(&landed((store, Some(1), FIRST, Phase::Before), 31, done), &deferred()))
        };
        let (old, new) = (Exactly(1381), Exactly(1412));
        assert_eq!(at("blockstore.db", &[]), [old, old, old]);
        assert_eq!(at("state.db", &[("blockstore.db", 1, 0)]), [old, old, new]);
        assert_eq!(at("application.db", &[("blockstore.db", 1, 0), ("state.db", 1, 0)]), [old, new, new]);
    }

    #[test]
    fn a_commit_is_whole_when_its_sync_begins() {
        for phase in [Phase::Before, Phase::After] {
            let done =
                [("blockstore.db", 1, 0), ("state.db", 1, 0), ("application.db", u32::from(phase == Phase::After), 7)];
            let predicted = predict(&landed(("application.db", Some(1), None, phase), 31, &done), &deferred());
            assert_eq!(heights(predicted), [Exactly(1412); 3]);
        }
        let last = landed(
            ("state.db", Some(1), Some(WriteAt::Last), Phase::After),
            31,
            &[("blockstore.db", 1, 0), ("state.db", 0, 5)],
        );
        assert_eq!(heights(predict(&last, &deferred())), [Exactly(1381), Exactly(1412), Exactly(1412)]);
    }

    #[test]
    fn in_the_middle_of_a_commit_it_is_one_or_the_other() {
        let done = [("blockstore.db", 0, 1)];
        let middle = landed(("blockstore.db", Some(1), FIRST, Phase::After), 31, &done);
        let predicted = predict(&middle, &deferred());
        assert_eq!(heights(predicted), [Exactly(1381), Exactly(1381), Either(1381, 1412)]);
        assert!(predicted.allows(Heights::new(1381, 1381, 1412)) && !predicted.allows(Heights::new(1381, 1381, 1400)));
    }

    #[test]
    fn an_application_that_never_syncs() {
        let at = |at, done: &[(&str, u32, u32)]| heights(predict(&landed(at, 1, done), &comet()));
        let stored = [("blockstore.db", 1, 0), ("cs.wal", 1, 0), ("state.db", 1, 0)];
        let (old, new) = (Exactly(1411), Exactly(1412));
        assert_eq!(at(("application.db", None, FIRST, Phase::Before), &stored), [old, old, new]);
        let wrote = [stored[0], stored[1], stored[2], ("application.db", 0, 3)];
        assert_eq!(at(("state.db", Some(2), FIRST, Phase::Before), &wrote), [new, old, new]);
        // No system call at all: it gathers in user space.
        assert_eq!(at(("state.db", Some(2), FIRST, Phase::Before), &stored), [AtMost(1412), old, new]);
        let first_state = [stored[0], stored[1]];
        assert_eq!(at(("state.db", Some(1), FIRST, Phase::Before), &first_state), [old, old, new]);
        let between = [stored[0], stored[1], stored[2], ("application.db", 0, 1)];
        assert_eq!(at(("application.db", None, FIRST, Phase::After), &between), [Either(1411, 1412), old, new]);
    }

    #[test]
    fn an_application_whose_file_is_rewritten_in_place() {
        let at = |at, writes, emptied| {
            let mut landed = landed(at, 1, &[("blockstore.db", 1, 0), ("cs.wal", 1, 0), ("state.db", 1, 0)]);
            landed.done.insert("application.db".to_owned(), StoreProgress { syncs: 0, writes, emptied });
            predict(&landed, &comet()).app
        };
        let nth = |n| Some(WriteAt::Nth(n));
        assert_eq!(at(("application.db", None, FIRST, Phase::Before), 0, true), Exactly(0));
        assert_eq!(at(("application.db", None, FIRST, Phase::Before), 0, false), Exactly(1411));
        assert_eq!(at(("application.db", None, nth(3), Phase::Before), 2, true), Either(0, 1412));
        assert_eq!(at(("state.db", Some(2), FIRST, Phase::Before), 5, true), Exactly(1412));
    }

    #[test]
    fn a_height_that_could_not_be_read_is_not_held_against_it() {
        let predicted =
            predict(&landed(("state.db", Some(1), FIRST, Phase::Before), 31, &[("blockstore.db", 1, 0)]), &deferred());
        assert!(predicted.allows(Heights { app: None, state: Some(1381), store: Some(1412) }));
        assert!(!predicted.allows(Heights::new(1381, 1381, 1382)));
        let at = landed(("state.db", Some(1), FIRST, Phase::Before), 31, &[("blockstore.db", 1, 0)]);
        assert!(predicted.allows_rewound(Heights::new(1381, 1381, 1382), &at));
        assert!(!predicted.allows_rewound(Heights::new(1381, 1381, 1390), &at));
    }
}

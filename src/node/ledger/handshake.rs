//! What a start does with the three heights that it finds: the decision table, pure.
//!
//! The rules are those of CometBFT's replay, and one more for windows of blocks that were flushed together.

use std::fmt;

use crate::node::types::Height;

/// The three heights on disk; 0 is before the first block.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Heights {
    /// The application's.
    pub app: Height,
    /// The state's.
    pub state: Height,
    /// The block store's.
    pub store: Height,
}

impl fmt::Display for Heights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.app, self.state, self.store)
    }
}

/// A shape that no crash of this node leaves, so that going on could hide lost data.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("start from app/state/store {heights}: {reason}")]
pub struct Refusal {
    /// What was found.
    pub heights: Heights,
    /// Why it is refused.
    pub reason: &'static str,
}

/// How the last block of the block store is brought into the state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LastBlock {
    /// The state has it.
    Done,
    /// The application executes it.
    Execute(Height),
    /// The application has it; the state takes over the stored results.
    StoredResults(Height),
}

/// What to do, in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Steps {
    /// Lower the block store to this height.
    pub(super) lower_to: Option<Height>,
    /// The application executes again these blocks, which the state has: first and last.
    pub(super) app: Option<(Height, Height)>,
    /// The block that the state lacks.
    pub(super) last: LastBlock,
}

impl Steps {
    /// Whether there is anything to do.
    pub(super) fn is_nothing(&self) -> bool {
        self.lower_to.is_none() && self.app.is_none() && self.last == LastBlock::Done
    }
}

/// What is known about the block store besides its height.
#[derive(Clone, Copy, Debug)]
pub(super) struct Blocks {
    /// Height of the chain's first block.
    pub(super) initial: Height,
    /// Lowest height kept; 0 without blocks.
    pub(super) base: Height,
    /// The record of the last window F→F′.
    pub(super) window: Option<(Height, Height)>,
}

/// Decides.
pub(super) fn decide(heights: Heights, blocks: Blocks) -> Result<Steps, Refusal> {
    let refuse = |reason| Err(Refusal { heights, reason });
    let Heights { app, state, mut store } = heights;
    let next = |height: Height| if height == 0 { blocks.initial } else { height + 1 };
    if [app, state, store].iter().any(|h| *h != 0 && *h < blocks.initial) {
        return refuse("a height is below the first of the chain");
    }
    if app > store {
        return refuse("the application is ahead of the block store");
    }
    if state > store {
        return refuse("the state is ahead of the block store");
    }
    let mut lower_to = None;
    if store > next(state) {
        // Only a flush that was cut between block store and state leaves this, and its record says so.
        match blocks.window {
            Some((from, to)) if from == state && to == store && app <= from => {
                store = next(state);
                lower_to = Some(store);
            }
            Some((from, to)) if from == state && to == store => {
                return refuse("the block store is a window ahead of the state, but the application has part of it");
            }
            _ => return refuse("the block store is more than one block ahead of the state, and no window says why"),
        }
    }
    if app < store && blocks.base > next(app) {
        return refuse("the application is below the lowest block kept");
    }
    let replay_to = state;
    let replay = (app < replay_to).then(|| (next(app), replay_to));
    let last = match (store == state, app == store) {
        (true, _) => LastBlock::Done,
        (false, true) => LastBlock::StoredResults(store),
        (false, false) => LastBlock::Execute(store),
    };
    Ok(Steps { lower_to, app: replay, last })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decided(app: Height, state: Height, store: Height, window: Option<(Height, Height)>) -> Result<Steps, Refusal> {
        decide(Heights { app, state, store }, Blocks { initial: 1, base: 1, window })
    }

    fn steps(lower_to: Option<Height>, app: Option<(Height, Height)>, last: LastBlock) -> Steps {
        Steps { lower_to, app, last }
    }

    #[test]
    fn the_shapes_of_a_single_block() {
        assert_eq!(decided(0, 0, 0, None), Ok(steps(None, None, LastBlock::Done)));
        assert_eq!(decided(9, 9, 9, None), Ok(steps(None, None, LastBlock::Done)));
        assert_eq!(decided(7, 9, 9, None), Ok(steps(None, Some((8, 9)), LastBlock::Done)));
        assert_eq!(decided(0, 9, 9, None), Ok(steps(None, Some((1, 9)), LastBlock::Done)));
        assert_eq!(decided(7, 9, 10, None), Ok(steps(None, Some((8, 9)), LastBlock::Execute(10))));
        assert_eq!(decided(9, 9, 10, None), Ok(steps(None, None, LastBlock::Execute(10))));
        assert_eq!(decided(10, 9, 10, None), Ok(steps(None, None, LastBlock::StoredResults(10))));
        assert_eq!(decided(0, 0, 1, None), Ok(steps(None, None, LastBlock::Execute(1))));
        assert_eq!(decided(1, 0, 1, None), Ok(steps(None, None, LastBlock::StoredResults(1))));
    }

    #[test]
    fn the_shapes_of_a_window() {
        let window = Some((9, 40));
        assert_eq!(decided(9, 9, 40, window), Ok(steps(Some(10), None, LastBlock::Execute(10))));
        assert_eq!(decided(9, 40, 40, window), Ok(steps(None, Some((10, 40)), LastBlock::Done)));
        assert_eq!(decided(40, 40, 40, window), Ok(steps(None, None, LastBlock::Done)));
        assert_eq!(decided(3, 9, 40, window), Ok(steps(Some(10), Some((4, 9)), LastBlock::Execute(10))));
        assert_eq!(decided(0, 0, 40, Some((0, 40))), Ok(steps(Some(1), None, LastBlock::Execute(1))));
    }

    #[test]
    fn every_other_shape_is_refused_with_its_heights() {
        for (app, state, store, window) in [
            (10, 9, 9, None),
            (9, 10, 9, None),
            (9, 9, 11, None),
            (9, 9, 40, Some((8, 40))),
            (9, 9, 40, Some((9, 39))),
            (10, 9, 40, Some((9, 40))),
            (40, 9, 40, Some((9, 40))),
            (41, 40, 40, Some((9, 40))),
            (1, 0, 0, None),
        ] {
            let refusal = decided(app, state, store, window).unwrap_err().to_string();
            assert!(refusal.contains(&format!("{app}/{state}/{store}")), "{refusal}");
        }
        let pruned = Blocks { initial: 1, base: 5, window: None };
        assert!(decide(Heights { app: 3, state: 9, store: 9 }, pruned).is_err());
        assert!(decide(Heights { app: 4, state: 9, store: 9 }, pruned).is_ok());
    }

    #[test]
    fn a_chain_may_start_above_one() {
        let blocks = |window| Blocks { initial: 100, base: 100, window };
        let at = |app, state, store| Heights { app, state, store };
        assert_eq!(decide(at(0, 0, 100), blocks(None)), Ok(steps(None, None, LastBlock::Execute(100))));
        assert_eq!(decide(at(0, 100, 100), blocks(None)), Ok(steps(None, Some((100, 100)), LastBlock::Done)));
        let window = Some((0, 130));
        assert_eq!(decide(at(0, 0, 130), blocks(window)), Ok(steps(Some(100), None, LastBlock::Execute(100))));
        assert!(decide(at(0, 50, 100), blocks(None)).is_err());
    }
}

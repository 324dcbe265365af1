//! What a restart should do, from the three heights: the decision table of the handshake, read from the
//! `ReplayBlocks` code of CometBFT, tm2 and (with errors in place of panics) Tenderdash.

use crate::timeline::Heights;

/// What the handshake starts from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Triple {
    /// The application's height.
    pub(crate) app: u64,
    /// The state store's height.
    pub(crate) state: u64,
    /// The block store's height.
    pub(crate) store: u64,
    /// Lowest block kept, where known.
    pub(crate) base: Option<u64>,
    /// First height of the chain.
    pub(crate) initial: u64,
    /// Whether the application's hash is empty, where known.
    pub(crate) app_hash_empty: Option<bool>,
}

/// One row of the table, applied.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Row {
    /// Number in the table, 1 to 11.
    pub(crate) number: u8,
    /// What the node does.
    pub(crate) does: Does,
    /// In words.
    pub(crate) words: String,
}

/// What the node does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Does {
    /// Goes on as it is.
    Continues,
    /// Goes on, though something is lost; worth a warning.
    Passes,
    /// Replays this many blocks into the application, RPC down meanwhile.
    Replays(u64),
    /// Cannot start; the class of the refusal.
    Refuses(&'static str),
}

impl Triple {
    /// From three known heights.
    pub(crate) fn from_heights(heights: Heights, initial: u64) -> Option<Self> {
        let Heights { app: Some(app), state: Some(state), store: Some(store) } = heights else { return None };
        Some(Self { app, state, store, base: None, initial, app_hash_empty: None })
    }

    /// The row of the table; conditions are checked in its order.
    pub(crate) fn row(&self) -> Row {
        let Self { app, state, store, initial, .. } = *self;
        let row = |number, does, words: String| Row { number, does, words };
        if store == 0 {
            return self.empty_store();
        }
        if let Some(base) = self.base {
            if app == 0 && initial < base {
                let words = format!("application wiped and blocks below {base} pruned: it cannot be replayed");
                return row(2, Does::Refuses("app-too-old"), words);
            }
            if app > 0 && app + 1 < base {
                let words = format!("application at {app} is too old for a block store that begins at {base}");
                return row(3, Does::Refuses("app-too-old"), words);
            }
        }
        if store < app {
            let words = format!("application ahead of the block store by {}: cannot start", app - store);
            return row(4, Does::Refuses("app-ahead"), words);
        }
        if store < state {
            let words = format!("state ahead of the block store by {}: cannot start", state - store);
            return row(5, Does::Refuses("state-ahead"), words);
        }
        if store > state + 1 {
            let reset = if state == 0 { ", state store reset" } else { "" };
            let words = format!("block store ahead of state by {}{reset}: cannot start", store - state);
            return row(6, Does::Refuses("store-ahead"), words);
        }
        let blocks =
            |from: u64, to: u64| if from == to { format!("block {to}") } else { format!("blocks {from} to {to}") };
        let first = (app + 1).max(initial);
        if store == state {
            return if app < store {
                let words = format!("replays {} through the application, RPC down meanwhile", blocks(first, store));
                row(7, Does::Replays(store + 1 - first), words)
            } else {
                row(8, Does::Continues, "clean: compares app hashes and goes on".to_owned())
            };
        }
        if app < state {
            let words = format!("replays {}, then {store}, RPC down meanwhile", blocks(first, state));
            row(9, Does::Replays(store + 1 - first), words)
        } else if app == state {
            row(10, Does::Replays(1), format!("replays block {store} with the real application"))
        } else {
            let words = format!("replays block {store} from its stored results, which must be there");
            row(11, Does::Replays(0), words)
        }
    }

    fn empty_store(&self) -> Row {
        let (does, words) = match (self.app, self.app_hash_empty) {
            (0, _) => (Does::Continues, "fresh start".to_owned()),
            (app, Some(true)) => {
                (Does::Passes, format!("engine data reset below an application at {app}; its empty hash lets it pass"))
            }
            (app, Some(false)) => {
                (Does::Refuses("app-ahead"), format!("application data kept at {app}, engine data reset: cannot start"))
            }
            (app, None) => {
                let words =
                    format!("application data kept at {app}, engine data reset: passes only with an empty app hash");
                (Does::Passes, words)
            }
        };
        Row { number: 1, does, words }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(app: u64, state: u64, store: u64) -> (u8, Does) {
        let row = Triple { app, state, store, initial: 1, ..Triple::default() }.row();
        (row.number, row.does)
    }

    #[test]
    fn every_row_of_the_table() {
        assert_eq!(row(0, 0, 0), (1, Does::Continues));
        assert_eq!(row(57, 0, 0), (1, Does::Passes));
        assert_eq!(row(105, 101, 101), (4, Does::Refuses("app-ahead")));
        assert_eq!(row(101, 104, 101), (5, Does::Refuses("state-ahead")));
        assert_eq!(row(100, 0, 140), (6, Does::Refuses("store-ahead")));
        assert_eq!(row(97, 100, 100), (7, Does::Replays(3)));
        assert_eq!(row(100, 100, 100), (8, Does::Continues));
        assert_eq!(row(98, 100, 101), (9, Does::Replays(3)));
        assert_eq!(row(100, 100, 101), (10, Does::Replays(1)));
        assert_eq!(row(101, 100, 101), (11, Does::Replays(0)));
    }

    #[test]
    fn pruned_stores_and_empty_hashes() {
        let triple = Triple { app: 0, state: 101, store: 101, base: Some(60), initial: 1, app_hash_empty: None };
        assert_eq!(triple.row().number, 2);
        assert_eq!(Triple { app: 58, ..triple }.row().number, 3);
        assert_eq!(Triple { app: 59, ..triple }.row().number, 7);
        assert_eq!(Triple { initial: 60, ..triple }.row().number, 7);
        let reset = Triple { app: 9, app_hash_empty: Some(false), ..Triple::default() };
        assert_eq!(reset.row().does, Does::Refuses("app-ahead"));
        assert_eq!(Triple { app_hash_empty: Some(true), ..reset }.row().does, Does::Passes);
    }
}

//! The stores of a node made with the Cosmos SDK, and the order of one flush: those of CometBFT, with the SDK's own
//! application database.
//!
//! Read from `store/rootmulti/store.go` of 0.46 and checked with `midflush observe -- simd start …`: the trees are written one
//! batch each, in an order that changes, then the commit's own record, which alone says which version the trees are read at
//! after a restart.

use crate::chain::{cometbft, marks};
use crate::timeline::{Layout, LogMark, Mode};

/// Everything that is known about the stores.
pub(super) fn layout() -> Layout {
    let [mut layout, _] = cometbft::Cometbft::known_layouts();
    for store in layout.stores.iter_mut().filter(|store| store.name == APPLICATION) {
        store.paths = vec!["data/application.db/".to_owned()];
    }
    // Its syncs are not counted: 0.45 makes none, 0.46 one for the commit's record and up to two more for what is to be
    // pruned, which depends on height and settings.
    for commit in layout.flush.iter_mut().filter(|commit| commit.store == APPLICATION) {
        commit.what = "one batch a tree, then the commit's record".to_owned();
    }
    layout.log_marks = log_marks();
    layout
}

const APPLICATION: &str = "application.db";

/// The SDK logs in a format of its own: keys in alphabetical order, and `service start` for every service.
fn log_marks() -> Vec<LogMark> {
    let mut all = vec![
        marks::mode(&["ABCI Handshake App Info"], Mode::Replay),
        marks::handshake(&["ABCI Replay Blocks", "appHeight=", "storeHeight=", "stateHeight="]),
        marks::mode(&["service start", "impl=BlockPool"], Mode::BlockSync),
        marks::mode(&["service start", "impl=ConsensusState"], Mode::Consensus),
    ];
    all.extend(marks::troubles());
    all
}

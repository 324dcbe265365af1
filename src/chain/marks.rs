//! Log signatures that several node families share: short tokens, matched without regard to case or colour,
//! never whole lines. They are written in the nodes' own sources or were seen in their output.

use crate::timeline::{LogMark, LogMeaning, Mode};

/// Tokens that all occur in a line, and the class of trouble that it tells of.
const TROUBLES: &[(&[&str], &str)] = &[
    (&["is higher than core"], "app-ahead"),
    (&["too far below block store base"], "app-too-old"),
    (&["StateBlockHeight (", "> StoreBlockHeight"], "state-ahead"),
    (&["StoreBlockHeight (", "> StateBlockHeight + 1"], "store-ahead"),
    (&["ould not find results for height"], "results-lost"),
    (&["does not match AppHash after replay"], "app-hash-at-replay"),
    (&["wrong Block.Header.AppHash"], "header-app-hash"),
    (&["CONSENSUS FAILURE"], "consensus-failure"),
    (&["data has been corrupted in last height"], "wal-corrupt"),
    (&["Encountered corrupt WAL"], "wal-corrupt"),
    (&["attempting repair"], "wal-repair"),
    (&["WAL does not contain #ENDHEIGHT"], "wal-no-end-height"),
    (&["Error reading PrivValidator state"], "sign-state-unreadable"),
    (&["height regression"], "sign-regression"),
    (&["round regression"], "sign-regression"),
    (&["step regression"], "sign-regression"),
    (&["onflicting data"], "sign-regression"),
    (&["onflicting vote from ourselves"], "own-double-sign"),
    (&["version does not exist"], "app-tree"),
    (&["already saved to different hash"], "app-tree"),
    (&["Value missing for key"], "app-tree"),
    (&["not sending us data fast enough"], "peer-too-slow"),
    (&["no space left on device"], "disk-full"),
    (&["address already in use"], "address-in-use"),
    (&["panic: "], "panic"),
    (&["panicked at"], "panic"),
];

/// The known troubles of every family.
pub(crate) fn troubles() -> Vec<LogMark> {
    TROUBLES.iter().map(|(tokens, class)| trouble(tokens, class)).collect()
}

/// One trouble.
pub(crate) fn trouble(tokens: &[&str], class: &str) -> LogMark {
    mark(tokens, LogMeaning::Trouble { class: class.to_owned() })
}

/// A line after which the node is in this mode.
pub(crate) fn mode(tokens: &[&str], mode: Mode) -> LogMark {
    mark(tokens, LogMeaning::Mode(mode))
}

/// A line with the three heights, under the names that all families use.
pub(crate) fn handshake(tokens: &[&str]) -> LogMark {
    mark(
        tokens,
        LogMeaning::Handshake {
            app: "appHeight".to_owned(),
            state: "stateHeight".to_owned(),
            store: "storeHeight".to_owned(),
        },
    )
}

/// Any mark.
pub(crate) fn mark(tokens: &[&str], meaning: LogMeaning) -> LogMark {
    LogMark { tokens: tokens.iter().map(|&t| t.to_owned()).collect(), meaning }
}

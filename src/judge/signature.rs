//! Log signatures: short tokens, matched without regard to case or colour, never whole lines.
//!
//! The tokens are from the nodes' own format strings or from their issue threads (CometBFT 0.34 to 1.x, tm2, Tenderdash,
//! Cosmos SDK). What none of them matches is class `other` and kept whole.

use crate::timeline::line;

/// How much a signature means by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Weight {
    /// Seen on nodes that recover; worth a note, a cause only for a node that does not.
    Harmless,
    /// Explains why a node is down or stands still.
    Cause,
    /// The node's own app disagrees with the chain: a divergence inside the node.
    Diverged,
    /// Two votes of one validator.
    DoubleSign,
    /// The machine failed, not the node.
    Machine,
}

/// One known signature.
#[derive(Debug)]
pub(crate) struct Signature {
    /// Short name.
    pub(crate) class: &'static str,
    /// Lower-case tokens that all occur.
    tokens: &'static [&'static str],
    pub(crate) weight: Weight,
    /// What it means, and what to look at.
    pub(crate) hint: &'static str,
}

const fn sig(class: &'static str, tokens: &'static [&'static str], weight: Weight, hint: &'static str) -> Signature {
    Signature { class, tokens, weight, hint }
}

use Weight::{Cause, Diverged, DoubleSign, Harmless, Machine};

/// In the order in which they are tried: the particular before the general.
static SIGNATURES: &[Signature] = &[
    sig(
        "app-ahead",
        &["is higher than core"],
        Cause,
        "the application is ahead of the block store: restore both from one moment",
    ),
    sig("app-too-old", &["too far below block store base"], Cause, "the blocks that the application needs are pruned"),
    sig(
        "state-ahead",
        &["stateblockheight (", "> storeblockheight"],
        Cause,
        "the state store is ahead of the block store",
    ),
    sig(
        "store-ahead",
        &["storeblockheight (", "> stateblockheight + 1"],
        Cause,
        "the block store is ahead by more than one",
    ),
    sig(
        "results-lost",
        &["ould not find results for height"],
        Cause,
        "the block's results were not durable before the application's commit",
    ),
    sig(
        "app-hash-at-replay",
        &["does not match apphash after replay"],
        Diverged,
        "replay gave another app hash: compare the application's stores at that height",
    ),
    sig(
        "header-app-hash",
        &["wrong block.header.apphash"],
        Diverged,
        "this node's application is at another state than the chain: compare the height before",
    ),
    sig(
        "header-app-hash",
        &["accept block", "wrong app_hash"],
        Diverged,
        "this node's application is at another state than the chain: compare the height before",
    ),
    sig(
        "app-hash-at-replay",
        &["application hash at height", "the state says"],
        Diverged,
        "the application is not at the state that its node knows: compare the application's stores at that height",
    ),
    sig(
        "app-hash-at-replay",
        &["application hash at height", "its results say"],
        Diverged,
        "the application is not at the state that its node knows: compare the application's stores at that height",
    ),
    sig(
        "own-double-sign",
        &["onflicting vote from ourselves"],
        DoubleSign,
        "compare the sign state before and after the restart",
    ),
    sig(
        "consensus-failure",
        &["consensus failure"],
        Cause,
        "the consensus routine stopped while the process lives on: read the reason in the line",
    ),
    sig("wal-search", &["should not happen"], Cause, "searching the write-ahead log failed"),
    sig(
        "wal-repair",
        &["attempting repair"],
        Harmless,
        "the tail of the write-ahead log was lost and repaired: check the sign state and votes",
    ),
    sig(
        "wal-repair",
        &["wal repaired"],
        Harmless,
        "the tail of the write-ahead log was lost and repaired: check the sign state and votes",
    ),
    sig(
        "wal-corrupt",
        &["data has been corrupted in last height"],
        Cause,
        "the node wants its write-ahead log repaired by hand: never delete it to get a green run",
    ),
    sig("wal-corrupt", &["encountered corrupt wal"], Cause, "the write-ahead log is damaged"),
    sig("wal-corrupt", &["wal", "data corrupted"], Cause, "the write-ahead log is damaged"),
    sig(
        "wal-no-end-height",
        &["wal does not contain #endheight"],
        Harmless,
        "the end-height mark was not yet written at the kill",
    ),
    sig("wal-no-end-height", &["#endheight for"], Harmless, "the end-height mark was not yet written at the kill"),
    sig(
        "replay-differs",
        &["already saved to different hash"],
        Cause,
        "replaying the block gave another tree: the application is not deterministic over a restart",
    ),
    sig(
        "iavl-version",
        &["version does not exist"],
        Cause,
        "one more start on the same data may tell; a rollback by the node's own tool may cure it, none is run unasked",
    ),
    sig("app-tree-gone", &["only found up to 0"], Cause, "the application's tree was never flushed, or is gone"),
    sig(
        "app-behind-commit-info",
        &["only found up to"],
        Cause,
        "writes of the application's last commit are lost: its tree is behind its own commit info",
    ),
    sig("pruned-node-referenced", &["value missing for key"], Cause, "a pruned tree node is still referenced"),
    sig("db-manifest", &["manifest", "corrupt"], Cause, "the database's manifest is damaged"),
    sig(
        "sign-state-unreadable",
        &["error reading privvalidator state"],
        Cause,
        "the sign state is unreadable: refusing is right, never make a fresh one",
    ),
    sig(
        "sign-state-unreadable",
        &["sign state", "unexpected end"],
        Cause,
        "the sign state is unreadable: refusing is right, never make a fresh one",
    ),
    sig(
        "sign-state-unreadable",
        &["priv_validator_state", "unexpected end"],
        Cause,
        "the sign state is unreadable: refusing is right, never make a fresh one",
    ),
    sig(
        "sign-regression",
        &["height regression"],
        Harmless,
        "the sign state refused to sign below what it signed; after a replay of the log this is usual",
    ),
    sig(
        "sign-regression",
        &["round regression"],
        Harmless,
        "the sign state refused to sign below what it signed; after a replay of the log this is usual",
    ),
    sig(
        "sign-regression",
        &["step regression"],
        Harmless,
        "the sign state refused to sign below what it signed; after a replay of the log this is usual",
    ),
    sig(
        "sign-regression",
        &["onflicting data"],
        Harmless,
        "the sign state refused to sign other data at the same step",
    ),
    sig("peer-too-slow", &["not sending us data fast enough"], Harmless, "a peer was dropped during block sync"),
    sig("disk-full", &["no space left on device"], Machine, "free space on the machine and run again"),
    sig("disk-full", &["the disk is full"], Machine, "free space on the machine and run again"),
    sig("out-of-memory", &["out of memory"], Machine, "give the machine more memory, or the run fewer nodes"),
    sig("out-of-memory", &["cannot allocate memory"], Machine, "give the machine more memory, or the run fewer nodes"),
    sig("address-in-use", &["address already in use"], Machine, "another process holds the port"),
    sig("lock-held", &["resource temporarily unavailable"], Cause, "the old process still holds the database's lock"),
];

/// Class of a process that ended for reasons that no signature names.
pub(crate) const OTHER: &str = "other";

/// The signature that a line matches.
pub(crate) fn find(text: &str) -> Option<&'static Signature> {
    let text = line::plain(text).to_lowercase();
    SIGNATURES.iter().find(|s| {
        let last_is_number = s.class == "app-tree-gone";
        s.tokens.iter().all(|token| {
            text.match_indices(token)
                .any(|(at, _)| !last_is_number || !text[at + token.len()..].starts_with(|c: char| c.is_ascii_digit()))
        })
    })
}

/// The class of a line, where one is known.
pub(crate) fn classify(text: &str) -> Option<&'static str> {
    find(text).map(|s| s.class)
}

/// What is known about a class.
pub(crate) fn by_class(class: &str) -> Option<&'static Signature> {
    SIGNATURES.iter().find(|s| s.class == class)
}

/// Whether a line looks like the last words of a process.
pub(crate) fn is_last_words(text: &str) -> bool {
    let text = text.to_lowercase();
    ["panic:", "panicked at", "fatal error:", "error:"].iter().any(|token| text.contains(token))
}

/// The line of some output that says best why a process ended, with its class: the last one with a signature that
/// matters, else the last one that reads like last words.
pub(crate) fn last_words(lines: &[String]) -> Option<(String, &'static str)> {
    let known = lines.iter().rev().find_map(|text| {
        let found = find(text)?;
        (found.weight != Harmless).then(|| (line::plain(text), found.class))
    });
    known.or_else(|| lines.iter().rev().find(|text| is_last_words(text)).map(|text| (line::plain(text), OTHER)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn classes_of_panics_are_told_apart() {
        for (line, class) in [
            ("panic: wal search: should not happen", "wal-search"),
            ("panic: tree commit: version does not exist", "iavl-version"),
            ("panic: tree 640 already saved to different hash AB12.. (have CD34..)", "replay-differs"),
            ("error: load: wanted target 640, only found up to 639", "app-behind-commit-info"),
            ("error: load: wanted target 640, only found up to 0", "app-tree-gone"),
            ("error: load: wanted target 640, only found up to 05", "app-behind-commit-info"),
            ("panic: open db: manifest corrupted", "db-manifest"),
            ("panic: Value missing for key 00..40", "pruned-node-referenced"),
            ("error: read sign state: unexpected end of JSON", "sign-state-unreadable"),
            ("\u{1b}[31mERR\u{1b}[0m CONSENSUS \u{1b}[1mFAILURE\u{1b}[0m!!!", "consensus-failure"),
            ("StoreBlockHeight (140) > StateBlockHeight + 1 (1)", "store-ahead"),
            ("StateBlockHeight (104) > StoreBlockHeight (101)", "state-ahead"),
            ("ERR could not find results for height #7", "results-lost"),
        ] {
            assert_eq!(classify(line), Some(class), "{line}");
        }
        assert_eq!(classify("panic: index out of range"), None);
    }

    #[test]
    fn the_line_that_says_why_is_found_among_others() {
        let lines = ["panic: tree commit: version does not exist", "goroutine 1 [running]:", "ERR step regression"];
        let lines: Vec<String> = lines.iter().map(|&l| l.to_owned()).collect();
        assert_eq!(last_words(&lines), Some((lines[0].clone(), "iavl-version")));
        let lines = vec!["panic: boom".to_owned(), "main.go:7".to_owned()];
        assert_eq!(last_words(&lines), Some((lines[0].clone(), OTHER)));
        assert_eq!(last_words(&["bye".to_owned()]), None);
    }
}

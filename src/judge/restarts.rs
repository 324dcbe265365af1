//! What each start should have done, from the heights in its handshake line, whether it did; and what the output says
//! by itself.

use super::model::{Handshake, Life, Model, Node};
use super::signature::{self, Weight};
use super::triage::{Does, Row, Triple};
use super::{Finding, Note, Verdict};
use crate::timeline::{ExitCause, Heights, line};

/// What handshakes and log lines say.
pub(crate) fn check(model: &Model) -> (Vec<Finding>, Vec<Note>) {
    let (mut findings, mut notes) = (Vec::new(), Vec::new());
    for node in &model.nodes {
        findings.extend(told_by_log(node));
        for (start, life) in &node.lives {
            if let Some(handshake) = life.handshake.as_ref().filter(|_| *start > 1 || !model.complete) {
                let (note, finding) = restarted(model, node, *start, life, handshake);
                notes.extend(note);
                findings.extend(finding);
            }
        }
        notes.extend(troubles(node));
        let hole = |(hole, detail, _): &(String, String, u64)| {
            Note::about("coverage", &node.name, format!("{hole}: {detail}"))
        };
        notes.extend(node.holes.iter().map(hole));
    }
    (findings, notes)
}

fn row(model: &Model, handshake: &Handshake) -> Option<Row> {
    let triple = Triple::from_heights(handshake.heights, model.initial_height)?;
    Some(Triple { base: handshake.base, app_hash_empty: handshake.app_hash_empty, ..triple }.row())
}

/// Names the row for a message.
pub(crate) fn row_words(model: &Model, heights: Heights) -> String {
    let row = Triple::from_heights(heights, model.initial_height).map(|t| t.row());
    row.map_or_else(String::new, |row| format!(" is row {} of the restart table: {}", row.number, row.words))
}

/// The row of the decision table for one start, and whether the node did what it says.
fn restarted(
    model: &Model,
    node: &Node,
    start: u32,
    life: &Life,
    handshake: &Handshake,
) -> (Option<Note>, Option<Finding>) {
    let Some(row) = row(model, handshake) else { return (None, None) };
    let ended = life.exit.as_ref().is_some_and(|e| e.cause == ExitCause::Own);
    let unseen = !model.complete && node.samples.is_empty() && life.exit.is_none();
    let did = match (row.does, ended) {
        _ if unseen => "",
        (Does::Refuses("store-ahead"), false) if node.defers() => {
            return (Some(rewound(node, start, handshake)), None);
        }
        (Does::Refuses(_), false) => ", and yet it went on: a departure from the table",
        (Does::Refuses(_), true) => ", and it did not start",
        (_, true) => ", and yet it ended: a departure from the table",
        (_, false) => ", and it did",
    };
    let words = format!("start {start}: app/state/store {}, row {}: {}{did}", handshake.heights, row.number, row.words);
    let kind = if row.does == Does::Passes { "restart-warning" } else { "restart" };
    let note = Note::about(kind, &node.name, words.clone()).height(handshake.heights.store);
    let finding = match row.does {
        Does::Refuses(class) if unseen => Some(
            Finding::new(
                Verdict::PanicOnRestart,
                format!("row {} of the restart table: {}", row.number, words_of(handshake, &row)),
            )
            .node(&node.name)
            .height(handshake.heights.store)
            .class(class)
            .why("from these heights no node of this family can start")
            .next(signature::by_class(class).map_or("compare the stores' heights", |s| s.hint))
            .evidence([handshake.seq]),
        ),
        _ => None,
    };
    (Some(note), finding)
}

/// A node that defers its flushes lowers its block store to the block after the state's, and goes on from there.
fn rewound(node: &Node, start: u32, handshake: &Handshake) -> Note {
    let words = format!(
        "start {start}: app/state/store {}, in the middle of a flush: rewound its block store and went on, where a node \
         that does not defer its flushes could not start (row 6)",
        handshake.heights
    );
    Note::about("restart", &node.name, words).height(handshake.heights.store)
}

fn words_of(handshake: &Handshake, row: &Row) -> String {
    format!("{} (app/state/store {})", row.words, handshake.heights)
}

/// Log lines that are findings by themselves, whether or not the node lives on.
fn told_by_log(node: &Node) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for life in node.lives.values() {
        let tail = life.exit.iter().flat_map(|e| e.tail.iter().map(|line| (line, e.seq)));
        for (text, seq) in life.troubles.iter().map(|t| (&t.line, t.seq)).chain(tail) {
            let Some(found) = signature::find(text) else { continue };
            let (verdict, why) = match found.weight {
                Weight::Diverged => {
                    (Verdict::Diverged, "the node itself says that its application is at another state than the chain")
                }
                Weight::DoubleSign => {
                    (Verdict::DoubleSign, "the node itself met a vote of its own key that contradicts another")
                }
                _ => continue,
            };
            if findings.iter().any(|f| f.verdict == verdict) {
                continue;
            }
            let text = line::plain(text);
            findings.push(
                Finding::new(verdict, format!("its log says ({}): {text}", found.class))
                    .node(&node.name)
                    .height(height_in(&text).or(node.samples.last().map(|s| s.height)))
                    .why(why)
                    .next(found.hint)
                    .class(found.class)
                    .evidence([seq]),
            );
        }
    }
    findings
}

/// The height that a line names, as a field or in words.
fn height_in(text: &str) -> Option<u64> {
    let in_words = |word: &str| {
        let rest = text.split_once(word)?.1;
        rest[..rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len())].parse().ok()
    };
    line::number(text, "height").or_else(|| in_words("at height ")).or_else(|| in_words("accept block "))
}

/// Troubles of a node: a warning each class, since any of them may be harmless on a node that goes on.
fn troubles(node: &Node) -> Vec<Note> {
    let mut seen: Vec<&str> = Vec::new();
    let mut notes = Vec::new();
    for trouble in node.lives.values().flat_map(|life| &life.troubles) {
        if seen.contains(&trouble.class.as_str()) {
            continue;
        }
        seen.push(&trouble.class);
        let hint = signature::by_class(&trouble.class).map(|s| format!("; {}", s.hint)).unwrap_or_default();
        notes.push(Note::about("trouble", &node.name, format!("{}: {}{hint}", trouble.class, trouble.line)));
    }
    notes
}

//! Ends of processes, told apart: our kill, a clean or unclean stop, out of memory, an own exit, a panic; and what the
//! handshake of each start said should happen.

use super::judgement::exit_words;
use super::model::{Ended, Life, Model, Node};
use super::signature::{self, Weight};
use super::triage::{Does, Triple};
use super::{Finding, Note, Verdict};
use crate::timeline::{Exit, ExitCause, Heights, line};

/// What ends and starts of processes say.
pub(crate) fn check(model: &Model) -> (Vec<Finding>, Vec<Note>) {
    let (mut findings, mut notes) = (Vec::new(), Vec::new());
    for node in &model.nodes {
        findings.extend(own_ends(model, node));
        findings.extend(told_by_log(node));
        notes.extend(restarts(model, node));
        notes.extend(asked_ends(node));
        notes.extend(harmless_troubles(node));
        let hole = |(hole, detail, _): &(String, String, u64)| {
            Note::about("coverage", &node.name, format!("{hole}: {detail}"))
        };
        notes.extend(node.holes.iter().map(hole));
    }
    (findings, notes)
}

/// Rows of starts that the node ended by itself, each row one episode.
fn own_ends(model: &Model, node: &Node) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut episode: Vec<(u32, &Life)> = Vec::new();
    for (start, life) in &node.lives {
        let own = life.exit.as_ref().filter(|e| e.cause == ExitCause::Own);
        if own.is_some_and(|ended| !at_halt_height(model, node, ended)) {
            episode.push((*start, life));
        } else if !episode.is_empty() {
            findings.push(came_back_late(node, &episode, *start));
            episode.clear();
        }
    }
    if !episode.is_empty() {
        findings.push(stays_down(model, node, &episode));
    }
    findings
}

/// A node may end by itself, with code 0, once it is at the halt height.
fn at_halt_height(model: &Model, node: &Node, ended: &Ended) -> bool {
    let height = node.samples.iter().map(|s| s.height).max();
    let stored = node.last_heights();
    let reached = height.max(stored.store).max(stored.state);
    ended.exit == Exit::Code(0) && model.expect.halt_height.is_some_and(|halt| reached >= Some(halt))
}

/// Why a process ended: the class, and the line that says so.
fn reason(life: &Life, ended: &Ended) -> (String, Option<String>) {
    if ended.out_of_memory {
        return ("out-of-memory".to_owned(), None);
    }
    let trouble = life
        .troubles
        .iter()
        .rev()
        .find(|t| signature::by_class(&t.class).is_some_and(|s| s.weight != Weight::Harmless));
    if let Some((line, class)) = signature::last_words(&ended.tail).filter(|(_, class)| *class != signature::OTHER) {
        return (class.to_owned(), Some(line));
    }
    if let Some(trouble) = trouble {
        return (trouble.class.clone(), Some(trouble.line.clone()));
    }
    let words = signature::last_words(&ended.tail).map(|(line, _)| line);
    let class = match ended.exit {
        Exit::Signal(9) | Exit::Code(137) => "killed-by-other",
        Exit::Code(0) => "own-exit-0",
        Exit::Signal(6 | 11 | 7 | 4) | Exit::Code(134 | 139) => "crash-signal",
        _ => signature::OTHER,
    };
    (class.to_owned(), words)
}

fn stays_down(model: &Model, node: &Node, episode: &[(u32, &Life)]) -> Finding {
    let (start, life) = episode[episode.len() - 1];
    let Some(ended) = &life.exit else {
        return Finding::new(Verdict::Inconclusive, "a process ended unseen").node(&node.name);
    };
    let (class, line) = reason(life, ended);
    let mut detail = format!("ended by itself with {}", exit_words(ended.exit));
    if episode.len() > 1 {
        detail.push_str(&format!(" in each of {} starts", episode.len()));
    } else {
        detail.push_str(&format!(" in start {start}"));
    }
    detail.push_str(&format!(", class {class}"));
    if let Some(line) = &line {
        detail.push_str(&format!(": {line}"));
    } else if class == signature::OTHER && !ended.tail.is_empty() {
        detail.push_str(&format!("; its last {} lines: {}", ended.tail.len(), ended.tail.join(" ⏎ ")));
    }
    let heights = life.handshake.as_ref().map(|h| h.heights).or(life.stored.map(|(h, _)| h));
    if let Some(heights) = heights {
        detail.push_str(&format!("; app/state/store {heights}{}", row_words(model, heights)));
    }
    let evidence = episode.iter().filter_map(|(_, l)| l.exit.as_ref()).map(|e| e.seq);
    let evidence = evidence.chain(life.handshake.as_ref().map(|h| h.seq)).chain(life.troubles.iter().map(|t| t.seq));
    let finding = panic_finding(&class, detail).node(&node.name).evidence(evidence.collect::<Vec<_>>());
    let height = heights.and_then(|h| h.store).or(node.samples.last().map(|s| s.height));
    finding.height(height)
}

/// A node that is down, with what its class tells; the machine's own failures are not the node's.
fn panic_finding(class: &str, detail: String) -> Finding {
    let hint = signature::by_class(class).map_or("read the last lines of its log", |s| s.hint);
    let machine = signature::by_class(class).is_some_and(|s| s.weight == Weight::Machine);
    let why = match class {
        "out-of-memory" => "the kernel ended it for lack of memory",
        "killed-by-other" => {
            "it was killed by somebody else than midflush: the kernel for lack of memory, or an operator"
        }
        "own-exit-0" => "it left in order although nobody asked it to",
        _ if machine => "the machine failed, not the node",
        _ => "the process ended although nobody asked it to, and it did not come back",
    };
    let verdict = if machine && class != "out-of-memory" { Verdict::ToolError } else { Verdict::PanicOnRestart };
    Finding::new(verdict, detail).why(why).next(hint).class(class)
}

fn came_back_late(node: &Node, episode: &[(u32, &Life)], back: u32) -> Finding {
    let first = episode[0].0;
    let reasons: Vec<String> =
        episode.iter().filter_map(|(_, life)| Some(reason(life, life.exit.as_ref()?).0)).collect();
    let starts = u64::from(back - first) + 1;
    let detail = format!(
        "needed {starts} starts: start {first} to {} ended by themselves ({}), start {back} came up",
        back - 1,
        reasons.join(", ")
    );
    Finding::new(Verdict::ConvergedSlow, detail)
        .node(&node.name)
        .why("one start after a fault has to be enough")
        .next("read the log of the first start that failed")
        .evidence(episode.iter().filter_map(|(_, l)| l.exit.as_ref()).map(|e| e.seq))
}

/// Log lines that are findings by themselves, whether or not the node lives on.
fn told_by_log(node: &Node) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for life in node.lives.values() {
        let tail = life.exit.iter().flat_map(|e| e.tail.iter().map(|line| (line.clone(), e.seq)));
        let lines = life.troubles.iter().map(|t| (t.line.clone(), t.seq)).chain(tail);
        for (line, seq) in lines {
            let Some(found) = signature::find(&line) else { continue };
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
            let height = line::number(&line, "height");
            findings.push(
                Finding::new(verdict, format!("its log says ({}): {line}", found.class))
                    .node(&node.name)
                    .height(height.or(node.samples.last().map(|s| s.height)))
                    .why(why)
                    .next(found.hint)
                    .class(found.class)
                    .evidence([seq]),
            );
        }
    }
    findings
}

/// The row of the decision table for each restart, and whether the node did what it says.
fn restarts(model: &Model, node: &Node) -> Vec<Note> {
    let mut notes = Vec::new();
    for (start, life) in node.lives.iter().filter(|(start, _)| **start > 1) {
        let Some(handshake) = &life.handshake else { continue };
        let Some(row) = Triple::from_heights(handshake.heights, model.initial_height).map(|t| t.row()) else {
            continue;
        };
        let ended_itself = life.exit.as_ref().is_some_and(|e| e.cause == ExitCause::Own);
        let did = match (row.does, ended_itself) {
            (Does::Refuses(_), false) if node.defers() => {
                ", and rewound its block store instead, as a node that defers its flushes may"
            }
            (Does::Refuses(_), false) => ", and yet it went on: a departure from the table",
            (Does::Refuses(_), true) => ", and it did not start",
            (_, true) => ", and yet it ended: a departure from the table",
            (_, false) => ", and it did",
        };
        let words =
            format!("start {start}: app/state/store {}, row {}: {}{did}", handshake.heights, row.number, row.words);
        notes.push(Note::about("restart", &node.name, words).height(handshake.heights.store));
    }
    notes
}

fn row_words(model: &Model, heights: Heights) -> String {
    let row = Triple::from_heights(heights, model.initial_height).map(|t| t.row());
    row.map_or_else(String::new, |row| format!(" is row {} of the restart table: {}", row.number, row.words))
}

/// Stops that were asked for and did not go cleanly.
fn asked_ends(node: &Node) -> Vec<Note> {
    let mut notes = Vec::new();
    for (start, life) in &node.lives {
        let Some(ended) = &life.exit else { continue };
        let clean = matches!(ended.exit, Exit::Code(0) | Exit::Signal(9 | 15));
        if ended.cause != ExitCause::Own && !clean {
            let words = format!("start {start} was asked to end and did so with {}", exit_words(ended.exit));
            notes.push(Note::about("unclean-stop", &node.name, words));
        }
    }
    notes
}

/// Troubles of a node that went on: a warning each class.
fn harmless_troubles(node: &Node) -> Vec<Note> {
    let mut seen: Vec<&str> = Vec::new();
    let mut notes = Vec::new();
    for trouble in node.lives.values().flat_map(|life| &life.troubles) {
        if seen.contains(&trouble.class.as_str()) {
            continue;
        }
        seen.push(&trouble.class);
        let hint = signature::by_class(&trouble.class).map_or("", |s| s.hint);
        let words = format!("{}: {}; {hint}", trouble.class, trouble.line);
        notes.push(Note::about("trouble", &node.name, words.trim_end_matches("; ")));
    }
    notes
}

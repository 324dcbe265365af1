//! Ends of processes, told apart: our kill, a clean or unclean stop, out of memory, an own exit, a panic. Starts are
//! counted: a node that comes back only with the third is a finding.

use super::judgement::exit_words;
use super::model::{Ended, Life, Model, Node};
use super::restarts::row_words;
use super::signature::{self, Weight};
use super::{Consequence, Finding, Note, Verdict};
use crate::timeline::{Exit, ExitCause};

/// What ends of processes say.
pub(crate) fn check(model: &Model) -> (Vec<Finding>, Vec<Note>) {
    let (mut findings, mut notes) = (Vec::new(), Vec::new());
    for node in &model.nodes {
        let (found, noted) = own_ends(model, node);
        findings.extend(found);
        notes.extend(noted);
        notes.extend(asked_ends(model, node));
    }
    (findings, notes)
}

/// Rows of starts that the node ended by itself, each row one episode.
fn own_ends(model: &Model, node: &Node) -> (Vec<Finding>, Vec<Note>) {
    let (mut findings, mut notes) = (Vec::new(), Vec::new());
    let mut episode: Vec<(u32, &Life, &Ended)> = Vec::new();
    for (start, life) in &node.lives {
        match life.exit.as_ref().filter(|e| e.cause == ExitCause::Own) {
            Some(ended) if !at_halt_height(model, node, ended) => episode.push((*start, life, ended)),
            _ if episode.is_empty() || !came_up(model, node, life) => {}
            _ => {
                came_back(node, &episode, *start, &mut findings, &mut notes);
                episode.clear();
            }
        }
    }
    if !episode.is_empty() {
        findings.push(stays_down(model, node, &episode));
    }
    (findings, notes)
}

/// Whether a start of a node was seen to answer: one that merely began has not come back.
fn came_up(model: &Model, node: &Node, life: &Life) -> bool {
    let Some((from, _)) = life.started.filter(|_| model.complete) else { return true };
    let to = life.exit.as_ref().map_or(u64::MAX, |e| e.at_us);
    node.samples.iter().any(|s| s.at_us >= from && s.at_us <= to)
}

/// A node may end by itself, with code 0, once it is at the halt height.
fn at_halt_height(model: &Model, node: &Node, ended: &Ended) -> bool {
    let height = node.samples.iter().map(|s| s.height).max();
    let stored = node.last_heights();
    let reached = height.max(stored.store).max(stored.state);
    ended.exit == Some(Exit::Code(0)) && model.expect.halt_height.is_some_and(|halt| reached >= Some(halt))
}

/// Why a process ended: the class, and the line that says so.
fn reason(life: &Life, ended: &Ended) -> (String, Option<String>) {
    if ended.out_of_memory {
        return ("out-of-memory".to_owned(), None);
    }
    let last = signature::last_words(&ended.tail);
    if let Some((line, class)) = last.clone().filter(|(_, class)| *class != signature::OTHER) {
        return (class.to_owned(), Some(line));
    }
    let matters = |class: &str| signature::by_class(class).is_some_and(|s| s.weight != Weight::Harmless);
    if let Some(trouble) = life.troubles.iter().rev().find(|t| matters(&t.class)) {
        return (trouble.class.clone(), Some(trouble.line.clone()));
    }
    let class = match ended.exit {
        Some(Exit::Signal(9) | Exit::Code(137)) => "killed-by-other",
        Some(Exit::Signal(15) | Exit::Code(143)) => "stopped-by-other",
        Some(Exit::Code(0)) => "own-exit-0",
        Some(Exit::Signal(_) | Exit::Code(132 | 134 | 135 | 139)) => "crash-signal",
        _ => signature::OTHER,
    };
    (class.to_owned(), last.map(|(line, _)| line))
}

/// The machine's own failures are not the node's; a limited volume that fills up is.
fn is_machines(node: &Node, class: &str) -> bool {
    let machine = signature::by_class(class).is_some_and(|s| s.weight == Weight::Machine);
    machine && class != "out-of-memory" && !(node.limited_volume && class == "disk-full")
}

fn end_words(ended: &Ended) -> String {
    ended.exit.map_or_else(
        || "ended by itself, exit unknown".to_owned(),
        |e| format!("ended by itself with {}", exit_words(e)),
    )
}

fn stays_down(model: &Model, node: &Node, episode: &[(u32, &Life, &Ended)]) -> Finding {
    let (start, life, ended) = episode[episode.len() - 1];
    let (class, line) = reason(life, ended);
    let evidence: Vec<u64> = episode
        .iter()
        .map(|(_, _, ended)| ended.seq)
        .chain(life.handshake.as_ref().map(|h| h.seq))
        .chain(life.troubles.iter().map(|t| t.seq))
        .collect();
    if is_machines(node, &class) {
        return machine_failed(node, ended, &class, line.as_deref()).evidence(evidence);
    }
    let starts = match episode.len() {
        1 => format!(" in start {start}"),
        n => format!(" in each of {n} starts"),
    };
    let said = line.map(|line| format!(": {line}")).unwrap_or_default();
    let heights = life.handshake.as_ref().map(|h| h.heights).or(life.stored.map(|(h, _)| h));
    let triple = heights.map(|h| format!("; app/state/store {h}{}", row_words(model, h))).unwrap_or_default();
    let detail = format!("{}{starts}, class {class}{said}{triple}", end_words(ended));
    let hint = signature::by_class(&class).map_or("read the last lines of its log", |s| s.hint);
    let mut finding = Finding::new(Verdict::PanicOnRestart, detail).node(&node.name).why(why(&class)).next(hint);
    if class == signature::OTHER || class == "crash-signal" {
        finding.last_lines.clone_from(&ended.tail);
    }
    if class == "replay-differs" {
        finding.consequences.push(Consequence {
            verdict: Verdict::Diverged,
            node: Some(node.name.clone()),
            height: heights.and_then(|h| h.store),
            detail: "inside the node: its own replay gives another tree than before".to_owned(),
            evidence: Vec::new(),
        });
    }
    let height = heights.and_then(|h| h.store).or(node.samples.last().map(|s| s.height));
    finding.class(class).height(height).evidence(evidence)
}

fn why(class: &str) -> &'static str {
    match class {
        "out-of-memory" => "the kernel ended it for lack of memory",
        "killed-by-other" => {
            "it was killed by somebody else than midflush: the kernel for lack of memory, or an operator"
        }
        "stopped-by-other" => "somebody else than midflush stopped it",
        "own-exit-0" => "it left in order although nobody asked it to",
        _ => "the process ended although nobody asked it to, and it did not come back",
    }
}

/// The disk is full or a port is taken: the run says nothing about the node.
fn machine_failed(node: &Node, ended: &Ended, class: &str, line: Option<&str>) -> Finding {
    let what = if class == "disk-full" { "disk" } else { class };
    let said = line.map(|line| format!(": {line}")).unwrap_or_default();
    Finding::new(Verdict::ToolError, format!("{what}{said} ({} {})", node.name, end_words(ended)))
        .why("the machine failed, not the node")
        .next(signature::by_class(class).map_or("mend the machine", |s| s.hint))
        .class(class)
}

fn came_back(
    node: &Node,
    episode: &[(u32, &Life, &Ended)],
    back: u32,
    findings: &mut Vec<Finding>,
    notes: &mut Vec<Note>,
) {
    let first = episode[0].0;
    let reasons: Vec<String> = episode.iter().map(|(_, life, ended)| reason(life, ended).0).collect();
    if node.limited_volume && reasons.iter().all(|r| r == "disk-full") {
        notes.push(Note::about("restart", &node.name, "its own limited volume was full; it came back afterwards"));
        return;
    }
    if reasons.iter().all(|class| is_machines(node, class)) {
        let words =
            format!("the machine failed it ({}), not the node itself; it came back afterwards", reasons.join(", "));
        notes.push(Note::about("restart", &node.name, words));
        return;
    }
    let starts = back - first + 1;
    let detail = format!(
        "needed {starts} starts: start {first} to {} ended by themselves ({}), start {back} came up",
        back - 1,
        reasons.join(", ")
    );
    findings.push(
        Finding::new(Verdict::ConvergedSlow, detail)
            .node(&node.name)
            .why("one start after a fault has to be enough")
            .next("read the log of the first start that failed")
            .evidence(episode.iter().map(|(_, _, ended)| ended.seq)),
    );
}

/// Stops that were asked for and did not go cleanly.
fn asked_ends(model: &Model, node: &Node) -> Vec<Note> {
    let mut notes = Vec::new();
    for (start, life) in &node.lives {
        let Some((ended, exit)) = life.exit.as_ref().and_then(|e| Some((e, e.exit?))) else { continue };
        let clean = matches!(exit, Exit::Code(0 | 143) | Exit::Signal(9 | 15));
        let killed_by_us = matches!(exit, Exit::Code(137)) && matches!(ended.cause, ExitCause::Fault(_));
        if ended.cause != ExitCause::Own && !clean && !killed_by_us && !model.failed_a_call(&ended.cause) {
            let words = format!("start {start} was asked to end and did so with {}", exit_words(exit));
            notes.push(Note::about("unclean-stop", &node.name, words));
        }
    }
    notes
}

//! Output, starts and ends of processes, and shards.

use super::build::Clock;
use super::file::{By, ExitFacts, File};
use super::value::Look;
use crate::judge::judgement::exit_words;
use crate::judge::model::{Ended, Ends, Handshake, Life, Model, Node, ToldFault, Trouble, Us};
use crate::judge::signature::{self, Weight};
use crate::judge::{Finding, Note, Said, Verdict, series};
use crate::timeline::{Exit, ExitCause, FaultId, Heights, line};

/// Most lines of output that are kept with an end.
const TAIL_MAX: usize = 50;

/// Brings a file's processes into a model.
pub(super) fn add(file: &File, model: &mut Model) {
    let clock = Clock::of(file);
    for index in 0..model.nodes.len() {
        let name = model.nodes[index].name.clone();
        let mut ends: Vec<(Us, &ExitFacts)> =
            file.exits.iter().filter(|e| e.node == name).map(|e| (at(e, clock), e)).collect();
        ends.sort_by_key(|(at, _)| *at);
        let causes: Vec<By> = ends.iter().enumerate().map(|(n, _)| cause(model, index, &ends, n)).collect();
        let ends = ends.into_iter().zip(causes).map(|((at, facts), by)| (at, ended(facts, at, by))).collect();
        add_lives(file, &mut model.nodes[index], ends, clock);
        add_output(file, &mut model.nodes[index], clock);
    }
}

fn at(facts: &ExitFacts, clock: Clock) -> Us {
    facts.t.map_or(clock.end(), |t| clock.us(t))
}

/// Who wanted the n-th end of a node, in time order: as told, else a fault that was there then, else the node. A fault ends one
/// process; one that ends after it and was not signalled has ended by itself, however long the fault is said to last.
fn cause(model: &Model, node: usize, ends: &[(Us, &ExitFacts)], n: usize) -> By {
    let (at, facts) = ends[n];
    if let Some(by) = facts.by {
        return by;
    }
    let signalled = matches!(facts.signal, Some(9 | 15)) || matches!(facts.code, Some(137 | 143));
    let first = |from: Us| !ends[..n].iter().any(|(earlier, _)| *earlier >= from);
    let there = |f: &&ToldFault| f.node == Some(node) && f.from <= at && f.to.is_none_or(|to| at <= to);
    let mut faults = model.told.iter().filter(there).filter(|f| signalled || first(f.from));
    match faults.find_map(|f| f.ends) {
        Some(Ends::Killed) => By::Fault,
        Some(Ends::Asked) => By::Asked,
        None => By::Own,
    }
}

fn ended(facts: &ExitFacts, at_us: Us, by: By) -> Ended {
    let exit = facts.signal.map(Exit::Signal).or(facts.code.map(Exit::Code));
    let cause = match by {
        By::Fault => ExitCause::Fault(FaultId { name: "as told".to_owned(), occurrence: 1 }),
        By::Asked => ExitCause::Asked,
        By::Own => ExitCause::Own,
    };
    let tail: Vec<String> = facts.tail.0.iter().map(|l| l.text.clone()).collect();
    let tail = last(tail);
    Ended { at_us, exit, cause, tail, out_of_memory: facts.oom_killed, seq: 0 }
}

fn last(mut lines: Vec<String>) -> Vec<String> {
    lines.split_off(lines.len().saturating_sub(TAIL_MAX))
}

/// Starts and ends in time order; what is not told is implied: a first start, and one after an end that is followed by life.
fn add_lives(file: &File, node: &mut Node, mut ends: Vec<(Us, Ended)>, clock: Clock) {
    let mut starts: Vec<(Us, bool)> =
        file.starts.get(&node.name).into_iter().flatten().map(|s| (clock.us(s.t), s.same_data)).collect();
    starts.sort_unstable();
    ends.sort_by_key(|(at, _)| *at);
    let mut number = 0;
    let mut ends = ends.into_iter().peekable();
    let mut starts = starts.into_iter().peekable();
    while starts.peek().is_some() || ends.peek().is_some() {
        let start_first = match (starts.peek(), ends.peek()) {
            (Some((start, _)), Some((end, _))) => start <= end,
            (start, _) => start.is_some(),
        };
        let open = node.lives.get(&number).is_some_and(|life| life.exit.is_none());
        if start_first {
            number += 1;
            let started = starts.next();
            let life = Life {
                started: started.map(|(at, _)| (at, 0)),
                fresh: started.is_some_and(|(_, same)| !same),
                ..Life::default()
            };
            node.lives.insert(number, life);
        } else if let Some((_, ended)) = ends.next() {
            if !open {
                number += 1;
            }
            node.lives.entry(number).or_default().exit = Some(ended);
        }
    }
    let Some(ended) = node.lives.get(&number).and_then(|life| life.exit.as_ref()).map(|e| e.at_us) else { return };
    if let Some(sample) = node.samples.iter().find(|s| s.at_us > ended) {
        let started = Some((sample.at_us, 0));
        node.lives.insert(number + 1, Life { started, ..Life::default() });
    }
}

/// Handshakes, troubles and last words.
fn add_output(file: &File, node: &mut Node, clock: Clock) {
    let Some(lines) = file.logs.get(&node.name) else { return };
    if node.lives.is_empty() {
        node.lives.insert(1, Life::default());
    }
    for said in &lines.0 {
        let at = said.t.map(|t| clock.us(t));
        let text = line::plain(&said.text);
        let number = life_at(node, at);
        let life = node.lives.entry(number).or_default();
        if let Some(handshake) = handshake(&text) {
            life.handshake = Some(handshake);
        }
        if let Some(found) = signature::find(&text) {
            let class = found.class.to_owned();
            life.troubles.push(Trouble { at_us: at.unwrap_or(0), class, line: text, seq: 0 });
        }
    }
    last_words(lines, node, clock);
}

/// The life that a line without a time belongs to is the last one.
fn life_at(node: &Node, at: Option<Us>) -> u32 {
    let last = node.lives.keys().next_back().copied().unwrap_or(1);
    let Some(at) = at else { return last };
    let running = node.lives.iter().find(|(_, life)| life.exit.as_ref().is_none_or(|e| e.at_us >= at));
    running.map_or(last, |(number, _)| *number)
}

/// The three heights of a line in any order and shape.
fn handshake(text: &str) -> Option<Handshake> {
    let heights = Heights::new(
        line::number(text, "appHeight")?,
        line::number(text, "stateHeight")?,
        line::number(text, "storeHeight")?,
    );
    Some(Handshake::read(heights, text, 0))
}

/// A process whose output ends in a panic has ended, even where nobody wrote down how.
fn last_words(lines: &super::value::Lines, node: &mut Node, clock: Clock) {
    let texts: Vec<String> = lines.0.iter().map(|l| line::plain(&l.text)).collect();
    let number = life_at(node, None);
    let Some(life) = node.lives.get_mut(&number) else { return };
    if let Some(ended) = &mut life.exit {
        if ended.tail.is_empty() {
            ended.tail = last(texts);
        }
        return;
    }
    let fatal = |text: &&String| {
        let lower = text.trim_start().to_lowercase();
        ["panic:", "fatal error:", "error:"].iter().any(|t| lower.starts_with(t)) || lower.contains("panicked at")
    };
    let Some(said) = lines.0.iter().zip(&texts).rev().find(|(_, text)| fatal(text)) else { return };
    let at_us = said.0.t.map_or(clock.end(), |t| clock.us(t));
    if node.samples.iter().any(|s| s.at_us > at_us) {
        return;
    }
    let tail = last(texts);
    life.exit = Some(Ended { at_us, exit: None, cause: ExitCause::Own, tail, out_of_memory: false, seq: 0 });
}

/// What shards and the machine say.
pub(super) fn check(file: &File, models: &[Model], said: &mut Said) {
    for (node, shards) in &file.shards {
        for (shard, looks) in shards {
            said.findings.extend(frozen_shard(file, node, shard, looks, shards.values().filter(|l| *l != looks)));
        }
    }
    disk_full(file, said);
    let nodes = models.iter().flat_map(|m| &m.nodes);
    for (node, ended) in nodes.flat_map(|n| n.lives.values().filter_map(move |life| Some((n, life.exit.as_ref()?)))) {
        if let (ExitCause::Fault(_), Some(exit)) = (&ended.cause, ended.exit) {
            said.notes.push(Note::about("exit", &node.name, format!("our kill: ended with {}", exit_words(exit))));
        }
    }
}

/// A shard that stands still while others of its node, or the rest of the network, advance.
fn frozen_shard<'a>(
    file: &File,
    node: &str,
    shard: &str,
    looks: &[Look],
    siblings: impl Iterator<Item = &'a Vec<Look>>,
) -> Option<Finding> {
    let last = looks.last()?;
    let since = looks.iter().rev().take_while(|l| l.h == last.h).last()?;
    let height = last.h?;
    let moved = |other: &Vec<Look>| {
        let at = |t| other.iter().filter(|l| l.t <= t).filter_map(|l| l.h).max();
        at(last.t).zip(at(since.t)).is_some_and(|(now, then)| now > then)
    };
    if since.t == last.t || !siblings.into_iter().any(moved) {
        return None;
    }
    let seconds = (last.t.0 - since.t.0) / 1_000_000;
    let cause = file.logs.get(node).and_then(|lines| {
        let about = |text: &str| line::field(text, "shard").is_some_and(|s| s == shard);
        lines.0.iter().map(|l| line::plain(&l.text)).find(|t| about(t) && t.to_lowercase().contains("err"))
    });
    let cause = cause.map(|line| format!("; its log says: {line}")).unwrap_or_default();
    Some(
        Finding::new(
            Verdict::Stuck,
            format!("shard {shard} at height {height} for {seconds} s, while other shards advance{cause}"),
        )
        .node(node)
        .height(height)
        .why("one height a node hides a part of it that stands still")
        .next(format!("look at the last line of shard {shard} in its log: silence is not health")),
    )
}

/// Lines about a full disk on a machine that is full: the run says nothing about its nodes.
fn disk_full(file: &File, said: &mut Said) {
    let Some(host) = &file.host else { return };
    if host.disk_free.is_none_or(|free| free.0 > 0) {
        return;
    }
    let full =
        |text: &str| signature::find(text).is_some_and(|s| s.class == "disk-full" && s.weight == Weight::Machine);
    let nodes: Vec<&str> = file
        .logs
        .iter()
        .filter(|(_, lines)| lines.0.iter().any(|l| full(&l.text)))
        .map(|(node, _)| node.as_str())
        .collect();
    if nodes.is_empty() || said.findings.iter().any(|f| f.verdict == Verdict::ToolError) {
        return;
    }
    said.findings.push(
        Finding::new(Verdict::ToolError, format!("disk: the machine is full; {} met it", nodes.join(", ")))
            .why("the machine failed, not the nodes")
            .next("free space on the machine and run again")
            .class("disk-full"),
    );
}

/// Rates of a block-sync series, in words.
pub(super) fn rate_words(looks: &[Look]) -> Option<String> {
    let first = looks.first()?.t;
    let sample = |l: &Look| {
        Some(crate::judge::model::Sample {
            at_us: (l.t.0 - first.0).max(0).unsigned_abs(),
            height: l.h?,
            catching_up: None,
            seq: 0,
        })
    };
    let samples: Vec<_> = looks.iter().filter_map(sample).collect();
    let rates = series::rates(&samples)?;
    let stall = |(a, b): &(Us, Us)| {
        let at = |us: Us| (us as i64 + first.0) / 1_000_000;
        format!("{} s ({}→{})", (b - a) / 1_000_000, at(*a), at(*b))
    };
    let stalls: Vec<String> = rates.stalls.iter().map(stall).collect();
    let stalls = if stalls.is_empty() { "no stall".to_owned() } else { format!("stalls: {}", stalls.join(", ")) };
    Some(format!(
        "overall {:.1} blocks/s, median of the intervals that moved {:.1} blocks/s, {stalls}",
        rates.overall, rates.moving_median
    ))
}

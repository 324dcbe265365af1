//! What the topology expects, and whether the run proves anything at all.

use std::collections::BTreeMap;

use super::model::Model;
use super::signature::{self, Weight};
use super::{Finding, Note, Verdict};
use crate::timeline::Mode;

use super::liveness::mode_name;
use super::merge::{ENDED_EARLY, NOT_TOGETHER, NOTHING_COMPARED};

/// Expectations that do not hold, and reasons why the run proves nothing.
pub(crate) fn check(model: &Model) -> Vec<Finding> {
    let mut findings = syncs(model);
    findings.extend(halt_missed(model));
    findings.extend(tool_errors(model));
    findings.extend(missing(model));
    findings.extend(unproven(model));
    findings
}

/// Median syncs a block by store, for the nodes and modes that the topology names.
fn syncs(model: &Model) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (name, modes) in &model.expect.syncs_per_block {
        let nodes: Vec<&super::model::Node> =
            model.nodes.iter().filter(|n| &n.name == name || &n.group == name).collect();
        for node in nodes {
            for (mode, stores) in modes {
                findings.extend(match blocks_in(node, *mode) {
                    0 => vec![not_counted(node, *mode, stores)],
                    blocks => {
                        stores.iter().filter_map(|(s, wanted)| syncs_of(node, *mode, s, *wanted, blocks)).collect()
                    }
                });
            }
        }
    }
    findings
}

fn blocks_in(node: &super::model::Node, mode: Mode) -> u64 {
    node.tallies.iter().filter(|(_, t, _)| t.mode == Some(mode)).map(|(_, t, _)| t.blocks).sum()
}

fn not_counted(node: &super::model::Node, mode: Mode, stores: &BTreeMap<String, u64>) -> Finding {
    let wanted: Vec<String> = stores.iter().map(|(store, n)| format!("{store} {n}")).collect();
    let others = [Mode::Consensus, Mode::BlockSync, Mode::Replay].into_iter().filter(|m| *m != mode);
    let seen: Vec<String> = others
        .filter_map(|m| Some(blocks_in(node, m)).filter(|n| *n > 0).map(|n| format!("{n} in {}", mode_name(m))))
        .collect();
    let seen = if seen.is_empty() { String::new() } else { format!(" (there were {})", seen.join(", ")) };
    let detail =
        format!("syncs a block in {}: no block was counted{seen}, expected {}", mode_name(mode), wanted.join(", "));
    Finding::new(Verdict::Inconclusive, detail)
        .node(&node.name)
        .why("an expectation about something that never happened is not met")
        .next("let the node make blocks in that mode, or drop the expectation")
}

fn syncs_of(node: &super::model::Node, mode: Mode, store: &str, wanted: u64, blocks: u64) -> Option<Finding> {
    let mut counts: BTreeMap<u64, u64> = BTreeMap::new();
    let mut evidence = Vec::new();
    for (_, tally, seq) in node.tallies.iter().filter(|(_, t, _)| t.mode == Some(mode)) {
        let Some(seen) = tally.per_block.get(store) else { continue };
        evidence.push(*seq);
        for (syncs, times) in seen {
            *counts.entry(*syncs).or_default() += times;
        }
    }
    // A store without any sync has no entry, and every block counts as none.
    let counted: u64 = counts.values().sum();
    *counts.entry(0).or_default() += blocks.saturating_sub(counted);
    let median = weighted_median(&counts);
    (median != wanted).then(|| {
        Finding::new(
            Verdict::ExpectationFailed,
            format!(
                "syncs a block of {store} in {}: median {median} over {blocks} blocks, expected {wanted}",
                mode_name(mode)
            ),
        )
        .node(&node.name)
        .why("the number of synced writes a block is not the one that the topology asks for")
        .next("run `midflush observe` on this node to see which commit each sync ends")
        .evidence(evidence.iter().rev().take(8).copied())
    })
}

/// The median of counted values: the lower one for an even number.
fn weighted_median(counts: &BTreeMap<u64, u64>) -> u64 {
    let total: u64 = counts.values().sum();
    let mut before = 0;
    for (value, times) in counts {
        before += times;
        if 2 * before >= total {
            return *value;
        }
    }
    0
}

/// Nodes beyond the height at which they had to stop.
fn halt_missed(model: &Model) -> Vec<Finding> {
    let Some(halt) = model.expect.halt_height else { return Vec::new() };
    let mut findings = Vec::new();
    for (index, node) in model.nodes.iter().enumerate() {
        let seen = node.samples.iter().max_by_key(|s| s.height).map(|s| (s.height, s.seq));
        let stored = node.last_heights().store.map(|h| (h, 0));
        let served = model.blocks.range_of(index).map(|(_, to)| (to, 0));
        let Some((actual, seq)) = [seen, stored, served].into_iter().flatten().max_by_key(|(h, _)| *h) else {
            continue;
        };
        if actual > halt {
            findings.push(
                Finding::new(
                    Verdict::HaltMissed,
                    format!("went to {actual}, its halt height is {halt} (+{})", actual - halt),
                )
                .node(&node.name)
                .height(actual)
                .why("a node has to stop at the height that it is configured for, in block sync as well")
                .next("look at where the halt height is checked: before the block is stored, in both modes")
                .evidence(Some(seq).filter(|seq| *seq > 0)),
            );
        }
    }
    findings
}

fn tool_errors(model: &Model) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    for (what, seq) in &model.end.tool_errors {
        let Some(known) = signature::find(what).filter(|known| known.weight == Weight::Machine) else {
            findings.push(
                Finding::new(Verdict::ToolError, what.clone())
                    .why("midflush or its machine failed, so nothing is said about the nodes")
                    .next("mend it and run again")
                    .evidence([*seq]),
            );
            continue;
        };
        // A machine fails everybody at once: that is said once.
        if let Some(said) = findings.iter_mut().find(|said| said.class.as_deref() == Some(known.class)) {
            said.evidence.push(*seq);
            continue;
        }
        findings.push(
            Finding::new(Verdict::ToolError, format!("{}: {what}", known.class))
                .why("the machine failed, not the nodes")
                .next(known.hint)
                .class(known.class)
                .evidence([*seq]),
        );
    }
    findings
}

/// What was not seen and had to be.
fn missing(model: &Model) -> Vec<Finding> {
    let mut findings = Vec::new();
    if !model.complete {
        return findings;
    }
    let end = &model.end;
    let inconclusive =
        |detail: String| Finding::new(Verdict::Inconclusive, detail).why("what was not seen cannot be judged");
    if end.interrupted {
        findings.push(inconclusive("the run was interrupted".to_owned()).next("run it again").class(ENDED_EARLY));
    } else if end.time_limit {
        findings.push(
            inconclusive("the run's time limit came before its end".to_owned())
                .next("give it more time")
                .class(ENDED_EARLY),
        );
    } else if !end.ended {
        findings.push(
            inconclusive("the timeline ends before the run does".to_owned())
                .next("if the controller died, `midflush clean` removes what it left")
                .class(ENDED_EARLY),
        );
    }
    if let Some((false, why, seq)) = &end.settled {
        findings.push(
            inconclusive(format!("the nodes did not come together in time: {why}"))
                .next("look at the nodes that stayed behind")
                .class(NOT_TOGETHER)
                .evidence([*seq]),
        );
    }
    for node in model.nodes.iter().filter(|n| n.samples.is_empty() && n.alive()) {
        findings.push(inconclusive("its RPC never answered".to_owned()).node(&node.name).next("read its log"));
    }
    let validators = model.nodes.len();
    if validators > 1 && model.states.compared() == 0 {
        findings.push(
            inconclusive("no height was compared between two nodes".to_owned())
                .next("look at why no block hashes were read")
                .class(NOTHING_COMPARED),
        );
    }
    findings
}

/// Whether agreement after the fault means anything: hashes must have moved, and transactions must have been there.
fn unproven(model: &Model) -> Option<Finding> {
    let because = |why: String, seq: Option<u64>| {
        Finding::new(Verdict::ConvergedUnproven, why)
            .why("equal hashes prove nothing when nothing changed")
            .next("send transactions that change the application's state, before and after the fault")
            .evidence(seq)
    };
    if model.load.known && !model.load.wanted {
        return Some(because("no load: no transaction was sent".to_owned(), None));
    }
    if model.load.known && model.load.accepted == 0 {
        return Some(because("no load: no transaction was accepted".to_owned(), model.load.seq));
    }
    if model.states.is_empty() || model.states.compared() == 0 {
        return None;
    }
    let fault = height_at_last_fault(model);
    if !model.complete && fault.is_none() {
        // Whoever wrote an observation need not give more than the heights of interest.
        return None;
    }
    let from = fault.unwrap_or(0);
    let after = model.states.distinct_from(from, 2);
    let enough = model.complete || model.states.heights_from(from, 2) >= 2;
    (after < 2 && enough).then(|| {
        let since = if from > 0 { format!(" after height {from}, where the last fault was") } else { String::new() };
        because(format!("{after} distinct app hash over the whole stretch{since}"), None)
    })
}

/// The best height seen when the last fault took effect.
fn height_at_last_fault(model: &Model) -> Option<u64> {
    let at = model.last_fault_us()?;
    let told = model.told.iter().filter(|f| f.from == at).filter_map(|f| f.height);
    let before = model.nodes.iter().flat_map(|n| &n.samples).filter(|s| s.at_us <= at).map(|s| s.height);
    let landed =
        model.faults.iter().filter_map(|f| f.landed.as_ref()).filter(|l| l.at_us == at).map(|l| l.landed.height);
    before.chain(landed).chain(told).max()
}

/// What the run is about to be told beside its findings.
pub(crate) fn notes(model: &Model) -> Vec<Note> {
    let mut notes = Vec::new();
    if let Some((true, why, _)) = &model.end.settled {
        notes.push(Note::run("settled", why.clone()));
    }
    notes.extend(halt_notes(model));
    notes
}

/// Nodes that are not at the halt height yet, and heights beyond it, which too few nodes have to be compared.
fn halt_notes(model: &Model) -> Vec<Note> {
    let Some(halt) = model.expect.halt_height else { return Vec::new() };
    let last = |n: &super::model::Node| n.samples.last().map(|s| s.height);
    let mut notes: Vec<Note> = model
        .nodes
        .iter()
        .filter_map(|n| Some((n, last(n).filter(|h| *h < halt)?)))
        .map(|(n, height)| {
            let words = format!("at {height}, and its halt height {halt} is not reached yet: wait");
            Note::about("waiting", &n.name, words).height(height)
        })
        .collect();
    if let Some(best) = model.nodes.iter().filter_map(last).max().filter(|best| *best > halt) {
        let words =
            format!("heights {} to {best} exist on few nodes only: nothing is said about their hashes", halt + 1);
        notes.push(Note::run("beyond-halt", words).height(best));
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_counts() {
        assert_eq!(weighted_median(&BTreeMap::from([(0, 30), (1, 1)])), 0);
        assert_eq!(weighted_median(&BTreeMap::from([(4, 2), (5, 90), (6, 8)])), 5);
        assert_eq!(weighted_median(&BTreeMap::new()), 0);
    }
}

//! Agreement: block ids and app hashes at every common height, with the right offset, weighed by voting power.

use super::model::Model;
use super::table::{Group, Table};
use super::{Finding, Verdict};

/// What a table holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Block,
    State,
}

/// Disagreements, one finding for each set of dissenting nodes, at the first height.
pub(crate) fn check(model: &Model) -> Vec<Finding> {
    let mut findings = disputes(model, &model.blocks, Kind::Block);
    findings.extend(disputes(model, &model.states, Kind::State));
    findings
}

/// Nodes that share no height with any other, which must not count as agreeing.
pub(crate) fn nothing_in_common(model: &Model) -> Vec<Finding> {
    let table = if model.states.is_empty() { &model.blocks } else { &model.states };
    let with: Vec<usize> = (0..model.nodes.len()).filter(|n| table.range_of(*n).is_some()).collect();
    if with.len() < 2 {
        return Vec::new();
    }
    let alone = with.iter().filter(|n| !table.overlaps(**n));
    let finding = |node: &usize| {
        let (from, to) = table.range_of(*node)?;
        let detail = format!("it has {from} to {to} and no height in common with any other node");
        Some(
            Finding::new(Verdict::Inconclusive, detail)
                .node(&model.nodes[*node].name)
                .why("comparing nothing is not agreeing")
                .next("wait for one more block, or keep more blocks on the other nodes"),
        )
    };
    alone.filter_map(finding).collect()
}

fn disputes(model: &Model, table: &Table, kind: Kind) -> Vec<Finding> {
    let mut findings: Vec<Finding> = Vec::new();
    let mut blamed: Vec<Vec<usize>> = Vec::new();
    for height in table.disputed() {
        let groups = table.groups(height);
        let mut minority = minority(model, &groups);
        if minority.is_none() {
            minority = blame_later(model, table, height, &groups);
        }
        // A node that is blamed already has the same cause at a later height; so has any later height once nobody could be
        // blamed.
        let nodes = minority.clone().unwrap_or_default();
        let new: Vec<usize> = nodes.iter().filter(|n| !blamed.iter().any(|b| b.contains(n))).copied().collect();
        let known = if nodes.is_empty() { blamed.contains(&nodes) } else { new.is_empty() };
        if !known {
            findings.push(dispute(model, kind, height, &groups, minority.map(|_| new.as_slice())));
            blamed.push(new);
        }
    }
    findings
}

/// The nodes outside the group with a majority, ascending; `None` where no group has one.
fn minority(model: &Model, groups: &[Group]) -> Option<Vec<usize>> {
    let major = majority(model, groups)?;
    let others = groups.iter().enumerate().filter(|(i, _)| *i != major);
    let mut nodes: Vec<usize> = others.flat_map(|(_, g)| g.nodes.clone()).collect();
    nodes.sort_unstable();
    nodes.dedup();
    Some(nodes)
}

/// How many later heights are looked at to find out who is in the minority.
const LATER_MAX: usize = 1000;

/// Who is in the minority at a later height, where too few nodes have the first one to tell.
fn blame_later(model: &Model, table: &Table, height: u64, groups: &[Group]) -> Option<Vec<usize>> {
    let involved = |nodes: &Vec<usize>| nodes.iter().any(|n| groups.iter().any(|g| g.nodes.contains(n)));
    let later = table.disputed().filter(|later| *later > height).take(LATER_MAX);
    later.filter_map(|later| minority(model, &table.groups(later))).find(involved)
}

/// The group with more than half of the voting power among the nodes that have this height; `None` is no majority.
fn majority(model: &Model, groups: &[Group]) -> Option<usize> {
    let power = |g: &Group| g.nodes.iter().map(|n| model.weight(*n)).sum::<u64>();
    let total: u64 = groups.iter().map(power).sum();
    groups.iter().position(|g| 2 * power(g) > total)
}

fn dispute(model: &Model, kind: Kind, height: u64, groups: &[Group], minority: Option<&[usize]>) -> Finding {
    let power_total: u64 = groups.iter().flat_map(|g| &g.nodes).map(|n| model.weight(*n)).sum();
    let side = |g: &Group| {
        let power: u64 = g.nodes.iter().map(|n| model.weight(*n)).sum();
        let unit = if model.powers_known() { "voting power" } else { "nodes" };
        format!("{} has {} ({power} of {power_total} {unit})", model.names(&g.nodes), short(&g.hash))
    };
    let sides: Vec<String> = groups.iter().map(side).collect();
    let sides = sides.join("; ");
    let blame = match minority {
        Some(nodes) => format!("in the minority: {}", model.names(nodes)),
        None => "no majority".to_owned(),
    };
    let evidence = groups.iter().flat_map(|g| g.seqs.clone());
    let finding = match kind {
        Kind::Block => Finding::new(Verdict::Forked, format!("two blocks at height {height}: {sides}; {blame}"))
            .why("nodes committed different blocks at the same height, which no quorum of honest validators can do")
            .next("compare the commits of both blocks: who signed both is at fault; look for restored or shared sign states"),
        Kind::State => {
            let words = format!(
                "different app hashes after height {height} (header {}): {sides}; {blame}",
                height + header_offset(model)
            );
            Finding::new(Verdict::Diverged, words)
                .why("the same block led to different application states")
                .next(format!("export the application state after height {height} from both sides and compare"))
        }
    };
    // The header that shows it is what people look for; the state is one height before it.
    let shown = if kind == Kind::State { height + header_offset(model) } else { height };
    let finding = finding.height(shown).evidence(evidence);
    match minority {
        Some(nodes) => finding.node(model.names(nodes)),
        None => {
            let nodes = groups.iter().flat_map(|g| &g.nodes).map(|n| model.nodes[*n].name.clone());
            finding.concerns(nodes)
        }
    }
}

/// Distance from a state to the header that shows it.
fn header_offset(model: &Model) -> u64 {
    model.app_hash_offset
}

/// Enough of a hash to tell it apart.
pub(crate) fn short(hash: &str) -> &str {
    if hash.is_empty() { "an empty hash" } else { hash.get(..16).unwrap_or(hash) }
}

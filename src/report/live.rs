//! What is shown while a run goes on: one line a node, and a line for everything that matters as it happens.

use crate::timeline::{Event, ExitCause, FaultId, FaultKind, Mode, NodeEvent, Record, Role};

use super::state::{Doing, LiveState};
use super::words;

/// Time between two plain lines of heights, in microseconds.
const HEIGHTS_EVERY_US: u64 = 5_000_000;
/// Longest line of either kind, in characters.
const WIDTH: usize = 118;

/// One line a node, at most `rows_max` of them; what does not fit is counted on a last line. Nodes that are in trouble, or
/// are not in consensus, come before others.
pub fn node_lines(state: &LiveState, rows_max: usize) -> Vec<String> {
    let widest = state.nodes.keys().map(|n| n.chars().count()).max().unwrap_or(0).clamp(4, 24);
    let mut rows: Vec<_> = state.nodes.iter().collect();
    if rows.len() > rows_max {
        let calm = |doing: Doing| doing == Doing::Working(crate::timeline::Mode::Consensus);
        rows.sort_by_key(|(_, node)| calm(node.doing) && node.rpc_silent.is_none());
    }
    let left_out = rows.len().saturating_sub(rows_max.saturating_sub(1));
    let shown = if rows.len() > rows_max { rows.len() - left_out } else { rows.len() };
    let mut lines: Vec<_> = rows[..shown].iter().map(|(name, _)| node_line(state, name, widest)).collect();
    if shown < rows.len() {
        let best = state.best_height().map_or_else(|| "-".to_owned(), |h| h.to_string());
        lines.push(format!("and {left_out} more; the best height is {best}"));
    }
    lines
}

fn node_line(state: &LiveState, name: &str, widest: usize) -> String {
    let Some(node) = state.nodes.get(name) else { return String::new() };
    let role = match node.role {
        Role::Validator => "validator",
        Role::Full => "full",
    };
    let number = |n: Option<u64>| n.map_or_else(|| "-".to_owned(), |n| n.to_string());
    let peers = number(node.peers.map(u64::from));
    let mut doing = node.doing.words().to_owned();
    if let Doing::Down(since) = node.doing {
        doing = format!("down for {}", words::duration(state.at_us.saturating_sub(since)));
    }
    if node.start > 1 {
        doing.push_str(&format!(", start {}", node.start));
    }
    let behind = state.best_height().zip(node.height).map(|(best, own)| best.saturating_sub(own)).filter(|b| *b > 2);
    if let (Some(behind), false) = (behind, matches!(node.doing, Doing::Down(_))) {
        doing.push_str(&format!(", {behind} behind"));
    }
    let name = words::cut(name, widest);
    let height = number(node.height);
    words::cut(&format!("{name:<widest$}  {role:<9}  height {height:>7}  peers {peers:>3}  {doing}"), WIDTH)
}

/// Turns records into plain lines: faults, starts and exits as they happen, heights every few seconds.
#[derive(Debug, Default)]
pub struct PlainLines {
    state: LiveState,
    heights_at_us: u64,
}

impl PlainLines {
    /// What is known so far.
    pub fn state(&self) -> &LiveState {
        &self.state
    }

    /// Takes one record in and gives the lines that it makes due, each with its time since the run began.
    pub fn apply(&mut self, record: &Record, heights_go: Heights) -> Vec<String> {
        self.state.apply(record);
        let mut lines: Vec<String> = Vec::new();
        if !self.is_told_otherwise(record) {
            lines.extend(event_line(record));
        }
        if heights_go == Heights::NowAndThen
            && record.at_us >= self.heights_at_us + HEIGHTS_EVERY_US
            && matches!(record.event, Event::Status(_))
        {
            self.heights_at_us = record.at_us;
            lines.push(stamp(record.at_us, "", &heights(&self.state)));
        }
        lines
    }

    /// What other lines have said: a node without a process, or that has just begun, answers nothing; an aimed fault has
    /// landed and its process has exited; a killed node is back when it starts.
    fn is_told_otherwise(&self, record: &Record) -> bool {
        let fault = |id: &FaultId| self.state.faults.iter().find(|f| f.setup.id == *id);
        match &record.event {
            Event::RpcSilent { .. } => {
                let node = record.node.as_deref().and_then(|name| self.state.nodes.get(name));
                node.is_some_and(|n| {
                    // Nodes of the CometBFT family open their RPC after the replay.
                    let silent = Doing::Working(Mode::Replay);
                    n.doing == silent || matches!(n.doing, Doing::Waiting | Doing::Starting | Doing::Down(_))
                })
            }
            Event::FaultApplied { fault: id, .. } => fault(id).is_some_and(|f| f.landed.is_some()),
            Event::FaultReverted { fault: id, .. } => fault(id).is_some_and(|f| f.setup.kind != FaultKind::Pause),
            _ => false,
        }
    }
}

/// Where heights are shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Heights {
    /// On a plain line every few seconds.
    NowAndThen,
    /// Somewhere else, on the live lines of a terminal.
    Elsewhere,
}

fn heights(state: &LiveState) -> String {
    let known: Vec<_> = state.nodes.values().filter_map(|n| n.height).collect();
    if state.nodes.len() > 8 {
        let (low, high) = (known.iter().min().copied().unwrap_or(0), known.iter().max().copied().unwrap_or(0));
        return format!("heights {low} to {high} over {} of {} nodes", known.len(), state.nodes.len());
    }
    let one = |(name, node): (&String, &super::state::NodeState)| {
        format!("{name} {}", node.height.map_or_else(|| "-".to_owned(), |h| h.to_string()))
    };
    format!("heights: {}", state.nodes.iter().map(one).collect::<Vec<_>>().join(", "))
}

fn stamp(at_us: u64, node: &str, text: &str) -> String {
    let tenths = at_us / 100_000;
    let who = if node.is_empty() { String::new() } else { format!("{node}: ") };
    format!("{:>5}.{} s  {who}{}", tenths / 10, tenths % 10, words::clean(text))
}

/// The line for one record, with its time; `None` where it says nothing that people wait for.
pub fn event_line(record: &Record) -> Option<String> {
    let node = record.node.as_deref().unwrap_or_default();
    let text = match &record.event {
        Event::RunStarted(s) => format!("run {} of {}, seed {}, engine {}", s.run, s.topology, s.seed, s.engine),
        Event::Setup(s) => {
            let faults = s.faults.iter().filter(|f| f.kind == FaultKind::Kill).count();
            let others = s.faults.len() - faults;
            let (nodes, kills) = (words::counted(s.nodes.len() as u64, "node"), words::counted(faults as u64, "kill"));
            format!("{nodes} of {}; planned: {kills}, {}", s.family, words::counted(others as u64, "other fault"))
        }
        Event::Node(event) => return node_event(event).map(|text| stamp(record.at_us, node, &text)),
        Event::FaultTriggered { fault, why } => format!("fault {}: {why}", fault.name),
        Event::FaultApplied { fault, evidence } => format!("fault {} done: {evidence}", fault.name),
        Event::FaultReverted { fault, evidence } => format!("fault {} over: {evidence}", fault.name),
        Event::FaultMissed { fault, why } => format!("fault {} MISSED: {why}", fault.name),
        Event::Stored { heights, .. } => format!("left app/state/store {heights}"),
        Event::Settled { converged: true, why } => format!("settled: {why}"),
        Event::Settled { converged: false, why } => format!("NOT settled: {why}"),
        Event::ToolError { what } => format!("tool error: {what}"),
        Event::Notice { what } => what.clone(),
        Event::Interrupted => "interrupted".to_owned(),
        Event::TimeLimit => "the time limit ran out".to_owned(),
        Event::Evidence(double) => {
            format!("evidence in block {}: validator {} voted twice", double.block, double.validator)
        }
        Event::RpcSilent { reason } => format!("RPC does not answer: {reason}"),
        Event::Bound { .. }
        | Event::Status(_)
        | Event::Signed { .. }
        | Event::Published { .. }
        | Event::AppHeight { .. }
        | Event::Hashes(_)
        | Event::SignsAs { .. }
        | Event::Commit(_)
        | Event::Load { .. }
        | Event::RunEnded => {
            return None;
        }
    };
    Some(stamp(record.at_us, node, &text))
}

fn node_event(event: &NodeEvent) -> Option<String> {
    Some(match event {
        NodeEvent::Started { start, tier, .. } => format!("start {start} ({})", words::tier(*tier)),
        NodeEvent::Exited { exit, cause, tail, .. } => {
            let who = match cause {
                ExitCause::Fault(fault) => format!(", as fault {} wanted", fault.name),
                ExitCause::Asked => return None,
                ExitCause::Own => match tail.last() {
                    Some(line) => format!(" BY ITSELF; its last line: {line}"),
                    None => " BY ITSELF".to_owned(),
                },
            };
            format!("exited with {}{who}", words::exit(*exit))
        }
        NodeEvent::Landed { fault, landed, .. } => format!("fault {} landed: {}", fault.name, words::landed(landed)),
        NodeEvent::NotLanded { fault, nearest, .. } => match nearest {
            Some(nearest) => format!("fault {} did not land; the nearest address is {nearest}", fault.name),
            None => format!("fault {} did not land", fault.name),
        },
        NodeEvent::ModeChanged { mode, .. } => format!("in {}", words::mode(*mode)),
        NodeEvent::Trouble { class, line, .. } => format!("{class}: {line}"),
        NodeEvent::CoverageHole { hole, detail } => format!("cannot see everything ({hole}): {detail}"),
        NodeEvent::Armed { .. } | NodeEvent::Handshake { .. } | NodeEvent::Tally(_) | NodeEvent::Signalled { .. } => {
            return None;
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::sample;

    #[test]
    fn plain_lines_tell_the_story() {
        let mut lines = PlainLines::default();
        let all: Vec<_> = sample::records().iter().flat_map(|r| lines.apply(r, Heights::NowAndThen)).collect();
        insta::assert_snapshot!(all.join("\n"));
    }

    #[test]
    fn node_lines_show_where_each_node_is() {
        let records = sample::records();
        let down = records.iter().position(|r| matches!(r.event, Event::RpcSilent { .. })).unwrap();
        insta::assert_snapshot!(node_lines(&LiveState::of(&records[..=down]), 10).join("\n"));
    }

    #[test]
    fn many_nodes_take_few_lines_and_the_restless_come_first() {
        let records = sample::records();
        let down = records.iter().position(|r| matches!(r.event, Event::RpcSilent { .. })).unwrap();
        let lines = node_lines(&LiveState::of(&records[..=down]), 3);
        assert_eq!(lines.len(), 3, "{lines:?}");
        assert!(lines[0].starts_with("late"), "{lines:?}");
        assert!(lines[2].starts_with("and 3 more"), "{lines:?}");
    }
}

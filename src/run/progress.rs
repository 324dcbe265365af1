//! What the dispatcher knows about the nodes: a pure reduction of the records.

use std::collections::BTreeMap;

use crate::timeline::{Event, NodeEvent, Record};

/// All nodes of a run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Progress {
    /// By name.
    pub nodes: BTreeMap<String, NodeProgress>,
}

/// One node.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NodeProgress {
    /// Its process exists.
    pub running: bool,
    /// Process starts so far.
    pub starts: u32,
    /// When it was started first, microseconds since the run began.
    pub started_us: u64,
    /// When it was started last, microseconds since the run began.
    pub last_started_us: u64,
    /// Why its RPC does not answer, in the client's words.
    pub silent: Option<String>,
    /// Latest height that its RPC reported.
    pub height: u64,
    /// When that height was first reported, microseconds since the run began.
    pub height_since_us: u64,
    /// Its own word for catching up.
    pub catching_up: bool,
    /// It answered since its last start.
    pub answered: bool,
    /// Nobody will start it again.
    pub gone: bool,
}

impl Progress {
    /// Takes one record in.
    pub fn apply(&mut self, record: &Record) {
        let Some(name) = &record.node else { return };
        let node = self.nodes.entry(name.clone()).or_default();
        match &record.event {
            Event::Node(NodeEvent::Started { start, .. }) => {
                node.running = true;
                node.answered = false;
                node.starts = *start;
                node.last_started_us = record.at_us;
                // Later starts are no progress: a node may come and go for ever.
                if *start == 1 {
                    node.started_us = record.at_us;
                }
            }
            Event::Node(NodeEvent::Exited { .. }) => {
                node.running = false;
                node.answered = false;
            }
            Event::Status(status) => {
                if !node.answered || status.height != node.height {
                    node.height_since_us = record.at_us;
                }
                node.answered = true;
                node.silent = None;
                node.height = status.height;
                node.catching_up = status.catching_up;
            }
            Event::RpcSilent { reason } => node.silent = Some(reason.clone()),
            _ => {}
        }
    }

    /// The greatest height that any node has reported.
    pub fn best(&self) -> u64 {
        self.nodes.values().map(|n| n.height).max().unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::timeline::{Exit, ExitCause, Status, Tier};

    fn record(at_us: u64, event: Event) -> Record {
        Record { seq: 0, at_us, node: Some("late".to_owned()), event }
    }

    fn status(height: u64) -> Event {
        Event::Status(Status { height, catching_up: true, peers: None, app_hash: String::new() })
    }

    #[test]
    fn a_height_counts_from_when_it_was_first_seen() {
        let mut progress = Progress::default();
        progress.apply(&record(5, Event::Node(NodeEvent::Started { start: 1, pid: 9, tier: Tier::Observe })));
        progress.apply(&record(10, status(4)));
        progress.apply(&record(20, status(4)));
        let node = &progress.nodes["late"];
        assert_eq!((node.height, node.height_since_us, node.starts), (4, 10, 1));
        progress.apply(&record(30, status(5)));
        assert_eq!(progress.nodes["late"].height_since_us, 30);
        assert_eq!(progress.best(), 5);
    }

    #[test]
    fn a_node_that_ended_has_not_answered() {
        let mut progress = Progress::default();
        progress.apply(&record(10, status(4)));
        let exited = NodeEvent::Exited { start: 1, exit: Exit::Signal(9), cause: ExitCause::Own, tail: Vec::new() };
        progress.apply(&record(20, Event::Node(exited)));
        assert!(!progress.nodes["late"].answered);
        assert!(!progress.nodes["late"].running);
        assert_eq!(progress.nodes["late"].height, 4, "the last height is what it had acknowledged");
    }
}

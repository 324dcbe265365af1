//! The application beside a node: the second process of one logical node, under an agent of its own.
//!
//! It is started before its node and ended with it. What both agents tell becomes the record of one node ([`Ends`]): when one
//! of the two ends, the other is ended too, and the end that counts is that of the one which a fault, or itself, ended.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use crate::agent_client::protocol::{AgentRecord, Signal, SignalRequest, StartRequest};
use crate::agent_client::{Client, ClientError, EventStream};
use crate::chain::NodeFiles;
use crate::timeline::{Exit, ExitCause, FaultId, Landed, Layout, Mode, NodeEvent, Tier};

/// With this an agent refuses what needs a process that runs.
const CONFLICT: u16 = 409;
/// How long an application may take until it accepts ABCI before its node is started all the same: the node dials again.
const LISTENS_MAX: Duration = Duration::from_secs(20);
/// Pause between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// How long the process that is left may take to end after SIGTERM.
const LEFT_MAX: Duration = Duration::from_secs(5);

/// What is needed to run it.
#[derive(Clone)]
pub(super) struct Beside {
    /// Name among the engine's, and of its logs.
    pub(super) name: String,
    pub(super) client: Arc<Client>,
    pub(super) files: NodeFiles,
    pub(super) layout: Layout,
    pub(super) tier: Tier,
    /// Where its node dials it.
    pub(super) listens: SocketAddr,
    /// Added to its agent's clock to get microseconds since the run began.
    pub(super) clock_offset_us: i64,
}

impl Beside {
    /// Starts it and waits until it can be dialled, has ended, or has had its time.
    pub(super) async fn start(&self, request: &StartRequest) -> Result<(), ClientError> {
        self.client.start(request).await?;
        let deadline = Instant::now() + LISTENS_MAX;
        // A refusal says that it has ended; its exit is on the way.
        while let Ok(false) = self.client.listens(self.listens).await {
            if Instant::now() >= deadline {
                break;
            }
            tokio::time::sleep(LOOK_EVERY).await;
        }
        Ok(())
    }

    /// Sends it a signal, unless it has just ended.
    pub(super) async fn signal(&self, signal: Signal, fault: Option<FaultId>) -> Result<(), ClientError> {
        or_over(self.client.signal(&SignalRequest { signal, fault }).await)
    }

    /// Whether a store of an address is its own.
    pub(super) fn holds(&self, store: &str) -> bool {
        self.layout.stores.iter().any(|own| own.name == store)
    }
}

/// Follows the agent of an application, where there is one.
pub(super) async fn events(beside: Option<&Beside>, after: u64) -> Result<Option<EventStream>, ClientError> {
    match beside {
        Some(beside) => beside.client.events(after).await.map(Some),
        None => Ok(None),
    }
}

/// The next event of an application's agent; never one where there is no application.
pub(super) async fn next(events: &mut Option<EventStream>) -> Option<Result<AgentRecord, ClientError>> {
    match events {
        Some(events) => events.next().await,
        None => std::future::pending().await,
    }
}

/// A process that does not run any more needs no signal.
pub(super) fn or_over(sent: Result<(), ClientError>) -> Result<(), ClientError> {
    match sent {
        Err(error) if error.refused_with() == Some(CONFLICT) => Ok(()),
        sent => sent,
    }
}

/// What a record of an application's agent is to the logical node.
#[derive(Debug, PartialEq)]
pub(super) enum Heard {
    /// Its own number of the start under way.
    Started(u32),
    Ended(End),
    /// Something to tell of the node.
    OfNode(NodeEvent),
    Nothing,
}

impl Heard {
    /// `start` and `mode` are the node's.
    pub(super) fn of(record: AgentRecord, start: u32, mode: Mode) -> Self {
        let clock_us = record.clock_us;
        Self::OfNode(match record.event {
            NodeEvent::Started { start, .. } => return Self::Started(start),
            NodeEvent::Exited { exit, cause, tail, .. } => {
                return Self::Ended(End { part: Part::Application, clock_us, exit, cause, tail });
            }
            NodeEvent::Landed { fault, landed, held_us, .. } => {
                NodeEvent::Landed { fault, start, landed: Landed { mode, ..landed }, held_us }
            }
            NodeEvent::Trouble { class, line, .. } => NodeEvent::Trouble { start, class, line },
            NodeEvent::CoverageHole { hole, detail } => {
                NodeEvent::CoverageHole { hole, detail: format!("application: {detail}") }
            }
            event @ (NodeEvent::Armed { .. } | NodeEvent::NotLanded { .. }) => event,
            // Of modes, heights and signals the node's own are told, and its counts are those of a block.
            NodeEvent::ModeChanged { .. }
            | NodeEvent::Handshake { .. }
            | NodeEvent::Tally(_)
            | NodeEvent::Signalled { .. } => return Self::Nothing,
        })
    }
}

/// One of the two processes of a logical node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Part {
    Node,
    Application,
}

/// The end of one of them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct End {
    pub(super) part: Part,
    /// The machine's monotonic clock, which both agents read.
    pub(super) clock_us: u64,
    pub(super) exit: Exit,
    pub(super) cause: ExitCause,
    pub(super) tail: Vec<String>,
}

/// The ends of the two in one start.
#[derive(Debug, Default)]
pub(super) struct Ends {
    /// The one that was heard of while the other still runs.
    first: Option<End>,
    /// A fault that landed in one of the two: what the other does then by itself comes of it.
    landed: Option<FaultId>,
    /// When the one that is left is killed.
    pub(super) kill_due: Option<Instant>,
}

/// What follows from an end.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Then {
    /// The other one is to be ended with this signal.
    EndOther(Part, Signal),
    /// Both are over: the end of the logical node.
    Over(End),
}

impl Ends {
    /// Whether one of the two has ended and the other is being ended.
    pub(super) fn half(&self) -> Option<Part> {
        self.first.as_ref().map(|end| other(end.part))
    }

    /// Notes that a fault landed in one of the two.
    pub(super) fn landed(&mut self, fault: FaultId) {
        self.landed = Some(fault);
    }

    /// Takes the end of one in.
    pub(super) fn take(&mut self, end: End) -> Then {
        match self.first.take() {
            None => {
                // A killed node is gone at once; any other end leaves the other process its own way out.
                let signal = if end.exit == Exit::Signal(9) { Signal::Kill } else { Signal::Terminate };
                let left = other(end.part);
                self.kill_due = Some(Instant::now() + LEFT_MAX);
                self.first = Some(end);
                Then::EndOther(left, signal)
            }
            Some(first) => {
                self.kill_due = None;
                let mut over = decisive(first, end);
                if let Some(fault) = self.landed.take().filter(|_| over.cause == ExitCause::Own) {
                    over.cause = ExitCause::Fault(fault);
                }
                Then::Over(over)
            }
        }
    }
}

fn other(part: Part) -> Part {
    match part {
        Part::Node => Part::Application,
        Part::Application => Part::Node,
    }
}

/// The end that counts. A node that has lost its application ends by itself, and may be heard of first: what a fault did goes
/// before what a process did by itself, and that before what was asked of it. Of two that ended by themselves the node followed
/// the application, unless that one left in order; then the earlier one counts.
fn decisive(one: End, two: End) -> End {
    let rank = |end: &End| {
        let rank = match (&end.cause, end.part) {
            (ExitCause::Fault(_), _) => 0,
            (ExitCause::Own, Part::Application) if end.exit != Exit::Code(0) => 1,
            (ExitCause::Own, _) => 2,
            (ExitCause::Asked, _) => 3,
        };
        (rank, end.clock_us)
    };
    if rank(&one) <= rank(&two) { one } else { two }
}

impl End {
    /// The record of the logical node in this start. The last lines of an application are said to be its.
    pub(super) fn event(self, start: u32) -> NodeEvent {
        let Self { part, exit, cause, mut tail, .. } = self;
        if part == Part::Application {
            let how = match exit {
                Exit::Code(code) => format!("exit code {code}"),
                Exit::Signal(signal) => format!("signal {signal}"),
            };
            tail.insert(0, format!("ended with {how}"));
            tail.iter_mut().for_each(|line| line.insert_str(0, "application: "));
        }
        NodeEvent::Exited { start, exit, cause, tail }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(part: Part, clock_us: u64, exit: Exit, cause: ExitCause) -> End {
        End { part, clock_us, exit, cause, tail: vec!["panic: boom".to_owned()] }
    }

    #[test]
    fn what_an_application_tells_is_about_its_node_in_its_start_and_mode() {
        let heard = |event| Heard::of(AgentRecord { seq: 1, clock_us: 4, event }, 3, Mode::BlockSync);
        let trouble = |start| NodeEvent::Trouble { start, class: "panic".to_owned(), line: "panic: x".to_owned() };
        assert_eq!(heard(trouble(1)), Heard::OfNode(trouble(3)));
        assert_eq!(heard(NodeEvent::Started { start: 2, pid: 7, tier: Tier::Record }), Heard::Started(2));
        assert_eq!(heard(NodeEvent::ModeChanged { start: 1, mode: Mode::Replay }), Heard::Nothing);
        let ended = NodeEvent::Exited {
            start: 1,
            exit: Exit::Code(1),
            cause: ExitCause::Asked,
            tail: vec!["panic: boom".to_owned()],
        };
        assert_eq!(heard(ended), Heard::Ended(end(Part::Application, 4, Exit::Code(1), ExitCause::Asked)));
    }

    #[test]
    fn a_node_that_ends_since_a_call_of_its_application_failed_is_ended_by_the_fault() {
        let mut ends = Ends::default();
        let ExitCause::Fault(failed) = fault() else { panic!("a fault") };
        ends.landed(failed);
        ends.take(end(Part::Node, 1, Exit::Code(0), ExitCause::Own));
        let asked = end(Part::Application, 2, Exit::Code(0), ExitCause::Asked);
        assert_eq!(ends.take(asked.clone()), Then::Over(end(Part::Node, 1, Exit::Code(0), fault())));
        // The next start has nothing of it.
        ends.take(asked.clone());
        let own = end(Part::Node, 3, Exit::Code(1), ExitCause::Own);
        assert_eq!(ends.take(own.clone()), Then::Over(own));
    }

    fn fault() -> ExitCause {
        ExitCause::Fault(FaultId { name: "x".to_owned(), occurrence: 1 })
    }

    #[test]
    fn a_killed_application_is_the_end_also_where_its_node_was_heard_of_first() {
        let mut ends = Ends::default();
        let own = end(Part::Node, 5, Exit::Code(1), ExitCause::Own);
        assert_eq!(ends.take(own), Then::EndOther(Part::Application, Signal::Terminate));
        assert_eq!(ends.half(), Some(Part::Application));
        let killed = end(Part::Application, 7, Exit::Signal(9), fault());
        assert_eq!(ends.take(killed.clone()), Then::Over(killed));
        assert_eq!((ends.half(), ends.kill_due), (None, None));
    }

    #[test]
    fn a_node_follows_its_application_whose_lines_are_said_to_be_its() {
        let mut ends = Ends::default();
        ends.take(end(Part::Node, 8, Exit::Code(1), ExitCause::Own));
        let Then::Over(first) = ends.take(end(Part::Application, 9, Exit::Code(2), ExitCause::Own)) else {
            panic!("both are over")
        };
        let NodeEvent::Exited { start, exit, cause, tail } = first.event(3) else { panic!("an exit") };
        assert_eq!((start, exit, cause), (3, Exit::Code(2), ExitCause::Own));
        assert_eq!(tail, ["application: ended with exit code 2", "application: panic: boom"]);
        // One that leaves in order once nobody is there any more follows its node.
        let node = end(Part::Node, 8, Exit::Code(1), ExitCause::Own);
        ends.take(node.clone());
        assert_eq!(ends.take(end(Part::Application, 9, Exit::Code(0), ExitCause::Own)), Then::Over(node));
    }

    #[test]
    fn the_other_of_a_killed_one_is_killed_and_its_end_says_nothing() {
        let mut ends = Ends::default();
        let killed = end(Part::Node, 1, Exit::Signal(9), fault());
        assert_eq!(ends.take(killed.clone()), Then::EndOther(Part::Application, Signal::Kill));
        assert_eq!(ends.take(end(Part::Application, 2, Exit::Signal(9), ExitCause::Asked)), Then::Over(killed));
    }
}

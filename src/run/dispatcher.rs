//! The one place where everything that tasks have seen becomes a line of the timeline, in one order, and the only one
//! that decides what happens next.
//!
//! It never waits for a unit: orders go out through bounded channels that must have room, so that a unit that waits
//! for the dispatcher can never hold it up in turn.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};
use tokio_util::sync::CancellationToken;

use super::settle::{Quiet, Settled, settled};
use super::slow::Slow;
use super::unit::Order;
use super::{Progress, RunError};
use crate::agent_client::protocol::{Arm, Signal};
use crate::fault::{Command, Input, Schedule};
use crate::plan::{Plan, StartAt};
use crate::results::{Release, RunFolder, TimelineWriter};
use crate::timeline::{Event, FaultId, NodeEvent, Record};

/// How often time-driven decisions are taken.
const TICK: Duration = Duration::from_millis(20);

/// Reports that may wait for the dispatcher before tasks that report are slowed down.
const QUEUE: usize = 4096;

/// Addresses that are listed for a fault that did not land.
const LISTED_MAX: usize = 8;

/// Sees every record right after it is on disk: the live view.
pub type Observer = Box<dyn FnMut(&Record) + Send>;

/// What a task tells the dispatcher.
pub(super) enum Told {
    /// Something for the timeline; `at_us` is given where the time of seeing is known better than that of telling.
    Seen { node: Option<String>, at_us: Option<u64>, event: Box<Event> },
    /// Nobody will start this node again.
    Gone { node: String },
    /// The faults and the settling phase may begin.
    Go,
    /// No decision is taken from here on, only records are written.
    Rest,
}

/// The way to the dispatcher, one clone a task.
#[derive(Clone)]
pub(super) struct Witness(mpsc::Sender<Told>);

impl Witness {
    /// Tells the dispatcher about a node.
    pub(super) async fn tell(&self, node: &str, event: Event) {
        self.send(Told::Seen { node: Some(node.to_owned()), at_us: None, event: Box::new(event) }).await;
    }

    /// Tells the dispatcher about the run.
    pub(super) async fn tell_run(&self, event: Event) {
        self.send(Told::Seen { node: None, at_us: None, event: Box::new(event) }).await;
    }

    /// Tells anything.
    pub(super) async fn send(&self, told: Told) {
        // The dispatcher outlives every task that holds a witness; after a failed write it is gone and nothing matters.
        let _ = self.0.send(told).await;
    }
}

/// State behind the decisions.
pub(super) struct Dispatcher {
    plan: Arc<Plan>,
    clock: Instant,
    writer: TimelineWriter,
    folder: Arc<RunFolder>,
    observer: Observer,
    schedule: Schedule,
    progress: Progress,
    orders: BTreeMap<String, mpsc::Sender<Order>>,
    /// Nodes that wait for their first start.
    unstarted: Vec<(String, StartAt)>,
    /// Nodes started again after a fault that have not answered yet.
    returning: BTreeMap<String, FaultId>,
    running_since_us: Option<u64>,
    quiet: Option<Quiet>,
    slow: Slow,
    over: Option<oneshot::Sender<Settled>>,
    deciding: bool,
    /// The timeline did not take a record: from then on it takes only the end of the run.
    broken: bool,
}

impl Dispatcher {
    /// A dispatcher, the way to it, and the channel on which it says that the run is over.
    pub(super) fn new(
        (plan, heights_wait): (Arc<Plan>, Duration),
        clock: Instant,
        (folder, writer): (Arc<RunFolder>, TimelineWriter),
        observer: Observer,
        orders: BTreeMap<String, mpsc::Sender<Order>>,
    ) -> (Self, Witness, mpsc::Receiver<Told>, oneshot::Receiver<Settled>) {
        let (sender, receiver) = mpsc::channel(QUEUE);
        let (over, is_over) = oneshot::channel();
        let dispatcher = Self {
            schedule: Schedule::new(&plan, heights_wait),
            unstarted: plan.nodes.iter().map(|n| (n.name.clone(), n.start)).collect(),
            returning: BTreeMap::new(),
            progress: Progress::default(),
            orders,
            running_since_us: None,
            quiet: None,
            slow: Slow::default(),
            over: Some(over),
            deciding: false,
            broken: false,
            folder,
            plan,
            clock,
            writer,
            observer,
        };
        (dispatcher, Witness(sender), receiver, is_over)
    }

    /// Runs until every witness is gone. A timeline that cannot be written ends the run: `failed` is cancelled, and what was
    /// wrong is the last that the timeline says, in space that was held for that. An error is returned when not even that
    /// could be written.
    pub(super) async fn run(
        mut self,
        mut told: mpsc::Receiver<Told>,
        failed: CancellationToken,
    ) -> Result<(), RunError> {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            let result = tokio::select! {
                one = told.recv() => match one {
                    Some(one) => self.take(one),
                    None => return Ok(()),
                },
                _ = tick.tick(), if self.deciding => self.decide(),
            };
            if let Err(error) = result {
                failed.cancel();
                if self.broken {
                    return Err(error);
                }
                self.last_words(&error)?;
            }
        }
    }

    /// Says why the timeline ends here.
    fn last_words(&mut self, error: &RunError) -> Result<(), RunError> {
        self.broken = true;
        self.deciding = false;
        self.folder.release(Release::Half);
        let record = self.record(None, self.now_us(), Event::ToolError { what: format!("failed to {error}") });
        self.keep(record)
    }

    fn now_us(&self) -> u64 {
        u64::try_from(self.clock.elapsed().as_micros()).unwrap_or(u64::MAX)
    }

    fn take(&mut self, told: Told) -> Result<(), RunError> {
        match told {
            Told::Seen { node, at_us, event } => {
                let at_us = at_us.unwrap_or_else(|| self.now_us());
                let mut inputs = inputs(node.as_deref(), &event);
                if let (Some(name), Event::Status(_)) = (&node, event.as_ref())
                    && let Some(fault) = self.returning.remove(name)
                {
                    inputs.push(Input::GivenBack { fault });
                }
                if let (Some(name), Event::FaultReverted { fault, .. }) = (&node, event.as_ref()) {
                    self.returning.insert(name.clone(), fault.clone());
                }
                self.write(node, at_us, *event)?;
                if self.deciding {
                    for input in inputs {
                        self.feed(input)?;
                    }
                }
                Ok(())
            }
            Told::Gone { node } => {
                self.progress.nodes.entry(node).or_default().gone = true;
                Ok(())
            }
            Told::Go => {
                self.deciding = true;
                self.decide()
            }
            Told::Rest => {
                self.deciding = false;
                Ok(())
            }
        }
    }

    fn write(&mut self, node: Option<String>, at_us: u64, event: Event) -> Result<(), RunError> {
        if self.broken && event != Event::RunEnded {
            return Ok(());
        }
        let record = self.record(node, at_us, event);
        self.keep(record)
    }

    fn record(&self, node: Option<String>, at_us: u64, event: Event) -> Record {
        Record { seq: self.writer.next_seq(), at_us, node, event }
    }

    fn keep(&mut self, record: Record) -> Result<(), RunError> {
        self.writer.append(&record)?;
        self.progress.apply(&record);
        (self.observer)(&record);
        Ok(())
    }

    /// Time-driven decisions: first starts, the schedule's clock, and whether the run is over.
    fn decide(&mut self) -> Result<(), RunError> {
        let now_us = self.now_us();
        if self.running_since_us.is_none() && self.progress.nodes.values().any(|n| n.answered) {
            self.running_since_us = Some(now_us);
        }
        for (node, what) in self.slow.due(&self.progress, now_us) {
            self.write(Some(node), now_us, Event::Notice { what })?;
        }
        self.first_starts(now_us)?;
        self.feed(Input::Tick)?;
        if self.quiet.is_none()
            && self.unstarted.is_empty()
            && self.schedule.finished()
            && self.running_since_us.is_some()
        {
            self.quiet = Some(Quiet { since_us: now_us, best: self.progress.best() });
        }
        match settled(&self.progress, &self.plan, self.quiet, now_us) {
            Some(settled) => self.end(settled),
            None => Ok(()),
        }
    }

    fn end(&mut self, settled: Settled) -> Result<(), RunError> {
        let event = Event::Settled { converged: settled.converged, why: settled.why.clone() };
        self.write(None, self.now_us(), event)?;
        self.deciding = false;
        if let Some(over) = self.over.take() {
            // The experiment may have ended by a signal at the same moment; then nobody listens.
            let _ = over.send(settled);
        }
        Ok(())
    }

    fn first_starts(&mut self, now_us: u64) -> Result<(), RunError> {
        let best = self.progress.best();
        let running_ms = self.running_since_us.map(|since| now_us.saturating_sub(since) / 1000);
        let (due, waiting): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.unstarted).into_iter().partition(|(_, at)| match at {
                StartAt::Run => true,
                StartAt::AfterMs(ms) => running_ms.is_some_and(|now| now >= *ms),
                StartAt::Height(height) => best >= *height,
            });
        self.unstarted = waiting;
        for (node, _) in due {
            self.feed(Input::Starting { node: node.clone() })?;
            self.order(&node, Order::Start { fault: None })?;
        }
        Ok(())
    }

    /// Milliseconds since the first validators answered: the schedule's clock.
    fn running_ms(&self) -> u64 {
        self.running_since_us.map_or(0, |since| self.now_us().saturating_sub(since) / 1000)
    }

    fn feed(&mut self, input: Input) -> Result<(), RunError> {
        for command in self.schedule.on(self.running_ms(), input) {
            self.carry_out(command)?;
        }
        Ok(())
    }

    fn carry_out(&mut self, command: Command) -> Result<(), RunError> {
        match command {
            Command::Arm { fault, node, address, action, why } => {
                self.triggered(&node, &fault, why)?;
                self.order(&node, Order::Arm(Arm { fault, address, action }))
            }
            Command::Disarm { fault, node } => self.order(&node, Order::Disarm(fault)),
            Command::Signal { fault, node, signal, why } => {
                if signal != Signal::Resume {
                    self.triggered(&node, &fault, why)?;
                }
                self.order(&node, Order::Signal { signal, fault })
            }
            Command::Finish { fault, node } => self.order(&node, Order::Finish { fault }),
            Command::Start { fault, node } => self.order(&node, Order::Start { fault: Some(fault) }),
            Command::Miss { fault, node, why } => {
                self.write(Some(node), self.now_us(), Event::FaultMissed { fault, why })
            }
            Command::Lost { fault, node, why } => {
                // The fault landed; that its node stays away is the judge's to find, from the exits and the silence.
                let what = format!("it did not come back after fault {}: {why}", fault.name);
                self.write(Some(node), self.now_us(), Event::Notice { what })
            }
        }
    }

    fn triggered(&mut self, node: &str, fault: &FaultId, why: String) -> Result<(), RunError> {
        self.write(Some(node.to_owned()), self.now_us(), Event::FaultTriggered { fault: fault.clone(), why })
    }

    fn order(&mut self, node: &str, order: Order) -> Result<(), RunError> {
        if self.orders.get(node).is_some_and(|unit| unit.try_send(order).is_ok()) {
            return Ok(());
        }
        // A unit that has ended said why itself; one that is full has stopped taking orders.
        let what = format!("the unit of `{node}` takes no orders any more");
        self.write(Some(node.to_owned()), self.now_us(), Event::ToolError { what })
    }
}

/// The first of the addresses that were seen; the record before has them all.
fn listed(seen: &[String]) -> String {
    let more = seen.len().saturating_sub(LISTED_MAX);
    match (seen.is_empty(), more) {
        (true, _) => "no flush".to_owned(),
        (false, 0) => seen.join("; "),
        (false, more) => format!("{}; and {more} more", seen[..LISTED_MAX].join("; ")),
    }
}

/// What an event means to the fault schedule.
fn inputs(node: Option<&str>, event: &Event) -> Vec<Input> {
    let Some(node) = node.map(str::to_owned) else { return Vec::new() };
    match event {
        Event::Node(NodeEvent::Started { .. }) => vec![Input::Running { node }],
        Event::Node(NodeEvent::Landed { fault, .. }) => vec![Input::Landed { fault: fault.clone() }],
        Event::Node(NodeEvent::NotLanded { fault, seen, nearest }) => {
            let nearest = nearest.as_ref().map_or_else(String::new, |n| format!("the nearest address is {n}; "));
            vec![Input::NotLanded { fault: fault.clone(), seen: format!("{nearest}seen: {}", listed(seen)) }]
        }
        Event::Node(NodeEvent::Exited { .. }) => vec![Input::Exited { node }],
        Event::Status(status) => vec![Input::Height(status.height)],
        _ => Vec::new(),
    }
}

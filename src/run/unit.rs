//! One node, owned by one task: it alone talks to the agent about starting, stopping and arming, and turns what the
//! agent says into records. With an application beside the node it talks to both agents, and the records are of one node.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::beside::{self, Beside, End, Heard, Part, Then, or_over};
use super::dispatcher::{Told, Witness};
use super::experiment::Ends;
use super::left::{OffLine, keep_log, off_line};
use super::testnet::archive_files;
use crate::agent_client::protocol::{AgentRecord, Arm, Signal, SignalRequest, StartRequest};
use crate::agent_client::{Client, ClientError};
use crate::chain::{Chain, NodeFiles};
use crate::engine::{Build, Engine};
use crate::plan::{NodePlan, Plan};
use crate::results::RunFolder;
use crate::timeline::{Event, Exit, ExitCause, FaultId, FaultSetup, Latency, Layout, Mode, NodeEvent, Tier};

/// Orders that may wait for one unit.
pub(super) const ORDERS: usize = 64;

/// Largest captured output of one start, in bytes.
const OUTPUT_MAX: u64 = 16 << 20;

/// Starts tried after a node ended by itself, before it is given up.
const TRIES_AGAIN: u32 = 2;

/// Pause before such a start.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// How long a lost event stream is sought again before the agent counts as gone.
const STREAM_RETRIES: u32 = 3;

/// What the dispatcher wants of a unit.
#[derive(Debug)]
pub(super) enum Order {
    /// Start the node; with a fault, the start gives the node back.
    Start { fault: Option<FaultId> },
    /// Hold this fault's address, from the next start on if the node is down.
    Arm(Arm),
    /// Take it back.
    Disarm(FaultId),
    /// Send a signal for a fault.
    Signal { signal: Signal, fault: FaultId },
    /// Kill the node for a fault, unless it has just ended by itself.
    Finish { fault: FaultId },
}

/// Why a unit stopped following its agent.
enum Ended {
    /// The experiment wants it.
    Asked,
    /// The agent closed its stream.
    Stream,
}

/// A node after an upgrade.
#[derive(Clone, Debug)]
pub(super) struct Upgraded {
    pub(super) build: Build,
    pub(super) files: NodeFiles,
    pub(super) layout: Layout,
}

/// What a unit needs.
pub(super) struct UnitParts {
    pub(super) plan: Arc<Plan>,
    pub(super) node: NodePlan,
    pub(super) chain: Arc<dyn Chain>,
    pub(super) engine: Arc<dyn Engine>,
    /// Run id, for the engine.
    pub(super) run: String,
    pub(super) client: Arc<Client>,
    pub(super) application: Option<Beside>,
    pub(super) files: NodeFiles,
    /// By the fault whose end is the first start from the other build.
    pub(super) upgrades: BTreeMap<FaultId, Upgraded>,
    pub(super) layout: Layout,
    pub(super) tier: Tier,
    pub(super) rpc: String,
    pub(super) folder: Arc<RunFolder>,
    pub(super) witness: Witness,
    /// Added to the agent's clock to get microseconds since the run began.
    pub(super) clock_offset_us: i64,
    /// Tells the sampler which start is alive.
    pub(super) running: watch::Sender<Option<u32>>,
}

/// The task's state.
pub(super) struct Unit {
    parts: UnitParts,
    armed: BTreeMap<FaultId, Arm>,
    /// The start that is due, and the fault that it ends.
    due: Option<(Instant, Option<FaultId>)>,
    /// The fault whose end the next `Started` is.
    gives_back: Option<FaultId>,
    tries_left: u32,
    height: u64,
    last_seq: u64,
    /// The same of the application's agent.
    application_seq: u64,
    /// The start under way, the application's own number of it, and the node's mode in it.
    start: u32,
    application_start: u32,
    mode: Mode,
    /// The ends of the two processes of this start, where there are two.
    process_ends: beside::Ends,
    /// The agent is another one since its events were last followed.
    new_agent: bool,
    /// The run is over; the node is not started again.
    ending: bool,
}

impl Unit {
    pub(super) fn new(parts: UnitParts, height: u64) -> Self {
        Self {
            parts,
            armed: BTreeMap::new(),
            due: None,
            gives_back: None,
            tries_left: TRIES_AGAIN,
            height,
            last_seq: 0,
            application_seq: 0,
            start: 0,
            application_start: 0,
            mode: Mode::Consensus,
            process_ends: beside::Ends::default(),
            new_agent: false,
            ending: false,
        }
    }

    /// Runs until `ends`: at the first end the node is told to end and its files are read, at the second it is left as it is.
    pub(super) async fn run(mut self, mut orders: mpsc::Receiver<Order>, ends: Ends) {
        let mut lost = 0;
        while !ends.all.is_cancelled() {
            match self.follow(&mut orders, &ends).await {
                Ok(Ended::Asked) => return,
                Ok(Ended::Stream) if lost < STREAM_RETRIES => lost += 1,
                Ok(Ended::Stream) => return self.lost("its event stream ended").await,
                Err(error) if lost < STREAM_RETRIES => {
                    lost += 1;
                    tracing::debug!(node = %self.parts.node.name, %error, "the agent's event stream was lost");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
                Err(error) => return self.lost(&error.to_string()).await,
            }
        }
    }

    async fn lost(&self, reason: &str) {
        let what = format!("the agent of `{}` is gone, and its node with it: {reason}", self.name());
        self.tell(Event::ToolError { what }).await;
        self.parts.witness.send(Told::Gone { node: self.name().to_owned() }).await;
    }

    fn name(&self) -> &str {
        &self.parts.node.name
    }

    async fn tell(&self, event: Event) {
        self.parts.witness.tell(self.name(), event).await;
    }

    async fn follow(&mut self, orders: &mut mpsc::Receiver<Order>, ends: &Ends) -> Result<Ended, ClientError> {
        let mut events = self.parts.client.events(self.last_seq).await?;
        let mut applications = beside::events(self.parts.application.as_ref(), self.application_seq).await?;
        loop {
            if std::mem::take(&mut self.new_agent) {
                events = self.parts.client.events(self.last_seq).await?;
            }
            if self.ending && self.parts.running.borrow().is_none() {
                return Ok(Ended::Asked);
            }
            let due = self.due.as_ref().map(|(at, _)| *at);
            let kill_due = self.process_ends.kill_due;
            tokio::select! {
                biased;
                () = ends.all.cancelled() => return Ok(Ended::Asked),
                () = ends.nodes.cancelled(), if !self.ending => self.end().await?,
                record = events.next() => match record {
                    Some(record) => self.heard(record?).await,
                    None => return Ok(Ended::Stream),
                },
                record = beside::next(&mut applications) => match record {
                    Some(record) => self.heard_application(record?).await,
                    None => return Ok(Ended::Stream),
                },
                order = orders.recv() => match order {
                    Some(order) => self.obey(order).await,
                    None => return Ok(Ended::Asked),
                },
                () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => self.start().await,
                () = tokio::time::sleep_until(kill_due.unwrap_or_else(Instant::now)), if kill_due.is_some() => {
                    self.process_ends.kill_due = None;
                    if let Some(left) = self.process_ends.half() {
                        self.signal_part(left, Signal::Kill).await?;
                    }
                }
            }
        }
    }

    /// Tells the node to end; the loop goes on until its exit and files are in the timeline.
    async fn end(&mut self) -> Result<(), ClientError> {
        self.ending = true;
        self.due = None;
        // Where one of two processes is over, the other is being ended.
        if self.parts.running.borrow().is_none() || self.process_ends.half().is_some() {
            return Ok(());
        }
        self.parts.client.signal(&SignalRequest { signal: Signal::Terminate, fault: None }).await
    }

    async fn obey(&mut self, order: Order) {
        let done = match order {
            Order::Start { .. } if self.ending => Ok(()),
            Order::Start { fault } => {
                self.due = Some((Instant::now(), fault));
                self.tries_left = TRIES_AGAIN;
                Ok(())
            }
            Order::Arm(arm) => {
                self.armed.insert(arm.fault.clone(), arm.clone());
                let running = self.parts.running.borrow().is_some();
                // One that has just ended takes the fault along at its next start.
                if running { or_over(self.aimed_at(&arm).arm(&arm).await) } else { Ok(()) }
            }
            Order::Disarm(fault) => {
                let was = self.armed.remove(&fault);
                let running = self.parts.running.borrow().is_some();
                match was.filter(|_| running) {
                    Some(arm) => self.aimed_at(&arm).disarm(&fault).await,
                    None => Ok(()),
                }
            }
            Order::Signal { signal, fault } => self.signal(signal, fault).await,
            // Of one that does not run any more the exit is on the way.
            Order::Finish { fault } => or_over(self.signal(Signal::Kill, fault).await),
        };
        if let Err(error) = done {
            self.tell(Event::ToolError { what: format!("the agent of `{}` refused: {error}", self.name()) }).await;
        }
    }

    async fn signal(&mut self, signal: Signal, fault: FaultId) -> Result<(), ClientError> {
        self.parts.client.signal(&SignalRequest { signal, fault: Some(fault.clone()) }).await?;
        // SIGTERM is the node's alone: it ends while it still has its application, which follows.
        if let Some(application) = self.parts.application.as_ref().filter(|_| signal != Signal::Terminate) {
            application.signal(signal, Some(fault.clone())).await?;
        }
        match signal {
            Signal::Pause => {
                let evidence = "SIGSTOP delivered to every process of the node".to_owned();
                self.tell(Event::FaultApplied { fault, evidence }).await;
            }
            Signal::Resume => {
                let evidence = "SIGCONT delivered to every process of the node".to_owned();
                self.tell(Event::FaultReverted { fault, evidence }).await;
            }
            // The exit is the evidence; it comes with the event stream.
            Signal::Kill | Signal::Terminate => {}
        }
        Ok(())
    }

    async fn start(&mut self) {
        let Some((_, fault)) = self.due.take() else { return };
        if let Some(upgraded) = fault.as_ref().and_then(|fault| self.parts.upgrades.remove(fault))
            && let Err(what) = self.upgrade(upgraded).await
        {
            self.tell(Event::ToolError { what: format!("`{}` could not be upgraded: {what}", self.name()) }).await;
        }
        self.gives_back = fault;
        if let Err(error) = self.start_processes().await {
            let what = format!("`{}` could not be started: {error}", self.name());
            self.tell(Event::ToolError { what }).await;
            self.parts.witness.send(Told::Gone { node: self.name().to_owned() }).await;
        }
    }

    async fn start_processes(&mut self) -> Result<(), ClientError> {
        let parts = &self.parts;
        let node = self.request(&parts.files, &parts.layout, parts.tier);
        if let Some(application) = &parts.application {
            // Its count of blocks begins anew: where its writes show a height, the first one is taken.
            let request = StartRequest {
                height: 0,
                rpc: None,
                ..self.request(&application.files, &application.layout, application.tier)
            };
            application.start(&request).await?;
        }
        self.start = parts.client.start(&StartRequest { rpc: Some(parts.rpc.clone()), ..node }).await?.start;
        Ok(())
    }

    fn request(&self, files: &NodeFiles, layout: &Layout, tier: Tier) -> StartRequest {
        let arms = self.armed.values().filter(|arm| layout.stores.iter().any(|store| store.name == arm.address.store));
        StartRequest {
            command: files.command.clone(),
            env: files.env.clone(),
            input: String::new(),
            tier,
            layout: layout.clone(),
            sync_latency: latencies(&self.parts.node, layout),
            seed: self.parts.plan.seed,
            height: self.height,
            rpc: None,
            arms: arms.cloned().collect(),
            output_max: OUTPUT_MAX,
        }
    }

    /// The agent of the process whose store a fault is aimed at.
    fn aimed_at(&self, arm: &Arm) -> &Client {
        let application = self.parts.application.as_ref().filter(|own| own.holds(&arm.address.store));
        application.map_or(&self.parts.client, |application| &application.client)
    }

    /// The other build's command from now on, and its configuration. Keys, genesis and what the node has written stay.
    async fn upgrade(&mut self, upgraded: Upgraded) -> Result<(), String> {
        let Unit { parts, .. } = &self;
        let changed = parts.engine.change_build(&parts.run, &parts.node.name, &upgraded.build).await;
        if changed.map_err(|error| format!("failed to {error}"))? {
            (self.last_seq, self.new_agent) = (0, true);
        }
        let mut files = upgraded.files.files.clone();
        files.retain(|path, _| path.starts_with("config/") && path.ends_with(".toml"));
        let archive = archive_files(&files).map_err(|e| e.to_string())?;
        self.parts.client.put_files(archive).await.map_err(|e| e.to_string())?;
        (self.parts.files, self.parts.layout) = (upgraded.files, upgraded.layout);
        Ok(())
    }

    async fn heard(&mut self, record: AgentRecord) {
        self.last_seq = record.seq;
        let at_us = u64::try_from(i64::try_from(record.clock_us).unwrap_or(i64::MAX) + self.parts.clock_offset_us);
        match record.event {
            NodeEvent::Exited { exit, cause, tail, .. } if self.parts.application.is_some() => {
                let end = End { part: Part::Node, clock_us: record.clock_us, exit, cause, tail };
                self.one_ended(end, at_us.ok()).await;
            }
            event => self.saw(event, at_us.ok()).await,
        }
    }

    /// What the application's agent says, as something about the node.
    async fn heard_application(&mut self, record: AgentRecord) {
        self.application_seq = record.seq;
        let offset = self.parts.application.as_ref().map_or(0, |application| application.clock_offset_us);
        let at_us = u64::try_from(i64::try_from(record.clock_us).unwrap_or(i64::MAX) + offset).ok();
        match Heard::of(record, self.start, self.mode) {
            Heard::Started(start) => self.application_start = start,
            Heard::Ended(end) => self.one_ended(end, at_us).await,
            Heard::OfNode(event) => self.saw(event, at_us).await,
            Heard::Nothing => {}
        }
    }

    /// One of two processes is over: the other is ended, and when both are, so is the node.
    async fn one_ended(&mut self, end: End, at_us: Option<u64>) {
        match self.process_ends.take(end) {
            Then::EndOther(left, signal) => {
                if let Err(error) = self.signal_part(left, signal).await {
                    let what = format!("the agent of `{}` refused: {error}", self.name());
                    self.tell(Event::ToolError { what }).await;
                }
            }
            Then::Over(end) => self.saw(end.event(self.start), at_us).await,
        }
    }

    async fn signal_part(&self, part: Part, signal: Signal) -> Result<(), ClientError> {
        match (part, &self.parts.application) {
            (Part::Application, Some(application)) => application.signal(signal, None).await,
            _ => or_over(self.parts.client.signal(&SignalRequest { signal, fault: None }).await),
        }
    }

    /// Tells an event of the logical node and does what follows from it.
    async fn saw(&mut self, event: NodeEvent, at_us: Option<u64>) {
        let node = Some(self.name().to_owned());
        self.parts.witness.send(Told::Seen { node, at_us, event: Box::new(Event::Node(event.clone())) }).await;
        match event {
            NodeEvent::ModeChanged { mode, .. } => self.mode = mode,
            NodeEvent::Started { start, pid, .. } => {
                let _ = self.parts.running.send(Some(start));
                if let Some(fault) = self.gives_back.take() {
                    let evidence = format!("start {start}, process {pid}");
                    self.tell(Event::FaultReverted { fault, evidence }).await;
                }
            }
            NodeEvent::Landed { fault, .. } => {
                self.armed.remove(&fault);
                self.process_ends.landed(fault);
            }
            NodeEvent::NotLanded { fault, .. } => drop(self.armed.remove(&fault)),
            NodeEvent::Handshake { heights, .. } => self.height = heights.store.unwrap_or(self.height),
            NodeEvent::Tally(tally) => self.height = self.height.max(tally.height),
            NodeEvent::Exited { start, exit, cause, .. } => self.ended(start, exit, cause).await,
            _ => {}
        }
    }

    async fn ended(&mut self, start: u32, exit: Exit, cause: ExitCause) {
        let _ = self.parts.running.send(None);
        self.keep_log(start).await;
        self.look_into_files(start).await;
        match cause {
            ExitCause::Fault(fault) => {
                let evidence = match exit {
                    Exit::Signal(signal) => format!("start {start} ended by signal {signal}"),
                    Exit::Code(code) => format!("start {start} ended with exit code {code}"),
                };
                self.tell(Event::FaultApplied { fault, evidence }).await;
            }
            ExitCause::Asked => {}
            ExitCause::Own => self.ended_by_itself(exit).await,
        }
    }

    /// Tells what the node's files hold while it is down, where the family can read them.
    async fn look_into_files(&mut self, start: u32) {
        match off_line(&self.parts).await {
            Ok(OffLine { heights, signed }) => {
                if let Some(heights) = heights {
                    self.height = heights.store.unwrap_or(self.height);
                    self.tell(Event::Stored { after_start: start, heights }).await;
                }
                if let Some(last) = signed {
                    self.tell(Event::Signed { after_start: start, last }).await;
                }
            }
            Err(what) => {
                let what = format!("the files of `{}` could not be read while it was down: {what}", self.name());
                self.tell(Event::ToolError { what }).await;
            }
        }
    }

    /// A node that ended by itself is started again as an operator's supervisor would, a bounded number of times.
    async fn ended_by_itself(&mut self, exit: Exit) {
        if self.parts.plan.expect.halt_height.is_some() && exit == Exit::Code(0) {
            return;
        }
        if self.ending {
            return;
        }
        if self.tries_left > 0 {
            self.tries_left -= 1;
            self.due = Some((Instant::now() + TRY_AGAIN_AFTER, None));
        } else {
            self.parts.witness.send(Told::Gone { node: self.name().to_owned() }).await;
        }
    }

    async fn keep_log(&self, start: u32) {
        let Unit { parts, application_start, .. } = self;
        let beside = parts.application.as_ref().map(|own| (&own.name, &own.client, *application_start));
        for (name, client, start) in [Some((&parts.node.name, &parts.client, start)), beside].into_iter().flatten() {
            if let Err(what) = keep_log(client, &parts.folder, name, start).await {
                parts.witness.tell(self.name(), Event::Notice { what }).await;
            }
        }
    }
}

/// Latency by store: `*` stands for every store that is not named.
fn latencies(node: &NodePlan, layout: &Layout) -> BTreeMap<String, Latency> {
    let any = node.sync_latency.get("*");
    layout
        .stores
        .iter()
        .filter_map(|store| {
            let own = node.sync_latency.get(&store.name).or(any)?;
            Some((store.name.clone(), own.clone()))
        })
        .collect()
}

/// What the topology asks for, else the weakest interception that the plan needs at this node: a node whose writes are
/// not aimed at is not slowed down by watching them.
pub(super) fn tier(plan: &Plan, node: &NodePlan, part: Part, can_intercept: bool) -> Tier {
    let at = |fault: &FaultSetup| if plan.aims_at_application(fault) { Part::Application } else { Part::Node };
    let mut faults = plan.faults.iter().map(|fault| &fault.setup).filter(|fault| fault.node == node.name);
    let aimed = faults.any(|fault| fault.asked.is_some() && at(fault) == part);
    match (node.watch, aimed, can_intercept) {
        (Some(tier), ..) => tier,
        (None, true, _) => Tier::Record,
        (None, false, true) => Tier::Observe,
        (None, false, false) => Tier::None,
    }
}

//! One node, owned by one task: it alone talks to the agent about starting, stopping and arming, and turns what the
//! agent says into records.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{mpsc, watch};
use tokio::time::Instant;

use super::dispatcher::{Told, Witness};
use super::experiment::Ends;
use super::testnet::archive_files;
use crate::agent_client::protocol::{AgentRecord, Arm, Signal, SignalRequest, StartRequest};
use crate::agent_client::{Client, ClientError};
use crate::chain::{Chain, NodeFiles};
use crate::engine::{Build, Engine};
use crate::plan::{NodePlan, Plan};
use crate::results::RunFolder;
use crate::timeline::{Event, Exit, ExitCause, FaultId, Heights, LastSigned, Latency, Layout, NodeEvent, Role, Tier};

/// Orders that may wait for one unit.
pub(super) const ORDERS: usize = 64;

/// Largest captured output of one start, in bytes.
const OUTPUT_MAX: u64 = 16 << 20;

/// Starts tried after a node ended by itself, before it is given up.
const TRIES_AGAIN: u32 = 2;

/// Pause before such a start.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// With this the agent refuses what needs a node that runs.
const CONFLICT: u16 = 409;

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
        loop {
            if std::mem::take(&mut self.new_agent) {
                events = self.parts.client.events(self.last_seq).await?;
            }
            if self.ending && self.parts.running.borrow().is_none() {
                return Ok(Ended::Asked);
            }
            let due = self.due.as_ref().map(|(at, _)| *at);
            tokio::select! {
                biased;
                () = ends.all.cancelled() => return Ok(Ended::Asked),
                () = ends.nodes.cancelled(), if !self.ending => self.end().await?,
                record = events.next() => match record {
                    Some(record) => self.heard(record?).await,
                    None => return Ok(Ended::Stream),
                },
                order = orders.recv() => match order {
                    Some(order) => self.obey(order).await,
                    None => return Ok(Ended::Asked),
                },
                () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => self.start().await,
            }
        }
    }

    /// Tells the node to end; the loop goes on until its exit and files are in the timeline.
    async fn end(&mut self) -> Result<(), ClientError> {
        self.ending = true;
        self.due = None;
        if self.parts.running.borrow().is_none() {
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
                match if running { self.parts.client.arm(&arm).await } else { Ok(()) } {
                    // It has just ended; the next start takes the fault along.
                    Err(error) if error.refused_with() == Some(CONFLICT) => Ok(()),
                    done => done,
                }
            }
            Order::Disarm(fault) => {
                let was = self.armed.remove(&fault).is_some();
                let running = self.parts.running.borrow().is_some();
                if was && running { self.parts.client.disarm(&fault).await } else { Ok(()) }
            }
            Order::Signal { signal, fault } => self.signal(signal, fault).await,
            Order::Finish { fault } => match self.signal(Signal::Kill, fault).await {
                // It does not run any more; its exit is on the way.
                Err(error) if error.refused_with() == Some(CONFLICT) => Ok(()),
                done => done,
            },
        };
        if let Err(error) = done {
            self.tell(Event::ToolError { what: format!("the agent of `{}` refused: {error}", self.name()) }).await;
        }
    }

    async fn signal(&mut self, signal: Signal, fault: FaultId) -> Result<(), ClientError> {
        self.parts.client.signal(&SignalRequest { signal, fault: Some(fault.clone()) }).await?;
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
        let parts = &self.parts;
        let request = StartRequest {
            command: parts.files.command.clone(),
            env: parts.files.env.clone(),
            input: String::new(),
            tier: parts.tier,
            layout: parts.layout.clone(),
            sync_latency: latencies(&parts.node, &parts.layout),
            seed: parts.plan.seed,
            height: self.height,
            rpc: Some(parts.rpc.clone()),
            arms: self.armed.values().cloned().collect(),
            output_max: OUTPUT_MAX,
        };
        if let Err(error) = parts.client.start(&request).await {
            let what = format!("`{}` could not be started: {error}", self.name());
            self.tell(Event::ToolError { what }).await;
            self.parts.witness.send(Told::Gone { node: self.name().to_owned() }).await;
        }
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
        let event = record.event;
        let node = Some(self.name().to_owned());
        self.parts
            .witness
            .send(Told::Seen { node, at_us: at_us.ok(), event: Box::new(Event::Node(event.clone())) })
            .await;
        match event {
            NodeEvent::Started { start, pid, .. } => {
                let _ = self.parts.running.send(Some(start));
                if let Some(fault) = self.gives_back.take() {
                    let evidence = format!("start {start}, process {pid}");
                    self.tell(Event::FaultReverted { fault, evidence }).await;
                }
            }
            NodeEvent::Landed { fault, .. } | NodeEvent::NotLanded { fault, .. } => {
                self.armed.remove(&fault);
            }
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
        if let Err(what) = keep_log(&self.parts.client, &self.parts.folder, self.name(), start).await {
            self.parts.witness.tell(self.name(), Event::Notice { what }).await;
        }
    }
}

/// Copies the captured output of one start into the run folder. What cannot be had is left out and said: the exit's last
/// lines are in the timeline anyway.
pub(super) async fn keep_log(client: &Client, folder: &RunFolder, node: &str, start: u32) -> Result<(), String> {
    let bytes = client.log(start).await.map_err(|e| format!("the log of start {start} could not be fetched: {e}"))?;
    folder.write_log(node, start, &bytes).map_err(|e| format!("the log of start {start} is lost: failed to {e}"))
}

/// What a node's files hold while it is down, as far as its family can read them.
#[derive(Debug, Default)]
struct OffLine {
    heights: Option<Heights>,
    signed: Option<LastSigned>,
}

/// Reads a copy of the node's files.
async fn off_line(parts: &UnitParts) -> Result<OffLine, String> {
    let stored = parts.chain.stored_paths();
    let signed = (parts.node.role == Role::Validator).then(|| parts.chain.signed_path().to_owned());
    let paths: Vec<String> = stored.iter().chain(&signed).cloned().collect();
    if paths.is_empty() {
        return Ok(OffLine::default());
    }
    let archive = parts.client.export(&paths).await.map_err(|e| e.to_string())?;
    let chain = Arc::clone(&parts.chain);
    let read = move || {
        let copy = tempfile::tempdir().map_err(|e| e.to_string())?;
        tar::Archive::new(archive.as_ref()).unpack(copy.path()).map_err(|e| with_cause(&e))?;
        let heights = (!stored.is_empty()).then(|| chain.stored_heights(copy.path())).transpose();
        let heights = heights.map_err(|e| e.to_string())?;
        Ok(OffLine { heights, signed: signed.map(|_| chain.last_signed(copy.path())) })
    };
    tokio::task::spawn_blocking(read).await.map_err(|e| e.to_string())?
}

/// The text of an error with its first cause, which that of an archive leaves out.
fn with_cause(error: &dyn std::error::Error) -> String {
    match std::iter::successors(error.source(), |cause| cause.source()).last() {
        Some(first) => format!("{error}: {first}"),
        None => error.to_string(),
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
pub(super) fn tier(plan: &Plan, node: &NodePlan, can_intercept: bool) -> Tier {
    let aimed = plan.faults.iter().any(|f| f.setup.node == node.name && f.setup.asked.is_some());
    match (node.watch, aimed, can_intercept) {
        (Some(tier), ..) => tier,
        (None, true, _) => Tier::Record,
        (None, false, true) => Tier::Observe,
        (None, false, false) => Tier::None,
    }
}

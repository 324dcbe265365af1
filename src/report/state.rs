//! What is known of a run after each record: the reducer that the live lines and the page share.
//!
//! It only gathers what was seen. Whether a fault is proven, and the verdict, are the judge's.

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::timeline::{
    Event, Exit, ExitCause, FaultId, FaultSetup, Heights, Landed, Mode, NodeEvent, NodeSetup, Record, Role, RunStarted,
    Setup, Status, Tier,
};

/// A run as far as its records tell.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LiveState {
    /// Sequence number that the next record will have.
    pub next_seq: u64,
    /// Time of the last record, in microseconds since the run began.
    pub at_us: u64,
    /// How far the run has come.
    pub phase: RunPhase,
    /// Facts about the run.
    pub started: Option<RunStarted>,
    /// Node family.
    pub family: String,
    /// Blocks that existed before any node started.
    pub built_blocks: u64,
    /// The nodes in plan order.
    pub nodes: IndexMap<String, NodeState>,
    /// The faults in plan order.
    pub faults: Vec<FaultState>,
    /// Transactions, cumulative.
    pub load: Option<Load>,
    /// What the tool itself failed at.
    pub tool_errors: Vec<String>,
}

/// How far a run has come.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunPhase {
    /// Building, launching: no node runs yet.
    #[default]
    Preparing,
    /// Nodes run.
    Running,
    /// The settling phase is over.
    Settled {
        /// Whether every node reached the common target.
        converged: bool,
        /// In words.
        why: String,
    },
    /// The user stopped it.
    Interrupted,
    /// Its time limit ran out.
    TimeLimit,
    /// It is over.
    Ended,
}

/// Transactions, cumulative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Load {
    /// Offered to nodes.
    pub submitted: u64,
    /// Accepted by a node's check.
    pub accepted: u64,
    /// Refused by all that answered.
    pub failed: u64,
}

/// One node as last seen.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodeState {
    /// Its role.
    pub role: Role,
    /// Voting power.
    pub power: u64,
    /// Storage discipline.
    pub storage: Option<String>,
    /// Where it lives, for people.
    pub place: String,
    /// What it is doing.
    pub doing: Doing,
    /// The mode that it told last, in this start.
    pub mode: Option<Mode>,
    /// Which start it is in, or was in last; 0 before the first.
    pub start: u32,
    /// How much is intercepted.
    pub tier: Option<Tier>,
    /// Latest height that it reported or flushed.
    pub height: Option<u64>,
    /// Connected peers.
    pub peers: Option<u32>,
    /// Latest app hash that it reported.
    pub app_hash: String,
    /// The last time its three heights were known, off-line or from its handshake line.
    pub heights: Option<Heights>,
    /// How its last process ended.
    pub last_exit: Option<Exit>,
    /// Why its RPC does not answer; `None` while it does.
    pub rpc_silent: Option<String>,
    /// Lines of known trouble: class and line, the first few.
    pub troubles: Vec<(String, String)>,
    /// What its agent cannot see.
    pub holes: Vec<(String, String)>,
}

/// What a node is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Doing {
    /// It has not been started yet.
    Waiting,
    /// Its process runs and has not told its mode.
    Starting,
    /// It makes, fetches or replays blocks.
    Working(Mode),
    /// It is stopped by a signal, and its process exists.
    Paused,
    /// It has no process, since this time in microseconds.
    Down(u64),
}

impl Doing {
    /// For people, in one or two words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Starting => "starting",
            Self::Working(Mode::Consensus) => "consensus",
            Self::Working(Mode::BlockSync) => "block sync",
            Self::Working(Mode::Replay) => "replay",
            Self::Paused => "paused",
            Self::Down(_) => "down",
        }
    }
}

/// One fault as far as it has come.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FaultState {
    /// What was planned.
    pub setup: FaultSetup,
    /// How far it has come.
    pub stage: FaultStage,
    /// When it landed or was applied, in microseconds since the run began.
    pub hit_at_us: Option<u64>,
    /// Where an aimed one landed.
    pub landed: Option<Landed>,
    /// The node's height at that time: where the fault is drawn.
    pub height: Option<u64>,
    /// How the node's process ended.
    pub exit: Option<Exit>,
    /// The heights that it left behind.
    pub after: Option<Heights>,
    /// How long the node was down or paused, in microseconds.
    pub down_us: Option<u64>,
    /// Why it missed, or what was seen to change.
    pub note: Option<String>,
    /// Start that the fault ended, to find the heights read afterwards.
    ended_start: Option<u32>,
    /// When the node's process was gone or paused.
    down_at_us: Option<u64>,
}

/// How far a fault has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultStage {
    /// Its trigger has not fired.
    Waiting,
    /// Its trigger fired.
    Triggered,
    /// The agent waits for its address.
    Armed,
    /// It was done.
    Landed,
    /// The node is left alone again.
    Over,
    /// It can no longer land.
    Missed,
}

impl FaultStage {
    /// For people, in one word.
    pub fn words(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Triggered => "triggered",
            Self::Armed => "armed",
            Self::Landed => "landed",
            Self::Over => "over",
            Self::Missed => "missed",
        }
    }
}

/// Most lines of trouble kept for one node.
const TROUBLES_MAX: usize = 20;
/// Linux numbers of the two signals that pause and resume.
const SIGSTOP: i32 = 19;
const SIGCONT: i32 = 18;

impl LiveState {
    /// Everything that the records tell.
    pub fn of<'a>(records: impl IntoIterator<Item = &'a Record>) -> Self {
        let mut state = Self::default();
        for record in records {
            state.apply(record);
        }
        state
    }

    /// Takes one record in, which must be the next of its timeline.
    pub fn apply(&mut self, record: &Record) {
        self.next_seq = record.seq + 1;
        self.at_us = record.at_us;
        match &record.event {
            Event::RunStarted(started) => self.started = Some(started.clone()),
            Event::Setup(setup) => self.set_up(setup),
            Event::FaultTriggered { fault, .. } => self.fault(fault, |f| f.stage = f.stage.max(FaultStage::Triggered)),
            Event::FaultApplied { fault, evidence } => self.applied(record.at_us, fault, evidence),
            Event::FaultReverted { fault, .. } => self.reverted(record.at_us, fault),
            Event::FaultMissed { fault, why } => self.fault(fault, |f| {
                f.stage = FaultStage::Missed;
                f.note = Some(why.clone());
            }),
            Event::Load { submitted, accepted, failed } => {
                self.load = Some(Load { submitted: *submitted, accepted: *accepted, failed: *failed });
            }
            Event::Settled { converged, why } => {
                self.phase = RunPhase::Settled { converged: *converged, why: why.clone() };
            }
            Event::ToolError { what } => self.tool_errors.push(what.clone()),
            Event::Interrupted => self.phase = RunPhase::Interrupted,
            Event::TimeLimit => self.phase = RunPhase::TimeLimit,
            Event::RunEnded => {
                if !matches!(self.phase, RunPhase::Interrupted | RunPhase::TimeLimit) {
                    self.phase = RunPhase::Ended;
                }
            }
            Event::Notice { .. } => {}
            Event::Bound { .. }
            | Event::Node(_)
            | Event::Status(_)
            | Event::RpcSilent { .. }
            | Event::Stored { .. }
            | Event::Signed { .. }
            | Event::Published { .. }
            | Event::AppHeight { .. }
            | Event::SignsAs { .. }
            | Event::Commit(_)
            | Event::Evidence(_)
            | Event::Hashes(_) => self.about_node(record),
        }
    }

    fn set_up(&mut self, setup: &Setup) {
        self.family.clone_from(&setup.family);
        self.built_blocks = setup.built_blocks;
        self.nodes = setup.nodes.iter().map(|n| (n.name.clone(), NodeState::planned(n))).collect();
        self.faults = setup.faults.iter().cloned().map(FaultState::planned).collect();
    }

    fn fault(&mut self, id: &FaultId, change: impl FnOnce(&mut FaultState)) {
        if let Some(fault) = self.faults.iter_mut().find(|f| f.setup.id == *id) {
            change(fault);
        }
    }

    fn applied(&mut self, at_us: u64, id: &FaultId, evidence: &str) {
        let nodes = &self.nodes;
        if let Some(fault) = self.faults.iter_mut().find(|f| f.setup.id == *id) {
            fault.stage = FaultStage::Landed;
            fault.note = Some(evidence.to_owned());
            if fault.hit_at_us.is_none() {
                fault.hit_at_us = Some(at_us);
                fault.height = nodes.get(&fault.setup.node).and_then(|n| n.height);
            }
            fault.down_at_us = fault.down_at_us.or(Some(at_us));
        }
    }

    fn reverted(&mut self, at_us: u64, id: &FaultId) {
        self.fault(id, |f| {
            f.stage = FaultStage::Over;
            f.down_us = f.down_us.or_else(|| Some(at_us.saturating_sub(f.down_at_us?)));
        });
    }

    fn about_node(&mut self, record: &Record) {
        let Some(name) = record.node.as_deref() else { return };
        if let (Some(node), true) = (self.nodes.get_mut(name), is_sign_of_life(&record.event)) {
            node.rpc_silent = None;
        }
        match &record.event {
            Event::Node(event) => self.node_event(record.at_us, name, event),
            Event::Stored { after_start, heights } => self.stored(name, *after_start, *heights),
            other => {
                if let Some(node) = self.nodes.get_mut(name) {
                    node.seen(other);
                }
            }
        }
    }

    fn stored(&mut self, name: &str, after_start: u32, heights: Heights) {
        if let Some(node) = self.nodes.get_mut(name) {
            node.heights = Some(heights);
        }
        for fault in self.faults.iter_mut().filter(|f| f.setup.node == name) {
            if fault.ended_start == Some(after_start) {
                fault.after = Some(heights);
            }
        }
    }

    fn node_event(&mut self, at_us: u64, name: &str, event: &NodeEvent) {
        if let Some(node) = self.nodes.get_mut(name) {
            node.agent_saw(at_us, event);
        }
        match event {
            NodeEvent::Started { start, .. } => {
                self.phase_running();
                self.node_is_back(at_us, name, *start);
            }
            NodeEvent::Armed { fault } => self.fault(fault, |f| f.stage = f.stage.max(FaultStage::Armed)),
            NodeEvent::Landed { fault, start, landed, .. } => self.fault(fault, |f| {
                f.stage = FaultStage::Landed;
                f.hit_at_us = Some(at_us);
                f.height = Some(landed.height);
                f.landed = Some(landed.clone());
                f.ended_start = Some(*start);
            }),
            NodeEvent::Exited { start, exit, cause: ExitCause::Fault(fault), .. } => self.fault(fault, |f| {
                f.exit = Some(*exit);
                f.ended_start = Some(*start);
                f.down_at_us = Some(at_us);
            }),
            NodeEvent::NotLanded { fault, nearest, .. } => self.fault(fault, |f| {
                if f.note.is_none() {
                    f.note = nearest.as_ref().map(|address| format!("nearest address: {address}"));
                }
            }),
            NodeEvent::Handshake { start, heights, .. } => {
                for fault in self.faults.iter_mut().filter(|f| f.setup.node == name) {
                    if fault.ended_start.map(|s| s + 1) == Some(*start) && fault.after.is_none() {
                        fault.after = Some(*heights);
                    }
                }
            }
            _ => {}
        }
    }

    fn phase_running(&mut self) {
        if self.phase == RunPhase::Preparing {
            self.phase = RunPhase::Running;
        }
    }

    /// The time that a fault kept its node down ends with the next start.
    fn node_is_back(&mut self, at_us: u64, name: &str, start: u32) {
        for fault in self.faults.iter_mut().filter(|f| f.setup.node == name) {
            if fault.ended_start.map(|s| s + 1) == Some(start) {
                fault.down_us = fault.down_at_us.map(|down| at_us.saturating_sub(down));
            }
        }
    }

    /// The greatest height that any node has reported.
    pub fn best_height(&self) -> Option<u64> {
        self.nodes.values().filter_map(|n| n.height).max()
    }

    /// Whether no further record can change what is known.
    pub fn is_over(&self) -> bool {
        matches!(self.phase, RunPhase::Ended | RunPhase::Interrupted | RunPhase::TimeLimit)
    }
}

fn is_sign_of_life(event: &Event) -> bool {
    matches!(event, Event::Status(_) | Event::Hashes(_))
}

impl NodeState {
    fn planned(setup: &NodeSetup) -> Self {
        Self {
            role: setup.role,
            power: setup.power,
            storage: setup.storage.clone(),
            place: String::new(),
            doing: Doing::Waiting,
            mode: None,
            start: 0,
            tier: None,
            height: None,
            peers: None,
            app_hash: String::new(),
            heights: None,
            last_exit: None,
            rpc_silent: None,
            troubles: Vec::new(),
            holes: Vec::new(),
        }
    }

    fn seen(&mut self, event: &Event) {
        match event {
            Event::Bound { place, .. } => self.place.clone_from(place),
            Event::Status(Status { height, peers, app_hash, .. }) => {
                self.height = Some(*height);
                self.peers = peers.or(self.peers);
                self.app_hash.clone_from(app_hash);
            }
            Event::RpcSilent { reason } => self.rpc_silent = Some(reason.clone()),
            _ => {}
        }
    }

    fn works_in(&mut self, mode: Mode) {
        self.mode = Some(mode);
        self.doing = Doing::Working(mode);
    }

    fn agent_saw(&mut self, at_us: u64, event: &NodeEvent) {
        match event {
            NodeEvent::Started { start, tier, .. } => {
                self.start = *start;
                self.tier = Some(*tier);
                self.doing = Doing::Starting;
                self.mode = None;
            }
            NodeEvent::Exited { exit, .. } => {
                self.last_exit = Some(*exit);
                self.doing = Doing::Down(at_us);
                self.peers = None;
            }
            NodeEvent::ModeChanged { mode, .. } => self.works_in(*mode),
            NodeEvent::Handshake { heights, .. } => self.heights = Some(*heights),
            NodeEvent::Trouble { class, line, .. } if self.troubles.len() < TROUBLES_MAX => {
                self.troubles.push((class.clone(), line.clone()));
            }
            NodeEvent::CoverageHole { hole, detail } if self.holes.iter().all(|(h, _)| h != hole) => {
                self.holes.push((hole.clone(), detail.clone()));
            }
            NodeEvent::Tally(tally) => {
                if let (Some(mode), Doing::Starting) = (tally.mode, self.doing) {
                    self.works_in(mode);
                }
            }
            NodeEvent::Signalled { signal, .. } => match (*signal, self.doing) {
                (SIGSTOP, Doing::Starting | Doing::Working(_)) => self.doing = Doing::Paused,
                (SIGCONT, Doing::Paused) => self.doing = self.mode.map_or(Doing::Starting, Doing::Working),
                _ => {}
            },
            _ => {}
        }
    }
}

impl FaultState {
    fn planned(setup: FaultSetup) -> Self {
        Self {
            setup,
            stage: FaultStage::Waiting,
            hit_at_us: None,
            landed: None,
            height: None,
            exit: None,
            after: None,
            down_us: None,
            note: None,
            ended_start: None,
            down_at_us: None,
        }
    }
}

#[cfg(test)]
mod tests;

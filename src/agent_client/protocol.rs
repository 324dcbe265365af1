//! What controller and agent say to each other: JSON over HTTP/1.1 on one byte stream, a bearer token in every request.
//!
//! | request | body → answer |
//! |---|---|
//! | `GET /v1/hello` | → [`Hello`] |
//! | `PUT /v1/files` | tar, unpacked below the node's home → nothing |
//! | `GET /v1/files?path=P&path=Q` | → tar of these paths below home; a missing one is left out |
//! | `POST /v1/clone` | [`CloneRequest`] → nothing |
//! | `POST /v1/restore` | [`RestoreRequest`] → nothing |
//! | `POST /v1/start` | [`StartRequest`] → [`Started`] |
//! | `POST /v1/signal` | [`SignalRequest`] → nothing; the event stream has the proof |
//! | `POST /v1/arm` | [`Arm`] → nothing |
//! | `DELETE /v1/arm` | [`Disarm`] → nothing; a `NotLanded` event follows unless it landed |
//! | `GET /v1/events?after=N` | → NDJSON of [`AgentRecord`], as they happen, kept from the first on |
//! | `GET /v1/log?start=N` | → text, the captured output of a start |
//! | `ANY /v1/rpc/{path}?query` | relayed to the node's RPC address given at start |
//! | `GET /v1/follow/{path}?query` | the same for an answer without an end, passed on as it comes |
//! | `GET /v1/scrape?at=HOST:PORT` | the node's metrics, as text, from where it serves them |
//! | `GET /v1/listens?at=IP:PORT` | → whether something accepts there; 409 once the node does not run |
//! | `POST /v1/pin` | [`PinRequest`] → nothing; holds for later starts |
//! | `GET /v1/usage` | → [`Usage`] of the running node |
//! | `POST /v1/probe` | → [`Probe`], made while the node is down |

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::timeline::{Address, Errno, FaultId, Latency, Layout, NodeEvent, Tier};

/// Marks an answer as the node's own. Without it, the agent could not reach the node's RPC.
pub const RELAYED: &str = "x-midflush-relayed";

/// Body of every answer that is not a success.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Refusal {
    /// Why, in words.
    pub error: String,
}

/// What an agent is and what its machine can do, asked before the run starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Hello {
    /// Version of midflush; must equal the controller's.
    pub version: String,
    /// Identity of the clock: changes with each boot of the machine.
    pub boot_id: String,
    /// The agent's monotonic clock now, in microseconds.
    pub clock_us: u64,
    /// User id that agent and node run as.
    pub uid: u32,
    /// Kernel release.
    pub kernel: String,
    /// What interception can do here; found by trying, not by version.
    pub interception: Interception,
}

/// Result of the agent's self-check.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interception {
    /// Why no filter can be installed; `None` when it can.
    pub refused: Option<String>,
    /// `SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV` is there.
    pub wait_killable: bool,
}

/// Copies a folder of the agent's machine to a path below the node's home, by reflink where possible.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CloneRequest {
    /// Absolute path.
    pub from: String,
    /// Path below home; must not exist.
    pub to: String,
}

/// Replaces a path below home by a copy that was exported before.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RestoreRequest {
    /// Path below home.
    pub from: String,
    /// Path below home that is replaced.
    pub to: String,
}

/// Starts the node's process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StartRequest {
    /// Program and arguments; relative paths are below the node's home.
    pub command: Vec<String>,
    /// Environment, complete: nothing of the agent's own is passed on.
    pub env: BTreeMap<String, String>,
    /// What it reads from standard input; empty for a node.
    #[serde(default)]
    pub input: String,
    /// How much to intercept.
    pub tier: Tier,
    /// The node's stores, relative to home.
    pub layout: Layout,
    /// Injected sync latency by store.
    pub sync_latency: BTreeMap<String, Latency>,
    /// Seed for drawing latencies.
    pub seed: u64,
    /// The height on disk before this start, from which flushes are counted.
    pub height: u64,
    /// `host:port` that `/v1/rpc` relays to.
    pub rpc: Option<String>,
    /// Faults to wait for from the first instruction on.
    pub arms: Vec<Arm>,
    /// Largest size of the captured output in bytes; later output is dropped and said to be.
    pub output_max: u64,
}

/// Answer to [`StartRequest`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Started {
    /// Which start this is, from 1.
    pub start: u32,
    /// Process id as the agent sees it.
    pub pid: u32,
}

/// Keeps the agent, and every node that it starts afterwards, on some processors.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PinRequest {
    /// Their numbers.
    pub cpus: Vec<u32>,
}

/// What a node has used since its start.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Which start.
    pub start: u32,
    /// The agent's monotonic clock, in microseconds.
    pub clock_us: u64,
    /// The height that its syncs so far belong to, as far as syncs tell it.
    pub height: u64,
    /// Time on processors, of all its threads, in microseconds; to a hundredth of a second.
    pub cpu_us: u64,
    /// store → its syncs.
    pub counts: BTreeMap<String, u64>,
    /// store → how long those syncs took that the agent made itself (all of a store with a latency, a sample of any other),
    /// microseconds and count, ascending; to one percent.
    pub syncs: BTreeMap<String, Vec<(u64, u64)>>,
}

/// Real syncs of the disk below the node's home.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Probe {
    /// File system type: `ext4`, `tmpfs`, or a number where it has no name here.
    pub filesystem: String,
    /// How long each took, in microseconds, ascending.
    pub syncs_us: Vec<u64>,
}

/// A fault to deliver at an address.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Arm {
    /// The fault.
    pub fault: FaultId,
    /// Where.
    pub address: Address,
    /// What.
    pub action: ArmAction,
}

/// What to do at an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ArmAction {
    /// SIGKILL while the event is held.
    Kill,
    /// SIGTERM while the event is held, which is then released.
    Stop,
    /// The call is not made and returns this. What the node does then is its own affair.
    Fail(Errno),
}

/// Takes an armed fault back.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Disarm {
    /// The fault.
    pub fault: FaultId,
}

/// Sends a signal to the node.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SignalRequest {
    /// What to send.
    pub signal: Signal,
    /// The fault that this belongs to; `None` is the controller's own wish.
    pub fault: Option<FaultId>,
}

/// Signals that the agent sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Signal {
    /// SIGKILL.
    Kill,
    /// SIGTERM.
    Terminate,
    /// SIGSTOP.
    Pause,
    /// SIGCONT.
    Resume,
}

/// One event as the agent tells it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct AgentRecord {
    /// Position in this agent's stream, from 1.
    pub seq: u64,
    /// The agent's monotonic clock, in microseconds.
    pub clock_us: u64,
    /// What happened.
    pub event: NodeEvent,
}

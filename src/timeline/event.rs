//! The events of a run, as they are written, one JSON object a line, and read back by judge, report and page.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use super::{Address, CommitVotes, DoubleVote, ExpectedVerdict, Heights, Landed, LastSigned, Layout, Mode, Tally};

/// Version of the format. A reader refuses a newer one.
pub const VERSION: u32 = 1;

/// One line of the timeline.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Record {
    /// Position in the timeline, from 0, without gaps.
    pub seq: u64,
    /// Microseconds since the run began, on the controller's monotonic clock.
    pub at_us: u64,
    /// The node it is about, if it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// What happened.
    pub event: Event,
}

/// What happened, as the controller saw or did it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Event {
    /// First record of every timeline.
    RunStarted(RunStarted),
    /// What is known before any node runs; the judge needs nothing else about the topology.
    Setup(Box<Setup>),
    /// Where a node lives, once the engine chose.
    Bound {
        /// Engine-specific place, for people: an address, a container name.
        place: String,
        /// RPC address that works from the controller's machine, if there is one.
        rpc: Option<String>,
    },
    /// Something that the agent beside the node saw or did.
    Node(NodeEvent),
    /// One look at a node's RPC.
    Status(Status),
    /// The node's RPC did not answer; written once a silence, not once a try.
    RpcSilent {
        /// Why, in the client's words.
        reason: String,
    },
    /// Something that people who watch the run want to know and that proves nothing: what is waited for, what was given up.
    Notice {
        /// In words.
        what: String,
    },
    /// The three heights read from the node's files while it is down.
    Stored {
        /// The start that ended before this look (1 is the first).
        after_start: u32,
        /// What the files hold.
        heights: Heights,
    },
    /// The last thing that the node signed, read from its files while it is down.
    Signed {
        /// The start that ended before this look (1 is the first).
        after_start: u32,
        /// What the file holds.
        last: LastSigned,
    },
    /// Events of consecutive blocks came on the node's event stream, in this order and each once.
    Published {
        /// The start that published them.
        start: u32,
        /// Which connection of this start to the stream, from 1. Between two connections events may be missed.
        stream: u32,
        /// First height.
        first: u64,
        /// Last height.
        last: u64,
    },
    /// The application's height, as its own interface tells it.
    AppHeight {
        /// Height of its last block.
        height: u64,
    },
    /// Block ids and app hashes of consecutive heights, as this node serves them.
    Hashes(Hashes),
    /// The address under which the node signs, as its RPC tells it; written when it is first seen and when it changes.
    SignsAs {
        /// In lower case.
        address: String,
    },
    /// The commit that this node has of a height; read at the end, of the first heights at which nodes have different blocks.
    Commit(CommitVotes),
    /// Evidence in a block of this node that a validator voted twice; read at the end, from the first blocks that hold any.
    Evidence(DoubleVote),
    /// A fault's trigger fired.
    FaultTriggered {
        /// The fault, by name and occurrence.
        fault: FaultId,
        /// What made it fire, in words.
        why: String,
    },
    /// The action has been done by something else than an aimed kill (pause, stop, restart, plain kill).
    FaultApplied {
        /// The fault.
        fault: FaultId,
        /// Evidence: what was seen to change.
        evidence: String,
    },
    /// The node is back to being left alone: started again, resumed.
    FaultReverted {
        /// The fault.
        fault: FaultId,
        /// Evidence: what was seen to change.
        evidence: String,
    },
    /// The fault can no longer land.
    FaultMissed {
        /// The fault.
        fault: FaultId,
        /// What was seen instead, and the nearest address that exists.
        why: String,
    },
    /// Transactions, cumulative.
    Load {
        /// Answered by a node.
        submitted: u64,
        /// Accepted by a node's check.
        accepted: u64,
        /// Refused by all that answered.
        failed: u64,
    },
    /// All expectations of the settling phase hold, or its time is over.
    Settled {
        /// Whether every node reached the common target.
        converged: bool,
        /// In words.
        why: String,
    },
    /// The tool itself failed; never a fault of a node.
    ToolError {
        /// What failed, and what to do.
        what: String,
    },
    /// The user stopped the run.
    Interrupted,
    /// `--time-limit` ran out.
    TimeLimit,
    /// Last record of a timeline that was ended in order.
    RunEnded,
}

/// Facts about the run that never change.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RunStarted {
    /// Timeline format version.
    pub version: u32,
    /// Run id.
    pub run: String,
    /// Topology name.
    pub topology: String,
    /// Seed of the plan.
    pub seed: u64,
    /// Engine name.
    pub engine: String,
    /// Version of midflush.
    pub midflush: String,
    /// Kernel release.
    pub kernel: String,
    /// CPUs the controller may use.
    pub cpus: u32,
    /// Wall clock at the start, RFC 3339.
    pub started: String,
    /// The command that runs it again.
    pub again: String,
    /// SHA-256 of the image or binary by build name.
    pub builds: BTreeMap<String, String>,
}

/// The plan, as far as a verdict depends on it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Setup {
    /// Node family, such as `reference` or `cometbft`.
    pub family: String,
    /// Chain id.
    pub chain_id: String,
    /// First height of the chain.
    pub initial_height: u64,
    /// Blocks that exist before any node starts.
    pub built_blocks: u64,
    /// 1 where header H carries the app hash after H−1 (CometBFT, tm2), 0 where after H (Tenderdash).
    pub app_hash_offset: u64,
    /// Whether transactions are sent.
    pub load: bool,
    /// The nodes in plan order.
    pub nodes: Vec<NodeSetup>,
    /// The faults in plan order, one entry an occurrence.
    pub faults: Vec<FaultSetup>,
    /// What the user expects.
    pub expect: Expect,
}

/// One planned node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeSetup {
    /// Name, such as `val-1`.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// Voting power; 0 for a full node.
    pub power: u64,
    /// Group that it came from.
    pub group: String,
    /// Storage discipline, where the family has them.
    pub storage: Option<String>,
    /// What is known about its stores.
    pub layout: Layout,
}

/// What a node is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Votes.
    Validator,
    /// Follows.
    Full,
}

/// One occurrence of a fault.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultId {
    /// The fault's name in the topology.
    pub name: String,
    /// Which occurrence, from 1.
    pub occurrence: u32,
}

/// What is done to a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FaultKind {
    /// SIGKILL.
    Kill,
    /// SIGTERM; at an address the event is released after the signal.
    Stop,
    /// SIGSTOP, later SIGCONT.
    Pause,
    /// SIGTERM, wait for the exit, start again.
    Restart,
    /// The same, and it starts again from another build.
    Upgrade,
    /// A call fails at an address. A node that lives on is killed later.
    Fail,
}

/// What a failed call returns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Errno {
    /// The device failed.
    #[serde(rename = "EIO")]
    Io,
    /// The disk is full.
    #[serde(rename = "ENOSPC")]
    NoSpace,
}

impl Errno {
    /// The number that the kernel gives it.
    pub fn number(self) -> i32 {
        match self {
            Self::Io => 5,
            Self::NoSpace => 28,
        }
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Io => "EIO",
            Self::NoSpace => "ENOSPC",
        })
    }
}

/// One planned fault.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FaultSetup {
    /// Name and occurrence.
    pub id: FaultId,
    /// What is done.
    pub kind: FaultKind,
    /// To which node.
    pub node: String,
    /// Where in a flush, for an aimed fault.
    pub asked: Option<Address>,
    /// What the call returns, for [`FaultKind::Fail`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub errno: Option<Errno>,
    /// The trigger in words, for every fault.
    pub when: String,
}

/// What must hold at the end. Absent means not asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Expect {
    /// Every node at the common height within this time after the last fault, in milliseconds.
    pub converge_within_ms: Option<u64>,
    /// The chain stops at this height, on every node.
    pub halt_height: Option<u64>,
    /// Median syncs a block: node or group name → mode → store → count.
    #[serde(default)]
    pub syncs_per_block: BTreeMap<String, BTreeMap<Mode, BTreeMap<String, u64>>>,
    /// The finding that has to come out, and no other.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<ExpectedVerdict>,
}

/// What an agent saw or did. `start` counts the node's process starts from 1.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeEvent {
    /// The node's process exists.
    Started {
        /// Which start.
        start: u32,
        /// Process id as the agent sees it.
        pid: u32,
        /// How much is intercepted.
        tier: Tier,
    },
    /// The node's process is gone and reaped.
    Exited {
        /// Which start.
        start: u32,
        /// The wait status.
        exit: Exit,
        /// Who wanted it.
        cause: ExitCause,
        /// The last lines of its output, at most 50.
        tail: Vec<String>,
    },
    /// The agent holds a fault's address and waits for it.
    Armed {
        /// The fault.
        fault: FaultId,
    },
    /// The address was met: everything else was held, what was in flight has ended, the signal is delivered. Or the call
    /// there was made to fail, and nothing was held.
    Landed {
        /// The fault.
        fault: FaultId,
        /// Which start.
        start: u32,
        /// Where.
        landed: Landed,
        /// How long the event was held, in microseconds.
        held_us: u64,
    },
    /// An armed fault was taken back or its process ended before it landed.
    NotLanded {
        /// The fault.
        fault: FaultId,
        /// Addresses of the last flush seen, ready to paste.
        seen: Vec<String>,
        /// The nearest address that exists.
        nearest: Option<String>,
    },
    /// The node changed its mode.
    ModeChanged {
        /// Which start.
        start: u32,
        /// The mode from here on.
        mode: Mode,
    },
    /// The node's own handshake line.
    Handshake {
        /// Which start.
        start: u32,
        /// The heights in it.
        heights: Heights,
        /// The line, without colour codes.
        line: String,
    },
    /// A line with a known trouble.
    Trouble {
        /// Which start.
        start: u32,
        /// Its class.
        class: String,
        /// The line, without colour codes.
        line: String,
    },
    /// Flushes and syncs since the last tally, at most once a second.
    Tally(Tally),
    /// Something that the agent cannot see or do for this node.
    CoverageHole {
        /// Short name: `io_uring`, `shared_map`, `listener_refused`, `foreign_user`, `no_wait_killable`, `height_drift`.
        hole: String,
        /// In words, with the mend if there is one.
        detail: String,
    },
    /// The agent sent this signal on request.
    Signalled {
        /// Which start.
        start: u32,
        /// Signal number.
        signal: i32,
    },
}

/// How much is intercepted. Rates of different tiers are never compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// No filter.
    None,
    /// Syncs, renames, synced opens.
    Observe,
    /// Also writes, creates, unlinks, truncations.
    Record,
}

/// How a process ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Exit {
    /// Exit code.
    Code(i32),
    /// Signal number.
    Signal(i32),
}

/// Who wanted a process to end.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitCause {
    /// A fault.
    Fault(FaultId),
    /// The controller, at the end of the run or for a stop.
    Asked,
    /// Nobody: the node ended by itself.
    Own,
}

/// One look at a node's RPC.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Status {
    /// Latest height that the node reports.
    pub height: u64,
    /// Its own word for still catching up.
    pub catching_up: bool,
    /// Connected peers, where asked.
    pub peers: Option<u32>,
    /// Latest app hash as lower-case hex; empty where there is none.
    pub app_hash: String,
}

/// Consecutive heights of one node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hashes {
    /// Height of the first entry.
    pub first: u64,
    /// Block id hash and the app hash of that block's header, both lower-case hex, in height order.
    pub blocks: Vec<(String, String)>,
}

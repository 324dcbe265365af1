//! What the judge hands over: one object that serialises to what `--json` prints.

use serde::Serialize;

use super::{Finding, Note, Outcome, Verdict};
use crate::timeline::{Address, Exit, ExpectedVerdict, FaultKind, Heights, Landed, Role};

/// Version of the object that `--json` prints.
pub const JSON_VERSION: u32 = 1;

/// The judgement of a run.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Judgement {
    /// [`JSON_VERSION`].
    pub version: u32,
    /// Run id.
    pub run: String,
    /// Topology name.
    pub topology: String,
    /// Seed of the plan.
    pub seed: u64,
    /// Engine name.
    pub engine: String,
    /// The worst of the findings; `CONVERGED` without any.
    pub verdict: Verdict,
    /// One a cause, worst first.
    pub findings: Vec<Finding>,
    /// Warnings and observations that fail nothing.
    pub notes: Vec<Note>,
    /// One row an occurrence, in plan order.
    pub faults: Vec<FaultRow>,
    /// One row a node, in plan order.
    pub nodes: Vec<NodeRow>,
    /// Heights at which the hashes of at least two nodes were compared.
    pub heights_compared: u64,
    /// Different app hashes among them.
    pub distinct_app_hashes: u64,
    /// What the topology expects to come out, and whether it did.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<ExpectedRow>,
    /// Where the results lie; filled in by the command line.
    pub results: String,
    /// The user stopped the run.
    #[serde(skip)]
    pub interrupted: bool,
}

impl Judgement {
    /// Exit class.
    pub fn outcome(&self) -> Outcome {
        match &self.expected {
            _ if self.interrupted => Outcome::Interrupted,
            Some(expected) if expected.met => Outcome::Converged,
            _ => self.verdict.outcome(),
        }
    }
}

/// An expected finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct ExpectedRow {
    /// What had to come out.
    pub finding: ExpectedVerdict,
    /// Whether it came out, and nothing else.
    pub met: bool,
}

/// What became of one occurrence of a fault.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct FaultRow {
    /// The fault's name in the topology.
    pub name: String,
    /// Which occurrence, from 1.
    pub occurrence: u32,
    /// What was done.
    pub kind: FaultKind,
    /// To which node.
    pub node: String,
    /// The trigger in words.
    pub when: String,
    /// Where it was aimed, for an aimed fault.
    pub asked: Option<Address>,
    /// Where it landed, for an aimed fault.
    pub landed: Option<Landed>,
    /// What the address predicts for the three heights: exact, one of two, at most.
    pub predicted: Option<String>,
    /// The heights that it left behind: read off-line, else from the next handshake.
    pub after: Option<Heights>,
    /// Whether agent, wait status and heights all say that it landed as asked.
    pub proven: bool,
    /// What is missing for a proof.
    pub why_unproven: Option<String>,
    /// `signal 9`, `code 0`.
    pub exit: Option<String>,
    /// From the end of the process to its next start, or how long it was paused, in milliseconds.
    pub down_ms: Option<u64>,
    /// Blocks replayed into the application at the next start.
    pub replayed: Option<u64>,
    /// From the next start, or the end of the pause, until the node was in step with the rest, in milliseconds.
    pub caught_up_ms: Option<u64>,
    /// Timeline sequence numbers of trigger, landing, exit, heights and return.
    pub evidence: Vec<u64>,
}

/// Where one node ended up.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct NodeRow {
    /// Its name.
    pub name: String,
    /// Its role.
    pub role: Role,
    /// The worst finding about it; `CONVERGED` without any.
    pub verdict: Verdict,
    /// Last height seen.
    pub height: Option<u64>,
    /// Last app hash seen, lower-case hex.
    pub app_hash: Option<String>,
    /// Process starts.
    pub starts: u32,
    /// The last three heights known.
    pub heights: Heights,
}

/// `signal 9`, `code 0`.
pub(crate) fn exit_words(exit: Exit) -> String {
    match exit {
        Exit::Code(code) => format!("code {code}"),
        Exit::Signal(signal) => format!("signal {signal}"),
    }
}

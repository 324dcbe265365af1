//! The vocabulary: verdicts in order of severity, findings with what they carry, notes that fail nothing.

use serde::Serialize;

pub use crate::timeline::Verdict;

impl Verdict {
    /// Severity, 0 the worst. Being stuck, never catching up and a halted chain rank alike.
    pub fn rank(self) -> u8 {
        match self {
            Self::Forked => 0,
            Self::DoubleSign => 1,
            Self::Diverged => 2,
            Self::SignStateRegressed => 3,
            Self::HeightRegressed => 4,
            Self::PanicOnRestart => 5,
            Self::Stuck | Self::NeverCatchesUp | Self::ChainHalted => 6,
            Self::HaltMissed => 7,
            Self::EventBeforeDurable => 8,
            Self::StoreSplit => 9,
            Self::ExpectationFailed => 10,
            Self::ClockSuspect => 11,
            Self::ConfigError => 12,
            Self::ConvergedSlow => 13,
            Self::ToolError => 14,
            Self::Inconclusive => 15,
            Self::ConvergedUnproven => 16,
            Self::Converged => 17,
        }
    }

    /// Whether nodes contradict each other or themselves for good, which no failure of the tool can bring about.
    pub(crate) fn is_safety(self) -> bool {
        self.rank() <= Self::SignStateRegressed.rank()
    }

    /// The class that scripts branch on.
    pub fn outcome(self) -> Outcome {
        match self {
            Self::Converged => Outcome::Converged,
            Self::ToolError | Self::Inconclusive | Self::ConvergedUnproven => Outcome::Inconclusive,
            _ => Outcome::Finding,
        }
    }
}

/// Exit class of a judgement; `cli` maps it to an exit code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Every node came back and agrees: exit code 0.
    Converged,
    /// A finding about a node: 1.
    Finding,
    /// The tool failed, or nothing is proven: 3.
    Inconclusive,
    /// The user stopped the run: 130.
    Interrupted,
}

/// One cause of trouble.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Finding {
    /// What it is.
    pub verdict: Verdict,
    /// The node, or several joined by ", "; `None` where it is about the chain or nobody can be blamed.
    pub node: Option<String>,
    /// The height where it shows first.
    pub height: Option<u64>,
    /// What was seen, with the numbers that this verdict must carry.
    pub detail: String,
    /// One sentence: why this makes the verdict.
    pub why: String,
    /// What to look at next.
    pub next: String,
    /// Short class of the log signature or exit, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub class: Option<String>,
    /// The last lines of the node's output, at most 50, where no signature tells why it ended.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub last_lines: Vec<String>,
    /// Timeline sequence numbers that show it.
    pub evidence: Vec<u64>,
    /// What follows from the same cause.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub consequences: Vec<Consequence>,
    /// Nodes that it concerns although none of them can be blamed.
    #[serde(skip)]
    pub(crate) concerns: Vec<String>,
}

/// Something that follows from the cause of another finding.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Consequence {
    /// What it would be by itself.
    pub verdict: Verdict,
    /// The node.
    pub node: Option<String>,
    /// The height where it shows first.
    pub height: Option<u64>,
    /// What was seen.
    pub detail: String,
    /// Timeline sequence numbers that show it.
    pub evidence: Vec<u64>,
}

/// Something worth telling that fails nothing: a warning, an expected halt, the row of the restart table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Note {
    /// Short name, such as `restart`, `expected-halt`, `trouble`, `coverage`.
    pub kind: String,
    /// The node, if it is about one.
    pub node: Option<String>,
    /// The height, if it is about one.
    pub height: Option<u64>,
    /// In words.
    pub detail: String,
}

impl Finding {
    /// A finding with nothing but its verdict and what was seen.
    pub(crate) fn new(verdict: Verdict, detail: impl Into<String>) -> Self {
        Self {
            verdict,
            node: None,
            height: None,
            detail: detail.into(),
            why: String::new(),
            next: String::new(),
            class: None,
            last_lines: Vec::new(),
            evidence: Vec::new(),
            consequences: Vec::new(),
            concerns: Vec::new(),
        }
    }

    /// It concerns these nodes, of which none can be blamed.
    pub(crate) fn concerns(mut self, nodes: impl IntoIterator<Item = String>) -> Self {
        self.concerns.extend(nodes);
        self
    }

    /// About this node.
    pub(crate) fn node(mut self, node: impl Into<String>) -> Self {
        self.node = Some(node.into());
        self
    }

    /// At this height.
    pub(crate) fn height(mut self, height: impl Into<Option<u64>>) -> Self {
        self.height = height.into();
        self
    }

    /// Why this makes the verdict.
    pub(crate) fn why(mut self, why: impl Into<String>) -> Self {
        self.why = why.into();
        self
    }

    /// What to look at next.
    pub(crate) fn next(mut self, next: impl Into<String>) -> Self {
        self.next = next.into();
        self
    }

    /// Class of the signature.
    pub(crate) fn class(mut self, class: impl Into<String>) -> Self {
        self.class = Some(class.into());
        self
    }

    /// Records that show it.
    pub(crate) fn evidence(mut self, evidence: impl IntoIterator<Item = u64>) -> Self {
        self.evidence.extend(evidence);
        self.evidence.sort_unstable();
        self.evidence.dedup();
        self
    }

    /// The nodes that it names.
    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.node.as_deref().unwrap_or_default().split(", ").filter(|name| !name.is_empty())
    }
}

impl From<Finding> for Consequence {
    fn from(finding: Finding) -> Self {
        let Finding { verdict, node, height, detail, evidence, .. } = finding;
        Self { verdict, node, height, detail, evidence }
    }
}

impl Note {
    /// A note about a node.
    pub(crate) fn about(kind: &str, node: &str, detail: impl Into<String>) -> Self {
        Self { kind: kind.to_owned(), node: Some(node.to_owned()), height: None, detail: detail.into() }
    }

    /// A note about the run.
    pub(crate) fn run(kind: &str, detail: impl Into<String>) -> Self {
        Self { kind: kind.to_owned(), node: None, height: None, detail: detail.into() }
    }

    /// At this height.
    pub(crate) fn height(mut self, height: impl Into<Option<u64>>) -> Self {
        self.height = height.into();
        self
    }
}

//! Words that both sides of a judgement use: the verdicts, the one that a topology expects, and what a validator signed last.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::HeightRange;

/// What can be said about a run or a node. The judge ranks them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum Verdict {
    /// Different block hashes committed at one height.
    Forked,
    /// Two signatures of one validator for one height, round and type, with different block ids.
    DoubleSign,
    /// The same block, different app hashes.
    Diverged,
    /// The last signed height, round and step went back over a restart.
    SignStateRegressed,
    /// The height after a restart is below one that was acknowledged before.
    HeightRegressed,
    /// The node exits or crash-loops.
    PanicOnRestart,
    /// Alive, but the height is frozen or the gap does not shrink while the rest advances.
    Stuck,
    /// The height advances, but more slowly than that of the rest.
    NeverCatchesUp,
    /// No node advances although the voting power online would suffice.
    ChainHalted,
    /// A node went past its configured halt height.
    HaltMissed,
    /// A block's events were published before the block was durable, or twice.
    EventBeforeDurable,
    /// Parts of one node disagree about the height.
    StoreSplit,
    /// Something that the topology expects does not hold, such as the number of syncs a block.
    ExpectationFailed,
    /// Block times are not monotonic, or far from the orchestrator's clock.
    ClockSuspect,
    /// Chain id, genesis, keys or version differ where they must not.
    ConfigError,
    /// Agreed in the end, over the time budget, or with more than one process start after a fault.
    ConvergedSlow,
    /// The orchestrator failed; never reported as a failure of a node.
    ToolError,
    /// Not enough data.
    Inconclusive,
    /// Agreed, but the app hash never changed after the fault, so agreement proves nothing.
    ConvergedUnproven,
    /// Every node reached the common height and all comparable hashes agree.
    Converged,
}

impl Verdict {
    /// All of them, from worst to best.
    pub const ALL: [Self; 20] = [
        Self::Forked,
        Self::DoubleSign,
        Self::Diverged,
        Self::SignStateRegressed,
        Self::HeightRegressed,
        Self::PanicOnRestart,
        Self::Stuck,
        Self::NeverCatchesUp,
        Self::ChainHalted,
        Self::HaltMissed,
        Self::EventBeforeDurable,
        Self::StoreSplit,
        Self::ExpectationFailed,
        Self::ClockSuspect,
        Self::ConfigError,
        Self::ConvergedSlow,
        Self::ToolError,
        Self::Inconclusive,
        Self::ConvergedUnproven,
        Self::Converged,
    ];

    /// The verdict of this name, as it is printed.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|verdict| verdict.to_string() == name)
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.serialize(f)
    }
}

/// The finding that a topology expects to come out: a defect that is known has to be caught.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExpectedVerdict {
    /// What.
    pub kind: Verdict,
    /// About which node; absent is any, or the chain as a whole.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<String>,
    /// At which height; absent is any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub height: Option<HeightRange>,
}

impl fmt::Display for ExpectedVerdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.kind)?;
        if let Some(node) = &self.node {
            write!(f, " of {node}")?;
        }
        if let Some(height) = &self.height {
            write!(f, " at height {height}")?;
        }
        Ok(())
    }
}

/// What a validator signed last, as its own file says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LastSigned {
    /// There is no file: nothing was ever signed.
    Nothing,
    /// The place in the order of all that is ever signed.
    At(SignedAt),
    /// The file makes no sense, and why.
    Unreadable(String),
}

/// A place in the order of all that a validator ever signs; later ones are greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SignedAt {
    /// Height of the block.
    pub height: u64,
    /// Round, from 0.
    pub round: u64,
    /// 1 a proposal, 2 a prevote, 3 a precommit.
    pub step: u8,
}

impl fmt::Display for SignedAt {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.height, self.round, self.step)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_are_found_by_the_names_that_are_printed() {
        for verdict in Verdict::ALL {
            assert_eq!(Verdict::named(&verdict.to_string()), Some(verdict));
        }
        assert_eq!(Verdict::named("diverged"), None);
    }

    #[test]
    fn what_is_signed_is_ordered_by_height_then_round_then_step() {
        let at = |height, round, step| SignedAt { height, round, step };
        assert!(at(5, 0, 3) < at(5, 1, 1) && at(5, 9, 3) < at(6, 0, 1) && at(5, 1, 2) < at(5, 1, 3));
    }
}

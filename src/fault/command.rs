//! What the schedule is told, and what it answers.

use crate::agent_client::protocol::{ArmAction, Signal};
use crate::timeline::{Address, FaultId};

/// What was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Input {
    /// Time passed; nothing else.
    Tick,
    /// The best height of the chain. Lower values than before are ignored.
    Height(u64),
    /// The node's process is about to be started for the first time: the answer may hold
    /// [`Command::Arm`] for its start request.
    Starting {
        /// Which node.
        node: String,
    },
    /// The node runs for the first time, or again after it ended without a fault.
    Running {
        /// Which node.
        node: String,
    },
    /// The node's process is gone, for whatever reason.
    Exited {
        /// Which node.
        node: String,
    },
    /// The address was met and the signal delivered.
    Landed {
        /// The fault.
        fault: FaultId,
    },
    /// An armed fault was taken back, or its process ended before it landed.
    NotLanded {
        /// The fault.
        fault: FaultId,
        /// What the agent saw instead, with the nearest address that exists.
        seen: String,
    },
    /// After [`Command::Start`] or a resuming signal: the node runs and answers again.
    GivenBack {
        /// The fault.
        fault: FaultId,
    },
    /// Nothing that has not landed will be waited for any longer (time limit, interruption).
    GiveUp {
        /// Why, as in "the time limit ran out".
        why: String,
    },
}

/// What to do now.
#[derive(Clone, Debug, PartialEq)]
pub enum Command {
    /// Arm the fault on the node's agent; the trigger has fired.
    Arm {
        /// The fault.
        fault: FaultId,
        /// Which node.
        node: String,
        /// Where.
        address: Address,
        /// What.
        action: ArmAction,
        /// Why now, in words.
        why: String,
    },
    /// Take the armed fault back; [`Input::NotLanded`] or [`Input::Landed`] must follow.
    Disarm {
        /// The fault.
        fault: FaultId,
        /// Which node.
        node: String,
    },
    /// Send the signal. All but [`Signal::Resume`] mean that the trigger has fired.
    Signal {
        /// The fault.
        fault: FaultId,
        /// Which node.
        node: String,
        /// What to send.
        signal: Signal,
        /// Why now, in words.
        why: String,
    },
    /// Kill the node, which has lived on after a failed call; [`Input::Exited`] must follow.
    Finish {
        /// The fault.
        fault: FaultId,
        /// Which node.
        node: String,
    },
    /// Start the node again, now; [`Input::GivenBack`] or [`Input::Exited`] must follow.
    Start {
        /// The fault.
        fault: FaultId,
        /// Which node.
        node: String,
    },
    /// The fault can no longer land.
    Miss {
        /// The fault.
        fault: FaultId,
        /// Which node.
        node: String,
        /// What was seen instead.
        why: String,
    },
    /// The fault landed, and its node did not end, or did not come back, in time. Nothing more is done for it.
    Lost {
        /// The fault.
        fault: FaultId,
        /// Which node.
        node: String,
        /// What was waited for.
        why: String,
    },
}

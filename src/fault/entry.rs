//! One fault of the schedule: how far it has come, and each step it can take.

use super::command::Command;
use crate::agent_client::protocol::{ArmAction, Signal};
use crate::plan::{FaultPlan, Trigger};
use crate::timeline::{FaultId, FaultKind};

/// How long the agent may take to confirm that an armed fault was taken back, in milliseconds.
const TAKE_BACK_MS: u64 = 5_000;

/// How far one fault has come. Times are in milliseconds of the run.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum State {
    /// The trigger has not fired.
    Waiting,
    /// The trigger has fired; the node is not there, or held by another fault.
    Wanting { since: u64 },
    /// The agent waits for the address.
    Armed { since: u64 },
    /// Being taken back: for good with a reason, or to make room for another fault.
    TakingBack { until: u64, for_good: Option<String> },
    /// Landed, or the signal is sent; the exit has not been seen.
    Acting { since: u64 },
    /// A call has failed, and the node has not ended; it is killed then.
    Failed { until: u64 },
    /// Stopped by SIGSTOP.
    Paused { until: u64 },
    /// The process is gone.
    Down { until: u64 },
    /// Started again or resumed; not yet seen to answer.
    Returning { since: u64 },
    /// Over, well.
    Done { at: u64 },
    /// Never landed.
    Missed,
    /// Landed, and the node is lost.
    Lost,
}

impl State {
    /// Whether the node belongs to this fault.
    pub(super) fn holds_node(&self) -> bool {
        matches!(
            self,
            Self::Acting { .. }
                | Self::Failed { .. }
                | Self::Paused { .. }
                | Self::Down { .. }
                | Self::Returning { .. }
        )
    }

    pub(super) fn at_agent(&self) -> bool {
        matches!(self, Self::Armed { .. } | Self::TakingBack { .. })
    }

    pub(super) fn over(&self) -> bool {
        matches!(self, Self::Done { .. } | Self::Missed | Self::Lost)
    }
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) plan: FaultPlan,
    pub(super) state: State,
    /// Why the trigger fired.
    pub(super) why: String,
    /// When the chain came to the lowest height of the address.
    pub(super) reached: Option<u64>,
    /// Why the chain cannot come to the fault's height in time.
    pub(super) too_far: Option<String>,
}

impl Entry {
    pub(super) fn id(&self) -> FaultId {
        self.plan.setup.id.clone()
    }

    pub(super) fn node(&self) -> String {
        self.plan.setup.node.clone()
    }

    pub(super) fn aimed(&self) -> bool {
        self.plan.setup.asked.is_some()
    }

    /// Ends it without landing.
    pub(super) fn miss(&mut self, why: String, out: &mut Vec<Command>) {
        self.state = State::Missed;
        out.push(Command::Miss { fault: self.id(), node: self.node(), why });
    }

    /// Ends it after landing, without its node.
    pub(super) fn lose(&mut self, why: String, out: &mut Vec<Command>) {
        self.state = State::Lost;
        out.push(Command::Lost { fault: self.id(), node: self.node(), why });
    }

    /// Asks the agent to let go of the address.
    pub(super) fn take_back(&mut self, now: u64, for_good: Option<String>, out: &mut Vec<Command>) {
        self.state = State::TakingBack { until: now + TAKE_BACK_MS, for_good };
        out.push(Command::Disarm { fault: self.id(), node: self.node() });
    }

    /// Hands the address to the agent.
    pub(super) fn arm(&mut self, now: u64, out: &mut Vec<Command>) {
        let Some(address) = self.plan.setup.asked.clone() else { return };
        self.state = State::Armed { since: now };
        let action = match (self.plan.setup.kind, self.plan.setup.errno) {
            (FaultKind::Kill, _) => ArmAction::Kill,
            (FaultKind::Fail, Some(errno)) => ArmAction::Fail(errno),
            _ => ArmAction::Stop,
        };
        out.push(Command::Arm { fault: self.id(), node: self.node(), address, action, why: self.why.clone() });
    }

    /// What follows when the agent says that it landed.
    pub(super) fn landed(&mut self, now: u64) {
        self.state = match self.plan.lives_on_ms {
            Some(ms) => State::Failed { until: now + ms },
            None => State::Acting { since: now },
        };
    }

    /// Sends the signal of a fault that is not aimed.
    pub(super) fn act(&mut self, now: u64, out: &mut Vec<Command>) {
        let signal = match self.plan.setup.kind {
            FaultKind::Kill => Signal::Kill,
            FaultKind::Stop | FaultKind::Restart | FaultKind::Upgrade => Signal::Terminate,
            FaultKind::Pause => Signal::Pause,
            // A topology cannot ask for it without an address.
            FaultKind::Fail => return self.miss("it has no address".to_owned(), out),
        };
        self.state = if signal == Signal::Pause {
            State::Paused { until: now + self.plan.down_ms }
        } else {
            State::Acting { since: now }
        };
        out.push(Command::Signal { fault: self.id(), node: self.node(), signal, why: self.why.clone() });
    }

    /// What follows when the present state has lasted to its deadline.
    /// `height` is where the chain is, `heights_until` the time up to which heights are waited for.
    pub(super) fn expire(&mut self, now: u64, (height, heights_until): (u64, u64), out: &mut Vec<Command>) {
        let (fault, node, waited) = (self.id(), self.node(), seconds(self.plan.give_up_ms));
        match &self.state {
            State::Waiting => {
                if matches!(self.plan.trigger, Trigger::Height(_)) {
                    let why = match now >= heights_until {
                        true => format!("the chain came to height {height} within {}", seconds(now)),
                        false => format!("the chain stayed at height {height} for {waited}"),
                    };
                    self.miss(why, out);
                }
            }
            State::Wanting { .. } => self.miss(format!("{node} was not running for {waited}"), out),
            State::Armed { .. } => {
                let why = match self.reached {
                    None if now >= heights_until => {
                        format!("the chain came to height {height} within {}", seconds(now))
                    }
                    _ => format!("the address was not met within {waited}"),
                };
                self.take_back(now, Some(why), out);
            }
            State::TakingBack { for_good, .. } => {
                let first = for_good.clone().unwrap_or_else(|| "it had to make room for another fault".to_owned());
                self.miss(format!("{first}; the agent did not say what it saw"), out);
            }
            State::Acting { .. } => self.lose(format!("the node did not end within {waited} of the signal"), out),
            State::Returning { .. } => self.lose(format!("the node was not back within {waited}"), out),
            State::Paused { .. } => {
                self.state = State::Returning { since: now };
                let why = "the pause is over".to_owned();
                out.push(Command::Signal { fault, node, signal: Signal::Resume, why });
            }
            State::Failed { .. } => {
                self.state = State::Acting { since: now };
                out.push(Command::Finish { fault, node });
            }
            State::Down { .. } => {
                self.state = State::Returning { since: now };
                out.push(Command::Start { fault, node });
            }
            State::Done { .. } | State::Missed | State::Lost => {}
        }
    }

    /// Ends what has not landed when nothing is waited for any longer.
    pub(super) fn give_up(&mut self, now: u64, why: &str, out: &mut Vec<Command>) {
        match &mut self.state {
            State::Waiting | State::Wanting { .. } => self.miss(why.to_owned(), out),
            State::Armed { .. } => self.take_back(now, Some(why.to_owned()), out),
            State::TakingBack { for_good, .. } => {
                for_good.get_or_insert_with(|| why.to_owned());
            }
            _ => {}
        }
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum NodeState {
    #[default]
    NeverStarted,
    Running,
    Down,
}

/// Milliseconds as seconds for people.
pub(super) fn seconds(ms: u64) -> String {
    format!("{}.{} s", ms / 1000, ms % 1000 / 100)
}

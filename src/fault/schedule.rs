//! When each planned fault fires, what is armed on which node, and when a node is given back.
//!
//! Rules:
//!
//! * One fault at a time holds a node. Another one whose trigger fires meanwhile waits until the node is given back.
//! * Aimed faults of one node are armed one after another, in plan order, each when the node runs.
//! * A fault that is not aimed goes first: what is armed is taken back, and armed again afterwards.
//! * Every wait has an end: `give_up_ms` of the fault, counted from when it could land, and for a height the time that a run
//!   waits for one.

use std::collections::BTreeMap;
use std::time::Duration;

use super::command::{Command, Input};
use super::entry::{Entry, NodeState, State, seconds};
use crate::plan::{Plan, Trigger, reach};
use crate::timeline::FaultId;

/// The schedule of all faults of a plan.
#[derive(Clone, Debug)]
pub struct Schedule {
    entries: Vec<Entry>,
    nodes: BTreeMap<String, NodeState>,
    now: u64,
    height: u64,
    /// When `height` last grew.
    progress: u64,
    giving_up: Option<String>,
    /// When no height is waited for any longer.
    heights_until: u64,
}

impl Schedule {
    /// Nothing has been seen yet; time 0 is when the first validators answered. Heights are waited for until `heights_wait`
    /// after it; a fault at one that the chain cannot reach by then is missed as soon as the chain moves.
    pub fn new(plan: &Plan, heights_wait: Duration) -> Self {
        let entries = plan
            .faults
            .iter()
            .map(|fault| Entry {
                plan: fault.clone(),
                state: State::Waiting,
                why: String::new(),
                reached: None,
                too_far: reach::too_far(plan, fault, heights_wait),
            })
            .collect();
        let heights_until = u64::try_from(heights_wait.as_millis()).unwrap_or(u64::MAX);
        let nodes = plan.nodes.iter().map(|node| (node.name.clone(), NodeState::default())).collect();
        Self { entries, nodes, now: 0, height: 0, progress: 0, giving_up: None, heights_until }
    }

    /// Takes what was seen at `at_ms` and says what to do now, in order. Time never runs backwards: an earlier
    /// `at_ms` counts as the latest one. Inputs about unknown nodes or faults, or that no longer matter, change nothing.
    pub fn on(&mut self, at_ms: u64, input: Input) -> Vec<Command> {
        self.now = self.now.max(at_ms);
        let mut out = Vec::new();
        self.take(input, &mut out);
        self.fire();
        for index in 0..self.entries.len() {
            self.expire(index, &mut out);
        }
        let nodes: Vec<String> = self.nodes.keys().cloned().collect();
        for node in nodes {
            if self.nodes[&node] == NodeState::Running {
                self.serve(&node, &mut out);
            }
        }
        out
    }

    /// When [`Schedule::on`] must be called at the latest, in milliseconds, should nothing be seen before.
    pub fn wake_at(&self) -> Option<u64> {
        self.entries.iter().filter_map(|entry| self.deadline(entry)).min().map(|at| at.max(self.now + 1))
    }

    /// Whether every fault is over: landed and given back, missed, or lost.
    pub fn finished(&self) -> bool {
        self.entries.iter().all(|entry| entry.state.over())
    }

    /// Faults that are not over, in plan order.
    pub fn open(&self) -> Vec<FaultId> {
        self.entries.iter().filter(|entry| !entry.state.over()).map(Entry::id).collect()
    }

    /// The fault that holds the node at present, if one does: its exit or silence is no surprise.
    pub fn holder(&self, node: &str) -> Option<FaultId> {
        self.on_node(node).map(|index| &self.entries[index]).find(|entry| entry.state.holds_node()).map(Entry::id)
    }

    fn take(&mut self, input: Input, out: &mut Vec<Command>) {
        match input {
            Input::Tick => {}
            Input::Height(height) => self.take_height(height),
            Input::Starting { node } => {
                self.fire();
                self.serve(&node, out);
            }
            Input::Running { node } => self.set_node(&node, NodeState::Running),
            Input::Exited { node } => self.take_exit(&node, out),
            Input::Landed { fault } => {
                let now = self.now;
                if let Some(entry) = self.entry(&fault).filter(|entry| entry.state.at_agent()) {
                    entry.landed(now);
                }
            }
            Input::NotLanded { fault, seen } => self.take_not_landed(&fault, seen, out),
            Input::GivenBack { fault } => self.take_given_back(&fault),
            Input::GiveUp { why } => self.giving_up = Some(why),
        }
    }

    fn take_height(&mut self, height: u64) {
        if height <= self.height {
            return;
        }
        self.height = height;
        self.progress = self.now;
        for entry in &mut self.entries {
            let from = entry.plan.setup.asked.as_ref().map_or(0, |address| address.height.from);
            if entry.reached.is_none() && height >= from {
                entry.reached = Some(self.now);
            }
        }
    }

    fn take_exit(&mut self, node: &str, out: &mut Vec<Command>) {
        self.set_node(node, NodeState::Down);
        let now = self.now;
        for index in self.on_node(node).collect::<Vec<_>>() {
            let entry = &mut self.entries[index];
            match entry.state {
                State::Acting { .. } | State::Failed { .. } => {
                    entry.state = State::Down { until: now + entry.plan.down_ms }
                }
                State::Paused { .. } | State::Returning { .. } => {
                    entry.lose("the node ended before it was back".to_owned(), out);
                }
                // The agent's own word about an armed fault follows and decides.
                _ => {}
            }
        }
    }

    fn take_not_landed(&mut self, fault: &FaultId, seen: String, out: &mut Vec<Command>) {
        let now = self.now;
        let Some(entry) = self.entry(fault) else { return };
        match &entry.state {
            State::TakingBack { for_good: Some(why), .. } => {
                let why = format!("{why}; {seen}");
                entry.miss(why, out);
            }
            State::TakingBack { for_good: None, .. } => entry.state = State::Wanting { since: now },
            State::Armed { .. } => {
                // Nobody asked for it back, so its process ended; the exit may be told later.
                entry.state = State::Wanting { since: now };
                let node = entry.node();
                self.set_node(&node, NodeState::Down);
            }
            _ => {}
        }
    }

    fn take_given_back(&mut self, fault: &FaultId) {
        let now = self.now;
        let Some(entry) = self.entry(fault) else { return };
        if !matches!(entry.state, State::Returning { .. }) {
            return;
        }
        entry.state = State::Done { at: now };
        let node = entry.node();
        self.set_node(&node, NodeState::Running);
    }

    fn set_node(&mut self, node: &str, state: NodeState) {
        let Some(known) = self.nodes.get_mut(node) else { return };
        *known = state;
        self.count_anew(node);
    }

    /// The wait of faults that want this node begins again: it has changed hands.
    fn count_anew(&mut self, node: &str) {
        for index in self.on_node(node).collect::<Vec<_>>() {
            if let State::Wanting { since } = &mut self.entries[index].state {
                *since = self.now;
            }
        }
    }

    /// Fires every trigger whose time has come.
    fn fire(&mut self) {
        for index in 0..self.entries.len() {
            if self.entries[index].state == State::Waiting
                && let Some(why) = self.fired(&self.entries[index])
            {
                let now = self.now;
                let entry = &mut self.entries[index];
                entry.why = why;
                entry.state = State::Wanting { since: now };
            }
        }
    }

    fn fired(&self, entry: &Entry) -> Option<String> {
        match &entry.plan.trigger {
            Trigger::Address => Some("the node runs, and no earlier fault holds it".to_owned()),
            Trigger::Height(height) => {
                (self.height >= *height).then(|| format!("the chain is at height {}", self.height))
            }
            Trigger::AtMs(ms) => (self.now >= *ms).then(|| format!("{} after the start", seconds(self.now))),
            Trigger::After { fault, ms } => {
                let ended = self.ended(fault)?;
                (self.now >= ended + ms).then(|| format!("{} after `{fault}` was over", seconds(self.now - ended)))
            }
        }
    }

    /// When the last occurrence of a fault was over, if all are and one landed.
    fn ended(&self, name: &str) -> Option<u64> {
        let occurrences = || self.entries.iter().filter(|entry| entry.plan.setup.id.name == name);
        if !occurrences().all(|entry| entry.state.over()) {
            return None;
        }
        let done = |entry: &Entry| if let State::Done { at } = entry.state { Some(at) } else { None };
        occurrences().filter_map(done).max()
    }

    /// Whether a fault is over in such a way that nothing can follow it.
    fn never_ends(&self, name: &str) -> bool {
        let mut all = self.entries.iter().filter(|entry| entry.plan.setup.id.name == name);
        all.all(|entry| matches!(entry.state, State::Missed | State::Lost))
    }

    /// Until when the present state may last.
    fn deadline(&self, entry: &Entry) -> Option<u64> {
        let give_up = entry.plan.give_up_ms;
        match &entry.state {
            State::Waiting => match &entry.plan.trigger {
                Trigger::AtMs(ms) => Some(*ms),
                Trigger::After { fault, ms } => self.ended(fault).map(|ended| ended + ms),
                Trigger::Height(_) => Some((self.progress + give_up).min(self.heights_until)),
                Trigger::Address => Some(self.now),
            },
            State::Wanting { since } => {
                // A node that is held comes back or is lost; one that never started is not missed before its time.
                let never = self.nodes.get(&entry.plan.setup.node) == Some(&NodeState::NeverStarted);
                let patient = self.holder(&entry.plan.setup.node).is_some() || (never && entry.aimed());
                (!patient).then_some(since + give_up)
            }
            State::Armed { since } => {
                // Before the chain is at the address's height only a standstill ends the wait, or the end of all patience.
                match entry.reached {
                    Some(reached) => Some((*since).max(reached) + give_up),
                    None => Some(((*since).max(self.progress) + give_up).min(self.heights_until)),
                }
            }
            State::Acting { since } | State::Returning { since } => Some(since + give_up),
            State::TakingBack { until, .. }
            | State::Failed { until }
            | State::Paused { until }
            | State::Down { until } => Some(*until),
            State::Done { .. } | State::Missed | State::Lost => None,
        }
    }

    /// Ends what has lasted too long, and does what was due.
    fn expire(&mut self, index: usize, out: &mut Vec<Command>) {
        let (now, height) = (self.now, self.height);
        if let Some(why) = self.giving_up.clone() {
            self.entries[index].give_up(now, &why, out);
        }
        let entry = &self.entries[index];
        if height > 0
            && matches!(entry.state, State::Waiting | State::Wanting { .. })
            && let Some(why) = entry.too_far.clone()
        {
            self.entries[index].miss(why, out);
        } else if entry.state == State::Waiting
            && let Trigger::After { fault, .. } = &entry.plan.trigger
            && self.never_ends(fault)
        {
            let why = format!("it was to follow `{fault}`, which never came to its end");
            self.entries[index].miss(why, out);
        } else if self.deadline(entry).is_some_and(|deadline| now >= deadline) {
            self.entries[index].expire(now, (height, self.heights_until), out);
            if self.entries[index].state == State::Lost {
                let node = self.entries[index].node();
                self.count_anew(&node);
            }
        }
    }

    /// Lets the next fault have a node that runs, or is about to.
    fn serve(&mut self, node: &str, out: &mut Vec<Command>) {
        if self.holder(node).is_some() {
            return;
        }
        let wanting = |entry: &Entry| if let State::Wanting { since } = entry.state { Some(since) } else { None };
        let now = self.now;
        let of_node: Vec<usize> = self.on_node(node).collect();
        let armed = of_node.iter().copied().find(|index| self.entries[*index].state.at_agent());
        let running = self.nodes.get(node) == Some(&NodeState::Running);
        let plain = of_node
            .iter()
            .copied()
            .filter(|index| running && !self.entries[*index].aimed())
            .filter_map(|index| wanting(&self.entries[index]).map(|since| (since, index)))
            .min();
        match (plain, armed) {
            (Some(_), Some(armed)) => {
                let entry = &mut self.entries[armed];
                if matches!(entry.state, State::Armed { .. }) {
                    entry.take_back(now, None, out);
                }
            }
            (Some((_, index)), None) => self.entries[index].act(now, out),
            (None, Some(_)) => {}
            (None, None) => {
                let aimed = of_node
                    .into_iter()
                    .find(|index| self.entries[*index].aimed() && wanting(&self.entries[*index]).is_some());
                if let Some(index) = aimed {
                    self.entries[index].arm(now, out);
                }
            }
        }
    }

    fn on_node<'a>(&'a self, node: &'a str) -> impl Iterator<Item = usize> + 'a {
        self.entries.iter().enumerate().filter(move |(_, entry)| entry.plan.setup.node == node).map(|(index, _)| index)
    }

    fn entry(&mut self, fault: &FaultId) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|entry| entry.plan.setup.id == *fault)
    }
}

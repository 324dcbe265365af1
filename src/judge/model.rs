//! The neutral picture of a run that every rule looks at, whether it came from a timeline or from an observation file.

use std::collections::{BTreeMap, BTreeSet};

use super::table::Table;
use crate::timeline::{
    CommitVotes, DoubleVote, Exit, ExitCause, Expect, FaultId, FaultKind, FaultSetup, Heights, Landed, LastSigned,
    Layout, Mode, Role, Tally, VoteType, line,
};

/// Microseconds since the run began.
pub(crate) type Us = u64;

/// Everything known about a run.
#[derive(Clone, Debug, Default)]
pub(crate) struct Model {
    /// Run id, topology, seed, engine, as far as known.
    pub(crate) identity: Identity,
    /// In plan order.
    pub(crate) nodes: Vec<Node>,
    /// Block ids by height.
    pub(crate) blocks: Table,
    /// App hashes by the height *after* which the application had them.
    pub(crate) states: Table,
    /// Votes that somebody signed, where they were looked at.
    pub(crate) votes: Vec<Vote>,
    /// Faults in plan order.
    pub(crate) faults: Vec<Fault>,
    /// Faults that are told as facts, by whoever wrote an observation.
    pub(crate) told: Vec<ToldFault>,
    /// What the user expects.
    pub(crate) expect: Expect,
    /// What is known about transactions.
    pub(crate) load: Load,
    /// How it ended.
    pub(crate) end: End,
    /// The best of the rest, where it was seen without naming nodes.
    pub(crate) rest: Vec<Sample>,
    /// What counts as waiting too long.
    pub(crate) patience: Patience,
    /// First height of the chain.
    pub(crate) initial_height: u64,
    /// 1 where header H carries the app hash after H−1, 0 where after H.
    pub(crate) app_hash_offset: u64,
    /// Whether every node must be seen at least once.
    pub(crate) complete: bool,
}

/// Which run this is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) run: String,
    pub(crate) topology: String,
    pub(crate) seed: u64,
    pub(crate) engine: String,
}

/// A fault that is told, not proven.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ToldFault {
    /// Index of the node; `None` where only the moment is told.
    pub(crate) node: Option<usize>,
    pub(crate) from: Us,
    pub(crate) to: Option<Us>,
    /// The chain's height at that moment, where told.
    pub(crate) height: Option<u64>,
    /// Whether the node is away while it lasts.
    pub(crate) away: bool,
    /// How it ends the node's process, if it does.
    pub(crate) ends: Option<Ends>,
}

/// How a fault ends a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ends {
    /// The process has no say.
    Killed,
    /// It is asked to end.
    Asked,
}

/// How long things may take at least before they are called a finding; [`super::pace`] says how much longer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Patience {
    /// How old the best of the rest may be when a node is compared with it.
    pub(crate) grace_us: Us,
    /// How many blocks behind still counts as in step.
    pub(crate) blocks: u64,
    /// How long a node in step may call itself catching up.
    pub(crate) flag_us: Us,
    /// How long nobody, or one node, may not advance.
    pub(crate) halt_us: Us,
    /// How many blocks the rest must make before a height that does not move is called frozen.
    pub(crate) frozen_blocks: u64,
}

impl Default for Patience {
    fn default() -> Self {
        Self { grace_us: 2_000_000, blocks: 2, flag_us: 20_000_000, halt_us: 20_000_000, frozen_blocks: 3 }
    }
}

/// What is known about transactions.
#[derive(Clone, Debug, Default)]
pub(crate) struct Load {
    /// Whether it is known at all.
    pub(crate) known: bool,
    /// Whether any were to be sent.
    pub(crate) wanted: bool,
    /// Accepted by a node.
    pub(crate) accepted: u64,
    /// Record of the last count.
    pub(crate) seq: Option<u64>,
}

/// How the run ended.
#[derive(Clone, Debug, Default)]
pub(crate) struct End {
    /// It ended in order, was interrupted or ran out of time.
    pub(crate) ended: bool,
    pub(crate) interrupted: bool,
    pub(crate) time_limit: bool,
    /// What the settling phase came to.
    pub(crate) settled: Option<(bool, String, u64)>,
    /// When.
    pub(crate) settled_us: Option<Us>,
    /// Errors of the tool.
    pub(crate) tool_errors: Vec<(String, u64)>,
    /// Time of the last record.
    pub(crate) last_us: Us,
}

/// One node.
#[derive(Clone, Debug, Default)]
pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) role: Option<Role>,
    /// Voting power, where known.
    pub(crate) power: Option<u64>,
    pub(crate) storage: Option<String>,
    pub(crate) group: String,
    pub(crate) layout: Layout,
    /// Looks at its RPC, in time order; of a row of equal ones in one start the first and the last.
    pub(crate) samples: Vec<Sample>,
    /// Where in `samples` its current start begins.
    pub(crate) samples_since_start: usize,
    /// Silences of its RPC, in time order.
    pub(crate) silences: Vec<(Us, String, u64)>,
    /// Process starts by number.
    pub(crate) lives: BTreeMap<u32, Life>,
    /// Last app hash that it reported.
    pub(crate) app_hash: Option<(Us, String)>,
    /// Syncs counted from outside.
    pub(crate) tallies: Vec<(Us, Tally, u64)>,
    /// What the agent cannot see.
    pub(crate) holes: Vec<(String, String, u64)>,
    /// Signed blocks of a recent stretch, where known; 0 is a validator that never signs.
    pub(crate) signed: Option<u64>,
    /// Heights that its application told over time: when, which, and the record.
    pub(crate) app_told: Vec<(Us, u64, u64)>,
    /// The height that its application told, where nothing else tells it.
    pub(crate) app_height: Option<u64>,
    /// The addresses under which it signed.
    pub(crate) signs_as: BTreeSet<String>,
    /// It has a volume of its own, whose filling up is a fault and not a failure of the machine.
    pub(crate) limited_volume: bool,
    /// It is known to hold blocks back during block sync.
    pub(crate) holds_blocks: bool,
}

/// One vote.
#[derive(Clone, Debug)]
pub(crate) struct Vote {
    /// Its address, in lower case.
    pub(crate) validator: String,
    pub(crate) height: u64,
    pub(crate) round: u64,
    pub(crate) kind: VoteType,
    /// The block id, empty for nil.
    pub(crate) id: String,
    pub(crate) proof: Proof,
    pub(crate) seq: u64,
}

/// Where a vote was seen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Proof {
    /// In the commit that this node has.
    Commit(usize),
    /// In the evidence of the block at this height.
    Evidence(u64),
}

/// One look at a height.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Sample {
    pub(crate) at_us: Us,
    pub(crate) height: u64,
    pub(crate) catching_up: Option<bool>,
    pub(crate) seq: u64,
}

/// From one start of a process to its end.
#[derive(Clone, Debug, Default)]
pub(crate) struct Life {
    pub(crate) started: Option<(Us, u64)>,
    /// It began with an empty folder, so that what was there before is not missed.
    pub(crate) fresh: bool,
    pub(crate) handshake: Option<Handshake>,
    pub(crate) troubles: Vec<Trouble>,
    pub(crate) exit: Option<Ended>,
    /// Heights read from its files afterwards.
    pub(crate) stored: Option<(Heights, u64)>,
    /// Modes that it told of, from when on.
    pub(crate) modes: Vec<(Us, Mode)>,
    /// What its files say afterwards that it signed last.
    pub(crate) signed: Option<(LastSigned, u64)>,
    /// Events that it published.
    pub(crate) published: Vec<Published>,
}

/// A row of blocks whose events came one after the other on one connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Published {
    /// Which connection of this start, from 1.
    pub(crate) stream: u32,
    pub(crate) first: u64,
    pub(crate) last: u64,
    pub(crate) at_us: Us,
    pub(crate) seq: u64,
}

/// The handshake line.
#[derive(Clone, Debug)]
pub(crate) struct Handshake {
    pub(crate) heights: Heights,
    /// Lowest block kept, where the line says so.
    pub(crate) base: Option<u64>,
    /// Whether the application's hash is empty, where the line says so.
    pub(crate) app_hash_empty: Option<bool>,
    pub(crate) seq: u64,
}

/// A line that tells of trouble.
#[derive(Clone, Debug)]
pub(crate) struct Trouble {
    pub(crate) at_us: Us,
    pub(crate) class: String,
    pub(crate) line: String,
    pub(crate) seq: u64,
}

/// The end of a process.
#[derive(Clone, Debug)]
pub(crate) struct Ended {
    pub(crate) at_us: Us,
    /// `None` where only its last words are known.
    pub(crate) exit: Option<Exit>,
    pub(crate) cause: ExitCause,
    pub(crate) tail: Vec<String>,
    /// The kernel's or the engine's word that memory ran out.
    pub(crate) out_of_memory: bool,
    pub(crate) seq: u64,
}

/// One occurrence of a fault and what became of it.
#[derive(Clone, Debug)]
pub(crate) struct Fault {
    pub(crate) setup: FaultSetup,
    pub(crate) triggered: Option<(Us, u64)>,
    pub(crate) landed: Option<FaultLanded>,
    pub(crate) applied: Option<(Us, String, u64)>,
    pub(crate) reverted: Option<(Us, String, u64)>,
    /// Why it cannot land any more, in words.
    pub(crate) missed: Option<(String, u64)>,
}

/// The agent's record of an aimed fault.
#[derive(Clone, Debug)]
pub(crate) struct FaultLanded {
    pub(crate) at_us: Us,
    pub(crate) start: u32,
    pub(crate) landed: Landed,
    pub(crate) seq: u64,
}

impl Handshake {
    /// With what the line says beside the heights.
    pub(crate) fn read(heights: Heights, text: &str, seq: u64) -> Self {
        let app_hash_empty = line::field(text, "hash").or_else(|| line::field(text, "appHash")).map(str::is_empty);
        Self { heights, base: line::number(text, "base"), app_hash_empty, seq }
    }
}

impl Life {
    /// The mode in which it was at a time, by its own log.
    pub(crate) fn mode_at(&self, at_us: Us) -> Option<Mode> {
        self.modes.iter().rev().find(|(from, _)| *from <= at_us).map(|(_, mode)| *mode)
    }
}

impl Fault {
    pub(crate) fn new(setup: FaultSetup) -> Self {
        Self { setup, triggered: None, landed: None, applied: None, reverted: None, missed: None }
    }

    /// When it took effect.
    pub(crate) fn effect_us(&self) -> Option<Us> {
        self.landed.as_ref().map(|l| l.at_us).or(self.applied.as_ref().map(|a| a.0))
    }
}

impl Node {
    /// The life that a fault ended, and the one after it.
    pub(crate) fn life_ended_by(&self, fault: &FaultId) -> Option<(u32, &Life)> {
        self.lives.iter().map(|(n, life)| (*n, life)).find(|(_, life)| {
            life.exit.as_ref().is_some_and(|e| matches!(&e.cause, ExitCause::Fault(id) if id == fault))
        })
    }

    /// The last start and its life.
    pub(crate) fn last_life(&self) -> Option<(u32, &Life)> {
        self.lives.last_key_value().map(|(n, life)| (*n, life))
    }

    /// Whether a process of it is believed to be alive at the end.
    pub(crate) fn alive(&self) -> bool {
        self.last_life().is_none_or(|(_, life)| life.exit.is_none())
    }

    /// Whether it holds blocks back during block sync, so that unsaved ones may be lost to a kill.
    pub(crate) fn defers(&self) -> bool {
        self.holds_blocks
            || self.storage.as_deref() == Some("deferred")
            || self.tallies.iter().any(|(_, t, _)| t.mode == Some(Mode::BlockSync) && t.blocks > t.flushes)
    }

    /// The last three heights known: read off-line after the last start's end, else from the last handshake.
    pub(crate) fn last_heights(&self) -> Heights {
        let known =
            self.lives.values().rev().find_map(|life| {
                life.stored.map(|(heights, _)| heights).or(life.handshake.as_ref().map(|h| h.heights))
            });
        let known: Heights = known.unwrap_or_default();
        Heights { app: known.app.or(self.app_height), ..known }
    }

    /// The three heights when the run ended, as far as they are known: a node that was seen above what its last handshake
    /// line said has moved on, and only its block store is known, whose height is what its status tells.
    pub(crate) fn heights_at_the_end(&self) -> Heights {
        let known = self.last_heights();
        let read = self.last_life().is_some_and(|(_, life)| life.stored.is_some());
        match self.samples.last().map(|sample| sample.height) {
            Some(seen) if !read && known.store.is_none_or(|store| store < seen) => {
                Heights { app: self.app_height, state: None, store: Some(seen) }
            }
            _ => known,
        }
    }
}

impl Model {
    /// Index of a node by name, made when it is new.
    pub(crate) fn node_index(&mut self, name: &str) -> usize {
        if let Some(index) = self.nodes.iter().position(|n| n.name == name) {
            return index;
        }
        self.nodes.push(Node { name: name.to_owned(), ..Node::default() });
        self.nodes.len() - 1
    }

    /// Notes the votes of a commit.
    pub(crate) fn commit_seen(&mut self, node: usize, commit: &CommitVotes, seq: u64) {
        let vote = |(validator, id): (&String, &String)| Vote {
            validator: validator.clone(),
            height: commit.height,
            round: commit.round,
            kind: VoteType::Precommit,
            id: id.clone(),
            proof: Proof::Commit(node),
            seq,
        };
        self.votes.extend(commit.votes.iter().map(vote));
    }

    /// Notes the two votes of some evidence.
    pub(crate) fn evidence_seen(&mut self, double: &DoubleVote, seq: u64) {
        let vote = |id: &String| Vote {
            validator: double.validator.clone(),
            height: double.height,
            round: double.round,
            kind: double.kind,
            id: id.clone(),
            proof: Proof::Evidence(double.block),
            seq,
        };
        self.votes.extend(double.ids.iter().map(vote));
    }

    /// Names of nodes, in plan order, joined for a finding.
    pub(crate) fn names(&self, nodes: &[usize]) -> String {
        let names: Vec<&str> = nodes.iter().map(|n| self.nodes[*n].name.as_str()).collect();
        names.join(", ")
    }

    /// Weight of a node in a vote: its power; 1 where no power at all is known, so that counting is all there is.
    pub(crate) fn weight(&self, node: usize) -> u64 {
        if self.powers_known() { self.nodes[node].power.unwrap_or(0) } else { 1 }
    }

    /// Whether voting power is known for any node.
    pub(crate) fn powers_known(&self) -> bool {
        self.nodes.iter().any(|n| n.power.is_some_and(|p| p > 0))
    }

    /// Whether a process ended after a call of it was made to fail.
    pub(crate) fn failed_a_call(&self, cause: &ExitCause) -> bool {
        let by = |f: &&Fault| matches!(cause, ExitCause::Fault(id) if *id == f.setup.id);
        self.faults.iter().find(by).is_some_and(|f| f.setup.kind == FaultKind::Fail)
    }

    /// Whether the record of the run breaks off, so that what is missing at its end says nothing.
    pub(crate) fn breaks_off(&self) -> bool {
        self.complete && !self.end.ended
    }

    /// When the last fault took effect.
    pub(crate) fn last_fault_us(&self) -> Option<Us> {
        let told = self.told.iter().map(|f| f.from);
        self.faults.iter().filter_map(Fault::effect_us).chain(told).max()
    }

    /// The best height seen of all nodes but one at or before a time; what lies beyond a halt height is nobody's goal.
    pub(crate) fn best_of_rest(&self, node: usize, at_us: Us) -> Option<u64> {
        let others = self.nodes.iter().enumerate().filter(|(i, _)| *i != node).map(|(_, n)| &n.samples);
        let best = others.chain([&self.rest]).filter_map(|samples| best_until(samples, at_us)).max()?;
        Some(self.expect.halt_height.map_or(best, |halt| best.min(halt)))
    }
}

/// The highest height of time-ordered samples at or before a time.
fn best_until(samples: &[Sample], at_us: Us) -> Option<u64> {
    let end = samples.partition_point(|s| s.at_us <= at_us);
    samples[..end].iter().rev().take(3).map(|s| s.height).max()
}

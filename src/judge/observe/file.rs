//! The observation file: what people write down, or collect by hand, about a network that midflush did not run.
//!
//! YAML or JSON. Every section is optional; unknown keys are errors with line and column. Times are in seconds from any
//! moment, heights and other integers may be numbers or text, hashes must be in quotes.

use serde::Deserialize;
use serde_json::Value;

use super::clock::{BlockTimes, ClockSkew, PeerClaim};
use super::measure::{Compare, RateSeries, StoredResult, Sweep};
use super::sign::{SignStates, VoteSeen};
use super::value::{ByHeight, HashText, Int, Lines, Look, Named, Seconds};
use crate::judge::Verdict;
use crate::timeline::Role;

/// Version of the format.
pub(super) const VERSION: u32 = 1;

/// The whole file.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct File {
    /// Format version: 1.
    pub(super) observation: u32,
    /// Free text.
    #[serde(default)]
    #[expect(dead_code, reason = "allowed in the file, never looked at")]
    pub(super) about: Option<Value>,
    /// What the writer believes the verdict to be.
    #[serde(default)]
    #[expect(dead_code, reason = "for whoever checks the judge, never looked at by it")]
    pub(super) expect: Option<Value>,
    /// Node family of all nodes that name none: `cometbft` (default), `tm2`, `tenderdash`, `reference`.
    #[serde(default)]
    pub(super) family: Option<Family>,
    /// First height of the chain.
    #[serde(default)]
    pub(super) initial_height: Option<Int>,
    /// What is known about single nodes.
    #[serde(default)]
    pub(super) nodes: Named<NodeFacts>,
    /// Voting power by node.
    #[serde(default)]
    pub(super) power: Named<Int>,
    /// App hashes by node and height.
    #[serde(default)]
    pub(super) app_hashes: Option<HashTable>,
    /// Block ids by node and height.
    #[serde(default)]
    pub(super) block_ids: Option<HashTable>,
    /// Hashes that should all be the same.
    #[serde(default)]
    pub(super) same_hash: Vec<SpeltHash>,
    /// Heights over time by node.
    #[serde(default)]
    pub(super) heights: Named<Vec<Look>>,
    /// The best height of the rest of the network over time.
    #[serde(default)]
    pub(super) rest: Vec<Look>,
    /// Heights over time by node and shard.
    #[serde(default)]
    pub(super) shards: Named<Named<Vec<Look>>>,
    /// Answers of nodes, as they came.
    #[serde(default)]
    pub(super) rpc: Vec<RpcAnswer>,
    /// Output by node.
    #[serde(default)]
    pub(super) logs: Named<Lines>,
    /// Process starts by node, in seconds.
    #[serde(default)]
    pub(super) starts: Named<Vec<Start>>,
    /// Ends of processes.
    #[serde(default)]
    pub(super) exits: Vec<ExitFacts>,
    /// Heights as a handshake or a look into the files gives them.
    #[serde(default)]
    pub(super) triples: Vec<TripleFacts>,
    /// Heights of the parts of a node's storage, in the order in which they were looked at.
    #[serde(default)]
    pub(super) parts: Vec<PartsLook>,
    /// Sign states before and after a restart.
    #[serde(default)]
    pub(super) sign_states: Vec<SignStates>,
    /// Votes and proposals that were seen.
    #[serde(default)]
    pub(super) votes: Vec<VoteSeen>,
    /// Settings that must be the same, or must differ, by node.
    #[serde(default)]
    pub(super) config: Named<Named<Value>>,
    /// Nodes that share a validator key on purpose.
    #[serde(default)]
    pub(super) twins: Vec<Vec<String>>,
    /// What was done to the network.
    #[serde(default)]
    pub(super) faults: Vec<FaultTold>,
    /// What is known about transactions.
    #[serde(default)]
    pub(super) load: Option<LoadTold>,
    /// What is allowed and wanted.
    #[serde(default)]
    pub(super) expectations: Wanted,
    /// The machine that all nodes share.
    #[serde(default)]
    pub(super) host: Option<Host>,
    /// Block times against a clock.
    #[serde(default)]
    pub(super) block_times: Option<BlockTimes>,
    /// Runs with a clock set wrong.
    #[serde(default)]
    pub(super) clock_skew: Option<ClockSkew>,
    /// What peers claim to have, by node that they are peers of.
    #[serde(default)]
    pub(super) peer_claims: Named<Vec<PeerClaim>>,
    /// When blocks were durable and when their events were published.
    #[serde(default)]
    pub(super) events: Vec<EventSeen>,
    /// Block-sync rates.
    #[serde(default)]
    pub(super) rates: Vec<RateSeries>,
    /// One figure over a parameter.
    #[serde(default)]
    pub(super) sweep: Option<Sweep>,
    /// Two sets of one figure.
    #[serde(default)]
    pub(super) compare: Option<Compare>,
    /// A stored result that is to be trusted.
    #[serde(default)]
    pub(super) result: Option<StoredResult>,
    /// Findings that other tools, or several looks, gave.
    #[serde(default)]
    pub(super) findings: Vec<FindingTold>,
    /// Words of containers, health checks and the like.
    #[serde(default)]
    #[expect(dead_code, reason = "they say nothing about progress, so they are never looked at")]
    pub(super) claims: Option<Value>,
}

impl File {
    /// Leaves out what is written down twice, which says nothing more. Answers and votes are compared where they are read.
    pub(super) fn once(&mut self) {
        fn once<T: PartialEq>(list: &mut Vec<T>) {
            let mut kept: Vec<T> = Vec::with_capacity(list.len());
            for entry in list.drain(..) {
                if !kept.contains(&entry) {
                    kept.push(entry);
                }
            }
            *list = kept;
        }
        once(&mut self.exits);
        once(&mut self.triples);
        once(&mut self.parts);
        once(&mut self.sign_states);
        once(&mut self.faults);
        once(&mut self.events);
        once(&mut self.findings);
        self.starts.values_mut().for_each(once);
    }

    /// Whether anything beside hash tables and settings was observed.
    pub(super) fn tells_more_than_hashes(&self) -> bool {
        let lists = [
            self.same_hash.len(),
            self.heights.len(),
            self.shards.len(),
            self.rpc.len(),
            self.logs.len(),
            self.starts.len(),
            self.exits.len(),
            self.triples.len(),
            self.parts.len(),
            self.sign_states.len(),
            self.votes.len(),
            self.config.len(),
            self.twins.len(),
            self.events.len(),
            self.rates.len(),
            self.findings.len(),
        ];
        let single = [
            self.host.is_some(),
            self.block_times.is_some(),
            self.clock_skew.is_some(),
            self.sweep.is_some(),
            self.compare.is_some(),
            self.result.is_some(),
        ];
        lists.iter().any(|count| *count > 0) || single.contains(&true)
    }
}

/// Node family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Family {
    /// CometBFT 0.34 to 1.x.
    Cometbft,
    /// gno's tm2.
    Tm2,
    /// Tenderdash 1.x.
    Tenderdash,
    /// The built-in reference node, which speaks CometBFT's shapes.
    Reference,
}

/// One node.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct NodeFacts {
    #[serde(default)]
    pub(super) role: Option<Role>,
    #[serde(default)]
    pub(super) family: Option<Family>,
    /// Name of its chain, where the file is about several; nodes of different chains are never compared.
    #[serde(default)]
    pub(super) chain: Option<String>,
    #[serde(default)]
    pub(super) power: Option<Int>,
    /// How many of the last blocks it signed; 0 is a validator that takes no part.
    #[serde(default)]
    pub(super) signed: Option<Int>,
    /// Lowest and highest height that it has, where they are told apart from its hashes.
    #[serde(default)]
    pub(super) earliest: Option<Int>,
    #[serde(default)]
    pub(super) latest: Option<Int>,
    /// Whether it holds blocks back during block sync, so that unsaved ones may be lost.
    #[serde(default)]
    pub(super) defers: bool,
}

/// Which state a hash at height H is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Rule {
    /// Header H carries the state after H−1 (CometBFT, tm2).
    #[default]
    HeaderPrev,
    /// Header H carries the state after H (Tenderdash).
    HeaderSame,
    /// The value is the state after H (`block_results`, `abci_info`, the application's own word).
    After,
}

/// How a field spells bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
pub(super) enum Spelling {
    #[serde(rename = "hex", alias = "hex-upper", alias = "hex-lower", alias = "0x-hex")]
    Hex,
    #[serde(rename = "base64")]
    Base64,
}

/// Hashes by node and height.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct HashTable {
    #[serde(default)]
    pub(super) rule: Option<Rule>,
    /// Nodes whose values follow another rule.
    #[serde(default)]
    pub(super) rules: Named<Rule>,
    #[serde(default)]
    pub(super) encoding: Option<Spelling>,
    /// Nodes that spell their values otherwise.
    #[serde(default)]
    pub(super) encodings: Named<Spelling>,
    pub(super) nodes: Named<ByHeight<HashText>>,
}

/// One hash and where it is from. The encoding, or family and field, say how it is spelt.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct SpeltHash {
    #[serde(alias = "src")]
    pub(super) source: String,
    #[serde(default, alias = "enc")]
    pub(super) encoding: Option<Spelling>,
    #[serde(default)]
    pub(super) family: Option<Family>,
    /// `header`, `block_id`, `abci_info`, `block_results`.
    #[serde(default)]
    pub(super) field: Option<String>,
    #[serde(alias = "v")]
    pub(super) value: HashText,
}

/// One answer.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct RpcAnswer {
    pub(super) node: String,
    #[serde(default)]
    pub(super) t: Option<Seconds>,
    #[serde(default)]
    pub(super) family: Option<Family>,
    /// `status`, `block`, `header`, `commit`, `blockchain`, `block_results`, `abci_info`, `net_info`.
    pub(super) endpoint: String,
    /// The height that was asked for.
    #[serde(default)]
    pub(super) height: Option<Int>,
    #[serde(default)]
    pub(super) http: Option<u16>,
    /// The answer as it came: JSON, or text that holds JSON.
    #[serde(default)]
    pub(super) body: Value,
}

/// One start of a process.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Start {
    pub(super) t: Seconds,
    /// Whether its data are those of before; false is an empty folder or another volume.
    #[serde(default = "yes")]
    pub(super) same_data: bool,
}

fn yes() -> bool {
    true
}

/// Who wanted a process to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum By {
    /// A fault of ours.
    Fault,
    /// A stop that somebody asked for.
    Asked,
    /// Nobody.
    Own,
}

/// One end of a process.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ExitFacts {
    pub(super) node: String,
    #[serde(default)]
    pub(super) t: Option<Seconds>,
    #[serde(default)]
    pub(super) code: Option<i32>,
    #[serde(default)]
    pub(super) signal: Option<i32>,
    #[serde(default, alias = "OOMKilled")]
    pub(super) oom_killed: bool,
    /// Where it is absent, a fault on this node at that time is taken for the cause, else the node itself.
    #[serde(default)]
    pub(super) by: Option<By>,
    /// Its last lines.
    #[serde(default)]
    pub(super) tail: Lines,
}

/// Three heights.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct TripleFacts {
    pub(super) node: String,
    #[serde(alias = "A")]
    pub(super) app: Int,
    #[serde(alias = "T")]
    pub(super) state: Int,
    #[serde(alias = "S")]
    pub(super) store: Int,
    /// Lowest block kept.
    #[serde(default)]
    pub(super) base: Option<Int>,
    /// Whether the application's hash is empty.
    #[serde(default)]
    pub(super) app_hash_empty: Option<bool>,
    /// Whether the node went on from there, where known.
    #[serde(default)]
    pub(super) started: Option<bool>,
}

/// One look at the parts of a node's storage.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct PartsLook {
    pub(super) node: String,
    /// Words for when: `after restart`, `5 blocks later`.
    #[serde(default)]
    pub(super) when: Option<String>,
    pub(super) parts: Named<Int>,
    /// The consensus heights at that moment, if known: application, state, block store.
    #[serde(default)]
    pub(super) app: Option<Int>,
    #[serde(default)]
    pub(super) state: Option<Int>,
    #[serde(default)]
    pub(super) store: Option<Int>,
}

/// What was done, and when.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FaultTold {
    #[serde(default)]
    pub(super) kind: Option<String>,
    #[serde(default)]
    pub(super) nodes: Vec<String>,
    #[serde(default)]
    pub(super) from: Option<Seconds>,
    #[serde(default)]
    pub(super) to: Option<Seconds>,
    /// The chain's height then.
    #[serde(default)]
    pub(super) at_height: Option<Int>,
}

/// Transactions.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct LoadTold {
    /// How many went into blocks.
    pub(super) transactions: Int,
}

/// What is allowed and wanted.
#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Wanted {
    /// Every node at the common height within this many seconds after the last fault, or after the first look.
    #[serde(default, alias = "budget_s")]
    pub(super) converge_within_s: Option<Seconds>,
    #[serde(default)]
    pub(super) halt_height: Option<Int>,
}

/// The machine.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Host {
    /// Free bytes on the disk that the nodes share.
    #[serde(default)]
    pub(super) disk_free: Option<Int>,
    /// Nodes with a limited volume of their own, whose filling up is the fault.
    #[serde(default)]
    pub(super) limited_volumes: Vec<String>,
}

/// A block became durable, or its events were published.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct EventSeen {
    pub(super) node: String,
    pub(super) t: Seconds,
    pub(super) height: Int,
    pub(super) what: EventWhat,
}

/// Which of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum EventWhat {
    Durable,
    Published,
}

/// A finding as told.
#[derive(Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FindingTold {
    #[serde(default)]
    pub(super) t: Option<Seconds>,
    #[serde(default)]
    pub(super) node: Option<String>,
    #[serde(alias = "verdict")]
    pub(super) finding: Verdict,
    #[serde(default)]
    pub(super) height: Option<Int>,
    #[serde(default)]
    pub(super) class: Option<String>,
}

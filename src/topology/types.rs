//! A topology as checked types: what the file says, with defaults filled in and every name resolved.

use std::collections::BTreeMap;

use indexmap::IndexMap;

use serde::{Deserialize, Serialize};

use super::units::Delay;
use crate::timeline::{Address, Errno, Expect, FaultKind, Latency, Layout, Role, Tier};

/// A whole topology.
#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    /// Its name.
    pub name: String,
    /// The node family with its options.
    pub chain: Chain,
    /// First height of the chain.
    pub initial_height: u64,
    /// Blocks built before the first start.
    pub built_blocks: u64,
    /// The application beside each node, where it is not in the node's own process.
    pub application: Option<Application>,
    /// Builds by name.
    pub builds: IndexMap<String, Made>,
    /// Node groups by name, in file order.
    pub nodes: IndexMap<String, Group>,
    /// Transactions to send.
    pub load: Option<Load>,
    /// Faults, in file order.
    pub faults: Vec<Fault>,
    /// What must hold at the end.
    pub expect: Expect,
}

/// A node family with its options.
#[derive(Clone, Debug, PartialEq)]
pub enum Chain {
    /// The built-in reference node.
    Reference(Reference),
    /// CometBFT with a built-in application, or with that of its end-to-end tests.
    Cometbft(Cometbft),
    /// gnoland.
    Gnoland(Gnoland),
    /// Tenderdash 1.5 with a built-in application.
    Tenderdash(Tenderdash),
    /// A chain made with the Cosmos SDK.
    CosmosSdk(CosmosSdk),
    /// A family that the topology describes.
    Custom(Box<Custom>),
}

/// An application in a process of its own beside each node. Texts of command, files and environment are templates.
#[derive(Clone, Debug, PartialEq)]
pub struct Application {
    /// Its program or image.
    pub build: Build,
    /// Arguments of the program.
    pub command: Vec<String>,
    /// Environment beside `HOME`.
    pub env: BTreeMap<String, String>,
    /// Files by path below its home.
    pub files: BTreeMap<String, String>,
    /// Its stores, called `app/NAME`, what it commits of a block, and lines of its output.
    pub layout: Layout,
}

/// A node family that the topology describes. Texts of command, files, environment, set-up and transactions are templates.
#[derive(Clone, Debug, PartialEq)]
pub struct Custom {
    /// The node's program or image.
    pub build: Build,
    /// Time between blocks in milliseconds, for templates.
    pub block_time_ms: u64,
    /// Arguments of the program.
    pub command: Vec<String>,
    /// Environment beside `HOME`.
    pub env: BTreeMap<String, String>,
    /// Files by path below the node's home.
    pub files: BTreeMap<String, String>,
    /// Changes of what the set-up made: file → path → value.
    pub changes: BTreeMap<String, BTreeMap<String, serde_json::Value>>,
    /// What the program makes once, before any node starts.
    pub set_up: Option<CustomSetUp>,
    /// A transaction of the load.
    pub transaction: Option<String>,
    /// Stores, order of the flush, and how the output is read.
    pub layout: Layout,
}

/// Commands of the node's program, run once before the network starts, in one folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CustomSetUp {
    /// Files that are there before the first step.
    pub files: BTreeMap<String, String>,
    /// In order.
    pub steps: Vec<CustomStep>,
    /// Files that every node gets.
    pub keep: Vec<String>,
}

/// One command of a set-up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CustomStep {
    /// Arguments of the program.
    pub run: Vec<String>,
    /// The same as other versions spell it.
    pub or: Option<Vec<String>>,
    /// Standard input.
    pub input: String,
}

/// What a node of a family other than ours is made from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Build {
    /// A program on this machine, by path or by name on the search path.
    Binary(String),
    /// An image reference, for engines that run images.
    Image(String),
}

/// Options of a chain made with the Cosmos SDK.
#[derive(Clone, Debug, PartialEq)]
pub struct CosmosSdk {
    /// The chain's program or image.
    pub build: Build,
    /// Denomination of stake and fees.
    pub denom: String,
    /// Time between blocks in milliseconds.
    pub block_time_ms: u64,
    /// Base units that are bonded for one unit of voting power.
    pub stake_per_power: u64,
    /// Changes of the genesis: path → value.
    pub genesis: BTreeMap<String, serde_json::Value>,
    /// Changes of `config.toml` and `app.toml`: file → path → value.
    pub config: BTreeMap<String, BTreeMap<String, serde_json::Value>>,
    /// Further arguments of `start`.
    pub arguments: Vec<String>,
}

/// Options of the reference chain.
#[derive(Clone, Debug, PartialEq)]
pub struct Reference {
    /// Time between blocks in milliseconds.
    pub block_time_ms: u64,
    /// Height at which every node halts.
    pub halt_height: Option<u64>,
    /// Settings handed to every node's configuration as they are.
    pub options: BTreeMap<String, serde_json::Value>,
}

/// Options of a CometBFT chain.
#[derive(Clone, Debug, PartialEq)]
pub struct Cometbft {
    /// The application: built in, `e2e`, or [`super::families::BESIDE`].
    pub app: String,
    /// Line of releases, where the build does not tell it.
    pub version: Option<String>,
    /// The database of the node's own stores.
    pub database: String,
    /// Time between blocks in milliseconds.
    pub block_time_ms: u64,
    /// Program on this machine; `cometbft` on the search path when neither this nor an image is given.
    pub binary: Option<String>,
    /// Image reference, for engines that run images.
    pub image: Option<String>,
}

/// Options of a gnoland chain.
#[derive(Clone, Debug, PartialEq)]
pub struct Gnoland {
    /// The database of block store and state.
    pub database: String,
    /// Time between blocks in milliseconds.
    pub block_time_ms: u64,
    /// A genesis file whose application state is taken over; the least that starts when there is none.
    pub genesis: Option<String>,
    /// The folder that the program reads its standard library from; looked for when it is not given.
    pub root: Option<String>,
    /// Program on this machine; `gnoland` on the search path when neither this nor an image is given.
    pub binary: Option<String>,
    /// Image reference, for engines that run images.
    pub image: Option<String>,
}

/// Options of a Tenderdash chain.
#[derive(Clone, Debug, PartialEq)]
pub struct Tenderdash {
    /// The built-in application, or [`super::families::BESIDE`].
    pub app: String,
    /// Longest time between blocks in milliseconds.
    pub block_time_ms: u64,
    /// Program on this machine; `tenderdash` on the search path when neither this nor an image is given.
    pub binary: Option<String>,
    /// Image reference, for engines that run images.
    pub image: Option<String>,
}

/// What nodes are made from: a program or an image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Made {
    /// Program on this machine.
    pub binary: Option<String>,
    /// Image reference.
    pub image: Option<String>,
}

/// What an upgrade does.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Upgrade {
    /// Name of the build that the nodes start with from then on.
    pub to: String,
    /// Time between one node's return and the next one's turn, in milliseconds; all at once when there is none.
    pub pace_ms: Option<u64>,
}

/// Some equal nodes.
#[derive(Clone, Debug, PartialEq)]
pub struct Group {
    /// How many.
    pub count: usize,
    /// What for.
    pub role: Role,
    /// Voting power of each; 0 for full nodes.
    pub power: u64,
    /// Name of their build, where it is not the chain's.
    pub build: Option<String>,
    /// Storage discipline, of reference nodes.
    pub storage: Option<String>,
    /// When they first start.
    pub start: Start,
    /// Whom they dial.
    pub peers: Peers,
    /// Sync latency by store; `*` is every store without its own.
    pub sync_latency: IndexMap<String, Latency>,
    /// How much of them is intercepted; `None` is the least that the faults aimed at them need.
    pub watch: Option<Tier>,
    /// Settings handed to these nodes' configuration as they are.
    pub options: BTreeMap<String, serde_json::Value>,
}

/// When a node first starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Start {
    /// With the run.
    Run,
    /// After the first validators answered.
    After(Delay),
    /// When the chain is at this height.
    Height(u64),
}

/// Whom the nodes of a group dial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Peers {
    /// Every node without a number of its own.
    All,
    /// That many, drawn from the seed.
    Count(usize),
    /// These nodes.
    Named(Vec<String>),
}

/// Transactions.
#[derive(Clone, Debug, PartialEq)]
pub struct Load {
    /// Transactions a second over the whole network.
    pub rate: f64,
    /// Size of one in bytes.
    pub size: usize,
    /// Kinds with their weights.
    pub kinds: IndexMap<String, u32>,
}

/// A fault as written; one entry may become many occurrences.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// Position in the file's list, from 0.
    pub position: usize,
    /// Unique name.
    pub name: String,
    /// What is done.
    pub kind: FaultKind,
    /// To whom.
    pub target: Target,
    /// When.
    pub trigger: Trigger,
    /// How long a pause lasts, or how long the node stays down.
    pub down: Delay,
    /// To what, of an upgrade.
    pub upgrade: Option<Upgrade>,
    /// What the call returns, of a fault that makes one fail.
    pub errno: Option<Errno>,
    /// How long a node that lives on after a failed call is left alone.
    pub lives_on: Option<Delay>,
    /// How long it is waited for once it could land, in milliseconds.
    pub within_ms: u64,
}

/// Whom a fault is for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    /// Node names, at least one.
    pub nodes: Vec<String>,
    /// One of them, drawn from the seed for each occurrence, instead of all.
    pub one_of: bool,
}

/// When a fault fires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Trigger {
    /// At an address in a flush.
    Address(Address),
    /// When the chain is at this height.
    Height(u64),
    /// This long after the first validators answered.
    Time(Delay),
    /// Again and again.
    Every {
        /// Time between two, in milliseconds.
        interval_ms: u64,
        /// Largest deviation of each, in milliseconds.
        jitter_ms: u64,
        /// How often.
        times: u32,
    },
    /// After another fault is over.
    After {
        /// Its name.
        fault: String,
        /// How long after.
        delay: Delay,
    },
}

impl Group {
    /// Names of the nodes of this group when it is called `name`: the bare name for one node, `name-1` and on for more.
    pub fn node_names(&self, name: &str) -> Vec<String> {
        if self.count == 1 {
            return vec![name.to_owned()];
        }
        (1..=self.count).map(|number| format!("{name}-{number}")).collect()
    }
}

impl Topology {
    /// Every node with its group, in plan order.
    pub fn nodes(&self) -> impl Iterator<Item = (String, &str, &Group)> {
        self.nodes
            .iter()
            .flat_map(|(name, group)| group.node_names(name).into_iter().map(move |node| (node, name.as_str(), group)))
    }

    /// The height of the last block that exists before any node starts; one below the first height where none does.
    pub fn built_height(&self) -> u64 {
        self.initial_height - 1 + self.built_blocks
    }
}

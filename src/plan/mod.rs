//! The topology made concrete by a seed. A pure function of (topology, seed): the same bytes twice.
//! Endpoints stay symbolic; addresses and ports belong to the engine's binding.

mod build;
mod draw;
mod faults;
mod graph;
mod layout;
pub mod reach;
pub mod template;
#[cfg(test)]
mod tests;

pub use build::build;
pub(crate) use faults::span;
pub use layout::check_layout;

use std::collections::BTreeMap;

use indexmap::IndexMap;
use serde::{Deserialize, Serialize};

use crate::timeline::{Expect, FaultId, FaultSetup, Latency, Layout, Role, Tier};
pub use crate::topology::{BESIDE, CustomSetUp, CustomStep};

/// Everything that a run does, apart from what only the machine knows.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Plan {
    /// Topology name.
    pub name: String,
    /// The seed that made it.
    pub seed: u64,
    /// Chain id.
    pub chain_id: String,
    /// First height.
    pub initial_height: u64,
    /// Blocks built before the first start.
    pub built_blocks: u64,
    /// Genesis time, RFC 3339; drawn from the seed, not from the clock.
    pub genesis_time: String,
    /// The node family with its options.
    pub chain: ChainPlan,
    /// The application beside each node, where it is not in the node's own process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application: Option<ApplicationPlan>,
    /// Nodes in order.
    pub nodes: Vec<NodePlan>,
    /// Transactions to send.
    pub load: Option<LoadPlan>,
    /// Faults, one entry an occurrence.
    pub faults: Vec<FaultPlan>,
    /// What must hold.
    pub expect: Expect,
}

/// The family and its options.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChainPlan {
    /// The built-in reference node.
    Reference(ReferencePlan),
    /// CometBFT.
    Cometbft(CometbftPlan),
    /// gnoland.
    Gnoland(GnolandPlan),
    /// Tenderdash with a built-in application.
    Tenderdash(TenderdashPlan),
    /// A chain made with the Cosmos SDK.
    CosmosSdk(CosmosSdkPlan),
    /// A family that the topology describes.
    Custom(Box<CustomPlan>),
}

impl ChainPlan {
    /// The family's name, as in topologies.
    pub fn family(&self) -> &'static str {
        match self {
            Self::Reference(_) => "reference",
            Self::Cometbft(_) => "cometbft",
            Self::Gnoland(_) => "gnoland",
            Self::Tenderdash(_) => "tenderdash",
            Self::CosmosSdk(_) => "cosmos-sdk",
            Self::Custom(_) => "custom",
        }
    }

    /// What the topology says of the time between blocks, in milliseconds.
    pub fn block_time_ms(&self) -> u64 {
        match self {
            Self::Reference(plan) => plan.block_time_ms,
            Self::Cometbft(plan) => plan.block_time_ms,
            Self::Gnoland(plan) => plan.block_time_ms,
            Self::Tenderdash(plan) => plan.block_time_ms,
            Self::CosmosSdk(plan) => plan.block_time_ms,
            Self::Custom(plan) => plan.block_time_ms,
        }
    }

    /// What its nodes are made from, where that is not midflush itself.
    pub fn build_mut(&mut self) -> Option<&mut BuildPlan> {
        match self {
            Self::Reference(_) => None,
            Self::Cometbft(plan) => Some(&mut plan.build),
            Self::Gnoland(plan) => Some(&mut plan.build),
            Self::Tenderdash(plan) => Some(&mut plan.build),
            Self::CosmosSdk(plan) => Some(&mut plan.build),
            Self::Custom(plan) => Some(&mut plan.build),
        }
    }
}

/// Options of the reference chain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ReferencePlan {
    /// Time between blocks in milliseconds.
    pub block_time_ms: u64,
    /// Height at which every node halts.
    pub halt_height: Option<u64>,
    /// Further options, handed to the node's configuration as they are, such as `verify_window` or `checkpoint_every`.
    pub options: BTreeMap<String, serde_json::Value>,
}

/// Options of a CometBFT chain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CometbftPlan {
    /// `persistent_kvstore`, `e2e` for the application of CometBFT's end-to-end tests, or [`BESIDE`].
    pub app: String,
    /// Line of releases, `0.37`, `0.38` or `1`, where the build does not tell it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<String>,
    /// `goleveldb` or `pebbledb`.
    pub database: String,
    /// `timeout_commit` in milliseconds.
    pub block_time_ms: u64,
    /// Program on this machine or image reference.
    pub build: BuildPlan,
}

/// Options of a chain made with the Cosmos SDK.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CosmosSdkPlan {
    /// Program on this machine or image reference.
    pub build: BuildPlan,
    /// Denomination of stake and fees.
    pub denom: String,
    /// `timeout_commit` in milliseconds.
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

/// A node family that the topology describes; templates as written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CustomPlan {
    /// Program on this machine or image reference.
    pub build: BuildPlan,
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

/// Options of a gnoland chain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GnolandPlan {
    /// `pebbledb` or `goleveldb`, for block store and state.
    pub database: String,
    /// `timeout_commit` in milliseconds.
    pub block_time_ms: u64,
    /// A genesis file whose application state is taken over.
    pub genesis: Option<String>,
    /// The folder that a plain binary reads its standard library from, if it is given.
    pub root: Option<String>,
    /// Program on this machine or image reference.
    pub build: BuildPlan,
}

/// Options of a Tenderdash chain.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TenderdashPlan {
    /// `persistent_kvstore`, or [`BESIDE`].
    pub app: String,
    /// `create-empty-blocks-interval` in milliseconds.
    pub block_time_ms: u64,
    /// Program on this machine or image reference.
    pub build: BuildPlan,
}

/// An application in a process of its own beside each node; templates as written.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ApplicationPlan {
    /// Program on this machine or image reference.
    pub build: BuildPlan,
    /// Arguments of the program.
    pub command: Vec<String>,
    /// Environment beside `HOME`.
    pub env: BTreeMap<String, String>,
    /// Files by path below its home.
    pub files: BTreeMap<String, String>,
    /// Its stores, what it commits of a block, and lines of its output.
    pub layout: Layout,
}

impl ApplicationPlan {
    /// The name under which an engine runs the application of a node. No node has a name with a dot.
    pub fn name(node: &str) -> String {
        format!("{node}.app")
    }

    /// Whether a store is the application's and not the node's.
    pub fn holds(&self, store: &str) -> bool {
        self.layout.stores.iter().any(|own| own.name == store)
    }
}

impl Plan {
    /// Whether a fault is aimed at the application beside its node.
    pub fn aims_at_application(&self, fault: &FaultSetup) -> bool {
        let store = fault.asked.as_ref().map(|address| address.store.as_str());
        self.application.as_ref().zip(store).is_some_and(|(application, store)| application.holds(store))
    }

    /// Everything that nodes are made from, at first and after upgrades. The chain's own comes only where a node is made
    /// from it.
    pub fn builds_mut(&mut self) -> impl Iterator<Item = &mut BuildPlan> {
        let of_chain = self.nodes.iter().any(|node| node.build.is_none());
        let chain = self.chain.build_mut().filter(|_| of_chain);
        let nodes = self.nodes.iter_mut().filter_map(|node| node.build.as_mut());
        let upgrades = self.faults.iter_mut().filter_map(|fault| fault.upgrade.as_mut());
        let application = self.application.as_mut().map(|application| &mut application.build);
        chain.into_iter().chain(nodes).chain(upgrades).chain(application)
    }

    /// A node as it is after each of its upgrades, by fault.
    pub fn upgrades<'a>(&'a self, node: &'a NodePlan) -> impl Iterator<Item = (FaultId, NodePlan)> + 'a {
        self.faults.iter().filter(|fault| fault.setup.node == node.name).filter_map(|fault| {
            let build = Some(fault.upgrade.clone()?);
            Some((fault.setup.id.clone(), NodePlan { build, ..node.clone() }))
        })
    }
}

impl NodePlan {
    /// What it is made from.
    pub fn made_from<'a>(&'a self, chain: &'a BuildPlan) -> &'a BuildPlan {
        self.build.as_ref().unwrap_or(chain)
    }
}

/// What a node of a family other than ours is made from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BuildPlan {
    /// Path of a program.
    Binary(String),
    /// Image reference.
    Image(String),
}

/// One node.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct NodePlan {
    /// `val-1`.
    pub name: String,
    /// `val`.
    pub group: String,
    /// Its role.
    pub role: Role,
    /// Voting power; 0 for a full node.
    pub power: u64,
    /// What it is made from, where that is not what the chain says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub build: Option<BuildPlan>,
    /// 32 bytes of key material as hex; each family derives its keys from it.
    pub key_seed: String,
    /// When it first starts.
    pub start: StartAt,
    /// Whether it holds the built blocks at its first start. Nodes that start later than the run begin empty.
    pub holds_built: bool,
    /// Storage discipline: `per-block`, `single-flush`, `deferred`, `no-sync`; `None` for other families.
    pub storage: Option<String>,
    /// Names of the nodes that it dials, in plan order.
    pub peers: Vec<String>,
    /// Injected latency by store; `*` is every store.
    pub sync_latency: IndexMap<String, Latency>,
    /// How much is intercepted; `None` is the least that the faults aimed at it need.
    pub watch: Option<Tier>,
    /// Options for this node alone, handed to its configuration as they are.
    pub options: BTreeMap<String, serde_json::Value>,
}

/// When a node first starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StartAt {
    /// With the run.
    Run,
    /// Milliseconds after the first validators answered.
    AfterMs(u64),
    /// When the chain is at this height.
    Height(u64),
}

/// Transactions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LoadPlan {
    /// Transactions a second over the whole network.
    pub rate: f64,
    /// Size of one in bytes.
    pub size: usize,
    /// Kinds with their weights, such as `set` → 1.
    pub kinds: IndexMap<String, u32>,
    /// Seed of the stream.
    pub seed: u64,
}

/// One occurrence of a fault: when, what, to whom, and how it ends.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct FaultPlan {
    /// What the judge and the report are told.
    pub setup: FaultSetup,
    /// When it fires.
    pub trigger: Trigger,
    /// How long a pause lasts, or how long the node stays down.
    pub down_ms: u64,
    /// What the node is made from afterwards, of an upgrade.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade: Option<BuildPlan>,
    /// How long a node that lives on after a failed call is left alone before it is killed, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lives_on_ms: Option<u64>,
    /// How long it is waited for once it could land; then it counts as missed. In milliseconds.
    pub give_up_ms: u64,
}

/// When a fault fires.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Trigger {
    /// At the address in `setup.asked`, armed as soon as the node runs and no earlier fault holds it.
    Address,
    /// When the chain is at this height.
    Height(u64),
    /// Milliseconds after the first validators answered.
    AtMs(u64),
    /// Milliseconds after another fault's node was given back.
    After {
        /// The other fault.
        fault: String,
        /// Milliseconds.
        ms: u64,
    },
}

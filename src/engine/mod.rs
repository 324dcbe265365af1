//! What runs nodes. An engine promises only "this image with the agent as first process, reachable by a byte stream":
//! no upload, no exec, no fixed ports, so that processes, containers, services and pods all fit.
//!
//! A new engine is a new folder here and one line in `cli::engines`.

pub(crate) mod binary;
pub mod docker;
pub mod leftovers;
pub(crate) mod libraries;
mod owner;
mod probe;
#[cfg(target_os = "linux")]
pub mod process;

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use self::binary::Machine;
pub use crate::agent_client::ByteStream;

/// What an engine can do here and now; the plan is checked against it before anything is created.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capabilities {
    /// Engine name as in `--engine`.
    pub name: String,
    /// Largest number of nodes in one run.
    pub nodes_max: usize,
    /// A build may be an image reference.
    pub images: bool,
    /// A build may be a plain binary of this machine.
    pub binaries: bool,
    /// The processors that nodes run on.
    pub(crate) machine: Machine,
}

/// What a node is made from.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Build {
    /// midflush's own binary, for the reference node.
    Own,
    /// A binary on this machine, with files that it needs beside it.
    Binary {
        /// Absolute path of the program.
        path: PathBuf,
    },
    /// A container image that the engine already has.
    Image {
        /// Reference, such as `cometbft:v0.38.17`.
        reference: String,
    },
}

impl std::fmt::Display for Build {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Own => f.write_str("midflush"),
            Self::Binary { path } => write!(f, "{}", path.display()),
            Self::Image { reference } => f.write_str(reference),
        }
    }
}

/// A build made ready.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prepared {
    /// The program as the node's machine sees it, or the image's own entry point and command.
    pub program: Vec<String>,
    /// SHA-256 of the binary or image, lower-case hex.
    pub digest: String,
    /// Environment that the image sets for its program; empty for a plain binary.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
}

/// One node to launch: agent only, the node itself starts later.
#[derive(Clone, Debug)]
pub struct LaunchNode {
    /// Node name, unique in the run.
    pub name: String,
    /// Its build.
    pub build: Build,
}

/// One run to launch.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Run id; everything created is labelled with it.
    pub run: String,
    /// Token that every agent demands.
    pub token: String,
    /// The nodes, in plan order.
    pub nodes: Vec<LaunchNode>,
}

/// Where everything of a run lives: what only the machine knows. Recorded in the run folder.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Binding {
    /// Engine name.
    pub engine: String,
    /// By node name, in plan order.
    pub nodes: BTreeMap<String, NodeBinding>,
}

/// Where one node lives.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeBinding {
    /// The address that the node listens on and its peers dial. Never a wildcard: a wildcard clashes with specific binds.
    pub ip: IpAddr,
    /// Port for peers.
    pub p2p_port: u16,
    /// Port for RPC.
    pub rpc_port: u16,
    /// Port for metrics.
    pub metrics_port: u16,
    /// The node's home as the node sees it, absolute.
    pub home: PathBuf,
    /// The program, as made ready.
    pub program: Vec<String>,
    /// Environment that comes with the program; the chain's own is laid over it.
    #[serde(default)]
    pub env: BTreeMap<String, String>,
    /// Where it is, for people: `127.80.3.1`, `container midflush-r17-val-1`.
    pub place: String,
}

/// Something that an engine found with a midflush label.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Found {
    /// `container`, `network`, `volume`, `process`, `folder`.
    pub kind: String,
    /// Its name or id.
    pub id: String,
    /// The run that it belongs to; `None` is a label that cannot be read.
    pub run: Option<String>,
    /// Whether the controller that owns the run is alive.
    pub owner: OwnerState,
    /// What else hangs on it and is not of this run: containers of somebody else on the network.
    pub foreign: Vec<String>,
}

/// What is known of the controller that owns something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OwnerState {
    /// It runs.
    Alive,
    /// It is gone for certain: its process or its boot is over.
    Dead,
    /// It cannot be seen from here: another host, another process namespace, or a label that cannot be read.
    Unknown,
}

/// An engine failed. Never a fault of a node.
#[derive(Debug, thiserror::Error)]
#[error("{what}{}{}",
    .cause.as_ref().map(|c| format!(": {c}")).unwrap_or_default(),
    .mend.as_deref().map(|m| format!("; {m}")).unwrap_or_default())]
pub struct EngineError {
    /// Sentence fragment that reads after "failed to".
    pub what: String,
    /// What to do about it.
    pub mend: Option<String>,
    /// Underlying cause, part of the displayed text.
    pub cause: Option<Box<dyn std::error::Error + Send + Sync>>,
}

impl EngineError {
    /// An error without a cause in another library.
    pub(crate) fn new(what: impl Into<String>) -> Self {
        Self { what: what.into(), mend: None, cause: None }
    }

    /// Adds the underlying cause.
    pub(crate) fn because(mut self, cause: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// Adds what the user can do.
    pub(crate) fn mend(mut self, mend: impl Into<String>) -> Self {
        self.mend = Some(mend.into());
        self
    }
}

/// Runs agents, each of which runs one node.
#[async_trait::async_trait]
pub trait Engine: Send + Sync {
    /// What this engine can do here.
    fn capabilities(&self) -> Capabilities;

    /// Makes builds ready (images with the agent in them) and says what each became.
    async fn prepare(&self, builds: &[Build]) -> Result<BTreeMap<Build, Prepared>, EngineError>;

    /// Starts one agent a node and waits until each can be dialled. On an error nothing is left behind.
    async fn launch(&self, launch: &Launch) -> Result<Binding, EngineError>;

    /// Makes a node whose process is down start from another build, which was made ready before; address, home and what
    /// lies there stay. Tells whether its agent is another one now, whose events count from 1 again.
    async fn change_build(&self, run: &str, node: &str, build: &Build) -> Result<bool, EngineError>;

    /// A new byte stream to the agent of a node.
    async fn dial(&self, run: &str, node: &str) -> Result<Box<dyn ByteStream>, EngineError>;

    /// What the agent itself printed, for diagnosing the tool.
    async fn logs(&self, run: &str, node: &str) -> Result<String, EngineError>;

    /// Everything on this machine that carries a midflush label.
    async fn list(&self) -> Result<Vec<Found>, EngineError>;

    /// Removes everything of a run and goes on after an error; what could not be removed is in the error.
    async fn remove(&self, run: &str) -> Result<Vec<Found>, EngineError>;
}

/// Checks what becomes part of paths, arguments and labels, and the number of nodes.
fn check_names(launch: &Launch, nodes_max: usize) -> Result<(), EngineError> {
    if launch.nodes.is_empty() || launch.nodes.len() > nodes_max {
        return Err(EngineError::new(format!(
            "launch {} nodes: one run of this engine has 1 to {nodes_max}",
            launch.nodes.len()
        )));
    }
    let names = launch.nodes.iter().map(|node| node.name.as_str());
    if let Some(bad) = std::iter::once(launch.run.as_str()).chain(names).find(|name| !is_plain_name(name)) {
        return Err(EngineError::new(format!("use the name `{bad}`"))
            .mend("use at most 60 letters, digits, `-`, `_` or `.`, with a letter or digit first"));
    }
    let mut names: Vec<&str> = launch.nodes.iter().map(|node| node.name.as_str()).collect();
    names.sort_unstable();
    match names.windows(2).find(|pair| pair[0] == pair[1]) {
        Some(pair) => Err(EngineError::new(format!("launch two nodes named {}", pair[0]))),
        None => Ok(()),
    }
}

fn is_plain_name(name: &str) -> bool {
    name.len() <= 60
        && name.chars().all(|c| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.'))
        && name.chars().next().is_some_and(|c| c.is_ascii_alphanumeric())
}

//! gnoland, unmodified: several validators and full nodes, with keys, genesis and configuration made by the plan.
//!
//! Responsibilities: the files of a node's home and its command (`keys`, `config`, `genesis`), its stores and the order of its
//! flush (`stores`), its RPC shapes (`rpc`), and signed transactions (`send`).
//!
//! What was open about tm2's answers, and is so on v1.7.1: `parts.total` is text; `node_info.net_address` is one text,
//! `g1…@127.9.9.1:26656`; `/abci_info` nests `Error`, `Data` and the like in `ResponseBase` and has `LastBlockHeight` as text
//! beside it; a height that is not there is HTTP 200 with an error object, and `/status?heightGte=` HTTP 409; a first start
//! logs an ERROR about `#ENDHEIGHT for 0`; genesis and its first block take seconds, since the standard library is read.

mod config;
mod genesis;
mod keys;
mod rpc;
mod send;
mod stores;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use self::rpc::Tm2Shapes;
use super::{Chain, ChainError, FileContents, Made, NodeFiles, Rpc, bound, peers, program};
use crate::engine::{Binding, Build, NodeBinding};
use crate::plan::{ChainPlan, GnolandPlan, NodePlan, Plan};
use crate::timeline::Layout;

/// The module that gnoland is built from.
const MODULE: &str = "github.com/gnolang/gno";
/// What a validator signed last, below home.
const SIGN_STATE: &str = "secrets/priv_validator_state.json";
/// What a folder must hold to be the one that gnoland reads at run time.
const STANDARD_LIBRARY: &str = "gnovm/stdlibs";

/// The family, with what was found on this machine for one plan.
#[derive(Clone, Debug, Default)]
pub struct Gnoland {
    /// GNOROOT for each plain binary; an image brings its own.
    roots: BTreeMap<Build, PathBuf>,
    /// The application state of the genesis file, where one is given.
    state: Option<Value>,
}

impl Gnoland {
    /// The family for a plan: finds the folder that a plain binary needs at run time, and reads the genesis file if one is
    /// given.
    ///
    /// # Errors
    /// When that file cannot be read. A folder that is not found is an error only when a node is rendered.
    pub fn for_plan(plan: &Plan) -> Result<Self, ChainError> {
        let options = options(plan)?;
        let after = plan.nodes.iter().flat_map(|node| plan.upgrades(node).map(|(_, node)| node));
        let mut roots = BTreeMap::new();
        for node in plan.nodes.iter().cloned().chain(after) {
            let build = program::build(node.made_from(&options.build));
            if let Build::Binary { path } = &build
                && let Some(root) = options.root.as_ref().map(PathBuf::from).or_else(|| find_root(path))
            {
                roots.insert(build, root);
            }
        }
        let state = options.genesis.as_deref().map(|file| genesis::app_state(Path::new(file))).transpose()?;
        Ok(Self { roots, state })
    }

    /// What is known about the stores of every node of this family.
    pub fn known_layout() -> Layout {
        stores::layout()
    }

    fn env(&self, plan: &Plan, node: &NodePlan, place: &NodeBinding) -> Result<BTreeMap<String, String>, ChainError> {
        let mut env = place.env.clone();
        env.insert("HOME".to_owned(), place.home.to_string_lossy().into_owned());
        let build = program::build(node.made_from(&options(plan)?.build));
        if let Some(root) = self.roots.get(&build) {
            env.insert("GNOROOT".to_owned(), root.to_string_lossy().into_owned());
        } else if !env.contains_key("GNOROOT") {
            return Err(ChainError::new(format!(
                "render a gnoland node: the folder with its standard library was not found for {build}; write \
                 `root: FOLDER` under `chain.gnoland`, the folder that holds `{STANDARD_LIBRARY}`, or use the binary that \
                 `images/gnoland/build --binary` prints"
            )));
        }
        Ok(env)
    }
}

/// `root` beside the binary, as our build leaves it; GNOROOT; or the module in Go's cache that the binary was built from.
fn find_root(binary: &Path) -> Option<PathBuf> {
    let beside = binary.canonicalize().ok().and_then(|path| path.parent().map(|folder| folder.join("root")));
    let named = std::env::var_os("GNOROOT").map(PathBuf::from);
    let complete = |folder: &PathBuf| folder.join(STANDARD_LIBRARY).is_dir();
    beside.filter(complete).or_else(|| named.filter(complete)).or_else(|| {
        let version = program::version(binary, MODULE)?;
        program::module_folder(MODULE, &version).filter(complete)
    })
}

impl Chain for Gnoland {
    fn build(&self, plan: &Plan, node: &NodePlan) -> Build {
        // A plan of another family: its own node. `render` refuses it with the reason.
        options(plan).map_or(Build::Own, |options| program::build(node.made_from(&options.build)))
    }

    fn tied_to_machine(&self) -> Option<&'static str> {
        Some("a folder of this machine with the standard library")
    }

    fn layout(&self, _plan: &Plan, _node: &NodePlan) -> Layout {
        stores::layout()
    }

    fn render(&self, plan: &Plan, binding: &Binding, _made: &Made, node: &NodePlan) -> Result<NodeFiles, ChainError> {
        let place = bound(binding, &node.name)?;
        let node_key = keys::node(&node.key_seed)?;
        let validator_key = keys::validator(&node.key_seed)?;
        let sign_state = json!({ "height": "0", "round": "0", "step": 0 });
        let files = BTreeMap::from([
            ("config/config.toml", FileContents::plain(config(plan, binding, node)?)),
            ("genesis.json", FileContents::plain(pretty(&genesis::genesis(plan, self.state.as_ref())?))),
            ("secrets/node_key.json", FileContents::secret(pretty(&keys::node_file(&node_key)))),
            ("secrets/priv_validator_key.json", FileContents::secret(pretty(&keys::validator_file(&validator_key)?))),
            (SIGN_STATE, FileContents::secret(pretty(&sign_state))),
        ]);
        let home = place.home.to_string_lossy();
        let genesis = place.home.join("genesis.json");
        let mut command = place.program.clone();
        // The marks of the layout are lines of level info in this format.
        let arguments =
            ["start", "-data-dir", &home, "-genesis", &genesis.to_string_lossy(), "-chainid", &plan.chain_id];
        command.extend(arguments.map(str::to_owned));
        command.extend(["-log-level", "info", "-log-format", "console"].map(str::to_owned));
        if self.state.is_some() {
            // Its transactions were signed for another chain id, and some by keys that nobody has.
            command.extend(["-skip-genesis-sig-verification", "-skip-failing-genesis-txs"].map(str::to_owned));
        }
        let files = files.into_iter().map(|(path, contents)| (path.to_owned(), contents)).collect();
        Ok(NodeFiles { files, command, env: self.env(plan, node, place)? })
    }

    fn folders(&self) -> &'static [&'static str] {
        &["db", "wal"]
    }

    fn rpc(&self) -> &dyn Rpc {
        &Tm2Shapes
    }

    fn signed_path(&self) -> &'static str {
        SIGN_STATE
    }

    fn transaction(&self, plan: &Plan, _made: &Made, kind: &str, n: u64, size: usize) -> Result<Vec<u8>, ChainError> {
        match kind {
            "send" => send::transaction(plan, n, size),
            other => Err(ChainError::new(format!("make a transaction `{other}`: for gnoland there is `send`"))),
        }
    }
}

fn options(plan: &Plan) -> Result<&GnolandPlan, ChainError> {
    match &plan.chain {
        ChainPlan::Gnoland(options) => Ok(options),
        _ => Err(ChainError::new("render a gnoland node: the plan is of another family")),
    }
}

fn config(plan: &Plan, binding: &Binding, node: &NodePlan) -> Result<String, ChainError> {
    let options = options(plan)?;
    let place = bound(binding, &node.name)?;
    let peers = peers(plan, binding, node, |peer| keys::address_text(keys::node(&peer.key_seed)?.address()))?;
    Ok(config::render(&config::Settings {
        moniker: &node.name,
        database: &options.database,
        block_time_ms: options.block_time_ms,
        p2p: SocketAddr::new(place.ip, place.p2p_port),
        rpc: SocketAddr::new(place.ip, place.rpc_port),
        peers: &peers,
        nodes: plan.nodes.len(),
    }))
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

#[cfg(test)]
mod tests;

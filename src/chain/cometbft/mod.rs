//! CometBFT 0.38 with its built-in persistent kvstore, unmodified: keys, genesis and configuration are made by the plan.
//!
//! Responsibilities: the files of a node's home and its command (`keys`, `config`), its stores and the order of its flush
//! (`stores`), and transactions that its application takes. The RPC shapes are [`CometShapes`].

mod config;
mod keys;
mod stores;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;

use rand::RngExt as _;
use rand::SeedableRng as _;
use rand_chacha::ChaCha20Rng;
use serde_json::json;

use self::keys::{Key, Purpose};
use super::{
    Chain, ChainError, CometShapes, FileContents, Fixture, NodeFiles, Rpc, Stages, bound, metrics, program, signed,
};
use crate::engine::{Binding, Build};
use crate::plan::{ChainPlan, CometbftPlan, NodePlan, Plan};
use crate::timeline::{Heights, LastSigned, Layout, Role};

/// What a validator signed last, below home.
const SIGN_STATE: &str = "data/priv_validator_state.json";

/// The family.
#[derive(Clone, Copy, Debug, Default)]
pub struct Cometbft;

impl Cometbft {
    /// The family; it holds nothing.
    pub fn new() -> Self {
        Self
    }

    /// What is known about the stores of every node of this family.
    pub fn known_layout() -> Layout {
        stores::layout()
    }
}

impl Chain for Cometbft {
    fn build(&self, plan: &Plan, _node: &NodePlan) -> Build {
        match options(plan).map(|options| &options.build) {
            Ok(build) => program::build(build),
            // A plan of another family: its own node. `render` refuses it with the reason.
            Err(_) => Build::Own,
        }
    }

    fn layout(&self, _plan: &Plan, _node: &NodePlan) -> Layout {
        stores::layout()
    }

    fn render(&self, plan: &Plan, binding: &Binding, node: &NodePlan) -> Result<NodeFiles, ChainError> {
        let options = options(plan)?;
        let place = bound(binding, &node.name)?;
        let mut files = BTreeMap::new();
        files.insert("config/config.toml".to_owned(), FileContents::plain(config(plan, binding, node)?));
        files.insert("config/genesis.json".to_owned(), FileContents::plain(pretty(&genesis(plan)?)));
        let node_key = Key::derive(&node.key_seed, Purpose::Node)?;
        files.insert("config/node_key.json".to_owned(), FileContents::secret(pretty(&node_key.node_file())));
        let validator_key = Key::derive(&node.key_seed, Purpose::Validator)?;
        files.insert(
            "config/priv_validator_key.json".to_owned(),
            FileContents::secret(pretty(&validator_key.validator_file())),
        );
        files.insert(
            SIGN_STATE.to_owned(),
            FileContents::secret(pretty(&json!({ "height": "0", "round": 0, "step": 0 }))),
        );
        let home = place.home.to_string_lossy().into_owned();
        let mut command = place.program.clone();
        command.extend(["start", "--home", &home, "--proxy_app", &options.app].map(str::to_owned));
        let mut env = place.env.clone();
        env.insert("HOME".to_owned(), home);
        Ok(NodeFiles { files, command, env })
    }

    fn fixture(&self, plan: &Plan) -> Result<Option<Fixture>, ChainError> {
        if plan.built_blocks > 0 {
            return Err(ChainError::new(
                "start from built blocks: CometBFT has no command that builds a chain off-line",
            ));
        }
        Ok(None)
    }

    fn stages(&self, text: &str) -> Stages {
        let mut stages = Stages::default();
        for sample in metrics::samples(text) {
            match sample.name {
                "cometbft_blocksync_latest_block_height" => stages.blocks = sample.whole(),
                // Milliseconds, of the application's part of a block.
                "cometbft_state_block_processing_time_sum" => {
                    stages.seconds.insert("finalize_block".to_owned(), sample.value / 1e3);
                }
                "cometbft_abci_connection_method_timing_seconds_sum" => {
                    if let Some(method) = sample.label("method") {
                        *stages.seconds.entry(format!("abci_{method}")).or_default() += sample.value;
                    }
                }
                _ => {}
            }
        }
        stages
    }

    fn rpc(&self) -> &dyn Rpc {
        &CometShapes
    }

    /// None: goleveldb's files are not read here, the handshake line at the restart tells the heights.
    fn stored_paths(&self) -> Vec<String> {
        Vec::new()
    }

    fn stored_heights(&self, _copy: &Path) -> Result<Heights, ChainError> {
        Err(ChainError::new("read heights off-line: CometBFT tells them only in its handshake line"))
    }

    fn signed_path(&self) -> Option<String> {
        Some(SIGN_STATE.to_owned())
    }

    fn last_signed(&self, copy: &Path) -> LastSigned {
        signed::privval(&copy.join(SIGN_STATE))
    }

    /// None: its events go over a WebSocket, as JSON-RPC answers.
    fn events_request(&self) -> Option<String> {
        None
    }

    fn event_height(&self, _line: &[u8]) -> Result<Option<u64>, ChainError> {
        Err(ChainError::new("read an event: CometBFT has no stream of lines"))
    }

    fn transaction(&self, plan: &Plan, kind: &str, n: u64, size: usize) -> Result<Vec<u8>, ChainError> {
        match kind {
            "set" => Ok(set_transaction(plan.seed, n, size)),
            "validator" => validator_transaction(plan, n),
            other => {
                Err(ChainError::new(format!("make a transaction `{other}`: the kvstore has `set` and `validator`")))
            }
        }
    }
}

fn options(plan: &Plan) -> Result<&CometbftPlan, ChainError> {
    match &plan.chain {
        ChainPlan::Cometbft(options) => Ok(options),
        _ => Err(ChainError::new("render a CometBFT node: the plan is of another family")),
    }
}

fn config(plan: &Plan, binding: &Binding, node: &NodePlan) -> Result<String, ChainError> {
    let options = options(plan)?;
    let place = bound(binding, &node.name)?;
    let mut peers = Vec::with_capacity(node.peers.len());
    for name in &node.peers {
        let peer = plan.nodes.iter().find(|other| other.name == *name);
        let peer = peer.ok_or_else(|| ChainError::new(format!("render a node: peer `{name}` is not in the plan")))?;
        let id = Key::derive(&peer.key_seed, Purpose::Node)?.node_id();
        let there = bound(binding, name)?;
        peers.push(format!("{id}@{}", SocketAddr::new(there.ip, there.p2p_port)));
    }
    Ok(config::render(&config::Settings {
        moniker: &node.name,
        database: &options.database,
        block_time_ms: options.block_time_ms,
        p2p: SocketAddr::new(place.ip, place.p2p_port),
        rpc: SocketAddr::new(place.ip, place.rpc_port),
        metrics: SocketAddr::new(place.ip, place.metrics_port),
        peers: &peers,
        nodes: plan.nodes.len(),
    }))
}

/// `genesis.json`, with the defaults of `cometbft init` for what the plan does not set.
fn genesis(plan: &Plan) -> Result<serde_json::Value, ChainError> {
    let mut validators = Vec::new();
    for node in plan.nodes.iter().filter(|node| node.role == Role::Validator) {
        let key = Key::derive(&node.key_seed, Purpose::Validator)?;
        validators.push(json!({
            "address": key.validator_address(),
            "pub_key": key.public_json(),
            "power": node.power.to_string(),
            "name": node.name,
        }));
    }
    Ok(json!({
        "genesis_time": plan.genesis_time,
        "chain_id": plan.chain_id,
        "initial_height": plan.initial_height.to_string(),
        "consensus_params": {
            "block": { "max_bytes": "22020096", "max_gas": "-1" },
            "evidence": {
                "max_age_num_blocks": "100000",
                "max_age_duration": "172800000000000",
                "max_bytes": "1048576",
            },
            "validator": { "pub_key_types": ["ed25519"] },
            "version": { "app": "0" },
            "abci": { "vote_extensions_enable_height": "0" },
        },
        "validators": validators,
        "app_hash": "",
    }))
}

fn pretty(value: &serde_json::Value) -> String {
    format!("{value:#}\n")
}

/// `key=value` with a key of its own, filled up to `size` bytes with letters and digits: the kvstore wants exactly one
/// `=` and no `:`.
fn set_transaction(seed: u64, n: u64, size: usize) -> Vec<u8> {
    const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let mut random = ChaCha20Rng::seed_from_u64(seed ^ n.rotate_left(32));
    let mut transaction = format!("k{n}=").into_bytes();
    let length = size.max(transaction.len() + 1);
    transaction.resize_with(length, || LETTERS[random.random_range(0..LETTERS.len())]);
    transaction
}

/// Gives each validator in turn one more unit of power, so that shares of power stay as they are. No two are equal: a
/// mempool refuses a transaction that it has seen.
fn validator_transaction(plan: &Plan, n: u64) -> Result<Vec<u8>, ChainError> {
    let validators: Vec<&NodePlan> = plan.nodes.iter().filter(|node| node.role == Role::Validator).collect();
    let count = validators.len() as u64;
    if count == 0 {
        return Err(ChainError::new("make a transaction `validator`: the plan has no validator"));
    }
    let index = usize::try_from(n % count).map_err(|_| ChainError::new("too many validators"))?;
    let validator = validators[index];
    let key = Key::derive(&validator.key_seed, Purpose::Validator)?;
    Ok(format!("val=ed25519!{}!{}", key.public_base64(), validator.power + 1 + n / count).into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::sample;
    use crate::plan::BuildPlan;

    fn sample_plan() -> Plan {
        let options = CometbftPlan {
            app: "persistent_kvstore".to_owned(),
            database: "goleveldb".to_owned(),
            block_time_ms: 200,
            build: BuildPlan::Binary("/opt/cometbft".to_owned()),
        };
        sample::plan(ChainPlan::Cometbft(options), 4)
    }

    #[test]
    fn files_of_a_full_node() {
        let plan = sample_plan();
        let binding = sample::binding(&plan, "/opt/cometbft");
        let late = plan.nodes.last().expect("a node");
        let files = Cometbft::new().render(&plan, &binding, late).expect("files");
        assert_eq!(files, Cometbft::new().render(&plan, &binding, late).expect("files"));
        assert_eq!(
            files.command,
            ["/opt/cometbft", "start", "--home", "/run/sample/late", "--proxy_app", "persistent_kvstore"]
        );
        let text = |path: &str| String::from_utf8(files.files[path].bytes.clone()).expect("text");
        insta::assert_snapshot!("config.toml", text("config/config.toml"));
        insta::assert_snapshot!("genesis.json", text("config/genesis.json"));
        insta::assert_snapshot!("node_key.json", text("config/node_key.json"));
        insta::assert_snapshot!("priv_validator_key.json", text("config/priv_validator_key.json"));
        for secret in ["config/node_key.json", "config/priv_validator_key.json"] {
            assert_eq!(files.files[secret].mode, 0o600);
        }
        assert!(!text("config/config.toml").contains("0.0.0.0"));
    }

    #[test]
    fn peers_that_are_not_bound_or_not_planned_are_refused() {
        let mut plan = sample_plan();
        let mut binding = sample::binding(&plan, "/opt/cometbft");
        binding.nodes.remove("val-2");
        let refused = |plan: &Plan, binding: &Binding| {
            Cometbft::new().render(plan, binding, &plan.nodes[0]).expect_err("an error")
        };
        assert_eq!(refused(&plan, &binding).0, "render a node: `val-2` is not bound");
        plan.nodes[0].peers = vec!["nobody".to_owned()];
        assert_eq!(refused(&plan, &binding).0, "render a node: peer `nobody` is not in the plan");
    }

    #[test]
    fn built_blocks_are_refused() {
        let mut plan = sample_plan();
        plan.built_blocks = 10;
        assert!(Cometbft::new().fixture(&plan).is_err());
    }

    #[test]
    fn transactions_are_such_as_the_kvstore_takes() {
        let plan = sample_plan();
        let make = |kind: &str, n| Cometbft::new().transaction(&plan, kind, n, 40);
        let one = make("set", 1).expect("a transaction");
        assert_eq!(one.len(), 40);
        assert_eq!(one.iter().filter(|b| **b == b'=').count(), 1);
        assert!(!one.contains(&b':') && one.starts_with(b"k1="));
        assert_eq!(one, make("set", 1).expect("a transaction"));
        assert_ne!(one, make("set", 2).expect("a transaction"));
        let vote = |n| String::from_utf8(make("validator", n).expect("a transaction")).expect("text");
        assert!(vote(0).starts_with("val=ed25519!") && vote(0).ends_with("!11"));
        assert!(vote(4).ends_with("!12"));
        assert!(make("halt", 1).is_err());
    }
}

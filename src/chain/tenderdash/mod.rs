//! Tenderdash 1.5 with its built-in persistent kvstore or an application beside it, unmodified: keys, genesis and configuration are made by the plan.
//!
//! Responsibilities: the files of a node's home and its command (`quorum`, `config`), its stores and the order of its flush
//! (`stores`), its RPC shapes (`rpc`), and transactions that its application takes.

mod config;
mod quorum;
mod rpc;
mod stores;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use rand::RngExt as _;
use rand::SeedableRng as _;
use rand_chacha::ChaCha20Rng;
use serde_json::json;

use self::quorum::Quorum;
use super::{
    Chain, ChainError, FileContents, Made, NodeFiles, Rpc, Stages, application, bound, ed25519, metrics, peers, program,
};
use crate::engine::{Binding, Build};
use crate::plan::{BESIDE, ChainPlan, NodePlan, Plan, TenderdashPlan};
use crate::timeline::{Layout, Role};

pub use rpc::TenderdashShapes;

/// Power of every validator: the node counts them and knows no other number.
const POWER: u64 = 100;
/// Keys that the load sets. The application writes all it has anew with each block, a call a key.
const KEYS: u64 = 32;
/// What a validator signed last, below home.
const SIGN_STATE: &str = "data/priv_validator_state.json";

/// The family.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tenderdash;

impl Tenderdash {
    /// The family; it holds nothing.
    pub fn new() -> Self {
        Self
    }

    /// What is known about the stores of every node of this family that is not the only validator.
    pub fn known_layout() -> Layout {
        stores::layout(false, false)
    }
}

impl Chain for Tenderdash {
    fn build(&self, plan: &Plan, node: &NodePlan) -> Build {
        match options(plan) {
            Ok(options) => program::build(node.made_from(&options.build)),
            // A plan of another family: its own node. `render` refuses it with the reason.
            Err(_) => Build::Own,
        }
    }

    fn layout(&self, plan: &Plan, node: &NodePlan) -> Layout {
        let validators = plan.nodes.iter().filter(|other| other.role == Role::Validator).count();
        let alone = node.role == Role::Validator && validators == 1;
        stores::layout(alone, plan.application.is_some())
    }

    fn render(&self, plan: &Plan, binding: &Binding, _made: &Made, node: &NodePlan) -> Result<NodeFiles, ChainError> {
        let quorum = Quorum::of(plan)?;
        let place = bound(binding, &node.name)?;
        let mut files = BTreeMap::new();
        files.insert("config/config.toml".to_owned(), FileContents::plain(config(plan, binding, node)?));
        files.insert("config/genesis.json".to_owned(), FileContents::plain(pretty(&genesis(plan, &quorum))));
        let key = node_key(node)?;
        let node_file = json!({
            "id": hex::encode(key.address()),
            "priv_key": { "type": "tendermint/PrivKeyEd25519", "value": key.private_base64() },
        });
        files.insert("config/node_key.json".to_owned(), FileContents::secret(pretty(&node_file)));
        if let Some(validator_file) = quorum.validator_file(&node.name) {
            files.insert("config/priv_validator_key.json".to_owned(), FileContents::secret(pretty(&validator_file)));
            // Without one, or with an empty one, the node refuses to start.
            files.insert(
                SIGN_STATE.to_owned(),
                FileContents::secret(pretty(&json!({ "height": "0", "round": 0, "step": 0 }))),
            );
        }
        let home = place.home.to_string_lossy().into_owned();
        let mut command = place.program.clone();
        command.extend(["start", "--home", &home].map(str::to_owned));
        let mut env = place.env.clone();
        env.insert("HOME".to_owned(), home);
        Ok(NodeFiles { files, command, env })
    }

    fn stages(&self, text: &str) -> Stages {
        metrics::comet_stages(text)
    }

    fn rpc(&self) -> &dyn Rpc {
        &TenderdashShapes
    }

    fn signed_path(&self) -> &'static str {
        SIGN_STATE
    }

    fn transaction(&self, plan: &Plan, _made: &Made, kind: &str, n: u64, size: usize) -> Result<Vec<u8>, ChainError> {
        match kind {
            "set" => Ok(set_transaction(plan.seed, n, size)),
            other => Err(ChainError::new(format!("make a transaction `{other}`: the kvstore has `set`"))),
        }
    }
}

fn options(plan: &Plan) -> Result<&TenderdashPlan, ChainError> {
    match &plan.chain {
        ChainPlan::Tenderdash(options) => Ok(options),
        _ => Err(ChainError::new("render a Tenderdash node: the plan is of another family")),
    }
}

/// The key that names a node among its peers.
fn node_key(node: &NodePlan) -> Result<ed25519::Key, ChainError> {
    ed25519::Key::derive(&node.key_seed, "midflush tenderdash node")
}

fn config(plan: &Plan, binding: &Binding, node: &NodePlan) -> Result<String, ChainError> {
    let options = options(plan)?;
    let place = bound(binding, &node.name)?;
    let peers = peers(plan, binding, node, |peer| Ok(hex::encode(node_key(peer)?.address())))?;
    let app = if options.app == BESIDE { application::address(binding, node)? } else { options.app.clone() };
    Ok(config::render(&config::Settings {
        moniker: &node.name,
        role: node.role,
        app: &app,
        block_time_ms: options.block_time_ms,
        p2p: SocketAddr::new(place.ip, place.p2p_port),
        rpc: SocketAddr::new(place.ip, place.rpc_port),
        metrics: SocketAddr::new(place.ip, place.metrics_port),
        peers: &peers,
        nodes: plan.nodes.len(),
    }))
}

/// `genesis.json`. Durations are nanoseconds as text. The plan's genesis time is whole seconds: the node keeps no more than
/// milliseconds, and would never agree on its first block with more.
fn genesis(plan: &Plan, quorum: &Quorum) -> serde_json::Value {
    let validators: Vec<_> = quorum
        .members()
        .iter()
        .map(|member| {
            json!({
                "pub_key": member.public_json(),
                "power": POWER,
                "name": member.name,
                "pro_tx_hash": member.pro_tx_hash,
            })
        })
        .collect();
    json!({
        "genesis_time": plan.genesis_time,
        "chain_id": plan.chain_id,
        "initial_height": plan.initial_height.to_string(),
        "initial_core_chain_locked_height": 1,
        "consensus_params": {
            "block": { "max_bytes": "22020096", "max_gas": "-1" },
            "evidence": {
                "max_age_num_blocks": "100000",
                "max_age_duration": "172800000000000",
                "max_bytes": "1048576",
            },
            "validator": { "pub_key_types": ["bls12381"] },
            "version": { "app_version": "0" },
            // Wide enough for a node that is held up: a proposal that comes late costs a round.
            "synchrony": { "precision": "505000000", "message_delay": "12000000000" },
            // A killed proposer costs its rounds this much: long enough for a busy machine, short enough for a test.
            "timeout": {
                "propose": "1000000000",
                "propose_delta": "500000000",
                "vote": "500000000",
                "vote_delta": "250000000",
                "commit": "0",
                "bypass_commit_timeout": false,
            },
            "abci": { "recheck_tx": true },
        },
        "validators": validators,
        "validator_quorum_threshold_public_key": quorum.public_json(),
        "validator_quorum_type": quorum::TYPE,
        "validator_quorum_hash": quorum.hash,
    })
}

fn pretty(value: &serde_json::Value) -> String {
    format!("{value:#}\n")
}

/// `key=value`, filled up to `size` bytes with letters and digits; no two are equal, since a mempool refuses a transaction
/// that it has seen.
fn set_transaction(seed: u64, n: u64, size: usize) -> Vec<u8> {
    const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let mut random = ChaCha20Rng::seed_from_u64(seed ^ n.rotate_left(32));
    let mut transaction = format!("k{}={n}.", n % KEYS).into_bytes();
    let length = size.max(transaction.len());
    transaction.resize_with(length, || LETTERS[random.random_range(0..LETTERS.len())]);
    transaction
}

#[cfg(test)]
mod tests;

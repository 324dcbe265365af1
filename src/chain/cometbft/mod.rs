//! CometBFT 0.37, 0.38 and 1.x, unmodified, with its built-in persistent kvstore or with the application of its end-to-end
//! tests: keys, genesis and configuration are made by the plan.
//!
//! Responsibilities: which release a node is of (`release`), the files of its home and its command (`keys`, `config`), its
//! stores and the order of its flush (`stores`), and transactions that its application takes. The RPC shapes are
//! [`CometShapes`].

mod config;
pub(in crate::chain) mod keys;
mod release;
mod stores;

use std::collections::BTreeMap;
use std::net::SocketAddr;

use rand::RngExt as _;
use rand::SeedableRng as _;
use rand_chacha::ChaCha20Rng;
use serde_json::json;

use self::keys::{Key, Purpose};
use self::release::{App, Release};
use super::{
    Chain, ChainError, CometShapes, FileContents, Made, NodeFiles, Rpc, Stages, application, bound, metrics, peers,
    program,
};
use crate::engine::{Binding, Build};
use crate::plan::{ChainPlan, CometbftPlan, NodePlan, Plan};
use crate::timeline::{Layout, Role};

/// What a validator signed last, below home.
pub(super) const SIGN_STATE: &str = "data/priv_validator_state.json";

/// The family, with the release of each build as far as it was looked up.
#[derive(Clone, Debug, Default)]
pub struct Cometbft {
    releases: BTreeMap<Build, Release>,
}

impl Cometbft {
    /// The family as far as a plan alone tells: a plain binary counts as 0.38 where the plan has no version.
    pub fn new() -> Self {
        Self::default()
    }

    /// The family for a plan whose programs are on this machine.
    ///
    /// # Errors
    /// When a program does not say which release it is, or is of one that is not known.
    pub fn for_plan(plan: &Plan) -> Result<Self, ChainError> {
        let options = options(plan)?;
        let after = plan.nodes.iter().flat_map(|node| plan.upgrades(node).map(|(_, node)| node));
        let nodes = plan.nodes.iter().cloned().chain(after);
        let builds = nodes.map(|node| program::build(node.made_from(&options.build)));
        let found = builds.map(|build| Ok((build.clone(), Release::found(options, &build)?)));
        Ok(Self { releases: found.collect::<Result<_, ChainError>>()? })
    }

    /// What is known about the stores of nodes of this family, with each kind of application; the usual one first.
    pub fn known_layouts() -> [Layout; 2] {
        [App::Kvstore, App::E2e].map(|app| stores::layout(Release::default(), app))
    }

    fn release(&self, options: &CometbftPlan, node: &NodePlan) -> Release {
        let build = program::build(node.made_from(&options.build));
        let known = self.releases.get(&build).copied();
        known.or_else(|| Release::written(options, &build)).unwrap_or_default()
    }
}

impl Chain for Cometbft {
    fn build(&self, plan: &Plan, node: &NodePlan) -> Build {
        match options(plan).map(|options| node.made_from(&options.build)) {
            Ok(build) => program::build(build),
            // A plan of another family: its own node. `render` refuses it with the reason.
            Err(_) => Build::Own,
        }
    }

    fn layout(&self, plan: &Plan, node: &NodePlan) -> Layout {
        let Ok(options) = options(plan) else { return Layout::default() };
        // `render` refuses an application that there is not.
        stores::layout(self.release(options, node), App::named(&options.app).unwrap_or(App::Kvstore))
    }

    fn render(&self, plan: &Plan, binding: &Binding, _made: &Made, node: &NodePlan) -> Result<NodeFiles, ChainError> {
        let options = options(plan)?;
        let place = bound(binding, &node.name)?;
        let mut files = key_files(node)?;
        let settings = settings(plan, binding, node, &options.database, options.block_time_ms)?;
        files.insert("config/config.toml".to_owned(), FileContents::plain(settings));
        files.insert(
            "config/genesis.json".to_owned(),
            FileContents::plain(pretty(&genesis(plan, self.release(options, node))?)),
        );
        let home = place.home.to_string_lossy().into_owned();
        let mut command = place.program.clone();
        let mut env = place.env.clone();
        match App::named(&options.app)? {
            App::Kvstore => command.extend(["start", "--home", &home, "--proxy_app", &options.app].map(str::to_owned)),
            App::Beside => {
                let address = application::address(binding, node)?;
                command.extend(["start", "--home", &home, "--proxy_app", &address].map(str::to_owned));
            }
            App::E2e => {
                files.insert("config/app.toml".to_owned(), FileContents::plain(config::e2e(plan, &home)));
                command.push(format!("{home}/config/app.toml"));
                env.insert("CMTHOME".to_owned(), home.clone());
            }
        }
        env.insert("HOME".to_owned(), home);
        Ok(NodeFiles { files, command, env })
    }

    fn stages(&self, text: &str) -> Stages {
        metrics::comet_stages(text)
    }

    fn rpc(&self) -> &dyn Rpc {
        &CometShapes
    }

    fn signed_path(&self) -> &'static str {
        SIGN_STATE
    }

    fn transaction(&self, plan: &Plan, _made: &Made, kind: &str, n: u64, size: usize) -> Result<Vec<u8>, ChainError> {
        match kind {
            "set" => Ok(set_transaction(plan.seed, n, size)),
            "validator" if options(plan)?.app != "e2e" => validator_transaction(plan, n),
            other => Err(ChainError::new(format!(
                "make a transaction `{other}`: the kvstore has `set` and `validator`, the e2e application `set`"
            ))),
        }
    }
}

fn options(plan: &Plan) -> Result<&CometbftPlan, ChainError> {
    match &plan.chain {
        ChainPlan::Cometbft(options) => Ok(options),
        _ => Err(ChainError::new("render a CometBFT node: the plan is of another family")),
    }
}

/// Keys and sign state of a node, as every node that runs CometBFT has them.
pub(super) fn key_files(node: &NodePlan) -> Result<BTreeMap<String, FileContents>, ChainError> {
    let node_key = Key::derive(&node.key_seed, Purpose::Node)?.node_file();
    let validator_key = Key::derive(&node.key_seed, Purpose::Validator)?.validator_file();
    let state = json!({ "height": "0", "round": 0, "step": 0 });
    let files =
        [("config/node_key.json", node_key), ("config/priv_validator_key.json", validator_key), (SIGN_STATE, state)];
    Ok(files.map(|(path, value)| (path.to_owned(), FileContents::secret(pretty(&value)))).into())
}

/// `config.toml` of a node among these peers.
pub(super) fn settings(
    plan: &Plan,
    binding: &Binding,
    node: &NodePlan,
    database: &str,
    block_time_ms: u64,
) -> Result<String, ChainError> {
    let place = bound(binding, &node.name)?;
    let peers = peers(plan, binding, node, |peer| Ok(Key::derive(&peer.key_seed, Purpose::Node)?.node_id()))?;
    Ok(config::render(&config::Settings {
        moniker: &node.name,
        database,
        block_time_ms,
        p2p: SocketAddr::new(place.ip, place.p2p_port),
        rpc: SocketAddr::new(place.ip, place.rpc_port),
        metrics: SocketAddr::new(place.ip, place.metrics_port),
        peers: &peers,
        nodes: plan.nodes.len(),
    }))
}

/// `genesis.json`, with the defaults of `cometbft init` for what the plan does not set.
fn genesis(plan: &Plan, release: Release) -> Result<serde_json::Value, ChainError> {
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
    let mut parameters = json!({
        "block": { "max_bytes": "22020096", "max_gas": "-1" },
        "evidence": {
            "max_age_num_blocks": "100000",
            "max_age_duration": "172800000000000",
            "max_bytes": "1048576",
        },
        "validator": { "pub_key_types": ["ed25519"] },
        "version": { "app": "0" },
    });
    match release {
        Release::V037 => {}
        Release::V038 => parameters["abci"] = json!({ "vote_extensions_enable_height": "0" }),
        Release::V1 => {
            parameters["synchrony"] = json!({ "precision": "505000000", "message_delay": "15000000000" });
            parameters["feature"] = json!({ "vote_extensions_enable_height": "0", "pbts_enable_height": "0" });
        }
    }
    Ok(json!({
        "genesis_time": plan.genesis_time,
        "chain_id": plan.chain_id,
        "initial_height": plan.initial_height.to_string(),
        "consensus_params": parameters,
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
            version: None,
            build: BuildPlan::Binary("/opt/cometbft".to_owned()),
        };
        sample::plan(ChainPlan::Cometbft(options), 4)
    }

    #[test]
    fn files_of_a_full_node() {
        let plan = sample_plan();
        let binding = sample::binding(&plan, "/opt/cometbft");
        let late = plan.nodes.last().expect("a node");
        let files = Cometbft::new().render(&plan, &binding, &Made::new(), late).expect("files");
        assert_eq!(files, Cometbft::new().render(&plan, &binding, &Made::new(), late).expect("files"));
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
    fn genesis_and_flush_follow_the_release_and_the_application() {
        let mut plan = sample_plan();
        let binding = sample::binding(&plan, "/opt/node");
        let set = |plan: &mut Plan, version: &str, app: &str| {
            let ChainPlan::Cometbft(options) = &mut plan.chain else { panic!("of this family") };
            (options.version, options.app) = (Some(version.to_owned()), app.to_owned());
        };
        set(&mut plan, "1", "e2e");
        let files = Cometbft::new().render(&plan, &binding, &Made::new(), &plan.nodes[0]).expect("files");
        assert_eq!(files.command, ["/opt/node", "/run/sample/val-1/config/app.toml"]);
        assert_eq!(files.env["CMTHOME"], "/run/sample/val-1");
        let text = |path: &str| String::from_utf8(files.files[path].bytes.clone()).expect("text");
        insta::assert_snapshot!("app.toml", text("config/app.toml"));
        assert!(text("config/genesis.json").contains("pbts_enable_height"));
        assert!(Cometbft::new().transaction(&plan, &Made::new(), "validator", 1, 40).is_err());
        let commits = |plan: &Plan| Cometbft::new().layout(plan, &plan.nodes[0]).flush.len();
        assert_eq!(commits(&plan), 5);
        set(&mut plan, "1", "persistent_kvstore");
        assert_eq!(commits(&plan), 4);
        set(&mut plan, "0.37", "persistent_kvstore");
        assert_eq!(commits(&plan), 5);
        // A program that does not say what it is.
        let ChainPlan::Cometbft(options) = &mut plan.chain else { panic!("of this family") };
        options.version = None;
        assert!(Cometbft::for_plan(&plan).expect_err("an error").0.contains("`version: \"0.38\"`"));
        options_image(&mut plan);
        assert_eq!(Cometbft::for_plan(&plan).expect("the family").layout(&plan, &plan.nodes[0]).flush.len(), 4);
    }

    fn options_image(plan: &mut Plan) {
        let ChainPlan::Cometbft(options) = &mut plan.chain else { panic!("of this family") };
        options.build = BuildPlan::Image("cometbft:v1.0.1".to_owned());
    }

    #[test]
    fn peers_that_are_not_bound_or_not_planned_are_refused() {
        let mut plan = sample_plan();
        let mut binding = sample::binding(&plan, "/opt/cometbft");
        binding.nodes.remove("val-2");
        let refused = |plan: &Plan, binding: &Binding| {
            Cometbft::new().render(plan, binding, &Made::new(), &plan.nodes[0]).expect_err("an error")
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
        let make = |kind: &str, n| Cometbft::new().transaction(&plan, &Made::new(), kind, n, 40);
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

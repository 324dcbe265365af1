//! The built-in reference node, seen as any node: by its files, command, RPC, log and folder.
//!
//! Responsibilities: the files of a node's home and its command, its stores in each storage discipline (`stores`), its heights
//! read off-line (`stored`), keys (`keys`), the chain built before a run, and transactions. The RPC shapes are
//! [`CometShapes`]. Nothing here comes from `node`: formats are written down on both sides, and a test runs one against the other.

mod keys;
mod stored;
mod stores;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use rand::RngExt as _;
use rand::SeedableRng as _;
use rand_chacha::ChaCha20Rng;
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use self::keys::Key;
use self::stores::Discipline;
use super::{
    BlockContents, Chain, ChainError, CometShapes, FileContents, Fixture, Made, NodeFiles, Rpc, Stages, bound, metrics,
    signed,
};
use crate::engine::{Binding, Build};
use crate::plan::{ChainPlan, NodePlan, Plan, ReferencePlan};
use crate::timeline::{Heights, LastSigned, Layout, Role, wire};

/// Version of everything that a built chain's bytes depend on besides its inputs: encodings, stores, application. Raised
/// with each change of one of them, so that no cached chain outlives its format.
const CHAIN_FORMAT: u32 = 1;

/// Options of a plan that go into a node's configuration under the same name. All others are the plan's own.
const OPTIONS: [&str; 5] = ["verify_window", "checkpoints", "timing", "flush", "planted_defect"];

/// Keys of the `set` transactions, in turn: the application's state stays bounded under a long load.
const KEYS: u64 = 4096;

/// What a validator signed last, below home.
const SIGN_STATE: &str = "data/sign_state.json";

/// From here on halt heights are drawn.
const HALT_FAR: u64 = 1_000_000_000;

/// The family.
#[derive(Clone, Debug)]
pub struct Reference {
    program: PathBuf,
}

impl Reference {
    /// The family. `program` is midflush's own binary on this machine, which builds chains off-line.
    pub fn new(program: impl Into<PathBuf>) -> Self {
        Self { program: program.into() }
    }

    /// What is known about the stores of every node with this storage discipline; none is the default one.
    pub fn known_layout(storage: Option<&str>) -> Result<Layout, ChainError> {
        Discipline::named(storage).map(stores::layout)
    }

    /// The chain of a plan with built blocks; `contents` are arguments that say what is in the blocks.
    fn built(&self, plan: &Plan, contents: &[&str]) -> Result<Option<Fixture>, ChainError> {
        if plan.built_blocks == 0 {
            return Ok(None);
        }
        let mut files = BTreeMap::new();
        files.insert("config/genesis.json".to_owned(), FileContents::plain(pretty(&genesis(plan)?)));
        for node in validators(plan) {
            let key = FileContents::secret(pretty(&Key::derive(&node.key_seed)?.file()));
            files.insert(format!("keys/{}.json", node.name), key);
        }
        let (blocks, seed) = (plan.built_blocks.to_string(), plan.seed.to_string());
        let mut arguments =
            vec!["node", "build-chain", "--home", ".", "--keys", "keys", "--blocks", &blocks, "--seed", &seed];
        arguments.extend(contents);
        let mut digest = Sha256::new();
        digest.update(CHAIN_FORMAT.to_le_bytes());
        for (path, contents) in &files {
            digest.update(format!("{path} {}\n", contents.bytes.len()));
            digest.update(&contents.bytes);
        }
        digest.update(arguments.join(" "));
        let mut command = vec![self.program.to_string_lossy().into_owned()];
        command.extend(arguments.into_iter().map(str::to_owned));
        Ok(Some(Fixture {
            key: format!("reference-{}", hex::encode(&digest.finalize()[..16])),
            files,
            command,
            into: "data".to_owned(),
        }))
    }
}

impl Chain for Reference {
    fn build(&self, _plan: &Plan, _node: &NodePlan) -> Build {
        Build::Own
    }

    /// An unknown discipline, which [`Chain::render`] refuses, gets the layout of the default.
    fn layout(&self, _plan: &Plan, node: &NodePlan) -> Layout {
        stores::layout(Discipline::named(node.storage.as_deref()).unwrap_or(Discipline::PerBlock))
    }

    fn render(&self, plan: &Plan, binding: &Binding, _made: &Made, node: &NodePlan) -> Result<NodeFiles, ChainError> {
        let place = bound(binding, &node.name)?;
        let mut files = BTreeMap::new();
        files.insert("config/node.json".to_owned(), FileContents::plain(pretty(&config(plan, binding, node)?)));
        files.insert("config/genesis.json".to_owned(), FileContents::plain(pretty(&genesis(plan)?)));
        files.insert("config/key.json".to_owned(), FileContents::secret(pretty(&Key::derive(&node.key_seed)?.file())));
        let home = place.home.to_string_lossy().into_owned();
        let mut command = place.program.clone();
        command.extend(["node", "start", "--home", &home].map(str::to_owned));
        let mut env = place.env.clone();
        env.insert("HOME".to_owned(), home);
        Ok(NodeFiles { files, command, env })
    }

    fn fixture(&self, plan: &Plan) -> Result<Option<Fixture>, ChainError> {
        self.built(plan, &[])
    }

    fn filled_fixture(&self, plan: &Plan, blocks: BlockContents) -> Result<Option<Fixture>, ChainError> {
        let (txs, bytes) = (blocks.transactions.to_string(), blocks.size.to_string());
        self.built(plan, &["--txs", &txs, "--tx-bytes", &bytes])
    }

    fn stages(&self, text: &str) -> Stages {
        let mut stages = Stages::default();
        for sample in metrics::samples(text) {
            match (sample.name, sample.label("stage")) {
                ("midflush_node_stage_seconds_total", Some(stage)) => {
                    stages.seconds.insert(stage.to_owned(), sample.value);
                }
                // Every block is made into parts once, whatever the discipline.
                ("midflush_node_stage_runs_total", Some("verify_block")) => stages.blocks = sample.whole(),
                _ => {}
            }
        }
        stages
    }

    fn rpc(&self) -> &dyn Rpc {
        &CometShapes
    }

    fn stored_paths(&self) -> Vec<String> {
        stored::PATHS.map(str::to_owned).to_vec()
    }

    fn stored_heights(&self, copy: &Path) -> Result<Heights, ChainError> {
        stored::heights(copy)
    }

    fn signed_path(&self) -> &'static str {
        SIGN_STATE
    }

    fn last_signed(&self, copy: &Path) -> LastSigned {
        signed::position(&copy.join(SIGN_STATE))
    }

    fn events_request(&self) -> Option<String> {
        Some("/events".to_owned())
    }

    fn event_height(&self, line: &[u8]) -> Result<Option<u64>, ChainError> {
        let event = wire::answer(line)?;
        match event.get("block") {
            None => Ok(None),
            Some(block) => Ok(Some(wire::number(wire::object(block, "block")?, "height")?)),
        }
    }

    fn transaction(&self, plan: &Plan, _made: &Made, kind: &str, n: u64, size: usize) -> Result<Vec<u8>, ChainError> {
        let text = match kind {
            "set" => return Ok(set_transaction(plan.seed, n, size)),
            "validator" => validator_transaction(plan, n)?,
            // Always a little more than 1 MiB, and another value than before, so that the parameters' hash changes.
            "params" => format!("param block_max_bytes {}", (1 << 20) + 1 + n % 1024),
            // A height that no run reaches: the parameter changes, the chain goes on.
            "halt" => format!("halt {}", HALT_FAR + n % 1024),
            other => {
                return Err(ChainError::new(format!(
                    "make a transaction `{other}`: the reference chain has `set`, `validator`, `params` and `halt`"
                )));
            }
        };
        Ok(padded(text, n, size))
    }
}

fn options(plan: &Plan) -> Result<&ReferencePlan, ChainError> {
    match &plan.chain {
        ChainPlan::Reference(options) => Ok(options),
        _ => Err(ChainError::new("render a reference node: the plan is of another family")),
    }
}

fn validators(plan: &Plan) -> impl Iterator<Item = &NodePlan> {
    plan.nodes.iter().filter(|node| node.role == Role::Validator)
}

/// `config/node.json`.
fn config(plan: &Plan, binding: &Binding, node: &NodePlan) -> Result<Value, ChainError> {
    let options = options(plan)?;
    let place = bound(binding, &node.name)?;
    let mut peers = Vec::with_capacity(node.peers.len());
    for name in &node.peers {
        let there = bound(binding, name)?;
        peers.push(json!({ "name": name, "address": SocketAddr::new(there.ip, there.p2p_port) }));
    }
    let discipline = Discipline::named(node.storage.as_deref())?;
    let mut config = Map::new();
    let mut set = |key: &str, value: Value| config.insert(key.to_owned(), value);
    set("name", json!(node.name));
    set("p2p_listen", json!(SocketAddr::new(place.ip, place.p2p_port)));
    set("rpc_listen", json!(SocketAddr::new(place.ip, place.rpc_port)));
    set("metrics_listen", json!(SocketAddr::new(place.ip, place.metrics_port)));
    set("peers", json!(peers));
    set("storage", json!(discipline.name()));
    // A plan has this discipline only where its topology accepts the risk.
    set("unsafe", json!(discipline == Discipline::NoSync));
    set("block_time_ms", json!(options.block_time_ms));
    set("halt_height", json!(options.halt_height));
    // A node's own option is stronger than the chain's.
    for (key, value) in options.options.iter().chain(&node.options) {
        if !OPTIONS.contains(&key.as_str()) {
            return Err(ChainError::new(format!(
                "use option `{key}` of the reference node: there are {}",
                OPTIONS.join(", ")
            )));
        }
        config.insert(key.clone(), value.clone());
    }
    Ok(Value::Object(config))
}

/// `config/genesis.json`.
fn genesis(plan: &Plan) -> Result<Value, ChainError> {
    let mut all = Vec::new();
    for node in validators(plan) {
        let key = Key::derive(&node.key_seed)?;
        all.push(json!({
            "name": node.name,
            "pub_key": key.public_hex(),
            "proof_of_possession": key.proof_hex(),
            "power": node.power,
        }));
    }
    Ok(json!({
        "chain_id": plan.chain_id,
        "genesis_time": plan.genesis_time,
        "initial_height": plan.initial_height,
        "validators": all,
    }))
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}

/// `set <key> <value>`, the value filled up with letters and digits.
fn set_transaction(seed: u64, n: u64, size: usize) -> Vec<u8> {
    fill(format!("set k{} {n}", n % KEYS).into_bytes(), b'.', seed ^ n.rotate_left(32), size)
}

/// Gives each validator in turn one more unit of power, so that shares of power stay as they are.
fn validator_transaction(plan: &Plan, n: u64) -> Result<String, ChainError> {
    let all: Vec<&NodePlan> = validators(plan).collect();
    let Some(turn) = n.checked_rem(all.len() as u64) else {
        return Err(ChainError::new("make a transaction `validator`: the plan has no validator"));
    };
    let validator = all[usize::try_from(turn).map_err(|_| ChainError::new("too many validators"))?];
    let key = Key::derive(&validator.key_seed)?;
    Ok(format!("validator {} {}", key.public_hex(), validator.power + 1 + n / all.len() as u64))
}

/// A comment with the number, so that no two are equal, and filling.
fn padded(text: String, n: u64, size: usize) -> Vec<u8> {
    fill(format!("{text} # {n}").into_bytes(), b'.', n, size)
}

/// Appends `between` and then letters and digits up to `size` bytes; leaves what is long enough.
fn fill(mut transaction: Vec<u8>, between: u8, seed: u64, size: usize) -> Vec<u8> {
    const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
    if transaction.len() < size {
        let mut random = ChaCha20Rng::seed_from_u64(seed);
        transaction.push(between);
        transaction.resize_with(size, || LETTERS[random.random_range(0..LETTERS.len())]);
    }
    transaction
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::sample;

    fn sample_plan() -> Plan {
        let options = ReferencePlan {
            block_time_ms: 50,
            halt_height: None,
            options: BTreeMap::from([("verify_window".to_owned(), json!(8))]),
        };
        let mut plan = sample::plan(ChainPlan::Reference(options), 4);
        let late = plan.nodes.last_mut().expect("a node");
        late.storage = Some("deferred".to_owned());
        late.options.insert("flush".to_owned(), json!({ "every_ms": 200 }));
        plan
    }

    #[test]
    fn files_of_a_full_node() {
        let plan = sample_plan();
        let binding = sample::binding(&plan, "/bin/midflush");
        let chain = Reference::new("/bin/midflush");
        let files = chain.render(&plan, &binding, &Made::new(), &plan.nodes[4]).expect("files");
        assert_eq!(files, chain.render(&plan, &binding, &Made::new(), &plan.nodes[4]).expect("files"));
        assert_eq!(files.command, ["/bin/midflush", "node", "start", "--home", "/run/sample/late"]);
        let text = |path: &str| String::from_utf8(files.files[path].bytes.clone()).expect("text");
        insta::assert_snapshot!("node.json", text("config/node.json"));
        insta::assert_snapshot!("genesis.json", text("config/genesis.json"));
        insta::assert_snapshot!("key.json", text("config/key.json"));
        assert_eq!(files.files["config/key.json"].mode, 0o600);
    }

    #[test]
    fn options_that_the_node_does_not_have_are_refused() {
        let mut plan = sample_plan();
        plan.nodes[0].options.insert("p2p_listen".to_owned(), json!("0.0.0.0:1"));
        let binding = sample::binding(&plan, "/bin/midflush");
        let render = |plan: &Plan| Reference::new("/bin/midflush").render(plan, &binding, &Made::new(), &plan.nodes[0]);
        assert!(render(&plan).expect_err("an error").0.contains("`p2p_listen`"));
        plan.nodes[0].options.clear();
        plan.nodes[0].storage = Some("fast".to_owned());
        assert!(render(&plan).expect_err("an error").0.contains("`fast`"));
    }

    #[test]
    fn a_built_chain_is_named_after_all_that_it_depends_on() {
        let chain = Reference::new("/bin/midflush");
        let mut plan = sample_plan();
        assert_eq!(chain.fixture(&plan).expect("a fixture"), None);
        plan.built_blocks = 3000;
        let key = |plan: &Plan| chain.fixture(plan).expect("a fixture").expect("some").key;
        let first = key(&plan);
        assert_eq!(Reference::new("/elsewhere").fixture(&plan).expect("a fixture").expect("some").key, first);
        let changes: [fn(&mut Plan); 4] = [
            |plan| plan.built_blocks += 1,
            |plan| plan.chain_id.push('x'),
            |plan| plan.nodes[0].power += 1,
            |plan| plan.nodes[0].key_seed = "aa".repeat(32),
        ];
        for change in changes {
            let mut other = plan.clone();
            change(&mut other);
            assert_ne!(key(&other), first);
        }
    }

    #[test]
    fn transactions_have_the_asked_size_and_are_never_equal() {
        let plan = sample_plan();
        let make = |kind: &str, n, size| {
            let bytes = Reference::new("x").transaction(&plan, &Made::new(), kind, n, size).expect("a transaction");
            String::from_utf8(bytes).expect("text")
        };
        assert_eq!(make("set", 5000, 100).len(), 100);
        assert!(make("set", 5000, 100).starts_with("set k904 5000."));
        assert_eq!(make("set", 7, 0), "set k7 7");
        assert!(make("validator", 5, 0).ends_with(" 12 # 5"));
        assert_eq!(make("params", 3, 0), "param block_max_bytes 1048580 # 3");
        for kind in ["set", "validator", "params", "halt"] {
            assert_eq!(make(kind, 1, 256), make(kind, 1, 256));
            assert_eq!(make(kind, 1, 256).len(), 256);
            assert_ne!(make(kind, 1, 256), make(kind, 4097, 256));
        }
        assert!(Reference::new("x").transaction(&plan, &Made::new(), "mint", 1, 0).is_err());
    }
}

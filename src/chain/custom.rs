//! A node family that a topology describes alone: templates for its command and files, an optional set-up by its own command
//! line, its stores and the order of their flush, and how its output is read. Keys are CometBFT's, which most relatives take.

use std::collections::BTreeMap;

use rand::RngExt as _;
use rand::SeedableRng as _;
use rand_chacha::ChaCha20Rng;
use sha2::{Digest, Sha256};

use super::cometbft::SIGN_STATE;
use super::cometbft::keys::{Key, Purpose};
use super::{
    Chain, ChainError, CometShapes, FileContents, Made, NodeFiles, Rpc, SetUp, Step, application, bound, patch, program,
};
use crate::engine::{Binding, Build};
use crate::plan::template::{self, Context, NodeContext, TransactionContext};
use crate::plan::{ChainPlan, CustomPlan, NodePlan, Plan};
use crate::timeline::Layout;

/// The family.
#[derive(Clone, Copy, Debug, Default)]
pub struct Custom;

impl Chain for Custom {
    fn build(&self, plan: &Plan, node: &NodePlan) -> Build {
        // A plan of another family: its own node. `render` refuses it with the reason.
        options(plan).map_or(Build::Own, |options| program::build(node.made_from(&options.build)))
    }

    fn layout(&self, plan: &Plan, _node: &NodePlan) -> Layout {
        options(plan).map(|options| options.layout.clone()).unwrap_or_default()
    }

    fn set_up(&self, plan: &Plan) -> Result<Option<SetUp>, ChainError> {
        let options = options(plan)?;
        let Some(wanted) = &options.set_up else { return Ok(None) };
        let context = context(plan, None, None)?;
        let texts = |list: &Vec<String>| list.iter().map(|text| fill(text, &context)).collect::<Result<Vec<_>, _>>();
        let mut files = BTreeMap::new();
        for (path, text) in &wanted.files {
            files.insert(path.clone(), FileContents::secret(fill(text, &context)?));
        }
        let mut steps = Vec::new();
        for step in &wanted.steps {
            let or = step.or.as_ref().map(texts).transpose()?;
            steps.push(Step { arguments: texts(&step.run)?, or, input: fill(&step.input, &context)? });
        }
        let keep = wanted.keep.clone();
        let digest = Sha256::digest(format!("custom 1\n{files:?}\n{steps:?}\n{keep:?}"));
        let key = format!("custom-{}", hex::encode(&digest[..16]));
        Ok(Some(SetUp { key, build: program::first(plan, &options.build), files, steps, keep }))
    }

    fn render(&self, plan: &Plan, binding: &Binding, made: &Made, node: &NodePlan) -> Result<NodeFiles, ChainError> {
        let options = options(plan)?;
        let place = bound(binding, &node.name)?;
        let context = context(plan, Some(binding), Some(node))?;
        let mut files = BTreeMap::new();
        for (path, bytes) in made {
            files.insert(path.clone(), FileContents::secret(changed(options, path, bytes)?));
        }
        for (path, text) in &options.files {
            files.insert(path.clone(), FileContents::secret(fill(text, &context)?));
        }
        let mut command = place.program.clone();
        for text in &options.command {
            command.push(fill(text, &context)?);
        }
        let mut env = place.env.clone();
        env.insert("HOME".to_owned(), place.home.to_string_lossy().into_owned());
        for (name, text) in &options.env {
            env.insert(name.clone(), fill(text, &context)?);
        }
        Ok(NodeFiles { files, command, env })
    }

    fn rpc(&self) -> &dyn Rpc {
        &CometShapes
    }

    fn signed_path(&self) -> &'static str {
        SIGN_STATE
    }

    fn transaction(&self, plan: &Plan, _made: &Made, _kind: &str, n: u64, size: usize) -> Result<Vec<u8>, ChainError> {
        const LETTERS: &[u8] = b"abcdefghijklmnopqrstuvwxyz0123456789";
        let options = options(plan)?;
        let text = options.transaction.as_ref();
        let text = text.ok_or_else(|| ChainError::new("make a transaction: `chain.custom` has no `transaction`"))?;
        let mut random = ChaCha20Rng::seed_from_u64(plan.seed ^ n.rotate_left(32));
        let filling = (0..size).map(|_| char::from(LETTERS[random.random_range(0..LETTERS.len())])).collect();
        let mut context = context(plan, None, None)?;
        context.transaction = Some(TransactionContext { number: n, filling });
        fill(text, &context).map(String::into_bytes)
    }
}

fn options(plan: &Plan) -> Result<&CustomPlan, ChainError> {
    match &plan.chain {
        ChainPlan::Custom(options) => Ok(options),
        _ => Err(ChainError::new("render a node that the topology describes: the plan is of another family")),
    }
}

pub(super) fn fill(text: &str, context: &Context) -> Result<String, ChainError> {
    template::fill(text, context)
        .map_err(|error| ChainError::new(format!("fill in line {}: {}", error.line, error.why)))
}

/// A file of the set-up with the topology's changes.
fn changed(options: &CustomPlan, path: &str, bytes: &[u8]) -> Result<Vec<u8>, ChainError> {
    let Some(changes) = options.changes.get(path) else { return Ok(bytes.to_vec()) };
    if path.ends_with(".toml") {
        let mut document = patch::read_toml(path, bytes)?;
        for (at, value) in changes {
            patch::toml(&mut document, at, value)?;
        }
        return Ok(document.to_string().into_bytes());
    }
    let mut document = serde_json::from_slice(bytes).map_err(|e| ChainError::new(format!("read {path}: {e}")))?;
    for (at, value) in changes {
        patch::json(&mut document, at, value.clone())?;
    }
    Ok(format!("{document:#}\n").into_bytes())
}

/// What templates are filled in with: for a node, or for the set-up and transactions, which come without places.
pub(super) fn context(plan: &Plan, binding: Option<&Binding>, node: Option<&NodePlan>) -> Result<Context, ChainError> {
    let mut known = BTreeMap::new();
    for other in &plan.nodes {
        let mut about = keys(other)?;
        if let Some(binding) = binding {
            about.place = Some(application::place(bound(binding, &other.name)?));
            about.application = application::context(plan, binding, other)?;
        }
        known.insert(other.name.clone(), about);
    }
    Ok(Context::of(plan, node, |other| known.get(&other.name).cloned().unwrap_or_default()))
}

fn keys(node: &NodePlan) -> Result<NodeContext, ChainError> {
    let validator = Key::derive(&node.key_seed, Purpose::Validator)?;
    let own = Key::derive(&node.key_seed, Purpose::Node)?;
    Ok(NodeContext {
        id: own.node_id(),
        address: validator.validator_address(),
        public_key: validator.public_base64(),
        node_key: format!("{:#}\n", own.node_file()),
        validator_key: format!("{:#}\n", validator.validator_file()),
        ..NodeContext::of(node)
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::chain::sample;
    use crate::plan::{BuildPlan, CustomSetUp, CustomStep};

    fn sample_plan() -> Plan {
        let map = |pairs: &[(&str, &str)]| pairs.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
        let list = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
        let options = CustomPlan {
            build: BuildPlan::Binary("/opt/node".to_owned()),
            block_time_ms: 250,
            command: list(&["start", "--home", "{{ node.place.home }}"]),
            env: map(&[("NODE_NAME", "{{ node.name }}")]),
            files: map(&[("peers", "{% for peer in peers %}{{ peer.id }}@{{ peer.place.p2p }}\n{% endfor %}")]),
            changes: BTreeMap::from([
                ("app.toml".to_owned(), BTreeMap::from([("grpc.enable".to_owned(), json!(false))])),
                ("genesis.json".to_owned(), BTreeMap::from([("a.b".to_owned(), json!(2))])),
            ]),
            set_up: Some(CustomSetUp {
                files: map(&[("seed", "{{ validators[0].seed }}")]),
                steps: vec![CustomStep {
                    run: list(&["new", "init", "{{ chain_id }}"]),
                    or: Some(list(&["init", "{{ chain_id }}"])),
                    input: "{{ validators | length }}\n".to_owned(),
                }],
                keep: list(&["app.toml", "genesis.json"]),
            }),
            transaction: Some("k{{ transaction.number }}={{ transaction.filling }}".to_owned()),
            layout: Layout::default(),
        };
        sample::plan(ChainPlan::Custom(Box::new(options)), 2)
    }

    #[test]
    fn files_and_command_are_filled_in_and_what_the_set_up_made_is_changed() {
        let plan = sample_plan();
        let binding = sample::binding(&plan, "/opt/node");
        let made = Made::from([
            ("app.toml".to_owned(), b"[grpc]\nenable = true\n".to_vec()),
            ("genesis.json".to_owned(), br#"{"a":{"b":1}}"#.to_vec()),
        ]);
        let files = Custom.render(&plan, &binding, &made, &plan.nodes[2]).expect("files");
        assert_eq!(files.command, ["/opt/node", "start", "--home", "/run/sample/late"]);
        assert_eq!((files.env["NODE_NAME"].as_str(), files.env["HOME"].as_str()), ("late", "/run/sample/late"));
        let text = |path: &str| String::from_utf8(files.files[path].bytes.clone()).expect("text");
        assert_eq!(text("app.toml"), "[grpc]\nenable = false\n");
        assert_eq!(
            serde_json::from_str::<serde_json::Value>(&text("genesis.json")).expect("JSON"),
            json!({"a":{"b":2}})
        );
        assert!(text("peers").ends_with("@127.80.3.2:26656\n"), "{}", text("peers"));
        assert_eq!(text("peers").lines().count(), 2);
    }

    #[test]
    fn the_set_up_knows_the_chain_and_its_validators() {
        let set_up = Custom.set_up(&sample_plan()).expect("a set-up").expect("some");
        assert_eq!(set_up.steps[0].arguments, ["new", "init", "sample-7"]);
        assert_eq!(set_up.steps[0].or.as_deref(), Some(&["init".to_owned(), "sample-7".to_owned()][..]));
        assert_eq!(set_up.steps[0].input, "2\n");
        assert_eq!(set_up.files["seed"].bytes, "01".repeat(32).into_bytes());
    }

    #[test]
    fn transactions_are_filled_in_and_never_equal() {
        let make = |n| Custom.transaction(&sample_plan(), &Made::new(), "transaction", n, 8).expect("a transaction");
        assert!(make(3).starts_with(b"k3=") && make(3).len() == 11);
        assert_eq!(make(3), make(3));
        assert_ne!(make(3), make(4));
    }

    #[test]
    fn templates_are_checked_with_the_plan_alone() {
        let mut plan = sample_plan();
        assert_eq!(template::check_templates(&plan), []);
        let ChainPlan::Custom(options) = &mut plan.chain else { unreachable!("made above") };
        options.command[2] = "{{ node.home }}".to_owned();
        options.transaction = Some("{{ node.name }}".to_owned());
        assert_eq!(template::check_templates(&plan).len(), 2);
    }
}

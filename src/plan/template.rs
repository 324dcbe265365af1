//! Templates of a node family that a topology describes: what they may name, how they are filled in, and how they are checked
//! before anything is created.
//!
//! A template is text with `{{ … }}` and `{% for … %}`; a name that is not there is an error, never empty text.

use std::collections::BTreeMap;

use minijinja::{Environment, UndefinedBehavior};
use serde::Serialize;

use super::{ChainPlan, CustomPlan, NodePlan, Plan};
use crate::timeline::Role;
use crate::topology::{Path, Problem};

/// What a template may name.
#[derive(Clone, Debug, Serialize)]
pub struct Context {
    /// Chain id.
    pub chain_id: String,
    /// Genesis time, RFC 3339.
    pub genesis_time: String,
    /// First height.
    pub initial_height: u64,
    /// Time between blocks in milliseconds.
    pub block_time_ms: u64,
    /// Every node, in plan order.
    pub nodes: Vec<NodeContext>,
    /// The validators among them.
    pub validators: Vec<NodeContext>,
    /// The node that the text is for; not in the set-up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub node: Option<NodeContext>,
    /// The nodes that this one dials; not in the set-up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub peers: Option<Vec<NodeContext>>,
    /// Number and filling of a transaction; only there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub transaction: Option<TransactionContext>,
}

/// What a template may name of a node.
#[derive(Clone, Debug, Default, Serialize)]
pub struct NodeContext {
    /// Its name.
    pub name: String,
    /// `validator` or `full`.
    pub role: String,
    /// Voting power.
    pub power: u64,
    /// 32 bytes of key material as hex.
    pub seed: String,
    /// Id among peers: 20 bytes as lower-case hex. This and the other keys only where the family is described.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub id: String,
    /// Validator address: 20 bytes as upper-case hex.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub address: String,
    /// The validator's ed25519 key, public part in base64.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub public_key: String,
    /// `node_key.json` in CometBFT's form.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node_key: String,
    /// `priv_validator_key.json` in CometBFT's form.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub validator_key: String,
    /// Where it lives; not in the set-up, which comes before the engine's choice.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub place: Option<PlaceContext>,
    /// The application beside it, where there is one; not in the set-up.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub application: Option<ApplicationContext>,
}

/// Where the application beside a node lives.
#[derive(Clone, Debug, Serialize)]
pub struct ApplicationContext {
    /// Address without port.
    pub ip: String,
    /// `tcp://IP:PORT` of ABCI, which the node dials.
    pub address: String,
    /// `IP:PORT` that is free for what else it serves.
    pub rpc: String,
    /// `IP:PORT` that is free for its metrics.
    pub metrics: String,
    /// Its home folder, absolute.
    pub home: String,
}

/// Where a node lives.
#[derive(Clone, Debug, Serialize)]
pub struct PlaceContext {
    /// Address without port.
    pub ip: String,
    /// `IP:PORT` for peers.
    pub p2p: String,
    /// `IP:PORT` of RPC.
    pub rpc: String,
    /// `IP:PORT` of metrics.
    pub metrics: String,
    /// Home folder, absolute.
    pub home: String,
}

/// What a template may name of a transaction.
#[derive(Clone, Debug, Serialize)]
pub struct TransactionContext {
    /// Its number, from 0.
    pub number: u64,
    /// Letters and digits, as many as the load's size asks for.
    pub filling: String,
}

/// Why a template cannot be filled in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateError {
    /// What is wrong.
    pub why: String,
    /// The line in the template, from 1.
    pub line: usize,
    /// The piece of that line.
    pub piece: String,
}

/// Fills a template in.
pub fn fill(template: &str, context: &Context) -> Result<String, TemplateError> {
    let mut environment = Environment::new();
    environment.set_undefined_behavior(UndefinedBehavior::Strict);
    environment.set_debug(true);
    let filled = environment.render_str(template, minijinja::value::Serde(context));
    // The engine takes the last line end away.
    let filled = filled.map(|text| if template.ends_with('\n') { text + "\n" } else { text });
    filled.map_err(|error| {
        let line = error.line().unwrap_or(1);
        let text = template.lines().nth(line.saturating_sub(1)).unwrap_or_default();
        let piece = error.range().and_then(|range| template.get(range)).filter(|piece| text.contains(piece));
        let piece = piece.filter(|piece| !piece.is_empty()).unwrap_or_else(|| text.trim()).to_owned();
        let why = match error.kind() {
            minijinja::ErrorKind::UndefinedError => format!("`{piece}` names nothing that a template has here"),
            _ => error.detail().map_or_else(|| error.kind().to_string(), str::to_owned),
        };
        TemplateError { why, line, piece }
    })
}

/// Everything wrong with the templates of a plan, found by filling them in for its nodes with keys and addresses that stand in
/// for the real ones.
pub fn check_templates(plan: &Plan) -> Vec<Problem> {
    let root = Path::root().key("chain").key(plan.chain.family());
    let mut all = applications_templates(plan, &root.key("application"));
    if let ChainPlan::Custom(custom) = &plan.chain {
        all.extend(templates(plan, custom, &root));
    }
    let mut problems = Vec::new();
    for (template, path, context) in all {
        if let Err(error) = fill(template, &context) {
            let line = template.lines().nth(error.line.saturating_sub(1)).unwrap_or_default();
            let help = "see the table of names of templates in topologies/README.md";
            problems.push(
                Problem::within("bad-template", &path, line.trim(), &error.piece, error.why)
                    .label("cannot be filled in")
                    .help(help),
            );
        }
    }
    problems
}

/// Those of the application beside the nodes, for the first node.
fn applications_templates<'a>(plan: &'a Plan, root: &Path) -> Vec<(&'a str, Path, Context)> {
    let (Some(application), Some(node)) = (&plan.application, plan.nodes.first()) else { return Vec::new() };
    let keys = matches!(plan.chain, ChainPlan::Custom(_));
    let context = stand_in(plan, Some(node), keys);
    let mut all = Vec::new();
    for (n, text) in application.command.iter().enumerate() {
        all.push((text.as_str(), root.key("command").index(n), context.clone()));
    }
    for (key, texts) in [("files", &application.files), ("env", &application.env)] {
        let path = root.key(key);
        all.extend(texts.iter().map(|(name, text)| (text.as_str(), path.key(name), context.clone())));
    }
    all
}

/// Every template with its place and what it is filled in with; those of nodes for the first of each role.
fn templates<'a>(plan: &Plan, custom: &'a CustomPlan, root: &Path) -> Vec<(&'a str, Path, Context)> {
    let mut all = Vec::new();
    let node = plan.nodes.first();
    if let Some(node) = node {
        let context = stand_in(plan, Some(node), true);
        let list = custom.command.iter().enumerate();
        all.extend(list.map(|(n, text)| (text.as_str(), root.key("command").index(n), context.clone())));
        let texts = |map: &'a BTreeMap<String, String>, key: &str| {
            let path = root.key(key);
            map.iter().map(move |(name, text)| (text.as_str(), path.key(name))).collect::<Vec<_>>()
        };
        let files = texts(&custom.files, "files").into_iter().chain(texts(&custom.env, "env"));
        all.extend(files.map(|(text, path)| (text, path, context.clone())));
    }
    if let Some(text) = &custom.transaction {
        let mut context = stand_in(plan, None, true);
        context.transaction = Some(TransactionContext { number: 0, filling: "a".to_owned() });
        all.push((text, root.key("transaction"), context));
    }
    if let Some(set_up) = &custom.set_up {
        let (context, path) = (stand_in(plan, None, true), root.key("set_up"));
        for (name, text) in &set_up.files {
            all.push((text, path.key("files").key(name), context.clone()));
        }
        for (n, step) in set_up.steps.iter().enumerate() {
            let path = path.key("steps").index(n);
            for (key, list) in [("run", Some(&step.run)), ("or", step.or.as_ref())] {
                for (n, text) in list.into_iter().flatten().enumerate() {
                    all.push((text, path.key(key).index(n), context.clone()));
                }
            }
            all.push((&step.input, path.key("input"), context.clone()));
        }
    }
    all
}

fn stand_in(plan: &Plan, node: Option<&NodePlan>, keys: bool) -> Context {
    let key = if keys { "0".repeat(40) } else { String::new() };
    let of = |node: &NodePlan, placed: bool| NodeContext {
        id: key.clone(),
        address: key.clone(),
        public_key: key.clone(),
        node_key: key.clone(),
        validator_key: key.clone(),
        application: (placed && plan.application.is_some()).then(|| ApplicationContext {
            ip: "127.0.0.1".to_owned(),
            address: "tcp://127.0.0.1:1".to_owned(),
            rpc: "127.0.0.1:2".to_owned(),
            metrics: "127.0.0.1:3".to_owned(),
            home: "/home".to_owned(),
        }),
        place: placed.then(|| PlaceContext {
            ip: "127.0.0.1".to_owned(),
            p2p: "127.0.0.1:1".to_owned(),
            rpc: "127.0.0.1:2".to_owned(),
            metrics: "127.0.0.1:3".to_owned(),
            home: "/home".to_owned(),
        }),
        ..NodeContext::of(node)
    };
    Context::of(plan, node, |other| of(other, node.is_some()))
}

impl NodeContext {
    /// What the plan alone says of a node.
    pub fn of(node: &NodePlan) -> Self {
        let role = if node.role == Role::Validator { "validator" } else { "full" };
        Self {
            name: node.name.clone(),
            role: role.to_owned(),
            power: node.power,
            seed: node.key_seed.clone(),
            ..Self::default()
        }
    }
}

impl Context {
    /// For a node, or for the set-up and transactions when there is none; `of` tells about each node.
    pub fn of(plan: &Plan, node: Option<&NodePlan>, of: impl Fn(&NodePlan) -> NodeContext) -> Self {
        let nodes: Vec<NodeContext> = plan.nodes.iter().map(&of).collect();
        let named = |name: &String| nodes.iter().find(|other| other.name == *name).cloned();
        Self {
            chain_id: plan.chain_id.clone(),
            genesis_time: plan.genesis_time.clone(),
            initial_height: plan.initial_height,
            block_time_ms: plan.chain.block_time_ms(),
            validators: nodes.iter().filter(|node| node.role == "validator").cloned().collect(),
            node: node.map(of),
            peers: node.map(|node| node.peers.iter().filter_map(named).collect()),
            transaction: None,
            nodes,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn context() -> Context {
        let node = NodeContext { name: "val-1".to_owned(), role: "validator".to_owned(), ..NodeContext::default() };
        Context {
            chain_id: "c-1".to_owned(),
            genesis_time: "t".to_owned(),
            initial_height: 1,
            block_time_ms: 500,
            nodes: vec![node.clone(), NodeContext { name: "late".to_owned(), ..node.clone() }],
            validators: vec![node.clone()],
            node: Some(node),
            peers: None,
            transaction: None,
        }
    }

    #[test]
    fn names_and_loops_are_filled_in() {
        let template =
            "{{ chain_id }}: {% for n in nodes %}{{ n.name }}{% if not loop.last %},{% endif %}{% endfor %}\n";
        assert_eq!(fill(template, &context()).expect("text"), "c-1: val-1,late\n");
        let template = "{{ nodes | map(attribute='name') | join(',') }}";
        assert_eq!(fill(template, &context()).expect("text"), "val-1,late");
    }

    #[test]
    fn what_is_not_there_is_told_with_line_and_piece() {
        let error = fill("a = 1\nb = {{ node.nmae }}\n", &context()).expect_err("an error");
        assert_eq!((error.line, error.piece.as_str()), (2, "node.nmae"));
        let error = fill("{{ peers }}", &context()).expect_err("an error");
        assert_eq!((error.line, error.piece.as_str()), (1, "peers"));
        assert_eq!(fill("x\n{% for n in %}", &context()).expect_err("an error").line, 2);
    }
}

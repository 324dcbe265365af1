//! `midflush check`: validates a topology and prints the plan. Needs no engine and creates nothing.

use std::fmt::Write as _;

use super::topology::{Planned, TopologyArgs};
use super::{CliError, Code};
use crate::plan::{BuildPlan, ChainPlan, FaultPlan, NodePlan, Plan, StartAt, span};
use crate::timeline::Latency;
use crate::timeline::{FaultKind, Mode, Role, Tier};

/// Names that one line shows of a list.
const NAMES_MAX: usize = 8;

/// Arguments of `check`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    topology: TopologyArgs,

    /// Print the plan as one JSON object
    #[arg(long)]
    json: bool,
}

/// Runs the command.
pub(crate) fn run(args: &Args) -> Result<Code, CliError> {
    let planned = args.topology.plan()?;
    if args.json {
        let json = serde_json::to_string_pretty(&planned.plan);
        super::say(format_args!("{}\n", json.map_err(|e| CliError::tool(format!("print the plan: {e}")))?));
        for note in &planned.loaded.notes {
            super::tell(format_args!("note: {note}"));
        }
    } else {
        super::say(told(&planned));
    }
    Ok(Code::Ok)
}

/// The plan for people.
fn told(planned: &Planned) -> String {
    let plan = &planned.plan;
    let mut out = format!("{}: no problems; seed {}, chain id {}\n\n", plan.name, plan.seed, plan.chain_id);
    line(&mut out, "chain", &chain(plan));
    let validators = plan.nodes.iter().filter(|node| node.role == Role::Validator).count();
    let full = plan.nodes.len() - validators;
    line(&mut out, "nodes", &format!("{}, {}", counted(validators, "validator"), counted(full, "full node")));
    for (head, tail) in aligned(plan.nodes.iter().map(node).collect()) {
        let _ = writeln!(out, "  {head}  {tail}");
    }
    let load = plan.load.as_ref().map_or_else(
        || "none".to_owned(),
        |load| {
            let kinds: Vec<String> = load.kinds.iter().map(|(kind, weight)| format!("{kind} × {weight}")).collect();
            format!("{}/s of {} B: {}", load.rate, load.size, kinds.join(", "))
        },
    );
    line(&mut out, "load", &load);
    line(&mut out, "faults", &if plan.faults.is_empty() { "none".to_owned() } else { plan.faults.len().to_string() });
    let many = |fault: &FaultPlan| plan.faults.iter().filter(|f| f.setup.id.name == fault.setup.id.name).count() > 1;
    for fault in &plan.faults {
        let number = if many(fault) { format!(" #{}", fault.setup.id.occurrence) } else { String::new() };
        let _ = writeln!(out, "  {}{number}\n      {}", fault.setup.id.name, deed(fault));
    }
    line(&mut out, "expect", &expect(plan));
    for note in &planned.loaded.notes {
        let _ = writeln!(out, "\nnote: {note}");
    }
    out
}

fn line(out: &mut String, head: &str, rest: &str) {
    let _ = writeln!(out, "{head:<8}{rest}");
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

fn chain(plan: &Plan) -> String {
    let mut words = match &plan.chain {
        ChainPlan::Reference(reference) => {
            let mut words = format!("reference, a block every {}", span(reference.block_time_ms));
            if let Some(height) = reference.halt_height {
                let _ = write!(words, ", halts at {height}");
            }
            for (key, value) in &reference.options {
                let _ = write!(words, ", {key} {value}");
            }
            words
        }
        ChainPlan::Gnoland(gnoland) => {
            let (build, every) = (build(&gnoland.build), span(gnoland.block_time_ms));
            let genesis = gnoland.genesis.as_ref().map_or_else(String::new, |file| format!(", genesis {file}"));
            format!("gnoland on {}, {build}{genesis}, a block every {every} or more", gnoland.database)
        }
        ChainPlan::Tenderdash(tenderdash) => {
            let (build, app, every) = (build(&tenderdash.build), &tenderdash.app, span(tenderdash.block_time_ms));
            format!("tenderdash, {app}, {build}, a block every {every} or sooner")
        }
        ChainPlan::Cometbft(cometbft) => {
            let (build, app, every) = (build(&cometbft.build), &cometbft.app, span(cometbft.block_time_ms));
            format!("cometbft, {app} on {}, {build}, a block every {every} or more", cometbft.database)
        }
        ChainPlan::Custom(custom) => {
            let stores: Vec<&str> = custom.layout.stores.iter().map(|store| store.name.as_str()).collect();
            format!("custom, {}, stores {}", build(&custom.build), stores.join(" "))
        }
        ChainPlan::CosmosSdk(cosmos) => {
            let (build, every) = (build(&cosmos.build), span(cosmos.block_time_ms));
            format!("cosmos-sdk, {build}, stake in {}, a block every {every} or more", cosmos.denom)
        }
    };
    if let Some(application) = &plan.application {
        let _ = write!(words, ", beside each node {}", build(&application.build));
    }
    if plan.built_blocks > 0 {
        let _ = write!(words, ", on top of {} built blocks", plan.built_blocks);
    }
    if plan.initial_height > 1 {
        let _ = write!(words, ", from height {}", plan.initial_height);
    }
    words
}

fn build(build: &BuildPlan) -> String {
    match build {
        BuildPlan::Binary(path) => format!("program {path}"),
        BuildPlan::Image(reference) => format!("image {reference}"),
    }
}

fn node(node: &NodePlan) -> (String, String) {
    let mut words = match node.role {
        Role::Validator => format!("validator, power {}", node.power),
        Role::Full => "full".to_owned(),
    };
    if let Some(storage) = &node.storage {
        let _ = write!(words, ", {storage}");
    }
    match node.start {
        StartAt::Run => {}
        StartAt::AfterMs(ms) => drop(write!(words, ", starts after {}", span(ms))),
        StartAt::Height(height) => drop(write!(words, ", starts at height {height}")),
    }
    for (key, value) in &node.options {
        let _ = write!(words, ", {key} {value}");
    }
    for (store, latency) in &node.sync_latency {
        let store = if store == "*" { "every store" } else { store };
        match latency {
            Latency::NotMade => drop(write!(words, ", syncs of {store} are not made")),
            latency => drop(write!(words, ", a sync of {store} takes {}", self::latency(latency))),
        }
    }
    match node.watch {
        None => {}
        Some(Tier::None) => words.push_str(", not watched"),
        Some(Tier::Observe) => words.push_str(", syncs watched"),
        Some(Tier::Record) => words.push_str(", syncs and writes watched"),
    }
    let shown: Vec<&str> = node.peers.iter().take(NAMES_MAX).map(String::as_str).collect();
    let more = node.peers.len().saturating_sub(NAMES_MAX);
    let more = if more > 0 { format!(" and {more} more") } else { String::new() };
    if shown.is_empty() {
        words.push_str(", dials nobody");
    } else {
        let _ = write!(words, ", dials {}{more}", shown.join(" "));
    }
    (node.name.clone(), words)
}

fn latency(latency: &Latency) -> String {
    let us = |us: u64| if us.is_multiple_of(1_000) { span(us / 1_000) } else { format!("{us} µs") };
    match latency {
        Latency::Fixed(value) => us(*value),
        Latency::Exponential(mean) => format!("{} on average, exponentially", us(*mean)),
        Latency::Lognormal { p50_us, p99_us } => format!("{} (p50) to {} (p99)", us(*p50_us), us(*p99_us)),
        Latency::Empirical(values) => format!("one of {} measured times", values.len()),
        Latency::NotMade => us(0),
    }
}

/// What a fault does, to whom, when, and how it ends.
fn deed(fault: &FaultPlan) -> String {
    let (verb, end) = match fault.setup.kind {
        FaultKind::Kill => ("kill", format!("back after {}", span(fault.down_ms))),
        FaultKind::Stop => ("stop", format!("back after {}", span(fault.down_ms))),
        FaultKind::Pause => ("pause", format!("goes on after {}", span(fault.down_ms))),
        FaultKind::Restart => ("restart", "back at once".to_owned()),
        FaultKind::Upgrade => ("upgrade", "back at once".to_owned()),
        FaultKind::Fail => {
            let lives_on =
                fault.lives_on_ms.map_or_else(String::new, |ms| format!("killed if it lives on for {}, ", span(ms)));
            ("fail", format!("{lives_on}back after {}", span(fault.down_ms)))
        }
    };
    let errno = fault.setup.errno.map_or_else(String::new, |errno| format!(" with {errno}"));
    format!("{verb} {}{errno} {}; {end}", fault.setup.node, fault.setup.when)
}

fn expect(plan: &Plan) -> String {
    let mut parts = Vec::new();
    if let Some(ms) = plan.expect.converge_within_ms {
        parts.push(format!("all nodes agree within {} of the last fault", span(ms)));
    }
    if let Some(height) = plan.expect.halt_height {
        parts.push(format!("every node halts at {height}"));
    }
    for (name, modes) in &plan.expect.syncs_per_block {
        for (mode, stores) in modes {
            let mode = match mode {
                Mode::Consensus => "consensus",
                Mode::BlockSync => "block sync",
                Mode::Replay => "replay",
            };
            let counts: Vec<String> = stores.iter().map(|(store, count)| format!("{store} {count}")).collect();
            parts.push(format!("{name} in {mode}, syncs a block: {}", counts.join(", ")));
        }
    }
    parts.join("\n        ")
}

/// Pads the first column.
fn aligned(rows: Vec<(String, String)>) -> Vec<(String, String)> {
    let width = rows.iter().map(|(head, _)| head.len()).max().unwrap_or_default();
    rows.into_iter().map(|(head, tail)| (format!("{head:<width$}"), tail)).collect()
}

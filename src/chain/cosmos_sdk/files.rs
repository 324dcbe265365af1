//! The files of a node: what the chain's command line made, with the values changed that a network on one machine needs, and
//! then those that the topology names.

use std::collections::BTreeMap;

use serde_json::{Value, json};

use super::set_up::{APP, CLIENT, CONFIG, GENESIS};
use super::{accounts, options};
use crate::chain::{ChainError, FileContents, Made, cometbft, patch};
use crate::engine::Binding;
use crate::plan::{NodePlan, Plan};

/// The denomination of a genesis that `init` made, unless the chain has its own.
const DEFAULT_DENOM: &str = "stake";

/// All files of a node's home.
pub(super) fn files(
    plan: &Plan,
    binding: &Binding,
    made: &Made,
    node: &NodePlan,
) -> Result<BTreeMap<String, FileContents>, ChainError> {
    let mut files = cometbft::key_files(node)?;
    files.insert(GENESIS.to_owned(), FileContents::plain(genesis(plan, made)?));
    files.insert(CONFIG.to_owned(), FileContents::plain(config(plan, binding, made, node)?));
    files.insert(APP.to_owned(), FileContents::plain(app(plan, made)?));
    if let Some(client) = made.get(CLIENT) {
        files.insert(CLIENT.to_owned(), FileContents::plain(client.clone()));
    }
    Ok(files)
}

/// A file of the set-up.
fn file<'a>(made: &'a Made, name: &str) -> Result<&'a [u8], ChainError> {
    let found = made.get(name).map(Vec::as_slice);
    found.ok_or_else(|| ChainError::new(format!("render a node: the chain's command line made no {name}")))
}

/// The genesis as the chain's command line made it.
pub(super) fn made_genesis(made: &Made) -> Result<Value, ChainError> {
    serde_json::from_slice(file(made, GENESIS)?).map_err(|e| ChainError::new(format!("read {GENESIS}: {e}")))
}

fn genesis(plan: &Plan, made: &Made) -> Result<String, ChainError> {
    let options = options(plan)?;
    let mut genesis = made_genesis(made)?;
    accounts::add(plan, &mut genesis)?;
    if options.denom != DEFAULT_DENOM {
        rename(&mut genesis, &options.denom);
    }
    patch::json(&mut genesis, "genesis_time", json!(plan.genesis_time))?;
    // Text up to SDK 0.47, a number since.
    let height = match genesis.get("initial_height") {
        Some(Value::Number(_)) => json!(plan.initial_height),
        _ => json!(plan.initial_height.to_string()),
    };
    patch::json(&mut genesis, "initial_height", height)?;
    for (path, value) in &options.genesis {
        patch::json(&mut genesis, path, value.clone())?;
    }
    Ok(format!("{genesis:#}\n"))
}

/// Gives every denomination that `init` called `stake` another name: `denom`, `bond_denom`, `mint_denom` and their like.
fn rename(value: &mut Value, denom: &str) {
    match value {
        Value::Object(map) => {
            for (key, value) in map {
                match value {
                    Value::String(text) if key.ends_with("denom") && text == DEFAULT_DENOM => denom.clone_into(text),
                    _ => rename(value, denom),
                }
            }
        }
        Value::Array(list) => list.iter_mut().for_each(|value| rename(value, denom)),
        _ => {}
    }
}

fn config(plan: &Plan, binding: &Binding, made: &Made, node: &NodePlan) -> Result<String, ChainError> {
    let options = options(plan)?;
    let mut document = patch::read_toml(CONFIG, file(made, CONFIG)?)?;
    let over = cometbft::settings(plan, binding, node, "goleveldb", options.block_time_ms)?;
    let over = patch::read_toml("the settings of the network", over.as_bytes())?;
    patch::toml_over(document.as_table_mut(), over.as_table());
    for (path, value) in options.config.get("config.toml").into_iter().flatten() {
        patch::toml(&mut document, path, value)?;
    }
    Ok(document.to_string())
}

/// `app.toml`: no server beside RPC, since they all listen on ports of their own, which nodes on one machine would share.
fn app(plan: &Plan, made: &Made) -> Result<String, ChainError> {
    let options = options(plan)?;
    let mut document = patch::read_toml(APP, file(made, APP)?)?;
    patch::toml(&mut document, "minimum-gas-prices", &json!(format!("0{}", options.denom)))?;
    for server in ["api", "grpc", "grpc-web", "rosetta", "json-rpc"] {
        // Which of them there are depends on the chain and its version.
        if document.contains_table(server) {
            patch::toml(&mut document, &format!("{server}.enable"), &json!(false))?;
        }
    }
    for (path, value) in options.config.get("app.toml").into_iter().flatten() {
        patch::toml(&mut document, path, value)?;
    }
    Ok(document.to_string())
}

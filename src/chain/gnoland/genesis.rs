//! The genesis of a gnoland chain: validators and accounts of the plan, and as application state either the least that
//! starts at once or what a file holds.

use std::path::Path;

use serde_json::{Value, json};

use super::keys;
use super::send::{ACCOUNTS, BALANCE};
use crate::chain::ChainError;
use crate::plan::Plan;
use crate::timeline::Role;

/// Reads the application state of a genesis that was made by other means.
pub(super) fn app_state(file: &Path) -> Result<Value, ChainError> {
    let failed = |why: String| ChainError::new(format!("read the genesis {}: {why}", file.display()));
    let bytes = std::fs::read(file).map_err(|e| failed(e.to_string()))?;
    let mut genesis: Value = serde_json::from_slice(&bytes).map_err(|e| failed(e.to_string()))?;
    match genesis.get_mut("app_state").map(Value::take) {
        Some(state @ Value::Object(_)) => Ok(state),
        _ => Err(failed("it has no `app_state`".to_owned())),
    }
}

/// `genesis.json`. `state` is the application's, or `None` for the least.
pub(super) fn genesis(plan: &Plan, state: Option<&Value>) -> Result<Value, ChainError> {
    let mut validators = Vec::new();
    for node in plan.nodes.iter().filter(|node| node.role == Role::Validator) {
        let key = keys::validator(&node.key_seed)?;
        validators.push(json!({
            "address": keys::address_text(key.address())?,
            "pub_key": keys::public_json(&key),
            "power": node.power.to_string(),
            "name": node.name,
        }));
    }
    let mut state = state.cloned().unwrap_or_else(minimal);
    if plan.load.is_some() {
        add_accounts(plan, &mut state)?;
    }
    Ok(json!({
        "genesis_time": plan.genesis_time,
        "chain_id": plan.chain_id,
        "consensus_params": {
            "Block": {
                "MaxTxBytes": "1000000",
                "MaxDataBytes": "2000000",
                "MaxBlockBytes": "0",
                "MaxGas": "3000000000",
                "TimeIotaMS": "10",
            },
            "Validator": { "PubKeyTypeURLs": ["/tm.PubKeyEd25519"] },
        },
        "validators": validators,
        "app_hash": null,
        "app_state": state,
    }))
}

/// Accounts that send come first: an account's number is its place.
fn add_accounts(plan: &Plan, state: &mut Value) -> Result<(), ChainError> {
    let mut balances = Vec::new();
    for n in 0..ACCOUNTS {
        let address = keys::address_text(keys::account(plan, n)?.address())?;
        balances.push(Value::String(format!("{address}={BALANCE}ugnot")));
    }
    if let Some(Value::Array(others)) = state.get_mut("balances") {
        balances.append(others);
    }
    state["balances"] = Value::Array(balances);
    Ok(())
}

/// No package and no account: what v1.7.1 wrote as the defaults of its parameters.
fn minimal() -> Value {
    json!({
        "@type": "/gno.GenesisState",
        "balances": [],
        "txs": [],
        "auth": { "params": {
            "max_memo_bytes": "65536",
            "tx_sig_limit": "7",
            "tx_size_cost_per_byte": "10",
            "sig_verify_cost_ed25519": "590",
            "sig_verify_cost_secp256k1": "1000",
            "gas_price_change_compressor": "10",
            "target_gas_ratio": "70",
            "initial_gasprice": { "gas": "1000", "price": "1ugnot" },
            "unrestricted_addrs": null,
            "fee_collector": "g17xpfvakm2amg962yls6f84z3kell8c5lr9lr2e",
        } },
        "bank": { "params": { "restricted_denoms": [] } },
        "vm": {
            "params": {
                "sysnames_pkgpath": "gno.land/r/sys/names",
                "syscla_pkgpath": "gno.land/r/sys/cla",
                "chain_domain": "gno.land",
                "default_deposit": "100000000ugnot",
                "storage_price": "100ugnot",
                "storage_fee_collector": "g1c9stkafpvcwez2efq3qtfuezw4zpaux3tvxggk",
                "min_get_read_depth_100": "100",
                "min_set_read_depth_100": "200",
                "min_write_depth_100": "540",
                "fixed_get_read_depth_100": "100",
                "fixed_set_read_depth_100": "200",
                "fixed_write_depth_100": "540",
                "iter_next_cost_flat": "1000",
                "preprocess_gas_per_byte": "1250",
                "code_submission_policy": "permissionless",
                "code_submitters": null,
                "pkg_approvers": null,
                "run_submitters": null,
                "inert_submission_charge": "",
                "inert_charge_collector": "g1fgj3pu3rd7myc5hdk9q4wql8s96us5zqsyftw5",
            },
            "realm_params": null,
        },
    })
}

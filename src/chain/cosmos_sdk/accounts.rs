//! Accounts of the genesis that the load sends coins between, and the transactions that they sign.
//!
//! An account's transactions must come in order, and one that gets lost with a killed node's mempool blocks those behind it. So
//! there are many accounts, each used once in a while: a loss costs one of them, not the load.

use cosmrs::bank::MsgSend;
use cosmrs::crypto::secp256k1::SigningKey;
use cosmrs::tx::{Body, Fee, Msg, SignDoc, SignerInfo};
use cosmrs::{AccountId, Coin};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::options;
use crate::chain::ChainError;
use crate::plan::Plan;

/// What each holds at genesis, in base units.
const BALANCE: u64 = 1_000_000_000;
/// Seconds of load until an account is used again, within the limits below.
const AGAIN_S: f64 = 60.0;
const ACCOUNTS_MIN: f64 = 100.0;
const ACCOUNTS_MAX: f64 = 1_000.0;
/// Gas of a send; it needs about 70,000.
const GAS: u64 = 200_000;
/// Longest memo that a chain takes by default.
const MEMO_MAX: usize = 256;
/// Prefix of addresses where the genesis does not tell.
const PREFIX: &str = "cosmos";

/// How many accounts the load has; none without a load.
fn count(plan: &Plan) -> u64 {
    plan.load.as_ref().map_or(0, |load| (load.rate * AGAIN_S).clamp(ACCOUNTS_MIN, ACCOUNTS_MAX) as u64)
}

fn failed(doing: &str) -> impl Fn(cosmrs::ErrorReport) -> ChainError {
    move |error| ChainError::new(format!("{doing}: {error}"))
}

fn key(plan: &Plan, index: u64) -> Result<SigningKey, ChainError> {
    let seed = Sha256::new().chain_update("midflush cosmos load").chain_update(plan.seed.to_le_bytes());
    let secret: [u8; 32] = seed.chain_update(index.to_le_bytes()).finalize().into();
    SigningKey::from_slice(&secret).map_err(failed("make the key of an account"))
}

/// Prefix of the chain's addresses and number of accounts in a genesis.
fn known(genesis: &Value) -> Result<(String, u64), ChainError> {
    let accounts = genesis.pointer("/app_state/auth/accounts").and_then(Value::as_array).ok_or_else(|| {
        ChainError::new("read the genesis that the chain's command line made: it has no `app_state.auth.accounts`")
    })?;
    let address = accounts.iter().find_map(|account| find(account, "address"));
    let prefix = address.and_then(|address| address.rsplit_once('1')).map_or(PREFIX, |(prefix, _)| prefix);
    Ok((prefix.to_owned(), accounts.len() as u64))
}

/// The text under a key, in the account itself or in the one that it builds on.
fn find<'a>(account: &'a Value, key: &str) -> Option<&'a str> {
    let map = account.as_object()?;
    map.get(key).and_then(Value::as_str).or_else(|| map.values().find_map(|value| find(value, key)))
}

/// Puts the accounts into a genesis with their numbers, balances and the supply.
pub(super) fn add(plan: &Plan, genesis: &mut Value) -> Result<(), ChainError> {
    let count = count(plan);
    if count == 0 {
        return Ok(());
    }
    let denom = &options(plan)?.denom;
    let (prefix, before) = known(genesis)?;
    let mut accounts = Vec::new();
    let mut balances = Vec::new();
    for index in 0..count {
        let address = address(plan, index, &prefix)?.to_string();
        accounts.push(json!({
            "@type": "/cosmos.auth.v1beta1.BaseAccount",
            "address": address,
            "pub_key": null,
            "account_number": (before + index).to_string(),
            "sequence": "0",
        }));
        balances.push(json!({ "address": address, "coins": [{ "denom": denom, "amount": BALANCE.to_string() }] }));
    }
    list(genesis, "/app_state/auth/accounts")?.extend(accounts);
    list(genesis, "/app_state/bank/balances")?.extend(balances);
    supply(list(genesis, "/app_state/bank/supply")?, denom, u128::from(count) * u128::from(BALANCE))
}

fn list<'a>(genesis: &'a mut Value, place: &str) -> Result<&'a mut Vec<Value>, ChainError> {
    let found = genesis.pointer_mut(place).and_then(Value::as_array_mut);
    found.ok_or_else(|| ChainError::new(format!("add accounts to the genesis: there is no list at {place}")))
}

/// Adds to the supply of a denomination. An empty supply is left so: the chain then adds the balances up itself.
fn supply(coins: &mut [Value], denom: &str, more: u128) -> Result<(), ChainError> {
    let Some(coin) = coins.iter_mut().find(|coin| coin["denom"] == *denom) else { return Ok(()) };
    let before: Option<u128> = coin["amount"].as_str().and_then(|amount| amount.parse().ok());
    let before = before.ok_or_else(|| ChainError::new("add accounts to the genesis: the supply is no number"))?;
    coin["amount"] = json!((before + more).to_string());
    Ok(())
}

fn address(plan: &Plan, index: u64, prefix: &str) -> Result<AccountId, ChainError> {
    key(plan, index)?.public_key().account_id(prefix).map_err(failed("make the address of an account"))
}

/// The n-th send: one unit to the next account, with a memo that fills it up to `size` bytes as far as a memo may go.
/// `genesis` is the one that the chain's command line made, without these accounts.
pub(super) fn send(plan: &Plan, genesis: &Value, n: u64, size: usize) -> Result<Vec<u8>, ChainError> {
    let (prefix, before) = known(genesis)?;
    let Some(index) = n.checked_rem(count(plan)) else {
        return Err(ChainError::new("make a transaction: the plan has no load, and so no account for it"));
    };
    let sequence = n / count(plan);
    let key = key(plan, index)?;
    let denom = options(plan)?.denom.parse().map_err(failed("read the denomination"))?;
    let message = MsgSend {
        from_address: key.public_key().account_id(&prefix).map_err(failed("make an address"))?,
        to_address: address(plan, (index + 1) % count(plan), &prefix)?,
        amount: vec![Coin { denom, amount: 1 }],
    };
    let message = message.to_any().map_err(failed("write a message"))?;
    let fee = Fee { amount: Vec::new(), gas_limit: GAS, payer: None, granter: None };
    let auth = SignerInfo::single_direct(Some(key.public_key()), sequence).auth_info(fee);
    let chain_id = plan.chain_id.parse().map_err(|e| ChainError::new(format!("read the chain id: {e}")))?;
    let signed = |memo: String| {
        let body = Body::new(vec![message.clone()], memo, 0u32);
        let document = SignDoc::new(&body, &auth, &chain_id, before + index).map_err(failed("write a transaction"))?;
        document.sign(&key).and_then(|raw| raw.to_bytes()).map_err(failed("sign a transaction"))
    };
    let bare = signed(String::new())?;
    match size.saturating_sub(bare.len()) {
        0..4 => Ok(bare),
        // A memo costs three bytes beside its own.
        missing => signed(".".repeat((missing - 3).min(MEMO_MAX))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chain::cosmos_sdk::tests::sample_plan;

    fn genesis() -> Value {
        json!({ "app_state": {
            "auth": { "accounts": [{ "base_account": { "address": "evmos1qqqs" }, "code": "" }] },
            "bank": { "balances": [], "supply": [{ "denom": "stake", "amount": "5" }] },
        }})
    }

    #[test]
    fn accounts_are_numbered_behind_those_that_are_there() {
        let plan = sample_plan();
        let mut genesis = genesis();
        add(&plan, &mut genesis).expect("added");
        let accounts = genesis["app_state"]["auth"]["accounts"].as_array().expect("a list");
        assert_eq!(accounts.len(), 601);
        assert_eq!(accounts[1]["account_number"], "1");
        assert!(accounts[1]["address"].as_str().expect("text").starts_with("evmos1"));
        assert_eq!(genesis["app_state"]["bank"]["supply"][0]["amount"], "600000000005");
        let mut without = json!({ "app_state": {} });
        assert!(add(&plan, &mut without).expect_err("an error").0.contains("app_state.auth.accounts"));
    }

    #[test]
    fn sends_are_signed_in_turn_and_filled_up() {
        let (plan, genesis) = (sample_plan(), genesis());
        let make = |n, size| send(&plan, &genesis, n, size).expect("a transaction");
        assert_eq!(make(3, 0), make(3, 0));
        assert_ne!(make(3, 0), make(4, 0));
        assert_ne!(make(3, 0), make(603, 0), "the same account has another sequence");
        let bare = make(3, 0).len();
        assert!((bare + 99..=bare + 101).contains(&make(3, bare + 100).len()));
        assert!(make(3, 5000).len() <= bare + MEMO_MAX + 3);
        let tx = cosmrs::Tx::from_bytes(&make(603, 0)).expect("a transaction");
        assert_eq!((tx.auth_info.signer_infos[0].sequence, tx.body.messages.len()), (1, 1));
    }
}

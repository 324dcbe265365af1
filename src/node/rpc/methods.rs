//! The table of methods, and those that tell of the node, its application and its mempool.

use bytes::Bytes;
use serde_json::{Value, json};

use super::answer::RpcError;
use super::request::Params;
use super::{Context, blocks, shapes};
use crate::node::mempool::SubmitError;
use crate::node::types::sha256;

/// One method: its name, its parameters in order, and what answers.
pub(super) struct Method {
    pub(super) name: &'static str,
    pub(super) parameters: &'static [&'static str],
    pub(super) call: fn(&Context, &Params) -> Result<Value, RpcError>,
}

/// All of them.
pub(super) const METHODS: &[Method] = &[
    Method { name: "abci_info", parameters: &[], call: abci_info },
    Method { name: "abci_query", parameters: &["path", "data", "height", "prove"], call: abci_query },
    Method { name: "block", parameters: &["height"], call: blocks::block },
    Method { name: "block_results", parameters: &["height"], call: blocks::block_results },
    Method { name: "blockchain", parameters: &["minHeight", "maxHeight"], call: blocks::blockchain },
    Method { name: "broadcast_tx_sync", parameters: &["tx"], call: broadcast_tx_sync },
    Method { name: "commit", parameters: &["height"], call: blocks::commit },
    Method { name: "genesis", parameters: &[], call: genesis },
    Method { name: "header", parameters: &["height"], call: blocks::header },
    Method { name: "health", parameters: &[], call: |_, _| Ok(json!({})) },
    Method { name: "net_info", parameters: &[], call: net_info },
    Method { name: "num_unconfirmed_txs", parameters: &[], call: num_unconfirmed_txs },
    Method { name: "status", parameters: &[], call: status },
    Method { name: "validators", parameters: &["height"], call: blocks::validators },
];

/// The method of this name.
pub(super) fn find(name: &str) -> Option<&'static Method> {
    METHODS.iter().find(|method| method.name == name)
}

/// What this node says of itself.
fn node_info(context: &Context) -> Value {
    json!({
        "protocol_version": { "p2p": "1", "block": "1", "app": "1" },
        "id": context.public_key.address().to_string().to_ascii_lowercase(),
        "listen_addr": format!("tcp://{}", context.config.p2p_listen),
        "network": context.genesis.chain_id,
        "version": env!("CARGO_PKG_VERSION"),
        "channels": "",
        "moniker": context.config.name,
        "other": { "tx_index": "off", "rpc_address": format!("tcp://{}", context.config.rpc_listen) },
    })
}

/// `/status`. Heights and hashes are those on disk; a node without blocks has height 0, no hash and the time 0.
fn status(context: &Context, _: &Params) -> Result<Value, RpcError> {
    let view = &context.view;
    let meta = |height| view.meta(height).map_err(RpcError::internal);
    let (base, latest_height) = blocks::stored(context)?;
    let (latest, earliest) = (meta(latest_height)?, meta(base)?);
    let part = |meta: &Option<crate::node::types::BlockMeta>| match meta {
        Some(meta) => {
            (shapes::hash(&meta.block_id.hash), shapes::hash(&meta.header.app_hash), shapes::time(meta.header.time_ms))
        }
        None => (String::new(), String::new(), shapes::time(0)),
    };
    let ((hash, app_hash, time), (first_hash, first_app_hash, first_time)) = (part(&latest), part(&earliest));
    let address = context.public_key.address();
    let state = view.state().map_err(RpcError::internal)?;
    let validators = state.map_or_else(|| context.genesis.validator_set(), |state| state.validators.clone());
    let power = validators.find(&address).map_or(0, |(_, validator)| validator.power);
    Ok(json!({
        "node_info": node_info(context),
        "sync_info": {
            "latest_block_hash": hash,
            "latest_app_hash": app_hash,
            "latest_block_height": latest_height.to_string(),
            "latest_block_time": time,
            "earliest_block_hash": first_hash,
            "earliest_app_hash": first_app_hash,
            "earliest_block_height": base.to_string(),
            "earliest_block_time": first_time,
            "catching_up": context.handle.catching_up(),
        },
        "validator_info": {
            "address": address.to_string().to_ascii_uppercase(),
            "pub_key": shapes::public_key(&context.public_key),
            "voting_power": power.to_string(),
        },
    }))
}

/// `/net_info`.
fn net_info(context: &Context, _: &Params) -> Result<Value, RpcError> {
    let peers: Vec<Value> = context
        .handle
        .peers()
        .into_iter()
        .map(|peer| {
            json!({
                "node_info": {
                    "id": hex::encode(&sha256(&peer.public_key).0[..20]),
                    "network": context.genesis.chain_id,
                    "moniker": peer.name,
                },
                "is_outbound": peer.outbound,
                "connection_status": {},
                "remote_ip": peer.address.ip().to_string(),
            })
        })
        .collect();
    Ok(json!({
        "listening": true,
        "listeners": [format!("Listener(@{})", context.config.p2p_listen)],
        "n_peers": peers.len().to_string(),
        "peers": peers,
    }))
}

/// `/genesis`: the file as this node read it.
fn genesis(context: &Context, _: &Params) -> Result<Value, RpcError> {
    let genesis = serde_json::to_value(&*context.genesis).map_err(RpcError::internal)?;
    Ok(json!({ "genesis": genesis }))
}

/// `/abci_info`: height 0 and an empty hash are left out. Refused until the application has a version on disk.
fn abci_info(context: &Context, _: &Params) -> Result<Value, RpcError> {
    use base64::Engine as _;
    let info = context.view.app_info().map_err(RpcError::internal)?;
    let mut response = json!({
        "data": format!("{{\"tx_count\":{}}}", info.tx_count),
        "version": env!("CARGO_PKG_VERSION"),
        "app_version": "1",
    });
    if info.height > 0 {
        response["last_block_height"] = json!(info.height.to_string());
    }
    if !info.app_hash.is_zero() {
        response["last_block_app_hash"] = json!(base64::engine::general_purpose::STANDARD.encode(info.app_hash.0));
    }
    Ok(json!({ "response": response }))
}

/// `/abci_query`: the value of a key in the version on disk; older versions are not kept.
fn abci_query(context: &Context, params: &Params) -> Result<Value, RpcError> {
    use base64::Engine as _;
    let key = params.hex("data")?;
    let answer = context.view.query(&key).map_err(RpcError::internal)?;
    if let Some(asked) = params.number("height")?.filter(|asked| *asked != 0 && *asked != answer.height) {
        return Err(RpcError::internal(format!(
            "height {asked} is not kept, the version on disk is {}",
            answer.height
        )));
    }
    let base64 = |bytes: &[u8]| base64::engine::general_purpose::STANDARD.encode(bytes);
    Ok(json!({
        "response": {
            "code": 0,
            "log": if answer.value.is_some() { "exists" } else { "does not exist" },
            "info": "",
            "index": "0",
            "key": base64(&key),
            "value": answer.value.as_deref().map(base64),
            "proofOps": Value::Null,
            "height": answer.height.to_string(),
            "codespace": "",
        }
    }))
}

/// `/broadcast_tx_sync`: after the form is checked and the transaction is in the mempool, before it is in a block.
fn broadcast_tx_sync(context: &Context, params: &Params) -> Result<Value, RpcError> {
    let transaction = params.base64("tx")?;
    if transaction.is_empty() {
        return Err(RpcError::params("`tx` is missing"));
    }
    let hash = sha256(&transaction);
    let (code, log) = match context.handle.submit(Bytes::from(transaction)) {
        Ok(_) => (0, String::new()),
        Err(SubmitError::Refused { code, log }) => (code, log),
        Err(SubmitError::Known) => return Err(RpcError::internal("tx already exists in cache")),
        Err(SubmitError::Full) => {
            let (count, bytes) = context.handle.mempool_size();
            return Err(RpcError::internal(format!("mempool is full: {count} transactions, {bytes} bytes")));
        }
    };
    Ok(json!({ "code": code, "data": "", "log": log, "codespace": "", "hash": hash.to_string() }))
}

/// `/num_unconfirmed_txs`.
fn num_unconfirmed_txs(context: &Context, _: &Params) -> Result<Value, RpcError> {
    let (count, bytes) = context.handle.mempool_size();
    let count = count.to_string();
    Ok(json!({ "n_txs": count, "total": count, "total_bytes": bytes.to_string(), "txs": Value::Null }))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn methods_are_found_by_name_and_listed_once() {
        assert!(METHODS.is_sorted_by(|a, b| a.name < b.name));
        assert_eq!(find("blockchain").map(|method| method.parameters.len()), Some(2));
        assert!(find("subscribe").is_none());
    }
}

//! `config/config.toml` of a gnoland node: every setting that a testnet on one machine depends on is written out; what is
//! left out keeps the node's default.

use std::net::SocketAddr;

use crate::chain::toml::{consensus_pace, keys, section, text};

/// What differs between nodes and plans.
pub(super) struct Settings<'a> {
    /// Node name.
    pub(super) moniker: &'a str,
    /// `pebbledb` or `goleveldb`.
    pub(super) database: &'a str,
    /// Time between blocks in milliseconds.
    pub(super) block_time_ms: u64,
    /// Where peers dial.
    pub(super) p2p: SocketAddr,
    /// Where RPC answers.
    pub(super) rpc: SocketAddr,
    /// `g1…@address` of each node that this one dials.
    pub(super) peers: &'a [String],
    /// Nodes in the whole network.
    pub(super) nodes: usize,
}

/// The file.
pub(super) fn render(settings: &Settings<'_>) -> String {
    let mut out = String::new();
    let top = [
        ("moniker", text(settings.moniker)),
        // Of the block store and the state; the application's is always pebbledb.
        ("db_backend", text(settings.database)),
        ("db_dir", text("db")),
        ("fast_sync", "true".to_owned()),
        ("node_key_file", text("secrets/node_key.json")),
        ("prof_laddr", text("")),
    ];
    keys(&mut out, &top);
    section(&mut out, "rpc", &[("laddr", text(&format!("tcp://{}", settings.rpc)))]);
    let p2p = [
        ("laddr", text(&format!("tcp://{}", settings.p2p))),
        ("persistent_peers", text(&settings.peers.join(","))),
        ("max_num_inbound_peers", settings.nodes.max(40).to_string()),
        ("max_num_outbound_peers", settings.nodes.max(10).to_string()),
        ("flush_throttle_timeout", text("10ms")),
        ("pex", "false".to_owned()),
        // On loopback every dialler that does not bind appears as 127.0.0.1, so several peers share an address.
        ("allow_duplicate_ip", "true".to_owned()),
    ];
    section(&mut out, "p2p", &p2p);
    section(&mut out, "mempool", &[("size", "20000".to_owned()), ("cache_size", "40000".to_owned())]);
    consensus(&mut out, settings);
    section(&mut out, "telemetry", &[("metrics_enabled", "false".to_owned()), ("traces_enabled", "false".to_owned())]);
    section(&mut out, "application", &[("prune_strategy", text("syncable"))]);
    out
}

fn consensus(out: &mut String, settings: &Settings<'_>) {
    let mut values = vec![("wal_file", text("wal/cs.wal/wal"))];
    values.extend(consensus_pace(settings.block_time_ms));
    section(out, "consensus", &values);
    let files = [("sign_state", text("priv_validator_state.json")), ("local_signer", text("priv_validator_key.json"))];
    section(out, "consensus.priv_validator", &files);
}

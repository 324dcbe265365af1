//! `config.toml` of a CometBFT node: every setting that a testnet on one machine depends on is written out; what is left out
//! keeps the node's default. The settings here mean the same from 0.37 to 1.x. And the e2e application's own file.

use std::net::SocketAddr;

use crate::chain::toml::{consensus_pace, keys, section, text};
use crate::plan::Plan;

/// What differs between nodes and plans.
pub(super) struct Settings<'a> {
    /// Node name.
    pub(super) moniker: &'a str,
    /// `goleveldb` or `pebbledb`.
    pub(super) database: &'a str,
    /// Time between blocks in milliseconds.
    pub(super) block_time_ms: u64,
    /// Where peers dial.
    pub(super) p2p: SocketAddr,
    /// Where RPC answers.
    pub(super) rpc: SocketAddr,
    /// Where metrics are scraped.
    pub(super) metrics: SocketAddr,
    /// `id@address` of each node that this one dials.
    pub(super) peers: &'a [String],
    /// Nodes in the whole network.
    pub(super) nodes: usize,
}

/// The file.
pub(super) fn render(settings: &Settings<'_>) -> String {
    let mut out = String::new();
    base(&mut out, settings);
    p2p(&mut out, settings);
    consensus(&mut out, settings);
    let metrics = settings.metrics;
    section(&mut out, "storage", &[("discard_abci_responses", "false".to_owned())]);
    section(&mut out, "tx_index", &[("indexer", text("kv"))]);
    section(
        &mut out,
        "instrumentation",
        &[("prometheus", "true".to_owned()), ("prometheus_listen_addr", text(&metrics.to_string()))],
    );
    out
}

/// `app.toml` of the e2e application: its state is saved at each height, with a snapshot now and then.
pub(super) fn e2e(plan: &Plan, home: &str) -> String {
    let mut out = String::new();
    let values = [
        ("chain_id", text(&plan.chain_id)),
        // Node and application are one process.
        ("protocol", text("builtin")),
        ("listen", text("")),
        ("dir", text(&format!("{home}/data/app"))),
        ("mode", text("validator")),
        ("key_type", text("ed25519")),
        ("persist_interval", "1".to_owned()),
        ("snapshot_interval", "10".to_owned()),
        ("retain_blocks", "0".to_owned()),
    ];
    keys(&mut out, &values);
    out
}

fn base(out: &mut String, settings: &Settings<'_>) {
    let top = [
        ("moniker", text(settings.moniker)),
        ("db_backend", text(settings.database)),
        ("db_dir", text("data")),
        // The marks of the layout are lines of level info in this format.
        ("log_level", text("info")),
        ("log_format", text("plain")),
        ("genesis_file", text("config/genesis.json")),
        ("priv_validator_key_file", text("config/priv_validator_key.json")),
        ("priv_validator_state_file", text("data/priv_validator_state.json")),
        ("node_key_file", text("config/node_key.json")),
        ("abci", text("socket")),
        ("filter_peers", "false".to_owned()),
    ];
    keys(out, &top);
    section(
        out,
        "rpc",
        &[("laddr", text(&format!("tcp://{}", settings.rpc))), ("grpc_laddr", text("")), ("pprof_laddr", text(""))],
    );
}

fn p2p(out: &mut String, settings: &Settings<'_>) {
    section(
        out,
        "p2p",
        &[
            ("laddr", text(&format!("tcp://{}", settings.p2p))),
            ("external_address", text(&settings.p2p.to_string())),
            ("persistent_peers", text(&settings.peers.join(","))),
            // On loopback every dialler that does not bind appears as 127.0.0.1, so several peers share an address,
            // and no such address would be taken into a strict book.
            ("addr_book_strict", "false".to_owned()),
            ("allow_duplicate_ip", "true".to_owned()),
            ("pex", "false".to_owned()),
            ("max_num_inbound_peers", settings.nodes.max(40).to_string()),
            ("max_num_outbound_peers", settings.nodes.max(10).to_string()),
            // A node that was away is dialled again soon, not after an exponential wait.
            ("persistent_peers_max_dial_period", text("1s")),
            ("flush_throttle_timeout", text("10ms")),
            ("dial_timeout", text("1s")),
            ("handshake_timeout", text("5s")),
        ],
    );
    section(out, "mempool", &[("size", "20000".to_owned()), ("cache_size", "40000".to_owned())]);
    section(out, "statesync", &[("enable", "false".to_owned())]);
}

fn consensus(out: &mut String, settings: &Settings<'_>) {
    let mut values = vec![("wal_file", text("data/cs.wal/wal")), ("double_sign_check_height", "0".to_owned())];
    values.extend(consensus_pace(settings.block_time_ms));
    section(out, "consensus", &values);
}

//! `config.toml` of a Tenderdash 1.5 node: every setting that a testnet on one machine depends on is written out; what is
//! left out keeps the node's default.

use std::net::SocketAddr;

use crate::chain::toml::{keys, section, text};
use crate::timeline::Role;

/// What differs between nodes and plans.
pub(super) struct Settings<'a> {
    /// Node name.
    pub(super) moniker: &'a str,
    /// Validator or full node.
    pub(super) role: Role,
    /// A built-in application, or the address of one.
    pub(super) app: &'a str,
    /// Longest time without a block, in milliseconds.
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
    section(&mut out, "tx-index", &[("indexer", format!("[{}]", text("null")))]);
    section(
        &mut out,
        "instrumentation",
        &[("prometheus", "true".to_owned()), ("prometheus-listen-addr", text(&settings.metrics.to_string()))],
    );
    out
}

fn base(out: &mut String, settings: &Settings<'_>) {
    let mode = match settings.role {
        Role::Validator => "validator",
        Role::Full => "full",
    };
    let top = [
        ("moniker", text(settings.moniker)),
        ("mode", text(mode)),
        ("db-backend", text("goleveldb")),
        ("db-dir", text("data")),
        // The marks of the layout are lines of level info in this format.
        ("log-level", text("info")),
        ("log-format", text("plain")),
        ("genesis-file", text("config/genesis.json")),
        ("node-key-file", text("config/node_key.json")),
        ("filter-peers", "false".to_owned()),
    ];
    keys(out, &top);
    section(out, "abci", &[("address", text(settings.app)), ("transport", text("socket"))]);
    // A full node without this address panics for want of a validator's key. Nothing listens there, and nothing asks.
    let core = if settings.role == Role::Full { "127.0.0.1:1" } else { "" };
    section(
        out,
        "priv-validator",
        &[
            ("key-file", text("config/priv_validator_key.json")),
            ("state-file", text("data/priv_validator_state.json")),
            ("core-rpc-host", text(core)),
        ],
    );
    section(out, "rpc", &[("laddr", text(&format!("tcp://{}", settings.rpc))), ("pprof-laddr", text(""))]);
}

fn p2p(out: &mut String, settings: &Settings<'_>) {
    let connections = (settings.nodes * 2).max(64);
    section(
        out,
        "p2p",
        &[
            // With the node's default a late node stalls in block sync: its peers drop answers while they are busy.
            ("queue-type", text("fifo")),
            ("laddr", text(&format!("tcp://{}", settings.p2p))),
            ("external-address", text(&settings.p2p.to_string())),
            ("persistent-peers", text(&settings.peers.join(","))),
            ("max-connections", connections.to_string()),
            ("max-outgoing-connections", settings.nodes.max(12).to_string()),
            // On loopback all diallers appear as 127.0.0.1, and both of these count by address.
            ("max-incoming-connection-attempts", (connections * 2).to_string()),
            ("incoming-connection-window", text("1ms")),
            ("handshake-timeout", text("5s")),
            ("dial-timeout", text("1s")),
        ],
    );
    section(out, "mempool", &[("size", "20000".to_owned()), ("cache-size", "40000".to_owned())]);
    section(out, "statesync", &[("enable", "false".to_owned())]);
}

fn consensus(out: &mut String, settings: &Settings<'_>) {
    section(
        out,
        "consensus",
        &[
            ("wal-file", text("data/cs.wal/wal")),
            ("double-sign-check-height", "0".to_owned()),
            ("create-empty-blocks", "true".to_owned()),
            // What sets the pace: `timeout.commit` of the genesis does nothing.
            ("create-empty-blocks-interval", text(&format!("{}ms", settings.block_time_ms))),
            ("peer-gossip-sleep-duration", text("5ms")),
        ],
    );
}

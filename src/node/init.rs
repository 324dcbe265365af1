//! Writing the homes of a small network on one machine: genesis, keys and addresses, for trying the node by hand and in tests.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use serde_json::json;

use super::config::{Home, NodeConfig, Peer, Storage};
use super::crypto::{CryptoError, SecretKey};
use super::types::{ConsensusParams, Genesis, GenesisValidator, sha256};

/// A network.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Network {
    /// Chain id.
    pub chain_id: String,
    /// When the chain starts.
    pub genesis_time: jiff::Timestamp,
    /// Number of validators, each with power 10.
    pub validators: u16,
    /// Number of nodes besides.
    pub full: u16,
    /// Seed of the keys.
    pub seed: u64,
    /// Node i listens on 127.0.0.1, on this port + 3i for peers, + 3i + 1 for RPC, + 3i + 2 for metrics.
    pub base_port: u16,
    /// Storage discipline of all nodes.
    pub storage: Storage,
    /// Milliseconds between blocks.
    pub block_time_ms: u64,
}

/// The homes could not be written.
#[derive(Debug, thiserror::Error)]
pub enum InitError {
    /// A file.
    #[error("write {path}: {source}")]
    Write {
        /// Which.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The ports do not fit.
    #[error("give every node three ports from {0} on: there are too few")]
    Ports(u16),
    /// A key.
    #[error(transparent)]
    Key(#[from] CryptoError),
}

/// Writes `val-1`, … and `full-1`, … below `out`. Returns the homes in that order.
pub fn init(out: &Path, network: &Network) -> Result<Vec<Home>, InitError> {
    let names: Vec<String> = (1..=network.validators)
        .map(|i| format!("val-{i}"))
        .chain((1..=network.full).map(|i| format!("full-{i}")))
        .collect();
    let secrets: Vec<[u8; 32]> =
        names.iter().map(|name| sha256(format!("{} {name}", network.seed).as_bytes()).0).collect();
    let mut validators = Vec::new();
    for (name, secret) in names.iter().zip(&secrets).take(network.validators.into()) {
        let key = SecretKey::from_ikm(secret)?;
        validators.push(GenesisValidator {
            name: name.clone(),
            pub_key: key.public_key(),
            proof_of_possession: key.prove_possession(),
            power: 10,
        });
    }
    let genesis = Genesis {
        chain_id: network.chain_id.clone(),
        genesis_time: network.genesis_time,
        initial_height: 1,
        consensus_params: ConsensusParams::default(),
        validators,
        app_state: Default::default(),
    };
    let ports = names.len().checked_mul(3).and_then(|n| u16::try_from(n).ok());
    if ports.and_then(|n| network.base_port.checked_add(n)).is_none() {
        return Err(InitError::Ports(network.base_port));
    }
    let address =
        |i: usize, port: u16| SocketAddr::from((Ipv4Addr::LOCALHOST, network.base_port + 3 * i as u16 + port));
    let mut homes = Vec::new();
    for (i, name) in names.iter().enumerate() {
        let home = Home::new(out.join(name));
        let peers = names.iter().enumerate().filter(|(other, _)| *other != i);
        let config = NodeConfig {
            p2p_listen: address(i, 0),
            rpc_listen: address(i, 1),
            metrics_listen: Some(address(i, 2)),
            peers: peers.map(|(other, name)| Peer { name: name.clone(), address: address(other, 0) }).collect(),
            block_time_ms: network.block_time_ms,
            accept_unsafe: network.storage == Storage::NoSync,
            ..NodeConfig::new(name.clone(), network.storage)
        };
        write(&home, "genesis.json", &json!(genesis))?;
        write(&home, "node.json", &json!(config))?;
        write(&home, "key.json", &json!({ "secret": hex::encode(secrets[i]) }))?;
        homes.push(home);
    }
    Ok(homes)
}

fn write(home: &Home, name: &str, value: &serde_json::Value) -> Result<(), InitError> {
    let path = home.config(name);
    let folder = home.root().join("config");
    std::fs::create_dir_all(&folder)
        .and_then(|()| std::fs::write(&path, format!("{value:#}\n")))
        .map_err(|source| InitError::Write { path, source })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn homes_can_be_read_and_agree() {
        let dir = tempfile::tempdir().unwrap();
        let network = Network {
            chain_id: "small".into(),
            genesis_time: "2026-01-01T00:00:00Z".parse().unwrap(),
            validators: 2,
            full: 1,
            seed: 7,
            base_port: 27000,
            storage: Storage::NoSync,
            block_time_ms: 50,
        };
        let homes = init(dir.path(), &network).unwrap();
        let genesis = homes[0].genesis().unwrap();
        assert_eq!(genesis.validators.len(), 2);
        for home in &homes {
            assert_eq!(home.genesis().unwrap(), genesis);
            assert_eq!(home.node_config().unwrap().peers.len(), 2);
        }
        assert_eq!(homes[1].secret_key().unwrap().public_key(), genesis.validators[1].pub_key);
        assert_eq!(homes[2].node_config().unwrap().p2p_listen.port(), 27006);
        let many = Network { base_port: 65530, ..network };
        assert!(matches!(init(dir.path(), &many), Err(InitError::Ports(65530))));
    }
}

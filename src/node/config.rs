//! The files of a node's home: `config/node.json`, `config/key.json`, `config/genesis.json`, and where data lie.
//!
//! ```text
//! config/genesis.json   the chain, the same on every node
//! config/node.json      this node
//! config/key.json       its secret
//! data/blockstore.db    data/state.db    data/application.db    one redb file each
//! data/cs.wal/wal       data/sign_state.json    data/checkpoints/
//! ```

use std::net::{Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

use super::crypto::SecretKey;
use super::defect::Defect;
use super::types::{Genesis, Height};

/// When the node makes its writes durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Storage {
    /// Five synced commits a block: block store twice (height record, then a flush), results, application, state.
    PerBlock,
    /// Four: the block store once.
    SingleFlush,
    /// In block sync none a block; one a database at each flush point. In consensus as `SingleFlush`.
    Deferred,
    /// The order of `PerBlock` without any sync: for profiling only.
    NoSync,
}

/// Whether checkpoints are made for old blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Historical {
    /// None for a block more than ten minutes old; the first on reaching the tip.
    #[default]
    Skip,
    /// As for any other block.
    Take,
}

/// When checkpoints of the application are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Checkpoints {
    /// Milliseconds of chain time between two.
    pub every_ms: u64,
    /// How many are kept. Default 2.
    #[serde(default = "default_keep")]
    pub keep: usize,
    /// For old blocks. Default `skip`.
    #[serde(default)]
    pub historical: Historical,
}

fn default_keep() -> usize {
    2
}

/// When `deferred` writes what it holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Flush {
    /// Milliseconds between flush points, also when no block arrives. Default 1000.
    #[serde(default = "default_flush_ms")]
    pub every_ms: u64,
    /// Most bytes held over all databases. Default 64 MiB.
    #[serde(default = "default_flush_bytes")]
    pub max_bytes: u64,
}

fn default_flush_ms() -> u64 {
    1000
}

fn default_flush_bytes() -> u64 {
    64 << 20
}

impl Default for Flush {
    fn default() -> Self {
        Self { every_ms: default_flush_ms(), max_bytes: default_flush_bytes() }
    }
}

/// A node that this one dials.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Peer {
    /// Its name.
    pub name: String,
    /// Where it listens, as seen from here.
    pub address: SocketAddr,
}

/// `config/node.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NodeConfig {
    /// The node's name.
    pub name: String,
    /// Where peers connect.
    pub p2p_listen: SocketAddr,
    /// Where RPC is served.
    pub rpc_listen: SocketAddr,
    /// Where metrics are served; `null` is nowhere. Default `null`.
    #[serde(default)]
    pub metrics_listen: Option<SocketAddr>,
    /// Whom it dials. Default nobody.
    #[serde(default)]
    pub peers: Vec<Peer>,
    /// The storage discipline. Default `per-block`.
    #[serde(default = "default_storage")]
    pub storage: Storage,
    /// Accepts settings that lose data. Default `false`.
    #[serde(default, rename = "unsafe")]
    pub accept_unsafe: bool,
    /// Time between blocks in milliseconds. Default 1000.
    #[serde(default = "default_block_time_ms")]
    pub block_time_ms: u64,
    /// This node stops after committing this height; `null` is never. Default `null`.
    #[serde(default)]
    pub halt_height: Option<Height>,
    /// Blocks that share one verification in block sync; 1 verifies each. Default 1.
    #[serde(default = "default_verify_window")]
    pub verify_window: u32,
    /// Checkpoints of the application; `null` makes none. Default `null`.
    #[serde(default)]
    pub checkpoints: Option<Checkpoints>,
    /// Whether stage timings are logged every 100 blocks. Default `false`.
    #[serde(default)]
    pub timing: bool,
    /// When `deferred` flushes.
    #[serde(default)]
    pub flush: Flush,
    /// A planted defect, for testing tools that should catch it. Default none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub planted_defect: Option<Defect>,
}

fn default_storage() -> Storage {
    Storage::PerBlock
}

fn default_block_time_ms() -> u64 {
    1000
}

fn default_verify_window() -> u32 {
    1
}

/// `config/key.json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct KeyFile {
    /// Key material, 32 bytes as hex.
    secret: String,
}

/// A home that cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// A file cannot be read.
    #[error("read {path}: {source}")]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is not JSON of the right shape.
    #[error("read {path}: {source}")]
    Parse {
        /// The file.
        path: PathBuf,
        /// Where and why.
        source: serde_json::Error,
    },
    /// A value makes no sense.
    #[error("use {path}: {reason}")]
    Invalid {
        /// The file.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

/// The paths of a home.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Home {
    root: PathBuf,
}

impl Home {
    /// The home at `root`.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Its folder.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// `config/<name>`.
    pub fn config(&self, name: &str) -> PathBuf {
        self.root.join("config").join(name)
    }

    /// `data/`.
    pub fn data(&self) -> PathBuf {
        self.root.join("data")
    }

    /// `data/cs.wal/wal`.
    pub fn wal(&self) -> PathBuf {
        self.data().join("cs.wal").join("wal")
    }

    /// `data/sign_state.json`.
    pub fn sign_state(&self) -> PathBuf {
        self.data().join("sign_state.json")
    }

    /// `data/checkpoints/`.
    pub fn checkpoints(&self) -> PathBuf {
        self.data().join("checkpoints")
    }

    /// Reads `config/node.json`.
    pub fn node_config(&self) -> Result<NodeConfig, ConfigError> {
        let path = self.config("node.json");
        let config: NodeConfig = read_json(&path)?;
        config.check().map_err(|reason| ConfigError::Invalid { path, reason })?;
        Ok(config)
    }

    /// Reads `config/genesis.json`.
    pub fn genesis(&self) -> Result<Genesis, ConfigError> {
        load_genesis(&self.config("genesis.json"))
    }

    /// Reads `config/key.json`.
    pub fn secret_key(&self) -> Result<SecretKey, ConfigError> {
        let path = self.config("key.json");
        load_key(&path)
    }
}

/// Reads and checks a genesis file.
pub fn load_genesis(path: &Path) -> Result<Genesis, ConfigError> {
    let genesis: Genesis = read_json(path)?;
    genesis.check().map_err(|reason| ConfigError::Invalid { path: path.to_owned(), reason })?;
    Ok(genesis)
}

/// Reads a key file: `{"secret": "<64 hex digits>"}`.
pub fn load_key(path: &Path) -> Result<SecretKey, ConfigError> {
    let file: KeyFile = read_json(path)?;
    let invalid = |reason: String| ConfigError::Invalid { path: path.to_owned(), reason };
    let secret = hex::decode(&file.secret).map_err(|error| invalid(format!("secret: {error}")))?;
    if secret.len() != 32 {
        return Err(invalid(format!("secret has {} bytes, not 32", secret.len())));
    }
    SecretKey::from_ikm(&secret).map_err(|error| invalid(error.to_string()))
}

fn read_json<T: DeserializeOwned>(path: &Path) -> Result<T, ConfigError> {
    let bytes = std::fs::read(path).map_err(|source| ConfigError::Read { path: path.to_owned(), source })?;
    serde_json::from_slice(&bytes).map_err(|source| ConfigError::Parse { path: path.to_owned(), source })
}

impl NodeConfig {
    /// A node without peers and addresses (port 0 is any), everything else as it is by default.
    pub fn new(name: String, storage: Storage) -> Self {
        let anywhere = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        Self {
            name,
            p2p_listen: anywhere,
            rpc_listen: anywhere,
            metrics_listen: None,
            peers: Vec::new(),
            storage,
            accept_unsafe: false,
            block_time_ms: default_block_time_ms(),
            halt_height: None,
            verify_window: default_verify_window(),
            checkpoints: None,
            timing: false,
            flush: Flush::default(),
            planted_defect: None,
        }
    }

    fn check(&self) -> Result<(), String> {
        if self.storage == Storage::NoSync && !self.accept_unsafe {
            return Err("storage no-sync loses data at a power cut: it needs \"unsafe\": true".into());
        }
        if self.verify_window == 0 {
            return Err("verify_window is 0; 1 verifies each block".into());
        }
        if self.halt_height == Some(0) {
            return Err("halt_height is 0; null is never".into());
        }
        if self.checkpoints.is_some_and(|c| c.every_ms == 0 || c.keep == 0) {
            return Err("checkpoints: every_ms and keep are at least 1; null makes none".into());
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MINIMAL: &str = r#"{"name":"n","p2p_listen":"127.0.0.1:1","rpc_listen":"127.0.0.1:2"}"#;

    fn home(node: &str) -> (tempfile::TempDir, Home) {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("config")).unwrap();
        let home = Home::new(dir.path());
        std::fs::write(home.config("node.json"), node).unwrap();
        (dir, home)
    }

    #[test]
    fn defaults_are_those_documented() {
        let (_dir, home) = home(MINIMAL);
        let config = home.node_config().unwrap();
        assert_eq!(config.storage, Storage::PerBlock);
        assert_eq!(config.flush, Flush { every_ms: 1000, max_bytes: 64 << 20 });
        assert_eq!((config.verify_window, config.block_time_ms), (1, 1000));
        let text = serde_json::to_string(&config).unwrap();
        assert_eq!(serde_json::from_str::<NodeConfig>(&text).unwrap(), config);
    }

    #[test]
    fn no_sync_needs_consent() {
        let (_dir, wrong) = home(&MINIMAL.replace('}', r#","storage":"no-sync"}"#));
        assert!(wrong.node_config().unwrap_err().to_string().contains("\"unsafe\": true"));
        let (_dir, right) = home(&MINIMAL.replace('}', r#","storage":"no-sync","unsafe":true}"#));
        assert_eq!(right.node_config().unwrap().storage, Storage::NoSync);
    }

    #[test]
    fn errors_name_file_and_place() {
        let (_dir, home) = home(&MINIMAL.replace('}', r#","storag":"deferred"}"#));
        let error = home.node_config().unwrap_err().to_string();
        assert!(error.contains("node.json") && error.contains("storag") && error.contains("column"), "{error}");
        std::fs::write(home.config("key.json"), r#"{"secret":"abcd"}"#).unwrap();
        let error = home.secret_key().unwrap_err().to_string();
        assert!(error.contains("2 bytes, not 32"), "{error}");
    }
}

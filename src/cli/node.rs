//! `midflush node`: the built-in reference node and what is done to its folder off-line.

use std::path::{Path, PathBuf};

use clap::{Subcommand, ValueEnum};

use super::{CliError, Code};
use crate::node::app::checkpoint;
use crate::node::build::{BuildOptions, Forge, build_chain, building_config};
use crate::node::config::{Home, Storage, load_genesis, load_key};
use crate::node::crypto::SecretKey;
use crate::node::defect::Defect;
use crate::node::init::{self, Network};
use crate::node::ledger::{Ledger, rollback};
use crate::node::log::Log;
use crate::node::start;
use crate::node::store::{Disk as _, FileDisk, StoreName};

/// Runs the reference node or works on its folder.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(subcommand)]
    command: NodeCommand,
}

#[derive(Debug, Subcommand)]
enum NodeCommand {
    /// Write the homes of a small network on this machine
    Init(InitArgs),
    /// Run the node of a home folder until SIGTERM, or until its halt height
    Start(HomeArg),
    /// Write a signed chain off-line: data/ below the home, from config/genesis.json and the validators' keys
    BuildChain(BuildArgs),
    /// Take the state back by one block; the node must be down
    Rollback(HomeArg),
    /// Replace the application by one of its checkpoints; the node must be down
    RestoreCheckpoint(RestoreArgs),
}

#[derive(Debug, clap::Args)]
struct HomeArg {
    /// The node's folder
    #[arg(long, value_name = "DIR")]
    home: PathBuf,
}

#[derive(Debug, clap::Args)]
struct InitArgs {
    /// Folder that gets val-1, full-1 and so on
    #[arg(long, value_name = "DIR")]
    out: PathBuf,
    /// Chain id
    #[arg(long, default_value = "midflush-local")]
    chain_id: String,
    /// When the chain starts
    #[arg(long, value_name = "TIME", default_value = "2026-01-01T00:00:00Z")]
    genesis_time: jiff::Timestamp,
    /// Number of validators
    #[arg(long, value_name = "N", default_value_t = 4)]
    validators: u16,
    /// Number of nodes that are no validators
    #[arg(long, value_name = "N", default_value_t = 0)]
    full: u16,
    /// Seed of the keys
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// First port on 127.0.0.1; each node takes three
    #[arg(long, value_name = "PORT", default_value_t = 26600)]
    base_port: u16,
    /// Storage discipline
    #[arg(long, value_enum, default_value = "per-block")]
    storage: StorageArg,
    /// Milliseconds between blocks
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    block_time_ms: u64,
}

#[derive(Debug, clap::Args)]
struct BuildArgs {
    /// Folder that gets data/
    #[arg(long, value_name = "DIR")]
    home: PathBuf,
    /// Genesis file [default: config/genesis.json below the home]
    #[arg(long, value_name = "FILE")]
    genesis: Option<PathBuf>,
    /// Key files of validators, or folders of such
    #[arg(long, value_name = "PATH", required = true, num_args = 1..)]
    keys: Vec<PathBuf>,
    /// Number of blocks
    #[arg(long, value_name = "N")]
    blocks: u64,
    /// Transactions in each block
    #[arg(long, value_name = "K", default_value_t = 4, alias = "tx-per-block")]
    txs: u64,
    /// Bytes of each transaction
    #[arg(long, value_name = "N", default_value_t = 250)]
    tx_bytes: usize,
    /// Milliseconds of chain time between blocks
    #[arg(long, value_name = "MS", default_value_t = 1000)]
    block_time_ms: u64,
    /// Seed of the transactions' contents
    #[arg(long, value_name = "N", default_value_t = 0)]
    seed: u64,
    /// How the databases are written while building
    #[arg(long, value_enum, default_value = "deferred")]
    storage: StorageArg,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum StorageArg {
    PerBlock,
    SingleFlush,
    Deferred,
    NoSync,
}

impl From<StorageArg> for Storage {
    fn from(storage: StorageArg) -> Self {
        match storage {
            StorageArg::PerBlock => Self::PerBlock,
            StorageArg::SingleFlush => Self::SingleFlush,
            StorageArg::Deferred => Self::Deferred,
            StorageArg::NoSync => Self::NoSync,
        }
    }
}

#[derive(Debug, clap::Args)]
struct RestoreArgs {
    #[command(flatten)]
    home: HomeArg,
    /// Height of the checkpoint [default: the newest]
    #[arg(long, value_name = "N")]
    height: Option<u64>,
}

/// Runs the command.
pub fn run(args: Args) -> Result<Code, CliError> {
    match args.command {
        NodeCommand::Init(args) => init(&args),
        // What is wrong was logged, in the log's form.
        NodeCommand::Start(args) => Ok(if start::start(&args.home).is_ok() { Code::Ok } else { Code::Finding }),
        NodeCommand::BuildChain(args) => build(&args),
        NodeCommand::Rollback(args) => roll_back(&args.home),
        NodeCommand::RestoreCheckpoint(args) => restore(&args.home.home, args.height),
    }
}

/// Bad input; `error` reads after "failed to".
fn input(error: impl std::fmt::Display) -> CliError {
    CliError::input(format!("failed to {error}"))
}

fn init(args: &InitArgs) -> Result<Code, CliError> {
    let network = Network {
        chain_id: args.chain_id.clone(),
        genesis_time: args.genesis_time,
        validators: args.validators,
        full: args.full,
        seed: args.seed,
        base_port: args.base_port,
        storage: args.storage.into(),
        block_time_ms: args.block_time_ms,
    };
    for home in init::init(&args.out, &network).map_err(input)? {
        println!("{}", home.root().display());
    }
    Ok(Code::Ok)
}

fn build(args: &BuildArgs) -> Result<Code, CliError> {
    let home = Home::new(&args.home);
    let path = args.genesis.clone().unwrap_or_else(|| home.config("genesis.json"));
    let genesis = load_genesis(&path).map_err(input)?;
    if StoreName::ALL.iter().any(|name| home.data().join(name.file()).exists()) {
        return Err(input(format!("build a chain in {}: there is one already", home.data().display())));
    }
    let mut forge = Forge::new(&genesis.chain_id, keys(&args.keys)?);
    let config = building_config(args.storage.into());
    let mut ledger = Ledger::open(&home, &config, &genesis, Log::stderr(), Box::new(())).map_err(CliError::tool)?;
    let options = BuildOptions {
        blocks: args.blocks,
        txs: args.txs,
        tx_bytes: args.tx_bytes,
        block_time_ms: args.block_time_ms.max(1),
        seed: args.seed,
    };
    let height = build_chain(&mut ledger, &mut forge, &options).map_err(CliError::tool)?;
    println!("height={height} app_hash={}", ledger.state().app_hash);
    Ok(Code::Ok)
}

/// Reads key files; of a folder all that end in `.json`, in order of their names.
fn keys(paths: &[PathBuf]) -> Result<Vec<SecretKey>, CliError> {
    let mut files = Vec::new();
    for path in paths {
        if path.is_dir() {
            let entries =
                std::fs::read_dir(path).map_err(|error| input(format!("read {}: {error}", path.display())))?;
            let mut found: Vec<PathBuf> = entries.filter_map(|entry| entry.ok().map(|entry| entry.path())).collect();
            found.retain(|path| path.extension().is_some_and(|extension| extension == "json"));
            found.sort();
            files.extend(found);
        } else {
            files.push(path.clone());
        }
    }
    files.iter().map(|path| load_key(path).map_err(input)).collect()
}

fn planted(home: &Home) -> Option<Defect> {
    home.node_config().ok().and_then(|config| config.planted_defect)
}

fn roll_back(path: &Path) -> Result<Code, CliError> {
    let home = Home::new(path);
    let genesis = home.genesis().map_err(input)?;
    let disk = existing(&home)?;
    let refuse = planted(&home) != Some(Defect::RollbackAlways);
    let done = rollback(&disk, &genesis, refuse).map_err(CliError::tool)?;
    println!("app/state/store {} state={}", done.before, done.state);
    Ok(Code::Ok)
}

fn restore(path: &Path, height: Option<u64>) -> Result<Code, CliError> {
    let home = Home::new(path);
    let folder = home.checkpoints();
    let found = checkpoint::list(&folder);
    let height = match height.or_else(|| found.last().copied()) {
        Some(height) if found.contains(&height) => height,
        _ => {
            let found: Vec<String> = found.iter().map(u64::to_string).collect();
            let found = if found.is_empty() { "none".to_owned() } else { format!("only {}", found.join(", ")) };
            return Err(input(format!("restore a checkpoint: {} has {found}", folder.display())));
        }
    };
    let disk = existing(&home)?;
    let shift = u64::from(planted(&home) == Some(Defect::CheckpointLosesBlock));
    let height = checkpoint::restore(&folder, height, &disk, shift).map_err(CliError::tool)?;
    println!("restored height={height}");
    Ok(Code::Ok)
}

/// The databases of a home that has them: nothing is created by a mistyped path.
fn existing(home: &Home) -> Result<FileDisk, CliError> {
    let disk = FileDisk::new(&home.data(), true);
    for name in StoreName::ALL {
        if !home.data().join(name.file()).exists() {
            return Err(input(format!("use {}: it has no {name}", home.data().display())));
        }
        // Takes the lock and gives it back: a running node is found before anything is changed.
        disk.open(name).map_err(|error| input(format!("use {name} of {}: {error}", home.root().display())))?;
    }
    Ok(disk)
}

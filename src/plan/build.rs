//! From topology and seed to the plan.

use jiff::{SignedDuration, Timestamp};
use rand::{Rng, RngExt};

use super::draw::{Purpose, delay_ms, stream};
use super::{
    ApplicationPlan, BuildPlan, ChainPlan, CometbftPlan, CosmosSdkPlan, CustomPlan, GnolandPlan, LoadPlan, NodePlan,
    Plan, ReferencePlan, StartAt, TenderdashPlan, faults::faults, graph,
};
use crate::topology::{self, Chain, Group, Problem, Start, Topology};

/// Earliest genesis: 2025-01-01T00:00:00Z. Long past, so that no chain begins in the future of its nodes.
const GENESIS_FIRST: i64 = 1_735_689_600;
/// Seconds after it within which the seed places the genesis.
const GENESIS_SPREAD: i64 = 180 * 86_400;
/// How long nodes may take to agree when the topology does not say, in milliseconds.
const CONVERGE_WITHIN_MS: u64 = 60_000;
/// Bytes of the name in a chain id; with the longest seed it stays under CometBFT's 50.
const CHAIN_NAME_MAX: usize = 28;
/// The program of a CometBFT node when the topology names none.
const COMETBFT_BINARY: &str = "cometbft";
/// The program of a gnoland node when the topology names none.
const GNOLAND_BINARY: &str = "gnoland";
/// The program of a Tenderdash node when the topology names none.
const TENDERDASH_BINARY: &str = "tenderdash";

/// Makes the plan. The same topology and seed give the same plan, byte for byte.
///
/// # Errors
/// When the peers that the topology asks for cannot be drawn.
pub fn build(topology: &Topology, seed: u64) -> Result<Plan, Problem> {
    let mut expect = topology.expect.clone();
    if expect.converge_within_ms.is_none() && expect.halt_height.is_none() {
        expect.converge_within_ms = Some(CONVERGE_WITHIN_MS);
    }
    Ok(Plan {
        name: topology.name.clone(),
        seed,
        chain_id: chain_id(&topology.name, seed),
        initial_height: topology.initial_height,
        built_blocks: topology.built_blocks,
        genesis_time: genesis_time(&mut stream(seed, Purpose::Genesis)),
        chain: chain(&topology.chain),
        application: topology.application.as_ref().map(application),
        nodes: nodes(topology, seed)?,
        load: topology.load.as_ref().map(|load| LoadPlan {
            rate: load.rate,
            size: load.size,
            kinds: load.kinds.clone(),
            seed: stream(seed, Purpose::Load).random(),
        }),
        faults: faults(topology, &mut stream(seed, Purpose::Faults)),
        expect,
    })
}

fn chain_id(name: &str, seed: u64) -> String {
    // Names of topologies are ASCII.
    let short = name[..name.len().min(CHAIN_NAME_MAX)].trim_end_matches('-');
    format!("{short}-{seed}")
}

fn genesis_time(rng: &mut impl Rng) -> String {
    let after = SignedDuration::from_secs(rng.random_range(0..GENESIS_SPREAD));
    let first = Timestamp::from_second(GENESIS_FIRST).expect("a constant within range");
    (first + after).to_string()
}

fn build_of(build: &topology::Build) -> BuildPlan {
    match build {
        topology::Build::Binary(path) => BuildPlan::Binary(path.clone()),
        topology::Build::Image(reference) => BuildPlan::Image(reference.clone()),
    }
}

fn chain(chain: &Chain) -> ChainPlan {
    match chain {
        Chain::Reference(reference) => ChainPlan::Reference(ReferencePlan {
            block_time_ms: reference.block_time_ms,
            halt_height: reference.halt_height,
            options: reference.options.clone(),
        }),
        Chain::Cometbft(cometbft) => ChainPlan::Cometbft(CometbftPlan {
            app: cometbft.app.clone(),
            version: cometbft.version.clone(),
            database: cometbft.database.clone(),
            block_time_ms: cometbft.block_time_ms,
            build: made_from(cometbft.binary.as_ref(), cometbft.image.as_ref(), COMETBFT_BINARY),
        }),
        Chain::Gnoland(gnoland) => ChainPlan::Gnoland(GnolandPlan {
            database: gnoland.database.clone(),
            block_time_ms: gnoland.block_time_ms,
            genesis: gnoland.genesis.clone(),
            root: gnoland.root.clone(),
            build: made_from(gnoland.binary.as_ref(), gnoland.image.as_ref(), GNOLAND_BINARY),
        }),
        Chain::Tenderdash(tenderdash) => ChainPlan::Tenderdash(TenderdashPlan {
            app: tenderdash.app.clone(),
            block_time_ms: tenderdash.block_time_ms,
            build: made_from(tenderdash.binary.as_ref(), tenderdash.image.as_ref(), TENDERDASH_BINARY),
        }),
        Chain::CosmosSdk(cosmos) => ChainPlan::CosmosSdk(CosmosSdkPlan {
            build: build_of(&cosmos.build),
            denom: cosmos.denom.clone(),
            block_time_ms: cosmos.block_time_ms,
            stake_per_power: cosmos.stake_per_power,
            genesis: cosmos.genesis.clone(),
            config: cosmos.config.clone(),
            arguments: cosmos.arguments.clone(),
        }),
        Chain::Custom(custom) => ChainPlan::Custom(Box::new(CustomPlan {
            build: build_of(&custom.build),
            block_time_ms: custom.block_time_ms,
            command: custom.command.clone(),
            env: custom.env.clone(),
            files: custom.files.clone(),
            changes: custom.changes.clone(),
            set_up: custom.set_up.clone(),
            transaction: custom.transaction.clone(),
            layout: custom.layout.clone(),
        })),
    }
}

fn application(application: &topology::Application) -> ApplicationPlan {
    ApplicationPlan {
        build: build_of(&application.build),
        command: application.command.clone(),
        env: application.env.clone(),
        files: application.files.clone(),
        layout: application.layout.clone(),
    }
}

/// A program, or an image where only that is given.
fn made_from(binary: Option<&String>, image: Option<&String>, usual: &str) -> BuildPlan {
    match (binary, image) {
        (None, Some(image)) => BuildPlan::Image(image.clone()),
        (binary, _) => BuildPlan::Binary(binary.map_or_else(|| usual.to_owned(), Clone::clone)),
    }
}

/// A build by its name.
pub(super) fn named(topology: &Topology, name: &str) -> Option<BuildPlan> {
    let made = topology.builds.get(name)?;
    Some(made_from(made.binary.as_ref(), made.image.as_ref(), name))
}

fn nodes(topology: &Topology, seed: u64) -> Result<Vec<NodePlan>, Problem> {
    let mut keys = stream(seed, Purpose::Keys);
    let mut starts = stream(seed, Purpose::Starts);
    let peers = graph::peers(topology, &mut stream(seed, Purpose::Graph))?;
    let names: Vec<String> = topology.nodes().map(|(node, _, _)| node).collect();
    let plan = |((name, group_name, group), peers): ((String, &str, &Group), Vec<usize>)| {
        let start = match group.start {
            Start::Run => StartAt::Run,
            Start::After(delay) => StartAt::AfterMs(delay_ms(&mut starts, delay)),
            Start::Height(height) => StartAt::Height(height),
        };
        NodePlan {
            name,
            group: group_name.to_owned(),
            role: group.role,
            power: group.power,
            build: group.build.as_ref().and_then(|name| named(topology, name)),
            key_seed: hex::encode(keys.random::<[u8; 32]>()),
            start,
            holds_built: topology.built_blocks > 0 && start == StartAt::Run,
            storage: group.storage.clone(),
            peers: peers.into_iter().map(|at| names[at].clone()).collect(),
            sync_latency: group.sync_latency.clone(),
            watch: group.watch,
            options: group.options.clone(),
        }
    };
    Ok(topology.nodes().zip(peers).map(plan).collect())
}

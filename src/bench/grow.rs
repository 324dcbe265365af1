//! A chain for families that cannot build one off-line: its validators make it once, under a load, and one of them hands over
//! its data.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::BenchError;
use super::design::FixturePlan;
use super::session::Ground;
use crate::agent_client::Client;
use crate::agent_client::protocol::{Signal, SignalRequest, StartRequest};
use crate::chain::Made;
use crate::engine::{Launch, LaunchNode, Prepared};
use crate::plan::{ChainPlan, NodePlan, Plan};
use crate::run::cache::{self, InUse};
use crate::run::{ThroughEngine, archive_files};
use crate::timeline::{Role, Tier};

/// Time between blocks: as short as the family takes.
const BLOCK_TIME_MS: u64 = 1;
/// Longest time in which the chain must grow by a block.
const STALL_MAX: Duration = Duration::from_secs(60);
/// Longest time for the validators to end in order.
const END_MAX: Duration = Duration::from_secs(20);
const POLL: Duration = Duration::from_millis(10);
/// What a node keeps for itself and no other one needs: its consensus log and what it signed last.
const OWN: [&str; 2] = ["cs.wal", "priv_validator_state.json"];
/// What a chain's folder is called in the cache, whatever the family calls it.
const DATA: &str = "data";
const OUTPUT_MAX: u64 = 1 << 20;

/// The folder with the chain's data, grown when the cache has none.
pub(super) async fn grown(
    ground: &Ground<'_>,
    fixture: &FixturePlan,
    cancel: &CancellationToken,
) -> Result<(PathBuf, InUse), BenchError> {
    let plan = growing(&fixture.plan);
    let builds = validators(&plan).map(|node| ground.chain.build(&plan, node)).collect::<Vec<_>>();
    let failed = |doing| move |source| BenchError::Engine { doing, source };
    let prepared = ground.engine.prepare(&builds).await.map_err(failed("make the builds ready"))?;
    let key = key(fixture, prepared.values());
    let (done, used) = (ground.cache.join(&key), cache::used(ground.cache, &key, cancel).await?);
    if done.join(DATA).is_dir() {
        return Ok((done, used));
    }
    let run = format!("{}-grow", ground.run);
    let nodes = validators(&plan).zip(builds).map(|(node, build)| LaunchNode { name: node.name.clone(), build });
    let launch = Launch { run: run.clone(), token: ground.token.clone(), nodes: nodes.collect() };
    let data = tokio::select! {
        data = make(ground, &launch, &plan, fixture) => data,
        () = cancel.cancelled() => Err(BenchError::Interrupted),
    };
    let removed = ground.engine.remove(&run).await;
    let archive = data?;
    removed.map_err(failed("remove the validators"))?;
    keep(&archive, ground.chain.folders()[0], ground.cache, &done)
        .map_err(|source| BenchError::Machine { what: "keep the chain", source })?;
    cache::trim(ground.cache, cache::BYTES_MAX);
    Ok((done, used))
}

/// Validators alone, each of which dials all others.
fn growing(plan: &Plan) -> Plan {
    let mut plan = plan.clone();
    plan.nodes.retain(|node| node.role == Role::Validator);
    let names: Vec<String> = plan.nodes.iter().map(|node| node.name.clone()).collect();
    for node in &mut plan.nodes {
        node.peers = names.iter().filter(|name| **name != node.name).cloned().collect();
    }
    match &mut plan.chain {
        ChainPlan::Cometbft(cometbft) => cometbft.block_time_ms = BLOCK_TIME_MS,
        ChainPlan::Gnoland(gnoland) => gnoland.block_time_ms = BLOCK_TIME_MS,
        ChainPlan::CosmosSdk(cosmos) => cosmos.block_time_ms = BLOCK_TIME_MS,
        ChainPlan::Custom(custom) => custom.block_time_ms = BLOCK_TIME_MS,
        ChainPlan::Tenderdash(tenderdash) => tenderdash.block_time_ms = BLOCK_TIME_MS,
        ChainPlan::Reference(reference) => reference.block_time_ms = BLOCK_TIME_MS,
    }
    plan
}

fn validators(plan: &Plan) -> impl Iterator<Item = &NodePlan> {
    plan.nodes.iter()
}

/// Everything that the chain depends on: program, keys, genesis, load. Blocks carry times, so that two chains with one key are
/// alike and never equal; the hashes kept beside the data tell which it is.
fn key<'p>(fixture: &FixturePlan, prepared: impl Iterator<Item = &'p Prepared>) -> String {
    let mut digest = Sha256::new();
    for prepared in prepared {
        digest.update(&prepared.digest);
    }
    let plan = &fixture.plan;
    digest.update(format!("{} {} {:?}", plan.chain_id, plan.genesis_time, fixture.spec));
    for node in plan.nodes.iter().filter(|node| node.role == Role::Validator) {
        digest.update(format!("{} {}", node.key_seed, node.power));
    }
    format!("grown-{}", hex::encode(&digest.finalize()[..16]))
}

/// Launches, starts, loads, and ends the validators; the data of the first as an archive.
async fn make(
    ground: &Ground<'_>,
    launch: &Launch,
    plan: &Plan,
    fixture: &FixturePlan,
) -> Result<bytes::Bytes, BenchError> {
    let failed = |doing| move |source| BenchError::Engine { doing, source };
    let binding = ground.engine.launch(launch).await.map_err(failed("launch the validators"))?;
    let mut clients = Vec::new();
    for node in validators(plan) {
        let (engine, run) = (Arc::clone(&ground.engine), launch.run.clone());
        let client = Client::new(Arc::new(ThroughEngine { engine, run, node: node.name.clone() }), &ground.token);
        let agent = |doing| {
            let node = node.name.clone();
            move |source| BenchError::Agent { node, doing, source }
        };
        let files = ground.chain.render(plan, &binding, &Made::new(), node)?;
        let pack = |source| BenchError::Machine { what: "pack a node's files", source };
        let archive = archive_files(&files.files).map_err(pack)?;
        client.put_files(archive).await.map_err(agent("put the files"))?;
        let request = StartRequest {
            command: files.command,
            env: files.env,
            input: String::new(),
            tier: Tier::None,
            layout: ground.chain.layout(plan, node),
            sync_latency: BTreeMap::new(),
            seed: plan.seed,
            height: 0,
            rpc: binding.nodes.get(&node.name).map(|place| format!("{}:{}", place.ip, place.rpc_port)),
            arms: Vec::new(),
            output_max: OUTPUT_MAX,
        };
        client.start(&request).await.map_err(agent("start the node"))?;
        clients.push(client);
    }
    load(ground, plan, fixture, &clients).await?;
    end(&clients).await;
    let first = clients.first().ok_or_else(|| BenchError::Input("a chain needs a validator".to_owned()))?;
    let agent = |source| BenchError::Agent { node: "the first validator".to_owned(), doing: "take the chain", source };
    first.export(&[ground.chain.folders()[0].to_owned()]).await.map_err(agent)
}

/// Offers the transactions of one block whenever a new one is there, until the chain is high enough.
async fn load(ground: &Ground<'_>, plan: &Plan, fixture: &FixturePlan, clients: &[Client]) -> Result<(), BenchError> {
    let (rpc, spec) = (ground.chain.rpc(), &fixture.spec);
    let (mut height, mut moved, mut sent) = (0, Instant::now(), 0_u64);
    let first = &clients[0];
    while height < spec.heights {
        if moved.elapsed() > STALL_MAX {
            let seconds = STALL_MAX.as_secs();
            return Err(BenchError::Node(format!("the validators make no block at height {height} for {seconds} s")));
        }
        let answer = first.rpc(&rpc.status_request()).await.ok();
        let seen = answer.and_then(|answer| rpc.status(&answer.body).ok()).map_or(0, |status| status.height);
        if seen <= height {
            sleep(POLL).await;
            continue;
        }
        (height, moved) = (seen, Instant::now());
        for _ in 0..spec.transactions_per_block {
            let transaction = ground.chain.transaction(plan, &Made::new(), spec.kind, sent, spec.transaction_size)?;
            let target = &clients[usize::try_from(sent).unwrap_or(0) % clients.len()];
            // One that is refused is one fewer: the blocks hold about as many as asked.
            let _taken = target.rpc(&rpc.submit_request(&transaction)).await;
            sent += 1;
        }
    }
    Ok(())
}

/// Ends all of them in order, so that their stores agree; one that does not end in time is removed with the run.
async fn end(clients: &[Client]) {
    for client in clients {
        let _gone_already = client.signal(&SignalRequest { signal: Signal::Terminate, fault: None }).await;
    }
    let deadline = Instant::now() + END_MAX;
    for client in clients {
        while client.usage().await.is_ok() && Instant::now() < deadline {
            sleep(POLL).await;
        }
    }
}

/// Unpacks beside the cache's place and renames, so that a half-made chain is never taken for a whole.
fn keep(archive: &[u8], folder: &str, cache: &Path, done: &Path) -> std::io::Result<()> {
    fs::create_dir_all(cache)?;
    let work = tempfile::Builder::new().prefix("growing-").tempdir_in(cache)?;
    tar::Archive::new(archive).unpack(work.path())?;
    if folder != DATA {
        fs::rename(work.path().join(folder), work.path().join(DATA))?;
    }
    for own in OWN {
        let path = work.path().join(DATA).join(own);
        if path.is_dir() {
            fs::remove_dir_all(&path)?;
        } else if path.exists() {
            fs::remove_file(&path)?;
        }
    }
    fs::rename(work.keep(), done)
}

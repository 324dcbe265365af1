//! The nodes alive: one agent each, reachable, with its files in place.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use futures_util::stream::{self, StreamExt, TryStreamExt};
use tokio::sync::{mpsc, watch};
use tokio::task::JoinSet;

use super::beside::{Beside, Part};
use super::dispatcher::Witness;
use super::experiment::{Ends, Experiment};
use super::left::keep_log;
use super::published::Follower;
use super::unit::{Order, Unit, UnitParts, Upgraded, tier};
use super::{RunError, load, sampler};
use crate::agent_client::protocol::Hello;
use crate::agent_client::{ByteStream, Client, Dial};
use crate::chain::{self, FileContents, Made, NodeFiles, Rpc};
use crate::engine::{Binding, Build, Engine, Launch, LaunchNode, Prepared};
use crate::plan::{ApplicationPlan, NodePlan};
use crate::results::{Document, RunFolder};
use crate::timeline::{Event, FaultId, NodeEvent, Role, Tier};

/// Agents that are given their files side by side.
const AT_ONCE: usize = 8;

/// All nodes of a run.
pub(super) struct Testnet {
    nodes: Vec<Live>,
    binding: Binding,
    made: Arc<Made>,
}

/// What was made before the nodes.
pub(super) struct Grounds {
    /// A folder on this machine and the path below home that it becomes, for nodes that hold the built blocks.
    pub(super) fixture: Option<(PathBuf, String)>,
    /// What the node's own command line made.
    pub(super) made: Arc<Made>,
}

/// One node with its agent.
struct Live {
    plan: NodePlan,
    client: Arc<Client>,
    application: Option<Beside>,
    files: NodeFiles,
    upgrades: BTreeMap<FaultId, Upgraded>,
    hello: Hello,
    clock_offset_us: i64,
    rpc: String,
    /// The start that is alive now.
    running: watch::Receiver<Option<u32>>,
    set_running: Option<watch::Sender<Option<u32>>>,
}

/// Reaches one agent through the engine.
pub(crate) struct ThroughEngine {
    /// The engine that launched it.
    pub(crate) engine: Arc<dyn Engine>,
    /// Its run.
    pub(crate) run: String,
    /// Its node.
    pub(crate) node: String,
}

#[async_trait::async_trait]
impl Dial for ThroughEngine {
    async fn dial(&self) -> std::io::Result<Box<dyn ByteStream>> {
        self.engine.dial(&self.run, &self.node).await.map_err(std::io::Error::other)
    }
}

impl Testnet {
    /// Starts the agents, checks what they can do, and puts every node's files in place.
    pub(super) async fn launch(
        experiment: &Experiment,
        prepared: &BTreeMap<Build, Prepared>,
        grounds: Grounds,
        witness: &Witness,
        clock: Instant,
    ) -> Result<Self, RunError> {
        let plan = &experiment.plan;
        let launch = Launch {
            run: experiment.facts.run.clone(),
            token: experiment.facts.token.clone(),
            nodes: agents(experiment),
        };
        let binding = experiment
            .engine
            .launch(&launch)
            .await
            .map_err(|source| RunError::Engine { doing: "launch the agents".to_owned(), source })?;
        experiment.folder.write(Document::Binding, &binding)?;
        let built = match grounds.fixture {
            None => None,
            Some((folder, into)) => Some(archive_folder(&folder, &into).await?),
        };
        let nodes = stream::iter(plan.nodes.clone())
            .map(|node| live(experiment, prepared, &binding, node, (built.clone(), &grounds.made), clock))
            .buffered(AT_ONCE)
            .try_collect::<Vec<_>>()
            .await?;
        let testnet = Self { nodes, binding, made: grounds.made };
        testnet.tell_places(witness).await;
        testnet.check_interception(experiment, witness).await?;
        Ok(testnet)
    }

    async fn tell_places(&self, witness: &Witness) {
        for live in &self.nodes {
            let place = |name: &str| self.binding.nodes.get(name).map(|b| b.place.clone()).unwrap_or_default();
            let mut own = place(&live.plan.name);
            if let Some(application) = &live.application {
                own = format!("{own}, application {}", place(&application.name));
            }
            let rpc = Some(format!("http://{}", live.rpc));
            witness.tell(&live.plan.name, Event::Bound { place: own, rpc }).await;
        }
    }

    /// What the machine cannot do is found here, before any node starts.
    async fn check_interception(&self, experiment: &Experiment, witness: &Witness) -> Result<(), RunError> {
        for live in &self.nodes {
            let name = &live.plan.name;
            let Some(reason) = &live.hello.interception.refused else { continue };
            let tier = |part| tier(&experiment.plan, &live.plan, part, false);
            if tier(Part::Node) != Tier::None || tier(Part::Application) != Tier::None {
                return Err(RunError::CannotIntercept { node: name.clone(), reason: reason.clone() });
            }
            let hole = NodeEvent::CoverageHole { hole: "listener_refused".to_owned(), detail: reason.clone() };
            witness.tell(name, Event::Node(hole)).await;
        }
        Ok(())
    }

    /// Gives every node its unit and sampler, and starts the load. All tasks go into `tasks` and end with `ends`.
    pub(super) fn set_going(
        &mut self,
        experiment: &Experiment,
        witness: &Witness,
        ends: &Ends,
        mut orders: BTreeMap<String, mpsc::Receiver<Order>>,
        tasks: &mut JoinSet<()>,
    ) {
        let pace = sampler::pace(self.nodes.len());
        for live in &mut self.nodes {
            let (Some(running), Some(orders)) = (live.set_running.take(), orders.remove(&live.plan.name)) else {
                continue;
            };
            let can_intercept = live.hello.interception.refused.is_none();
            let parts = UnitParts {
                plan: Arc::clone(&experiment.plan),
                node: live.plan.clone(),
                chain: Arc::clone(&experiment.chain),
                engine: Arc::clone(&experiment.engine),
                run: experiment.facts.run.clone(),
                client: Arc::clone(&live.client),
                application: live.application.clone(),
                files: live.files.clone(),
                upgrades: live.upgrades.clone(),
                layout: experiment.chain.layout(&experiment.plan, &live.plan),
                tier: tier(&experiment.plan, &live.plan, Part::Node, can_intercept),
                rpc: live.rpc.clone(),
                folder: Arc::clone(&experiment.folder),
                witness: witness.clone(),
                clock_offset_us: live.clock_offset_us,
                running,
            };
            let height = if live.plan.holds_built { experiment.plan.built_blocks } else { 0 };
            tasks.spawn(Unit::new(parts, height).run(orders, ends.clone()));
            if let Some(request) = experiment.chain.events_request().filter(|_| live.plan.watch != Some(Tier::None)) {
                let follower = Follower {
                    node: live.plan.name.clone(),
                    client: Arc::clone(&live.client),
                    chain: Arc::clone(&experiment.chain),
                    request,
                    witness: witness.clone(),
                    running: live.running.clone(),
                    pace,
                };
                tasks.spawn(follower.run(ends.looking.clone()));
            }
            let chain = Arc::clone(&experiment.chain);
            let (name, client) = (live.plan.name.clone(), Arc::clone(&live.client));
            let (witness, running, stop) = (witness.clone(), live.running.clone(), ends.looking.clone());
            tasks.spawn(async move { sampler::sample(name, client, chain.rpc(), witness, running, pace, stop).await });
        }
        if let Some(wanted) = experiment.plan.load.clone() {
            let validators = self.nodes.iter().filter(|n| n.plan.role == Role::Validator);
            let targets: Vec<_> = validators.map(|n| Arc::clone(&n.client)).collect();
            let (plan, chain) = (Arc::clone(&experiment.plan), Arc::clone(&experiment.chain));
            let made = Arc::clone(&self.made);
            tasks.spawn(load::load(plan, wanted, chain, made, targets, witness.clone(), ends.looking.clone()));
        }
    }

    /// Nodes whose RPC answers now, with the height that they report.
    pub(super) async fn answering(&self, rpc: &dyn Rpc) -> Vec<(String, Arc<Client>, u64)> {
        let look = |live: &Live| {
            let (name, client) = (live.plan.name.clone(), Arc::clone(&live.client));
            let up = live.running.borrow().is_some();
            async move {
                if !up {
                    return None;
                }
                let answer = client.rpc(&rpc.status_request()).await.ok()?;
                let status = rpc.status(&answer.body).ok()?;
                Some((name, client, status.height))
            }
        };
        stream::iter(self.nodes.iter().map(look)).buffered(AT_ONCE).filter_map(std::future::ready).collect().await
    }

    /// RPC addresses by node.
    pub(super) fn rpc_addresses(&self) -> BTreeMap<String, String> {
        self.nodes.iter().map(|n| (n.plan.name.clone(), format!("http://{}", n.rpc))).collect()
    }

    /// Copies the output of processes that are still alive into the run folder.
    pub(super) async fn keep_logs(&self, folder: &RunFolder, witness: &Witness) {
        let alive = self.nodes.iter().filter_map(|n| n.running.borrow().map(|start| (n, start)));
        stream::iter(alive)
            .for_each_concurrent(AT_ONCE, |(live, start)| async move {
                let own = (&live.plan.name, &live.client);
                let beside = live.application.as_ref().map(|application| (&application.name, &application.client));
                for (name, client) in [Some(own), beside].into_iter().flatten() {
                    if let Err(what) = keep_log(client, folder, name, start).await {
                        witness.tell(&live.plan.name, Event::Notice { what }).await;
                    }
                }
            })
            .await;
    }
}

/// One agent made ready: greeted, clock compared, files in place.
async fn live(
    experiment: &Experiment,
    prepared: &BTreeMap<Build, Prepared>,
    binding: &Binding,
    node: NodePlan,
    (built, made): (Option<Bytes>, &Made),
    clock: Instant,
) -> Result<Live, RunError> {
    let name = node.name.clone();
    let failed = |doing: &str| {
        let (node, doing) = (name.clone(), doing.to_owned());
        move |source| RunError::Agent { node, doing, source }
    };
    let Greeted { client, hello, clock_offset_us } = greet(experiment, &name, clock).await?;
    let files = experiment
        .chain
        .render(&experiment.plan, binding, made, &node)
        .map_err(|source| RunError::Chain { node: node.name.clone(), source })?;
    let upgrades = upgrades(experiment, prepared, binding, made, &node)?;
    let archive = archive_files(&files.files).map_err(|e| RunError::Archive { what: e.to_string() })?;
    if let (Some(built), true) = (built, node.holds_built) {
        client.put_files(built).await.map_err(failed("put the built chain"))?;
    }
    client.put_files(archive).await.map_err(failed("put the files"))?;
    let application = application(experiment, binding, &node, &hello, clock).await?;
    let (set_running, running) = watch::channel(None);
    let rpc = binding.nodes.get(&node.name).map(|b| format!("{}:{}", b.ip, b.rpc_port)).unwrap_or_default();
    Ok(Live {
        plan: node,
        client,
        application,
        files,
        upgrades,
        hello,
        clock_offset_us,
        rpc,
        running,
        set_running: Some(set_running),
    })
}

/// An agent that answered.
struct Greeted {
    client: Arc<Client>,
    hello: Hello,
    clock_offset_us: i64,
}

/// Greets an agent and compares its clock.
async fn greet(experiment: &Experiment, name: &str, clock: Instant) -> Result<Greeted, RunError> {
    let dial = ThroughEngine {
        engine: Arc::clone(&experiment.engine),
        run: experiment.facts.run.clone(),
        node: name.to_owned(),
    };
    let client = Arc::new(Client::new(Arc::new(dial), &experiment.facts.token));
    let asked = clock.elapsed();
    let hello = client.hello().await.map_err(|source| RunError::Agent {
        node: name.to_owned(),
        doing: "say hello".to_owned(),
        source,
    })?;
    let middle_us = (asked + clock.elapsed()).as_micros() / 2;
    let offset = i64::try_from(middle_us).unwrap_or(i64::MAX) - i64::try_from(hello.clock_us).unwrap_or(i64::MAX);
    Ok(Greeted { client, hello, clock_offset_us: offset })
}

/// The application beside a node made ready, where there is one. Its agent can do what the node's can: `of_node` says so.
async fn application(
    experiment: &Experiment,
    binding: &Binding,
    node: &NodePlan,
    of_node: &Hello,
    clock: Instant,
) -> Result<Option<Beside>, RunError> {
    let plan = &experiment.plan;
    let Some(beside) = chain::beside(plan) else { return Ok(None) };
    let name = ApplicationPlan::name(&node.name);
    let files = beside.render(binding, node).map_err(|source| RunError::Chain { node: node.name.clone(), source })?;
    let listens =
        beside.listens(binding, node).map_err(|source| RunError::Chain { node: node.name.clone(), source })?;
    let Greeted { client, clock_offset_us, .. } = greet(experiment, &name, clock).await?;
    let archive = archive_files(&files.files).map_err(|e| RunError::Archive { what: e.to_string() })?;
    let put = client.put_files(archive).await;
    put.map_err(|source| RunError::Agent { node: name.clone(), doing: "put the files".to_owned(), source })?;
    let tier = tier(plan, node, Part::Application, of_node.interception.refused.is_none());
    let layout = beside.application.layout.clone();
    Ok(Some(Beside { name, client, files, layout, tier, listens, clock_offset_us }))
}

/// One agent a node, and one an application beside it.
fn agents(experiment: &Experiment) -> Vec<LaunchNode> {
    let Experiment { plan, chain, .. } = experiment;
    let nodes = plan.nodes.iter().map(|n| LaunchNode { name: n.name.clone(), build: chain.build(plan, n) });
    let Some(beside) = chain::beside(plan) else { return nodes.collect() };
    let build = beside.build();
    let applications =
        plan.nodes.iter().map(|n| LaunchNode { name: ApplicationPlan::name(&n.name), build: build.clone() });
    nodes.chain(applications).collect()
}

/// The node's files, command and stores after each of its upgrades.
fn upgrades(
    experiment: &Experiment,
    prepared: &BTreeMap<Build, Prepared>,
    binding: &Binding,
    made: &Made,
    node: &NodePlan,
) -> Result<BTreeMap<FaultId, Upgraded>, RunError> {
    let Experiment { plan, chain, .. } = experiment;
    let upgrade = |(fault, after): (FaultId, NodePlan)| {
        let mut binding = binding.clone();
        let build = chain.build(plan, &after);
        let ready = prepared.get(&build);
        if let (Some(place), Some(ready)) = (binding.nodes.get_mut(&node.name), ready) {
            (place.program, place.env) = (ready.program.clone(), ready.env.clone());
        }
        let files = chain.render(plan, &binding, made, &after);
        let files = files.map_err(|source| RunError::Chain { node: node.name.clone(), source })?;
        Ok((fault, Upgraded { build, files, layout: chain.layout(plan, &after) }))
    };
    plan.upgrades(node).map(upgrade).collect()
}

/// A tar archive of a node's files.
pub(crate) fn archive_files(files: &BTreeMap<String, FileContents>) -> std::io::Result<Bytes> {
    let mut archive = tar::Builder::new(Vec::new());
    for (path, contents) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(contents.bytes.len() as u64);
        header.set_mode(contents.mode);
        archive.append_data(&mut header, path, contents.bytes.as_slice())?;
    }
    archive.into_inner().map(Bytes::from)
}

/// A tar archive of a folder under another name.
pub(crate) async fn archive_folder(folder: &Path, into: &str) -> Result<Bytes, RunError> {
    let (folder, into) = (folder.to_owned(), into.to_owned());
    let pack = move || {
        let mut archive = tar::Builder::new(Vec::new());
        archive.append_dir_all(&into, &folder)?;
        archive.into_inner().map(Bytes::from)
    };
    let packed = tokio::task::spawn_blocking(pack).await.map_err(|e| RunError::Archive { what: e.to_string() })?;
    packed.map_err(|e| RunError::Archive { what: e.to_string() })
}

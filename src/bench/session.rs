//! The nodes of a bench: peers that serve for its whole length, and one agent a program for the node that syncs.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::BenchError;
use super::design::{Cell, Design, SYNC, peers};
use super::fixture::{self, Data, Known};
use super::link::Links;
use super::machine::Cores;
use crate::agent_client::protocol::{CloneRequest, PinRequest, RestoreRequest, Signal, SignalRequest, StartRequest};
use crate::agent_client::{Client, ClientError, ClientErrorKind};
use crate::chain::{Chain, Made, NodeFiles};
use crate::engine::{Binding, Build, Engine, Launch, LaunchNode, NodeBinding, Prepared};
use crate::plan::{NodePlan, Plan};
use crate::run::{ThroughEngine, archive_files, archive_folder};
use crate::timeline::Tier;

/// Longest time until a peer serves its whole chain: it may hash its state first.
const PEER_READY: Duration = Duration::from_secs(120);
/// Longest time until a killed node is gone.
const GONE: Duration = Duration::from_secs(20);
/// Pause between two looks of a wait.
const POLL: Duration = Duration::from_millis(20);
/// Largest captured output of one start, in bytes.
const OUTPUT_MAX: u64 = 4 << 20;
/// Lines of a node's output that an error shows.
const TAIL: usize = 12;
/// An empty folder below the syncing node's home, which replaces its data before each cell.
const EMPTY: &str = "empty";

/// Where everything comes from.
pub struct Ground<'a> {
    /// What runs the nodes.
    pub engine: Arc<dyn Engine>,
    /// The node family.
    pub chain: Arc<dyn Chain>,
    /// Where built chains are kept.
    pub cache: &'a Path,
    /// Run id for the engine.
    pub run: String,
    /// Secret that agents demand.
    pub token: String,
}

/// All nodes, alive.
pub(super) struct Session {
    pub(super) chain: Arc<dyn Chain>,
    binding: Binding,
    clients: BTreeMap<String, Arc<Client>>,
    pub(super) known: Vec<Known>,
    /// Name of the agent that runs a program.
    syncing: BTreeMap<Build, String>,
    pub(super) builds: BTreeMap<Build, Prepared>,
}

/// What a cell's node is made from.
pub(super) fn build(chain: &dyn Chain, cell: &Cell) -> Build {
    chain.build(&cell.plan, cell.node())
}

fn peer_name(fixture: usize, peer: &str) -> String {
    format!("chain-{}-{peer}", fixture + 1)
}

impl Session {
    /// Launches all agents, gives the peers their chain, and waits until they serve it.
    pub(super) async fn start(
        ground: &Ground<'_>,
        design: &Design,
        cores: Option<&Cores>,
        cancel: &CancellationToken,
    ) -> Result<Self, BenchError> {
        let mut data = Vec::new();
        for fixture in &design.fixtures {
            data.push(fixture::ready(ground, fixture, cancel).await?);
        }
        let mut session = Self::launch(ground, design).await?;
        for (name, client) in &session.clients {
            let failed = |doing| move |source| BenchError::Agent { node: name.clone(), doing, source };
            let hello = client.hello().await.map_err(failed("say hello"))?;
            if let Some(why) = hello.interception.refused {
                let needed = design.cells.iter().any(|cell| cell.tier != Tier::None);
                if needed && !name.starts_with("chain-") {
                    return Err(BenchError::Input(format!(
                        "syncs cannot be seen on this machine: {why}; write `watch: none` in every arm"
                    )));
                }
            }
            if let Some(cores) = cores {
                let cpus = if name.starts_with("chain-") { &cores.peers } else { &cores.node };
                client.pin(&PinRequest { cpus: cpus.clone() }).await.map_err(failed("pin"))?;
            }
        }
        session.serve(design, &data).await?;
        Ok(session)
    }

    async fn launch(ground: &Ground<'_>, design: &Design) -> Result<Self, BenchError> {
        let chain = Arc::clone(&ground.chain);
        let mut nodes = Vec::new();
        let mut builds = Vec::new();
        for (at, fixture) in design.fixtures.iter().enumerate() {
            for peer in peers(&fixture.plan).take(fixture.peers) {
                let build = chain.build(&fixture.plan, peer);
                builds.push(build.clone());
                nodes.push(LaunchNode { name: peer_name(at, &peer.name), build });
            }
        }
        let mut syncing = BTreeMap::new();
        for cell in &design.cells {
            let build = build(chain.as_ref(), cell);
            if !syncing.contains_key(&build) {
                let name = format!("{SYNC}-{}", syncing.len() + 1);
                nodes.push(LaunchNode { name: name.clone(), build: build.clone() });
                builds.push(build.clone());
                syncing.insert(build, name);
            }
        }
        builds.sort();
        builds.dedup();
        let failed = |doing| move |source| BenchError::Engine { doing, source };
        let builds = ground.engine.prepare(&builds).await.map_err(failed("make the builds ready"))?;
        let launch = Launch { run: ground.run.clone(), token: ground.token.clone(), nodes };
        let binding = ground.engine.launch(&launch).await.map_err(failed("launch the agents"))?;
        let clients = launch.nodes.iter().map(|node| {
            let (engine, run) = (Arc::clone(&ground.engine), ground.run.clone());
            let dial = ThroughEngine { engine, run, node: node.name.clone() };
            (node.name.clone(), Arc::new(Client::new(Arc::new(dial), &ground.token)))
        });
        let clients = clients.collect();
        Ok(Self { chain, binding, clients, known: Vec::new(), syncing, builds })
    }

    /// Starts the peers of every fixture.
    async fn serve(&mut self, design: &Design, data: &[Data]) -> Result<(), BenchError> {
        for (at, (fixture, data)) in design.fixtures.iter().zip(data).enumerate() {
            let binding = self.bound(&fixture.plan, at, None);
            for peer in peers(&fixture.plan).take(fixture.peers) {
                let name = peer_name(at, &peer.name);
                let client = self.client(&name)?;
                self.put_chain(&name, data).await?;
                let files = self.put_files(&name, &fixture.plan, &binding, peer).await?;
                self.start_node(&name, &fixture.plan, peer, files, Tier::None).await?;
                let (heights, what) = (fixture.spec.heights, "a peer does not serve its chain");
                self.wait_height(&client, &name, heights, what).await?;
            }
            let first = peers(&fixture.plan).next().map(|peer| peer_name(at, &peer.name)).unwrap_or_default();
            let client = self.client(&first)?;
            self.known.push(fixture::known(&client, self.chain.as_ref(), fixture.spec.heights, data).await?);
        }
        Ok(())
    }

    /// The binding as a plan's nodes see it: `peer-1` is the fixture's first peer, `sync` the agent of the cell's program.
    fn bound(&self, plan: &Plan, fixture: usize, syncing: Option<&str>) -> Binding {
        let mut nodes = BTreeMap::new();
        for peer in peers(plan) {
            if let Some(place) = self.binding.nodes.get(&peer_name(fixture, &peer.name)) {
                nodes.insert(peer.name.clone(), place.clone());
            }
        }
        if let Some(place) = syncing.and_then(|name| self.binding.nodes.get(name)) {
            nodes.insert(SYNC.to_owned(), place.clone());
        }
        Binding { engine: self.binding.engine.clone(), nodes }
    }

    fn client(&self, name: &str) -> Result<Arc<Client>, BenchError> {
        let found = self.clients.get(name).cloned();
        found.ok_or_else(|| BenchError::Input(format!("`{name}` was not launched")))
    }

    /// Puts the chain into a peer's home: by a clone where the agent sees this machine's folders, else as an archive.
    async fn put_chain(&self, name: &str, data: &Data) -> Result<(), BenchError> {
        let client = self.client(name)?;
        let into = self.chain.folders()[0];
        let failed = |source| BenchError::Agent { node: name.to_owned(), doing: "put the chain", source };
        let clone = CloneRequest { from: data.folder.to_string_lossy().into_owned(), to: into.to_owned() };
        if Client::clone_from(&client, &clone).await.is_ok() {
            return Ok(());
        }
        client.put_files(archive_folder(&data.folder, into).await?).await.map_err(failed)
    }

    async fn put_files(
        &self,
        name: &str,
        plan: &Plan,
        binding: &Binding,
        node: &NodePlan,
    ) -> Result<NodeFiles, BenchError> {
        let files = self.chain.render(plan, binding, &Made::new(), node)?;
        let archive = archive_files(&files.files)
            .map_err(|source| BenchError::Machine { what: "pack a node's files", source })?;
        let failed = |source| BenchError::Agent { node: name.to_owned(), doing: "put the files", source };
        self.client(name)?.put_files(archive).await.map_err(failed)?;
        Ok(files)
    }

    async fn start_node(
        &self,
        name: &str,
        plan: &Plan,
        node: &NodePlan,
        files: NodeFiles,
        tier: Tier,
    ) -> Result<u32, BenchError> {
        let layout = self.chain.layout(plan, node);
        let any = node.sync_latency.get("*");
        let latency = layout.stores.iter().filter_map(|store| {
            let own = node.sync_latency.get(&store.name).or(any)?;
            Some((store.name.clone(), own.clone()))
        });
        let request = StartRequest {
            command: files.command,
            env: files.env,
            input: String::new(),
            tier,
            sync_latency: latency.collect(),
            layout,
            seed: plan.seed,
            height: 0,
            rpc: self.place(name).map(|place| format!("{}:{}", place.ip, place.rpc_port)),
            arms: Vec::new(),
            output_max: OUTPUT_MAX,
        };
        let failed = |source| BenchError::Agent { node: name.to_owned(), doing: "start the node", source };
        Ok(self.client(name)?.start(&request).await.map_err(failed)?.start)
    }

    fn place(&self, name: &str) -> Option<&NodeBinding> {
        self.binding.nodes.get(name)
    }

    /// Waits until a node reports a height; an error when it ends before or takes too long.
    async fn wait_height(&self, client: &Client, name: &str, height: u64, what: &str) -> Result<(), BenchError> {
        let deadline = Instant::now() + PEER_READY;
        let rpc = self.chain.rpc();
        loop {
            let seen = match client.rpc(&rpc.status_request()).await {
                Ok(answer) => rpc.status(&answer.body).ok().map(|status| status.height),
                Err(_) => None,
            };
            match seen {
                Some(seen) if seen >= height => return Ok(()),
                Some(seen) if seen > 0 => {
                    return Err(BenchError::Input(format!(
                        "{what}: the fixture has {seen} blocks, and {height} are wanted"
                    )));
                }
                _ => {}
            }
            if !runs(client).await {
                let tail = self.tail(client, 1).await;
                return Err(BenchError::Input(format!("{what}: `{name}` ended. Is it of another genesis?\n{tail}")));
            }
            if Instant::now() >= deadline {
                return Err(BenchError::Input(format!("{what} within {} s", PEER_READY.as_secs())));
            }
            sleep(POLL).await;
        }
    }

    /// The last lines that a start printed.
    pub(super) async fn tail(&self, client: &Client, start: u32) -> String {
        let log = client.log(start).await.unwrap_or_default();
        let text = String::from_utf8_lossy(&log);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(TAIL)..].join("\n")
    }

    /// Starts a cell's node on an empty home.
    pub(super) async fn begin(&self, cell: &Cell) -> Result<Running, BenchError> {
        let build = build(self.chain.as_ref(), cell);
        let name = self.syncing.get(&build).cloned().unwrap_or_default();
        let client = self.client(&name)?;
        let failed = |source| BenchError::Agent { node: name.clone(), doing: "empty the node's home", source };
        let empty = empty_folder().map_err(|source| BenchError::Machine { what: "pack a folder", source })?;
        client.put_files(empty).await.map_err(failed)?;
        for folder in self.chain.folders() {
            let restore = RestoreRequest { from: EMPTY.to_owned(), to: (*folder).to_owned() };
            client.restore(&restore).await.map_err(failed)?;
        }
        let mut binding = self.bound(&cell.plan, cell.fixture, Some(&name));
        let links = self.link(cell, &mut binding).await?;
        let files = self.put_files(&name, &cell.plan, &binding, cell.node()).await?;
        let start = self.start_node(&name, &cell.plan, cell.node(), files, cell.tier).await?;
        let metrics = self.place(&name).map(|place| format!("{}:{}", place.ip, place.metrics_port));
        Ok(Running { client, start, metrics: metrics.unwrap_or_default(), _links: links })
    }

    /// Relays with latency in place of the peers that the node dials, where the cell wants any.
    async fn link(&self, cell: &Cell, binding: &mut Binding) -> Result<Option<Links>, BenchError> {
        if cell.link_us == 0 {
            return Ok(None);
        }
        let names = &cell.node().peers;
        let places = names.iter().filter_map(|name| binding.nodes.get(name));
        let addresses: Vec<SocketAddr> = places.map(|place| SocketAddr::new(place.ip, place.p2p_port)).collect();
        if !addresses.iter().all(|address| address.ip().is_loopback()) {
            let why = "links with latency need peers on this machine's loopback; use `--engine process`";
            return Err(BenchError::Input(why.to_owned()));
        }
        let links = Links::open(&addresses, Duration::from_micros(cell.link_us)).await;
        let links = links.map_err(|source| BenchError::Machine { what: "open relays to the peers", source })?;
        for (name, address) in names.iter().zip(&links.addresses) {
            if let Some(place) = binding.nodes.get_mut(name) {
                (place.ip, place.p2p_port) = (address.ip(), address.port());
            }
        }
        Ok(Some(links))
    }

    /// The probe of the disk below a syncing node's home.
    pub(super) async fn probe(&self) -> Result<crate::agent_client::protocol::Probe, BenchError> {
        let name = self.syncing.values().next().cloned().unwrap_or_default();
        let failed = |source| BenchError::Agent { node: name.clone(), doing: "probe the disk", source };
        self.client(&name)?.probe().await.map_err(failed)
    }
}

/// A syncing node.
pub(super) struct Running {
    pub(super) client: Arc<Client>,
    pub(super) start: u32,
    pub(super) metrics: String,
    /// Ended with the cell.
    _links: Option<Links>,
}

impl Running {
    /// Whether its process is there.
    pub(super) async fn runs(&self) -> bool {
        runs(&self.client).await
    }

    /// Kills it and waits until it is gone.
    pub(super) async fn end(&self) -> Result<(), BenchError> {
        let deadline = Instant::now() + GONE;
        let mut killed = self.kill().await;
        while self.runs().await {
            if Instant::now() >= deadline {
                // No node outlives SIGKILL: what failed is of this machine or ours.
                let seen = match (killed, self.client.usage().await) {
                    (Err(error), _) => format!("its agent did not send the signal: {error}"),
                    (Ok(()), Ok(_)) => "its agent still sees it".to_owned(),
                    (Ok(()), Err(error)) => format!("its agent does not tell: {error}"),
                };
                return Err(BenchError::Machine { what: "end a killed node", source: std::io::Error::other(seen) });
            }
            sleep(POLL).await;
            if killed.is_err() {
                killed = self.kill().await;
            }
        }
        Ok(())
    }

    async fn kill(&self) -> Result<(), ClientError> {
        self.client.signal(&SignalRequest { signal: Signal::Kill, fault: None }).await
    }
}

/// Whether a node's process is there; an agent that cannot be asked is not told apart from one whose node runs.
async fn runs(client: &Client) -> bool {
    match client.usage().await {
        Ok(_) => true,
        Err(error) => !matches!(error.kind, ClientErrorKind::Refused { status: 409, .. }),
    }
}

fn empty_folder() -> std::io::Result<bytes::Bytes> {
    let mut archive = tar::Builder::new(Vec::new());
    let mut header = tar::Header::new_gnu();
    header.set_entry_type(tar::EntryType::Directory);
    header.set_size(0);
    header.set_mode(0o755);
    archive.append_data(&mut header, EMPTY, std::io::empty())?;
    archive.into_inner().map(bytes::Bytes::from)
}

//! Kills one node of a real network at addresses, one after another, and checks after each restart that the node's
//! heights are those predicted for the address.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use midflush::agent_client::protocol::{Arm, ArmAction, StartRequest};
use midflush::agent_client::{ByteStream, Client, Dial, EventStream};
use midflush::chain::{Chain, Made, NodeFiles};
use midflush::engine::process::ProcessEngine;
use midflush::engine::{Binding, Engine, Launch, LaunchNode};
use midflush::judge::predict;
use midflush::plan::{NodePlan, Plan};
use midflush::timeline::{Address, Exit, FaultId, Landed, Layout, NodeEvent, Tier};

use crate::network::{DEADLINE, until};

/// Blocks that the rest must be ahead before a node is expected to block-sync: one that is a block or two behind goes on in
/// consensus at once.
const AHEAD: u64 = 10;
/// How long one start may take to come to its address.
const LANDS_WITHIN: Duration = Duration::from_secs(240);

struct ThroughEngine {
    engine: Arc<ProcessEngine>,
    run: String,
    node: String,
}

#[async_trait::async_trait]
impl Dial for ThroughEngine {
    async fn dial(&self) -> std::io::Result<Box<dyn ByteStream>> {
        self.engine.dial(&self.run, &self.node).await.map_err(std::io::Error::other)
    }
}

/// A network whose nodes run under agents.
pub(crate) struct Net {
    engine: Arc<ProcessEngine>,
    run: String,
    plan: Plan,
    binding: Binding,
    clients: BTreeMap<String, Arc<Client>>,
    files: BTreeMap<String, NodeFiles>,
}

/// One node's events, read on.
struct Victim<'a> {
    chain: &'a dyn Chain,
    home: PathBuf,
    client: Arc<Client>,
    events: EventStream,
    request: StartRequest,
    layout: Layout,
    /// The last kill, until the handshake after it is seen.
    last: Option<(String, Landed)>,
}

impl Net {
    /// Starts the agents and puts the files in place. `name` tells runs of one process apart.
    pub(crate) async fn launch(name: &str, chain: &dyn Chain, plan: Plan) -> Self {
        let engine = Arc::new(ProcessEngine::new(PathBuf::from(env!("CARGO_BIN_EXE_midflush"))));
        let run = format!("it-{name}-{}", std::process::id());
        let nodes: Vec<LaunchNode> = plan
            .nodes
            .iter()
            .map(|node| LaunchNode { name: node.name.clone(), build: chain.build(&plan, node) })
            .collect();
        let builds: Vec<_> = nodes.iter().map(|node| node.build.clone()).collect();
        engine.prepare(&builds).await.expect("builds");
        let launch = Launch { run: run.clone(), token: "0123456789abcdef0123456789abcdef".to_owned(), nodes };
        let binding = engine.launch(&launch).await.expect("agents");
        let (mut clients, mut files) = (BTreeMap::new(), BTreeMap::new());
        for node in &plan.nodes {
            let dial = ThroughEngine { engine: Arc::clone(&engine), run: run.clone(), node: node.name.clone() };
            let client = Arc::new(Client::new(Arc::new(dial), &launch.token));
            let rendered = chain.render(&plan, &binding, &Made::new(), node).expect("files");
            client.put_files(archive(&rendered)).await.expect("files put");
            clients.insert(node.name.clone(), client);
            files.insert(node.name.clone(), rendered);
        }
        Self { engine, run, plan, binding, clients, files }
    }

    /// Puts a folder of this machine below a node's home.
    pub(crate) async fn put_folder(&self, node: usize, folder: &Path, into: &str) {
        let mut archive = tar::Builder::new(Vec::new());
        archive.sparse(false);
        archive.append_dir_all(into, folder).expect("a folder");
        let archive = archive.into_inner().expect("an archive").into();
        self.clients[&self.plan.nodes[node].name].put_files(archive).await.expect("files put");
    }

    fn request(&self, chain: &dyn Chain, node: &NodePlan, tier: Tier) -> StartRequest {
        let (files, place) = (&self.files[&node.name], &self.binding.nodes[&node.name]);
        StartRequest {
            command: files.command.clone(),
            env: files.env.clone(),
            input: String::new(),
            tier,
            layout: chain.layout(&self.plan, node),
            sync_latency: BTreeMap::new(),
            seed: 1,
            height: 0,
            rpc: Some(format!("{}:{}", place.ip, place.rpc_port)),
            arms: Vec::new(),
            output_max: 16 << 20,
        }
    }

    /// Starts a node that is left alone.
    pub(crate) async fn start(&self, chain: &dyn Chain, node: usize) {
        let node = &self.plan.nodes[node];
        self.clients[&node.name].start(&self.request(chain, node, Tier::None)).await.expect("a start");
    }

    /// The node whose events are followed; it is not started yet.
    async fn victim<'a>(&self, chain: &'a dyn Chain, node: usize) -> Victim<'a> {
        let node = &self.plan.nodes[node];
        let client = Arc::clone(&self.clients[&node.name]);
        let events = client.events(0).await.expect("events");
        let request = self.request(chain, node, Tier::Record);
        let home = self.binding.nodes[&node.name].home.clone();
        Victim { chain, home, client, events, layout: request.layout.clone(), request, last: None }
    }

    /// Starts and kills one node at each address in turn, and starts it once more. `others` go on meanwhile.
    pub(crate) async fn kill_at_each(&self, chain: &dyn Chain, node: usize, others: usize, addresses: &[(&str, &str)]) {
        let mut victim = self.victim(chain, node).await;
        let mut last = 0;
        for (name, address) in addresses {
            if address.contains("block_sync") {
                self.reach(chain, others, last + AHEAD).await;
            }
            let landed = victim.start_and_kill(name, address).await;
            println!("{name}: {landed}, window {}", landed.window);
            last = landed.height;
        }
        victim.start_and_leave().await;
    }

    /// Waits until a node answers with this height or a later one.
    async fn reach(&self, chain: &dyn Chain, node: usize, wanted: u64) {
        let place = &self.binding.nodes[&self.plan.nodes[node].name];
        let url = format!("http://{}:{}{}", place.ip, place.rpc_port, chain.rpc().status_request());
        until(&format!("height {wanted} of the others"), async || {
            let answer = reqwest::Client::new().get(&url).timeout(DEADLINE).send().await.ok()?;
            let status = chain.rpc().status(&answer.bytes().await.ok()?).ok()?;
            (status.height >= wanted).then_some(())
        })
        .await;
    }

    /// Ends all of it.
    pub(crate) async fn end(self) {
        self.engine.remove(&self.run).await.expect("nothing is left");
    }
}

impl Drop for Net {
    /// A test that fails leaves no processes behind either.
    fn drop(&mut self) {
        if std::thread::panicking() {
            let (engine, run) = (Arc::clone(&self.engine), self.run.clone());
            let remove = move || {
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
                runtime.block_on(engine.remove(&run)).map(drop)
            };
            let _ = std::thread::spawn(remove).join();
        }
    }
}

impl Victim<'_> {
    async fn next(&mut self, what: &str) -> NodeEvent {
        let next = tokio::time::timeout(DEADLINE, self.events.next()).await;
        let record = next.unwrap_or_else(|_| panic!("{what}: not within {DEADLINE:?}"));
        record.expect("the stream is open").expect("an event").event
    }

    /// Starts the node with one address armed and waits until it is dead there. The handshake before that must be the one
    /// that the last kill predicts.
    async fn start_and_kill(&mut self, name: &str, address: &str) -> Landed {
        let landed = tokio::time::timeout(LANDS_WITHIN, self.start_until_killed(name, address)).await;
        landed.unwrap_or_else(|_| panic!("{name}: did not come to {address} within {LANDS_WITHIN:?}"))
    }

    async fn start_until_killed(&mut self, name: &str, address: &str) -> Landed {
        let fault = FaultId { name: name.to_owned(), occurrence: 1 };
        let address: Address = serde_yaml::from_str(address).expect("an address");
        self.request.arms = vec![Arm { fault, address, action: ArmAction::Kill }];
        self.client.start(&self.request).await.expect("a start");
        let mut landed = None;
        loop {
            match self.next(name).await {
                NodeEvent::Landed { landed: place, .. } => landed = Some(place),
                NodeEvent::Exited { exit, tail, .. } => {
                    let tail = tail.join("\n");
                    let landed = landed.unwrap_or_else(|| panic!("{name}: {exit:?} before it landed:\n{tail}"));
                    assert_eq!(exit, Exit::Signal(9), "{name}");
                    assert!(self.last.is_none(), "{name}: landed without a handshake before");
                    self.request.height = landed.height.saturating_sub(landed.window);
                    self.check_stored(name, &landed);
                    self.last = Some((name.to_owned(), landed.clone()));
                    return landed;
                }
                event => self.look(&event),
            }
        }
    }

    /// Where the family reads heights off-line, those in a copy of the dead node's stores must be the predicted ones.
    fn check_stored(&self, name: &str, landed: &Landed) {
        let paths = self.chain.stored_paths();
        if paths.is_empty() {
            return;
        }
        let copy = tempfile::tempdir().expect("a folder");
        for path in paths.iter().filter(|path| self.home.join(path).exists()) {
            let to = copy.path().join(path);
            std::fs::create_dir_all(to.parent().expect("below the copy")).expect("a folder");
            std::fs::copy(self.home.join(path), to).expect("copied");
        }
        let heights = self.chain.stored_heights(copy.path()).expect("heights");
        let predicted = predict(landed, &self.layout);
        assert!(predicted.allows(heights), "{name}: landed at {landed}, predicted {predicted:?}, stored {heights}");
    }

    /// Starts the node with nothing armed, and waits for the handshake.
    async fn start_and_leave(&mut self) {
        self.request.arms.clear();
        self.client.start(&self.request).await.expect("a start");
        while self.last.is_some() {
            let event = self.next("the last start").await;
            self.look(&event);
        }
    }

    /// Checks an event that is no landing.
    fn look(&mut self, event: &NodeEvent) {
        match event {
            NodeEvent::Handshake { heights, line, .. } => {
                let Some((name, landed)) = self.last.take() else { return };
                let predicted = predict(&landed, &self.layout);
                assert!(predicted.allows(*heights), "{name}: landed at {landed}, predicted {predicted:?}, but {line}");
            }
            NodeEvent::CoverageHole { hole, detail } => panic!("{hole}: {detail}"),
            NodeEvent::NotLanded { fault, seen, nearest } => panic!("{fault:?}: seen {seen:#?}, nearest {nearest:?}"),
            _ => {}
        }
    }
}

/// A tar archive of rendered files.
pub(crate) fn archive(files: &NodeFiles) -> Bytes {
    let mut archive = tar::Builder::new(Vec::new());
    for (path, contents) in &files.files {
        let mut header = tar::Header::new_gnu();
        header.set_size(contents.bytes.len() as u64);
        header.set_mode(contents.mode);
        archive.append_data(&mut header, path, contents.bytes.as_slice()).expect("an entry");
    }
    archive.into_inner().expect("an archive").into()
}

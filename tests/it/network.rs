//! A small network of real processes on loopback, without agents: plan, binding, starting, polling.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::Write as _;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use indexmap::IndexMap;
use midflush::chain::{Chain, Made, NodeFiles};
use midflush::engine::{Binding, NodeBinding};
use midflush::plan::{ChainPlan, NodePlan, Plan, StartAt};
use midflush::timeline::{Expect, LogMeaning, Mode, Role};

/// Longest wait for anything that a network is expected to do.
pub(crate) const DEADLINE: Duration = Duration::from_secs(90);

/// Four validators and a full node `late` that dials them.
pub(crate) fn plan(chain: ChainPlan) -> Plan {
    let validators: Vec<String> = (1..=4).map(|n| format!("val-{n}")).collect();
    let node = |name: &str, role, seed: u8| NodePlan {
        name: name.to_owned(),
        group: name.to_owned(),
        role,
        power: if role == Role::Validator { 10 } else { 0 },
        build: None,
        key_seed: hex::encode([seed; 32]),
        start: StartAt::Run,
        holds_built: role == Role::Validator,
        storage: None,
        peers: validators.iter().filter(|v| *v != name).cloned().collect(),
        watch: None,
        sync_latency: IndexMap::new(),
        options: BTreeMap::new(),
    };
    let mut nodes: Vec<NodePlan> =
        (1..).zip(&validators).map(|(seed, name)| node(name, Role::Validator, seed)).collect();
    nodes.push(node("late", Role::Full, 9));
    Plan {
        name: "network".to_owned(),
        seed: 1,
        chain_id: "network-1".to_owned(),
        initial_height: 1,
        built_blocks: 0,
        application: None,
        genesis_time: "2026-01-01T00:00:00Z".to_owned(),
        chain,
        nodes,
        load: None,
        faults: Vec::new(),
        expect: Expect::default(),
    }
}

/// Loopback addresses that no other test, in this process or another, uses at the same time.
pub(crate) fn binding(plan: &Plan, folder: &Path, program: &Path) -> Binding {
    static NETWORKS: AtomicU8 = AtomicU8::new(0);
    let [.., high, low] = std::process::id().to_be_bytes();
    let first = NETWORKS.fetch_add(1, Ordering::Relaxed) * 16 + 1;
    let nodes = (first..).zip(&plan.nodes).map(|(n, node)| {
        let ip = IpAddr::V4(Ipv4Addr::new(127, 128 | (high & 0x7f), low, n));
        let place = NodeBinding {
            ip,
            p2p_port: 26656,
            rpc_port: 26657,
            metrics_port: 26660,
            home: folder.join(&node.name),
            program: vec![program.to_string_lossy().into_owned()],
            env: BTreeMap::new(),
            place: ip.to_string(),
        };
        (node.name.clone(), place)
    });
    Binding { engine: "test".to_owned(), nodes: nodes.collect() }
}

/// A node's process, killed when the test ends, however it ends.
pub(crate) struct Node {
    child: Child,
    log: PathBuf,
    rpc: String,
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Writes a node's files.
pub(crate) fn write(files: &NodeFiles, home: &Path) {
    for (path, contents) in &files.files {
        let path = home.join(path);
        fs::create_dir_all(path.parent().expect("below home")).expect("a folder");
        let mut options = File::options();
        let mut file = options.write(true).create(true).truncate(true).mode(contents.mode).open(path).expect("a file");
        file.write_all(&contents.bytes).expect("written");
    }
}

/// Starts a node whose files are written.
pub(crate) fn start(files: &NodeFiles, place: &NodeBinding) -> Node {
    let log = place.home.join("log");
    let out = File::options().create(true).append(true).open(&log).expect("a log");
    let child = Command::new(&files.command[0])
        .args(&files.command[1..])
        .env_clear()
        .envs(&files.env)
        .stdin(Stdio::null())
        .stderr(out.try_clone().expect("a second handle"))
        .stdout(out)
        .spawn()
        .expect("the node starts");
    Node { child, log, rpc: format!("http://{}:{}", place.ip, place.rpc_port) }
}

impl Node {
    /// The body of an answer; `None` when the node does not answer. On a busy machine an answer may take long: only the
    /// deadline of everything else ends the wait, a node that does not listen yet refuses at once.
    pub(crate) async fn get(&self, path: &str) -> Option<Vec<u8>> {
        let request = reqwest::Client::new().get(format!("{}{path}", self.rpc)).timeout(DEADLINE);
        request.send().await.ok()?.bytes().await.ok().map(|bytes| bytes.to_vec())
    }

    /// The height in its status.
    pub(crate) async fn height(&self, chain: &dyn Chain) -> Option<u64> {
        let body = self.get(&chain.rpc().status_request()).await?;
        chain.rpc().status(&body).ok().map(|status| status.height)
    }

    /// Waits until it answers with this height or a later one.
    pub(crate) async fn at(&self, chain: &dyn Chain, wanted: u64) -> u64 {
        until(&format!("height {wanted}"), async || self.height(chain).await.filter(|height| *height >= wanted)).await
    }

    /// Block ids and app hashes from height 1 to `last`, in as many answers as that takes.
    pub(crate) async fn hashes(&self, chain: &dyn Chain, last: u64) -> Vec<(String, String)> {
        let mut blocks = Vec::new();
        while (blocks.len() as u64) < last {
            let first = blocks.len() as u64 + 1;
            let body = self.get(&chain.rpc().hashes_request(first, last)).await.expect("an answer");
            let answer = chain.rpc().hashes(&body).expect("hashes");
            assert_eq!(answer.first, first);
            blocks.extend(answer.blocks);
        }
        blocks
    }

    /// Its output so far.
    pub(crate) fn log(&self) -> String {
        fs::read_to_string(&self.log).expect("a log")
    }

    /// Kills it and waits for its end.
    pub(crate) fn kill(&mut self) {
        self.child.kill().expect("killed");
        self.child.wait().expect("reaped");
    }
}

/// Waits until `late` has followed the others to this height and has them all as peers, and until every node serves the same
/// blocks up to there. The distinct app hashes of those blocks.
pub(crate) async fn late_follows(chain: &dyn Chain, validators: &[Node], late: &Node, target: u64) -> BTreeSet<String> {
    late.at(chain, target).await;
    until("all as peers", async || {
        let peers = late.get(&chain.rpc().peers_request()).await?;
        chain.rpc().peers(&peers).ok().filter(|peers| *peers as usize == validators.len())
    })
    .await;
    let mut answers = Vec::new();
    for node in validators.iter().chain([late]) {
        node.at(chain, target).await;
        answers.push(node.hashes(chain, target).await);
    }
    assert!(answers.iter().all(|answer| answer == &answers[0]), "{answers:?}");
    answers.swap_remove(0).into_iter().map(|(_, app)| app).collect()
}

/// Submits a transaction: taken once, and not a second time.
pub(crate) async fn taken_once(chain: &dyn Chain, node: &Node, transaction: &[u8]) {
    let request = chain.rpc().submit_request(transaction);
    let answer = node.get(&request).await.expect("an answer");
    assert!(chain.rpc().submitted(&answer), "{}", String::from_utf8_lossy(&answer));
    let again = node.get(&request).await.expect("an answer");
    assert!(!chain.rpc().submitted(&again), "taken twice: {}", String::from_utf8_lossy(&again));
}

/// Waits until the log has said each of these modes.
pub(crate) async fn went_through(chain: &dyn Chain, plan: &Plan, node: &Node, modes: &[Mode]) {
    for mode in modes {
        until("a mode", async || marked(&node.log(), chain, plan, |m| *m == LogMeaning::Mode(*mode)).pop()).await;
    }
}

/// Waits for the handshake lines of two starts.
pub(crate) async fn two_handshakes(chain: &dyn Chain, plan: &Plan, node: &Node) -> Vec<String> {
    until("a second handshake", async || {
        let lines = marked(&node.log(), chain, plan, |m| matches!(m, LogMeaning::Handshake { .. }));
        Some(lines).filter(|lines| lines.len() == 2)
    })
    .await
}

/// Every store of the layout is where the family says, in the home of the first node.
pub(crate) fn stores_exist(chain: &dyn Chain, plan: &Plan, binding: &Binding) {
    let first = &plan.nodes[0];
    for store in chain.layout(plan, first).stores {
        let path = store.paths[0].trim_end_matches('/');
        assert!(binding.nodes[&first.name].home.join(path).exists(), "store {} has no {path}", store.name);
    }
}

/// Writes the files of a node and starts it.
pub(crate) fn launch(chain: &dyn Chain, plan: &Plan, binding: &Binding, node: &NodePlan) -> Node {
    let files = chain.render(plan, binding, &Made::new(), node).expect("files");
    write(&files, &binding.nodes[&node.name].home);
    start(&files, &binding.nodes[&node.name])
}

/// Polls until `look` finds something.
pub(crate) async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let end = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < end, "{what}: not within {DEADLINE:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Lines of a log that a mark with this meaning matches, by the rule that agents match with.
pub(crate) fn marked(log: &str, chain: &dyn Chain, plan: &Plan, wanted: impl Fn(&LogMeaning) -> bool) -> Vec<String> {
    let marks = chain.layout(plan, &plan.nodes[0]).log_marks;
    let matches = |line: &str| {
        let line = line.to_lowercase();
        let mut wanted = marks.iter().filter(|mark| wanted(&mark.meaning));
        wanted.any(|mark| mark.tokens.iter().all(|token| line.contains(&token.to_lowercase())))
    };
    log.lines().filter(|line| matches(line)).map(str::to_owned).collect()
}

//! The CometBFT family against the unmodified node: files rendered by the plan make a network, and what the family
//! says about answers, log and stores is what the node does.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use indexmap::IndexMap;
use midflush::chain::cometbft::Cometbft;
use midflush::chain::{Chain, NodeFiles};
use midflush::engine::{Binding, NodeBinding};
use midflush::plan::{BuildPlan, ChainPlan, CometbftPlan, NodePlan, Plan, StartAt};
use midflush::timeline::{Expect, LogMeaning, Mode, Role};

/// Longest wait for anything that the network is expected to do.
const DEADLINE: Duration = Duration::from_secs(90);

/// The binary: `MIDFLUSH_COMETBFT`, or `cometbft` on the path. A test that cannot find it fails.
fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("MIDFLUSH_COMETBFT") {
        return path.into();
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).map(|folder| folder.join("cometbft")).find(|file| file.is_file()).unwrap_or_else(|| {
        panic!(
            "no CometBFT 0.38 binary: set MIDFLUSH_COMETBFT to what `images/cometbft/build --binary` prints, or put `cometbft` on PATH"
        )
    })
}

/// Four validators and a full node that dials them.
fn plan(binary: &Path) -> Plan {
    let validators: Vec<String> = (1..=4).map(|n| format!("val-{n}")).collect();
    let node = |name: &str, role, seed: u8| NodePlan {
        name: name.to_owned(),
        group: name.to_owned(),
        role,
        power: if role == Role::Validator { 10 } else { 0 },
        key_seed: hex::encode([seed; 32]),
        start: StartAt::Run,
        holds_built: true,
        storage: None,
        peers: validators.iter().filter(|v| *v != name).cloned().collect(),
        sync_latency: IndexMap::new(),
        options: BTreeMap::new(),
    };
    let mut nodes: Vec<NodePlan> =
        (1..).zip(&validators).map(|(seed, name)| node(name, Role::Validator, seed)).collect();
    nodes.push(node("late", Role::Full, 9));
    Plan {
        name: "cometbft".to_owned(),
        seed: 1,
        chain_id: "cometbft-1".to_owned(),
        initial_height: 1,
        built_blocks: 0,
        genesis_time: "2026-01-01T00:00:00Z".to_owned(),
        chain: ChainPlan::Cometbft(CometbftPlan {
            app: "persistent_kvstore".to_owned(),
            database: "goleveldb".to_owned(),
            block_time_ms: 100,
            build: BuildPlan::Binary(binary.to_string_lossy().into_owned()),
        }),
        nodes,
        load: None,
        faults: Vec::new(),
        expect: Expect::default(),
    }
}

/// Loopback addresses that no other test process uses at the same time.
fn binding(plan: &Plan, folder: &Path, binary: &Path) -> Binding {
    let pid = std::process::id();
    let nodes = (1u8..).zip(&plan.nodes).map(|(n, node)| {
        let ip = IpAddr::V4(Ipv4Addr::new(127, 100 + (pid >> 8 & 0x3f) as u8, pid as u8, n));
        let place = NodeBinding {
            ip,
            p2p_port: 26656,
            rpc_port: 26657,
            metrics_port: 26660,
            home: folder.join(&node.name),
            program: vec![binary.to_string_lossy().into_owned()],
            env: BTreeMap::new(),
            place: ip.to_string(),
        };
        (node.name.clone(), place)
    });
    Binding { engine: "test".to_owned(), nodes: nodes.collect() }
}

/// A node's process, killed when the test ends, however it ends.
struct Node {
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

fn start(files: &NodeFiles, place: &NodeBinding) -> Node {
    use std::io::Write as _;
    for (path, contents) in &files.files {
        let path = place.home.join(path);
        fs::create_dir_all(path.parent().expect("below home")).expect("a folder");
        let mut options = File::options();
        let mut file = options.write(true).create(true).truncate(true).mode(contents.mode).open(path).expect("a file");
        file.write_all(&contents.bytes).expect("written");
    }
    let log = place.home.join("log");
    let out = File::create(&log).expect("a log");
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

async fn get(node: &Node, path: &str) -> Option<Vec<u8>> {
    let answer =
        reqwest::Client::new().get(format!("{}{path}", node.rpc)).timeout(Duration::from_secs(5)).send().await.ok()?;
    answer.bytes().await.ok().map(|bytes| bytes.to_vec())
}

/// Polls until `look` finds something.
async fn until<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let end = Instant::now() + DEADLINE;
    loop {
        if let Some(found) = look().await {
            return found;
        }
        assert!(Instant::now() < end, "{what}: not within {DEADLINE:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

async fn height(node: &Node) -> Option<u64> {
    Cometbft::new().rpc().status(&get(node, "/status").await?).ok().map(|status| status.height)
}

/// Whether a mark of the layout with this meaning occurs in the log, by the rule that agents match with.
fn seen(log: &str, wanted: impl Fn(&LogMeaning) -> bool) -> bool {
    let marks = Cometbft::new().layout(&plan(Path::new("x")), &plan(Path::new("x")).nodes[0]).log_marks;
    let lines: Vec<String> = log.lines().map(str::to_lowercase).collect();
    marks
        .iter()
        .filter(|mark| wanted(&mark.meaning))
        .any(|mark| lines.iter().any(|line| mark.tokens.iter().all(|token| line.contains(&token.to_lowercase()))))
}

#[tokio::test]
async fn rendered_files_make_a_network_that_the_family_can_read() {
    let binary = binary();
    let plan = plan(&binary);
    let folder = tempfile::tempdir().expect("a folder");
    let binding = binding(&plan, folder.path(), &binary);
    let chain = Cometbft::new();
    let launch =
        |node: &NodePlan| start(&chain.render(&plan, &binding, node).expect("files"), &binding.nodes[&node.name]);
    let validators: Vec<Node> = plan.nodes[..4].iter().map(launch).collect();

    until("height 3", async || height(&validators[0]).await.filter(|h| *h >= 3)).await;
    for n in 0..8 {
        let transaction = chain.transaction(&plan, "set", n, 64).expect("a transaction");
        let answer = get(&validators[1], &chain.rpc().submit_request(&transaction)).await.expect("an answer");
        assert!(chain.rpc().submitted(&answer), "{}", String::from_utf8_lossy(&answer));
        let again = get(&validators[1], &chain.rpc().submit_request(&transaction)).await.expect("an answer");
        assert!(!chain.rpc().submitted(&again), "taken twice: {}", String::from_utf8_lossy(&again));
    }
    let update = chain.transaction(&plan, "validator", 0, 0).expect("a transaction");
    let answer = get(&validators[2], &chain.rpc().submit_request(&update)).await.expect("an answer");
    assert!(chain.rpc().submitted(&answer), "{}", String::from_utf8_lossy(&answer));

    let target = height(&validators[0]).await.expect("a height") + 5;
    let late = launch(&plan.nodes[4]);
    until("the late node", async || height(&late).await.filter(|h| *h >= target)).await;
    let peers = chain.rpc().peers(&get(&late, chain.rpc().peers_request().as_str()).await.expect("an answer"));
    assert_eq!(peers.expect("peers"), 4);

    let mut answers = Vec::new();
    for node in validators.iter().chain([&late]) {
        until("the target", async || height(node).await.filter(|h| *h >= target)).await;
        let body = get(node, &chain.rpc().hashes_request(1, target)).await.expect("an answer");
        answers.push(chain.rpc().hashes(&body).expect("hashes"));
    }
    assert!(answers.iter().all(|answer| answer == &answers[0]), "{answers:?}");
    let app_hashes: std::collections::BTreeSet<&str> = answers[0].blocks.iter().map(|(_, app)| app.as_str()).collect();
    assert!(app_hashes.len() > 1, "the app hash never changed: {:?}", answers[0]);

    let log = fs::read_to_string(&late.log).expect("a log");
    assert!(seen(&log, |m| matches!(m, LogMeaning::Handshake { .. })), "no handshake line");
    for mode in [Mode::Replay, Mode::BlockSync, Mode::Consensus] {
        until("a mode", async || {
            let log = fs::read_to_string(&late.log).ok()?;
            seen(&log, |m| *m == LogMeaning::Mode(mode)).then_some(())
        })
        .await;
    }
    for store in chain.layout(&plan, &plan.nodes[0]).stores {
        let path = store.paths[0].trim_end_matches('/');
        let place = binding.nodes["val-1"].home.join(path);
        assert!(place.exists(), "store {} has no {path}", store.name);
    }
}

//! Networks of reference nodes as plain processes on loopback addresses of their own.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};

use midflush::node::crypto::SecretKey;
use serde_json::{Value, json};

/// Longest wait for anything that a network is expected to do, on a busy machine.
const DEADLINE: Duration = Duration::from_secs(120);

/// What a network is made of.
pub(crate) struct Spec {
    pub(crate) validators: usize,
    pub(crate) full: usize,
    /// Settings of every node beside names and addresses.
    pub(crate) settings: Value,
    /// Settings of full nodes, over those.
    pub(crate) full_settings: Value,
    /// Blocks that the validators start from.
    pub(crate) built_blocks: u64,
}

/// A network; dropping it kills its processes.
pub(crate) struct Net {
    folder: tempfile::TempDir,
    pub(crate) names: Vec<String>,
    addresses: Vec<String>,
    children: Vec<Option<Child>>,
}

impl Net {
    /// Writes the homes; starts nothing.
    pub(crate) fn new(spec: &Spec) -> Self {
        static NETWORKS: AtomicU8 = AtomicU8::new(0);
        let [.., high, low] = std::process::id().to_be_bytes();
        let first = usize::from(NETWORKS.fetch_add(1, Ordering::Relaxed)) * 12 + 1;
        let count = spec.validators + spec.full;
        assert!(count <= 12 && first + count < 255, "addresses of this process are used up");
        let name =
            |i: usize| if i < spec.validators { format!("val-{i}") } else { format!("full-{}", i - spec.validators) };
        let net = Self {
            folder: tempfile::tempdir().expect("a folder"),
            names: (0..count).map(name).collect(),
            addresses: (0..count).map(|i| format!("127.{}.{low}.{}", 64 | (high & 0x3f), first + i)).collect(),
            children: (0..count).map(|_| None).collect(),
        };
        let keys: Vec<[u8; 32]> = (0..count).map(|i| [i as u8 + 1; 32]).collect();
        let validators: Vec<Value> = (0..spec.validators)
            .map(|i| {
                let key = SecretKey::from_ikm(&keys[i]).expect("32 bytes");
                json!({"name": net.names[i], "pub_key": key.public_key(), "proof_of_possession": key.prove_possession(), "power": 10})
            })
            .collect();
        let genesis = json!({"chain_id": "it", "genesis_time": "2026-01-01T00:00:00Z", "validators": validators});
        for (i, key) in keys.iter().enumerate() {
            let mut node = json!({
                "name": net.names[i],
                "p2p_listen": format!("{}:26656", net.addresses[i]),
                "rpc_listen": format!("{}:26657", net.addresses[i]),
                "peers": (0..spec.validators).filter(|j| *j != i).map(|j| {
                    json!({"name": net.names[j], "address": format!("{}:26656", net.addresses[j])})
                }).collect::<Vec<_>>(),
            });
            merge(&mut node, &spec.settings);
            if i >= spec.validators {
                merge(&mut node, &spec.full_settings);
            }
            let config = net.home(i).join("config");
            fs::create_dir_all(&config).expect("a folder");
            let write = |name: &str, value: &Value| fs::write(config.join(name), value.to_string()).expect("written");
            write("node.json", &node);
            write("genesis.json", &genesis);
            write("key.json", &json!({"secret": hex::encode(key)}));
        }
        if spec.built_blocks > 0 {
            net.build(spec);
        }
        net
    }

    /// Builds a chain in the first validator's home and copies it to the others.
    fn build(&self, spec: &Spec) {
        let keys = (0..spec.validators).map(|i| self.home(i).join("config/key.json"));
        let status = Command::new(env!("CARGO_BIN_EXE_midflush"))
            .args(["node", "build-chain", "--home"])
            .arg(self.home(0))
            .args(["--blocks", &spec.built_blocks.to_string(), "--txs", "2", "--keys"])
            .args(keys)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .expect("it runs");
        assert!(status.success(), "the chain is built");
        for i in 1..spec.validators {
            let data = self.home(i).join("data");
            fs::create_dir_all(&data).expect("a folder");
            for name in ["blockstore.db", "state.db", "application.db"] {
                fs::copy(self.home(0).join("data").join(name), data.join(name)).expect("copied");
            }
        }
    }

    pub(crate) fn home(&self, i: usize) -> PathBuf {
        self.folder.path().join(&self.names[i])
    }

    /// Starts a node; its output goes to `log` in its home, behind that of earlier starts.
    pub(crate) fn start(&mut self, i: usize) {
        let log = File::options().create(true).append(true).open(self.home(i).join("log")).expect("a log");
        let child = Command::new(env!("CARGO_BIN_EXE_midflush"))
            .args(["node", "start", "--home"])
            .arg(self.home(i))
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a second handle"))
            .stderr(log)
            .spawn()
            .expect("the node starts");
        self.children[i] = Some(child);
    }

    /// Kills a node with SIGKILL and reaps it.
    pub(crate) fn kill(&mut self, i: usize) {
        let mut child = self.children[i].take().expect("it runs");
        child.kill().expect("killed");
        child.wait().expect("reaped");
    }

    /// Ends a node with SIGTERM and waits for its end.
    pub(crate) fn terminate(&mut self, i: usize) -> ExitStatus {
        let pid = self.children[i].as_ref().expect("it runs").id();
        let pid = rustix::process::Pid::from_raw(pid as i32).expect("a pid");
        rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("told");
        self.wait(i)
    }

    /// Waits for a node's own end.
    pub(crate) fn wait(&mut self, i: usize) -> ExitStatus {
        let mut child = self.children[i].take().expect("it runs");
        let end = Instant::now() + DEADLINE;
        while Instant::now() < end {
            if let Some(status) = child.try_wait().expect("waited for") {
                return status;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        let _ = child.kill();
        let _ = child.wait();
        panic!("{} does not end; its log:\n{}", self.names[i], self.log(i));
    }

    pub(crate) fn log(&self, i: usize) -> String {
        fs::read_to_string(self.home(i).join("log")).unwrap_or_default()
    }

    /// The answer's `result`, if the node answers.
    pub(crate) fn rpc(&self, i: usize, path: &str) -> Option<Value> {
        let address: SocketAddr = format!("{}:26657", self.addresses[i]).parse().expect("an address");
        let mut stream = TcpStream::connect_timeout(&address, Duration::from_secs(2)).ok()?;
        stream.set_read_timeout(Some(Duration::from_secs(5))).ok()?;
        stream.write_all(format!("GET {path} HTTP/1.0\r\nHost: node\r\n\r\n").as_bytes()).ok()?;
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).ok()?;
        let text = String::from_utf8(answer).ok()?;
        let (_, body) = text.split_once("\r\n\r\n")?;
        let value: Value = serde_json::from_str(body).ok()?;
        value.get("result").cloned()
    }

    /// The height in a node's status; 0 when it does not answer.
    pub(crate) fn height(&self, i: usize) -> u64 {
        let status = self.rpc(i, "/status");
        let height = status.as_ref().and_then(|s| s["sync_info"]["latest_block_height"].as_str());
        height.and_then(|h| h.parse().ok()).unwrap_or(0)
    }

    /// Block id and application hash in the header of one height.
    pub(crate) fn block(&self, i: usize, height: u64) -> (String, String) {
        let block = self.rpc(i, &format!("/block?height={height}")).expect("the block is held");
        let text = |value: &Value| value.as_str().expect("text").to_owned();
        (text(&block["block_id"]["hash"]), text(&block["block"]["header"]["app_hash"]))
    }

    /// Polls until `look` holds; a failure shows all logs.
    pub(crate) fn until(&self, what: &str, mut look: impl FnMut(&Self) -> bool) {
        let end = Instant::now() + DEADLINE;
        while !look(self) {
            if Instant::now() >= end {
                let logs: Vec<String> =
                    (0..self.names.len()).map(|i| format!("--- {}\n{}", self.names[i], self.log(i))).collect();
                panic!("{what}: not within {DEADLINE:?}\n{}", logs.join("\n"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn until_height(&self, nodes: &[usize], height: u64) {
        self.until(&format!("height {height}"), |net| nodes.iter().all(|i| net.height(*i) >= height));
    }

    /// Every height that all nodes hold has one block id and one application hash.
    pub(crate) fn assert_agreement(&self, nodes: &[usize], heights: impl Iterator<Item = u64>) {
        for height in heights {
            let first = self.block(nodes[0], height);
            for i in &nodes[1..] {
                assert_eq!(self.block(*i, height), first, "{} at height {height}", self.names[*i]);
            }
        }
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for child in self.children.iter_mut().flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}

fn merge(into: &mut Value, from: &Value) {
    for (key, value) in from.as_object().expect("an object") {
        into[key] = value.clone();
    }
}

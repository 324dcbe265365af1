//! RPC on a real ledger, network and socket: a chain of one validator.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Value, json};
use tokio_util::task::TaskTracker;

use super::*;
use crate::node::app;
use crate::node::config::{Home, Storage};
use crate::node::crypto::{SecretKey, SignerBitmap, aggregate};
use crate::node::handle::SyncStatus;
use crate::node::inbox;
use crate::node::ledger::Ledger;
use crate::node::log::Log;
use crate::node::mempool::Mempool;
use crate::node::p2p::{BlockSource, Event, Hello, Network, Options};
use crate::node::types::{Commit, GenesisValidator};

struct NoBlocks;

impl BlockSource for NoBlocks {
    fn block(&self, _: u64) -> Option<Bytes> {
        None
    }
}

struct Served {
    ledger: Ledger,
    key: SecretKey,
    url: String,
    metrics_url: String,
    stop: CancellationToken,
    tasks: TaskTracker,
    _events: inbox::Receiver<Event>,
    _folder: tempfile::TempDir,
}

/// A node without consensus: the test makes its blocks.
async fn served(storage: Storage) -> Served {
    let folder = tempfile::tempdir().unwrap();
    let key = SecretKey::from_ikm(&[7; 32]).unwrap();
    let config: NodeConfig = serde_json::from_value(json!({
        "name": "solo", "p2p_listen": "127.0.0.1:0", "rpc_listen": "127.0.0.1:0", "storage": storage, "unsafe": true,
        // No flush point by itself while a test looks.
        "flush": { "every_ms": 3_600_000 },
    }))
    .unwrap();
    let genesis = Genesis {
        chain_id: "solo-1".into(),
        genesis_time: "2026-01-01T00:00:00Z".parse().unwrap(),
        initial_height: 1,
        consensus_params: Default::default(),
        validators: vec![GenesisValidator {
            name: "solo".into(),
            pub_key: key.public_key(),
            proof_of_possession: key.prove_possession(),
            power: 10,
        }],
        app_state: Default::default(),
    };
    let hub = EventHub::new();
    let home = Home::new(folder.path());
    let ledger = Ledger::open(&home, &config, &genesis, Log::memory(), Box::new(hub.clone())).unwrap();
    let (stop, tasks) = (CancellationToken::new(), TaskTracker::new());
    let mempool = Arc::new(Mempool::new(app::check_tx));
    let (sender, events) = inbox::inbox(1 << 16);
    let hello =
        Hello { chain_id: "solo-1".into(), genesis_hash: [1; 32], name: "solo".into(), public_key: [0; 48], boot: 1 };
    let options = Options {
        hello,
        listen: config.p2p_listen,
        dial: Vec::new(),
        blocks: Arc::new(NoBlocks),
        mempool: mempool.clone(),
        events: sender,
    };
    let network = Network::start(options, stop.clone(), &tasks).await.unwrap();
    let context = Context {
        handle: Handle { network, mempool, status: Arc::new(SyncStatus::new(None)) },
        view: ledger.view(),
        events: hub,
        genesis: Arc::new(genesis),
        config: Arc::new(config.clone()),
        public_key: key.public_key(),
    };
    let rpc = bind(config.rpc_listen).await.unwrap();
    let metrics = bind(config.rpc_listen).await.unwrap();
    let url = format!("http://{}", rpc.local_addr().unwrap());
    let metrics_url = format!("http://{}/metrics", metrics.local_addr().unwrap());
    tasks.spawn(serve(rpc, context.clone(), stop.clone()));
    tasks.spawn(serve_metrics(metrics, context, stop.clone()));
    Served { ledger, key, url, metrics_url, stop, tasks, _events: events, _folder: folder }
}

impl Served {
    /// Applies the next block.
    fn block(&mut self, txs: &[&str]) {
        let height = self.ledger.next_height();
        let last = self.ledger.load_commit(height - 1).unwrap().unwrap_or_default();
        let txs = txs.iter().map(|tx| tx.as_bytes().to_vec()).collect();
        let block = self.ledger.build_block(txs, last, 1_800_000_000_000, self.key.public_key().address());
        let block_id = block.id();
        let mut commit = Commit { height, block_id, signers: SignerBitmap::empty(1), ..Commit::default() };
        commit.signers.set(0);
        commit.signature = aggregate(&[self.key.sign(&commit.sign_bytes("solo-1"))]).unwrap();
        self.ledger.apply_synced(&Arc::new(block), &block_id, &commit).unwrap();
    }

    async fn get(&self, path: &str) -> (u16, Value) {
        let answer = reqwest::get(format!("{}{path}", self.url)).await.unwrap();
        let status = answer.status().as_u16();
        (status, answer.json().await.unwrap_or(Value::Null))
    }

    async fn result(&self, path: &str) -> Value {
        let (status, mut answer) = self.get(path).await;
        assert_eq!((status, &answer["id"]), (200, &json!(-1)), "{path}: {answer}");
        answer["result"].take()
    }

    /// The text of an error.
    async fn refused(&self, path: &str) -> String {
        let (status, answer) = self.get(path).await;
        assert_eq!(status, 500, "{path}: {answer}");
        answer["error"]["data"].as_str().unwrap().to_owned()
    }

    async fn post(&self, body: impl Into<String>) -> (u16, Value) {
        let answer = reqwest::Client::new().post(&self.url).body(body.into()).send().await.unwrap();
        (answer.status().as_u16(), answer.json().await.unwrap())
    }

    async fn end(self) {
        self.stop.cancel();
        self.tasks.close();
        tokio::time::timeout(Duration::from_secs(10), self.tasks.wait()).await.expect("all tasks end");
    }
}

#[tokio::test]
async fn a_fresh_node_and_one_with_blocks() {
    let mut node = served(Storage::PerBlock).await;
    let status = node.result("/status").await;
    assert_eq!(status["sync_info"]["latest_block_height"], "0");
    assert_eq!(status["sync_info"]["latest_app_hash"], "");
    assert_eq!(status["sync_info"]["latest_block_time"], "1970-01-01T00:00:00Z");
    assert_eq!(status["sync_info"]["catching_up"], true);
    assert_eq!(status["validator_info"]["voting_power"], "10");
    assert_eq!(node.result("/block").await["block"], Value::Null);
    assert!(node.refused("/blockchain").await.contains("can't be greater than max height 0"));

    for n in 1..=25 {
        node.block(&[&format!("set k{n} v"), "nonsense"]);
    }
    let status = node.result("/status").await;
    assert_eq!(status["sync_info"]["latest_block_height"], "25");
    assert_eq!(status["sync_info"]["earliest_block_height"], "1");
    let chain = node.result("/blockchain?minHeight=3&maxHeight=5").await;
    let heights: Vec<&Value> =
        chain["block_metas"].as_array().unwrap().iter().map(|meta| &meta["header"]["height"]).collect();
    assert_eq!(heights, ["5", "4", "3"]);
    assert_eq!(node.result("/blockchain").await["block_metas"].as_array().unwrap().len(), 20);

    let block = node.result("/block?height=\"9\"").await;
    assert_eq!(block["block"]["header"], node.result("/header?height=9").await["header"]);
    assert_eq!(block["block"]["data"]["txs"][0], "c2V0IGs5IHY=");
    assert_eq!(block["block"]["last_commit"]["height"], "8");
    assert_eq!(block["block"]["last_commit"]["signatures"][0]["block_id_flag"], 2);
    let commit = node.result("/commit?height=9").await;
    assert_eq!((&commit["canonical"], &commit["signed_header"]["header"]["height"]), (&json!(true), &json!("9")));
    assert_eq!(commit["signed_header"]["commit"]["block_id"], block["block_id"]);
    assert_eq!(node.result("/commit").await["canonical"], false);

    let results = node.result("/block_results?height=9").await;
    assert_eq!((&results["txs_results"][0]["code"], &results["txs_results"][1]["code"]), (&json!(0), &json!(1)));
    use base64::Engine as _;
    let after = base64::engine::general_purpose::STANDARD.decode(results["app_hash"].as_str().unwrap()).unwrap();
    let next = node.result("/header?height=10").await;
    assert_eq!(next["header"]["app_hash"], hex::encode_upper(after), "header 10 carries the state after 9");
    let info = node.result("/abci_info").await;
    assert_eq!(info["response"]["last_block_height"], "25");
    let query = node.result("/abci_query?data=\"k9\"").await;
    assert_eq!((&query["response"]["value"], &query["response"]["height"]), (&json!("dg=="), &json!("25")));
    assert_eq!(node.result("/validators").await["count"], "1");
    assert_eq!(node.result("/genesis").await["genesis"]["chain_id"], "solo-1");
    assert_eq!(node.result("/net_info").await["n_peers"], "0");

    assert!(node.refused("/block?height=26").await.contains("less than or equal to the current blockchain height 25"));
    assert!(node.refused("/block?height=0").await.contains("greater than 0"));
    assert!(node.refused("/block?height=-1").await.contains("no number"));
    assert_eq!(node.get("/nothing").await.0, 404);
    node.end().await;
}

#[tokio::test]
async fn posts_batches_and_bodies_that_are_none() {
    let mut node = served(Storage::SingleFlush).await;
    node.block(&[]);
    let (status, answer) = node.post(r#"{"jsonrpc":"2.0","id":"a","method":"block","params":{"height":"1"}}"#).await;
    assert_eq!((status, &answer["id"]), (200, &json!("a")));
    assert_eq!(answer["result"]["block"]["header"]["height"], "1");
    let (_, by_position) = node.post(r#"{"id":"a","jsonrpc":"2.0","method":"block","params":[1]}"#).await;
    assert_eq!(by_position, answer);
    let (status, answer) = node.post(r#"{"id":3,"method":"subscribe"}"#).await;
    assert_eq!((status, &answer["error"]["code"], &answer["id"]), (200, &json!(-32601), &json!(3)));
    let (_, answer) =
        node.post(r#"[{"id":1,"method":"health"},{"id":2,"method":"block","params":{"height":9}},7]"#).await;
    assert_eq!(answer[0]["result"], json!({}));
    assert_eq!(answer[1]["error"]["code"], -32603);
    assert_eq!(answer[2]["error"]["code"], -32600);
    assert_eq!(node.post("{").await.1["error"]["code"], -32700);
    assert_eq!(node.post("[]").await.0, 500);
    let batch = [r#"{"id":1,"method":"health"}"#; BATCH_MAX + 1].join(",");
    assert_eq!(node.post(format!("[{batch}]")).await.0, 500);

    let large = reqwest::Client::new().post(&node.url).body(vec![b' '; BODY_MAX + 1]).send().await.unwrap();
    assert_eq!(large.status(), 413);
    node.end().await;
}

#[tokio::test]
async fn transactions_reach_the_mempool_once() {
    let node = served(Storage::SingleFlush).await;
    let sent = node.result("/broadcast_tx_sync?tx=\"set a b\"").await;
    assert_eq!(sent["code"], 0);
    assert_eq!(sent["hash"], crate::node::types::sha256(b"set a b").to_string());
    assert!(node.refused("/broadcast_tx_sync?tx=0x73657420612062").await.contains("already exists in cache"));
    assert_eq!(node.result("/broadcast_tx_sync?tx=0x00ff").await["code"], 1);
    assert!(node.refused("/broadcast_tx_sync").await.contains("`tx` is missing"));
    let (_, answer) = node.post(r#"{"id":1,"method":"broadcast_tx_sync","params":{"tx":"c2V0IGMgZA=="}}"#).await;
    assert_eq!(answer["result"]["code"], 0);
    assert_eq!(node.result("/num_unconfirmed_txs").await["n_txs"], "2");
    node.end().await;
}

#[tokio::test]
async fn what_is_held_is_not_told() {
    let mut node = served(Storage::Deferred).await;
    let mut events = reqwest::get(format!("{}/events", node.url)).await.unwrap();
    for n in 1..=3 {
        node.block(&[&format!("set k{n} v")]);
    }
    assert_eq!(node.result("/status").await["sync_info"]["latest_block_height"], "0");
    assert!(node.refused("/abci_info").await.contains("before the first flush point"));
    assert!(node.refused("/abci_query?data=0x6b31").await.contains("before the first flush point"));
    let scraped = reqwest::get(&node.metrics_url).await.unwrap().text().await.unwrap();
    assert!(scraped.contains("midflush_node_applied_height 3\n"), "{scraped}");
    assert!(scraped.contains("midflush_node_height{store=\"store\"} 0\n"), "{scraped}");

    node.ledger.flush_point().unwrap();
    assert_eq!(node.result("/status").await["sync_info"]["latest_block_height"], "3");
    assert_eq!(node.result("/abci_info").await["response"]["last_block_height"], "3");
    let mut text = String::new();
    while text.lines().count() < 3 {
        let chunk = tokio::time::timeout(Duration::from_secs(10), events.chunk()).await.expect("events come");
        text.push_str(std::str::from_utf8(&chunk.unwrap().expect("the stream is open")).unwrap());
    }
    for (line, height) in text.lines().zip(1..) {
        let event: Value = serde_json::from_str(line).unwrap();
        assert_eq!(event["block"]["height"], height.to_string());
    }
    let scraped = reqwest::get(&node.metrics_url).await.unwrap().text().await.unwrap();
    assert!(scraped.contains("midflush_node_height{store=\"app\"} 3\n"), "{scraped}");
    assert!(scraped.contains("midflush_node_stage_runs_total{stage=\"flush\"} 1\n"), "{scraped}");
    assert!(scraped.contains("midflush_node_peers 0\n") && scraped.ends_with("# EOF\n"), "{scraped}");
    node.end().await;
    assert_eq!(events.chunk().await.unwrap(), None, "the stream ends with the node");
}

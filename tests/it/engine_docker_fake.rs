//! The Docker engine against a socket that answers as an engine does in situations that are hard to bring about: what is
//! asked for is looked at, word by word. Needs no Docker.

use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{Method, Response, StatusCode, Uri};
use midflush::engine::docker::DockerEngine;
use midflush::engine::{Binding, Build, Engine, EngineError};
use serde_json::{Value, json};
use tokio::net::{TcpListener, UnixListener};
use tokio::task::JoinSet;

use crate::engine_process::launch;

/// What the engine was asked, and how it behaves.
struct Fake {
    asked: Mutex<Vec<(String, Value)>>,
    /// Answers to requests for a network, the last one for ever.
    networks: Mutex<Vec<(u16, Value)>>,
    /// Where the agent's port is said to be published.
    published: Value,
}

type Shared = Arc<Fake>;

async fn answer(State(fake): State<Shared>, method: Method, uri: Uri, body: Bytes) -> Response<Body> {
    let request = format!("{method} {}", uri.path());
    // A body that is no JSON is an archive; its size is enough.
    let body = serde_json::from_slice(&body).unwrap_or_else(|_| json!(body.len()));
    fake.asked.lock().expect("no panic under the lock").push((request.clone(), body));
    let (status, answer) = match request.as_str() {
        "GET /version" => {
            (200, json!({"Version": "20.10.24", "Os": "linux", "Arch": docker_arch(), "KernelVersion": "6.1.0"}))
        }
        "POST /images/load" => (200, json!({"stream": "Loaded"})),
        "GET /containers/json" => (200, json!([])),
        // The whole of 10/8 is somebody's.
        "GET /networks" => (200, json!([{"Name": "vpn", "IPAM": {"Config": [{"Subnet": "10.0.0.0/8"}]}}])),
        "GET /volumes" => (200, json!({"Volumes": []})),
        "POST /networks/create" => {
            let mut answers = fake.networks.lock().expect("no panic under the lock");
            if answers.len() > 1 { answers.remove(0) } else { answers[0].clone() }
        }
        "POST /containers/create" => (201, json!({"Id": "c", "Warnings": []})),
        // An image under this tag, but made of something else: it may not be taken.
        other if other.starts_with("GET /images/") => {
            (200, json!({"Id": "sha256:1", "Config": {"Labels": {"midflush.image": "of another build"}}}))
        }
        other if other.ends_with("/start") => (204, Value::Null),
        other if other.starts_with("GET /containers/") => {
            (200, json!({"State": {"Running": true}, "NetworkSettings": {"Ports": {"26650/tcp": fake.published}}}))
        }
        other => panic!("unexpected request {other}"),
    };
    let body = if status == 204 { Body::empty() } else { Body::from(answer.to_string()) };
    let status = StatusCode::from_u16(status).expect("a status");
    Response::builder().status(status).header("content-type", "application/json").body(body).expect("a response")
}

impl Fake {
    fn bodies(&self, request: &str) -> Vec<Value> {
        let asked = self.asked.lock().expect("no panic under the lock");
        asked.iter().filter(|(of, _)| of == request).map(|(_, body)| body.clone()).collect()
    }
}

fn docker_arch() -> &'static str {
    if cfg!(target_arch = "x86_64") { "amd64" } else { "arm64" }
}

/// Serves a fake engine, and behind a port of this host something that answers like an agent; launches one node.
async fn launch_on(networks: Vec<(u16, Value)>) -> (Shared, Result<Binding, EngineError>, JoinSet<()>) {
    let mut servers = JoinSet::new();
    let agent = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let port = agent.local_addr().expect("an address").port().to_string();
    servers.spawn(async move { axum::serve(agent, Router::new()).await.expect("served") });
    let fake = Arc::new(Fake {
        asked: Mutex::default(),
        networks: Mutex::new(networks),
        published: json!([{"HostIp": "127.0.0.1", "HostPort": port}]),
    });
    let folder = tempfile::tempdir().expect("a folder");
    let socket = folder.path().join("docker.sock");
    let listener = UnixListener::bind(&socket).expect("a socket");
    let app = Router::new().fallback(answer).layer(DefaultBodyLimit::disable()).with_state(Arc::clone(&fake));
    servers.spawn(async move { axum::serve(listener, app).await.expect("served") });
    let url = format!("unix://{}", socket.display());
    let engine = DockerEngine::connect(Some(&url), env!("CARGO_BIN_EXE_midflush").into()).await;
    let engine = engine.expect("an answer from the fake engine");
    engine.prepare(&[Build::Own]).await.expect("made ready");
    let launched = engine.launch(&launch("fake", Build::Own, &["a"])).await;
    (fake, launched, servers)
}

#[tokio::test]
async fn a_subnet_that_somebody_was_faster_to_take_is_given_up_for_another() {
    let overlap = (403, json!({"message": "Pool overlaps with other one on this address space"}));
    let (fake, launched, _servers) = launch_on(vec![overlap, (201, json!({"Id": "n", "Warning": ""}))]).await;
    let node = launched.expect("launched").nodes["a"].clone();
    let subnets: Vec<String> = fake
        .bodies("POST /networks/create")
        .iter()
        .map(|body| body["IPAM"]["Config"][0]["Subnet"].as_str().expect("a subnet").to_owned())
        .collect();
    assert_eq!(subnets.len(), 2);
    assert_ne!(subnets[0], subnets[1]);
    assert!(subnets.iter().all(|subnet| subnet.starts_with("172.") && subnet.ends_with("/24")), "{subnets:?}");
    assert!(node.ip.to_string().starts_with(subnets[1].trim_end_matches("0/24")), "{} in {}", node.ip, subnets[1]);
    let network = &fake.bodies("POST /networks/create")[1];
    assert_eq!(network["Labels"]["midflush.run"], "fake");
    let container = &fake.bodies("POST /containers/create")[0];
    assert_eq!(container["Labels"]["midflush.node"], "a");
    assert_eq!(container["HostConfig"]["NetworkMode"], network["Name"]);
    assert_eq!(container["Entrypoint"], json!(["/midflush"]));
    assert_eq!(fake.bodies("POST /images/load").len(), 1);
}

#[tokio::test]
async fn exhausted_pools_are_told_with_what_to_do() {
    let message = "could not find an available, non-overlapping IPv4 address pool among the defaults";
    let (fake, launched, _servers) = launch_on(vec![(404, json!({"message": message}))]).await;
    let error = launched.expect_err("no network").to_string();
    assert!(error.contains(message) && error.contains("midflush clean"), "{error}");
    assert!(fake.bodies("POST /containers/create").is_empty());
}

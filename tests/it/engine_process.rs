//! The process engine with real agents: up, answering, gone, and what a killed controller leaves.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use midflush::engine::process::ProcessEngine;
use midflush::engine::{Binding, Build, Engine, Launch, LaunchNode, OwnerState};

/// Set in the child that plays the controller which is killed: the run that it launches.
const OWNS: &str = "MIDFLUSH_TEST_OWNS_RUN";

fn own() -> PathBuf {
    env!("CARGO_BIN_EXE_midflush").into()
}

/// A run id that no other test, and no other run of the tests, has.
pub(crate) fn run_id(what: &str) -> String {
    format!("test-{what}-{}", std::process::id())
}

pub(crate) fn launch(run: &str, build: Build, names: &[&str]) -> Launch {
    let node = |name: &&str| LaunchNode { name: (*name).to_owned(), build: build.clone() };
    Launch { run: run.to_owned(), token: "engine-test-token".to_owned(), nodes: names.iter().map(node).collect() }
}

/// Asks an agent who it is, once with the run's token and once without: it must answer the one, with nothing in the way
/// of interception, and refuse the other.
pub(crate) async fn greet(engine: &dyn Engine, run: &str, node: &str) {
    for (token, status, said) in [("engine-test-token", "200", r#""refused":null"#), ("wrong", "401", "token")] {
        let stream = engine.dial(run, node).await.expect("a stream");
        let answer = http_get(stream, token).await;
        let first = answer.lines().next().unwrap_or_default();
        assert!(first.contains(status) && answer.contains(said), "{node} with token {token}: {answer}");
    }
}

async fn http_get(mut stream: Box<dyn midflush::engine::ByteStream>, token: &str) -> String {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let request =
        format!("GET /v1/hello HTTP/1.1\r\nHost: agent\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).await.expect("a request sent");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).await.expect("an answer");
    String::from_utf8_lossy(&answer).into_owned()
}

/// Kinds of what the engine finds of a run, with the state of the owner, sorted.
pub(crate) async fn found(engine: &dyn Engine, run: &str) -> Vec<(String, OwnerState)> {
    let all = engine.list().await.expect("a list");
    let of_run = all.into_iter().filter(|thing| thing.run.as_deref() == Some(run));
    let mut kinds: Vec<_> = of_run.map(|thing| (thing.kind, thing.owner)).collect();
    kinds.sort();
    kinds
}

async fn up(engine: &ProcessEngine, run: &str, names: &[&str]) -> Binding {
    engine.prepare(&[Build::Own]).await.expect("made ready");
    engine.launch(&launch(run, Build::Own, names)).await.expect("launched")
}

#[tokio::test]
async fn agents_come_up_answer_and_leave_nothing() {
    let (engine, run) = (ProcessEngine::new(own()), run_id("up"));
    let binding = up(&engine, &run, &["a", "b", "c"]).await;
    assert_eq!(binding.nodes.len(), 3);
    let addresses: std::collections::BTreeSet<_> = binding.nodes.values().map(|node| node.ip).collect();
    assert_eq!(addresses.len(), 3, "every node has its own address");
    for (name, node) in &binding.nodes {
        assert!(node.ip.is_loopback() && !node.ip.to_string().starts_with("127.0."), "{}", node.ip);
        assert_eq!(node.program, [own().display().to_string()]);
        assert!(node.home.is_dir());
        greet(&engine, &run, name).await;
    }
    let alive = |kind: &str| (kind.to_owned(), OwnerState::Alive);
    assert_eq!(found(&engine, &run).await, [alive("folder"), alive("process"), alive("process"), alive("process")]);
    let removed = engine.remove(&run).await.expect("removed");
    assert_eq!(removed.len(), 4);
    assert_eq!(found(&engine, &run).await, []);
    assert!(!binding.nodes["a"].home.parent().and_then(Path::parent).expect("a run folder").exists());
    assert!(engine.dial(&run, "a").await.is_err());
    assert_eq!(engine.remove(&run).await.expect("removing twice is no error"), []);
}

#[tokio::test]
async fn two_runs_at_once_do_not_meet() {
    let engine = ProcessEngine::new(own());
    let (one, two) = (run_id("one"), run_id("two"));
    let (first, second) = tokio::join!(up(&engine, &one, &["a", "b"]), up(&engine, &two, &["a", "b"]));
    let addresses: std::collections::BTreeSet<_> =
        first.nodes.values().chain(second.nodes.values()).map(|node| node.ip).collect();
    assert_eq!(addresses.len(), 4);
    engine.remove(&one).await.expect("removed");
    greet(&engine, &two, "b").await;
    engine.remove(&two).await.expect("removed");
}

#[tokio::test]
async fn a_launch_that_fails_leaves_nothing_and_shows_why() {
    let (engine, run) = (ProcessEngine::new("/bin/true".into()), run_id("fails"));
    engine.prepare(&[Build::Own]).await.expect("a program of this machine");
    let error = engine.launch(&launch(&run, Build::Own, &["a", "b"])).await.expect_err("no agent").to_string();
    assert!(error.contains("the agent of a: it ended"), "{error}");
    assert_eq!(found(&engine, &run).await, []);

    let image = Build::Image { reference: "cometbft:v0.38.17".to_owned() };
    let error = engine.prepare(&[image]).await.expect_err("no images here").to_string();
    assert!(error.contains("--engine docker"), "{error}");
    let error = engine.launch(&launch("../up", Build::Own, &["a"])).await.expect_err("a bad name").to_string();
    assert!(error.contains("the name"), "{error}");
}

/// The test runs twice: as itself, and as the controller that it kills.
#[tokio::test]
async fn clean_takes_what_a_killed_controller_left_and_nothing_of_a_live_one() {
    let engine = ProcessEngine::new(own());
    if let Ok(run) = std::env::var(OWNS) {
        up(&engine, &run, &["a", "b"]).await;
        println!("launched");
        return std::future::pending().await;
    }
    let (dead, live) = (run_id("dead"), run_id("live"));
    up(&engine, &live, &["a"]).await;
    kill_controller_of(&dead, "engine_process::clean_takes_what_a_killed_controller_left_and_nothing_of_a_live_one");
    let left = |kind: &str| (kind.to_owned(), OwnerState::Dead);
    assert_eq!(found(&engine, &dead).await, [left("folder"), left("process"), left("process")]);

    let removed = clean(&["--engine", "process"]).removed;
    assert_eq!(removed.iter().filter(|run| **run == dead).count(), 3, "{removed:?}");
    assert!(!removed.contains(&live));
    assert_eq!(found(&engine, &dead).await, []);
    greet(&engine, &live, "a").await;
    engine.remove(&live).await.expect("removed");
}

/// Runs a test of this binary as another controller, which launches `run`, and kills it with SIGKILL.
pub(crate) fn kill_controller_of(run: &str, test: &str) {
    let mut controller = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", test, "--nocapture"])
        .env(OWNS, run)
        .stdout(Stdio::piped())
        .spawn()
        .expect("a controller");
    let output = std::io::BufReader::new(controller.stdout.take().expect("its output"));
    let launched = std::io::BufRead::lines(output).map_while(Result::ok).any(|line| line.contains("launched"));
    controller.kill().expect("killed");
    controller.wait().expect("reaped");
    assert!(launched, "the controller of {run} ended before it had launched");
}

/// What `midflush clean` did.
pub(crate) struct Cleaned {
    /// The run of each thing that it removed.
    pub removed: Vec<String>,
    /// What it failed to do, as text.
    pub failed: String,
}

/// Runs `midflush clean`.
pub(crate) fn clean(arguments: &[&str]) -> Cleaned {
    let output = Command::new(own()).args(["clean", "--json"]).args(arguments).output().expect("clean runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let done: serde_json::Value = serde_json::from_str(&text).unwrap_or_else(|e| {
        panic!("no JSON ({e}): {text}{}", String::from_utf8_lossy(&output.stderr));
    });
    let removed = done["removed"].as_array().expect("a list");
    let removed = removed.iter().map(|thing| thing["run"].as_str().expect("a run").to_owned()).collect();
    Cleaned { removed, failed: done["failed"].to_string() }
}

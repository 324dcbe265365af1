//! The Docker engine with real containers. Without Docker these tests say so and pass, unless
//! `MIDFLUSH_REQUIRE_DOCKER=1` demands it.

use std::path::PathBuf;

use bollard::Docker;
use bollard::models::{ContainerCreateBody, NetworkConnectRequest};
use bollard::query_parameters::{CreateContainerOptionsBuilder, RemoveContainerOptionsBuilder, RemoveImageOptions};
use midflush::engine::docker::DockerEngine;
use midflush::engine::{Binding, Build, Engine, Launch, OwnerState};

use crate::engine_process::{clean, found, greet, kill_controller_of, launch, run_id};

fn own() -> PathBuf {
    env!("CARGO_BIN_EXE_midflush").into()
}

/// The engine and a client of our own to look behind it; `None` where there is no Docker and none is demanded.
pub(crate) async fn docker() -> Option<(DockerEngine, Docker)> {
    match DockerEngine::connect(None, own()).await {
        Ok(engine) => Some((engine, Docker::connect_with_defaults().expect("a client"))),
        Err(error) if std::env::var("MIDFLUSH_REQUIRE_DOCKER").is_ok_and(|value| value == "1") => {
            panic!("MIDFLUSH_REQUIRE_DOCKER is set, but failed to {error}")
        }
        Err(error) => {
            println!("not tested, Docker is missing: failed to {error}");
            None
        }
    }
}

async fn up(engine: &DockerEngine, wanted: &Launch) -> Binding {
    engine.prepare(&[wanted.nodes[0].build.clone()]).await.expect("made ready");
    engine.launch(wanted).await.expect("launched")
}

fn kinds(wanted: &[(&str, usize)], owner: OwnerState) -> Vec<(String, OwnerState)> {
    wanted.iter().flat_map(|(kind, count)| std::iter::repeat_n(((*kind).to_owned(), owner), *count)).collect()
}

#[tokio::test]
async fn agents_come_up_in_containers_answer_and_leave_nothing() {
    let Some((engine, client)) = docker().await else { return };
    let run = run_id("docker-up");
    let binding = up(&engine, &launch(&run, Build::Own, &["a", "b", "c"])).await;
    for (name, node) in &binding.nodes {
        assert_eq!(node.program, ["/midflush"]);
        greet(&engine, &run, name).await;
        let inspected = client.inspect_container(&format!("midflush-{run}-{name}"), None).await.expect("a container");
        let network = inspected.network_settings.expect("a network");
        let ports = network.ports.expect("ports");
        assert_eq!(ports.len(), 1, "only the agent's port is published: {ports:?}");
        for binding in ports.values().flatten().flatten() {
            assert_eq!(binding.host_ip.as_deref(), Some("127.0.0.1"));
        }
        let ip = network.networks.expect("networks")[&format!("midflush-{run}")].ip_address.clone();
        assert_eq!(ip, Some(node.ip.to_string()));
    }
    let all = kinds(&[("container", 3), ("network", 1), ("volume", 3)], OwnerState::Alive);
    assert_eq!(found(&engine, &run).await, all);
    let again = engine.launch(&launch(&run, Build::Own, &["a"])).await.expect_err("the id is taken").to_string();
    assert!(again.contains("exist"), "{again}");
    assert_eq!(engine.remove(&run).await.expect("removed").len(), 7);
    assert_eq!(found(&engine, &run).await, []);
}

#[tokio::test]
async fn a_plain_binary_and_any_image_get_the_agent() {
    let Some((engine, client)) = docker().await else { return };
    let run = run_id("docker-builds");
    // midflush itself is a static binary like any other.
    let binary = Build::Binary { path: own() };
    let prepared = engine.prepare(std::slice::from_ref(&binary)).await.expect("made ready");
    assert_eq!(prepared[&binary].program, ["/node"]);
    up(&engine, &launch(&run, binary, &["a"])).await;
    greet(&engine, &run, "a").await;
    engine.remove(&run).await.expect("removed");

    let base = format!("midflush-test-base:{run}");
    engine.load_local_image(&base).await.expect("a base image");
    let image = Build::Image { reference: base.clone() };
    let prepared = engine.prepare(std::slice::from_ref(&image)).await.expect("made ready");
    assert_eq!(prepared[&image].program, ["/midflush"]);
    assert_eq!(prepared[&image].env["MIDFLUSH_RESULTS"], "/results");
    up(&engine, &launch(&run, image, &["a"])).await;
    greet(&engine, &run, "a").await;
    engine.remove(&run).await.expect("removed");
    assert_eq!(found(&engine, &run).await, []);
    client.remove_image(&base, None::<RemoveImageOptions>, None).await.expect("the base's tag removed");

    let missing = Build::Image { reference: "midflush-test-missing:1".to_owned() };
    let error = engine.prepare(&[missing]).await.expect_err("no such image").to_string();
    assert!(error.contains("nothing is pulled"), "{error}");
}

#[tokio::test]
async fn a_launch_that_fails_removes_what_it_made_and_nothing_else() {
    let Some((engine, client)) = docker().await else { return };
    let run = run_id("docker-fails");
    engine.prepare(&[Build::Own]).await.expect("made ready");
    let taken = format!("midflush-{run}-b");
    foreign_container(&engine, &client, &taken).await;
    let error = engine.launch(&launch(&run, Build::Own, &["a", "b"])).await.expect_err("the name is taken").to_string();
    assert!(error.contains("create the container of b"), "{error}");
    assert_eq!(found(&engine, &run).await, []);
    assert!(client.inspect_container(&taken, None).await.is_ok(), "what was there before stays");
    remove_foreign(&client, &taken).await;
}

/// The test runs twice: as itself, and as the controller that it kills.
#[tokio::test]
async fn clean_spares_live_runs_and_foreign_containers() {
    let Some((engine, client)) = docker().await else { return };
    if let Ok(run) = std::env::var("MIDFLUSH_TEST_OWNS_RUN") {
        up(&engine, &launch(&run, Build::Own, &["a", "b"])).await;
        println!("launched");
        return std::future::pending().await;
    }
    let (dead, live) = (run_id("docker-dead"), run_id("docker-live"));
    up(&engine, &launch(&live, Build::Own, &["a"])).await;
    kill_controller_of(&dead, "engine_docker::clean_spares_live_runs_and_foreign_containers");
    let foreign = format!("foreign-{dead}");
    foreign_container(&engine, &client, &foreign).await;
    let network = format!("midflush-{dead}");
    let request = NetworkConnectRequest { container: foreign.clone(), ..NetworkConnectRequest::default() };
    client.connect_network(&network, request).await.expect("connected");
    client.start_container(&foreign, None).await.expect("started");
    let all = kinds(&[("container", 2), ("network", 1), ("volume", 2)], OwnerState::Dead);
    assert_eq!(found(&engine, &dead).await, all);

    let report = clean(&["--engine", "docker"]);
    assert!(report.failed.contains(&foreign), "what keeps the network is told: {}", report.failed);
    assert_eq!(found(&engine, &dead).await, kinds(&[("network", 1)], OwnerState::Dead));
    let report = clean(&["--engine", "docker", "--force"]);
    assert_eq!(report.removed.iter().filter(|run| **run == dead).count(), 1, "{:?}", report.removed);
    assert!(!report.removed.contains(&live));
    assert_eq!(found(&engine, &dead).await, []);
    greet(&engine, &live, "a").await;
    let state = client.inspect_container(&foreign, None).await.expect("still there").state.expect("a state");
    assert_eq!(state.running, Some(true), "the foreign container runs on");
    remove_foreign(&client, &foreign).await;
    engine.remove(&live).await.expect("removed");
}

/// A container without a label of ours, of an image that is not ours either. It runs an agent that nobody asks. Its image
/// goes with it.
async fn foreign_container(engine: &DockerEngine, client: &Docker, name: &str) {
    let image = format!("midflush-test-foreign:{name}");
    engine.load_local_image(&image).await.expect("an image");
    let arguments = ["agent", "--listen", "127.0.0.1:26650", "--home", "/tmp/h", "--run", "x", "--node", "x"];
    let body = ContainerCreateBody {
        image: Some(image),
        cmd: Some(arguments.map(str::to_owned).to_vec()),
        env: Some(vec!["MIDFLUSH_TOKEN=unused".to_owned()]),
        ..ContainerCreateBody::default()
    };
    let options = CreateContainerOptionsBuilder::default().name(name).build();
    client.create_container(Some(options), body).await.expect("a foreign container");
}

async fn remove_foreign(client: &Docker, name: &str) {
    let options = RemoveContainerOptionsBuilder::default().force(true).v(true).build();
    client.remove_container(name, Some(options)).await.expect("removed");
    let image = format!("midflush-test-foreign:{name}");
    client.remove_image(&image, None::<RemoveImageOptions>, None).await.expect("its image removed");
}

#[tokio::test]
async fn a_launch_that_is_given_up_half_way_leaves_nothing() {
    let Some((engine, _)) = docker().await else { return };
    engine.prepare(&[Build::Own]).await.expect("made ready");
    for after_ms in [20, 150, 400, 900] {
        let run = run_id(&format!("docker-given-up-{after_ms}"));
        let wanted = launch(&run, Build::Own, &["a", "b", "c", "d", "e", "f", "g", "h"]);
        let given_up = tokio::time::timeout(std::time::Duration::from_millis(after_ms), engine.launch(&wanted)).await;
        engine.remove(&run).await.expect("removed");
        assert_eq!(found(&engine, &run).await, [], "given up after {after_ms} ms: {}", given_up.is_err());
    }
}

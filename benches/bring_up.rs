//! How long the Docker engine takes to bring up a run, against creating and starting the very same containers with the
//! same client, as many at once, on the same kind of network: the ratio is what the engine adds.
//!
//! `cargo bench --bench bring-up -- [NODES] [ROUNDS]`; needs Docker. Rounds are interleaved, the median counts.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use bollard::Docker;
use bollard::models::{ContainerCreateBody, ContainerInspectResponse, EndpointSettings, NetworkCreateRequest};
use bollard::models::{EndpointIpamConfig, NetworkingConfig};
use bollard::query_parameters::{CreateContainerOptionsBuilder, RemoveContainerOptionsBuilder, RemoveVolumeOptions};
use futures_util::StreamExt;
use midflush::engine::docker::DockerEngine;
use midflush::engine::{Build, Engine, Launch, LaunchNode};

/// As many as the engine has under way.
const IN_FLIGHT: usize = 6;
/// What the ratio may be at most.
const GOAL: f64 = 1.25;

/// A run's containers as the engine made them, to be made again by hand.
struct Copy {
    network: NetworkCreateRequest,
    containers: BTreeMap<String, ContainerCreateBody>,
}

fn main() {
    let numbers: Vec<usize> = std::env::args().skip(1).filter_map(|argument| argument.parse().ok()).collect();
    let nodes = numbers.first().copied().unwrap_or(50);
    let rounds = numbers.get(1).copied().unwrap_or(3);
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().expect("a runtime");
    runtime.block_on(compare(nodes, rounds));
}

async fn compare(nodes: usize, rounds: usize) {
    let engine = DockerEngine::connect(None, env!("CARGO_BIN_EXE_midflush").into()).await.expect("Docker");
    let client = Docker::connect_with_defaults().expect("Docker").with_timeout(Duration::from_secs(180));
    println!("{} nodes, {IN_FLIGHT} requests at once, {rounds} rounds; {}", nodes, engine.about());
    engine.prepare(&[Build::Own]).await.expect("the node image");
    let mut ratios = Vec::new();
    for round in 1..=rounds {
        let run = format!("bring-up-{}-{round}", std::process::id());
        let names: Vec<String> = (0..nodes).map(|index| format!("n{index}")).collect();
        let node = |name: &String| LaunchNode { name: name.clone(), build: Build::Own };
        let launch = Launch { run: run.clone(), token: "bench".to_owned(), nodes: names.iter().map(node).collect() };
        let start = Instant::now();
        engine.launch(&launch).await.expect("launched");
        let ours = start.elapsed();
        let copy = copy(&client, &run, &names).await;
        engine.remove(&run).await.expect("removed");
        let by_hand = by_hand(&client, copy).await;
        let ratio = ours.as_secs_f64() / by_hand.as_secs_f64();
        ratios.push(ratio);
        println!(
            "round {round}: engine {:.2} s until every agent answers, by hand {:.2} s until running, ratio {ratio:.3}",
            ours.as_secs_f64(),
            by_hand.as_secs_f64()
        );
    }
    ratios.sort_by(f64::total_cmp);
    let median = ratios[ratios.len() / 2];
    println!("median ratio {median:.3}, at most {GOAL} wanted: {}", if median <= GOAL { "met" } else { "missed" });
}

/// Reads back how the engine made its containers.
async fn copy(client: &Docker, run: &str, names: &[String]) -> Copy {
    let name = format!("midflush-{run}");
    let network = client.inspect_network(&name, None).await.expect("the network");
    let network = NetworkCreateRequest { name, driver: network.driver, ipam: network.ipam, ..Default::default() };
    let mut containers = BTreeMap::new();
    for node in names {
        let name = format!("midflush-{run}-{node}");
        let made = client.inspect_container(&name, None).await.expect("a container");
        containers.insert(name, body(&network.name, made));
    }
    Copy { network, containers }
}

fn body(network: &str, made: ContainerInspectResponse) -> ContainerCreateBody {
    let config = made.config.expect("its configuration");
    let ip = made.network_settings.and_then(|settings| settings.networks).and_then(|mut of| of.remove(network));
    let address = EndpointIpamConfig { ipv4_address: ip.and_then(|of| of.ip_address), ..Default::default() };
    let endpoint = EndpointSettings { ipam_config: Some(address), ..Default::default() };
    ContainerCreateBody {
        image: config.image,
        hostname: config.hostname,
        user: config.user,
        entrypoint: config.entrypoint,
        cmd: config.cmd,
        env: config.env,
        exposed_ports: config.exposed_ports,
        labels: config.labels,
        host_config: made.host_config,
        networking_config: Some(NetworkingConfig {
            endpoints_config: Some([(network.to_owned(), endpoint)].into_iter().collect()),
        }),
        ..Default::default()
    }
}

/// Creates and starts them; running is what the engine's answer to a start says. Then removes everything.
async fn by_hand(client: &Docker, copy: Copy) -> Duration {
    let network = copy.network.name.clone();
    let names: Vec<String> = copy.containers.keys().cloned().collect();
    let start = Instant::now();
    client.create_network(copy.network).await.expect("a network");
    let starts = copy.containers.into_iter().map(|(name, body)| async move {
        let options = CreateContainerOptionsBuilder::default().name(&name).build();
        client.create_container(Some(options), body).await.expect("created");
        client.start_container(&name, None).await.expect("started");
    });
    futures_util::stream::iter(starts).buffer_unordered(IN_FLIGHT).collect::<Vec<()>>().await;
    let taken = start.elapsed();
    let removals = names.into_iter().map(|name| async move {
        let options = RemoveContainerOptionsBuilder::default().force(true).v(true).build();
        client.remove_container(&name, Some(options)).await.expect("removed");
        client.remove_volume(&name, None::<RemoveVolumeOptions>).await.expect("its volume removed");
    });
    futures_util::stream::iter(removals).buffer_unordered(IN_FLIGHT).collect::<Vec<()>>().await;
    client.remove_network(&network).await.expect("the network removed");
    taken
}

//! How long the Docker engine takes to bring up a run, against creating and starting the very same containers with the
//! same client, as many at once, on the same kind of network: the ratio is what the engine adds. And how long a whole
//! `midflush run` takes until every reference node's process runs, plan, files and network included.
//!
//! `cargo bench --bench bring-up -- [NODES] [ROUNDS]`; needs Docker. Rounds are interleaved, the medians count.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader};
use std::process::{Command, Stdio};
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
    let (mut ratios, mut run_ratios) = (Vec::new(), Vec::new());
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
        let by_hand = by_hand(&client, copy).await.as_secs_f64();
        let whole = whole_run(nodes).as_secs_f64();
        let ours = ours.as_secs_f64();
        ratios.push(ours / by_hand);
        run_ratios.push(whole / by_hand);
        println!(
            "round {round}: by hand {by_hand:.2} s until running; engine {ours:.2} s until every agent answers, ratio {:.3}; \
             whole run {whole:.2} s until every node runs, ratio {:.3}",
            ours / by_hand,
            whole / by_hand
        );
    }
    tell("engine", ratios);
    tell("whole run", run_ratios);
}

fn tell(what: &str, mut ratios: Vec<f64>) {
    ratios.sort_by(f64::total_cmp);
    let median = ratios[ratios.len() / 2];
    println!(
        "{what}: median ratio {median:.3}, at most {GOAL} wanted: {}",
        if median <= GOAL { "met" } else { "missed" }
    );
}

/// Time from the start of `midflush run` until it has told the start of every node; then the run is interrupted.
fn whole_run(nodes: usize) -> Duration {
    let folder = tempfile::tempdir().expect("a folder");
    let topology = folder.path().join("bring-up.yaml");
    let full = nodes.saturating_sub(4);
    let text = format!(
        "midflush: 1\nname: bring-up\nchain:\n  reference: {{ block_time: 2s }}\nnodes:\n  val: {{ role: validator, count: 4, \
         watch: none }}\n  full: {{ role: full, count: {full}, watch: none }}\nload: {{ rate: 1/s }}\n"
    );
    std::fs::write(&topology, text).expect("a topology");
    let start = Instant::now();
    let mut run = Command::new(env!("CARGO_BIN_EXE_midflush"))
        .args(["run", "--json", "--engine", "docker", "--results"])
        .arg(folder.path().join("results"))
        .arg(topology)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a run");
    let mut lines = BufReader::new(run.stderr.take().expect("its messages")).lines().map_while(Result::ok);
    let started = lines.by_ref().filter(|line| line.contains(": start 1")).take(nodes).count();
    let taken = start.elapsed();
    assert_eq!(started, nodes, "the run ended before all its nodes ran");
    rustix::process::kill_process(rustix::process::Pid::from_child(&run), rustix::process::Signal::INT)
        .expect("a signal");
    lines.for_each(drop);
    run.wait().expect("its end");
    taken
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

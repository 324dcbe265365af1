//! The `docker` engine: one container a node with the agent as its first process, on a network of the run's own, its data
//! in a labelled volume.
//!
//! * [`endpoint`] finds the engine and says whether agents can work there,
//! * [`archive`] and [`image`] make images with the agent in them,
//! * [`network`] and [`container`] bring a run up, [`published`] says where its agents are,
//! * [`sweep`] finds and removes what is labelled.

mod archive;
mod container;
mod endpoint;
mod image;
mod network;
mod published;
mod sweep;

use std::collections::{BTreeMap, BTreeSet};
use std::future::Future;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use self::container::{AGENT_PORT, Wanted};
use self::endpoint::Endpoint;
use self::image::Ready;
use self::network::{NODES_MAX, Subnet};
use super::owner::{LABEL_NODE, LABEL_OWNER, LABEL_RUN, Owner};
use super::{
    Binding, Build, ByteStream, Capabilities, Engine, EngineError, Found, Launch, NodeBinding, Prepared, check_names,
    probe,
};

const NAME: &str = "docker";
/// Requests that are under way at once. Starts take as long all the same, but more of them only make each one late.
const IN_FLIGHT: usize = 6;
/// How long one attempt to reach an agent may take, an answer included.
const DIAL_TIMEOUT: Duration = Duration::from_secs(3);
/// How long an agent may take from its container's start until it answers.
const READY_WAIT: Duration = Duration::from_secs(30);
/// Pause between two attempts.
const POLL: Duration = Duration::from_millis(20);

/// Runs agents in containers.
pub struct DockerEngine {
    endpoint: Endpoint,
    own: PathBuf,
    detach_foreign: bool,
    ready: Mutex<BTreeMap<Build, Ready>>,
    /// By run and node: addresses to dial, the best first.
    routes: Mutex<BTreeMap<(String, String), Vec<String>>>,
    /// By run and node: what its container was made from.
    launched: Mutex<BTreeMap<(String, String), Wanted>>,
    /// By run: names of what was asked for and not yet answered. A launch that is dropped leaves them here.
    unanswered: Mutex<BTreeMap<String, BTreeSet<String>>>,
}

impl DockerEngine {
    /// Connects to the engine named by `host`, else by `DOCKER_HOST`, else to the first known socket that answers. `own` is
    /// the Linux midflush binary that becomes the agent.
    ///
    /// # Errors
    /// None answers; the error says what was tried.
    pub async fn connect(host: Option<&str>, own: PathBuf) -> Result<Self, EngineError> {
        let endpoint = endpoint::connect(host).await?;
        Ok(Self {
            endpoint,
            own,
            detach_foreign: false,
            ready: Mutex::default(),
            routes: Mutex::default(),
            launched: Mutex::default(),
            unanswered: Mutex::default(),
        })
    }

    /// Whether [`Engine::remove`] takes containers of somebody else off a run's network. It does not unless told to.
    #[must_use]
    pub fn detach_foreign(mut self, detach: bool) -> Self {
        self.detach_foreign = detach;
        self
    }

    /// Version and place of the engine, for people.
    pub fn about(&self) -> String {
        format!("{} at {}", self.endpoint.about, self.endpoint.url)
    }

    /// Whether agents can work there: the system, its kernel, and a binary that fits.
    ///
    /// # Errors
    /// They cannot; the error says why and what to do.
    pub fn check(&self) -> Result<(), EngineError> {
        if let Some(why) = &self.endpoint.unsupported {
            return Err(EngineError::new(format!("use {}: {why}", self.about())).mend("use `--engine process`"));
        }
        image::check_static(&self.own, self.endpoint.machine, "midflush's own binary")
    }

    /// Makes the image that serves the dashboard from this binary alone and tags it; tells its id.
    ///
    /// # Errors
    /// The binary is not static, or the engine refuses the image.
    pub async fn load_local_image(&self, tag: &str) -> Result<String, EngineError> {
        image::load_local(&self.endpoint, &self.own, tag).await
    }

    /// Removes images that [`Engine::prepare`] made and no container uses. Tells the tags that went, and what failed as
    /// fragments that read after "failed to".
    ///
    /// # Errors
    /// The images cannot be listed.
    pub async fn remove_images(&self) -> Result<(Vec<String>, Vec<String>), EngineError> {
        sweep::remove_images(&self.endpoint).await
    }

    async fn bring_up(&self, launch: &Launch) -> Result<Binding, EngineError> {
        let owner = Owner::this().label();
        let labels = vec![(LABEL_RUN.to_owned(), launch.run.clone()), (LABEL_OWNER.to_owned(), owner)];
        let network = network_name(&launch.run);
        let creation = network::create(&self.endpoint, &network, &launch.run, &labels);
        let subnet = self.answered(&launch.run, &network, creation).await?;
        let wanted = self.wanted(launch, &network, subnet, &labels)?;
        let given_up = AtomicBool::new(false);
        let given_up = &given_up;
        let starts = wanted.into_iter().map(|(wanted, ready)| async move {
            if given_up.load(Ordering::Relaxed) {
                return None;
            }
            let started = self.bring_up_one(&wanted, &ready).await;
            given_up.fetch_or(started.is_err(), Ordering::Relaxed);
            Some(started)
        });
        // Requests under way are waited for also after an error: one that is dropped may yet make its container, after all
        // others were removed.
        let started: Vec<_> = futures_util::stream::iter(starts).buffer_unordered(IN_FLIGHT).collect().await;
        let nodes = started.into_iter().flatten().collect::<Result<_, EngineError>>()?;
        Ok(Binding { engine: NAME.to_owned(), nodes })
    }

    async fn bring_up_one(&self, wanted: &Wanted, ready: &Ready) -> Result<(String, NodeBinding), EngineError> {
        lock(&self.launched).insert((wanted.run.clone(), wanted.node.clone()), wanted.clone());
        self.start_one(wanted).await?;
        Ok((wanted.node.clone(), node_binding(wanted, ready)))
    }

    /// Makes a container and waits until its agent answers.
    async fn start_one(&self, wanted: &Wanted) -> Result<(), EngineError> {
        self.answered(&wanted.run, &wanted.name, container::create(&self.endpoint, wanted)).await?;
        let published = container::start(&self.endpoint, wanted).await?;
        self.keep_routes(wanted, published.address);
        self.wait_ready(&wanted.run, &wanted.node).await
    }

    /// Makes a request that creates something, and remembers its name for as long as no answer came.
    async fn answered<T>(&self, run: &str, name: &str, request: impl Future<Output = T>) -> T {
        lock(&self.unanswered).entry(run.to_owned()).or_default().insert(name.to_owned());
        let answer = request.await;
        if let Some(names) = lock(&self.unanswered).get_mut(run) {
            names.remove(name);
        }
        answer
    }

    fn wanted(
        &self,
        launch: &Launch,
        network: &str,
        subnet: Subnet,
        labels: &[(String, String)],
    ) -> Result<Vec<(Wanted, Ready)>, EngineError> {
        let ready = lock(&self.ready);
        let one = |(index, node): (usize, &super::LaunchNode)| {
            let ready = ready.get(&node.build).cloned().ok_or_else(|| {
                EngineError::new(format!("launch {}: its build was not made ready before", node.name))
            })?;
            let mut labels = labels.to_vec();
            labels.push((LABEL_NODE.to_owned(), node.name.clone()));
            let wanted = Wanted {
                name: container_name(&launch.run, &node.name),
                run: launch.run.clone(),
                node: node.name.clone(),
                image: ready.image.clone(),
                network: network.to_owned(),
                ip: subnet.node(index),
                token: launch.token.clone(),
                labels,
            };
            Ok((wanted, ready))
        };
        launch.nodes.iter().enumerate().map(one).collect()
    }

    /// Enters where an agent may be reached. On this Linux machine the bridge is dialled directly, which saves a proxy; the
    /// published port is for engines in a virtual machine and for another host.
    fn keep_routes(&self, wanted: &Wanted, published: String) {
        let mut routes = Vec::new();
        if cfg!(target_os = "linux") && self.endpoint.remote_host().is_none() {
            routes.push(format!("{}:{AGENT_PORT}", wanted.ip));
        }
        routes.push(published);
        lock(&self.routes).insert((wanted.run.clone(), wanted.node.clone()), routes);
    }

    async fn wait_ready(&self, run: &str, node: &str) -> Result<(), EngineError> {
        let deadline = Instant::now() + READY_WAIT;
        let name = container_name(run, node);
        loop {
            let error = match self.first_that_answers(run, node).await {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            if container::is_running(&self.endpoint, &name).await != Some(true) {
                return Err(EngineError::new(format!("start the agent of {node}: its container ended")));
            }
            if Instant::now() >= deadline {
                return Err(error);
            }
            sleep(POLL).await;
        }
    }

    /// Finds the route on which the agent answers first and puts it in front.
    async fn first_that_answers(&self, run: &str, node: &str) -> Result<(), EngineError> {
        let key = (run.to_owned(), node.to_owned());
        let routes = lock(&self.routes).get(&key).cloned().unwrap_or_default();
        let mut attempts: FuturesUnordered<_> = routes.iter().enumerate().map(attempt).collect();
        while let Some((index, answered)) = attempts.next().await {
            if answered {
                if let Some(known) = lock(&self.routes).get_mut(&key) {
                    known.swap(0, index);
                }
                return Ok(());
            }
        }
        drop(attempts);
        let failed = EngineError::new(format!("reach the agent of {node} at {}", routes.join(" or ")));
        Err(match self.endpoint.remote_host() {
            Some(host) => failed.mend(format!(
                "agents are published on the loopback address of {host} only: run midflush there, or forward its socket \
                 and ports with ssh"
            )),
            None => failed,
        })
    }

    /// What the containers that ended, or else the first one, printed.
    async fn evidence(&self, run: &str, nodes: &[&str]) -> String {
        let mut shown = Vec::new();
        for node in nodes {
            let name = container_name(run, node);
            if container::is_running(&self.endpoint, &name).await != Some(false) {
                continue;
            }
            let text = container::logs(&self.endpoint, &name).await.unwrap_or_default();
            if !text.trim().is_empty() {
                shown.push(format!("{node} printed:\n{}", text.trim_end()));
            }
            // The rest will have died of the same.
            if shown.len() == 3 {
                break;
            }
        }
        shown.join("\n")
    }
}

/// Makes the archive of the local image for `docker load`, without an engine.
///
/// # Errors
/// The binary is not static or cannot be read.
pub fn local_image_archive(own: &Path, tag: &str) -> Result<Vec<u8>, EngineError> {
    image::local_archive(own, tag)
}

#[async_trait::async_trait]
impl Engine for DockerEngine {
    fn capabilities(&self) -> Capabilities {
        let machine = self.endpoint.machine;
        Capabilities { name: NAME.to_owned(), nodes_max: NODES_MAX, images: true, binaries: true, machine }
    }

    async fn prepare(&self, builds: &[Build]) -> Result<BTreeMap<Build, Prepared>, EngineError> {
        self.check()?;
        let mut prepared = BTreeMap::new();
        for build in builds {
            let ready = image::prepare(&self.endpoint, &self.own, build).await?;
            prepared.insert(build.clone(), ready.prepared.clone());
            lock(&self.ready).insert(build.clone(), ready);
        }
        Ok(prepared)
    }

    async fn launch(&self, launch: &Launch) -> Result<Binding, EngineError> {
        check_names(launch, NODES_MAX)?;
        if !sweep::list(&self.endpoint, Some(&launch.run)).await?.is_empty() {
            return Err(EngineError::new(format!("start run {}: things of a run with this id exist", launch.run))
                .mend("choose another run id or run `midflush clean`"));
        }
        match self.bring_up(launch).await {
            Ok(binding) => Ok(binding),
            Err(mut error) => {
                let nodes: Vec<&str> = launch.nodes.iter().map(|node| node.name.as_str()).collect();
                let evidence = self.evidence(&launch.run, &nodes).await;
                if !evidence.is_empty() {
                    error.what = format!("{} ({evidence})", error.what);
                }
                if let Err(left) = self.remove(&launch.run).await {
                    error.what = format!("{} (and then failed to {left})", error.what);
                }
                Err(error)
            }
        }
    }

    /// A container holds one build, so that another one takes its place: with the same name, address, token and volume.
    async fn change_build(&self, run: &str, node: &str, build: &Build) -> Result<bool, EngineError> {
        let key = (run.to_owned(), node.to_owned());
        let before = lock(&self.launched).get(&key).cloned();
        let before = before
            .ok_or_else(|| EngineError::new(format!("change the build of {node}: run {run} was not launched here")))?;
        let image = lock(&self.ready).get(build).map(|ready| ready.image.clone());
        let image = image
            .ok_or_else(|| EngineError::new(format!("change the build of {node}: it was not made ready before")))?;
        let wanted = Wanted { image, ..before };
        container::remove(&self.endpoint, &wanted).await?;
        lock(&self.launched).insert(key, wanted.clone());
        if let Err(mut error) = self.start_one(&wanted).await {
            let evidence = self.evidence(run, &[node]).await;
            if !evidence.is_empty() {
                error.what = format!("{} ({evidence})", error.what);
            }
            return Err(error);
        }
        Ok(true)
    }

    async fn dial(&self, run: &str, node: &str) -> Result<Box<dyn ByteStream>, EngineError> {
        let key = (run.to_owned(), node.to_owned());
        let route = lock(&self.routes).get(&key).and_then(|routes| routes.first().cloned());
        let route = route
            .ok_or_else(|| EngineError::new(format!("dial the agent of {node}: run {run} was not launched here")))?;
        let failed = || EngineError::new(format!("dial the agent of {node} at {route}"));
        match timeout(DIAL_TIMEOUT, TcpStream::connect(&route)).await {
            Ok(Ok(stream)) => {
                // Requests are small and answered one by one.
                stream.set_nodelay(true).map_err(|e| failed().because(e))?;
                Ok(Box::new(stream))
            }
            Ok(Err(e)) => Err(failed().because(e)),
            Err(e) => Err(failed().because(e)),
        }
    }

    async fn logs(&self, run: &str, node: &str) -> Result<String, EngineError> {
        container::logs(&self.endpoint, &container_name(run, node)).await
    }

    async fn list(&self) -> Result<Vec<Found>, EngineError> {
        sweep::list(&self.endpoint, None).await
    }

    async fn remove(&self, run: &str) -> Result<Vec<Found>, EngineError> {
        lock(&self.routes).retain(|(of_run, _), _| of_run != run);
        lock(&self.launched).retain(|(of_run, _), _| of_run != run);
        let unanswered = lock(&self.unanswered).remove(run).unwrap_or_default();
        let (removed, left) = sweep::remove(&self.endpoint, run, self.detach_foreign, unanswered).await?;
        if left.is_empty() {
            return Ok(removed);
        }
        Err(EngineError::new(format!("remove all of run {run}: {}", left.join(", ")))
            .mend("run `midflush clean` later"))
    }
}

/// Whether an agent answers at an address, with the address's position.
async fn attempt((index, route): (usize, &String)) -> (usize, bool) {
    let answers = async {
        let Ok(stream) = TcpStream::connect(route).await else { return false };
        probe::answers(stream).await
    };
    (index, timeout(DIAL_TIMEOUT, answers).await == Ok(true))
}

fn node_binding(wanted: &Wanted, ready: &Ready) -> NodeBinding {
    NodeBinding {
        ip: wanted.ip.into(),
        p2p_port: 26656,
        rpc_port: 26657,
        metrics_port: 26660,
        home: PathBuf::from(container::home()),
        program: ready.prepared.program.clone(),
        env: ready.prepared.env.clone(),
        place: format!("container {}", wanted.name),
    }
}

fn network_name(run: &str) -> String {
    format!("midflush-{run}")
}

fn container_name(run: &str, node: &str) -> String {
    format!("midflush-{run}-{node}")
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing is half done under these locks, so what a panicking holder left is sound.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

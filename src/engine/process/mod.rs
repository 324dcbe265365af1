//! The `process` engine: agents as plain processes of this user, each node on a loopback address of its own. Needs no
//! privilege and no other program.
//!
//! * [`loopback`] finds and holds a block of addresses,
//! * [`folder`] makes the folders, labelled with their owner,
//! * [`launch`] starts agents and waits for them,
//! * [`table`] finds and ends processes, also those of dead controllers.

mod folder;
mod launch;
mod loopback;
mod table;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::net::TcpStream;
use tokio::time::timeout;

use self::folder::Base;
use self::launch::Waiting;
use self::loopback::{Block, NODES_MAX};
use super::binary::{self, Machine};
use super::libraries::{self, Libraries};
use super::{
    Binding, Build, ByteStream, Capabilities, Engine, EngineError, Found, Launch, NodeBinding, OwnerState, Prepared,
    check_names,
};

/// Runs agents as processes of this machine.
pub struct ProcessEngine {
    own: PathBuf,
    base: Base,
    prepared: Mutex<BTreeMap<Build, Prepared>>,
    runs: Arc<Mutex<BTreeMap<String, LiveRun>>>,
}

/// A run that this process launched, or is launching.
struct LiveRun {
    addresses: BTreeMap<String, SocketAddr>,
    children: BTreeMap<String, Child>,
    _block: Block,
}

impl ProcessEngine {
    /// An engine whose agents, and reference nodes, are the midflush binary at `own`.
    pub fn new(own: PathBuf) -> Self {
        Self { own, base: Base::usual(), prepared: Mutex::default(), runs: Arc::default() }
    }

    async fn launch_all(&self, launch: &Launch, block: Block) -> Result<Binding, EngineError> {
        let names: Vec<String> = launch.nodes.iter().map(|node| node.name.clone()).collect();
        let folder = self.base.create(&launch.run, &names, &launch.token)?;
        let ports = block.ports;
        let mut binding = Binding { engine: NAME.to_owned(), nodes: BTreeMap::new() };
        let mut agents = Vec::with_capacity(names.len());
        for (index, node) in launch.nodes.iter().enumerate() {
            let ip = block.address(index);
            let folder = folder.join(&node.name);
            let Prepared { program, env, .. } = lock(&self.prepared).get(&node.build).cloned().ok_or_else(|| {
                EngineError::new(format!("launch {}: its build was not made ready before", node.name))
            })?;
            let bound = NodeBinding {
                ip: ip.into(),
                p2p_port: ports.p2p,
                rpc_port: ports.rpc,
                metrics_port: ports.metrics,
                home: folder.join("home"),
                program,
                env,
                place: ip.to_string(),
            };
            binding.nodes.insert(node.name.clone(), bound);
            agents.push(Waiting { name: node.name.clone(), address: (ip, ports.agent).into(), folder });
        }
        let live = LiveRun { addresses: BTreeMap::new(), children: BTreeMap::new(), _block: block };
        lock(&self.runs).insert(launch.run.clone(), live);
        self.start(&launch.run, &agents).await?;
        Ok(binding)
    }

    /// Starts the agents, then waits for them all. Each is entered as soon as it runs, so that a launch that is given up
    /// half way can be removed.
    async fn start(&self, run: &str, agents: &[Waiting]) -> Result<(), EngineError> {
        for agent in agents {
            let child = launch::spawn(&self.own, run, agent)?;
            if let Some(live) = lock(&self.runs).get_mut(run) {
                live.addresses.insert(agent.name.clone(), agent.address);
                live.children.insert(agent.name.clone(), child);
            }
            tokio::task::yield_now().await;
        }
        let deadline = launch::ready_deadline(agents.len());
        for agent in agents {
            launch::wait_ready(agent, deadline, || self.exit_status(run, &agent.name)).await?;
        }
        Ok(())
    }

    fn exit_status(&self, run: &str, node: &str) -> Option<ExitStatus> {
        lock(&self.runs).get_mut(run)?.children.get_mut(node)?.try_wait().ok()?
    }
}

const NAME: &str = "process";
/// Looks at what there is of a run until nothing more is found.
const LOOKS: usize = 4;

#[async_trait::async_trait]
impl Engine for ProcessEngine {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            name: NAME.to_owned(),
            nodes_max: NODES_MAX,
            images: false,
            binaries: true,
            machine: Machine::here(),
        }
    }

    async fn prepare(&self, builds: &[Build]) -> Result<BTreeMap<Build, Prepared>, EngineError> {
        let mut ready = BTreeMap::new();
        for build in builds {
            let (own, wanted) = (self.own.clone(), build.clone());
            let prepared = blocking(move || prepare_one(&own, &wanted)).await??;
            lock(&self.prepared).insert(build.clone(), prepared.clone());
            ready.insert(build.clone(), prepared);
        }
        Ok(ready)
    }

    async fn launch(&self, launch: &Launch) -> Result<Binding, EngineError> {
        check_names(launch, NODES_MAX)?;
        let (run, nodes) = (launch.run.clone(), launch.nodes.len());
        let block = blocking(move || Block::reserve(&run, nodes)).await??;
        let existed = self.base.run(&launch.run).exists();
        match self.launch_all(launch, block).await {
            Ok(binding) => Ok(binding),
            // A folder that was there before belongs to another run with this id.
            Err(error) if existed => Err(error),
            Err(mut error) => {
                if let Err(left) = self.remove(&launch.run).await {
                    error.what = format!("{} (and then failed to {left})", error.what);
                }
                Err(error)
            }
        }
    }

    /// An agent starts any program of its machine.
    async fn change_build(&self, _run: &str, _node: &str, _build: &Build) -> Result<bool, EngineError> {
        Ok(false)
    }

    async fn dial(&self, run: &str, node: &str) -> Result<Box<dyn ByteStream>, EngineError> {
        let address = lock(&self.runs).get(run).and_then(|live| live.addresses.get(node).copied());
        let address = address
            .ok_or_else(|| EngineError::new(format!("dial the agent of {node}: run {run} was not launched here")))?;
        let failed = || EngineError::new(format!("dial the agent of {node} at {address}"));
        match timeout(launch::DIAL_TIMEOUT, TcpStream::connect(address)).await {
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
        let folder = self.base.run(run).join(node);
        blocking(move || launch::read_log(&folder))
            .await?
            .map_err(|e| EngineError::new(format!("read what the agent of {node} printed")).because(e))
    }

    async fn list(&self) -> Result<Vec<Found>, EngineError> {
        let base = self.base.clone();
        blocking(move || {
            let processes = table::list(&base);
            let folders = base.list();
            let found = |kind: &str, id, run, owner: OwnerState| Found {
                kind: kind.to_owned(),
                id,
                run: Some(run),
                owner,
                foreign: Vec::new(),
            };
            let processes = processes.into_iter().map(|p| found("process", p.pid.to_string(), p.run, p.owner));
            let folders = folders.into_iter().map(|(path, run, owner)| found("folder", shown(&path), run, owner));
            processes.chain(folders).collect()
        })
        .await
    }

    async fn remove(&self, run: &str) -> Result<Vec<Found>, EngineError> {
        let (base, runs, run_id) = (self.base.clone(), Arc::clone(&self.runs), run.to_owned());
        let (removed, left) = blocking(move || remove_run(&base, &runs, &run_id)).await?;
        if left.is_empty() {
            return Ok(removed);
        }
        Err(EngineError::new(format!("remove all of run {run}: {}", left.join(", ")))
            .mend("run `midflush clean` later, or end them by hand"))
    }
}

fn prepare_one(own: &Path, build: &Build) -> Result<Prepared, EngineError> {
    let path = match build {
        Build::Own => own.to_owned(),
        Build::Binary { path } => path.clone(),
        Build::Image { reference } => {
            return Err(EngineError::new(format!("run the image {reference} as a plain process"))
                .mend("use `--engine docker`, or give a binary in place of the image"));
        }
    };
    let elf = binary::check(&path, Machine::here())?;
    let digest = binary::digest(&path)?;
    // A node gets nothing of this environment but what its loader needs.
    let env = match Libraries::of(&path, elf)? {
        Some(_) => std::env::var(libraries::VARIABLE).ok().map(|value| (libraries::VARIABLE.to_owned(), value)),
        None => None,
    };
    Ok(Prepared { program: vec![shown(&path)], digest, env: env.into_iter().collect() })
}

/// Ends a run's processes and removes its folders, until a look finds nothing more; tells what went and what did not.
fn remove_run(base: &Base, runs: &Mutex<BTreeMap<String, LiveRun>>, run: &str) -> (Vec<Found>, Vec<String>) {
    let mut live = lock(runs).remove(run);
    let mut reap = || {
        for child in live.iter_mut().flat_map(|live| live.children.values_mut()) {
            child.try_wait().ok();
        }
    };
    let mut removed = Vec::new();
    let mut left = Vec::new();
    // A second look finds nodes that lost their agent in the first, and agents that a killed controller had forked and
    // that had not come to life by then.
    for _ in 0..LOOKS {
        let found = remove_found(base, run, &mut reap);
        left = found.1;
        let nothing_more = found.0.is_empty();
        removed.extend(found.0);
        if nothing_more {
            break;
        }
    }
    (removed, left)
}

/// One look: what went, and what did not.
fn remove_found(base: &Base, run: &str, reap: &mut impl FnMut()) -> (Vec<Found>, Vec<String>) {
    let processes: Vec<_> = table::list(base).into_iter().filter(|process| process.run == run).collect();
    let stubborn = table::end(&processes, table::GRACE, reap);
    let gone = |kind: &str, id, owner| {
        let (kind, run) = (kind.to_owned(), Some(run.to_owned()));
        Found { kind, id, run, owner, foreign: Vec::new() }
    };
    let mut removed = Vec::new();
    let mut left = Vec::new();
    for process in processes {
        let id = process.pid.to_string();
        if stubborn.contains(&process) {
            left.push(format!("process {id} does not end"));
        } else {
            removed.push(gone("process", id, process.owner));
        }
    }
    for (path, _, owner) in base.list().into_iter().filter(|(_, name, _)| name == run) {
        match launch::remove_folder(&path) {
            Ok(()) => removed.push(gone("folder", shown(&path), owner)),
            Err(e) => left.push(format!("folder {}: {e}", shown(&path))),
        }
    }
    (removed, left)
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing is half done under these locks, so what a panicking holder left is sound.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn blocking<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> Result<T, EngineError> {
    tokio::task::spawn_blocking(work).await.map_err(|e| EngineError::new("finish work on another thread").because(e))
}

//! The phases of one experiment, in order, and the clean-up that follows however it ends.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::{mpsc, oneshot};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::dispatcher::{Dispatcher, Observer, Told, Witness};
use super::settle::Settled;
use super::testnet::{Grounds, Testnet};
use super::unit::{ORDERS, Order};
use super::{RunError, collect, fixture, made, setup};
use crate::chain::{self, Chain, Made};
use crate::engine::{Build, Engine, Prepared};
use crate::plan::Plan;
use crate::plan::reach::HEIGHT_WAIT;
use crate::results::RunFolder;
use crate::timeline::{Event, RunStarted, VERSION};

/// How long the final reading of hashes may take.
const COLLECT_MAX: Duration = Duration::from_secs(60);

/// The same after the user has asked to stop.
const COLLECT_MAX_INTERRUPTED: Duration = Duration::from_secs(2);

/// How long nodes may take to end after SIGTERM at the end of a run.
const END_MAX: Duration = Duration::from_secs(10);

/// The same after the user has asked to stop.
const END_MAX_INTERRUPTED: Duration = Duration::from_secs(2);

/// How long the removal of everything may take.
const REMOVE_MAX: Duration = Duration::from_secs(60);
/// The same after Ctrl-C. A few nodes are gone within three seconds, so that all is done in ten; fifty containers on a busy
/// machine take longer, and to leave them behind would be worse. Who cannot wait presses Ctrl-C again.
const REMOVE_MAX_INTERRUPTED: Duration = Duration::from_secs(45);

/// One experiment, ready to be carried out.
pub struct Experiment {
    /// What to do.
    pub plan: Arc<Plan>,
    /// The node family.
    pub chain: Arc<dyn Chain>,
    /// What runs the nodes.
    pub engine: Arc<dyn Engine>,
    /// Where the results go.
    pub folder: Arc<RunFolder>,
    /// What only the caller knows.
    pub facts: Facts,
    /// Where built chains are kept between runs.
    pub cache: PathBuf,
    /// Longest duration of the phase with faults and settling.
    pub time_limit: Option<Duration>,
    /// Leave the nodes running at the end.
    pub keep: bool,
}

/// Facts for the first record.
#[derive(Clone, Debug)]
pub struct Facts {
    /// Run id.
    pub run: String,
    /// Kernel release.
    pub kernel: String,
    /// CPUs that may be used.
    pub cpus: u32,
    /// Wall clock at the start, RFC 3339.
    pub started: String,
    /// The command that runs it again.
    pub again: String,
    /// Secret that agents demand; never recorded.
    pub token: String,
}

/// How an experiment ended. The verdict is the judge's and comes from the timeline.
#[derive(Debug)]
pub struct Outcome {
    /// The user stopped it.
    pub interrupted: bool,
    /// RPC addresses by node, for a run that is kept.
    pub kept: BTreeMap<String, String>,
}

/// Carries it out. Everything created is removed on every way out, except with `keep` at the regular end.
///
/// `cancel` is the user's wish to stop. An error is returned only when the timeline could not be written and could not say so
/// itself; any other failure of the tool is in the timeline.
pub async fn run(experiment: Experiment, observer: Observer, cancel: CancellationToken) -> Result<Outcome, RunError> {
    let clock = Instant::now();
    let writer = experiment.folder.timeline()?;
    let (senders, orders) = order_channels(&experiment.plan);
    let heights_wait = experiment.time_limit.unwrap_or(HEIGHT_WAIT);
    let (dispatcher, witness, told, over) = Dispatcher::new(
        (Arc::clone(&experiment.plan), heights_wait),
        clock,
        (Arc::clone(&experiment.folder), writer),
        observer,
        senders,
    );
    let failed = CancellationToken::new();
    let mut phases = Phases { experiment, witness, clock, cancel, ends: Ends::default(), over };
    let dispatching = dispatcher.run(told, failed.clone());
    let work = async {
        let outcome = phases.all(orders, &failed).await;
        drop(phases);
        outcome
    };
    let (written, outcome) = tokio::join!(dispatching, work);
    written.map(|()| outcome)
}

/// The experiment while it goes on.
struct Phases {
    experiment: Experiment,
    witness: Witness,
    clock: Instant,
    cancel: CancellationToken,
    ends: Ends,
    over: oneshot::Receiver<Settled>,
}

/// The ends of the run's tasks, in the order in which they come.
#[derive(Clone, Default)]
pub(super) struct Ends {
    /// Samplers and load stop.
    pub(super) looking: CancellationToken,
    /// Units end their nodes with SIGTERM, read what these leave, and are done.
    pub(super) nodes: CancellationToken,
    /// Units are done at once.
    pub(super) all: CancellationToken,
}

impl Phases {
    async fn all(&mut self, orders: BTreeMap<String, mpsc::Receiver<Order>>, failed: &CancellationToken) -> Outcome {
        let mut tasks = JoinSet::new();
        let result = tokio::select! {
            result = self.forward(orders, &mut tasks) => result,
            () = failed.cancelled() => Err(RunError::Interrupted),
        };
        let interrupted = self.cancel.is_cancelled();
        self.witness.send(Told::Rest).await;
        if interrupted {
            self.witness.tell_run(Event::Interrupted).await;
        }
        let mut kept = BTreeMap::new();
        match &result {
            Ok(testnet) => {
                self.collect(testnet, interrupted).await;
                if self.experiment.keep && !interrupted {
                    kept = testnet.rpc_addresses();
                }
            }
            Err(RunError::Interrupted) => {}
            Err(error) => self.witness.tell_run(Event::ToolError { what: format!("failed to {error}") }).await,
        }
        self.end_tasks(&mut tasks, kept.is_empty(), interrupted).await;
        if kept.is_empty() {
            if let Ok(testnet) = &result {
                testnet.keep_logs(&self.experiment.folder, &self.witness).await;
            }
            drop(result);
            self.remove(interrupted).await;
        }
        self.witness.tell_run(Event::RunEnded).await;
        Outcome { interrupted, kept }
    }

    /// Ends all tasks; the nodes too, unless they are kept. A node that does not end in time is left to the engine.
    async fn end_tasks(&self, tasks: &mut JoinSet<()>, end_nodes: bool, interrupted: bool) {
        self.ends.looking.cancel();
        if end_nodes {
            self.ends.nodes.cancel();
            let limit = if interrupted { END_MAX_INTERRUPTED } else { END_MAX };
            let ended = async { while tasks.join_next().await.is_some() {} };
            if tokio::time::timeout(limit, ended).await.is_err() {
                let what = format!("not every node ended within {} s of SIGTERM; the rest is killed", limit.as_secs());
                self.witness.tell_run(Event::Notice { what }).await;
            }
        }
        self.ends.all.cancel();
        while tasks.join_next().await.is_some() {}
    }

    /// Prepare, launch, and stay until the run is over.
    async fn forward(
        &mut self,
        orders: BTreeMap<String, mpsc::Receiver<Order>>,
        tasks: &mut JoinSet<()>,
    ) -> Result<Testnet, RunError> {
        let cancel = self.cancel.clone();
        let prepared = tokio::select! {
            prepared = self.prepare() => prepared,
            () = cancel.cancelled() => Err(RunError::Interrupted),
        };
        self.write_start(prepared.as_ref().ok()).await;
        let prepared = prepared?;
        self.witness
            .tell_run(Event::Setup(Box::new(setup(&self.experiment.plan, self.experiment.chain.as_ref()))))
            .await;
        let (fixture, _used) = match self.experiment.chain.fixture(&self.experiment.plan) {
            Ok(None) => (None, None),
            Ok(Some(wanted)) => {
                if !fixture::is_there(&self.experiment.cache, &wanted) {
                    let blocks = self.experiment.plan.built_blocks;
                    let what =
                        format!("making the chain of {blocks} blocks to start from, which is kept for later runs");
                    self.witness.tell_run(Event::Notice { what }).await;
                }
                let (data, used) = fixture::ready(&self.experiment.cache, &wanted, &cancel).await?;
                (Some((data.join("data"), wanted.into)), Some(used))
            }
            Err(source) => return Err(RunError::Chain { node: "every validator".to_owned(), source }),
        };
        let grounds = Grounds { fixture, made: Arc::new(self.made(&prepared, &cancel).await?) };
        let launched = tokio::select! {
            launched = Testnet::launch(&self.experiment, &prepared, grounds, &self.witness, self.clock) => launched,
            () = cancel.cancelled() => Err(RunError::Interrupted),
        };
        let mut testnet = launched?;
        testnet.set_going(&self.experiment, &self.witness, &self.ends, orders, tasks);
        self.witness.send(Told::Go).await;
        self.stay().await;
        Ok(testnet)
    }

    /// What the node's own command line makes, where the family needs it.
    async fn made(&self, prepared: &BTreeMap<Build, Prepared>, cancel: &CancellationToken) -> Result<Made, RunError> {
        let wanted = self.experiment.chain.set_up(&self.experiment.plan);
        let wanted = wanted.map_err(|source| RunError::Chain { node: "every node".to_owned(), source })?;
        let Some(wanted) = wanted else { return Ok(Made::new()) };
        let digest = prepared.get(&wanted.build).map(|prepared| prepared.digest.clone()).unwrap_or_default();
        made::made(&self.experiment, &wanted, &digest, cancel).await
    }

    async fn prepare(&self) -> Result<BTreeMap<Build, Prepared>, RunError> {
        let plan = &self.experiment.plan;
        let upgraded = plan.nodes.iter().flat_map(|node| plan.upgrades(node).map(|(_, node)| node));
        let nodes = plan.nodes.iter().cloned().chain(upgraded);
        let mut builds: Vec<Build> = nodes.map(|n| self.experiment.chain.build(plan, &n)).collect();
        builds.extend(chain::beside(plan).map(|application| application.build()));
        builds.sort();
        builds.dedup();
        self.experiment
            .engine
            .prepare(&builds)
            .await
            .map_err(|source| RunError::Engine { doing: "make the builds ready".to_owned(), source })
    }

    async fn write_start(&self, prepared: Option<&BTreeMap<Build, Prepared>>) {
        let Experiment { facts, plan, engine, .. } = &self.experiment;
        let builds = prepared
            .into_iter()
            .flatten()
            .map(|(build, prepared)| (build.to_string(), prepared.digest.clone()))
            .collect();
        let started = RunStarted {
            version: VERSION,
            run: facts.run.clone(),
            topology: plan.name.clone(),
            seed: plan.seed,
            engine: engine.capabilities().name,
            midflush: env!("CARGO_PKG_VERSION").to_owned(),
            kernel: facts.kernel.clone(),
            cpus: facts.cpus,
            started: facts.started.clone(),
            again: facts.again.clone(),
            builds,
        };
        self.witness.tell_run(Event::RunStarted(started)).await;
    }

    /// Waits for the end: settled, the time limit, or the user.
    async fn stay(&mut self) {
        let limit = async {
            match self.experiment.time_limit {
                Some(limit) => tokio::time::sleep(limit).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            _ = &mut self.over => {}
            () = self.cancel.cancelled() => {}
            () = limit => self.witness.tell_run(Event::TimeLimit).await,
        }
    }

    async fn collect(&self, testnet: &Testnet, interrupted: bool) {
        let limit = if interrupted { COLLECT_MAX_INTERRUPTED } else { COLLECT_MAX };
        let nodes = testnet.answering(self.experiment.chain.rpc()).await;
        let first = self.experiment.plan.initial_height;
        let never = CancellationToken::new();
        collect::all(nodes, first, self.experiment.chain.as_ref(), &self.witness, limit, &never).await;
    }

    async fn remove(&self, interrupted: bool) {
        let limit = if interrupted { REMOVE_MAX_INTERRUPTED } else { REMOVE_MAX };
        let run = &self.experiment.facts.run;
        let problem = match tokio::time::timeout(limit, self.experiment.engine.remove(run)).await {
            Ok(Ok(_)) => return,
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("not done within {} s", limit.as_secs()),
        };
        let what = format!("something of this run may be left behind: {problem}; `midflush clean` removes it");
        self.witness.tell_run(Event::ToolError { what }).await;
    }
}

/// One bounded channel a node: what the dispatcher sends on, and what the units take from.
fn order_channels(plan: &Plan) -> (BTreeMap<String, mpsc::Sender<Order>>, BTreeMap<String, mpsc::Receiver<Order>>) {
    plan.nodes
        .iter()
        .map(|node| {
            let (sender, receiver) = mpsc::channel(ORDERS);
            ((node.name.clone(), sender), (node.name.clone(), receiver))
        })
        .unzip()
}

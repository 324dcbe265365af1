//! `midflush run`: one topology, once.

use std::fs;
use std::io::BufReader;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use clap::{Args as ClapArgs, ValueEnum};
use tokio::signal::unix::{Signal, SignalKind, signal};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::engines::{self, EngineArgs};
use super::live::LiveDisplay;
use super::runs::ResultsArg;
use super::topology::{Planned, TopologyArgs};
use super::{CliError, Code, judge, room, say, show};
use crate::chain;
use crate::dashboard::{Dashboard, DashboardError, Options};
use crate::engine::{Build, Capabilities, Engine};
use crate::judge::Judgement;
use crate::report::RunReport;
use crate::report::words::quoted;
use crate::results::{Document, Release, ResultsErrorKind, RunFolder};
use crate::run::{self, Experiment, Facts, RunError};
use crate::timeline::{Event, Reader, Record};

/// Options of `run`.
#[derive(Debug, ClapArgs)]
pub(crate) struct Args {
    #[command(flatten)]
    topology: TopologyArgs,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    results: ResultsArg,
    /// Leaves the nodes running at the end; prints their endpoints and the command that stops them
    #[arg(long)]
    keep: bool,
    /// Prints one JSON object on standard output; all else goes to standard error
    #[arg(long)]
    json: bool,
    /// Serves the page while the run goes on, on this address of this machine
    #[arg(long, value_name = "ADDR", num_args = 0..=1, default_missing_value = "127.0.0.1:8420")]
    serve: Option<SocketAddr>,
}

/// Runs and judges.
pub(crate) async fn run(args: Args) -> Result<Code, CliError> {
    let mut planned = args.topology.plan()?;
    let chosen = match planned.tied_to_machine().filter(|_| args.engine.engine == engines::Choice::Auto) {
        Some(program) => engines::Chosen {
            engine: engines::process(&args.engine)?,
            why: format!("Engine: process, since {program}."),
        },
        None => engines::choose(&args.engine).await?,
    };
    planned.check_starts()?;
    check_engine(&planned, &chosen.engine.capabilities())?;
    planned.find_program(&chosen.engine.capabilities())?;
    super::tell(format_args!("{}", chosen.why));
    for note in &planned.loaded.notes {
        super::tell(format_args!("note: {note}"));
    }
    room::tell(&args.results.results);
    let stop = CancellationToken::new();
    // Aborted with the set, at the latest when this function returns.
    let mut beside = JoinSet::new();
    beside.spawn(watch_signals(stop.clone()));
    if let Some(listen) = args.serve {
        let options = Options { results: args.results.results.clone(), listen, token: None };
        let page = Dashboard::bind(options, stop.child_token()).await.map_err(|error| match error {
            DashboardError::NeedsToken { .. } => CliError::input(format!("cannot {error}")),
            other => CliError::tool(other),
        })?;
        super::tell(format_args!("Page: http://{}/", page.address()));
        beside.spawn(async move {
            if let Err(error) = page.serve().await {
                super::tell(format_args!("The page ended: {error}"));
            }
        });
    }
    experiment(&args, planned, chosen.engine, stop).await
}

async fn experiment(
    args: &Args,
    planned: Planned,
    engine: Arc<dyn Engine>,
    stop: CancellationToken,
) -> Result<Code, CliError> {
    let facts = facts(args, &planned)?;
    let run = facts.run.clone();
    let folder = RunFolder::create(&args.results.results, &run).map_err(|error| {
        let disk_full = matches!(error.kind, ResultsErrorKind::DiskFull);
        args.results.refused(error, disk_full)
    })?;
    let kept =
        folder.write_topology(&planned.loaded.resolved).and_then(|()| folder.write(Document::Plan, &planned.plan));
    if let Err(error) = kept {
        // Nothing has run, so that nothing is lost with it.
        let _ = fs::remove_dir_all(folder.path());
        return Err(CliError::tool(error));
    }
    let folder = Arc::new(folder);
    let experiment = Experiment {
        plan: Arc::new(planned.plan),
        chain: Arc::from(planned.chain),
        engine,
        folder: Arc::clone(&folder),
        facts,
        cache: chains_folder(),
        time_limit: args.topology.time_limit,
        keep: args.keep,
    };
    let display = Arc::new(Mutex::new(Some(LiveDisplay::new())));
    let observed = Arc::clone(&display);
    let observer = Box::new(move |record: &Record| {
        if let Ok(mut display) = observed.lock()
            && let Some(display) = display.as_mut()
        {
            display.apply(record);
        }
    });
    let outcome = run::run(experiment, observer, stop).await;
    if let Ok(mut display) = display.lock() {
        display.take();
    }
    let judgement = verdict(args, &folder, outcome.as_ref().err())?;
    let kept = outcome.map(|outcome| outcome.kept).unwrap_or_default();
    for (node, rpc) in &kept {
        super::tell(format_args!("kept: {node} {rpc}"));
    }
    if !kept.is_empty() {
        super::tell(format_args!("Stop them with: midflush clean --run {run}"));
    }
    Ok(judge::code(&judgement))
}

/// Judges what is on disk, keeps the verdict beside it, and prints it. `trouble` is why the timeline does not say itself how
/// the run ended.
fn verdict(args: &Args, folder: &RunFolder, trouble: Option<&RunError>) -> Result<Judgement, CliError> {
    let path = folder.path().join("timeline.ndjson");
    let file = fs::File::open(&path).map_err(|e| CliError::tool(format!("open {}: {e}", path.display())))?;
    let mut report = RunReport::default();
    let mut next = 0;
    for record in Reader::new(BufReader::new(file)) {
        let record = record.map_err(CliError::tool)?;
        next = record.seq + 1;
        report.push(&record);
    }
    if let Some(trouble) = trouble {
        let event = Event::ToolError { what: format!("failed to {trouble}") };
        report.push(&Record { seq: next, at_us: 0, node: None, event });
    }
    let judgement = report.judgement(&folder.path().display().to_string());
    folder.release(Release::All);
    // It is made from the timeline, and can be made again.
    if let Err(error) = folder.write(Document::Verdict, &judgement) {
        super::tell(format_args!("midflush: failed to {error}"));
    }
    if args.json {
        say(format!("{}\n", judge::to_json(&judgement)?));
    } else {
        show::print_end(&report, &judgement);
    }
    Ok(judgement)
}

/// What the plan needs of the engine; found before anything is created.
fn check_engine(planned: &Planned, engine: &Capabilities) -> Result<(), CliError> {
    let plan = &planned.plan;
    // To an engine the application beside a node is one more.
    let wanted = plan.nodes.len() * if plan.application.is_some() { 2 } else { 1 };
    if wanted > engine.nodes_max {
        let (most, name) = (engine.nodes_max, &engine.name);
        let what = if plan.application.is_some() { "nodes and applications" } else { "nodes" };
        return Err(CliError::input(format!(
            "{wanted} {what} are wanted, and the {name} engine runs at most {most} here"
        )));
    }
    if engine.images
        && let Some(program) = planned.tied_to_machine()
    {
        return Err(CliError::input(format!(
            "{program}, which a container does not have; use `--engine process`, or give an image in place of the program"
        )));
    }
    let upgraded: Vec<_> = plan.nodes.iter().flat_map(|node| plan.upgrades(node).map(|(_, node)| node)).collect();
    let nodes = plan.nodes.iter().chain(&upgraded);
    let builds = nodes.map(|node| (format!("`{}`", node.name), planned.chain.build(plan, node)));
    let application = chain::beside(plan).map(|beside| ("the application".to_owned(), beside.build()));
    for (what, build) in builds.chain(application) {
        let unfit = match build {
            Build::Image { reference } if !engine.images => format!("the image `{reference}`"),
            Build::Binary { path } if !engine.binaries => format!("the program `{}`", path.display()),
            _ => continue,
        };
        let name = &engine.name;
        return Err(CliError::input(format!(
            "{what} is made from {unfit}, which the {name} engine cannot run; choose another with `--engine`"
        )));
    }
    Ok(())
}

fn facts(args: &Args, planned: &Planned) -> Result<Facts, CliError> {
    let now = jiff::Timestamp::now();
    // Sorted by time when listed; the process id tells two runs of one second apart.
    let run = format!("{}-{}-{:x}", now.strftime("%Y%m%d-%H%M%S"), planned.plan.name, std::process::id());
    Ok(Facts {
        run,
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        cpus: std::thread::available_parallelism().map_or(1, |n| u32::try_from(n.get()).unwrap_or(u32::MAX)),
        started: now.to_string(),
        again: again(args, planned.plan.seed),
        token: token()?,
    })
}

/// A secret for the agents of one run.
pub(crate) fn token() -> Result<String, CliError> {
    let mut token = [0_u8; 32];
    fs::File::open("/dev/urandom")
        .and_then(|mut source| std::io::Read::read_exact(&mut source, &mut token))
        .map_err(|e| CliError::tool(format!("read randomness for a token: {e}")))?;
    Ok(hex::encode(token))
}

/// The command that runs it again: the same program as it was called, and all that decides what happens and where it is kept.
fn again(args: &Args, seed: u64) -> String {
    let called = std::env::args().next().unwrap_or_else(|| "midflush".to_owned());
    let mut words = vec![quoted(&called), "run".to_owned(), quoted(&args.topology.file.display().to_string())];
    words.push(format!("--seed {seed}"));
    words.extend(args.topology.set.iter().map(|set| format!("--set {}", quoted(set))));
    if let Some(engine) = args.engine.engine.to_possible_value().filter(|_| args.engine.engine != engines::Choice::Auto)
    {
        words.push(format!("--engine {}", engine.get_name()));
    }
    words.extend(args.engine.docker_host.iter().map(|host| format!("--docker-host {}", quoted(host))));
    words.extend(args.topology.time_limit.map(|limit| format!("--time-limit {}s", limit.as_secs_f64())));
    words.extend(args.results.again());
    words.join(" ")
}

/// Where built chains are kept between runs.
pub(crate) fn chains_folder() -> PathBuf {
    let named = |name: &str| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    named("XDG_CACHE_HOME")
        .or_else(|| named("HOME").map(|home| home.join(".cache")))
        .unwrap_or_else(std::env::temp_dir)
        .join("midflush/fixtures")
}

/// The signals with which users and systems ask a program to stop: Ctrl-C, SIGTERM, and SIGHUP of a terminal that went away.
pub(crate) struct StopSignals([Signal; 3]);

impl StopSignals {
    /// Watches them from now on; none ends the process any more.
    pub(crate) fn new() -> std::io::Result<Self> {
        Ok(Self([signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?, signal(SignalKind::hangup())?]))
    }

    /// Waits for the next one.
    pub(crate) async fn next(&mut self) {
        let [interrupt, terminate, hangup] = &mut self.0;
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
            _ = hangup.recv() => {}
        }
    }
}

/// The first Ctrl-C (or SIGTERM) stops the run in order; the second one ends the process at once.
pub(crate) async fn watch_signals(stop: CancellationToken) {
    let mut signals = match StopSignals::new() {
        Ok(signals) => signals,
        Err(error) => {
            return super::tell(format_args!("Signals cannot be watched, so that Ctrl-C does nothing: {error}"));
        }
    };
    for count in 0.. {
        signals.next().await;
        if count == 0 {
            super::tell(format_args!("Stopping and removing everything of this run; once more to leave at once."));
            stop.cancel();
        } else {
            super::tell(format_args!("Left at once. `midflush clean` removes what is left."));
            std::process::exit(i32::from(Code::Interrupted as u8));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::binary::Machine;

    #[test]
    fn a_program_that_reads_a_folder_of_this_machine_is_refused_by_an_engine_of_containers() {
        let planned = |set: &str| {
            let file = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/topologies/gnoland.yaml"));
            TopologyArgs { file, seed: 1, set: vec![set.to_owned()], time_limit: None }.plan().unwrap()
        };
        let engine = |images| Capabilities {
            name: "any".to_owned(),
            nodes_max: 100,
            images,
            binaries: true,
            machine: Machine::here(),
        };
        let program = planned("chain.gnoland.binary=/opt/gnoland");
        let refused = check_engine(&program, &engine(true)).unwrap_err();
        assert_eq!(refused.code, Code::BadInput);
        assert!(refused.message.contains("`/opt/gnoland`") && refused.message.contains("--engine process"));
        assert!(check_engine(&program, &engine(false)).is_ok());
        let image = planned("chain.gnoland={ image: gnoland }");
        assert!(image.tied_to_machine().is_none() && check_engine(&image, &engine(true)).is_ok());
    }
}

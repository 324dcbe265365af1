//! `midflush bench`: measures block sync of a bench's arms in interleaved rounds.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::ValueEnum as _;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use super::engines::{self, Choice, EngineArgs};
use super::program::{self, find};
use super::run::{chains_folder, token, watch_signals};
use super::runs::ResultsArg;
use super::topology::{refused, seed};
use super::{CliError, Code, chains, room, say};
use crate::bench::design::{Design, design};
use crate::bench::report::{self, terminal};
use crate::bench::result::BenchResult;
use crate::bench::rounds::{self, Facts};
use crate::bench::{BenchError, Ground, store};
use crate::engine::{Capabilities, Engine};
use crate::plan::BuildPlan;
use crate::report::words::quoted;
use crate::topology;
use crate::topology::bench::{LoadedBench, load};

/// Options of `bench`.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The bench file
    #[arg(value_name = "BENCH")]
    file: PathBuf,
    /// Seed of keys, of the order of cells in each round, and of drawn latencies
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = seed, allow_negative_numbers = true)]
    seed: u64,
    /// Change the bench before it is read, such as `bench.window.to=900`; may be repeated
    #[arg(long, value_name = "PATH=VALUE")]
    set: Vec<String>,
    /// A named program that becomes an arm, in place of the file's arms; may be repeated
    #[arg(long, value_name = "NAME=PROGRAM", value_parser = named)]
    build: Vec<(String, String)>,
    /// Rounds that count, in place of the file's
    #[arg(long, value_name = "N")]
    rounds: Option<u32>,
    #[command(flatten)]
    engine: EngineArgs,
    #[command(flatten)]
    results: ResultsArg,
    /// Print one JSON object on standard output; all else goes to standard error
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Print Markdown, for a pull request or the summary of a job
    #[arg(long)]
    markdown: bool,
    /// Write a page with charts that stands alone [default: report.html in the bench's folder]
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    html: Option<Option<PathBuf>>,
    /// Write JUnit, one case a gate and a cell [default: junit.xml in the bench's folder]
    #[arg(long, value_name = "FILE", num_args = 0..=1)]
    junit: Option<Option<PathBuf>>,
}

fn named(text: &str) -> Result<(String, String), String> {
    match text.split_once('=') {
        Some((name, program)) if !name.is_empty() && !program.is_empty() => Ok((name.to_owned(), program.to_owned())),
        _ => Err("write it like `pr=./target/release/node`".to_owned()),
    }
}

/// Measures and reports.
pub(crate) async fn run(args: Args) -> Result<Code, CliError> {
    let loaded = read(&args)?;
    let mut designed = design(&loaded.bench, args.seed).map_err(failed)?;
    let (engine, why) = engine(&args, &designed).await?;
    find_programs(&mut designed, &args.file, &engine.capabilities())?;
    super::tell(format_args!("{why}"));
    room::tell(&args.results.results);
    let stop = CancellationToken::new();
    // Aborted with the set, at the latest when this function returns.
    let mut beside = JoinSet::new();
    beside.spawn(watch_signals(stop.clone()));
    let result = measure(&args, &loaded, &designed, engine, &stop).await?;
    if let Some(file) = &args.html {
        document(&result, file.as_deref(), "report.html", &report::html(&result))?;
    }
    if let Some(file) = &args.junit {
        document(&result, file.as_deref(), "junit.xml", &report::junit(&result))?;
    }
    if args.json {
        say(format!("{}\n", report::json(&result)));
    } else if args.markdown {
        say(report::markdown(&result));
    } else {
        say(terminal::end(&result));
    }
    Ok(code(&result))
}

/// Writes a document where it was asked for, or into the bench's folder.
fn document(result: &BenchResult, file: Option<&Path>, name: &str, text: &str) -> Result<(), CliError> {
    let path = file.map_or_else(|| Path::new(&result.results).join(name), Path::to_path_buf);
    std::fs::write(&path, text).map_err(|e| CliError::tool(format!("write {}: {e}", path.display())))?;
    super::tell(format_args!("written: {}", path.display()));
    Ok(())
}

fn read(args: &Args) -> Result<LoadedBench, CliError> {
    let name = args.file.to_string_lossy();
    let bytes = topology::read(&args.file).map_err(|e| CliError::input(format!("cannot read {name}: {e}")))?;
    let mut sets = args.set.clone();
    sets.extend(args.rounds.map(|rounds| format!("bench.rounds={rounds}")));
    let mut loaded = load(&name, &bytes, &sets, &args.build).map_err(|problems| refused(&problems))?;
    if let (Some(until), Some(rounds)) = (&mut loaded.bench.until, args.rounds) {
        until.rounds = rounds;
    }
    Ok(loaded)
}

async fn measure(
    args: &Args,
    loaded: &LoadedBench,
    designed: &Design,
    engine: Arc<dyn Engine>,
    stop: &CancellationToken,
) -> Result<BenchResult, CliError> {
    let chain = Arc::from(chains::found(&designed.cells[0].plan)?);
    let now = jiff::Timestamp::now();
    let id = format!("{}-{}-{:x}", now.strftime("%Y%m%d-%H%M%S"), loaded.bench.name, std::process::id());
    let folder = store::create(&args.results.results, &id, &loaded.resolved).map_err(|error| {
        let full = matches!(&error, BenchError::Machine { source, .. } if source.kind() == ErrorKind::StorageFull);
        args.results.refused(error, full)
    })?;
    let facts = Facts {
        seed: args.seed,
        started: now.to_string(),
        again: again(args),
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        midflush: format!("{} {}", env!("CARGO_PKG_VERSION"), if cfg!(debug_assertions) { "debug" } else { "release" }),
        results: folder.display().to_string(),
    };
    let cache = chains_folder();
    // A run id of the engine has at most 60 characters, a bench's name as many.
    let run = format!("bench-{}-{:x}", now.strftime("%Y%m%d-%H%M%S"), std::process::id());
    let ground = Ground { engine, chain, cache: &cache, run, token: token()? };
    let mut observe = |progress: rounds::Progress| super::tell(format_args!("{}", terminal::line(&progress)));
    let result = rounds::run(&loaded.bench, designed, &ground, facts, &mut observe, stop).await.map_err(failed)?;
    store::save(&folder, &result).map_err(failed)?;
    Ok(result)
}

/// Containers only where a build is an image: they add a network of their own to what is measured.
async fn engine(args: &Args, designed: &Design) -> Result<(Arc<dyn Engine>, String), CliError> {
    let images = designed.cells.iter().any(|cell| {
        let mut plan = cell.plan.clone();
        plan.builds_mut().any(|build| matches!(build, BuildPlan::Image(_)))
    });
    if args.engine.engine == Choice::Auto && !images {
        let why = "Engine: process, since no build is an image.";
        return Ok((engines::process(&args.engine)?, why.to_owned()));
    }
    let chosen = engines::choose(&args.engine).await?;
    if !chosen.engine.capabilities().images && images {
        return Err(CliError::input("an arm is made from an image, which needs `--engine docker`"));
    }
    Ok((chosen.engine, chosen.why))
}

/// Absolute paths in place of names; a program that is not there is found before anything is created.
fn find_programs(designed: &mut Design, file: &Path, engine: &Capabilities) -> Result<(), CliError> {
    let dir = file.parent().unwrap_or(Path::new("."));
    let search = std::env::var_os("PATH");
    let plans = designed.cells.iter_mut().map(|cell| &mut cell.plan);
    let plans = plans.chain(designed.fixtures.iter_mut().map(|fixture| &mut fixture.plan));
    for build in plans.flat_map(|plan| plan.builds_mut()) {
        let BuildPlan::Binary(program) = build else { continue };
        // What is given on the command line is meant from here.
        let here = find(program, Path::new("."), search.as_deref()).filter(|path| path.is_file());
        let found = here.or_else(|| find(program, dir, search.as_deref())).ok_or_else(|| {
            CliError::input(format!(
                "there is no program `{program}`; give its path with `--set chain.FAMILY.binary=PATH`, in an arm, or with \
                 `--build NAME=PATH`"
            ))
        })?;
        program::check(&found, engine).map_err(|error| CliError::input(format!("failed to {error}")))?;
        *program = found.to_string_lossy().into_owned();
    }
    Ok(())
}

/// The command that runs it again.
fn again(args: &Args) -> String {
    let called = std::env::args().next().unwrap_or_else(|| "midflush".to_owned());
    let mut words = vec![quoted(&called), "bench".to_owned(), quoted(&args.file.display().to_string())];
    words.push(format!("--seed {}", args.seed));
    words.extend(args.set.iter().map(|set| format!("--set {}", quoted(set))));
    words.extend(args.build.iter().map(|(name, program)| format!("--build {}", quoted(&format!("{name}={program}")))));
    words.extend(args.rounds.map(|rounds| format!("--rounds {rounds}")));
    if let Some(engine) = args.engine.engine.to_possible_value().filter(|_| args.engine.engine != Choice::Auto) {
        words.push(format!("--engine {}", engine.get_name()));
    }
    words.extend(args.engine.docker_host.iter().map(|host| format!("--docker-host {}", quoted(host))));
    words.extend(args.results.again());
    words.join(" ")
}

/// Gates that fail are a finding; what cannot be told is no pass.
fn code(result: &BenchResult) -> Code {
    let stopped = result.ended.starts_with("stopped by the user");
    if result.gates.iter().any(|gate| gate.holds == Some(false)) {
        Code::Finding
    } else if stopped {
        Code::Interrupted
    } else if result.gates.iter().any(|gate| gate.holds.is_none())
        || result.cells.iter().any(|cell| cell.inconclusive.is_some() || cell.blocks_per_s.is_none())
    {
        Code::Tool
    } else {
        Code::Ok
    }
}

fn failed(error: BenchError) -> CliError {
    match error {
        BenchError::Input(why) => CliError::input(why),
        BenchError::Plan(problem) => CliError::input(problem.title),
        BenchError::Node(why) => CliError { message: format!("midflush: {why}"), code: Code::Finding },
        BenchError::Interrupted => CliError { message: "midflush: interrupted".to_owned(), code: Code::Interrupted },
        other => CliError::tool(other),
    }
}

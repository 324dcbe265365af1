//! `midflush observe -- BINARY ARGS…`: runs any node under the agent and prints what can be aimed at.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};
use std::time::Duration;

use tokio::time::Instant;

use super::run::StopSignals;
use super::{CliError, Code, chains, program};
use crate::agent::{Observation, SeenStore, Supervisor, Tapped, observe};
use crate::agent_client::protocol::{Signal, StartRequest};
use crate::engine::binary::check_startable;
use crate::report::words;
use crate::timeline::{Exit, Layout, NodeEvent, Tier};

/// Events that may wait to be collected; a node that makes more is told about, not slowed down.
const EVENTS_WAITING: usize = 100_000;
/// Events kept: a minute of a node that makes 30,000 a second.
const EVENTS_MAX: usize = 2_000_000;
/// How long the node may take to end after SIGTERM.
const END_MAX: Duration = Duration::from_secs(10);
/// Largest captured output in bytes.
const OUTPUT_MAX: u64 = 64 << 20;

/// Arguments of `observe`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// The node's home; otherwise the folder that all its synced files have in common
    #[arg(long, value_name = "DIR")]
    home: Option<PathBuf>,

    /// How long to watch, such as `20s` or `2m`
    #[arg(long = "for", value_name = "TIME", default_value = "20s", value_parser = duration)]
    time: Duration,

    /// Family whose stores are looked for: `auto` takes one whose stores are all written, and guesses the stores of any
    /// other node; `unknown` always guesses; a path to a file is a layout in JSON or YAML
    #[arg(long, value_name = "NAME", default_value = "auto")]
    family: String,

    /// Print one JSON object
    #[arg(long)]
    json: bool,

    /// The node's program and its arguments
    #[arg(last = true, required = true, value_name = "BINARY ARGS")]
    command: Vec<String>,
}

fn duration(text: &str) -> Result<Duration, String> {
    let wrong = || format!("`{text}` is no time: write `20s`, `500ms` or `2m`");
    let at = text.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let number: u64 = text[..at].parse().map_err(|_| wrong())?;
    match &text[at..] {
        "ms" => Ok(Duration::from_millis(number)),
        "s" => Ok(Duration::from_secs(number)),
        "m" => Ok(Duration::from_secs(number.saturating_mul(60))),
        _ => Err(wrong()),
    }
}

/// What is printed.
#[derive(serde::Serialize)]
struct Report {
    version: u32,
    seconds: f64,
    holes: Vec<String>,
    observation: Observation,
}

/// Runs the command. The node keeps its environment and its working folder.
pub(crate) async fn run(args: Args) -> Result<Code, CliError> {
    let families = families(&args.family)?;
    let home = match &args.home {
        Some(home) => Some(
            std::fs::canonicalize(home)
                .map_err(|e| CliError::input(format!("the home {} cannot be found: {e}", home.display())))?,
        ),
        None => None,
    };
    let folder = std::env::current_dir().map_err(|e| CliError::tool(format!("find the working folder: {e}")))?;
    let program = startable(&args.command, &folder)?;
    let own = tempfile::tempdir().map_err(|e| CliError::tool(format!("make a folder: {e}")))?;
    let supervisor = Arc::new(Supervisor::new(own.path()).map_err(CliError::tool)?);
    if let Some(why) = supervisor.hello().interception.refused {
        return Err(CliError::tool(format!("observe here: {why}")));
    }
    let (tap, events) = sync_channel(EVENTS_WAITING);
    let collector = std::thread::spawn(move || collect(&events));
    supervisor.start_observed(request(&args, &program), &folder, tap).map_err(CliError::tool)?;
    let began = Instant::now();
    let mut stop = StopSignals::new().map_err(|e| CliError::tool(format!("watch signals: {e}")))?;
    let (ended, stopped) = tokio::select! {
        ended = watch(&supervisor, args.time) => (ended, false),
        () = stop.next() => (None, true),
    };
    let seconds = began.elapsed().as_secs_f64();
    tokio::task::block_in_place(|| supervisor.shut_down());
    let collected = collector.join().unwrap_or_default();
    let Some(observation) = observe(&collected, home.as_deref(), &families) else {
        return Err(nothing_seen(&ended, collected.len()));
    };
    let report = Report { version: 1, seconds, holes: holes(&supervisor), observation };
    if args.json {
        super::say(format_args!(
            "{}\n",
            serde_json::to_string(&report).map_err(|e| CliError::tool(format!("print the outcome: {e}")))?
        ));
    } else {
        super::say(told(&report));
    }
    if let Some((exit, tail)) = ended {
        super::tell(format_args!(
            "midflush: the node ended by itself ({}); its last lines:\n{}",
            exit_words(exit),
            tail.join("\n")
        ));
        return Ok(Code::Tool);
    }
    Ok(if stopped { Code::Interrupted } else { Code::Ok })
}

fn families(name: &str) -> Result<Vec<(String, Layout)>, CliError> {
    let known = chains::layouts();
    match name {
        "auto" => Ok(known),
        "unknown" => Ok(Vec::new()),
        _ if known.iter().any(|(family, _)| family == name) => {
            Ok(known.into_iter().filter(|(family, _)| family == name).collect())
        }
        path if Path::new(path).is_file() => {
            let text =
                std::fs::read_to_string(path).map_err(|e| CliError::input(format!("cannot read {path}: {e}")))?;
            let layout =
                serde_yaml::from_str(&text).map_err(|e| CliError::input(format!("{path} is no layout: {e}")))?;
            Ok(vec![(path.to_owned(), layout)])
        }
        _ => {
            let names: Vec<&str> = known.iter().map(|(family, _)| family.as_str()).collect();
            Err(CliError::input(format!(
                "no family `{name}`: there are auto, unknown, {}, or the path of a layout file",
                names.join(", ")
            )))
        }
    }
}

/// The path of the program to start, looked up as a shell does; what cannot be started is refused before anything is made.
fn startable(command: &[String], folder: &Path) -> Result<PathBuf, CliError> {
    let name = command.first().map(String::as_str).unwrap_or_default();
    let found = program::look_up(name, folder, std::env::var_os("PATH").as_deref()).ok_or_else(|| {
        CliError::input(format!("there is no program `{name}` on the search path; give its path, such as `./{name}`"))
    })?;
    check_startable(&found).map_err(|error| CliError::input(format!("failed to {error}")))?;
    Ok(found)
}

fn request(args: &Args, program: &Path) -> StartRequest {
    let arguments = args.command.iter().skip(1).cloned();
    StartRequest {
        command: std::iter::once(program.to_string_lossy().into_owned()).chain(arguments).collect(),
        input: String::new(),
        env: std::env::vars().collect(),
        tier: Tier::Record,
        layout: Layout::default(),
        sync_latency: Default::default(),
        seed: 0,
        height: 0,
        rpc: None,
        arms: Vec::new(),
        output_max: OUTPUT_MAX,
    }
}

fn collect(events: &Receiver<Tapped>) -> Vec<Tapped> {
    let mut kept: Vec<Tapped> = Vec::new();
    for event in events {
        if kept.len() < EVENTS_MAX {
            kept.push(event);
        }
    }
    kept
}

/// Lets the node run for a while, then ends it; how it ended if it did so by itself.
async fn watch(supervisor: &Arc<Supervisor>, time: Duration) -> Option<(Exit, Vec<String>)> {
    let until = Instant::now() + time;
    let early = ended(supervisor, until).await;
    if early.is_none() && supervisor.signal(Signal::Terminate, None).is_ok() {
        let _killed_if_it_stays = ended(supervisor, Instant::now() + END_MAX).await;
    }
    early
}

async fn ended(supervisor: &Arc<Supervisor>, until: Instant) -> Option<(Exit, Vec<String>)> {
    while Instant::now() < until {
        for record in supervisor.events(0) {
            if let NodeEvent::Exited { exit, tail, .. } = record.event {
                return Some((exit, tail));
            }
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    None
}

fn holes(supervisor: &Supervisor) -> Vec<String> {
    let events = supervisor.events(0).into_iter();
    events
        .filter_map(|record| match record.event {
            NodeEvent::CoverageHole { hole, detail } => Some(format!("{hole}: {detail}")),
            _ => None,
        })
        .collect()
}

fn exit_words(exit: Exit) -> String {
    match exit {
        Exit::Code(code) => format!("exit code {code}"),
        Exit::Signal(signal) => format!("signal {signal}"),
    }
}

fn nothing_seen(ended: &Option<(Exit, Vec<String>)>, events: usize) -> CliError {
    let how = match ended {
        Some((exit, tail)) => format!("; it ended by itself ({}):\n{}", exit_words(*exit), tail.join("\n")),
        None => "; watch it for longer with --for, or name its home with --home".to_owned(),
    };
    CliError::tool(format!("find a store: of {events} events of the node none makes anything durable{how}"))
}

/// The report for people.
fn told(report: &Report) -> String {
    let seen = &report.observation;
    let family = seen.family.as_deref().unwrap_or("unknown, stores guessed from the files");
    let mut text = format!("home    {}\nfamily  {family}\n", seen.home.display());
    let _never = writeln!(
        text,
        "seen    {} blocks in {} flushes in {:.0} s, last height {}\n",
        seen.blocks, seen.flushes, report.seconds, seen.height
    );
    let width = seen.stores.iter().map(|store| store.name.len()).max().unwrap_or(0).max(5);
    let or_dash = |number: Option<u64>| number.map_or_else(|| "-".to_owned(), |number| number.to_string());
    let _never = writeln!(text, "{:width$}  syncs/block   syncs  p50 us  writes       bytes  files", "store");
    for store in &seen.stores {
        let _never = writeln!(
            text,
            "{:width$}  {:>11}  {:>6}  {:>6}  {:>6}  {:>10}  {}",
            store.name,
            or_dash(store.syncs_per_block),
            store.syncs,
            or_dash(store.sync_p50_us),
            store.writes,
            store.bytes,
            store.paths.join(", ")
        );
    }
    if seen.flush.is_empty() {
        text.push_str(&no_flush(seen));
    } else {
        flush(&mut text, seen, width);
    }
    for hole in &report.holes {
        let _never = writeln!(text, "\nnot seen: {hole}");
    }
    text
}

fn flush(text: &mut String, seen: &Observation, width: usize) {
    let mode = seen.mode.map_or_else(String::new, |mode| format!(" in {}", words::mode(mode)));
    let _never = writeln!(text, "\none flush{mode}, in order:");
    for (number, commit) in seen.flush.iter().enumerate() {
        let sync = commit.sync.map_or_else(|| "never synced".to_owned(), |sync| format!("sync {sync}"));
        let writes = if commit.writes == 1 { "write" } else { "writes" };
        let _never = writeln!(text, "{:>3}. {:width$}  {} {writes}, {sync}", number + 1, commit.store, commit.writes);
    }
    text.push_str("\naddresses in it, to paste behind `at:` in a topology:\n");
    for address in &seen.addresses {
        let _never = writeln!(text, "  {address}");
    }
    if seen.mode.is_none() {
        text.push_str(
            "\nThe output of the node does not tell what it was doing: such an address may also be met while it replays or \
             catches up. Add `mode:` where it must not be.\n",
        );
    }
}

/// What was seen of a program whose writes come in no flush.
fn no_flush(seen: &Observation) -> String {
    let sum = |count: fn(&SeenStore) -> u64| seen.stores.iter().map(count).sum::<u64>();
    let (writes, syncs, stores) = (sum(|store| store.writes), sum(|store| store.syncs), seen.stores.len());
    format!(
        "\nno flush was seen: {syncs} syncs and {writes} writes in {stores} stores, but no block among them.\n\
         A block shows by its height in the block store, in bytes like `H:126`, or by a family's own order of writes. Without\n\
         one there is nothing to count by and no address to aim at: watch for longer with `--for`, name the node's `--home`,\n\
         or describe its stores in a layout file for `--family`.\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(duration("20s"), Ok(Duration::from_secs(20)));
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        for wrong in ["", "20", "s", "1h", "-1s"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn families_are_named_or_read_from_a_file() {
        assert_eq!(families("unknown").unwrap(), []);
        assert_eq!(families("reference:deferred").unwrap().len(), 1);
        assert!(families("auto").unwrap().len() > 2);
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "{ stores: [], flush: [] }").unwrap();
        let name = file.path().to_string_lossy().into_owned();
        assert_eq!(families(&name).unwrap(), [(name, Layout::default())]);
        let error = families("cosmos").unwrap_err();
        assert!(error.message.contains("cometbft") && error.code == Code::BadInput, "{error}");
    }
}

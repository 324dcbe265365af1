//! `midflush clean`: removes what runs of dead controllers left behind, on every engine that can be reached.

use std::collections::{BTreeMap, BTreeSet};

use serde::Serialize;

use super::engines::{self, Choice, EngineArgs};
use super::run::chains_folder;
use super::{CliError, Code};
use crate::engine::docker::DockerEngine;
use crate::engine::leftovers::{Action, decide};
use crate::engine::{Engine, Found};
use crate::report::words;
use crate::run::cache::{self, Room};

/// Arguments of `clean`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    engine: EngineArgs,

    /// Also remove things whose owner cannot be seen from here, and take other containers off a run's network
    #[arg(long)]
    force: bool,

    /// Only what belongs to this run
    #[arg(long, value_name = "ID")]
    run: Option<String>,

    /// Also remove node images that midflush made, unless a run is alive; they are made again when needed
    #[arg(long)]
    images: bool,

    /// Also remove chains that were built and are kept for later runs, unless they are in use; they are built again when needed
    #[arg(long)]
    chains: bool,

    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// What was done, as `--json` prints it.
#[derive(Debug, Default, Serialize)]
struct Done {
    version: u32,
    removed: Vec<Found>,
    kept: Vec<Kept>,
    images: Vec<String>,
    chains: Chains,
    failed: Vec<String>,
    not_looked_at: Vec<String>,
}

#[derive(Debug, Default, Serialize)]
struct Chains {
    removed: u64,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct Kept {
    thing: Found,
    why: &'static str,
}

/// Runs the command.
pub(crate) async fn run(args: Args) -> Result<Code, CliError> {
    let mut done = Done { version: 1, ..Done::default() };
    if args.engine.engine != Choice::Docker {
        match engines::process(&args.engine) {
            Ok(engine) => clean_engine(engine.as_ref(), &args, &mut done).await,
            Err(error) if args.engine.engine == Choice::Process => return Err(error),
            Err(error) => done.not_looked_at.push(error.message),
        }
    }
    if args.engine.engine != Choice::Process {
        match engines::docker(&args.engine).await {
            Ok(docker) => {
                let docker = docker.detach_foreign(args.force);
                clean_engine(&docker, &args, &mut done).await;
                if args.images {
                    clean_images(&docker, &mut done).await;
                }
            }
            // Without Docker there are no leftovers in Docker; one that was named must answer.
            Err(error) if args.engine.engine == Choice::Docker || args.engine.docker_host.is_some() => {
                return Err(CliError::tool(error));
            }
            Err(error) => done.not_looked_at.push(format!("docker: failed to {}", error.what)),
        }
    }
    if args.chains {
        let Room { chains, bytes } = cache::trim(&chains_folder(), 0);
        done.chains = Chains { removed: chains, bytes };
    }
    if args.json {
        super::say(format_args!(
            "{}\n",
            serde_json::to_string(&done).map_err(|e| CliError::tool(format!("print the outcome: {e}")))?
        ));
    } else {
        super::say(told(&done));
    }
    let all_gone = done.failed.is_empty() && !done.kept.iter().any(|kept| kept.why == why(Action::ReportForeign));
    Ok(if all_gone { Code::Ok } else { Code::Tool })
}

async fn clean_engine(engine: &dyn Engine, args: &Args, done: &mut Done) {
    let found = match engine.list().await {
        Ok(found) => found,
        Err(error) => return done.failed.push(error.to_string()),
    };
    let mut runs = BTreeSet::new();
    for (thing, action) in decide(&found, args.force) {
        if args.run.is_some() && thing.run != args.run {
            continue;
        }
        match (action.removes(), thing.run.clone()) {
            (true, Some(run)) => {
                runs.insert(run);
            }
            _ => done.kept.push(Kept { thing, why: why(action) }),
        }
    }
    for run in runs {
        match engine.remove(&run).await {
            Ok(removed) => done.removed.extend(removed),
            Err(error) => done.failed.push(error.to_string()),
        }
    }
}

/// Takes the images away, but not from under a run that has made one ready and is about to use it.
async fn clean_images(docker: &DockerEngine, done: &mut Done) {
    if done.kept.iter().any(|kept| kept.why == why(Action::KeepLive)) {
        return done.not_looked_at.push("images: a run is alive".to_owned());
    }
    match docker.remove_images().await {
        Ok((removed, failed)) => {
            done.images.extend(removed);
            done.failed.extend(failed);
        }
        Err(error) => done.failed.push(error.to_string()),
    }
}

fn why(action: Action) -> &'static str {
    match action {
        Action::Remove | Action::DetachAndRemove => "removable",
        Action::KeepLive => "its run is alive",
        Action::KeepUnlabelled => "it carries no label of a run",
        Action::ReportForeign => "containers of somebody else are on it; `--force` takes them off",
        Action::ReportUnknown => "its owner cannot be seen from here; `--force` removes it all the same",
    }
}

fn told(done: &Done) -> String {
    let mut lines = Vec::new();
    for thing in &done.removed {
        lines.push(format!("removed {} {} of run {}", thing.kind, thing.id, thing.run.as_deref().unwrap_or("?")));
    }
    lines.extend(done.images.iter().map(|tag| format!("removed image {tag}")));
    if done.chains.removed > 0 {
        let chains = words::counted(done.chains.removed, "built chain");
        lines.push(format!("removed {chains}, {}", words::bytes(done.chains.bytes)));
    }
    lines.extend(alive(&done.kept));
    for Kept { thing, why } in done.kept.iter().filter(|kept| kept.why != self::why(Action::KeepLive)) {
        let foreign = if thing.foreign.is_empty() { String::new() } else { format!(" ({})", thing.foreign.join(", ")) };
        let run = thing.run.as_deref().map_or_else(String::new, |run| format!(" of run {run}"));
        lines.push(format!("kept {} {}{run}: {why}{foreign}", thing.kind, thing.id));
    }
    lines.extend(done.failed.iter().map(|why| format!("failed to {why}")));
    lines.extend(done.not_looked_at.iter().map(|what| format!("not looked at: {what}")));
    if done.removed.is_empty() && done.images.is_empty() && done.chains.removed == 0 && done.failed.is_empty() {
        lines.push("nothing to remove".to_owned());
    }
    lines.join("\n") + "\n"
}

/// A line for each run that is alive, with how much of it was seen: nobody asked about its single things.
fn alive(kept: &[Kept]) -> Vec<String> {
    let mut runs: BTreeMap<&str, BTreeMap<&str, usize>> = BTreeMap::new();
    for Kept { thing, .. } in kept.iter().filter(|kept| kept.why == why(Action::KeepLive)) {
        *runs.entry(thing.run.as_deref().unwrap_or("?")).or_default().entry(thing.kind.as_str()).or_default() += 1;
    }
    let told = |(run, kinds): (&str, BTreeMap<&str, usize>)| {
        let counts: Vec<String> = kinds.iter().map(|(kind, count)| format!("{kind} × {count}")).collect();
        format!("left alone: run {run}, which is alive ({})", counts.join(", "))
    };
    runs.into_iter().map(told).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::OwnerState;

    #[test]
    fn a_run_that_is_alive_takes_one_line_and_what_is_kept_names_its_run() {
        let thing = |kind: &str, id: &str, run: &str| Found {
            kind: kind.to_owned(),
            id: id.to_owned(),
            run: Some(run.to_owned()),
            owner: OwnerState::Alive,
            foreign: Vec::new(),
        };
        let kept = |action, thing| Kept { thing, why: why(action) };
        let done = Done {
            kept: vec![
                kept(Action::KeepLive, thing("process", "11", "r-1")),
                kept(Action::KeepLive, thing("process", "12", "r-1")),
                kept(Action::KeepLive, thing("folder", "/tmp/x", "r-1")),
                kept(Action::ReportUnknown, thing("container", "c", "r-2")),
            ],
            ..Done::default()
        };
        let text = told(&done);
        assert_eq!(
            text.lines().take(2).collect::<Vec<_>>(),
            [
                "left alone: run r-1, which is alive (folder × 1, process × 2)",
                "kept container c of run r-2: its owner cannot be seen from here; `--force` removes it all the same"
            ]
        );
    }
}

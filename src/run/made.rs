//! What a node's own command line makes once, before the network starts: its steps run through the engine under an agent of
//! their own, so that they see the same program, libraries and image as the nodes. Cached by all that they depend on.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio_util::sync::CancellationToken;

use super::experiment::Experiment;
use super::testnet::{ThroughEngine, archive_files};
use super::{RunError, cache};
use crate::agent_client::Client;
use crate::agent_client::protocol::StartRequest;
use crate::chain::{Made, SetUp, Step};
use crate::engine::{Launch, LaunchNode, NodeBinding};
use crate::timeline::{Exit, Layout, NodeEvent, Tier};

/// Longest time that all steps together may take.
const STEPS_MAX: Duration = Duration::from_secs(300);
/// Longest time that the removal of what they ran in may take.
const REMOVE_MAX: Duration = Duration::from_secs(60);
/// The only node of a set-up.
const NODE: &str = "set-up";
/// Largest captured output of one step, in bytes.
const OUTPUT_MAX: u64 = 1 << 20;
/// Longest line shown of a failing step.
const LINE_MAX: usize = 400;
/// What a command line says of a command that it does not have.
const UNKNOWN: &str = "unknown command";

/// The outcome of a set-up, from the cache or carried out now. `digest` is that of the program.
pub(super) async fn made(
    experiment: &Experiment,
    wanted: &SetUp,
    digest: &str,
    cancel: &CancellationToken,
) -> Result<Made, RunError> {
    let key = format!("{}-{}", wanted.key, digest.get(..12).unwrap_or(digest));
    let done = experiment.cache.join(&key);
    let fail = |e: std::io::Error| RunError::Fixture { folder: done.clone(), reason: e.to_string() };
    let _lock = cache::make(&experiment.cache, &key, cancel).await?;
    if done.is_dir() {
        return wanted.keep.iter().map(|path| Ok((path.clone(), fs::read(done.join(path)).map_err(fail)?))).collect();
    }
    tracing::info!("running the node's own command line to set up the chain (kept for later runs)");
    let made = in_a_run_of_its_own(experiment, wanted, cancel).await?;
    keep(&experiment.cache, &done, &made).map_err(fail)?;
    cache::trim(&experiment.cache, cache::BYTES_MAX);
    Ok(made)
}

fn keep(cache: &Path, done: &Path, made: &Made) -> std::io::Result<()> {
    let work = tempfile::Builder::new().prefix("building-").tempdir_in(cache)?;
    for (path, bytes) in made {
        let path = work.path().join(path);
        fs::create_dir_all(path.parent().unwrap_or(work.path()))?;
        fs::write(path, bytes)?;
    }
    fs::rename(work.keep(), done)
}

async fn in_a_run_of_its_own(
    experiment: &Experiment,
    wanted: &SetUp,
    cancel: &CancellationToken,
) -> Result<Made, RunError> {
    let run = format!("{}-setup", experiment.facts.run);
    let outcome = tokio::select! {
        outcome = tokio::time::timeout(STEPS_MAX, carry_out(experiment, &run, wanted)) => outcome,
        () = cancel.cancelled() => Ok(Err(RunError::Interrupted)),
    };
    let removed = tokio::time::timeout(REMOVE_MAX, experiment.engine.remove(&run)).await;
    let made = outcome.unwrap_or_else(|_| {
        Err(RunError::SetUp { reason: format!("its steps did not end within {} s", STEPS_MAX.as_secs()) })
    })?;
    match removed {
        Ok(Ok(_)) => Ok(made),
        Ok(Err(source)) => Err(RunError::Engine { doing: "remove what the set-up ran in".to_owned(), source }),
        Err(_) => {
            Err(RunError::SetUp { reason: format!("what it ran in is left behind; `midflush clean --run {run}`") })
        }
    }
}

async fn carry_out(experiment: &Experiment, run: &str, wanted: &SetUp) -> Result<Made, RunError> {
    let launch = Launch {
        run: run.to_owned(),
        token: experiment.facts.token.clone(),
        nodes: vec![LaunchNode { name: NODE.to_owned(), build: wanted.build.clone() }],
    };
    let binding = experiment
        .engine
        .launch(&launch)
        .await
        .map_err(|source| RunError::Engine { doing: "launch the agent of the set-up".to_owned(), source })?;
    let place = binding.nodes.get(NODE).ok_or_else(|| RunError::SetUp { reason: "its agent is nowhere".to_owned() })?;
    let dial = ThroughEngine { engine: Arc::clone(&experiment.engine), run: run.to_owned(), node: NODE.to_owned() };
    let mut bench = Bench { client: Client::new(Arc::new(dial), &experiment.facts.token), place, seen: 0 };
    let files = archive_files(&wanted.files).map_err(|e| RunError::Archive { what: e.to_string() })?;
    bench.client.put_files(files).await.map_err(failed("put the files"))?;
    for step in &wanted.steps {
        bench.carry_out(step).await?;
    }
    let archive = bench.client.export(&wanted.keep).await.map_err(failed("take what it made"))?;
    let made = unpack(archive).map_err(|e| RunError::Archive { what: e.to_string() })?;
    match wanted.keep.iter().find(|path| !made.contains_key(*path)) {
        None => Ok(made),
        Some(missing) => Err(RunError::SetUp { reason: format!("no step made `{missing}`") }),
    }
}

fn failed(doing: &str) -> impl FnOnce(crate::agent_client::ClientError) -> RunError {
    let doing = doing.to_owned();
    move |source| RunError::Agent { node: NODE.to_owned(), doing, source }
}

fn unpack(archive: Bytes) -> std::io::Result<Made> {
    let mut made = BTreeMap::new();
    for entry in tar::Archive::new(archive.as_ref()).entries()? {
        let mut entry = entry?;
        if entry.header().entry_type().is_file() {
            let path = entry.path()?.to_string_lossy().into_owned();
            let mut bytes = Vec::new();
            entry.read_to_end(&mut bytes)?;
            made.insert(path, bytes);
        }
    }
    Ok(made)
}

/// Where the steps run.
struct Bench<'a> {
    client: Client,
    place: &'a NodeBinding,
    /// The agent's last record that was read.
    seen: u64,
}

impl Bench<'_> {
    async fn carry_out(&mut self, step: &Step) -> Result<(), RunError> {
        let (exit, lines) = self.run(&step.arguments, &step.input).await?;
        if exit == Exit::Code(0) {
            return Ok(());
        }
        match &step.or {
            Some(other) if lines.iter().any(|line| line.contains(UNKNOWN)) => {
                let (exit, lines) = self.run(other, &step.input).await?;
                if exit == Exit::Code(0) { Ok(()) } else { Err(self.ended(other, exit, &lines)) }
            }
            _ => Err(self.ended(&step.arguments, exit, &lines)),
        }
    }

    /// Runs the program once: how it ended, and the last lines of what it printed.
    async fn run(&mut self, arguments: &[String], input: &str) -> Result<(Exit, Vec<String>), RunError> {
        let mut env = self.place.env.clone();
        env.insert("HOME".to_owned(), self.place.home.to_string_lossy().into_owned());
        let request = StartRequest {
            command: [&self.place.program[..], arguments].concat(),
            env,
            input: input.to_owned(),
            tier: Tier::None,
            layout: Layout::default(),
            sync_latency: BTreeMap::new(),
            seed: 0,
            height: 0,
            rpc: None,
            arms: Vec::new(),
            output_max: OUTPUT_MAX,
        };
        let started = self.client.start(&request).await.map_err(failed("run the node's command line"))?;
        let mut events = self.client.events(self.seen).await.map_err(failed("follow the node's command line"))?;
        while let Some(record) = events.next().await {
            let record = record.map_err(failed("follow the node's command line"))?;
            self.seen = record.seq;
            match record.event {
                NodeEvent::Exited { start, exit, tail, .. } if start == started.start => return Ok((exit, tail)),
                _ => {}
            }
        }
        Err(RunError::SetUp { reason: "the agent ended before the command did".to_owned() })
    }

    fn ended(&self, arguments: &[String], exit: Exit, lines: &[String]) -> RunError {
        let command = [&self.place.program[..], arguments].concat().join(" ");
        let how = match exit {
            Exit::Code(code) => format!("exit code {code}"),
            Exit::Signal(signal) => format!("signal {signal}"),
        };
        let cut = |line: &String| line.chars().take(LINE_MAX).collect::<String>();
        let output: Vec<String> = lines.iter().map(cut).collect();
        let output = if output.is_empty() { "it printed nothing".to_owned() } else { output.join("\n") };
        RunError::SetUp { reason: format!("`{command}` ended with {how}:\n{output}") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_kept_is_there_as_a_whole() {
        let cache = tempfile::tempdir().expect("a folder");
        let made = Made::from([("config/genesis.json".to_owned(), b"{}".to_vec())]);
        keep(cache.path(), &cache.path().join("key"), &made).expect("kept");
        assert_eq!(fs::read(cache.path().join("key/config/genesis.json")).expect("a file"), b"{}");
        assert_eq!(fs::read_dir(cache.path()).expect("a folder").count(), 1);
    }
}

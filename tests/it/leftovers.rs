//! What a whole run leaves behind when its controller is killed or interrupted: nothing after `midflush clean`, nothing at
//! all after Ctrl-C. Each has a temporary folder of its own, so that what is looked at belongs to this test alone.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use midflush::engine::Engine;
use midflush::engine::docker::DockerEngine;
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::{Rng, SeedableRng};

/// How many controllers are killed.
const KILLS: u64 = 20;
/// The latest instant of a kill, after the start; a run is well under way by then.
const KILL_MS_MAX: u64 = 3_000;

fn midflush(temporary: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_midflush"));
    command.args(arguments).env("TMPDIR", temporary).stdin(Stdio::null());
    command
}

fn run(temporary: &Path, engine: &str) -> Child {
    let topology = Path::new(env!("CARGO_MANIFEST_DIR")).join("topologies/four.yaml");
    let results = temporary.join("results");
    midflush(temporary, &["run", "--json", "--engine", engine])
        .arg(topology)
        .arg("--results")
        .arg(results)
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("a run")
}

/// Folders of runs below the temporary folder.
fn run_folders(temporary: &Path) -> Vec<PathBuf> {
    let uid = std::os::unix::fs::MetadataExt::uid(&std::fs::metadata(temporary).expect("the folder"));
    let Ok(entries) = std::fs::read_dir(temporary.join(format!("midflush-{uid}"))) else { return Vec::new() };
    entries.map(|entry| entry.expect("an entry").path()).collect()
}

/// Processes whose arguments name a path below the temporary folder.
fn processes(temporary: &Path) -> Vec<String> {
    let wanted = temporary.to_string_lossy().into_owned();
    let commands = std::fs::read_dir("/proc").expect("/proc").filter_map(|entry| {
        let bytes = std::fs::read(entry.ok()?.path().join("cmdline")).ok()?;
        Some(String::from_utf8_lossy(&bytes).replace('\0', " "))
    });
    commands.filter(|command| command.contains(&wanted)).collect()
}

#[test]
fn clean_leaves_nothing_of_controllers_killed_at_random_instants() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut random = ChaCha20Rng::seed_from_u64(7);
    for kill in 0..KILLS {
        let mut controller = run(folder.path(), "process");
        std::thread::sleep(Duration::from_millis(random.next_u64() % KILL_MS_MAX));
        controller.kill().expect("killed");
        controller.wait().expect("reaped");
        let cleaned = midflush(folder.path(), &["clean", "--engine", "process"]).output().expect("cleaned");
        let told = String::from_utf8_lossy(&cleaned.stdout);
        assert!(cleaned.status.success(), "kill {kill}: {told}");
        // A child that the controller had forked, and that had not come to life yet, looks like the controller for a moment
        // and then ends, since its run is gone.
        let deadline = Instant::now() + Duration::from_secs(10);
        while !processes(folder.path()).is_empty() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
        assert_eq!(processes(folder.path()), [""; 0], "kill {kill}: {told}");
        assert_eq!(run_folders(folder.path()), Vec::<PathBuf>::new(), "kill {kill}: {told}");
    }
    timelines_read_back(&folder.path().join("results"));
}

/// Every timeline is whole but for its last line, which the judge leaves out, and is judged.
fn timelines_read_back(results: &Path) {
    let mut read = 0;
    for entry in std::fs::read_dir(results).expect("results") {
        let run = entry.expect("an entry").path();
        // Without a whole line nothing had been seen yet when the controller was killed.
        if !std::fs::read_to_string(run.join("timeline.ndjson")).is_ok_and(|text| text.contains('\n')) {
            continue;
        }
        let judged = midflush(results, &["judge", "--json"]).arg(&run).output().expect("judged");
        let told = String::from_utf8_lossy(&judged.stdout);
        let verdict: Result<serde_json::Value, _> = serde_json::from_str(&told);
        assert!(verdict.is_ok(), "{}: {told}{}", run.display(), String::from_utf8_lossy(&judged.stderr));
        read += 1;
    }
    assert!(read > 0, "no controller lived long enough to write a timeline");
}

#[test]
fn an_interrupted_run_removes_everything() {
    let folder = tempfile::tempdir().expect("a folder");
    interrupt(folder.path(), "process");
    assert_eq!(run_folders(folder.path()), Vec::<PathBuf>::new());
    assert_eq!(processes(folder.path()), [""; 0]);
}

#[tokio::test]
async fn an_interrupted_run_leaves_nothing_in_docker() {
    let engine = match DockerEngine::connect(None, env!("CARGO_BIN_EXE_midflush").into()).await {
        Ok(engine) => engine,
        Err(error) if std::env::var("MIDFLUSH_REQUIRE_DOCKER").is_ok_and(|value| value == "1") => {
            panic!("MIDFLUSH_REQUIRE_DOCKER is set, but failed to {error}")
        }
        Err(error) => return println!("not tested, Docker is missing: failed to {error}"),
    };
    let folder = tempfile::tempdir().expect("a folder");
    interrupt(folder.path(), "docker");
    let run = std::fs::read_dir(folder.path().join("results")).expect("results");
    let run = run.map(|entry| entry.expect("an entry").path()).find(|path| path.is_dir()).expect("a run folder");
    let run = run.file_name().expect("a name").to_string_lossy().into_owned();
    let left = engine.list().await.expect("a list");
    assert!(!left.iter().any(|thing| thing.run.as_deref() == Some(run.as_str())), "{left:?}");
}

/// Sends SIGINT once a node runs, and waits for the end.
fn interrupt(temporary: &Path, engine: &str) {
    let mut controller = run(temporary, engine);
    let stderr = BufReader::new(controller.stderr.take().expect("its messages"));
    let mut lines = stderr.lines().map_while(Result::ok);
    assert!(lines.any(|line| line.contains("start 1")), "no node was started");
    let pid = rustix::process::Pid::from_child(&controller);
    rustix::process::kill_process(pid, rustix::process::Signal::INT).expect("interrupted");
    let asked = Instant::now();
    let rest: Vec<String> = lines.collect();
    let status = controller.wait().expect("ended");
    assert_eq!(status.code(), Some(130), "{}", rest.join("\n"));
    println!("{engine}: everything was removed {:?} after the interrupt", asked.elapsed());
}

//! A machine whose disk is full, on a small file system that the test mounts: the machine is blamed and no node.
//!
//! Only root may mount. Anybody else is told so, unless `MIDFLUSH_REQUIRE_MOUNT=1` demands it.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Longest wait for a run to get somewhere.
const WAIT: Duration = Duration::from_secs(120);

/// A file system in memory, unmounted with it.
struct Small {
    folder: tempfile::TempDir,
}

impl Small {
    fn new(size: &str) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", &format!("size={size}"), "tmpfs"])
            .arg(folder.path())
            .output()
            .expect("mount runs");
        if mounted.status.success() {
            return Some(Self { folder });
        }
        let why = String::from_utf8_lossy(&mounted.stderr).into_owned();
        let demanded = std::env::var("MIDFLUSH_REQUIRE_MOUNT").is_ok_and(|value| value == "1");
        assert!(!demanded, "MIDFLUSH_REQUIRE_MOUNT is set, and nothing can be mounted: {why}");
        println!("not tested, nothing can be mounted: {why}");
        None
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Writes until nothing more fits.
    fn fill(&self) {
        let mut ballast = File::create(self.path().join("ballast")).expect("a file");
        while ballast.write_all(&[0; 4096]).is_ok() {}
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let unmounted = Command::new("umount").arg("--lazy").arg(self.path()).status();
        assert!(unmounted.is_ok_and(|status| status.success()) || std::thread::panicking());
    }
}

/// Four validators that go on until their disk is full.
fn run(results: &Path, temporary: &Path) -> Command {
    let topology = Path::new(env!("CARGO_MANIFEST_DIR")).join("topologies/four.yaml");
    let mut command = Command::new(env!("CARGO_BIN_EXE_midflush"));
    command.arg("run").arg(topology).args(["--engine", "process", "--json", "--time-limit", "100s"]);
    command.args(["--set", "faults=[{ name: far, kill: val-1, at: { height: 100000 }, within: 100s }]"]);
    command.arg("--results").arg(results).env("TMPDIR", temporary).env_remove("RUST_LOG");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// The machine failed; that is said first, and a node only in what follows from it.
fn assert_blames_the_disk(output: &Output) {
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    let judgement: Value = serde_json::from_slice(&output.stdout).expect("a verdict");
    assert_eq!(judgement["verdict"], "TOOL_ERROR", "{judgement:#}");
    let findings = judgement["findings"].as_array().expect("findings");
    assert!(findings.iter().all(|finding| finding["verdict"] == "TOOL_ERROR"), "{judgement:#}");
    assert_eq!(findings[0]["class"], "disk-full", "{judgement:#}");
    assert_eq!(findings[0]["next"], "free space on the machine and run again", "{judgement:#}");
}

#[test]
fn nodes_whose_disk_is_full_are_not_to_blame() {
    let Some(small) = Small::new("1m") else { return };
    let results = tempfile::tempdir().expect("a folder");
    let output = run(results.path(), small.path()).output().expect("midflush runs");
    assert_blames_the_disk(&output);
}

#[test]
fn a_full_disk_of_results_is_said_in_the_verdict() {
    let Some(small) = Small::new("4m") else { return };
    let temporary = tempfile::tempdir().expect("a folder");
    let mut child = run(small.path(), temporary.path()).spawn().expect("midflush runs");
    let begun = Instant::now();
    while !timeline(small.path()).is_some_and(|text| text.contains("\"hashes\"")) {
        if begun.elapsed() > WAIT || child.try_wait().expect("a child").is_some() {
            let output = child.wait_with_output().expect("ended");
            panic!("no height was seen: {}", String::from_utf8_lossy(&output.stderr));
        }
        std::thread::sleep(Duration::from_millis(50));
    }
    small.fill();
    assert_blames_the_disk(&child.wait_with_output().expect("ended"));
}

#[test]
fn results_that_do_not_fit_leave_nothing_behind() {
    let Some(small) = Small::new("64k") else { return };
    let temporary = tempfile::tempdir().expect("a folder");
    let output = run(small.path(), temporary.path()).output().expect("midflush runs");
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{stderr}");
    assert!(stderr.contains("the disk is full; free some space"), "{stderr}");
    assert!(output.stdout.is_empty(), "{stderr}");
    assert!(folders(small.path()).is_empty(), "{:?}", folders(small.path()));
}

#[test]
fn little_room_is_said_before_a_run_with_what_clean_gives_back() {
    let Some(small) = Small::new("64m") else { return };
    let cache = small.path().join("cache");
    let chain = cache.join("midflush/fixtures/reference-0/data");
    fs::create_dir_all(&chain).expect("a folder");
    fs::write(chain.join("blocks"), vec![7; 3 << 20]).expect("a chain");
    let results = small.path().join("results");
    let topology = Path::new(env!("CARGO_MANIFEST_DIR")).join("topologies/four.yaml");
    let mut run = Command::new(env!("CARGO_BIN_EXE_midflush"));
    run.arg("run").arg(topology).args(["--engine", "process", "--time-limit", "1ms", "--results"]).arg(&results);
    run.env("TMPDIR", small.path()).env("XDG_CACHE_HOME", &cache);
    let output = run.output().expect("midflush runs");
    let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
    let notes: Vec<&str> = stderr.lines().filter(|line| line.contains(" free for ")).collect();
    assert_eq!(notes.len(), 1, "{stderr}");
    assert!(notes[0].contains("MiB free for results in ") && notes[0].contains("gives back 3.0 MiB"), "{stderr}");
    let clean = |said: &str| {
        let mut clean = Command::new(env!("CARGO_BIN_EXE_midflush"));
        clean.args(["clean", "--chains", "--engine", "process"]).env("TMPDIR", small.path());
        let output = clean.env("XDG_CACHE_HOME", &cache).output().expect("midflush runs");
        let stdout = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success() && stdout.contains(said), "{stdout}");
    };
    clean("removed 1 built chain, 3.0 MiB");
    assert!(!chain.exists());
    clean("nothing to remove");
}

fn folders(results: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(results).into_iter().flatten().flatten().map(|entry| entry.path());
    entries.filter(|path| path.is_dir()).collect()
}

fn timeline(results: &Path) -> Option<String> {
    fs::read_to_string(folders(results).first()?.join("timeline.ndjson")).ok()
}

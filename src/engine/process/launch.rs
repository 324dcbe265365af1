//! Starting agents and waiting until each can be dialled.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::Duration;

use tokio::net::TcpStream;
use tokio::time::{Instant, sleep, timeout};

use super::table::ENV_OWNER;
use crate::engine::EngineError;
use crate::engine::owner::Owner;

/// How long one agent may take from its start until it accepts; more agents get more.
const READY_WAIT: Duration = Duration::from_secs(20);
const READY_WAIT_PER_AGENT: Duration = Duration::from_millis(250);
/// Pause between two attempts to connect.
const POLL: Duration = Duration::from_millis(15);
/// How long one attempt to connect may take.
pub(super) const DIAL_TIMEOUT: Duration = Duration::from_secs(5);
/// How much of an agent's own output is kept for errors and [`read_log`].
const LOG_TAIL: u64 = 64 * 1024;
/// Variables of the controller's environment that agents get.
const PASSED_ON: [&str; 5] = ["PATH", "HOME", "TMPDIR", "RUST_LOG", "RUST_BACKTRACE"];

/// An agent that is to start, or has started.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub name: String,
    pub address: SocketAddr,
    pub folder: PathBuf,
}

/// Starts one agent, in a process group of its own so that Ctrl-C on the terminal reaches the controller alone.
pub(super) fn spawn(program: &Path, run: &str, agent: &Waiting) -> Result<Child, EngineError> {
    let Waiting { name, address, folder } = agent;
    let failed = |e: io::Error| EngineError::new(format!("start the agent of {name}")).because(e);
    let log = OpenOptions::new().append(true).create(true).mode(0o600).open(log_file(folder)).map_err(failed)?;
    let mut command = Command::new(program);
    command
        .arg("agent")
        .args(["--listen", &address.to_string()])
        .arg("--home")
        .arg(folder.join("home"))
        .arg("--token-file")
        .arg(folder.join("token"))
        .args(["--run", run, "--node", name])
        .env_clear()
        .envs(PASSED_ON.iter().filter_map(|key| Some((key, std::env::var_os(key)?))))
        .env(ENV_OWNER, Owner::this().label())
        .current_dir(folder)
        .stdin(Stdio::null())
        .stdout(log.try_clone().map_err(failed)?)
        .stderr(log)
        .process_group(0);
    command.spawn().map_err(failed)
}

/// Waits until an agent accepts a connection. `ended` tells its exit status: one that ends first is an error with what
/// it printed.
pub(super) async fn wait_ready(
    agent: &Waiting,
    deadline: Instant,
    ended: impl Fn() -> Option<ExitStatus>,
) -> Result<(), EngineError> {
    loop {
        if timeout(DIAL_TIMEOUT, TcpStream::connect(agent.address)).await.is_ok_and(|stream| stream.is_ok()) {
            return Ok(());
        }
        if let Some(status) = ended() {
            let why = format!("start the agent of {}: it ended with {status}", agent.name);
            return Err(with_log(EngineError::new(why), &agent.folder));
        }
        if Instant::now() >= deadline {
            let why = format!("reach the agent of {} at {} in time", agent.name, agent.address);
            return Err(with_log(EngineError::new(why), &agent.folder));
        }
        sleep(POLL).await;
    }
}

/// When agents that start now must all accept.
pub(super) fn ready_deadline(agents: usize) -> Instant {
    let count = u32::try_from(agents).unwrap_or(u32::MAX);
    Instant::now() + READY_WAIT + READY_WAIT_PER_AGENT.saturating_mul(count)
}

fn with_log(error: EngineError, folder: &Path) -> EngineError {
    let log = read_log(folder).unwrap_or_default();
    if log.trim().is_empty() { error } else { error.because(format!("it printed:\n{}", log.trim_end())) }
}

fn log_file(folder: &Path) -> PathBuf {
    folder.join("agent.log")
}

/// The end of what an agent printed.
pub(super) fn read_log(folder: &Path) -> io::Result<String> {
    let mut file = File::open(log_file(folder))?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(LOG_TAIL)))?;
    let mut bytes = Vec::new();
    file.take(LOG_TAIL).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Removes a folder that nothing uses any more, and says so when something still writes into it.
pub(super) fn remove_folder(path: &Path) -> io::Result<()> {
    // A process that was just killed may have created a file between listing and removing: look again, a few times.
    for _ in 0..5 {
        match fs::remove_dir_all(path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
            Err(e) if e.kind() == io::ErrorKind::DirectoryNotEmpty => {}
            done => return done,
        }
    }
    fs::remove_dir_all(path)
}

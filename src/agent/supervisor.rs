//! The node over all its starts.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::agent_client::protocol::{
    AgentRecord, Arm, Hello, Interception, Probe, Signal, StartRequest, Started, Usage,
};
use crate::sys::launch;
use crate::timeline::{FaultId, Layout};

use super::AgentError;
use super::aim;
use super::journal::{Journal, clock_us};
use super::process::{Process, Surroundings};
use super::spawner::Spawner;
use super::tap::Tapped;

/// Folder below home for what the agent itself keeps: the captured output.
pub(crate) const OWN_FOLDER: &str = ".midflush";

const LOG_PREFIX: &str = "start-";
const LOG_SUFFIX: &str = ".log";

/// Holds one node: its home, its process, its events.
pub struct Supervisor {
    home: PathBuf,
    spawner: Spawner,
    pub(crate) journal: Arc<Journal>,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    starts: u32,
    process: Option<Arc<Process>>,
    layout: Layout,
    // What the last start can have left on disk; unknown once files were put there by hand.
    expected: Option<(u64, u64)>,
}

impl Supervisor {
    /// For a node whose files lie in `home`, which is made if it is not there. The folder around it must be: an agent that
    /// gets going after its run was removed, since its controller died between its fork and its start, must not bring the
    /// run's folder back.
    pub fn new(home: &Path) -> Result<Self, AgentError> {
        for folder in [home, &home.join(OWN_FOLDER)] {
            match fs::create_dir(folder) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
                    return Err(AgentError::io("make a folder of the node")(error));
                }
                _ => {}
            }
        }
        let home = fs::canonicalize(home).map_err(AgentError::io("find the node's home"))?;
        // Children that a node leaves behind come to this process, which reaps them.
        if let Err(error) = rustix::process::set_child_subreaper(Some(rustix::process::getpid())) {
            tracing::warn!(%error, "orphans of the node will not be reaped");
        }
        let spawner = Spawner::new().map_err(AgentError::io("start a thread"))?;
        let starts = starts_before(&home.join(OWN_FOLDER)).map_err(AgentError::io("look at the node's home"))?;
        let state = Mutex::new(State { starts, ..State::default() });
        Ok(Self { home, spawner, journal: Arc::new(Journal::new()), state })
    }

    /// The node's home, without symbolic links.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// What this agent is; tries what interception can do.
    pub fn hello(&self) -> Hello {
        let interception = match launch::try_filter() {
            Ok(wait_killable) => Interception { refused: None, wait_killable },
            Err(error) => {
                let why = match error.raw_os_error() {
                    Some(16) => "another supervisor listens to this container's system calls already; run it without",
                    Some(1 | 13 | 38) => "seccomp filters with a listener are not allowed or not known here",
                    _ => "a seccomp filter could not be installed",
                };
                Interception { refused: Some(format!("{why} ({error})")), wait_killable: false }
            }
        };
        Hello {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            boot_id: fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default().trim().to_owned(),
            clock_us: clock_us(),
            uid: rustix::process::getuid().as_raw(),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
            interception,
        }
    }

    /// Starts the node; blocks until its program runs.
    pub fn start(&self, request: StartRequest) -> Result<Started, AgentError> {
        self.start_in(request, &self.home, None)
    }

    /// Starts the node in another working folder, and sends every durable event of any file to `tap` as well.
    pub fn start_observed(
        &self,
        request: StartRequest,
        folder: &Path,
        tap: SyncSender<Tapped>,
    ) -> Result<Started, AgentError> {
        self.start_in(request, folder, Some(tap))
    }

    fn start_in(
        &self,
        request: StartRequest,
        folder: &Path,
        tap: Option<SyncSender<Tapped>>,
    ) -> Result<Started, AgentError> {
        for arm in &request.arms {
            aim::refuse_arm(arm, &request.layout, request.tier).map_err(AgentError::Refused)?;
        }
        let mut state = self.lock();
        if state.process.as_ref().is_some_and(|process| !process.is_over()) {
            return Err(AgentError::Conflict("the node runs already".to_owned()));
        }
        if let Some(process) = state.process.take() {
            state.expected = Some(process.heights_left());
        }
        let start = state.starts + 1;
        let layout = request.layout.clone();
        let around = Surroundings {
            home: &self.home,
            folder,
            log: &self.log_path(start),
            start,
            expected: state.expected,
            spawner: &self.spawner,
            journal: &self.journal,
            tap,
        };
        let process = Process::start(request, around)?;
        state.starts = start;
        state.layout = layout;
        let pid = process.pid.as_raw_nonzero().get().unsigned_abs();
        state.process = Some(Arc::new(process));
        Ok(Started { start, pid })
    }

    /// Sends a signal to the node.
    pub fn signal(&self, signal: Signal, fault: Option<FaultId>) -> Result<(), AgentError> {
        let sent = self.running()?.signal(signal, fault);
        if sent { Ok(()) } else { Err(not_running()) }
    }

    /// Waits for an address.
    pub fn arm(&self, arm: Arm) -> Result<(), AgentError> {
        let process = self.running()?;
        aim::refuse_arm(&arm, &self.lock().layout, process.tier).map_err(AgentError::Refused)?;
        if process.arm(arm) { Ok(()) } else { Err(not_running()) }
    }

    /// Takes an armed fault back.
    pub fn disarm(&self, fault: &FaultId) -> Result<(), AgentError> {
        let process = self.process();
        if process.is_some_and(|process| process.disarm(fault)) {
            return Ok(());
        }
        Err(AgentError::Missing(format!("fault `{}` is not armed", fault.name)))
    }

    /// What happened after position `after`, as far as it is kept.
    pub fn events(&self, after: u64) -> Vec<AgentRecord> {
        self.journal.read(after, usize::MAX)
    }

    /// Where the output of a start is kept.
    pub fn log_path(&self, start: u32) -> PathBuf {
        self.home.join(OWN_FOLDER).join(format!("{LOG_PREFIX}{start}{LOG_SUFFIX}"))
    }

    /// The node's RPC address, as given at its last start.
    pub fn rpc(&self) -> Option<String> {
        self.process()?.rpc.clone()
    }

    /// Refuses while the node runs; then its files may be changed by hand, and its heights are no longer expected.
    pub fn files_change(&self) -> Result<(), AgentError> {
        let mut state = self.lock();
        if state.process.as_ref().is_some_and(|process| !process.is_over()) {
            return Err(AgentError::Conflict("the node runs; its files can be replaced when it is down".to_owned()));
        }
        state.process = None;
        state.expected = None;
        Ok(())
    }

    /// What the running node has used.
    pub fn usage(&self) -> Result<Usage, AgentError> {
        Ok(self.running()?.usage())
    }

    /// Makes real syncs below home; refused while the node runs, whose figures they would spoil.
    pub fn probe(&self) -> Result<Probe, AgentError> {
        self.files_change()?;
        super::probe::probe(&self.home)
    }

    /// Kills the node if it runs and waits for its end.
    pub fn shut_down(&self) {
        if let Some(process) = self.process() {
            process.signal(Signal::Kill, None);
            process.join();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn process(&self) -> Option<Arc<Process>> {
        self.lock().process.clone()
    }

    fn running(&self) -> Result<Arc<Process>, AgentError> {
        self.process().filter(|process| !process.is_over()).ok_or_else(not_running)
    }
}

impl Drop for Supervisor {
    fn drop(&mut self) {
        self.shut_down();
    }
}

/// Starts that an agent before this one made in the same home, told by the output that it kept: a node that got another image
/// goes on counting.
fn starts_before(folder: &Path) -> io::Result<u32> {
    let mut last = 0;
    for entry in fs::read_dir(folder)? {
        let name = entry?.file_name();
        let number =
            name.to_str().and_then(|name| name.strip_prefix(LOG_PREFIX)?.strip_suffix(LOG_SUFFIX)?.parse().ok());
        last = last.max(number.unwrap_or(0));
    }
    Ok(last)
}

fn not_running() -> AgentError {
    AgentError::Conflict("the node does not run".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn starts_are_counted_on_by_the_next_agent_of_a_home() {
        let folder = tempfile::tempdir().expect("a folder");
        assert_eq!(starts_before(folder.path()).expect("read"), 0);
        for name in ["start-9.log", "start-10.log", "start-x.log", "probe"] {
            fs::write(folder.path().join(name), "").expect("written");
        }
        assert_eq!(starts_before(folder.path()).expect("read"), 10);
    }
}

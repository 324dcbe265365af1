//! Processes of runs, found in the kernel's process table: agents by the label in their environment and argument list,
//! nodes whose agent is gone by the folder that they work in.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};

use super::folder::Base;
use crate::engine::OwnerState;
use crate::engine::owner::{process_is_alive, start_time, state_of_label};

/// A process that belongs to a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Process {
    pub pid: u32,
    /// Start time in clock ticks: with the id it names one process for ever.
    pub start: u64,
    pub run: String,
    pub owner: OwnerState,
}

/// The environment variable that labels an agent with its owner.
pub(super) const ENV_OWNER: &str = "MIDFLUSH_OWNER";

/// All processes of this user that belong to runs.
pub(super) fn list(base: &Base) -> Vec<Process> {
    let Ok(entries) = fs::read_dir("/proc") else { return Vec::new() };
    let uid = rustix::process::getuid().as_raw();
    let mut found: Vec<Process> = entries
        .filter_map(|entry| {
            let entry = entry.ok()?;
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            let same_user = entry.metadata().is_ok_and(|data| data.uid() == uid);
            if same_user && pid != std::process::id() { identify(pid, base) } else { None }
        })
        .collect();
    found.sort_by_key(|process| process.pid);
    found
}

fn identify(pid: u32, base: &Base) -> Option<Process> {
    // The start time is read first: were the id reused in between, signalling would find another start time.
    let start = start_time(pid)?;
    let arguments = words(&fs::read(format!("/proc/{pid}/cmdline")).ok()?);
    if let Some(run) = run_of_agent(&arguments) {
        let environment = words(&fs::read(format!("/proc/{pid}/environ")).ok()?);
        let label = environment.iter().find_map(|entry| entry.strip_prefix(ENV_OWNER)?.strip_prefix('='))?;
        return Some(Process { pid, start, run, owner: state_of_label(Some(label), false) });
    }
    let folder = fs::read_link(format!("/proc/{pid}/cwd")).ok()?;
    let run = base.run_of(&folder)?;
    let owner = base.list().into_iter().find(|(_, name, _)| *name == run).map_or(OwnerState::Unknown, |found| found.2);
    Some(Process { pid, start, run, owner })
}

/// The run in the arguments of an agent: `midflush agent … --run ID …`.
fn run_of_agent(arguments: &[String]) -> Option<String> {
    if arguments.get(1).map(String::as_str) != Some("agent") {
        return None;
    }
    let at = arguments.iter().position(|argument| argument == "--run")?;
    arguments.get(at + 1).cloned()
}

fn words(bytes: &[u8]) -> Vec<String> {
    bytes.split(|byte| *byte == 0).map(|word| String::from_utf8_lossy(word).into_owned()).collect()
}

/// How long an agent may take to end its node and itself before it is killed.
pub(super) const GRACE: Duration = Duration::from_secs(3);
/// How long the kernel may take to end what was killed.
const KILL_WAIT: Duration = Duration::from_secs(3);

/// Ends processes: SIGTERM, then SIGKILL after `grace`. `reap` is called while waiting, for those that are our own children. Returns
/// those that still live.
pub(super) fn end(processes: &[Process], grace: Duration, mut reap: impl FnMut()) -> Vec<Process> {
    let mut left = processes.to_vec();
    for (signal, patience) in [(Signal::TERM, grace), (Signal::KILL, KILL_WAIT)] {
        left.retain(|process| signal_exactly(process, signal));
        let deadline = Instant::now() + patience;
        while !left.is_empty() && Instant::now() < deadline {
            reap();
            left.retain(|process| process_is_alive(process.pid, process.start));
            std::thread::sleep(Duration::from_millis(5));
        }
        if left.is_empty() {
            break;
        }
    }
    reap();
    left
}

/// Signals this very process, whatever its id may have become; false when it is gone.
fn signal_exactly(process: &Process, signal: Signal) -> bool {
    let Some(pid) = i32::try_from(process.pid).ok().and_then(Pid::from_raw) else { return false };
    let Ok(handle) = pidfd_open(pid, PidfdFlags::empty()) else { return false };
    // The handle pins the process, so a start time that is right now stays right.
    if !process_is_alive(process.pid, process.start) {
        return false;
    }
    !matches!(pidfd_send_signal(&handle, signal), Err(Errno::SRCH))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Command, Stdio};

    #[test]
    fn agents_are_known_by_their_arguments() {
        let agent = ["midflush", "agent", "--listen", "x", "--run", "r1"].map(str::to_owned);
        assert_eq!(run_of_agent(&agent), Some("r1".to_owned()));
        assert_eq!(run_of_agent(&["vi", "--run", "r1"].map(str::to_owned)), None);
        assert_eq!(run_of_agent(&["midflush", "agent", "--run"].map(str::to_owned)), None);
    }

    #[test]
    fn a_stubborn_process_is_killed_and_a_reused_id_is_spared() {
        let mut child = Command::new("/bin/sh")
            .args(["-c", "trap '' TERM; echo ready; while :; do read line || exec sleep 60; done"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut ready = [0u8; 6];
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut ready).unwrap();
        let start = start_time(child.id()).unwrap();
        let process = Process { pid: child.id(), start, run: "r".into(), owner: OwnerState::Dead };
        let reused = Process { start: start - 1, ..process.clone() };
        assert_eq!(end(&[reused], GRACE, || ()), []);
        assert!(child.try_wait().unwrap().is_none(), "another start time is another process");
        assert_eq!(end(&[process], Duration::from_millis(100), || drop(child.try_wait())), []);
        let status = child.wait().unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(9));
    }
}

//! One start of the node: from its exec to its wait status.

use std::collections::BTreeSet;
use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::SyncSender;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, Signal as Number, WaitId, WaitIdOptions, kill_process_group, pidfd_send_signal, waitid};

use crate::agent_client::protocol::{Arm, Signal, StartRequest, Usage};
use crate::sys::filter::Depth;
use crate::timeline::{Exit, ExitCause, FaultId, NodeEvent, Tier};

use super::AgentError;
use super::descriptors::Descriptors;
use super::gate::Gate;
use super::intercept::Interceptor;
use super::journal::Journal;
use super::latency::Draws;
use super::output::Output;
use super::pool::Pool;
use super::spawner::{Job, Spawner};
use super::stores::Stores;
use super::tap::Tapped;
use super::tracker::Tracker;

/// Counts are reported this often.
const TALLY_EVERY: Duration = Duration::from_secs(1);
/// Room for output that is printed faster than it is read; less where the system allows less.
const PIPE_BYTES: usize = 1 << 20;

/// What a start needs beside the request.
pub(crate) struct Surroundings<'a> {
    pub(crate) home: &'a Path,
    /// Working folder of the node, which relative paths in its command are below.
    pub(crate) folder: &'a Path,
    pub(crate) log: &'a Path,
    pub(crate) start: u32,
    /// Heights that earlier starts can have left.
    pub(crate) expected: Option<(u64, u64)>,
    pub(crate) spawner: &'a Spawner,
    pub(crate) journal: &'a Arc<Journal>,
    pub(crate) tap: Option<SyncSender<Tapped>>,
}

/// A node's process, alive or gone.
pub(crate) struct Process {
    pub(crate) start: u32,
    pub(crate) tier: Tier,
    pub(crate) pid: Pid,
    pub(crate) rpc: Option<String>,
    gate: Arc<Mutex<Gate>>,
    pidfd: Arc<OwnedFd>,
    over: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What the thread that watches a process works with.
struct Vigil {
    start: u32,
    pid: Pid,
    pidfd: Arc<OwnedFd>,
    gate: Arc<Mutex<Gate>>,
    changed: Arc<Condvar>,
    over: Arc<AtomicBool>,
    pool: Option<Arc<Pool>>,
}

impl Process {
    /// Starts the node and returns when its program runs.
    pub(crate) fn start(request: StartRequest, around: Surroundings<'_>) -> Result<Self, AgentError> {
        let depth = match request.tier {
            Tier::None => None,
            Tier::Observe => Some(Depth::Syncs),
            Tier::Record => Some(Depth::Writes),
        };
        let (reader, writer) = io::pipe().map_err(AgentError::io("make a pipe"))?;
        let _smaller_pipe = rustix::pipe::fcntl_setpipe_size(&writer, PIPE_BYTES);
        rustix::io::ioctl_fionbio(&reader, true).map_err(|e| AgentError::io("read the output")(e.into()))?;
        let log = File::create(around.log).map_err(AgentError::io("create the log"))?;
        let job = Job {
            path: program(&request, around.folder)?,
            arguments: request.command.clone(),
            environment: request.env.iter().map(|(key, value)| format!("{key}={value}")).collect(),
            folder: around.folder.to_owned(),
            input: input(&request.input).map_err(AgentError::io("make the standard input"))?,
            output: writer.into(),
            depth,
        };
        let running = around.spawner.start(job).map_err(|source| AgentError::Launch { source })?;
        let pidfd = Arc::new(running.pidfd);
        let sees_writes = request.tier == Tier::Record;
        let tracker = Tracker::new(&request.layout, around.start, request.height, around.expected, sees_writes);
        let names: Vec<String> = request.layout.stores.iter().map(|store| store.name.clone()).collect();
        let draws = Draws::new(&request.sync_latency, &names, request.seed);
        let marked = tracker.marked_store();
        let output = Output::new(reader, log, request.output_max);
        let pid = running.pid.as_raw_nonzero().get().unsigned_abs();
        around.journal.append(NodeEvent::Started { start: around.start, pid, tier: request.tier });
        for arm in &request.arms {
            around.journal.append(NodeEvent::Armed { fault: arm.fault.clone() });
        }
        let mut gate = Gate::new(tracker, output, draws, Arc::clone(around.journal), request.arms);
        if running.listener.is_some() && !running.wait_killable {
            let detail = "this kernel lets signals interrupt held calls: some events may be seen twice";
            gate.hole("no_wait_killable", detail.to_owned());
        }
        gate.said = around.tap.is_some().then(Vec::new);
        let gate = Arc::new(Mutex::new(gate));
        let changed = Arc::new(Condvar::new());
        let pool = match running.listener {
            None => None,
            Some(listener) => Some(Pool::start(Arc::new(Interceptor {
                listener,
                pid: running.pid,
                pidfd: pidfd.try_clone().map_err(AgentError::io("copy a descriptor"))?,
                start: around.start,
                tier: request.tier,
                home: around.home.to_owned(),
                stores: Stores::new(&request.layout),
                marked,
                gate: Arc::clone(&gate),
                changed: Arc::clone(&changed),
                outstanding: Mutex::new(BTreeSet::new()),
                descriptors: Descriptors::default(),
                tap: around.tap,
            }))),
        };
        let over = Arc::new(AtomicBool::new(false));
        let vigil = Vigil {
            start: around.start,
            pid: running.pid,
            pidfd: Arc::clone(&pidfd),
            gate: Arc::clone(&gate),
            changed,
            over: Arc::clone(&over),
            pool,
        };
        let thread = std::thread::Builder::new().name("vigil".to_owned()).spawn(move || vigil.keep());
        let thread = Mutex::new(Some(thread.map_err(AgentError::io("watch the node"))?));
        let (start, tier, pid) = (around.start, request.tier, running.pid);
        Ok(Self { start, tier, pid, rpc: request.rpc, gate, pidfd, over, thread })
    }

    /// Whether the process is gone and reaped, so that another start may follow.
    pub(crate) fn is_over(&self) -> bool {
        self.over.load(Ordering::Acquire)
    }

    /// Adds a fault.
    pub(crate) fn arm(&self, arm: Arm) -> bool {
        let mut gate = self.lock();
        if gate.dead {
            return false;
        }
        gate.journal.append(NodeEvent::Armed { fault: arm.fault.clone() });
        gate.arms.push(arm);
        true
    }

    /// Takes a fault back; `false` when it is not armed.
    pub(crate) fn disarm(&self, fault: &FaultId) -> bool {
        self.lock().disarm(fault)
    }

    /// Sends a signal; `false` when the process is gone.
    pub(crate) fn signal(&self, signal: Signal, fault: Option<FaultId>) -> bool {
        let mut gate = self.lock();
        if gate.dead {
            return false;
        }
        if matches!(signal, Signal::Kill | Signal::Terminate) {
            gate.cause.get_or_insert(fault.map_or(ExitCause::Asked, ExitCause::Fault));
        }
        let (number, sent) = match signal {
            // The whole group: a program may have left its children in it.
            Signal::Kill => (Number::KILL, kill_process_group(self.pid, Number::KILL)),
            Signal::Pause => (Number::STOP, kill_process_group(self.pid, Number::STOP)),
            Signal::Resume => (Number::CONT, kill_process_group(self.pid, Number::CONT)),
            // What an init system or `docker stop` does.
            Signal::Terminate => (Number::TERM, pidfd_send_signal(&self.pidfd, Number::TERM)),
        };
        if sent.is_ok() {
            gate.journal.append(NodeEvent::Signalled { start: self.start, signal: number.as_raw() });
        }
        sent.is_ok()
    }

    /// What the node has used so far.
    pub(crate) fn usage(&self) -> Usage {
        let gate = self.lock();
        Usage {
            start: self.start,
            clock_us: super::journal::clock_us(),
            height: gate.heights_left().1,
            cpu_us: super::usage::cpu_us(self.pid).unwrap_or_default(),
            counts: gate.sync_times.counts(|store| gate.tracker.name(store).to_owned()),
            syncs: gate.sync_times.by_store(|store| gate.tracker.name(store).to_owned()),
        }
    }

    /// The heights that this start can have left on disk.
    pub(crate) fn heights_left(&self) -> (u64, u64) {
        self.lock().heights_left()
    }

    /// Waits until the process is gone and all about it has been reported.
    pub(crate) fn join(&self) {
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            // A panic has been printed by its own thread.
            let _panicked = thread.join();
        }
    }

    fn lock(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Standard input with this text, at its beginning; a node's is empty.
fn input(text: &str) -> io::Result<OwnedFd> {
    if text.is_empty() {
        return File::open("/dev/null").map(OwnedFd::from);
    }
    let mut file = File::from(rustix::fs::memfd_create("input", rustix::fs::MemfdFlags::CLOEXEC)?);
    file.write_all(text.as_bytes())?;
    file.rewind()?;
    Ok(file.into())
}

/// The program's path: as it is, below its folder, or found on the node's own path, then on the agent's.
fn program(request: &StartRequest, folder: &Path) -> Result<PathBuf, AgentError> {
    let name = request.command.first().ok_or_else(|| AgentError::Refused("the command is empty".to_owned()))?;
    if name.contains('/') {
        return Ok(folder.join(name));
    }
    let own = std::env::var("PATH").unwrap_or_default();
    let folders = request.env.get("PATH").map_or("", String::as_str).split(':').chain(own.split(':'));
    folders
        .filter(|part| !part.is_empty())
        .map(|part| folder.join(part).join(name))
        .find(|path| path.is_file())
        .ok_or_else(|| AgentError::Refused(format!("no program `{name}` on the path")))
}

impl Vigil {
    fn lock(&self) -> MutexGuard<'_, Gate> {
        self.gate.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads the output, reports counts, and reaps.
    fn keep(self) {
        let mut tally_due = Instant::now() + TALLY_EVERY;
        loop {
            let gone = self.wait(tally_due);
            let mut gate = self.lock();
            gate.hear();
            if Instant::now() >= tally_due {
                tally_due += TALLY_EVERY;
                if let Some(tally) = gate.tracker.tally() {
                    gate.journal.append(NodeEvent::Tally(tally));
                }
            }
            if gone {
                break;
            }
        }
        let exit = self.reap();
        self.report(exit);
        if let Some(pool) = &self.pool {
            pool.join();
        }
    }

    /// Waits for output, for the end, or for the time to report; `true` at the end.
    fn wait(&self, until: Instant) -> bool {
        // A copy, so that the gate is free while this thread waits.
        let pipe = self.lock().output.waits_on().and_then(|pipe| pipe.try_clone_to_owned().ok());
        let mut fds = vec![PollFd::new(&*self.pidfd, PollFlags::IN)];
        if let Some(pipe) = &pipe {
            fds.push(PollFd::from_borrowed_fd(pipe.as_fd(), PollFlags::IN));
        }
        let left = until.saturating_duration_since(Instant::now());
        let timeout = Timespec { tv_sec: left.as_secs() as i64, tv_nsec: i64::from(left.subsec_nanos()) };
        match poll(&mut fds, Some(&timeout)) {
            Ok(_) => !fds[0].revents().is_empty(),
            Err(_interrupted) => false,
        }
    }

    /// Takes the wait status, then whatever the node has left in its process group.
    fn reap(&self) -> Exit {
        let status = loop {
            match waitid(WaitId::PidFd(self.pidfd.as_fd()), WaitIdOptions::EXITED) {
                Err(rustix::io::Errno::INTR) | Ok(None) => {}
                other => break other.ok().flatten(),
            }
        };
        if kill_process_group(self.pid, Number::KILL).is_ok() {
            while let Ok(Some(_)) = waitid(WaitId::Pgid(Some(self.pid)), WaitIdOptions::EXITED) {}
        }
        match status {
            Some(status) => match status.terminating_signal() {
                Some(signal) => Exit::Signal(signal),
                None => Exit::Code(status.exit_status().unwrap_or(-1)),
            },
            None => Exit::Code(-1),
        }
    }

    fn report(&self, exit: Exit) {
        let mut gate = self.lock();
        gate.hear();
        gate.dead = true;
        self.changed.notify_all();
        gate.disarm_all();
        if let Some(tally) = gate.tracker.finish() {
            gate.journal.append(NodeEvent::Tally(tally));
        }
        // Before the event: who reads it may start the node again at once.
        self.over.store(true, Ordering::Release);
        let cause = gate.ended_by();
        let tail = gate.output.tail();
        gate.journal.append(NodeEvent::Exited { start: self.start, exit, cause, tail });
    }
}

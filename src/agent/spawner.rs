//! The thread that forks. A node is killed when the thread that started it ends, so this one lives as long as the
//! agent, and ends with it whatever way the agent ends.

use std::path::PathBuf;
use std::sync::mpsc::{SyncSender, sync_channel};
use std::thread::JoinHandle;

use std::os::fd::OwnedFd;

use crate::sys::filter::Depth;
use crate::sys::launch::{LaunchError, Program, Running, launch};

/// What to start; see [`Program`].
pub(crate) struct Job {
    pub(crate) path: PathBuf,
    pub(crate) arguments: Vec<String>,
    pub(crate) environment: Vec<String>,
    pub(crate) folder: PathBuf,
    pub(crate) input: OwnedFd,
    pub(crate) output: OwnedFd,
    pub(crate) depth: Option<Depth>,
}

type Reply = SyncSender<Result<Running, LaunchError>>;

/// Owner of the thread.
pub(crate) struct Spawner {
    jobs: Option<SyncSender<(Job, Reply)>>,
    thread: Option<JoinHandle<()>>,
}

impl Spawner {
    /// Starts the thread.
    pub(crate) fn new() -> std::io::Result<Self> {
        let (jobs, queue) = sync_channel::<(Job, Reply)>(1);
        let thread = std::thread::Builder::new().name("spawner".to_owned()).spawn(move || {
            for (job, reply) in queue {
                // Who asked may have given up; then the node ends with this thread.
                let _given_up = reply.send(launch(&Program {
                    path: &job.path,
                    arguments: &job.arguments,
                    environment: &job.environment,
                    folder: &job.folder,
                    input: &job.input,
                    output: &job.output,
                    depth: job.depth,
                }));
            }
        })?;
        Ok(Self { jobs: Some(jobs), thread: Some(thread) })
    }

    /// Starts a program; returns when it runs.
    pub(crate) fn start(&self, job: Job) -> Result<Running, LaunchError> {
        let (reply, answer) = sync_channel(1);
        let gone = || LaunchError { step: "reach the spawner", source: std::io::ErrorKind::BrokenPipe.into() };
        self.jobs.as_ref().ok_or_else(gone)?.send((job, reply)).map_err(|_| gone())?;
        answer.recv().map_err(|_| gone())?
    }
}

impl Drop for Spawner {
    fn drop(&mut self) {
        self.jobs = None;
        if let Some(thread) = self.thread.take() {
            // A panic has been printed by its own thread.
            let _panicked = thread.join();
        }
    }
}

//! Threads that answer one start's held calls.
//!
//! One thread at a time leads: it alone receives. What it can answer at once it answers itself, without a change of
//! threads. Before it does something that takes time (a sync, a wait while everything is held) it steps aside, and
//! another thread leads. So a received call never waits for another, and a call is received as soon as it is made,
//! which matters, since until then a signal can interrupt it.

use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::{Builder, JoinHandle};

use rustix::event::{PollFd, PollFlags, poll};

use crate::sys::listener::{Held, Listener};

/// Threads of one start at most: so many calls of a node can be held at once.
const THREADS_MAX: usize = 64;
/// Niceness of these threads; the node has that of its agent.
const PRIORITY: i32 = -10;
/// Enough for reading a path and a write's bytes; what is large lies on the heap.
const STACK_BYTES: usize = 512 << 10;

/// Answers one held call.
pub(crate) trait Answers: Send + Sync + 'static {
    /// Where calls come from.
    fn listener(&self) -> &Listener;
    /// Answers `held`, after [`Turn::step_aside`] if that takes time.
    fn answer(&self, held: &Held, turn: &mut Turn<'_>);
}

/// The threads.
pub(crate) struct Pool {
    state: Mutex<State>,
    turn: Condvar,
    answers: Arc<dyn Answers>,
}

#[derive(Default)]
struct State {
    led: bool,
    waiting: usize,
    ended: bool,
    threads: Vec<JoinHandle<()>>,
}

/// Leading, until it is given up.
pub(crate) struct Turn<'a> {
    pool: &'a Arc<Pool>,
    leads: bool,
}

impl Turn<'_> {
    /// Lets another thread receive. Does nothing the second time.
    pub(crate) fn step_aside(&mut self) {
        if std::mem::take(&mut self.leads) {
            self.pool.pass_on();
        }
    }
}

impl Drop for Turn<'_> {
    fn drop(&mut self) {
        self.step_aside();
    }
}

impl Pool {
    /// Begins to answer. The threads end by themselves when the last process under the filter is gone.
    pub(crate) fn start(answers: Arc<dyn Answers>) -> Arc<Self> {
        let pool = Arc::new(Self { state: Mutex::default(), turn: Condvar::new(), answers });
        let mut state = pool.lock();
        pool.add_thread(&mut state);
        drop(state);
        pool
    }

    /// Waits until all threads have ended.
    pub(crate) fn join(&self) {
        loop {
            let threads = std::mem::take(&mut self.lock().threads);
            if threads.is_empty() {
                return;
            }
            for thread in threads {
                // A panic has been printed by its own thread.
                let _panicked = thread.join();
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add_thread(self: &Arc<Self>, state: &mut State) {
        let pool = Arc::clone(self);
        let thread = Builder::new().name("intercept".to_owned()).stack_size(STACK_BYTES).spawn(move || pool.run());
        match thread {
            Ok(thread) => state.threads.push(thread),
            Err(error) => tracing::error!(%error, "no thread to answer held calls"),
        }
    }

    /// Ends this thread's lead: a waiting thread takes it, or a new one.
    fn pass_on(self: &Arc<Self>) {
        let mut state = self.lock();
        state.led = false;
        if state.waiting > 0 || state.ended {
            self.turn.notify_one();
        } else if state.threads.len() < THREADS_MAX {
            self.add_thread(&mut state);
        }
    }

    fn run(self: &Arc<Self>) {
        // The kernel otherwise adds up to 50 µs to every sleep.
        let _slack_stays = rustix::thread::set_current_timer_slack(NonZeroU64::new(1));
        // The node waits for every answer, often with more threads than it has processors: this thread goes first, where it
        // may say so (not in a container without capabilities). It counts for this thread alone.
        let _may_not = rustix::process::setpriority_process(None, PRIORITY);
        while self.wait_for_lead() {
            let mut turn = Turn { pool: self, leads: true };
            while turn.leads {
                match self.next() {
                    Some(held) => self.answers.answer(&held, &mut turn),
                    None => {
                        self.lock().ended = true;
                        self.turn.notify_all();
                        return;
                    }
                }
            }
        }
    }

    fn wait_for_lead(&self) -> bool {
        let mut state = self.lock();
        while state.led && !state.ended {
            state.waiting += 1;
            state = self.turn.wait(state).unwrap_or_else(PoisonError::into_inner);
            state.waiting -= 1;
        }
        state.led = true;
        !state.ended
    }

    /// The next held call; `None` when there will be none.
    fn next(&self) -> Option<Held> {
        let listener = self.answers.listener();
        loop {
            let mut ready = [PollFd::from_borrowed_fd(listener.as_fd(), PollFlags::IN)];
            match poll(&mut ready, None) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(error) => {
                    tracing::error!(%error, "the listener cannot be waited on");
                    return None;
                }
            }
            let got = ready[0].revents();
            if got.contains(PollFlags::IN) {
                match listener.receive() {
                    Ok(Some(held)) => return Some(held),
                    // It went away between the poll and the receive.
                    Ok(None) => {}
                    Err(error) => {
                        tracing::error!(%error, "the listener cannot be received from");
                        return None;
                    }
                }
            } else if got.intersects(PollFlags::HUP | PollFlags::ERR | PollFlags::NVAL) {
                return None;
            }
        }
    }
}

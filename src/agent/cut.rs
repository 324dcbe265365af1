//! The atomic cut: everything is held, what is in flight ends, the process stands still, the signal is delivered.
//!
//! A write, and most syncs, are made by the kernel, so that their end cannot be seen from the listener; and a fatal signal
//! may cut a write short between two pages. So the process is stopped first: a thread stops only when its call has
//! returned, or while it waits for the agent's answer.

use std::sync::{MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustix::process::{Signal, kill_process_group, pidfd_send_signal};

use crate::agent_client::protocol::{Arm, ArmAction};
use crate::sys::listener::{Answer, Held};
use crate::sys::thread;
use crate::timeline::{Errno, ExitCause, NodeEvent};

use super::aim;
use super::gate::Gate;
use super::intercept::Interceptor;
use super::pool::Turn;
use super::procfs;
use super::tracker::Place;

/// How long syncs in flight may take to end. An injected latency may be seconds.
const IN_FLIGHT_MAX: Duration = Duration::from_secs(60);
/// How long the process may take to stand still: a sync that the kernel makes may be in flight.
const STILL_MAX: Duration = Duration::from_secs(60);
/// Pause between two looks at the threads.
const LOOK_EVERY: Duration = Duration::from_micros(100);
/// How long everything stays held behind an aimed SIGTERM. Some nodes wait for the call, others exit within a second
/// and leave the block half stored; after this the call goes on.
const STOP_HOLD: Duration = Duration::from_millis(1500);

impl Interceptor {
    /// Delivers a kill or a stop at `place`. `pass` is an event that goes on once all else is held, with its answer. Returns the gate when the
    /// node lives on, `None` when it was killed or has gone by itself; then held calls are dropped.
    pub(super) fn cut<'a>(
        &'a self,
        mut gate: MutexGuard<'a, Gate>,
        arm: &Arm,
        place: &Place,
        pass: Option<(&Held, Answer)>,
        turn: &mut Turn<'_>,
    ) -> Option<MutexGuard<'a, Gate>> {
        let since = Instant::now();
        gate.cutting = true;
        turn.step_aside();
        gate = self.wait_for_flight(gate)?;
        if let Some((held, answer)) = pass {
            self.reply(held, answer);
        }
        let _gone = kill_process_group(self.pid, Signal::STOP);
        if let Err(moving) = self.stand_still() {
            let limit = STILL_MAX.as_secs();
            gate.hole("not_still", format!("the node's threads did not stop within {limit} s: {moving}"));
        }
        gate.hear();
        gate.arms.retain(|other| other.fault != arm.fault);
        gate.cause = Some(ExitCause::Fault(arm.fault.clone()));
        if arm.action == ArmAction::Kill {
            let _gone = kill_process_group(self.pid, Signal::KILL);
            let _gone = pidfd_send_signal(&self.pidfd, Signal::KILL);
            self.report(&gate, arm, place, since);
            return None;
        }
        let _gone = pidfd_send_signal(&self.pidfd, Signal::TERM);
        let _gone = kill_process_group(self.pid, Signal::CONT);
        self.report(&gate, arm, place, since);
        self.hold_behind_stop(gate)
    }

    /// Lets the call at `place` fail. Nothing else is held: what the node does now is what is asked.
    pub(super) fn fail(&self, mut gate: MutexGuard<'_, Gate>, arm: &Arm, place: &Place, held: &Held, errno: Errno) {
        gate.arms.retain(|other| other.fault != arm.fault);
        gate.failed = Some(arm.fault.clone());
        self.report(&gate, arm, place, Instant::now());
        // It counts as done: otherwise a node that goes on would be counted wrongly from here.
        gate.tracker.end(place, None);
        gate.publish();
        self.reply(held, Answer::Errno(errno.number()));
    }

    fn report(&self, gate: &Gate, arm: &Arm, place: &Place, since: Instant) {
        let Some(landed) = aim::landed(arm, place, &gate.tracker) else { return };
        let held_us = u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX);
        gate.journal.append(NodeEvent::Landed { fault: arm.fault.clone(), start: self.start, landed, held_us });
    }

    fn wait_for_flight<'a>(&'a self, mut gate: MutexGuard<'a, Gate>) -> Option<MutexGuard<'a, Gate>> {
        let until = Instant::now() + IN_FLIGHT_MAX;
        while gate.in_flight > 0 && !gate.dead {
            let Some(left) = until.checked_duration_since(Instant::now()) else {
                gate.hole("in_flight", format!("syncs in flight took more than {} s", IN_FLIGHT_MAX.as_secs()));
                break;
            };
            (gate, _) = self.changed.wait_timeout(gate, left).unwrap_or_else(PoisonError::into_inner);
        }
        (!gate.dead).then_some(gate)
    }

    /// Waits until every thread is stopped, dead or held by us; the error tells what those do that still move in the end.
    /// Two looks in a row must agree, since a thread may begin another between two entries of one look.
    fn stand_still(&self) -> Result<(), String> {
        let pid = self.pid.as_raw_nonzero().get();
        let until = Instant::now() + STILL_MAX;
        let mut quiet = 0;
        while quiet < 2 {
            let moving: Vec<i32> = procfs::moving(pid).into_iter().filter(|tid| !self.is_outstanding(*tid)).collect();
            let still = moving.is_empty();
            if !still && Instant::now() >= until {
                return Err(moving.into_iter().map(|tid| procfs::doing(pid, tid)).collect::<Vec<_>>().join("; "));
            }
            quiet = if still { quiet + 1 } else { 0 };
            if !still {
                // The kernel gives a signal for the process to one thread, the first one if it can, and counts on it. While that
                // one waits for our answer it takes none, and nobody stops: so each is told. SIGCONT takes all back.
                for tid in &moving {
                    let _refused = thread::stop(pid, *tid);
                }
                std::thread::sleep(LOOK_EVERY);
            }
        }
        Ok(())
    }

    fn hold_behind_stop<'a>(&'a self, mut gate: MutexGuard<'a, Gate>) -> Option<MutexGuard<'a, Gate>> {
        let until = Instant::now() + STOP_HOLD;
        while !gate.dead {
            let Some(left) = until.checked_duration_since(Instant::now()) else { break };
            (gate, _) = self.changed.wait_timeout(gate, left).unwrap_or_else(PoisonError::into_inner);
        }
        gate.cutting = false;
        self.changed.notify_all();
        (!gate.dead).then_some(gate)
    }
}

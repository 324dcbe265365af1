//! The one place where events of a start are put in order: what was seen, what is armed, what is held.
//!
//! Everything that must not be torn apart lies behind this one lock: judging an event and letting it pass, or
//! judging it and holding all others.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Instant;

use crate::agent_client::protocol::{Arm, ArmAction};
use crate::timeline::{ExitCause, FaultId, NodeEvent, Phase};

use super::aim;
use super::journal::Journal;
use super::latency::Draws;
use super::output::Output;
use super::sample::Sampler;
use super::stores::StoreIndex;
use super::tracker::{Place, Tracker};
use super::usage::SyncTimes;

/// Paths remembered as opened with `O_SYNC`. More than any node opens; beyond it, they are asked about each time.
const SYNCED_MAX: usize = 4096;

/// Lines kept between two events of a node that is observed.
const SAID_MAX: usize = 10_000;

/// State of one start.
pub(crate) struct Gate {
    pub(crate) tracker: Tracker,
    pub(crate) output: Output,
    pub(crate) draws: Draws,
    pub(crate) sampler: Sampler,
    pub(crate) journal: Arc<Journal>,
    /// How long syncs took since the start.
    pub(crate) sync_times: SyncTimes,
    /// Faults that have not landed.
    pub(crate) arms: Vec<Arm>,
    /// Syncs that the agent is making.
    pub(crate) in_flight: u32,
    /// An address was met: nothing passes.
    pub(crate) cutting: bool,
    /// The process is gone.
    pub(crate) dead: bool,
    /// Who wanted it gone, if anybody.
    pub(crate) cause: Option<ExitCause>,
    /// A fault that made a call fail: an end that nobody else wanted comes of it.
    pub(crate) failed: Option<FaultId>,
    /// Lines that an observer has not had; `None` without one.
    pub(crate) said: Option<Vec<String>>,
    synced: BTreeSet<PathBuf>,
    holes: BTreeSet<String>,
}

impl Gate {
    pub(crate) fn new(tracker: Tracker, output: Output, draws: Draws, journal: Arc<Journal>, arms: Vec<Arm>) -> Self {
        let sampler = Sampler::new(draws.stores(), Instant::now());
        Self {
            tracker,
            output,
            draws,
            sampler,
            journal,
            sync_times: SyncTimes::default(),
            arms,
            in_flight: 0,
            cutting: false,
            dead: false,
            cause: None,
            failed: None,
            said: None,
            synced: BTreeSet::new(),
            holes: BTreeSet::new(),
        }
    }

    /// Reads what the node has printed so far.
    pub(crate) fn hear(&mut self) {
        for line in self.output.drain() {
            self.tracker.line(&line);
            if let Some(said) = self.said.as_mut().filter(|said| said.len() < SAID_MAX) {
                said.push(line);
            }
        }
        self.publish();
    }

    /// The lines since the last call, for an observer that wants them.
    pub(crate) fn take_said(&mut self) -> Vec<String> {
        self.hear();
        self.said.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Reads the output where it decides how an event of this store is judged: a line that the node wrote before the
    /// event must be seen before it.
    pub(crate) fn hear_before(&mut self, store: StoreIndex) {
        if !self.arms.is_empty() || self.tracker.may_begin(store) {
            self.hear();
        }
    }

    /// Reports what the tracker found.
    pub(crate) fn publish(&mut self) {
        for event in self.tracker.take_events() {
            self.journal.append(event);
        }
    }

    /// The fault that this event meets.
    pub(crate) fn met(&self, place: &Place, phase: Phase) -> Option<Arm> {
        if self.cutting {
            return None;
        }
        let store = self.tracker.name(place.store);
        let can = |arm: &&Arm| phase == Phase::Before || !matches!(arm.action, ArmAction::Fail(_));
        self.arms.iter().filter(can).find(|arm| aim::meets(&arm.address, store, place, phase)).cloned()
    }

    /// Whether the agent makes this sync for the node: its end must be seen, since it is timed, lasts longer, or is what an
    /// armed fault waits for. Any other is let go, as a write is.
    pub(crate) fn makes_sync(&mut self, store: StoreIndex, received: Instant) -> bool {
        let name = self.tracker.name(store);
        let awaited =
            |arm: &Arm| arm.address.phase == Phase::After && arm.address.write.is_none() && arm.address.store == name;
        self.draws.delays(store) || self.arms.iter().any(awaited) || self.sampler.takes(store, received)
    }

    /// Reports a hole, once a start.
    pub(crate) fn hole(&mut self, hole: &str, detail: String) {
        if self.holes.insert(hole.to_owned()) {
            self.journal.append(NodeEvent::CoverageHole { hole: hole.to_owned(), detail });
        }
    }

    /// Remembers that a path was opened so that its writes are durable on return.
    pub(crate) fn note_synced(&mut self, path: PathBuf) {
        if self.synced.len() < SYNCED_MAX {
            self.synced.insert(path);
        }
    }

    /// Whether a file may be open in that way, so that its descriptor must be asked.
    pub(crate) fn may_be_synced(&self, path: &Path) -> bool {
        self.synced.len() >= SYNCED_MAX || self.synced.contains(path)
    }

    /// Takes a fault back and says what there was instead; `false` when it is not armed.
    pub(crate) fn disarm(&mut self, fault: &FaultId) -> bool {
        let Some(at) = self.arms.iter().position(|arm| arm.fault == *fault) else { return false };
        let arm = self.arms.remove(at);
        self.report_not_landed(&arm);
        true
    }

    /// Reports all faults that can no longer land.
    pub(crate) fn disarm_all(&mut self) {
        for arm in std::mem::take(&mut self.arms) {
            self.report_not_landed(&arm);
        }
    }

    fn report_not_landed(&self, arm: &Arm) {
        let name = |store: StoreIndex| self.tracker.name(store).to_owned();
        let steps = self.tracker.steps();
        self.journal.append(NodeEvent::NotLanded {
            fault: arm.fault.clone(),
            seen: aim::addresses(steps, None, name),
            nearest: aim::nearest(&arm.address, steps, name),
        });
    }

    /// Who wanted the process gone, now that it is.
    pub(crate) fn ended_by(&self) -> ExitCause {
        let failed = || self.failed.clone().map(ExitCause::Fault);
        self.cause.clone().or_else(failed).unwrap_or(ExitCause::Own)
    }

    /// The heights that this start can have left on disk.
    pub(crate) fn heights_left(&self) -> (u64, u64) {
        self.tracker.heights_possible()
    }
}

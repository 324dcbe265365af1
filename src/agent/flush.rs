//! One flush: what each store has done in it, and how its events are numbered.

use crate::timeline::StoreProgress;

use super::height::Decoder;
use super::stores::StoreIndex;
use super::tracker::{Kind, Reached};

/// Steps of a flush that are kept for telling people which addresses exist.
const STEPS_MAX: usize = 200;

/// Consecutive events of one commit in a flush.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Step {
    pub(crate) store: StoreIndex,
    pub(crate) sync: u32,
    pub(crate) writes: u32,
    pub(crate) synced: bool,
}

/// What one store has done in a flush.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Counter {
    // Begun: what numbers come from.
    pub(super) syncs: u32,
    pub(super) writes: u32,
    pub(super) writes_of_flush: u32,
    // Returned.
    pub(super) done: StoreProgress,
    pub(super) all_syncs: u32,
}

/// One flush, under way or the last one.
#[derive(Debug)]
pub(super) struct Flush {
    pub(super) number: u64,
    pub(super) open: bool,
    pub(super) counters: Vec<Counter>,
    pub(super) decoder: Decoder,
    // From a line in the output: F and F′.
    pub(super) announced: Option<(u64, u64)>,
    pub(super) replays: bool,
    // Fixed when it ended.
    pub(super) reached: Option<Reached>,
    pub(super) steps: Vec<Step>,
}

impl Flush {
    /// Numbers an event. `counts_empty`: a sync without a write has a number too.
    pub(super) fn number_event(&mut self, store: StoreIndex, kind: Kind, counts_empty: bool) -> (Option<u32>, u32) {
        let counter = &mut self.counters[store];
        let commit = counter.syncs + 1;
        match kind {
            Kind::Change | Kind::Empty => (None, 0),
            Kind::Write { synced } => {
                counter.writes += 1;
                counter.writes_of_flush += 1;
                let write = counter.writes;
                if synced {
                    counter.syncs += 1;
                    counter.writes = 0;
                }
                self.step(store, commit, true, synced);
                (Some(commit), write)
            }
            Kind::Sync if counter.writes == 0 && !counts_empty => (None, 0),
            Kind::Sync => {
                let writes = std::mem::take(&mut counter.writes);
                counter.syncs += 1;
                self.step(store, commit, false, true);
                (Some(commit), writes)
            }
        }
    }

    fn step(&mut self, store: StoreIndex, sync: u32, write: bool, synced: bool) {
        let at = self.steps.iter().rposition(|step| step.store == store && step.sync == sync);
        let at = at.unwrap_or_else(|| {
            self.steps.push(Step { store, sync, writes: 0, synced: false });
            self.steps.len() - 1
        });
        let step = &mut self.steps[at];
        step.writes += u32::from(write);
        step.synced |= synced;
        self.steps.truncate(STEPS_MAX);
    }
}

//! The timeouts that consensus waits for. Each belongs to an epoch, one height's run, so that a timeout of a height that
//! is over can never fire in the next.

use std::time::{Duration, Instant};

use arc_malachitebft_core_types::Timeout;

/// Pending timeouts; a handful at a time.
#[derive(Debug, Default)]
pub(crate) struct Timers {
    epoch: u64,
    pending: Vec<(Instant, u64, Timeout)>,
}

impl Timers {
    /// Starts a new epoch; what is pending belongs to the old one and is gone.
    pub(crate) fn next_epoch(&mut self) {
        self.epoch += 1;
        self.pending.clear();
    }

    /// Schedules a timeout, in place of the same one if that is pending.
    pub(crate) fn schedule(&mut self, timeout: Timeout, now: Instant, after: Duration) {
        self.cancel(timeout);
        self.pending.push((now + after, self.epoch, timeout));
    }

    /// Cancels a timeout.
    pub(crate) fn cancel(&mut self, timeout: Timeout) {
        self.pending.retain(|(_, _, pending)| *pending != timeout);
    }

    /// Cancels all.
    pub(crate) fn cancel_all(&mut self) {
        self.pending.clear();
    }

    /// How many are pending.
    pub(crate) fn len(&self) -> usize {
        self.pending.len()
    }

    /// When the next one is due.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.pending.iter().map(|(at, _, _)| *at).min()
    }

    /// Takes the earliest one that is due.
    pub(crate) fn pop_due(&mut self, now: Instant) -> Option<Timeout> {
        let index = (0..self.pending.len()).min_by_key(|i| self.pending[*i].0)?;
        if self.pending[index].0 > now {
            return None;
        }
        let (_, epoch, timeout) = self.pending.swap_remove(index);
        assert_eq!(epoch, self.epoch, "a timeout outlived its epoch");
        Some(timeout)
    }
}

#[cfg(test)]
mod tests {
    use arc_malachitebft_core_types::Round;

    use super::*;

    #[test]
    fn timeouts_fire_in_order_and_not_after_their_epoch() {
        let mut timers = Timers::default();
        let now = Instant::now();
        let (early, late) = (Timeout::prevote(Round::new(0)), Timeout::propose(Round::new(0)));
        timers.schedule(late, now, Duration::from_secs(2));
        timers.schedule(early, now, Duration::from_secs(1));
        timers.schedule(early, now, Duration::from_secs(1));
        assert_eq!(timers.deadline(), Some(now + Duration::from_secs(1)));
        assert_eq!(timers.pop_due(now), None);
        let end = now + Duration::from_secs(3);
        assert_eq!(timers.pop_due(end), Some(early));
        assert_eq!(timers.pop_due(end), Some(late));
        assert_eq!(timers.pop_due(end), None);
        timers.schedule(early, now, Duration::ZERO);
        timers.next_epoch();
        assert_eq!(timers.pop_due(end), None);
    }
}

//! Which syncs are timed. A sync is timed by making it for the node, which costs several times what letting it go does. So a
//! store that is synced often has some of its syncs timed, and a store that is synced now and then all of them.

use std::time::Instant;

/// Syncs of one store that are timed in a second, over a long time.
const PER_SECOND: f64 = 20.0;
/// Syncs of one store that are timed one after another, as those of one block.
const IN_A_ROW: f64 = 40.0;

/// Says of each sync whether it is timed.
pub(crate) struct Sampler {
    stores: Vec<Credit>,
}

#[derive(Clone, Copy)]
struct Credit {
    syncs: f64,
    at: Instant,
}

impl Sampler {
    /// For `stores` stores, from `now` on.
    pub(crate) fn new(stores: usize, now: Instant) -> Self {
        Self { stores: vec![Credit { syncs: IN_A_ROW, at: now }; stores] }
    }

    /// Whether a sync of `store` that was received at `now` is timed.
    pub(crate) fn takes(&mut self, store: usize, now: Instant) -> bool {
        let credit = &mut self.stores[store];
        let since = now.saturating_duration_since(credit.at).as_secs_f64();
        credit.syncs = (credit.syncs + since * PER_SECOND).min(IN_A_ROW);
        credit.at = credit.at.max(now);
        if credit.syncs < 1.0 {
            return false;
        }
        credit.syncs -= 1.0;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn timed(seconds: u64, every: Duration) -> u32 {
        let began = Instant::now();
        let mut sampler = Sampler::new(2, began);
        let mut at = Duration::ZERO;
        let mut taken = 0;
        while at < Duration::from_secs(seconds) {
            at += every;
            taken += u32::from(sampler.takes(1, began + at));
        }
        assert!(sampler.takes(0, began), "each store has its own");
        taken
    }

    #[test]
    fn all_of_a_few_are_timed_and_some_of_many() {
        assert_eq!(timed(10, Duration::from_millis(100)), 100, "ten a second");
        let many = timed(10, Duration::from_millis(1));
        assert!((230..=241).contains(&many), "{many} of 10,000");
    }
}

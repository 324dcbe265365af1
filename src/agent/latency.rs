//! How long a sync is to take: drawn from a distribution, one stream of random numbers a store.

use std::collections::BTreeMap;
use std::time::Duration;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha20Rng;

use crate::timeline::Latency;

/// Entry that holds for every store without one of its own.
const EVERY: &str = "*";
/// An exponential draw is cut here, in means.
const EXPONENTIAL_MAX: f64 = 20.0;
/// Standard deviations from the median to the 99th percentile of a normal distribution.
const SIGMAS_TO_P99: f64 = 2.326_347_874_040_841;

/// Draws for the stores of one start.
pub(crate) struct Draws {
    stores: Vec<Option<(Latency, ChaCha20Rng)>>,
}

impl Draws {
    /// One stream a store, all from `seed`.
    pub(crate) fn new(latencies: &BTreeMap<String, Latency>, names: &[String], seed: u64) -> Self {
        let stores = (0u64..).zip(names).map(|(index, name)| {
            let latency = latencies.get(name).or_else(|| latencies.get(EVERY))?.clone();
            let mut rng = ChaCha20Rng::seed_from_u64(seed);
            rng.set_stream(index);
            Some((latency, rng))
        });
        Self { stores: stores.collect() }
    }

    /// How many stores there are.
    pub(crate) fn stores(&self) -> usize {
        self.stores.len()
    }

    /// Whether syncs of a store take a time of their own.
    pub(crate) fn delays(&self, store: usize) -> bool {
        self.stores[store].is_some()
    }

    /// Whether syncs of a store are made at all.
    pub(crate) fn makes(&self, store: usize) -> bool {
        !matches!(self.stores[store], Some((Latency::NotMade, _)))
    }

    /// How long the next sync of a store takes in all; `None` leaves it as it is.
    pub(crate) fn next(&mut self, store: usize) -> Option<Duration> {
        let (latency, rng) = self.stores[store].as_mut()?;
        let us = draw(latency, rng);
        // Negative and infinite draws cannot come from checked parameters; the cast saturates.
        Some(Duration::from_micros(us as u64))
    }
}

fn draw(latency: &Latency, rng: &mut ChaCha20Rng) -> f64 {
    match latency {
        Latency::Fixed(us) => *us as f64,
        Latency::Exponential(mean) => {
            let uniform: f64 = rng.random();
            (-(1.0 - uniform).ln()).min(EXPONENTIAL_MAX) * *mean as f64
        }
        Latency::Lognormal { p50_us, p99_us } => {
            let (p50, p99) = ((*p50_us).max(1) as f64, (*p99_us).max(1) as f64);
            let sigma = (p99 / p50).ln() / SIGMAS_TO_P99;
            p50 * (sigma * normal(rng)).exp()
        }
        Latency::NotMade => 0.0,
        Latency::Empirical(measured) if measured.is_empty() => 0.0,
        Latency::Empirical(measured) => measured[rng.random_range(0..measured.len())] as f64,
    }
}

/// A standard normal draw (Box and Muller).
fn normal(rng: &mut ChaCha20Rng) -> f64 {
    let (one, two): (f64, f64) = (rng.random(), rng.random());
    (-2.0 * (1.0 - one).ln()).sqrt() * (std::f64::consts::TAU * two).cos()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sorted(latency: Latency, draws: usize) -> Vec<u64> {
        let latencies = BTreeMap::from([("a".to_owned(), latency)]);
        let mut source = Draws::new(&latencies, &["a".to_owned()], 7);
        let mut drawn: Vec<u64> = (0..draws).map(|_| source.next(0).unwrap().as_micros() as u64).collect();
        drawn.sort_unstable();
        drawn
    }

    fn near(found: u64, wanted: u64) {
        assert!(found.abs_diff(wanted) * 20 <= wanted, "{found} is not within 5% of {wanted}");
    }

    #[test]
    fn a_lognormal_has_the_quantiles_it_is_named_by() {
        let drawn = sorted(Latency::Lognormal { p50_us: 2_000, p99_us: 40_000 }, 200_000);
        near(drawn[100_000], 2_000);
        near(drawn[198_000], 40_000);
    }

    #[test]
    fn an_exponential_has_its_mean_and_its_cut() {
        let drawn = sorted(Latency::Exponential(1_000), 200_000);
        near(drawn.iter().sum::<u64>() / 200_000, 1_000);
        near(drawn[100_000], 693);
        assert!(drawn[199_999] <= 20_000);
    }

    #[test]
    fn measured_values_come_back_as_they_were() {
        let drawn = sorted(Latency::Empirical(vec![100, 900]), 10_000);
        assert!(drawn.iter().all(|us| [100, 900].contains(us)));
        near(drawn.iter().filter(|us| **us == 100).count() as u64, 5_000);
        assert_eq!(sorted(Latency::Empirical(Vec::new()), 3), [0, 0, 0]);
        assert_eq!(sorted(Latency::Fixed(20), 3), [20, 20, 20]);
    }

    #[test]
    fn syncs_of_one_store_may_not_be_made_while_others_are() {
        let latencies = BTreeMap::from([("b".to_owned(), Latency::NotMade), ("*".to_owned(), Latency::Fixed(5))]);
        let draws = Draws::new(&latencies, &["a", "b"].map(str::to_owned), 7);
        assert!(draws.makes(0) && !draws.makes(1));
    }

    #[test]
    fn a_star_is_for_every_other_store_and_streams_differ() {
        let latencies =
            BTreeMap::from([("*".to_owned(), Latency::Exponential(1_000)), ("b".to_owned(), Latency::Fixed(5))]);
        let names = ["a", "b", "c"].map(str::to_owned);
        let mut one = Draws::new(&latencies, &names, 7);
        let mut two = Draws::new(&latencies, &names, 7);
        let a: Vec<_> = (0..10).map(|_| one.next(0)).collect();
        assert_eq!(a, (0..10).map(|_| two.next(0)).collect::<Vec<_>>(), "the same seed, the same draws");
        assert_ne!(a, (0..10).map(|_| two.next(2)).collect::<Vec<_>>());
        assert_eq!(one.next(1), Some(Duration::from_micros(5)));
        assert_eq!(Draws::new(&BTreeMap::new(), &names, 7).next(0), None);
    }
}

//! Means and ratios with intervals that cover what they say.
//!
//! A ratio is taken within rounds, where both sides ran under the same conditions: the logarithms of the paired ratios are
//! averaged, and Student's t gives the interval. A bootstrap over four rounds covers about 80 % in place of 95; this covers
//! 95 for normal noise on the logarithms, whatever the number of rounds, which a test shows by simulation.

use serde::{Deserialize, Serialize};

/// Fewest rounds that an interval is told from: below, it is so wide that it says nothing.
pub const ROUNDS_MIN: usize = 6;

/// Two-sided 95 % quantiles of Student's t for 1 to 30 degrees of freedom.
const T95: [f64; 30] = [
    12.7062, 4.3027, 3.1824, 2.7764, 2.5706, 2.4469, 2.3646, 2.3060, 2.2622, 2.2281, 2.2010, 2.1788, 2.1604, 2.1448,
    2.1314, 2.1199, 2.1098, 2.1009, 2.0930, 2.0860, 2.0796, 2.0739, 2.0687, 2.0639, 2.0595, 2.0555, 2.0518, 2.0484,
    2.0452, 2.0423,
];

/// The same quantile of the normal distribution.
const Z95: f64 = 1.959_964;

/// A figure with its 95 % interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Interval {
    /// The figure.
    pub value: f64,
    /// Lower end.
    pub lo: f64,
    /// Upper end.
    pub hi: f64,
}

impl Interval {
    /// Half its width, relative to the figure.
    pub fn half_width(&self) -> f64 {
        (self.hi - self.lo) / 2.0 / self.value
    }

    /// Whether a value lies in it.
    pub fn contains(&self, value: f64) -> bool {
        (self.lo..=self.hi).contains(&value)
    }
}

/// Several values of one figure.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Mean with its interval; the ends equal the mean where there is one value only.
    pub mean: Interval,
    /// Median.
    pub median: f64,
    /// Lowest.
    pub min: f64,
    /// Highest.
    pub max: f64,
    /// Standard deviation, relative to the mean.
    pub spread: f64,
}

/// The t quantile for a number of degrees of freedom, which may be a fraction (Welch). Above 30 by the expansion of
/// Cornish and Fisher, good to four digits there.
pub fn t95(freedom: f64) -> f64 {
    if freedom <= 30.0 {
        // Rounded down: a wider interval, never a narrower one.
        let index = (freedom.floor().max(1.0) as usize).min(T95.len());
        return T95[index - 1];
    }
    let (z, n) = (Z95, freedom);
    z + (z.powi(3) + z) / (4.0 * n) + (5.0 * z.powi(5) + 16.0 * z.powi(3) + 3.0 * z) / (96.0 * n * n)
}

/// Mean and variance; `None` for no values.
fn moments(values: &[f64]) -> Option<(f64, f64)> {
    if values.is_empty() {
        return None;
    }
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares = values.iter().map(|value| (value - mean).powi(2)).sum::<f64>();
    Some((mean, if values.len() > 1 { squares / (n - 1.0) } else { 0.0 }))
}

/// Sums up values; `None` where there are none.
pub fn summary(values: &[f64]) -> Option<Summary> {
    let (mean, variance) = moments(values)?;
    let n = values.len() as f64;
    let half = if values.len() > 1 { t95(n - 1.0) * (variance / n).sqrt() } else { 0.0 };
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let middle = sorted.len() / 2;
    let median = if sorted.len() % 2 == 1 { sorted[middle] } else { f64::midpoint(sorted[middle - 1], sorted[middle]) };
    Some(Summary {
        mean: Interval { value: mean, lo: mean - half, hi: mean + half },
        median,
        min: sorted[0],
        max: sorted[sorted.len() - 1],
        spread: variance.sqrt() / mean,
    })
}

/// The ratio a/b of pairs measured in the same round; `None` for fewer than two pairs or values that are not above 0.
pub fn paired_ratio(pairs: &[(f64, f64)]) -> Option<Interval> {
    let logs: Vec<f64> = pairs.iter().map(|(a, b)| (a / b).ln()).collect();
    if logs.len() < 2 || logs.iter().any(|log| !log.is_finite()) {
        return None;
    }
    let (mean, variance) = moments(&logs)?;
    let n = logs.len() as f64;
    let half = t95(n - 1.0) * (variance / n).sqrt();
    Some(Interval { value: mean.exp(), lo: (mean - half).exp(), hi: (mean + half).exp() })
}

/// The ratio a/b of two sets that were not measured together: Welch's interval on the logarithms.
pub fn unpaired_ratio(a: &[f64], b: &[f64]) -> Option<Interval> {
    let logs = |values: &[f64]| values.iter().map(|value| value.ln()).collect::<Vec<f64>>();
    let (a, b) = (logs(a), logs(b));
    if a.len() < 2 || b.len() < 2 || a.iter().chain(&b).any(|log| !log.is_finite()) {
        return None;
    }
    let ((mean_a, var_a), (mean_b, var_b)) = (moments(&a)?, moments(&b)?);
    let (na, nb) = (a.len() as f64, b.len() as f64);
    let (sa, sb) = (var_a / na, var_b / nb);
    let freedom = match sa + sb {
        0.0 => na + nb - 2.0,
        both => both.powi(2) / (sa.powi(2) / (na - 1.0) + sb.powi(2) / (nb - 1.0)),
    };
    let (mean, half) = (mean_a - mean_b, t95(freedom) * (sa + sb).sqrt());
    Some(Interval { value: mean.exp(), lo: (mean - half).exp(), hi: (mean + half).exp() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rand::{RngExt as _, SeedableRng as _};
    use rand_chacha::ChaCha20Rng;

    fn normal(random: &mut ChaCha20Rng) -> f64 {
        let (one, two): (f64, f64) = (random.random(), random.random());
        (-2.0 * (1.0 - one).ln()).sqrt() * (std::f64::consts::TAU * two).cos()
    }

    /// Share of simulated benches whose interval holds the true ratio. Each round has a drift that both sides feel.
    fn coverage(rounds: usize, benches: u32, truth: f64, seed: u64) -> f64 {
        let mut random = ChaCha20Rng::seed_from_u64(seed);
        let mut held = 0;
        for _ in 0..benches {
            let pairs: Vec<(f64, f64)> = (0..rounds)
                .map(|_| {
                    let drift = (0.3 * normal(&mut random)).exp();
                    let b = 100.0 * drift * (0.04 * normal(&mut random)).exp();
                    let a = 100.0 * truth * drift * (0.06 * normal(&mut random)).exp();
                    (a, b)
                })
                .collect();
            held += u32::from(paired_ratio(&pairs).expect("pairs").contains(truth));
        }
        f64::from(held) / f64::from(benches)
    }

    #[test]
    fn intervals_cover_what_they_say() {
        for (rounds, truth) in [(6, 1.0), (6, 1.2), (10, 0.5), (40, 3.0)] {
            let covered = coverage(rounds, 4_000, truth, rounds as u64);
            assert!((0.93..=0.97).contains(&covered), "{rounds} rounds of {truth}: {covered}");
        }
    }

    #[test]
    fn a_build_against_itself_seldom_differs() {
        let missed: f64 = 20.0 * (1.0 - coverage(6, 4_000, 1.0, 77));
        assert!(missed < 1.5, "20 benches miss 1 {missed} times on average");
    }

    #[test]
    fn quantiles_are_those_of_tables() {
        for (freedom, quantile) in [(5.0, 2.5706), (30.0, 2.0423), (40.0, 2.0211), (60.0, 2.0003), (1e9, 1.9600)] {
            assert!((t95(freedom) - quantile).abs() < 2e-4, "{freedom}: {}", t95(freedom));
        }
        assert_eq!(t95(0.3), T95[0]);
    }

    #[test]
    fn figures_of_known_values() {
        let of = summary(&[10.0, 12.0, 14.0]).unwrap();
        assert_eq!((of.mean.value, of.median, of.min, of.max), (12.0, 12.0, 10.0, 14.0));
        assert!((of.spread - 2.0 / 12.0).abs() < 1e-12);
        assert!((of.mean.hi - (12.0 + 4.3027 * 2.0 / 3.0_f64.sqrt())).abs() < 1e-9);
        assert_eq!(summary(&[3.0, 5.0]).unwrap().median, 4.0);
        assert_eq!(summary(&[3.0]).unwrap().mean, Interval { value: 3.0, lo: 3.0, hi: 3.0 });
        assert!(summary(&[]).is_none());
        let same = paired_ratio(&[(20.0, 10.0), (40.0, 20.0)]).unwrap();
        assert!((same.value - 2.0).abs() < 1e-12 && same.half_width() < 1e-12);
        assert!(paired_ratio(&[(1.0, 1.0)]).is_none() && paired_ratio(&[(0.0, 1.0), (1.0, 1.0)]).is_none());
    }

    #[test]
    fn sets_of_two_days_are_compared_without_pairs() {
        let of = unpaired_ratio(&[100.0, 102.0, 98.0], &[50.0, 51.0, 49.0, 50.0]).unwrap();
        assert!(of.contains(2.0) && of.half_width() < 0.06, "{of:?}");
        assert!(unpaired_ratio(&[1.0], &[1.0, 2.0]).is_none());
    }
}

//! Heights over time: in step or behind, rates, stalls.

use super::model::{Model, Sample, Us};

/// Whether a node at this sample is as high as the rest was a moment before.
pub(crate) fn in_step(model: &Model, node: usize, sample: &Sample) -> bool {
    let then = sample.at_us.saturating_sub(model.patience.grace_us);
    model.best_of_rest(node, then).is_none_or(|best| sample.height + model.patience.blocks >= best)
}

/// The first time from `from` on at which a node is as high as the rest at that very moment.
pub(crate) fn first_in_step(model: &Model, node: usize, from: Us) -> Option<Us> {
    let samples = &model.nodes[node].samples;
    let mut later = samples[samples.partition_point(|s| s.at_us < from)..].iter();
    let reached =
        |s: &&Sample| model.best_of_rest(node, s.at_us).is_none_or(|best| s.height + model.patience.blocks >= best);
    later.find(reached).map(|s| s.at_us)
}

/// The same, against the rest as it was a moment before, for a node that always trails a little.
pub(crate) fn first_in_step_graced(model: &Model, node: usize, from: Us) -> Option<Us> {
    let samples = &model.nodes[node].samples;
    let later = &samples[samples.partition_point(|s| s.at_us < from)..];
    later.iter().find(|s| in_step(model, node, s)).map(|s| s.at_us)
}

/// The time since which a node has been in step without a break until its last sample, looking from `from` on.
pub(crate) fn in_step_since(model: &Model, node: usize, from: Us) -> Option<Us> {
    let samples = &model.nodes[node].samples;
    let start = samples.partition_point(|s| s.at_us < from);
    let mut since = None;
    for sample in samples[start..].iter().rev() {
        if !in_step(model, node, sample) {
            break;
        }
        since = Some(sample.at_us);
    }
    since
}

/// The first sample of the row of equal heights at the end.
pub(crate) fn frozen_since(samples: &[Sample]) -> Option<Sample> {
    let last = samples.last()?;
    samples.iter().rev().take_while(|s| s.height == last.height).last().copied()
}

/// Blocks a second between two samples.
pub(crate) fn rate(from: (Us, u64), to: (Us, u64)) -> f64 {
    let seconds = to.0.saturating_sub(from.0) as f64 / 1e6;
    if seconds > 0.0 { (to.1 as f64 - from.1 as f64) / seconds } else { 0.0 }
}

/// Rates of a catching-up series: over all of it, the median of the intervals that moved, and the stalls.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Rates {
    pub(crate) overall: f64,
    pub(crate) moving_median: f64,
    /// From, to, in microseconds.
    pub(crate) stalls: Vec<(Us, Us)>,
}

/// Rates of a series; `None` with less than two samples.
pub(crate) fn rates(samples: &[Sample]) -> Option<Rates> {
    let (first, last) = (samples.first()?, samples.last()?);
    if samples.len() < 2 || last.at_us == first.at_us {
        return None;
    }
    let mut moving = Vec::new();
    let mut stalls: Vec<(Us, Us)> = Vec::new();
    for pair in samples.windows(2) {
        let (a, b) = (pair[0], pair[1]);
        if b.height > a.height {
            moving.push(rate((a.at_us, a.height), (b.at_us, b.height)));
        } else if let Some(stall) = stalls.last_mut().filter(|stall| stall.1 == a.at_us) {
            stall.1 = b.at_us;
        } else {
            stalls.push((a.at_us, b.at_us));
        }
    }
    Some(Rates {
        overall: rate((first.at_us, first.height), (last.at_us, last.height)),
        moving_median: median(&mut moving).unwrap_or(0.0),
        stalls,
    })
}

/// The median; the mean of the middle two for an even number.
pub(crate) fn median(values: &mut [f64]) -> Option<f64> {
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    match values.len() {
        0 => None,
        n if n % 2 == 1 => Some(values[middle]),
        _ => Some((values[middle - 1] + values[middle]) / 2.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(points: &[(u64, u64)]) -> Vec<Sample> {
        let sample =
            |(t, height): &(u64, u64)| Sample { at_us: t * 1_000_000, height: *height, catching_up: None, seq: 0 };
        points.iter().map(sample).collect()
    }

    #[test]
    fn a_plateau_is_a_stall_and_no_zero_in_the_median() {
        let series = samples(&[(0, 0), (10, 900), (20, 1800), (30, 1800), (80, 1800), (90, 2700), (100, 3600)]);
        let rates = rates(&series).unwrap();
        assert_eq!((rates.overall, rates.moving_median), (36.0, 90.0));
        assert_eq!(rates.stalls, [(20_000_000, 80_000_000)]);
    }

    #[test]
    fn frozen_since_the_first_of_the_equal_heights() {
        let series = samples(&[(0, 5), (1, 7), (2, 7), (3, 7)]);
        assert_eq!(frozen_since(&series).unwrap().at_us, 1_000_000);
        assert_eq!(frozen_since(&[]), None);
    }

    #[test]
    fn medians() {
        assert_eq!(median(&mut [3.0, 1.0, 2.0]), Some(2.0));
        assert_eq!(median(&mut [4.0, 1.0]), Some(2.5));
        assert_eq!(median(&mut []), None);
    }
}

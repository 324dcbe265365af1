//! Randomness of a plan: one stream of the seed for each purpose, so that a change in one part moves no other.

use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha20Rng;

use crate::topology::Delay;

/// What a stream is for. The numbers are part of what a seed means: never reuse one.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose {
    Genesis = 1,
    Keys = 2,
    Starts = 3,
    Graph = 4,
    Faults = 5,
    Load = 6,
}

/// The stream for a purpose.
pub(super) fn stream(seed: u64, purpose: Purpose) -> ChaCha20Rng {
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    rng.set_stream(purpose as u64);
    rng
}

/// A time within its bounds, in milliseconds.
pub(super) fn delay_ms(rng: &mut impl Rng, delay: Delay) -> u64 {
    rng.random_range(delay.min_ms..=delay.max_ms)
}

/// `count` different elements, in their order.
pub(super) fn some<T: Clone>(rng: &mut impl Rng, from: &[T], count: usize) -> Vec<T> {
    let mut left = count.min(from.len());
    let mut chosen = Vec::with_capacity(left);
    for (position, element) in from.iter().enumerate() {
        if rng.random_range(0..from.len() - position) < left {
            chosen.push(element.clone());
            left -= 1;
        }
    }
    chosen
}

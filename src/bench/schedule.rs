//! In which order the cells of each round run: seeded, and balanced so that a drift of the machine touches all alike.

use rand::SeedableRng as _;
use rand::seq::SliceRandom as _;
use rand_chacha::ChaCha20Rng;

/// Stream of the orders.
const STREAM: u64 = 31;

/// The order of the cells in a round, from 0. Rounds come in twos: a drawn order, then the same backwards (A B, B A), so
/// that over any even number of rounds each cell runs before each other one as often as after it.
pub fn order(cells: usize, round: u32, seed: u64) -> Vec<usize> {
    let mut random = ChaCha20Rng::seed_from_u64(seed ^ u64::from(round / 2).rotate_left(24));
    random.set_stream(STREAM);
    let mut order: Vec<usize> = (0..cells).collect();
    order.shuffle(&mut random);
    if round % 2 == 1 {
        order.reverse();
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn each_cell_runs_before_each_other_as_often_as_after(cells in 2_usize..9, pairs in 1_u32..5, seed: u64) {
            let place = |round, cell| order(cells, round, seed).iter().position(|at| *at == cell);
            for a in 0..cells {
                for b in 0..a {
                    let first = (0..pairs * 2).filter(|round| place(*round, a) < place(*round, b)).count();
                    prop_assert_eq!(first, pairs as usize);
                }
            }
        }
    }

    #[test]
    fn orders_come_from_the_seed() {
        let all = |seed| (0..8).map(|round| order(5, round, seed)).collect::<Vec<_>>();
        assert_eq!(all(1), all(1));
        assert_ne!(all(1), all(2));
        let mut sorted = order(5, 3, 1);
        sorted.sort_unstable();
        assert_eq!(sorted, [0, 1, 2, 3, 4]);
    }
}

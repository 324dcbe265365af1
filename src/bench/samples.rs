//! From looks at a node's height to a rate.

use serde::{Deserialize, Serialize};

use crate::topology::bench::Window;

/// One look at the syncing node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Look {
    /// Microseconds since the node was started, on a monotonic clock.
    pub at_us: u64,
    /// The height that it reports.
    pub height: u64,
}

/// What a window gave.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Rate {
    /// Height at its beginning, as reported.
    pub from: u64,
    /// Height at its end.
    pub to: u64,
    /// When it began, microseconds since the node was started.
    pub from_us: u64,
    /// When it ended.
    pub to_us: u64,
    /// Longest time between two looks in it that saw different heights, in microseconds: a stall, or a window of blocks.
    pub longest_us: u64,
}

impl Rate {
    /// Blocks in it.
    pub fn blocks(&self) -> u64 {
        self.to - self.from
    }

    /// Blocks a second.
    pub fn blocks_per_s(&self) -> f64 {
        self.blocks() as f64 / (self.to_us - self.from_us) as f64 * 1e6
    }

    /// Milliseconds a block.
    pub fn ms_per_block(&self) -> f64 {
        1e3 / self.blocks_per_s()
    }
}

/// Follows a node until the window is over.
///
/// Both ends of a rate are looks at which the height was new, so that a node that makes its blocks durable in windows of
/// hundreds is measured from one such step to another, with the height that it really had there.
#[derive(Clone, Debug)]
pub struct Measure {
    window: Window,
    last: Option<Look>,
    /// When the first block was seen.
    first_us: Option<u64>,
    begin: Option<Look>,
    new: Option<Look>,
    longest_us: u64,
    /// All looks that saw a new height, for the record.
    pub looks: Vec<Look>,
}

impl Measure {
    /// Nothing seen yet.
    pub fn new(window: Window) -> Self {
        Self { window, last: None, first_us: None, begin: None, new: None, longest_us: 0, looks: Vec::new() }
    }

    /// The beginning of the window, once it was seen.
    pub fn begun(&self) -> bool {
        self.begin.is_some()
    }

    /// Takes one look; the result is there once the window is over.
    pub fn take(&mut self, look: Look) -> Option<Rate> {
        let fresh = self.last.is_none_or(|last| last.height != look.height);
        self.last = Some(look);
        if !fresh || look.height == 0 {
            return None;
        }
        self.looks.push(look);
        let first_us = *self.first_us.get_or_insert(look.at_us);
        let Some(begin) = self.begin else {
            let begins = match self.window {
                Window::Heights { from, .. } => look.height >= from,
                Window::Time { warm_up_ms, .. } => look.at_us >= first_us + warm_up_ms * 1_000,
            };
            if begins {
                self.begin = Some(look);
                self.new = Some(look);
            }
            return None;
        };
        if let Some(new) = self.new {
            self.longest_us = self.longest_us.max(look.at_us - new.at_us);
        }
        self.new = Some(look);
        let ends = match self.window {
            Window::Heights { to, .. } => look.height >= to,
            Window::Time { measure_ms, .. } => look.at_us >= begin.at_us + measure_ms * 1_000,
        };
        let rate = Rate {
            from: begin.height,
            to: look.height,
            from_us: begin.at_us,
            to_us: look.at_us,
            longest_us: self.longest_us,
        };
        (ends && rate.to > rate.from && rate.to_us > rate.from_us).then_some(rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(window: Window, looks: &[(u64, u64)]) -> Option<Rate> {
        let mut measure = Measure::new(window);
        looks.iter().find_map(|(at_ms, height)| measure.take(Look { at_us: at_ms * 1_000, height: *height }))
    }

    #[test]
    fn a_rate_is_taken_between_the_heights_really_seen() {
        let window = Window::Heights { from: 100, to: 300 };
        let rate = run(window, &[(0, 0), (500, 60), (1_000, 110), (1_500, 205), (2_500, 310)]).unwrap();
        assert_eq!((rate.from, rate.to, rate.blocks()), (110, 310, 200));
        assert!((rate.blocks_per_s() - 200.0 / 1.5).abs() < 1e-9);
        assert!((rate.ms_per_block() - 7.5).abs() < 1e-9);
        assert_eq!(rate.longest_us, 1_000_000);
    }

    #[test]
    fn repeated_heights_move_no_end() {
        // A window of blocks becomes durable at 2 s and at 4 s; looks in between see the same height.
        let window = Window::Heights { from: 500, to: 1_500 };
        let looks = [(1_000, 0), (2_000, 900), (2_500, 900), (3_500, 900), (4_000, 1_900), (4_200, 1_900)];
        let rate = run(window, &looks).unwrap();
        assert_eq!((rate.from, rate.to, rate.from_us, rate.to_us), (900, 1_900, 2_000_000, 4_000_000));
        assert!((rate.blocks_per_s() - 500.0).abs() < 1e-9);
    }

    #[test]
    fn a_window_in_time_begins_after_the_warm_up() {
        let window = Window::Time { warm_up_ms: 1_000, measure_ms: 2_000 };
        let looks: Vec<(u64, u64)> = (0..60).map(|n| (3_000 + n * 100, n * 10 + 1)).collect();
        let rate = run(window, &looks).unwrap();
        assert_eq!((rate.from_us, rate.to_us), (4_000_000, 6_000_000));
        assert!((rate.blocks_per_s() - 100.0).abs() < 1e-9);
    }

    #[test]
    fn a_node_that_does_not_get_there_gives_no_rate() {
        assert_eq!(run(Window::Heights { from: 10, to: 20 }, &[(0, 12), (100, 15)]), None);
        assert_eq!(run(Window::Heights { from: 10, to: 20 }, &[(0, 25)]), None, "one look is no rate");
    }
}

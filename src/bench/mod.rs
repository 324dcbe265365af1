//! Benches of block sync: a node that catches up from serving peers, as peers, disk and build change.
//!
//! Pure: [`schedule`] says in which order cells run, [`samples`] makes a rate of looks, [`statistics`] ratios of rounds, and
//! [`conclude`] verdicts, the noise floor, gates and knees of those.

pub mod conclude;
pub mod result;
#[cfg(test)]
mod sample;
pub mod samples;
pub mod schedule;
pub mod statistics;

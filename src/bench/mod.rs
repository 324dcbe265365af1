//! Benches of block sync: a node that catches up from serving peers, as peers, disk and build change.
//!
//! Pure: [`design`] makes cells of a bench, [`schedule`] says in which order they run, [`samples`] makes a rate of looks,
//! [`gathered`] puts the rounds of a cell together, [`statistics`] makes ratios of rounds, and [`conclude`] verdicts, the noise
//! floor, gates and knees of those. Reports are made of a [`result`] alone.
//!
//! Effects: [`rounds`] carries a bench out with a [`session`] of nodes, [`cell`] measures one cell, [`fixture`] makes the chain
//! that is synced ([`grow`] where validators must), [`link`] delays what peers send, [`machine`] reads load and pressure.

mod cell;
pub mod compare;
pub mod conclude;
pub mod design;
mod error;
mod fixture;
mod gathered;
mod grow;
mod link;
pub mod machine;
pub mod report;
pub mod result;
pub mod rounds;
#[cfg(test)]
mod sample;
pub mod samples;
pub mod schedule;
mod session;
pub mod statistics;
pub mod store;

pub use error::BenchError;
pub use session::Ground;

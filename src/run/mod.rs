//! One experiment: prepare, launch, load, faults, settle, collect, stop.
//!
//! One dispatcher linearizes what every task has seen, is the only writer of the timeline, and holds the only state that
//! decisions are taken from. Each node is owned by one unit, which talks to one agent; units, samplers and load tell the
//! dispatcher what they saw and share nothing with each other.
//!
//! Concrete engines and chains come in as trait objects: this module names none.

mod beside;
pub(crate) mod cache;
mod collect;
mod dispatcher;
mod error;
mod experiment;
mod fixture;
mod left;
mod load;
mod made;
mod progress;
mod published;
mod sampler;
mod settle;
mod setup;
mod slow;
mod testnet;
mod unit;

pub use dispatcher::Observer;
pub use error::RunError;
pub use experiment::{Experiment, Facts, Outcome, run};
pub(crate) use fixture::ready as ready_fixture;
pub use progress::{NodeProgress, Progress};
pub use settle::{Settled, settled};
pub use setup::setup;
pub(crate) use testnet::{ThroughEngine, archive_files, archive_folder};

//! The supervisor beside each node: interception, faults, files, relay.

mod aim;
mod height;
mod journal;
mod latency;
mod lines;
mod output;
mod procfs;
mod stores;
mod tally;
mod tracker;

//! What people read, made from timelines alone: no clock, no file, no process.
//!
//! * [`state`]: what is known so far, record by record; the live lines and the page show the same one.
//! * [`syncs`]: syncs a block by node, mode and store, with the tier that they were counted in.

pub mod state;
pub mod syncs;

#[cfg(test)]
mod sample;

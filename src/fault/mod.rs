//! Trigger and action become a schedule: a pure state machine that is told what was seen and says what to do.
//!
//! It knows no clock and no process. `run` feeds it and carries out what it answers; the same inputs give the
//! same commands.

mod command;
mod entry;
mod schedule;
#[cfg(test)]
mod tests;

pub use command::{Command, Input};
pub use schedule::Schedule;

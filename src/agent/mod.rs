//! The supervisor beside each node: interception, faults, files, relay.

mod aim;
mod bridge;
mod cut;
mod descriptors;
mod discover;
mod error;
mod files;
mod flush;
mod gate;
mod height;
mod intercept;
mod journal;
mod latency;
mod lines;
mod observation;
mod output;
mod pool;
mod probe;
mod process;
mod procfs;
mod relay;
mod sample;
mod server;
mod spawner;
mod stores;
mod supervisor;
mod tally;
mod tap;
mod tracker;
mod usage;

pub use error::AgentError;
pub use observation::{Observation, SeenCommit, SeenStore, observe};
pub use server::serve;
pub use supervisor::Supervisor;
pub use tap::{PREFIX, Tapped, TappedKind};

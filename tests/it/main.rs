//! The integration tests: one binary, one module a scenario.

mod cometbft;
mod network;
mod reference;
mod topology;

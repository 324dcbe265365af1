//! The integration tests: one binary, one module a scenario.

mod agent;
mod aimed;
mod bench;
mod cases;
mod cometbft;
mod compose;
mod cosmos_sdk;
mod custom;
mod engine_docker;
mod engine_docker_fake;
mod engine_process;
mod failing;
mod gnoland;
mod kills;
mod leftovers;
mod network;
mod node_consensus;
mod node_defects;
mod node_net;
mod node_sync;
mod page;
mod planted;
mod reference;
mod surface;
mod timelines;
mod topology;

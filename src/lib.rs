//! midflush: a multi-node testnet orchestrator that kills unmodified BFT nodes in the middle of a
//! flush and judges what comes back.
//!
//! Modules in dependency order: each may import those below it and none above (`tests/architecture.rs`
//! holds the table). `ARCHITECTURE.md` is the code map.
//!
//! * **`judge`, `report` and `durability` know nothing of the machine**: no clock, no file, no process.
//! * **`node` and the rest do not know each other**: the orchestrator sees the reference node as it sees
//!   any node, by system calls, RPC, log and the files it leaves.
//! * **`unsafe` exists only in `sys`.**

pub mod agent;
pub mod agent_client;
pub mod bench;
pub mod chain;
pub mod cli;
pub mod dashboard;
pub mod engine;
pub mod fault;
pub mod judge;
pub mod node;
pub mod plan;
pub mod report;
pub mod results;
pub mod run;
pub mod sys;
pub mod timeline;
pub mod topology;

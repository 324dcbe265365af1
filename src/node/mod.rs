//! The reference node: consensus, block sync, stores, application, RPC.

pub mod app;
mod block_sync;
pub mod build;
pub mod codec;
pub mod config;
mod consensus;
pub mod crypto;
pub mod defect;
mod driver;
pub mod handle;
pub mod inbox;
pub mod init;
pub mod ledger;
pub mod log;
pub mod mempool;
pub mod p2p;
pub mod rpc;
pub mod sign_state;
pub mod start;
pub mod store;
pub mod types;
pub mod wal;

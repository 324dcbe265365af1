//! The reference node: consensus, block sync, stores, application, RPC.

pub mod app;
pub mod build;
pub mod codec;
pub mod config;
mod consensus;
pub mod crypto;
pub mod defect;
pub mod handle;
pub mod inbox;
pub mod init;
pub mod ledger;
pub mod log;
pub mod mempool;
pub mod p2p;
pub mod rpc;
pub mod sign_state;
pub mod store;
pub mod types;
pub mod wal;

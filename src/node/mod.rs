//! The reference node: consensus, block sync, stores, application, RPC.

pub mod codec;
pub mod config;
pub mod crypto;
pub mod defect;
pub mod handle;
pub mod inbox;
pub mod log;
pub mod mempool;
pub mod p2p;
pub mod sign_state;
pub mod types;
pub mod wal;

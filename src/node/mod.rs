//! The reference node: consensus, block sync, stores, application, RPC.

pub mod codec;
pub mod config;
pub mod crypto;
pub mod defect;
pub mod log;
pub mod sign_state;
pub mod types;
pub mod wal;

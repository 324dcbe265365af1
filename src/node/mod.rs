//! The reference node: consensus, block sync, stores, application, RPC.

pub mod crypto;
pub mod sign_state;
pub mod wal;

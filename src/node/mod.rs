//! The reference node: consensus, block sync, stores, application, RPC.

pub mod crypto;

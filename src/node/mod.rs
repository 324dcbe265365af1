//! The reference node: consensus, block sync, stores, application, RPC.

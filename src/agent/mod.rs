//! The supervisor beside each node: interception, faults, files, relay.

//! What no safe crate wraps: the seccomp listener and what belongs to it, and numbers of a curve.
//!
//! The only module with `unsafe`. What leaves it are owned descriptors and typed values.

#![expect(unsafe_code, reason = "what this module is for; each block says why it is sound")]

pub mod call;
pub mod filter;
pub mod launch;
pub mod listener;
pub mod memory;
pub mod scalar;
pub mod thread;

//! System calls that no safe crate wraps: the seccomp listener and what belongs to it.

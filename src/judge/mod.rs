//! Timeline to findings to verdict; pure.

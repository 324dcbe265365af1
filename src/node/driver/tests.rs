//! Tests of the chain thread against peers in the same process.

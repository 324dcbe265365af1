//! What the controller says to an agent, over whatever byte stream the engine's `dial` gives.

pub mod protocol;

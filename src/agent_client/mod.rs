//! What the controller says to an agent, over whatever byte stream the engine's `dial` gives.

mod client;
mod connection;
mod error;
mod events;
mod measuring;
pub mod protocol;

pub use client::{Client, RpcAnswer};
pub use connection::{ByteStream, Dial};
pub use error::{ClientError, ClientErrorKind};
pub use events::{EventStream, LineStream};

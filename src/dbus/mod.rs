//! A D-Bus client, as far as the agent needs one: calls with simple arguments, signals, and file
//! descriptors that come with answers. `wire` says what messages look like in bytes (pure), `connection`
//! brings them over a bus.
//!
//! For a single call without a descriptor there is `busctl`; this is for those who have to listen.

mod connection;
mod wire;

pub use connection::{Address, Connection, Error, MAX_QUEUED};
pub use wire::{BadMessage, Kind, Message, Value};

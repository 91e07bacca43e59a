//! An HTTP/1.1 server for few clients that mean it and many that don't: one thread waits for all of
//! them, and a bounded number of others answer ([`reactor`] tells how). Requests are read strictly,
//! and everything that a client can make the server hold or wait for has a bound.
//!
//! Knows nothing of pods, and nothing of who may do what: that is the [`Service`]'s.

mod classes;
mod connection;
mod decode;
mod exchange;
mod head;
mod listen;
mod path;
mod reactor;
mod request;
mod response;
mod stream;
#[cfg(test)]
mod tests;

pub use connection::{Address, Connection, Peer, is_pending, wait};
pub use head::{Head, Method};
#[cfg(feature = "tls")]
pub use listen::Tls;
pub use listen::{Tcp, Unix};
pub use path::{Query, percent_encode};
pub use reactor::{Endpoint, Listen, start};
pub use request::{Body, Class, Request, Service};
pub use response::{JSON, Reply, Response, TEXT, encode};
pub use stream::{Out, Raw};

//! The client of an API server: blocking, with what a kubeconfig says. Everybody who talks to the
//! server shares one [`Client`]; it has no thread of its own.
//!
//! Knows the shape of the API (lists, watches, `Status`), and nothing of what the node does with it.

mod client;
mod credentials;
mod error;
mod exec;
pub mod kubeconfig;
mod path;
pub mod retry;
#[cfg(test)]
mod tests;
mod tls;
mod watch;

pub use client::{Client, DeleteOptions, List, Patch};
pub use error::{Error, Status, describe};
pub use path::{in_namespace, named, path};
pub use watch::{Event, Watch};

use serde_json::Value;

/// `metadata.resourceVersion` of an object; empty when it has none.
pub fn version(object: &Value) -> &str {
    object["metadata"]["resourceVersion"].as_str().unwrap_or_default()
}

//! The Kubernetes API of this node alone, for kubectl and the command line: on a unix socket for root,
//! and on a TLS port of the loopback address.
//!
//! Shows what the agent knows. What it changes are files of the manifest directory, which stays the
//! one truth; it tells the agent nothing.

mod answer;
mod credentials;
mod discovery;
mod feed;
mod list;
mod listen;
mod node;
mod object;
mod own;
mod page;
mod resource;
mod route;
mod selector;
mod service;
mod store;
mod table;
mod usage;
mod watch;
mod write;

pub use credentials::{kubeconfig, page_address};
pub use feed::{Feed, Sources};
pub use listen::endpoints;
pub use node::node;
pub use object::event_json;
pub use resource::Resource;
pub use store::Store;
pub use table::human;

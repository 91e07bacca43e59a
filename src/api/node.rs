//! The node, as the API of this node shows it.

use jiff::Timestamp;
use serde_json::Value;

use super::object::seconds;
use crate::config::Config;
use crate::node;
use crate::node::capacity::Capacity;

/// Without its conditions, and without the version of the runtime.
pub fn node(config: &Config, machine: &Capacity, now: Timestamp) -> Value {
    let object = node::Object::new(config, machine);
    let status = object.status(&node::addresses(&config.node_ips), &node::Software::default(), &[]);
    let mut shown = object.shown(status);
    shown["metadata"]["uid"] = object.name.as_str().into();
    shown["metadata"]["creationTimestamp"] = seconds(now);
    shown
}

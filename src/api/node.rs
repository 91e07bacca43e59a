//! The node, as the API shows it.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::object::seconds;
use crate::config::Config;
use crate::node;
use crate::node::capacity::Capacity;
use crate::pod::quantity::Quantity;

/// Without its conditions, and without the version of the runtime.
pub fn node(config: &Config, machine: &Capacity, now: Timestamp) -> Value {
    let name = &config.node_name;
    let mut labels = crate::admission::node_labels(name, &config.node.labels);
    labels.entry("kubernetes.io/hostname".to_owned()).or_insert_with(|| name.clone());
    let mut addresses: Vec<Value> =
        node::addresses(&config.node_ips).iter().map(|ip| json!({"type": "InternalIP", "address": ip})).collect();
    addresses.push(json!({"type": "Hostname", "address": name}));
    let amounts = |amounts: BTreeMap<String, Quantity>| -> serde_json::Map<_, _> {
        amounts.into_iter().map(|(name, amount)| (name, Value::from(text(amount)))).collect()
    };
    let system = rustix::system::uname();
    let arch = labels.get("kubernetes.io/arch").cloned().unwrap_or_default();
    json!({
        "kind": "Node", "apiVersion": "v1",
        "metadata": {"name": name, "uid": name, "labels": labels, "creationTimestamp": seconds(now)},
        "spec": {"taints": config.node.taints},
        "status": {
            "capacity": amounts(machine.amounts(config).quantities()),
            "allocatable": amounts(machine.allocatable(config).quantities()),
            "addresses": addresses,
            "daemonEndpoints": {"kubeletEndpoint": {"Port": config.server.port}},
            "nodeInfo": {
                "machineID": read("/etc/machine-id"), "systemUUID": "", "bootID": read("/proc/sys/kernel/random/boot_id"),
                "kernelVersion": system.release().to_string_lossy(), "osImage": os_image(),
                "containerRuntimeVersion": "",
                "kubeletVersion": concat!("cleat-", env!("CARGO_PKG_VERSION")), "kubeProxyVersion": "",
                "operatingSystem": "linux", "architecture": arch,
            },
        },
    })
}

fn read(path: &str) -> String {
    std::fs::read_to_string(path).map(|text| text.trim().to_owned()).unwrap_or_default()
}

fn os_image() -> String {
    let text = read("/etc/os-release");
    let name = text.lines().find_map(|line| line.strip_prefix("PRETTY_NAME="));
    name.map(|name| name.trim_matches('"').to_owned()).unwrap_or_else(|| "Linux".to_owned())
}

fn text(amount: Quantity) -> String {
    match amount.is_whole() {
        true => amount.value().to_string(),
        false => format!("{}m", amount.milli_value()),
    }
}

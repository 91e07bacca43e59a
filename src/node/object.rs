//! The node's object: what it registers itself as, what is put right of one that was there, and what of
//! its status is reported (pkg/kubelet/kubelet_node_status.go). Pure, but for [`Object::new`].

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use super::capacity::Capacity;
use super::info::Info;
use crate::admission;
use crate::config::Config;
use crate::cri;
use crate::pod::quantity::Quantity;

const HOSTNAME: &str = "kubernetes.io/hostname";
/// Labels that are what the node is, whatever somebody made of them; the old names too, which some
/// selectors still have.
const OWN_LABELS: [&str; 5] =
    [HOSTNAME, "kubernetes.io/os", "kubernetes.io/arch", "beta.kubernetes.io/os", "beta.kubernetes.io/arch"];
/// Resources that nobody but the node tells of; others are device plugins' or an administrator's.
const HUGE_PAGES: &str = "hugepages-";

/// What of the node stays while the agent runs.
#[derive(Debug, Clone, PartialEq)]
pub struct Object {
    pub name: String,
    labels: BTreeMap<String, String>,
    taints: Value,
    provider_id: Option<String>,
    capacity: Map<String, Value>,
    allocatable: Map<String, Value>,
    port: u16,
    info: Info,
}

/// What the runtime says of itself that the status shows.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Software {
    /// As `containerd://1.6.20`; empty before it is known.
    pub version: String,
    pub status: cri::Status,
    pub images: Value,
}

impl Object {
    /// Of this machine.
    pub fn new(config: &Config, machine: &Capacity) -> Object {
        let name = config.node_name.clone();
        let mut labels = admission::node_labels(&name, &config.node.labels);
        labels.entry(HOSTNAME.to_owned()).or_insert_with(|| name.clone());
        for (old, new) in
            [("beta.kubernetes.io/os", "kubernetes.io/os"), ("beta.kubernetes.io/arch", "kubernetes.io/arch")]
        {
            if let Some(value) = labels.get(new).cloned() {
                labels.entry(old.to_owned()).or_insert(value);
            }
        }
        Object {
            labels,
            taints: serde_json::to_value(&config.node.taints).unwrap_or_default(),
            provider_id: config.node.provider_id.clone(),
            capacity: amounts(machine.amounts(config).quantities()),
            allocatable: amounts(machine.allocatable(config).quantities()),
            port: config.server.port,
            info: Info::read(admission::architecture(std::env::consts::ARCH)),
            name,
        }
    }

    /// The node as a whole.
    pub fn shown(&self, status: Value) -> Value {
        let mut spec = json!({});
        if self.taints.as_array().is_some_and(|taints| !taints.is_empty()) {
            spec["taints"] = self.taints.clone();
        }
        if let Some(id) = &self.provider_id {
            spec["providerID"] = id.as_str().into();
        }
        json!({
            "kind": "Node", "apiVersion": "v1",
            "metadata": {"name": self.name, "labels": self.labels}, "spec": spec, "status": status,
        })
    }

    /// What the node reports.
    pub fn status(&self, addresses: &[String], software: &Software, conditions: &[Value]) -> Value {
        let mut all: Vec<Value> = addresses.iter().map(|ip| json!({"type": "InternalIP", "address": ip})).collect();
        all.push(json!({"type": "Hostname", "address": self.name}));
        let mut status = json!({
            "capacity": self.capacity, "allocatable": self.allocatable, "addresses": all,
            "daemonEndpoints": {"kubeletEndpoint": {"Port": self.port}},
            "nodeInfo": self.info.shown(&software.version), "conditions": conditions,
        });
        if !software.images.is_null() {
            status["images"] = software.images.clone();
        }
        if !software.status.handlers.is_empty() {
            status["runtimeHandlers"] = software.status.handlers.iter().map(handler).collect();
            let strict = software.status.supplemental_groups_policy;
            status["features"] = json!({"supplementalGroupsPolicy": strict});
        }
        status
    }

    /// What has to be put right of a node that is there already, as a strategic merge patch: labels that
    /// say what it is. What else it is registered with counts for a new one only.
    pub fn reconcile(&self, there: &Value) -> Option<Value> {
        let has = &there["metadata"]["labels"];
        let differs = |(key, value): &(&String, &String)| {
            OWN_LABELS.contains(&key.as_str()) && has[key.as_str()].as_str() != Some(value.as_str())
        };
        let labels: BTreeMap<_, _> = self.labels.iter().filter(differs).collect();
        (!labels.is_empty()).then(|| json!({"metadata": {"labels": labels}}))
    }
}

fn handler((name, features): (&String, &cri::HandlerFeatures)) -> Value {
    let cri::HandlerFeatures { recursive_read_only, user_namespaces } = *features;
    json!({
        "name": name,
        "features": {"recursiveReadOnlyMounts": recursive_read_only, "userNamespaces": user_namespaces},
    })
}

fn amounts(amounts: BTreeMap<String, Quantity>) -> Map<String, Value> {
    let text = |amount: Quantity| match amount.is_whole() {
        true => amount.value().to_string(),
        false => format!("{}m", amount.milli_value()),
    };
    amounts.into_iter().map(|(name, amount)| (name, Value::from(text(amount)))).collect()
}

/// The strategic merge patch that brings the status of the server's node to `wanted`; only what differs,
/// but conditions always, whose heartbeat it is. Those of others, and resources of others, stay.
pub fn status_patch(wanted: &Value, there: &Value) -> Value {
    let there = &there["status"];
    let mut patch = Map::new();
    for (name, value) in wanted.as_object().into_iter().flatten() {
        let was = &there[name];
        if name == "conditions" {
            patch.insert(name.clone(), value.clone());
        } else if name == "addresses" && value != was {
            // Without the directive the list would be merged with that of before.
            let addresses = value.as_array().cloned().unwrap_or_default();
            let replace = std::iter::once(json!({"$patch": "replace"}));
            patch.insert(name.clone(), addresses.into_iter().chain(replace).collect());
        } else if matches!(name.as_str(), "capacity" | "allocatable") {
            let differing = differing(value, was);
            if !differing.is_empty() {
                patch.insert(name.clone(), differing.into());
            }
        } else if value != was {
            patch.insert(name.clone(), value.clone());
        }
    }
    json!({ "status": patch })
}

/// The entries that differ, and null for sizes of huge pages that there are no more.
fn differing(wanted: &Value, was: &Value) -> Map<String, Value> {
    let (wanted, was) = (wanted.as_object(), was.as_object());
    let same = |name: &String, value: &Value| was.and_then(|was| was.get(name)).is_some_and(|w| is_same(w, value));
    let differing = wanted.into_iter().flatten().filter(|(name, value)| !same(name, value));
    let gone = was
        .into_iter()
        .flat_map(Map::keys)
        .filter(|name| name.starts_with(HUGE_PAGES) && wanted.is_some_and(|wanted| !wanted.contains_key(*name)));
    differing.map(|(n, v)| (n.clone(), v.clone())).chain(gone.map(|name| (name.clone(), Value::Null))).collect()
}

/// Whether both are the same quantity: a server may write one in another way.
fn is_same(a: &Value, b: &Value) -> bool {
    let quantity = |value: &Value| Quantity::parse(value.as_str()?);
    a == b || quantity(a).is_some_and(|a| Some(a) == quantity(b))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object() -> Object {
        let labels =
            [(HOSTNAME, "edge"), ("kubernetes.io/os", "linux"), ("kubernetes.io/arch", "arm64"), ("room", "1")];
        Object {
            name: "edge".to_owned(),
            labels: labels.map(|(key, value)| (key.to_owned(), value.to_owned())).into(),
            taints: json!([{"key": "a", "effect": "NoSchedule"}]),
            provider_id: Some("x://1".to_owned()),
            capacity: amounts([("cpu".to_owned(), Quantity::of_milli_value(2000))].into()),
            allocatable: amounts([("cpu".to_owned(), Quantity::of_milli_value(1900))].into()),
            port: 10250,
            info: Info::read("arm64"),
        }
    }

    #[test]
    fn what_is_registered() {
        let mut software = Software { version: "containerd://2".to_owned(), ..Software::default() };
        let status = object().status(&["192.0.2.1".to_owned()], &software, &[]);
        assert_eq!(
            status["addresses"],
            json!([{"type": "InternalIP", "address": "192.0.2.1"}, {"type": "Hostname", "address": "edge"}])
        );
        assert_eq!((&status["capacity"]["cpu"], &status["allocatable"]["cpu"]), (&"2".into(), &"1900m".into()));
        assert_eq!(status["daemonEndpoints"]["kubeletEndpoint"]["Port"], 10250);
        assert_eq!(status["nodeInfo"]["containerRuntimeVersion"], "containerd://2");
        // What isn't known yet must not take away what is there.
        assert!(status.get("images").is_none() && status.get("runtimeHandlers").is_none());
        let features = cri::HandlerFeatures { recursive_read_only: true, user_namespaces: false };
        software.status.handlers = [("crun".to_owned(), features)].into();
        software.images = json!([]);
        let status = object().status(&[], &software, &[]);
        assert_eq!(
            status["runtimeHandlers"],
            json!([{"name": "crun", "features": {"recursiveReadOnlyMounts": true, "userNamespaces": false}}])
        );
        assert_eq!((&status["features"]["supplementalGroupsPolicy"], &status["images"]), (&false.into(), &json!([])));
        let node = object().shown(status);
        assert_eq!(node["spec"], json!({"taints": [{"key": "a", "effect": "NoSchedule"}], "providerID": "x://1"}));
        assert_eq!((&node["metadata"]["name"], &node["metadata"]["labels"]["room"]), (&"edge".into(), &"1".into()));
    }

    #[test]
    fn what_is_put_right() {
        let there = |labels: Value| json!({"metadata": {"labels": labels}, "spec": {"unschedulable": true}});
        let right = json!({HOSTNAME: "edge", "kubernetes.io/os": "linux", "kubernetes.io/arch": "arm64"});
        assert_eq!(object().reconcile(&there(right.clone())), None);
        let mut wrong = right;
        wrong["kubernetes.io/arch"] = "amd64".into();
        wrong["room"] = "2".into();
        let patch = json!({"metadata": {"labels": {"kubernetes.io/arch": "arm64"}}});
        assert_eq!(object().reconcile(&there(wrong)), Some(patch));
        assert_eq!(object().reconcile(&json!({})).expect("is patched")["metadata"]["labels"][HOSTNAME], "edge");
    }

    #[test]
    fn only_what_differs_is_patched() {
        let wanted = json!({
            "capacity": {"cpu": "2", "memory": "1024"}, "addresses": [{"type": "Hostname", "address": "e"}],
            "nodeInfo": {"bootID": "1"}, "conditions": [{"type": "Ready"}], "images": [],
        });
        let there = json!({"status": {
            "capacity": {"cpu": "2000m", "memory": "1Ki", "x.example/gpu": "1"}, "nodeInfo": {"bootID": "1"},
            "addresses": [{"type": "Hostname", "address": "e"}], "conditions": [{"type": "Other"}], "images": [],
        }, "spec": {"unschedulable": true}});
        assert_eq!(status_patch(&wanted, &there), json!({"status": {"conditions": [{"type": "Ready"}]}}));
        let there = json!({"status": {
            "capacity": {"cpu": "1", "memory": "1Ki", "hugepages-2Mi": "0", "x.example/gpu": "1"},
            "addresses": [{"type": "Hostname", "address": "old"}], "nodeInfo": {"bootID": "0"},
        }});
        assert_eq!(
            status_patch(&wanted, &there),
            json!({"status": {
                "capacity": {"cpu": "2", "hugepages-2Mi": null}, "nodeInfo": {"bootID": "1"},
                "addresses": [{"type": "Hostname", "address": "e"}, {"$patch": "replace"}],
                "conditions": [{"type": "Ready"}], "images": [],
            }})
        );
    }
}

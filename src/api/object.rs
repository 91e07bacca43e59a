//! An object of the store, which shares what the agent has of it, and its JSON, which is made when
//! somebody asks. Pure.

use std::sync::Arc;

use base64::Engine as _;
use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::resource::Resource;
use crate::local;
use crate::pod::{Pod, core, labels};
use crate::status::events::Event;

/// What an object is known by. Objects that have one name one after the other differ in the UID.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key {
    pub resource: Resource,
    /// Empty for those that are in none.
    pub namespace: Arc<str>,
    pub name: Arc<str>,
    pub uid: Arc<str>,
}

#[derive(Debug, Clone)]
pub enum Object {
    Pod {
        pod: Arc<Pod>,
        status: Option<Arc<core::PodStatus>>,
    },
    Event(Arc<Event>),
    /// A config map or a secret.
    Local(Arc<local::Object>),
    Node(Arc<Value>),
    Namespace(Arc<str>),
}

/// Whether the values of secrets are shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Secrets {
    Shown,
    Hidden,
}

impl Object {
    pub fn key(&self) -> Option<Key> {
        let none = || Arc::<str>::from("");
        Some(match self {
            Object::Pod { pod, .. } => Key {
                resource: Resource::Pods,
                namespace: pod.name.namespace.clone(),
                name: pod.name.name.clone(),
                uid: pod.uid.as_str().into(),
            },
            Object::Event(event) => Key {
                resource: Resource::Events,
                namespace: event.involved.namespace.as_str().into(),
                name: event.name.as_str().into(),
                uid: none(),
            },
            Object::Local(object) => {
                let resource = match object.key.kind {
                    local::Kind::ConfigMap => Resource::ConfigMaps,
                    local::Kind::Secret => Resource::Secrets,
                    _ => return None,
                };
                let (namespace, name) = (object.key.namespace.as_str().into(), object.key.name.as_str().into());
                Key { resource, namespace, name, uid: none() }
            }
            Object::Node(node) => {
                let name = node.pointer("/metadata/name").and_then(Value::as_str).unwrap_or_default();
                Key { resource: Resource::Nodes, namespace: none(), name: name.into(), uid: none() }
            }
            Object::Namespace(name) => {
                Key { resource: Resource::Namespaces, namespace: none(), name: name.clone(), uid: none() }
            }
        })
    }

    pub fn uid(&self) -> String {
        match self {
            Object::Pod { pod, .. } => pod.uid.to_string(),
            Object::Event(event) => event.name.clone(),
            Object::Local(object) => local_uid(&object.key),
            Object::Node(node) => node.pointer("/metadata/uid").and_then(Value::as_str).unwrap_or_default().to_owned(),
            Object::Namespace(name) => format!("namespace-{name}"),
        }
    }

    /// Whether both are the same; those that share all are told fast.
    pub fn is(&self, other: &Object) -> bool {
        fn same<T: PartialEq>(a: &Arc<T>, b: &Arc<T>) -> bool {
            Arc::ptr_eq(a, b) || a == b
        }
        match (self, other) {
            (Object::Pod { pod: a, status: x }, Object::Pod { pod: b, status: y }) => {
                same(a, b)
                    && match (x, y) {
                        (Some(x), Some(y)) => same(x, y),
                        (None, None) => true,
                        _ => false,
                    }
            }
            (Object::Event(a), Object::Event(b)) => same(a, b),
            (Object::Local(a), Object::Local(b)) => same(a, b),
            (Object::Node(a), Object::Node(b)) => same(a, b),
            (Object::Namespace(a), Object::Namespace(b)) => a == b,
            _ => false,
        }
    }

    /// As the API shows it, as it was at `version`.
    pub fn json(&self, version: u64, secrets: Secrets) -> Value {
        let mut value = match self {
            Object::Pod { pod, status } => pod_json(pod, status.as_deref()),
            Object::Event(event) => event_json(event),
            Object::Local(object) => local_json(object, secrets),
            Object::Node(node) => Value::clone(node),
            Object::Namespace(name) => json!({
                "kind": "Namespace", "apiVersion": "v1",
                "metadata": {"name": &**name, "uid": self.uid(), "labels": {"kubernetes.io/metadata.name": &**name}},
                "spec": {"finalizers": ["kubernetes"]}, "status": {"phase": "Active"},
            }),
        };
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("resourceVersion".to_owned(), version.to_string().into());
        }
        value
    }
}

fn pod_json(pod: &Pod, status: Option<&core::PodStatus>) -> Value {
    let mut metadata = serde_json::to_value(&pod.meta).unwrap_or_default();
    if let (Some(metadata), None) = (metadata.as_object_mut(), &pod.meta.creation_timestamp) {
        let seen = pod.meta.annotations.as_ref().and_then(|a| a.get(labels::CONFIG_SEEN)?.parse::<Timestamp>().ok());
        let started = status.and_then(|s| s.start_time.as_ref()).map(|t| t.0);
        if let Some(created) = started.into_iter().chain(seen).min() {
            metadata.insert("creationTimestamp".to_owned(), seconds(created));
        }
    }
    let status = match status {
        Some(status) => serde_json::to_value(status).unwrap_or_default(),
        None => json!({"phase": "Pending"}),
    };
    json!({"kind": "Pod", "apiVersion": "v1", "metadata": metadata, "spec": pod.spec, "status": status})
}

/// A time as the API has it, without fractions.
pub fn seconds(at: Timestamp) -> Value {
    crate::node::conditions::seconds(at).into()
}

/// An event as the API has it.
pub fn event_json(event: &Event) -> Value {
    let involved = &event.involved;
    let mut value = json!({
        "kind": "Event", "apiVersion": "v1",
        "metadata": {
            "name": event.name, "namespace": involved.namespace, "uid": event.name,
            "creationTimestamp": seconds(event.first),
        },
        "involvedObject": {
            "kind": "Pod", "apiVersion": "v1",
            "namespace": involved.namespace, "name": involved.name, "uid": involved.uid,
        },
        "reason": event.reason, "message": event.message, "type": event.kind.as_str(),
        "source": {"component": "kubelet"}, "reportingComponent": "kubelet", "reportingInstance": "",
        "firstTimestamp": seconds(event.first), "lastTimestamp": seconds(event.last), "eventTime": null,
        "count": event.count,
    });
    if !event.field.is_empty() {
        value["involvedObject"]["fieldPath"] = (*event.field).into();
    }
    value
}

fn local_uid(key: &local::Key) -> String {
    format!("{}-{}-{}", key.kind, key.namespace, key.name)
}

fn local_json(object: &local::Object, secrets: Secrets) -> Value {
    let encode = |bytes: &[u8]| Value::from(base64::engine::general_purpose::STANDARD.encode(bytes));
    let key = &object.key;
    let mut metadata = json!({"name": key.name, "namespace": key.namespace, "uid": local_uid(key)});
    if let (Some(metadata), false) = (metadata.as_object_mut(), object.labels.is_empty()) {
        metadata.insert("labels".to_owned(), json!(object.labels));
    }
    if let Some(created) = object.created {
        metadata["creationTimestamp"] = seconds(created);
    }
    let mut value = Map::new();
    value.insert("kind".to_owned(), key.kind.to_string().into());
    value.insert("apiVersion".to_owned(), "v1".into());
    value.insert("metadata".to_owned(), metadata);
    let immutable = match &object.body {
        local::Body::ConfigMap(map) => {
            if !map.data.is_empty() {
                value.insert("data".to_owned(), json!(map.data));
            }
            if !map.binary_data.is_empty() {
                let data: Map<_, _> = map.binary_data.iter().map(|(k, v)| (k.clone(), encode(&v.0))).collect();
                value.insert("binaryData".to_owned(), data.into());
            }
            map.immutable
        }
        local::Body::Secret(secret) => {
            value.insert("type".to_owned(), secret.kind.as_str().into());
            if secrets == Secrets::Shown && !secret.data.is_empty() {
                let data: Map<_, _> = secret.data.iter().map(|(k, v)| (k.clone(), encode(v.bytes()))).collect();
                value.insert("data".to_owned(), data.into());
            }
            secret.immutable
        }
        _ => false,
    };
    if immutable {
        value.insert("immutable".to_owned(), true.into());
    }
    value.into()
}

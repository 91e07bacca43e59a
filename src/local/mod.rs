//! Objects that pods refer to: config maps, secrets, claims and their volumes, classes. For static pods
//! they stand in the manifests beside them; for pods of an API server they are the server's. A snapshot
//! of all of either is one value, which is exchanged as a whole.
//!
//! Knows nothing of manifests, nor of what becomes of the objects. The value of a secret is in no
//! `Debug` text and in no error.

mod bind;
mod classes;
mod record;
mod references;
mod store;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use serde::{Deserialize, Serialize};

pub use bind::Node;
pub use classes::with_classes;
pub use references::{MASTER, MASTER_NAMESPACE, WantedToken, references, tokens};
pub use store::{Publisher, Recorded, Store, Stores};

use crate::pod::{Pod, PodUid, core};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Kind {
    ConfigMap,
    Secret,
    PersistentVolumeClaim,
    PersistentVolume,
    RuntimeClass,
    PriorityClass,
    /// What an API server gives a pod to be known by: one pod's, and in no manifest.
    ServiceAccountToken,
    /// Services of an API server: those of a namespace, or with a name that one.
    Services,
}

impl Kind {
    const ALL: [(Kind, &'static str, &'static str); 6] = [
        (Kind::ConfigMap, "v1", "ConfigMap"),
        (Kind::Secret, "v1", "Secret"),
        (Kind::PersistentVolumeClaim, "v1", "PersistentVolumeClaim"),
        (Kind::PersistentVolume, "v1", "PersistentVolume"),
        (Kind::RuntimeClass, "node.k8s.io/v1", "RuntimeClass"),
        (Kind::PriorityClass, "scheduling.k8s.io/v1", "PriorityClass"),
    ];

    /// The versions of the API that there are objects of.
    pub const VERSIONS: [&'static str; 3] = ["v1", "node.k8s.io/v1", "scheduling.k8s.io/v1"];

    /// The kind that a document says it is of.
    pub fn of(api_version: &str, kind: &str) -> Option<Kind> {
        Kind::ALL.iter().find(|(_, v, k)| *v == api_version && *k == kind).map(|(kind, ..)| *kind)
    }

    pub fn is_namespaced(self) -> bool {
        !matches!(self, Kind::PersistentVolume | Kind::RuntimeClass | Kind::PriorityClass)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, f)
    }
}

/// What an object is known by; shown as `ConfigMap namespace/name`, `PersistentVolume name`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Key {
    pub kind: Kind,
    /// Empty for kinds that are in no namespace.
    pub namespace: String,
    pub name: String,
}

impl Key {
    /// The namespace counts only for kinds that are in one.
    pub fn new(kind: Kind, namespace: &str, name: &str) -> Key {
        let namespace = if kind.is_namespaced() { namespace } else { "" };
        Key { kind, namespace: namespace.to_owned(), name: name.to_owned() }
    }

    /// Whether a new pod may have been made for another state of it than one that was known before.
    pub fn gets_old(&self) -> bool {
        matches!(self.kind, Kind::ConfigMap | Kind::Secret)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.namespace.as_str() {
            "" => write!(f, "{} {}", self.kind, self.name),
            namespace => write!(f, "{} {namespace}/{}", self.kind, self.name),
        }
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// An object that was decoded and validated. Shared as `Arc<Object>` and never changed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Object {
    pub key: Key,
    pub labels: BTreeMap<String, String>,
    /// When it first was seen in its manifest, as far as that is known; changes don't make it younger.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub created: Option<Timestamp>,
    pub body: Body,
}

/// Whether two objects are the same. Those that didn't change are the same value.
fn same(a: &Arc<Object>, b: &Arc<Object>) -> bool {
    Arc::ptr_eq(a, b) || a == b
}

impl Object {
    /// Whether this object may be changed into `new`: an immutable one stays as it is.
    pub fn may_become(&self, new: &Object) -> bool {
        match (&self.body, &new.body) {
            (Body::ConfigMap(old), Body::ConfigMap(new)) => !old.immutable || old == new,
            (Body::Secret(old), Body::Secret(new)) => !old.immutable || old == new,
            _ => true,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Body {
    ConfigMap(ConfigMap),
    Secret(Secret),
    PersistentVolumeClaim(Box<core::PersistentVolumeClaimSpec>),
    PersistentVolume(Box<PersistentVolume>),
    RuntimeClass(RuntimeClass),
    PriorityClass(PriorityClass),
    ServiceAccountToken(SecretValue),
    Services(Vec<Service>),
}

/// What of a service containers are told.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Service {
    pub name: String,
    /// One that has none is not told of.
    pub cluster_ip: String,
    pub ports: Vec<ServicePort>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ServicePort {
    /// May be empty.
    pub name: String,
    pub port: i32,
    pub protocol: String,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct ConfigMap {
    pub data: BTreeMap<String, String>,
    /// No key of it is one of `data`. A variable of the environment can't have it.
    pub binary_data: BTreeMap<String, ByteString>,
    pub immutable: bool,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Secret {
    /// `data`, and over it `stringData`.
    pub data: BTreeMap<String, SecretValue>,
    /// `Opaque`, `kubernetes.io/tls`, …
    pub kind: String,
    pub immutable: bool,
}

/// A value that is shown to no one but the containers that ask for it.
#[derive(Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SecretValue(ByteString);

impl SecretValue {
    pub fn new(bytes: Vec<u8>) -> SecretValue {
        SecretValue(ByteString(bytes))
    }

    /// For a file or a variable of a container, and nothing else.
    pub fn bytes(&self) -> &[u8] {
        &self.0.0
    }
}

impl fmt::Debug for SecretValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(secret)")
    }
}

/// The spec of a persistent volume that lies on a node.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct PersistentVolume {
    pub capacity: Option<BTreeMap<String, Quantity>>,
    pub access_modes: Option<Vec<String>>,
    pub claim_ref: Option<core::ObjectReference>,
    pub storage_class_name: Option<String>,
    pub volume_mode: Option<String>,
    pub node_affinity: Option<core::VolumeNodeAffinity>,
    /// Nothing is reclaimed here: what a volume holds stays.
    pub persistent_volume_reclaim_policy: Option<String>,
    pub mount_options: Option<Vec<String>>,
    pub volume_attributes_class_name: Option<String>,
    pub host_path: Option<core::HostPathVolumeSource>,
    pub local: Option<core::LocalVolumeSource>,
}

#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct RuntimeClass {
    pub handler: String,
    /// What the sandbox itself takes, added to what its containers ask for.
    pub overhead: BTreeMap<String, Quantity>,
    pub node_selector: BTreeMap<String, String>,
    pub tolerations: Vec<core::Toleration>,
}

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct PriorityClass {
    pub value: i32,
    pub global_default: bool,
    /// `PreemptLowerPriority` or `Never`.
    pub preemption_policy: String,
}

/// Something that a pod refers to and of which it isn't known whether it is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unknown {
    pub key: Key,
    /// What went wrong when it was asked for.
    pub why: Option<String>,
}

/// Which volume a claim has, or why it has none.
pub type Bindings = BTreeMap<Key, Result<String, String>>;

/// All objects at one instant.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Objects {
    objects: BTreeMap<Key, Arc<Object>>,
    bindings: Bindings,
    /// Of an API server's: what else is known of them.
    server: Option<Known>,
}

/// What is known of objects that an API server was asked for.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Known {
    /// The server doesn't have them.
    pub missing: BTreeSet<Key>,
    /// Why it isn't known whether it has them; of those in neither set, because nobody has asked yet.
    pub failed: BTreeMap<Key, String>,
    /// Pods for which all of this is new enough: no older than what somebody may have made them for.
    /// `None`: all, while it isn't known which pods there are.
    pub pods: Option<BTreeSet<PodUid>>,
}

impl Objects {
    /// Claims get their volumes: those that they had, as far as they still fit, else others.
    pub fn new(objects: impl IntoIterator<Item = Arc<Object>>, had: &BTreeMap<Key, String>, node: &Node) -> Objects {
        let objects = objects.into_iter().map(|object| (object.key.clone(), object)).collect();
        let bindings = bind::bind(&objects, had, node);
        Objects { objects, bindings, server: None }
    }

    /// Those of an API server.
    pub fn of_server(self, known: Known) -> Objects {
        Objects { server: Some(known), ..self }
    }

    /// Whether all that the pod refers to is known, as it was when the pod came or later: that it is
    /// there, or that it isn't.
    ///
    /// # Errors
    /// What is not known yet, and why, if it has been asked for.
    pub fn known_for(&self, pod: &Pod) -> Result<(), Unknown> {
        let Some(server) = &self.server else { return Ok(()) };
        let old = server.pods.as_ref().is_some_and(|pods| !pods.contains(&pod.uid));
        let unknown =
            |key: &Key| old && key.gets_old() || !self.objects.contains_key(key) && !server.missing.contains(key);
        match references(pod).into_iter().find(unknown) {
            None => Ok(()),
            Some(key) => Err(Unknown { why: server.failed.get(&key).cloned(), key }),
        }
    }

    pub fn all(&self) -> impl Iterator<Item = &Arc<Object>> {
        self.objects.values()
    }

    fn body(&self, kind: Kind, namespace: &str, name: &str) -> Option<&Body> {
        self.objects.get(&Key::new(kind, namespace, name)).map(|object| &object.body)
    }

    pub fn config_map(&self, namespace: &str, name: &str) -> Option<&ConfigMap> {
        match self.body(Kind::ConfigMap, namespace, name)? {
            Body::ConfigMap(map) => Some(map),
            _ => None,
        }
    }

    pub fn secret(&self, namespace: &str, name: &str) -> Option<&Secret> {
        match self.body(Kind::Secret, namespace, name)? {
            Body::Secret(secret) => Some(secret),
            _ => None,
        }
    }

    pub fn runtime_class(&self, name: &str) -> Option<&RuntimeClass> {
        match self.body(Kind::RuntimeClass, "", name)? {
            Body::RuntimeClass(class) => Some(class),
            _ => None,
        }
    }

    pub fn priority_class(&self, name: &str) -> Option<&PriorityClass> {
        match self.body(Kind::PriorityClass, "", name)? {
            Body::PriorityClass(class) => Some(class),
            _ => None,
        }
    }

    /// The token that a pod's volume asks for.
    pub fn token(&self, wanted: &WantedToken) -> Option<&SecretValue> {
        match &self.objects.get(&wanted.key())?.body {
            Body::ServiceAccountToken(token) => Some(token),
            _ => None,
        }
    }

    /// The services that a pod is told of: those of its namespace, and the API server's.
    pub fn services(&self, namespace: &str) -> (&[Service], &[Service]) {
        let of = |namespace: &str, name: &str| match self.body(Kind::Services, namespace, name) {
            Some(Body::Services(services)) => services.as_slice(),
            _ => &[],
        };
        (of(namespace, ""), of(MASTER_NAMESPACE, MASTER))
    }

    fn persistent_volume(&self, name: &str) -> Option<&PersistentVolume> {
        match self.body(Kind::PersistentVolume, "", name)? {
            Body::PersistentVolume(volume) => Some(volume),
            _ => None,
        }
    }

    /// The volume of a claim, with its name.
    ///
    /// # Errors
    /// Why the claim has none, as the kubelet would tell it.
    pub fn volume_of(&self, namespace: &str, claim: &str) -> Result<(&str, &PersistentVolume), String> {
        let key = Key::new(Kind::PersistentVolumeClaim, namespace, claim);
        match self.bindings.get(&key) {
            None => Err(format!("persistentvolumeclaim {claim:?} not found")),
            Some(Err(why)) => Err(format!("persistentvolumeclaim {claim:?} is not bound: {why}")),
            Some(Ok(name)) => {
                let volume = self.persistent_volume(name);
                volume.map(|v| (name.as_str(), v)).ok_or_else(|| format!("persistentvolume {name:?} not found"))
            }
        }
    }

    /// The claims that have a volume.
    pub fn bound(&self) -> BTreeMap<Key, String> {
        self.bindings.iter().filter_map(|(key, volume)| Some((key.clone(), volume.clone().ok()?))).collect()
    }

    /// What is other than in `before`: objects that came, changed or went, and claims whose volume
    /// did.
    pub fn changed_since(&self, before: &Objects) -> BTreeSet<Key> {
        let all: BTreeSet<&Key> = self.objects.keys().chain(before.objects.keys()).collect();
        fn volume<'o>(objects: &'o Objects, key: &Key) -> Option<&'o Arc<Object>> {
            let name = objects.bindings.get(key)?.as_ref().ok()?;
            objects.objects.get(&Key::new(Kind::PersistentVolume, "", name))
        }
        let other = |a: Option<&Arc<Object>>, b: Option<&Arc<Object>>| match (a, b) {
            (Some(a), Some(b)) => !same(a, b),
            (a, b) => a.is_some() || b.is_some(),
        };
        let differs = |key: &&&Key| {
            other(self.objects.get(**key), before.objects.get(**key))
                || self.bindings.get(**key) != before.bindings.get(**key)
                || other(volume(self, key), volume(before, key))
        };
        let mut changed: BTreeSet<Key> = all.iter().filter(differs).map(|key| (*key).clone()).collect();
        let none = Known::default();
        let (now, then) = (self.server.as_ref().unwrap_or(&none), before.server.as_ref().unwrap_or(&none));
        changed.extend(now.missing.symmetric_difference(&then.missing).cloned());
        changed.extend(
            now.failed.iter().filter(|(key, why)| then.failed.get(*key) != Some(*why)).map(|(key, _)| key.clone()),
        );
        changed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    pub(super) fn object(key: Key, body: Body) -> Arc<Object> {
        Arc::new(Object { key, labels: BTreeMap::new(), created: None, body })
    }

    #[test]
    fn kinds() {
        assert_eq!(Kind::of("v1", "Secret"), Some(Kind::Secret));
        assert_eq!(Kind::of("node.k8s.io/v1", "RuntimeClass"), Some(Kind::RuntimeClass));
        for (version, kind) in [("v1", "RuntimeClass"), ("node.k8s.io/v1beta1", "RuntimeClass"), ("v1", "Pod")] {
            assert_eq!(Kind::of(version, kind), None);
        }
        assert_eq!(Key::new(Kind::Secret, "a", "b").to_string(), "Secret a/b");
        assert_eq!(Key::new(Kind::PersistentVolume, "a", "b").to_string(), "PersistentVolume b");
    }

    #[test]
    fn a_secret_is_not_shown() {
        let secret = Secret {
            data: BTreeMap::from([("key".to_owned(), SecretValue::new(b"hunter2".to_vec()))]),
            ..Default::default()
        };
        let object = object(Key::new(Kind::Secret, "default", "s"), Body::Secret(secret));
        let objects = Objects::new([object], &BTreeMap::new(), &Node::default());
        let text = format!("{objects:?}\n{objects:#?}");
        // Neither as text, nor as a list of numbers, nor in base64.
        for shown in ["hunter2", "104, 117", "aHVudGVyMg"] {
            assert!(!text.contains(shown), "{text}");
        }
        assert!(text.contains("(secret)"), "{text}");
    }
}

//! The objects of the double, and what happens to them.

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

/// Status code, reason and message.
#[derive(Debug, Clone, PartialEq)]
pub struct Refusal(pub u16, pub &'static str, pub String);

type Result<T> = std::result::Result<T, Refusal>;
/// Resource, namespace, name.
type Key = (String, String, String);

/// Something that happened: the version, its type, the resource, the object.
#[derive(Clone)]
pub struct Happened {
    pub version: u64,
    pub kind: &'static str,
    pub resource: String,
    pub object: Value,
}

pub struct Objects {
    objects: BTreeMap<Key, Value>,
    pub history: Vec<Happened>,
    /// Of the last change. Versions rise over all resources ("concepts", resource versions).
    pub version: u64,
    /// What happened up to this version is not known any more.
    pub compacted: u64,
    uids: u64,
    /// Seconds by which the server's clock is ahead of the node's.
    pub skew: i64,
}

/// Resources without namespaces.
const CLUSTER: [&str; 5] = ["nodes", "namespaces", "persistentvolumes", "runtimeclasses", "tokenreviews"];

impl Objects {
    pub fn new(version: u64) -> Objects {
        Objects { objects: BTreeMap::new(), history: Vec::new(), version, compacted: 0, uids: 0, skew: 0 }
    }

    pub fn compact(&mut self) {
        self.compacted = self.version;
        self.history.clear();
    }

    fn key(resource: &str, namespace: &str, name: &str) -> Key {
        let namespace = if CLUSTER.contains(&resource) { "" } else { namespace };
        (resource.to_owned(), namespace.to_owned(), name.to_owned())
    }

    /// All of a resource, in one namespace or in all, that a field selector selects.
    pub fn list(&self, resource: &str, namespace: Option<&str>, selector: &str) -> Vec<Value> {
        let all = self.objects.iter().filter(|((r, n, _), _)| r == resource && namespace.is_none_or(|ns| ns == n));
        all.map(|(_, object)| object.clone()).filter(|object| selects(selector, object)).collect()
    }

    pub fn get(&self, resource: &str, namespace: &str, name: &str) -> Result<Value> {
        let found = self.objects.get(&Objects::key(resource, namespace, name)).cloned();
        found.ok_or_else(|| Refusal(404, "NotFound", format!("{resource} {name:?} not found")))
    }

    /// Gives it what the server sets: UID, version, time ("reference", ObjectMeta).
    pub fn create(&mut self, resource: &str, namespace: &str, mut object: Value) -> Result<Value> {
        let name = object["metadata"]["name"].as_str().unwrap_or_default().to_owned();
        let key = Objects::key(resource, namespace, &name);
        if self.objects.contains_key(&key) {
            return Err(Refusal(409, "AlreadyExists", format!("{resource} {name:?} already exists")));
        }
        self.uids += 1;
        let meta = object["metadata"].as_object_mut().expect("has metadata");
        meta.insert("uid".to_owned(), format!("{resource}-{}-{}", self.version, self.uids).into());
        meta.insert("creationTimestamp".to_owned(), now(self.skew).into());
        if !key.1.is_empty() {
            meta.insert("namespace".to_owned(), key.1.clone().into());
        }
        if resource == "pods" {
            meta.insert("generation".to_owned(), 1.into());
            set_pod_defaults(&mut object);
        }
        Ok(self.put(key, "ADDED", object))
    }

    fn put(&mut self, key: Key, kind: &'static str, mut object: Value) -> Value {
        self.version += 1;
        object["metadata"]["resourceVersion"] = self.version.to_string().into();
        let resource = key.0.clone();
        match kind {
            // The version of a deletion is its own ("concepts", watch).
            "DELETED" => _ = self.objects.remove(&key),
            _ => _ = self.objects.insert(key, object.clone()),
        }
        self.history.push(Happened { version: self.version, kind, resource, object: object.clone() });
        object
    }

    /// Changes an object, if that makes it another.
    pub fn change(
        &mut self,
        (resource, namespace, name): (&str, &str, &str),
        change: impl FnOnce(&mut Value) -> Result<()>,
    ) -> Result<Value> {
        let before = self.get(resource, namespace, name)?;
        let mut object = before.clone();
        change(&mut object)?;
        if object == before {
            return Ok(object);
        }
        // A new generation comes with a new spec ("reference", ObjectMeta.generation).
        if object["spec"] != before["spec"] && before["metadata"]["generation"].is_u64() {
            object["metadata"]["generation"] = (before["metadata"]["generation"].as_u64().unwrap_or(0) + 1).into();
        }
        Ok(self.put(Objects::key(resource, namespace, name), "MODIFIED", object))
    }

    /// JSON merge patch, RFC 7386.
    pub fn merge(&mut self, resource: &str, namespace: &str, name: &str, patch: &Value) -> Result<Value> {
        self.change((resource, namespace, name), |object| {
            merge(object, patch);
            Ok(())
        })
    }

    /// A pod on a node ends gracefully: it is marked, with the time by which it has to have ended, until
    /// the kubelet deletes it with a grace period of 0 ("Pod Lifecycle", termination of pods). Everything
    /// else goes at once. Returns what is still there.
    pub fn delete(&mut self, resource: &str, namespace: &str, name: &str, options: &Value) -> Result<Option<Value>> {
        let object = self.get(resource, namespace, name)?;
        let uid = &options["preconditions"]["uid"];
        if !uid.is_null() && *uid != object["metadata"]["uid"] {
            let why = format!("the UID in the precondition ({uid}) does not match the UID in record");
            return Err(Refusal(409, "Conflict", why));
        }
        let own = object["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
        let grace = options["gracePeriodSeconds"].as_i64().unwrap_or(own);
        let mirror = !object["metadata"]["annotations"]["kubernetes.io/config.mirror"].is_null();
        let skew = self.skew;
        let on_node = resource == "pods" && object["spec"]["nodeName"].is_string();
        if !on_node || grace == 0 || mirror && options["gracePeriodSeconds"].is_null() && own == 0 {
            self.put(Objects::key(resource, namespace, name), "DELETED", object);
            return Ok(None);
        }
        let changed = self.change((resource, namespace, name), |object| {
            let before = object["metadata"]["deletionGracePeriodSeconds"].as_i64();
            // It can only get shorter.
            if before.is_none_or(|before| grace < before) {
                object["metadata"]["deletionGracePeriodSeconds"] = grace.into();
                object["metadata"]["deletionTimestamp"] = now(grace + skew).into();
            }
            Ok(())
        });
        changed.map(Some)
    }

    /// An object in place of the one that is there, if that is still of the version that the new one is
    /// made from ("concepts", resource versions; "reference", ObjectMeta.resourceVersion).
    pub fn update(&mut self, resource: &str, namespace: &str, name: &str, new: Value) -> Result<Value> {
        self.change((resource, namespace, name), |object| {
            let of = |object: &Value| object["metadata"]["resourceVersion"].clone();
            if !of(&new).is_null() && of(&new) != of(object) {
                let why = "the object has been modified; please apply your changes to the latest version".to_owned();
                return Err(Refusal(409, "Conflict", why));
            }
            *object = new;
            Ok(())
        })
    }

    /// Strategic merge patch of a status ("Update API Objects in Place Using kubectl patch"): conditions
    /// are merged by type, addresses of a pod by ip and those of a node by type, and all other lists
    /// replaced ("reference", PodStatus and NodeStatus: patch strategy). Labels of a node go the same way.
    /// A UID in it must be the object's.
    pub fn patch_status(&mut self, resource: &str, namespace: &str, name: &str, patch: &Value) -> Result<Value> {
        self.change((resource, namespace, name), |object| {
            let uid = &patch["metadata"]["uid"];
            if !uid.is_null() && *uid != object["metadata"]["uid"] {
                let why = format!(
                    "Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
                    object["metadata"]["uid"]
                );
                return Err(Refusal(409, "Conflict", why));
            }
            if patch["metadata"]["labels"].is_object() {
                merge(&mut object["metadata"]["labels"], &patch["metadata"]["labels"]);
            }
            let mut patch = patch["status"].clone();
            if patch.is_null() {
                return Ok(());
            }
            let status = &mut object["status"];
            for (field, key) in [("conditions", "type"), ("podIPs", "ip"), ("hostIPs", "ip"), ("addresses", "type")] {
                if let Some(Value::Array(items)) = patch.get_mut(field).map(Value::take) {
                    let mut list = status[field].as_array().cloned().unwrap_or_default();
                    merge_by(&mut list, items, key);
                    status[field] = list.into();
                    patch.as_object_mut().expect("an object").remove(field);
                }
            }
            merge(status, &patch);
            Ok(())
        })
    }
}

fn merge_by(list: &mut Vec<Value>, mut items: Vec<Value>, key: &str) {
    // The directive may stand anywhere in the list.
    if items.iter().any(|item| item["$patch"] == "replace") {
        list.clear();
        items.retain(|item| item["$patch"] != "replace");
    }
    for mut item in items {
        let place = list.iter().position(|old| old[key] == item[key]);
        match (item["$patch"].as_str(), place) {
            (Some("delete"), Some(place)) => _ = list.remove(place),
            (Some("delete"), None) => {}
            (_, Some(place)) => merge(&mut list[place], &item),
            (_, None) => {
                let mut fresh = Value::Object(Map::new());
                merge(&mut fresh, &item.take());
                list.push(fresh);
            }
        }
    }
}

fn merge(into: &mut Value, patch: &Value) {
    let Value::Object(patch) = patch else { return *into = patch.clone() };
    if !into.is_object() {
        *into = json!({});
    }
    let into = into.as_object_mut().expect("an object");
    for (name, value) in patch {
        match value {
            Value::Null => _ = into.remove(name),
            value => merge(into.entry(name.clone()).or_insert(Value::Null), value),
        }
    }
}

/// `a.b=c,d=e`.
pub fn selects(selector: &str, object: &Value) -> bool {
    selector.split(',').filter(|part| !part.is_empty()).all(|part| {
        let (path, want) = part.split_once('=').expect("a field selector");
        let pointer = format!("/{}", path.replace('.', "/"));
        object.pointer(&pointer).and_then(Value::as_str).unwrap_or_default() == want
    })
}

fn now(plus: i64) -> String {
    let at = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(plus);
    at.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

/// Defaults of the API ("reference", PodSpec and Container), as far as a node depends on them.
fn set_pod_defaults(pod: &mut Value) {
    let set = |object: &mut Value, name: &str, value: Value| {
        if object[name].is_null() {
            object[name] = value;
        }
    };
    let spec = &mut pod["spec"];
    for (name, value) in [
        ("restartPolicy", json!("Always")),
        ("terminationGracePeriodSeconds", json!(30)),
        ("dnsPolicy", json!("ClusterFirst")),
        ("schedulerName", json!("default-scheduler")),
        ("securityContext", json!({})),
        ("enableServiceLinks", json!(true)),
    ] {
        set(spec, name, value);
    }
    for list in ["containers", "initContainers"] {
        for container in spec[list].as_array_mut().into_iter().flatten() {
            set(container, "terminationMessagePath", json!("/dev/termination-log"));
            set(container, "terminationMessagePolicy", json!("File"));
            set(container, "imagePullPolicy", json!("IfNotPresent"));
            set(container, "resources", json!({}));
        }
    }
    for volume in spec["volumes"].as_array_mut().into_iter().flatten() {
        for kind in ["configMap", "secret", "projected", "downwardAPI"] {
            if volume[kind].is_object() {
                set(&mut volume[kind], "defaultMode", json!(0o644));
            }
        }
    }
    set(pod, "status", json!({"phase": "Pending", "qosClass": "BestEffort"}));
}

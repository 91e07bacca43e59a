//! Which persistent volume serves which claim (pkg/controller/volume/persistentvolume): by name
//! where a claim or a volume names the other, else by class, mode, access modes and size. Pure.
//!
//! A claim keeps the volume that it has for as long as that serves it: what is in it is the pod's.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::{Bindings, Body, Key, Object, PersistentVolume};
use crate::pod::core;
use crate::pod::quantity::Quantity;

/// What of the node decides on where a volume can be used.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Node {
    pub name: String,
    pub labels: BTreeMap<String, String>,
}

impl Node {
    /// `labels`: the configured ones; those that the kubelet adds are added.
    pub fn new(name: &str, labels: &BTreeMap<String, String>) -> Node {
        let arch = match std::env::consts::ARCH {
            "x86_64" => "amd64",
            "aarch64" => "arm64",
            "x86" => "386",
            other => other,
        };
        let own = [("hostname", name), ("os", "linux"), ("arch", arch)];
        let mut all: BTreeMap<_, _> =
            own.iter().map(|(key, value)| (format!("kubernetes.io/{key}"), (*value).to_owned())).collect();
        all.extend(labels.clone());
        Node { name: name.to_owned(), labels: all }
    }
}

struct Claim<'o> {
    key: &'o Key,
    spec: &'o core::PersistentVolumeClaimSpec,
}

struct Volume<'o> {
    name: &'o str,
    labels: &'o BTreeMap<String, String>,
    spec: &'o PersistentVolume,
}

/// `had`: the volumes that claims had until now, by name.
pub fn bind(objects: &BTreeMap<Key, Arc<Object>>, had: &BTreeMap<Key, String>, node: &Node) -> Bindings {
    let claims: Vec<_> = objects.values().filter_map(claim).collect();
    let volumes: BTreeMap<_, _> = objects.values().filter_map(volume).map(|v| (v.name, v)).collect();
    let mut bindings = Bindings::new();
    let mut taken = BTreeSet::new();
    for claim in &claims {
        let kept = had.get(claim.key).and_then(|name| volumes.get(name.as_str()));
        if let Some(volume) = kept.filter(|v| names_agree(claim, v) && serves(v, claim, node).is_ok()) {
            if taken.insert(volume.name) {
                bindings.insert(claim.key.clone(), Ok(volume.name.to_owned()));
            }
        }
    }
    let mut rest: Vec<_> = claims.iter().filter(|c| !bindings.contains_key(c.key)).collect();
    // A volume that is asked for by name goes to no one else.
    rest.sort_by_key(|claim| named(claim, &volumes).is_none());
    for claim in rest {
        let found = match named(claim, &volumes) {
            Some(name) => by_name(claim, &name, &volumes, &taken, node),
            None => by_fit(claim, &volumes, &taken, node),
        };
        if let Ok(name) = &found {
            taken.insert(*name);
        }
        bindings.insert(claim.key.clone(), found.map(str::to_owned));
    }
    bindings
}

fn claim(object: &Arc<Object>) -> Option<Claim<'_>> {
    match &object.body {
        Body::PersistentVolumeClaim(spec) => Some(Claim { key: &object.key, spec }),
        _ => None,
    }
}

fn volume(object: &Arc<Object>) -> Option<Volume<'_>> {
    match &object.body {
        Body::PersistentVolume(spec) => Some(Volume { name: &object.key.name, labels: &object.labels, spec }),
        _ => None,
    }
}

fn is_reserved_for(volume: &Volume<'_>, claim: &Key) -> Option<bool> {
    let reference = volume.spec.claim_ref.as_ref()?;
    let namespace = reference.namespace.as_deref().unwrap_or("default");
    Some(reference.name.as_deref() == Some(&claim.name) && namespace == claim.namespace)
}

/// The volume that the claim names, or that names the claim.
fn named(claim: &Claim<'_>, volumes: &BTreeMap<&str, Volume<'_>>) -> Option<String> {
    let own = claim.spec.volume_name.as_deref().filter(|name| !name.is_empty());
    let reserved = || volumes.values().find(|v| is_reserved_for(v, claim.key) == Some(true)).map(|v| v.name);
    own.or_else(reserved).map(str::to_owned)
}

fn names_agree(claim: &Claim<'_>, volume: &Volume<'_>) -> bool {
    let wanted = claim.spec.volume_name.as_deref().filter(|name| !name.is_empty());
    wanted.is_none_or(|name| name == volume.name) && is_reserved_for(volume, claim.key) != Some(false)
}

fn by_name<'v>(
    claim: &Claim<'_>,
    name: &str,
    volumes: &BTreeMap<&'v str, Volume<'v>>,
    taken: &BTreeSet<&str>,
    node: &Node,
) -> Result<&'v str, String> {
    let Some(volume) = volumes.get(name) else { return Err(format!("persistentvolume {name:?} not found")) };
    if taken.contains(name) || !names_agree(claim, volume) {
        return Err(format!("persistentvolume {name:?} is another claim's"));
    }
    serves(volume, claim, node).map_err(|why| format!("persistentvolume {name:?} does not fit: {why}"))?;
    Ok(volume.name)
}

/// The smallest volume that serves the claim and is nobody's.
fn by_fit<'v>(
    claim: &Claim<'_>,
    volumes: &BTreeMap<&'v str, Volume<'v>>,
    taken: &BTreeSet<&str>,
    node: &Node,
) -> Result<&'v str, String> {
    let selected = |v: &&Volume<'_>| claim.spec.selector.as_ref().is_none_or(|s| selects(s, v.labels));
    let free = volumes.values().filter(|v| !taken.contains(v.name) && is_reserved_for(v, claim.key).is_none());
    let fits = free.filter(selected).filter(|v| serves(v, claim, node).is_ok());
    let smallest = fits.min_by_key(|v| (capacity(v.spec), v.name));
    smallest.map(|v| v.name).ok_or_else(|| {
        let class = claim.spec.storage_class_name.as_deref().unwrap_or_default();
        format!("no persistent volume with storage class {class:?} is free and fits")
    })
}

/// Whether the volume has what the claim wants, or what is in the way.
fn serves(volume: &Volume<'_>, claim: &Claim<'_>, node: &Node) -> Result<(), String> {
    let (has, wants) = (volume.spec, claim.spec);
    let class = |class: &Option<String>| class.clone().unwrap_or_default();
    if class(&has.storage_class_name) != class(&wants.storage_class_name) {
        return Err(format!("its storage class is {:?}", class(&has.storage_class_name)));
    }
    let mode = |mode: &Option<String>| mode.clone().unwrap_or_else(|| "Filesystem".to_owned());
    if mode(&has.volume_mode) != mode(&wants.volume_mode) {
        return Err(format!("its volumeMode is {}", mode(&has.volume_mode)));
    }
    let modes = has.access_modes.as_deref().unwrap_or_default();
    if let Some(missing) = wants.access_modes.iter().flatten().find(|mode| !modes.contains(mode)) {
        return Err(format!("it has no access mode {missing}"));
    }
    let requests = wants.resources.as_ref().and_then(|r| r.requests.as_ref());
    let asked = requests.and_then(|r| Quantity::parse(&r.get("storage")?.0)).unwrap_or_default();
    if capacity(has) < asked {
        return Err("its capacity is less than what is asked for".to_owned());
    }
    let required = has.node_affinity.as_ref().and_then(|a| a.required.as_ref());
    match required.is_none_or(|terms| matches_node(terms, node)) {
        true => Ok(()),
        false => Err(format!("its nodeAffinity is not for node {}", node.name)),
    }
}

fn capacity(volume: &PersistentVolume) -> Quantity {
    let storage = volume.capacity.as_ref().and_then(|c| Quantity::parse(&c.get("storage")?.0));
    storage.unwrap_or_default()
}

/// One of the terms has to match; a term without requirements matches nothing.
fn matches_node(selector: &core::NodeSelector, node: &Node) -> bool {
    let name = BTreeMap::from([("metadata.name".to_owned(), node.name.clone())]);
    let all = |list: &Option<Vec<core::NodeSelectorRequirement>>, labels: &BTreeMap<String, String>| {
        list.iter().flatten().all(|r| meets(&r.operator, r.values.as_deref().unwrap_or_default(), labels.get(&r.key)))
    };
    let count = |list: &Option<Vec<_>>| list.as_ref().map_or(0, Vec::len);
    selector.node_selector_terms.iter().any(|term| {
        count(&term.match_expressions) + count(&term.match_fields) > 0
            && all(&term.match_expressions, &node.labels)
            && all(&term.match_fields, &name)
    })
}

fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    let equal = selector.match_labels.iter().flatten().all(|(key, value)| labels.get(key) == Some(value));
    let expressions = selector.match_expressions.iter().flatten();
    equal && { expressions }.all(|r| meets(&r.operator, r.values.as_deref().unwrap_or_default(), labels.get(&r.key)))
}

/// Whether a label's value meets a requirement (apimachinery/pkg/labels).
fn meets(operator: &str, values: &[String], value: Option<&String>) -> bool {
    let compared = || Some((value?.parse::<i64>().ok()?, values.first()?.parse::<i64>().ok()?));
    match operator {
        "In" => value.is_some_and(|v| values.contains(v)),
        "NotIn" => value.is_none_or(|v| !values.contains(v)),
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => compared().is_some_and(|(value, bound)| value > bound),
        "Lt" => compared().is_some_and(|(value, bound)| value < bound),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local::{Kind, Objects};
    use serde_json::{Value, json};

    fn node() -> Node {
        Node::new("edge-1", &BTreeMap::new())
    }

    fn pv(name: &str, size: &str, more: Value) -> Arc<Object> {
        let mut spec =
            json!({"capacity": {"storage": size}, "accessModes": ["ReadWriteOnce"], "hostPath": {"path": "/x"}});
        merge(&mut spec, more);
        let labels = BTreeMap::from([("disk".to_owned(), name.to_owned())]);
        let body = Body::PersistentVolume(serde_json::from_value(spec).expect("a spec"));
        Arc::new(Object { key: Key::new(Kind::PersistentVolume, "", name), labels, created: None, body })
    }

    fn pvc(name: &str, size: &str, more: Value) -> Arc<Object> {
        let mut spec = json!({"resources": {"requests": {"storage": size}}, "accessModes": ["ReadWriteOnce"]});
        merge(&mut spec, more);
        let body = Body::PersistentVolumeClaim(serde_json::from_value(spec).expect("a spec"));
        let key = Key::new(Kind::PersistentVolumeClaim, "default", name);
        Arc::new(Object { key, labels: BTreeMap::new(), created: None, body })
    }

    fn merge(into: &mut Value, more: Value) {
        if let (Value::Object(into), Value::Object(more)) = (into, more) {
            into.extend(more);
        }
    }

    fn bound(objects: &[Arc<Object>], had: &[(&str, &str)]) -> Vec<String> {
        let key = |claim: &str| Key::new(Kind::PersistentVolumeClaim, "default", claim);
        let had = had.iter().map(|(claim, volume)| (key(claim), (*volume).to_owned())).collect();
        let bindings = Objects::new(objects.to_vec(), &had, &node()).bindings;
        bindings
            .into_iter()
            .map(|(key, volume)| match volume {
                Ok(volume) => format!("{}={volume}", key.name),
                Err(why) => format!("{}: {why}", key.name),
            })
            .collect()
    }

    #[test]
    fn claims_find_their_volumes() {
        let none = || json!({});
        let affinity = |key: &str, values: &[&str]| json!({"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [{"key": key, "operator": "In", "values": values}]}]}}});
        let nothing = |class: &str| format!("a: no persistent volume with storage class {class:?} is free and fits");
        type Case = (&'static str, Vec<Arc<Object>>, Vec<String>);
        let table: Vec<Case> = vec![
            (
                "the smallest that fits",
                vec![pv("x", "9Gi", none()), pv("y", "5Gi", none()), pv("z", "1Gi", none()), pvc("a", "2Gi", none())],
                vec!["a=y".into()],
            ),
            (
                "two alike",
                vec![pv("x", "1Gi", none()), pv("y", "1Gi", none()), pvc("a", "1Gi", none()), pvc("b", "1Gi", none())],
                vec!["a=x".into(), "b=y".into()],
            ),
            ("too small", vec![pv("x", "1Gi", none()), pvc("a", "2Gi", none())], vec![nothing("")]),
            (
                "another class",
                vec![pv("x", "1Gi", json!({"storageClassName": "fast"})), pvc("a", "1Gi", none())],
                vec![nothing("")],
            ),
            (
                "the class",
                vec![
                    pv("x", "1Gi", json!({"storageClassName": "fast"})),
                    pvc("a", "1Gi", json!({"storageClassName": "fast"})),
                ],
                vec!["a=x".into()],
            ),
            (
                "another access mode",
                vec![pv("x", "1Gi", none()), pvc("a", "1Gi", json!({"accessModes": ["ReadWriteMany"]}))],
                vec![nothing("")],
            ),
            (
                "another volume mode",
                vec![pv("x", "1Gi", json!({"volumeMode": "Block"})), pvc("a", "1Gi", none())],
                vec![nothing("")],
            ),
            (
                "by the volume's label",
                vec![
                    pv("x", "1Gi", none()),
                    pv("y", "1Gi", none()),
                    pvc("a", "1Gi", json!({"selector": {"matchLabels": {"disk": "y"}}})),
                ],
                vec!["a=y".into()],
            ),
            (
                "this node",
                vec![pv("x", "1Gi", affinity("kubernetes.io/hostname", &["edge-1"])), pvc("a", "1Gi", none())],
                vec!["a=x".into()],
            ),
            (
                "another node",
                vec![pv("x", "1Gi", affinity("kubernetes.io/hostname", &["edge-2"])), pvc("a", "1Gi", none())],
                vec![nothing("")],
            ),
            (
                "named by the claim",
                vec![
                    pv("x", "1Gi", none()),
                    pv("y", "9Gi", none()),
                    pvc("a", "1Gi", json!({"volumeName": "y"})),
                    pvc("A", "5Gi", none()),
                ],
                vec!["A: no persistent volume with storage class \"\" is free and fits".into(), "a=y".into()],
            ),
            (
                "named by the volume",
                vec![
                    pv("x", "1Gi", none()),
                    pv("y", "9Gi", json!({"claimRef": {"namespace": "default", "name": "a"}})),
                    pvc("a", "1Gi", none()),
                ],
                vec!["a=y".into()],
            ),
            (
                "reserved for another",
                vec![pv("x", "1Gi", json!({"claimRef": {"namespace": "other", "name": "a"}})), pvc("a", "1Gi", none())],
                vec![nothing("")],
            ),
            (
                "named, reserved for another",
                vec![
                    pv("x", "1Gi", json!({"claimRef": {"namespace": "other", "name": "a"}})),
                    pvc("a", "1Gi", json!({"volumeName": "x"})),
                ],
                vec!["a: persistentvolume \"x\" is another claim's".into()],
            ),
            (
                "named, not there",
                vec![pvc("a", "1Gi", json!({"volumeName": "x"}))],
                vec!["a: persistentvolume \"x\" not found".into()],
            ),
            (
                "named, another node",
                vec![
                    pv("x", "1Gi", affinity("metadata.name", &["edge-1"])),
                    pvc("a", "1Gi", json!({"volumeName": "x"})),
                ],
                vec!["a: persistentvolume \"x\" does not fit: its nodeAffinity is not for node edge-1".into()],
            ),
            (
                "named twice",
                vec![
                    pv("x", "1Gi", none()),
                    pvc("a", "1Gi", json!({"volumeName": "x"})),
                    pvc("b", "1Gi", json!({"volumeName": "x"})),
                ],
                vec!["a=x".into(), "b: persistentvolume \"x\" is another claim's".into()],
            ),
        ];
        for (name, objects, want) in table {
            assert_eq!(bound(&objects, &[]), want, "{name}");
        }
    }

    /// A claim or a volume that comes later takes nobody's data away.
    #[test]
    fn a_claim_keeps_its_volume() {
        let none = || json!({});
        let mut objects = vec![pv("big", "9Gi", none()), pvc("db", "1Gi", none())];
        assert_eq!(bound(&objects, &[]), ["db=big"]);
        objects.extend([pv("small", "1Gi", none()), pvc("a", "1Gi", none())]);
        assert_eq!(bound(&objects, &[("db", "big")]), ["a=small", "db=big"]);
        objects.push(pvc("b", "1Gi", json!({"volumeName": "big"})));
        let b = "b: persistentvolume \"big\" is another claim's";
        assert_eq!(bound(&objects, &[("db", "big")]), ["a=small", b, "db=big"]);
        // One that doesn't serve it any more is given up.
        objects[0] = pv("big", "9Gi", json!({"storageClassName": "other"}));
        assert_eq!(bound(&objects[..3], &[("db", "big")]), ["db=small"]);
    }

    #[test]
    fn requirements() {
        let table: &[(&str, &[&str], Option<&str>, bool)] = &[
            ("In", &["a", "b"], Some("b"), true),
            ("In", &["a"], None, false),
            ("NotIn", &["a"], Some("a"), false),
            ("NotIn", &["a"], None, true),
            ("Exists", &[], Some(""), true),
            ("Exists", &[], None, false),
            ("DoesNotExist", &[], None, true),
            ("Gt", &["5"], Some("6"), true),
            ("Gt", &["5"], Some("5"), false),
            ("Gt", &["5"], Some("x"), false),
            ("Lt", &["5"], Some("-1"), true),
            ("Lt", &["5"], None, false),
            ("Like", &["5"], Some("5"), false),
        ];
        for (operator, values, value, want) in table {
            let values: Vec<_> = values.iter().map(|v| (*v).to_owned()).collect();
            let value = value.map(str::to_owned);
            assert_eq!(meets(operator, &values, value.as_ref()), *want, "{operator} {values:?} {value:?}");
        }
    }
}

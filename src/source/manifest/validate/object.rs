//! Whether the objects that pods refer to are ones that Kubernetes would take
//! (pkg/apis/core/validation, pkg/apis/node/validation, pkg/apis/scheduling/validation), and that
//! a node can serve by itself. What is wrong with a secret is told without its values.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde::de::value::{Error as ValueError, StrDeserializer};

use super::format::{DATA_KEY, DNS_LABEL, NO_BACKSTEPS};
use super::report::{OneOf, Path, Report, text};
use super::{metadata, resources, scheduling, volume};
use crate::local::{ConfigMap, PersistentVolume, PriorityClass, RuntimeClass, SecretValue};
use crate::pod::core;
use crate::pod::quantity::Quantity;
use crate::yaml::Problem;

/// What all values of a config map or of a secret may have together, in bytes.
const MAX_DATA: usize = 1 << 20;

pub fn config_map(meta: &ObjectMeta, map: &ConfigMap) -> Vec<Problem> {
    let mut report = Report::default();
    metadata::check_object(&mut report, meta, true);
    let (data, binary) = (Path::root("data"), Path::root("binaryData"));
    for key in map.data.keys() {
        report.format(&data.key(key), key, DATA_KEY);
        if map.binary_data.contains_key(key) {
            report.invalid(&data.key(key), key, "stands in binaryData too");
        }
    }
    for key in map.binary_data.keys() {
        report.format(&binary.key(key), key, DATA_KEY);
    }
    let size: usize = map.data.values().map(String::len).chain(map.binary_data.values().map(|v| v.0.len())).sum();
    if size > MAX_DATA {
        report.too_long(&data, MAX_DATA);
    }
    report.problems
}

/// A secret as it stands in a manifest.
pub struct SecretText<'a> {
    /// Its type.
    pub kind: &'a str,
    /// In base64.
    pub data: BTreeMap<String, String>,
    /// As it is.
    pub string_data: BTreeMap<String, String>,
}

/// The data of a secret, and what is wrong with it.
pub fn secret(meta: &ObjectMeta, secret: SecretText<'_>) -> (BTreeMap<String, SecretValue>, Vec<Problem>) {
    let mut report = Report::default();
    metadata::check_object(&mut report, meta, true);
    let mut all = BTreeMap::new();
    let (data, string_data) = (Path::root("data"), Path::root("stringData"));
    for (key, text) in secret.data {
        report.format(&data.key(&key), &key, DATA_KEY);
        match base64(&text) {
            Some(bytes) => _ = all.insert(key, SecretValue::new(bytes)),
            None => {
                report.invalid(&data.key(&key), SecretValue::default(), "must be base64; stringData takes plain text")
            }
        }
    }
    for (key, text) in secret.string_data {
        report.format(&string_data.key(&key), &key, DATA_KEY);
        all.insert(key, SecretValue::new(text.into_bytes()));
    }
    if all.values().map(|v| v.bytes().len()).sum::<usize>() > MAX_DATA {
        report.too_long(&data, MAX_DATA);
    }
    of_type(&mut report, meta, secret.kind, &all);
    (all, report.problems)
}

/// Line breaks in base64 mean nothing.
fn base64(text: &str) -> Option<Vec<u8>> {
    let text: String = text.chars().filter(|c| !matches!(c, '\n' | '\r')).collect();
    ByteString::deserialize(StrDeserializer::<ValueError>::new(&text)).ok().map(|bytes| bytes.0)
}

/// What a secret of a well-known type must have.
fn of_type(report: &mut Report, meta: &ObjectMeta, kind: &str, all: &BTreeMap<String, SecretValue>) {
    const ACCOUNT: &str = "kubernetes.io/service-account.name";
    let data = Path::root("data");
    let mut need = |key: &str| {
        if !all.contains_key(key) {
            report.required(&data.key(key));
        }
    };
    match kind {
        "kubernetes.io/dockerconfigjson" => need(".dockerconfigjson"),
        "kubernetes.io/dockercfg" => need(".dockercfg"),
        "kubernetes.io/ssh-auth" => need("ssh-privatekey"),
        "kubernetes.io/tls" => ["tls.crt", "tls.key"].into_iter().for_each(need),
        "kubernetes.io/basic-auth" if !all.contains_key("username") => need("password"),
        "kubernetes.io/service-account-token" => {
            let account = meta.annotations.as_ref().and_then(|a| a.get(ACCOUNT));
            if account.is_none_or(String::is_empty) {
                report.required(&Path::root("metadata").field("annotations").key(ACCOUNT));
            }
        }
        _ => {}
    }
    let files = [("kubernetes.io/dockerconfigjson", ".dockerconfigjson"), ("kubernetes.io/dockercfg", ".dockercfg")];
    for (_, key) in files.iter().filter(|(k, _)| *k == kind) {
        let json = |value: &SecretValue| serde_json::from_slice::<serde::de::IgnoredAny>(value.bytes()).is_ok();
        if all.get(*key).is_some_and(|value| !json(value)) {
            report.invalid(&data.key(key), SecretValue::default(), "must be JSON");
        }
    }
}

pub fn claim(meta: &ObjectMeta, spec: &core::PersistentVolumeClaimSpec) -> Vec<Problem> {
    let mut report = Report::default();
    metadata::check_object(&mut report, meta, true);
    volume::claim(&mut report, &Path::root("spec"), spec);
    report.problems
}

pub fn persistent_volume(meta: &ObjectMeta, spec: &PersistentVolume) -> Vec<Problem> {
    let mut report = Report::default();
    metadata::check_object(&mut report, meta, false);
    let at = Path::root("spec");
    volume::access_modes(&mut report, &at.field("accessModes"), &spec.access_modes);
    capacity(&mut report, &at.field("capacity"), spec);
    OneOf::new(&mut report, &at, "volume type, of those that a node has itself: hostPath or local")
        .field("hostPath", spec.host_path.as_ref(), volume::host_path)
        .field("local", spec.local.as_ref(), |report, at, local| {
            report.present_format(&at.field("path"), &local.path, NO_BACKSTEPS);
        })
        .end();
    let affinity = at.field("nodeAffinity");
    match spec.node_affinity.as_ref().map(|affinity| &affinity.required) {
        Some(Some(terms)) => scheduling::node_selector(&mut report, &affinity.field("required"), terms),
        Some(None) => report.required(&affinity.field("required")),
        None if spec.local.is_some() => report.required_because(&affinity, "a local volume is on one node"),
        None => {}
    }
    if let Some(policy) = &spec.persistent_volume_reclaim_policy {
        let at = at.field("persistentVolumeReclaimPolicy");
        report.choice(&at, policy, &["Delete", "Recycle", "Retain"]);
    }
    volume::class_names(&mut report, &at, &spec.storage_class_name, &spec.volume_attributes_class_name);
    if let Some(mode) = &spec.volume_mode {
        report.choice(&at.field("volumeMode"), mode, &["Block", "Filesystem"]);
        if mode == "Block" && spec.host_path.is_some() {
            report.forbidden(&at.field("volumeMode"), "may not be Block for a hostPath");
        }
    }
    report.problems
}

fn capacity(report: &mut Report, at: &Path<'_>, spec: &PersistentVolume) {
    let capacity = spec.capacity.iter().flatten();
    for (name, size) in capacity.clone() {
        match name.as_str() {
            "storage" if resources::quantity(report, &at.key(name), size).is_some_and(|q| q <= Quantity::default()) => {
                report.invalid(&at.key(name), &size.0, "must be greater than 0");
            }
            "storage" => {}
            _ => report.unsupported(at, name, &["storage"]),
        }
    }
    if capacity.count() == 0 {
        report.required(at);
    }
}

pub fn runtime_class(meta: &ObjectMeta, class: &RuntimeClass) -> Vec<Problem> {
    let mut report = Report::default();
    metadata::check_object(&mut report, meta, false);
    report.present_format(&Path::root("handler"), &class.handler, DNS_LABEL);
    resources::overhead(&mut report, &Path::root("overhead").field("podFixed"), &class.overhead);
    let at = Path::root("scheduling");
    metadata::check_labels(&mut report, &at.field("nodeSelector"), &Some(class.node_selector.clone()));
    scheduling::tolerations(&mut report, &at.field("tolerations"), &Some(class.tolerations.clone()));
    report.problems
}

/// Classes of Kubernetes itself, which a manifest may only give as they are.
const SYSTEM_CLASSES: [(&str, i32); 2] =
    [("system-node-critical", 2_000_001_000), ("system-cluster-critical", 2_000_000_000)];
const HIGHEST_PRIORITY: i32 = 1_000_000_000;

pub fn priority_class(meta: &ObjectMeta, class: &PriorityClass) -> Vec<Problem> {
    let mut report = Report::default();
    metadata::check_object(&mut report, meta, false);
    let name = text(&meta.name);
    let system = SYSTEM_CLASSES.iter().find(|(system, _)| *system == name);
    match system {
        Some((_, value)) if class.value != *value => {
            report.invalid(&Path::root("value"), class.value, format_args!("must be {value} for {name}"));
        }
        None if name.starts_with("system-") => {
            report.forbidden(&Path::root("metadata").field("name"), "may not begin with system-");
        }
        None if class.value > HIGHEST_PRIORITY => {
            report.forbidden(&Path::root("value"), format_args!("may not be more than {HIGHEST_PRIORITY}"));
        }
        _ => {}
    }
    report.choice(&Path::root("preemptionPolicy"), &class.preemption_policy, &["Never", "PreemptLowerPriority"]);
    report.problems
}

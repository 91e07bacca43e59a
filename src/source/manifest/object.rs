//! Documents that are no pods but what pods refer to: from a tree to a validated object. No message
//! has a value of a secret in it.

use std::collections::BTreeMap;

use k8s_openapi::ByteString;
use k8s_openapi::api::node::v1 as node_api;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::join;
use super::validate::object as validate;
use crate::local::{Body, ConfigMap, Key, Kind, Object, PersistentVolume, PriorityClass, RuntimeClass, Secret};
use crate::pod::core;
use crate::yaml::{self, Node, Problem, Value};

/// What a document gives.
pub struct Read {
    /// `None` when there is a problem.
    pub object: Option<Object>,
    /// Some have no lines.
    pub problems: Vec<Problem>,
    pub warnings: Vec<Problem>,
}

/// Fields that every document has, or that say nothing to a node.
const COMMON: [&str; 4] = ["apiVersion", "kind", "metadata", "status"];

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct ConfigMapText {
    data: Option<BTreeMap<String, Option<String>>>,
    binary_data: Option<BTreeMap<String, ByteString>>,
    immutable: Option<bool>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct SecretText {
    data: Option<BTreeMap<String, Option<String>>>,
    string_data: Option<BTreeMap<String, Option<String>>>,
    r#type: Option<String>,
    immutable: Option<bool>,
}

#[derive(Deserialize)]
struct WithSpec<T> {
    spec: Option<T>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct RuntimeClassText {
    handler: Option<String>,
    overhead: Option<node_api::Overhead>,
    scheduling: Option<node_api::Scheduling>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct PriorityClassText {
    value: Option<i32>,
    global_default: Option<bool>,
    preemption_policy: Option<String>,
    #[serde(rename = "description")]
    _description: Option<String>,
}

/// Reads a document of the kind.
pub fn read(kind: Kind, node: &Node) -> Read {
    let mut warnings = Vec::new();
    let (object, problems) = match decode(kind, node, &mut warnings) {
        Ok((object, problems)) => (problems.is_empty().then_some(object), problems),
        // What is wrong may be a value that got into the wrong place.
        Err(p) if kind == Kind::Secret => {
            let message = "must be of another type; what stands there is not shown, since this is a secret";
            (None, vec![Problem { message: message.to_owned(), ..p }])
        }
        Err(problem) => (None, vec![problem]),
    };
    Read { object, problems, warnings }
}

fn decode(kind: Kind, node: &Node, warnings: &mut Vec<Problem>) -> Result<(Object, Vec<Problem>), Problem> {
    let meta: ObjectMeta = match node.get("metadata") {
        Some(meta) => part(meta, "metadata", warnings)?,
        None => ObjectMeta::default(),
    };
    let rest = &without_common(node);
    let (body, problems) = match kind {
        Kind::ConfigMap => config_map(&meta, part(rest, "", warnings)?),
        Kind::Secret => secret(&meta, part(rest, "", warnings)?),
        Kind::PersistentVolumeClaim => {
            let mut spec: core::PersistentVolumeClaimSpec = spec(rest, warnings)?;
            spec.volume_mode.get_or_insert_with(|| "Filesystem".to_owned());
            let problems = validate::claim(&meta, &spec);
            (Body::PersistentVolumeClaim(Box::new(spec)), problems)
        }
        Kind::PersistentVolume => {
            let spec: PersistentVolume = spec(rest, warnings)?;
            let problems = validate::persistent_volume(&meta, &spec);
            (Body::PersistentVolume(Box::new(spec)), problems)
        }
        Kind::RuntimeClass => runtime_class(&meta, part(rest, "", warnings)?),
        Kind::PriorityClass => priority_class(&meta, part(rest, "", warnings)?),
        Kind::ServiceAccountToken | Kind::Services => {
            return Err(Problem::new(node.line, "kind", "is not given in a manifest"));
        }
    };
    let namespace = meta.namespace.filter(|n| !n.is_empty()).unwrap_or_else(|| "default".to_owned());
    let key = Key::new(kind, &namespace, &meta.name.unwrap_or_default());
    Ok((Object { key, labels: meta.labels.unwrap_or_default(), created: None, body }, problems))
}

/// Decodes what stands at `path`.
fn part<T: DeserializeOwned>(node: &Node, path: &str, warnings: &mut Vec<Problem>) -> Result<T, Problem> {
    let placed = |p: Problem| Problem { field: join(path, &p.field), ..p };
    let decoded = yaml::decode(node).map_err(placed)?;
    warnings.extend(decoded.unknown.into_iter().map(placed));
    Ok(decoded.value)
}

fn spec<T: DeserializeOwned + Default>(rest: &Node, warnings: &mut Vec<Problem>) -> Result<T, Problem> {
    Ok(part::<WithSpec<T>>(rest, "", warnings)?.spec.unwrap_or_default())
}

fn without_common(node: &Node) -> Node {
    let value = match &node.value {
        Value::Map(entries) => {
            Value::Map(entries.iter().filter(|(key, _)| !COMMON.contains(&key.name.as_str())).cloned().collect())
        }
        other => other.clone(),
    };
    Node { value, line: node.line }
}

/// Null is the empty text, as in the API.
fn texts(map: Option<BTreeMap<String, Option<String>>>) -> BTreeMap<String, String> {
    map.into_iter().flatten().map(|(key, text)| (key, text.unwrap_or_default())).collect()
}

fn config_map(meta: &ObjectMeta, text: ConfigMapText) -> (Body, Vec<Problem>) {
    let map = ConfigMap {
        data: texts(text.data),
        binary_data: text.binary_data.unwrap_or_default(),
        immutable: text.immutable.unwrap_or(false),
    };
    let problems = validate::config_map(meta, &map);
    (Body::ConfigMap(map), problems)
}

fn secret(meta: &ObjectMeta, text: SecretText) -> (Body, Vec<Problem>) {
    let kind = text.r#type.filter(|kind| !kind.is_empty()).unwrap_or_else(|| "Opaque".to_owned());
    let given = validate::SecretText { kind: &kind, data: texts(text.data), string_data: texts(text.string_data) };
    let (data, problems) = validate::secret(meta, given);
    (Body::Secret(Secret { data, kind, immutable: text.immutable.unwrap_or(false) }), problems)
}

fn runtime_class(meta: &ObjectMeta, text: RuntimeClassText) -> (Body, Vec<Problem>) {
    let scheduling = text.scheduling.unwrap_or_default();
    let class = RuntimeClass {
        handler: text.handler.unwrap_or_default(),
        overhead: text.overhead.and_then(|o| o.pod_fixed).unwrap_or_default(),
        node_selector: scheduling.node_selector.unwrap_or_default(),
        tolerations: scheduling.tolerations.unwrap_or_default(),
    };
    let problems = validate::runtime_class(meta, &class);
    (Body::RuntimeClass(class), problems)
}

fn priority_class(meta: &ObjectMeta, text: PriorityClassText) -> (Body, Vec<Problem>) {
    let class = PriorityClass {
        value: text.value.unwrap_or_default(),
        global_default: text.global_default.unwrap_or(false),
        preemption_policy: text.preemption_policy.unwrap_or_else(|| "PreemptLowerPriority".to_owned()),
    };
    let problems = validate::priority_class(meta, &class);
    (Body::PriorityClass(class), problems)
}

#[cfg(test)]
mod tests;

//! Patches of JSON documents: RFC 7386, RFC 6902, and the strategic merge of Kubernetes
//! (apimachinery/pkg/util/strategicpatch) for the objects that can be written here. Pure.

use serde_json::{Map, Value};

/// By the request's `Content-Type`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Json,
    Merge,
    Strategic,
}

impl Kind {
    pub fn of(content_type: &str) -> Option<Kind> {
        match content_type.split(';').next().unwrap_or_default().trim() {
            "application/json-patch+json" => Some(Kind::Json),
            "application/merge-patch+json" => Some(Kind::Merge),
            "application/strategic-merge-patch+json" => Some(Kind::Strategic),
            _ => None,
        }
    }
}

/// # Errors
/// Why it can't be done.
pub fn apply(kind: Kind, document: Value, patch: &Value) -> Result<Value, String> {
    match kind {
        Kind::Json => json_patch(document, patch),
        Kind::Merge => Ok(merge(document, patch)),
        Kind::Strategic => match (document, patch) {
            (Value::Object(document), Value::Object(patch)) => Ok(strategic(document, patch).into()),
            _ => Err("the patch has to be an object".to_owned()),
        },
    }
}

fn merge(document: Value, patch: &Value) -> Value {
    let Value::Object(patch) = patch else { return patch.clone() };
    let mut merged = match document {
        Value::Object(map) => map,
        _ => Map::new(),
    };
    for (key, value) in patch {
        match value {
            Value::Null => _ = merged.remove(key),
            value => {
                let before = merged.remove(key).unwrap_or_default();
                merged.insert(key.clone(), merge(before, value));
            }
        }
    }
    merged.into()
}

fn json_patch(mut document: Value, patch: &Value) -> Result<Value, String> {
    let operations = patch.as_array().ok_or("the patch has to be a list of operations")?;
    for operation in operations {
        let text = |name: &str| operation.get(name).and_then(Value::as_str);
        let path = text("path").ok_or("an operation has no path")?;
        let value = || operation.get("value").cloned().ok_or_else(|| format!("{path}: there is no value"));
        let from = || text("from").ok_or_else(|| format!("{path}: there is no from"));
        match text("op").unwrap_or_default() {
            "add" => add(&mut document, path, value()?)?,
            "remove" => _ = remove(&mut document, path)?,
            "replace" => {
                let value = value()?;
                *document.pointer_mut(path).ok_or_else(|| missing(path))? = value;
            }
            "test" => {
                if document.pointer(path) != Some(&value()?) {
                    return Err(format!("the test of {path} failed"));
                }
            }
            "move" => {
                let value = remove(&mut document, from()?)?;
                add(&mut document, path, value)?;
            }
            "copy" => {
                let value = document.pointer(from()?).cloned().ok_or_else(|| missing(path))?;
                add(&mut document, path, value)?;
            }
            op => return Err(format!("{op:?} is no operation")),
        }
    }
    Ok(document)
}

fn missing(path: &str) -> String {
    format!("there is nothing at {path}")
}

/// The value that holds what is at `path`, and the key there.
fn parent<'v>(document: &'v mut Value, path: &str) -> Result<(&'v mut Value, String), String> {
    let (above, key) = path.rsplit_once('/').ok_or_else(|| missing(path))?;
    let parent = document.pointer_mut(above).ok_or_else(|| missing(above))?;
    Ok((parent, key.replace("~1", "/").replace("~0", "~")))
}

fn add(document: &mut Value, path: &str, value: Value) -> Result<(), String> {
    if path.is_empty() {
        *document = value;
        return Ok(());
    }
    match parent(document, path)? {
        (Value::Object(map), key) => _ = map.insert(key, value),
        (Value::Array(list), key) => {
            let at = if key == "-" { list.len() } else { key.parse().map_err(|_| missing(path))? };
            if at > list.len() {
                return Err(missing(path));
            }
            list.insert(at, value);
        }
        _ => return Err(missing(path)),
    }
    Ok(())
}

fn remove(document: &mut Value, path: &str) -> Result<Value, String> {
    match parent(document, path)? {
        (Value::Object(map), key) => map.remove(&key).ok_or_else(|| missing(path)),
        (Value::Array(list), key) => match key.parse::<usize>() {
            Ok(at) if at < list.len() => Ok(list.remove(at)),
            _ => Err(missing(path)),
        },
        _ => Err(missing(path)),
    }
}

/// What tells the items of a list apart, by the list's name (the `patchMergeKey` of
/// staging/src/k8s.io/api/core/v1). Other lists are replaced as a whole.
pub fn merge_key(list: &str) -> Option<&'static str> {
    Some(match list {
        "containers"
        | "initContainers"
        | "ephemeralContainers"
        | "volumes"
        | "env"
        | "imagePullSecrets"
        | "resourceClaims"
        | "schedulingGates" => "name",
        "ports" => "containerPort",
        "volumeMounts" => "mountPath",
        "volumeDevices" => "devicePath",
        "hostAliases" => "ip",
        "topologySpreadConstraints" => "topologyKey",
        "ownerReferences" => "uid",
        "conditions" => "type",
        _ => return None,
    })
}

const PATCH: &str = "$patch";
const ORDER: &str = "$setElementOrder/";
const DELETED: &str = "$deleteFromPrimitiveList/";
const RETAIN: &str = "$retainKeys";

fn strategic(mut document: Map<String, Value>, patch: &Map<String, Value>) -> Map<String, Value> {
    match patch.get(PATCH).and_then(Value::as_str) {
        Some("replace") => return without_directives(patch),
        Some("delete") => return Map::new(),
        _ => {}
    }
    if let Some(retained) = patch.get(RETAIN).and_then(Value::as_array) {
        document.retain(|key, _| retained.iter().any(|k| k == key));
    }
    for (key, value) in patch.iter().filter(|(key, _)| !key.starts_with('$')) {
        let before = document.remove(key);
        let after = match (value, before, merge_key(key)) {
            (Value::Null, ..) => continue,
            (Value::Object(patch), Some(Value::Object(before)), _) => strategic(before, patch).into(),
            (Value::Object(patch), ..) => strategic(Map::new(), patch).into(),
            (Value::Array(patch), before, Some(merge_key)) => merge_list(list_of(before), patch, merge_key).into(),
            (Value::Array(patch), before, None) if key == "finalizers" => {
                let mut all = list_of(before);
                all.extend(patch.iter().filter(|item| !all.contains(item)).cloned().collect::<Vec<_>>());
                all.into()
            }
            (value, ..) => value.clone(),
        };
        document.insert(key.clone(), after);
    }
    for (directive, value) in patch {
        let Some(values) = value.as_array() else { continue };
        if let Some(list) = directive.strip_prefix(DELETED) {
            if let Some(Value::Array(list)) = document.get_mut(list) {
                list.retain(|item| !values.contains(item));
            }
        } else if let Some(name) = directive.strip_prefix(ORDER) {
            if let Some(Value::Array(list)) = document.get_mut(name) {
                order(list, values, merge_key(name));
            }
        }
    }
    document
}

fn list_of(value: Option<Value>) -> Vec<Value> {
    match value {
        Some(Value::Array(list)) => list,
        _ => Vec::new(),
    }
}

fn merge_list(before: Vec<Value>, patch: &[Value], key: &str) -> Vec<Value> {
    let directive = |item: &Value| item.get(PATCH).and_then(Value::as_str).unwrap_or_default().to_owned();
    let replaced = patch.iter().any(|item| directive(item) == "replace" && item.get(key).is_none());
    let mut list = if replaced { Vec::new() } else { before };
    for item in patch {
        let Value::Object(fields) = item else { continue };
        let Some(wanted) = fields.get(key) else { continue };
        let at = list.iter().position(|other| other.get(key) == Some(wanted));
        match (at, directive(item).as_str()) {
            (Some(at), "delete") => _ = list.remove(at),
            (None, "delete") => {}
            (Some(at), _) => {
                if let Some(Value::Object(before)) = list.get_mut(at) {
                    *before = strategic(std::mem::take(before), fields);
                }
            }
            (None, _) => list.push(strategic(Map::new(), fields).into()),
        }
    }
    list
}

/// Those that are named stand in that order, the others behind them.
fn order(list: &mut [Value], wanted: &[Value], key: Option<&str>) {
    list.sort_by_key(|item| {
        let id = id_of(item, key);
        wanted.iter().position(|w| id_of(w, key) == id).unwrap_or(usize::MAX)
    });
}

fn id_of(item: &Value, key: Option<&str>) -> Option<Value> {
    match key {
        Some(key) => item.get(key).cloned(),
        None => Some(item.clone()),
    }
}

fn without_directives(patch: &Map<String, Value>) -> Map<String, Value> {
    patch.iter().filter(|(key, _)| !key.starts_with('$')).map(|(key, value)| (key.clone(), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn merge_patches() {
        // Of the RFC's appendix.
        let table = [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": {"b": "c"}}), json!({"a": {"b": "d", "c": null}}), json!({"a": {"b": "d"}})),
            (json!({"a": "foo"}), json!("bar"), json!("bar")),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        ];
        for (document, patch, want) in table {
            assert_eq!(apply(Kind::Merge, document.clone(), &patch), Ok(want), "{document} {patch}");
        }
    }

    #[test]
    fn json_patches() {
        let table = [
            (json!({"a": 1}), json!([{"op": "add", "path": "/b", "value": 2}]), Ok(json!({"a": 1, "b": 2}))),
            (json!({"a": [1, 3]}), json!([{"op": "add", "path": "/a/1", "value": 2}]), Ok(json!({"a": [1, 2, 3]}))),
            (json!({"a": [1]}), json!([{"op": "add", "path": "/a/-", "value": 2}]), Ok(json!({"a": [1, 2]}))),
            (json!({"a": [1]}), json!([{"op": "add", "path": "/a/3", "value": 2}]), Err("/a/3")),
            (json!({"a/b": 1}), json!([{"op": "remove", "path": "/a~1b"}]), Ok(json!({}))),
            (json!({"a": 1}), json!([{"op": "remove", "path": "/b"}]), Err("/b")),
            (json!({"a": 1}), json!([{"op": "replace", "path": "/a", "value": 2}]), Ok(json!({"a": 2}))),
            (json!({"a": 1}), json!([{"op": "replace", "path": "/b", "value": 2}]), Err("/b")),
            (json!({"a": 1}), json!([{"op": "move", "from": "/a", "path": "/b"}]), Ok(json!({"b": 1}))),
            (json!({"a": 1}), json!([{"op": "copy", "from": "/a", "path": "/b"}]), Ok(json!({"a": 1, "b": 1}))),
            (json!({"a": 1}), json!([{"op": "test", "path": "/a", "value": 1}]), Ok(json!({"a": 1}))),
            (json!({"a": 1}), json!([{"op": "test", "path": "/a", "value": 2}]), Err("test of /a")),
            (json!({"a": 1}), json!([{"op": "drop", "path": "/a"}]), Err("no operation")),
            (json!({"a": 1}), json!({"a": 2}), Err("list of operations")),
        ];
        for (document, patch, want) in table {
            match (apply(Kind::Json, document, &patch), want) {
                (Ok(got), Ok(want)) => assert_eq!(got, want, "{patch}"),
                (Err(got), Err(want)) => assert!(got.contains(want), "{patch}: {got}"),
                (got, _) => panic!("{patch}: {got:?}"),
            }
        }
    }

    #[test]
    fn strategic_merges() {
        let two = json!({"spec": {"containers": [{"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]}, {"name": "b", "image": "1"}]}});
        let table = [
            (
                json!({"spec": {"containers": [{"name": "b", "image": "2"}]}}),
                json!({"spec": {"containers": [{"name": "a", "image": "1", "env": [{"name": "X", "value": "1"}]}, {"name": "b", "image": "2"}]}}),
            ),
            (
                json!({"spec": {"$setElementOrder/containers": [{"name": "c"}, {"name": "b"}], "containers": [{"name": "c", "image": "3"}, {"name": "a", "$patch": "delete"}]}}),
                json!({"spec": {"containers": [{"name": "c", "image": "3"}, {"name": "b", "image": "1"}]}}),
            ),
            (
                json!({"spec": {"containers": [{"name": "a", "env": [{"name": "Y", "value": "2"}], "image": null}]}}),
                json!({"spec": {"containers": [{"name": "a", "env": [{"name": "X", "value": "1"}, {"name": "Y", "value": "2"}]}, {"name": "b", "image": "1"}]}}),
            ),
            (
                json!({"spec": {"containers": [{"$patch": "replace"}, {"name": "z"}]}}),
                json!({"spec": {"containers": [{"name": "z"}]}}),
            ),
            (json!({"spec": {"$patch": "replace", "x": 1}}), json!({"spec": {"x": 1}})),
            (json!({"spec": null, "kind": "Pod"}), json!({"kind": "Pod"})),
            (json!({"spec": {"$retainKeys": ["x"], "x": [2]}}), json!({"spec": {"x": [2]}})),
        ];
        for (patch, want) in table {
            assert_eq!(apply(Kind::Strategic, two.clone(), &patch), Ok(want), "{patch}");
        }
        let listed = json!({"metadata": {"finalizers": ["a", "b"]}, "args": ["1"]});
        let patch =
            json!({"metadata": {"finalizers": ["c"], "$deleteFromPrimitiveList/finalizers": ["a"]}, "args": ["2"]});
        let want = json!({"metadata": {"finalizers": ["b", "c"]}, "args": ["2"]});
        assert_eq!(apply(Kind::Strategic, listed, &patch), Ok(want));
    }
}

//! Tables, as kubectl prints them: the columns are the API server's (pkg/printers/internalversion).
//! Pure.

mod age;
mod pod;

use jiff::Timestamp;
use serde_json::{Value, json};

pub use age::human;

use super::resource::Resource;

/// What of the object goes with its row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Include {
    Metadata,
    Object,
    Nothing,
}

impl Include {
    pub fn parse(text: Option<&str>) -> Include {
        match text {
            Some("Object") => Include::Object,
            Some("None") => Include::Nothing,
            _ => Include::Metadata,
        }
    }
}

/// Name, type, and whether it is for `-o wide` alone.
type Column = (&'static str, &'static str, bool);

fn columns(resource: Resource) -> &'static [Column] {
    const NAME: Column = ("Name", "string", false);
    const AGE: Column = ("Age", "string", false);
    match resource {
        Resource::Pods => &[
            NAME,
            ("Ready", "string", false),
            ("Status", "string", false),
            ("Restarts", "string", false),
            AGE,
            ("IP", "string", true),
            ("Node", "string", true),
            ("Nominated Node", "string", true),
            ("Readiness Gates", "string", true),
        ],
        Resource::Events => &[
            ("Last Seen", "string", false),
            ("Type", "string", false),
            ("Reason", "string", false),
            ("Object", "string", false),
            ("Subobject", "string", true),
            ("Source", "string", true),
            ("Message", "string", false),
            ("First Seen", "string", true),
            ("Count", "string", true),
            ("Name", "string", true),
        ],
        Resource::Nodes => &[
            NAME,
            ("Status", "string", false),
            ("Roles", "string", false),
            AGE,
            ("Version", "string", false),
            ("Internal-IP", "string", true),
            ("External-IP", "string", true),
            ("OS-Image", "string", true),
            ("Kernel-Version", "string", true),
            ("Container-Runtime", "string", true),
        ],
        Resource::ConfigMaps => &[NAME, ("Data", "string", false), AGE],
        Resource::Secrets => &[NAME, ("Type", "string", false), ("Data", "integer", false), AGE],
        Resource::Namespaces => &[NAME, ("Status", "string", false), AGE],
    }
}

/// The table of these objects, without its columns when `headless`.
pub fn table(
    resource: Resource,
    objects: &[Value],
    version: u64,
    include: Include,
    headless: bool,
    now: Timestamp,
) -> Value {
    let definitions: Vec<Value> = match headless {
        true => Vec::new(),
        false => columns(resource).iter().map(column).collect(),
    };
    let rows: Vec<Value> = objects.iter().map(|object| row(resource, object, include, now)).collect();
    json!({
        "kind": "Table", "apiVersion": "meta.k8s.io/v1",
        "metadata": {"resourceVersion": version.to_string()},
        "columnDefinitions": definitions, "rows": rows,
    })
}

fn column((name, kind, wide): &Column) -> Value {
    let format = if *name == "Name" { "name" } else { "" };
    json!({"name": name, "type": kind, "format": format, "description": "", "priority": i32::from(*wide)})
}

fn row(resource: Resource, object: &Value, include: Include, now: Timestamp) -> Value {
    let name = text(object, "/metadata/name");
    let age = || since(object, "/metadata/creationTimestamp", now);
    let cells = match resource {
        Resource::Pods => pod::cells(object, now),
        Resource::Events => {
            let involved = |field: &str| text(object, &format!("/involvedObject/{field}"));
            let first = since(object, "/firstTimestamp", now);
            let last = since(object, "/lastTimestamp", now);
            vec![
                last.into(),
                text(object, "/type").into(),
                text(object, "/reason").into(),
                format!("{}/{}", involved("kind").to_lowercase(), involved("name")).into(),
                involved("fieldPath").into(),
                text(object, "/source/component").into(),
                text(object, "/message").trim().into(),
                first.into(),
                object.get("count").cloned().unwrap_or_default(),
                name.into(),
            ]
        }
        Resource::Nodes => {
            let info = |field: &str| or_unknown(text(object, &format!("/status/nodeInfo/{field}")));
            let ready = list(object, "/status/conditions").any(|c| c["type"] == "Ready" && c["status"] == "True");
            let ip = list(object, "/status/addresses").find(|a| a["type"] == "InternalIP");
            vec![
                name.into(),
                if ready { "Ready" } else { "NotReady" }.into(),
                "<none>".into(),
                age().into(),
                info("kubeletVersion").into(),
                ip.and_then(|a| a["address"].as_str()).unwrap_or("<none>").into(),
                "<none>".into(),
                info("osImage").into(),
                info("kernelVersion").into(),
                info("containerRuntimeVersion").into(),
            ]
        }
        Resource::ConfigMaps => {
            vec![name.into(), (count(object, "/data") + count(object, "/binaryData")).into(), age().into()]
        }
        Resource::Secrets => {
            vec![name.into(), text(object, "/type").into(), count(object, "/data").into(), age().into()]
        }
        Resource::Namespaces => vec![name.into(), text(object, "/status/phase").into(), age().into()],
    };
    let shown = match include {
        Include::Object => object.clone(),
        Include::Nothing => return json!({"cells": cells}),
        Include::Metadata => json!({
            "kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object["metadata"],
        }),
    };
    json!({"cells": cells, "object": shown})
}

fn text<'v>(object: &'v Value, path: &str) -> &'v str {
    object.pointer(path).and_then(Value::as_str).unwrap_or_default()
}

fn or_unknown(text: &str) -> &str {
    if text.is_empty() { "<unknown>" } else { text }
}

fn or_none(text: &str) -> &str {
    if text.is_empty() { "<none>" } else { text }
}

fn list<'v>(object: &'v Value, path: &str) -> impl Iterator<Item = &'v Value> {
    object.pointer(path).and_then(Value::as_array).into_iter().flatten()
}

fn count(object: &Value, path: &str) -> usize {
    object.pointer(path).and_then(Value::as_object).map_or(0, serde_json::Map::len)
}

/// How long ago the time at `path` was.
fn since(object: &Value, path: &str, now: Timestamp) -> String {
    match text(object, path).parse::<Timestamp>() {
        Ok(at) => human(now.duration_since(at).as_secs()),
        Err(_) => "<unknown>".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_have_as_many_cells_as_there_are_columns() {
        for resource in Resource::ALL {
            let object = json!({"metadata": {"name": "a", "creationTimestamp": "2026-01-01T00:00:00Z"}});
            let now = "2026-01-01T00:00:05Z".parse().expect("a time");
            let table = table(resource, &[object], 7, Include::Metadata, false, now);
            let (columns, row) = (table["columnDefinitions"].as_array(), &table["rows"][0]);
            assert_eq!(columns.map(Vec::len), row["cells"].as_array().map(Vec::len), "{resource:?}");
            assert_eq!(row["object"]["metadata"]["name"], "a");
            assert_eq!(table["metadata"]["resourceVersion"], "7");
        }
    }

    #[test]
    fn what_goes_with_a_row() {
        let object = json!({"metadata": {"name": "a"}, "data": {"k": "v"}});
        for (include, want) in [(Include::Object, object.clone()), (Include::Nothing, Value::Null)] {
            let row = row(Resource::ConfigMaps, &object, include, Timestamp::UNIX_EPOCH);
            assert_eq!(row["object"], want);
            assert_eq!(row["cells"], json!(["a", 1, "<unknown>"]));
        }
    }
}

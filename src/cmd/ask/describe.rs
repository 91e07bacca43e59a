//! `cleat describe`: all about an object, with what has happened to it.

use jiff::Timestamp;
use serde_json::Value;

use super::advice::pulling;
use super::client::Client;
use super::options::Options;
use super::{Error, path, print, resource};
use crate::api::{Resource, human};
use crate::server::http::percent_encode;

pub fn run(client: &Client, options: &Options) -> Result<(), Error> {
    let (kind, name) = options.kind_and_name()?;
    let resource = resource(&kind)?;
    let namespace = options.namespace();
    let name = name.ok_or_else(|| Error::Usage("there has to be a name: describe pod web".to_owned()))?;
    let object = client.json(&path(resource, Some(namespace), Some(&name)), "")?;
    if resource != Resource::Pods {
        return print::out(&print::yaml(&object));
    }
    let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
    let selector = percent_encode(&format!("involvedObject.uid={uid}"));
    let events =
        client.json(&format!("{}?fieldSelector={selector}", path(Resource::Events, Some(namespace), None)), "")?;
    print::out(&pod(&object, &events, Timestamp::now()))
}

/// Pure.
fn pod(pod: &Value, events: &Value, now: Timestamp) -> String {
    let text = |path: &str| pod.pointer(path).and_then(Value::as_str).unwrap_or("<none>").to_owned();
    let mut lines: Vec<Vec<String>> = Vec::new();
    let mut add = |depth: usize, name: &str, value: String| {
        lines.push(vec![format!("{}{name}:", "  ".repeat(depth)), value]);
    };
    for (name, path) in [
        ("Name", "/metadata/name"),
        ("Namespace", "/metadata/namespace"),
        ("UID", "/metadata/uid"),
        ("Node", "/spec/nodeName"),
        ("Started", "/status/startTime"),
        ("Status", "/status/phase"),
        ("Reason", "/status/reason"),
        ("Message", "/status/message"),
        ("IP", "/status/podIP"),
        ("QoS Class", "/status/qosClass"),
    ] {
        if !matches!(name, "Reason" | "Message") || pod.pointer(path).is_some() {
            add(0, name, text(path));
        }
    }
    let labels = pod.pointer("/metadata/labels").and_then(Value::as_object);
    let labels = labels.into_iter().flatten().map(|(k, v)| format!("{k}={}", v.as_str().unwrap_or_default()));
    add(0, "Labels", labels.collect::<Vec<_>>().join(" "));
    for (title, specs, statuses) in [
        ("Init Containers", "/spec/initContainers", "/status/initContainerStatuses"),
        ("Containers", "/spec/containers", "/status/containerStatuses"),
    ] {
        let list = |path: &str| pod.pointer(path).and_then(Value::as_array).cloned().unwrap_or_default();
        let (specs, statuses) = (list(specs), list(statuses));
        if !specs.is_empty() {
            add(0, title, String::new());
        }
        for spec in &specs {
            let status = statuses.iter().find(|s| s["name"] == spec["name"]).unwrap_or(&Value::Null);
            add(1, spec["name"].as_str().unwrap_or_default(), String::new());
            add(2, "Image", spec["image"].as_str().unwrap_or_default().to_owned());
            let pull = match status["state"].get("running") {
                Some(_) => None,
                None => pulling(events, pod, spec["image"].as_str().unwrap_or_default(), now),
            };
            let pull = pull.map(|time| format!(", its image is being pulled for {time}")).unwrap_or_default();
            add(2, "State", format!("{}{pull}", state(&status["state"], now)));
            if status["lastState"].as_object().is_some_and(|s| !s.is_empty()) {
                add(2, "Last State", state(&status["lastState"], now));
            }
            add(2, "Ready", status["ready"].as_bool().unwrap_or_default().to_string());
            add(2, "Restarts", status["restartCount"].as_i64().unwrap_or_default().to_string());
        }
    }
    let mut out = print::aligned(&lines);
    let conditions = pod.pointer("/status/conditions").and_then(Value::as_array).cloned().unwrap_or_default();
    let condition = |c: &Value| {
        ["type", "status", "reason", "message"].map(|f| c[f].as_str().unwrap_or_default().to_owned()).to_vec()
    };
    out.push_str("Conditions:\n");
    out.push_str(&indented(&conditions.iter().map(condition).collect::<Vec<_>>()));
    out.push_str("Events:\n");
    let mut events: Vec<&Value> = events["items"].as_array().into_iter().flatten().collect();
    events.sort_by_key(|e| e["lastTimestamp"].as_str());
    let event = |e: &&Value| {
        let count = e["count"].as_i64().filter(|n| *n > 1).map(|n| format!(" (x{n})")).unwrap_or_default();
        vec![
            format!("{}{count}", ago(&e["lastTimestamp"], now)),
            e["type"].as_str().unwrap_or_default().to_owned(),
            e["reason"].as_str().unwrap_or_default().to_owned(),
            e["message"].as_str().unwrap_or_default().replace(char::is_control, " "),
        ]
    };
    out.push_str(&indented(&events.iter().map(event).collect::<Vec<_>>()));
    out
}

fn indented(lines: &[Vec<String>]) -> String {
    match lines.is_empty() {
        true => "  <none>\n".to_owned(),
        false => print::aligned(lines).lines().map(|line| format!("  {line}\n")).collect(),
    }
}

fn ago(at: &Value, now: Timestamp) -> String {
    let at = at.as_str().and_then(|text| text.parse::<Timestamp>().ok());
    at.map_or("<unknown>".to_owned(), |at| human(now.duration_since(at).as_secs()))
}

/// A container's state in one line.
pub fn state(state: &Value, now: Timestamp) -> String {
    let detail = |v: &Value| {
        let parts = ["reason", "message"].map(|f| v[f].as_str().unwrap_or_default().replace(char::is_control, " "));
        parts.into_iter().filter(|p| !p.is_empty()).collect::<Vec<_>>().join(": ")
    };
    if let Some(running) = state.get("running") {
        return format!("running for {}", ago(&running["startedAt"], now));
    }
    if let Some(ended) = state.get("terminated") {
        return format!("ended {} ago with {} ({})", ago(&ended["finishedAt"], now), ended["exitCode"], detail(ended));
    }
    match state.get("waiting") {
        Some(waiting) => format!("waits: {}", detail(waiting)),
        None => "not known yet".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pod() {
        let object = json!({
            "metadata": {"name": "web-n", "namespace": "default", "labels": {"app": "web"}},
            "spec": {"nodeName": "n", "containers": [{"name": "main", "image": "i"}]},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "False"}], "containerStatuses": [{
                "name": "main", "restartCount": 2, "ready": false,
                "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off 20s"}},
                "lastState": {"terminated": {"exitCode": 3, "reason": "Error", "finishedAt": "2026-01-01T00:00:00Z"}},
            }]},
        });
        let events = json!({"items": [{"lastTimestamp": "2026-01-01T00:00:30Z", "type": "Warning", "reason": "BackOff", "message": "a\nb", "count": 4}]});
        let text = pod(&object, &events, "2026-01-01T00:01:00Z".parse().expect("a time"));
        for part in [
            " web-n\nNamespace: ",
            "waits: CrashLoopBackOff: back-off 20s\n",
            "ended 60s ago with 3 (Error)\n",
            "  Ready   False\n",
            "Events:\n  30s (x4)   Warning   BackOff   a b\n",
        ] {
            assert!(text.contains(part), "{part:?}: {text}");
        }
        assert!(pod(&object, &json!({}), Timestamp::UNIX_EPOCH).ends_with("Events:\n  <none>\n"));
    }
}

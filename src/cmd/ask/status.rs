//! `cleat status`: one screen that says what runs, what is wrong, and why.

use jiff::Timestamp;
use serde_json::Value;

use super::client::Client;
use super::describe::state;
use super::options::Options;
use super::{Error, path};
use crate::api::Resource;

pub fn run(client: &Client, _: &Options) -> Result<(), Error> {
    let list = |resource| client.json(&path(resource, None, None), "");
    print!("{}", screen(&list(Resource::Nodes)?, &list(Resource::Pods)?, Timestamp::now()));
    Ok(())
}

/// Pure.
fn screen(nodes: &Value, pods: &Value, now: Timestamp) -> String {
    let mut out = String::new();
    for node in nodes["items"].as_array().into_iter().flatten() {
        let ready = &node["status"]["conditions"][0];
        let name = node["metadata"]["name"].as_str().unwrap_or_default();
        match ready["status"] == "True" {
            true => out.push_str(&format!("Node {name} is ready.\n")),
            false => {
                let why = ready["message"].as_str().unwrap_or("nothing is known of it yet");
                out.push_str(&format!("Node {name} is NOT ready: {why}\n"));
            }
        }
    }
    let pods: Vec<&Value> = pods["items"].as_array().into_iter().flatten().collect();
    let count = |phase: &str| pods.iter().filter(|p| p["status"]["phase"] == phase).count();
    let phases = ["Running", "Pending", "Succeeded", "Failed"].map(|phase| (phase, count(phase)));
    let counts: Vec<_> =
        phases.iter().filter(|(_, n)| *n > 0).map(|(phase, n)| format!("{n} {}", phase.to_lowercase())).collect();
    let total = pods.len();
    out.push_str(&match counts.is_empty() {
        true => "No pods.\n".to_owned(),
        false => format!("{total} pod{}: {}.\n", if total == 1 { "" } else { "s" }, counts.join(", ")),
    });
    let wrong: Vec<String> = pods.iter().flat_map(|pod| problems(pod, now)).collect();
    match wrong.is_empty() {
        true => out.push_str("Nothing is wrong.\n"),
        false => {
            out.push_str("\nWhat is wrong:\n");
            wrong.iter().for_each(|line| out.push_str(&format!("  {line}\n")));
            out.push_str("\n`cleat describe pod NAME -n NAMESPACE` tells more; `cleat logs NAME -p` what it said before it ended.\n");
        }
    }
    out
}

fn problems(pod: &Value, now: Timestamp) -> Vec<String> {
    let meta = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
    let name = format!("{}/{}", meta("namespace"), meta("name"));
    let phase = pod["status"]["phase"].as_str().unwrap_or_default();
    if phase == "Succeeded" {
        return Vec::new();
    }
    let mut all = Vec::new();
    if let Some(reason) = pod["status"]["reason"].as_str() {
        all.push(format!("{name}: {reason}: {}", pod["status"]["message"].as_str().unwrap_or_default()));
    }
    let list = |field: &str| pod["status"][field].as_array().cloned().unwrap_or_default();
    for status in list("initContainerStatuses").into_iter().chain(list("containerStatuses")) {
        let now_state = &status["state"];
        let waits = now_state["waiting"]["reason"].as_str();
        // These are the way to a start.
        let starts = matches!(waits, Some("ContainerCreating" | "PodInitializing"));
        let failed = now_state.get("terminated").is_some_and(|t| t["exitCode"] != 0);
        let unready = now_state.get("running").is_some() && status["ready"] == false;
        if (waits.is_some() && !starts) || failed || unready {
            let container = status["name"].as_str().unwrap_or_default();
            let extra = if unready { ", not ready" } else { "" };
            let last = match status["lastState"].get("terminated") {
                Some(_) => format!("; before: {}", state(&status["lastState"], now)),
                None => String::new(),
            };
            all.push(format!("{name}: container {container} {}{extra}{last}", state(now_state, now)));
        }
    }
    if all.is_empty() && phase == "Failed" {
        all.push(format!("{name}: it has failed"));
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_wrong() {
        let now = "2026-01-01T00:01:00Z".parse().expect("a time");
        let node = |ready: &str| json!({"items": [{"metadata": {"name": "n"}, "status": {"conditions": [{"status": ready, "message": "no runtime"}]}}]});
        let pod = |name: &str, phase: &str, status: Value| json!({"metadata": {"namespace": "ns", "name": name}, "status": {"phase": phase, "containerStatuses": [status]}});
        let good = pod("a", "Running", json!({"name": "c", "ready": true, "state": {"running": {}}}));
        let starts = pod(
            "b",
            "Pending",
            json!({"name": "c", "ready": false, "state": {"waiting": {"reason": "ContainerCreating"}}}),
        );
        let bad = pod(
            "d",
            "Pending",
            json!({"name": "c", "state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such host"}}}),
        );
        let table = [
            (node("True"), vec![], "Node n is ready.\nNo pods.\nNothing is wrong.\n"),
            (
                node("False"),
                vec![good.clone()],
                "Node n is NOT ready: no runtime\n1 pod: 1 running.\nNothing is wrong.\n",
            ),
            (
                node("True"),
                vec![good.clone(), starts],
                "Node n is ready.\n2 pods: 1 running, 1 pending.\nNothing is wrong.\n",
            ),
        ];
        for (node, pods, want) in table {
            assert_eq!(screen(&node, &json!({"items": pods}), now), want);
        }
        let text = screen(&node("True"), &json!({"items": [good, bad]}), now);
        assert!(text.contains("\n  ns/d: container c waits: ImagePullBackOff: no such host\n"), "{text}");
    }
}

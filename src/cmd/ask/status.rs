//! `cleat status`: one screen that says what runs, what is wrong, why, and what to do.

use jiff::Timestamp;
use serde_json::Value;

use super::advice::{advice, pulling};
use super::client::Client;
use super::describe::state;
use super::get::TABLE;
use super::options::Options;
use super::print::{self, Columns, Table, Tone};
use super::{Error, path};
use crate::api::Resource;

/// Lines of pods, and of what is wrong.
const MOST: usize = 15;

pub fn run(client: &Client, _: &Options) -> Result<(), Error> {
    let list = |resource| client.json(&path(resource, None, None), "");
    let table = client.json(&format!("{}?includeObject=Object", path(Resource::Pods, None, None)), TABLE)?;
    let screen =
        Screen { nodes: list(Resource::Nodes)?, table, events: list(Resource::Events)?, color: print::has_color() };
    print::out(&screen.text(Timestamp::now()))
}

/// All that the screen is made of.
struct Screen {
    nodes: Value,
    /// Of pods, with the pods themselves.
    table: Value,
    events: Value,
    color: bool,
}

impl Screen {
    fn text(&self, now: Timestamp) -> String {
        let mut out = String::new();
        for node in self.nodes["items"].as_array().into_iter().flatten() {
            let ready = &node["status"]["conditions"][0];
            let name = node["metadata"]["name"].as_str().unwrap_or_default();
            match ready["status"] == "True" {
                true => out.push_str(&format!("Node {name} is ready.\n")),
                false => {
                    let why = ready["message"].as_str().unwrap_or("nothing is known of it yet");
                    out.push_str(&format!("Node {name} is {}: {why}\n", self.bad("NOT ready")));
                }
            }
        }
        let rows: Vec<&Value> = self.table["rows"].as_array().into_iter().flatten().collect();
        let pods: Vec<&Value> = rows.iter().map(|row| &row["object"]).collect();
        out.push_str(&counts(&pods));
        let wrong: Vec<Problem> = pods.iter().flat_map(|pod| problems(pod, now)).collect();
        out.push_str(&self.list(&wrong));
        let under_way: Vec<String> = pods.iter().flat_map(|pod| self.pulls(pod, now)).collect();
        if !under_way.is_empty() {
            out.push_str("\nUnder way:\n");
            under_way.iter().take(MOST).for_each(|line| out.push_str(&format!("  {line}\n")));
        }
        match wrong.is_empty() {
            true => out.push_str("Nothing is wrong.\n"),
            false => {
                out.push_str("\nWhat is wrong:\n");
                for problem in wrong.iter().take(MOST) {
                    out.push_str(&format!("  {}\n", self.bad(&problem.what)));
                    problem.help.iter().for_each(|help| out.push_str(&format!("    -> {help}\n")));
                }
                out.push_str(&others(wrong.len()));
            }
        }
        out
    }

    /// The pods, first those with which something is wrong.
    fn list(&self, wrong: &[Problem]) -> String {
        let columns = Columns::new(&self.table, false, true);
        let mut rows = columns.rows(&self.table);
        let count = rows.len();
        if count == 0 {
            return String::new();
        }
        let is_wrong = |row: &Vec<String>| {
            let name = row.get(..2).map(|parts| parts.join("/")).unwrap_or_default();
            wrong.iter().any(|problem| problem.pod == name)
        };
        rows.sort_by_key(|row| !is_wrong(row));
        rows.truncate(MOST);
        rows.insert(0, columns.head.clone());
        let mut table = if self.color { Table::toned(columns.toned()) } else { Table::plain() };
        format!("\n{}{}\n", table.add(&rows), others(count))
    }

    fn pulls(&self, pod: &Value, now: Timestamp) -> Vec<String> {
        let name = name(pod);
        let lists = ["initContainers", "containers"].into_iter().filter_map(|list| pod["spec"][list].as_array());
        let images = lists.flatten().filter_map(|container| container["image"].as_str());
        let line = |image: &str| {
            pulling(&self.events, pod, image, now).map(|time| format!("{name}: pulls image {image} for {time}"))
        };
        let mut all: Vec<String> = images.filter_map(line).collect();
        all.dedup();
        all
    }

    fn bad(&self, text: &str) -> String {
        if self.color { Tone::Bad.paint(text) } else { text.to_owned() }
    }
}

fn others(count: usize) -> String {
    match count.saturating_sub(MOST) {
        0 => String::new(),
        more => format!("  and {more} others\n"),
    }
}

fn counts(pods: &[&Value]) -> String {
    let count = |phase: &str| pods.iter().filter(|p| p["status"]["phase"] == phase).count();
    let phases = ["Running", "Pending", "Succeeded", "Failed"].map(|phase| (phase, count(phase)));
    let counts: Vec<_> =
        phases.iter().filter(|(_, n)| *n > 0).map(|(phase, n)| format!("{n} {}", phase.to_lowercase())).collect();
    let total = pods.len();
    match counts.is_empty() {
        true => "No pods.\n".to_owned(),
        false => format!("{total} pod{}: {}.\n", if total == 1 { "" } else { "s" }, counts.join(", ")),
    }
}

fn name(pod: &Value) -> String {
    let meta = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
    format!("{}/{}", meta("namespace"), meta("name"))
}

/// Something that is wrong, and what helps.
struct Problem {
    pod: String,
    what: String,
    help: Option<String>,
}

fn problems(pod: &Value, now: Timestamp) -> Vec<Problem> {
    let meta = |field: &str| pod["metadata"][field].as_str().unwrap_or_default();
    let phase = pod["status"]["phase"].as_str().unwrap_or_default();
    if phase == "Succeeded" {
        return Vec::new();
    }
    let mut all = Vec::new();
    let mut add = |what: String, reason: &str, container: &str| {
        let help = advice(reason, meta("name"), meta("namespace"), container);
        all.push(Problem { pod: name(pod), what: format!("{}: {what}", name(pod)), help });
    };
    if let Some(reason) = pod["status"]["reason"].as_str() {
        add(format!("{reason}: {}", pod["status"]["message"].as_str().unwrap_or_default()), reason, "");
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
            let before = status["lastState"].get("terminated");
            let last = before.map(|_| format!("; before: {}", state(&status["lastState"], now))).unwrap_or_default();
            let ended = before.or(now_state.get("terminated")).and_then(|t| t["reason"].as_str());
            // Why it ended tells more than that it is waited for.
            let reason = match (waits, ended) {
                (_, Some("OOMKilled")) => "OOMKilled",
                (Some(waits), _) => waits,
                (None, Some(ended)) if failed => ended,
                _ => "NotReady",
            };
            add(format!("container {container} {}{extra}{last}", state(now_state, now)), reason, container);
        }
    }
    if all.is_empty() && phase == "Failed" {
        all.push(Problem { pod: name(pod), what: format!("{}: it has failed", name(pod)), help: None });
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
        let pod = |name: &str, phase: &str, status: Value| json!({"metadata": {"namespace": "ns", "name": name, "uid": name}, "spec": {"containers": [{"image": "i"}]}, "status": {"phase": phase, "containerStatuses": [status]}});
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
        let screen = |node: &Value, pods: &[&Value], events: Value| {
            let row = |pod: &&Value| json!({"cells": [pod["metadata"]["name"], "Status"], "object": pod});
            let rows: Vec<Value> = pods.iter().map(row).collect();
            let table = json!({"columnDefinitions": [{"name": "Name"}, {"name": "Status"}], "rows": rows});
            Screen { nodes: node.clone(), table, events: json!({"items": events}), color: false }.text(now)
        };
        assert_eq!(screen(&node("True"), &[], json!([])), "Node n is ready.\nNo pods.\nNothing is wrong.\n");
        assert_eq!(
            screen(&node("False"), &[&good], json!([])),
            "Node n is NOT ready: no runtime\n1 pod: 1 running.\n\nNAMESPACE   NAME   STATUS\nns          a      Status\n\nNothing is wrong.\n"
        );
        let pulling = json!([{"involvedObject": {"uid": "b"}, "reason": "Pulling", "message": "Pulling image \"i\"", "lastTimestamp": "2026-01-01T00:00:00Z"}]);
        let text = screen(&node("True"), &[&good, &starts], pulling);
        assert!(text.starts_with("Node n is ready.\n2 pods: 1 running, 1 pending.\n"), "{text}");
        assert!(text.ends_with("\nUnder way:\n  ns/b: pulls image i for 60s\nNothing is wrong.\n"), "{text}");
        let text = screen(&node("True"), &[&good, &bad], json!([]));
        let wrong = "\n  ns/d: container c waits: ImagePullBackOff: no such host\n    -> check the image's name";
        assert!(text.contains(wrong), "{text}");
        assert!(text.contains("STATUS\nns          d      Status\nns          a"), "what is wrong comes first: {text}");
        let many: Vec<Value> = (0..20).map(|_| bad.clone()).collect();
        let text = screen(&node("True"), &many.iter().collect::<Vec<_>>(), json!([]));
        assert!(text.lines().count() < 55 && text.matches("  and 5 others\n").count() == 2, "{text}");
        let killed = pod(
            "o",
            "Running",
            json!({"name": "c", "ready": false, "state": {"waiting": {"reason": "CrashLoopBackOff"}},
            "lastState": {"terminated": {"reason": "OOMKilled", "exitCode": 137}}}),
        );
        assert!(screen(&node("True"), &[&killed], json!([])).contains("-> it takes more memory than its limit"));
    }
}

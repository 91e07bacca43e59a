//! A static pod that asks for other amounts of CPU and memory gets them while it runs.

mod support;

use serde_json::{Value, json};
use support::node::{Node, SOON};
use support::{BUSYBOX, eventually};

/// Shows what it has, over and over, as `shares limit`.
const SHOW: &str = "cd /sys/fs/cgroup; while true; do
    echo $(cat cpu/cpu.shares cpu.weight 2>/dev/null) $(cat memory/memory.limit_in_bytes memory.max 2>/dev/null);
    sleep 0.2; done";

fn of(cpu: &str, memory: &str, script: &str) -> String {
    let amounts = json!({"cpu": cpu, "memory": memory});
    let main = json!({
        "name": "main", "image": BUSYBOX, "command": ["sh", "-c", script],
        "resources": {"requests": {"cpu": cpu}, "limits": {"memory": memory}},
        "resizePolicy": [{"resourceName": "memory", "restartPolicy": "NotRequired"}],
    });
    let choosy = json!({
        "name": "choosy", "image": BUSYBOX, "command": ["sh", "-c", SHOW],
        "resources": {"requests": amounts, "limits": {"memory": memory}},
        "resizePolicy": [{"resourceName": "memory", "restartPolicy": "RestartContainer"}],
    });
    let spec = json!({"containers": [main, choosy], "terminationGracePeriodSeconds": 0});
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}).to_string()
}

fn container<'a>(pod: &'a Value, name: &str) -> &'a Value {
    let all = pod["status"]["containerStatuses"].as_array().expect("is there");
    all.iter().find(|c| c["name"] == name).expect("is there")
}

/// v1 shows shares, v2 weights.
fn shares(milli_cpu: u64) -> Vec<String> {
    let shares = milli_cpu * 1024 / 1000;
    vec![shares.to_string(), (1 + (shares - 2) * 9999 / 262_142).to_string()]
}

#[track_caller]
fn has(node: &Node, pod: &Value, name: &str, attempt: u32, milli_cpu: u64, memory: u64) {
    eventually("the resources", SOON, || {
        let log = node.log(pod, name, attempt);
        let last = log.lines().last().unwrap_or_default();
        let wanted = shares(milli_cpu).iter().any(|shares| last == format!("{shares} {memory}"));
        if wanted { Ok(()) } else { Err(format!("{name} has {last:?}")) }
    });
}

#[test]
fn in_place_where_the_policy_allows_it() {
    let mut node = Node::configured(json!({}));
    node.write("p", &of("100m", "64Mi", SHOW));
    let before = node.runs("p");
    has(&node, &before, "main", 0, 100, 64 << 20);
    let uid = &before["metadata"]["uid"];

    // CPU alone: both go on.
    node.write("p", &of("300m", "64Mi", SHOW));
    has(&node, &before, "main", 0, 300, 64 << 20);
    has(&node, &before, "choosy", 0, 300, 64 << 20);
    node.told("ResizeCompleted");
    let after = node.agent.wait_pod("p", SOON, |pod| container(pod, "main")["resources"]["requests"]["cpu"] == "300m");
    assert_eq!(after["metadata"]["uid"], *uid);
    for name in ["main", "choosy"] {
        assert_eq!(container(&after, name)["containerID"], container(&before, name)["containerID"]);
    }

    // Memory, while the agent is away: one goes on, one is restarted.
    node.agent.kill();
    node.write("p", &of("300m", "96Mi", SHOW));
    node.agent.start();
    has(&node, &before, "choosy", 1, 300, 96 << 20);
    has(&node, &before, "main", 0, 300, 96 << 20);
    let after = node.agent.wait_pod("p", SOON, |pod| {
        container(pod, "choosy")["restartCount"] == 1 && pod["status"]["phase"] == "Running"
    });
    assert_eq!(after["metadata"]["uid"], *uid);
    assert_eq!(container(&after, "main")["containerID"], container(&before, "main")["containerID"]);

    // Another change makes it another pod.
    node.write("p", &of("300m", "96Mi", "exec sleep 1000"));
    let after =
        node.agent.wait_pod("p", SOON, |pod| pod["metadata"]["uid"] != *uid && pod["status"]["phase"] == "Running");
    assert_eq!(container(&after, "main")["restartCount"], 0);
}

#[test]
fn what_is_used_is_not_taken_away() {
    let node = Node::configured(json!({}));
    // What lies in memory as a file counts too.
    let hog = "dd if=/dev/zero of=/dev/shm/x bs=1M count=40; echo filled; exec sleep 1000";
    node.write("p", &of("100m", "128Mi", hog));
    let before = node.runs("p");
    eventually("the memory in use", SOON, || {
        node.log(&before, "main", 0).contains("filled").then_some(()).ok_or_else(String::new)
    });
    node.write("p", &of("100m", "32Mi", hog));
    let waits = node.agent.wait_pod("p", SOON, |pod| {
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|c| c["type"] == "PodResizeInProgress" && c["reason"] == "Error")
    });
    assert_eq!(container(&waits, "main")["containerID"], container(&before, "main")["containerID"]);
    assert_eq!(container(&waits, "main")["resources"]["limits"]["memory"], "128Mi");
}

#[test]
fn more_than_the_node_has_waits() {
    let node = Node::configured(json!({}));
    node.write("p", &of("100m", "64Mi", SHOW));
    let before = node.runs("p");
    node.write("p", &of("1000", "64Mi", SHOW));
    let waits = node.agent.wait_pod("p", SOON, |pod| {
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().any(|c| c["type"] == "PodResizePending" && c["reason"] == "Infeasible")
    });
    assert_eq!(container(&waits, "main")["containerID"], container(&before, "main")["containerID"]);
    has(&node, &before, "main", 0, 100, 64 << 20);
    node.write("p", &of("200m", "64Mi", SHOW));
    has(&node, &before, "main", 0, 200, 64 << 20);
    node.agent.wait_pod("p", SOON, |pod| {
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.iter().all(|c| c["type"] != "PodResizePending")
    });
}

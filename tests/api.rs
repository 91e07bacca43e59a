//! What kubectl does with the node's own API beyond looking and writing.
#![cfg(feature = "tls")]

mod support;

use serde_json::Value;
use support::kubectl::Kubectl;
use support::node::{SOON, pod};
use support::{BUSYBOX, eventually};

fn ephemeral(pod: &Value, name: &str) -> Value {
    let all = pod["status"]["ephemeralContainerStatuses"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|status| status["name"] == name).unwrap_or_default()
}

#[test]
fn debugging() {
    let mut kubectl = Kubectl::start();
    kubectl.node.write("web", &pod("web", "echo hello; sleep 4321"));
    let before = kubectl.node.runs("web");
    let container = |pod: &Value| pod["status"]["containerStatuses"][0]["containerID"].clone();

    let debug = ["debug", "web", "--image", BUSYBOX, "--target=main"];
    let script = "echo I see; ps; echo all of it; sleep 1000";
    kubectl.run(&[&debug[..], &["-c", "looker", "--", "sh", "-c", script]].concat());
    let log = eventually("the log of the ephemeral container", SOON, || {
        let out = kubectl.output(&["logs", "web", "-c", "looker"]);
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        if text.contains("all of it") { Ok(text) } else { Err(format!("{out:?}")) }
    });
    assert!(log.starts_with("I see\n") && log.contains("sleep 4321"), "it sees the processes of main: {log}");
    assert_eq!(kubectl.run(&["exec", "web", "-c", "looker", "--", "echo", "in it"]), "in it\n");

    // One that a person works in.
    let seen = kubectl.on_terminal(
        &[&debug[..], &["-c", "shell", "-it", "--", "sh"]].concat(),
        "echo typed $((40+2)); sleep 1; exit\n",
    );
    assert!(seen.contains("typed 42"), "{seen}");

    let shown = eventually("the end of the shell", SOON, || {
        let pod = kubectl.json(&["get", "pod", "web"]);
        let ended = !ephemeral(&pod, "shell")["state"]["terminated"].is_null();
        if ended { Ok(pod) } else { Err(pod.to_string()) }
    });
    let looker = ephemeral(&shown, "looker");
    assert!(!looker["state"]["running"].is_null(), "{looker}");
    assert_eq!(shown["spec"]["ephemeralContainers"][0]["targetContainerName"], "main");
    assert_eq!(shown["metadata"]["uid"], before["metadata"]["uid"]);
    assert_eq!(
        (container(&shown), &shown["status"]["containerStatuses"][0]["restartCount"]),
        (container(&before), &0.into())
    );
    assert_eq!(
        std::fs::read_to_string(kubectl.node.agent.manifests().join("web.yaml")).expect("reads"),
        pod("web", "echo hello; sleep 4321")
    );
    let described = kubectl.run(&["describe", "pod", "web"]);
    assert!(described.contains("Ephemeral Containers:") && described.contains("looker:"), "{described}");

    let nowhere = kubectl.refused(&["debug", "web", "--image", BUSYBOX, "--target=none", "-c", "x", "--", "true"]);
    assert!(nowhere.contains("targetContainerName") && nowhere.contains("none"), "{nowhere}");

    // Another agent finds them where they are.
    kubectl.node.agent.kill();
    kubectl.node.agent.start();
    let after = eventually("the ephemeral containers after a restart", SOON, || {
        let pod = kubectl.json(&["get", "pod", "web"]);
        let there = !ephemeral(&pod, "looker")["state"]["running"].is_null();
        if there { Ok(pod) } else { Err(pod.to_string()) }
    });
    assert_eq!(ephemeral(&after, "looker")["containerID"], looker["containerID"]);
    assert_eq!(ephemeral(&after, "shell")["containerID"], ephemeral(&shown, "shell")["containerID"]);
    assert_eq!(container(&after), container(&before));

    // Another amount of CPU changes nothing of them, and another pod has none.
    kubectl.node.write("web", &pod("web", "sleep 1234"));
    eventually("the new pod", SOON, || {
        let pod = kubectl.json(&["get", "pod", "web"]);
        let new = pod["metadata"]["uid"] != before["metadata"]["uid"] && pod["status"]["phase"] == "Running";
        if new && pod["spec"]["ephemeralContainers"].is_null() { Ok(()) } else { Err(pod.to_string()) }
    });
    kubectl.node.remove("web");
    kubectl.node.nothing_left();
}

#[test]
fn top() {
    let kubectl = Kubectl::start();
    let two = support::Manifest::pod("two").main("while true; do :; done", "").container("idle", "sleep 1000", "");
    kubectl.node.add(&two.metadata("labels: {app: two}"));
    kubectl.node.write("web", &pod("web", "sleep 1000"));
    kubectl.node.runs("two");
    kubectl.node.runs("web");
    let node = kubectl.table(&["top", "node"]);
    assert_eq!((node[0][0].as_str(), node[1][0].as_str()), ("NAME", support::NODE));
    assert!(node[1][1].ends_with('m') && node[1][2].ends_with('%') && node[1][3].ends_with("Mi"), "{node:?}");
    let pods = kubectl.table(&["top", "pods"]);
    let names: Vec<&str> = pods.iter().map(|row| row[0].as_str()).collect();
    assert_eq!(names, ["NAME", &format!("two-{}", support::NODE), &format!("web-{}", support::NODE)]);
    let millis = |text: &str| text.trim_end_matches('m').parse::<u64>().expect("is a number");
    assert!(millis(&pods[1][1]) > 20 * millis(&pods[2][1]).max(1), "one works, the other sleeps: {pods:?}");
    let containers = kubectl.table(&["top", "pod", "two", "--containers", "--no-headers"]);
    let names: Vec<_> = containers.iter().map(|row| (row[0].as_str(), row[1].as_str())).collect();
    assert_eq!(names, [("two", "idle"), ("two", "main")]);
    assert_eq!(kubectl.table(&["top", "pods", "-A", "-l", "app=two", "--no-headers"]).len(), 1);
    assert!(kubectl.refused(&["top", "pod", "none"]).contains("\"none\" not found"));
    assert!(kubectl.run(&["api-resources"]).contains("metrics.k8s.io"));
    let raw: Value =
        serde_json::from_str(&kubectl.run(&["get", "--raw", "/apis/metrics.k8s.io/v1beta1/nodes"])).expect("is JSON");
    assert_eq!(raw["items"][0]["kind"], "NodeMetrics");
}

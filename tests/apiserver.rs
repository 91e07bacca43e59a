//! Pods of an API server, on a private containerd, with a double of the server
//! (tests/support/apiserver).

mod support;

use serde_json::{Value, json};
use support::apiserver::Faults;
use support::node::{Node, SOON, container_id, pod};
use support::{Agent, ApiServer, BUSYBOX, Containerd, NODE, eventually};

const PORT: u16 = 8701;

/// A node of a cluster whose API server is a double.
fn node() -> (Node, ApiServer) {
    let containerd = Containerd::start();
    let server = ApiServer::start(containerd.cell(), PORT);
    let mut agent = Agent::on_containerd(&containerd);
    let kubeconfig = server.kubeconfig();
    agent.flags(&["--kubeconfig", kubeconfig.to_str().expect("is text"), "--v", "4"]);
    agent.configure(json!({"syncFrequency": "2s"}));
    agent.start();
    (Node { agent, containerd }, server)
}

/// A pod that is bound to this node, with a container that runs `script`, and more fields of its spec.
fn api_pod(name: &str, script: &str, more: Value) -> Value {
    let container = json!({"name": "main", "image": BUSYBOX, "command": ["sh", "-c", script]});
    let mut spec = json!({"nodeName": NODE, "terminationGracePeriodSeconds": 1, "containers": [container]});
    for (name, value) in more.as_object().into_iter().flatten() {
        match name.as_str() {
            // Of the container.
            "volumeMounts" | "env" | "envFrom" | "lifecycle" => spec["containers"][0][name] = value.clone(),
            _ => spec[name] = value.clone(),
        }
    }
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": spec})
}

const FOREVER: &str = "trap 'exit 0' TERM; while :; do sleep 0.1; done";

fn is_running(pod: &Value) -> bool {
    pod["status"]["phase"] == "Running" && pod["status"]["containerStatuses"][0]["state"]["running"].is_object()
}

fn is_ready(pod: &Value) -> bool {
    condition(pod, "Ready")["status"] == "True"
}

fn condition<'p>(pod: &'p Value, kind: &str) -> &'p Value {
    let all = pod["status"]["conditions"].as_array().map(Vec::as_slice).unwrap_or_default();
    all.iter().find(|c| c["type"] == kind).unwrap_or(&Value::Null)
}

#[test]
fn pods_come_and_go_and_are_told_of() {
    let (node, server) = node();
    let made = server.create("pods", api_pod("web", FOREVER, json!({})));
    let told = server.wait("pods", "web", |pod| is_running(pod) && is_ready(pod));
    let status = &told["status"];
    assert_eq!(status["podIP"], status["podIPs"][0]["ip"]);
    assert_eq!(status["observedGeneration"], 1);
    assert!(status["startTime"].is_string() && status["hostIP"].is_string(), "{status:#}");
    // It is the same pod for the node, with the UID of the API.
    let id = container_id(&told);
    let tasks = node.containerd.tasks();
    assert!(tasks.contains_key(&id), "{tasks:?}");
    assert!(node.agent.root().join("pods").join(made["metadata"]["uid"].as_str().expect("a UID")).is_dir());
    // Somebody else's condition stays through our patches.
    server.patch("pods", "web", &json!({"metadata": {"labels": {"new": "label"}}}));
    server.delete("pods", "web", None);
    server.wait_gone("pods", "web");
    node.nothing_left();
    let deleted = server.asked(|line| line == "DELETE /api/v1/namespaces/default/pods/web");
    assert_eq!(deleted.len(), 1, "{deleted:?}");

    // One that ends by itself stays, with its end.
    server.create("pods", api_pod("job", "exit 3", json!({"restartPolicy": "Never"})));
    let ended = server.wait("pods", "job", |pod| pod["status"]["phase"] == "Failed");
    assert_eq!(ended["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 3);
    server.delete("pods", "job", None);
    server.wait_gone("pods", "job");
    // And one that was removed by force is gone here, too.
    server.create("pods", api_pod("forced", FOREVER, json!({})));
    server.wait("pods", "forced", is_running);
    server.delete("pods", "forced", Some(0));
    node.nothing_left();
}

#[test]
fn a_pod_gets_its_grace_period_and_can_end_well() {
    let (node, server) = node();
    let script = "trap 'sleep 2; echo bye; exit 0' TERM; while :; do sleep 0.1; done";
    server.create("pods", api_pod("slow", script, json!({"terminationGracePeriodSeconds": 60})));
    let pod = server.wait("pods", "slow", is_running);
    server.delete("pods", "slow", None);
    let ended = server.wait("pods", "slow", |pod| pod["status"]["phase"] == "Succeeded");
    assert_eq!(ended["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 0);
    assert!(!node.log(&pod, "main", 0).contains("killed"));
    server.wait_gone("pods", "slow");
    node.nothing_left();
}

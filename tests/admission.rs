//! What the node can't hold or must not run is refused, and runs when there is room for it.

mod support;

use serde_json::{Value, json};
use support::BUSYBOX;
use support::node::{Node, SOON, pod};

fn of(name: &str, spec: Value, container: Value) -> String {
    let mut main = json!({"name": "main", "image": BUSYBOX, "command": ["sleep", "1000"]});
    main.as_object_mut().expect("an object").extend(container.as_object().expect("fields").clone());
    let mut all = json!({"containers": [main], "terminationGracePeriodSeconds": 0});
    all.as_object_mut().expect("an object").extend(spec.as_object().expect("fields").clone());
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": all}).to_string()
}

fn refused(node: &Node, name: &str) -> (String, String) {
    let pod = node.agent.wait_pod(name, SOON, |pod| pod["status"]["phase"] == "Failed");
    let text = |field: &str| pod["status"][field].as_str().unwrap_or_default().to_owned();
    assert_eq!(pod["status"]["containerStatuses"], Value::Null, "it has no containers");
    (text("reason"), text("message"))
}

/// kubernetes#116484, kubernetes#138391, kubernetes#35521: a static pod that was refused is tried
/// again when that may help.
#[test]
fn kubernetes_116484_a_refused_pod_runs_when_there_is_room() {
    let node = Node::configured(json!({"maxPods": 2}));
    for name in ["a", "b"] {
        node.write(name, &pod(name, "exec sleep 1000"));
        node.runs(name);
    }
    node.write("c", &pod("c", "exec sleep 1000"));
    let (reason, message) = refused(&node, "c");
    assert_eq!(reason, "UnexpectedAdmissionError");
    assert!(message.contains("res: pods"), "{message}");
    node.remove("a");
    let c = node.runs("c");
    assert_eq!(c["status"]["reason"], Value::Null);
}

#[test]
fn what_must_not_run_here() {
    let node = Node::configured(json!({}));
    let table = [
        ("label", json!({"nodeSelector": {"disk": "ssd"}}), json!({}), "NodeAffinity"),
        ("windows", json!({"os": {"name": "windows"}}), json!({}), "PodOSNotSupported"),
        (
            "sysctl",
            json!({"securityContext": {"sysctls": [{"name": "kernel.msgmax", "value": "1"}]}}),
            json!({}),
            "SysctlForbidden",
        ),
        ("memory", json!({}), json!({"resources": {"requests": {"memory": "1000Ti"}}}), "UnexpectedAdmissionError"),
    ];
    for (name, spec, container, _) in &table {
        node.write(name, &of(name, spec.clone(), container.clone()));
    }
    node.write("good", &pod("good", "exec sleep 1000"));
    for (name, _, _, want) in &table {
        assert_eq!(refused(&node, name).0, *want, "{name}");
        assert!(node.agent.log().contains(&format!("default/{name}-edge-1: {want}: ")), "{name}");
    }
    node.runs("good");
    // Nothing was made for them.
    let pods = std::fs::read_dir(node.agent.root().join("pods")).expect("reads").count();
    assert_eq!(pods, 1);
}

#[test]
fn a_host_port_is_for_one_pod() {
    let node = Node::start();
    let port = json!({"ports": [{"containerPort": 80, "hostPort": 18080}]});
    node.write("first", &of("first", json!({}), port.clone()));
    node.runs("first");
    node.write("second", &of("second", json!({}), port));
    assert_eq!(refused(&node, "second").0, "NodePorts");
    node.remove("first");
    node.runs("second");
}

#[test]
fn after_a_restart_what_runs_has_its_place() {
    let mut node = Node::configured(json!({"maxPods": 1}));
    node.write("z", &pod("z", "exec sleep 1000"));
    let id = support::node::container_id(&node.runs("z"));
    node.agent.kill();
    node.write("a", &pod("a", "exec sleep 1000"));
    node.agent.start();
    refused(&node, "a");
    assert_eq!(support::node::container_id(&node.runs("z")), id);
    // A node with more room than before.
    node.agent.kill();
    node.agent.configure(json!({"maxPods": 2}));
    node.agent.start();
    node.runs("a");
    assert_eq!(support::node::container_id(&node.runs("z")), id);
}

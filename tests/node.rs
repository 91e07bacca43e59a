//! The agent as the node that an API server knows, with a double of the server (tests/support/apiserver).
//! tests/cluster.rs has the same with a real one.

mod support;

use serde_json::{Value, json};
use support::apiserver::Faults;
use support::node::{Node, SOON};
use support::{Agent, ApiServer, Containerd, NODE, eventually};

const PORT: u16 = 8702;

fn node() -> (Node, ApiServer) {
    let containerd = Containerd::start();
    let server = ApiServer::start(containerd.cell(), PORT);
    let mut agent = Agent::on_containerd(&containerd);
    let kubeconfig = server.kubeconfig();
    agent.flags(&["--kubeconfig", kubeconfig.to_str().expect("is text")]);
    let often =
        json!({"nodeStatusUpdateFrequency": "1s", "nodeStatusReportFrequency": "5m", "nodeLeaseDurationSeconds": 4});
    agent.configure(often);
    agent.start();
    (Node { agent, containerd }, server)
}

fn ready(server: &ApiServer) -> Value {
    let is_ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "True";
    server
        .wait("nodes", NODE, |node| node["status"]["conditions"].as_array().is_some_and(|all| all.iter().any(is_ready)))
}

/// Waits for a lease that was renewed after `renewed`.
#[track_caller]
fn renewed_after(server: &ApiServer, renewed: &Value) -> Value {
    eventually("a renewal of the lease", SOON, || {
        let lease = server.state().objects.get("leases", "kube-node-lease", NODE).map_err(|e| format!("{e:?}"))?;
        let at = lease["spec"]["renewTime"].clone();
        if at != *renewed { Ok(lease) } else { Err(format!("it was renewed at {at}")) }
    })
}

#[test]
fn it_is_known_and_stays_known() {
    let (mut node, server) = node();
    let known = ready(&server);
    // It was there before, and is put right.
    assert_eq!(known["metadata"]["labels"]["kubernetes.io/hostname"], NODE);
    assert_eq!(known["status"]["addresses"].as_array().map(Vec::len), Some(2), "{known:#}");
    let lease = renewed_after(&server, &Value::Null);
    assert_eq!(lease["metadata"]["ownerReferences"][0]["uid"], known["metadata"]["uid"]);
    let renewed = renewed_after(&server, &lease["spec"]["renewTime"])["spec"]["renewTime"].clone();

    // With nothing new there is nothing to tell.
    let patches = || server.asked(|line| line == format!("PATCH /api/v1/nodes/{NODE}/status")).len();
    let before = patches();
    let gets = server.asked(|line| line == format!("GET /api/v1/nodes/{NODE}")).len();
    eventually("some looks at the node", SOON, || {
        let now = server.asked(|line| line == format!("GET /api/v1/nodes/{NODE}")).len();
        if now >= gets + 5 { Ok(()) } else { Err(format!("{now} of them")) }
    });
    assert_eq!(patches(), before);

    // Its administrator's word stays.
    server.patch("nodes", NODE, &json!({"spec": {"unschedulable": true, "podCIDR": "10.91.0.0/16"}}));
    node.told("the addresses of pods are of 10.91.0.0/16");
    assert_eq!(ready(&server)["spec"]["unschedulable"], true);

    // A server that fails is told of once, and so is its end.
    server.faults(Faults { fails: Some("PUT"), ..Faults::default() });
    node.told("renewing the node's lease: ");
    renewed_after(&server, &Value::Null);
    server.faults(Faults::default());
    node.told("renewing the node's lease: it succeeds again");
    renewed_after(&server, &renewed);
    assert_eq!(node.agent.log().matches("as the test wants it").count(), 1, "{}", node.agent.log());

    // Deleted, it is registered again; the lease is then that node's.
    server.delete("nodes", NODE, None);
    let again = ready(&server);
    assert_ne!(again["metadata"]["uid"], known["metadata"]["uid"]);
    eventually("the lease of the new node", SOON, || {
        let lease = renewed_after(&server, &Value::Null);
        let owner = &lease["metadata"]["ownerReferences"][0]["uid"];
        if *owner == again["metadata"]["uid"] { Ok(()) } else { Err(lease.to_string()) }
    });

    // Started again without the server, it knows what it knew.
    server.faults(Faults { fails: Some("GET"), ..Faults::default() });
    node.agent.restart();
    let text = std::fs::read_to_string(node.agent.root().join("node.json")).expect("is kept");
    assert!(text.contains("10.91.0.0/16") || text.contains("kubernetes.io/hostname"), "{text}");
}

#[test]
fn a_runtime_that_hangs_costs_no_renewal() {
    let (node, server) = node();
    ready(&server);
    node.containerd.pause();
    let mut renewed = Value::Null;
    for _ in 0..3 {
        renewed = renewed_after(&server, &renewed)["spec"]["renewTime"].clone();
    }
    let not_ready = |condition: &Value| condition["type"] == "Ready" && condition["status"] == "False";
    let told = server.wait("nodes", NODE, |node| {
        node["status"]["conditions"].as_array().is_some_and(|all| all.iter().any(not_ready))
    });
    renewed_after(&server, &renewed);
    assert!(told.to_string().contains("KubeletNotReady"), "{told}");
    node.containerd.resume();
    ready(&server);
}

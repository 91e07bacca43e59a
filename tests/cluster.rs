//! The agent as a node of a cluster, by a real kube-apiserver. Skipped, with a line that says why, where
//! there is none: `scripts/kube-apiserver` makes one.
#![cfg(feature = "tls")]

mod support;

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::Stdio;

use base64::Engine as _;
use serde_json::{Value, json};
use support::cell::HOST_IP;
use support::http::Client;
use support::joined::{Joined, pod};
use support::node::SOON;
use support::{NODE, condition, eventually};

#[test]
fn the_node_is_there_and_stays() {
    let Some(mut joined) = Joined::prepare() else { return };
    let kubeconfig = joined.cluster.node_kubeconfig();
    joined.agent.flags(&["--kubeconfig", &kubeconfig.display().to_string(), "--node-labels", "room=1"]);
    let taints = json!([{"key": "edge", "value": "yes", "effect": "NoSchedule"}]);
    joined.agent.configure(
        json!({"registerWithTaints": taints, "nodeLeaseDurationSeconds": 8, "nodeStatusUpdateFrequency": "1s"}),
    );
    joined.agent.start();
    let node = joined.ready();
    let (labels, status) = (&node["metadata"]["labels"], &node["status"]);
    assert_eq!((&labels["kubernetes.io/hostname"], &labels["room"]), (&NODE.into(), &"1".into()));
    assert_eq!((&labels["kubernetes.io/os"], &labels["beta.kubernetes.io/os"]), (&"linux".into(), &"linux".into()));
    let tainted = node["spec"]["taints"].as_array().expect("has taints");
    assert!(tainted.contains(&taints[0]), "{tainted:?}");
    for (kind, status, reason) in [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID"),
        ("Ready", "True", "KubeletReady"),
    ] {
        let condition = condition(&node, kind);
        assert_eq!((&condition["status"], &condition["reason"]), (&status.into(), &reason.into()), "{condition}");
    }
    assert!(status["capacity"]["cpu"].is_string() && status["allocatable"]["memory"].is_string(), "{status}");
    assert!(status["addresses"].to_string().contains("192.0.2.10"), "{status}");
    assert_eq!(status["daemonEndpoints"]["kubeletEndpoint"]["Port"], 10250);
    let runtime = status["nodeInfo"]["containerRuntimeVersion"].as_str().unwrap_or_default();
    assert!(runtime.starts_with("containerd://"), "{status}");
    let images = status["images"].as_array().expect("has images");
    assert!(!images.is_empty() && images.iter().all(|image| image["sizeBytes"].is_number()), "{images:?}");

    let lease = joined.renewed_after(&Value::Null);
    assert_eq!((&lease["spec"]["holderIdentity"], &lease["spec"]["leaseDurationSeconds"]), (&NODE.into(), &8.into()));
    assert_eq!(lease["metadata"]["ownerReferences"][0]["uid"], node["metadata"]["uid"]);
    joined.renewed_after(&lease["spec"]["renewTime"]);

    // What others say of the node stays, and so does what it is.
    joined.kubectl().run(&["cordon", NODE]);
    joined.kubectl().run(&["label", "node", NODE, "room=2", "more=yes", "--overwrite"]);
    eventually("a change of the status", SOON, || {
        let mut node = joined.kubectl().attempt_json(&["get", "node", NODE])?;
        node["status"]["capacity"]["x.example/gpu"] = "3".into();
        node["status"]["nodeInfo"]["bootID"] = "other".into();
        joined.kubectl().raw("replace", &format!("/api/v1/nodes/{NODE}/status"), &node)
    });
    let node = eventually("the node's own", SOON, || {
        let node = joined.kubectl().attempt_json(&["get", "node", NODE])?;
        let right = node["status"]["nodeInfo"]["bootID"] == status["nodeInfo"]["bootID"];
        if right { Ok(node) } else { Err(node["status"]["nodeInfo"].to_string()) }
    });
    assert_eq!((&node["spec"]["unschedulable"], &node["metadata"]["labels"]["more"]), (&true.into(), &"yes".into()));
    assert_eq!(
        (&node["status"]["capacity"]["x.example/gpu"], &node["metadata"]["labels"]["room"]),
        (&"3".into(), &"2".into())
    );

    // A runtime that is away.
    joined.containerd.stop();
    let node = joined.node("False");
    let ready = condition(&node, "Ready");
    assert_eq!(ready["reason"], "KubeletNotReady");
    assert!(ready["message"].as_str().is_some_and(|text| text.contains("PLEG is not healthy")), "{ready}");
    joined.containerd.launch();
    joined.ready();
}

#[test]
fn the_api_server_is_away_and_comes_back_another_one() {
    let Some(mut joined) = Joined::start() else { return };
    let uid = joined.ready()["metadata"]["uid"].clone();
    let renewed = joined.renewed_after(&Value::Null)["spec"]["renewTime"].clone();
    joined.cluster.stop_apiserver();
    eventually("a word about it", SOON, || match joined.agent.log().contains("connection refused") {
        true => Ok(()),
        false => Err("there is none".to_owned()),
    });
    joined.cluster.start_apiserver();
    joined.renewed_after(&renewed);
    assert_eq!(joined.ready()["metadata"]["uid"], uid);
    joined.cluster.empty();
    let node = joined.ready();
    assert_ne!(node["metadata"]["uid"], uid);
    eventually("a lease of this node", SOON, || {
        let lease = joined.lease()?;
        let owner = &lease["metadata"]["ownerReferences"][0]["uid"];
        if *owner == node["metadata"]["uid"] { Ok(()) } else { Err(lease.to_string()) }
    });
    // It is still the same agent, and it has not told of each failure.
    let told = joined.agent.log().matches("connection refused").count();
    assert!((1..20).contains(&told), "{told} lines: {}", joined.agent.log());
}

#[test]
fn a_node_that_does_not_register_itself() {
    let Some(mut joined) = Joined::prepare() else { return };
    let kubeconfig = joined.cluster.node_kubeconfig();
    joined.agent.flags(&["--kubeconfig", &kubeconfig.display().to_string()]);
    joined.agent.configure(json!({"registerNode": false, "nodeStatusUpdateFrequency": "1s"}));
    joined.agent.start();
    eventually("a word about it", SOON, || match joined.agent.log().contains("not found") {
        true => Ok(()),
        false => Err(joined.agent.log()),
    });
    assert!(joined.kubectl().refused(&["get", "node", NODE]).contains("not found"));
    joined.kubectl().apply(&json!({"kind": "Node", "apiVersion": "v1", "metadata": {"name": NODE}}));
    let node = joined.ready();
    assert_eq!(node["metadata"]["labels"], Value::Null, "they are whose who made it");
}

/// The kubelet API over the cell's loopback interface.
fn kubelet(joined: &Joined) -> Client {
    Client::tls(joined.containerd.cell(), 10250, &joined.agent.root().join("pki/kubelet.crt"), None)
}

#[test]
fn who_may_use_the_kubelet_api() {
    let Some(joined) = Joined::start() else { return };
    let kubectl = joined.kubectl();
    let cell = joined.containerd.cell();
    let listens = |port: u16| cell.in_network(|| std::net::TcpStream::connect((HOST_IP, port)).is_ok());
    assert!(listens(10250) && !listens(10255), "what asks for no credentials is on the loopback address alone");
    // The API server, by its certificate, for an administrator.
    let healthz = format!("/api/v1/nodes/{NODE}/proxy/healthz");
    eventually("a way through the API server", SOON, || match kubectl.attempt(&["get", "--raw", &healthz])? {
        text if text == "ok" => Ok(()),
        text => Err(text),
    });
    kubectl.run(&["create", "serviceaccount", "metrics"]);
    let request = json!({"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": {"audiences": []}});
    let token = kubectl.raw("create", "/api/v1/namespaces/default/serviceaccounts/metrics/token", &request);
    let token: Value = serde_json::from_str(&token.expect("is made")).expect("is JSON");
    let token = token["status"]["token"].as_str().expect("is text");
    let asks = |token: &str, path: &str| kubelet(&joined).with_token(token).get(path);
    // The API server may be slow to say who somebody is, or what he may do.
    let answers = |token: &str, path: &str, want: u16| {
        eventually(&format!("{want} for {path}"), SOON, || match asks(token, path) {
            answer if answer.status == want => Ok(answer),
            answer => Err(format!("{answer:?}")),
        })
    };
    answers("nobody's", "/metrics/resource", 401);
    let refused = answers(token, "/metrics/resource", 403);
    assert!(refused.body.contains("user=system:serviceaccount:default:metrics, verb=get"), "{refused:?}");
    kubectl.apply(&json!({
        "kind": "ClusterRole", "apiVersion": "rbac.authorization.k8s.io/v1", "metadata": {"name": "metrics"},
        "rules": [{"apiGroups": [""], "resources": ["nodes/metrics"], "verbs": ["get"]}],
    }));
    kubectl.run(&[
        "create",
        "clusterrolebinding",
        "metrics",
        "--clusterrole=metrics",
        "--serviceaccount=default:metrics",
    ]);
    // A no is remembered for 30 s.
    answers(token, "/metrics/resource", 200);
    answers(token, "/pods", 403);
}

/// Seconds.
const DAY: i64 = 24 * 3600;
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client-kubelet";
const SERVING_SIGNER: &str = "kubernetes.io/kubelet-serving";

#[test]
fn a_node_is_bootstrapped_and_its_certificates_are_renewed() {
    let Some(mut joined) = Joined::prepare() else { return };
    let bootstrap = joined.cluster.bootstrap_kubeconfig();
    let root = joined.agent.root();
    let kubeconfig = root.join("joined/kubelet.conf");
    let (own, from) = (kubeconfig.display().to_string(), bootstrap.display().to_string());
    joined.agent.flags(&["--kubeconfig", &own, "--bootstrap-kubeconfig", &from]);
    joined.agent.configure(json!({"rotateCertificates": true, "serverTLSBootstrap": true}));
    joined.agent.start();
    let first = joined.cluster.pending_request(CLIENT_SIGNER);
    assert!(first.starts_with("node-csr-"), "{first}");
    // Started again, it waits for the same one.
    joined.agent.restart();
    joined.cluster.sign(&first, 0, DAY);
    let node = joined.ready();
    assert_eq!(node["metadata"]["name"], NODE);
    let current = root.join("pki/kubelet-client-current.pem");
    let signed = std::fs::read_link(&current).expect("is a link");
    assert!(kubeconfig.exists() && !root.join("pki/kubelet-client.key.tmp").exists());

    let serving = joined.cluster.pending_request(SERVING_SIGNER);
    joined.cluster.sign(&serving, 0, DAY);
    eventually("the signed serving certificate", 2 * SOON, || {
        let client = Client::tls(joined.containerd.cell(), 10250, &joined.cluster.authority(), None).named(NODE);
        client.raw(b"GET /healthz HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").map_err(|e| e.to_string())
    });
    let others: Vec<_> =
        ["client", "server"].iter().map(|name| root.join(format!("pki/kubelet-{name}-current.pem"))).collect();
    assert!(others.iter().all(|path| path.exists()), "{others:?}");

    // The client certificate that has ended is followed by another one.
    expire(&joined, &current);
    joined.agent.restart();
    let next = joined.cluster.pending_request(CLIENT_SIGNER);
    joined.cluster.sign(&next, 0, DAY);
    eventually("the next certificate", SOON, || match std::fs::read_link(&current) {
        Ok(now) if now != signed => Ok(()),
        other => Err(format!("{other:?}")),
    });
    let renewed = joined.renewed_after(&Value::Null)["spec"]["renewTime"].clone();
    joined.renewed_after(&renewed);
}

/// Both certificates are followed by others while they are good, and what goes on goes on.
#[test]
fn certificates_are_renewed_before_they_end() {
    /// For how long the first client certificate is good, seconds; long enough for all that happens until
    /// the second one is there.
    const LEFT: i64 = 150;
    let Some(mut joined) = Joined::prepare() else { return };
    let bootstrap = joined.cluster.bootstrap_kubeconfig();
    let root = joined.agent.root();
    let (own, from) = (root.join("kubelet.conf").display().to_string(), bootstrap.display().to_string());
    joined.agent.flags(&["--kubeconfig", &own, "--bootstrap-kubeconfig", &from]);
    joined.agent.configure(json!({"rotateCertificates": true, "serverTLSBootstrap": true}));
    joined.agent.start();
    let first = joined.cluster.pending_request(CLIENT_SIGNER);
    joined.cluster.sign(&first, 20 * LEFT, LEFT);
    let end = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(LEFT);

    // It is due, and asked for by the node itself, no longer by the bootstrapper.
    let second = joined.cluster.pending_request(CLIENT_SIGNER);
    let asks = |name: &str| joined.kubectl().json(&["get", "csr", name])["spec"]["username"].clone();
    assert_eq!(asks(&second), format!("system:node:{NODE}"), "it was asked for in time");
    let serving = joined.cluster.pending_request(SERVING_SIGNER);
    joined.cluster.sign(&serving, 20 * LEFT, LEFT);
    joined.ready();
    joined.kubectl().apply(&pod("web", "sleep 1000"));
    let before = joined.runs("web");
    let mut echo = joined.kubectl().command(&["exec", "-i", "web", "--", "cat"]);
    let mut echo = echo.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("runs");
    let (mut says, hears) = (echo.stdin.take().expect("is piped"), echo.stdout.take().expect("is piped"));
    let mut hears = BufReader::new(hears);
    let mut through = |text: &str| {
        says.write_all(text.as_bytes()).expect("writes");
        let mut line = String::new();
        hears.read_line(&mut line).expect("reads");
        assert_eq!(line, text);
    };
    through("before\n");
    joined.cluster.sign(&second, 0, DAY);
    let next_serving = joined.cluster.pending_request(SERVING_SIGNER);
    assert_ne!(next_serving, serving);
    joined.cluster.sign(&next_serving, 0, DAY);
    eventually("the next serving certificate", 3 * SOON, || {
        let served = served_certificate(&joined)?;
        let file = root.join("pki/kubelet-server-current.pem");
        let newest = std::fs::read_to_string(file).map_err(|e| e.to_string())?;
        let requests = joined.kubectl().attempt_json(&["get", "csr", &next_serving])?;
        let signed = requests["status"]["certificate"].as_str().unwrap_or_default().to_owned();
        let is_next = base64_text(&signed)?.contains(&served) && newest.contains(&served);
        if is_next { Ok(()) } else { Err(format!("it serves {served}")) }
    });

    // The first one ends, and all goes on by the second.
    eventually("the end of the first certificate", 5 * SOON, || {
        let left = end.duration_since(jiff::Timestamp::now()).as_secs();
        if left < -5 { Ok(()) } else { Err(format!("{left} s are left")) }
    });
    let renewed = joined.lease().expect("is there")["spec"]["renewTime"].clone();
    joined.renewed_after(&renewed);
    joined.kubectl().apply(&pod("late", "sleep 1000"));
    joined.runs("late");
    through("after\n");
    let after = joined.runs("web");
    assert_eq!(after["status"]["containerStatuses"], before["status"]["containerStatuses"]);
    assert!(!joined.agent.log().contains("Unauthorized"), "it was never refused");
    echo.kill().expect("ends");
    echo.wait().expect("has ended");
}

/// The certificate that the kubelet API serves with, PEM.
fn served_certificate(joined: &Joined) -> Result<String, String> {
    let mut openssl = joined.containerd.cell().command("openssl");
    openssl.args(["s_client", "-connect", "127.0.0.1:10250"]).stdin(Stdio::null()).stderr(Stdio::null());
    let out = openssl.output().map_err(|e| e.to_string())?;
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let begin = text.find("-----BEGIN CERTIFICATE-----").ok_or("there is none")?;
    let end = text.find("-----END CERTIFICATE-----").ok_or("there is none")?;
    Ok(text.get(begin..end).unwrap_or_default().to_owned())
}

fn base64_text(text: &str) -> Result<String, String> {
    let bytes = base64::engine::general_purpose::STANDARD.decode(text).map_err(|e| e.to_string())?;
    String::from_utf8(bytes).map_err(|e| e.to_string())
}

/// Puts a certificate of the node there that ended some days ago.
fn expire(joined: &Joined, current: &Path) {
    let (certificate, key) = joined.cluster.ended_certificate();
    let file = current.with_file_name("kubelet-client-2020-01-01-00-00-00.pem");
    std::fs::write(&file, certificate + &key).expect("writes");
    std::fs::remove_file(current).expect("removes");
    std::os::unix::fs::symlink(file.file_name().expect("has a name"), current).expect("links");
}

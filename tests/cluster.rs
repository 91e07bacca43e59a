//! The agent as a node of a cluster, by a real kube-apiserver. Skipped, with a line that says why, where
//! there is none: `scripts/kube-apiserver` makes one.
#![cfg(feature = "tls")]

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};
use support::cell::HOST_IP;
use support::cluster::Cluster;
use support::containerd::POD_NETWORK;
use support::http::Client;
use support::kubectl::Kubectl;
use support::node::SOON;
use support::{Agent, BUSYBOX, Containerd, NODE, eventually};

/// A control plane and an agent, which isn't started yet.
struct Joined {
    agent: Agent,
    cluster: Cluster,
    containerd: Containerd,
}

impl Joined {
    /// `None` when the test has to be skipped.
    fn prepare() -> Option<Joined> {
        let containerd = Containerd::start();
        let cluster = match Cluster::start(containerd.cell()) {
            Ok(cluster) => cluster,
            Err(why) => {
                eprintln!("skipped: {why}");
                return None;
            }
        };
        let mut agent = Agent::on_containerd(&containerd);
        agent.configure(json!({
            // Where it listens then is for the API server to reach.
            "address": null,
            "authentication": {
                "anonymous": {"enabled": false}, "webhook": {"enabled": true},
                "x509": {"clientCAFile": cluster.authority()},
            },
            "authorization": {"mode": "Webhook"},
        }));
        Some(Joined { agent, cluster, containerd })
    }

    fn start() -> Option<Joined> {
        Joined::configured(json!({}))
    }

    /// With more fields of the configuration.
    fn configured(fields: Value) -> Option<Joined> {
        let mut joined = Joined::prepare()?;
        joined.agent.configure(fields);
        let kubeconfig = joined.cluster.node_kubeconfig();
        joined.agent.flags(&["--kubeconfig", &kubeconfig.display().to_string()]);
        joined.agent.start();
        joined.ready();
        Some(joined)
    }

    fn kubectl(&self) -> &Kubectl {
        &self.cluster.kubectl
    }

    /// Waits until the node is ready, as the API server has it.
    #[track_caller]
    fn ready(&self) -> Value {
        self.node("True")
    }

    /// Waits until the node's condition `Ready` is this.
    #[track_caller]
    fn node(&self, status: &str) -> Value {
        eventually("the node's condition", SOON, || {
            let node = self.kubectl().attempt_json(&["get", "node", NODE])?;
            let is = condition(&node, "Ready")["status"] == status;
            if is { Ok(node) } else { Err(node["status"]["conditions"].to_string()) }
        })
    }

    fn lease(&self) -> Result<Value, String> {
        self.kubectl().attempt_json(&["get", "lease", "-n", "kube-node-lease", NODE])
    }

    /// Waits for a lease that has been renewed after `renewed`.
    #[track_caller]
    fn renewed_after(&self, renewed: &Value) -> Value {
        eventually("a renewal of the lease", SOON, || {
            let lease = self.lease()?;
            let at = &lease["spec"]["renewTime"];
            if at != renewed { Ok(lease) } else { Err(format!("it was renewed at {at}")) }
        })
    }
}

fn condition<'a>(node: &'a Value, kind: &str) -> &'a Value {
    let mut conditions = node["status"]["conditions"].as_array().into_iter().flatten();
    conditions.find(|condition| condition["type"] == kind).unwrap_or(&Value::Null)
}

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
    assert_eq!(kubectl.run(&["get", "--raw", &format!("/api/v1/nodes/{NODE}/proxy/healthz")]), "ok");
    kubectl.run(&["create", "serviceaccount", "metrics"]);
    let request = json!({"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": {"audiences": []}});
    let token = kubectl.raw("create", "/api/v1/namespaces/default/serviceaccounts/metrics/token", &request);
    let token: Value = serde_json::from_str(&token.expect("is made")).expect("is JSON");
    let token = token["status"]["token"].as_str().expect("is text");
    let asks = |token: &str, path: &str| kubelet(&joined).with_token(token).get(path);
    let status = |token: &str, path: &str| asks(token, path).status;
    assert_eq!(status("nobody's", "/metrics/resource"), 401);
    let refused = asks(token, "/metrics/resource");
    assert_eq!(refused.status, 403, "{refused:?}");
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
    eventually("a yes", SOON, || match asks(token, "/metrics/resource") {
        answer if answer.status == 200 => Ok(()),
        answer => Err(format!("{answer:?}")),
    });
    assert_eq!(status(token, "/pods"), 403);
}

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
    let signer = "kubernetes.io/kube-apiserver-client-kubelet";
    let first = joined.cluster.pending_request(signer);
    assert!(first.starts_with("node-csr-"), "{first}");
    // Started again, it waits for the same one.
    joined.agent.restart();
    joined.cluster.sign(&first, 1);
    let node = joined.ready();
    assert_eq!(node["metadata"]["name"], NODE);
    let current = root.join("pki/kubelet-client-current.pem");
    let signed = std::fs::read_link(&current).expect("is a link");
    assert!(kubeconfig.exists() && !root.join("pki/kubelet-client.key.tmp").exists());

    let serving = joined.cluster.pending_request("kubernetes.io/kubelet-serving");
    joined.cluster.sign(&serving, 1);
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
    let next = joined.cluster.pending_request(signer);
    joined.cluster.sign(&next, 1);
    eventually("the next certificate", SOON, || match std::fs::read_link(&current) {
        Ok(now) if now != signed => Ok(()),
        other => Err(format!("{other:?}")),
    });
    let renewed = joined.renewed_after(&Value::Null)["spec"]["renewTime"].clone();
    joined.renewed_after(&renewed);
}

/// A pod with one container that runs `script`, bound to the node as by a scheduler.
fn pod(name: &str, script: &str) -> Value {
    json!({
        "kind": "Pod", "apiVersion": "v1", "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "nodeName": NODE, "terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": BUSYBOX, "command": ["sh", "-c", script]}],
        },
    })
}

impl Joined {
    /// Waits until the API server has a pod that meets this.
    #[track_caller]
    fn pod(&self, name: &str, meets: impl Fn(&Value) -> bool) -> Value {
        eventually(&format!("pod {name}"), SOON, || {
            let pod = self.kubectl().attempt_json(&["get", "pod", name])?;
            if meets(&pod) { Ok(pod) } else { Err(pod["status"].to_string()) }
        })
    }

    /// Waits until it runs and is ready.
    #[track_caller]
    fn runs(&self, name: &str) -> Value {
        self.pod(name, |pod| condition(pod, "Ready")["status"] == "True")
    }

    #[track_caller]
    fn gone(&self, name: &str) {
        eventually(&format!("the end of pod {name}"), SOON, || match self.kubectl().attempt(&["get", "pod", name]) {
            Err(why) if why.contains("not found") => Ok(()),
            other => Err(format!("{other:?}")),
        });
    }
}

#[test]
fn pods_by_kubectl() {
    let Some(joined) = Joined::start() else { return };
    let kubectl = joined.kubectl();
    kubectl.apply(&pod("web", "mkdir /w; echo served > /w/index.html; echo hello; httpd -f -p 8080 -h /w"));
    let web = joined.runs("web");
    let status = &web["status"];
    assert_eq!((&status["phase"], &status["hostIP"]), (&"Running".into(), &"192.0.2.10".into()));
    assert!(status["podIP"].as_str().is_some_and(|ip| ip.starts_with(POD_NETWORK)), "{status}");
    let container = &status["containerStatuses"][0];
    assert!(container["containerID"].as_str().is_some_and(|id| id.starts_with("containerd://")), "{status}");

    eventually("the pod's log", SOON, || match kubectl.attempt(&["logs", "web"])? {
        text if text == "hello\n" => Ok(()),
        text => Err(text),
    });
    assert_eq!(kubectl.run(&["exec", "web", "--", "echo", "a  b"]), "a  b\n");
    let out = kubectl.output(&["exec", "web", "--", "sh", "-c", "exit 7"]);
    assert_eq!(out.status.code(), Some(7), "{out:?}");
    let mut cat = kubectl.command(&["exec", "-i", "web", "--", "cat"]);
    let mut cat = cat.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("runs");
    cat.stdin.take().expect("is piped").write_all(b"through\n").expect("writes");
    let out = cat.wait_with_output().expect("ends");
    assert_eq!(String::from_utf8_lossy(&out.stdout), "through\n");
    port_forward(&joined);

    // On a node that is cordoned, what runs goes on.
    kubectl.run(&["cordon", NODE]);
    let cordoned = kubectl.json(&["get", "node", NODE]);
    assert_eq!(cordoned["spec"]["unschedulable"], true);
    kubectl.run(&["delete", "pod", "web", "--wait=false"]);
    joined.gone("web");
    kubectl.apply(&{
        let mut job = pod("job", "exit 3");
        job["spec"]["restartPolicy"] = "Never".into();
        job
    });
    let job = joined.pod("job", |pod| pod["status"]["phase"] == "Failed");
    let ended = &job["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!((&ended["exitCode"], &ended["reason"]), (&3.into(), &"Error".into()));
    kubectl.run(&["delete", "pod", "job", "--wait=false"]);
    joined.gone("job");
}

fn port_forward(joined: &Joined) {
    let mut forward = joined.kubectl().command(&["port-forward", "pod/web", "18080:8080"]);
    let mut forward = forward.stdout(Stdio::piped()).spawn().expect("runs");
    let mut said = BufReader::new(forward.stdout.take().expect("is piped"));
    let mut line = String::new();
    said.read_line(&mut line).expect("says where");
    assert!(line.contains("18080 -> 8080"), "{line}");
    let mut stream = joined.containerd.cell().connect(18080).expect("connects");
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("asks");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("answers");
    assert!(text.ends_with("served\n"), "{text}");
    forward.kill().expect("ends");
    forward.wait().expect("has ended");
}

#[test]
fn a_pod_for_a_node_with_a_label() {
    let Some(joined) = Joined::start() else { return };
    joined.kubectl().run(&["label", "node", NODE, "room=7"]);
    eventually("the label at the node", SOON, || {
        let text = std::fs::read_to_string(joined.agent.root().join("node.json")).unwrap_or_default();
        if text.contains(r#""room":"7""#) { Ok(()) } else { Err(text) }
    });
    let mut here = pod("here", "sleep 1000");
    here["spec"]["nodeSelector"] = json!({"room": "7"});
    joined.kubectl().apply(&here);
    joined.runs("here");
    let mut elsewhere = pod("elsewhere", "sleep 1000");
    elsewhere["spec"]["nodeSelector"] = json!({"room": "8"});
    joined.kubectl().apply(&elsewhere);
    let refused = joined.pod("elsewhere", |pod| pod["status"]["phase"] == "Failed");
    assert_eq!(refused["status"]["reason"], "NodeAffinity");
}

/// Objects are asked for each ten minutes here, which no test waits for: what comes sooner was heard.
#[test]
fn objects_reach_their_volumes() {
    let Some(mut joined) = Joined::configured(json!({"syncFrequency": "10m"})) else { return };
    let object = |kind: &str, name: &str, data: Value| {
        let field = if kind == "Secret" { "stringData" } else { "data" };
        json!({"kind": kind, "apiVersion": "v1", "metadata": {"name": name, "namespace": "default"}, field: data})
    };
    let config = |text: &str| object("ConfigMap", "settings", json!({ "a": text }));
    let secret = |text: &str| object("Secret", "keys", json!({ "b": text }));
    joined.kubectl().apply(&config("one"));
    joined.kubectl().apply(&secret("1"));
    let mut reader = pod("reader", "echo $A; sleep 1000");
    reader["spec"]["volumes"] = json!([
        {"name": "c", "configMap": {"name": "settings"}}, {"name": "s", "secret": {"secretName": "keys"}},
        {"name": "l", "configMap": {"name": "late", "optional": true}},
    ]);
    let main = &mut reader["spec"]["containers"][0];
    main["volumeMounts"] = json!([
        {"name": "c", "mountPath": "/c"}, {"name": "s", "mountPath": "/s"}, {"name": "l", "mountPath": "/l"},
    ]);
    main["env"] = json!([{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "a"}}}]);
    joined.kubectl().apply(&reader);
    let running = joined.runs("reader");
    assert_eq!(joined.kubectl().run(&["logs", "reader"]), "one\n");
    let reads = |joined: &Joined, files: &[&str], want: &str| {
        let command = [&["exec", "reader", "--", "cat"], files].concat();
        eventually(want, SOON, || match joined.kubectl().attempt(&command)? {
            text if text == want => Ok(()),
            text => Err(text),
        });
    };
    reads(&joined, &["/c/a", "/s/b"], "one1");
    joined.kubectl().apply(&config("two"));
    joined.kubectl().apply(&secret("2"));
    reads(&joined, &["/c/a", "/s/b"], "two2");
    // One that wasn't there.
    joined.kubectl().apply(&object("ConfigMap", "late", json!({"a": "here"})));
    reads(&joined, &["/l/a"], "here");
    // The server is started again.
    joined.cluster.stop_apiserver();
    joined.cluster.start_apiserver();
    joined.kubectl().apply(&config("three"));
    reads(&joined, &["/c/a"], "three");
    joined.kubectl().apply(&config("four"));
    reads(&joined, &["/c/a"], "four");
    let now = joined.pod("reader", |_| true);
    assert_eq!(now["status"]["containerStatuses"], running["status"]["containerStatuses"]);
}

#[test]
fn static_pods_have_mirrors() {
    let Some(joined) = Joined::start() else { return };
    let (kubectl, name) = (joined.kubectl(), format!("web-{NODE}"));
    joined.agent.write_manifest("web.yaml", &support::node::pod("web", "echo from a file; sleep 1000"));
    let mirror = joined.runs(&name);
    let annotations = &mirror["metadata"]["annotations"];
    assert_eq!(annotations["kubernetes.io/config.source"], "file");
    assert!(annotations["kubernetes.io/config.mirror"].is_string(), "{annotations}");
    assert_eq!(mirror["metadata"]["ownerReferences"][0]["kind"], "Node");
    assert_eq!(kubectl.run(&["logs", &name]), "from a file\n");
    // Deleted, it is made again, and the pod itself isn't touched.
    let container = mirror["status"]["containerStatuses"][0]["containerID"].clone();
    kubectl.run(&["delete", "pod", &name, "--grace-period=0", "--force", "--wait=false"]);
    let again = joined.pod(&name, |pod| {
        pod["metadata"]["uid"] != mirror["metadata"]["uid"] && condition(pod, "Ready")["status"] == "True"
    });
    assert_eq!(again["status"]["containerStatuses"][0]["containerID"], container);
    joined.agent.remove_manifest("web.yaml");
    joined.gone(&name);
}

/// Puts a certificate of the node there that ended some days ago.
fn expire(joined: &Joined, current: &Path) {
    let (certificate, key) = joined.cluster.ended_certificate();
    let file = current.with_file_name("kubelet-client-2020-01-01-00-00-00.pem");
    std::fs::write(&file, certificate + &key).expect("writes");
    std::fs::remove_file(current).expect("removes");
    std::os::unix::fs::symlink(file.file_name().expect("has a name"), current).expect("links");
}

/// What in-cluster clients need: a token that the API server takes, its authority, its address.
#[test]
fn a_pod_has_its_service_account() {
    let Some(joined) = Joined::start() else { return };
    let kubectl = joined.kubectl();
    // The controllers that don't run here would make them.
    kubectl.apply(&json!({"kind": "ConfigMap", "apiVersion": "v1", "data": {"ca.crt": "CERTIFICATE"},
        "metadata": {"name": "kube-root-ca.crt", "namespace": "default"}}));
    let sources = json!([
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 600}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
    ]);
    let mut pod = pod("client", "echo $KUBERNETES_SERVICE_HOST; sleep 1000");
    pod["spec"]["serviceAccountName"] = json!("default");
    pod["spec"]["volumes"] = json!([{"name": "access", "projected": {"sources": sources}}]);
    pod["spec"]["containers"][0]["volumeMounts"] =
        json!([{"name": "access", "mountPath": "/access", "readOnly": true}]);
    kubectl.apply(&pod);
    joined.runs("client");
    assert!(!kubectl.run(&["logs", "client"]).trim().is_empty(), "it is told of the API server");
    let read = |file: &str| kubectl.run(&["exec", "client", "--", "cat", &format!("/access/{file}")]);
    assert_eq!((read("ca.crt").as_str(), read("namespace").as_str()), ("CERTIFICATE", "default"));
    let review =
        json!({"kind": "TokenReview", "apiVersion": "authentication.k8s.io/v1", "spec": {"token": read("token")}});
    let answer = kubectl.raw("create", "/apis/authentication.k8s.io/v1/tokenreviews", &review).expect("is answered");
    let answer: Value = serde_json::from_str(&answer).expect("is JSON");
    assert_eq!(answer["status"]["user"]["username"], "system:serviceaccount:default:default", "{answer}");
    let events = || kubectl.attempt_json(&["get", "events", "--field-selector", "involvedObject.name=client"]);
    eventually("the event of its start", SOON, || {
        let items = events()?["items"].as_array().cloned().unwrap_or_default();
        if items.iter().any(|e| e["reason"] == "Started") { Ok(()) } else { Err(format!("{items:?}")) }
    });
}

//! Pods of a real kube-apiserver, and what they refer to. Skipped, with a line that says why, where there
//! is none: `scripts/kube-apiserver` makes one.
#![cfg(feature = "tls")]

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::process::Stdio;

use serde_json::{Value, json};
use support::containerd::POD_NETWORK;
use support::joined::{Joined, pod};
use support::node::SOON;
use support::registry::PASSWORD;
use support::{BUSYBOX, NODE, Registry, condition, eventually};

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

/// The file in a pod's only container, with its owner and its mode.
#[track_caller]
fn token_of(joined: &Joined, name: &str, security: Value) -> String {
    let mut pod = pod(name, "sleep 1000");
    pod["spec"]["securityContext"] = security;
    pod["spec"]["serviceAccountName"] = json!("default");
    pod["spec"]["volumes"] =
        json!([{"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}]);
    pod["spec"]["containers"][0]["volumeMounts"] = json!([{"name": "t", "mountPath": "/t"}]);
    joined.kubectl().apply(&pod);
    joined.runs(name);
    let script = "test -s /t/token && cat /t/token > /dev/null && stat -L -c '%a %u:%g' /t/token";
    joined.kubectl().run(&["exec", name, "--", "sh", "-c", script])
}

/// Whoever the containers are told to run as, can read it, and nobody else can.
#[test]
fn a_token_is_its_pods() {
    let Some(joined) = Joined::start() else { return };
    for (name, security, want) in [
        ("root", json!({}), "644 0:0\n"),
        ("user", json!({"runAsUser": 1000}), "600 1000:0\n"),
        ("group", json!({"fsGroup": 2000}), "640 0:2000\n"),
        ("both", json!({"runAsUser": 1000, "fsGroup": 2000}), "640 1000:2000\n"),
    ] {
        assert_eq!(token_of(&joined, name, security), want, "{name}");
    }
}

/// The reason and the message by which a pod's only container waits.
fn waits(pod: &Value) -> (&str, &str) {
    let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
    (waiting["reason"].as_str().unwrap_or_default(), waiting["message"].as_str().unwrap_or_default())
}

#[test]
fn an_image_is_pulled_with_the_pods_secret() {
    let Some(joined) = Joined::start() else { return };
    let kubectl = joined.kubectl();
    let registry = Registry::start(&joined.containerd, 5000, true);
    let image = registry.push(&joined.containerd, "private/web:1", 1 << 10);
    let mut without = pod("without", "sleep 1000");
    without["spec"]["containers"][0]["image"] = image.clone().into();
    kubectl.apply(&without);
    let refused = joined.pod("without", |pod| waits(pod).0 == "ErrImagePull");
    let why = waits(&refused).1;
    assert!(why.contains("401") || why.contains("authorization failed"), "{why}");
    kubectl.apply(&json!({
        "kind": "Secret", "apiVersion": "v1", "metadata": {"name": "pull", "namespace": "default"},
        "type": "kubernetes.io/dockerconfigjson", "stringData": {".dockerconfigjson": registry.docker_config(PASSWORD)},
    }));
    let mut with = pod("with", "sleep 1000");
    with["spec"]["containers"][0]["image"] = image.into();
    with["spec"]["imagePullSecrets"] = json!([{"name": "pull"}]);
    kubectl.apply(&with);
    joined.runs("with");
}

#[test]
fn a_runtime_class_says_what_runs_a_pod() {
    let Some(joined) = Joined::start() else { return };
    let (kubectl, mark) = (joined.kubectl(), joined.containerd.other_handler());
    for (name, handler) in [("vm", "other"), ("nowhere", "no-such-handler")] {
        kubectl.apply(&json!({
            "kind": "RuntimeClass", "apiVersion": "node.k8s.io/v1", "metadata": {"name": name}, "handler": handler,
            "overhead": {"podFixed": {"memory": "16Mi"}},
        }));
        let mut pod = pod(name, "sleep 1000");
        pod["spec"]["runtimeClassName"] = name.into();
        kubectl.apply(&pod);
    }
    let running = joined.runs("vm");
    assert_eq!(running["spec"]["overhead"]["memory"], "16Mi");
    assert!(mark.exists(), "the other handler has run it");
    eventually("an event about the handler", SOON, || {
        let events = kubectl.attempt_json(&["get", "events", "--field-selector", "involvedObject.name=nowhere"])?;
        let mut items = events["items"].as_array().into_iter().flatten();
        let told = items.any(|e| {
            e["reason"] == "FailedCreatePodSandBox"
                && e["message"].as_str().is_some_and(|m| m.contains("no-such-handler"))
        });
        if told { Ok(()) } else { Err(events["items"].to_string()) }
    });
    let waiting = joined.pod("nowhere", |pod| pod["status"]["phase"] == "Pending");
    assert_ne!(condition(&waiting, "Ready")["status"], "True");
}

/// A claim with a volume of its own, bound as by the controller, which doesn't run here.
#[track_caller]
fn bound_claim(joined: &Joined, name: &str, source: Value) {
    let kubectl = joined.kubectl();
    let common = json!({"accessModes": ["ReadWriteOnce"], "storageClassName": ""});
    let with = |more: Value| {
        let mut spec = common.clone();
        spec.as_object_mut().expect("is an object").extend(more.as_object().expect("is an object").clone());
        spec
    };
    kubectl.apply(&json!({
        "kind": "PersistentVolumeClaim", "apiVersion": "v1", "metadata": {"name": name, "namespace": "default"},
        "spec": with(json!({"resources": {"requests": {"storage": "1Mi"}}, "volumeName": name})),
    }));
    let claim = kubectl.json(&["get", "pvc", name]);
    let reference = json!({"kind": "PersistentVolumeClaim", "apiVersion": "v1", "namespace": "default", "name": name,
        "uid": claim["metadata"]["uid"]});
    let mut spec = with(json!({"capacity": {"storage": "1Mi"}, "claimRef": reference}));
    spec.as_object_mut().expect("is an object").extend(source.as_object().expect("is an object").clone());
    kubectl.apply(&json!({"kind": "PersistentVolume", "apiVersion": "v1", "metadata": {"name": name}, "spec": spec}));
    let path = format!("/api/v1/namespaces/default/persistentvolumeclaims/{name}/status");
    eventually("the claim's status", SOON, || {
        let mut claim = kubectl.attempt_json(&["get", "pvc", name])?;
        claim["status"] = json!({"phase": "Bound", "accessModes": ["ReadWriteOnce"], "capacity": {"storage": "1Mi"}});
        kubectl.raw("replace", &path, &claim)
    });
}

#[test]
fn claims_have_their_volumes() {
    let Some(joined) = Joined::start() else { return };
    let dir = joined.containerd.cell().dir().join("volumes");
    for name in ["host", "local"] {
        std::fs::create_dir_all(dir.join(name)).expect("makes a directory");
    }
    bound_claim(&joined, "host", json!({"hostPath": {"path": dir.join("host")}}));
    let here = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [
        {"key": "kubernetes.io/hostname", "operator": "In", "values": [NODE]}]}]}});
    bound_claim(&joined, "local", json!({"local": {"path": dir.join("local")}, "nodeAffinity": here}));
    let mut writer = pod("writer", "echo one > /host/a; echo two > /local/a; sleep 1000");
    let volume = |name: &str| json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
    let mount = |name: &str| json!({"name": name, "mountPath": format!("/{name}")});
    writer["spec"]["volumes"] = json!([volume("host"), volume("local")]);
    writer["spec"]["containers"][0]["volumeMounts"] = json!([mount("host"), mount("local")]);
    joined.kubectl().apply(&writer);
    joined.runs("writer");
    for (name, want) in [("host", "one\n"), ("local", "two\n")] {
        eventually(name, SOON, || match std::fs::read_to_string(dir.join(name).join("a")) {
            Ok(text) if text == want => Ok(()),
            other => Err(format!("{other:?}")),
        });
    }
    // What a claim holds stays when the pod goes.
    joined.kubectl().run(&["delete", "pod", "writer", "--wait=false"]);
    joined.gone("writer");
    assert!(dir.join("host/a").exists() && dir.join("local/a").exists());
}

#[test]
fn a_pod_is_debugged() {
    let Some(joined) = Joined::start() else { return };
    let kubectl = joined.kubectl();
    kubectl.apply(&pod("web", "sleep 1000"));
    let before = joined.runs("web");
    // As kubectl debug does; its versions and those of servers differ in what they call it.
    let path = "/api/v1/namespaces/default/pods/web/ephemeralcontainers";
    let look = json!([{"name": "look", "image": BUSYBOX, "imagePullPolicy": "IfNotPresent",
        "command": ["sh", "-c", "echo looking; sleep 1000"], "terminationMessagePolicy": "File"}]);
    eventually("another container", SOON, || {
        let mut pod: Value =
            serde_json::from_str(&kubectl.attempt(&["get", "--raw", path])?).map_err(|e| e.to_string())?;
        match pod["kind"].as_str() {
            Some("EphemeralContainers") => pod["ephemeralContainers"] = look.clone(),
            _ => pod["spec"]["ephemeralContainers"] = look.clone(),
        }
        kubectl.raw("replace", path, &pod)
    });
    let now = joined.pod("web", |pod| pod["status"]["ephemeralContainerStatuses"][0]["state"]["running"].is_object());
    assert_eq!(now["status"]["ephemeralContainerStatuses"][0]["name"], "look");
    assert_eq!(now["status"]["containerStatuses"], before["status"]["containerStatuses"]);
    eventually("its log", SOON, || match kubectl.attempt(&["logs", "web", "-c", "look"])? {
        text if text == "looking\n" => Ok(()),
        text => Err(text),
    });
    assert_eq!(kubectl.run(&["exec", "web", "-c", "look", "--", "echo", "hi"]), "hi\n");
}

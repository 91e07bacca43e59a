//! kubectl, as Debian packages it, against an agent without a cluster. `KUBECTL` names another one.
#![cfg(feature = "tls")]

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::Shutdown;
use std::process::Stdio;

use serde_json::Value;
use support::http::Client;
use support::kubectl::Standalone;
use support::node::{Node, SOON, pod};
use support::{BUSYBOX, NODE, eventually};

#[test]
fn looking() {
    let kubectl = Standalone::start();
    let web = format!("web-{NODE}");
    kubectl.node.write("web", &pod("web", "echo hello; sleep 1000"));
    kubectl.node.write("bad", &pod("bad", "exit 3"));
    kubectl.node.runs("web");

    let rows = kubectl.table(&["get", "pods", "-l", "app=web"]);
    assert_eq!(rows[0], ["NAME", "READY", "STATUS", "RESTARTS", "AGE"]);
    assert_eq!(rows[1][..4], [web.as_str(), "1/1", "Running", "0"]);
    let wide = kubectl.run(&["get", "pods", "-A", "-o", "wide"]);
    assert!(wide.contains("NOMINATED NODE") && wide.contains(NODE), "{wide}");
    // By its name, and by that in its manifest, under which it is then shown.
    for name in [web.as_str(), "web"] {
        let pod = kubectl.json(&["get", "pod", name]);
        assert_eq!((&pod["metadata"]["name"], &pod["status"]["phase"]), (&name.into(), &"Running".into()));
    }
    let yaml = kubectl.run(&["get", "pod", "web", "-o", "yaml"]);
    assert!(yaml.contains("kind: Pod\n") && yaml.contains("phase: Running"), "{yaml}");
    let names = kubectl.run(&["get", "pods", "--field-selector", "status.phase=Running", "-o", "name"]);
    assert!(names.contains(&format!("pod/{web}\n")), "{names}");
    let missing = kubectl.refused(&["get", "pod", "none"]);
    assert!(missing.contains("pods \"none\" not found"), "{missing}");

    let described = kubectl.run(&["describe", "pod", "web"]);
    for part in ["Running", "Container ID:", "Started", "Pulled", "Events:"] {
        assert!(described.contains(part), "{part}: {described}");
    }
    eventually("the back-off in the events", SOON, || {
        let events = kubectl.run(&["get", "events"]);
        let seen = events.contains("BackOff") && events.contains(&format!("pod/bad-{NODE}"));
        if seen { Ok(()) } else { Err(events) }
    });
    let nodes = kubectl.table(&["get", "nodes", "-o", "wide"]);
    assert_eq!(nodes[1][..2], [NODE.to_lowercase(), "Ready".to_owned()]);
    assert!(nodes[1].last().is_some_and(|runtime| runtime.starts_with("containerd://")), "{nodes:?}");
    assert!(kubectl.run(&["describe", "node"]).contains("Allocatable:"));
    assert_eq!(kubectl.table(&["get", "namespaces"])[1][..2], ["default", "Active"]);
    let version = kubectl.run(&["version"]);
    assert!(version.contains("v1.36.0+cleat"), "{version}");
    assert!(kubectl.run(&["api-resources"]).contains("configmaps"));
    assert!(kubectl.run(&["get", "all"]).contains(&web));
}

#[test]
fn in_its_containers() {
    let kubectl = Standalone::start();
    let script = "i=0; while true; do echo line $i; i=$((i+1)); sleep 0.1; done";
    kubectl.node.write("web", &pod("web", script));
    kubectl.node.write("httpd", &pod("httpd", "mkdir /w; echo served > /w/index.html; httpd -f -p 8080 -h /w"));
    kubectl.node.runs("web");
    kubectl.node.runs("httpd");
    eventually("lines in the log", SOON, || {
        let text = kubectl.run(&["logs", "web"]);
        if text.starts_with("line 0\nline 1\n") { Ok(()) } else { Err(text) }
    });
    let tail = kubectl.run(&["logs", "web", "--tail=2", "--timestamps"]);
    assert!(tail.lines().count() == 2 && tail.contains("Z line "), "{tail}");
    let mut follow =
        kubectl.command(&["logs", "-f", "web", "-c", "main"]).stdout(Stdio::piped()).spawn().expect("runs");
    let mut lines = BufReader::new(follow.stdout.take().expect("is piped")).lines();
    for i in 0..30 {
        assert_eq!(lines.next().expect("goes on").expect("is text"), format!("line {i}"));
    }
    follow.kill().expect("ends");
    follow.wait().expect("has ended");
    let none = kubectl.refused(&["logs", "web", "-c", "none"]);
    assert!(none.contains("none"), "{none}");

    assert_eq!(kubectl.run(&["exec", "web", "--", "echo", "a  b"]), "a  b\n");
    let out = kubectl.output(&["exec", "web", "--", "sh", "-c", "echo out; echo err >&2; exit 7"]);
    let texts = [&out.stdout, &out.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert!(texts[0] == "out\n" && texts[1].starts_with("err\n") && out.status.code() == Some(7), "{out:?}");
    let mut cat = kubectl.command(&["exec", "-i", "web", "--", "cat"]);
    let mut cat = cat.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("runs");
    cat.stdin.take().expect("is piped").write_all(b"through\n").expect("writes");
    let out = cat.wait_with_output().expect("ends");
    assert_eq!(String::from_utf8_lossy(&out.stdout), "through\n");

    let mut forward = kubectl.command(&["port-forward", "pod/httpd", "18080:8080"]);
    let mut forward = forward.stdout(Stdio::piped()).spawn().expect("runs");
    let mut said = BufReader::new(forward.stdout.take().expect("is piped"));
    let mut line = String::new();
    said.read_line(&mut line).expect("says where");
    assert!(line.contains("18080 -> 8080"), "{line}");
    let mut stream = kubectl.node.containerd.cell().connect(18080).expect("connects");
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("asks");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("answers");
    let _ = stream.shutdown(Shutdown::Both);
    assert!(text.ends_with("served\n"), "{text}");
    forward.kill().expect("ends");
    forward.wait().expect("has ended");
}

#[test]
fn writing() {
    let kubectl = Standalone::start();
    let manifests = kubectl.node.agent.manifests();
    let file = kubectl.file("web.yaml", &pod("web", "sleep 1000"));
    let mut watch = kubectl.command(&["get", "pods", "-w"]).stdout(Stdio::piped()).spawn().expect("runs");
    let mut watched = BufReader::new(watch.stdout.take().expect("is piped")).lines();

    assert_eq!(kubectl.run(&["apply", "-f", &file]), "pod/web created\n");
    assert!(manifests.join("default_web.pod.api.yaml").exists());
    kubectl.run(&["wait", "--for=condition=Ready", "pod/web", "--timeout=60s"]);
    assert_eq!(watched.next().expect("a line").expect("text").split_whitespace().next(), Some("NAME"));
    loop {
        let line = watched.next().expect("goes on").expect("is text");
        if line.contains("Running") && line.contains("1/1") {
            break;
        }
    }
    let again = kubectl.run(&["apply", "-f", &file]);
    assert!(again.ends_with("unchanged\n"), "{again}");
    let uid = kubectl.json(&["get", "pod", "web"])["metadata"]["uid"].clone();
    fs::write(&file, pod("web", "sleep 2000").replace("app: web", "app: web, tier: front")).expect("writes");
    let changed = kubectl.run(&["apply", "-f", &file]);
    assert!(changed.ends_with("configured\n"), "{changed}");
    eventually("the changed pod", SOON, || {
        let pod = kubectl.json(&["get", "pod", "web"]);
        let command = &pod["spec"]["containers"][0]["command"][2];
        let ok = command == "sleep 2000" && pod["metadata"]["uid"] != uid && pod["status"]["phase"] == "Running";
        if ok && pod["metadata"]["labels"]["tier"] == "front" { Ok(()) } else { Err(pod.to_string()) }
    });
    kubectl.run(&["label", "pod", "web", "more=yes"]);
    eventually("the label", SOON, || {
        let rows = kubectl.run(&["get", "pods", "-l", "more=yes", "-o", "name"]);
        if rows.contains("web") { Ok(()) } else { Err(rows) }
    });
    kubectl.run(&["delete", "pod", "web", "--timeout=60s"]);
    assert!(!manifests.join("default_web.pod.api.yaml").exists());
    assert!(kubectl.refused(&["get", "pod", "web"]).contains("not found"));
    watch.kill().expect("ends");
    watch.wait().expect("has ended");

    // What people have written.
    let (one, two) = (pod("one", "sleep 1000"), pod("two", "sleep 1000"));
    kubectl.node.write("people", &format!("# ours\n{one}---\n{two}"));
    kubectl.node.runs("one");
    let refused = kubectl.refused(&["delete", "pod", "one"]);
    assert!(refused.contains("people.yaml holds more than this object (2 in all)"), "{refused}");
    kubectl.node.write("people", &one);
    kubectl.node.agent.wait_gone("two", SOON);
    kubectl.run(&["delete", "pod", "one", "--timeout=60s"]);
    assert!(!manifests.join("people.yaml").exists());

    let broken = kubectl.file("broken.yaml", &pod("broken", "true").replace("image:", "imag:"));
    let refused = kubectl.refused(&["create", "-f", &broken, "--validate=false"]);
    assert!(refused.contains("invalid") && refused.contains("image"), "{refused}");
    kubectl.run(&["run", "quick", "--image", BUSYBOX, "--restart=Never", "--", "true"]);
    kubectl.node.reaches("quick", "Succeeded");
}

#[test]
fn config_maps_and_secrets() {
    let kubectl = Standalone::start();
    kubectl.run(&["create", "configmap", "settings", "--from-literal=color=blue"]);
    kubectl.run(&["create", "secret", "generic", "password", "--from-literal=word=hunter2"]);
    let secret = kubectl.node.agent.manifests().join("default_password.secret.api.yaml");
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(secret).expect("is there").permissions());
    assert_eq!(mode & 0o777, 0o600);
    assert_eq!(kubectl.json(&["get", "configmap", "settings"])["data"]["color"], "blue");
    assert_eq!(kubectl.json(&["get", "secret", "password"])["data"]["word"], "aHVudGVyMg==");
    assert_eq!(kubectl.table(&["get", "secrets"])[1][..3], ["password", "Opaque", "1"]);
    assert!(kubectl.run(&["describe", "secret", "password"]).contains("word:  7 bytes"));
    let exists = kubectl.refused(&["create", "configmap", "settings"]);
    assert!(exists.contains("already exists"), "{exists}");
    for color in ["red", "green"] {
        let text = format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: applied}}\ndata: {{color: {color}}}\n");
        kubectl.run(&["apply", "-f", &kubectl.file("map.yaml", &text)]);
        eventually("the data", SOON, || match &kubectl.json(&["get", "cm", "applied"])["data"]["color"] {
            value if value == color => Ok(()),
            value => Err(value.to_string()),
        });
    }
    for (kind, patch, want) in [
        ("merge", r#"{"data": {"color": "one"}}"#, "one"),
        ("json", r#"[{"op": "replace", "path": "/data/color", "value": "two"}]"#, "two"),
        ("strategic", r#"{"data": {"color": "three"}}"#, "three"),
    ] {
        kubectl.run(&["patch", "cm", "applied", "--type", kind, "-p", patch]);
        assert_eq!(kubectl.json(&["get", "cm", "applied"])["data"]["color"], want);
    }
    kubectl.run(&["delete", "cm/applied", "cm/settings", "secret/password", "--timeout=60s"]);
    let left = kubectl.run(&["get", "cm,secrets", "-o", "name"]);
    assert_eq!(left, "");
}

/// Our own commands, over the socket.
#[test]
fn commands() {
    let node = Node::start();
    let socket = node.agent.root().join("api.sock");
    let command = |args: &[&str]| {
        let mut command = node.containerd.cell().command(env!("CARGO_BIN_EXE_cleat"));
        command.args(args).arg("--socket").arg(&socket).output().expect("runs")
    };
    let run = |args: &[&str]| {
        let out = command(args);
        assert!(out.status.success(), "{args:?}: {out:?}");
        String::from_utf8_lossy(&out.stdout).into_owned()
    };
    assert!(run(&["status"]).contains("No pods.\nNothing is wrong.\n"));
    let file = node.containerd.cell().dir().join("web.yaml");
    fs::write(&file, pod("web", "echo hello; sleep 1000")).expect("writes");
    let file = file.to_str().expect("is text");
    assert_eq!(run(&["apply", "-f", file]), "pod/web created\n");
    node.runs("web");
    assert_eq!(run(&["apply", "-f", file]), "pod/web configured\n");
    node.write("bad", &pod("bad", "exit 3"));
    eventually("what is wrong", SOON, || {
        let text = run(&["status"]);
        let told = text.contains(&format!("default/bad-{NODE}: container main waits: CrashLoopBackOff"));
        if told { Ok(()) } else { Err(text) }
    });
    let pods = run(&["get", "pods", "-A", "-o", "wide"]);
    assert!(pods.starts_with("NAMESPACE ") && pods.contains(&format!("web-{NODE}")) && pods.contains("NODE"), "{pods}");
    assert!(run(&["get", "pod", "web", "-o", "yaml"]).contains("phase: Running\n"));
    let json: Value = serde_json::from_str(&run(&["get", "pod/web", "-o", "json"])).expect("is JSON");
    assert_eq!(json["metadata"]["name"], "web");
    assert_eq!(run(&["logs", "web"]), "hello\n");
    let described = run(&["describe", "pod", "web"]);
    assert!(described.contains("running for ") && described.contains("Pulled"), "{described}");
    assert!(run(&["events"]).contains("BackOff"));
    assert_eq!(run(&["delete", "pod", "web"]), "pod/web deleted\n");
    node.agent.wait_gone("web", SOON);
    let missing = command(&["logs", "none"]);
    let told = String::from_utf8_lossy(&missing.stderr).into_owned();
    assert!(missing.status.code() == Some(1) && told == "cleat: pods \"none\" not found\n", "{told}");
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(&socket).expect("is there").permissions());
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn who_may() {
    let containerd = support::Containerd::start();
    let mut agent = support::Agent::on_containerd(&containerd);
    let tokens = containerd.cell().dir().join("tokens.csv");
    fs::write(&tokens, "look,eye,1,\"cleat:viewers\"\nnone,joe,2\nmaster,admin,3,\"system:masters\"\n")
        .expect("writes");
    agent.flags(&["--token-auth-file", tokens.to_str().expect("is text")]);
    agent.start();
    let node = Node { agent, containerd };
    let secret = "apiVersion: v1\nkind: Secret\nmetadata: {name: s, namespace: default}\nstringData: {k: hunter2}\n";
    node.write("secret", secret);
    let nobody = Client::tls(node.containerd.cell(), 10270, &node.agent.root().join("pki/kubelet.crt"), None);
    let with = |token: &str| nobody.clone().with_token(token);
    let path = "/api/v1/namespaces/default/secrets/s";
    eventually("the secret", SOON, || match with("master").get(path) {
        answer if answer.status == 200 => Ok(()),
        answer => Err(answer.body),
    });
    assert_eq!(with("master").get(path).json()["data"]["k"], "aHVudGVyMg==");
    for path in [path, "/api/v1/secrets", "/api/v1/secrets?watch=true&timeoutSeconds=1"] {
        let seen = with("look").get(path);
        assert!(seen.status == 200 && seen.body.contains("Opaque"), "{seen:?}");
        assert!(!seen.body.contains("aHVudGVyMg"), "{path}: {}", seen.body);
        assert_eq!(
            (nobody.get(path).status, with("wrong").get(path).status, with("none").get(path).status),
            (401, 401, 403)
        );
    }
    for (method, path) in [
        ("DELETE", path),
        ("POST", "/api/v1/namespaces/default/pods"),
        ("POST", "/api/v1/namespaces/default/pods/x/exec?command=id"),
    ] {
        assert_eq!(with("look").send(method, path).expect("answers").status, 403, "{method} {path}");
    }
    let gone = with("look").get("/api/v1/pods?watch=true&resourceVersion=1");
    assert!(gone.body.contains("\"code\":410"), "{}", gone.body);
    for path in ["/api/v1/namespaces/%2e%2e/pods", "/api/v1/namespaces/a%2fb/pods"] {
        assert_eq!(with("master").get(path).status, 400, "{path}");
    }
}

//! What kubectl does with the node's own API beyond looking and writing.
#![cfg(feature = "tls")]

mod support;

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Stdio;

use serde_json::Value;
use support::kubectl::Standalone;
use support::node::{SOON, pod};
use support::{BUSYBOX, eventually};

fn ephemeral(pod: &Value, name: &str) -> Value {
    let all = pod["status"]["ephemeralContainerStatuses"].as_array().cloned().unwrap_or_default();
    all.into_iter().find(|status| status["name"] == name).unwrap_or_default()
}

#[test]
fn debugging() {
    let mut kubectl = Standalone::start();
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
    let kubectl = Standalone::start();
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
    let ours = |args: &[&str]| {
        let mut command = kubectl.node.containerd.cell().command(env!("CARGO_BIN_EXE_cleat"));
        let out =
            command.arg("top").args(args).arg("--socket").arg(kubectl.node.agent.root().join("api.sock")).output();
        let out = out.expect("runs");
        assert!(out.status.success(), "{args:?}: {out:?}");
        String::from_utf8_lossy(&out.stdout).into_owned()
    };
    let whole = ours(&[]);
    assert!(whole.contains("MEMORY%") && whole.contains("web-") && whole.contains("two-"), "{whole}");
    let one = ours(&["pod", "two", "--containers"]);
    assert!(one.lines().count() == 3 && one.contains("idle"), "{one}");
}

/// A pod that ends only when it is killed, and has an hour until then.
fn stubborn(name: &str) -> String {
    pod(name, "trap '' TERM; echo on; while true; do sleep 1; done").replace("Seconds: 1\n", "Seconds: 3600\n")
}

#[test]
fn deleting() {
    let kubectl = Standalone::start();
    let manifests = kubectl.node.agent.manifests();
    for name in ["a", "b", "c", "d", "e"] {
        kubectl.run(&["apply", "-f", &kubectl.file(&format!("{name}.yaml"), &stubborn(name))]);
        kubectl.node.runs(name);
    }
    // Nothing but a look.
    let tried = kubectl.output(&["delete", "pod", "a", "--dry-run=server"]);
    // Old ones want another description of the API for it.
    assert!(tried.status.success() || String::from_utf8_lossy(&tried.stderr).contains("doesn't support dry-run"));
    assert!(manifests.join("default_a.pod.api.yaml").exists());
    assert_eq!(kubectl.json(&["get", "pod", "a"])["metadata"]["deletionTimestamp"], Value::Null);

    kubectl.run(&["delete", "pod", "a", "--wait=false"]);
    assert!(!manifests.join("default_a.pod.api.yaml").exists());
    let ending = kubectl.json(&["get", "pod", "a"]);
    assert!(ending["metadata"]["deletionTimestamp"].is_string(), "{ending}");
    assert_eq!(ending["metadata"]["deletionGracePeriodSeconds"], 3600);
    eventually("that it is ending", SOON, || {
        let row = kubectl.table(&["get", "pod", "a", "--no-headers"]).concat();
        if row[1..3] == ["1/1", "Terminating"] { Ok(()) } else { Err(row.join(" ")) }
    });
    assert_eq!(kubectl.run(&["logs", "a"]), "on\n");
    assert_eq!(kubectl.run(&["exec", "a", "--", "echo", "still"]), "still\n");
    let exists = kubectl.refused(&["create", "-f", &kubectl.file("a.yaml", &stubborn("a"))]);
    assert!(exists.contains("already exists"), "{exists}");
    // Those who can't wait shorten it.
    kubectl.run(&["delete", "pod", "a", "--force", "--grace-period=0", "--timeout=60s"]);
    assert!(kubectl.refused(&["get", "pod", "a"]).contains("not found"));

    kubectl.run(&["delete", "pod", "b", "--grace-period=1", "--timeout=60s"]);
    kubectl.run(&["delete", "pod", "c", "--now", "--timeout=60s"]);
    kubectl.run(&["create", "configmap", "kept", "--from-literal=a=b"]);
    kubectl.run(&["delete", "pods", "--all", "--grace-period=1", "--timeout=60s"]);
    assert_eq!(kubectl.run(&["get", "pods", "-o", "name"]), "");
    assert_eq!(kubectl.run(&["get", "configmaps", "-o", "name"]), "configmap/kept\n");
    kubectl.node.nothing_left();
    // A pod whose manifest somebody removes shows its end too.
    kubectl.node.write("f", &stubborn("f"));
    kubectl.node.runs("f");
    kubectl.node.remove("f");
    eventually("that it is ending", SOON, || {
        let text = kubectl.run(&["get", "pods"]);
        if text.contains("Terminating") { Ok(()) } else { Err(text) }
    });
    kubectl.run(&["delete", "pod", "f", "--now", "--timeout=60s"]);
}

#[test]
fn names_ages_and_fields() {
    let mut kubectl = Standalone::start();
    let text = pod("web", "exit 3").replace("metadata: {name: web,", "metadata: {generateName: web-,");
    let file = kubectl.file("web.yaml", &text);
    let names =
        [kubectl.run(&["create", "-f", &file, "-o", "name"]), kubectl.run(&["create", "-f", &file, "-o", "name"])];
    assert!(names.iter().all(|name| name.starts_with("pod/web-") && name.trim_end().len() == 13), "{names:?}");
    assert_ne!(names[0], names[1]);
    let name = names[0].trim_end().trim_start_matches("pod/");
    eventually("events of the container", SOON, || {
        let events = kubectl.json(&["get", "events"]);
        let of = |event: &Value| {
            let involved = &event["involvedObject"];
            let ours = involved["name"].as_str().is_some_and(|n| n.starts_with(name));
            ours && event["reason"] == "BackOff" && involved["fieldPath"] == "spec.containers{main}"
        };
        if events["items"].as_array().is_some_and(|all| all.iter().any(of)) { Ok(()) } else { Err(events.to_string()) }
    });
    let nameless = pod("web", "exit 3").replace("name: web,", "");
    let refused = kubectl.refused(&["create", "-f", &kubectl.file("nameless.yaml", &nameless)]);
    assert!(refused.contains("name"), "{refused}");

    kubectl.run(&["create", "configmap", "settings", "--from-literal=a=b"]);
    let created = |text: &Value| text["metadata"]["creationTimestamp"].as_str().map(str::to_owned).expect("has an age");
    let first = created(&kubectl.json(&["get", "configmap", "settings"]));
    assert_ne!(kubectl.table(&["get", "configmap", "settings"])[1][2], "<unknown>");
    kubectl.run(&["patch", "configmap", "settings", "--type=merge", "-p", r#"{"data": {"a": "c"}}"#]);
    kubectl.node.agent.kill();
    kubectl.node.agent.start();
    eventually("the changed one", SOON, || match kubectl.json(&["get", "configmap", "settings"]) {
        map if map["data"]["a"] == "c" && created(&map) == first => Ok(()),
        map => Err(map.to_string()),
    });
}

#[test]
fn forms_of_a_list() {
    let kubectl = Standalone::start();
    for name in ["a", "b", "c"] {
        kubectl.node.write(name, &pod(name, "sleep 1000"));
    }
    for name in ["a", "b", "c"] {
        kubectl.node.runs(name);
        kubectl.run(&["create", "configmap", &format!("map-{name}"), "--from-literal=key=value"]);
    }
    let names: Vec<String> = ["a", "b", "c"].map(|name| format!("{name}-{}", support::NODE)).to_vec();
    let get = |args: &[&str]| kubectl.run(&[&["get", "pods"], args].concat());
    assert_eq!(get(&["-o", "jsonpath={.items[*].metadata.name}"]), names.join(" "));
    assert_eq!(get(&["-o", "name"]), names.iter().map(|name| format!("pod/{name}\n")).collect::<String>());
    let columns = get(&["-o", "custom-columns=N:.metadata.name,S:.status.phase", "--sort-by=.metadata.name"]);
    assert!(columns.starts_with("N ") && columns.lines().filter(|line| line.ends_with("Running")).count() == 3);
    assert_eq!(get(&["-o", "go-template={{range .items}}{{.metadata.labels.app}} {{end}}"]), "a b c ");
    assert!(get(&["--show-labels", "-L", "app"]).contains("app=b"));
    let yaml = get(&["-o", "yaml"]);
    assert!(yaml.contains("kind: List\n") && yaml.matches("  kind: Pod\n").count() == 3, "{yaml}");
    // By pages.
    for list in ["pods", "configmaps", "events", "pods,configmaps"] {
        let whole = kubectl.run(&["get", list, "-o", "name", "--chunk-size=0"]);
        assert!(whole.lines().count() >= 3, "{list}: {whole}");
        assert_eq!(kubectl.run(&["get", list, "-o", "name", "--chunk-size=1"]), whole, "{list}");
        let rows = kubectl.run(&["get", list, "--no-headers", "--chunk-size=2"]);
        assert_eq!(rows.lines().filter(|line| !line.is_empty()).count(), whole.lines().count(), "{list}: {rows}");
    }
    assert_eq!(kubectl.table(&["get", "pods", "--no-headers", "--field-selector", "metadata.name=b"]).len(), 1);
    let described = kubectl.run(&["describe", "node", support::NODE]);
    for part in ["Capacity:", "Non-terminated Pods:", "b-edge-1", "Allocated resources:"] {
        assert!(described.contains(part), "{part}: {described}");
    }
    assert!(kubectl.run(&["describe", "configmap", "map-a"]).contains("value"));
}

#[test]
fn at_a_terminal_and_with_files() {
    let kubectl = Standalone::start();
    let reader = pod("reader", "echo reading; while read line; do echo got $line; done; sleep 1000");
    kubectl.node.write("reader", &reader.replace("    command:", "    stdin: true\n    stdinOnce: true\n    command:"));
    kubectl.node.write("web", &pod("web", "i=0; while true; do echo line $i; i=$((i+1)); sleep 0.1; done"));
    kubectl.node.runs("reader");
    kubectl.node.runs("web");
    kubectl.run(&["wait", "--for=condition=Ready", "pod/web", "pod/reader", "--timeout=60s"]);

    let seen = kubectl.on_terminal(&["exec", "-it", "web", "--", "sh"], "tty; echo $((6*7)); exit 0\n");
    assert!(seen.contains("/dev/pts/") && seen.contains("42"), "{seen}");

    let mut attached = kubectl.command(&["attach", "web"]).stdout(Stdio::piped()).spawn().expect("runs");
    let mut lines = BufReader::new(attached.stdout.take().expect("is piped")).lines();
    let first = lines.next().expect("goes on").expect("is text");
    let number = first.strip_prefix("line ").and_then(|n| n.parse::<u32>().ok()).unwrap_or_else(|| panic!("{first}"));
    for i in 1..10 {
        assert_eq!(lines.next().expect("goes on").expect("is text"), format!("line {}", number + i));
    }
    attached.kill().expect("ends");
    attached.wait().expect("has ended");
    let mut attached = kubectl.command(&["attach", "-i", "reader"]);
    let mut attached = attached.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("runs");
    attached.stdin.take().expect("is piped").write_all(b"one\ntwo\n").expect("writes");
    eventually("what was typed in the log", SOON, || {
        let text = kubectl.run(&["logs", "reader"]);
        if text == "reading\ngot one\ngot two\n" { Ok(()) } else { Err(text) }
    });
    attached.kill().expect("ends");
    attached.wait().expect("has ended");

    // More than goes into any buffer.
    let bytes: Vec<u8> = (0..3_000_000_u32).map(|i| (i.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    let (there, back) = (kubectl.file("there", ""), kubectl.file("back", ""));
    std::fs::write(&there, &bytes).expect("writes");
    kubectl.run(&["cp", &there, "web:/tmp/file"]);
    kubectl.run(&["cp", "web:/tmp/file", &back]);
    assert!(std::fs::read(&back).expect("reads") == bytes, "what comes back is other");

    let mut run = kubectl.command(&["run", "once", "-i", "--rm", "--restart=Never", "--image", BUSYBOX]);
    let mut run = run.args(["--", "cat"]).stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("runs");
    run.stdin.take().expect("is piped").write_all(b"through a pod\n").expect("writes");
    let out = run.wait_with_output().expect("ends");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(out.status.success() && text.contains("through a pod"), "{text}");
    assert!(kubectl.refused(&["get", "pod", "once"]).contains("not found"));
    kubectl.node.remove("web");
    kubectl.run(&["wait", "--for=delete", "pod/web", "--timeout=60s"]);
}

/// To the agent, a process outside of its PID namespace has no number.
#[test]
fn the_socket_from_another_pid_namespace() {
    let node = support::node::Node::start();
    let mut stream = UnixStream::connect(node.agent.root().join("api.sock")).expect("connects");
    stream.write_all(b"GET /version HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n").expect("asks");
    let mut text = String::new();
    stream.read_to_string(&mut text).expect("answers");
    assert!(text.starts_with("HTTP/1.1 200 ") && text.contains("gitVersion"), "{text}");
}

#[test]
fn applying_on_the_servers_side() {
    let kubectl = Standalone::start();
    let map = |data: &str| {
        let text = format!("apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: settings}}\ndata: {{{data}}}\n");
        kubectl.file("map.yaml", &text)
    };
    let data = || kubectl.json(&["get", "configmap", "settings"])["data"].clone();
    let becomes = |want: &Value| {
        eventually("the data", SOON, || match data() {
            now if now == *want => Ok(()),
            now => Err(now.to_string()),
        });
    };
    let apply = |file: &str, more: &[&str]| kubectl.output(&[&["apply", "--server-side", "-f", file], more].concat());
    let applied = |file: &str, more: &[&str]| {
        let out = apply(file, more);
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success() && text.contains("serverside-applied"), "{out:?}");
    };
    applied(&map("a: one, b: two"), &[]);
    becomes(&serde_json::json!({"a": "one", "b": "two"}));
    // Another one has a say in another key, and not in this one.
    applied(&map("c: three"), &["--field-manager=other"]);
    becomes(&serde_json::json!({"a": "one", "b": "two", "c": "three"}));
    let refused = apply(&map("a: mine"), &["--field-manager=other"]);
    let told = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(!refused.status.success() && told.contains("conflict with \"kubectl\": .data.a"), "{told}");
    // What one applies no more is gone, but not what others have.
    applied(&map("b: new"), &[]);
    becomes(&serde_json::json!({"b": "new", "c": "three"}));
    applied(&map("b: forced"), &["--field-manager=other", "--force-conflicts"]);
    becomes(&serde_json::json!({"b": "forced"}));
    // What people have written is theirs.
    kubectl.node.write("by-hand", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: hand}\ndata: {k: v}\n");
    eventually("what was written by hand", SOON, || {
        let out = kubectl.output(&["get", "configmap", "hand"]);
        if out.status.success() { Ok(()) } else { Err(format!("{out:?}")) }
    });
    let file = kubectl.file("hand.yaml", "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: hand}\ndata: {k: w}\n");
    let refused = apply(&file, &[]);
    assert!(String::from_utf8_lossy(&refused.stderr).contains("before-first-apply"), "{refused:?}");

    let file = kubectl.file("web.yaml", &pod("web", "sleep 1000"));
    applied(&file, &[]);
    kubectl.run(&["wait", "--for=condition=Ready", "pod/web", "--timeout=60s"]);
    let uid = || kubectl.json(&["get", "pod", "web"])["metadata"]["uid"].clone();
    let first = uid();
    applied(&file, &[]);
    applied(&kubectl.file("web.yaml", &pod("web", "sleep 1000")), &["--field-manager=other"]);
    assert_eq!(uid(), first, "the same again changes nothing");
    kubectl.run(&["delete", "-f", &file, "--timeout=60s"]);
    applied(&kubectl.file("web.yaml", &pod("web", "sleep 2000")), &["--field-manager=third"]);
    kubectl.node.runs("web");
}

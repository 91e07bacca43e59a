//! Pods of an API server, on a private containerd, with a double of the server
//! (tests/support/apiserver).

mod support;

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use support::apiserver::Faults;
use support::node::{Node, SOON, container_id, pod};
use support::{Agent, ApiServer, BUSYBOX, Containerd, NODE, condition, eventually};

const PORT: u16 = 8701;

/// A node of a cluster whose API server is a double.
fn node() -> (Node, ApiServer) {
    configured(json!({}))
}

/// With more fields of the configuration.
fn configured(fields: Value) -> (Node, ApiServer) {
    let containerd = Containerd::start();
    let server = ApiServer::start(containerd.cell(), PORT);
    let kubeconfig = server.kubeconfig();
    (join(containerd, &kubeconfig, fields), server)
}

fn join(containerd: Containerd, kubeconfig: &Path, fields: Value) -> Node {
    let mut agent = Agent::on_containerd(&containerd);
    agent.flags(&["--kubeconfig", kubeconfig.to_str().expect("is text"), "--v", "4"]);
    agent.configure(json!({"syncFrequency": "2s"}));
    agent.configure(fields);
    agent.start();
    Node { agent, containerd }
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
    eventually("the event of its start", SOON, || {
        let events = server.state().objects.list("events", Some("default"), "reason=Started");
        match events.iter().any(|e| e["involvedObject"]["uid"] == made["metadata"]["uid"]) {
            true => Ok(()),
            false => Err(format!("{events:?}")),
        }
    });
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
    server.wait_gone("pods", "slow");
    let ended = server.state().objects.history.last().expect("its end").object.clone();
    assert_eq!(ended["metadata"]["uid"], pod["metadata"]["uid"]);
    assert_eq!(ended["status"]["phase"], "Succeeded");
    assert_eq!(ended["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"], 0);
    node.nothing_left();
}

/// `name` in the namespace `default`.
fn config_map(name: &str, value: &str) -> Value {
    json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": {"key": value}})
}

#[test]
fn objects_reach_volumes_and_the_environment() {
    let (node, server) = configured(json!({"configMapAndSecretChangeDetectionStrategy": "Cache"}));
    server.create("configmaps", config_map("settings", "one"));
    // aGVsbG8= is hello.
    server.create(
        "secrets",
        json!({"kind": "Secret", "metadata": {"name": "s"}, "type": "Opaque", "data": {"key": "aGVsbG8="}}),
    );
    let service = |name: &str, ip: &str| json!({"metadata": {"name": name}, "spec": {"clusterIP": ip, "ports": [{"port": 443, "protocol": "TCP"}]}});
    server.create("services", service("kubernetes", "10.96.0.1"));
    server.create("services", service("db", "10.96.0.7"));
    let script = "env | grep -e ^FROM_ -e _SERVICE_HOST | sort; while :; do sleep 0.1; done";
    let more = json!({
        "volumes": [
            {"name": "map", "configMap": {"name": "settings"}},
            {"name": "late", "configMap": {"name": "late"}},
            {"name": "none", "secret": {"secretName": "none", "optional": true}},
        ],
        "volumeMounts": [{"name": "map", "mountPath": "/map"}, {"name": "late", "mountPath": "/late"},
            {"name": "none", "mountPath": "/none"}],
        "env": [
            {"name": "FROM_SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "key"}}},
            {"name": "FROM_MAP", "valueFrom": {"configMapKeyRef": {"name": "settings", "key": "key"}}},
        ],
    });
    server.create("pods", api_pod("web", script, more));
    // It waits for what isn't there yet.
    eventually("an event", SOON, || match node.agent.log().contains("configmap \"late\" not found") {
        true => Ok(()),
        false => Err("it is not there".to_owned()),
    });
    server.create("configmaps", config_map("late", "now"));
    let pod = server.wait("pods", "web", is_running);
    let want = "DB_SERVICE_HOST=10.96.0.7\nFROM_MAP=one\nFROM_SECRET=hello\nKUBERNETES_SERVICE_HOST=10.96.0.1";
    node.says(&pod, "main", 0, want);
    assert_eq!(node.exec(&pod, "main", "cat /map/key /late/key; ls /none"), Ok("onenow".to_owned()));
    server.patch("configmaps", "settings", &json!({"data": {"key": "two"}}));
    eventually("the new text", SOON, || match node.exec(&pod, "main", "cat /map/key") {
        Ok(text) if text == "two" => Ok(()),
        other => Err(format!("{other:?}")),
    });
    assert_eq!(server.asked(|line| line.contains("configmaps?watch")), [], "nothing is watched");
    // Nothing is asked for that no pod refers to.
    let asked = server.asked(|line| line.starts_with("GET /api/v1/namespaces/default/") && !line.contains("/services"));
    let names: std::collections::BTreeSet<_> =
        asked.iter().map(|(line, _)| line.rsplit('/').next().unwrap_or_default()).collect();
    assert_eq!(names.into_iter().collect::<Vec<_>>(), ["late", "none", "s", "settings"]);
}

/// Events wait for their turn and are not lost, and a pod's status doesn't wait for them.
#[test]
fn events_are_held_to_their_rate() {
    let (_node, server) = configured(json!({"eventRecordQPS": 1, "eventBurst": 1}));
    let began = std::time::Instant::now();
    server.create("pods", api_pod("web", FOREVER, json!({})));
    server.wait("pods", "web", is_running);
    let told = eventually("the event of its start", SOON, || {
        let events = server.state().objects.list("events", Some("default"), "");
        let started = events.iter().any(|e| e["reason"] == "Started");
        if started { Ok(events.len()) } else { Err(format!("{events:?}")) }
    });
    assert!(told > 1, "there are others before it");
    let least = Duration::from_secs(told as u64 - 1);
    assert!(began.elapsed() + Duration::from_millis(50) > least, "{told} in {:?}", began.elapsed());
}

/// A pod with these ConfigMaps in volumes at `/NAME`.
fn reader(name: &str, maps: &[String]) -> Value {
    let optional = |map: &String| json!({"name": map, "configMap": {"name": map, "optional": true}});
    let mount = |map: &String| json!({"name": map, "mountPath": format!("/{map}")});
    let more = json!({
        "volumes": maps.iter().map(optional).collect::<Vec<_>>(),
        "volumeMounts": maps.iter().map(mount).collect::<Vec<_>>(),
    });
    api_pod(name, FOREVER, more)
}

/// Waits until a file in a pod's only container reads so.
#[track_caller]
fn reads(node: &Node, pod: &Value, file: &str, want: &str) {
    eventually(file, SOON, || match node.exec(pod, "main", &format!("cat {file}")) {
        Ok(text) if text == want => Ok(()),
        other => Err(format!("{other:?}")),
    });
}

/// Waits until the agent has so many threads that watch objects.
#[track_caller]
fn watches(node: &mut Node, want: usize) {
    let tasks = format!("/proc/{}/task", node.agent.process().pid());
    eventually("watches of objects", 3 * SOON, || {
        let tasks = std::fs::read_dir(&tasks).map_err(|e| e.to_string())?.flatten();
        let names = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("comm")).ok());
        match names.filter(|name| name.trim() == "watch-api").count() {
            all if all == want => Ok(()),
            all => Err(format!("{all}")),
        }
    });
}

/// Objects are asked for each ten minutes here, which no test waits for: what comes sooner was heard.
#[test]
fn changes_of_objects_are_heard() {
    let (mut node, mut server) = configured(json!({"syncFrequency": "10m"}));
    server.create("configmaps", config_map("a", "1"));
    let mut fixed = config_map("fixed", "1");
    fixed["immutable"] = true.into();
    server.create("configmaps", fixed);
    server.create("pods", reader("web", &["a", "late", "fixed"].map(str::to_owned)));
    let pod = server.wait("pods", "web", is_running);
    watches(&mut node, 2);
    let set = |server: &ApiServer, value: &str| {
        server.patch("configmaps", "a", &json!({"data": {"key": value}}));
        reads(&node, &pod, "/a/key", value);
    };
    set(&server, "2");
    set(&server, "3");
    // One that wasn't there.
    server.create("configmaps", config_map("late", "now"));
    reads(&node, &pod, "/late/key", "now");
    // Its version is not known any more.
    server.compact();
    set(&server, "4");
    // Connections break off in the midst of things.
    server.faults(Faults { cut_after: vec![1, 40, 200, 1, 1], ..Faults::default() });
    server.disconnect();
    set(&server, "5");
    // The server is away, and something happens meanwhile.
    server.close();
    server.state().objects.merge("configmaps", "default", "a", &json!({"data": {"key": "6"}})).expect("is there");
    server.open();
    reads(&node, &pod, "/a/key", "6");
    set(&server, "7");
    let asked = server.asked(|line| line.ends_with("configmaps/fixed"));
    assert_eq!(asked.len(), 1, "what can't change is asked for once: {asked:?}");
    server.delete("pods", "web", Some(0));
    server.wait_gone("pods", "web");
    watches(&mut node, 0);
}

#[test]
fn few_objects_are_watched_and_the_others_asked_for() {
    const MOST: usize = 16;
    let (mut node, server) = node();
    let names: Vec<_> = (0..MOST + 4).map(|i| format!("m-{i:02}")).collect();
    for name in &names {
        server.create("configmaps", config_map(name, "1"));
    }
    server.create("pods", reader("many", &names));
    // What two pods refer to is watched, whichever it is.
    server.create("pods", reader("more", &names[..1]));
    let (many, more) = (server.wait("pods", "many", is_running), server.wait("pods", "more", is_running));
    watches(&mut node, MOST);
    for name in &names {
        server.patch("configmaps", name, &json!({"data": {"key": "2"}}));
    }
    for name in &names {
        reads(&node, &many, &format!("/{name}/key"), "2");
    }
    reads(&node, &more, "/m-00/key", "2");
    watches(&mut node, MOST);
    server.delete("pods", "many", Some(0));
    watches(&mut node, 1);
}

/// A new pod begins with what its objects are when it comes, though they were asked for not long ago.
#[test]
fn a_new_pod_has_new_objects() {
    let (node, server) =
        configured(json!({"syncFrequency": "10m", "configMapAndSecretChangeDetectionStrategy": "Cache"}));
    server.create("configmaps", config_map("a", "1"));
    server.create("pods", reader("old", &["a".to_owned()]));
    let old = server.wait("pods", "old", is_running);
    let env = json!({"env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "a", "key": "key"}}}]});
    for value in ["2", "3", "4"] {
        server.patch("configmaps", "a", &json!({"data": {"key": value}}));
        let name = format!("new-{value}");
        server.create("pods", api_pod(&name, &format!("echo $A; {FOREVER}"), env.clone()));
        let pod = server.wait("pods", &name, is_running);
        node.says(&pod, "main", 0, value);
        // The old one has it, too.
        reads(&node, &old, "/a/key", value);
    }
}

#[test]
fn a_service_account_has_its_token_and_it_is_renewed() {
    let (node, server) = node();
    server.create("serviceaccounts", json!({"metadata": {"name": "default"}}));
    server.create("configmaps", json!({"metadata": {"name": "kube-root-ca.crt"}, "data": {"ca.crt": "CERT"}}));
    // As the API server adds it to each pod.
    let sources = json!([
        {"serviceAccountToken": {"path": "token", "expirationSeconds": 10}},
        {"configMap": {"name": "kube-root-ca.crt", "items": [{"key": "ca.crt", "path": "ca.crt"}]}},
        {"downwardAPI": {"items": [{"path": "namespace", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"}}]}},
        {"serviceAccountToken": {"path": "vault", "audience": "vault", "expirationSeconds": 3600}},
    ]);
    let path = "/var/run/secrets/kubernetes.io/serviceaccount";
    let more = json!({
        "serviceAccountName": "default",
        "volumes": [{"name": "kube-api-access-x", "projected": {"defaultMode": 420, "sources": sources}}],
        "volumeMounts": [{"name": "kube-api-access-x", "mountPath": path, "readOnly": true}],
    });
    server.create("pods", api_pod("web", FOREVER, more));
    let pod = server.wait("pods", "web", is_running);
    let read = |file: &str| node.exec(&pod, "main", &format!("cat {path}/{file}"));
    assert_eq!((read("ca.crt"), read("namespace")), (Ok("CERT".to_owned()), Ok("default".to_owned())));
    let (first, vault) = (read("token").expect("is there"), read("vault").expect("is there"));
    assert!(first.starts_with("default.default.") && vault.starts_with("default.vault."), "{first} {vault}");
    eventually("another token", SOON, || match read("token") {
        Ok(token) if token != first => Ok(()),
        other => Err(format!("{other:?}")),
    });
    assert_eq!(read("vault"), Ok(vault));
}

#[test]
fn static_pods_are_mirrored() {
    let (node, server) = node();
    node.write("web", &pod("web", "sleep 1000"));
    let name = format!("web-{NODE}");
    let mirror = server.wait("pods", &name, is_running);
    let meta = &mirror["metadata"];
    let own = node.runs("web");
    let hash = &own["metadata"]["annotations"]["kubernetes.io/config.hash"];
    assert_eq!(meta["annotations"]["kubernetes.io/config.mirror"], *hash);
    assert_eq!(meta["annotations"]["kubernetes.io/config.source"], "file");
    let owner = &meta["ownerReferences"][0];
    assert_eq!((&owner["kind"], &owner["name"]), (&json!("Node"), &json!(NODE)));
    assert_eq!(owner["uid"], server.state().objects.get("nodes", "", NODE).expect("is there")["metadata"]["uid"]);
    assert_eq!(container_id(&mirror), container_id(&own), "it tells of the one pod");
    // Whoever deletes the mirror doesn't delete the pod, and gets another mirror.
    server.delete("pods", &name, None);
    let again = server.wait("pods", &name, |pod| is_running(pod) && pod["metadata"]["uid"] != meta["uid"]);
    assert_eq!(container_id(&again), container_id(&own));
    // Another pod has another mirror.
    node.write("web", &pod("web", "sleep 2000"));
    let other = server.wait("pods", &name, |pod| is_running(pod) && container_id(pod) != container_id(&own));
    assert_ne!(other["metadata"]["annotations"]["kubernetes.io/config.mirror"], *hash);
    node.remove("web");
    server.wait_gone("pods", &name);
    node.nothing_left();
}

/// The pods of the server that run, by name.
#[track_caller]
fn all_run(server: &ApiServer, names: &[String]) {
    for name in names {
        server.wait("pods", name, is_running);
    }
}

#[test]
fn a_watch_that_is_cut_or_silent_or_too_old_loses_nothing() {
    let (node, server) = node();
    let name = |i: usize| format!("p-{i}");
    // Cut at all sorts of places: in the midst of a length, a name, a line.
    server.faults(Faults { cut_after: vec![1, 40, 700, 1903, 2600, 1], ..Faults::default() });
    server.disconnect();
    for i in 0..5 {
        server.create("pods", api_pod(&name(i), FOREVER, json!({})));
        all_run(&server, &[name(i)]);
    }
    eventually("all cuts", SOON, || match server.state().faults.cut_after.len() {
        0 => Ok(()),
        left => Err(format!("{left} left")),
    });
    // Too old by now: everything is listed again.
    server.compact();
    server.delete("pods", &name(0), None);
    server.wait_gone("pods", &name(0));
    let lists = server.asked(|line| line == "GET /api/v1/pods").len();
    assert!(lists >= 2, "{lists}");
    // The server forgets a pod before the agent hears that it has.
    eventually("the others", SOON, || match node.agent.try_pods()?.len() {
        4 => Ok(()),
        count => Err(format!("{count} pods")),
    });
}

#[test]
fn another_server_has_another_truth() {
    let (node, mut server) = node();
    server.create("pods", api_pod("old", FOREVER, json!({})));
    node.write("own", &pod("own", "sleep 1000"));
    server.wait("pods", "old", is_running);
    server.wait("pods", &format!("own-{NODE}"), is_running);
    let own = container_id(&node.runs("own"));
    server.close();
    // Away, it takes nothing with it.
    node.told("those that are known are kept");
    assert_eq!(node.agent.pods().len(), 2);
    server.replace();
    server.open();
    server.create("pods", api_pod("new", FOREVER, json!({})));
    server.wait("pods", "new", is_running);
    // Its node is another, and so the mirror's owner.
    let mirror = server.wait("pods", &format!("own-{NODE}"), is_running);
    assert_eq!(container_id(&mirror), own, "the static pod went on");
    eventually("the end of the old pod", SOON, || match node.agent.try_pods()? {
        pods if pods.len() == 2 => Ok(()),
        pods => Err(format!("{} pods", pods.len())),
    });
}

#[test]
fn cut_off_and_started_again_all_pods_run() {
    let (mut node, mut server) = node();
    server.create("serviceaccounts", json!({"metadata": {"name": "default"}}));
    server.create("configmaps", config_map("settings", "one"));
    server.create(
        "secrets",
        json!({"kind": "Secret", "metadata": {"name": "s"}, "type": "Opaque", "data": {"key": "aGVsbG8="}}),
    );
    let more = json!({
        "volumes": [{"name": "all", "projected": {"sources": [
            {"configMap": {"name": "settings"}}, {"serviceAccountToken": {"path": "token"}},
            {"secret": {"name": "none", "optional": true}}]}}],
        "volumeMounts": [{"name": "all", "mountPath": "/all"}],
        "env": [{"name": "SECRET", "valueFrom": {"secretKeyRef": {"name": "s", "key": "key"}}}],
    });
    let script = "cat /all/key; echo $SECRET; while :; do sleep 0.1; done";
    let names: Vec<_> = (0..3).map(|i| format!("p-{i}")).collect();
    for name in &names {
        server.create("pods", api_pod(name, script, more.clone()));
    }
    server.create("pods", api_pod("done", "exit 0", json!({"restartPolicy": "Never"})));
    all_run(&server, &names);
    server.wait("pods", "done", |pod| pod["status"]["phase"] == "Succeeded");
    server.close();
    // The power goes: nothing is left but what is on disk.
    node.agent.kill();
    node.containerd.forget_everything();
    node.agent.start();
    for name in &names {
        // What is told at first is how it was before.
        let pod = eventually(name, SOON, || {
            let pod = node.agent.try_pods()?.into_iter().find(|pod| pod["metadata"]["name"] == name.as_str());
            let pod = pod.ok_or("it is not there")?;
            let token = node.exec(&pod, "main", "cat /all/token")?;
            if token.starts_with("default.default.") { Ok(pod) } else { Err(format!("the token is {token:?}")) }
        });
        let attempt = pod["status"]["containerStatuses"][0]["restartCount"].as_u64().expect("a number");
        node.says(&pod, "main", u32::try_from(attempt).expect("fits"), "onehello");
    }
    // Only root reads what is kept.
    for directory in ["api/pods", "api/objects"] {
        use std::os::unix::fs::PermissionsExt;
        let path = node.agent.root().join(directory);
        assert_eq!(std::fs::metadata(&path).expect("is there").permissions().mode() & 0o077, 0, "{}", path.display());
    }
    // Back again, what happened meanwhile is caught up with.
    server.state().objects.delete("pods", "default", "p-0", &json!({"gracePeriodSeconds": 0})).expect("is there");
    server.patch("configmaps", "settings", &json!({"data": {"key": "two"}}));
    server.open();
    server.create("pods", api_pod("new", FOREVER, json!({})));
    server.wait("pods", "new", is_running);
    eventually("the new text", SOON, || {
        // At first the server has what it was told before the power went.
        let pod = server.get("pods", "p-1").filter(is_running).ok_or("it doesn't run")?;
        match node.exec(&pod, "main", "cat /all/key")? {
            text if text == "two" => Ok(()),
            text => Err(text),
        }
    });
    eventually("the end of p-0", SOON, || {
        let there = node.agent.try_pods()?.iter().any(|pod| pod["metadata"]["name"] == "p-0");
        if there { Err("it is there".to_owned()) } else { Ok(()) }
    });
    let done = server.get("pods", "done").expect("is there");
    assert_eq!(done["status"]["phase"], "Succeeded", "what has ended is not run again");
    assert!(done["status"]["containerStatuses"][0]["restartCount"] == 0);
}

#[test]
fn clocks_may_differ() {
    let (node, server) = node();
    server.create("serviceaccounts", json!({"metadata": {"name": "default"}}));
    let more = || {
        json!({
            "terminationGracePeriodSeconds": 60,
            "volumes": [{"name": "t", "projected": {"sources": [{"serviceAccountToken": {"path": "token"}}]}}],
            "volumeMounts": [{"name": "t", "mountPath": "/t"}],
        })
    };
    let script = "trap 'sleep 2; exit 0' TERM; while :; do sleep 0.1; done";
    for (name, skew) in [("ahead", 1_000_000_i64), ("behind", -1_000_000)] {
        server.state().objects.skew = skew;
        server.create("pods", api_pod(name, script, more()));
        let pod = server.wait("pods", name, |pod| is_running(pod) && is_ready(pod));
        assert!(node.exec(&pod, "main", "cat /t/token").is_ok());
        // The time by which it has to have ended is long over, or far away: it gets its grace period.
        server.delete("pods", name, None);
        server.wait_gone("pods", name);
        let ended =
            server.state().objects.history.iter().rev().find(|h| h.kind == "DELETED").expect("its end").object.clone();
        assert_eq!((&ended["metadata"]["name"], &ended["status"]["phase"]), (&json!(name), &json!("Succeeded")));
    }
}

/// It takes longer than a minute until a connection that says nothing counts as dead.
#[test]
fn a_half_open_watch_is_noticed() {
    let (mut node, server) = configured(json!({"syncFrequency": "10m"}));
    server.create("configmaps", config_map("m", "1"));
    server.create("pods", reader("a", &["m".to_owned()]));
    let pod = server.wait("pods", "a", is_running);
    watches(&mut node, 1);
    server.faults(Faults { silent: true, ..Faults::default() });
    server.create("pods", api_pod("b", FOREVER, json!({})));
    server.patch("configmaps", "m", &json!({"data": {"key": "2"}}));
    eventually("a word on it", Duration::from_secs(240), || {
        match node.agent.log().contains("not a word for too long") {
            true => Ok(()),
            false => Err("there is none".to_owned()),
        }
    });
    // Since nothing came over the watch, all pods are listed, and all objects asked for.
    server.wait("pods", "b", is_running);
    reads(&node, &pod, "/m/key", "2");
    server.faults(Faults::default());
    server.create("pods", api_pod("c", FOREVER, json!({})));
    server.wait("pods", "c", is_running);
}

#[test]
fn other_credentials_are_taken_up_and_wrong_ones_cost_no_pod() {
    let (node, server) = node();
    server.create("pods", api_pod("a", FOREVER, json!({})));
    let before = container_id(&server.wait("pods", "a", is_running));
    server.faults(Faults { token: Some("new".to_owned()), ..Faults::default() });
    server.disconnect();
    server.create("pods", api_pod("b", FOREVER, json!({})));
    node.told("Unauthorized (401)");
    server
        .write_kubeconfig(&json!({"server": format!("http://127.0.0.1:{}", server.port())}), &json!({"token": "new"}));
    server.wait("pods", "b", is_running);
    assert_eq!(container_id(&server.wait("pods", "a", is_running)), before);
}

#[cfg(feature = "tls")]
#[test]
fn over_tls_with_certificates_that_pass() {
    use std::sync::{Arc, Mutex};

    use rustls::pki_types::pem::PemObject;
    use rustls::pki_types::{CertificateDer, PrivateKeyDer};
    use rustls::{ServerConfig, ServerConnection, StreamOwned};
    use support::http::Authority;

    let config = |(certificate, key): (String, String)| {
        let chain = vec![CertificateDer::from_pem_slice(certificate.as_bytes()).expect("is one")];
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("is a key");
        let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("has versions")
            .with_no_client_auth()
            .with_single_cert(chain, key);
        Arc::new(config.expect("is a pair"))
    };
    let containerd = Containerd::start();
    let authority = Authority::new("tests");
    let served = Arc::new(Mutex::new(config(authority.server(&["kubernetes"]))));
    let serves = served.clone();
    let accept = move |stream| -> Option<Box<dyn support::apiserver::Connection>> {
        let config = serves.lock().expect("is whole").clone();
        Some(Box::new(StreamOwned::new(ServerConnection::new(config).ok()?, stream)))
    };
    let server = ApiServer::accepting(containerd.cell(), PORT, Arc::new(accept));
    let ca = authority.write(containerd.cell().dir().join("ca.crt"));
    let cluster = json!({"server": format!("https://127.0.0.1:{PORT}"), "tls-server-name": "kubernetes",
        "certificate-authority": ca.file_name().and_then(|name| name.to_str())});
    let kubeconfig = server.write_kubeconfig(&cluster, &json!({"token": "t"}));
    let node = join(containerd, &kubeconfig, json!({}));
    server.create("pods", api_pod("a", FOREVER, json!({})));
    let before = container_id(&server.wait("pods", "a", is_running));
    // It is out of date: nobody who can't be trusted takes pods away or brings any.
    *served.lock().expect("is whole") = config(authority.ended_server("kubernetes"));
    server.disconnect();
    node.told("certificate expired");
    server.create("pods", api_pod("b", FOREVER, json!({})));
    server.delete("pods", "a", None);
    assert_eq!(node.agent.pods().len(), 1);
    *served.lock().expect("is whole") = config(authority.server(&["kubernetes"]));
    server.wait("pods", "b", is_running);
    server.wait_gone("pods", "a");
    assert!(!node.containerd.tasks().contains_key(&before));
}

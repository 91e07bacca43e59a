//! Pods from the manifest directory on a real containerd.

mod support;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

use serde_json::Value;
use support::node::{Node, SOON, container_id, pod};
use support::{BUSYBOX, eventually};

#[test]
fn a_pod_comes_follows_its_file_and_goes() {
    let node = Node::start();
    node.agent.write_manifest("web.yaml", &pod("web", "echo one; sleep 1000"));
    let first = node.runs("web");
    node.says(&first, "main", 0, "one");
    let meta = &first["metadata"];
    assert_eq!(meta["name"], "web-edge-1");
    assert_eq!(meta["namespace"], "default");
    assert_eq!(meta["annotations"]["kubernetes.io/config.source"], "file");
    assert_eq!(meta["annotations"]["kubernetes.io/config.hash"], meta["uid"]);
    let status = &first["status"];
    assert_eq!(status["hostIP"], "192.0.2.10");
    assert!(status["podIP"].as_str().is_some_and(|ip| !ip.is_empty()));
    for kind in ["PodScheduled", "Initialized", "ContainersReady", "Ready", "PodReadyToStartContainers"] {
        let conditions = status["conditions"].as_array().expect("has conditions");
        let met = conditions.iter().any(|c| c["type"] == kind && c["status"] == "True");
        assert!(met, "{kind}: {status:#}");
    }

    let containers = node.containerd.containers();
    let of_kind = |sandbox| containers.iter().find(|c| c.is_sandbox() == sandbox).expect("is there");
    let label = |sandbox, key: &str| of_kind(sandbox).labels.get(key).cloned().unwrap_or_default();
    assert_eq!(label(true, "io.kubernetes.pod.uid"), meta["uid"].as_str().expect("has one"));
    assert_eq!(label(true, "app"), "web");
    assert_eq!(label(false, "io.kubernetes.pod.name"), "web-edge-1");
    assert_eq!(label(false, "io.kubernetes.container.name"), "main");
    let link = format!("/var/log/containers/web-edge-1_default_main-{}.log", container_id(&first));
    let link = node.containerd.cell().path(Path::new(&link));
    assert_eq!(fs::read_link(link).expect("is linked"), node.log_file(&first, "main", 0));

    node.agent.write_manifest("web.yaml", &pod("web", "echo two; sleep 1000"));
    let second = node.agent.wait_pod("web", SOON, |pod| {
        pod["metadata"]["uid"] != first["metadata"]["uid"] && pod["status"]["phase"] == "Running"
    });
    node.says(&second, "main", 0, "two");
    node.agent.remove_manifest("web.yaml");
    node.agent.wait_gone("web", SOON);
    node.nothing_left();
}

#[test]
fn all_forms_of_manifests() {
    let node = Node::start();
    let json = format!(
        r#"{{"apiVersion": "v1", "kind": "Pod", "metadata": {{"name": "json"}}, "spec": {{"containers": [{{"name": "main", "image": "{BUSYBOX}", "command": ["sleep", "1000"]}}]}}}}"#
    );
    node.agent.write_manifest("a.json", &json);
    node.agent.write_manifest("b.manifest", &format!("{}---\n{}", pod("one", "sleep 1000"), pod("two", "sleep 1000")));
    let item = pod("item", "sleep 1000").replace('\n', "\n  ");
    node.agent.write_manifest("list", &format!("apiVersion: v1\nkind: List\nitems:\n- {}\n", item.trim_end()));
    node.agent.write_manifest("old.yaml.bak", &pod("backup", "sleep 1000"));
    node.agent.write_manifest("broken.yml", "kind: [");
    for name in ["json", "one", "two", "item"] {
        node.runs(name);
    }
    assert_eq!(node.agent.pods().len(), 4);
}

/// COMPLAINTS 41: a typo saved in place, and a directory that vanishes, take no pod down.
#[test]
fn a_typo_and_a_lost_directory_take_nothing_down() {
    let node = Node::start();
    node.agent.write_manifest("web.yaml", &pod("web", "sleep 1000"));
    let id = container_id(&node.runs("web"));
    let file = node.agent.manifests().join("web.yaml");
    fs::write(&file, "apiVersion: v1\nkind: Pod\nspec: {").expect("writes");
    let told = || node.agent.log().contains("web.yaml:3: ");
    eventually("the error in the log", SOON, || if told() { Ok(()) } else { Err("not there".to_owned()) });
    fs::write(&file, pod("web", "sleep 1000")).expect("writes");
    eventually("the good news", SOON, || match node.agent.log().contains("has no problem any more") {
        true => Ok(()),
        false => Err("not there".to_owned()),
    });
    let aside = node.agent.manifests().with_extension("aside");
    fs::rename(node.agent.manifests(), &aside).expect("moves");
    eventually("the error in the log", SOON, || match node.agent.log().contains("the pods that it gave are kept") {
        true => Ok(()),
        false => Err("not there".to_owned()),
    });
    assert_eq!(container_id(&node.runs("web")), id);
    fs::rename(&aside, node.agent.manifests()).expect("moves");
    node.agent.write_manifest("other.yaml", &pod("other", "sleep 1000"));
    node.runs("other");
    assert_eq!(container_id(&node.runs("web")), id, "it is still the same container");
}

#[test]
fn what_dies_comes_back() {
    let node = Node::start();
    let two =
        format!("{}  - name: side\n    image: {BUSYBOX}\n    command: [sleep, '1000']\n", pod("web", "sleep 1000"));
    node.agent.write_manifest("web.yaml", &two);
    let pod = node.runs("web");
    let (main, side) = (&pod["status"]["containerStatuses"][0], &pod["status"]["containerStatuses"][1]);
    let id = |status: &Value| status["containerID"].as_str().expect("has an id").replace("containerd://", "");
    node.containerd.ctr(&["tasks", "kill", "-s", "KILL", &id(main)]);
    let again = node.agent.wait_pod("web", SOON, |pod| {
        let main = &pod["status"]["containerStatuses"][0];
        main["restartCount"] == 1 && !main["state"]["running"].is_null()
    });
    let last = &again["status"]["containerStatuses"][0]["lastState"]["terminated"];
    assert_eq!((&last["exitCode"], &last["containerID"]), (&137.into(), &main["containerID"]));
    assert_eq!(again["status"]["containerStatuses"][1]["containerID"], side["containerID"], "the other one goes on");

    let sandbox = node.containerd.containers().into_iter().find(|c| c.is_sandbox()).expect("is there").id;
    node.containerd.ctr(&["tasks", "kill", "-s", "KILL", &sandbox]);
    node.agent.wait_pod("web", SOON, |pod| {
        let all = pod["status"]["containerStatuses"].as_array().cloned().unwrap_or_default();
        all.iter().all(|c| !c["state"]["running"].is_null())
            && pod["status"]["containerStatuses"][1]["restartCount"] == 1
    });
}

#[test]
fn the_agent_restarts_and_the_pods_go_on() {
    let mut node = Node::start();
    for name in ["stays", "goes", "changes"] {
        node.agent.write_manifest(&format!("{name}.yaml"), &pod(name, "echo old; sleep 1000"));
    }
    node.agent.write_manifest("once.yaml", &pod("once", "exit 3").replace("spec:", "spec:\n  restartPolicy: Never"));
    let stays = node.runs("stays");
    node.runs("goes");
    let changes = node.runs("changes");
    node.agent.wait_pod("once", SOON, |pod| pod["status"]["phase"] == "Failed");
    node.agent.kill();
    node.agent.remove_manifest("goes.yaml");
    node.agent.write_manifest("changes.yaml", &pod("changes", "echo new; sleep 1000"));
    fs::remove_dir_all(node.log_file(&stays, "main", 0).parent().expect("has one")).expect("removes");
    node.agent.start();

    let changed = node.agent.wait_pod("changes", SOON, |pod| {
        pod["metadata"]["uid"] != changes["metadata"]["uid"] && pod["status"]["phase"] == "Running"
    });
    node.says(&changed, "main", 0, "new");
    let still = node.runs("stays");
    for path in ["uid", "name"] {
        assert_eq!(still["metadata"][path], stays["metadata"][path]);
    }
    assert_eq!(still["status"]["startTime"], stays["status"]["startTime"]);
    assert_eq!(still["status"]["containerStatuses"], stays["status"]["containerStatuses"]);
    let once = node.agent.wait_pod("once", SOON, |pod| pod["status"]["phase"] == "Failed");
    assert_eq!(once["status"]["containerStatuses"][0]["restartCount"], 0, "it has ended for good");
    node.agent.wait_gone("goes", SOON);
    let label = |name: &str| format!("{name}-edge-1");
    eventually("the end of what went", SOON, || {
        let all = node.containerd.containers();
        let left = all.iter().filter(|c| c.labels.get("io.kubernetes.pod.name") == Some(&label("goes"))).count();
        if left == 0 { Ok(()) } else { Err(format!("{left} are left")) }
    });
    for file in ["stays", "changes", "once"] {
        node.agent.remove_manifest(&format!("{file}.yaml"));
    }
    node.nothing_left();
}

/// The log of a container is made again when somebody removed it, at the latest with the next look.
#[test]
fn a_lost_log_is_made_again() {
    let node = Node::configured(serde_json::json!({"syncFrequency": "1s"}));
    node.agent.write_manifest("web.yaml", &pod("web", "while true; do echo tick; sleep 0.2; done"));
    let web = node.runs("web");
    let log = node.log_file(&web, "main", 0);
    fs::remove_dir_all(log.parent().expect("has one")).expect("removes");
    eventually("the log", SOON, || match fs::metadata(&log).map(|meta| meta.len()) {
        Ok(length) if length > 0 => Ok(()),
        other => Err(format!("{other:?}")),
    });
}

/// kubernetes#104648: removed and written again in haste.
#[test]
fn kubernetes_104648_a_manifest_that_flickers() {
    let node = Node::start();
    let text = pod("web", "sleep 1000");
    for _ in 0..100 {
        node.agent.write_manifest("web.yaml", &text);
        node.agent.remove_manifest("web.yaml");
    }
    node.agent.write_manifest("web.yaml", &text);
    eventually("one running pod", SOON, || {
        let running = node.containerd.tasks().values().filter(|task| task.status == "RUNNING").count();
        if running == 2 { Ok(()) } else { Err(format!("{running} tasks run")) }
    });
    node.runs("web");
}

#[test]
fn two_files_for_one_pod() {
    let node = Node::start();
    node.agent.write_manifest("b.yaml", &pod("twin", "echo b; sleep 1000"));
    let first = node.runs("twin");
    node.says(&first, "main", 0, "b");
    node.agent.write_manifest("a.yaml", &pod("twin", "echo a; sleep 1000"));
    eventually("the conflict in the log", SOON, || {
        let log = node.agent.log();
        let told = log
            .lines()
            .any(|line| line.contains("/a.yaml: pod default/twin-edge-1 is that of") && line.contains("/b.yaml"));
        if told { Ok(()) } else { Err("not there".to_owned()) }
    });
    assert_eq!(container_id(&node.runs("twin")), container_id(&first));
    node.agent.remove_manifest("b.yaml");
    let second = node.agent.wait_pod("twin", SOON, |pod| {
        pod["metadata"]["uid"] != first["metadata"]["uid"] && pod["status"]["phase"] == "Running"
    });
    node.says(&second, "main", 0, "a");
}

#[test]
fn containerd_stops_for_a_while() {
    let node = Node::start();
    node.agent.write_manifest("web.yaml", &pod("web", "sleep 1000"));
    let id = container_id(&node.runs("web"));
    node.containerd.stop();
    eventually("an unhealthy agent", SOON, || node.agent.healthz().map_or(Ok(()), |()| Err("healthy".to_owned())));
    node.agent.write_manifest("later.yaml", &pod("later", "sleep 1000"));
    node.containerd.launch();
    let start = Instant::now();
    node.runs("later");
    assert!(start.elapsed() < Duration::from_secs(10), "it took {:?}", start.elapsed());
    node.agent.healthz().expect("it is healthy again");
    assert_eq!(container_id(&node.runs("web")), id, "what ran is untouched");

    node.containerd.pause();
    node.agent.write_manifest("hangs.yaml", &pod("hangs", "sleep 1000"));
    std::thread::sleep(Duration::from_secs(3));
    assert_eq!(node.agent.pods().len(), 3, "the agent goes on answering");
    node.containerd.resume();
    node.runs("hangs");
    assert_eq!(container_id(&node.runs("web")), id);
}

//! A pod's whole life on a real containerd: init containers, sidecars, hooks, ends, restarts.

mod support;

use std::fs;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::node::{Node, SOON, container_id, entries, pod};
use support::{BUSYBOX, eventually};

/// A pod from the JSON of its spec.
fn of(name: &str, spec: Value) -> String {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}).to_string()
}

/// A container that runs `script`.
fn sh(name: &str, script: &str) -> Value {
    json!({"name": name, "image": BUSYBOX, "command": ["sh", "-c", script]})
}

fn with(mut value: Value, more: Value) -> Value {
    let fields = more.as_object().expect("fields").clone();
    value.as_object_mut().expect("an object").extend(fields);
    value
}

/// A script that runs until it is told to end, and notes both in a shared file.
fn noted(name: &str) -> String {
    format!(
        "echo {name} begins >> /out/story; trap 'echo {name} ends >> /out/story; exit 0' TERM; while true; do sleep 0.1; done"
    )
}

fn shared_volume(path: &std::path::Path) -> Value {
    json!([{"name": "out", "hostPath": {"path": path}}])
}

fn mounted(container: Value) -> Value {
    with(container, json!({"volumeMounts": [{"name": "out", "mountPath": "/out"}]}))
}

#[track_caller]
fn story(file: &std::path::Path, want: &[&str]) {
    eventually("the story", SOON, || {
        let text = fs::read_to_string(file).unwrap_or_default();
        let lines: Vec<_> = text.lines().collect();
        if lines == want { Ok(()) } else { Err(format!("{lines:?}")) }
    });
}

#[test]
fn init_containers_sidecars_and_containers_in_order() {
    let node = Node::start();
    let out = node.shared("order");
    let spec = json!({
        "terminationGracePeriodSeconds": 10,
        "volumes": shared_volume(&out),
        "initContainers": [
            mounted(sh("first", "echo first >> /out/story")),
            mounted(with(sh("side", &noted("side")), json!({"restartPolicy": "Always"}))),
            mounted(with(sh("other", &noted("other")), json!({"restartPolicy": "Always"}))),
            mounted(sh("second", "sleep 0.3; echo second >> /out/story")),
        ],
        "containers": [mounted(sh("main", &noted("main")))],
    });
    node.write("web", &of("web", spec));
    let web = node.runs("web");
    let init = web["status"]["initContainerStatuses"].as_array().expect("has them").clone();
    assert_eq!(init[0]["state"]["terminated"]["reason"], "Completed");
    assert!(!init[1]["state"]["running"].is_null() && init[1]["ready"] == true, "{init:#?}");
    story(&out.join("story"), &["first", "side begins", "other begins", "second", "main begins"]);
    node.remove("web");
    let ends = ["main ends", "other ends", "side ends"];
    let all: Vec<_> =
        ["first", "side begins", "other begins", "second", "main begins"].into_iter().chain(ends).collect();
    story(&out.join("story"), &all);
    node.nothing_left();
}

#[test]
fn init_containers_run_again_in_a_new_sandbox_and_not_otherwise() {
    let mut node = Node::start();
    let spec = json!({
        "initContainers": [sh("init", "echo ran")],
        "containers": [sh("main", "sleep 1000")],
    });
    node.write("web", &of("web", spec));
    let count = |pod: &Value| pod["status"]["initContainerStatuses"][0]["restartCount"].clone();
    let web = node.runs("web");
    assert_eq!(count(&web), 0);
    node.containerd.ctr(&["tasks", "kill", "-s", "KILL", &container_id(&web)]);
    node.agent.wait_pod("web", SOON, |pod| pod["status"]["containerStatuses"][0]["restartCount"] == 1);
    node.agent.kill();
    node.agent.start();
    assert_eq!(count(&node.runs("web")), 0, "neither a restart of the container nor of the agent runs it again");
    let sandbox = node.containerd.containers().into_iter().find(|c| c.is_sandbox()).expect("is there").id;
    node.containerd.ctr(&["tasks", "kill", "-s", "KILL", &sandbox]);
    let again = node.agent.wait_pod("web", SOON, |pod| {
        count(pod) == 1 && !pod["status"]["containerStatuses"][0]["state"]["running"].is_null()
    });
    node.says(&again, "init", 1, "ran");
}

#[test]
fn an_init_container_that_fails() {
    let node = Node::start();
    let spec = |policy: &str| {
        json!({
            "restartPolicy": policy,
            "initContainers": [sh("init", "exit 4"), sh("never", "echo never")],
            "containers": [sh("main", "sleep 1000")],
        })
    };
    node.write("never", &of("never", spec("Never")));
    node.write("again", &of("again", spec("OnFailure")));
    let failed = node.reaches("never", "Failed");
    let status = &failed["status"];
    assert_eq!(status["initContainerStatuses"][0]["state"]["terminated"]["exitCode"], 4);
    assert_eq!(status["initContainerStatuses"][1]["state"]["waiting"]["reason"], "PodInitializing");
    assert_eq!(status["containerStatuses"][0]["state"]["waiting"]["reason"], "PodInitializing");
    let pending = node.agent.wait_pod("again", SOON, |pod| {
        pod["status"]["initContainerStatuses"][0]["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    });
    assert_eq!(pending["status"]["phase"], "Pending");
    assert_eq!(pending["status"]["initContainerStatuses"][0]["lastState"]["terminated"]["exitCode"], 4);
}

#[test]
fn a_sidecar_comes_back_and_keeps_no_pod_alive() {
    let node = Node::start();
    let spec = json!({
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "initContainers": [with(sh("side", "sleep 1000"), json!({"restartPolicy": "Always"}))],
        "containers": [sh("main", "while [ ! -e /tmp/done ]; do sleep 0.1; done")],
    });
    node.write("job", &of("job", spec));
    let job = node.runs("job");
    let side = job["status"]["initContainerStatuses"][0]["containerID"]
        .as_str()
        .expect("has one")
        .replace("containerd://", "");
    node.containerd.ctr(&["tasks", "kill", "-s", "KILL", &side]);
    node.agent.wait_pod("job", SOON, |pod| {
        let side = &pod["status"]["initContainerStatuses"][0];
        side["restartCount"] == 1 && !side["state"]["running"].is_null()
    });
    node.containerd.ctr(&["tasks", "exec", "--exec-id", "x", &container_id(&job), "touch", "/tmp/done"]);
    let done = node.agent.wait_pod("job", SOON, |pod| {
        pod["status"]["phase"] == "Succeeded"
            && !pod["status"]["initContainerStatuses"][0]["state"]["terminated"].is_null()
    });
    assert_eq!(done["status"]["containerStatuses"][0]["state"]["terminated"]["reason"], "Completed");
    let left = node.containerd.tasks();
    assert!(left.values().all(|task| task.status != "RUNNING"), "{left:?}");
}

#[test]
fn hooks() {
    let node = Node::start();
    let out = node.shared("hooks");
    let main = mounted(with(
        sh("main", &noted("main")),
        json!({"lifecycle": {
            "postStart": {"exec": {"command": ["sh", "-c", "sleep 0.5; echo postStart >> /out/story"]}},
            "preStop": {"exec": {"command": ["sh", "-c", "sleep 0.5; echo preStop >> /out/story"]}},
        }}),
    ));
    let spec = json!({
        "terminationGracePeriodSeconds": 20,
        "volumes": shared_volume(&out),
        "containers": [main, mounted(sh("next", "echo next >> /out/story; sleep 1000"))],
    });
    node.write("web", &of("web", spec));
    node.runs("web");
    let begun = ["main begins", "postStart", "next"];
    story(&out.join("story"), &begun);
    node.remove("web");
    eventually("the story", SOON, || {
        let text = fs::read_to_string(out.join("story")).unwrap_or_default();
        if text.ends_with("preStop\nmain ends\n") { Ok(()) } else { Err(text) }
    });

    let failing = with(
        sh("main", "sleep 1000"),
        json!({"lifecycle": {"postStart": {"exec": {"command": ["sh", "-c", "echo it says why; exit 7"]}}}}),
    );
    node.write("bad", &of("bad", json!({"terminationGracePeriodSeconds": 1, "containers": [failing]})));
    node.told("FailedPostStartHook");
    node.agent.wait_pod("bad", SOON, |pod| {
        let reason = &pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"];
        reason == "PostStartHookError" || reason == "CrashLoopBackOff"
    });
    assert!(!node.agent.log().contains("it says why"), "what a hook says may be a secret");
}

#[test]
fn hooks_over_http() {
    let node = Node::start();
    let out = node.shared("http");
    // It answers each request with an error, which is an answer, and never speaks TLS.
    let serve = "echo 'dd bs=4k count=1 >> /out/story; echo HTTP/1.0 500 no; echo' > /serve;
        nc -ll -p 8080 -e sh /serve & trap 'exit 0' TERM; while true; do sleep 0.1; done";
    let get = |more| with(json!({"port": "web", "path": "/hook?a=1"}), more);
    let main = mounted(with(
        sh("main", serve),
        json!({
            "ports": [{"name": "web", "containerPort": 8080}],
            "lifecycle": {"preStop": {"httpGet": get(json!({}))}},
            "readinessProbe": {"tcpSocket": {"port": "web"}, "periodSeconds": 1},
        }),
    ));
    let spec = |main| json!({"volumes": shared_volume(&out), "containers": [main]});
    let tls = with(main.clone(), json!({"lifecycle": {"preStop": {"httpGet": get(json!({"scheme": "HTTPS"}))}}}));
    let requests = || {
        let asked = fs::read(out.join("story")).unwrap_or_default();
        String::from_utf8_lossy(&asked).matches("GET /hook?a=1 HTTP/1.1").count()
    };
    for (i, (name, main)) in [("plain", main), ("tls", tls)].into_iter().enumerate() {
        node.write(name, &of(name, spec(main)));
        node.agent.wait_pod(name, SOON, |pod| pod["status"]["containerStatuses"][0]["ready"] == true);
        assert_eq!(requests(), i);
        node.remove(name);
        node.agent.wait_gone(name, SOON);
        eventually("the request", SOON, || (requests() == i + 1).then_some(()).ok_or_else(|| requests().to_string()));
    }
    assert!(!node.agent.log().contains("FailedPreStopHook"));
    node.told("LifecycleHTTPFallback");
}

#[test]
fn grace_periods() {
    let node = Node::start();
    let deaf = |name: &str, grace: u64, hook: Value| {
        let container = with(sh("main", "trap '' TERM; while true; do sleep 0.1; done"), json!({"lifecycle": hook}));
        of(name, json!({"terminationGracePeriodSeconds": grace, "containers": [container]}))
    };
    let slow = json!({"preStop": {"exec": {"command": ["sleep", "1000"]}}});
    let sleeps = json!({"preStop": {"sleep": {"seconds": 3}}});
    // The name, its grace, its hook, how long its end may take: from and to.
    let table = [
        ("plain", 4, json!({}), 4.0, 7.0),
        ("hook", 3, slow, 5.0, 9.0),
        ("sleep", 5, sleeps, 5.0, 9.0),
        ("least", 0, json!({}), 2.0, 5.0),
    ];
    for (name, grace, hook, _, _) in &table {
        node.write(name, &deaf(name, *grace, hook.clone()));
    }
    let ids: Vec<_> = table.iter().map(|(name, ..)| container_id(&node.runs(name))).collect();
    let start = Instant::now();
    table.iter().for_each(|(name, ..)| node.remove(name));
    let mut took = vec![None; table.len()];
    eventually("the end of all", SOON, || {
        let tasks = node.containerd.tasks();
        for (id, took) in ids.iter().zip(&mut took) {
            if took.is_none() && tasks.get(id).is_none_or(|task| task.status == "STOPPED") {
                *took = Some(start.elapsed().as_secs_f64());
            }
        }
        if took.iter().all(Option::is_some) { Ok(()) } else { Err(format!("{took:?}")) }
    });
    for ((name, _, _, from, to), took) in table.iter().zip(took) {
        let took = took.expect("it ended");
        assert!((*from..*to).contains(&took), "{name} took {took:.1} s, not {from} to {to}");
    }
    node.nothing_left();
}

#[test]
fn an_orphan_gets_its_own_grace_period_and_hook() {
    let mut node = Node::start();
    let out = node.shared("orphan");
    let main = mounted(with(
        sh("main", &noted("main")),
        json!({"lifecycle": {"preStop": {"exec": {"command": ["sh", "-c", "echo preStop >> /out/story"]}}}}),
    ));
    let spec = json!({"terminationGracePeriodSeconds": 15, "volumes": shared_volume(&out), "containers": [main]});
    node.write("web", &of("web", spec));
    node.runs("web");
    story(&out.join("story"), &["main begins"]);
    node.agent.kill();
    node.remove("web");
    // The agent has lost its own records too: the containers' notes tell all.
    fs::remove_dir_all(node.agent.root().join("pods")).expect("removes");
    node.agent.start();
    story(&out.join("story"), &["main begins", "preStop", "main ends"]);
    node.nothing_left();
}

/// kubernetes#97722: the old pod gets its whole end before the new one of that name begins.
#[test]
fn kubernetes_97722_a_changed_pod_waits_for_the_old_one() {
    let node = Node::start();
    let out = node.shared("change");
    let version = |v: u32| {
        let script = format!(
            "echo v{v} begins >> /out/story; trap 'sleep 2; echo v{v} ends >> /out/story; exit 0' TERM; while true; do sleep 0.1; done"
        );
        of(
            "web",
            json!({
                "terminationGracePeriodSeconds": 20,
                "volumes": shared_volume(&out),
                "containers": [mounted(sh("main", &script))],
            }),
        )
    };
    node.write("web", &version(1));
    node.runs("web");
    story(&out.join("story"), &["v1 begins"]);
    node.write("web", &version(2));
    std::thread::sleep(Duration::from_millis(300));
    node.write("web", &version(3));
    story(&out.join("story"), &["v1 begins", "v1 ends", "v3 begins"]);
}

#[test]
fn a_deadline() {
    let node = Node::start();
    let spec = json!({
        "activeDeadlineSeconds": 3,
        "terminationGracePeriodSeconds": 1,
        "containers": [sh("main", "sleep 1000")],
    });
    node.write("late", &of("late", spec));
    let failed = node.agent.wait_pod("late", SOON, |pod| {
        pod["status"]["phase"] == "Failed" && !pod["status"]["containerStatuses"][0]["state"]["terminated"].is_null()
    });
    assert_eq!(failed["status"]["reason"], "DeadlineExceeded");
    assert!(node.containerd.tasks().values().all(|task| task.status != "RUNNING"));
}

#[test]
fn deletion_at_every_stage() {
    let node = Node::start();
    let slow_init = json!({"initContainers": [sh("init", "sleep 1000")], "containers": [sh("main", "true")], "terminationGracePeriodSeconds": 1});
    node.write("init", &of("init", slow_init));
    node.write("crash", &pod("crash", "exit 1"));
    node.write("image", &pod("image", "true").replace(BUSYBOX, "registry.invalid/none:1"));
    let volume = json!([{"name": "v", "hostPath": {"path": "/none/such", "type": "Directory"}}]);
    let waits = json!({"volumes": volume, "containers": [with(sh("main", "true"), json!({"volumeMounts": [{"name": "v", "mountPath": "/v"}]}))]});
    node.write("volume", &of("volume", waits));
    let waiting = |name: &str, reason: &str| {
        node.agent
            .wait_pod(name, SOON, |pod| pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == reason)
    };
    node.agent.wait_pod("init", SOON, |pod| !pod["status"]["initContainerStatuses"][0]["state"]["running"].is_null());
    let crash = waiting("crash", "CrashLoopBackOff");
    let message =
        crash["status"]["containerStatuses"][0]["state"]["waiting"]["message"].as_str().expect("says why").to_owned();
    assert!(
        message.starts_with("back-off 10s restarting failed container=main pod=crash-edge-1_default("),
        "{message}"
    );
    waiting("image", "ImagePullBackOff");
    waiting("volume", "ContainerCreating");
    node.told("FailedMount");
    node.write("creating", &pod("creating", "sleep 1000"));
    for name in ["creating", "init", "crash", "image", "volume"] {
        node.remove(name);
    }
    node.nothing_left();
}

#[test]
fn ends_and_their_reasons() {
    let mut node = Node::start();
    let never = |name: &str, container: Value| of(name, json!({"restartPolicy": "Never", "containers": [container]}));
    node.write("zero", &never("zero", sh("main", "exit 0")));
    node.write("three", &never("three", sh("main", "exit 3")));
    let memory = json!({"resources": {"limits": {"memory": "16Mi"}}});
    node.write("memory", &never("memory", with(sh("main", "sleep 2; x=x; while true; do x=$x$x; done"), memory)));
    node.write("start", &never("start", json!({"name": "main", "image": BUSYBOX, "command": ["/none/such"]})));
    let config = json!({"env": [{"name": "A", "valueFrom": {"secretKeyRef": {"name": "none", "key": "k"}}}]});
    node.write("config", &of("config", json!({"containers": [with(sh("main", "true"), config)]})));
    let ended = |node: &Node, name: &str| {
        let pod = node
            .agent
            .wait_pod(name, SOON, |pod| !pod["status"]["containerStatuses"][0]["state"]["terminated"].is_null());
        let t = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
        (
            t["reason"].as_str().expect("has one").to_owned(),
            t["exitCode"].as_i64().expect("has one"),
            pod["status"]["phase"].clone(),
        )
    };
    let table = [
        ("zero", ("Completed", 0, "Succeeded")),
        ("three", ("Error", 3, "Failed")),
        ("memory", ("OOMKilled", 137, "Failed")),
    ];
    for (name, (reason, code, phase)) in table {
        assert_eq!(ended(&node, name), (reason.to_owned(), code, json!(phase)), "{name}");
    }
    assert!(["StartError", "ContainerCannotRun"].contains(&ended(&node, "start").0.as_str()));
    let waits = node.agent.wait_pod("config", SOON, |pod| {
        pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "CreateContainerConfigError"
    });
    assert_eq!(waits["status"]["containerStatuses"][0]["state"]["waiting"]["message"], "secret \"none\" not found");
    node.agent.kill();
    node.agent.start();
    for (name, (reason, code, phase)) in table {
        assert_eq!(ended(&node, name), (reason.to_owned(), code, json!(phase)), "{name} after a restart of the agent");
    }
}

#[test]
fn termination_messages() {
    let node = Node::start();
    let fall_back = json!({"terminationMessagePolicy": "FallbackToLogsOnError"});
    let containers = json!([
        sh("file", "echo -n from the file > /dev/termination-log; exit 1"),
        with(sh("path", "echo -n other > /tmp/bye; exit 1"), json!({"terminationMessagePath": "/tmp/bye"})),
        with(sh("log", "echo the last words; exit 1"), fall_back.clone()),
        with(sh("good", "echo not told; exit 0"), fall_back),
        sh("long", "head -c 5000 /dev/zero | tr '\\\\0' x > /dev/termination-log; exit 1"),
    ]);
    node.write("bye", &of("bye", json!({"restartPolicy": "Never", "containers": containers})));
    let pod = node.reaches("bye", "Failed");
    let message = |name: &str| {
        let all = pod["status"]["containerStatuses"].as_array().expect("has them");
        let of = all.iter().find(|c| c["name"] == name).expect("is there");
        of["state"]["terminated"]["message"].as_str().unwrap_or_default().to_owned()
    };
    assert_eq!(message("file"), "from the file");
    assert_eq!(message("path"), "other");
    assert_eq!(message("log"), "the last words\n");
    assert_eq!(message("good"), "");
    assert_eq!(message("long").len(), 12 * 1024 / 5, "each container has its share of 12 KiB");
}

#[test]
fn a_container_restarts_by_its_own_rules() {
    let node = Node::start();
    let main = with(
        sh("main", "[ -e /out/once ] && exit 0; touch /out/once; exit 42"),
        json!({"restartPolicy": "Never", "restartPolicyRules": [{"action": "Restart", "exitCodes": {"operator": "In", "values": [42]}}]}),
    );
    let out = node.shared("rules");
    let spec = json!({"restartPolicy": "Never", "volumes": shared_volume(&out), "containers": [mounted(main)]});
    node.write("job", &of("job", spec));
    let done = node.reaches("job", "Succeeded");
    assert_eq!(done["status"]["containerStatuses"][0]["restartCount"], 1);
}

/// After a power cut the runtime has lost all that ran; everything comes back, and what had ended has.
#[test]
fn a_reboot() {
    let mut node = Node::start();
    node.write("web", &pod("web", "sleep 1000"));
    node.write("once", &of("once", json!({"restartPolicy": "Never", "containers": [sh("main", "exit 0")]})));
    let web = node.runs("web");
    node.reaches("once", "Succeeded");
    node.containerd.ctr(&["tasks", "kill", "-s", "KILL", &container_id(&web)]);
    let web = node.agent.wait_pod("web", SOON, |pod| {
        let main = &pod["status"]["containerStatuses"][0];
        main["restartCount"] == 1 && !main["state"]["running"].is_null()
    });
    node.agent.kill();
    node.containerd.forget_everything();
    let start = Instant::now();
    node.agent.start();
    // Until it has been looked at, it is shown as it was before.
    let again = node.agent.wait_pod("web", SOON, |pod| {
        let main = &pod["status"]["containerStatuses"][0];
        main["containerID"] != web["status"]["containerStatuses"][0]["containerID"]
            && !main["state"]["running"].is_null()
    });
    assert!(start.elapsed() < Duration::from_secs(10), "it took {:?}", start.elapsed());
    assert_eq!(again["metadata"]["uid"], web["metadata"]["uid"]);
    assert_eq!(again["status"]["containerStatuses"][0]["restartCount"], 2, "the count goes on, as the logs tell it");
    let once = node.reaches("once", "Succeeded");
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(node.reaches("once", "Succeeded")["status"], once["status"], "what has ended is not run again");
    assert_eq!(node.containerd.tasks().len(), 2, "only web's sandbox and container run");
}

/// The flags of the kubelet for dead containers, which the configuration file has no fields for.
#[test]
fn dead_containers_are_kept_as_many_as_wanted() {
    let config = json!({"crashLoopBackOff": {"maxContainerRestartPeriod": "1s"}});
    let flags = ["--maximum-dead-containers-per-container=3", "--minimum-container-ttl-duration=1s"];
    let node = Node::flagged(config, &flags);
    node.write("crash", &of("crash", json!({"containers": [sh("main", "exit 1"), sh("other", "sleep 100000")]})));
    let restarted = |pod: &Value, times: u64| {
        pod["status"]["containerStatuses"]
            .as_array()
            .into_iter()
            .flatten()
            .any(|c| c["restartCount"].as_u64() >= Some(times))
    };
    node.agent.wait_pod("crash", SOON, |pod| restarted(pod, 4));
    let attempts = || {
        let all = node.containerd.containers();
        let of_main =
            all.iter().filter(|c| c.labels.get("io.kubernetes.container.name").is_some_and(|name| name == "main"));
        of_main.count()
    };
    // The newest, dead or alive, and three before it.
    eventually("four containers", SOON, || match attempts() {
        4 => Ok(()),
        n => Err(format!("{n} containers")),
    });
    let pod = node.agent.wait_pod("crash", SOON, |pod| restarted(pod, 6));
    assert!(node.log_file(&pod, "main", 5).parent().is_some_and(|dir| fs::read_dir(dir).is_ok_and(|d| d.count() >= 3)));
    node.remove("crash");
    node.nothing_left();
}

#[test]
fn logs_are_rotated() {
    let node = Node::configured(json!({
        "containerLogMaxSize": "20Ki", "containerLogMaxFiles": 3, "containerLogMonitorInterval": "3s",
    }));
    node.write("chatty", &pod("chatty", "i=0; while true; do i=$((i+1)); echo line $i 012345678901234567890123456789; [ $((i % 100)) = 0 ] && sleep 0.2; done"));
    let web = node.runs("chatty");
    let directory = node.log_file(&web, "main", 0).parent().expect("has one").to_owned();
    eventually("rotated logs", SOON, || {
        let mut names: Vec<_> = fs::read_dir(&directory)
            .expect("reads")
            .map(|e| e.expect("reads").file_name().into_string().expect("text"))
            .collect();
        names.sort();
        let good = names.len() == 3 && names[0] == "0.log" && names[1].ends_with(".gz");
        if good { Ok(()) } else { Err(format!("{names:?}")) }
    });
    node.remove("chatty");
    node.nothing_left();
}

/// `PODS=1000` makes it longer: short pods come and go, and nothing stays, neither on the node nor in
/// the agent's memory.
#[test]
fn many_short_pods_leave_nothing() {
    let mut node = Node::start();
    let total: usize = std::env::var("PODS").ok().and_then(|n| n.parse().ok()).unwrap_or(40);
    let mut memory = Vec::new();
    for round in 0..total / 20 {
        let names: Vec<_> = (0..20).map(|i| format!("p{round}-{i}")).collect();
        for name in &names {
            node.write(name, &pod(name, "true").replace("spec:", "spec:\n  restartPolicy: Never"));
        }
        names.iter().for_each(|name| drop(node.reaches(name, "Succeeded")));
        names.iter().for_each(|name| node.remove(name));
        node.nothing_left();
        assert_eq!(entries(&node.containerd.cell().path("/var/log/containers")), 0);
        let pid = node.agent.process().pid();
        let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup")).expect("the agent runs");
        let dirty = rollup.lines().find(|l| l.starts_with("Private_Dirty:")).expect("has it");
        memory.push(dirty.split_whitespace().nth(1).expect("a number").parse::<u64>().expect("a number"));
    }
    println!("private dirty KiB after each 20 pods: {memory:?}");
    if total >= 1000 {
        let (early, late) = (memory[total / 100], memory[memory.len() - 1]);
        assert!(late < early + 1024, "it grew from {early} to {late} KiB");
    }
}

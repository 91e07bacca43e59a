//! Probes on a real containerd: each kind of them, and how they work together.
#![cfg(feature = "tls")]

mod support;

use std::fs;
use std::path::Path;
use std::time::{Duration, Instant, SystemTime};

use cleat::cri::proto::health::health_check_response::ServingStatus;
use serde_json::{Value, json};
use support::node::{Node, SOON, container_id};
use support::target::{Answer, Health, Target};
use support::{BUSYBOX, condition, eventually};

/// A pod from the JSON of its spec.
fn of(name: &str, spec: Value) -> String {
    let spec = with(json!({"terminationGracePeriodSeconds": 1}), spec);
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}).to_string()
}

/// A container that runs `script`.
fn sh(name: &str, script: &str) -> Value {
    json!({"name": name, "image": BUSYBOX, "command": ["sh", "-c", script]})
}

/// A container that runs until it is told to end.
fn waits(name: &str) -> Value {
    sh(name, "trap 'exit 0' TERM; sleep 100000 & wait")
}

fn with(mut value: Value, more: Value) -> Value {
    let fields = more.as_object().expect("fields").clone();
    value.as_object_mut().expect("an object").extend(fields);
    value
}

/// A probe each second, for which one failure is enough.
fn each_second(action: Value) -> Value {
    with(action, json!({"periodSeconds": 1, "failureThreshold": 1}))
}

fn exec(words: &[&str]) -> Value {
    json!({"exec": {"command": words}})
}

fn http(target: &Target, path: &str) -> Value {
    json!({"httpGet": {"port": target.port(), "path": path}})
}

/// A pod on the node's network, where the test's own servers are, with these containers.
fn on_node(name: &str, containers: &[Value]) -> String {
    of(name, json!({"hostNetwork": true, "containers": containers}))
}

fn mounted(container: Value) -> Value {
    with(container, json!({"volumeMounts": [{"name": "out", "mountPath": "/out"}]}))
}

fn shared_volume(path: &Path) -> Value {
    json!([{"name": "out", "hostPath": {"path": path}}])
}

fn touch(path: &Path) {
    fs::write(path, "").expect("makes a file");
}

/// The status of a container.
fn container<'p>(pod: &'p Value, name: &str) -> &'p Value {
    let lists = ["initContainerStatuses", "containerStatuses"].map(|list| pod["status"][list].as_array());
    let found = lists.into_iter().flatten().flatten().find(|c| c["name"] == name);
    found.unwrap_or(&Value::Null)
}

/// Whether a container is ready, and whether its pod says so in both conditions.
fn readiness(pod: &Value, name: &str) -> [bool; 3] {
    let met = |kind| condition(pod, kind)["status"] == "True";
    [container(pod, name)["ready"] == true, met("ContainersReady"), met("Ready")]
}

fn restarts(pod: &Value, name: &str) -> u64 {
    container(pod, name)["restartCount"].as_u64().unwrap_or_default()
}

/// Waits until a container of the pod has been started so many times again, and runs.
#[track_caller]
fn restarted(node: &Node, name: &str, of: &str, times: u64) -> Value {
    node.agent
        .wait_pod(name, SOON, |pod| restarts(pod, of) >= times && !container(pod, of)["state"]["running"].is_null())
}

/// The pod, again and again, with how many requests for each of these paths had come when it was so;
/// until there were as many as `until` wants.
fn watch<const N: usize>(
    node: &Node,
    target: &Target,
    paths: [&str; N],
    until: impl Fn([usize; N]) -> bool,
) -> Vec<([usize; N], Value)> {
    let (mut seen, deadline) = (Vec::new(), Instant::now() + SOON);
    loop {
        let before = paths.map(|path| target.count(path));
        let pod = node.agent.pods().into_iter().next().expect("there is one pod");
        if paths.map(|path| target.count(path)) == before {
            seen.push((before, pod));
        }
        if until(before) {
            return seen;
        }
        assert!(Instant::now() < deadline, "requests within {SOON:?}: {before:?}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// What `look` saw last while there had been 1, 2, … up to `count` requests.
fn after_each<T>(seen: &[(usize, &Value)], count: usize, look: impl Fn(&Value) -> T) -> Vec<T> {
    let last = |n: usize| seen.iter().rfind(|(count, _)| *count == n).unwrap_or_else(|| panic!("nothing seen at {n}"));
    (1..=count).map(|n| look(last(n).1)).collect()
}

#[test]
fn commands() {
    let node = Node::start();
    let out = node.shared("commands");
    let by_file = with(
        waits("main"),
        json!({
            "env": [{"name": "FILE", "value": "ready"}],
            "readinessProbe": each_second(exec(&["test", "-e", "/out/$(FILE)"])),
        }),
    );
    let spec = json!({"volumes": shared_volume(&out), "containers": [mounted(by_file)]});
    node.write("by-file", &of("by-file", spec));
    let sleeps = |name: &str, seconds: &str, timeout: u32| {
        let probe = with(each_second(exec(&["sleep", seconds])), json!({"timeoutSeconds": timeout}));
        with(waits(name), json!({"livenessProbe": probe}))
    };
    let spec = json!({"containers": [sleeps("patient", "1.5", 20), sleeps("hasty", "1000", 1)]});
    node.write("timed", &of("timed", spec));

    let pod = node.runs("by-file");
    assert_eq!(readiness(&pod, "main"), [false; 3]);
    assert_eq!(condition(&pod, "Ready")["reason"], "ContainersNotReady");
    assert_eq!(condition(&pod, "Ready")["message"], "containers with unready status: [main]");
    assert_eq!(container(&pod, "main")["started"], true);
    touch(&out.join("ready"));
    node.agent.wait_pod("by-file", SOON, |pod| readiness(pod, "main") == [true; 3]);
    fs::remove_file(out.join("ready")).expect("removes");
    node.agent.wait_pod("by-file", SOON, |pod| readiness(pod, "main") == [false; 3]);

    restarted(&node, "timed", "hasty", 1);
    node.told(
        "default/timed-edge-1: Unhealthy: hasty: Liveness probe failed: command \"sleep 1000\" timed out after 1s",
    );
    let timed = restarted(&node, "timed", "hasty", 2);
    assert_eq!(restarts(&timed, "patient"), 0, "it takes long, and is given the time");
    assert_eq!(restarts(&node.runs("by-file"), "main"), 0, "what isn't ready is left alone");
}

/// podman#8928: what is unhealthy is started again, and it can be seen why.
#[test]
fn podman_8928_the_unhealthy_is_started_again() {
    let node = Node::start();
    let out = node.shared("unhealthy");
    let dies = "trap 'printf %s farewell > /dev/termination-log; exit 4' TERM; sleep 100000 & wait";
    let ill = ["sh", "-c", "if [ -e /out/ill ]; then rm /out/ill; echo it is ill; exit 3; fi"];
    let main = mounted(with(sh("main", dies), json!({"livenessProbe": each_second(exec(&ill))})));
    node.write("ill", &of("ill", json!({"volumes": shared_volume(&out), "containers": [main]})));
    let never = with(waits("main"), json!({"startupProbe": each_second(exec(&["false"]))}));
    node.write("never", &of("never", json!({"containers": [never]})));
    let once = with(waits("main"), json!({"livenessProbe": each_second(exec(&["false"]))}));
    node.write("once", &of("once", json!({"restartPolicy": "Never", "containers": [once]})));

    let first = node.runs("ill");
    touch(&out.join("ill"));
    let again = restarted(&node, "ill", "main", 1);
    let last = &container(&again, "main")["lastState"]["terminated"];
    assert_eq!(
        (&last["exitCode"], &last["reason"], &last["message"]),
        (&4.into(), &"Error".into(), &"farewell".into())
    );
    assert_eq!(last["containerID"], container(&first, "main")["containerID"]);
    node.told("default/ill-edge-1: Unhealthy: main: Liveness probe failed: it is ill");
    node.told("default/ill-edge-1: Killing: Container main failed liveness probe, will be restarted");

    let never = restarted(&node, "never", "main", 1);
    assert_eq!(container(&never, "main")["started"], false);
    assert_eq!(readiness(&never, "main"), [false; 3]);
    node.told("default/never-edge-1: Killing: Container main failed startup probe, will be restarted");

    node.agent.wait_pod("never", SOON, |pod| {
        // The first restarts are made at once; in the end it is a crash loop like any other.
        restarts(pod, "main") == 2 && container(pod, "main")["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    });

    let once = node.reaches("once", "Succeeded");
    assert_eq!(restarts(&once, "main"), 0, "its policy says so");
    let ill = node.runs("ill");
    assert_eq!(restarts(&ill, "main"), 1, "it is well again");
}

#[test]
fn http_requests() {
    let node = Node::start();
    let (target, tls) = (Target::in_cell(node.containerd.cell()), Target::tls_in_cell(node.containerd.cell()));
    let serves = "mkdir /tmp/w; echo ok > /tmp/w/healthz; exec httpd -f -p 8080 -h /tmp/w";
    let get = |path: &str| each_second(json!({"httpGet": {"port": "web", "path": path}}));
    let main = with(
        sh("main", serves),
        json!({
            "ports": [{"name": "web", "containerPort": 8080}],
            "livenessProbe": get("/healthz"),
            "readinessProbe": get("/ready"),
        }),
    );
    node.write("serves", &of("serves", json!({"containers": [main]})));

    let headers = json!([{"name": "X-Probe", "value": "yes"}, {"name": "Host", "value": "pod.example"}]);
    let asks = |name: &str, port: u16, path: &str, more: Value| {
        let get = with(json!({"port": port, "path": path}), more);
        with(waits(name), json!({"readinessProbe": each_second(json!({"httpGet": get}))}))
    };
    target.says("/from", [Answer::Redirect("/to?1".to_owned())]);
    target.says("/away", [Answer::Redirect("http://192.0.2.99/".to_owned())]);
    target.statuses("/bad", &[500]);
    let containers = [
        asks("headers", target.port(), "/headers?full=1", json!({"httpHeaders": headers})),
        asks("from", target.port(), "/from", json!({})),
        asks("away", target.port(), "/away", json!({})),
        asks("tls", tls.port(), "/tls", json!({"scheme": "HTTPS"})),
        asks("bad", target.port(), "/bad", json!({})),
    ];
    node.write("asks", &on_node("asks", &containers));
    // From the pods' network, the node is another host.
    let host = asks("main", target.port(), "/host", json!({"host": "192.0.2.10"}));
    node.write("host", &of("host", json!({"containers": [host]})));

    let asks = node.agent.wait_pod("asks", SOON, |pod| {
        ["headers", "from", "away", "tls"].iter().all(|name| container(pod, name)["ready"] == true)
    });
    assert_eq!(asks["status"]["podIP"], "192.0.2.10");
    let head = target.wait("/headers?full=1", 1, SOON).remove(0).head;
    for line in ["Host: pod.example", "X-Probe: yes", "User-Agent: kube-probe/1.36", "Accept: */*", "Connection: close"]
    {
        assert!(head.contains(&format!("\r\n{line}\r\n")), "{line}: {head}");
    }
    assert!(!target.requests("/to?1").is_empty(), "the redirect was followed");
    node.told("default/asks-edge-1: ProbeWarning: away: Readiness probe warning: Get");
    let address = target.address;
    let told = format!("Unhealthy: bad: Readiness probe failed: Get \"http://{address}/bad\": status 500");
    node.told(&told);
    assert!(!tls.requests("/tls").is_empty());
    node.agent.wait_pod("host", SOON, |pod| readiness(pod, "main") == [true; 3]);

    let serves = node.runs("serves");
    assert_eq!(readiness(&serves, "main"), [false; 3]);
    let run = |command: &[&str]| {
        let id = container_id(&node.runs("serves"));
        node.containerd.ctr(&[&["tasks", "exec", "--exec-id", "x", &id], command].concat());
    };
    run(&["touch", "/tmp/w/ready"]);
    node.agent.wait_pod("serves", SOON, |pod| readiness(pod, "main") == [true; 3]);
    run(&["rm", "/tmp/w/healthz"]);
    restarted(&node, "serves", "main", 1);
    let ip = serves["status"]["podIP"].as_str().expect("it has an address").to_owned();
    node.told(&format!("Unhealthy: main: Liveness probe failed: Get \"http://{ip}:8080/healthz\": status 404"));
    assert_eq!(restarts(&node.runs("asks"), "bad"), 0);
}

#[test]
fn tcp_connections() {
    let node = Node::start();
    let out = node.shared("tcp");
    let opens = "while [ ! -e /out/open ]; do sleep 0.1; done; httpd -p 7000; \
        while [ -e /out/open ]; do sleep 0.1; done; killall httpd; sleep 100000";
    let main = with(
        mounted(sh("main", opens)),
        json!({
            "ports": [{"name": "door", "containerPort": 7000}],
            "readinessProbe": each_second(json!({"tcpSocket": {"port": "door"}})),
        }),
    );
    let dies = with(waits("dies"), json!({"livenessProbe": each_second(json!({"tcpSocket": {"port": 7001}}))}));
    node.write("tcp", &of("tcp", json!({"volumes": shared_volume(&out), "containers": [main, dies]})));

    let target = Target::in_cell(node.containerd.cell());
    let host = json!({"tcpSocket": {"port": target.port(), "host": "192.0.2.10"}});
    let spec = json!({"containers": [with(waits("main"), json!({"readinessProbe": each_second(host)}))]});
    node.write("host", &of("host", spec));

    let ip = node.runs("tcp")["status"]["podIP"].as_str().expect("it has an address").to_owned();
    node.told(&format!("Unhealthy: main: Readiness probe failed: dial tcp {ip}:7000: connection refused"));
    touch(&out.join("open"));
    let ready = |pod: &Value| container(pod, "main")["ready"] == true;
    node.agent.wait_pod("tcp", SOON, ready);
    fs::remove_file(out.join("open")).expect("removes");
    node.agent.wait_pod("tcp", SOON, |pod| !ready(pod));
    let tcp = restarted(&node, "tcp", "dies", 1);
    assert_eq!(restarts(&tcp, "main"), 0);
    node.agent.wait_pod("host", SOON, |pod| readiness(pod, "main") == [true; 3]);
}

#[test]
fn grpc_health_checks() {
    let node = Node::start();
    let (health, plain) = (Health::in_cell(node.containerd.cell()), Target::in_cell(node.containerd.cell()));
    health.set("", ServingStatus::SERVING);
    health.set("db", ServingStatus::NOT_SERVING);
    let asks =
        |name: &str, kind: &str, action: Value| with(waits(name), json!({kind: each_second(json!({"grpc": action}))}));
    let containers = [
        asks("server", "readinessProbe", json!({"port": health.port})),
        asks("db", "readinessProbe", json!({"port": health.port, "service": "db"})),
        asks("none", "readinessProbe", json!({"port": health.port, "service": "none"})),
        asks("dies", "livenessProbe", json!({"port": plain.port()})),
    ];
    node.write("rpc", &on_node("rpc", &containers));
    node.agent.wait_pod("rpc", SOON, |pod| container(pod, "server")["ready"] == true);
    node.told("Unhealthy: db: Readiness probe failed: the service says NOT_SERVING");
    node.told("Unhealthy: none: Readiness probe failed: the server doesn't know the service: unknown service");
    assert_eq!(container(&node.runs("rpc"), "db")["ready"], false);
    health.set("db", ServingStatus::SERVING);
    node.agent.wait_pod("rpc", SOON, |pod| container(pod, "db")["ready"] == true);
    health.set("", ServingStatus::NOT_SERVING);
    node.agent.wait_pod("rpc", SOON, |pod| container(pod, "server")["ready"] == false);
    let rpc = restarted(&node, "rpc", "dies", 1);
    assert_eq!(container(&rpc, "none")["ready"], false);
}

#[test]
fn thresholds_and_the_initial_delay() {
    let node = Node::start();
    let target = Target::in_cell(node.containerd.cell());
    target.statuses("/ready", &[200, 200, 500, 200, 200, 200, 500, 200, 500, 500, 200]);
    target.statuses("/live", &[500, 500, 200, 500, 500, 500, 200]);
    let probe = |path: &str, more: Value| with(with(http(&target, path), json!({"periodSeconds": 1})), more);
    let containers = [
        with(
            waits("ready"),
            json!({"readinessProbe": probe("/ready", json!({"successThreshold": 3, "failureThreshold": 2}))}),
        ),
        with(waits("live"), json!({"livenessProbe": probe("/live", json!({}))})),
        with(waits("late"), json!({"readinessProbe": probe("/late", json!({"initialDelaySeconds": 4}))})),
    ];
    node.write("web", &on_node("web", &containers));
    node.runs("web");
    let seen = watch(&node, &target, ["/ready", "/live"], |[ready, live]| ready > 10 && live > 8);

    let of_ready: Vec<_> = seen.iter().map(|([ready, _], pod)| (*ready, pod)).collect();
    let ready = after_each(&of_ready, 10, |pod| container(pod, "ready")["ready"] == true);
    assert_eq!(ready, [false, false, false, false, false, true, true, true, true, false]);

    let of_live: Vec<_> = seen.iter().map(|([_, live], pod)| (*live, pod)).collect();
    assert_eq!(after_each(&of_live, 8, |pod| restarts(pod, "live")), [0, 0, 0, 0, 0, 1, 1, 1]);
    let pod = node.runs("web");
    assert_eq!((restarts(&pod, "ready"), restarts(&pod, "late")), (0, 0));

    let first = |path: &str| target.requests(path).first().expect("it was asked for").at;
    let later = first("/late").saturating_duration_since(first("/ready")).as_secs_f64();
    assert!((3.5..6.0).contains(&later), "{later} s");
    // In between is one period, give or take what a busy machine does.
    let gaps: Vec<_> = target.requests("/ready").windows(2).map(|w| (w[1].at - w[0].at).as_secs_f64()).collect();
    assert!(gaps.iter().all(|gap| (0.5..1.5).contains(gap)), "{gaps:?}");
}

#[test]
fn startup_gates_the_others_and_a_restart_begins_anew() {
    let node = Node::start();
    let target = Target::in_cell(node.containerd.cell());
    let startup = with(each_second(http(&target, "/startup")), json!({"failureThreshold": 10}));
    let main = with(
        waits("main"),
        json!({
            "startupProbe": startup,
            "readinessProbe": each_second(http(&target, "/ready")),
            "livenessProbe": each_second(http(&target, "/live")),
        }),
    );
    target.statuses("/startup", &[500, 500, 500, 200]);
    node.write("web", &on_node("web", &[main]));
    node.runs("web");
    // Which restart, what the startup probe is told, and how many requests of the liveness probe to wait for:
    // the first one of the second time is what kills the container.
    for (restart, startups, live) in [(0, 4, 1), (1, 3, 2)] {
        let seen = watch(&node, &target, ["/startup", "/live"], |[_, count]| count >= live);
        let seen = seen.iter().filter(|(_, pod)| restarts(pod, "main") == restart);
        let seen: Vec<_> = seen.map(|([startup, _], pod)| (*startup, pod)).collect();
        let state = |pod: &Value| (container(pod, "main")["started"] == true, readiness(pod, "main"));
        let states = after_each(&seen, startups, state);
        let (last, before) = states.split_last().expect("there are some");
        assert!(before.iter().all(|state| *state == (false, [false; 3])), "{states:?}");
        assert_eq!(*last, (true, [true; 3]));

        let paths: Vec<_> = target.take().into_iter().map(|request| request.path).collect();
        let first = paths.iter().position(|path| path == "/startup").expect("it was asked for");
        let (startup, rest) = paths[first..].split_at(startups);
        assert!(startup.iter().all(|path| path == "/startup"), "{paths:?}");
        assert!(rest.first().is_some_and(|path| path == "/ready"), "{paths:?}");
        assert!(rest.iter().all(|path| path != "/startup"), "{paths:?}");
        target.statuses("/startup", &[500, 500, 200]);
        target.statuses("/live", &[500, 200]);
    }
}

#[test]
fn a_probe_has_its_own_grace_period() {
    let node = Node::start();
    let target = Target::in_cell(node.containerd.cell());
    let deaf = "trap '' TERM; while true; do sleep 0.1; done";
    let probe = |path: &str, grace: u32| {
        target.statuses(path, &[500]);
        with(each_second(http(&target, path)), json!({"terminationGracePeriodSeconds": grace}))
    };
    let containers = [
        with(sh("live", deaf), json!({"livenessProbe": probe("/live", 2)})),
        with(sh("startup", deaf), json!({"startupProbe": probe("/startup", 4)})),
    ];
    let spec = json!({"hostNetwork": true, "terminationGracePeriodSeconds": 600, "containers": containers});
    node.write("deaf", &of("deaf", spec));
    let (wall, clock) = (SystemTime::now(), Instant::now());
    for (name, path, from, to) in [("live", "/live", 2.0, 4.0), ("startup", "/startup", 4.0, 7.0)] {
        let pod = restarted(&node, "deaf", name, 1);
        let last = &container(&pod, name)["lastState"]["terminated"];
        assert_eq!(last["exitCode"], 137, "{name}");
        let finished: jiff::Timestamp =
            last["finishedAt"].as_str().and_then(|t| t.parse().ok()).expect("it has ended some time");
        // A startup probe's first failure is only early.
        let failed = target.requests(path)[usize::from(name == "startup")].at;
        let finished = Duration::from_secs_f64(finished.as_duration().as_secs_f64());
        let asked = wall.duration_since(SystemTime::UNIX_EPOCH).expect("it is later") + (failed - clock);
        let took = finished.as_secs_f64() - asked.as_secs_f64();
        // The status tells whole seconds.
        assert!((from - 1.0..to).contains(&took), "{name}: {took:.1} s");
    }
}

#[test]
fn readiness_gates_and_sidecars() {
    let node = Node::start();
    let out = node.shared("sidecars");
    let gate = json!({"readinessGates": [{"conditionType": "example.com/gate"}], "containers": [waits("main")]});
    node.write("gate", &of("gate", gate));
    let exists = |file: &str| each_second(exec(&["test", "-e", file]));
    let startup = with(exists("/out/up"), json!({"failureThreshold": 1000}));
    let side = with(
        waits("side"),
        json!({
            "restartPolicy": "Always",
            "startupProbe": startup,
            "readinessProbe": exists("/out/ready"),
        }),
    );
    let spec = json!({
        "volumes": shared_volume(&out),
        "initContainers": [mounted(side), sh("next", "true")],
        "containers": [waits("main")],
    });
    node.write("side", &of("side", spec));

    // Nobody sets the gate's condition here, which is as good as false.
    let gate = node.agent.wait_pod("gate", SOON, |pod| condition(pod, "ContainersReady")["status"] == "True");
    assert_eq!(readiness(&gate, "main"), [true, true, false]);
    assert_eq!(condition(&gate, "Ready")["reason"], "ReadinessGatesNotReady");
    let message = condition(&gate, "Ready")["message"].as_str().unwrap_or_default();
    assert!(message.contains("example.com/gate"), "{message}");

    let held = node.agent.wait_pod("side", SOON, |pod| !container(pod, "side")["state"]["running"].is_null());
    std::thread::sleep(Duration::from_secs(2));
    for pod in [&held, &node.agent.wait_pod("side", SOON, |_| true)] {
        assert_eq!(container(pod, "side")["started"], false);
        for name in ["next", "main"] {
            assert_eq!(container(pod, name)["state"]["waiting"]["reason"], "PodInitializing", "{name}");
        }
        assert_eq!(condition(pod, "Initialized")["status"], "False");
    }
    touch(&out.join("up"));
    let pod = node.runs("side");
    assert_eq!(container(&pod, "side")["started"], true);
    assert_eq!(condition(&pod, "Initialized")["status"], "True");
    assert_eq!(readiness(&pod, "main"), [true, false, false], "the sidecar isn't ready");
    assert_eq!(condition(&pod, "Ready")["message"], "containers with unready status: [side]");
    touch(&out.join("ready"));
    node.agent.wait_pod("side", SOON, |pod| readiness(pod, "main") == [true; 3]);
}

#[test]
fn a_pod_that_ends_is_asked_only_whether_it_is_ready() {
    let node = Node::start();
    let target = Target::in_cell(node.containerd.cell());
    let slow = "trap 'sleep 5; exit 0' TERM; while true; do sleep 0.1; done";
    let web = with(
        sh("web", slow),
        json!({
            "readinessProbe": each_second(http(&target, "/ready")),
            "livenessProbe": each_second(http(&target, "/live")),
        }),
    );
    let starts = with(
        sh("starts", slow),
        json!({
            "startupProbe": with(http(&target, "/startup"), json!({"periodSeconds": 1, "failureThreshold": 1000})),
        }),
    );
    target.statuses("/startup", &[500]);
    let spec = json!({"hostNetwork": true, "terminationGracePeriodSeconds": 30, "containers": [web, starts]});
    node.write("web", &of("web", spec));
    for path in ["/ready", "/live", "/startup"] {
        target.wait(path, 2, SOON);
    }
    target.statuses("/live", &[500]);
    node.remove("web");
    node.told("Killing: Stopping container web");
    // What had begun by then may still come.
    std::thread::sleep(Duration::from_millis(300));
    target.take();
    let asked = target.wait("/ready", 3, SOON);
    assert!(asked.len() >= 3);
    assert_eq!((target.count("/live"), target.count("/startup")), (0, 0));
    node.nothing_left();
    target.take();
    std::thread::sleep(Duration::from_millis(2500));
    assert_eq!(target.take().len(), 0, "it is gone");
    assert!(!node.agent.log().contains("failed liveness probe"));
}

#[test]
fn what_was_ready_stays_so_while_the_agent_is_killed() {
    let mut node = Node::start();
    let target = Target::in_cell(node.containerd.cell());
    let probed = |name: &str, startup: &str, ready: &str, period: u32| {
        with(
            waits(name),
            json!({
                "startupProbe": each_second(http(&target, startup)),
                "readinessProbe": with(http(&target, ready), json!({"periodSeconds": period, "failureThreshold": 3})),
            }),
        )
    };
    target.statuses("/no", &[500]);
    node.write(
        "ready",
        &on_node("ready", &[probed("quick", "/startup", "/quick", 1), probed("slow", "/startup", "/slow", 30)]),
    );
    node.write("not", &on_node("not", &[probed("main", "/startup-not", "/no", 1)]));
    let before = node.agent.wait_pod("ready", SOON, |pod| readiness(pod, "slow") == [true; 3]);
    let not = node.agent.wait_pod("not", SOON, |pod| container(pod, "main")["started"] == true);
    // It shows a little before it is on disk.
    for pod in [&before, &not] {
        let path = node.agent.root().join("pods").join(pod["metadata"]["uid"].as_str().expect("a UID"));
        eventually("the status on disk", SOON, || {
            let text = std::fs::read_to_string(path.join("status.json")).unwrap_or_default();
            let status: Value = serde_json::from_str(&text).unwrap_or_default();
            let states = |status: &Value| {
                let containers = status["containerStatuses"].as_array().into_iter().flatten();
                containers.map(|c| (c["name"].clone(), c["started"].clone(), c["ready"].clone())).collect::<Vec<_>>()
            };
            if states(&status) == states(&pod["status"]) { Ok(()) } else { Err(text) }
        });
    }
    // What is asked after the restart is answered late: nothing may hang on it.
    target.says("/quick", [Answer::Silence]);
    target.says("/slow", [Answer::Silence]);

    for _ in 0..2 {
        node.agent.kill();
        target.take();
        node.agent.launch();
        let (until, mut seen) = (Instant::now() + Duration::from_millis(2500), 0);
        while Instant::now() < until || seen < 20 {
            assert!(Instant::now() < until + SOON, "/pods was seen {seen} times");
            let Ok(pods) = node.agent.try_pods() else { continue };
            for pod in pods {
                match pod["metadata"]["name"].as_str() {
                    Some("ready-edge-1") => {
                        assert_eq!(readiness(&pod, "quick"), [true; 3], "{:#}", pod["status"]);
                        assert_eq!(condition(&pod, "Ready"), condition(&before, "Ready"));
                        seen += 1;
                    }
                    _ => assert_eq!(readiness(&pod, "main"), [false; 3], "{:#}", pod["status"]),
                }
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        assert_eq!((target.count("/startup"), target.count("/startup-not")), (0, 0), "they have started up");
    }
    // Silence is a failure in the end.
    node.agent.wait_pod("ready", SOON, |pod| container(pod, "quick")["ready"] == false);
    let pod = node.runs("ready");
    assert_eq!((restarts(&pod, "quick"), restarts(&pod, "slow")), (0, 0));
    eventually("its being ready again", SOON, || {
        target.statuses("/quick", &[200]);
        let pod = node.agent.wait_pod("ready", SOON, |_| true);
        if container(&pod, "quick")["ready"] == true { Ok(()) } else { Err(pod["status"].to_string()) }
    });
}

//! Many probes at once, targets that hang, and an agent that is busy with other things, on the
//! fault-injecting runtime. What takes how long is told, and is for `scripts/bench probes` to measure: a
//! machine that is busy with other things is late, too.
#![cfg(feature = "tls")]

mod support;

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use support::target::{Answer, Deaf, Target};
use support::{Agent, BUSYBOX, Cell, FakeCri, eventually};

const SOON: Duration = Duration::from_secs(60);
const PERIOD: Duration = Duration::from_secs(1);
/// How long those that hang may take.
const HANG: Duration = Duration::from_secs(5);

struct Bench {
    agent: Agent,
    cri: FakeCri,
    target: Target,
    cell: Arc<Cell>,
}

impl Bench {
    /// An agent with so many workers.
    fn start(workers: u32) -> Bench {
        let (cri, cell) = (FakeCri::start(), Arc::new(Cell::start()));
        let mut agent = Agent::in_cell(&cell, cri.socket());
        agent.flags(&[&format!("--workers={workers}")]);
        agent.start();
        Bench { target: Target::in_cell(&cell), agent, cri, cell }
    }

    /// Writes a pod on the node's network with these containers.
    fn write(&self, name: &str, containers: Vec<Value>) {
        let spec = json!({"hostNetwork": true, "containers": containers});
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
        self.agent.write_manifest(&format!("{name}.yaml"), &pod.to_string());
    }

    fn http(&self, path: &str) -> Value {
        json!({"httpGet": {"port": self.target.port(), "path": path}})
    }

    /// Threads of the agent whose name is this.
    fn threads(&mut self, name: &str) -> usize {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.agent.process().pid())).expect("the agent runs");
        let names = tasks.filter_map(|task| fs::read_to_string(task.ok()?.path().join("comm")).ok());
        names.filter(|comm| comm.trim() == name).count()
    }
}

fn full(name: &str) -> String {
    format!("{name}-{}", support::NODE)
}

/// A container with a readiness probe.
fn probed(name: &str, action: Value, timing: Value) -> Value {
    let mut probe = action;
    probe.as_object_mut().expect("an object").extend(timing.as_object().expect("fields").clone());
    json!({"name": name, "image": BUSYBOX, "readinessProbe": probe})
}

fn is_ready(pod: &Value, name: &str) -> bool {
    let containers = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
    containers.into_iter().any(|c| c["name"] == name && c["ready"] == true)
}

/// How much later than at the ticks of a clock things happened that should happen each second. The
/// clock is the latest that none of them is too early for.
fn lateness(times: &[Instant]) -> Vec<Duration> {
    let ticks: Vec<_> = (0..).map(|i| PERIOD * i).take(times.len()).collect();
    let begin = times.iter().zip(&ticks).filter_map(|(at, tick)| at.checked_sub(*tick)).min().expect("it happened");
    times.iter().zip(&ticks).map(|(at, tick)| *at - (begin + *tick)).collect()
}

/// The 99th percentile and the worst.
fn worst(mut values: Vec<Duration>) -> (Duration, Duration) {
    values.sort_unstable();
    (values[values.len() * 99 / 100], *values.last().expect("there are some"))
}

#[test]
fn two_hundred_that_hang_delay_no_other() {
    let mut b = Bench::start(4);
    let each_second = json!({"periodSeconds": 1, "timeoutSeconds": 1});
    let fine = (0..50).map(|i| match i % 2 {
        0 => probed(&format!("http{i}"), b.http(&format!("/fine{i}")), each_second.clone()),
        _ => probed(&format!("exec{i}"), json!({"exec": {"command": ["true"]}}), each_second.clone()),
    });
    b.write("fine", fine.collect());
    b.agent.wait_pod("fine", SOON, |pod| is_ready(pod, "http0") && is_ready(pod, "exec49"));

    let deaf = Deaf::in_cell(&b.cell);
    b.target.says("/silence", [Answer::Silence]);
    b.cri.set_exec(&full("exec"), Duration::from_secs(1000), 0, "");
    let actions = [
        ("exec", json!({"exec": {"command": ["hang"]}})),
        ("http", b.http("/silence")),
        ("tcp", json!({"tcpSocket": {"port": deaf.address.port()}})),
        ("grpc", json!({"grpc": {"port": deaf.address.port()}})),
    ];
    let begin = Instant::now();
    for (kind, action) in &actions {
        let timing = json!({"periodSeconds": 1, "timeoutSeconds": HANG.as_secs(), "failureThreshold": 1});
        b.write(kind, (0..50).map(|i| probed(&format!("c{i}"), action.clone(), timing.clone())).collect());
    }
    let told = |log: &str, kind: &str| {
        let of_kind = format!("default/{}: Unhealthy: ", full(kind));
        log.lines().filter(|line| line.contains(&of_kind)).count()
    };
    let mut most = 0;
    eventually("200 that hang", SOON, || {
        most = most.max(b.threads("lane-probe"));
        let log = b.agent.log();
        let counts = actions.each_ref().map(|(kind, _)| told(&log, kind));
        if counts.iter().all(|count| *count >= 50) { Ok(()) } else { Err(format!("{counts:?} are known to hang")) }
    });
    // And for a while on the lane of those that are known to.
    std::thread::sleep(Duration::from_secs(8));
    let slow = b.threads("lane-probe-slow");

    let mut times: BTreeMap<String, Vec<Instant>> = BTreeMap::new();
    b.cri.look(|m| {
        for call in m.calls_of("ExecSync").filter(|call| call.subject.pod == full("fine")) {
            times.entry(call.subject.container.clone()).or_default().push(call.at);
        }
    });
    for request in b.target.take().into_iter().filter(|request| request.path.starts_with("/fine")) {
        times.entry(request.path).or_default().push(request.at);
    }
    assert_eq!(times.len(), 50);
    let all = times.values().flat_map(|times| {
        let times: Vec<_> = times.iter().copied().filter(|at| *at >= begin).collect();
        assert!(times.len() > 10, "{} attempts", times.len());
        lateness(&times)
    });
    let all: Vec<_> = all.collect();
    let count = all.len();
    let (p99, worst) = worst(all);
    println!("{count} attempts, lateness p99 {p99:?}, the worst {worst:?}; up to {most} and {slow} threads");
    // Whoever waits for those that hang waits for about as long as they may.
    assert!(worst < HANG / 2, "the worst {worst:?}");
    assert!(most <= cleat::probe::LANE, "{most} threads");
    assert!((1..=cleat::probe::SLOW_LANE).contains(&slow), "{slow} threads");
    assert!(is_ready(&b.agent.wait_pod("fine", SOON, |_| true), "exec49"));
}

/// kubernetes#82440: exec probes cost much. There are bounds to how many run at once, and after a start
/// of the agent they begin one after the other.
#[test]
fn kubernetes_82440_exec_probes_are_bounded_and_spread() {
    let mut b = Bench::start(4);
    let exec = json!({"exec": {"command": ["probe"]}});
    let timing = json!({"periodSeconds": 5, "timeoutSeconds": 3});
    for pod in ["a", "b", "c", "d"] {
        b.write(pod, (0..100).map(|i| probed(&format!("c{i}"), exec.clone(), timing.clone())).collect());
    }
    for pod in ["a", "b", "c", "d"] {
        b.agent.wait_pod(pod, SOON, |pod| is_ready(pod, "c0") && is_ready(pod, "c99"));
    }

    b.agent.kill();
    b.cri.edit(|m| m.calls.clear());
    b.agent.start();
    b.cri.wait(SOON, |m| m.count("ExecSync") >= 400);
    let times: Vec<_> = b.cri.look(|m| m.calls_of("ExecSync").map(|call| call.at).collect());
    let first = *times.first().expect("there are some");
    let mut bins = BTreeMap::<u128, usize>::new();
    for at in &times {
        *bins.entry((*at - first).as_millis() / 500).or_default() += 1;
    }
    println!("attempts in each half of a second: {:?}", bins.values().collect::<Vec<_>>());
    // If they all began at once, the first half of a second would have nearly all.
    assert!(bins.len() >= 4 && bins.values().all(|count| *count <= 200), "{bins:?}");

    // All that there are hang; no more run at once than there are threads for it.
    let all = cleat::probe::LANE + cleat::probe::SLOW_LANE;
    for pod in ["a", "b", "c", "d"] {
        b.cri.set_exec(&full(pod), Duration::from_secs(1000), 0, "");
    }
    let (until, mut most) = (Instant::now() + Duration::from_secs(12), 0);
    while Instant::now() < until {
        most = most.max(b.cri.look(|m| m.in_flight("ExecSync")));
        std::thread::sleep(Duration::from_millis(20));
    }
    println!("up to {most} commands at once");
    assert!((100..=all).contains(&most), "{most} commands at once");
    b.agent.healthz().expect("the agent is healthy");
}

/// Whether the pod is listed as ready, or unready, with that container and both conditions.
fn shows(b: &Bench, pod: &str, container: &str, ready: bool) -> bool {
    let pods = b.agent.pods();
    let Some(pod) = pods.iter().find(|p| p["metadata"]["name"] == full(pod).as_str()) else { return false };
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let met = conditions.filter(|c| c["type"] == "Ready" || c["type"] == "ContainersReady");
    is_ready(pod, container) == ready && met.map(|c| c["status"] == "True").eq([ready; 2])
}

/// How long it takes from the answer of a target that makes a container ready, or unready, until the
/// pod is seen to be so.
fn flips(b: &Bench, pod: &str, container: &str, path: &str, times: usize) -> Vec<Duration> {
    let flip = |i: usize| {
        let ready = i % 2 == 0;
        b.target.statuses(path, &[if ready { 200 } else { 500 }]);
        let request = b.target.wait(path, b.target.count(path) + 1, SOON).pop().expect("it has come");
        while !shows(b, pod, container, ready) {
            assert!(request.at.elapsed() < SOON, "it isn't seen: {:?}", b.agent.pods());
            std::thread::sleep(Duration::from_millis(1));
        }
        request.at.elapsed()
    };
    (0..times).map(flip).collect()
}

#[test]
fn readiness_is_seen_at_once_whatever_else_the_agent_does() {
    let b = Bench::start(2);
    b.target.statuses("/web", &[500]);
    let each_second = json!({"periodSeconds": 1, "failureThreshold": 1});
    let web = probed("main", b.http("/web"), each_second);
    b.write("web", vec![web, json!({"name": "other", "image": BUSYBOX})]);
    let old: Vec<String> = (0..20).map(|i| format!("old{i}")).collect();
    for name in &old {
        b.write(name, vec![json!({"name": "main", "image": BUSYBOX})]);
        b.cri.set_stop_duration(&full(name), Duration::from_secs(300));
    }
    for name in old.iter().map(String::as_str).chain(["web"]) {
        b.cri.wait(SOON, |m| m.running(&full(name)) >= 1);
    }
    b.target.wait("/web", 1, SOON);
    let show = |what: &str| {
        let mut took = flips(&b, "web", "main", "/web", 6);
        took.sort_unstable();
        println!("{what}: median {:?}, the worst {:?}", took[3], took[5]);
    };
    show("at rest");

    for name in &old {
        b.agent.remove_manifest(&format!("{name}.yaml"));
    }
    b.cri.wait(SOON, |m| m.in_flight("StopContainer") == 20);
    show("while 20 pods stop slowly");
    assert_eq!(b.cri.look(|m| m.in_flight("StopContainer")), 20, "they still do");

    let hang = b.cri.on("StartContainer").of(&full("web")).hang();
    b.cri.exit_container(&format!("{}/other", full("web")), 1);
    hang.wait_hits(1, SOON);
    show("while the pod itself waits for the runtime");
    assert_eq!(b.cri.look(|m| m.in_flight("StartContainer")), 1, "it still does");
    hang.remove();
    b.cri.wait(SOON, |m| m.running(&full("web")) == 2);

    let hang = b.cri.on("RunPodSandbox").hang();
    for name in ["new0", "new1", "new2", "new3"] {
        b.write(name, vec![json!({"name": "main", "image": BUSYBOX})]);
    }
    hang.wait_hits(2, SOON);
    show("while all workers wait for the runtime");
    assert_eq!(b.cri.look(|m| m.in_flight("RunPodSandbox")), 2);
}

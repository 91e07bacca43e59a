//! Resources: what the kernel holds pods, containers and QoS classes to.

mod support;

use std::fs;
use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};
use support::manifest::Manifest;
use support::node::{Node, SOON, id_of};
use support::{Agent, Cgroup, Containerd, HugePages, eventually};

const RUN: &str = "sleep 1000";
const MIB: u64 = 1 << 20;

/// Makes a cgroup of the cell's in each hierarchy, as what starts the system's services would.
fn make_cgroup(containerd: &Containerd, name: &str) {
    let tops = fs::read_to_string(containerd.cell().dir().join("cgroups")).expect("reads");
    tops.lines().for_each(|top| fs::create_dir(Path::new(top).join(name)).expect("makes a cgroup"));
}

fn memory_of_machine() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").expect("reads");
    let kib = text.split_whitespace().nth(1).and_then(|n| n.parse::<u64>().ok()).expect("a number");
    kib * 1024
}

/// Below 0 only where the machine lets us.
fn may_lower_oom_score() -> bool {
    let status = fs::read_to_string("/proc/self/status").expect("reads");
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:")).expect("is there").trim();
    u64::from_str_radix(mask, 16).expect("a number") >> 24 & 1 == 1
}

fn oom_score_adj(node: &Node, pod: &Value) -> i64 {
    node.proc(pod, "main", "oom_score_adj").trim().parse().expect("a number")
}

#[test]
fn cgroups_by_quality_of_service() {
    let containerd = Containerd::start();
    make_cgroup(&containerd, "system");
    let mut agent = Agent::on_containerd(&containerd);
    agent.configure(json!({
        "podPidsLimit": 64,
        "systemReserved": {"cpu": "100m", "memory": "256Mi", "pid": "500"},
        "kubeReserved": {"memory": "64Mi"},
        "systemReservedCgroup": "/system",
        "enforceNodeAllocatable": ["pods", "system-reserved"],
    }));
    agent.start();
    let node = Node { agent, containerd };
    let with = |requests: &str, limits: &str| format!("resources: {{requests: {{{requests}}}, limits: {{{limits}}}}}");
    node.add(&Manifest::pod("best").main(RUN, ""));
    node.add(
        &Manifest::pod("burst").main(RUN, &with("cpu: 250m, memory: 256Mi", "cpu: 500m, memory: 512Mi")).container(
            "more",
            RUN,
            &with("cpu: 100m", "cpu: 250m, memory: 32Mi"),
        ),
    );
    node.add(&Manifest::pod("guaranteed").main(RUN, "resources: {limits: {cpu: 200m, memory: 64Mi}}"));
    let of_pod = "resources: {requests: {cpu: 300m, memory: 96Mi}, limits: {cpu: 600m, memory: 128Mi}}";
    node.add(&Manifest::pod("whole").spec(of_pod).main(RUN, "").container(
        "part",
        RUN,
        "resources: {limits: {cpu: 100m, memory: 32Mi}}",
    ));
    let [best, burst, guaranteed, whole] = ["best", "burst", "guaranteed", "whole"].map(|name| node.runs(name));
    let cell = node.containerd.cell();

    // cgroup, shares, quota, memory of the pod.
    let pods = [
        (&best, "besteffort/", 2, None, None),
        (&burst, "burstable/", 358, Some(75_000), Some(544 * MIB)),
        (&guaranteed, "", 204, Some(20_000), Some(64 * MIB)),
        (&whole, "burstable/", 307, Some(60_000), Some(128 * MIB)),
    ];
    for (pod, class, shares, quota, memory) in pods {
        let cgroup = Cgroup::of_pod(cell, pod);
        let uid = pod["metadata"]["uid"].as_str().expect("has one");
        assert_eq!(cgroup.path(), format!("/kubepods/{class}pod{uid}"));
        cgroup.has_shares(shares);
        assert_eq!((cgroup.cpu_max(), cgroup.memory()), ((quota, 100_000), memory), "{class}");
        assert_eq!(cgroup.pids(), Some(64));
    }
    let containers = [
        (&best, "main", 2, None, None),
        (&burst, "main", 256, Some(50_000), Some(512 * MIB)),
        (&burst, "more", 102, Some(25_000), Some(32 * MIB)),
        (&guaranteed, "main", 204, Some(20_000), Some(64 * MIB)),
        (&whole, "part", 102, Some(10_000), Some(32 * MIB)),
    ];
    for (pod, name, shares, quota, memory) in containers {
        let cgroup = Cgroup::of_pod(cell, pod).child(cell, &id_of(pod, name));
        cgroup.has_shares(shares);
        assert_eq!((cgroup.cpu_max(), cgroup.memory()), ((quota, 100_000), memory), "{name}");
    }

    // All burstable pods; all pods; and the rest of the system.
    let all = memory_of_machine();
    eventually("the shares of all burstable pods", SOON, || {
        let text = Cgroup::at(cell, "/kubepods/burstable").read(&["cpu.shares", "cpu.weight"]);
        // 650 thousandths.
        let weight = 1 + (665 - 2) * 9999 / 262_142;
        if text == "665" || text == weight.to_string() { Ok(()) } else { Err(text) }
    });
    Cgroup::at(cell, "/kubepods/besteffort").has_shares(2);
    assert_eq!(Cgroup::at(cell, "/kubepods").memory(), Some((all - 320 * MIB) / 4096 * 4096));
    let system = Cgroup::at(cell, "/system");
    system.has_shares(102);
    assert_eq!((system.memory(), system.pids()), (Some(256 * MIB), Some(500)));

    let asked = |mib: u64| i64::try_from(1000 - 1000 * mib * MIB / all).expect("small").clamp(3, 999);
    assert_eq!(oom_score_adj(&node, &best), 1000);
    assert_eq!(oom_score_adj(&node, &burst), asked(256));
    assert_eq!(oom_score_adj(&node, &guaranteed), if may_lower_oom_score() { -997 } else { 0 });

    // More processes than it may have.
    let many = "(for i in $(seq 100); do sleep 1000 & done) 2>/dev/null; exec sleep 1000";
    node.add(&Manifest::pod("many").main(many, ""));
    let many = node.runs("many");
    let current = || Cgroup::of_pod(cell, &many).read(&["pids.current"]).parse::<u64>().expect("a number");
    eventually("processes", SOON, || match current() {
        n @ 60..=64 => Ok(n),
        n => Err(format!("there are {n}")),
    });
}

/// A container that uses more memory than it may is killed, and says why.
#[test]
fn memory_that_is_used_up() {
    let node = Node::start();
    let eat = "x=a; while true; do x=$x$x; done";
    node.add(&Manifest::job("eater").main(eat, "resources: {limits: {memory: 32Mi}}"));
    let pod = node.reaches("eater", "Failed");
    let ended = &pod["status"]["containerStatuses"][0]["state"]["terminated"];
    assert_eq!((&ended["reason"], &ended["exitCode"]), (&json!("OOMKilled"), &json!(137)));
}

/// What is to be held to its limits must be there: else the agent says so and does not run.
#[test]
fn a_cgroup_that_is_not_there() {
    let containerd = Containerd::start();
    let mut agent = Agent::on_containerd(&containerd);
    agent.configure(json!({
        "kubeReserved": {"memory": "64Mi"},
        "kubeReservedCgroup": "/none",
        "enforceNodeAllocatable": ["pods", "kube-reserved"],
    }));
    agent.launch();
    assert!(!agent.process().wait(Duration::from_secs(20)).success());
    assert!(agent.log().contains("cgroup /none is not there; make it"), "{}", agent.log());
    make_cgroup(&containerd, "none");
    agent.kill();
    agent.configure(json!({"enforceNodeAllocatable": ["pods", "kube-reserved-compressible"]}));
    agent.start();
    assert_eq!(Cgroup::at(containerd.cell(), "/none").memory(), None, "only what may be had less of is held");
}

/// Limits of huge pages; volumes on them are tested with the other volumes.
#[test]
fn huge_pages() {
    let _pages = HugePages::at_least(4);
    let node = Node::start();
    let of = |name: &str, pages: &str| {
        let fields = format!("resources: {{limits: {{hugepages-2Mi: {pages}, memory: 64Mi, cpu: 100m}}}}");
        Manifest::pod(name).main(RUN, &fields)
    };
    node.add(&of("huge", "4Mi"));
    node.add(&of("far-too-many", "64Gi"));
    let pod = node.runs("huge");
    // Static pods are critical, and there is nobody to make room for this one.
    let refused = node.reaches("far-too-many", "Failed");
    assert_eq!(refused["status"]["reason"], "UnexpectedAdmissionError");
    assert!(refused["status"]["message"].as_str().is_some_and(|m| m.contains("hugepages-2Mi")), "{refused:#}");
    let cell = node.containerd.cell();
    let cgroup = Cgroup::of_pod(cell, &pod);
    // A machine with both versions of cgroups can have this one where no runtime looks for it.
    if !["hugetlb", "cgroup.controllers"].iter().any(|name| Path::new("/sys/fs/cgroup").join(name).exists()) {
        return;
    }
    for cgroup in [cgroup.child(cell, &id_of(&pod, "main")), cgroup] {
        assert_eq!(cgroup.read(&["hugetlb.2MB.limit_in_bytes", "hugetlb.2MB.max"]), (4 * MIB).to_string());
    }
}

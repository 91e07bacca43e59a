//! Pods from a URL, on a private containerd: what the server says, and what it fails to say.

mod support;

use std::time::{Duration, Instant};

use rustix::process::Signal;
use serde_json::{Value, json};
use support::node::{Node, SOON, container_id, pod};
use support::web::{Says, Web};
use support::{Agent, Containerd, eventually};

const PORT: u16 = 8700;
const URL: &str = "http://127.0.0.1:8700/pods";
/// Nothing but an order asks for it again.
const SELDOM: &str = "10m";

fn body(pods: &[String]) -> Says {
    Says::Body(pods.join("---\n"))
}

fn list(kind: &str, pods: &[&str]) -> Says {
    let item = |name: &&str| {
        let spec = json!({"terminationGracePeriodSeconds": 1,
            "containers": [{"name": "main", "image": support::BUSYBOX, "command": ["sleep", "1000"]}]});
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "labels": {"app": name}}, "spec": spec})
    };
    let items: Vec<_> = pods.iter().map(item).collect();
    Says::Body(json!({"apiVersion": "v1", "kind": kind, "items": items}).to_string())
}

fn sleeper(name: &str) -> String {
    pod(name, "sleep 1000")
}

/// A node whose agent asks a server that says this.
fn node(says: Says, frequency: &str) -> (Node, Web) {
    let containerd = Containerd::start();
    let web = Web::start(containerd.cell(), PORT, says);
    let mut agent = Agent::on_containerd(&containerd);
    let header = json!({"X-Node": ["edge"]});
    agent.configure(json!({"staticPodURL": web.url(), "staticPodURLHeader": header, "httpCheckFrequency": frequency}));
    agent.start();
    (Node { agent, containerd }, web)
}

fn uid(pod: &Value) -> &str {
    pod["metadata"]["uid"].as_str().expect("has a UID")
}

/// The number of lines in the agent's log with this in them.
fn lines(node: &Node, text: &str) -> usize {
    node.agent.log().lines().filter(|line| line.contains(text)).count()
}

/// Waits until the agent runs exactly these pods.
#[track_caller]
fn has(node: &Node, want: &[&str]) {
    eventually("the pods", SOON, || {
        let mut pods: Vec<_> = node
            .agent
            .try_pods()?
            .iter()
            .map(|p| {
                let name = p["metadata"]["name"].as_str().unwrap_or_default();
                (name.trim_end_matches("-edge-1").to_owned(), p["status"]["phase"] == "Running")
            })
            .collect();
        pods.sort();
        match pods.iter().map(|(name, runs)| (name.as_str(), *runs)).eq(want.iter().map(|name| (*name, true))) {
            true => Ok(()),
            false => Err(format!("{pods:?}")),
        }
    });
}

/// kubernetes#6165: the kubelet took one pod or one list, not several documents.
#[test]
fn kubernetes_6165_all_forms_of_pods_and_their_changes() {
    let (node, web) = node(Says::Body(sleeper("a")), "500ms");
    let a = node.runs("a");
    let annotations = &a["metadata"]["annotations"];
    assert_eq!(annotations["kubernetes.io/config.source"], "http");
    assert_eq!(annotations["kubernetes.io/config.hash"], uid(&a));
    assert_eq!(a["metadata"]["namespace"], "default");
    web.says(body(&[sleeper("a"), sleeper("b")]));
    has(&node, &["a", "b"]);
    assert_eq!(container_id(&node.runs("a")), container_id(&a), "it was left alone");
    web.says(list("PodList", &["c", "d"]));
    has(&node, &["c", "d"]);
    let c = node.runs("c");
    web.says(list("List", &["c", "e"]));
    has(&node, &["c", "e"]);
    assert_eq!(container_id(&node.runs("c")), container_id(&c), "it was left alone");
    // Who has read it asks for changes only; each time with the header of the configuration.
    let asked = web.asked(3);
    assert!(asked.iter().all(|(head, did)| *did == "304" && head.contains("x-node: edge\r\n")), "{asked:?}");
    web.says(list("PodList", &[]));
    has(&node, &[]);
    node.nothing_left();
}

#[test]
fn what_is_no_answer_takes_no_pod_away_and_is_told_once() {
    let (mut node, mut web) = node(body(&[sleeper("a"), sleeper("b")]), "300ms");
    has(&node, &["a", "b"]);
    let before = [node.runs("a"), node.runs("b")].map(|p| container_id(&p));
    let huge = [b"HTTP/1.1 200 OK\r\n\r\n".as_slice(), &vec![b'#'; 11 << 20]].concat();
    let raw = |text: &str| Says::Raw(text.as_bytes().to_vec());
    let faults = [
        (Says::Raw(huge), "the answer is longer than 10 MiB, no manifest"),
        (raw("HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"), "the answer has status 500, not 200"),
        (raw("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"), "the answer is empty"),
        (raw("HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\napiVersion: v1"), "the connection was closed too early"),
        (Says::Nothing, "no whole answer in time"),
    ];
    for (fault, why) in faults {
        web.says(fault);
        // Two, so that the first has been dealt with.
        web.asked(2);
        assert_eq!(lines(&node, why), 1, "{why}: {}", node.agent.log());
        web.says(body(&[sleeper("a"), sleeper("b")]));
        node.agent.process().signal(Signal::HUP);
        web.asked(2);
    }
    assert_eq!(lines(&node, "answers again"), 5);
    web.close();
    node.told("connection refused; the pods that it gave are kept");
    // A pod that is bad keeps what it was, with one line; the others go on.
    let bad = sleeper("b").replace("image:", "imag:");
    web.says(body(&[sleeper("a"), bad, sleeper("c")]));
    web.open();
    node.agent.process().signal(Signal::HUP);
    has(&node, &["a", "b", "c"]);
    node.told(&format!("{URL}:17: spec.containers[0].image: Required value"));
    web.asked(2);
    assert_eq!(lines(&node, "image: Required value"), 1);
    assert_eq!([node.runs("a"), node.runs("b")].map(|p| container_id(&p)), before);
    web.says(body(&[sleeper("a"), sleeper("c")]));
    has(&node, &["a", "c"]);
    assert_eq!(lines(&node, "has no problem any more"), 1);
}

/// The server is away while the agent, and then the machine, starts.
#[test]
fn the_last_good_set_outlives_the_agent_and_the_machine() {
    let (mut node, mut web) = node(body(&[sleeper("a"), sleeper("b")]), SELDOM);
    has(&node, &["a", "b"]);
    let a = node.runs("a");
    web.close();
    node.agent.restart();
    has(&node, &["a", "b"]);
    assert_eq!(container_id(&node.runs("a")), container_id(&a), "it runs on");
    // Nothing runs any more, as after a boot, and whoever answers says nothing.
    web.says(Says::Nothing);
    web.open();
    node.agent.kill();
    for task in node.containerd.tasks().keys() {
        node.containerd.ctr(&["tasks", "kill", "--signal", "KILL", task]);
    }
    let start = Instant::now();
    node.agent.start();
    eventually("another container", SOON, || match node.runs("a") {
        pod if container_id(&pod) != container_id(&a) => Ok(()),
        _ => Err("it is the one of before".to_owned()),
    });
    has(&node, &["a", "b"]);
    assert!(start.elapsed() < Duration::from_secs(30), "it took {:?}", start.elapsed());
    assert_eq!(uid(&node.runs("a")), uid(&a));
    // It is back, with another truth.
    web.says(body(&[sleeper("b")]));
    has(&node, &["b"]);
}

#[test]
fn files_and_a_url_at_once() {
    let (mut node, web) = node(body(&[sleeper("both"), sleeper("url")]), SELDOM);
    has(&node, &["both", "url"]);
    let both = node.runs("both");
    node.write("both", &pod("both", "sleep 2000"));
    node.write("file", &sleeper("file"));
    has(&node, &["both", "file", "url"]);
    let told =
        format!("both.yaml: pod default/both-edge-1 is that of source http ({URL}) already; this one is ignored");
    node.told(&told);
    assert_eq!(container_id(&node.runs("both")), container_id(&both));
    // Also over a restart, whoever is heard first.
    node.agent.restart();
    has(&node, &["both", "file", "url"]);
    assert_eq!(container_id(&node.runs("both")), container_id(&both));
    assert_eq!(lines(&node, &told), 2, "once for each agent");
    // HUP reads the URL too. What it gives up goes to the file at once.
    web.says(body(&[sleeper("url")]));
    let hup = Instant::now();
    node.agent.process().signal(Signal::HUP);
    node.agent.wait_pod("both", SOON, |pod| {
        pod["metadata"]["annotations"]["kubernetes.io/config.source"] == "file" && pod["status"]["phase"] == "Running"
    });
    assert!(hup.elapsed() < Duration::from_secs(15), "it took {:?}", hup.elapsed());
    has(&node, &["both", "file", "url"]);
}

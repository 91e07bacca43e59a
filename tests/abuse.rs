//! What clients without good manners, or with bad intentions, can do to the agent's ports: nothing to
//! the pods, and little to its memory.
#![cfg(feature = "tls")]

mod support;

use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use support::http::{Authority, Client};
use support::node::{Node, SOON, container_id, pod};
use support::{NODE, eventually};

const PLAIN: u16 = 10255;
const SECURE: u16 = 10250;
const API: u16 = 10270;
/// An answer to somebody who means it, whatever others do: a second at most on a machine that has nothing
/// else to do, and less than the time after which clients give up on one that is overrun.
const PROMPT: Duration = Duration::from_secs(15);
/// What the agent may take more than before, in KiB: TLS of some hundreds of connections, and what of
/// answers nobody takes.
const GROWTH: u64 = 48 << 10;

struct Victim {
    node: Node,
    authority: Authority,
    /// Of the pod that must not notice.
    id: String,
    pid: i32,
}

impl Victim {
    fn start() -> Victim {
        let containerd = support::Containerd::start();
        let mut agent = support::Agent::on_containerd(&containerd);
        let authority = Authority::new("clients");
        let ca = authority.write(containerd.cell().dir().join("ca.crt"));
        let tokens = containerd.cell().dir().join("tokens.csv");
        fs::write(&tokens, "good-token,jane,1,\"system:masters\"\n").expect("writes");
        agent.configure(json!({"authentication": {
            "anonymous": {"enabled": false},
            "webhook": {"enabled": false},
            "x509": {"clientCAFile": ca},
        }}));
        agent.flags(&["--token-auth-file", tokens.to_str().expect("is text")]);
        agent.start();
        let pid = agent.process().pid();
        let node = Node { agent, containerd };
        node.write(
            "web",
            &pod("web", "yes a line that is long enough to fill a buffer soon | head -n 3000000; sleep 100000"),
        );
        let id = container_id(&node.runs("web"));
        Victim { node, authority, id, pid }
    }

    fn plain(&self) -> Client {
        Client::plain(self.node.containerd.cell(), PLAIN)
    }

    fn secure(&self) -> Client {
        let trusted = self.node.agent.root().join("pki/kubelet.crt");
        Client::tls(self.node.containerd.cell(), SECURE, &trusted, None).with_token("good-token")
    }

    fn api(&self) -> Client {
        let trusted = self.node.agent.root().join("pki/kubelet.crt");
        Client::tls(self.node.containerd.cell(), API, &trusted, None).with_token("good-token")
    }

    /// KiB of a line of the process' status.
    fn memory(&self, line: &str) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).expect("reads");
        let line = status.lines().find_map(|l| l.strip_prefix(line)?.strip_prefix(':')).expect("has it");
        line.trim().trim_end_matches(" kB").parse().expect("is a number")
    }

    fn threads(&self) -> usize {
        fs::read_dir(format!("/proc/{}/task", self.pid)).expect("lists").count()
    }

    /// All ports answer at once.
    #[track_caller]
    fn is_prompt(&self) {
        let start = Instant::now();
        assert_eq!(self.plain().get("/healthz").body, "ok");
        for (client, path) in [(self.secure(), "/pods"), (self.api(), "/api/v1/pods")] {
            eventually("a list of pods", PROMPT, || match client.get(path).status {
                200 => Ok(()),
                status => Err(format!("status {status}")),
            });
        }
        assert!(start.elapsed() < PROMPT, "{:?}", start.elapsed());
    }

    /// The pod has not noticed, and another one comes and goes.
    #[track_caller]
    fn is_well(&self) {
        self.node.write("other", &pod("other", "sleep 1000"));
        self.node.runs("other");
        self.node.remove("other");
        self.node.agent.wait_gone("other", SOON);
        let web = self.node.runs("web");
        assert_eq!(
            (container_id(&web), &web["status"]["containerStatuses"][0]["restartCount"]),
            (self.id.clone(), &0.into())
        );
    }
}

/// More open files than a shell gives.
fn many_files() {
    let Rlimit { maximum, .. } = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: maximum, maximum }).expect("raises it");
}

/// 1,000 on each port: silent, half a head, half a handshake, a byte now and then.
#[test]
fn connections_that_lead_nowhere() {
    many_files();
    let victim = Victim::start();
    victim.is_prompt();
    let (before, threads) = (victim.memory("VmRSS"), victim.threads());
    // The first bytes of a TLS handshake that says it is long.
    let hello = [0x16, 3, 1, 0x3f, 0xff, 1, 0, 0x3f, 0xfb, 3, 3];
    let mut crowd: Vec<(usize, TcpStream)> = Vec::new();
    for i in 0..1000 {
        for port in [PLAIN, SECURE, API] {
            let mut socket = victim.node.containerd.cell().connect(port).expect("connects");
            match i % 3 {
                0 => {}
                1 if port == PLAIN => socket.write_all(b"GET /pods HTTP/1.1\r\nHost: x\r\nX: ").expect("writes"),
                1 => socket.write_all(&hello).expect("writes"),
                _ => socket.write_all(&hello[..1 + i % 4]).unwrap_or_default(),
            }
            crowd.push((i, socket));
        }
        if i % 250 == 0 {
            victim.is_prompt();
        }
    }
    let until = Instant::now() + Duration::from_secs(15);
    while Instant::now() < until {
        for (i, socket) in &mut crowd {
            if *i % 3 != 0 {
                // Most are closed by now.
                let _ = socket.write_all(b"a");
            }
        }
        victim.is_prompt();
        thread::sleep(Duration::from_millis(300));
    }
    let (after, peak) = (victim.memory("VmRSS"), victim.memory("VmHWM"));
    println!(
        "3000 connections: {before} KiB before, {after} after, {peak} at most; {threads} threads, then {}",
        victim.threads()
    );
    assert!(peak < before + GROWTH, "{before} KiB, then {peak}");
    assert!(victim.threads() < threads + 20, "{threads}, then {}", victim.threads());
    let is_open = |socket: &mut TcpStream| {
        socket.set_nonblocking(true).expect("sets it");
        matches!(socket.read(&mut [0; 512]), Err(e) if e.kind() == ErrorKind::WouldBlock)
    };
    let open = crowd.iter_mut().map(|(_, socket)| is_open(socket)).filter(|open| *open);
    assert_eq!(open.count(), 0, "each has had its time");
    victim.is_well();
}

/// Clients that ask for logs and lists and never read them.
#[test]
fn readers_that_never_read() {
    many_files();
    let victim = Victim::start();
    let path = format!("/containerLogs/default/web-{NODE}/main");
    victim.node.agent.wait_pod("web", SOON, |_| victim.secure().get(&format!("{path}?tailLines=1")).body.len() > 10);
    victim.is_prompt();
    let before = victim.memory("VmRSS");
    let mut idle = Vec::new();
    for i in 0..60 {
        let follow = if i % 2 == 0 { "?follow=true" } else { "" };
        let opened = victim.secure().open("GET", &format!("{path}{follow}"), "").expect("opens");
        assert_eq!(opened.status, 200);
        idle.push(opened);
    }
    let lists: Vec<TcpStream> = (0..200)
        .map(|_| {
            let mut socket = victim.node.containerd.cell().connect(PLAIN).expect("connects");
            let request = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n".repeat(50);
            socket.write_all(request.as_bytes()).expect("writes");
            socket
        })
        .collect();
    victim.is_prompt();
    let log = victim.secure().get(&format!("{path}?limitBytes=100000"));
    assert_eq!((log.status, log.body.len()), (200, 100_000), "one that reads gets its log");
    // Half a minute without a byte taken is the end of them.
    eventually("places for others", Duration::from_secs(90), || {
        let free: Vec<_> =
            (0..30).map_while(|_| victim.secure().open("GET", &path, "").ok().filter(|o| o.status == 200)).collect();
        if free.len() == 30 { Ok(()) } else { Err(format!("{} places", free.len())) }
    });
    let peak = victim.memory("VmHWM");
    println!("60 logs and 200 lists that nobody reads: {before} KiB before, {peak} at most");
    assert!(peak < before + GROWTH, "{before} KiB, then {peak}");
    drop((idle, lists));
    victim.is_well();
}

/// For all headers that are sent by hand.
const AUTH: &str = "Host: x\r\nAuthorization: Bearer good-token\r\n";

/// What is no name, in a path.
const BAD_NAMES: [&str; 14] = [
    "..",
    "%2e%2e",
    ".",
    "",
    "..%2f..%2f..%2fetc%2fpasswd",
    "%2fetc%2fpasswd",
    "..%5c..",
    "a%00b",
    "%ff",
    "%c0%ae%c0%ae",
    "../../../../etc/passwd",
    "*",
    "default_web",
    "a%0d%0aSet-Cookie:%20x=y",
];

/// Heads that are too long, and requests that hide another one, get one answer: no.
#[track_caller]
fn is_one_answer(clients: &[Client], list: &str, hidden: &str) {
    let n = hidden.len();
    let requests = [
        (format!("GET {list} HTTP/1.1\r\n{AUTH}X: {}\r\n\r\n", "a".repeat(1 << 20)), 431),
        (format!("GET /{} HTTP/1.1\r\n{AUTH}\r\n", "a".repeat(1 << 20)), 431),
        (format!("GET {list} HTTP/1.1\r\n{AUTH}{}\r\n", "X: a\r\n".repeat(1000)), 431),
        (
            format!(
                "POST {list} HTTP/1.1\r\n{AUTH}Content-Length: {n}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}"
            ),
            400,
        ),
        (format!("POST {list} HTTP/1.1\r\n{AUTH}Content-Length: 0\r\nContent-Length: {n}\r\n\r\n{hidden}"), 400),
        (format!("POST {list} HTTP/1.1\r\n{AUTH}Transfer-Encoding: x, chunked\r\n\r\n0\r\n\r\n{hidden}"), 501),
        (format!("POST {list} HTTP/1.1\r\n{AUTH}Transfer-Encoding : chunked\r\n\r\n0\r\n\r\n{hidden}"), 400),
        (format!("GET {list} HTTP/1.1\r\n{AUTH}X: a\n\n{hidden}"), 400),
        (format!("GET {list} HTTP/1.1\r\n{AUTH}Content-Length: {n}\r\nConnection: close\r\n\r\n{hidden}"), 200),
        (format!("GET {list} HTTP/1.1\r\n{AUTH}Content-Length: 1000000\r\n\r\n{hidden}"), 200),
    ];
    for client in clients {
        for (request, status) in &requests {
            match client.raw(request.as_bytes()) {
                Ok(answer) => {
                    assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{request:.200}: {answer}");
                    assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{request:.200}: {answer}");
                }
                // It was told, and had more to say than is listened to.
                Err(e) => assert!(*status == 431, "{request:.200}: {e}"),
            }
        }
    }
}

#[test]
fn requests_that_are_refused() {
    let victim = Victim::start();
    let stranger = Authority::new("clients").identity("system:masters", Some("system:masters"));
    let trusted = victim.node.agent.root().join("pki/kubelet.crt");
    let unknown = Client::tls(victim.node.containerd.cell(), SECURE, &trusted, Some(stranger));
    assert!(unknown.send("GET", "/pods").is_err());
    let known = victim.authority.identity("jane", None);
    let known = Client::tls(victim.node.containerd.cell(), SECURE, &trusted, Some(known));
    assert_eq!(known.get("/pods").status, 200);

    let hidden = format!("POST /run/default/web-{NODE}/main?cmd=touch+/tmp/smuggled HTTP/1.1\r\n{AUTH}\r\n");
    is_one_answer(&[victim.plain(), victim.secure()], "/pods", &hidden);
    let tmp = victim.secure().send("POST", &format!("/run/default/web-{NODE}/main?cmd=ls+/tmp")).expect("answers");
    assert_eq!((tmp.status, tmp.body.contains("smuggled")), (200, false), "{tmp:?}");

    let good = ["default".to_owned(), format!("web-{NODE}"), "main".to_owned()];
    let endpoints = [
        ("GET", "containerLogs"),
        ("POST", "exec"),
        ("POST", "attach"),
        ("POST", "run"),
        ("POST", "checkpoint"),
        ("POST", "portForward"),
    ];
    let upgrade = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n";
    let query = "command=true&cmd=true&output=1&port=80";
    for (method, endpoint) in endpoints {
        let names = if endpoint == "portForward" { 2 } else { 3 };
        for (place, text) in (0..names).flat_map(|place| BAD_NAMES.map(|text| (place, text))) {
            let mut parts = good.clone();
            parts[place] = text.to_owned();
            let path = format!("/{endpoint}/{}", parts[..names].join("/"));
            let opened = victim.secure().open(method, &format!("{path}?{query}"), upgrade).expect("answers");
            assert!((400..500).contains(&opened.status), "{path}: {}", opened.status);
            assert!(opened.headers.iter().all(|(name, _)| name != "set-cookie"), "{path}");
        }
    }
    for path in [
        "..",
        "../../etc/passwd",
        "%2e%2e/%2e%2e/etc/passwd",
        "..%2f..%2fetc%2fpasswd",
        "/etc/passwd",
        "pods/../../../etc/passwd",
        "./x",
    ] {
        let answer = victim.secure().get(&format!("/logs/{path}"));
        assert!((400..500).contains(&answer.status) && !answer.body.contains("root:"), "{path}: {answer:?}");
    }
    assert!(fs::read_dir(victim.node.agent.root().join("checkpoints")).map_or(0, Iterator::count) == 0);
    victim.is_prompt();
    victim.is_well();
}

/// The same of the node's own API, which writes files.
#[test]
fn writes_that_are_refused() {
    let victim = Victim::start();
    let api = victim.api();
    let manifests = victim.node.agent.manifests();
    let listing = || {
        let entries = |path: &std::path::Path| -> Vec<_> {
            let mut names: Vec<_> = fs::read_dir(path).expect("lists").flatten().map(|e| e.file_name()).collect();
            names.sort();
            names
        };
        (entries(&manifests), entries(manifests.parent().expect("has one")))
    };
    let (before, memory) = (listing(), victim.memory("VmRSS"));
    let pods = "/api/v1/namespaces/default/pods";
    is_one_answer(&[victim.api()], "/api/v1/pods", &format!("DELETE {pods}/web HTTP/1.1\r\n{AUTH}\r\n"));

    let upgrade = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\n";
    let web = format!("web-{NODE}");
    for bad in BAD_NAMES {
        for (method, path) in [
            ("GET", format!("/api/v1/namespaces/{bad}/pods/{web}")),
            ("GET", format!("{pods}/{bad}")),
            ("PUT", format!("{pods}/{bad}")),
            ("PATCH", format!("{pods}/{bad}")),
            ("DELETE", format!("{pods}/{bad}")),
            ("DELETE", format!("/api/v1/namespaces/{bad}/configmaps/a")),
            ("PATCH", format!("{pods}/{bad}/ephemeralcontainers")),
            ("GET", format!("{pods}/{bad}/log")),
            ("GET", format!("{pods}/{web}/log?container={bad}x")),
            ("POST", format!("{pods}/{bad}/exec?command=true&stdout=1")),
            ("POST", format!("{pods}/{web}/exec?command=true&stdout=1&container={bad}x")),
            ("POST", format!("{pods}/{bad}/attach?stdout=1")),
            ("POST", format!("{pods}/{bad}/portforward?ports=80")),
            ("GET", format!("/apis/metrics.k8s.io/v1beta1/namespaces/default/pods/{bad}")),
        ] {
            // An empty name is a list, and a value that is no text is as good as none.
            let is_right = bad.is_empty() && method == "GET" && path.ends_with('/');
            if is_right || path.contains("container=%ff") || path.contains("container=%c0") {
                continue;
            }
            let opened = api.open(method, &path, upgrade).expect("answers");
            assert!((400..500).contains(&opened.status), "{method} {path}: {}", opened.status);
            assert!(opened.headers.iter().all(|(name, _)| name != "set-cookie"), "{path}");
        }
    }

    let post = |path: &str, kind: &str, body: &str| {
        let head = format!("POST {path} HTTP/1.1\r\n{AUTH}Content-Type: {kind}\r\nConnection: close\r\n");
        api.raw(format!("{head}Content-Length: {}\r\n\r\n{body}", body.len()).as_bytes())
    };
    let long = "a".repeat(300);
    for name in
        ["../x", "..", ".", "a/b", "/etc/x", "A", "a_b", "-a", "", "a\\u0000b", "a\\nb", ".hidden", long.as_str()]
    {
        for (resource, body) in [
            ("configmaps", format!(r#"{{"metadata": {{"name": "{name}"}}, "data": {{}}}}"#)),
            ("secrets", format!(r#"{{"metadata": {{"name": "{name}"}}}}"#)),
            (
                "pods",
                format!(
                    r#"{{"metadata": {{"name": "{name}"}}, "spec": {{"containers": [{{"name": "a", "image": "i"}}]}}}}"#
                ),
            ),
        ] {
            let answer =
                post(&format!("/api/v1/namespaces/default/{resource}"), "application/json", &body).expect("answers");
            assert!(answer.starts_with("HTTP/1.1 4"), "{resource} {name:?}: {answer}");
        }
    }
    let maps = "/api/v1/namespaces/default/configmaps";
    let bomb = format!("a: &a [{}]\n", "x,".repeat(1000))
        + &(0..20).map(|i| format!("b{i}: &b{i} [{}]\n", "*a,".repeat(1000))).collect::<String>();
    for (kind, body) in [
        ("application/json", "[".repeat(1 << 20)),
        ("application/json", "{".repeat(1 << 10)),
        ("application/yaml", bomb),
        ("application/yaml", "[".repeat(1 << 20)),
        ("application/vnd.kubernetes.protobuf", "k8s\0\x0a\x7f".to_owned()),
        (
            "application/json",
            format!(r#"{{"metadata": {{"name": "big"}}, "data": {{"a": "{}"}}}}"#, "a".repeat(2 << 20)),
        ),
    ] {
        let answer = post(maps, kind, &body).expect("answers");
        assert!(answer.starts_with("HTTP/1.1 4"), "{kind} {body:.50}: {answer:.500}");
    }
    let huge = post(maps, "application/json", &"a".repeat(8 << 20));
    assert!(huge.is_err() || huge.is_ok_and(|answer| answer.starts_with("HTTP/1.1 413 ")));
    let (after, peak) = (listing(), victim.memory("VmHWM"));
    assert_eq!(before, after, "no file came, none went");
    println!("bodies of all kinds: {memory} KiB before, {peak} at most");
    assert!(peak < memory + GROWTH, "{memory} KiB, then {peak}");
    victim.is_prompt();
    victim.is_well();
}

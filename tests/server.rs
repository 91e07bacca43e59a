//! The kubelet API on a real containerd.
#![cfg(feature = "tls")]

mod support;

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::Stdio;

use serde_json::{Value, json};
use support::http::{Authority, Client, WebSocket};
use support::node::{Node, SOON, pod};
use support::{NODE, eventually};

const PLAIN: u16 = 10255;
const SECURE: u16 = 10250;

/// A node with an authority for clients and a token for `jane`; `mode` is of the authorization.
fn node(mode: &str, anonymous: bool, more: &Value) -> (Node, Authority) {
    let containerd = support::Containerd::start();
    let mut agent = support::Agent::on_containerd(&containerd);
    let dir = containerd.cell().dir();
    let authority = Authority::new("the clients' authority");
    let ca = authority.write(dir.join("ca.crt"));
    let tokens = dir.join("tokens.csv");
    fs::write(&tokens, "good-token,jane,1\n").expect("writes");
    agent.configure(json!({
        "authentication": {
            "anonymous": {"enabled": anonymous},
            "webhook": {"enabled": false},
            "x509": {"clientCAFile": ca},
        },
        "authorization": {"mode": mode},
    }));
    agent.configure(more.clone());
    agent.flags(&["--token-auth-file", tokens.to_str().expect("is text")]);
    agent.start();
    (Node { agent, containerd }, authority)
}

fn client(node: &Node, identity: Option<support::http::Identity>) -> Client {
    Client::tls(node.containerd.cell(), SECURE, &node.agent.root().join("pki/kubelet.crt"), identity)
}

fn jane(node: &Node) -> Client {
    client(node, None).with_token("good-token")
}

#[test]
fn who_may_ask() {
    let (node, authority) = node("AlwaysAllow", false, &json!({}));
    let stranger = Authority::new("the clients' authority");
    assert_eq!(client(&node, Some(authority.identity("joe", None))).get("/pods").status, 200);
    assert_eq!(jane(&node).get("/pods").status, 200);
    let nobody = client(&node, None);
    let refused = nobody.get("/pods");
    assert_eq!((refused.status, refused.header("www-authenticate")), (401, Some("Bearer")));
    assert_eq!(nobody.clone().with_token("bad-token").get("/healthz").status, 401);
    let refused = client(&node, Some(stranger.identity("joe", None))).send("GET", "/pods");
    assert!(refused.is_err(), "an authority that only has the right name: {refused:?}");
    let plain = Client::plain(node.containerd.cell(), SECURE).send("GET", "/pods");
    assert!(plain.is_err(), "without TLS: {plain:?}");
    let key = node.agent.root().join("pki/kubelet.key");
    let mode = std::os::unix::fs::PermissionsExt::mode(&fs::metadata(key).expect("is there").permissions());
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn who_may_do_it() {
    let (node, authority) = node("Webhook", true, &json!({}));
    let master = client(&node, Some(authority.identity("admin", Some("system:masters"))));
    assert_eq!(master.get("/pods").status, 200);
    for who in [jane(&node), client(&node, None)] {
        let refused = who.get("/metrics");
        assert_eq!(refused.status, 403);
        assert!(refused.body.contains("there is no API server to ask"), "{}", refused.body);
    }
}

#[test]
fn what_each_port_offers() {
    let (node, _) = node("AlwaysAllow", false, &json!({}));
    node.write("web", &pod("web", "echo hello; sleep 1000"));
    let web = node.runs("web");
    let (plain, secure) = (Client::plain(node.containerd.cell(), PLAIN), jane(&node));
    let name = format!("web-{NODE}");
    let both = [
        "/healthz",
        "/pods",
        "/metrics",
        "/metrics/cadvisor",
        "/metrics/resource",
        "/metrics/probes",
        "/stats/summary",
    ];
    for path in both {
        assert_eq!((plain.get(path).status, secure.get(path).status), (200, 200), "{path}");
    }
    let log = format!("/containerLogs/default/{name}/main");
    for path in ["/runningpods/", "/configz", "/logs/", &log] {
        assert_eq!((plain.get(path).status, secure.get(path).status), (404, 200), "{path}");
    }
    let run = format!("/run/default/{name}/main?cmd=true");
    for path in [&run, &run.replace("run", "exec"), &run.replace("run", "attach")] {
        assert_eq!(plain.send("POST", path).expect("answers").status, 404, "{path}");
    }
    assert_eq!(secure.send("POST", &run.replace("=true", "=echo+said")).expect("answers").body, "said\n");
    let failed = secure.send("POST", &run.replace("=true", "=false")).expect("answers");
    assert!(failed.status == 500 && failed.body.contains("exited with 1"), "{failed:?}");

    let health = secure.get("/healthz?verbose");
    assert!(health.body.contains("[+]syncloop ok\n[+]runtime ok\n"), "{}", health.body);
    let running = secure.get("/runningpods/").json();
    assert_eq!(running["items"][0]["metadata"]["uid"], web["metadata"]["uid"]);
    let configuration = secure.get("/configz").json();
    assert_eq!(configuration["kubeletconfig"]["readOnlyPort"], PLAIN);
    assert!(secure.get("/logs/").body.contains("containers/"));
    let checkpoint = secure.send("POST", &format!("/checkpoint/default/{name}/main")).expect("answers");
    assert!(checkpoint.status == 404 && checkpoint.body.contains("can't take checkpoints"), "{checkpoint:?}");

    node.containerd.stop();
    eventually("what is unhealthy", SOON, || match plain.get("/healthz") {
        answer if answer.status == 500 && answer.body.contains("[-]runtime failed: ") => Ok(()),
        answer => Err(answer.body),
    });
}

#[test]
fn logs_in_all_ways() {
    let (node, _) = node("AlwaysAllow", false, &json!({}));
    let script = "for i in 1 2 3 4 5; do echo line $i; done; echo wrong >&2; cat /again && sleep 1000; touch /again; sleep 1; exit 3";
    let text = pod("talk", script)
        .replace("cat /again", "test -e /shared/again")
        .replace("touch /again", "touch /shared/again");
    let shared = "    volumeMounts: [{name: shared, mountPath: /shared}]\n  volumes: [{name: shared, emptyDir: {}}]\n";
    node.write("talk", &(text + shared));
    node.agent.wait_pod("talk", SOON, |pod| {
        let main = &pod["status"]["containerStatuses"][0];
        main["restartCount"] == 1 && !main["state"]["running"].is_null()
    });
    let client = jane(&node);
    let path = format!("/containerLogs/default/talk-{NODE}/main");
    let whole = "line 1\nline 2\nline 3\nline 4\nline 5\nwrong\n";
    let table = [
        ("?stream=Stdout", 200, &whole[..35]),
        ("?stream=Stdout&tailLines=2", 200, "line 4\nline 5\n"),
        ("?stream=Stderr", 200, "wrong\n"),
        ("?stream=Stdout&limitBytes=9", 200, "line 1\nli"),
        ("?tailLines=0", 200, ""),
        ("?sinceTime=2100-01-01T00:00:00Z", 200, ""),
        ("?sinceSeconds=3600&stream=Stdout&tailLines=1", 200, "line 5\n"),
        ("?previous=true&stream=Stdout&tailLines=1", 200, "line 5\n"),
        ("?tailLines=x", 422, "tailLines must be a number, 0 or more\n"),
        ("?sinceSeconds=5&sinceTime=2100-01-01T00:00:00Z", 422, "sinceSeconds can't be used with sinceTime\n"),
    ];
    for (query, status, want) in table {
        eventually(query, SOON, || match client.get(&format!("{path}{query}")) {
            answer if answer.status == status && answer.body == want => Ok(()),
            answer => Err(format!("{answer:?}")),
        });
    }
    let lines = client.get(&path).body;
    assert_eq!(lines.len(), whole.len(), "both streams: {lines}");
    let stamped = client.get(&format!("{path}?timestamps=true&stream=Stdout&tailLines=1")).body;
    let (time, line) = stamped.split_once(' ').expect("has a time");
    assert!(time.parse::<jiff::Timestamp>().is_ok() && line == "line 5\n", "{stamped}");
    assert_eq!(client.get(&path.replace("/main", "/other")).status, 404);
    assert_eq!(client.get(&path.replace("talk-", "walk-")).status, 404);

    let mut followed = client.open("GET", &format!("{path}?follow=true&stream=Stdout&tailLines=1"), "").expect("opens");
    let mut first = [0; 7];
    followed.read_exact(&mut first).expect("reads");
    assert_eq!(&first, b"line 5\n");
    node.remove("talk");
    let mut rest = String::new();
    followed.read_to_string(&mut rest).expect("the log ends with its container");
    assert_eq!(rest, "");
}

#[test]
fn commands_and_ports() {
    let (node, _) = node("AlwaysAllow", false, &json!({}));
    node.write(
        "shell",
        &pod("shell", "echo served > /index.html; httpd -p 8080 -h /; cat")
            .replace("command:", "stdin: true\n    command:"),
    );
    node.runs("shell");
    let client = jane(&node);
    let at = |what: &str, query: &str| format!("/{what}/default/shell-{NODE}/main?{query}");
    let exec = at("exec", "command=sh&command=-c&command=echo+out%3Becho+err+%3E%262%3Bexit+7&output=1&error=1");
    let [_, out, err, status] = WebSocket::open(&client, &exec).receive_all();
    assert_eq!((out.as_str(), err.as_str()), ("out\n", "err\n"));
    let status: Value = serde_json::from_str(&status).expect("is a status");
    assert_eq!(status["details"]["causes"][0]["message"], "7", "{status}");

    let mut cat = WebSocket::open(&client, &at("exec", "command=cat&input=1&output=1"));
    for text in ["one\n", "two\n"] {
        cat.send(0, text.as_bytes()).expect("sends");
        assert_eq!(cat.receive().expect("receives"), Some((1, text.as_bytes().to_vec())));
    }
    let mut attached = WebSocket::open(&client, &at("attach", "input=1&output=1"));
    attached.send(0, b"to the first process\n").expect("sends");
    assert_eq!(attached.receive().expect("receives"), Some((1, b"to the first process\n".to_vec())));

    let forward = format!("/portForward/default/shell-{NODE}?port=8080");
    let mut port = WebSocket::open(&client, &forward);
    for channel in [0, 1] {
        let number = 8080u16.to_le_bytes().to_vec();
        assert_eq!(port.receive().expect("receives"), Some((channel, number)), "which port it is");
    }
    port.send(0, b"GET /index.html HTTP/1.0\r\n\r\n").expect("sends");
    let mut page = Vec::new();
    while !page.ends_with(b"served\n") {
        let (channel, bytes) = port.receive().expect("receives").expect("is not over");
        assert_eq!(channel, 0, "{}", String::from_utf8_lossy(&bytes));
        page.extend(bytes);
    }

    // SPDY is passed through: its ping comes back.
    let spdy = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n";
    let table =
        [(exec.as_str(), spdy.to_owned()), (forward.as_str(), spdy.replace("v4.channel.k8s.io", "portforward.k8s.io"))];
    for (path, headers) in table {
        let mut opened = client.open("POST", path, &headers).expect("answers");
        assert_eq!(opened.status, 101, "{path}");
        assert!(opened.headers.iter().any(|(name, value)| name == "upgrade" && value == "SPDY/3.1"), "{path}");
        let ping = [0x80, 3, 0, 6, 0, 0, 0, 4, 0, 0, 0, 1];
        opened.stream.get_mut().write_all(&ping).expect("sends");
        let mut heard = [0; 12];
        opened.stream.read_exact(&mut heard).expect("receives");
        assert_eq!(heard, ping, "{path}");
    }
    assert_eq!(client.send("POST", &exec).expect("answers").status, 400, "without an upgrade");
    assert_eq!(client.open("POST", &exec.replace("/main", "/none"), spdy).expect("answers").status, 404);
}

#[test]
fn metrics_as_prometheus_takes_them() {
    support::cell::require(&["prometheus", "promtool"]);
    let (node, _) = node("AlwaysAllow", false, &json!({}));
    let probed = pod("web", "head -c 200000 /dev/zero > /data/file; sleep 1000")
        + "    livenessProbe: {exec: {command: ['true']}, periodSeconds: 1}\n    resources: {limits: {cpu: 100m, memory: 32Mi}}\n"
        + "    volumeMounts: [{name: data, mountPath: /data}]\n  volumes: [{name: data, emptyDir: {}}]\n";
    node.write("web", &probed);
    node.runs("web");
    let cell = node.containerd.cell();
    let client = jane(&node);
    let labels = format!("container=\"main\",namespace=\"default\",pod=\"web-{NODE}\"");
    eventually("a probe", SOON, || match client.get("/metrics/probes").body {
        text if text.contains("result=\"successful\"") => Ok(()),
        text => Err(text),
    });
    let wanted: [(&str, &[&str]); 4] = [
        (
            "/metrics",
            &[
                "kubelet_running_pods 1\n",
                "kubelet_running_containers{container_state=\"running\"} 1\n",
                "kubelet_started_containers_total{container_type=\"container\"} 1\n",
                "kubelet_pod_start_duration_seconds_count 1\n",
                "kubelet_pleg_relist_duration_seconds_count ",
                "kubelet_runtime_operations_total{operation_type=\"run_podsandbox\"} 1\n",
                "kubelet_http_requests_total{",
                "process_resident_memory_bytes ",
            ],
        ),
        (
            "/metrics/cadvisor",
            &[
                "container_cpu_usage_seconds_total{container=\"main\"",
                "container_memory_working_set_bytes{container=\"main\"",
                "container_spec_memory_limit_bytes{container=\"main\"",
                "container_network_receive_bytes_total{id=\"/",
                "machine_cpu_cores ",
            ],
        ),
        ("/metrics/resource", &["node_cpu_usage_seconds_total ", &labels, "resource_scrape_error 0\n"]),
        ("/metrics/probes", &["prober_probe_total{probe_type=\"Liveness\",container=\"main\""]),
    ];
    for (path, parts) in wanted {
        let text = client.get(path).body;
        for part in parts {
            assert!(text.contains(part), "{path}: {part} is not in\n{text}");
        }
        let file = cell.dir().join("metrics");
        fs::write(&file, &text).expect("writes");
        let mut check = std::process::Command::new("promtool");
        check.args(["check", "metrics"]).stdin(fs::File::open(&file).expect("opens"));
        let out = check.output().expect("promtool runs");
        let told = String::from_utf8_lossy(&out.stderr).into_owned() + &String::from_utf8_lossy(&out.stdout);
        assert!(out.status.success() && told.is_empty(), "{path}: {told}");
    }

    let summary = client.get("/stats/summary").json();
    let web = &summary["pods"][0];
    assert_eq!(web["podRef"]["name"], format!("web-{NODE}"));
    assert!(web["containers"][0]["memory"]["workingSetBytes"].as_u64().is_some_and(|n| n > 0), "{web:#}");
    assert_eq!(web["network"]["name"], "eth0", "{web:#}");
    assert!(summary["node"]["memory"]["availableBytes"].as_u64().is_some_and(|n| n > 0));
    eventually("what the volume takes", SOON, || {
        let volume = client.get("/stats/summary").json()["pods"][0]["volume"][0].take();
        let is = volume["name"] == "data" && volume["usedBytes"].as_u64().is_some_and(|n| n >= 200_000);
        if is { Ok(()) } else { Err(volume.to_string()) }
    });
    // The runtime measures it every ten seconds.
    eventually("what images take", SOON, || {
        let images = client.get("/stats/summary").json()["node"]["runtime"]["imageFs"].take();
        if images["usedBytes"].as_u64().is_some_and(|n| n > 0) { Ok(()) } else { Err(images.to_string()) }
    });
    assert!(client.get("/stats/summary?only_cpu_and_memory=true").json()["node"]["fs"].is_null());
    scraped(cell);
}

/// A real Prometheus scrapes both ports.
fn scraped(cell: &support::Cell) {
    let config = cell.dir().join("prometheus.yml");
    let job = |name: &str, path: &str, more: &str| {
        format!("- job_name: {name}\n  metrics_path: {path}\n  scrape_interval: 1s\n{more}")
    };
    let plain = format!("  static_configs: [{{targets: ['127.0.0.1:{PLAIN}']}}]\n");
    let ca = cell.dir().join("agent/root/pki/kubelet.crt");
    let secure = format!(
        "  scheme: https\n  tls_config: {{ca_file: {}}}\n  authorization: {{credentials: good-token}}\n  static_configs: [{{targets: ['127.0.0.1:{SECURE}']}}]\n",
        ca.display()
    );
    let jobs: String = ["", "/cadvisor", "/resource", "/probes"]
        .iter()
        .flat_map(|path| {
            let (path, name) = (format!("/metrics{path}"), path.trim_start_matches('/'));
            [job(&format!("plain-{name}"), &path, &plain), job(&format!("secure-{name}"), &path, &secure)]
        })
        .collect();
    fs::write(&config, format!("scrape_configs:\n{jobs}")).expect("writes");
    let mut command = cell.command("prometheus");
    command.arg(format!("--config.file={}", config.display()));
    command.arg(format!("--storage.tsdb.path={}", cell.dir().join("tsdb").display()));
    command.arg("--web.listen-address=127.0.0.1:9090").stdin(Stdio::null());
    let log = fs::File::create(cell.dir().join("prometheus.log")).expect("makes its log");
    command.stdout(log.try_clone().expect("shares it")).stderr(log);
    let _prometheus = cell.spawn("prometheus", command);
    let query = |text: &str| -> Result<Value, String> {
        let url = format!("http://127.0.0.1:9090/api/v1/query?query={text}");
        let answer = cell.run("curl", &["--silent", "--show-error", "--noproxy", "*", &url])?;
        serde_json::from_str(&answer).map_err(|e| format!("{e}: {answer}"))
    };
    eventually("all targets to be up", SOON, || {
        let answer = query("sum(up)")?;
        match answer["data"]["result"][0]["value"][1].as_str() {
            Some("8") => Ok(()),
            _ => Err(answer.to_string()),
        }
    });
    let working_set = query("container_memory_working_set_bytes%7Bcontainer=%22main%22%7D").expect("answers");
    assert_eq!(working_set["data"]["result"].as_array().map(Vec::len), Some(4), "{working_set}");
}

/// How much a container writes while it is followed: 1 GiB where `CLEAT_FOLLOW_MIB=1024` asks for it.
fn followed_mib() -> u64 {
    std::env::var("CLEAT_FOLLOW_MIB").map_or(96, |text| text.parse().expect("CLEAT_FOLLOW_MIB is a number"))
}

/// Not a line is lost or doubled over rotations, and both limits on the disk hold.
#[test]
fn a_long_log_that_is_followed() {
    const LINE: u64 = 1024;
    const BURSTS: u64 = 16;
    let containerd = support::Containerd::start();
    let mut agent = support::Agent::on_containerd(&containerd);
    agent.configure(
        json!({"containerLogMaxSize": "4Mi", "containerLogMaxFiles": 4, "containerLogMonitorInterval": "3s"}),
    );
    agent.flags(&["--container-log-max-total-size", "10Mi"]);
    agent.start();
    let node = Node { agent, containerd };
    let lines = followed_mib() * (1 << 20) / LINE;
    let each = lines / BURSTS;
    // It begins when it is told to, so that the follower is there, and rests between its bursts.
    let program = format!(
        "BEGIN {{ p = sprintf(\\\"%{}s\\\", \\\"\\\"); for (i = 0; i < {lines}; i++) {{ printf \\\"%08d%s\\\\n\\\", i, p; if (i % {each} == 0) {{ fflush(); system(\\\"sleep 1\\\") }} }} }}",
        LINE - 9
    );
    let script = format!("while ! test -e /shared/go; do sleep 0.1; done; awk '{program}'; sleep 100000");
    let shared = node.shared("follow");
    let text = pod("long", &script)
        + &format!(
            "    volumeMounts: [{{name: shared, mountPath: /shared}}]\n  volumes: [{{name: shared, hostPath: {{path: {}}}}}]\n",
            shared.display()
        );
    node.write("long", &text);
    let long = node.runs("long");
    let path = format!("/containerLogs/default/long-{NODE}/main?follow=true");
    let followed = client(&node, None).open("GET", &path, "").expect("opens");
    fs::write(shared.join("go"), "").expect("writes");
    let mut followed = BufReader::with_capacity(1 << 20, followed);
    let mut line = Vec::new();
    for i in 0..lines {
        line.clear();
        followed.read_until(b'\n', &mut line).unwrap_or_else(|e| panic!("after {i} lines: {e}"));
        let number = line.get(..8).and_then(|n| std::str::from_utf8(n).ok()?.parse().ok());
        assert_eq!((number, line.len() as u64), (Some(i), LINE), "{}", String::from_utf8_lossy(&line));
    }
    let log = node.log_file(&long, "main", 0);
    let directory = log.parent().expect("has one");
    let sizes = || -> Vec<u64> {
        let entries = fs::read_dir(directory).expect("lists").flatten();
        entries.filter_map(|entry| entry.metadata().ok()).map(|meta| meta.len()).collect()
    };
    eventually("the limits", SOON, || match sizes() {
        sizes if sizes.len() <= 4 && sizes.iter().sum::<u64>() <= 10 << 20 => Ok(()),
        sizes => Err(format!("{sizes:?}")),
    });
    println!("{lines} lines, {} MiB, none lost or doubled; on the disk {:?} bytes", followed_mib(), sizes());
    assert!(Path::new(&log).exists(), "what is being written stays");
}

//! Namespaces, ports, names and name services: what a container sees of the network and of others.

mod support;

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};
use support::manifest::Manifest;
use support::node::{Node, SOON};
use support::{cell, eventually};

const RUN: &str = "sleep 1000";

/// A namespace of a process in the cell.
fn namespace(node: &Node, pid: i32, kind: &str) -> PathBuf {
    fs::read_link(node.containerd.cell().path(format!("/proc/{pid}/ns/{kind}"))).expect("reads")
}

#[test]
fn namespaces() {
    let node = Node::start();
    let pods = [("plain", ""), ("net", "hostNetwork: true"), ("pid", "hostPID: true"), ("ipc", "hostIPC: true")];
    for (name, spec) in pods.into_iter().chain([("shared", "shareProcessNamespace: true")]) {
        node.add(&Manifest::pod(name).spec(spec).main(RUN, "").container("other", RUN, ""));
    }
    let kinds = ["net", "pid", "ipc", "uts", "mnt"];
    let of = |name: &str| {
        let pod = node.runs(name);
        ["main", "other"].map(|container| {
            let pid = node.pid(&pod, container);
            kinds.map(|kind| namespace(&node, pid, kind))
        })
    };
    let on_node = kinds.map(|kind| namespace(&node, 1, kind));
    for (name, _) in pods {
        let [main, other] = of(name);
        // The name of the node goes with its network.
        let with_node = kinds.map(|kind| kind == name || kind == "uts" && name == "net");
        assert_eq!(std::array::from_fn(|i| main[i] == on_node[i]), with_node, "{name}");
        let with_other = [true, name == "pid", true, true, false];
        assert_eq!(std::array::from_fn(|i| main[i] == other[i]), with_other, "{name}");
    }
    let [main, other] = of("shared");
    assert_eq!((main[1] == other[1], main[1] == on_node[1]), (true, false));
    let shared = node.runs("shared");
    let first = node.exec(&shared, "main", "cat /proc/1/comm; ps | grep -c 'sleep 100[0]'");
    assert_eq!(first, Ok("pause\n2".to_owned()));
    let net = node.runs("net");
    assert_eq!(node.exec(&net, "main", "ip -4 addr show eth0 | grep -o '192.0.2.10'"), Ok(cell::HOST_IP.to_owned()));
}

#[test]
fn host_ports() {
    let node = Node::start();
    let serve = |text: &str, port: u16| format!("echo {text} >/tmp/index.html; exec httpd -f -p {port} -h /tmp");
    let ports =
        "ports: [{containerPort: 8080, hostPort: 8081}, {containerPort: 8080, hostPort: 8082, hostIP: 127.0.0.1}]";
    node.add(&Manifest::pod("ported").main(&serve("by-port", 8080), ports));
    let own = "ports: [{containerPort: 8083}]";
    node.add(&Manifest::pod("on-node").spec("hostNetwork: true").main(&serve("by-node", 8083), own));
    let answers = |address: &str, want: &str| {
        eventually(address, SOON, || match node.containerd.http_get(&format!("http://{address}/")) {
            Ok((200, body)) if body.trim() == want => Ok(()),
            other => Err(format!("{other:?}")),
        });
    };
    answers("192.0.2.10:8081", "by-port");
    answers("127.0.0.1:8082", "by-port");
    answers("127.0.0.1:8083", "by-node");
    assert!(node.containerd.http_get("http://192.0.2.10:8082/").is_err(), "that port is for 127.0.0.1 only");
    // Who comes later and wants one of them can't be here; another protocol or address is another port.
    for (name, spec, port) in [
        ("same", "", "{containerPort: 1, hostPort: 8081}"),
        ("any-address", "", "{containerPort: 1, hostPort: 8082}"),
        ("of-node", "hostNetwork: true", "{containerPort: 8083, hostPort: 8083}"),
    ] {
        node.add(&Manifest::pod(name).spec(spec).main(RUN, &format!("ports: [{port}]")));
        let refused = node.reaches(name, "Failed");
        assert_eq!(refused["status"]["reason"], "NodePorts", "{name}");
    }
    node.add(&Manifest::pod("udp").main(RUN, "ports: [{containerPort: 1, hostPort: 8081, protocol: UDP}]"));
    node.runs("udp");
    // When the first one goes, the port is free.
    node.remove("ported");
    node.agent.wait_gone("ported", SOON);
    eventually("a free port", SOON, || match node.containerd.http_get("http://192.0.2.10:8081/") {
        Ok(answer) => Err(format!("{answer:?}")),
        Err(_) => Ok(()),
    });
}

/// What the container `main` of a running pod has.
fn file(node: &Node, name: &str, path: &str) -> Vec<String> {
    let pod = node.runs(name);
    let text = node.exec(&pod, "main", &format!("cat {path}")).expect("reads");
    text.lines().map(str::to_owned).collect()
}

fn ip(pod: &Value) -> &str {
    pod["status"]["podIP"].as_str().expect("has one")
}

#[test]
fn host_names_and_files() {
    let node = Node::configured(json!({"clusterDomain": "edge.test", "clusterDNS": ["10.96.0.10"]}));
    let long = "a".repeat(60);
    let pods = [
        ("plain", String::new(), "plain-edge-1"),
        ("named", "hostname: other".to_owned(), "other"),
        ("sub", "hostname: h, subdomain: group".replace(", ", "\n"), "h"),
        ("full", "hostname: h\nsubdomain: group\nsetHostnameAsFQDN: true".to_owned(), "h.group.default.svc.edge.test"),
        ("on-node", "hostNetwork: true".to_owned(), ""),
        (&long, String::new(), &format!("{long}-ed")),
    ];
    for (name, spec, _) in &pods {
        node.add(&Manifest::pod(name).spec(spec).main(RUN, ""));
    }
    let aliases = "hostAliases: [{ip: 10.1.2.3, hostnames: [foo.local, bar.local]}, {ip: 10.1.2.4, hostnames: [baz]}]";
    let look = "cat /etc/hosts; grep -c . /etc/hosts >/dev/null; sleep 1000";
    let own = "volumeMounts: [{name: v, mountPath: /etc/hosts, subPath: hosts}]";
    let write = "echo mine >/v/hosts";
    node.add(
        &Manifest::pod("aliased")
            .spec(aliases)
            .spec("volumes: [{name: v, emptyDir: {}}]")
            .init("write", write, "volumeMounts: [{name: v, mountPath: /v}]")
            .main(look, "")
            .container("own", look, own),
    );
    for (name, _, host) in &pods {
        let pod = node.runs(name);
        let said = node.exec(&pod, "main", "hostname");
        if host.is_empty() {
            let on_node = fs::read_to_string("/proc/sys/kernel/hostname").expect("reads");
            assert_eq!(said.as_deref(), Ok(on_node.trim()));
        } else {
            assert_eq!(said.as_deref(), Ok(*host), "{name}");
        }
    }
    let hosts = |name: &str| file(&node, name, "/etc/hosts");
    let last = |name: &str| hosts(name).last().cloned().expect("has lines");
    assert_eq!(last("plain"), format!("{}\tplain-edge-1", ip(&node.runs("plain"))));
    assert_eq!(last("sub"), format!("{}\th.group.default.svc.edge.test\th", ip(&node.runs("sub"))));
    assert_eq!(hosts("plain")[..2], ["# Kubernetes-managed hosts file.", "127.0.0.1\tlocalhost"]);
    let on_node = hosts("on-node");
    assert!(on_node[0].starts_with("# Kubernetes-managed hosts file (host network)."), "{on_node:?}");
    assert!(on_node.contains(&"192.0.2.10 edge-1".to_owned()), "{on_node:?}");
    let aliased = hosts("aliased");
    let added = ["# Entries added by HostAliases.", "10.1.2.3\tfoo.local\tbar.local", "10.1.2.4\tbaz"];
    assert_eq!(aliased[aliased.len() - 3..], added);
    node.says(&node.runs("aliased"), "own", 0, "mine");

    // Of the cluster's name service.
    let resolv = file(&node, "plain", "/etc/resolv.conf");
    let search = "search default.svc.edge.test svc.edge.test edge.test edge.example";
    assert_eq!(resolv, [search, "nameserver 10.96.0.10", "options ndots:5"]);
    let on_node = file(&node, "on-node", "/etc/resolv.conf");
    assert_eq!(on_node, ["search edge.example", "nameserver 192.0.2.53"]);
}

#[test]
fn name_services() {
    let node = Node::start();
    let config = "dnsConfig: {nameservers: [1.1.1.1], searches: [more.example], options: [{name: ndots, value: \"4\"}, {name: edns0}]}";
    let many = "dnsConfig: {nameservers: [1.1.1.1, 1.1.1.2, 1.1.1.3]}";
    let pods = [
        ("none", "dnsPolicy: None", config, "search more.example; nameserver 1.1.1.1; options ndots:4 edns0"),
        ("default", "dnsPolicy: Default", "", "search edge.example; nameserver 192.0.2.53"),
        (
            "merged",
            "dnsPolicy: Default",
            config,
            "search edge.example more.example; nameserver 192.0.2.53; nameserver 1.1.1.1; options ndots:4 edns0",
        ),
        ("fallback", "dnsPolicy: ClusterFirst", "", "search edge.example; nameserver 192.0.2.53"),
        (
            "too-many",
            "dnsPolicy: Default",
            many,
            "search edge.example; nameserver 192.0.2.53; nameserver 1.1.1.1; nameserver 1.1.1.2",
        ),
    ];
    for (name, policy, config, _) in pods {
        node.add(&Manifest::pod(name).spec(policy).spec(config).main(RUN, ""));
    }
    for (name, .., want) in pods {
        assert_eq!(file(&node, name, "/etc/resolv.conf").join("; "), want, "{name}");
    }
    node.told("MissingClusterDNS");
    node.told("DNSConfigForming");
}

use std::net::{Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicUsize, Ordering};

use serde_json::json;

use super::*;
use crate::cri::Code;
use crate::probe::script::{Script, error, output};

const LOCAL: Option<IpAddr> = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));

fn container() -> core::Container {
    serde_json::from_value(json!({
        "name": "main",
        "env": [
            {"name": "A", "value": "old"},
            {"name": "A", "value": "1"},
            {"name": "FIELD", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}},
        ],
        "ports": [{"name": "http", "containerPort": 8080}, {"name": "odd", "containerPort": 99999}],
    }))
    .expect("is a container")
}

fn handler(probe: serde_json::Value) -> Handler {
    Handler::of(&serde_json::from_value(probe).expect("is a probe"), &container())
}

#[test]
fn what_specs_ask_for() {
    let error = |why: &str| Handler::Settled(Outcome::Error(why.to_owned()));
    let words = |words: &[&str]| Handler::Exec(words.iter().map(|w| (*w).to_owned()).collect());
    let table = [
        (
            json!({"exec": {"command": ["a", "$(A)", "$$(A)", "$(B)", "x$(FIELD)"]}}),
            words(&["a", "1", "$(A)", "$(B)", "x"]),
        ),
        (
            json!({"exec": {"command": ["x".repeat(200_000)]}}),
            error("a word of the command: it has more than 131072 bytes, which is the most that the kernel takes"),
        ),
        (json!({"tcpSocket": {"port": 80}}), Handler::Tcp { host: None, port: 80 }),
        (json!({"tcpSocket": {"port": "http", "host": ""}}), Handler::Tcp { host: None, port: 8080 }),
        (json!({"tcpSocket": {"port": "http", "host": "h"}}), Handler::Tcp { host: Some("h".into()), port: 8080 }),
        (json!({"tcpSocket": {"port": "none"}}), error("the container has no port \"none\"")),
        (json!({"httpGet": {"port": "odd"}}), error("99999 is no port")),
        (json!({"httpGet": {"port": 0}}), error("0 is no port")),
        (json!({"grpc": {"port": 70000}}), error("70000 is no port")),
        (json!({"grpc": {"port": 5000}}), Handler::Grpc { port: 5000, service: String::new() }),
        (json!({"grpc": {"port": 5000, "service": "s"}}), Handler::Grpc { port: 5000, service: "s".into() }),
        (json!({}), error("the probe names no action")),
        (
            json!({"httpGet": {"port": 80, "httpHeaders": [{"name": "X", "value": "a\nb"}]}}),
            Handler::Settled(Outcome::Failure("the value of the header \"X\" holds a control character".to_owned())),
        ),
    ];
    for (probe, want) in table {
        assert_eq!(handler(probe.clone()), want, "{probe}");
    }
    assert!(matches!(handler(json!({"httpGet": {"port": "http", "path": "/x"}})), Handler::Http(_)));
}

fn means(cri: Script) -> Means {
    Means::new(Arc::new(cri))
}

fn probe(means: &Means, handler: &Handler, ip: Option<IpAddr>, timeout: Duration) -> Outcome {
    means.probe(handler, &ContainerId::new("c1"), ip, timeout)
}

#[test]
fn commands() {
    let long = "ä".repeat(20_000);
    let failure = |why: &str| Outcome::Failure(why.to_owned());
    let table = [
        (Ok(output(0, "fine", "")), Outcome::Success, 1),
        (Ok(output(1, "out\n", "err\n")), failure("out\nerr"), 1),
        (Ok(output(7, "", " ")), failure("the command ended with exit code 7"), 1),
        (Ok(output(1, &long, "")), failure(&long[..1024]), 1),
        (Err(error(Code::DeadlineExceeded)), failure("command \"check it\" timed out after 5s"), 1),
        (Err(error(Code::Unavailable)), Outcome::Error(error(Code::Unavailable).to_string()), 3),
    ];
    for (result, want, tries) in table {
        let asked = Arc::new(AtomicUsize::new(0));
        let (count, answer) = (asked.clone(), result.clone());
        let means = means(Script::new(move |id, command, timeout| {
            assert_eq!((id.as_str(), command, timeout.as_secs()), ("c1", &["check".into(), "it".into()][..], 5));
            count.fetch_add(1, Ordering::Relaxed);
            answer.clone()
        }));
        let handler = Handler::Exec(vec!["check".to_owned(), "it".to_owned()]);
        assert_eq!(probe(&means, &handler, None, Duration::from_secs(5)), want, "{result:?}");
        assert_eq!(asked.load(Ordering::Relaxed), tries, "{result:?}");
    }
}

#[test]
fn tries_end_with_the_time() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = asked.clone();
    let means = means(Script::new(move |_, _, timeout| {
        count.fetch_add(1, Ordering::Relaxed);
        std::thread::sleep(timeout);
        Err(error(Code::Other))
    }));
    let outcome = probe(&means, &Handler::Exec(Vec::new()), None, Duration::from_millis(50));
    assert!(matches!(outcome, Outcome::Error(_)));
    assert_eq!(asked.load(Ordering::Relaxed), 1);
}

#[test]
fn where_probes_go() {
    let means = means(Script::unused());
    let time = Duration::from_secs(10);
    let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
    let port = listener.local_addr().expect("has an address").port();
    let nowhere = Outcome::Error("the pod has no address".to_owned());
    let tcp = |host: Option<&str>| Handler::Tcp { host: host.map(str::to_owned), port };
    assert_eq!(probe(&means, &tcp(None), LOCAL, time), Outcome::Success);
    assert_eq!(probe(&means, &tcp(Some("127.0.0.1")), None, time), Outcome::Success);
    assert_eq!(probe(&means, &tcp(None), None, time), nowhere);
    assert_eq!(probe(&means, &Handler::Grpc { port, service: String::new() }, None, time), nowhere);
    assert_eq!(probe(&means, &handler(json!({"httpGet": {"port": 80}})), None, time), nowhere);
    drop(listener);
    let refused = format!("dial tcp 127.0.0.1:{port}: connection refused");
    assert_eq!(probe(&means, &tcp(None), LOCAL, time), Outcome::Failure(refused.clone()));
    let url = format!("Get \"http://127.0.0.1:{port}/\"");
    let http = handler(json!({"httpGet": {"port": port, "host": "127.0.0.1"}}));
    assert_eq!(probe(&means, &http, None, time), Outcome::Failure(format!("{url}: {refused}")));
    let settled = Handler::Settled(Outcome::Error("why".to_owned()));
    assert_eq!(probe(&means, &settled, None, time), Outcome::Error("why".to_owned()));
}

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, TcpListener};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam::channel::unbounded;
use serde_json::json;

use super::*;
use crate::cri::{Code, ContainerId};
use crate::pod::{PodName, Source};
use crate::probe::script::{Script, error, output};
use crate::probe::{Kind, Verdict};

fn start(cri: Script) -> (Manager, Receiver<ProbeResult>) {
    let (tell, results) = unbounded();
    (Manager::start(Arc::new(cri), tell).expect("starts"), results)
}

fn next(results: &Receiver<ProbeResult>) -> ProbeResult {
    results.recv_timeout(Duration::from_secs(20)).expect("a result comes")
}

/// A pod with one container, and that container since it runs.
fn pod(uid: &str, container: serde_json::Value) -> (Arc<Pod>, Running) {
    let name = container["name"].as_str().expect("has a name").into();
    let pod = Pod {
        uid: PodUid::new(uid),
        name: PodName::new("default", uid),
        source: Source::File,
        origin: "".into(),
        meta: Default::default(),
        spec: serde_json::from_value(json!({"containers": [container]})).expect("is a spec"),
    };
    let id = ContainerId::new(format!("id-{uid}"));
    let pod_ip = Some(IpAddr::V4(Ipv4Addr::LOCALHOST));
    (Arc::new(pod), Running { name, id, started_seen: Instant::now(), pod_ip })
}

fn exec(command: &str, period: u32) -> serde_json::Value {
    json!({"exec": {"command": [command]}, "periodSeconds": period, "failureThreshold": 1})
}

#[test]
fn results_are_told_at_once() {
    let good = Arc::new(AtomicBool::new(true));
    let says = good.clone();
    let (manager, results) =
        start(Script::new(move |_, _, _| Ok(output(i32::from(!says.load(Ordering::Relaxed)), "", "it is not well"))));
    let (pod, running) =
        pod("p", json!({"name": "main", "readinessProbe": exec("r", 1), "startupProbe": exec("s", 1)}));
    manager.update(&pod, std::slice::from_ref(&running), None);
    for kind in [Kind::Startup, Kind::Readiness] {
        let result = next(&results);
        assert_eq!((result.kind, result.change, result.tell), (kind, Some(true), None));
        assert_eq!((&result.uid, &result.id, &*result.container), (&pod.uid, &running.id, "main"));
    }
    let verdicts = manager.verdicts(&pod.uid);
    assert_eq!(
        verdicts.verdicts,
        HashMap::from([(running.id.clone(), Verdict { startup: Some(true), liveness: None })])
    );
    assert!(verdicts.not_ready.is_empty() && verdicts.not_started.is_empty());
    good.store(false, Ordering::Relaxed);
    let result = next(&results);
    assert_eq!((result.kind, result.change), (Kind::Readiness, Some(false)));
    let tell = result.tell.expect("is told");
    assert_eq!((tell.reason, tell.message.as_str()), ("Unhealthy", "Readiness probe failed: it is not well"));
    assert!(manager.verdicts(&pod.uid).not_ready.contains(&running.id));
    manager.remove(&pod.uid);
    assert!(manager.verdicts(&pod.uid).verdicts.is_empty());
    drop(manager);
    while results.recv_timeout(Duration::from_secs(20)).is_ok() {}
    assert_eq!(results.try_recv(), Err(crossbeam::channel::TryRecvError::Disconnected), "all has ended");
}

#[test]
fn the_scheduler_wakes_for_what_is_due_sooner() {
    let (manager, results) = start(Script::new(|_, _, _| Ok(output(0, "", ""))));
    let (later, in_an_hour) = pod("later", json!({"name": "main", "livenessProbe": exec("l", 3600)}));
    manager.update(&later, &[in_an_hour], None);
    let (now, running) = pod("now", json!({"name": "main", "readinessProbe": exec("r", 3600)}));
    manager.update(&now, &[running], None);
    assert_eq!(next(&results).uid, now.uid);
}

#[test]
fn a_panic_costs_one_attempt() {
    let first = AtomicBool::new(true);
    let (manager, results) = start(Script::new(move |_, _, _| {
        assert!(!first.swap(false, Ordering::Relaxed), "expected");
        Ok(output(0, "", ""))
    }));
    let (pod, running) = pod("p", json!({"name": "main", "readinessProbe": exec("r", 1)}));
    manager.update(&pod, &[running], None);
    let result = next(&results);
    let message = result.tell.expect("is told").message;
    assert_eq!(
        (result.change, message.as_str()),
        (None, "Readiness probe errored: the agent failed in it; this is a bug")
    );
    assert_eq!(next(&results).change, Some(true));
}

/// Answers GET requests with 200, and tells when each path was asked for.
fn answering() -> (u16, Receiver<(String, Instant)>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
    let port = listener.local_addr().expect("has an address").port();
    let (tell, asked) = unbounded();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.expect("accepts");
            let at = Instant::now();
            let mut head = [0; 1024];
            let n = stream.read(&mut head).expect("reads");
            let head = String::from_utf8_lossy(&head[..n]).into_owned();
            let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n").expect("is read");
            if tell.send((path, at)).is_err() {
                return;
            }
        }
    });
    (port, asked)
}

fn http(port: u16, path: &str) -> serde_json::Value {
    json!({"httpGet": {"port": port, "path": path}, "periodSeconds": 1, "timeoutSeconds": 1})
}

/// As if the container had run before, so that not all are probed in the same instant.
fn ran_before(running: Running) -> Running {
    let started_seen = running.started_seen.checked_sub(Duration::from_secs(600)).expect("the machine runs longer");
    Running { started_seen, ..running }
}

/// Threads of this process whose name is this.
fn threads(name: &str) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("can be listed");
    let names = tasks.filter_map(|task| std::fs::read_to_string(task.ok()?.path().join("comm")).ok());
    names.filter(|comm| comm.trim() == name).count()
}

/// How much longer than a second it took each time from one request for a path to the next.
fn delays(asked: &Receiver<(String, Instant)>, during: Duration) -> Vec<Duration> {
    let until = Instant::now() + during;
    let mut last = HashMap::new();
    let mut delays = Vec::new();
    while let Ok((path, at)) = asked.recv_deadline(until) {
        if let Some(before) = last.insert(path, at) {
            delays.push((at - before).saturating_sub(Duration::from_secs(1)));
        }
    }
    delays.sort_unstable();
    delays
}

/// 100 targets that accept connections and say nothing, and 100 commands that don't end.
#[test]
fn two_hundred_that_hang_delay_no_other() {
    let silent = TcpListener::bind("127.0.0.1:0").expect("listens");
    let silent_port = silent.local_addr().expect("has an address").port();
    let (port, asked) = answering();
    let (manager, results) = start(Script::new(|_, _, timeout| {
        std::thread::sleep(timeout);
        Err(error(Code::DeadlineExceeded))
    }));
    for i in 0..200 {
        let probe = if i % 2 == 0 { http(silent_port, "/") } else { exec("hang", 1) };
        let (pod, running) = pod(&format!("hangs-{i}"), json!({"name": "main", "readinessProbe": probe}));
        manager.update(&pod, &[ran_before(running)], None);
    }
    for i in 0..50 {
        let probe = http(port, &format!("/{i}"));
        let (pod, running) = pod(&format!("fine-{i}"), json!({"name": "main", "readinessProbe": probe}));
        manager.update(&pod, &[ran_before(running)], None);
    }
    let delays = delays(&asked, Duration::from_secs(6));
    let (Some(worst), p99) = (delays.last(), delays[delays.len() * 99 / 100]) else { panic!("nothing was probed") };
    println!("{} probes, p99 of the delays {p99:?}, the worst {worst:?}", delays.len());
    assert!(delays.len() >= 200, "only {} probes", delays.len());
    assert!(p99 < Duration::from_millis(100), "p99 {p99:?}");
    assert!(*worst < Duration::from_millis(500), "the worst {worst:?}");
    let (quick, slow) = (threads("lane-probe"), threads("lane-probe-slow"));
    println!("{quick} and {slow} threads");
    assert!(quick <= LANE && (1..=SLOW_LANE).contains(&slow), "{quick} and {slow} threads");
    let hung = results.try_iter().filter(|r| r.tell.is_some()).count();
    assert!(hung >= 200, "only {hung} were found to hang");
}

#[test]
fn five_hundred_a_second_are_in_time() {
    let (port, asked) = answering();
    let (manager, _results) = start(Script::unused());
    for i in 0..500 {
        let probe = http(port, &format!("/{i}"));
        let (pod, running) = pod(&format!("p-{i}"), json!({"name": "main", "readinessProbe": probe}));
        manager.update(&pod, &[ran_before(running)], None);
    }
    let count = delays(&asked, Duration::from_secs(4)).len();
    let lateness = manager.snapshot().lateness;
    let within: Vec<_> = lateness.cumulative().collect();
    println!("{count} probes, lateness {within:?} of {}; {} threads", lateness.count(), threads("lane-probe"));
    assert!(count >= 1000, "only {count} probes");
    let (_, in_time) = within.into_iter().find(|(bound, _)| *bound == 100).expect("is a bound");
    assert!(in_time * 100 >= lateness.count() * 99, "{in_time} of {} in 100 ms", lateness.count());
}

use std::collections::{HashMap, HashSet};
use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crossbeam::channel::unbounded;
use parking_lot::Condvar;
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
        status: None,
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

/// A probe of a command each second, that may take a second.
fn each_second(uid: &str, command: &str) -> (Arc<Pod>, Running) {
    let (pod, running) = pod(uid, json!({"name": "main", "readinessProbe": exec(command, 1)}));
    // As if the container had run before, so that not all are probed in the same instant.
    let started_seen = running.started_seen.checked_sub(Duration::from_secs(600)).expect("the machine runs longer");
    (pod, Running { started_seen, ..running })
}

/// Hears of attempts until each of `count` containers has been tried `times` times more.
fn tried(attempts: &Receiver<ContainerId>, count: usize, times: u32) {
    let until = Instant::now() + Duration::from_secs(60);
    let mut tries = HashMap::<ContainerId, u32>::new();
    while tries.len() < count || tries.values().any(|n| *n < times) {
        let id = attempts.recv_deadline(until).unwrap_or_else(|_| panic!("they are held up: {tries:?}"));
        *tries.entry(id).or_default() += 1;
    }
}

/// Commands that don't end before they are let go.
#[derive(Default)]
struct Hanging {
    /// How many hang on each lane's threads.
    lanes: HashMap<String, usize>,
    let_go: usize,
    over: bool,
}

/// No time is measured: what hangs goes on doing so until the others have had their turns.
#[test]
fn two_hundred_that_hang_delay_no_other() {
    let (tell, attempts) = unbounded();
    let hanging = Arc::new((Mutex::new(Hanging::default()), Condvar::new()));
    let hangs = hanging.clone();
    let (manager, results) = start(Script::new(move |id, command, _| {
        if command == ["fine"] {
            // The test may have ended.
            let _ = tell.send(id.clone());
            return Ok(output(0, "", ""));
        }
        let (state, changed) = &*hangs;
        let mut state = state.lock();
        let lane = std::thread::current().name().unwrap_or_default().to_owned();
        *state.lanes.entry(lane.clone()).or_default() += 1;
        changed.notify_all();
        let before = state.let_go;
        changed.wait_while(&mut state, |state| state.let_go == before && !state.over);
        *state.lanes.entry(lane).or_default() -= 1;
        changed.notify_all();
        Err(error(Code::DeadlineExceeded))
    }));
    let wait = |quick: usize, slow: usize| {
        let until = Instant::now() + Duration::from_secs(60);
        let (state, changed) = &*hanging;
        let mut state = state.lock();
        loop {
            let on = |lane: &str| state.lanes.get(lane).copied().unwrap_or_default();
            let now = (on("lane-probe"), on("lane-probe-slow"));
            if now == (quick, slow) {
                return;
            }
            let late = changed.wait_until(&mut state, until).timed_out();
            assert!(!late, "{now:?} hang on the lanes, not {quick} and {slow}");
        }
    };
    let let_go = || {
        hanging.0.lock().let_go += 1;
        hanging.1.notify_all();
    };

    for i in 0..200 {
        let (pod, running) = each_second(&format!("hangs-{i}"), "hang");
        manager.update(&pod, &[running], None);
    }
    wait(200, 0);
    for i in 0..50 {
        let (pod, running) = each_second(&format!("fine-{i}"), "fine");
        manager.update(&pod, &[running], None);
    }
    tried(&attempts, 50, 3);
    wait(200, 0);
    // All of them are known to hang now, and take threads only from each other.
    let_go();
    wait(0, SLOW_LANE);
    attempts.try_iter().for_each(drop);
    tried(&attempts, 50, 3);
    wait(0, SLOW_LANE);
    // Others that hang for the first time find room.
    for i in 200..400 {
        let (pod, running) = each_second(&format!("hangs-{i}"), "hang");
        manager.update(&pod, &[running], None);
    }
    wait(200, SLOW_LANE);
    attempts.try_iter().for_each(drop);
    tried(&attempts, 50, 3);

    let mut told = HashSet::new();
    while told.len() < 200 {
        let result = next(&results);
        told.extend(result.tell.map(|_| result.uid));
    }
    for i in 0..400 {
        manager.remove(&PodUid::new(format!("hangs-{i}")));
    }
    hanging.0.lock().over = true;
    let_go();
    wait(0, 0);
}

use std::collections::HashSet;

use serde_json::json;

use super::*;
use crate::pod::{PodName, Source};
use crate::probe::Verdict;

const SECOND: Duration = Duration::from_secs(1);

/// A table, and the hands that make its attempts.
struct Bench {
    start: Instant,
    table: Table,
}

fn pod(uid: &str, spec: serde_json::Value) -> Arc<Pod> {
    Arc::new(Pod {
        uid: PodUid::new(uid),
        name: PodName::new("default", uid),
        source: Source::File,
        origin: "".into(),
        status: None,
        meta: Default::default(),
        spec: serde_json::from_value(spec).expect("is a spec"),
    })
}

/// A probe whose command is its name, each second, with a threshold of 1.
fn exec(command: &str) -> serde_json::Value {
    json!({"exec": {"command": [command]}, "periodSeconds": 1, "failureThreshold": 1})
}

impl Bench {
    fn new() -> Bench {
        let start = Instant::now();
        Bench { start, table: Table::new(start) }
    }

    fn at(&self, seconds: u64) -> Instant {
        self.start + SECOND * u32::try_from(seconds).expect("is small")
    }

    fn running(&self, name: &str, id: &str, since: u64) -> Running {
        let pod_ip = Some(IpAddr::from([10, 0, 0, 1]));
        Running { name: name.into(), id: ContainerId::new(id), started_seen: self.at(since), pod_ip }
    }

    fn update(&mut self, pod: &Arc<Pod>, running: &[(&str, &str)], now: u64) {
        let running: Vec<_> = running.iter().map(|(name, id)| self.running(name, id, now)).collect();
        self.table.update(pod, &running, None, self.at(now));
    }

    /// Makes all attempts that are due; those of commands in `bad` fail. Returns the commands.
    fn turn(&mut self, now: u64, bad: &[&str]) -> Vec<String> {
        self.turn_and_hear(now, bad).0
    }

    fn turn_and_hear(&mut self, now: u64, bad: &[&str]) -> (Vec<String>, Vec<ProbeResult>) {
        let now = self.at(now);
        let (mut commands, mut results) = (Vec::new(), Vec::new());
        for attempt in self.table.take_due(now) {
            let command = command(&attempt);
            let outcome = match bad.contains(&command.as_str()) {
                true => Outcome::Failure("no".to_owned()),
                false => Outcome::Success,
            };
            results.extend(self.table.ended(&attempt, Ended { outcome, began: now, ended: now }));
            commands.push(command);
        }
        commands.sort();
        (commands, results)
    }

    fn verdicts(&self, uid: &str) -> Verdicts {
        self.table.verdicts(&PodUid::new(uid))
    }

    /// When the next probe is due, in seconds.
    fn next(&self) -> Option<u64> {
        self.table.next().map(|due| (due - self.start).as_secs())
    }
}

fn command(attempt: &Attempt) -> String {
    match &*attempt.handler {
        Handler::Exec(words) => words.join(" "),
        other => panic!("{other:?}"),
    }
}

fn ids(ids: &HashSet<ContainerId>) -> Vec<&str> {
    let mut ids: Vec<_> = ids.iter().map(ContainerId::as_str).collect();
    ids.sort_unstable();
    ids
}

fn three() -> Arc<Pod> {
    pod(
        "p",
        json!({"containers": [
            {"name": "main", "startupProbe": exec("s"), "readinessProbe": exec("r"), "livenessProbe": exec("l")},
            {"name": "plain"},
        ]}),
    )
}

const NONE: [&str; 0] = [];

#[test]
fn from_the_start_to_a_restart() {
    let mut b = Bench::new();
    let pod = three();
    b.update(&pod, &[], 0);
    assert_eq!((b.next(), b.verdicts("p")), (None, Verdicts::default()), "nothing runs");

    b.update(&pod, &[("main", "c1"), ("plain", "x1")], 0);
    let verdicts = b.verdicts("p");
    assert_eq!((ids(&verdicts.not_ready), ids(&verdicts.not_started)), (vec!["c1"], vec!["c1"]));
    let verdict = Verdict { startup: None, liveness: Some(true) };
    assert_eq!(verdicts.verdicts, HashMap::from([(ContainerId::new("c1"), verdict)]));

    assert_eq!(b.turn(0, &["s"]), ["s"], "the others are gated");
    let (commands, results) = b.turn_and_hear(1, &[]);
    assert_eq!(commands, ["s"]);
    let told: Vec<_> = results.iter().map(|r| (&*r.container, r.id.as_str(), r.kind, r.change)).collect();
    assert_eq!(told, [("main", "c1", Kind::Startup, Some(true))]);
    assert!(b.verdicts("p").not_started.is_empty());
    assert_eq!(b.turn(1, &[]), ["r"], "readiness at once");
    assert!(b.verdicts("p").not_ready.is_empty());
    assert_eq!(b.turn(2, &["r"]), ["l", "r"]);
    assert_eq!(ids(&b.verdicts("p").not_ready), ["c1"]);
    assert_eq!(b.turn(3, &["l"]), ["l", "r"]);
    let verdict = Verdict { startup: Some(true), liveness: Some(false) };
    assert_eq!(b.verdicts("p").verdicts.get(&ContainerId::new("c1")), Some(&verdict));
    assert_eq!(b.turn(4, &[]), ["r"], "liveness is on hold");

    b.update(&pod, &[("plain", "x1")], 4);
    assert_eq!((b.next(), b.verdicts("p")), (None, Verdicts::default()), "it is down");
    b.update(&pod, &[("main", "c2"), ("plain", "x1")], 5);
    let verdicts = b.verdicts("p");
    assert_eq!((ids(&verdicts.not_ready), ids(&verdicts.not_started)), (vec!["c2"], vec!["c2"]));
    assert_eq!(verdicts.verdicts.len(), 1);
    assert_eq!(b.turn(5, &[]), ["s"], "all over again");
}

#[test]
fn what_comes_of_a_container_that_is_gone_is_not_that_of_the_next() {
    let mut b = Bench::new();
    let pod = pod("p", json!({"containers": [{"name": "main", "readinessProbe": exec("r")}]}));
    b.update(&pod, &[("main", "c1")], 0);
    let old = b.table.take_due(b.at(0)).pop().expect("is due");
    b.update(&pod, &[("main", "c2")], 1);
    let now = b.at(1);
    assert_eq!(b.table.ended(&old, Ended { outcome: Outcome::Success, began: now, ended: now }), None);
    assert_eq!(ids(&b.verdicts("p").not_ready), ["c2"]);
    let new = b.table.take_due(now).pop().expect("is due");
    b.table.remove(&pod.uid);
    assert_eq!(b.table.ended(&new, Ended { outcome: Outcome::Success, began: now, ended: now }), None);
    assert_eq!((b.next(), b.verdicts("p")), (None, Verdicts::default()));
    assert!(b.table.probes.is_empty() && b.table.queue.is_empty());
}

#[test]
fn which_containers_are_probed() {
    let mut b = Bench::new();
    let probe = |name: &str| json!({"name": name, "readinessProbe": exec(name)});
    let mut sidecar = probe("sidecar");
    sidecar["restartPolicy"] = "Always".into();
    let pod = pod(
        "p",
        json!({
            "initContainers": [probe("init"), sidecar],
            "containers": [probe("main")],
            "ephemeralContainers": [{"name": "debug", "readinessProbe": exec("debug")}],
        }),
    );
    b.update(&pod, &[("init", "i"), ("sidecar", "s"), ("main", "m"), ("debug", "d")], 0);
    assert_eq!(b.turn(0, &[]), ["main", "sidecar"]);
}

#[test]
fn an_update_with_nothing_new_changes_nothing() {
    let mut b = Bench::new();
    let pod = three();
    b.update(&pod, &[("main", "c1")], 0);
    b.turn(0, &[]);
    b.turn(0, &[]);
    let before = (b.next(), b.verdicts("p"));
    assert_eq!(before.0, Some(1));
    // A later time at which it was seen is no news, nor is a new value of the same pod.
    b.update(&pod, &[("main", "c1")], 1);
    b.update(&three(), &[("main", "c1")], 1);
    assert_eq!((b.next(), b.verdicts("p")), before);
    // An attempt that is overdue keeps its place.
    b.update(&three(), &[("main", "c1")], 9);
    assert_eq!(b.next(), Some(1));
}

#[test]
fn a_changed_spec() {
    let mut b = Bench::new();
    let spec = |probes: serde_json::Value| pod("p", json!({"containers": [probes]}));
    let both = spec(json!({"name": "main", "readinessProbe": exec("r"), "livenessProbe": exec("l")}));
    b.update(&both, &[("main", "c1")], 0);
    assert_eq!(b.turn(0, &[]), ["r"]);
    assert_eq!(b.turn(1, &[]), ["l", "r"]);
    let other = spec(json!({"name": "main", "readinessProbe": exec("r"), "livenessProbe": exec("l2")}));
    b.update(&other, &[("main", "c1")], 1);
    assert!(b.verdicts("p").not_ready.is_empty(), "what stays keeps its result");
    assert_eq!(b.turn(2, &[]), ["l2", "r"]);
    let counts = |b: &Bench| {
        let mut counts: Vec<_> = b.table.snapshot().probes.iter().map(|p| (p.kind, p.successful)).collect();
        counts.sort_unstable();
        counts
    };
    assert_eq!(counts(&b), [(Kind::Readiness, 3), (Kind::Liveness, 1)]);
    b.update(&spec(json!({"name": "main"})), &[("main", "c1")], 2);
    assert_eq!((b.next(), b.verdicts("p"), counts(&b)), (None, Verdicts::default(), vec![]));
}

#[test]
fn the_end_of_a_pod() {
    let mut b = Bench::new();
    let pod = three();
    b.update(&pod, &[("main", "c1")], 0);
    b.turn(0, &[]);
    b.turn(1, &[]);
    b.table.stop_liveness_and_startup(&pod.uid, b.at(1));
    assert_eq!(b.turn(2, &["r", "l"]), ["r"]);
    assert_eq!(ids(&b.verdicts("p").not_ready), ["c1"]);
    b.update(&pod, &[("main", "c2")], 2);
    assert_eq!(b.turn(9, &["s", "l"]), NONE, "not for a container that came late either");
    b.table.remove(&pod.uid);
    assert_eq!((b.next(), b.verdicts("p")), (None, Verdicts::default()));
    // It may come back.
    b.update(&pod, &[("main", "c3")], 10);
    assert_eq!(b.turn(10, &[]), ["s"]);

    let mut deleted = (*three()).clone();
    deleted.meta.deletion_timestamp =
        Some(k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(jiff::Timestamp::UNIX_EPOCH));
    b.update(&Arc::new(deleted), &[("main", "c3")], 10);
    assert_eq!(b.turn(11, &[]), ["r"]);
}

#[test]
fn after_a_restart_of_the_agent() {
    let status: core::PodStatus = serde_json::from_value(json!({"containerStatuses": [
        {"name": "main", "containerID": "containerd://c1", "ready": true, "started": true,
         "image": "", "imageID": "", "restartCount": 0},
        {"name": "other", "containerID": "containerd://o1", "ready": false, "started": false,
         "image": "", "imageID": "", "restartCount": 0},
    ]}))
    .expect("is a status");
    let begin = |main: &str| {
        let mut b = Bench::new();
        let pod = pod(
            "p",
            json!({"containers": [
                {"name": "main", "startupProbe": exec("s"), "readinessProbe": exec("r"), "livenessProbe": exec("l")},
                {"name": "other", "startupProbe": exec("os"), "readinessProbe": exec("or")},
            ]}),
        );
        let running = [b.running("main", main, 0), b.running("other", "o1", 0)];
        b.table.update(&pod, &running, Some(&status), b.start);
        b
    };
    let mut b = begin("c1");
    let verdicts = b.verdicts("p");
    assert_eq!((ids(&verdicts.not_ready), ids(&verdicts.not_started)), (vec!["o1"], vec!["o1"]));
    assert_eq!(b.turn(1, &["r"]), ["l", "os", "r"], "it has started up before");
    assert_eq!(ids(&b.verdicts("p").not_ready), ["c1", "o1"]);

    let b = begin("c2");
    let verdicts = b.verdicts("p");
    assert_eq!((ids(&verdicts.not_ready), ids(&verdicts.not_started)), (vec!["c2", "o1"], vec!["c2", "o1"]));
}

#[test]
fn after_a_restart_of_the_agent_probes_begin_one_after_the_other() {
    let mut b = Bench::new();
    b.start += SECOND * 100;
    b.table.start = b.start;
    let containers: Vec<_> = (0..50)
        .map(|i| {
            let probe = json!({"exec": {"command": ["r"]}, "periodSeconds": 10});
            json!({"name": format!("c{i}"), "readinessProbe": probe})
        })
        .collect();
    let pod = pod("p", json!({"containers": containers}));
    let running: Vec<_> = (0..50)
        .map(|i| {
            let started_seen = b.start - SECOND * 50;
            Running { started_seen, ..b.running(&format!("c{i}"), &format!("id{i}"), 0) }
        })
        .collect();
    b.table.update(&pod, &running, None, b.start);
    let mut most = 0;
    let mut all = 0;
    for second in 1..=10 {
        let due = b.table.take_due(b.at(second)).len();
        most = most.max(due);
        all += due;
    }
    assert_eq!(all, 50, "all within a period");
    assert!(most < 20, "{most} in one second");
}

/// In a time of its own: each attempt is given out at its tick and at no other time, whatever those
/// before it took.
#[test]
fn five_hundred_a_second_are_in_time() {
    let mut b = Bench::new();
    b.start += SECOND * 100;
    b.table.start = b.start;
    for i in 0..500 {
        let pod = pod(&format!("p{i}"), json!({"containers": [{"name": "main", "readinessProbe": exec("r")}]}));
        let started_seen = b.start - SECOND * 50;
        let running = Running { started_seen, ..b.running("main", &format!("c{i}"), 0) };
        b.table.update(&pod, &[running], None, b.start);
    }
    let millis = |n: usize| Duration::from_millis(u64::try_from(n).expect("is small"));
    let end = b.start + SECOND * 10;
    let mut times = HashMap::<ContainerId, Vec<Instant>>::new();
    let mut under_way = BTreeSet::new();
    let mut attempts = HashMap::new();
    while let Some(now) = b.table.next().into_iter().chain(under_way.first().map(|(at, _)| *at)).min() {
        if now >= end {
            break;
        }
        while let Some((at, id)) = under_way.first().copied().filter(|(at, _)| *at <= now) {
            under_way.pop_first();
            let (attempt, began) = attempts.remove(&id).expect("is under way");
            b.table.ended(&attempt, Ended { outcome: Outcome::Success, began, ended: at });
        }
        for attempt in b.table.take_due(now) {
            assert_eq!(attempt.due, now);
            let tries = times.entry(attempt.id.clone()).or_default();
            tries.push(now);
            // From nothing to nearly a period.
            let took = millis((attempt.probe as usize * 7 + tries.len() * 313) % 990);
            under_way.insert((now + took, attempt.probe));
            assert!(attempts.insert(attempt.probe, (attempt, now)).is_none(), "one at a time");
        }
    }
    assert_eq!(times.len(), 500);
    for times in times.values() {
        assert_eq!(times.len(), 10, "{times:?}");
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] == SECOND), "{times:?}");
    }
    // They are spread over the second.
    let mut tenths = [0; 10];
    for first in times.values().map(|times| times[0] - b.start) {
        tenths[first.as_millis() as usize / 100] += 1;
    }
    assert!(tenths.iter().all(|n| (20..=100).contains(n)), "{tenths:?}");
}

#[test]
fn addresses() {
    let ip = |spec: serde_json::Value, pod_ip| {
        let mut b = Bench::new();
        let running = Running { pod_ip, ..b.running("main", "c1", 0) };
        b.table.update(&pod("p", spec), &[running], None, b.start);
        b.table.take_due(b.start).pop().expect("is due").ip
    };
    let containers = json!([{"name": "main", "readinessProbe": exec("r")}]);
    let own = json!({"containers": containers});
    let node = json!({"containers": containers, "hostNetwork": true});
    let given = Some(IpAddr::from([10, 0, 0, 1]));
    assert_eq!(ip(own.clone(), given), given);
    assert_eq!(ip(own, None), None);
    assert_eq!(ip(node.clone(), given), given);
    assert_eq!(ip(node, None), Some(IpAddr::V4(Ipv4Addr::LOCALHOST)));
}

#[test]
fn counts_lateness_and_hanging() {
    let mut b = Bench::new();
    let pod = pod("p", json!({"containers": [{"name": "main", "readinessProbe": exec("r")}]}));
    b.update(&pod, &[("main", "c1")], 0);
    let mut attempt = |late: Duration, took: Duration, outcome| {
        let due = b.table.next().expect("is due");
        let attempt = b.table.take_due(due).pop().expect("is due");
        let began = due + late;
        b.table.ended(&attempt, Ended { outcome, began, ended: began + took });
        attempt.hung
    };
    let failure = || Outcome::Failure(String::new());
    assert!(!attempt(Duration::ZERO, SECOND / 2, Outcome::Success));
    assert!(!attempt(Duration::from_millis(30), SECOND, failure()), "the first time is no wonder");
    assert!(attempt(Duration::ZERO, SECOND, failure()), "it hung before");
    assert!(attempt(Duration::ZERO, SECOND / 2, Outcome::Error(String::new())));
    assert!(!attempt(Duration::ZERO, SECOND / 2, Outcome::Success), "it answers again");
    b.update(&pod, &[("main", "c2")], 100);
    let snapshot = b.table.snapshot();
    let probe = snapshot.probes.first().expect("is counted");
    assert_eq!((probe.successful, probe.failed, probe.unknown), (2, 2, 1), "also after a restart");
    assert_eq!((probe.durations.count(), probe.durations.sum()), (2, SECOND));
    assert_eq!((&*probe.container, probe.pod.to_string().as_str(), probe.uid.as_str()), ("main", "default/p", "p"));
    let late: Vec<_> = snapshot.lateness.cumulative().filter(|(bound, _)| [1, 20, 50].contains(bound)).collect();
    assert_eq!(late, [(1, 4), (20, 4), (50, 5)]);
}

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;

use super::*;
use crate::cri::{
    Container, ContainerId, ContainerState, ContainerStatus, Notes, PodRef, Sandbox, SandboxId, SandboxStatus,
    UnixNanos,
};
use crate::pleg::{Observed, ObservedContainer};
use crate::pod::{Pod, PodName, PodUid, Source, core};
use crate::probe::{Verdict, Verdicts};

fn container(name: &str) -> core::Container {
    core::Container { name: name.to_owned(), image: Some("i".to_owned()), ..Default::default() }
}

/// `init sidecar! | main main`.
fn pod(policy: &str, containers: &str) -> Pod {
    let (init, main) = containers.split_once('|').unwrap_or(("", containers));
    let init = init.split_whitespace().map(|word| core::Container {
        restart_policy: word.ends_with('!').then(|| "Always".to_owned()),
        ..container(word.trim_end_matches('!'))
    });
    Pod {
        uid: PodUid::new("u"),
        name: PodName::new("ns", "p"),
        source: Source::File,
        origin: "/m/p.yaml".into(),
        status: None,
        meta: Default::default(),
        spec: core::PodSpec {
            restart_policy: Some(policy.to_owned()),
            init_containers: Some(init.collect()),
            containers: main.split_whitespace().map(container).collect(),
            ..Default::default()
        },
    }
}

/// Containers, the newest first: `main=run`, `main=0` (exit code), `main=new`, `main=lost`.
fn observed(text: &str) -> Observed {
    let reference = PodRef { uid: PodUid::new("u"), name: PodName::new("ns", "p") };
    let sandbox = Sandbox {
        id: SandboxId::new("s"),
        pod: reference.clone(),
        attempt: 0,
        ready: true,
        created_at: UnixNanos(5_000_000_000),
    };
    let mut observed = Observed::empty(Instant::now());
    observed.sandboxes.push(SandboxStatus { sandbox, ips: vec!["10.0.0.1".to_owned()], host_network: false });
    for (i, word) in text.split_whitespace().enumerate() {
        let (name, state) = word.split_once('=').expect("NAME=STATE");
        let (state, exit_code) = match state {
            "run" => (ContainerState::Running, 0),
            "new" => (ContainerState::Created, 0),
            "lost" => (ContainerState::Unknown, 0),
            code => (ContainerState::Exited, code.parse().expect("an exit code")),
        };
        let container = Container {
            id: ContainerId::new(format!("{name}{i}")),
            sandbox: SandboxId::new("s"),
            pod: reference.clone(),
            name: name.into(),
            attempt: 2,
            state,
            created_at: UnixNanos(1),
            notes: Arc::new(Notes { restart_count: 2, ..Notes::default() }),
        };
        observed.containers.push(ObservedContainer {
            status: ContainerStatus {
                container,
                started_at: UnixNanos(1_000_000_000),
                finished_at: UnixNanos(2_000_000_000),
                exit_code,
                reason: String::new(),
                message: String::new(),
                image: "i:1".to_owned(),
                image_ref: "i@sha256:1".to_owned(),
                log_path: String::new(),
            },
            exited_seen: None,
        });
    }
    observed
}

fn status_with(
    pod: &Pod,
    observed: &Observed,
    edit: impl FnOnce(&mut HashMap<String, Waiting>, &mut HashSet<ContainerId>),
    before: Option<&core::PodStatus>,
    second: i64,
) -> core::PodStatus {
    status_failed(pod, observed, edit, before, second, None)
}

fn status_failed(
    pod: &Pod,
    observed: &Observed,
    edit: impl FnOnce(&mut HashMap<String, Waiting>, &mut HashSet<ContainerId>),
    before: Option<&core::PodStatus>,
    second: i64,
    failed: Option<&PodFailure>,
) -> core::PodStatus {
    let (mut waiting, mut not_ready) = (HashMap::new(), HashSet::new());
    edit(&mut waiting, &mut not_ready);
    generate(&Facts {
        pod,
        observed,
        runtime: "containerd",
        waiting: &waiting,
        not_ready: &not_ready,
        not_started: &HashSet::new(),
        messages: &HashMap::from([(ContainerId::new("m0"), "said".to_owned())]),
        to_restart: &HashSet::from([ContainerId::new("killed0")]),
        failed,
        resources: pod,
        resize_waits: None,
        host_ips: &["192.0.2.10".to_owned()],
        before,
        now: Timestamp::from_second(second).expect("in range"),
    })
}

fn status(policy: &str, containers: &str, seen: &str) -> core::PodStatus {
    status_with(&pod(policy, containers), &observed(seen), |_, _| {}, None, 100)
}

fn condition<'a>(status: &'a core::PodStatus, kind: &str) -> &'a core::PodCondition {
    status.conditions.iter().flatten().find(|c| c.type_ == kind).expect("is there")
}

#[test]
fn phases() {
    let table = [
        ("Always", "m", "", "Pending"),
        ("Always", "m", "m=new", "Pending"),
        ("Always", "m", "m=run", "Running"),
        ("Always", "m n", "m=run", "Pending"),
        ("Always", "m n", "m=run n=1", "Running"),
        ("Always", "m", "m=0", "Running"),
        ("OnFailure", "m", "m=0", "Succeeded"),
        ("OnFailure", "m", "m=1", "Running"),
        ("OnFailure", "m n", "m=0 n=1", "Running"),
        ("Never", "m", "m=0", "Succeeded"),
        ("Never", "m", "m=1", "Failed"),
        ("Never", "m n", "m=0 n=1", "Failed"),
        ("Never", "m n", "m=0 n=run", "Running"),
        ("Always", "i | m", "", "Pending"),
        ("Always", "i | m", "i=run", "Pending"),
        ("Always", "i | m", "i=1", "Pending"),
        ("Never", "i | m", "i=1", "Failed"),
        ("Always", "i | m", "i=0", "Pending"),
        ("Always", "i | m", "m=run i=0", "Running"),
        ("Always", "i | m", "m=run", "Running"),
        ("Never", "i | m", "m=0 i=0", "Succeeded"),
        ("Always", "s! | m", "s=run", "Pending"),
        ("Always", "s! | m", "m=run s=run", "Running"),
        ("Never", "s! | m", "m=0 s=run", "Succeeded"),
        ("Never", "s! | m", "m=0 s=137", "Succeeded"),
        ("Always", "m", "m=lost", "Running"),
        ("OnFailure", "i | m", "i=1", "Pending"),
        ("Never", "killed", "killed=143", "Running"),
    ];
    for (policy, containers, seen, want) in table {
        let status = status(policy, containers, seen);
        assert_eq!(status.phase.as_deref(), Some(want), "{policy} {containers} with {seen:?}");
        assert_eq!(is_terminal(&status), want == "Succeeded" || want == "Failed");
    }
}

#[test]
fn a_running_container() {
    let status = status("Always", "m", "m=run m=3");
    let container = &status.container_statuses.as_ref().expect("is there")[0];
    assert_eq!(container.container_id.as_deref(), Some("containerd://m0"));
    assert_eq!((container.image.as_str(), container.image_id.as_str()), ("i:1", "i@sha256:1"));
    assert_eq!((container.ready, container.started, container.restart_count), (true, Some(true), 2));
    let last = container.last_state.as_ref().and_then(|s| s.terminated.as_ref()).expect("it had ended");
    assert_eq!((last.exit_code, last.reason.as_deref()), (3, Some("Error")));
    assert_eq!(last.container_id.as_deref(), Some("containerd://m1"));
    assert_eq!(last.finished_at.as_ref().map(|t| t.0.as_second()), Some(2));
    assert_eq!(status.pod_ip.as_deref(), Some("10.0.0.1"));
    assert_eq!(status.host_ip.as_deref(), Some("192.0.2.10"));
    assert_eq!(status.start_time.as_ref().map(|t| t.0.as_second()), Some(5), "when its sandbox was made");
}

#[test]
fn a_container_that_waits() {
    let reason = |s: &core::PodStatus| {
        let state = s.container_statuses.as_ref().expect("is there")[0].state.clone().expect("is there");
        state.waiting.and_then(|w| w.reason).unwrap_or_default()
    };
    assert_eq!(reason(&status("Always", "m", "")), "ContainerCreating");
    assert_eq!(reason(&status("Always", "i | m", "")), "PodInitializing");
    let crash = |w: &mut HashMap<String, Waiting>, _: &mut HashSet<ContainerId>| {
        w.insert("m".to_owned(), Waiting { reason: "CrashLoopBackOff", message: "back-off".to_owned() });
    };
    let waits = status_with(&pod("Always", "m"), &observed("m=3"), crash, None, 1);
    assert_eq!(reason(&waits), "CrashLoopBackOff");
    let container = &waits.container_statuses.as_ref().expect("is there")[0];
    let last = container.last_state.as_ref().and_then(|s| s.terminated.as_ref());
    assert_eq!(last.map(|t| t.exit_code), Some(3), "how it ended is still told");
    assert_eq!(waits.phase.as_deref(), Some("Running"));
    let over = status_with(&pod("Never", "m"), &observed("m=3"), crash, None, 1);
    assert_eq!(reason(&over), "", "one that isn't started again doesn't wait");
    let runs = status_with(&pod("Always", "m"), &observed("m=run"), crash, None, 1);
    assert_eq!(reason(&runs), "", "one that runs doesn't wait");
}

#[test]
fn conditions_and_when_they_changed() {
    let p = pod("Always", "m n");
    let unready = |_: &mut HashMap<String, Waiting>, not_ready: &mut HashSet<ContainerId>| {
        not_ready.insert(ContainerId::new("n1"));
    };
    let first = status_with(&p, &observed("m=run n=run"), unready, None, 10);
    for (kind, want, reason) in [
        ("PodScheduled", "True", None),
        ("Initialized", "True", None),
        ("PodReadyToStartContainers", "True", None),
        ("ContainersReady", "False", Some("ContainersNotReady")),
        ("Ready", "False", Some("ContainersNotReady")),
    ] {
        let c = condition(&first, kind);
        assert_eq!((c.status.as_str(), c.reason.as_deref()), (want, reason), "{kind}");
    }
    assert_eq!(condition(&first, "Ready").message.as_deref(), Some("containers with unready status: [n]"));
    let then = status_with(&p, &observed("m=run n=run"), |_, _| {}, Some(&first), 20);
    let since = |kind| condition(&then, kind).last_transition_time.as_ref().map(|t| t.0.as_second());
    assert_eq!(since("Ready"), Some(20));
    assert_eq!(since("PodScheduled"), Some(10));

    let waiting = status("Always", "i j | m", "i=0 j=run");
    let c = condition(&waiting, "Initialized");
    assert_eq!(c.message.as_deref(), Some("containers with incomplete status: [j]"));
    let done = status("Never", "i | m", "m=0 i=0");
    assert_eq!(condition(&done, "Initialized").reason.as_deref(), Some("PodCompleted"));
    assert_eq!(condition(&done, "Ready").reason.as_deref(), Some("PodCompleted"));
    assert_eq!(condition(&status("Never", "m", "m=1"), "Ready").reason.as_deref(), Some("PodFailed"));
}

#[test]
fn readiness_gates() {
    let mut p = pod("Always", "m");
    let gates = ["a", "b"].map(|kind| core::PodReadinessGate { condition_type: kind.to_owned() });
    p.spec.readiness_gates = Some(gates.to_vec());
    let set = |conditions: &[(&str, &str)]| {
        let of = |(kind, status): &(&str, &str)| core::PodCondition {
            type_: (*kind).to_owned(),
            status: (*status).to_owned(),
            ..Default::default()
        };
        core::PodStatus { conditions: Some(conditions.iter().map(of).collect()), ..Default::default() }
    };
    let ready = |conditions: &[(&str, &str)], seen: &str| {
        let status = status_with(&p, &observed(seen), |_, _| {}, Some(&set(conditions)), 1);
        let told = |kind| {
            let c = condition(&status, kind);
            let parts = [Some(c.status.as_str()), c.reason.as_deref(), c.message.as_deref()];
            parts.into_iter().flatten().collect::<Vec<_>>().join(" ")
        };
        for (kind, value) in conditions {
            assert_eq!(condition(&status, kind).status, *value, "what others have set stays");
        }
        (told("Ready"), told("ContainersReady"))
    };
    type Set<'a> = &'a [(&'a str, &'a str)];
    let table: [(Set<'_>, &str, &str, &str); 4] = [
        (&[("a", "True"), ("b", "True")], "m=run", "True", "True"),
        (
            &[("b", "False")],
            "m=run",
            "False ReadinessGatesNotReady readiness gate \"a\" has not been set, readiness gate \"b\" is False",
            "True",
        ),
        (
            &[("a", "True"), ("b", "Unknown")],
            "m=run",
            "False ReadinessGatesNotReady readiness gate \"b\" is Unknown",
            "True",
        ),
        (
            &[("a", "True"), ("b", "True")],
            "m=3",
            "False ContainersNotReady containers with unready status: [m]",
            "False ContainersNotReady containers with unready status: [m]",
        ),
    ];
    for (conditions, seen, want, containers) in table {
        assert_eq!(ready(conditions, seen), (want.to_owned(), containers.to_owned()), "{conditions:?} {seen}");
    }
}

#[test]
fn what_probes_say_shows_at_once() {
    let p = pod("Always", "s! | m n");
    let seen = observed("n=run m=run s=run");
    let ids = |ids: &[&str]| ids.iter().map(|id| ContainerId::new(*id)).collect::<HashSet<_>>();
    let verdicts = |not_ready: &[&str], not_started: &[&str]| Verdicts {
        verdicts: ["n0", "s2"].into_iter().map(|id| (ContainerId::new(id), Verdict::default())).collect(),
        not_ready: ids(not_ready),
        not_started: ids(not_started),
    };
    let show = |status: &core::PodStatus, shown: &core::PodStatus, verdicts: &Verdicts, second: i64| {
        probed(&p, status, shown, verdicts, Timestamp::from_second(second).expect("in range"))
    };
    let told = |status: &core::PodStatus| {
        let all = status.init_container_statuses.iter().chain(&status.container_statuses).flatten();
        let unready: Vec<_> = all.filter(|c| !c.ready).map(|c| format!("{}:{:?}", c.name, c.started)).collect();
        let told = |kind| {
            let c = condition(status, kind);
            let since = c.last_transition_time.as_ref().map(|t| t.0.as_second());
            (c.status.clone(), c.message.clone().unwrap_or_default(), since)
        };
        assert_eq!(told("Ready"), told("ContainersReady"));
        (unready.join(" "), told("Ready"))
    };
    let is = |unready: &str, status: &str, message: &str, since| {
        (unready.to_owned(), (status.to_owned(), message.to_owned(), Some(since)))
    };
    let ready = status_with(&p, &seen, |_, _| {}, None, 10);
    assert_eq!(told(&ready), is("", "True", "", 10));
    let unready = show(&ready, &ready, &verdicts(&["n0"], &["s2"]), 20);
    let message = "containers with unready status: [s n]";
    assert_eq!(told(&unready), is("s:Some(false) n:Some(true)", "False", message, 20));
    // A job began before, and ends after.
    let late = show(&ready, &unready, &verdicts(&["n0"], &["s2"]), 30);
    assert_eq!(told(&late), is("s:Some(false) n:Some(true)", "False", message, 20));
    let again = show(&late, &late, &verdicts(&[], &[]), 40);
    assert_eq!(told(&again), is("", "True", "", 40));
    // Of what has no probe, what the job says counts, and so of what has ended.
    let down = status_with(&p, &observed("n=3 m=new s=run"), |_, _| {}, Some(&again), 50);
    let shown = show(&down, &again, &verdicts(&[], &[]), 60);
    assert_eq!(told(&shown), is("m:Some(false) n:Some(false)", "False", "containers with unready status: [m n]", 60));
    let over = status("Never", "n", "n=0");
    assert_eq!(show(&over, &again, &verdicts(&[], &[]), 70), over);
}

#[test]
fn a_pod_that_ended_for_the_nodes_sake() {
    let disrupted = |status: &core::PodStatus| -> Vec<String> {
        let all = status.conditions.iter().flatten().filter(|c| c.type_ == "DisruptionTarget");
        all.map(|c| format!("{} {}", c.status, c.reason.as_deref().unwrap_or_default())).collect()
    };
    let pod = pod("Always", "m");
    let failed = |by| PodFailure { reason: "Terminated", message: "why".to_owned(), by };
    let told = |by, before, second| status_failed(&pod, &observed("m=0"), |_, _| {}, before, second, Some(&failed(by)));
    let status = told(FailedBy::Node, None, 100);
    let fields = [&status.phase, &status.reason, &status.message].map(|field| field.as_deref().unwrap_or_default());
    assert_eq!(fields, ["Failed", "Terminated", "why"]);
    assert_eq!(disrupted(&status), ["True TerminationByKubelet"]);
    assert_eq!(disrupted(&told(FailedBy::Node, Some(&status), 200)), ["True TerminationByKubelet"]);
    let since = |status| condition(status, "DisruptionTarget").last_transition_time.clone();
    assert_eq!(since(&told(FailedBy::Node, Some(&status), 200)), since(&status));
    assert!(disrupted(&told(FailedBy::Pod, None, 100)).is_empty());
    // It runs again: it is no target any more. What others say stays.
    let again = status_with(&pod, &observed("m=run"), |_, _| {}, Some(&status), 300);
    assert!(disrupted(&again).is_empty() && again.reason.is_none());
    let mut others = again.clone();
    set_condition(&mut others, "DisruptionTarget", "PreemptionByScheduler", "m");
    let again = status_with(&pod, &observed("m=run"), |_, _| {}, Some(&others), 300);
    assert_eq!(disrupted(&again), ["True PreemptionByScheduler"]);
    assert_eq!(disrupted(&told(FailedBy::Node, Some(&others), 300)), ["True TerminationByKubelet"]);
    // What the server has doesn't take ours away.
    assert_eq!(with_conditions_of_others(&status, &again).as_ref().map(disrupted).unwrap_or_default().len(), 2);
    assert_eq!(with_conditions_of_others(&status, &status), None);
}

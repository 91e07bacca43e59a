//! The plan as tables. A pod is written as in `init ! sidecar | main main`, and what was observed as
//! `box:READY name=STATE …`.

use std::sync::Arc;
use std::time::Instant;

use super::*;
use crate::cri::{Container, ContainerStatus, Notes, PodRef, SandboxStatus, UnixNanos};
use crate::pod::{PodName, PodUid, Source};

fn container(name: &str) -> core::Container {
    core::Container { name: name.to_owned(), image: Some("i".to_owned()), ..Default::default() }
}

/// `a b! | c d`: init containers (sidecars with `!`, with a startup probe `!?`), then containers.
fn pod(policy: &str, containers: &str) -> Pod {
    let (init, main) = containers.split_once('|').unwrap_or(("", containers));
    let init = init.split_whitespace().map(|word| {
        let name = word.trim_end_matches(['!', '?']);
        let startup = word.ends_with('?').then(core::Probe::default);
        let restart = word.contains('!').then(|| "Always".to_owned());
        core::Container { restart_policy: restart, startup_probe: startup, ..container(name) }
    });
    let spec = core::PodSpec {
        restart_policy: Some(policy.to_owned()),
        init_containers: Some(init.collect()),
        containers: main.split_whitespace().map(container).collect(),
        ..Default::default()
    };
    Pod {
        uid: PodUid::new("u"),
        name: PodName::new("ns", "p"),
        source: Source::File,
        origin: "/m/p.yaml".into(),
        status: None,
        meta: Default::default(),
        spec,
    }
}

/// Sandboxes and containers, the newest first: `s1:ready`, `s1:dead`, `s1:noip`, `s1:host`, and
/// containers of the sandbox before them, `main=run`, `main=0`, `main=1` (exit codes), `main=oom`,
/// `main=new` (created), `main=lost` (unknown), with `~` when their definition is another by now.
fn observed(text: &str) -> Observed {
    let reference = PodRef { uid: PodUid::new("u"), name: PodName::new("ns", "p") };
    let mut observed = Observed::empty(Instant::now());
    let mut sandbox = SandboxId::new("none");
    let words: Vec<_> = text.split_whitespace().collect();
    let total = words.len();
    for (i, word) in words.into_iter().enumerate() {
        let age = UnixNanos(i64::try_from(total - i).expect("small"));
        if let Some((id, state)) = word.split_once(':') {
            sandbox = SandboxId::new(id);
            observed.sandboxes.push(SandboxStatus {
                sandbox: crate::cri::Sandbox {
                    id: sandbox.clone(),
                    pod: reference.clone(),
                    attempt: id.trim_start_matches('s').parse().expect("a number"),
                    ready: state != "dead",
                    created_at: age,
                },
                ips: if state == "noip" || state == "host" { vec![] } else { vec!["10.0.0.1".to_owned()] },
                host_network: state == "host",
            });
            continue;
        }
        let (name, state) = word.split_once('=').expect("NAME=STATE");
        let old = state.ends_with('~');
        let state = state.trim_end_matches('~');
        let hash = if old { "other".to_owned() } else { identity::container_hash(&container(name)) };
        let (state, exit_code, reason) = match state {
            "run" => (ContainerState::Running, 0, ""),
            "new" => (ContainerState::Created, 0, ""),
            "lost" => (ContainerState::Unknown, 0, ""),
            "oom" => (ContainerState::Exited, 0, "OOMKilled"),
            code => (ContainerState::Exited, code.parse().expect("an exit code"), ""),
        };
        let notes = Notes { hash, restart_count: 3, ..Default::default() };
        observed.containers.push(ObservedContainer {
            status: ContainerStatus {
                container: Container {
                    id: ContainerId::new(format!("{name}{i}")),
                    sandbox: sandbox.clone(),
                    pod: reference.clone(),
                    name: name.into(),
                    attempt: 3,
                    state,
                    created_at: age,
                    notes: Arc::new(notes),
                },
                started_at: age,
                finished_at: age,
                exit_code,
                reason: reason.to_owned(),
                message: String::new(),
                image: String::new(),
                image_ref: String::new(),
                log_path: String::new(),
            },
            exited_seen: None,
        });
    }
    observed
}

struct Case<'a> {
    pod: Pod,
    observed: &'a str,
    verdicts: HashMap<ContainerId, Verdict>,
    killed: HashSet<ContainerId>,
    ordered: HashSet<ContainerId>,
}

impl Case<'_> {
    fn new<'a>(policy: &str, containers: &str, observed: &'a str) -> Case<'a> {
        Case {
            pod: pod(policy, containers),
            observed,
            verdicts: HashMap::new(),
            killed: HashSet::new(),
            ordered: HashSet::new(),
        }
    }

    /// `stop`, `recreate#ATTEMPT a b`, or `kill a start b c`; restarts have their count behind the
    /// name, `a*4`.
    fn plan(&self) -> String {
        let observed = observed(self.observed);
        let plan = plan(&Facts {
            pod: &self.pod,
            observed: &observed,
            verdicts: &self.verdicts,
            killed_to_restart: &self.killed,
            ordered: &self.ordered,
        });
        let name = |which: Which| which.of(&self.pod).map(|c| c.name.clone()).expect("is in the pod");
        let starts = |list: &[Start]| {
            let shown = |s: &Start| match s.restart_count {
                0 => name(s.which),
                n => format!("{}*{n}", name(s.which)),
            };
            list.iter().map(shown).collect::<Vec<_>>().join(" ")
        };
        match plan {
            Plan::Stop => "stop".to_owned(),
            Plan::Recreate { attempt, start } => format!("recreate#{attempt} {}", starts(&start)),
            Plan::Keep { kill, start, .. } => {
                let kills = kill.iter().map(|k| {
                    let then = if k.restart { "" } else { " for good" };
                    format!("kill {} {:?}{then}", name(k.which), k.why)
                });
                let mut all: Vec<_> = kills.collect();
                if !start.is_empty() {
                    all.push(format!("start {}", starts(&start)));
                }
                all.join(", ")
            }
        }
    }
}

#[test]
fn sandboxes() {
    let table = [
        ("Always", "m", "", "recreate#0 m"),
        ("Always", "m", "s0:ready m=run", ""),
        ("Always", "m", "s0:dead m=137", "recreate#1 m*4"),
        ("Always", "m", "s0:noip", "recreate#1 m"),
        ("Always", "m", "s0:host m=run", "recreate#1 m*4"),
        ("Always", "m", "s1:ready s0:ready m=run", "recreate#2 m*4"),
        ("Always", "m", "s1:dead s0:ready m=run", "recreate#2 m*4"),
        ("Always", "m", "s1:ready s0:dead m=137", "start m*4"),
        ("OnFailure", "m n", "s0:dead m=0 n=1", "recreate#1 n*4"),
        ("OnFailure", "m", "s0:dead m=0", "stop"),
        ("Never", "m", "s0:dead m=0", "stop"),
        ("Never", "m", "s0:dead m=1", "stop"),
        ("Never", "m", "s0:dead", "recreate#1 m"),
        ("Always", "i | m", "s0:dead i=0 m=137", "recreate#1 i*4"),
        ("Always", "i | m", "s1:ready s0:dead i=0 m=137", "start i*4"),
        ("Always", "i | m", "", "recreate#0 i"),
    ];
    for (policy, containers, observed, want) in table {
        assert_eq!(Case::new(policy, containers, observed).plan(), want, "{policy} {containers} with {observed}");
    }
    let mut case = Case::new("Always", "m", "s0:host m=run");
    case.pod.spec.host_network = Some(true);
    assert_eq!(case.plan(), "", "a pod on the host's network needs no address");
}

#[test]
fn containers_by_policy_and_state() {
    // State, then what is planned for the policies Always, OnFailure, Never.
    let table = [
        ("", ["start m", "start m", "start m"]),
        ("m=run", ["", "", ""]),
        ("m=new", ["start m*4", "start m*4", "start m*4"]),
        ("m=0", ["start m*4", "stop", "stop"]),
        ("m=1", ["start m*4", "start m*4", "stop"]),
        ("m=oom", ["start m*4", "start m*4", "stop"]),
        ("m=lost", ["kill m Unknown", "kill m Unknown", "kill m Unknown"]),
        ("m=run~", ["kill m DefinitionChanged", "kill m DefinitionChanged", "kill m DefinitionChanged"]),
        ("m=0~", ["start m*4", "stop", "stop"]),
        ("m=run m=1", ["", "", ""]),
        ("m=1 m=run", ["start m*4", "start m*4", "stop"]),
    ];
    for (state, wants) in table {
        for (policy, want) in ["Always", "OnFailure", "Never"].into_iter().zip(wants) {
            let observed = format!("s0:ready {state}");
            assert_eq!(Case::new(policy, "m", &observed).plan(), want, "{policy} with {state:?}");
        }
    }
}

#[test]
fn several_containers() {
    let table = [
        ("Always", "m n", "m=run", "start n"),
        ("Always", "m n", "m=run n=0", "start n*4"),
        ("OnFailure", "m n", "m=0 n=run", ""),
        ("OnFailure", "m n", "m=0 n=0", "stop"),
        ("OnFailure", "m n", "m=0 n=2", "start n*4"),
        ("Never", "m n", "m=0 n=run", ""),
        ("Never", "m n", "m=0 n=2", "stop"),
        ("Never", "m n", "m=run~ n=0", "kill m DefinitionChanged"),
    ];
    for (policy, containers, observed, want) in table {
        let observed = format!("s0:ready {observed}");
        assert_eq!(Case::new(policy, containers, &observed).plan(), want, "{policy} {containers} with {observed}");
    }
}

#[test]
fn init_containers() {
    let table = [
        ("Always", "", "start i"),
        ("Always", "i=run", ""),
        ("Always", "i=0", "start j"),
        ("Always", "i=1", "start i*4"),
        ("OnFailure", "i=1", "start i*4"),
        ("Never", "i=1", "stop"),
        ("Never", "i=oom", "stop"),
        ("Always", "i=oom", "start i*4"),
        ("Always", "i=new", "start i*4"),
        ("Always", "i=lost", "kill i Unknown"),
        ("Never", "i=lost", "stop"),
        ("Always", "j=run", ""),
        ("Always", "j=0", "start m"),
        ("Always", "j=1 i=0", "start j*4"),
        ("Always", "j=0 i=0", "start m"),
        ("Always", "m=run", ""),
        ("Always", "m=1 j=0 i=0", "start m*4"),
        ("Never", "m=1 j=0 i=0", "stop"),
        // Cleaned away after the pod was initialised.
        ("Always", "m=1", "start m*4"),
    ];
    for (policy, observed, want) in table {
        let observed = format!("s0:ready {observed}");
        assert_eq!(Case::new(policy, "i j | m", &observed).plan(), want, "{policy} with {observed}");
    }
}

#[test]
fn sidecars() {
    let table = [
        ("Always", "s! i | m", "", "start s"),
        ("Always", "s! i | m", "s=run", "start i"),
        ("Always", "s! i | m", "i=run s=run", ""),
        ("Always", "s! i | m", "i=run s=1", "start s*4"),
        ("Always", "s! i | m", "i=0 s=run", "start m"),
        ("Always", "s! i | m", "i=0 s=0", "start s*4 m"),
        ("Always", "s! i | m", "m=run i=0 s=run", ""),
        ("Always", "s! i | m", "m=run i=0 s=1", "start s*4"),
        ("Never", "s! i | m", "m=run i=0 s=1", "start s*4"),
        ("Never", "s! i | m", "m=0 i=0 s=run", "stop"),
        ("OnFailure", "s! | m", "m=0 s=run", "stop"),
        ("OnFailure", "s! | m", "m=1 s=run", "start m*4"),
        ("Always", "s! | m", "m=run", "start s"),
        ("Always", "s! | m", "m=run s=run~", "kill s DefinitionChanged"),
        ("Never", "s! | m", "m=run s=run~", "kill s DefinitionChanged"),
        ("Always", "s! t! | m", "", "start s"),
        ("Always", "s! t! | m", "t=run s=run", "start m"),
    ];
    for (policy, containers, observed, want) in table {
        let observed = format!("s0:ready {observed}");
        assert_eq!(Case::new(policy, containers, &observed).plan(), want, "{policy} {containers} with {observed}");
    }
}

#[test]
fn a_sidecars_startup_probe_gates_what_comes_after_it() {
    for (verdict, want) in [(None, ""), (Some(true), "start m"), (Some(false), "kill s StartupFailed")] {
        let mut case = Case::new("Never", "s!? | m", "s0:ready s=run");
        case.verdicts.insert(ContainerId::new("s1"), Verdict { startup: verdict, liveness: None });
        assert_eq!(case.plan(), want, "{verdict:?}");
    }
}

#[test]
fn probes_kill() {
    let liveness = Verdict { liveness: Some(false), ..Verdict::default() };
    let startup = Verdict { startup: Some(false), ..Verdict::default() };
    for (policy, verdict, want) in [
        ("Always", liveness, "kill m LivenessFailed"),
        ("OnFailure", startup, "kill m StartupFailed"),
        ("Never", liveness, "kill m LivenessFailed for good"),
    ] {
        let mut case = Case::new(policy, "m n", "s0:ready m=run n=run");
        case.verdicts.insert(ContainerId::new("m1"), verdict);
        assert_eq!(case.plan(), want, "{policy}");
    }
}

#[test]
fn ephemeral_containers_start_once_and_keep_no_pod_alive() {
    let table = [
        ("Always", "i | m", "", "start e i"),
        ("Always", "m", "m=run", "start e"),
        ("Always", "m", "m=run e=run", ""),
        ("Always", "m", "m=run e=1", ""),
        ("Never", "m", "m=0 e=run", "stop"),
    ];
    for (policy, containers, observed, want) in table {
        let observed = format!("s0:ready {observed}");
        let mut case = Case::new(policy, containers, &observed);
        case.pod.spec.ephemeral_containers =
            Some(vec![core::EphemeralContainer { name: "e".to_owned(), ..Default::default() }]);
        assert_eq!(case.plan(), want, "{policy} {containers} with {observed}");
    }
}

#[test]
fn a_containers_own_restart_policy_goes_before_the_pods() {
    let own = |case: &mut Case<'_>, i: usize, policy: &str| {
        case.pod.spec.containers[i].restart_policy = Some(policy.to_owned());
    };
    let mut case = Case::new("Never", "m n", "s0:ready m=1 n=0");
    own(&mut case, 0, "OnFailure");
    assert_eq!(case.plan(), "start m*4");
    let mut case = Case::new("Always", "m n", "s0:ready m=1 n=run");
    own(&mut case, 0, "Never");
    assert_eq!(case.plan(), "");
    let mut case = Case::new("Never", "m n", "s0:dead m=137 n=0");
    own(&mut case, 0, "Always");
    assert_eq!(case.plan(), "recreate#1 m*4", "one that may run again keeps the pod going");
}

#[test]
fn what_was_killed_to_be_started_again_is_started_whatever_the_policy() {
    let mut case = Case::new("Never", "m", "s0:ready m=137");
    assert_eq!(case.plan(), "stop");
    case.killed.insert(ContainerId::new("m1"));
    assert_eq!(case.plan(), "start m*4");
}

#[test]
fn what_somebody_wants_restarted_is_killed_for_it() {
    let mut case = Case::new("Never", "m n", "s0:ready m=run n=run");
    case.ordered.insert(ContainerId::new("m1"));
    assert_eq!(case.plan(), "kill m Ordered");
    let mut case = Case::new("Always", "s! | m", "s0:ready s=run m=run");
    case.ordered.insert(ContainerId::new("s1"));
    assert_eq!(case.plan(), "kill s Ordered");
}

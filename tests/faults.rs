//! The agent against a runtime that fails in all the ways that runtimes do.

mod support;

use std::sync::Arc;
use std::time::{Duration, Instant};

use grpcio::RpcStatusCode;
use support::cri::Memory;
use support::{Agent, Cell, FakeCri, eventually};

const SOON: Duration = Duration::from_secs(20);

struct Bench {
    cri: FakeCri,
    agent: Agent,
}

impl Bench {
    /// An agent and its runtime; neither is started.
    fn new() -> Bench {
        let cri = FakeCri::start();
        let agent = Agent::in_cell(&Arc::new(Cell::start()), cri.socket());
        Bench { cri, agent }
    }

    fn started() -> Bench {
        let mut bench = Bench::new();
        bench.agent.start();
        bench
    }

    fn write(&self, name: &str) {
        self.agent.write_manifest(&format!("{name}.yaml"), &pod(name, ""));
    }

    fn runs(&self, name: &str) {
        self.cri.wait(SOON, |m| m.running(&full(name)) == 1);
    }
}

fn full(name: &str) -> String {
    format!("{name}-{}", support::NODE)
}

fn pod(name: &str, spec: &str) -> String {
    let image = support::BUSYBOX;
    format!(
        "apiVersion: v1\nkind: Pod\nmetadata: {{name: {name}}}\nspec:\n  containers:\n  - {{name: main, image: '{image}', command: [sleep, '1000']}}\n{spec}"
    )
}

#[test]
fn twenty_pods_that_stop_slowly_delay_no_new_one() {
    let mut b = Bench::new();
    b.agent.flags(&["--workers=2"]);
    b.agent.start();
    let old: Vec<String> = (0..20).map(|i| format!("old{i}")).collect();
    for name in &old {
        b.write(name);
    }
    for name in &old {
        b.runs(name);
        b.cri.set_stop_duration(&full(name), Duration::from_secs(30));
    }
    for name in &old {
        b.agent.remove_manifest(&format!("{name}.yaml"));
    }
    b.cri.wait(SOON, |m| m.in_flight("StopContainer") == 20);
    let start = Instant::now();
    b.write("new");
    b.runs("new");
    let took = start.elapsed();
    assert!(took < Duration::from_secs(1), "the new pod took {took:?}");
    assert_eq!(b.cri.look(|m| m.in_flight("StopContainer")), 20, "all are being stopped at once");
}

/// k0s#4958, rke2#2396, linuxkit/kubernetes#26: the runtime may come later.
#[test]
fn k0s_4958_a_runtime_that_comes_late() {
    let mut b = Bench::new();
    b.cri.stop();
    b.write("web");
    b.agent.launch();
    let unhealthy = eventually("an unhealthy agent", SOON, || match b.agent.get("/healthz")? {
        (500, body) if body.contains("can't be reached") => Ok(body),
        (status, body) => Err(format!("{status} {body}")),
    });
    assert!(unhealthy.contains("[-]runtime failed") && unhealthy.contains("[+]syncloop ok"), "{unhealthy}");
    b.cri.restart(Memory::Kept);
    b.runs("web");
    eventually("a healthy agent", SOON, || b.agent.healthz());
}

#[test]
fn a_runtime_that_goes_away_for_a_while() {
    let b = Bench::started();
    b.write("web");
    b.runs("web");
    let id = b.cri.look(|m| m.container(&full("web")).expect("runs").id.clone());
    b.cri.stop();
    eventually("an unhealthy agent", SOON, || b.agent.healthz().map_or(Ok(()), |()| Err("healthy".to_owned())));
    b.write("later");
    b.cri.restart(Memory::Kept);
    let start = Instant::now();
    b.runs("later");
    assert!(start.elapsed() < Duration::from_secs(5), "it is there within seconds: {:?}", start.elapsed());
    eventually("a healthy agent", SOON, || b.agent.healthz());
    assert_eq!(b.cri.look(|m| m.container(&full("web")).map(|c| c.id.clone())), Some(id), "what ran is untouched");
    assert_eq!(b.cri.look(|m| m.count("StopContainer")), 0);
}

#[test]
fn a_runtime_that_forgot_everything() {
    let b = Bench::started();
    b.write("web");
    b.runs("web");
    b.cri.stop();
    b.cri.restart(Memory::Lost);
    b.cri.edit(|m| m.add_image(support::BUSYBOX));
    b.runs("web");
}

#[test]
fn one_sandbox_that_hangs_is_one_pods_trouble() {
    let b = Bench::started();
    let hang = b.cri.on("RunPodSandbox").of(&full("stuck")).hang();
    b.write("stuck");
    hang.wait_hits(1, SOON);
    for name in ["a", "b", "c"] {
        b.write(name);
        b.runs(name);
    }
    b.agent.healthz().expect("the agent is healthy");
    hang.remove();
    b.runs("stuck");
}

#[test]
fn a_listing_that_hangs_is_told_and_survived() {
    let b = Bench::started();
    b.write("web");
    b.runs("web");
    let hang = b.cri.on("ListPodSandbox").hang();
    hang.wait_hits(1, SOON);
    eventually("an unhealthy agent", Duration::from_secs(60), || match b.agent.get("/healthz")? {
        (500, body) if body.contains("has not answered for") => Ok(()),
        (status, body) => Err(format!("{status} {body}")),
    });
    assert_eq!(b.agent.pods().len(), 1, "the agent goes on answering");
    hang.remove();
    eventually("a healthy agent", SOON, || b.agent.healthz());
    b.write("later");
    b.runs("later");
    assert_eq!(b.cri.look(|m| m.running(&full("web"))), 1);
}

#[test]
fn errors_are_tried_again() {
    let b = Bench::started();
    for method in ["RunPodSandbox", "CreateContainer", "StartContainer", "ImageStatus", "PodSandboxStatus"] {
        let name = method.to_lowercase();
        b.cri.on(method).of(&full(&name)).times(2).fail(RpcStatusCode::UNKNOWN, "no luck");
        b.write(&name);
    }
    for name in ["runpodsandbox", "createcontainer", "startcontainer", "imagestatus", "podsandboxstatus"] {
        b.runs(name);
    }
    b.cri.clear_faults();
    b.cri.on("StopContainer").of(&full("runpodsandbox")).times(2).fail(RpcStatusCode::UNKNOWN, "no luck");
    b.cri.on("RemovePodSandbox").of(&full("runpodsandbox")).times(2).fail(RpcStatusCode::UNKNOWN, "no luck");
    b.agent.remove_manifest("runpodsandbox.yaml");
    b.cri.wait(SOON, |m| m.sandboxes_of(&full("runpodsandbox")).next().is_none());
}

/// kubernetes#134153: a name that the runtime holds on to after a call that timed out.
#[test]
fn kubernetes_134153_a_reserved_name_is_no_dead_end() {
    let b = Bench::started();
    // The sandbox is made, but the agent hears of a failure: its name is taken from then on.
    b.cri.on("RunPodSandbox").times(1).fail_after(RpcStatusCode::UNKNOWN, "no luck");
    b.cri.on("CreateContainer").times(1).fail_after(RpcStatusCode::UNKNOWN, "no luck");
    b.write("web");
    b.runs("web");
    assert_eq!(b.cri.look(|m| m.sandboxes_of(&full("web")).count()), 1, "nothing is doubled");
}

#[test]
fn answers_that_make_no_sense() {
    let b = Bench::started();
    b.write("before");
    b.runs("before");
    for method in ["ListPodSandbox", "ListContainers", "ContainerStatus", "PodSandboxStatus", "RunPodSandbox"] {
        b.cri.on(method).times(2).garbage();
        b.cri.on(method).times(2).empty();
    }
    let id = b.cri.look(|m| m.container(&full("before")).expect("runs").id.clone());
    b.write("web");
    b.cri.wait(Duration::from_secs(60), |m| m.running(&full("web")) == 1);
    eventually("a healthy agent", SOON, || b.agent.healthz());
    b.cri.wait(SOON, |m| m.sandboxes_of(&full("web")).count() == 1);
    b.cri.holds(Duration::from_secs(3), |m| m.running(&full("before")) == 1 && m.running(&full("web")) == 1);
    let still = b.cri.look(|m| m.container(&full("before")).map(|c| c.id.clone()));
    assert_eq!(still, Some(id), "a listing that left it out was not believed");
}

#[test]
fn a_container_that_ends_is_started_again() {
    let b = Bench::started();
    b.write("web");
    b.runs("web");
    b.cri.exit_container(&full("web"), 3);
    b.runs("web");
    let status = b.agent.wait_pod("web", SOON, |pod| pod["status"]["containerStatuses"][0]["restartCount"] == 1);
    let last = &status["status"]["containerStatuses"][0]["lastState"]["terminated"];
    assert_eq!((&last["exitCode"], &last["reason"]), (&3.into(), &"Error".into()), "{status:#}");
    b.cri.exit_container(&full("web"), 3);
    b.agent.wait_pod("web", SOON, |pod| {
        pod["status"]["containerStatuses"][0]["state"]["waiting"]["reason"] == "CrashLoopBackOff"
    });
}

#[test]
fn a_runtime_with_events_is_listed_rarely() {
    let mut b = Bench::new();
    b.cri.set_events(true);
    b.agent.start();
    b.write("web");
    b.runs("web");
    b.agent.wait_pod("web", SOON, |pod| pod["status"]["phase"] == "Running");
    // With the first event the agent has learnt that there are events.
    let before = b.cri.look(|m| m.count("ListContainers"));
    b.cri.holds(Duration::from_secs(4), |m| m.count("ListContainers") <= before + 2);
    let start = Instant::now();
    b.cri.exit_container(&full("web"), 1);
    b.cri.wait(SOON, |m| m.containers_of(&full("web")).count() == 2 && m.running(&full("web")) == 1);
    assert!(start.elapsed() < Duration::from_millis(500), "it took {:?}", start.elapsed());
}

#[test]
fn a_runtime_without_cri_v1_is_told() {
    let mut b = Bench::new();
    b.cri.on("Version").fail(RpcStatusCode::UNIMPLEMENTED, "unknown service runtime.v1.RuntimeService");
    b.agent.launch();
    eventually("the clear message", SOON, || match b.agent.get("/healthz")? {
        (500, body) if body.contains("does not speak CRI v1") => Ok(()),
        (status, body) => Err(format!("{status} {body}")),
    });
}

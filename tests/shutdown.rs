//! The machine shuts down: pods end in order and have their time for it, on a real containerd, with a
//! private bus and a logind of the test's own.

mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde_json::{Value, json};
use support::logind::{Bus, Logind, prepare_for_shutdown};
use support::node::{Node, SOON, id_of};
use support::{Agent, Containerd, Manifest, condition, eventually};

const MESSAGE: &str = "Pod was terminated in response to imminent node shutdown.";
/// Long enough for anything.
const LONG: Duration = Duration::from_secs(1200);
const DROP_IN: &str = "/etc/systemd/logind.conf.d/99-kubelet.conf";

/// A node whose machine has a logind. Its agent isn't started yet.
struct Machine {
    node: Node,
    logind: Option<Logind>,
    bus: Bus,
    story: PathBuf,
}

impl Machine {
    fn prepare(delay: Duration, config: Value) -> Machine {
        let containerd = Containerd::start();
        let cell = containerd.cell().clone();
        // What is written there stays in the cell.
        cell.run("mount", &["-t", "tmpfs", "tmpfs", "/etc/systemd"]).expect("mounts");
        let bus = Bus::start(cell.dir());
        let mut agent = Agent::on_containerd(&containerd);
        agent.configure(config);
        agent.environment("DBUS_SYSTEM_BUS_ADDRESS", &bus.address());
        let node = Node { agent, containerd };
        let story = node.shared("story");
        let mut machine = Machine { node, logind: None, bus, story };
        machine.start_logind(delay);
        machine
    }

    fn start_logind(&mut self, delay: Duration) {
        // The one of before goes first, for there is one name.
        self.logind = None;
        self.logind = Some(Logind::start(&self.bus, delay, self.node.containerd.cell().path(DROP_IN)));
    }

    fn logind(&self) -> &Logind {
        self.logind.as_ref().expect("it runs")
    }

    /// A pod that, told to end, says so and waits until it may.
    fn waiting(&self, name: &str) -> Manifest {
        let script = format!(
            "echo {name} begins >>/story/all; \
             trap 'echo {name} ends >>/story/all; until [ -e /story/{name} ]; do sleep 0.1; done; exit 0' TERM; \
             while true; do sleep 0.1; done"
        );
        Manifest::pod(name)
            .grace(600)
            .spec(&format!("volumes: [{{name: s, hostPath: {{path: {}}}}}]", self.story.display()))
            .main(&script, "volumeMounts: [{name: s, mountPath: /story}]")
    }

    /// Lets a pod end that waits for it, or will.
    fn let_end(&self, name: &str) {
        fs::write(self.story.join(name), "").expect("writes");
    }

    /// Waits until this is the story, without what the pod `moved` has to say.
    #[track_caller]
    fn told(&self, want: &[&str]) {
        eventually("the story", SOON, || {
            let text = fs::read_to_string(self.story.join("all")).unwrap_or_default();
            let lines: Vec<_> = text.lines().filter(|line| !line.starts_with("moved ")).collect();
            if lines == want { Ok(()) } else { Err(format!("{lines:?}")) }
        });
    }

    /// Waits until the pod has ended with the node.
    #[track_caller]
    fn ended(&self, name: &str) -> Value {
        let pod = self.node.agent.wait_pod(name, SOON, |pod| {
            let status = &pod["status"];
            status["phase"] == "Failed" && !status["containerStatuses"][0]["state"]["terminated"].is_null()
        });
        let status = &pod["status"];
        assert_eq!((&status["reason"], &status["message"]), (&"Terminated".into(), &MESSAGE.into()));
        let disrupted = condition(&pod, "DisruptionTarget");
        assert_eq!((&disrupted["status"], &disrupted["reason"]), (&"True".into(), &"TerminationByKubelet".into()));
        assert_eq!(disrupted["message"], MESSAGE);
        pod
    }

    /// Waits until the pod runs, with nothing of its end left.
    #[track_caller]
    fn runs(&self, name: &str, restarts: u32) -> Value {
        let pod = self.node.agent.wait_pod(name, SOON, |pod| {
            let container = &pod["status"]["containerStatuses"][0];
            container["restartCount"] == restarts && !container["state"]["running"].is_null()
        });
        let status = &pod["status"];
        assert!(status["phase"] == "Running" && status["reason"].is_null(), "{status}");
        assert!(condition(&pod, "DisruptionTarget").is_null(), "{status}");
        pod
    }
}

#[test]
fn pods_end_in_order_and_run_again() {
    let config = json!({"shutdownGracePeriod": "1200s", "shutdownGracePeriodCriticalPods": "600s"});
    let mut machine = Machine::prepare(LONG, config);
    machine.node.agent.start();
    machine.logind().waits_for(1);
    assert!(!machine.node.agent.log().contains("shutdownGracePeriod"), "it is served");
    machine.node.add(&machine.waiting("low"));
    machine.runs("low", 0);
    machine.node.add(&machine.waiting("critical").spec("priorityClassName: system-node-critical"));
    let critical = machine.runs("critical", 0);
    machine.told(&["low begins", "critical begins"]);
    machine.node.add(&machine.waiting("moved"));
    machine.runs("moved", 0);

    machine.logind().prepare(true);
    machine.told(&["low begins", "critical begins", "low ends"]);
    // It takes its time, and the machine waits. Nothing comes that wasn't there.
    machine.node.add(&machine.waiting("late"));
    let late = machine.node.reaches("late", "Failed");
    assert_eq!(late["status"]["reason"], "NodeShutdown");
    assert_eq!(late["status"]["message"], "Pod was rejected: Pod was rejected as the node is shutting down.");
    assert_eq!(machine.node.runs("critical")["status"]["containerStatuses"], critical["status"]["containerStatuses"]);
    assert!(machine.logind().is_held());
    machine.node.agent.healthz().expect("it is well");
    // Nor does one that is taken away and put back.
    machine.node.remove("moved");
    machine.node.agent.wait_gone("moved", SOON);
    machine.node.add(&machine.waiting("moved"));
    machine.node.agent.wait_pod("moved", SOON, |_| true);
    machine.let_end("moved");
    let refused = machine.node.agent.wait_pod("moved", SOON, |pod| pod["status"]["reason"] == "NodeShutdown");
    assert!(refused["status"]["containerStatuses"].is_null(), "{refused}");
    machine.let_end("low");
    machine.ended("low");
    machine.told(&["low begins", "critical begins", "low ends", "critical ends"]);
    assert!(machine.logind().is_held());
    machine.let_end("critical");
    machine.logind().waits_no_more();
    let critical = machine.ended("critical");
    let exit = &critical["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"];
    assert_eq!(exit, 0, "it had the time to end by itself");
    assert!(machine.node.containerd.tasks().is_empty());
    let state = machine.node.agent.root().join("graceful_node_shutdown_state");
    eventually("the times on disk", SOON, || match fs::read_to_string(&state).unwrap_or_default() {
        text if text.contains("\"endTime\":\"") => Ok(()),
        text => Err(text),
    });

    // Nothing comes of it: all is as it was, and what came too late runs, too.
    machine.logind().prepare(false);
    machine.logind().waits_for(2);
    machine.runs("low", 1);
    machine.runs("critical", 1);
    machine.runs("late", 0);
    machine.runs("moved", 0);

    // And now it does.
    machine.let_end("late");
    machine.logind().prepare(true);
    machine.logind().waits_no_more();
    for name in ["low", "critical", "late"] {
        machine.ended(name);
    }
    machine.node.agent.stop();
    machine.start_logind(LONG);
    machine.node.agent.start();
    machine.logind().waits_for(1);
    machine.runs("low", 2);
    machine.runs("critical", 2);
    machine.runs("late", 1);
}

#[test]
fn a_logind_that_waits_too_short_and_pods_that_take_too_long() {
    let periods = json!([
        {"priority": 0, "shutdownGracePeriodSeconds": 3},
        {"priority": 1000, "shutdownGracePeriodSeconds": 600},
    ]);
    let mut machine = Machine::prepare(Duration::from_secs(5), json!({"shutdownGracePeriodByPodPriority": periods}));
    machine.node.agent.start();
    machine.logind().waits_for(1);
    // With some seconds more for the API server.
    assert_eq!(machine.logind().delay(), Duration::from_secs(608));
    let deaf = "trap '' TERM; while true; do sleep 0.1; done";
    machine.node.add(&Manifest::pod("deaf").grace(600).main(deaf, ""));
    machine.node.add(&machine.waiting("quick").spec("priority: 1000"));
    let pod = machine.node.runs("deaf");
    machine.runs("quick", 0);

    // Anybody may say that the machine shuts down.
    let mut other = machine.bus.connect();
    let mut lie = prepare_for_shutdown(true);
    lie.destination = Some(machine.logind().holder());
    other.send(lie).expect("is sent");
    other.send(prepare_for_shutdown(true)).expect("is sent");
    // Heard after that, this one is heard by the lock that is taken.
    machine.logind().prepare(false);
    machine.logind().waits_for(2);
    assert!(!machine.node.agent.log().contains("shuts down: pods"), "{}", machine.node.agent.log());

    // Another logind: it waits as well. There is a file that tells it how long.
    machine.start_logind(LONG);
    machine.logind().waits_for(1);

    machine.let_end("quick");
    machine.logind().prepare(true);
    machine.logind().waits_no_more();
    let ended = machine.ended("deaf");
    assert_eq!(id_of(&ended, "main"), id_of(&pod, "main"));
    let exit = &ended["status"]["containerStatuses"][0]["state"]["terminated"]["exitCode"];
    assert_eq!(exit, 137, "its group's time was over");
    machine.ended("quick");
    machine.told(&["quick begins", "quick ends"]);
}

/// Where there is no logind nothing is lost but the waiting.
#[test]
fn a_bus_that_comes_later() {
    let containerd = Containerd::start();
    let dir = containerd.cell().dir().to_owned();
    let mut agent = Agent::on_containerd(&containerd);
    agent.configure(json!({"shutdownGracePeriod": "1s"}));
    agent.environment("DBUS_SYSTEM_BUS_ADDRESS", &format!("unix:path={}", dir.join("bus").display()));
    agent.start();
    let node = Node { agent, containerd };
    node.told("pods are not sure to get their time when the machine shuts down: connecting to the bus");
    let bus = Bus::start(&dir);
    let logind = Logind::start(&bus, LONG, Path::new("/nonexistent").into());
    logind.waits_for(1);
    assert_eq!(logind.taken(), 1);
}

/// As the API server has it. Skipped, with a line that says why, where there is none.
#[cfg(feature = "tls")]
#[test]
fn the_api_server_hears_of_it_in_time() {
    use support::NODE;
    let mut machine = Machine::prepare(LONG, json!({"shutdownGracePeriod": "1200s"}));
    let mut cluster = match support::cluster::Cluster::start(machine.node.containerd.cell()) {
        Ok(cluster) => cluster,
        Err(why) => return eprintln!("skipped: {why}"),
    };
    let kubectl = cluster.kubectl.clone();
    let kubeconfig = cluster.node_kubeconfig();
    machine.node.agent.flags(&["--kubeconfig", &kubeconfig.display().to_string()]);
    machine.node.agent.start();
    machine.logind().waits_for(1);
    let get = |what: &[&str], meets: &dyn Fn(&Value) -> bool| {
        eventually(&format!("{what:?}"), SOON, || {
            let object = kubectl.attempt_json(&[&["get"], what].concat())?;
            if meets(&object) { Ok(object) } else { Err(object["status"].to_string()) }
        })
    };
    let node_is = |status: &str| get(&["node", NODE], &|node| condition(node, "Ready")["status"] == status);
    let ready = |name: &str| get(&["pod", name], &|pod| condition(pod, "Ready")["status"] == "True");
    let bound = |machine: &Machine, name: &str| {
        let manifest = machine.waiting(name).spec(&format!("nodeName: {NODE}"));
        kubectl.run(&["apply", "-f", &kubectl.file("pod.yaml", &manifest.to_string())]);
    };
    node_is("True");
    machine.node.add(&machine.waiting("own"));
    bound(&machine, "theirs");
    let mirror = format!("own-{NODE}");
    ready(&mirror);
    ready("theirs");

    machine.logind().prepare(true);
    let node = node_is("False");
    let ready_now = condition(&node, "Ready");
    assert_eq!(
        (&ready_now["reason"], &ready_now["message"]),
        (&"KubeletNotReady".into(), &"node is shutting down".into())
    );
    bound(&machine, "late");
    let late = get(&["pod", "late"], &|pod| pod["status"]["phase"] == "Failed");
    assert_eq!(late["status"]["reason"], "NodeShutdown", "{}", late["status"]);
    for name in ["own", "theirs"] {
        assert!(machine.logind().is_held());
        machine.let_end(name);
    }
    machine.logind().waits_no_more();
    // By now the machine may be off.
    for name in [&mirror, "theirs"] {
        let pod = kubectl.json(&["get", "pod", name]);
        let status = &pod["status"];
        let is = [&status["phase"], &status["reason"], &condition(&pod, "DisruptionTarget")["reason"]];
        assert_eq!(is, ["Failed", "Terminated", "TerminationByKubelet"], "{name}: {status}");
        assert_eq!(status["message"], MESSAGE);
    }

    machine.logind().prepare(false);
    machine.logind().waits_for(2);
    node_is("True");
    let own = ready(&mirror);
    assert!(own["status"]["phase"] == "Running" && condition(&own, "DisruptionTarget").is_null(), "{}", own["status"]);
    // These are over, and whoever made them makes others.
    for (name, reason) in [("theirs", "Terminated"), ("late", "NodeShutdown")] {
        let status = &kubectl.json(&["get", "pod", name])["status"];
        assert_eq!((&status["phase"], &status["reason"]), (&"Failed".into(), &reason.into()), "{status}");
    }
    bound(&machine, "next");
    ready("next");

    // Started again after the next one, the node has its own pods, and says the same of the others.
    machine.let_end("next");
    machine.logind().prepare(true);
    machine.logind().waits_no_more();
    machine.node.agent.stop();
    machine.start_logind(LONG);
    machine.node.agent.start();
    node_is("True");
    get(&["pod", &mirror], &|pod| pod["status"]["phase"] == "Running");
    let next = kubectl.json(&["get", "pod", "next"]);
    assert_eq!((&next["status"]["phase"], &next["status"]["reason"]), (&"Failed".into(), &"Terminated".into()));
    assert_eq!(condition(&next, "DisruptionTarget")["reason"], "TerminationByKubelet");

    // Cut off: nobody hears of the end of this one, and nobody puts another in its place.
    bound(&machine, "cut");
    ready("cut");
    machine.let_end("cut");
    cluster.stop_apiserver();
    machine.logind().prepare(true);
    machine.logind().waits_no_more();
    machine.node.agent.stop();
    machine.start_logind(LONG);
    machine.node.agent.start();
    let restarted = |pod: &Value| {
        let container = &pod["status"]["containerStatuses"][0];
        container["restartCount"] == 1 && !container["state"]["running"].is_null()
    };
    eventually("the pod that was cut off", SOON, || {
        let pods = machine.node.agent.try_pods()?;
        let of = |name: &str| pods.iter().find(|pod| pod["metadata"]["name"] == name).ok_or("it isn't listed");
        assert_eq!(of("next")?["status"]["phase"], "Failed", "its end is known");
        let cut = of("cut")?;
        if restarted(cut) { Ok(()) } else { Err(cut["status"].to_string()) }
    });
    cluster.start_apiserver();
    let cut = get(&["pod", "cut"], &|pod| restarted(pod));
    assert_eq!(cut["status"]["phase"], "Running");
}

use std::collections::BTreeSet;
use std::path::PathBuf;

use crossbeam::channel::unbounded;

use super::*;
use crate::cri::{
    Auth, ContainerId, ContainerState, ContainerStatus, Error, Events, ExecOutput, Image, Notes, PodRef, SandboxId,
    SandboxStatus, UnixNanos, api,
};
use crate::pod::PodName;

/// A runtime that says what it is told to say, and counts the calls.
#[derive(Default)]
struct Script(Mutex<Said>);

#[derive(Default)]
struct Said {
    sandboxes: Vec<Sandbox>,
    containers: Vec<Container>,
    unreachable: bool,
    /// The status of this container can't be had.
    broken: Option<ContainerId>,
    statuses: usize,
    no_v1: bool,
}

fn error(call: &'static str, code: Code) -> Error {
    Error { call, code, message: "scripted".to_owned() }
}

impl Script {
    fn ask<T>(&self, f: impl FnOnce(&mut Said) -> cri::Result<T>) -> cri::Result<T> {
        let mut said = self.0.lock();
        if said.unreachable { Err(error("any", Code::Unavailable)) } else { f(&mut said) }
    }
}

fn of_pod<T: Clone>(all: &[T], pod: Option<&PodUid>, uid: impl Fn(&T) -> &PodUid) -> Vec<T> {
    all.iter().filter(|x| pod.is_none_or(|pod| uid(x) == pod)).cloned().collect()
}

impl Cri for Script {
    fn version(&self) -> cri::Result<Version> {
        self.ask(|said| match said.no_v1 {
            true => Err(error("Version", Code::Unimplemented)),
            false => Ok(Version { name: "scripted".to_owned(), version: "1".to_owned() }),
        })
    }

    fn list_pod_sandboxes(&self, pod: Option<&PodUid>) -> cri::Result<Vec<Sandbox>> {
        self.ask(|said| Ok(of_pod(&said.sandboxes, pod, |s| &s.pod.uid)))
    }

    fn list_containers(&self, pod: Option<&PodUid>) -> cri::Result<Vec<Container>> {
        self.ask(|said| Ok(of_pod(&said.containers, pod, |c| &c.pod.uid)))
    }

    fn pod_sandbox_status(&self, sandbox: &Sandbox) -> cri::Result<Option<SandboxStatus>> {
        self.ask(|said| {
            said.statuses += 1;
            if !said.sandboxes.contains(sandbox) {
                return Ok(None);
            }
            Ok(Some(SandboxStatus { sandbox: sandbox.clone(), ips: vec!["10.0.0.1".to_owned()], host_network: false }))
        })
    }

    fn container_status(&self, container: &Container) -> cri::Result<Option<ContainerStatus>> {
        self.ask(|said| {
            said.statuses += 1;
            if said.broken.as_ref() == Some(&container.id) {
                return Err(error("ContainerStatus", Code::Other));
            }
            // What the list said may be old by now.
            let Some(now) = said.containers.iter().find(|c| c.id == container.id) else { return Ok(None) };
            Ok(Some(ContainerStatus {
                container: now.clone(),
                started_at: UnixNanos(1),
                finished_at: UnixNanos(0),
                exit_code: 0,
                reason: String::new(),
                message: String::new(),
                image: "i".to_owned(),
                image_ref: "i".to_owned(),
                log_path: String::new(),
            }))
        })
    }

    fn container_events(&self) -> cri::Result<Events> {
        Err(error("GetContainerEvents", Code::Unimplemented))
    }

    fn status(&self) -> cri::Result<cri::Status> {
        Ok(cri::Status { supplemental_groups_policy: true, ..Default::default() })
    }
    fn set_pod_cidr(&self, _: &str) -> cri::Result<()> {
        unreachable!("the PLEG only looks")
    }
    fn run_pod_sandbox(&self, _: &api::PodSandboxConfig, _: &str) -> cri::Result<SandboxId> {
        unreachable!("the PLEG only looks")
    }
    fn stop_pod_sandbox(&self, _: &SandboxId) -> cri::Result<()> {
        unreachable!("the PLEG only looks")
    }
    fn remove_pod_sandbox(&self, _: &SandboxId) -> cri::Result<()> {
        unreachable!("the PLEG only looks")
    }
    fn create_container(
        &self,
        _: &SandboxId,
        _: &api::ContainerConfig,
        _: &api::PodSandboxConfig,
    ) -> cri::Result<ContainerId> {
        unreachable!("the PLEG only looks")
    }
    fn start_container(&self, _: &ContainerId) -> cri::Result<()> {
        unreachable!("the PLEG only looks")
    }
    fn stop_container(&self, _: &ContainerId, _: Duration) -> cri::Result<()> {
        unreachable!("the PLEG only looks")
    }
    fn remove_container(&self, _: &ContainerId) -> cri::Result<()> {
        unreachable!("the PLEG only looks")
    }
    fn update_container_resources(&self, _: &ContainerId, _: &api::LinuxContainerResources) -> cri::Result<()> {
        unreachable!("the PLEG only looks")
    }
    fn reopen_container_log(&self, _: &ContainerId) -> cri::Result<()> {
        unreachable!("the PLEG only looks")
    }
    fn exec_sync(&self, _: &ContainerId, _: &[String], _: Duration) -> cri::Result<ExecOutput> {
        unreachable!("the PLEG only looks")
    }
    fn image_status(&self, _: &str) -> cri::Result<Option<Image>> {
        unreachable!("the PLEG only looks")
    }
    fn pull_image(&self, _: &str, _: Option<&Auth>, _: &api::PodSandboxConfig) -> cri::Result<String> {
        unreachable!("the PLEG only looks")
    }
    fn list_images(&self) -> cri::Result<Vec<Image>> {
        unreachable!("the PLEG only looks")
    }
    fn remove_image(&self, _: &str) -> cri::Result<()> {
        unreachable!("the PLEG only looks")
    }
    fn image_fs_info(&self) -> cri::Result<Vec<PathBuf>> {
        unreachable!("the PLEG only looks")
    }
    fn images_in_use(&self) -> cri::Result<BTreeSet<String>> {
        unreachable!("the PLEG only looks")
    }
    fn settings(&self) -> cri::Result<cri::Settings> {
        unreachable!("the PLEG only looks")
    }
}

fn pod(uid: &str) -> PodRef {
    PodRef { uid: PodUid::new(uid), name: PodName::new("default", uid) }
}

fn sandbox(uid: &str) -> Sandbox {
    Sandbox {
        id: SandboxId::new(format!("box-{uid}")),
        pod: pod(uid),
        attempt: 0,
        ready: true,
        created_at: UnixNanos(1),
    }
}

fn container(uid: &str, attempt: u32, state: ContainerState) -> Container {
    Container {
        id: ContainerId::new(format!("{uid}-{attempt}")),
        sandbox: SandboxId::new(format!("box-{uid}")),
        pod: pod(uid),
        name: "main".into(),
        attempt,
        state,
        created_at: UnixNanos(i64::from(attempt)),
        notes: Arc::new(Notes::default()),
    }
}

struct Bench {
    script: Script,
    cache: Cache,
    now: Instant,
}

impl Bench {
    fn new() -> Bench {
        Bench { script: Script::default(), cache: Cache::default(), now: Instant::now() }
    }

    fn say(&self, f: impl FnOnce(&mut Said)) {
        f(&mut self.script.0.lock());
    }

    /// A listing a second later: the pods that changed.
    fn relist(&mut self) -> cri::Result<Vec<String>> {
        self.now += RELIST_PERIOD;
        let mut changed: Vec<_> =
            relist(&self.script, &self.cache, self.now)?.into_iter().map(|uid| uid.to_string()).collect();
        changed.sort();
        Ok(changed)
    }

    fn states(&self, uid: &str) -> Vec<ContainerState> {
        let (observed, _) = self.cache.get(&PodUid::new(uid)).expect("has been listed");
        observed.containers.iter().map(ObservedContainer::state).collect()
    }

    fn statuses(&self) -> usize {
        std::mem::take(&mut self.script.0.lock().statuses)
    }
}

const NONE: [&str; 0] = [];

#[test]
fn only_what_changed_is_looked_at_closely() {
    let mut b = Bench::new();
    assert!(b.cache.get(&PodUid::new("a")).is_none(), "nothing is known before the first listing");
    b.say(|said| {
        said.sandboxes = vec![sandbox("a"), sandbox("b")];
        said.containers = vec![container("a", 0, ContainerState::Running), container("b", 0, ContainerState::Running)];
    });
    assert_eq!(b.relist().expect("lists"), ["a", "b"]);
    assert_eq!(b.statuses(), 4);
    assert_eq!(b.relist().expect("lists"), NONE);
    assert_eq!(b.statuses(), 0, "nothing changed, nothing is asked");
    b.say(|said| said.containers[0].state = ContainerState::Exited);
    assert_eq!(b.relist().expect("lists"), ["a"]);
    assert_eq!(b.statuses(), 1);
    assert_eq!(b.states("a"), [ContainerState::Exited]);
    b.say(|said| said.containers.push(container("a", 1, ContainerState::Running)));
    assert_eq!(b.relist().expect("lists"), ["a"]);
    assert_eq!(b.states("a"), [ContainerState::Running, ContainerState::Exited], "the newest first");
    b.say(|said| {
        said.containers.clear();
        said.sandboxes.clear();
    });
    assert_eq!(b.relist().expect("lists"), ["a", "b"]);
    assert!(b.cache.uids().is_empty());
    let (observed, at) = b.cache.get(&PodUid::new("a")).expect("has been listed");
    assert!(observed.is_empty() && at == b.now, "it is known that there is nothing");
}

#[test]
fn an_exit_keeps_the_time_at_which_it_was_seen() {
    let mut b = Bench::new();
    b.say(|said| said.containers = vec![container("a", 0, ContainerState::Exited)]);
    b.relist().expect("lists");
    let seen = b.now;
    b.say(|said| said.containers.push(container("a", 1, ContainerState::Running)));
    b.relist().expect("lists");
    let (observed, _) = b.cache.get(&PodUid::new("a")).expect("has been listed");
    assert_eq!(observed.containers[1].exited_seen, Some(seen));
    assert_eq!(observed.containers[0].exited_seen, None);
}

#[test]
fn a_worker_that_looked_later_is_right() {
    let mut b = Bench::new();
    b.say(|said| said.containers = vec![container("a", 0, ContainerState::Running)]);
    let later = b.now + RELIST_PERIOD * 2;
    inspect(&b.script, &b.cache, &PodUid::new("a"), later).expect("looks");
    b.say(|said| said.containers.clear());
    assert_eq!(b.relist().expect("lists"), NONE, "that listing is older than what the worker saw");
    assert_eq!(b.relist().expect("lists"), NONE);
    assert_eq!(b.relist().expect("lists"), ["a"]);
}

#[test]
fn a_listing_that_leaves_out_what_is_alive_is_not_believed() {
    let mut b = Bench::new();
    b.relist().expect("lists");
    let made = container("a", 0, ContainerState::Running);
    b.cache.expect_container(made.clone());
    b.say(|said| said.containers = vec![made]);
    let uid = PodUid::new("a");
    // The listing is asked with another pod's eyes: it shows nothing.
    let nothing = |b: &mut Bench| {
        b.now += RELIST_PERIOD;
        let before = b.cache.known(&uid);
        complete(&b.script, before.as_deref(), vec![], vec![], b.now).expect("looks")
    };
    assert_eq!(nothing(&mut b).containers.len(), 1, "it is there, as its status says");
    b.say(|said| said.containers.clear());
    assert_eq!(nothing(&mut b).containers.len(), 0);
}

/// kubernetes#45419, #94829, #77728: one pod that can't be looked at is no other's trouble.
#[test]
fn kubernetes_45419_one_broken_pod_is_that_pods_trouble() {
    let mut b = Bench::new();
    b.say(|said| {
        said.containers = vec![container("a", 0, ContainerState::Running), container("b", 0, ContainerState::Running)];
        said.broken = Some(ContainerId::new("a-0"));
    });
    assert_eq!(b.relist().expect("lists"), ["b"]);
    let first = b.now;
    b.say(|said| said.broken = None);
    assert_eq!(b.relist().expect("lists"), ["a"]);
    b.say(|said| {
        said.containers[0].state = ContainerState::Exited;
        said.broken = Some(ContainerId::new("a-0"));
    });
    b.relist().expect("lists");
    let (_, at) = b.cache.get(&PodUid::new("a")).expect("has been listed");
    assert!(at > first && at < b.now, "what is known of it is as old as it is");
    assert_eq!(b.cache.get(&PodUid::new("b")).expect("has been listed").1, b.now);
}

#[test]
fn an_unreachable_runtime_changes_nothing() {
    let mut b = Bench::new();
    b.say(|said| said.containers = vec![container("a", 0, ContainerState::Running)]);
    b.relist().expect("lists");
    b.say(|said| said.unreachable = true);
    assert!(b.relist().expect_err("fails").is_unreachable());
    assert_eq!(b.states("a"), [ContainerState::Running]);
}

#[test]
fn health_says_what_is_wrong() {
    let health = Health::default();
    let start = Instant::now();
    let at = |s| start + Duration::from_secs(s);
    let check = |s| health.check(at(s)).err().unwrap_or_default();
    assert_eq!(check(0), "the container runtime has not been seen yet");
    health.begin(at(0));
    assert_eq!(check(31), "the container runtime has not answered for 31 s");
    assert!(health.end(at(31), Err("gone".to_owned())));
    assert!(!health.end(at(32), Err("gone".to_owned())), "the same again is no news");
    assert_eq!(check(32), "gone");
    assert!(health.end(at(40), Ok(())));
    assert!(!health.end(at(41), Ok(())));
    assert_eq!(check(41 + 180), "");
    assert_eq!(check(41 + 181), "pleg was last seen active 181 s ago");
}

#[test]
fn the_thread_tells_of_the_runtime_and_of_pods() {
    let script = Arc::new(Script::default());
    script.0.lock().no_v1 = true;
    let (cache, health) = (Arc::<Cache>::default(), Arc::<Health>::default());
    let (events, heard) = unbounded();
    let (stop, stopped) = bounded(0);
    let pleg = Pleg::new(script.clone(), cache, health.clone(), events);
    let thread = std::thread::spawn(move || pleg.run(stopped));
    let told = |what: &str| {
        let until = Instant::now() + Duration::from_secs(10);
        while !health.check(Instant::now()).err().unwrap_or_default().contains(what) {
            assert!(Instant::now() < until, "health never told {what:?}");
            std::thread::yield_now();
        }
    };
    told("does not speak CRI v1");
    assert!(heard.is_empty());
    *script.0.lock() = Said { containers: vec![container("a", 0, ContainerState::Running)], ..Said::default() };
    let next = || heard.recv_timeout(Duration::from_secs(10)).expect("an event");
    assert!(matches!(next(), Event::Pod { uid, .. } if uid.as_str() == "a"));
    assert_eq!(next(), Event::Reachable { strict_groups: true });
    assert_eq!(health.runtime().map(|v| v.name), Some("scripted".to_owned()));
    script.0.lock().unreachable = true;
    told("can't be reached");
    script.0.lock().unreachable = false;
    assert_eq!(next(), Event::Reachable { strict_groups: true }, "it is back");
    drop(stop);
    thread.join().expect("ends");
}

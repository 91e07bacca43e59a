//! The plan against a small model: random pods, and a runtime in which containers end, sandboxes die,
//! images change and probes fail at random. Whatever happens, what the plan does must keep the rules
//! below, and when nothing happens any more the pod must come to the state that its policies ask for.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use super::*;
use crate::cri::{Container, ContainerStatus, Notes, PodRef, SandboxStatus, UnixNanos};
use crate::pod::restart::restarts_after;
use crate::pod::{PodName, PodUid, Source};

const SEEDS: u64 = 4000;
const EVENTS: usize = 12;
/// Far more steps than any pod needs to come to rest.
const PATIENCE: usize = 60;

/// xorshift64*.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        usize::try_from((self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) % n as u64).expect("small")
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len())]
    }
}

/// How a container of the model behaves when it is started: it ends with this code, or runs on.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Behaviour {
    Runs,
    Exits(i32),
}

struct World {
    pod: Pod,
    behaviour: BTreeMap<String, Behaviour>,
    observed: Observed,
    verdicts: HashMap<ContainerId, Verdict>,
    killed: HashSet<ContainerId>,
    ordered: HashSet<ContainerId>,
    clock: i64,
    story: Vec<String>,
}

fn container(name: String, image: &str) -> core::Container {
    core::Container { name, image: Some(image.to_owned()), ..Default::default() }
}

fn random_pod(random: &mut Random) -> Pod {
    let policies = ["Always", "OnFailure", "Never"];
    let init = (0..random.below(4)).map(|i| {
        let sidecar = random.below(2) == 0;
        let name = format!("{}{i}", if sidecar { "s" } else { "i" });
        core::Container { restart_policy: sidecar.then(|| "Always".to_owned()), ..container(name, "v0") }
    });
    let init: Vec<_> = init.collect();
    let main = (0..=random.below(2)).map(|i| {
        let own = (random.below(4) == 0).then(|| random.one(&policies).to_owned());
        core::Container { restart_policy: own, ..container(format!("m{i}"), "v0") }
    });
    let spec = core::PodSpec {
        containers: main.collect(),
        init_containers: Some(init),
        restart_policy: Some(random.one(&policies).to_owned()),
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

impl World {
    fn new(random: &mut Random) -> World {
        let pod = random_pod(random);
        let names: Vec<_> = pod.all_containers().map(|c| (c.name.clone(), is_sidecar(c))).collect();
        let behaviour = names.into_iter().map(|(name, sidecar)| {
            let ends = name.starts_with('i');
            let b = match random.below(if sidecar { 2 } else { 3 }) {
                0 if !ends => Behaviour::Runs,
                1 => Behaviour::Exits(1),
                _ => Behaviour::Exits(0),
            };
            (name, b)
        });
        World {
            behaviour: behaviour.collect(),
            pod,
            observed: Observed::empty(Instant::now()),
            verdicts: HashMap::new(),
            killed: HashSet::new(),
            ordered: HashSet::new(),
            clock: 0,
            story: Vec::new(),
        }
    }

    fn reference(&self) -> PodRef {
        PodRef { uid: self.pod.uid.clone(), name: self.pod.name.clone() }
    }

    fn spec(&self, name: &str) -> &core::Container {
        self.pod.all_containers().find(|c| c.name == name).expect("is in the pod")
    }

    fn running(&self) -> Vec<&ObservedContainer> {
        self.observed.containers.iter().filter(|c| c.is_running()).collect()
    }

    fn set(&mut self, i: usize, state: ContainerState, code: i32) {
        let c = &mut self.observed.containers[i];
        c.status.container.state = state;
        c.status.exit_code = code;
    }

    /// Something happens to the pod.
    fn disturb(&mut self, random: &mut Random) {
        let running: Vec<usize> =
            (0..self.observed.containers.len()).filter(|i| self.observed.containers[*i].is_running()).collect();
        match random.below(6) {
            0 if !running.is_empty() => {
                let (i, code) = (random.one(&running), random.one(&[0, 1, 137]));
                self.story.push(format!("{} ends with {code}", self.observed.containers[i].status.container.name));
                self.set(i, ContainerState::Exited, code);
            }
            1 => {
                if let Some(sandbox) = self.observed.sandboxes.first_mut() {
                    self.story.push("the sandbox dies".to_owned());
                    sandbox.sandbox.ready = false;
                    running.into_iter().for_each(|i| self.set(i, ContainerState::Exited, 137));
                }
            }
            2 => {
                let names: Vec<_> = self.behaviour.keys().cloned().collect();
                let name = &names[random.below(names.len())];
                let b = self.behaviour[name];
                let other = if b == Behaviour::Exits(1) { Behaviour::Exits(0) } else { b };
                self.behaviour.insert(name.clone(), other);
            }
            3 => {
                let i = random.below(self.pod.spec.containers.len());
                let c = &mut self.pod.spec.containers[i];
                let version: u32 = c.image.as_ref().and_then(|v| v[1..].parse().ok()).expect("a version");
                c.image = Some(format!("v{}", version + 1));
                self.story.push(format!("{} has a new image", self.pod.spec.containers[i].name));
            }
            4 if !running.is_empty() => {
                let c = &self.observed.containers[random.one(&running)].status.container;
                self.story.push(format!("somebody wants {} restarted", c.name));
                self.ordered.insert(c.id.clone());
            }
            _ if !running.is_empty() => {
                let c = &self.observed.containers[random.one(&running)].status.container;
                self.story.push(format!("{} fails its liveness probe", c.name));
                self.verdicts.insert(c.id.clone(), Verdict { liveness: Some(false), ..Verdict::default() });
            }
            _ => {}
        }
    }

    fn plan(&self) -> Plan {
        plan(&Facts {
            pod: &self.pod,
            observed: &self.observed,
            verdicts: &self.verdicts,
            killed_to_restart: &self.killed,
            ordered: &self.ordered,
        })
    }

    /// Carries a plan out. Returns whether anything was done.
    fn act(&mut self, plan: Plan) -> bool {
        self.story.push(format!("{plan:?}"));
        match plan {
            Plan::Stop => self.stop(),
            Plan::Recreate { attempt, start } => {
                self.stop();
                self.clock += 1;
                let sandbox = crate::cri::Sandbox {
                    id: SandboxId::new(format!("s{attempt}")),
                    pod: self.reference(),
                    attempt,
                    ready: true,
                    created_at: UnixNanos(self.clock),
                };
                let taken = self.observed.sandboxes.iter().any(|s| s.sandbox.attempt == attempt);
                assert!(!taken, "attempt {attempt} twice\n{}", self.told());
                let status = SandboxStatus { sandbox, ips: vec!["10.0.0.1".to_owned()], host_network: false };
                self.observed.sandboxes.insert(0, status);
                start.iter().for_each(|s| self.start(*s));
                true
            }
            Plan::Keep { kill, start, .. } => {
                for k in &kill {
                    let i = self.observed.containers.iter().position(|c| c.status.container.id == k.id);
                    self.set(i.expect("what is killed is there"), ContainerState::Exited, 143);
                    if k.restart {
                        self.killed.insert(k.id.clone());
                    }
                }
                start.iter().for_each(|s| self.start(*s));
                !kill.is_empty() || !start.is_empty()
            }
        }
    }

    fn stop(&mut self) -> bool {
        let mut acted = false;
        for i in 0..self.observed.containers.len() {
            if self.observed.containers[i].is_running() {
                self.set(i, ContainerState::Exited, 143);
                acted = true;
            }
        }
        for s in &mut self.observed.sandboxes {
            acted |= std::mem::replace(&mut s.sandbox.ready, false);
        }
        acted
    }

    fn start(&mut self, start: Start) {
        let spec = start.which.of(&self.pod).expect("is in the pod").into_owned();
        self.check_start(&start, &spec);
        self.clock += 1;
        let sandbox = self.observed.sandboxes[0].sandbox.id.clone();
        let state = match self.behaviour[&spec.name] {
            Behaviour::Runs => (ContainerState::Running, 0),
            Behaviour::Exits(code) => (ContainerState::Exited, code),
        };
        let notes =
            Notes { hash: identity::container_hash(&spec), restart_count: start.restart_count, ..Default::default() };
        let container = Container {
            id: ContainerId::new(format!("{}-{}", spec.name, self.clock)),
            sandbox,
            pod: self.reference(),
            name: spec.name.as_str().into(),
            attempt: 0,
            state: state.0,
            created_at: UnixNanos(self.clock),
            notes: Arc::new(notes),
        };
        let status = ContainerStatus {
            container,
            started_at: UnixNanos(self.clock),
            finished_at: UnixNanos(0),
            exit_code: state.1,
            reason: String::new(),
            message: String::new(),
            image: String::new(),
            image_ref: String::new(),
            log_path: String::new(),
        };
        self.observed.containers.insert(0, ObservedContainer { status, exited_seen: None });
    }

    /// The rules that hold whenever a container is started.
    fn check_start(&self, start: &Start, spec: &core::Container) {
        let name = &spec.name;
        let alive = self.running().into_iter().any(|c| *c.status.container.name == **name);
        assert!(!alive, "{name} is started while it runs\n{}", self.told());
        let count = self.observed.newest(name).map_or(0, |c| c.status.container.notes.restart_count + 1);
        assert_eq!(start.restart_count, count, "{name}\n{}", self.told());
        let sandbox = &self.observed.sandboxes[0].sandbox;
        assert!(sandbox.ready, "{name} is started in a dead sandbox\n{}", self.told());
        // What comes before it has been passed in this sandbox, unless the pod was initialised in it.
        let here = |name: &str| self.observed.newest_in(&sandbox.id, name);
        let initialized = self.pod.containers().iter().any(|c| here(&c.name).is_some());
        let before = match start.which {
            Which::Init(i) => &self.pod.init_containers()[..i],
            _ => self.pod.init_containers(),
        };
        for c in before {
            let passed = match here(&c.name) {
                Some(seen) if is_sidecar(c) => seen.is_running() || here(name).is_some() || initialized,
                Some(seen) => succeeded(seen),
                None => false,
            };
            let later = self.pod.init_containers().iter().skip_while(|other| other.name != c.name).skip(1);
            let proven = later.into_iter().any(|other| here(&other.name).is_some());
            assert!(passed || initialized || proven, "{name} is started before {}\n{}", c.name, self.told());
        }
    }

    /// Plans and acts until nothing is left to do, or things only go round in circles as they should:
    /// a container that ends and is started again for ever.
    fn rest(&mut self) {
        for _ in 0..PATIENCE {
            let plan = self.plan();
            let round = matches!(&plan, Plan::Keep { kill, start, .. }
                if kill.is_empty() && !start.is_empty() && start.iter().all(|s| self.goes_round(*s)));
            if round || !self.act(plan) {
                return self.check_rest();
            }
            self.verdicts.retain(|id, _| {
                self.observed.containers.iter().any(|c| c.status.container.id == *id && c.is_running())
            });
        }
        panic!("it never comes to rest\n{}", self.told());
    }

    /// The container has been started in this sandbox before, ends by itself, and runs again after it.
    fn goes_round(&self, start: Start) -> bool {
        let spec = start.which.of(&self.pod).expect("is in the pod");
        let Behaviour::Exits(code) = self.behaviour[&spec.name] else { return false };
        let sandbox = &self.observed.sandboxes[0].sandbox.id;
        let seen = self.observed.newest_in(sandbox, &spec.name);
        let same = seen.is_some_and(|c| c.status.exit_code == code && c.state() == ContainerState::Exited);
        same && restarts_after(&self.pod, &spec, code)
    }

    /// What must be true when nothing happens any more, said without the plan's own words.
    fn check_rest(&self) {
        let over = matches!(self.plan(), Plan::Stop);
        if over {
            assert!(self.running().is_empty(), "a pod that is over has something running\n{}", self.told());
            return;
        }
        let sandbox = &self.observed.sandboxes[0].sandbox;
        assert!(sandbox.ready, "a pod that goes on has no sandbox\n{}", self.told());
        let mut blocked = false;
        for c in self.pod.init_containers() {
            let newest = self.observed.newest_in(&sandbox.id, &c.name);
            let runs = newest.is_some_and(ObservedContainer::is_running);
            match (is_sidecar(c), self.behaviour[&c.name]) {
                (true, Behaviour::Runs) => assert!(runs || blocked, "{} does not run\n{}", c.name, self.told()),
                (true, Behaviour::Exits(_)) => blocked |= newest.is_some() && !runs,
                (false, _) => blocked |= newest.is_some_and(|c| !succeeded(c)),
            }
        }
        for c in self.pod.containers() {
            let newest = self.observed.newest(&c.name);
            let runs = newest.is_some_and(ObservedContainer::is_running);
            let done = newest.is_some_and(|n| {
                n.state() == ContainerState::Exited && !restarts_after(&self.pod, c, n.status.exit_code)
            });
            let crashes =
                matches!(self.behaviour[&c.name], Behaviour::Exits(code) if restarts_after(&self.pod, c, code));
            assert!(runs || done || crashes || blocked, "{} does not run\n{}", c.name, self.told());
            if let Some(n) = newest.filter(|_| runs) {
                let wanted = identity::container_hash(self.spec(&c.name));
                assert_eq!(n.status.container.notes.hash, wanted, "{} is an old one\n{}", c.name, self.told());
            }
        }
    }

    fn told(&self) -> String {
        let shown = |c: &core::Container| format!("{} ({:?}, {:?})", c.name, c.restart_policy, self.behaviour[&c.name]);
        let containers: Vec<_> = self.pod.all_containers().map(shown).collect();
        format!("{:?} of {}\n{}", self.pod.restart_policy(), containers.join(", "), self.story.join("\n"))
    }
}

#[test]
fn whatever_happens_the_pod_comes_to_where_it_should_be() {
    for seed in 1..=SEEDS {
        let mut random = Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
        let mut world = World::new(&mut random);
        world.story.push(format!("seed {seed}"));
        world.rest();
        for _ in 0..EVENTS {
            world.disturb(&mut random);
            if random.below(3) == 0 {
                // Something else happens before the agent has done all that it wanted to.
                let plan = world.plan();
                world.act(plan);
                world.disturb(&mut random);
            }
            world.rest();
        }
    }
}

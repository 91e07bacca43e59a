//! What was last seen of each pod in the runtime.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use parking_lot::RwLock;

use crate::cri::{Container, ContainerState, ContainerStatus, Sandbox, SandboxId, SandboxStatus, UnixNanos};
use crate::pod::PodUid;

/// One pod as the runtime has it.
#[derive(Debug, Clone, PartialEq)]
pub struct Observed {
    /// The newest first.
    pub sandboxes: Vec<SandboxStatus>,
    /// The newest first.
    pub containers: Vec<ObservedContainer>,
    /// When the looking began: what happened later may be missing.
    pub at: Instant,
}

#[derive(Debug, Clone, PartialEq)]
pub struct ObservedContainer {
    pub status: ContainerStatus,
    /// When it was first seen to have exited.
    pub exited_seen: Option<Instant>,
}

impl ObservedContainer {
    pub(super) fn new(status: ContainerStatus, before: Option<&Observed>, at: Instant) -> ObservedContainer {
        let known = before.and_then(|b| b.containers.iter().find(|c| c.status.container.id == status.container.id));
        let seen = known.and_then(|c| c.exited_seen);
        let exited = status.container.state == ContainerState::Exited;
        ObservedContainer { status, exited_seen: exited.then(|| seen.unwrap_or(at)) }
    }

    pub fn state(&self) -> ContainerState {
        self.status.container.state
    }

    /// It runs, or might.
    pub fn is_alive(&self) -> bool {
        matches!(self.state(), ContainerState::Running | ContainerState::Unknown)
    }

    pub fn is_running(&self) -> bool {
        self.state() == ContainerState::Running
    }
}

/// How many containers are dead.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Dead {
    /// Without the newest of each name.
    pub earlier: usize,
    /// Different containers that have a dead instance.
    pub names: usize,
}

impl Observed {
    pub fn empty(at: Instant) -> Observed {
        Observed { sandboxes: Vec::new(), containers: Vec::new(), at }
    }

    pub fn is_empty(&self) -> bool {
        self.sandboxes.is_empty() && self.containers.is_empty()
    }

    /// The newest container of this name, in whatever sandbox.
    pub fn newest(&self, name: &str) -> Option<&ObservedContainer> {
        self.containers.iter().find(|c| *c.status.container.name == *name)
    }

    /// The newest container of this name in `sandbox`.
    pub fn newest_in(&self, sandbox: &SandboxId, name: &str) -> Option<&ObservedContainer> {
        self.containers.iter().find(|c| *c.status.container.name == *name && c.status.container.sandbox == *sandbox)
    }

    /// Whether a listing shows nothing but what is known.
    pub(super) fn shows(&self, sandboxes: &[Sandbox], containers: &[Container]) -> bool {
        sandboxes.len() == self.sandboxes.len()
            && containers.len() == self.containers.len()
            && sandboxes.iter().all(|s| self.sandboxes.iter().any(|known| known.sandbox == *s))
            && containers.iter().all(|c| self.containers.iter().any(|known| known.status.container == *c))
    }
}

/// Written by the PLEG and by the workers that look at their pod, read by all.
#[derive(Default)]
pub struct Cache(RwLock<Inner>);

#[derive(Default)]
struct Inner {
    pods: HashMap<PodUid, Arc<Observed>>,
    /// When the runtime was listed last.
    listed: Option<Instant>,
    /// Pods that could not be looked at closely then.
    unsure: HashSet<PodUid>,
}

impl Cache {
    /// The pod as it was seen last, and until when that was all; `None` while the runtime has never
    /// been listed.
    pub fn get(&self, uid: &PodUid) -> Option<(Arc<Observed>, Instant)> {
        let inner = self.0.read();
        let listed = inner.listed?;
        Some(match inner.pods.get(uid) {
            Some(observed) if observed.at > listed || inner.unsure.contains(uid) => (observed.clone(), observed.at),
            Some(observed) => (observed.clone(), listed),
            None => (Arc::new(Observed::empty(listed)), listed),
        })
    }

    /// The dead containers of all pods.
    pub fn dead_containers(&self) -> Dead {
        let mut dead = Dead::default();
        for observed in self.0.read().pods.values() {
            let mut names = HashSet::new();
            let dead_ones = observed.containers.iter().filter(|c| !c.is_alive());
            dead.earlier += dead_ones.filter(|c| !names.insert(c.status.container.name.clone())).count();
            dead.names += names.len();
        }
        dead
    }

    /// Pods that have something in the runtime.
    pub fn uids(&self) -> Vec<PodUid> {
        self.0.read().pods.keys().cloned().collect()
    }

    /// What was seen of the pod itself, whenever that was.
    pub(super) fn known(&self, uid: &PodUid) -> Option<Arc<Observed>> {
        self.0.read().pods.get(uid).cloned()
    }

    /// Keeps the newer of what is known and what was seen now, and returns it.
    pub(super) fn put(&self, uid: PodUid, observed: Observed) -> Arc<Observed> {
        let mut inner = self.0.write();
        match inner.pods.get(&uid) {
            Some(known) if known.at > observed.at => known.clone(),
            _ => {
                let observed = Arc::new(observed);
                match observed.is_empty() {
                    true => inner.pods.remove(&uid),
                    false => inner.pods.insert(uid, observed.clone()),
                };
                observed
            }
        }
    }

    /// A sandbox was just made: a listing that doesn't show it yet, or never does, is not believed
    /// without asking.
    pub fn expect_sandbox(&self, sandbox: Sandbox) {
        self.expect(&sandbox.pod.uid.clone(), |observed| {
            observed.sandboxes.push(SandboxStatus { sandbox, ips: Vec::new(), host_network: false });
        });
    }

    /// The same for a container that was just started.
    pub fn expect_container(&self, container: Container) {
        self.expect(&container.pod.uid.clone(), |observed| {
            let status = ContainerStatus {
                container,
                started_at: UnixNanos::default(),
                finished_at: UnixNanos::default(),
                exit_code: 0,
                reason: String::new(),
                message: String::new(),
                image: String::new(),
                image_ref: String::new(),
                log_path: String::new(),
            };
            observed.containers.push(ObservedContainer { status, exited_seen: None });
        });
    }

    fn expect(&self, uid: &PodUid, note: impl FnOnce(&mut Observed)) {
        let mut inner = self.0.write();
        let at = inner.listed.unwrap_or_else(Instant::now);
        let observed = inner.pods.entry(uid.clone()).or_insert_with(|| Arc::new(Observed::empty(at)));
        note(Arc::make_mut(observed));
    }

    /// Everything was listed at `at`; of `unsure` pods only what was known before is known.
    pub(super) fn listed(&self, at: Instant, unsure: HashSet<PodUid>) {
        let mut inner = self.0.write();
        inner.listed = Some(at);
        inner.unsure = unsure;
    }
}

//! What to do for a pod: its spec against what was observed, as a pure function
//! (pkg/kubelet/kuberuntime/kuberuntime_manager.go, kuberuntime_container.go).

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use crate::cri::{ContainerId, ContainerState, SandboxId};
use crate::pleg::{Observed, ObservedContainer};
use crate::pod::restart::{may_restart, restarts_after};
use crate::pod::{Pod, core, identity, is_sidecar};
use crate::probe::Verdict;

/// Which container of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Which {
    Init(usize),
    Main(usize),
    Ephemeral(usize),
}

impl Which {
    pub fn of(self, pod: &Pod) -> Option<Cow<'_, core::Container>> {
        match self {
            Which::Init(i) => pod.init_containers().get(i).map(Cow::Borrowed),
            Which::Main(i) => pod.containers().get(i).map(Cow::Borrowed),
            Which::Ephemeral(i) => pod.ephemeral_containers().nth(i).map(Cow::Owned),
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Plan {
    /// Nothing of the pod is to run any more; what does is to be stopped.
    Stop,
    /// The pod needs a new sandbox. Whatever is left of the old ones is to be stopped first.
    Recreate { attempt: u32, start: Vec<Start> },
    /// The sandbox is good.
    Keep { sandbox: SandboxId, kill: Vec<Kill>, start: Vec<Start> },
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    pub which: Which,
    pub restart_count: i32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kill {
    pub id: ContainerId,
    pub which: Which,
    pub why: Why,
    /// It is to run again once it has ended.
    pub restart: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    DefinitionChanged,
    LivenessFailed,
    StartupFailed,
    /// It is to have other resources, and can't have them while it runs.
    Resized,
    /// Somebody wants it so.
    Ordered,
    /// The runtime doesn't know its state; it might be running.
    Unknown,
}

/// Where a container of this name stands in the pod.
pub fn which(pod: &Pod, name: &str) -> Option<Which> {
    let init = pod.init_containers().iter().position(|c| c.name == name).map(Which::Init);
    init.or_else(|| pod.containers().iter().position(|c| c.name == name).map(Which::Main))
}

/// All that the plan depends on.
pub struct Facts<'a> {
    pub pod: &'a Pod,
    pub observed: &'a Observed,
    pub verdicts: &'a HashMap<ContainerId, Verdict>,
    /// Containers that were killed to be started again, whatever the restart policy says.
    pub killed_to_restart: &'a HashSet<ContainerId>,
    /// Containers whose restart somebody asks for.
    pub ordered: &'a HashSet<ContainerId>,
}

pub fn plan(facts: &Facts<'_>) -> Plan {
    let (pod, observed) = (facts.pod, facts.observed);
    let sandbox = match sandbox(pod, observed) {
        Sandbox::Good(id) => id,
        Sandbox::Needed { attempt } => return facts.recreate(attempt),
    };
    let mut start = facts.ephemeral();
    let init = facts.init(&sandbox);
    start.extend(init.start);
    let mut kill = init.kill;
    match init.outcome {
        InitOutcome::Failed => return Plan::Stop,
        InitOutcome::Pending => return Plan::Keep { sandbox, kill, start },
        InitOutcome::Done => {}
    }
    let mut keep = 0;
    for (i, container) in pod.containers().iter().enumerate() {
        let which = Which::Main(i);
        let newest = observed.newest(&container.name);
        match newest {
            Some(c) if c.is_running() => match facts.reason_to_kill(container, c) {
                Some((why, restart)) => kill.push(facts.kill(which, c, why, restart)),
                None => keep += 1,
            },
            Some(c) if c.state() == ContainerState::Unknown => kill.push(facts.kill(which, c, Why::Unknown, true)),
            _ if facts.wants_run(container, newest) => start.push(facts.start(which, container)),
            _ => {}
        }
    }
    let restarts = kill.iter().any(|k| matches!(k.which, Which::Main(_)) && k.restart);
    let starts = start.iter().any(|s| matches!(s.which, Which::Main(_)));
    match keep > 0 || restarts || starts {
        true => Plan::Keep { sandbox, kill, start },
        // Sidecars alone don't keep a pod alive.
        false => Plan::Stop,
    }
}

enum Sandbox {
    Good(SandboxId),
    Needed { attempt: u32 },
}

fn sandbox(pod: &Pod, observed: &Observed) -> Sandbox {
    let Some(newest) = observed.sandboxes.first() else { return Sandbox::Needed { attempt: 0 } };
    let ready = observed.sandboxes.iter().filter(|s| s.sandbox.ready).count();
    let good = ready == 1
        && newest.sandbox.ready
        && newest.host_network == pod.host_network()
        && (newest.host_network || !newest.ips.is_empty());
    match good {
        true => Sandbox::Good(newest.sandbox.id.clone()),
        false => {
            Sandbox::Needed { attempt: observed.sandboxes.iter().map(|s| s.sandbox.attempt).max().unwrap_or(0) + 1 }
        }
    }
}

struct Init {
    outcome: InitOutcome,
    kill: Vec<Kill>,
    start: Vec<Start>,
}

#[derive(PartialEq, Eq)]
enum InitOutcome {
    /// Containers may run.
    Done,
    Pending,
    /// One failed and is not to be tried again.
    Failed,
}

impl Facts<'_> {
    fn recreate(&self, attempt: u32) -> Plan {
        let (pod, observed) = (self.pod, self.observed);
        let ran = !observed.containers.is_empty();
        if attempt > 0 && ran && !pod.containers().iter().any(|c| may_restart(pod, c)) {
            return Plan::Stop;
        }
        // An init container that failed for good has failed the pod, whatever becomes of its sandbox.
        let failed = |container: &&core::Container| {
            let newest = observed.newest(&container.name).filter(|c| c.state() == ContainerState::Exited);
            newest.is_some_and(|c| !succeeded(c) && !self.wants_run(container, Some(c)))
        };
        if pod.init_containers().iter().filter(|c| !is_sidecar(c)).any(|c| failed(&c)) {
            return Plan::Stop;
        }
        let left = |container: &core::Container| self.wants_run(container, observed.newest(&container.name));
        let containers = pod.containers().iter().enumerate().filter(|(_, c)| left(c));
        let start: Vec<_> = containers.map(|(i, c)| self.start(Which::Main(i), c)).collect();
        if start.is_empty() {
            return Plan::Stop;
        }
        // A new sandbox starts from the beginning.
        match pod.init_containers().first() {
            Some(first) => Plan::Recreate { attempt, start: vec![self.start(Which::Init(0), first)] },
            None => Plan::Recreate { attempt, start },
        }
    }

    /// Ephemeral containers are started once, whatever the others do, and never again.
    fn ephemeral(&self) -> Vec<Start> {
        let all = self.pod.ephemeral_containers().enumerate();
        let new = all.filter(|(_, c)| self.observed.newest(&c.name).is_none());
        new.map(|(i, c)| self.start(Which::Ephemeral(i), &c)).collect()
    }

    fn start(&self, which: Which, container: &core::Container) -> Start {
        let newest = self.observed.newest(&container.name);
        Start { which, restart_count: newest.map_or(0, |c| c.status.container.notes.restart_count + 1) }
    }

    fn kill(&self, which: Which, container: &ObservedContainer, why: Why, restart: bool) -> Kill {
        Kill { id: container.status.container.id.clone(), which, why, restart }
    }

    fn verdict(&self, container: &ObservedContainer) -> Verdict {
        self.verdicts.get(&container.status.container.id).copied().unwrap_or_default()
    }

    /// Whether a running container must be killed, and whether it then runs again.
    fn reason_to_kill(&self, spec: &core::Container, container: &ObservedContainer) -> Option<(Why, bool)> {
        let verdict = self.verdict(container);
        let restarts = may_restart(self.pod, spec);
        if container.status.container.notes.hash != identity::container_hash(spec) {
            // A changed container runs again whatever the policy.
            Some((Why::DefinitionChanged, true))
        } else if self.ordered.contains(&container.status.container.id) {
            Some((Why::Ordered, true))
        } else if verdict.liveness == Some(false) {
            Some((Why::LivenessFailed, restarts))
        } else if verdict.startup == Some(false) {
            Some((Why::StartupFailed, restarts))
        } else {
            None
        }
    }

    /// Whether a container is to be started that is not known to run (pkg/kubelet/container/helpers.go).
    fn wants_run(&self, spec: &core::Container, newest: Option<&ObservedContainer>) -> bool {
        let Some(c) = newest else { return true };
        match c.state() {
            ContainerState::Exited => {
                // Killed for its memory it has failed, whatever the exit code.
                let code = if c.status.exit_code == 0 && !succeeded(c) { 137 } else { c.status.exit_code };
                self.killed_to_restart.contains(&c.status.container.id) || restarts_after(self.pod, spec, code)
            }
            ContainerState::Running | ContainerState::Created | ContainerState::Unknown => true,
        }
    }

    /// The init containers in this sandbox: what was in an earlier one doesn't count.
    fn init(&self, sandbox: &SandboxId) -> Init {
        let (pod, observed) = (self.pod, self.observed);
        let mut init = Init { outcome: InitOutcome::Done, kill: Vec::new(), start: Vec::new() };
        let containers = pod.init_containers();
        if containers.is_empty() {
            return init;
        }
        // A container of the pod in the sandbox proves that init containers were done with before,
        // though they may have been cleaned away since.
        let initialized = pod.containers().iter().any(|c| observed.newest_in(sandbox, &c.name).is_some());
        // Likewise an init container proves it of those before it.
        let last = containers.iter().rposition(|c| observed.newest_in(sandbox, &c.name).is_some());
        for (i, container) in containers.iter().enumerate() {
            let which = Which::Init(i);
            let passed = initialized || last.is_some_and(|last| i < last);
            let newest = observed.newest_in(sandbox, &container.name);
            let step = match (is_sidecar(container), passed) {
                (true, _) => self.sidecar(which, container, newest, passed, &mut init),
                (false, true) => InitOutcome::Done,
                (false, false) => self.init_container(which, container, newest, &mut init),
            };
            if step != InitOutcome::Done && !passed {
                init.outcome = step;
                break;
            }
        }
        init
    }

    fn init_container(
        &self,
        which: Which,
        container: &core::Container,
        newest: Option<&ObservedContainer>,
        init: &mut Init,
    ) -> InitOutcome {
        let Some(c) = newest else {
            init.start.push(self.start(which, container));
            return InitOutcome::Pending;
        };
        match c.state() {
            ContainerState::Running => InitOutcome::Pending,
            ContainerState::Exited if succeeded(c) => InitOutcome::Done,
            ContainerState::Exited if !self.wants_run(container, Some(c)) => InitOutcome::Failed,
            ContainerState::Unknown if !may_restart(self.pod, container) => InitOutcome::Failed,
            ContainerState::Unknown => {
                init.kill.push(self.kill(which, c, Why::Unknown, true));
                InitOutcome::Pending
            }
            ContainerState::Exited | ContainerState::Created => {
                init.start.push(self.start(which, container));
                InitOutcome::Pending
            }
        }
    }

    /// A sidecar is done with, as an init container, when it has started up; and it is kept running.
    fn sidecar(
        &self,
        which: Which,
        container: &core::Container,
        newest: Option<&ObservedContainer>,
        passed: bool,
        init: &mut Init,
    ) -> InitOutcome {
        match newest {
            Some(c) if c.is_running() => match self.reason_to_kill(container, c) {
                Some((why, restart)) => {
                    init.kill.push(self.kill(which, c, why, restart));
                    if passed { InitOutcome::Done } else { InitOutcome::Pending }
                }
                None if container.startup_probe.is_none() || self.verdict(c).startup == Some(true) => InitOutcome::Done,
                None => InitOutcome::Pending,
            },
            Some(c) if c.state() == ContainerState::Unknown => {
                init.kill.push(self.kill(which, c, Why::Unknown, true));
                InitOutcome::Pending
            }
            _ => {
                init.start.push(self.start(which, container));
                InitOutcome::Pending
            }
        }
    }
}

fn succeeded(c: &ObservedContainer) -> bool {
    c.state() == ContainerState::Exited && c.status.exit_code == 0 && c.status.reason != "OOMKilled"
}

#[cfg(test)]
mod model;
#[cfg(test)]
mod tests;

//! The status of a pod from its spec and what was observed
//! (pkg/kubelet/kubelet_pods.go, pkg/kubelet/status/generate.go).

use std::collections::{HashMap, HashSet};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::conditions::{Judge, Verdict, has_started};
use super::{FailedBy, Phase, PodFailure, Waiting};
use crate::cri::{ContainerId, ContainerState, UnixNanos};
use crate::pleg::{Observed, ObservedContainer};
use crate::pod::qos::QosClass;
use crate::pod::restart::{may_restart, restarts_after};
use crate::pod::{Pod, Source, core, is_sidecar};

/// All that a status depends on.
pub struct Facts<'a> {
    pub pod: &'a Pod,
    pub observed: &'a Observed,
    /// The scheme of container ids.
    pub runtime: &'a str,
    /// Why containers have not been started, by name.
    pub waiting: &'a HashMap<String, Waiting>,
    /// Running containers that are not ready, or have not started up.
    pub not_ready: &'a HashSet<ContainerId>,
    pub not_started: &'a HashSet<ContainerId>,
    /// What containers left as their termination messages.
    pub messages: &'a HashMap<ContainerId, String>,
    /// Containers that were killed to be started again, whatever the restart policy says.
    pub to_restart: &'a HashSet<ContainerId>,
    /// The pod has failed as a whole, whatever its containers did.
    pub failed: Option<&'a PodFailure>,
    /// The pod as it was when it got the resources that it has.
    pub resources: &'a Pod,
    /// While it is being resized: what it waits for.
    pub resize_waits: Option<Option<&'a str>>,
    /// The node's addresses.
    pub host_ips: &'a [String],
    /// The status as it was.
    pub before: Option<&'a core::PodStatus>,
    pub now: Timestamp,
}

pub fn generate(facts: &Facts<'_>) -> core::PodStatus {
    let pod = facts.pod;
    let mut init: Vec<_> = pod.init_containers().iter().map(|c| facts.container(c, true)).collect();
    let mut containers: Vec<_> = pod.containers().iter().map(|c| facts.container(c, false)).collect();
    let mut ephemeral: Vec<_> = pod.ephemeral_containers().map(|c| facts.container(&c, false)).collect();
    let phase = match phase(pod, &init, &containers) {
        _ if facts.failed.is_some() => Phase::Failed,
        phase @ (Phase::Succeeded | Phase::Failed) => phase,
        _ if facts.is_over() => end(&containers),
        phase => phase,
    };
    let conditions = facts.conditions(phase, &init, &containers);
    containers.sort_by(|a, b| a.name.cmp(&b.name));
    let ips = facts.pod_ips();
    let hosts = facts.host_ips.iter().map(|ip| core::HostIP { ip: ip.clone() }).collect::<Vec<_>>();
    limit_messages(init.iter_mut().chain(&mut containers).chain(&mut ephemeral));
    core::PodStatus {
        phase: Some(phase.as_str().to_owned()),
        reason: facts.failed.map(|failed| failed.reason.to_owned()),
        message: facts.failed.map(|failed| failed.message.clone()),
        qos_class: Some(QosClass::of(&pod.spec).as_str().to_owned()),
        conditions: Some(conditions),
        host_ip: facts.host_ips.first().cloned(),
        host_ips: (!hosts.is_empty()).then_some(hosts),
        pod_ip: ips.first().cloned(),
        pod_ips: (!ips.is_empty()).then(|| ips.into_iter().map(|ip| core::PodIP { ip }).collect()),
        start_time: Some(facts.start_time()),
        init_container_statuses: (!init.is_empty()).then_some(init),
        container_statuses: Some(containers),
        ephemeral_container_statuses: (!ephemeral.is_empty()).then_some(ephemeral),
        // Of a manifest's pod it would mean nothing.
        observed_generation: pod.meta.generation.filter(|_| pod.source == Source::Api),
        ..Default::default()
    }
}

/// The phase of a pod that was deleted, and of which nothing runs any more.
fn end(containers: &[core::ContainerStatus]) -> Phase {
    let good = |c: &core::ContainerStatus| {
        let ended = c.state.as_ref().and_then(|state| state.terminated.as_ref());
        ended.is_some_and(|ended| ended.exit_code == 0)
    };
    if !containers.is_empty() && containers.iter().all(good) { Phase::Succeeded } else { Phase::Failed }
}

/// The status of a pod that the node doesn't run (pkg/kubelet/kubelet.go `rejectPod`).
pub fn refused(pod: &Pod, reason: &str, message: &str) -> core::PodStatus {
    core::PodStatus {
        phase: Some(Phase::Failed.as_str().to_owned()),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        qos_class: Some(QosClass::of(&pod.spec).as_str().to_owned()),
        ..Default::default()
    }
}

/// Adds a condition that is true, or sets its reason and message.
pub fn set_condition(status: &mut core::PodStatus, type_: &str, reason: &str, message: &str) {
    let conditions = status.conditions.get_or_insert_default();
    conditions.retain(|c| c.type_ != type_);
    conditions.push(core::PodCondition {
        type_: type_.to_owned(),
        status: "True".to_owned(),
        reason: Some(reason.to_owned()),
        message: Some(message.to_owned()),
        ..Default::default()
    });
}

/// Whether a pod has ended for the node's sake.
pub fn is_ended_by_node(status: &core::PodStatus) -> bool {
    let mut conditions = status.conditions.iter().flatten();
    is_terminal(status) && conditions.any(|c| is_disruption(&c.type_, c.reason.as_deref()))
}

/// Nothing of a pod in such a phase runs again.
pub fn is_terminal(status: &core::PodStatus) -> bool {
    matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"))
}

impl Facts<'_> {
    /// The pod was deleted, and nothing of it runs, nor ever will.
    fn is_over(&self) -> bool {
        self.pod.is_deleted() && !self.observed.containers.iter().any(ObservedContainer::is_alive)
    }

    /// When the agent first had to do with the pod: as it was, else when its first sandbox was made,
    /// else now.
    fn start_time(&self) -> Time {
        let before = self.before.and_then(|s| s.start_time.clone());
        let created = || self.observed.sandboxes.iter().map(|s| s.sandbox.created_at).min().and_then(time);
        before.or_else(created).unwrap_or(Time(self.now))
    }

    /// The addresses of the sandbox that is in use.
    fn pod_ips(&self) -> Vec<String> {
        if self.pod.host_network() {
            return self.host_ips.to_vec();
        }
        let ready = self.observed.sandboxes.first().filter(|s| s.sandbox.ready);
        ready.map(|s| s.ips.clone()).unwrap_or_default()
    }

    fn container(&self, container: &core::Container, is_init: bool) -> core::ContainerStatus {
        let mut all = self.observed.containers.iter().filter(|c| *c.status.container.name == *container.name);
        let newest = all.next();
        let mut status = core::ContainerStatus {
            name: container.name.clone(),
            image: container.image.clone().unwrap_or_default(),
            started: Some(false),
            ..Default::default()
        };
        let default_reason = match !self.pod.init_containers().is_empty() {
            true => "PodInitializing",
            false => "ContainerCreating",
        };
        status.state = Some(match newest {
            None => waiting(default_reason, ""),
            Some(c) => {
                let observed = &c.status;
                status.restart_count = observed.container.notes.restart_count;
                status.container_id = Some(self.container_id(c));
                status.image_id = observed.image_ref.clone();
                if !observed.image.is_empty() {
                    status.image = observed.image.clone();
                }
                let has = self.resources.container(&container.name);
                status.resources = has.and_then(|has| has.resources.clone());
                status.allocated_resources = container.resources.as_ref().and_then(|r| r.requests.clone());
                self.state(c, default_reason)
            }
        });
        if let Some(before) = all.find(|c| c.state() == ContainerState::Exited) {
            status.last_state = Some(self.state(before, default_reason));
        }
        self.wait_for_restart(container, newest, &mut status);
        if let Some(c) = newest.filter(|c| c.is_running()) {
            let id = &c.status.container.id;
            let started = !self.not_started.contains(id);
            status.started = Some(started);
            status.ready = started && !self.not_ready.contains(id);
        }
        if is_init && !is_sidecar(container) {
            let state = status.state.as_ref();
            status.ready = state.and_then(|s| s.terminated.as_ref()).is_some_and(|t| t.exit_code == 0);
        }
        status
    }

    fn container_id(&self, c: &ObservedContainer) -> String {
        format!("{}://{}", self.runtime, c.status.container.id)
    }

    fn state(&self, c: &ObservedContainer, default_reason: &str) -> core::ContainerState {
        let observed = &c.status;
        match c.state() {
            ContainerState::Running => core::ContainerState {
                running: Some(core::ContainerStateRunning { started_at: time(observed.started_at) }),
                ..Default::default()
            },
            ContainerState::Exited => terminated(core::ContainerStateTerminated {
                exit_code: observed.exit_code,
                reason: Some(match observed.reason.as_str() {
                    "" if observed.exit_code == 0 => "Completed".to_owned(),
                    "" => "Error".to_owned(),
                    reason => reason.to_owned(),
                }),
                message: self.message(c),
                started_at: time(observed.started_at),
                finished_at: time(observed.finished_at),
                container_id: Some(self.container_id(c)),
                ..Default::default()
            }),
            ContainerState::Created => waiting(default_reason, ""),
            ContainerState::Unknown => terminated(core::ContainerStateTerminated {
                exit_code: 137,
                reason: Some("ContainerStatusUnknown".to_owned()),
                message: Some("The container runtime does not know the state of the container".to_owned()),
                container_id: Some(self.container_id(c)),
                ..Default::default()
            }),
        }
    }

    /// What the runtime says of the end, and what the container said itself.
    fn message(&self, c: &ObservedContainer) -> Option<String> {
        let own = self.messages.get(&c.status.container.id).map(String::as_str).unwrap_or_default();
        let parts = [c.status.message.as_str(), own];
        let parts: Vec<_> = parts.into_iter().filter(|part| !part.is_empty()).collect();
        (!parts.is_empty()).then(|| parts.join(": "))
    }

    /// A container that is to be started and could not be waits, whatever it was before.
    fn wait_for_restart(
        &self,
        container: &core::Container,
        newest: Option<&ObservedContainer>,
        status: &mut core::ContainerStatus,
    ) {
        let killed = newest.is_some_and(|c| self.to_restart.contains(&c.status.container.id));
        let stays = newest.is_some_and(|c| {
            let ended = c.state() == ContainerState::Exited;
            c.is_running() || (ended && !killed && !restarts_after(self.pod, container, c.status.exit_code))
        });
        let why = match self.waiting.get(&container.name) {
            _ if stays || self.is_over() => return,
            Some(why) => waiting(why.reason, &why.message),
            None if killed => waiting("ContainerCreating", ""),
            None => return,
        };
        let state = status.state.replace(why);
        if state.as_ref().is_some_and(|s| s.terminated.is_some()) {
            status.last_state = state;
        }
    }

    fn conditions(
        &self,
        phase: Phase,
        init: &[core::ContainerStatus],
        containers: &[core::ContainerStatus],
    ) -> Vec<core::PodCondition> {
        let sandbox = self.observed.sandboxes.first().filter(|s| s.sandbox.ready);
        let network = sandbox.is_some_and(|s| self.pod.host_network() || !s.ips.is_empty());
        let judge = Judge { pod: self.pod, before: self.before, now: self.now };
        let initialized = judge.initialized(phase, init, containers);
        let containers_ready = judge.containers_ready(phase, init, containers);
        let ready = if containers_ready.ok { judge.gates() } else { containers_ready.clone() };
        let all = [
            ("PodReadyToStartContainers", if network { Verdict::TRUE } else { Verdict::not("", String::new()) }),
            ("Initialized", initialized),
            ("Ready", ready),
            ("ContainersReady", containers_ready),
            ("PodScheduled", Verdict::TRUE),
        ];
        let resizing = self.resize_waits.map(|waits| match waits {
            Some(why) => Verdict { ok: true, reason: "Error", message: why.to_owned() },
            None => Verdict::TRUE,
        });
        let disruption = self.failed.filter(|failed| failed.by == FailedBy::Node).map(|failed| {
            let message = failed.message.clone();
            (DISRUPTION, Verdict { ok: true, reason: DISRUPTED, message })
        });
        let all =
            all.into_iter().chain(resizing.map(|verdict| ("PodResizeInProgress", verdict))).chain(disruption.clone());
        let taken = |c: &core::PodCondition| is_ours(c) || disruption.is_some() && c.type_ == DISRUPTION;
        let others = judge.before().iter().filter(|c| !taken(c)).cloned();
        all.map(|(kind, verdict)| judge.condition(kind, verdict)).chain(others).collect()
    }
}

/// The conditions that the agent sets; those that others set through the API stay as they are.
const OWN: [&str; 7] = [
    "PodReadyToStartContainers",
    "Initialized",
    "Ready",
    "ContainersReady",
    "PodScheduled",
    "PodResizeInProgress",
    "PodResizePending",
];

/// A pod is ended for the sake of something else. Set by the agent, and by others with other reasons
/// (pkg/kubelet/types/pod_status.go).
const DISRUPTION: &str = "DisruptionTarget";
/// The agent's reason.
const DISRUPTED: &str = "TerminationByKubelet";

/// Whether a condition, of which this is the type and the reason, is that the agent has ended the pod.
pub fn is_disruption(type_: &str, reason: Option<&str>) -> bool {
    type_ == DISRUPTION && reason == Some(DISRUPTED)
}

/// Whether a condition, of which this is the type and the reason, is one that the agent sets.
pub fn is_own(type_: &str, reason: Option<&str>) -> bool {
    OWN.contains(&type_) || is_disruption(type_, reason)
}

fn is_ours(condition: &core::PodCondition) -> bool {
    is_own(&condition.type_, condition.reason.as_deref())
}

/// `ours` with the conditions that others have set as they are in `theirs`; `None` when they are so.
pub fn with_conditions_of_others(ours: &core::PodStatus, theirs: &core::PodStatus) -> Option<core::PodStatus> {
    fn of_others(status: &core::PodStatus) -> Vec<&core::PodCondition> {
        let all = status.conditions.iter().flatten();
        all.filter(|c| !is_ours(c)).collect()
    }
    let set = of_others(theirs);
    if of_others(ours) == set {
        return None;
    }
    let mut status = ours.clone();
    let conditions = status.conditions.get_or_insert_default();
    conditions.retain(is_ours);
    conditions.extend(set.into_iter().cloned());
    Some(status)
}

/// All messages of a pod together, in bytes (pkg/kubelet/container/runtime.go).
const MAX_MESSAGES: usize = 12 << 10;

/// Cuts termination messages so that a pod with many containers has no endless status.
fn limit_messages<'a>(statuses: impl Iterator<Item = &'a mut core::ContainerStatus>) {
    let statuses: Vec<_> = statuses.collect();
    let limit = MAX_MESSAGES / statuses.len().max(1);
    for status in statuses {
        for state in [&mut status.state, &mut status.last_state].into_iter().flatten() {
            let message = state.terminated.as_mut().and_then(|t| t.message.as_mut());
            if let Some(message) = message.filter(|m| m.len() > limit) {
                let cut = (0..=limit).rev().find(|i| message.is_char_boundary(*i)).unwrap_or(0);
                message.truncate(cut);
            }
        }
    }
}

fn waiting(reason: &str, message: &str) -> core::ContainerState {
    core::ContainerState {
        waiting: Some(core::ContainerStateWaiting {
            reason: Some(reason.to_owned()),
            message: Some(message.to_owned()).filter(|m| !m.is_empty()),
        }),
        ..Default::default()
    }
}

fn terminated(state: core::ContainerStateTerminated) -> core::ContainerState {
    core::ContainerState { terminated: Some(state), ..Default::default() }
}

fn time(at: UnixNanos) -> Option<Time> {
    if at.0 == 0 {
        return None;
    }
    Timestamp::from_nanosecond(i128::from(at.0)).ok().map(Time)
}

/// The phase of a pod from the states of its containers, in the order of the spec
/// (pkg/kubelet/kubelet_pods.go `getPhase`).
pub fn phase(pod: &Pod, init: &[core::ContainerStatus], containers: &[core::ContainerStatus]) -> Phase {
    let last_exit = |s: &core::ContainerStatus| s.last_state.as_ref()?.terminated.as_ref().map(|t| t.exit_code);
    let (mut pending_init, mut failed_init) = (0, 0);
    let (mut unknown, mut running, mut waiting, mut stopped, mut succeeded, mut restarting) = (0, 0, 0, 0, 0, 0);
    for (spec, status) in pod.init_containers().iter().zip(init) {
        let state = status.state.clone().unwrap_or_default();
        match (state.waiting, state.running, state.terminated) {
            (Some(_), _, _) => match last_exit(status) {
                _ if is_sidecar(spec) => pending_init += u32::from(!has_started(status)),
                // It is tried again.
                Some(_) | None => pending_init += 1,
            },
            (_, Some(_), _) => {
                let started = status.started == Some(true);
                pending_init += u32::from(!(is_sidecar(spec) && started));
            }
            (_, _, Some(t)) if !is_sidecar(spec) && t.exit_code != 0 => match may_restart(pod, spec) {
                true => pending_init += 1,
                false => failed_init += 1,
            },
            (_, _, Some(_)) => {}
            (None, None, None) => pending_init += 1,
        }
    }
    for (spec, status) in pod.containers().iter().zip(containers) {
        let state = status.state.clone().unwrap_or_default();
        match (state.waiting, state.running, state.terminated) {
            (_, Some(_), _) => running += 1,
            (_, _, Some(t)) => {
                stopped += 1;
                succeeded += u32::from(t.exit_code == 0);
                restarting += u32::from(restarts_after(pod, spec, t.exit_code));
            }
            (Some(_), _, _) => match last_exit(status) {
                Some(_) => {
                    stopped += 1;
                    restarting += 1;
                }
                None => waiting += 1,
            },
            (None, None, None) => unknown += 1,
        }
    }
    match () {
        () if failed_init > 0 => Phase::Failed,
        () if pending_init > 0 && !containers.iter().any(has_started) => Phase::Pending,
        () if waiting > 0 => Phase::Pending,
        () if running > 0 && unknown == 0 => Phase::Running,
        () if stopped > 0 && unknown == 0 => match stopped == succeeded {
            // What is started again has not come to its end.
            _ if restarting > 0 => Phase::Running,
            true => Phase::Succeeded,
            false => Phase::Failed,
        },
        () => Phase::Pending,
    }
}

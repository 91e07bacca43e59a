//! What a pod's conditions say, and since when (pkg/kubelet/status/generate.go).

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::Phase;
use crate::pod::{Pod, core, is_sidecar};

/// What a condition says.
#[derive(Debug, Clone)]
pub(super) struct Verdict {
    pub ok: bool,
    pub reason: &'static str,
    pub message: String,
}

impl Verdict {
    pub const TRUE: Verdict = Verdict { ok: true, reason: "", message: String::new() };

    pub fn not(reason: &'static str, message: String) -> Verdict {
        Verdict { ok: false, reason, message }
    }
}

/// Works out conditions from the statuses of containers.
pub(super) struct Judge<'a> {
    pub pod: &'a Pod,
    /// The status as it was.
    pub before: Option<&'a core::PodStatus>,
    pub now: Timestamp,
}

impl Judge<'_> {
    /// The conditions as they were; those of others too, who set them through the API.
    pub fn before(&self) -> &[core::PodCondition] {
        self.before.and_then(|s| s.conditions.as_deref()).unwrap_or_default()
    }

    /// A condition keeps the time of its last transition for as long as its status stays.
    pub fn condition(&self, kind: &str, verdict: Verdict) -> core::PodCondition {
        let status = if verdict.ok { "True" } else { "False" };
        let before = self.before().iter().find(|c| c.type_ == kind && c.status == status);
        let since = before.and_then(|c| c.last_transition_time.clone());
        core::PodCondition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: Some(verdict.reason.to_owned()).filter(|r| !r.is_empty()),
            message: Some(verdict.message).filter(|m| !m.is_empty()),
            last_transition_time: Some(since.unwrap_or(Time(self.now))),
            ..Default::default()
        }
    }

    pub fn initialized(
        &self,
        phase: Phase,
        init: &[core::ContainerStatus],
        containers: &[core::ContainerStatus],
    ) -> Verdict {
        if phase == Phase::Succeeded {
            return Verdict { reason: "PodCompleted", ..Verdict::TRUE };
        }
        // Containers that have run prove it, though the init containers may be gone.
        if containers.iter().any(has_started) {
            return Verdict::TRUE;
        }
        let specs = self.pod.init_containers();
        let incomplete: Vec<_> = specs
            .iter()
            .zip(init)
            .filter(|(spec, status)| match is_sidecar(spec) {
                true => status.started != Some(true),
                false => !status.ready,
            })
            .map(|(_, status)| status.name.as_str())
            .collect();
        match incomplete.is_empty() {
            true => Verdict::TRUE,
            false => Verdict::not(
                "ContainersNotInitialized",
                format!("containers with incomplete status: {}", list(&incomplete)),
            ),
        }
    }

    pub fn containers_ready(
        &self,
        phase: Phase,
        init: &[core::ContainerStatus],
        containers: &[core::ContainerStatus],
    ) -> Verdict {
        match phase {
            Phase::Succeeded => return Verdict::not("PodCompleted", String::new()),
            Phase::Failed => return Verdict::not("PodFailed", String::new()),
            _ => {}
        }
        let sidecars = self.pod.init_containers().iter().zip(init).filter(|(spec, _)| is_sidecar(spec));
        let all = sidecars.map(|(_, status)| status).chain(containers);
        let unready: Vec<_> = all.filter(|c| !c.ready).map(|c| c.name.as_str()).collect();
        match unready.is_empty() {
            true => Verdict::TRUE,
            false => Verdict::not("ContainersNotReady", format!("containers with unready status: {}", list(&unready))),
        }
    }

    /// What the pod's readiness gates say: conditions that others set. One that nobody has set holds
    /// the pod back.
    pub fn gates(&self) -> Verdict {
        let gates = self.pod.spec.readiness_gates.iter().flatten().map(|gate| &gate.condition_type);
        let unmet = gates.filter_map(|kind| match self.before().iter().find(|c| c.type_ == *kind) {
            Some(c) if c.status == "True" => None,
            Some(c) => Some(format!("readiness gate {kind:?} is {}", c.status)),
            None => Some(format!("readiness gate {kind:?} has not been set")),
        });
        let unmet: Vec<_> = unmet.collect();
        match unmet.is_empty() {
            true => Verdict::TRUE,
            false => Verdict::not("ReadinessGatesNotReady", unmet.join(", ")),
        }
    }
}

/// `[a b]`, as Kubernetes writes lists of names.
fn list(names: &[&str]) -> String {
    format!("[{}]", names.join(" "))
}

pub(super) fn has_started(status: &core::ContainerStatus) -> bool {
    let ran = |s: &core::ContainerState| s.running.is_some() || s.terminated.is_some();
    status.state.as_ref().is_some_and(ran) || status.last_state.as_ref().is_some_and(ran)
}

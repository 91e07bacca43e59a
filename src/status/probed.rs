//! A status with what the probes say now. Their results show at once, while the pod's next sync may
//! have to wait for the runtime (pkg/kubelet/status/status_manager.go `SetContainerReadiness`,
//! `SetContainerStartup`).

use jiff::Timestamp;

use super::conditions::Judge;
use super::{Phase, is_terminal};
use crate::cri::ContainerId;
use crate::pod::{Pod, core};
use crate::probe::Verdicts;

/// `status` with the verdicts of now, which may be later than it. `shown` is what was shown last: a
/// condition that stays as it was there keeps the time of its last transition.
pub fn probed(
    pod: &Pod,
    status: &core::PodStatus,
    shown: &core::PodStatus,
    verdicts: &Verdicts,
    now: Timestamp,
) -> core::PodStatus {
    let mut status = status.clone();
    if is_terminal(&status) {
        return status;
    }
    let (init, containers) = (&mut status.init_container_statuses, &mut status.container_statuses);
    for c in init.iter_mut().chain(containers).flatten() {
        let Some(id) = running(c).filter(|id| verdicts.verdicts.contains_key(id)) else { continue };
        let started = !verdicts.not_started.contains(&id);
        c.started = Some(started);
        c.ready = started && !verdicts.not_ready.contains(&id);
    }
    let judge = Judge { pod, before: Some(shown), now };
    let init = status.init_container_statuses.clone().unwrap_or_default();
    let of_name = |c: &core::Container| status.container_statuses.iter().flatten().find(|s| s.name == c.name);
    let containers: Vec<_> = pod.containers().iter().filter_map(of_name).cloned().collect();
    // In any phase that isn't terminal the containers decide.
    let containers_ready = judge.containers_ready(Phase::Running, &init, &containers);
    let ready = if containers_ready.ok { judge.gates() } else { containers_ready.clone() };
    for (kind, verdict) in [("Ready", ready), ("ContainersReady", containers_ready)] {
        if let Some(c) = status.conditions.iter_mut().flatten().find(|c| c.type_ == kind) {
            *c = judge.condition(kind, verdict);
        }
    }
    status
}

/// The id of a container that runs.
fn running(status: &core::ContainerStatus) -> Option<ContainerId> {
    status.state.as_ref()?.running.as_ref()?;
    status.container_id.as_deref()?.split_once("://").map(|(_, id)| ContainerId::new(id))
}

//! The end of a pod: its containers are stopped, then its sandboxes; and when it isn't wanted any
//! more, nothing of it stays (pkg/kubelet/kubelet.go `SyncTerminatingPod`, `SyncTerminatedPod`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::kill::Victim;
use super::memory::{Done, Failure, Memory, Op};
use super::sync::Next;
use super::{Error, Runtime};
use crate::disk::remove_tree;
use crate::pleg::Observed;
use crate::pod::{Pod, PodName, PodUid, core, is_sidecar};
use crate::status::{self, PodFailure, events};
use crate::volume;

/// A pod that is to end.
#[derive(Debug, Clone)]
pub enum Target {
    Known(Arc<Pod>),
    /// Only the runtime knows it.
    Orphan {
        uid: PodUid,
        name: PodName,
    },
}

impl Target {
    pub fn uid(&self) -> &PodUid {
        match self {
            Target::Known(pod) => &pod.uid,
            Target::Orphan { uid, .. } => uid,
        }
    }

    /// The pod, if more than its name is known.
    pub fn pod(&self) -> Option<&Arc<Pod>> {
        match self {
            Target::Known(pod) => Some(pod),
            Target::Orphan { .. } => None,
        }
    }

    pub fn name(&self) -> &PodName {
        match self {
            Target::Known(pod) => &pod.name,
            Target::Orphan { name, .. } => name,
        }
    }
}

/// How a pod is ended that is wanted: the node can't have it any more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Halt {
    /// It gets no longer than this, nor longer than it would have anyway.
    pub grace: Duration,
    pub failure: PodFailure,
}

/// A pod that says nothing, whose containers say nothing: the API's default.
const DEFAULT_GRACE: i64 = 30;

/// How far a pod is with its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stopped {
    /// Nothing of it runs.
    All,
    /// Containers are being stopped; to be looked at again after so long at the latest.
    Waits(Duration),
}

impl Stopped {
    pub(super) fn wait(self) -> Next {
        match self {
            Stopped::All => Next::Rest,
            Stopped::Waits(time) => Next::After(time),
        }
    }
}

/// Lanes tell when they are done; a pod is looked at after so long should one not do it.
const WATCHED: Duration = Duration::from_secs(60);
/// How long to wait after what a pod held could not be freed.
const FREE_RETRY: Duration = Duration::from_secs(10);

impl Runtime {
    /// Stops everything of the pod, and tells its status meanwhile, as far as the pod is known.
    /// `Next::Terminal` when nothing of it runs any more. `halt`: it is ended though it is wanted.
    ///
    /// # Errors
    /// When the runtime doesn't do it; to be tried again.
    pub fn terminate(
        &self,
        target: &Target,
        memory: &mut Memory,
        fresh: Option<Instant>,
        before: Option<&core::PodStatus>,
        halt: Option<&Halt>,
    ) -> Result<(Next, Option<core::PodStatus>), Error> {
        self.probes.stop_liveness_and_startup(target.uid());
        let observed = self.observe(target.uid(), memory, fresh)?;
        let has_ended = before.is_some_and(status::is_terminal);
        if let Some(halt) = halt.filter(|_| !has_ended) {
            memory.failed.get_or_insert_with(|| halt.failure.clone());
        }
        let stopped = self.stop(target, memory, &observed, halt.map(|halt| halt.grace))?;
        let mut next = if stopped == Stopped::All { Next::Terminal } else { stopped.wait() };
        let Some(pod) = target.pod() else { return Ok((next, None)) };
        self.read_messages(&pod.uid, memory, &observed);
        let status = self.status(pod, memory, &observed, before);
        if next == Next::Terminal {
            self.probes.remove(&pod.uid);
        }
        // What has ended stays ended, though the runtime may have forgotten how, and we since when it is why.
        let forgotten = |before: &core::PodStatus| before.reason.is_some() && memory.failed.is_none();
        let status = match before.filter(|_| has_ended) {
            Some(before) if !status::is_terminal(&status) || forgotten(before) => before.clone(),
            _ => status,
        };
        if next == Next::Terminal {
            // One that was ended for the node's sake may run again when the node is up again.
            if status::is_terminal(&status) && halt.is_none() {
                self.keep_status(pod, memory, &status);
            }
            // At once, also when the pod is still wanted: what it held is needed by others.
            if let Err(e) = self.free(&pod.uid) {
                self.tell(pod, memory, "FailedToFree", Some(&e));
                next = Next::After(FREE_RETRY);
            }
        }
        Ok((next, Some(status)))
    }

    /// Stops the containers, and when none runs any more the sandboxes. `limit`: of the grace period.
    pub(super) fn stop(
        &self,
        target: &Target,
        memory: &mut Memory,
        observed: &Observed,
        limit: Option<Duration>,
    ) -> Result<Stopped, Error> {
        if let Some(message) = memory.stop_failed.take() {
            return Err(Error::Start(message));
        }
        let alive: Vec<_> = observed.containers.iter().filter(|c| c.is_alive()).collect();
        let pod = target.pod();
        let names: Vec<&str> = alive.iter().map(|c| &*c.status.container.name).collect();
        let ips = observed.sandboxes.first().map(|s| s.ips.as_slice()).unwrap_or_default();
        let now = Instant::now();
        let mut again: Option<Duration> = None;
        for c in &alive {
            let container = &c.status.container;
            let seconds = match pod {
                Some(pod) => pod.meta.deletion_grace_period_seconds.unwrap_or_else(|| pod.grace_period()),
                None => container.notes.grace_period.unwrap_or(DEFAULT_GRACE),
            };
            let grace = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
            if !memory.kills.contains_key(&container.id) {
                let message = format!("Stopping container {}", container.name);
                let field = pod.and_then(|pod| pod.field_path(&container.name));
                events::record_of(events::Kind::Normal, target.name(), field, "Killing", &message);
            }
            let spec = pod.and_then(|pod| pod.container(&container.name));
            let victim = Victim {
                target,
                container,
                spec: spec.as_deref(),
                ips,
                grace: limit.map_or(grace, |limit| grace.min(limit)),
                turn: pod.is_none_or(|pod| is_turn(pod, &container.name, &names)),
            };
            let wait = self.kill_step(&victim, memory, now);
            again = again.into_iter().chain(wait).min();
        }
        if !alive.is_empty() || memory.pending.iter().any(|op| matches!(op, Op::StopContainer(_))) {
            return Ok(Stopped::Waits(again.unwrap_or(WATCHED)));
        }
        for status in &observed.sandboxes {
            let id = &status.sandbox.id;
            if status.sandbox.ready || !memory.stopped.contains(id) {
                memory.acted = Some(Instant::now());
                self.cri.stop_pod_sandbox(id)?;
                memory.acted = Some(Instant::now());
                memory.stopped.insert(id.clone());
            }
        }
        Ok(Stopped::All)
    }

    /// Takes away what holds memory, disk space or names of a pod of which nothing runs any more: its
    /// cgroup and its volumes.
    fn free(&self, uid: &PodUid) -> Result<(), Error> {
        self.cgroups.remove_pod(uid)?;
        let volumes = volume::teardown(&self.node.paths.pod(uid));
        volumes.map_err(|source| Error::Start(format!("removing the volumes: {source}")))
    }

    /// Removes all that is left of a pod that has ended: from the runtime, its directory, its logs.
    ///
    /// # Errors
    /// When something stays; to be tried again.
    pub fn remove(&self, target: &Target, memory: &mut Memory) -> Result<(), Error> {
        self.probes.remove(target.uid());
        let observed = self.observe(target.uid(), memory, None)?;
        memory.acted = Some(Instant::now());
        for c in &observed.containers {
            self.remove_container(target.uid(), target.name(), c)?;
        }
        for status in &observed.sandboxes {
            self.cri.remove_pod_sandbox(&status.sandbox.id)?;
        }
        memory.acted = Some(Instant::now());
        self.free(target.uid())?;
        let directory = self.node.paths.pod(target.uid());
        remove_tree(&directory).map_err(|e| Error::io("removing", &directory, e))?;
        self.users.release(target.uid());
        let logs = self.node.paths.pod_logs(target.uid(), target.name());
        remove_tree(&logs).map_err(|e| Error::io("removing", &logs, e))?;
        // Look once more, so that the cache knows that it is gone.
        self.observe(target.uid(), memory, None)?;
        Ok(())
    }
}

/// Whether a container may be stopped while those of `alive` still run: sidecars wait for the
/// containers, and then for the sidecars that were started after them
/// (pkg/kubelet/kuberuntime/kuberuntime_termination_order.go).
fn is_turn(pod: &Pod, name: &str, alive: &[&str]) -> bool {
    let init = pod.init_containers();
    let Some(own) = init.iter().position(|c| is_sidecar(c) && c.name == name) else { return true };
    let waits_for = |other: &&str| match init.iter().position(|c| is_sidecar(c) && c.name == **other) {
        Some(place) => place > own,
        None => true,
    };
    !alive.iter().any(|other| *other != name && waits_for(other))
}

/// Tells the end of a piece of work on a lane, whatever way it ends.
pub(super) struct Ending(Option<(crossbeam::channel::Sender<Done>, PodUid, Op)>);

impl Ending {
    pub(super) fn new(done: crossbeam::channel::Sender<Done>, uid: PodUid, op: Op) -> Ending {
        Ending(Some((done, uid, op)))
    }

    pub(super) fn tell(mut self, result: Result<(), Failure>) {
        self.send(result);
    }

    fn send(&mut self, result: Result<(), Failure>) {
        if let Some((done, uid, op)) = self.0.take() {
            // The loop is gone when the agent ends; then nobody waits for this.
            let _ = done.send(Done { uid, op, at: Instant::now(), result });
        }
    }
}

impl Drop for Ending {
    fn drop(&mut self) {
        self.send(Err(Failure {
            reason: "InternalError",
            message: "the agent failed in it; this is a bug".to_owned(),
        }));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::Source;

    #[test]
    fn sidecars_end_after_the_containers_and_in_reverse() {
        let container = |name: &str, sidecar: bool| core::Container {
            name: name.to_owned(),
            restart_policy: sidecar.then(|| "Always".to_owned()),
            ..Default::default()
        };
        let pod = Pod {
            uid: PodUid::new("u"),
            name: PodName::new("ns", "p"),
            source: Source::File,
            origin: "/m/p.yaml".into(),
            status: None,
            meta: Default::default(),
            spec: core::PodSpec {
                init_containers: Some(vec![container("a", true), container("i", false), container("b", true)]),
                containers: vec![container("m", false)],
                ..Default::default()
            },
        };
        // What runs, and what of it may be stopped.
        let table: [(&[&str], &[&str]); 6] = [
            (&["m", "b", "a"], &["m"]),
            (&["b", "a"], &["b"]),
            (&["a"], &["a"]),
            (&["m", "a"], &["m"]),
            (&["i", "a"], &["i"]),
            (&["debugger", "b"], &["debugger"]),
        ];
        for (alive, want) in table {
            let turn: Vec<_> = alive.iter().copied().filter(|name| is_turn(&pod, name, alive)).collect();
            assert_eq!(turn, want, "of {alive:?}");
        }
    }
}

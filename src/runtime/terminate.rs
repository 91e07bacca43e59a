//! The end of a pod: its containers are stopped, then its sandboxes; and when it isn't wanted any
//! more, nothing of it stays (pkg/kubelet/kubelet.go `SyncTerminatingPod`, `SyncTerminatedPod`).

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::memory::{Done, Failure, Memory, Op};
use super::sync::Next;
use super::{Error, Runtime};
use crate::cri::{ContainerId, ContainerState};
use crate::disk::remove_tree;
use crate::pleg::Observed;
use crate::pod::{Pod, PodName, PodUid};
use crate::status::events;

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

    pub fn name(&self) -> &PodName {
        match self {
            Target::Known(pod) => &pod.name,
            Target::Orphan { name, .. } => name,
        }
    }
}

/// A pod that says nothing, whose containers say nothing: the API's default.
const DEFAULT_GRACE: i64 = 30;

/// How far a pod is with its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stopped {
    /// Nothing of it runs.
    All,
    /// Containers are being stopped.
    Waits,
}

impl Stopped {
    pub(super) fn wait(self) -> Next {
        match self {
            Stopped::All => Next::Rest,
            // The lane tells; this is for the case that it doesn't.
            Stopped::Waits => Next::After(WATCHED),
        }
    }
}

/// Stops are looked after again after so long though nothing was heard.
const WATCHED: Duration = Duration::from_secs(60);

impl Runtime {
    /// Stops everything of the pod. `Next::Terminal` when nothing of it runs any more.
    ///
    /// # Errors
    /// When the runtime doesn't do it; to be tried again.
    pub fn terminate(&self, target: &Target, memory: &mut Memory, fresh: Option<Instant>) -> Result<Next, Error> {
        let observed = self.observe(target.uid(), memory, fresh)?;
        match self.stop(target, memory, &observed)? {
            Stopped::All => Ok(Next::Terminal),
            waits => Ok(waits.wait()),
        }
    }

    /// Stops the containers, each on the lane, and when none runs any more the sandboxes.
    pub(super) fn stop(&self, target: &Target, memory: &mut Memory, observed: &Observed) -> Result<Stopped, Error> {
        if let Some(message) = memory.stop_failed.take() {
            return Err(Error::Start(message));
        }
        let alive = |state| matches!(state, ContainerState::Running | ContainerState::Unknown);
        let mut waits = memory.pending.iter().any(|op| matches!(op, Op::StopContainer(_)));
        for c in observed.containers.iter().filter(|c| alive(c.state())) {
            let container = &c.status.container;
            if memory.pending.contains(&Op::StopContainer(container.id.clone())) {
                continue;
            }
            let seconds = match target {
                Target::Known(pod) => pod.meta.deletion_grace_period_seconds.unwrap_or_else(|| pod.grace_period()),
                Target::Orphan { .. } => container.notes.grace_period.unwrap_or(DEFAULT_GRACE),
            };
            let message = format!("Stopping container {}", container.name);
            events::record(events::Kind::Normal, target.name(), "Killing", &message);
            let grace = Duration::from_secs(u64::try_from(seconds).unwrap_or(0));
            self.stop_on_lane(target.uid(), memory, container.id.clone(), grace);
            waits = true;
        }
        if waits {
            return Ok(Stopped::Waits);
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

    /// Stops a container on the lane; the loop hears when it is done.
    pub(super) fn stop_on_lane(&self, uid: &PodUid, memory: &mut Memory, id: ContainerId, grace: Duration) {
        let op = Op::StopContainer(id.clone());
        memory.pending.insert(op.clone());
        let (cri, done, uid) = (self.cri.clone(), self.done.clone(), uid.clone());
        self.stops.submit(move || {
            let end = Ending::new(done, uid, op);
            let result = cri.stop_container(&id, grace);
            end.tell(result.map_err(|e| Failure { reason: "KillContainerError", message: e.to_string() }));
        });
    }

    /// Removes all that is left of a pod that has ended: from the runtime, its directory, its logs.
    ///
    /// # Errors
    /// When something stays; to be tried again.
    pub fn remove(&self, target: &Target, memory: &mut Memory) -> Result<(), Error> {
        let observed = self.observe(target.uid(), memory, None)?;
        memory.acted = Some(Instant::now());
        for c in &observed.containers {
            self.remove_container(target.name(), c)?;
        }
        for status in &observed.sandboxes {
            self.cri.remove_pod_sandbox(&status.sandbox.id)?;
        }
        memory.acted = Some(Instant::now());
        let directory = self.node.paths.pod(target.uid());
        remove_tree(&directory).map_err(|e| Error::io("removing", &directory, e))?;
        let logs = self.node.paths.pod_logs(target.uid(), target.name());
        remove_tree(&logs).map_err(|e| Error::io("removing", &logs, e))?;
        // Look once more, so that the cache knows that it is gone.
        self.observe(target.uid(), memory, None)?;
        Ok(())
    }
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

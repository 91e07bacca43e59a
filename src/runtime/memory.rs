//! What is remembered of a pod between two syncs, beyond what the runtime shows. It travels with
//! the pod's job to a worker and back, so nobody has to lock it.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Instant;

use super::kill::{HookState, Killing};
use super::record::Kept;
use super::resize::Resizing;
use crate::backoff::Backoff;
use crate::cri::{ContainerId, SandboxId};
use crate::pod::{Pod, PodUid};
use crate::status::{PodFailure, Waiting};

/// Work for a pod on a lane.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Op {
    StopContainer(ContainerId),
    PreStop(ContainerId),
    PostStart(ContainerId),
    /// Getting an image; what came of it is asked of `image::Images`.
    Image,
    /// Nothing was done: somebody asks for the restart of this container.
    Restart(String),
}

/// Work on a lane that has come to its end.
#[derive(Debug, Clone, PartialEq)]
pub struct Done {
    pub uid: PodUid,
    pub op: Op,
    pub at: Instant,
    pub result: Result<(), Failure>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failure {
    /// The kubelet's reason, as in a container's waiting state.
    pub reason: &'static str,
    pub message: String,
}

#[derive(Debug, Default)]
pub struct Memory {
    /// When the runtime was last made to change something: what was observed before is old.
    pub acted: Option<Instant>,
    /// Work that is on a lane.
    pub pending: HashSet<Op>,
    /// A stop on the lane failed; it is to be tried again, but not at once.
    pub stop_failed: Option<String>,
    /// Containers that are being killed.
    pub kills: HashMap<ContainerId, Killing>,
    /// Containers whose postStart hook has failed, which are to be killed for it.
    pub post_start_failed: HashMap<ContainerId, Failure>,
    /// When containers were started that this agent has started.
    pub started: HashMap<ContainerId, Instant>,
    /// Restarts of containers, by name and hash.
    pub restarts: HashMap<String, Backoff>,
    /// Why containers have not been started, by name.
    pub waiting: HashMap<String, Waiting>,
    /// Names of containers that somebody wants to be restarted, and that have not been looked at yet.
    pub asked_to_restart: HashSet<String>,
    /// Containers that are to be killed for that.
    pub ordered: HashSet<ContainerId>,
    /// Containers that were killed to be started again.
    pub killed_to_restart: HashSet<ContainerId>,
    /// Of those, the ones that are started again at once: when they were killed, their name's last wait
    /// was over. The end of the others counts as a failure.
    pub restarted_at_once: HashSet<ContainerId>,
    /// What containers left as their termination messages.
    pub messages: HashMap<ContainerId, String>,
    /// The pod has failed as a whole, and is to end.
    pub failed: Option<PodFailure>,
    /// Since when the pod has been active, as far as its deadline is concerned.
    pub active_since: Option<Instant>,
    /// What of the pod's status is on disk.
    pub kept: Option<Kept>,
    /// Sandboxes whose resources the runtime has been told to release.
    pub stopped: HashSet<SandboxId>,
    /// The pod of which a record is on disk.
    pub recorded: Option<Arc<Pod>>,
    /// A resize that has not come to its end.
    pub resizing: Option<Resizing>,
    /// What went wrong at the last sync, to be told once.
    pub told: Option<String>,
    /// Names that the runtime holds on to though nothing bears them: added to attempt numbers.
    pub reserved: HashMap<String, u32>,
}

impl Memory {
    /// Takes in what has come to its end on the lanes.
    pub fn learn(&mut self, done: Vec<Done>) {
        for Done { op, at, result, .. } in done {
            self.pending.remove(&op);
            self.acted = Some(self.acted.map_or(at, |a| a.max(at)));
            match (op, result) {
                (Op::StopContainer(_), Ok(())) => {}
                (Op::StopContainer(id), Err(failure)) => {
                    if let Some(killing) = self.kills.get_mut(&id) {
                        killing.stopping = None;
                    }
                    self.stop_failed = Some(format!("stopping container {id}: {}", failure.message));
                }
                (Op::PreStop(id), _) => {
                    if let Some(killing) = self.kills.get_mut(&id) {
                        killing.hook = HookState::Over;
                    }
                }
                (Op::PostStart(_), Ok(())) | (Op::Image, _) => {}
                (Op::Restart(name), _) => _ = self.asked_to_restart.insert(name),
                (Op::PostStart(id), Err(failure)) => {
                    self.post_start_failed.insert(id, failure);
                }
            }
        }
    }
}

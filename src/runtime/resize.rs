//! Gives a pod that runs the resources that it asks for by now, in place where that can be done
//! (pkg/kubelet/kuberuntime/kuberuntime_manager.go `doPodResizeAction`; the kubelet doesn't do it for
//! static pods). What a pod has is what its record on disk says, so a resize that was begun is taken
//! up again after a restart of the agent.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use super::memory::Memory;
use super::plan::{Kill, Why, which};
use super::{Error, Runtime};
use crate::cgroup::{self, Values};
use crate::cri::ContainerId;
use crate::pleg::Observed;
use crate::pod::Pod;
use crate::pod::resize::{self, Change};
use crate::status::events;

/// How long to wait until it is looked again whether memory can be taken away.
const RETRY: Duration = Duration::from_secs(5);

/// A resize that has not come to its end.
#[derive(Debug, Default)]
pub struct Resizing {
    /// Containers that are killed for it, to be started with what they are to have.
    restarting: HashSet<ContainerId>,
    /// Why it can't be done just now.
    pub waits: Option<String>,
}

/// What is still to be done for it.
#[derive(Debug, Default)]
pub(super) struct ToDo {
    pub kill: Vec<Kill>,
    /// To be looked at again after so long.
    pub again: Option<Duration>,
}

impl Runtime {
    /// Takes the resize of a pod a step further, and begins it when the pod asks for other resources
    /// than it has.
    ///
    /// # Errors
    /// When the runtime or a cgroup doesn't do it; to be tried again.
    pub(super) fn resize(&self, pod: &Arc<Pod>, memory: &mut Memory, observed: &Observed) -> Result<ToDo, Error> {
        let Some(old) = memory.recorded.clone().filter(|old| resize::differ(&old.spec, &pod.spec)) else {
            return Ok(ToDo::default());
        };
        if let Some(resizing) = memory.resizing.as_mut().filter(|r| !r.restarting.is_empty()) {
            let alive =
                |id: &ContainerId| observed.containers.iter().any(|c| c.is_alive() && c.status.container.id == *id);
            resizing.restarting.retain(alive);
            return match resizing.restarting.is_empty() {
                true => self.has_resized(pod, memory).map(|()| ToDo::default()),
                false => Ok(ToDo::default()),
            };
        }
        let running = |name: &str| observed.newest(name).filter(|c| c.is_running());
        let observe = |name: &str| resize::Observed {
            running: running(name).is_some(),
            memory_usage: running(name).and_then(|c| self.memory_usage(pod, &c.status.container.id)),
        };
        let Some(changes) = resize::decide(&old, pod, observe) else { return Ok(ToDo::default()) };
        if memory.resizing.is_none() {
            events::record(events::Kind::Normal, &pod.name, "ResizeStarted", "Its resources have changed");
        }
        let (has, wants) = (Values::of_pod(&old.spec, &self.policy), Values::of_pod(&pod.spec, &self.policy));
        // No container can have more than its pod.
        self.cgroups.update_pod(pod, &has.widest(&wants))?;
        let mut resizing = Resizing::default();
        let mut todo = ToDo::default();
        for (name, change) in &changes {
            let (Some(c), Some(spec)) = (running(name), pod.container(name)) else { continue };
            let id = &c.status.container.id;
            match change {
                Change::Keep => {}
                Change::UpdateInPlace => {
                    let resources = cgroup::container::resources(pod, &spec, &self.policy);
                    self.cri.update_container_resources(id, &resources)?;
                }
                Change::Restart => {
                    resizing.restarting.insert(id.clone());
                    let Some(which) = which(pod, name) else { continue };
                    todo.kill.push(Kill { id: id.clone(), which, why: Why::Resized, restart: true });
                }
                Change::Wait { usage, limit } => {
                    resizing.waits =
                        Some(format!("container {name} uses {usage} bytes of memory, and is to have {limit}"));
                    todo.again = Some(RETRY);
                }
            }
        }
        let is_done = resizing.restarting.is_empty() && resizing.waits.is_none();
        memory.resizing = Some(resizing);
        if is_done {
            self.has_resized(pod, memory)?;
        }
        Ok(todo)
    }

    fn memory_usage(&self, pod: &Pod, id: &ContainerId) -> Option<u64> {
        Some(self.cgroups.container_stats(pod, id.as_str())?.memory?.working_set)
    }

    fn has_resized(&self, pod: &Arc<Pod>, memory: &mut Memory) -> Result<(), Error> {
        self.cgroups.update_pod(pod, &Values::of_pod(&pod.spec, &self.policy))?;
        memory.resizing = None;
        events::record(events::Kind::Normal, &pod.name, "ResizeCompleted", "It has the resources that it asks for");
        self.keep_record(pod, memory)
    }

    /// Nothing of the pod runs, and all of it is made anew: there is nothing to be resized.
    pub(super) fn forget_resize(&self, pod: &Pod, memory: &mut Memory) -> Result<(), Error> {
        memory.resizing = None;
        if memory.recorded.take_if(|old| old.spec != pod.spec).is_some() && self.cgroups.exists(&pod.uid) {
            self.cgroups.update_pod(pod, &Values::of_pod(&pod.spec, &self.policy))?;
        }
        Ok(())
    }
}

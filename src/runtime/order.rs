//! Restarts that people ask for. A container that runs is stopped as any other one, with its hook and
//! its grace period, and one that waits to be tried again has waited long enough: whoever asks has
//! mended something. It is no failure, so no crash loop begins with it.

use super::memory::Memory;
use super::start::restarts_key;
use crate::pleg::Observed;
use crate::pod::{Pod, core, is_sidecar};

/// Whether a container is one that can be restarted: one that is to run as long as its pod does.
pub fn may_be_ordered(pod: &Pod, name: &str) -> bool {
    let named = |c: &&core::Container| c.name == name;
    pod.containers().iter().any(|c| named(&c)) || pod.init_containers().iter().find(named).is_some_and(is_sidecar)
}

/// Takes what was asked for into what the plan looks at.
pub(super) fn take(pod: &Pod, memory: &mut Memory, observed: &Observed) {
    for name in std::mem::take(&mut memory.asked_to_restart) {
        let Some(spec) = pod.container(&name).filter(|_| may_be_ordered(pod, &name)) else { continue };
        memory.restarts.remove(&restarts_key(&spec));
        memory.waiting.remove(&name);
        let Some(newest) = observed.newest(&name) else { continue };
        let id = newest.status.container.id.clone();
        match newest.is_alive() {
            true => memory.ordered.insert(id),
            false => memory.killed_to_restart.insert(id),
        };
    }
}

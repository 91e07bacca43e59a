//! Removing what a pod has left behind while it goes on: containers that were replaced, and the
//! sandboxes that nothing is in any more (pkg/kubelet/kuberuntime/kuberuntime_gc.go).

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::Instant;

use super::memory::Memory;
use super::{Paths, Runtime, logs, paths};
use crate::cgroup;
use crate::cri::{self, ContainerState};
use crate::pleg::{Observed, ObservedContainer};
use crate::pod::{Pod, PodName, PodUid};

/// A pod of which something is on disk.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Left {
    pub uid: PodUid,
    /// Known from the logs alone.
    pub name: Option<PodName>,
}

impl Runtime {
    /// Of each name the newest dead container stays, for its logs and its exit; of the sandboxes the
    /// newest, and those with a container. What can't be removed now is so at the next sync.
    pub(super) fn clean(&self, pod: &Pod, memory: &mut Memory, observed: &Observed) {
        let (containers, sandboxes) = superseded(observed);
        for container in containers {
            memory.acted = Some(Instant::now());
            if let Err(e) = self.remove_container(&pod.uid, &pod.name, container) {
                log::warn!("{}: removing a dead container: {e}", pod.name);
            }
        }
        for sandbox in sandboxes {
            memory.acted = Some(Instant::now());
            let removed = self.cri.stop_pod_sandbox(sandbox).and_then(|()| self.cri.remove_pod_sandbox(sandbox));
            if let Err(e) = removed {
                log::warn!("{}: removing a dead sandbox: {e}", pod.name);
            }
        }
    }

    /// Removes a container from the runtime, with its log.
    pub(super) fn remove_container(
        &self,
        uid: &PodUid,
        name: &PodName,
        container: &ObservedContainer,
    ) -> cri::Result<()> {
        let status = &container.status;
        self.cri.remove_container(&status.container.id)?;
        let message =
            self.node.paths.termination_log(uid, &status.container.name, status.container.notes.restart_count);
        let link = paths::Paths::log_link(name, &status.container.name, status.container.id.as_str());
        let log = (!status.log_path.is_empty()).then(|| PathBuf::from(&status.log_path));
        let rotated = log.as_ref().and_then(|log| logs::rotated(log).ok()).unwrap_or_default();
        for path in log.into_iter().chain(rotated).chain([link, message]) {
            match fs::remove_file(&path) {
                Err(e) if e.kind() != std::io::ErrorKind::NotFound => log::warn!("{}: {e}", path.display()),
                _ => {}
            }
        }
        Ok(())
    }
}

/// The pods of which there is something on disk, by the names of directories. Links to logs that are
/// gone are removed on the way.
pub fn survey(paths: &Paths, cgroups: &cgroup::Manager) -> Vec<Left> {
    let names = |directory: &Path| -> Vec<String> {
        let entries = fs::read_dir(directory).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    };
    let mut left: Vec<_> = names(paths.logs()).iter().filter_map(|name| of_log_directory(name)).collect();
    let pods =
        names(&paths.pods()).into_iter().filter_map(|uid| Some(Left { uid: PodUid::checked(&uid)?, name: None }));
    left.extend(pods.filter(|pod| !left.iter().any(|l| l.uid == pod.uid)).collect::<Vec<_>>());
    match cgroups.pods() {
        Ok(uids) => {
            let unknown: Vec<_> = uids.into_iter().filter(|uid| !left.iter().any(|l| l.uid == *uid)).collect();
            left.extend(unknown.into_iter().map(|uid| Left { uid, name: None }));
        }
        Err(e) => log::warn!("looking for cgroups of pods: {e}"),
    }
    for name in names(Paths::container_logs()) {
        let link = Paths::container_logs().join(name);
        let target = fs::read_link(&link).ok().filter(|target| target.starts_with(paths.logs()));
        if target.is_some_and(|target| matches!(target.try_exists(), Ok(false))) {
            if let Err(e) = fs::remove_file(&link) {
                log::debug!("{}: {e}", link.display());
            }
        }
    }
    left
}

/// `NAMESPACE_NAME_UID`; no part has an underscore.
fn of_log_directory(name: &str) -> Option<Left> {
    let (namespace, rest) = name.split_once('_')?;
    let (pod, uid) = rest.split_once('_')?;
    if [namespace, pod, uid].iter().any(|part| part.contains('_')) {
        return None;
    }
    Some(Left { uid: PodUid::checked(uid)?, name: Some(PodName::checked(namespace, pod)?) })
}

/// What nothing is known by any more.
fn superseded(observed: &Observed) -> (Vec<&ObservedContainer>, Vec<&cri::SandboxId>) {
    let dead = |c: &&ObservedContainer| matches!(c.state(), ContainerState::Exited | ContainerState::Created);
    let mut seen = HashSet::new();
    // The newest of all is what the status tells of, alive or dead; one dead one before it is kept.
    let mut kept_dead = HashSet::new();
    let mut containers = Vec::new();
    for c in &observed.containers {
        let name = &*c.status.container.name;
        let newest = seen.insert(name);
        if !newest && dead(&c) && !kept_dead.insert(name) {
            containers.push(c);
        }
    }
    let removed: HashSet<_> = containers.iter().map(|c| &c.status.container.id).collect();
    let used: HashSet<_> = observed
        .containers
        .iter()
        .filter(|c| !removed.contains(&c.status.container.id))
        .map(|c| &c.status.container.sandbox)
        .collect();
    let old = observed.sandboxes.iter().skip(1).filter(|s| !s.sandbox.ready && !used.contains(&s.sandbox.id));
    (containers, old.map(|s| &s.sandbox.id).collect())
}

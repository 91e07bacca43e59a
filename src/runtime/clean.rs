//! Removing what a pod has left behind while it goes on: containers that were replaced, and the
//! sandboxes that nothing is in any more (pkg/kubelet/kuberuntime/kuberuntime_gc.go).

use std::collections::{HashMap, HashSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use super::memory::Memory;
use super::{Paths, Runtime, logs, paths};
use crate::cgroup;
use crate::cri::{self, ContainerState};
use crate::pleg::{Dead, Observed, ObservedContainer};
use crate::pod::{Pod, PodName, PodUid};

/// A pod of which something is on disk.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Left {
    pub uid: PodUid,
    /// Known from the logs alone.
    pub name: Option<PodName>,
}

impl Runtime {
    /// Of each name the newest container stays, for its logs and its exit, and as many dead ones before it
    /// as the configuration says; of the sandboxes the newest, and those with a container. What can't be
    /// removed now is so at the next sync.
    pub(super) fn clean(&self, pod: &Pod, memory: &mut Memory, observed: &Observed) {
        let each = self.dead_containers.total.map_or(self.dead_containers.each, |total| {
            let of_node = self.cache.dead_containers();
            share(self.dead_containers.each, total, of_node)
        });
        let (containers, sandboxes) = superseded(observed, each, self.dead_containers.min_age, Instant::now());
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

/// How many earlier instances each container may keep where the node may keep `total`. With too many of
/// them each has the same share, as with the kubelet; the newest of each is no one's to take.
fn share(each: Option<usize>, total: usize, of_node: Dead) -> Option<usize> {
    match of_node.earlier <= total {
        true => each,
        false => {
            let share = total / of_node.names.max(1);
            Some(each.map_or(share, |each| each.min(share)))
        }
    }
}

/// What nothing is known by any more.
fn superseded(
    observed: &Observed,
    each: Option<usize>,
    min_age: Duration,
    now: Instant,
) -> (Vec<&ObservedContainer>, Vec<&cri::SandboxId>) {
    let dead = |c: &&ObservedContainer| matches!(c.state(), ContainerState::Exited | ContainerState::Created);
    let mut seen = HashSet::new();
    let is_old = |c: &ObservedContainer| c.exited_seen.is_none_or(|at| now.saturating_duration_since(at) >= min_age);
    // The newest of all is what the status tells of, alive or dead.
    let mut kept: HashMap<&str, usize> = HashMap::new();
    let mut containers = Vec::new();
    for c in &observed.containers {
        let name = &*c.status.container.name;
        let newest = seen.insert(name);
        if newest || !dead(&c) {
            continue;
        }
        let kept = kept.entry(name).or_default();
        match is_old(c) && each.is_some_and(|each| *kept >= each) {
            true => containers.push(c),
            false => *kept += 1,
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cri::{Container, ContainerId, ContainerStatus, PodRef, SandboxId, UnixNanos};

    /// Containers of one name, the newest first, that ended so many seconds before now; 0 still runs.
    fn observed(ages: &[u64], now: Instant) -> Observed {
        let container = |(index, age): (usize, &u64)| {
            let state = if *age == 0 { ContainerState::Running } else { ContainerState::Exited };
            let container = Container {
                id: ContainerId::new(index.to_string()),
                sandbox: SandboxId::new("s"),
                pod: PodRef {
                    uid: PodUid::new("u"),
                    name: PodName { namespace: "default".into(), name: "web".into() },
                },
                name: "main".into(),
                attempt: 0,
                state,
                created_at: UnixNanos::default(),
                notes: std::sync::Arc::default(),
            };
            ObservedContainer {
                status: ContainerStatus {
                    container,
                    started_at: UnixNanos::default(),
                    finished_at: UnixNanos::default(),
                    exit_code: 0,
                    reason: String::new(),
                    message: String::new(),
                    image: String::new(),
                    image_ref: String::new(),
                    log_path: String::new(),
                },
                exited_seen: (*age > 0).then(|| now - Duration::from_secs(*age)),
            }
        };
        Observed { containers: ages.iter().enumerate().map(container).collect(), ..Observed::empty(now) }
    }

    #[test]
    fn dead_containers_that_are_kept() {
        let now = Instant::now() + Duration::from_secs(1000);
        type Row = (&'static [u64], Option<usize>, u64, &'static [&'static str]);
        let table: [Row; 7] = [
            (&[0, 1, 2, 3], Some(1), 0, &["2", "3"]),
            (&[1, 2, 3], Some(1), 0, &["2"]),
            (&[0, 1, 2], Some(0), 0, &["1", "2"]),
            (&[5], Some(0), 0, &[]),
            (&[0, 1, 2, 3], None, 0, &[]),
            (&[0, 1, 20, 30], Some(1), 10, &["2", "3"]),
            (&[0, 1, 2, 30], Some(0), 10, &["3"]),
        ];
        for (ages, each, min_age, want) in table {
            let observed = observed(ages, now);
            let (removed, _) = superseded(&observed, each, Duration::from_secs(min_age), now);
            let ids: Vec<_> = removed.iter().map(|c| c.status.container.id.as_str()).collect();
            assert_eq!(ids, want, "{ages:?} {each:?} {min_age}");
        }
    }

    #[test]
    fn shares_of_the_nodes_limit() {
        let dead = |earlier, names| Dead { earlier, names };
        assert_eq!(share(Some(1), 10, dead(10, 10)), Some(1));
        assert_eq!(share(Some(5), 10, dead(20, 4)), Some(2));
        assert_eq!(share(None, 10, dead(20, 4)), Some(2));
        assert_eq!(share(Some(1), 3, dead(20, 4)), Some(0));
    }
}

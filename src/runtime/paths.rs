//! Where things of a pod lie on disk (pkg/kubelet/kubelet_getters.go, kuberuntime/helpers.go).

use std::path::{Path, PathBuf};

use crate::pod::{PodName, PodUid};

/// Links to all container logs by container, for log collectors.
const CONTAINER_LOGS: &str = "/var/log/containers";
/// What a file name may have.
const MAX_NAME: usize = 255;

#[derive(Debug, Clone)]
pub struct Paths {
    root: PathBuf,
    logs: PathBuf,
}

impl Paths {
    /// `root`: the agent's own directory; `logs`: `podLogsDir`.
    pub fn new(root: &Path, logs: &Path) -> Paths {
        Paths { root: root.to_owned(), logs: logs.to_owned() }
    }

    pub fn pods(&self) -> PathBuf {
        self.root.join("pods")
    }

    pub fn pod(&self, uid: &PodUid) -> PathBuf {
        self.pods().join(uid.as_str())
    }

    /// The agent's record of the pod, from which it knows it again.
    pub fn record(&self, uid: &PodUid) -> PathBuf {
        self.pod(uid).join("pod.json")
    }

    pub fn volumes(&self, uid: &PodUid) -> PathBuf {
        self.pod(uid).join("volumes")
    }

    /// What a container writes as its termination message.
    pub fn termination_log(&self, uid: &PodUid, container: &str, restart_count: i32) -> PathBuf {
        self.pod(uid).join("containers").join(container).join(format!("{restart_count}.message"))
    }

    /// The pod's status as it was last kept.
    pub fn status(&self, uid: &PodUid) -> PathBuf {
        self.pod(uid).join("status.json")
    }

    /// The text of the pod's /etc/hosts.
    pub fn etc_hosts(&self, uid: &PodUid) -> PathBuf {
        self.pod(uid).join("etc-hosts")
    }

    /// The range of IDs of a pod with a user namespace of its own.
    pub fn user_namespace(&self, uid: &PodUid) -> PathBuf {
        self.pod(uid).join("userns")
    }

    /// Seccomp profiles of the node, for containers that name one.
    pub fn seccomp(&self) -> PathBuf {
        self.root.join("seccomp")
    }

    pub fn logs(&self) -> &Path {
        &self.logs
    }

    pub fn pod_logs(&self, uid: &PodUid, name: &PodName) -> PathBuf {
        self.logs.join(format!("{}_{}_{uid}", name.namespace, name.name))
    }

    pub fn container_logs() -> &'static Path {
        Path::new(CONTAINER_LOGS)
    }

    /// The link to a container's log in [`Paths::container_logs`].
    pub fn log_link(name: &PodName, container: &str, id: &str) -> PathBuf {
        let extension = ".log";
        let stem = format!("{}_{}_{container}-{id}", name.name, name.namespace);
        let stem: String = stem.chars().take(MAX_NAME - extension.len()).collect();
        Path::new(CONTAINER_LOGS).join(stem + extension)
    }
}

/// A container's log, below its pod's log directory.
pub fn log_file(container: &str, restart_count: i32) -> String {
    format!("{container}/{restart_count}.log")
}

/// The restart count that the log files in a container's log directory tell of: one more than the
/// highest; 0 when there are none. They outlive the runtime's own memory.
pub fn restart_count_from_logs(files: impl IntoIterator<Item = String>) -> i32 {
    let number = |name: &str| name.split('.').next().filter(|_| name.contains(".log"))?.parse::<i32>().ok();
    files.into_iter().filter_map(|name| number(&name)).max().map_or(0, |n| n.saturating_add(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_logs() {
        let name = PodName::new("default", "web-edge-1");
        let paths = Paths::new(Path::new("/var/lib/cleat"), Path::new("/var/log/pods"));
        assert_eq!(paths.pod_logs(&PodUid::new("u1"), &name), Path::new("/var/log/pods/default_web-edge-1_u1"));
        assert_eq!(log_file("main", 3), "main/3.log");
        let link = Paths::log_link(&name, "main", "0123");
        assert_eq!(link, Path::new("/var/log/containers/web-edge-1_default_main-0123.log"));
        let long = Paths::log_link(&PodName::new("default", "x".repeat(300)), "main", "0123");
        assert_eq!(long.file_name().map(|n| n.len()), Some(255));
    }

    #[test]
    fn restart_counts() {
        let count = |files: &[&str]| restart_count_from_logs(files.iter().map(|f| (*f).to_owned()));
        assert_eq!(count(&[]), 0);
        assert_eq!(count(&["0.log"]), 1);
        assert_eq!(count(&["0.log", "10.log", "9.log", "x.log", "11.txt"]), 11);
        assert_eq!(count(&["4.log.20260101-000000.gz"]), 5);
    }
}

//! What the node, its pods and their containers use, read when somebody asks: `/stats/summary`,
//! `/metrics/cadvisor` and `/metrics/resource` show it.
//!
//! Of CPU and memory cgroups tell; the runtime tells what containers have written, and stands in
//! where there are no pod cgroups.

mod node;
mod rates;
mod series;
mod summary;
mod volumes;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Instant;

use jiff::Timestamp;
use rustix::fs::statvfs;

pub use node::{Interface, Machine};
pub use rates::{CLOSE, Rate, Rates};
pub use series::{cadvisor, resource};
pub use summary::summary;
pub use volumes::VolumeUsage;

use super::Parts;
use crate::cgroup::stats::{Memory, Stats};
use crate::cri::{self, ContainerUsage, UnixNanos};
use crate::pleg::ObservedContainer;
use crate::pod::Pod;
use crate::runtime::Runtime;
use crate::runtime::logs;

/// All of it at one time.
#[derive(Debug)]
pub struct Usage {
    pub at: Timestamp,
    pub machine: Machine,
    /// Of all pods together.
    pub all_pods: Option<Stats>,
    pub pods: Vec<PodUsage>,
    /// The runtime did not answer: what only it knows is missing.
    pub incomplete: bool,
}

#[derive(Debug)]
pub struct PodUsage {
    pub pod: Arc<Pod>,
    pub started: UnixNanos,
    pub cgroup: String,
    pub stats: Stats,
    /// `None` for pods on the host's network.
    pub network: Option<Vec<Interface>>,
    pub containers: Vec<ContainerStats>,
    /// Those in its directory, if storage was asked for.
    pub volumes: Vec<VolumeUsage>,
}

#[derive(Debug)]
pub struct ContainerStats {
    pub id: String,
    pub name: Arc<str>,
    pub image: String,
    pub started: UnixNanos,
    pub stats: Stats,
    /// What it has written outside of volumes.
    pub rootfs: cri::Usage,
    /// Bytes of its log, rotated files included.
    pub logs: u64,
}

/// What is free and used on a file system.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Filesystem {
    /// Bytes.
    pub available: u64,
    pub capacity: u64,
    pub used: u64,
    /// Counts.
    pub inodes: u64,
    pub inodes_free: u64,
}

impl Filesystem {
    pub fn of(path: &std::path::Path) -> Option<Filesystem> {
        let fs = statvfs(path).ok()?;
        let bytes = |blocks: u64| blocks.saturating_mul(fs.f_frsize);
        Some(Filesystem {
            available: bytes(fs.f_bavail),
            capacity: bytes(fs.f_blocks),
            used: bytes(fs.f_blocks.saturating_sub(fs.f_bfree)),
            inodes: fs.f_files,
            inodes_free: fs.f_ffree,
        })
    }
}

/// Asks the kernel and the runtime. `storage`: also for what is on disk, which takes longer.
pub fn read(parts: &Parts, storage: bool) -> Usage {
    let runtime = &parts.runtime;
    let from_runtime = parts.inspect.list_container_stats();
    if let Err(e) = &from_runtime {
        log::warn!("asking for statistics of containers: {e}");
    }
    let incomplete = from_runtime.is_err();
    let of_runtime = from_runtime.unwrap_or_default();
    let by_id: HashMap<&str, &ContainerUsage> = of_runtime.iter().map(|usage| (usage.id.as_str(), usage)).collect();
    let pods = parts.store.list();
    let mut left = if storage { volumes::MOST } else { 0 };
    let mut pod_usage = |pod: &Arc<Pod>| {
        let mut usage = pod_usage(runtime, pod, &by_id, storage)?;
        if storage {
            usage.volumes = volumes::read(&runtime.node.paths.volumes(&pod.uid), &mut left);
        }
        Some(usage)
    };
    let pods = pods.iter().filter_map(|stored| pod_usage(&stored.pod)).collect();
    Usage { at: Timestamp::now(), machine: node::read(), all_pods: runtime.cgroups.all_pods_stats(), pods, incomplete }
}

/// `None` for a pod of which nothing runs.
fn pod_usage(
    runtime: &Runtime,
    pod: &Arc<Pod>,
    by_id: &HashMap<&str, &ContainerUsage>,
    storage: bool,
) -> Option<PodUsage> {
    let (observed, _) = runtime.cache.get(&pod.uid)?;
    let sandbox = observed.sandboxes.iter().find(|s| s.sandbox.ready)?;
    let running = observed.containers.iter().filter(|c| c.is_running());
    let containers: Vec<_> =
        running.map(|c| container_stats(runtime, pod, c, by_id.get(c.status.container.id.as_str()), storage)).collect();
    let stats = runtime.cgroups.pod_stats(pod).unwrap_or_else(|| sum(containers.iter().map(|c| c.stats)));
    let process = || runtime.cgroups.sandbox_process(pod, sandbox.sandbox.id.as_str());
    let network = (!pod.host_network()).then(process).flatten().map(node::interfaces_of);
    let cgroup = runtime.cgroups.pod_cgroup(pod).unwrap_or_default();
    Some(PodUsage {
        pod: pod.clone(),
        started: sandbox.sandbox.created_at,
        cgroup,
        stats,
        network,
        containers,
        volumes: Vec::new(),
    })
}

fn container_stats(
    runtime: &Runtime,
    pod: &Pod,
    container: &ObservedContainer,
    of_runtime: Option<&&ContainerUsage>,
    storage: bool,
) -> ContainerStats {
    let status = &container.status;
    let id = status.container.id.as_str();
    let stats = runtime.cgroups.container_stats(pod, id).or_else(|| of_runtime.map(|usage| stats_of(usage)));
    ContainerStats {
        id: id.to_owned(),
        name: status.container.name.clone(),
        image: status.image.clone(),
        started: status.started_at,
        stats: stats.unwrap_or_default(),
        rootfs: of_runtime.map(|usage| usage.writable_layer).unwrap_or_default(),
        logs: if storage { log_size(&status.log_path) } else { 0 },
    }
}

fn stats_of(usage: &ContainerUsage) -> Stats {
    let memory = usage.working_set.map(|working_set| Memory {
        usage: usage.memory.unwrap_or(working_set),
        working_set,
        rss: usage.rss.unwrap_or_default(),
        page_faults: usage.page_faults.unwrap_or_default(),
        major_page_faults: usage.major_page_faults.unwrap_or_default(),
        limit: None,
    });
    Stats { cpu: usage.cpu, memory, pids: None }
}

/// What is not known of one of them is left out.
fn sum(all: impl Iterator<Item = Stats>) -> Stats {
    let add = |a: Option<u64>, b: Option<u64>| a.map_or(b, |a| Some(a.saturating_add(b.unwrap_or(0))));
    all.fold(Stats::default(), |total, one| Stats {
        cpu: add(total.cpu, one.cpu),
        memory: match (total.memory, one.memory) {
            (Some(a), Some(b)) => Some(Memory {
                usage: a.usage.saturating_add(b.usage),
                working_set: a.working_set.saturating_add(b.working_set),
                rss: a.rss.saturating_add(b.rss),
                page_faults: a.page_faults.saturating_add(b.page_faults),
                major_page_faults: a.major_page_faults.saturating_add(b.major_page_faults),
                limit: None,
            }),
            (a, b) => a.or(b),
        },
        pids: add(total.pids, one.pids),
    })
}

fn log_size(path: &str) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let path = std::path::Path::new(path);
    let files = logs::rotated(path).unwrap_or_default();
    let sizes = files.iter().map(std::path::PathBuf::as_path).chain([path]);
    // One that is removed meanwhile takes nothing.
    sizes.filter_map(|path| std::fs::symlink_metadata(path).ok()).map(|meta| meta.blocks() * 512).sum()
}

/// Rates of what only grows, between this reading and the last one.
pub fn rate(parts: &Parts, id: &str, cpu: Option<u64>, now: Instant) -> Option<Rate> {
    parts.rates.observe(id, cpu?, now)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums() {
        let memory = |n| Memory { usage: n, working_set: n, rss: n, page_faults: n, major_page_faults: n, limit: None };
        let one = Stats { cpu: Some(1), memory: Some(memory(2)), pids: None };
        let none = Stats::default();
        assert_eq!(sum([].into_iter()), none);
        assert_eq!(sum([none, one].into_iter()), one);
        let two = Stats { cpu: Some(2), memory: Some(memory(4)), pids: None };
        assert_eq!(sum([one, none, one].into_iter()), two);
    }
}

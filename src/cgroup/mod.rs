//! The cgroups of pods: `/kubepods`, below it a cgroup for each QoS class but Guaranteed, and in
//! those one for each pod, in which the runtime makes those of containers. What is written into
//! them is decided by pure functions (`cpu`, `oom`, `values`, `container`); `tree` makes, writes and
//! removes, on cgroup v1, hybrid and v2; `systemd` asks systemd for it; `Manager` brings them
//! together (pkg/kubelet/cm).
//!
//! Knows nothing of the runtime's containers but the messages that describe their resources, and
//! nothing of when a pod begins and ends.

pub mod container;
pub mod cpu;
mod files;
pub mod hierarchy;
mod manager;
mod name;
pub mod oom;
pub mod policy;
pub mod stats;
mod systemd;
#[cfg(test)]
mod tests;
mod tree;
pub mod values;

use std::path::{Path, PathBuf};

pub use hierarchy::{Hierarchy, Version};
pub use manager::Manager;
pub use policy::Policy;
pub use values::Values;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(
        "this machine's kernel offers no cgroup controller {}; enable it in the kernel or on its command line \
         (cgroup_enable=memory, on some boards), or set cgroupsPerQOS to false",
        .0.join(", ")
    )]
    NoControllers(Vec<&'static str>),
    #[error("this machine has cgroup v1, which failCgroupV1 forbids")]
    VersionOne,
    #[error("no cgroups are mounted; mount cgroup2 at /sys/fs/cgroup, or set cgroupsPerQOS to false")]
    NotMounted,
    #[error("{what} {}: {source}", path.display())]
    Io { what: &'static str, path: PathBuf, source: std::io::Error },
    #[error("writing {value:?} to {}: {source}", path.display())]
    Write { path: PathBuf, value: String, source: std::io::Error },
    #[error("cgroup {0} is not there; make it, or change the configuration that names it")]
    NotThere(String),
    #[error("cgroup {path} could not be removed: {left} are still in it")]
    Busy { path: String, left: Left },
    #[error("asking systemd to {what} {unit}: {message}")]
    Systemd { what: &'static str, unit: String, message: String },
}

/// What keeps a cgroup from being removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Left {
    /// So many, that were killed but didn't end: they wait for the kernel.
    Processes(usize),
    Cgroups(usize),
}

impl std::fmt::Display for Left {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Left::Processes(n) => write!(f, "{n} killed processes"),
            Left::Cgroups(n) => write!(f, "{n} cgroups"),
        }
    }
}

impl Error {
    fn io(what: &'static str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
        move |source| Error::Io { what, path: path.to_owned(), source }
    }
}

pub type Result<T> = std::result::Result<T, Error>;

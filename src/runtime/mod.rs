//! A pod in the runtime: what is to be done for it (`plan`, pure) and doing it (`sync`,
//! `terminate`), by blocking calls on a worker's thread. What can take long goes to a lane.
//!
//! Knows nothing of where pods come from, nor of other pods.

mod clean;
mod hook;
mod host;
mod kill;
pub mod logs;
pub mod memory;
mod message;
mod order;
mod paths;
pub mod plan;
mod record;
pub mod request;
mod resize;
mod start;
mod sync;
mod terminate;
mod users;

use std::sync::Arc;
use std::time::Duration;

use crossbeam::channel::Sender;

pub use clean::{Left, survey};
pub use host::HostFiles;
pub use memory::{Done, Memory, Op};
pub use order::may_be_ordered;
pub use paths::{Paths, log_file};
pub use record::{Kept, Known, keep_end, read_all as read_records};
pub use request::Node;
pub use sync::{Next, Synced};
pub use terminate::{Halt, Target};
pub use users::UserNamespaces;

use crate::cgroup;
use crate::config::DeadContainers;
use crate::cri::{self, Cri};
use crate::image::Images;
use crate::lane::Lane;
use crate::local;
use crate::pleg::{Cache, Health};
use crate::probe;

pub struct Runtime {
    pub cri: Arc<dyn Cri>,
    pub cache: Arc<Cache>,
    pub health: Arc<Health>,
    pub node: Node,
    pub host: HostFiles,
    pub cgroups: Arc<cgroup::Manager>,
    pub policy: cgroup::Policy,
    pub users: UserNamespaces,
    /// What pods refer to.
    pub objects: local::Stores,
    pub probes: probe::Manager,
    /// Stops of containers, which last up to a grace period.
    pub stops: Lane,
    /// Hooks of containers, which last as long as they like.
    pub hooks: Lane,
    /// Names of hosts, for hooks.
    pub resolver: Arc<probe::Resolver>,
    pub images: Images,
    /// The longest wait between restarts of a container.
    pub crash_loop_max: Duration,
    pub dead_containers: DeadContainers,
    /// Where lanes tell that work is done.
    pub done: Sender<Done>,
}

/// Why a sync failed. It is tried again.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Cri(#[from] cri::Error),
    #[error(transparent)]
    Cgroup(#[from] cgroup::Error),
    #[error("{what} {path}: {source}")]
    Io { what: &'static str, path: String, source: std::io::Error },
    #[error("MountVolume.SetUp failed for volume {name:?} : {source}")]
    Volume { name: String, source: crate::volume::Error },
    #[error("{0}")]
    Config(#[from] request::ConfigError),
    #[error("{0}")]
    Start(String),
}

impl Error {
    fn io(what: &'static str, path: &std::path::Path, source: std::io::Error) -> Error {
        Error::Io { what, path: path.display().to_string(), source }
    }

    /// The runtime can't be reached: no fault of the pod's.
    pub fn is_unreachable(&self) -> bool {
        matches!(self, Error::Cri(e) if e.is_unreachable())
    }
}

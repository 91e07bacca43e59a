//! Who works on which pod when. `Workers` is the pure state machine: one state and one mailbox a
//! pod, never two jobs of one pod at once, never two pods of one name at once. `Pool` is the fixed
//! set of threads that carry the jobs out.

#[cfg(test)]
mod model;
mod pool;
#[cfg(test)]
mod tests;
mod workers;

use std::sync::Arc;
use std::time::Instant;

pub use pool::Pool;
pub use workers::{Finished, Workers};

use crate::pod::{Pod, PodUid, core};
use crate::runtime::{Done, Halt, Memory, Next, Target};

/// One thing to do for a pod.
#[derive(Debug)]
pub struct Job {
    pub uid: PodUid,
    pub kind: Kind,
    pub memory: Box<Memory>,
    /// What came to its end on lanes since the last job.
    pub done: Vec<Done>,
    /// What was observed before this is too old.
    pub fresh: Option<Instant>,
}

#[derive(Debug)]
pub enum Kind {
    /// Bring the pod to what it should be.
    Sync { pod: Arc<Pod>, before: Option<Arc<core::PodStatus>>, look_after: bool },
    /// Stop all of it.
    Terminate { target: Target, before: Option<Arc<core::PodStatus>>, halt: Option<Halt> },
    /// Remove what is left of it.
    Remove(Target),
}

impl Kind {
    /// It is for a pod that ends.
    fn is_ending(&self) -> bool {
        !matches!(self, Kind::Sync { .. })
    }
}

/// What came of a job.
#[derive(Debug)]
pub struct Report {
    pub uid: PodUid,
    /// The job was for a pod that ends.
    pub ending: bool,
    /// `None` when the worker failed in it: what was remembered is lost with it.
    pub memory: Option<Box<Memory>>,
    pub next: Result<Next, Failed>,
    pub status: Option<Arc<core::PodStatus>>,
}

/// Why a job failed. It is tried again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    pub message: String,
    /// The runtime can't be reached: worth no line a pod.
    pub unreachable: bool,
}

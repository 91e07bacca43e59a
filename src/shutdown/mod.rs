//! The end of all pods when the machine shuts down, in order and with time for it
//! (pkg/kubelet/nodeshutdown): those of the least priority first.
//!
//! `logind` is the rim: a thread that has systemd's logind wait, and hears from it. `plan` and `course`
//! say who ends when (pure); the sync loop does it.

mod course;
mod logind;
mod plan;
mod record;

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use crossbeam::channel::{Receiver, Sender, bounded};

pub use course::{Alive, Course};
pub use logind::{Settings, Watch};
pub use plan::Plan;
pub use record::Record;

/// What of the API shows (pkg/kubelet/nodeshutdown): of a pod that was ended, of one that comes too
/// late, and of the node.
pub const TERMINATED: &str = "Terminated";
pub const TERMINATED_MESSAGE: &str = "Pod was terminated in response to imminent node shutdown.";
pub const REFUSED: &str = "NodeShutdown";
pub const REFUSED_MESSAGE: &str = "Pod was rejected as the node is shutting down.";
pub const NODE_MESSAGE: &str = "node is shutting down";

/// What has the machine wait: it shuts down when this is dropped.
#[derive(Debug)]
pub struct Lock(#[expect(dead_code, reason = "it is held")] OwnedFd);

#[derive(Debug)]
pub enum Event {
    /// The machine is to shut down, and waits until the lock is dropped. Without one it doesn't wait.
    Begins(Option<Lock>),
    /// It is not to shut down any more.
    Cancelled,
}

/// Whether the machine is shutting down, for others than the sync loop, which sets it.
pub struct Flag {
    is_set: AtomicBool,
    changed: Sender<()>,
}

impl Flag {
    /// And where its changes are heard.
    pub fn new() -> (Flag, Receiver<()>) {
        let (changed, hear) = bounded(1);
        (Flag { is_set: AtomicBool::new(false), changed }, hear)
    }

    pub fn is_set(&self) -> bool {
        self.is_set.load(Ordering::Relaxed)
    }

    pub fn set(&self, to: bool) {
        if self.is_set.swap(to, Ordering::Relaxed) != to {
            // A full channel means that it has been told already.
            let _ = self.changed.try_send(());
        }
    }
}

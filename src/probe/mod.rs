//! Startup, liveness and readiness probes of all pods (pkg/kubelet/prober).
//!
//! - `worker`: the state of one probe of one container; pure.
//! - `table`: all probes, and which is due when; pure.
//! - `manager`: the scheduler's thread, and what the other rooms ask.
//! - `handler`, `exec`, `http`, `tcp`, `grpc`: single attempts, by blocking calls.
//!
//! One thread waits for the next probe that is due, and gives it to a lane. An attempt blocks its
//! thread of the lane until the target answers or the probe's timeout is over. A probe whose last
//! attempt ran into its timeout is tried on a second, smaller lane, until it answers again: targets
//! that hang, however many, wait for each other, not the others for them. There are at most
//! [`manager::LANE`] + [`manager::SLOW_LANE`] threads; a lane starts one only when it has work that
//! no other is free for, and ends it when it has been idle for a while.
//!
//! What differs from the kubelet:
//! - The kubelet tries a probe when its clock ticks, which is unrelated to the start of the
//!   container. Here startup and readiness probes are first tried as soon as `initialDelaySeconds`
//!   allows, liveness probes a period after the start if that is later. A startup probe that fails
//!   within the first period is only early.
//! - `initialDelaySeconds` counts on the monotonic clock.
//! - All tries of one probe together end by its timeout. Only the runtime's answer to a command may
//!   come up to half a minute later.
//! - A message that is the same as the last one is not told again.
//!
//! Knows nothing of what follows from a result: the sync loop is told of changes, and asks for the
//! verdicts.

mod exec;
mod grpc;
mod handler;
mod http;
mod manager;
mod metrics;
mod net;
#[cfg(test)]
mod script;
mod table;
mod tcp;
mod worker;

use std::collections::{HashMap, HashSet};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Instant;

pub use handler::{Handler, Means, port};
pub use http::{Get, hook};
pub use manager::{LANE, Manager, SLOW_LANE};
pub use metrics::{DURATION_BUCKETS, Histogram, LATENESS_BUCKETS, ProbeMetrics, Snapshot};
pub use net::Resolver;
pub use worker::{Outcome, Tell};

use crate::cri::ContainerId;
use crate::pod::{PodName, PodUid};

/// What the kubelet calls itself to targets.
const USER_AGENT: &str = "kube-probe/1.36";

/// In the order in which they matter to each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    Startup,
    Readiness,
    Liveness,
}

impl Kind {
    const ALL: [Kind; 3] = [Kind::Startup, Kind::Readiness, Kind::Liveness];

    /// As in the kubelet's events and metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Startup => "Startup",
            Kind::Readiness => "Readiness",
            Kind::Liveness => "Liveness",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A container that runs, as probes need it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Running {
    pub name: Arc<str>,
    pub id: ContainerId,
    /// When it was first seen running. For one that ran before the agent was started, a time before
    /// that, as far as it is known. What the first [`Manager::update`] with this id says counts.
    pub started_seen: Instant,
    /// The pod's primary address; the node's for a pod on its network.
    pub pod_ip: Option<IpAddr>,
}

/// News of a container, for the sync loop.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbeResult {
    pub uid: PodUid,
    pub pod: PodName,
    pub container: Arc<str>,
    pub id: ContainerId,
    pub kind: Kind,
    /// The result, if it is another one now: the pod is to be synced at once.
    pub change: Option<bool>,
    /// An event of type Warning to be recorded, such as `Unhealthy`.
    pub tell: Option<Tell>,
}

/// What probes say of a container: `None` while they have said nothing, or there are none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Verdict {
    pub startup: Option<bool>,
    pub liveness: Option<bool>,
}

/// What probes say of a pod's running containers, as of the last [`Manager::update`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Verdicts {
    /// Of the containers that have probes.
    pub verdicts: HashMap<ContainerId, Verdict>,
    pub not_ready: HashSet<ContainerId>,
    pub not_started: HashSet<ContainerId>,
}

//! Events of pods, with the kubelet's reasons: one log line each.

use crate::pod::PodName;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Normal,
    Warning,
}

/// Records that `reason` happened to a pod. `message` holds no secret.
pub fn record(kind: Kind, pod: &PodName, reason: &str, message: &str) {
    match kind {
        Kind::Normal => log::info!("{pod}: {reason}: {message}"),
        Kind::Warning => log::warn!("{pod}: {reason}: {message}"),
    }
}

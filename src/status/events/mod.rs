//! Events of pods, with the kubelet's reasons: one log line each, and a bounded list of them that can
//! be shown. [`recorder`] decides what is told of; [`log`] holds it, also over a restart.

mod log;
mod recorder;
#[cfg(test)]
mod tests;

use std::sync::OnceLock;

use crossbeam::channel::Sender;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::pod::PodName;
pub use log::Log;
pub use recorder::{Event, Involved, MAX_EVENTS, Occurrence, Recorder};

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    Normal,
    Warning,
}

impl Kind {
    pub fn as_str(self) -> &'static str {
        match self {
            Kind::Normal => "Normal",
            Kind::Warning => "Warning",
        }
    }
}

/// Where events go once [`Log::start`] was called.
static RECORDED: OnceLock<Sender<Occurrence>> = OnceLock::new();

/// Records that `reason` happened to a pod. `message` holds no secret. Never waits: when too much
/// happens at once, the log line alone is left.
pub fn record(kind: Kind, pod: &PodName, reason: &str, message: &str) {
    record_of(kind, pod, None, reason, message);
}

/// The same of a part of the pod, by the path of its field; see [`crate::pod::Pod::field_path`].
pub fn record_of(kind: Kind, pod: &PodName, field: Option<String>, reason: &str, message: &str) {
    match kind {
        Kind::Normal => ::log::info!("{pod}: {reason}: {message}"),
        Kind::Warning => ::log::warn!("{pod}: {reason}: {message}"),
    }
    let Some(recorded) = RECORDED.get() else { return };
    let occurrence = Occurrence {
        kind,
        pod: pod.clone(),
        field: field.unwrap_or_default().into(),
        reason: reason.to_owned(),
        message: message.to_owned(),
        at: Timestamp::now(),
    };
    if recorded.try_send(occurrence).is_err() {
        ::log::debug!("{pod}: too many events at once; {reason} is in the log alone");
    }
}

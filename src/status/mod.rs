//! A pod's status as the API tells it: phase, conditions, container states.
//!
//! Says what is, and decides nothing about what to do.

mod conditions;
pub mod events;
mod generate;
mod probed;
mod store;
#[cfg(test)]
mod tests;

pub use generate::{
    Facts, generate, is_disruption, is_ended_by_node, is_own, is_terminal, phase, refused, set_condition,
    with_conditions_of_others,
};
pub use probed::probed;
pub use store::{Store, StoredPod};

/// Why a container waits: its waiting state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Waiting {
    pub reason: &'static str,
    pub message: String,
}

/// Why a pod has failed as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PodFailure {
    /// `DeadlineExceeded`, `Evicted` and their like.
    pub reason: &'static str,
    pub message: String,
    pub by: FailedBy,
}

/// Whose doing it is that a pod has failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FailedBy {
    /// Its own.
    Pod,
    /// The node's, which had to end it: its condition `DisruptionTarget` says so.
    Node,
}

/// A pod's phase.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Pending,
    Running,
    Succeeded,
    Failed,
    Unknown,
}

impl Phase {
    pub fn as_str(self) -> &'static str {
        match self {
            Phase::Pending => "Pending",
            Phase::Running => "Running",
            Phase::Succeeded => "Succeeded",
            Phase::Failed => "Failed",
            Phase::Unknown => "Unknown",
        }
    }
}

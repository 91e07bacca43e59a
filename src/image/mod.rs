//! The images of pods: getting them (from the node's archives or from registries) and removing
//! those that nobody needs.
//!
//! Knows images by the names that pods give them, and pods by their UIDs alone.

mod archive;
mod collect;
mod credentials;
mod docker_config;
#[cfg(test)]
mod fake;
mod gc;
mod images;
mod keyring;
mod name;
pub mod preload;
pub mod provider;
mod pull;
mod pulls;
mod queue;
mod scrub;
#[cfg(test)]
mod tests;

use std::sync::Arc;

pub use collect::{Collector, Wanted};
pub use credentials::NodeCredentials;
pub use images::{Ensure, Failure, Images, Want};
pub use name::{InvalidName, Name};
pub use preload::Preload;

use crate::pod::{Pod, PodUid};

/// Called for a pod that waited for an image and is to ask again. From any thread; must not block
/// for long.
pub type Wake = Arc<dyn Fn(&PodUid) + Send + Sync>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PullPolicy {
    Always,
    IfNotPresent,
    Never,
}

impl PullPolicy {
    /// A container's `imagePullPolicy`; defaults have been filled in.
    pub fn of(text: Option<&str>) -> PullPolicy {
        match text {
            Some("Always") => PullPolicy::Always,
            Some("Never") => PullPolicy::Never,
            _ => PullPolicy::IfNotPresent,
        }
    }

    /// What a container has that says nothing: `Always` for an image that is, or may become, another
    /// one tomorrow (pkg/apis/core/v1/defaults.go).
    pub fn default_for(image: &str) -> PullPolicy {
        match Name::parse(image) {
            Ok(name) if name.tag() == Some("latest") => PullPolicy::Always,
            _ => PullPolicy::IfNotPresent,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            PullPolicy::Always => "Always",
            PullPolicy::IfNotPresent => "IfNotPresent",
            PullPolicy::Never => "Never",
        }
    }
}

/// The images that a pod names: of its containers of all kinds, and of its volumes.
pub fn of_pod(pod: &Pod) -> impl Iterator<Item = &str> {
    let containers = pod.all_containers().filter_map(|c| c.image.as_deref());
    let ephemeral = pod.spec.ephemeral_containers.iter().flatten().filter_map(|c| c.image.as_deref());
    let volumes = pod.spec.volumes.iter().flatten().filter_map(|v| v.image.as_ref()?.reference.as_deref());
    containers.chain(ephemeral).chain(volumes).filter(|image| !image.is_empty())
}

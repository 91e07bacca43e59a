//! Manifests of static pods: what the API server would do to a pod before a kubelet sees it.

pub mod defaults;
pub mod validate;

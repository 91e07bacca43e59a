//! The certificates by which the node and its API server trust each other: the first one, got with what
//! a bootstrap kubeconfig allows, and those that follow it, each signed by the cluster before the last
//! one ends (k8s.io/client-go/util/certificate, pkg/kubelet/certificate).
//!
//! Knows nothing of what the certificates are used for.

mod bootstrap;
mod renewal;
mod request;
mod store;
mod x509;

pub use renewal::{Certificates, client_file, serving_file};
pub use x509::subject;

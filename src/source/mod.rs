//! Where pods come from. Each source runs on a thread of its own, and hands every full set of its
//! pods to its [`mux::Channel`], which tells the sync loop what changed.
//!
//! Knows nothing of the runtime, nor of what becomes of the pods.

mod answers;
pub mod api_pods;
mod api_records;
pub mod apiserver;
pub mod file;
mod files;
pub mod http;
mod kept;
pub mod manifest;
pub mod mux;
pub mod names;
mod report;
pub mod wake;

pub use files::is_manifest_name;

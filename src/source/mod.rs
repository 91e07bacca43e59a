//! Where pods come from: manifests in files and behind URLs, and the API server.

pub mod manifest;

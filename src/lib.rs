//! cleat: a kubelet for edge and IoT nodes. See `docs/architecture.md`.

#![deny(unsafe_code)]

pub mod config;
pub mod cri;
pub mod pod;
pub mod yaml;

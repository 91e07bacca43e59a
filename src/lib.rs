//! cleat: a kubelet for edge and IoT nodes. See `docs/architecture.md`.

#![deny(unsafe_code)]

pub mod cri;
pub mod pod;
pub mod source;
pub mod yaml;

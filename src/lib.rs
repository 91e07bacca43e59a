//! cleat: a kubelet for edge and IoT nodes. See `docs/architecture.md`.

#![deny(unsafe_code)]

pub mod admission;
pub mod agent;
pub mod api;
pub mod backoff;
#[cfg(feature = "tls")]
pub mod certificates;
pub mod cgroup;
pub mod child;
pub mod cluster;
pub mod cmd;
pub mod config;
pub mod cri;
pub mod dbus;
pub mod disk;
pub mod image;
pub mod kube;
pub mod lane;
pub mod local;
pub mod metrics;
pub mod node;
pub mod pleg;
pub mod pod;
pub mod probe;
pub mod rate;
pub mod runtime;
pub mod server;
pub mod shutdown;
pub mod source;
pub mod status;
pub mod sync_loop;
pub mod sys;
pub mod tar;
#[cfg(feature = "tls")]
pub mod trust;
pub mod volume;
pub mod worker;
pub mod yaml;

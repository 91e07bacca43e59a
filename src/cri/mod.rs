//! The container runtime interface, version 1: the calls that the agent makes as a trait, the
//! blocking gRPC client behind it, and what the runtime tells us in our own small types.
//!
//! Knows nothing of what pods should be; a call is made or fails, and that is all.

mod client;
mod convert;
mod error;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

pub use client::Client;
pub use error::{Code, Error, Result};

use crate::pod::{PodName, PodUid};

/// Messages and services generated from `proto/`.
#[allow(unsafe_code, clippy::all)]
pub mod proto {
    include!(concat!(env!("OUT_DIR"), "/mod.rs"));
}

pub use proto::runtime as api;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(Arc<str>);

        impl $name {
            pub fn new(id: impl Into<Arc<str>>) -> $name {
                $name(id.into())
            }

            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

id!(
    /// The runtime's name of a pod sandbox.
    SandboxId
);
id!(
    /// The runtime's name of a container.
    ContainerId
);

/// What the runtime says of itself.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// `containerd`, `cri-o`: also the scheme of container ids in a pod's status.
    pub name: String,
    pub version: String,
}

/// What the runtime tells of its configuration; containerd does, before version 2.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Settings {
    /// The image of sandboxes. Runtimes that don't tell it pin it.
    pub sandbox_image: Option<String>,
    /// What images are unpacked by.
    pub snapshotter: Option<String>,
}

/// A condition of the runtime; `RuntimeReady` and `NetworkReady` are always there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Condition {
    pub kind: String,
    pub ok: bool,
    pub reason: String,
    pub message: String,
}

/// What the runtime says of its state, and of what it can do.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Status {
    pub conditions: Vec<Condition>,
    /// Its handlers by name; the default one's is empty. Older runtimes tell of none.
    pub handlers: BTreeMap<String, HandlerFeatures>,
    /// Whether it knows other policies for supplemental groups than to add the image's.
    pub supplemental_groups_policy: bool,
}

/// What containers of a handler can have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct HandlerFeatures {
    pub recursive_read_only: bool,
    pub user_namespaces: bool,
}

/// A point of the wall clock in nanoseconds since 1970, as the runtime gives it; 0 is "never".
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub struct UnixNanos(pub i64);

/// The pod that a sandbox or container belongs to, from its labels.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PodRef {
    pub uid: PodUid,
    pub name: PodName,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sandbox {
    pub id: SandboxId,
    pub pod: PodRef,
    pub attempt: u32,
    pub ready: bool,
    pub created_at: UnixNanos,
}

/// A sandbox with what only a status call tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SandboxStatus {
    pub sandbox: Sandbox,
    /// Addresses of the pod, the primary one first; none for a pod on the host's network.
    pub ips: Vec<String>,
    pub host_network: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ContainerState {
    Created,
    Running,
    Exited,
    Unknown,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    pub id: ContainerId,
    pub sandbox: SandboxId,
    pub pod: PodRef,
    pub name: Arc<str>,
    pub attempt: u32,
    pub state: ContainerState,
    pub created_at: UnixNanos,
    pub notes: Arc<Notes>,
}

/// What we noted on a container when we made it, to be read again when nothing else is known.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Notes {
    pub hash: String,
    pub restart_count: i32,
    /// Path of the termination message inside the container.
    pub termination_message_path: String,
    pub termination_message_policy: String,
    /// The container's preStop hook, as JSON; empty without one.
    pub pre_stop: String,
    /// The pod's grace period in seconds.
    pub grace_period: Option<i64>,
}

/// A container with what only a status call tells.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerStatus {
    pub container: Container,
    pub started_at: UnixNanos,
    pub finished_at: UnixNanos,
    pub exit_code: i32,
    pub reason: String,
    pub message: String,
    /// The image as the pod names it.
    pub image: String,
    /// The image by digest.
    pub image_ref: String,
    /// Where the runtime writes the log; empty when it doesn't say.
    pub log_path: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Image {
    pub id: String,
    pub repo_tags: Vec<String>,
    pub repo_digests: Vec<String>,
    /// Bytes.
    pub size: u64,
    /// The user that the image runs as, if it says so.
    pub user: Option<ImageUser>,
    pub pinned: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ImageUser {
    Uid(i64),
    Name(String),
}

/// What a command in a container gave.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ExecOutput {
    pub stdout: Vec<u8>,
    pub stderr: Vec<u8>,
    pub exit_code: i32,
}

/// Something happened to a container or sandbox of this pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerEvent {
    pub container: String,
    pub pod: Option<PodUid>,
}

/// The stream of the runtime's events; each `next` blocks until there is one. `None` is its end.
pub type Events = Box<dyn Iterator<Item = Result<ContainerEvent>> + Send>;

/// The calls. Each blocks until the runtime has answered or its deadline has passed, and can be
/// made from any thread.
pub trait Cri: Send + Sync {
    fn version(&self) -> Result<Version>;
    fn status(&self) -> Result<Status>;
    /// Tells the runtime which addresses pods are to have: networks, with commas between them.
    fn set_pod_cidr(&self, cidr: &str) -> Result<()>;

    fn run_pod_sandbox(&self, config: &api::PodSandboxConfig, handler: &str) -> Result<SandboxId>;
    fn stop_pod_sandbox(&self, id: &SandboxId) -> Result<()>;
    fn remove_pod_sandbox(&self, id: &SandboxId) -> Result<()>;
    /// More about a sandbox of the list; `None` when it is gone.
    fn pod_sandbox_status(&self, sandbox: &Sandbox) -> Result<Option<SandboxStatus>>;
    /// The sandboxes of one pod, or all that belong to pods.
    fn list_pod_sandboxes(&self, pod: Option<&PodUid>) -> Result<Vec<Sandbox>>;

    fn create_container(
        &self,
        sandbox: &SandboxId,
        config: &api::ContainerConfig,
        sandbox_config: &api::PodSandboxConfig,
    ) -> Result<ContainerId>;
    fn start_container(&self, id: &ContainerId) -> Result<()>;
    /// Returns when the container has ended: after at most `grace`, when it is killed.
    fn stop_container(&self, id: &ContainerId, grace: Duration) -> Result<()>;
    fn remove_container(&self, id: &ContainerId) -> Result<()>;
    /// The containers of one pod, or all that belong to pods.
    fn list_containers(&self, pod: Option<&PodUid>) -> Result<Vec<Container>>;
    /// More about a container of the list; `None` when it is gone.
    fn container_status(&self, container: &Container) -> Result<Option<ContainerStatus>>;
    /// Changes the limits of a running container. What is 0 or empty stays as it is.
    fn update_container_resources(&self, id: &ContainerId, resources: &api::LinuxContainerResources) -> Result<()>;
    fn reopen_container_log(&self, id: &ContainerId) -> Result<()>;
    /// Runs a command in a container and waits for its end. After `timeout` the runtime kills it and
    /// the call fails with [`Code::DeadlineExceeded`]; zero is no limit.
    fn exec_sync(&self, id: &ContainerId, command: &[String], timeout: Duration) -> Result<ExecOutput>;
    fn container_events(&self) -> Result<Events>;

    /// `None` when the image is not there.
    fn image_status(&self, image: &str) -> Result<Option<Image>>;
    /// Returns the image's reference on this node.
    fn pull_image(&self, image: &str, auth: Option<&Auth>, sandbox: &api::PodSandboxConfig) -> Result<String>;
    fn list_images(&self) -> Result<Vec<Image>>;
    /// Removes an image with all its names. That it isn't there is no error.
    fn remove_image(&self, id: &str) -> Result<()>;
    /// Directories on the filesystems that hold images; at least one.
    fn image_fs_info(&self) -> Result<Vec<PathBuf>>;
    /// Ids and names of the images of all containers, also of those that belong to no pod.
    fn images_in_use(&self) -> Result<BTreeSet<String>>;
    fn settings(&self) -> Result<Settings>;
}

/// The calls that look into what runs, for those who ask the agent. Nothing that keeps pods running
/// makes them.
pub trait Inspect: Send + Sync {
    /// The URL, on the runtime's own server, where the command runs once somebody connects there.
    fn exec(&self, id: &ContainerId, command: &[String], streams: Streams) -> Result<String>;
    fn attach(&self, id: &ContainerId, streams: Streams) -> Result<String>;
    fn port_forward(&self, sandbox: &SandboxId, ports: &[i32]) -> Result<String>;
    /// Writes an archive of a running container's state. `timeout`: zero is the runtime's own.
    fn checkpoint_container(&self, id: &ContainerId, location: &str, timeout: Duration) -> Result<()>;
    /// Of all running containers.
    fn list_container_stats(&self) -> Result<Vec<ContainerUsage>>;
    /// The places where images are, and what they take there.
    fn image_usage(&self) -> Result<Vec<(String, Usage)>>;
}

/// What of a process is connected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Streams {
    pub stdin: bool,
    pub stdout: bool,
    /// Not with a terminal.
    pub stderr: bool,
    pub tty: bool,
}

/// What a container uses, as far as the runtime knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerUsage {
    pub id: ContainerId,
    /// Nanoseconds of CPU since it was started.
    pub cpu: Option<u64>,
    /// Bytes.
    pub working_set: Option<u64>,
    pub memory: Option<u64>,
    pub rss: Option<u64>,
    pub page_faults: Option<u64>,
    pub major_page_faults: Option<u64>,
    pub writable_layer: Usage,
}

/// What is used of a file system.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Usage {
    pub bytes: Option<u64>,
    pub inodes: Option<u64>,
}

/// Credentials for a registry; never shown.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Auth {
    pub username: String,
    pub password: String,
    pub server_address: String,
    pub identity_token: String,
    pub registry_token: String,
}

impl fmt::Debug for Auth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "credentials for {}", self.server_address)
    }
}

/// Labels or annotations on their way to the runtime.
pub type StringMap = BTreeMap<String, String>;

//! The pod as the agent handles it: its identity, where it came from, what it asks for, and the
//! names and labels that the runtime knows it by. Types and arithmetic only: no I/O, no time, and
//! nothing from the other rooms.

pub mod env;
pub mod identity;
pub mod labels;
pub mod qos;
pub mod quantity;
pub mod resize;
pub mod resources;
pub mod restart;
pub mod sysctl;
#[cfg(test)]
pub mod testing;

use std::borrow::{Borrow, Cow};
use std::fmt;
use std::sync::Arc;

pub use k8s_openapi::api::core::v1 as core;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// A pod's UID: what tells two pods of one name apart.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodUid(Arc<str>);

impl PodUid {
    pub fn new(uid: impl Into<Arc<str>>) -> PodUid {
        PodUid(uid.into())
    }

    /// A UID from elsewhere: it becomes the name of directories, and must not lead out of them.
    pub fn checked(uid: &str) -> Option<PodUid> {
        let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
        let safe = (1..=128).contains(&uid.len()) && uid.chars().all(fits) && !uid.starts_with('.');
        safe.then(|| PodUid(uid.into()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl Borrow<str> for PodUid {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for PodUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for PodUid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// A pod's namespace and name; shown as `namespace/name`.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PodName {
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

impl PodName {
    pub fn new(namespace: impl Into<Arc<str>>, name: impl Into<Arc<str>>) -> PodName {
        PodName { namespace: namespace.into(), name: name.into() }
    }

    /// A name from elsewhere: it becomes part of the names of files.
    pub fn checked(namespace: &str, name: &str) -> Option<PodName> {
        let safe = |part: &str| (1..=253).contains(&part.len()) && !part.contains(['/', '\0']);
        (safe(namespace) && safe(name)).then(|| PodName::new(namespace, name))
    }
}

impl fmt::Display for PodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.namespace, self.name)
    }
}

impl fmt::Debug for PodName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Where a pod came from; the value of its `kubernetes.io/config.source` annotation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Source {
    File,
    Http,
    Api,
}

impl Source {
    pub fn as_str(self) -> &'static str {
        match self {
            Source::File => "file",
            Source::Http => "http",
            Source::Api => "api",
        }
    }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A pod that is wanted: decoded, defaulted, validated, and with its identity. Shared as `Arc<Pod>`
/// and never changed; a new version of a pod is a new value.
#[derive(Debug, Clone, PartialEq)]
pub struct Pod {
    pub uid: PodUid,
    pub name: PodName,
    pub source: Source,
    /// The file or URL that it was read from.
    pub origin: Arc<str>,
    /// Of a pod of the API server: its status as it is there.
    pub status: Option<Arc<core::PodStatus>>,
    pub meta: ObjectMeta,
    pub spec: core::PodSpec,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestartPolicy {
    Always,
    OnFailure,
    Never,
}

impl RestartPolicy {
    fn of(text: &str) -> RestartPolicy {
        match text {
            "Never" => RestartPolicy::Never,
            "OnFailure" => RestartPolicy::OnFailure,
            _ => RestartPolicy::Always,
        }
    }
}

impl Pod {
    pub fn restart_policy(&self) -> RestartPolicy {
        self.spec.restart_policy.as_deref().map_or(RestartPolicy::Always, RestartPolicy::of)
    }

    pub fn host_network(&self) -> bool {
        self.spec.host_network.unwrap_or(false)
    }

    /// It is to end, and is gone when it has.
    pub fn is_deleted(&self) -> bool {
        self.meta.deletion_timestamp.is_some()
    }

    /// Seconds between TERM and KILL when the pod is stopped; 30 unless the pod says otherwise.
    pub fn grace_period(&self) -> i64 {
        self.spec.termination_grace_period_seconds.unwrap_or(30)
    }

    pub fn init_containers(&self) -> &[core::Container] {
        self.spec.init_containers.as_deref().unwrap_or_default()
    }

    pub fn containers(&self) -> &[core::Container] {
        &self.spec.containers
    }

    /// The ephemeral containers, as the containers that they are at heart.
    pub fn ephemeral_containers(&self) -> impl Iterator<Item = core::Container> {
        self.spec.ephemeral_containers.iter().flatten().map(as_container)
    }

    /// The container of this name, of whatever kind.
    pub fn container(&self, name: &str) -> Option<Cow<'_, core::Container>> {
        let found = self.all_containers().find(|c| c.name == name).map(Cow::Borrowed);
        found.or_else(|| self.ephemeral_containers().find(|c| c.name == name).map(Cow::Owned))
    }

    /// The path of a container in the pod, as events have it.
    pub fn field_path(&self, container: &str) -> Option<String> {
        let is = |list: &[core::Container]| list.iter().any(|c| c.name == container);
        let list = match () {
            () if is(self.containers()) => "containers",
            () if is(self.init_containers()) => "initContainers",
            () if self.ephemeral_containers().any(|c| c.name == container) => "ephemeralContainers",
            () => return None,
        };
        Some(format!("spec.{list}{{{container}}}"))
    }

    /// Init containers, then containers.
    pub fn all_containers(&self) -> impl Iterator<Item = &core::Container> {
        self.init_containers().iter().chain(self.containers())
    }
}

/// An ephemeral container as the container that it is at heart.
pub fn as_container(c: &core::EphemeralContainer) -> core::Container {
    core::Container {
        args: c.args.clone(),
        command: c.command.clone(),
        env: c.env.clone(),
        env_from: c.env_from.clone(),
        image: c.image.clone(),
        image_pull_policy: c.image_pull_policy.clone(),
        name: c.name.clone(),
        security_context: c.security_context.clone(),
        stdin: c.stdin,
        stdin_once: c.stdin_once,
        termination_message_path: c.termination_message_path.clone(),
        termination_message_policy: c.termination_message_policy.clone(),
        tty: c.tty,
        volume_devices: c.volume_devices.clone(),
        volume_mounts: c.volume_mounts.clone(),
        working_dir: c.working_dir.clone(),
        // The API allows no more of them.
        ..Default::default()
    }
}

/// An init container with `restartPolicy: Always`: a sidecar.
pub fn is_sidecar(container: &core::Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

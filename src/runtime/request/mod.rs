//! The requests that make a pod's sandbox and its containers, and the texts of the files that go with
//! them: what the container sees is decided here. Pure: everything of the node and of other objects
//! is passed in, and whoever calls reads and writes the files.
//!
//! Knows nothing of when a request is made, nor of cgroups: whoever calls adds the resources.

mod container;
mod dns;
pub mod env_file;
mod environment;
mod hostname;
mod hosts;
mod labels;
mod mounts;
mod namespaces;
pub mod resolv_conf;
mod sandbox;
mod security;
mod services;
mod userns;

use std::net::IpAddr;

pub use container::{Input, container};
pub use dns::pod_dns;
pub use environment::{EnvInput, Environment, Lookup, environment};
pub use hosts::{has_own_hosts, hosts_file};
pub use mounts::{Source, SubPath, sub_paths};
pub use resolv_conf::pick_resolv_conf;
pub use sandbox::sandbox;
pub use userns::{Allocator, Error as IdsError, IdRange};

use super::Paths;
use crate::pod::Pod;
use crate::pod::env::{ResourceError, Resources};
use crate::status::events;

/// What of the node shows in its pods.
#[derive(Debug, Clone)]
pub struct Node {
    pub paths: Paths,
    /// The node's addresses, the primary one first.
    pub ips: Vec<String>,
    pub cluster_dns: ClusterDns,
    /// Whether containers that name no seccomp profile get the runtime's.
    pub seccomp_default: bool,
    /// Whether the kernel enforces SELinux.
    pub selinux: bool,
    /// Paths of this machine that containers must not see, beside those that are the same on all:
    /// the `thermal_throttle` directories of its CPUs.
    pub masked_paths: Vec<String>,
    /// What pods can have of each resource.
    pub allocatable: Resources,
}

/// The cluster's name service.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterDns {
    pub servers: Vec<IpAddr>,
    /// Without a dot at its end.
    pub domain: Option<String>,
}

/// What the runtime, and the handler of a pod, can do.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Handler {
    pub recursive_read_only: bool,
    pub user_namespaces: bool,
    /// Whether it knows other policies for supplemental groups than to add the image's.
    pub groups_policy: bool,
}

/// A pod on this node. The same each time that a request for the pod is made, so that its sandbox
/// and its containers fit together.
#[derive(Debug, Clone, Copy)]
pub struct Context<'a> {
    pub pod: &'a Pod,
    pub node: &'a Node,
    pub handler: Handler,
    /// The text of the host's resolv.conf, of the file that [`pick_resolv_conf`] chose; `None` when
    /// pods get nothing of it (`resolvConf: ""`).
    pub resolv_conf: Option<&'a str>,
    /// The range of IDs for a pod with `hostUsers: false`.
    pub ids: Option<IdRange>,
    /// Groups that may use the pod's volumes.
    pub volume_groups: &'a [i64],
}

/// Something to be told about the pod, once when it has happened.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    pub kind: events::Kind,
    pub reason: &'static str,
    pub message: String,
}

impl Event {
    /// Tells it.
    pub fn record(&self, pod: &Pod) {
        events::record(self.kind, &pod.name, self.reason, &self.message);
    }

    fn warning(reason: &'static str, message: String) -> Event {
        Event { kind: events::Kind::Warning, reason, message }
    }
}

/// Why a request can't be made: for a container, the reason `CreateContainerConfigError`. Holds no
/// value of a variable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConfigError {
    #[error("configmap {0:?} not found")]
    NoConfigMap(String),
    #[error("secret {0:?} not found")]
    NoSecret(String),
    #[error("couldn't find key {key} in {object}")]
    NoKey { key: String, object: String },
    #[error("key {key} in {object} is no UTF-8 text, and can't be a variable")]
    NotText { key: String, object: String },
    #[error("environment variable {name}: fieldPath {path:?} can't be had")]
    Field { name: String, path: String },
    #[error("environment variable {name}: {source}")]
    Resource { name: String, source: ResourceError },
    #[error("environment variable {name}: file {path:?} in volume {volume:?}: {why}")]
    File { name: String, volume: String, path: String, why: String },
    #[error("{what}: it has more bytes than the kernel takes")]
    TooLong { what: String },
    #[error("cannot find volume {volume:?} to mount into container {container:?}")]
    NoVolume { volume: String, container: String },
    #[error("volumeMount {mount_path}: subPathExpr refers to {missing}, which is not there")]
    SubPathVariables { mount_path: String, missing: String },
    #[error("volumeMount {mount_path}: subPath must be relative and must not contain '..'")]
    SubPath { mount_path: String },
    #[error("volumeMount {mount_path}: subPath was not prepared")]
    SubPathNotReady { mount_path: String },
    #[error("failed to prepare subPath for volumeMount {volume:?} of container {container:?}: {why}")]
    SubPathFailed { volume: String, container: String, why: String },
    #[error("volumeMount {mount_path}: recursiveReadOnly {why}")]
    RecursiveReadOnly { mount_path: String, why: &'static str },
    #[error("container's runAsUser breaks non-root policy: it is 0")]
    RunsAsRoot,
    #[error("container has runAsNonRoot and image will run as root")]
    ImageRunsAsRoot,
    #[error("container has runAsNonRoot and image has non-numeric user ({0}), cannot verify user is non-root")]
    ImageUserNotNumeric(String),
    #[error("container has runAsNonRoot and image has an invalid user id ({0})")]
    ImageUserInvalid(i64),
    #[error("unable to find target container {0}")]
    NoTarget(String),
    #[error("{0}: localhostProfile must be set when type is Localhost")]
    NoLocalhostProfile(&'static str),
    #[error("{field}: unknown value {value:?}")]
    Unknown { field: &'static str, value: String },
    #[error("supplementalGroupsPolicy: Strict needs a newer runtime: this one does not support it")]
    NoGroupsPolicy,
    #[error("RuntimeClass {0:?} not found")]
    NoRuntimeClass(String),
    #[error("hostUsers: false needs user namespaces, which the runtime doesn't support")]
    NoUserNamespaces,
    #[error("hostUsers: false needs a range of IDs, and none is free")]
    NoIds,
    #[error("FQDN {fqdn} is too long: 64 characters is the max, {} characters requested", fqdn.len())]
    FqdnTooLong { fqdn: String },
}

#[cfg(test)]
mod testing {
    //! A pod and a node for the tests of this room.

    use std::collections::BTreeMap;
    use std::path::Path;

    use super::*;
    use crate::pod::identity::Origin;
    use crate::pod::quantity::Quantity;
    use crate::pod::{PodUid, Source};
    use crate::source::manifest;

    /// There are neither objects nor files.
    pub struct Nothing;

    impl Lookup for Nothing {
        fn config_map(&self, _: &str) -> Option<BTreeMap<&str, &str>> {
            None
        }

        fn secret(&self, _: &str) -> Option<BTreeMap<&str, &[u8]>> {
            None
        }

        fn env_file(&self, _: &str, _: &str) -> Result<Option<String>, String> {
            Ok(None)
        }
    }

    /// The static pod `ns/web-n` from YAML of its spec.
    pub fn pod(spec: &str) -> Pod {
        pod_with("{}", spec)
    }

    pub fn pod_with(annotations: &str, spec: &str) -> Pod {
        let text = format!(
            "apiVersion: v1\nkind: Pod\nmetadata: {{name: web, namespace: ns, uid: u1, annotations: {annotations}}}\n\
             spec: {spec}\n"
        );
        let seen = jiff::Timestamp::UNIX_EPOCH;
        let manifest =
            manifest::read(&text, Origin { source: Source::File, node_name: "n", place: "/m/web.yaml", seen });
        assert_eq!(manifest.problems, []);
        let pod = manifest.pods.into_iter().next().expect("a pod");
        assert_eq!(pod.uid, PodUid::new("u1"));
        pod
    }

    pub fn node() -> Node {
        let amount = |text: &str| Quantity::parse(text).expect("a quantity");
        Node {
            paths: Paths::new(Path::new("/root"), Path::new("/logs")),
            ips: vec!["192.0.2.10".to_owned(), "2001:db8::10".to_owned()],
            cluster_dns: ClusterDns::default(),
            seccomp_default: false,
            selinux: false,
            masked_paths: Vec::new(),
            allocatable: [("cpu", "2"), ("memory", "1Gi")].map(|(k, v)| (k.to_owned(), amount(v))).into(),
        }
    }

    pub fn context<'a>(pod: &'a Pod, node: &'a Node) -> Context<'a> {
        Context {
            pod,
            node,
            handler: Handler { recursive_read_only: true, user_namespaces: true, groups_policy: true },
            resolv_conf: Some("nameserver 192.0.2.53\nsearch edge.example\noptions ndots:2\n"),
            ids: None,
            volume_groups: &[],
        }
    }
}

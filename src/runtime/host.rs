//! The host's files that show in pods, read when a request is made, and the pods' own /etc/hosts.

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use protobuf::MessageField;

use super::request::{self, ConfigError, Context, Event, Handler, Lookup};
use super::{Error, Runtime};
use crate::cgroup;
use crate::cri::api;
use crate::local::Objects;
use crate::pod::{Pod, core};
use crate::volume::{Place, subpath};

/// What a resolv.conf may have; more is no such file.
const MAX_RESOLV_CONF: u64 = 10 * 1024 * 1024;
/// A file of variables, likewise; the kubelet's limit.
const MAX_ENV_FILE: u64 = 64 << 10;
const HOSTS: &str = "/etc/hosts";

/// Where the host's files are.
#[derive(Debug, Clone)]
pub struct HostFiles {
    resolv_conf: Option<PathBuf>,
}

impl HostFiles {
    /// `resolv_conf`: `None` when pods are to get nothing of it.
    pub fn new(resolv_conf: Option<PathBuf>) -> HostFiles {
        HostFiles { resolv_conf }
    }

    /// The text that pods' name servers are taken from.
    pub(super) fn resolv_conf(&self) -> Result<Option<String>, Error> {
        let Some(configured) = &self.resolv_conf else { return Ok(None) };
        let text = read(configured).map_err(|e| Error::io("reading", configured, e))?;
        match request::pick_resolv_conf(configured, &text) {
            picked if picked == configured => Ok(Some(text)),
            picked => Ok(Some(read(picked).unwrap_or(text))),
        }
    }
}

fn read(path: &Path) -> io::Result<String> {
    let mut bytes = Vec::new();
    io::Read::read_to_end(&mut io::Read::take(fs::File::open(path)?, MAX_RESOLV_CONF), &mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// What variables of a pod's containers refer to.
pub(super) struct Referred<'a> {
    pub objects: &'a Objects,
    pub pod: &'a Pod,
    pub volumes: &'a BTreeMap<String, Place>,
}

impl Lookup for Referred<'_> {
    fn config_map(&self, name: &str) -> Option<BTreeMap<&str, &str>> {
        let found = self.objects.config_map(&self.pod.name.namespace, name)?;
        Some(found.data.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect())
    }

    fn secret(&self, name: &str) -> Option<BTreeMap<&str, &[u8]>> {
        let found = self.objects.secret(&self.pod.name.namespace, name)?;
        Some(found.data.iter().map(|(key, value)| (key.as_str(), value.bytes())).collect())
    }

    fn env_file(&self, volume: &str, path: &str) -> Result<Option<String>, String> {
        let Some(Place::Path { path: root, .. }) = self.volumes.get(volume) else {
            return Err(format!("volume {volume:?} has no files"));
        };
        subpath::read(root, path, MAX_ENV_FILE).map_err(|e| e.to_string())
    }
}

impl Runtime {
    pub(super) fn context<'a>(&'a self, pod: &'a Pod, resolv_conf: Option<&'a str>) -> Result<Context<'a>, Error> {
        // Most pods need nothing that only some runtimes can do, and then it isn't asked.
        let handler = if needs_features(&pod.spec) { self.features(pod)? } else { Handler::default() };
        let own_users = pod.spec.host_users == Some(false) && handler.user_namespaces;
        let ids = if own_users { Some(self.users.of(&pod.uid)?) } else { None };
        Ok(Context { pod, node: &self.node, handler, resolv_conf, ids, volume_groups: &[] })
    }

    /// What the runtime calls the handler of the pod's class; empty for its default one.
    pub(super) fn handler(&self, pod: &Pod) -> Result<String, Error> {
        let name = pod.spec.runtime_class_name.as_deref().unwrap_or_default();
        let objects = self.objects.of(pod);
        match (name, objects.runtime_class(name)) {
            ("", _) => Ok(String::new()),
            (_, Some(class)) => Ok(class.handler.clone()),
            (_, None) => Err(ConfigError::NoRuntimeClass(name.to_owned()).into()),
        }
    }

    fn features(&self, pod: &Pod) -> Result<Handler, Error> {
        let status = self.cri.status()?;
        let of_handler = status.handlers.get(&self.handler(pod)?).copied().unwrap_or_default();
        Ok(Handler {
            recursive_read_only: of_handler.recursive_read_only,
            user_namespaces: of_handler.user_namespaces,
            groups_policy: status.supplemental_groups_policy,
        })
    }

    pub(super) fn sandbox_config(&self, pod: &Pod, attempt: u32) -> Result<(api::PodSandboxConfig, Vec<Event>), Error> {
        let resolv_conf = self.host.resolv_conf()?;
        let (mut config, told) = request::sandbox(&self.context(pod, resolv_conf.as_deref())?, attempt)?;
        let linux = config.linux.mut_or_insert_default();
        linux.cgroup_parent = self.cgroups.cgroup_parent(pod);
        linux.overhead = cgroup::container::overhead(pod, &self.policy).into();
        linux.resources = MessageField::some(cgroup::container::sandbox_resources(pod, &self.policy));
        Ok((config, told))
    }

    /// Sees to it that the pod's /etc/hosts says what it has to. Written in place: containers have
    /// the file itself mounted.
    pub(super) fn hosts_file(&self, context: &Context<'_>, pod_ips: &[String]) -> Result<Option<PathBuf>, Error> {
        let of_node = match context.pod.host_network() {
            true => read(Path::new(HOSTS)).map_err(|e| Error::io("reading", Path::new(HOSTS), e))?,
            false => String::new(),
        };
        let Some(text) = request::hosts_file(context, pod_ips, &of_node) else { return Ok(None) };
        let path = self.node.paths.etc_hosts(&context.pod.uid);
        if fs::read(&path).ok().as_deref() != Some(text.as_bytes()) {
            fs::write(&path, &text)
                .and_then(|()| fs::set_permissions(&path, fs::Permissions::from_mode(0o644)))
                .map_err(|e| Error::io("writing", &path, e))?;
        }
        Ok(Some(path))
    }
}

/// Whether the pod has something that not every runtime can do.
fn needs_features(spec: &core::PodSpec) -> bool {
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let mut mounts = containers.flat_map(|c| c.volume_mounts.iter().flatten());
    let groups = spec.security_context.as_ref().and_then(|c| c.supplemental_groups_policy.as_deref());
    spec.host_users == Some(false)
        || groups == Some("Strict")
        || mounts.any(|mount| mount.recursive_read_only.as_deref().is_some_and(|mode| mode != "Disabled"))
}

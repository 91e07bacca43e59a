//! The configuration of a container (pkg/kubelet/kuberuntime/kuberuntime_container.go, labels.go,
//! security_context.go).

use std::collections::{BTreeMap, HashMap};
use std::path::PathBuf;

use protobuf::{EnumOrUnknown, MessageField};

use super::{paths, sandbox};
use crate::cri::{Image, ImageUser, api};
use crate::pod::{Pod, core, env, identity, labels};
use crate::volume::Place;

/// What a container is made from, beside its pod.
pub struct Input<'a> {
    pub pod: &'a Pod,
    pub container: &'a core::Container,
    pub restart_count: i32,
    pub attempt: u32,
    pub image: &'a Image,
    /// Where each volume lies on the node.
    pub volumes: &'a BTreeMap<String, Place>,
    /// The parts of volumes that are mounted instead, by the index of the mount.
    pub parts: &'a BTreeMap<usize, PathBuf>,
    /// The node's file for the termination message.
    pub termination_log: Option<PathBuf>,
}

/// Why a container can't be configured: the reason `CreateContainerConfigError`.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    #[error("environment variable {name}: {why}")]
    Env { name: String, why: String },
    #[error("volume {0:?} is not there")]
    NoVolume(String),
    #[error("container has runAsNonRoot and image will run as root")]
    ImageRunsAsRoot,
    #[error("container has runAsNonRoot and image has non-numeric user ({0}), cannot verify user is non-root")]
    ImageUserNotNumeric(String),
    #[error("container's runAsUser breaks non-root policy: it is 0")]
    RunsAsRoot,
    #[error("{0} is not served yet")]
    NotServed(&'static str),
}

pub fn config(input: &Input<'_>) -> Result<api::ContainerConfig, Error> {
    let Input { pod, container, .. } = input;
    let envs = environment(pod, container)?;
    let lookup: HashMap<&str, &str> = envs.iter().map(|(k, v)| (k.as_str(), v.as_str())).collect();
    let expand = |words: &Option<Vec<String>>| -> Vec<String> {
        words.iter().flatten().map(|word| env::expand(word, |name| lookup.get(name).map(|v| (*v).to_owned()))).collect()
    };
    Ok(api::ContainerConfig {
        metadata: MessageField::some(api::ContainerMetadata {
            name: container.name.clone(),
            attempt: input.attempt,
            ..Default::default()
        }),
        image: MessageField::some(api::ImageSpec {
            image: input.image.id.clone(),
            user_specified_image: container.image.clone().unwrap_or_default(),
            ..Default::default()
        }),
        command: expand(&container.command),
        args: expand(&container.args),
        working_dir: container.working_dir.clone().unwrap_or_default(),
        envs: envs.iter().map(|(key, value)| key_value(key, value)).collect(),
        mounts: mounts(input)?,
        labels: container_labels(pod, container),
        annotations: annotations(input),
        log_path: paths::log_file(&container.name, input.restart_count),
        stdin: container.stdin.unwrap_or(false),
        stdin_once: container.stdin_once.unwrap_or(false),
        tty: container.tty.unwrap_or(false),
        linux: MessageField::some(api::LinuxContainerConfig {
            security_context: MessageField::some(security_context(input)?),
            ..Default::default()
        }),
        ..Default::default()
    })
}

fn key_value(key: &str, value: &str) -> api::KeyValue {
    api::KeyValue { key: key.to_owned(), value: value.to_owned(), ..Default::default() }
}

/// The variables in order; each sees those before it.
fn environment(pod: &Pod, container: &core::Container) -> Result<Vec<(String, String)>, Error> {
    if container.env_from.as_ref().is_some_and(|from| !from.is_empty()) {
        return Err(Error::NotServed("envFrom"));
    }
    let mut out: Vec<(String, String)> = Vec::new();
    for var in container.env.iter().flatten() {
        let lookup = |name: &str| out.iter().rev().find(|(k, _)| k == name).map(|(_, v)| v.clone());
        let value = match (&var.value, var.value_from.as_ref().and_then(|from| from.field_ref.as_ref())) {
            (_, Some(field)) => env::metadata_field(pod, &field.field_path).ok_or_else(|| Error::Env {
                name: var.name.clone(),
                why: format!("{} is not served yet", field.field_path),
            })?,
            (None, None) if var.value_from.is_some() => return Err(Error::NotServed("valueFrom")),
            (value, None) => env::expand(value.as_deref().unwrap_or_default(), lookup),
        };
        out.retain(|(k, _)| *k != var.name);
        out.push((var.name.clone(), value));
    }
    Ok(out)
}

fn mounts(input: &Input<'_>) -> Result<Vec<api::Mount>, Error> {
    let mut out = Vec::new();
    for (index, mount) in input.container.volume_mounts.iter().flatten().enumerate() {
        if mount.sub_path_expr.is_some() {
            return Err(Error::NotServed("subPathExpr"));
        }
        let place = input.volumes.get(&mount.name).ok_or_else(|| Error::NoVolume(mount.name.clone()))?;
        let Place::Path { path, read_only, .. } = place else { return Err(Error::NotServed("an image as a volume")) };
        let host = input.parts.get(&index).unwrap_or(path);
        let propagation = match mount.mount_propagation.as_deref() {
            Some("HostToContainer") => api::MountPropagation::PROPAGATION_HOST_TO_CONTAINER,
            Some("Bidirectional") => api::MountPropagation::PROPAGATION_BIDIRECTIONAL,
            _ => api::MountPropagation::PROPAGATION_PRIVATE,
        };
        out.push(api::Mount {
            container_path: mount.mount_path.clone(),
            host_path: host.to_string_lossy().into_owned(),
            readonly: *read_only || mount.read_only.unwrap_or(false),
            propagation: EnumOrUnknown::new(propagation),
            ..Default::default()
        });
    }
    if let (Some(host), Some(path)) = (&input.termination_log, &input.container.termination_message_path) {
        out.push(api::Mount {
            container_path: path.clone(),
            host_path: host.to_string_lossy().into_owned(),
            ..Default::default()
        });
    }
    Ok(out)
}

fn container_labels(pod: &Pod, container: &core::Container) -> HashMap<String, String> {
    [
        (labels::POD_NAME, &*pod.name.name),
        (labels::POD_NAMESPACE, &*pod.name.namespace),
        (labels::POD_UID, pod.uid.as_str()),
        (labels::CONTAINER_NAME, &container.name),
    ]
    .map(|(k, v)| (k.to_owned(), v.to_owned()))
    .into()
}

fn annotations(input: &Input<'_>) -> HashMap<String, String> {
    let Input { pod, container, .. } = input;
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let json = |value: Result<String, serde_json::Error>| value.ok();
    let pre_stop = container.lifecycle.as_ref().and_then(|l| l.pre_stop.as_ref());
    let ports = container.ports.as_ref().filter(|ports| !ports.is_empty());
    [
        (labels::CONTAINER_HASH, Some(identity::container_hash(container))),
        (labels::CONTAINER_RESTART_COUNT, Some(input.restart_count.to_string())),
        (labels::CONTAINER_TERMINATION_MESSAGE_PATH, Some(text(&container.termination_message_path))),
        (labels::CONTAINER_TERMINATION_MESSAGE_POLICY, Some(text(&container.termination_message_policy))),
        (labels::POD_DELETION_GRACE_PERIOD, pod.meta.deletion_grace_period_seconds.map(|s| s.to_string())),
        (labels::POD_TERMINATION_GRACE_PERIOD, pod.spec.termination_grace_period_seconds.map(|s| s.to_string())),
        (labels::CONTAINER_PRE_STOP_HANDLER, pre_stop.and_then(|hook| json(serde_json::to_string(hook)))),
        (labels::CONTAINER_PORTS, ports.and_then(|ports| json(serde_json::to_string(ports)))),
    ]
    .into_iter()
    .filter_map(|(key, value)| Some((key.to_owned(), value?)))
    .collect()
}

/// Paths that a container doesn't see, and those that it can't write, unless `procMount` says so.
const MASKED_PATHS: [&str; 10] = [
    "/proc/asound",
    "/proc/acpi",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/proc/sched_debug",
    "/proc/scsi",
];
const MASKED_PATHS_SYS: [&str; 2] = ["/sys/firmware", "/sys/devices/virtual/powercap"];
const READONLY_PATHS: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

fn security_context(input: &Input<'_>) -> Result<api::LinuxContainerSecurityContext, Error> {
    let Input { pod, container, .. } = input;
    let of_pod = pod.spec.security_context.clone().unwrap_or_default();
    let own = container.security_context.clone().unwrap_or_default();
    let seccomp = own.seccomp_profile.or(of_pod.seccomp_profile);
    if seccomp.as_ref().is_some_and(|p| p.type_ == "Localhost") {
        return Err(Error::NotServed("seccompProfile Localhost"));
    }
    let unconfined = seccomp.as_ref().is_none_or(|p| p.type_ == "Unconfined");
    let user = own.run_as_user.or(of_pod.run_as_user);
    if own.run_as_non_root.or(of_pod.run_as_non_root).unwrap_or(false) {
        check_non_root(user, input.image)?;
    }
    let capabilities = own.capabilities.unwrap_or_default();
    let privileged = own.privileged.unwrap_or(false);
    let unmasked = privileged || own.proc_mount.as_deref() == Some("Unmasked");
    let owned = |paths: &[&str]| if unmasked { Vec::new() } else { paths.iter().map(|p| (*p).to_owned()).collect() };
    let mut masked: Vec<String> = owned(&MASKED_PATHS);
    masked.extend(owned(&MASKED_PATHS_SYS));
    let profile = if unconfined {
        api::security_profile::ProfileType::Unconfined
    } else {
        api::security_profile::ProfileType::RuntimeDefault
    };
    Ok(api::LinuxContainerSecurityContext {
        capabilities: MessageField::some(api::Capability {
            add_capabilities: capabilities.add.unwrap_or_default(),
            drop_capabilities: capabilities.drop.unwrap_or_default(),
            ..Default::default()
        }),
        privileged,
        namespace_options: MessageField::some(sandbox::namespaces(pod)),
        run_as_user: user.or(image_uid(input.image)).map(sandbox::int64).into(),
        run_as_group: own.run_as_group.or(of_pod.run_as_group).map(sandbox::int64).into(),
        readonly_rootfs: own.read_only_root_filesystem.unwrap_or(false),
        supplemental_groups: of_pod
            .fs_group
            .into_iter()
            .chain(of_pod.supplemental_groups.unwrap_or_default())
            .collect(),
        no_new_privs: own.allow_privilege_escalation == Some(false),
        masked_paths: masked,
        readonly_paths: owned(&READONLY_PATHS),
        seccomp: MessageField::some(api::SecurityProfile {
            profile_type: EnumOrUnknown::new(profile),
            ..Default::default()
        }),
        ..Default::default()
    })
}

fn image_uid(image: &Image) -> Option<i64> {
    match image.user {
        Some(ImageUser::Uid(uid)) => Some(uid),
        _ => None,
    }
}

fn check_non_root(user: Option<i64>, image: &Image) -> Result<(), Error> {
    match (user, &image.user) {
        (Some(0), _) => Err(Error::RunsAsRoot),
        (Some(_), _) => Ok(()),
        (None, Some(ImageUser::Name(name))) => Err(Error::ImageUserNotNumeric(name.clone())),
        (None, Some(ImageUser::Uid(0)) | None) => Err(Error::ImageRunsAsRoot),
        (None, Some(ImageUser::Uid(_))) => Ok(()),
    }
}

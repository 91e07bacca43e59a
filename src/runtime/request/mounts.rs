//! What is mounted into a container (pkg/kubelet/kubelet_pods.go `makeMounts`, kuberuntime_container.go
//! `makeMounts`).

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use protobuf::{EnumOrUnknown, MessageField};

use super::{ConfigError, Context, Environment, hosts};
use crate::cri::api::{self, MountPropagation};
use crate::pod::core;

/// Where a volume's content comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source<'a> {
    /// A directory or file of the node.
    Path {
        path: &'a Path,
        /// It may be mounted only for reading.
        read_only: bool,
        /// It is the pod's own: with SELinux, it may be given the pod's label.
        relabel: bool,
    },
    /// A block device of the node, which is no mount but a device in the container.
    Device { path: &'a Path, read_only: bool },
    /// An image, as the runtime knows it: the runtime mounts it itself.
    Image(&'a str),
}

/// A part of a volume that a mount is of. Before the container can be made, the caller has to prepare
/// it: to see that no link in it leads out of the volume, and to make it if it is not there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubPath<'a> {
    /// Which of the container's mounts.
    pub index: usize,
    pub volume: &'a str,
    /// Relative, and without `..`.
    pub path: String,
}

/// The parts of volumes that a container mounts, with the variables in their names replaced.
///
/// # Errors
/// When a variable is not there, or the path leads out of the volume.
pub fn sub_paths<'a>(container: &'a core::Container, env: &Environment) -> Result<Vec<SubPath<'a>>, ConfigError> {
    let mounts = container.volume_mounts.iter().flatten().enumerate();
    mounts.filter_map(|(index, mount)| sub_path(index, mount, env).transpose()).collect()
}

fn sub_path<'a>(
    index: usize,
    mount: &'a core::VolumeMount,
    env: &Environment,
) -> Result<Option<SubPath<'a>>, ConfigError> {
    let set = |path: &'a Option<String>| path.as_deref().filter(|path| !path.is_empty());
    let path = match (set(&mount.sub_path_expr), set(&mount.sub_path)) {
        (Some(expression), _) => expand(expression, mount, env)?,
        (None, Some(path)) => path.to_owned(),
        (None, None) => return Ok(None),
    };
    if path.starts_with('/') || path.split('/').any(|part| part == "..") {
        return Err(ConfigError::SubPath { mount_path: mount.mount_path.clone() });
    }
    // All variables in it were empty: the volume itself.
    let found = SubPath { index, volume: &mount.name, path };
    Ok(Some(found).filter(|found| !found.path.is_empty()))
}

/// Unlike in an argument, a variable that isn't there is a fault.
fn expand(expression: &str, mount: &core::VolumeMount, env: &Environment) -> Result<String, ConfigError> {
    let mut missing = Vec::new();
    let lookup = |name: &str| {
        let value = env.get(name);
        if value.is_none() {
            missing.push(name.to_owned());
        }
        value
    };
    let too_long = |_| ConfigError::TooLong { what: format!("volumeMount {}: subPathExpr", mount.mount_path) };
    let path = crate::pod::env::expand(expression, lookup).map_err(too_long)?;
    match missing.is_empty() {
        true => Ok(path),
        false => {
            let missing = missing.join(", ");
            Err(ConfigError::SubPathVariables { mount_path: mount.mount_path.clone(), missing })
        }
    }
}

/// What a container's mounts are made from.
pub(super) struct Mounting<'a> {
    pub cx: &'a Context<'a>,
    pub container: &'a core::Container,
    pub env: &'a Environment,
    pub volumes: &'a BTreeMap<&'a str, Source<'a>>,
    pub prepared: &'a BTreeMap<usize, PathBuf>,
    pub hosts: Option<&'a Path>,
    pub termination_log: Option<&'a Path>,
}

pub(super) fn mounts(input: &Mounting<'_>) -> Result<Vec<api::Mount>, ConfigError> {
    let mut out = Vec::new();
    for (index, mount) in input.container.volume_mounts.iter().flatten().enumerate() {
        out.push(of_volume(input, index, mount)?);
    }
    if let Some(file) = input.hosts.filter(|_| !hosts::has_own_hosts(input.container)) {
        out.push(of_file(input, file, hosts::PATH));
    }
    let path = input.container.termination_message_path.as_deref().filter(|path| !path.is_empty());
    if let (Some(file), Some(path)) = (input.termination_log, path) {
        out.push(of_file(input, file, path));
    }
    if input.cx.pod.spec.host_users == Some(false) {
        for mount in &mut out {
            mount.uidMappings = input.cx.ids.iter().map(|ids| ids.mapping()).collect();
            mount.gidMappings = mount.uidMappings.clone();
        }
    }
    Ok(out)
}

/// A file of our own, which the container may write.
fn of_file(input: &Mounting<'_>, file: &Path, path: &str) -> api::Mount {
    api::Mount {
        container_path: absolute(path),
        host_path: text(file),
        selinux_relabel: input.cx.node.selinux,
        ..Default::default()
    }
}

fn of_volume(input: &Mounting<'_>, index: usize, mount: &core::VolumeMount) -> Result<api::Mount, ConfigError> {
    let no_volume = || ConfigError::NoVolume { volume: mount.name.clone(), container: input.container.name.clone() };
    let volume = input.cx.pod.spec.volumes.iter().flatten().find(|v| v.name == mount.name).ok_or_else(no_volume)?;
    let source = input.volumes.get(mount.name.as_str()).ok_or_else(no_volume)?;
    let sub_path = sub_path(index, mount, input.env)?;
    let mut out = api::Mount {
        container_path: absolute(&mount.mount_path),
        readonly: mount.read_only == Some(true),
        recursive_read_only: recursive_read_only(mount, input.cx.handler.recursive_read_only)?,
        propagation: EnumOrUnknown::new(propagation(mount)?),
        ..Default::default()
    };
    match source {
        Source::Device { .. } => return Err(no_volume()),
        Source::Image(image) => {
            let specified = volume.image.as_ref().and_then(|i| i.reference.clone()).unwrap_or_default();
            out.image = MessageField::some(api::ImageSpec {
                image: (*image).to_owned(),
                user_specified_image: specified,
                ..Default::default()
            });
            out.image_sub_path = sub_path.map(|sub| sub.path).unwrap_or_default();
            out.readonly = true;
        }
        Source::Path { path, read_only, relabel } => {
            let not_ready = || ConfigError::SubPathNotReady { mount_path: mount.mount_path.clone() };
            out.host_path = match sub_path {
                Some(_) => text(input.prepared.get(&index).ok_or_else(not_ready)?),
                None => text(path),
            };
            out.readonly |= read_only;
            out.selinux_relabel = *relabel && input.cx.node.selinux;
        }
    }
    Ok(out)
}

/// The block devices of a container (pkg/kubelet/kubelet_pods.go `makeBlockVolumes`).
pub(super) fn devices(
    container: &core::Container,
    volumes: &BTreeMap<&str, Source<'_>>,
) -> Result<Vec<api::Device>, ConfigError> {
    let device = |wanted: &core::VolumeDevice| match volumes.get(wanted.name.as_str()) {
        Some(Source::Device { path, read_only }) => Ok(api::Device {
            container_path: wanted.device_path.clone(),
            host_path: text(path),
            permissions: if *read_only { "r" } else { "mrw" }.to_owned(),
            ..Default::default()
        }),
        _ => Err(ConfigError::NoVolume { volume: wanted.name.clone(), container: container.name.clone() }),
    };
    container.volume_devices.iter().flatten().map(device).collect()
}

fn propagation(mount: &core::VolumeMount) -> Result<MountPropagation, ConfigError> {
    match mount.mount_propagation.as_deref() {
        None | Some("None") => Ok(MountPropagation::PROPAGATION_PRIVATE),
        Some("HostToContainer") => Ok(MountPropagation::PROPAGATION_HOST_TO_CONTAINER),
        Some("Bidirectional") => Ok(MountPropagation::PROPAGATION_BIDIRECTIONAL),
        Some(value) => Err(ConfigError::Unknown { field: "mountPropagation", value: value.to_owned() }),
    }
}

fn recursive_read_only(mount: &core::VolumeMount, possible: bool) -> Result<bool, ConfigError> {
    let mode = match mount.recursive_read_only.as_deref() {
        None | Some("Disabled") => return Ok(false),
        Some(mode) => mode,
    };
    let refused = |why| Err(ConfigError::RecursiveReadOnly { mount_path: mount.mount_path.clone(), why });
    if mount.read_only != Some(true) {
        return refused("needs readOnly: true");
    }
    if propagation(mount)? != MountPropagation::PROPAGATION_PRIVATE {
        return refused("can't be had with mountPropagation");
    }
    match mode {
        "IfPossible" => Ok(possible),
        "Enabled" if possible => Ok(true),
        "Enabled" => refused("is not supported by the runtime"),
        value => Err(ConfigError::Unknown { field: "recursiveReadOnly", value: value.to_owned() }),
    }
}

fn absolute(path: &str) -> String {
    if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{Nothing, context, node, pod};
    use super::super::{EnvInput, Handler, IdRange, environment};
    use super::*;
    use crate::pod::Pod;

    const ENV: &str = "env: [{name: A, value: x}, {name: UP, value: '..'}, {name: ROOT, value: /etc}, {name: E}]";

    fn pod_of(mounts: &str) -> Pod {
        pod(&format!(
            "{{containers: [{{name: c, image: i, {ENV}, volumeMounts: [{mounts}], \
             securityContext: {{privileged: true}}}}], volumes: [{{name: e, emptyDir: {{}}}}, \
             {{name: h, hostPath: {{path: /srv}}}}, {{name: m, configMap: {{name: x}}}}, \
             {{name: i, image: {{reference: 'tools:1'}}}}, {{name: d, persistentVolumeClaim: {{claimName: x}}}}]}}"
        ))
    }

    fn env_of(cx: &Context<'_>) -> Environment {
        let container = &cx.pod.spec.containers[0];
        let input = EnvInput { context: cx, container, pod_ips: &[], services: (&[], &[]), lookup: &Nothing };
        environment(&input).expect("an environment").0
    }

    /// The mounts made for volumes that lie in `/v/NAME`, with all parts prepared as `/prepared/INDEX`.
    fn made(cx: &Context<'_>) -> Result<Vec<api::Mount>, ConfigError> {
        let path = |path, read_only, relabel| Source::Path { path: Path::new(path), read_only, relabel };
        let volumes = BTreeMap::from([
            ("e", path("/v/e", false, true)),
            ("h", path("/v/h", false, false)),
            ("m", path("/v/m", true, true)),
            ("d", Source::Device { path: Path::new("/dev/sdb"), read_only: false }),
            ("i", Source::Image("sha256:2")),
        ]);
        let env = env_of(cx);
        let parts = sub_paths(&cx.pod.spec.containers[0], &env)?;
        let prepared = parts.iter().map(|s| (s.index, PathBuf::from(format!("/prepared/{}", s.index)))).collect();
        mounts(&Mounting {
            cx,
            container: &cx.pod.spec.containers[0],
            env: &env,
            volumes: &volumes,
            prepared: &prepared,
            hosts: Some(Path::new("/pods/u1/etc-hosts")),
            termination_log: Some(Path::new("/pods/u1/log")),
        })
    }

    fn first_with(selinux: bool, mount: &str) -> Result<api::Mount, ConfigError> {
        let (pod, node) = (pod_of(mount), super::super::Node { selinux, ..node() });
        made(&context(&pod, &node)).map(|mut mounts| mounts.swap_remove(0))
    }

    fn first(mount: &str) -> Result<api::Mount, ConfigError> {
        first_with(true, mount)
    }

    #[test]
    fn kinds_of_sources() {
        let table = [
            ("name: e", "/v/e", false, true),
            ("name: e, readOnly: true", "/v/e", true, true),
            ("name: h", "/v/h", false, false),
            ("name: m", "/v/m", true, true),
            ("name: m, readOnly: false", "/v/m", true, true),
            ("name: i", "", true, false),
        ];
        for (mount, path, read_only, relabel) in table {
            let got = first(&format!("{{{mount}, mountPath: /x}}")).expect("a mount");
            let shown = (got.host_path.as_str(), got.readonly, got.selinux_relabel);
            assert_eq!(shown, (path, read_only, relabel), "{mount}");
        }
        assert!(!first_with(false, "{name: e, mountPath: /x}").expect("a mount").selinux_relabel);
        let no_volume = ConfigError::NoVolume { volume: "d".to_owned(), container: "c".to_owned() };
        assert_eq!(first("{name: d, mountPath: /x}"), Err(no_volume));
        let image = first("{name: i, mountPath: /x, subPath: a/b}").expect("a mount");
        assert_eq!((image.image.image.as_str(), image.image.user_specified_image.as_str()), ("sha256:2", "tools:1"));
        assert_eq!(image.image_sub_path, "a/b");
        assert_eq!(first("{name: e, mountPath: rel}").expect("a mount").container_path, "/rel");
    }

    #[test]
    fn parts_of_volumes() {
        let bad = |mount_path: &str| Err(ConfigError::SubPath { mount_path: mount_path.to_owned() });
        let missing = |missing: &str| {
            Err(ConfigError::SubPathVariables { mount_path: "/x".to_owned(), missing: missing.to_owned() })
        };
        let table = [
            ("subPath: a/b", Ok(Some("a/b"))),
            ("subPath: ''", Ok(None)),
            ("subPath: $(A)", Ok(Some("$(A)"))),
            ("subPathExpr: 'a/$(A)'", Ok(Some("a/x"))),
            ("subPathExpr: $$(A)", Ok(Some("$(A)"))),
            ("subPathExpr: $(E)", Ok(None)),
            ("subPathExpr: 'a/$(UP)'", bad("/x")),
            ("subPathExpr: $(ROOT)", bad("/x")),
            ("subPathExpr: '$(NONE)/$(A)/$(OTHER)'", missing("NONE, OTHER")),
        ];
        for (part, want) in table {
            let (pod, node) =
                (pod_of(&format!("{{name: h, mountPath: /y}}, {{name: e, mountPath: /x, {part}}}")), node());
            let env = env_of(&context(&pod, &node));
            let got = sub_paths(&pod.spec.containers[0], &env);
            let got =
                got.map(|all| all.into_iter().map(|s| (s.index, s.volume.to_owned(), s.path)).collect::<Vec<_>>());
            let want: Result<Option<&str>, ConfigError> = want;
            let want = want.map(|path| path.map(|p| (1, "e".to_owned(), p.to_owned())).into_iter().collect::<Vec<_>>());
            assert_eq!(got, want, "{part}");
        }
        assert_eq!(first("{name: e, mountPath: /x, subPath: a}").expect("a mount").host_path, "/prepared/0");
    }

    #[test]
    fn what_was_not_made_ready_is_a_fault() {
        let (pod, node) = (pod_of("{name: e, mountPath: /x, subPath: a}"), node());
        let cx = context(&pod, &node);
        let source = Source::Path { path: Path::new("/v/e"), read_only: false, relabel: true };
        let volumes = BTreeMap::from([("e", source)]);
        let env = env_of(&cx);
        let mut input = Mounting {
            cx: &cx,
            container: &pod.spec.containers[0],
            env: &env,
            volumes: &volumes,
            prepared: &BTreeMap::new(),
            hosts: None,
            termination_log: None,
        };
        assert_eq!(mounts(&input), Err(ConfigError::SubPathNotReady { mount_path: "/x".to_owned() }));
        let none = BTreeMap::new();
        input.volumes = &none;
        assert_eq!(mounts(&input), Err(ConfigError::NoVolume { volume: "e".to_owned(), container: "c".to_owned() }));
    }

    #[test]
    fn block_devices() {
        let pod = pod("{containers: [{name: c, image: i, volumeDevices: [{name: a, devicePath: /dev/xa}, \
             {name: b, devicePath: /dev/xb}]}], volumes: [{name: a, persistentVolumeClaim: {claimName: x}}, \
             {name: b, persistentVolumeClaim: {claimName: x2}}]}");
        let device = |path, read_only| Source::Device { path: Path::new(path), read_only };
        let volumes = BTreeMap::from([("a", device("/dev/sda", false)), ("b", device("/dev/sdb", true))]);
        let container = &pod.spec.containers[0];
        let made = devices(container, &volumes).expect("devices");
        let shown = |d: &api::Device| format!("{} {} {}", d.container_path, d.host_path, d.permissions);
        assert_eq!(made.iter().map(shown).collect::<Vec<_>>(), ["/dev/xa /dev/sda mrw", "/dev/xb /dev/sdb r"]);
        let path = Source::Path { path: Path::new("/v/a"), read_only: false, relabel: false };
        let no_volume = ConfigError::NoVolume { volume: "a".to_owned(), container: "c".to_owned() };
        assert_eq!(devices(container, &BTreeMap::from([("a", path)])), Err(no_volume));
    }

    #[test]
    fn propagation_and_recursion() {
        let refused = |why| Err(ConfigError::RecursiveReadOnly { mount_path: "/x".to_owned(), why });
        let table = [
            ("", true, Ok((false, "PRIVATE"))),
            ("mountPropagation: None", true, Ok((false, "PRIVATE"))),
            ("mountPropagation: HostToContainer", true, Ok((false, "HOST_TO_CONTAINER"))),
            ("mountPropagation: Bidirectional", true, Ok((false, "BIDIRECTIONAL"))),
            ("readOnly: true, recursiveReadOnly: Disabled", true, Ok((false, "PRIVATE"))),
            ("readOnly: true, recursiveReadOnly: IfPossible", true, Ok((true, "PRIVATE"))),
            ("readOnly: true, recursiveReadOnly: IfPossible", false, Ok((false, "PRIVATE"))),
            ("readOnly: true, recursiveReadOnly: Enabled", true, Ok((true, "PRIVATE"))),
            ("readOnly: true, recursiveReadOnly: Enabled", false, refused("is not supported by the runtime")),
        ];
        for (fields, possible, want) in table {
            let (pod, node) = (pod_of(&format!("{{name: e, mountPath: /x, {fields}}}")), node());
            let handler = Handler { recursive_read_only: possible, ..Handler::default() };
            let got = made(&Context { handler, ..context(&pod, &node) }).map(|mounts| {
                let propagation = format!("{:?}", mounts[0].propagation.enum_value_or_default());
                (mounts[0].recursive_read_only, propagation)
            });
            assert_eq!(got, want.map(|(rro, p): (bool, &str)| (rro, format!("PROPAGATION_{p}"))), "{fields}");
        }
        let mut mount = core::VolumeMount {
            recursive_read_only: Some("Enabled".to_owned()),
            mount_path: "/x".to_owned(),
            ..Default::default()
        };
        assert_eq!(recursive_read_only(&mount, true).map(|rro| (rro, "")), refused("needs readOnly: true"));
        mount.read_only = Some(true);
        mount.mount_propagation = Some("HostToContainer".to_owned());
        assert_eq!(
            recursive_read_only(&mount, true).map(|rro| (rro, "")),
            refused("can't be had with mountPropagation")
        );
    }

    #[test]
    fn files_of_our_own() {
        let node = node();
        let paths = |mounts: &str| {
            let pod = pod_of(mounts);
            let made = made(&context(&pod, &node)).expect("mounts");
            made.iter().map(|m| format!("{} {}", m.container_path, m.host_path)).collect::<Vec<_>>()
        };
        let ours = ["/etc/hosts /pods/u1/etc-hosts", "/dev/termination-log /pods/u1/log"];
        assert_eq!(paths(""), ours);
        assert_eq!(paths("{name: h, mountPath: /etc/hosts}"), ["/etc/hosts /v/h", ours[1]]);
    }

    #[test]
    fn mounts_of_a_pod_with_users_of_its_own() {
        let node = node();
        let mut pod = pod_of("{name: e, mountPath: /x}");
        pod.spec.host_users = Some(false);
        let ids = IdRange { first: 65_536, length: 65_536 };
        let made = made(&Context { ids: Some(ids), ..context(&pod, &node) }).expect("mounts");
        assert_eq!(made.len(), 3);
        assert!(made.iter().all(|m| m.uidMappings == [ids.mapping()] && m.gidMappings == [ids.mapping()]));
    }
}

//! The security context of a sandbox and of a container: the pod's and the container's own, merged
//! (pkg/securitycontext, pkg/kubelet/kuberuntime/security_context.go, helpers.go).

use std::path::{Path, PathBuf};

use protobuf::{EnumOrUnknown, MessageField};

use super::{ConfigError, Context, namespaces};
use crate::cri::api::{self, security_profile::ProfileType};
use crate::cri::{ContainerId, Image, ImageUser};
use crate::pod::core;

/// Paths that a container doesn't see unless it has `procMount: Unmasked`.
const MASKED_PATHS: [&str; 12] = [
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
    "/sys/firmware",
    "/sys/devices/virtual/powercap",
];
/// Those that it can't write.
const READONLY_PATHS: [&str; 5] = ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys", "/proc/sysrq-trigger"];

const APP_ARMOR_ANNOTATION: &str = "container.apparmor.security.beta.kubernetes.io/";
const MAX_UID: i64 = i32::MAX as i64;

pub fn of_sandbox(cx: &Context<'_>) -> Result<api::LinuxSandboxSecurityContext, ConfigError> {
    let context = cx.pod.spec.security_context.clone().unwrap_or_default();
    let privileged = |c: &core::Container| c.security_context.as_ref().and_then(|s| s.privileged) == Some(true);
    let (fs_group, declared) = (context.fs_group, context.supplemental_groups.unwrap_or_default());
    let groups = fs_group.into_iter().chain(cx.volume_groups.iter().copied()).chain(declared);
    Ok(api::LinuxSandboxSecurityContext {
        namespace_options: MessageField::some(namespaces::of_pod(cx)?),
        selinux_options: context.se_linux_options.as_ref().map(se_linux).into(),
        run_as_user: context.run_as_user.map(int64).into(),
        // Without a user the runtime must refuse a group.
        run_as_group: context.run_as_user.and(context.run_as_group).map(int64).into(),
        supplemental_groups: groups.collect(),
        supplemental_groups_policy: groups_policy(cx, context.supplemental_groups_policy.as_deref())?,
        privileged: cx.pod.all_containers().any(privileged),
        // Whatever the containers have: nothing of theirs runs in the sandbox itself.
        seccomp: MessageField::some(profile(ProfileType::RuntimeDefault)),
        ..Default::default()
    })
}

pub fn of_container(
    cx: &Context<'_>,
    container: &core::Container,
    image: &Image,
    target: Option<&ContainerId>,
) -> Result<api::LinuxContainerSecurityContext, ConfigError> {
    let of_pod = cx.pod.spec.security_context.clone().unwrap_or_default();
    let own = container.security_context.clone().unwrap_or_default();
    let user = own.run_as_user.or(of_pod.run_as_user);
    if own.run_as_non_root.or(of_pod.run_as_non_root) == Some(true) {
        check_non_root(user, image)?;
    }
    let (run_as_user, run_as_username) = match (user, &image.user) {
        (Some(user), _) => (Some(user), String::new()),
        (None, Some(ImageUser::Uid(user))) => (Some(*user), String::new()),
        (None, Some(ImageUser::Name(name))) => (None, name.clone()),
        (None, None) => (Some(0), String::new()),
    };
    let (fs_group, declared) = (of_pod.fs_group, of_pod.supplemental_groups.unwrap_or_default());
    let groups = fs_group.into_iter().chain(declared).chain(cx.volume_groups.iter().copied());
    let app_armor = app_armor(cx, container, of_pod.app_armor_profile.as_ref())?;
    let unmasked = own.proc_mount.as_deref() == Some("Unmasked");
    let masked = MASKED_PATHS.iter().map(|p| (*p).to_owned()).chain(cx.node.masked_paths.iter().cloned());
    let readonly = READONLY_PATHS.iter().map(|p| (*p).to_owned());
    let selinux = own.se_linux_options.or(of_pod.se_linux_options);
    Ok(api::LinuxContainerSecurityContext {
        capabilities: own.capabilities.map(capabilities).into(),
        privileged: own.privileged.unwrap_or(false),
        namespace_options: MessageField::some(namespaces::of_container(cx, target)?),
        selinux_options: selinux.as_ref().map(se_linux).into(),
        run_as_user: run_as_user.map(int64).into(),
        run_as_username,
        run_as_group: own.run_as_group.or(of_pod.run_as_group).map(int64).into(),
        readonly_rootfs: own.read_only_root_filesystem.unwrap_or(false),
        supplemental_groups: groups.collect(),
        supplemental_groups_policy: groups_policy(cx, of_pod.supplemental_groups_policy.as_deref())?,
        apparmor_profile: app_armor.as_ref().map(old_app_armor).unwrap_or_default(),
        apparmor: app_armor.into(),
        no_new_privs: own.allow_privilege_escalation == Some(false),
        masked_paths: if unmasked { Vec::new() } else { masked.collect() },
        readonly_paths: if unmasked { Vec::new() } else { readonly.collect() },
        seccomp: MessageField::some(seccomp(cx, own.seccomp_profile.or(of_pod.seccomp_profile).as_ref())?),
        ..Default::default()
    })
}

fn int64(value: i64) -> api::Int64Value {
    api::Int64Value { value, ..Default::default() }
}

/// Refuses what runs as root, or may: a name could be anybody's.
fn check_non_root(user: Option<i64>, image: &Image) -> Result<(), ConfigError> {
    match (user, &image.user) {
        (Some(0), _) => Err(ConfigError::RunsAsRoot),
        (Some(_), _) => Ok(()),
        (None, Some(ImageUser::Name(name))) => Err(ConfigError::ImageUserNotNumeric(name.clone())),
        (None, Some(ImageUser::Uid(0)) | None) => Err(ConfigError::ImageRunsAsRoot),
        (None, Some(ImageUser::Uid(1..=MAX_UID))) => Ok(()),
        (None, Some(ImageUser::Uid(user))) => Err(ConfigError::ImageUserInvalid(*user)),
    }
}

fn groups_policy(
    cx: &Context<'_>,
    policy: Option<&str>,
) -> Result<EnumOrUnknown<api::SupplementalGroupsPolicy>, ConfigError> {
    match policy {
        None | Some("Merge") => Ok(EnumOrUnknown::new(api::SupplementalGroupsPolicy::Merge)),
        // An old runtime would give the image's groups all the same.
        Some("Strict") if !cx.handler.groups_policy => Err(ConfigError::NoGroupsPolicy),
        Some("Strict") => Ok(EnumOrUnknown::new(api::SupplementalGroupsPolicy::Strict)),
        Some(value) => Err(ConfigError::Unknown { field: "supplementalGroupsPolicy", value: value.to_owned() }),
    }
}

fn se_linux(options: &core::SELinuxOptions) -> api::SELinuxOption {
    let text = |field: &Option<String>| field.clone().unwrap_or_default();
    api::SELinuxOption {
        user: text(&options.user),
        role: text(&options.role),
        type_: text(&options.type_),
        level: text(&options.level),
        ..Default::default()
    }
}

fn capabilities(capabilities: core::Capabilities) -> api::Capability {
    api::Capability {
        add_capabilities: capabilities.add.unwrap_or_default(),
        drop_capabilities: capabilities.drop.unwrap_or_default(),
        ..Default::default()
    }
}

fn profile(kind: ProfileType) -> api::SecurityProfile {
    api::SecurityProfile { profile_type: EnumOrUnknown::new(kind), ..Default::default() }
}

fn local_profile(localhost_ref: String) -> api::SecurityProfile {
    api::SecurityProfile { localhost_ref, ..profile(ProfileType::Localhost) }
}

fn seccomp(cx: &Context<'_>, given: Option<&core::SeccompProfile>) -> Result<api::SecurityProfile, ConfigError> {
    const FIELD: &str = "seccompProfile";
    let Some(given) = given else {
        let default = if cx.node.seccomp_default { ProfileType::RuntimeDefault } else { ProfileType::Unconfined };
        return Ok(profile(default));
    };
    match (given.type_.as_str(), given.localhost_profile.as_deref()) {
        ("RuntimeDefault", _) => Ok(profile(ProfileType::RuntimeDefault)),
        ("Unconfined", _) => Ok(profile(ProfileType::Unconfined)),
        ("Localhost", Some(name)) if !name.is_empty() => {
            // `.` and doubled slashes have no place in it.
            let path: PathBuf = cx.node.paths.seccomp().join(name).components().collect();
            Ok(local_profile(text(&path)))
        }
        ("Localhost", _) => Err(ConfigError::NoLocalhostProfile(FIELD)),
        (value, _) => Err(ConfigError::Unknown { field: FIELD, value: value.to_owned() }),
    }
}

fn text(path: &Path) -> String {
    path.to_string_lossy().into_owned()
}

/// The container's own profile, else that of its annotation, else the pod's. Static pods have never
/// had their annotations turned into fields (pkg/security/apparmor).
fn app_armor(
    cx: &Context<'_>,
    container: &core::Container,
    of_pod: Option<&core::AppArmorProfile>,
) -> Result<Option<api::SecurityProfile>, ConfigError> {
    const FIELD: &str = "appArmorProfile";
    let own = container.security_context.as_ref().and_then(|c| c.app_armor_profile.as_ref());
    let annotation = || {
        let annotations = cx.pod.meta.annotations.as_ref()?;
        match annotations.get(&format!("{APP_ARMOR_ANNOTATION}{}", container.name))?.as_str() {
            "runtime/default" => Some(profile(ProfileType::RuntimeDefault)),
            "unconfined" => Some(profile(ProfileType::Unconfined)),
            value => value.strip_prefix("localhost/").map(|name| local_profile(name.to_owned())),
        }
    };
    let given = match (own, annotation(), of_pod) {
        (Some(given), _, _) | (None, None, Some(given)) => given,
        (None, annotated, _) => return Ok(annotated),
    };
    match (given.type_.as_str(), &given.localhost_profile) {
        ("RuntimeDefault", _) => Ok(Some(profile(ProfileType::RuntimeDefault))),
        ("Unconfined", _) => Ok(Some(profile(ProfileType::Unconfined))),
        ("Localhost", Some(name)) => Ok(Some(local_profile(name.clone()))),
        ("Localhost", None) => Err(ConfigError::NoLocalhostProfile(FIELD)),
        (value, _) => Err(ConfigError::Unknown { field: FIELD, value: value.to_owned() }),
    }
}

/// As runtimes that don't know the newer field want to be told.
fn old_app_armor(profile: &api::SecurityProfile) -> String {
    match profile.profile_type.enum_value_or_default() {
        ProfileType::RuntimeDefault => "runtime/default".to_owned(),
        ProfileType::Unconfined => "unconfined".to_owned(),
        ProfileType::Localhost => format!("localhost/{}", profile.localhost_ref),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{context, node, pod, pod_with};
    use super::*;

    fn image(user: Option<ImageUser>) -> Image {
        Image { id: "sha256:1".into(), repo_tags: vec![], repo_digests: vec![], size: 1, user, pinned: false }
    }

    fn of(of_pod: &str, own: &str, user: Option<ImageUser>) -> Result<api::LinuxContainerSecurityContext, ConfigError> {
        let node = node();
        let pod = pod(&format!(
            "{{containers: [{{name: c, image: i, securityContext: {{{own}}}}}], securityContext: {{{of_pod}}}}}"
        ));
        of_container(&context(&pod, &node), &pod.spec.containers[0], &image(user), None)
    }

    #[test]
    fn users() {
        let (uid, name) = (|n| Some(ImageUser::Uid(n)), || Some(ImageUser::Name("app".to_owned())));
        let table = [
            ("", "", None, "0 - -"),
            ("", "", uid(7), "7 - -"),
            ("", "", name(), "- app -"),
            ("", "runAsGroup: 5", name(), "- app 5"),
            ("runAsUser: 1, runAsGroup: 2", "", name(), "1 - 2"),
            ("runAsUser: 1, runAsGroup: 2", "runAsUser: 0", uid(7), "0 - 2"),
            ("runAsUser: 1, runAsGroup: 2", "runAsUser: 3, runAsGroup: 0", None, "3 - 0"),
        ];
        for (of_pod, own, user, want) in table {
            let got = of(of_pod, own, user).expect("a context");
            let id = |v: Option<&api::Int64Value>| v.map_or("-".to_owned(), |v| v.value.to_string());
            let name = if got.run_as_username.is_empty() { "-" } else { &got.run_as_username };
            let got = format!("{} {name} {}", id(got.run_as_user.as_ref()), id(got.run_as_group.as_ref()));
            assert_eq!(got, want, "{of_pod} {own}");
        }
    }

    #[test]
    fn who_must_not_be_root() {
        let (uid, name) = (|n| Some(ImageUser::Uid(n)), || Some(ImageUser::Name("app".to_owned())));
        let not_numeric = Some(ConfigError::ImageUserNotNumeric("app".to_owned()));
        let table = [
            ("runAsNonRoot: true", "", uid(7), None),
            ("runAsNonRoot: true", "", uid(0), Some(ConfigError::ImageRunsAsRoot)),
            ("runAsNonRoot: true", "", None, Some(ConfigError::ImageRunsAsRoot)),
            ("runAsNonRoot: true", "", name(), not_numeric.clone()),
            ("runAsNonRoot: true", "", uid(-1), Some(ConfigError::ImageUserInvalid(-1))),
            ("runAsNonRoot: true", "", uid(1 << 31), Some(ConfigError::ImageUserInvalid(1 << 31))),
            ("runAsNonRoot: true", "runAsUser: 0", uid(7), Some(ConfigError::RunsAsRoot)),
            ("runAsNonRoot: true", "runAsUser: 5", name(), None),
            ("runAsNonRoot: true", "runAsNonRoot: false", None, None),
            ("", "runAsNonRoot: true", name(), not_numeric),
            ("runAsNonRoot: false", "", None, None),
            ("runAsUser: 0", "runAsNonRoot: true", uid(7), Some(ConfigError::RunsAsRoot)),
        ];
        for (of_pod, own, user, want) in table {
            assert_eq!(of(of_pod, own, user).err(), want, "{of_pod} {own}");
        }
    }

    #[test]
    fn groups() {
        let node = node();
        let pod = pod("{containers: [{name: c, image: i}], securityContext: {fsGroup: 1, supplementalGroups: [2, 3], \
             supplementalGroupsPolicy: Strict}}");
        let cx = Context { volume_groups: &[9], ..context(&pod, &node) };
        let container = of_container(&cx, &pod.spec.containers[0], &image(None), None).expect("a context");
        let sandbox = of_sandbox(&cx).expect("a context");
        assert_eq!(container.supplemental_groups, [1, 2, 3, 9]);
        assert_eq!(sandbox.supplemental_groups, [1, 9, 2, 3]);
        let strict = EnumOrUnknown::new(api::SupplementalGroupsPolicy::Strict);
        assert_eq!((container.supplemental_groups_policy, sandbox.supplemental_groups_policy), (strict, strict));
        let unknown = groups_policy(&cx, Some("x"));
        assert_eq!(unknown, Err(ConfigError::Unknown { field: "supplementalGroupsPolicy", value: "x".to_owned() }));
        let old = Context { handler: super::super::Handler::default(), ..cx };
        assert_eq!(groups_policy(&old, Some("Strict")), Err(ConfigError::NoGroupsPolicy));
        assert!(groups_policy(&old, Some("Merge")).is_ok());
    }

    #[test]
    fn privileges() {
        let got = of("", "", None).expect("a context");
        assert!(!got.privileged && !got.no_new_privs && !got.readonly_rootfs && got.capabilities.is_none());
        assert_eq!((got.masked_paths.len(), got.readonly_paths.len()), (12, 5));
        let got = of("", "privileged: true, readOnlyRootFilesystem: true", None).expect("a context");
        assert!(got.privileged && got.readonly_rootfs && !got.no_new_privs);
        assert_eq!(got.masked_paths.len(), 12);
        let got = of("", "allowPrivilegeEscalation: false, capabilities: {add: [NET_ADMIN], drop: [ALL]}", None);
        let got = got.expect("a context");
        assert!(got.no_new_privs);
        assert_eq!(
            (&got.capabilities.add_capabilities, &got.capabilities.drop_capabilities),
            (&vec!["NET_ADMIN".to_owned()], &vec!["ALL".to_owned()])
        );
        assert!(!of("", "allowPrivilegeEscalation: true", None).expect("a context").no_new_privs);
    }

    #[test]
    fn proc_mounts() {
        let mut node = node();
        node.masked_paths = vec!["/sys/devices/system/cpu/cpu0/thermal_throttle".to_owned()];
        let paths = |mount: &str| {
            let pod = pod(&format!(
                "{{containers: [{{name: c, image: i, securityContext: {{procMount: {mount}}}}}], hostUsers: false}}"
            ));
            let ids = Some(super::super::IdRange { first: 65536, length: 65536 });
            let cx = Context { ids, ..context(&pod, &node) };
            let got = of_container(&cx, &pod.spec.containers[0], &image(None), None).expect("a context");
            (got.masked_paths.len(), got.readonly_paths.len(), got.masked_paths.last().cloned())
        };
        assert_eq!(paths("Default"), (13, 5, node.masked_paths.first().cloned()));
        assert_eq!(paths("Unmasked"), (0, 0, None));
    }

    #[test]
    fn seccomp_profiles() {
        let get = |default: bool, of_pod: &str, own: &str| {
            let node = super::super::Node { seccomp_default: default, ..node() };
            let field =
                |text: &str| if text.is_empty() { "{}".to_owned() } else { format!("{{seccompProfile: {text}}}") };
            let pod = pod(&format!(
                "{{containers: [{{name: c, image: i, securityContext: {}}}], securityContext: {}}}",
                field(own),
                field(of_pod)
            ));
            let got = of_container(&context(&pod, &node), &pod.spec.containers[0], &image(None), None)?;
            let (kind, path) = (got.seccomp.profile_type.enum_value_or_default(), got.seccomp.localhost_ref.clone());
            Ok(format!("{kind:?} {path}").trim_end().to_owned())
        };
        let table = [
            (false, "", "", "Unconfined"),
            (true, "", "", "RuntimeDefault"),
            (true, "", "{type: Unconfined}", "Unconfined"),
            (false, "{type: RuntimeDefault}", "", "RuntimeDefault"),
            (false, "{type: RuntimeDefault}", "{type: Unconfined}", "Unconfined"),
            (false, "", "{type: Localhost, localhostProfile: a/./b.json}", "Localhost /root/seccomp/a/b.json"),
        ];
        for (default, of_pod, own, want) in table {
            assert_eq!(get(default, of_pod, own).as_deref(), Ok(want), "{of_pod} {own}");
        }
        assert_eq!(
            get(false, "", "{type: Localhost, localhostProfile: ''}"),
            Err(ConfigError::NoLocalhostProfile("seccompProfile"))
        );
    }

    #[test]
    fn app_armor_profiles() {
        let get = |annotation: &str, of_pod: &str, own: &str| {
            let node = node();
            let field =
                |text: &str| if text.is_empty() { "{}".to_owned() } else { format!("{{appArmorProfile: {text}}}") };
            let annotations = match annotation {
                "" => "{}".to_owned(),
                value => format!("{{container.apparmor.security.beta.kubernetes.io/c: {value:?}}}"),
            };
            let pod = pod_with(
                &annotations,
                &format!(
                    "{{containers: [{{name: c, image: i, securityContext: {}}}], securityContext: {}}}",
                    field(own),
                    field(of_pod)
                ),
            );
            let got =
                of_container(&context(&pod, &node), &pod.spec.containers[0], &image(None), None).expect("a context");
            let shown = got
                .apparmor
                .as_ref()
                .map(|p| format!("{:?} {}", p.profile_type.enum_value_or_default(), p.localhost_ref));
            (shown.unwrap_or_default().trim_end().to_owned(), got.apparmor_profile)
        };
        let (default, unconfined, local) =
            ("{type: RuntimeDefault}", "{type: Unconfined}", "{type: Localhost, localhostProfile: mine}");
        let table = [
            ("", "", "", "", ""),
            ("", default, "", "RuntimeDefault", "runtime/default"),
            ("", default, unconfined, "Unconfined", "unconfined"),
            ("", "", local, "Localhost mine", "localhost/mine"),
            ("localhost/noted", "", "", "Localhost noted", "localhost/noted"),
            ("runtime/default", "", "", "RuntimeDefault", "runtime/default"),
            ("unconfined", "", "", "Unconfined", "unconfined"),
            ("", "", default, "RuntimeDefault", "runtime/default"),
        ];
        for (annotation, of_pod, own, want, old) in table {
            assert_eq!(get(annotation, of_pod, own), (want.to_owned(), old.to_owned()), "{annotation} {of_pod} {own}");
        }
    }

    #[test]
    fn se_linux_options() {
        let level = |of_pod: &str, own: &str| {
            let got = of(of_pod, own, None).expect("a context");
            got.selinux_options.as_ref().map(|o| format!("{}:{}:{}:{}", o.user, o.role, o.type_, o.level))
        };
        assert_eq!(level("", ""), None);
        assert_eq!(level("seLinuxOptions: {level: 's0:c1'}", "").as_deref(), Some(":::s0:c1"));
        // The container's options replace the pod's as a whole.
        let own = "seLinuxOptions: {user: u, role: r, type: t}";
        assert_eq!(level("seLinuxOptions: {level: 's0:c1'}", own).as_deref(), Some("u:r:t:"));
    }

    #[test]
    fn the_sandbox() {
        let node = node();
        let get = |spec: &str| {
            let pod = pod(&format!("{{containers: [{{name: c, image: i}}], {spec}}}"));
            of_sandbox(&context(&pod, &node)).expect("a context")
        };
        let got = get("securityContext: {runAsUser: 1, runAsGroup: 2, seccompProfile: {type: Unconfined}}");
        assert_eq!((got.run_as_user.value, got.run_as_group.value), (1, 2));
        assert_eq!(got.seccomp.profile_type, EnumOrUnknown::new(ProfileType::RuntimeDefault));
        assert!(!got.privileged);
        assert!(get("securityContext: {runAsGroup: 2}").run_as_group.is_none());
        let init = "initContainers: [{name: i, image: i, securityContext: {privileged: true}}]";
        assert!(get(init).privileged);
    }
}

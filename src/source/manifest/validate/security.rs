//! Security contexts of the pod and of its containers, and the old annotations for seccomp and
//! AppArmor.

use std::collections::{BTreeMap, HashSet};

use super::format::{RELATIVE_PATH, SYSCTL};
use super::report::{Path, Report, Unique, each};
use super::windows;
use crate::pod::core;

const MAX_ID: i64 = u32::MAX as i64;
const PROFILE_TYPES: &[&str] = &["Localhost", "RuntimeDefault", "Unconfined"];

/// Checks the pod's security context and the host's namespaces that it uses.
pub fn of_pod(report: &mut Report, at: &Path<'_>, spec: &core::PodSpec) {
    if spec.share_process_namespace == Some(true) && spec.host_pid == Some(true) {
        report.invalid(&at.field("shareProcessNamespace"), true, "may not be set together with hostPID");
    }
    if spec.host_users == Some(false) {
        let namespaces = [("hostNetwork", spec.host_network), ("hostPID", spec.host_pid), ("hostIPC", spec.host_ipc)];
        for (name, _) in namespaces.iter().filter(|(_, set)| *set == Some(true)) {
            report.forbidden(&at.field(name), "may not be set when hostUsers is false");
        }
    }
    let Some(context) = &spec.security_context else { return };
    let at = at.field("securityContext");
    let ids = [("fsGroup", context.fs_group), ("runAsUser", context.run_as_user), ("runAsGroup", context.run_as_group)];
    ids_in_range(report, &at, &ids);
    for (at, gid) in each(&at.field("supplementalGroups"), &context.supplemental_groups) {
        report.range(&at, *gid, 0, MAX_ID);
    }
    sysctls(report, &at.field("sysctls"), context, spec);
    let policies = [
        ("fsGroupChangePolicy", &context.fs_group_change_policy, ["Always", "OnRootMismatch"]),
        ("supplementalGroupsPolicy", &context.supplemental_groups_policy, ["Merge", "Strict"]),
        ("seLinuxChangePolicy", &context.se_linux_change_policy, ["MountOption", "Recursive"]),
    ];
    for (name, policy, allowed) in policies {
        if let Some(policy) = policy {
            report.choice(&at.field(name), policy, &allowed);
        }
    }
    seccomp(report, &at.field("seccompProfile"), context.seccomp_profile.as_ref());
    app_armor(report, &at.field("appArmorProfile"), context.app_armor_profile.as_ref());
    windows::options(report, &at.field("windowsOptions"), context.windows_options.as_ref());
}

pub fn of_container(report: &mut Report, at: &Path<'_>, context: &core::SecurityContext, host_users: bool) {
    ids_in_range(report, at, &[("runAsUser", context.run_as_user), ("runAsGroup", context.run_as_group)]);
    if let Some(mount) = &context.proc_mount {
        report.choice(&at.field("procMount"), mount, &["Default", "Unmasked"]);
        if host_users && mount == "Unmasked" {
            report.invalid(&at.field("procMount"), mount, "may be Unmasked only when hostUsers is false");
        }
    }
    if context.allow_privilege_escalation == Some(false) {
        if context.privileged == Some(true) {
            report.invalid(at, "", "may not be privileged when allowPrivilegeEscalation is false");
        }
        let added = context.capabilities.iter().flat_map(|c| c.add.iter().flatten());
        if added.into_iter().any(|c| c == "CAP_SYS_ADMIN") {
            report.invalid(at, "", "may not add CAP_SYS_ADMIN when allowPrivilegeEscalation is false");
        }
    }
    seccomp(report, &at.field("seccompProfile"), context.seccomp_profile.as_ref());
    app_armor(report, &at.field("appArmorProfile"), context.app_armor_profile.as_ref());
    windows::options(report, &at.field("windowsOptions"), context.windows_options.as_ref());
}

fn ids_in_range(report: &mut Report, at: &Path<'_>, ids: &[(&'static str, Option<i64>)]) {
    for (name, id) in ids {
        report.range(&at.field(name), id.unwrap_or_default(), 0, MAX_ID);
    }
}

fn sysctls(report: &mut Report, at: &Path<'_>, context: &core::PodSecurityContext, spec: &core::PodSpec) {
    let mut names = Unique::default();
    for (at, sysctl) in each(at, &context.sysctls) {
        let (at, name) = (at.field("name"), sysctl.name.as_str());
        report.present_format(&at, name, SYSCTL);
        names.check(report, &at, name);
        let host = match namespace(name) {
            Some(Namespace::Net) if spec.host_network == Some(true) => "hostNetwork",
            Some(Namespace::Ipc) if spec.host_ipc == Some(true) => "hostIPC",
            _ => continue,
        };
        report.invalid(&at, name, format_args!("may not be set together with {host}"));
    }
}

enum Namespace {
    Ipc,
    Net,
}

/// The namespace that has its own value of a sysctl (component-helpers/node/util/sysctl).
fn namespace(sysctl: &str) -> Option<Namespace> {
    // With '/' as the separator, a '.' belongs to a name.
    let slashes = sysctl.find(['.', '/']).is_some_and(|i| sysctl.as_bytes().get(i) == Some(&b'/'));
    let name = if slashes { sysctl.replace('/', ".") } else { sysctl.to_owned() };
    let ipc = ["kernel.shm", "kernel.msg", "fs.mqueue."];
    if name == "kernel.sem" || ipc.iter().any(|prefix| name.starts_with(prefix)) {
        return Some(Namespace::Ipc);
    }
    name.starts_with("net.").then_some(Namespace::Net)
}

fn seccomp(report: &mut Report, at: &Path<'_>, profile: Option<&core::SeccompProfile>) {
    let Some(profile) = profile else { return };
    report.choice(&at.field("type"), &profile.type_, PROFILE_TYPES);
    let at = at.field("localhostProfile");
    match (profile.type_.as_str(), &profile.localhost_profile) {
        ("Localhost", None) => report.required_because(&at, "must be set when type is Localhost"),
        ("Localhost", Some(path)) => report.format(&at, path, RELATIVE_PATH),
        (_, Some(path)) => report.invalid(&at, path, "may be set only when type is Localhost"),
        (_, None) => {}
    }
}

fn app_armor(report: &mut Report, at: &Path<'_>, profile: Option<&core::AppArmorProfile>) {
    const MAX: usize = 4095;
    let Some(profile) = profile else { return };
    report.choice(&at.field("type"), &profile.type_, PROFILE_TYPES);
    let at = at.field("localhostProfile");
    match (profile.type_.as_str(), profile.localhost_profile.as_deref()) {
        ("Localhost", None | Some("")) => report.required_because(&at, "must be set when type is Localhost"),
        ("Localhost", Some(name)) if name != name.trim() => {
            report.invalid(&at, name, "must not begin or end with white space");
        }
        ("Localhost", Some(name)) if name.len() > MAX => report.too_long(&at, MAX),
        ("RuntimeDefault" | "Unconfined", Some(name)) => {
            report.invalid(&at, name, "may be set only when type is Localhost");
        }
        _ => {}
    }
}

const SECCOMP_POD: &str = "seccomp.security.alpha.kubernetes.io/pod";
const SECCOMP_CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/";
const APP_ARMOR_CONTAINER: &str = "container.apparmor.security.beta.kubernetes.io/";

/// Checks the annotations that were there before the fields, and that the two say the same.
pub fn annotations(report: &mut Report, annotations: &Option<BTreeMap<String, String>>, spec: &core::PodSpec) {
    let metadata = Path::root("metadata");
    let at = metadata.field("annotations");
    let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    let names: HashSet<_> = containers.map(|c| c.name.as_str()).collect();
    for (key, value) in annotations.iter().flatten() {
        let at = at.key(key);
        if key == SECCOMP_POD || key.starts_with(SECCOMP_CONTAINER) {
            let known = matches!(value.as_str(), "runtime/default" | "docker/default" | "unconfined");
            let local = value.strip_prefix("localhost/").is_some_and(RELATIVE_PATH.holds);
            if !known && !local {
                report.invalid(&at, value, "must be runtime/default, unconfined, or localhost/ and a relative path");
            }
        }
        if let Some(name) = key.strip_prefix(APP_ARMOR_CONTAINER) {
            if !names.contains(name) {
                report.invalid(&at, name, "must end with the name of a container of the pod");
            }
            let known = matches!(value.as_str(), "" | "runtime/default" | "unconfined");
            if !known && !value.starts_with("localhost/") {
                report.invalid(&at, value, "must be runtime/default, unconfined, or localhost/ and a profile");
            }
        }
    }
    same(report, annotations, spec);
}

fn same(report: &mut Report, annotations: &Option<BTreeMap<String, String>>, spec: &core::PodSpec) {
    let get = |key: &str| annotations.as_ref().and_then(|a| a.get(key)).map(String::as_str);
    let at = Path::root("spec");
    let pod = spec.security_context.as_ref();
    if let Some(profile) = pod.and_then(|c| c.seccomp_profile.as_ref()) {
        let profile = (profile.type_.as_str(), profile.localhost_profile.as_deref());
        let at = at.field("securityContext");
        matches_annotation(report, &at.field("seccompProfile"), profile, get(SECCOMP_POD));
    }
    let lists =
        [("initContainers", spec.init_containers.as_deref().unwrap_or_default()), ("containers", &spec.containers)];
    for (list, containers) in lists {
        let list = at.field(list);
        for (i, c) in containers.iter().enumerate() {
            let at = list.index(i);
            let at = at.field("securityContext");
            let own = c.security_context.as_ref();
            if let Some(p) = own.and_then(|c| c.seccomp_profile.as_ref()) {
                let profile = (p.type_.as_str(), p.localhost_profile.as_deref());
                let annotation = get(&format!("{SECCOMP_CONTAINER}{}", c.name));
                matches_annotation(report, &at.field("seccompProfile"), profile, annotation);
            }
            let inherited = || pod.and_then(|c| c.app_armor_profile.as_ref());
            let windows = spec.os.as_ref().is_some_and(|os| os.name == "windows");
            let profile = own.and_then(|c| c.app_armor_profile.as_ref()).or_else(inherited).filter(|_| !windows);
            if let Some(p) = profile {
                let profile = (p.type_.as_str(), p.localhost_profile.as_deref());
                let annotation = get(&format!("{APP_ARMOR_CONTAINER}{}", c.name));
                matches_annotation(report, &at.field("appArmorProfile"), profile, annotation);
            }
        }
    }
}

fn matches_annotation(report: &mut Report, at: &Path<'_>, profile: (&str, Option<&str>), annotation: Option<&str>) {
    let Some(annotation) = annotation else { return };
    let same = match profile {
        ("Unconfined", _) => annotation == "unconfined",
        ("RuntimeDefault", _) => matches!(annotation, "runtime/default" | "docker/default"),
        ("Localhost", path) => match annotation.strip_prefix("localhost/") {
            Some(annotated) if path != Some(annotated) => {
                return report.forbidden(&at.field("localhostProfile"), "must be the profile of the annotation");
            }
            annotated => annotated.is_some(),
        },
        _ => true,
    };
    if !same {
        report.forbidden(&at.field("type"), format_args!("must say what the annotation says: {annotation}"));
    }
}

/// Checks what of the security contexts doesn't go with `spec.os`.
pub fn os(report: &mut Report, at: &Path<'_>, spec: &core::PodSpec) {
    match spec.os.as_ref().map(|os| os.name.as_str()) {
        None => {}
        Some("") => report.required(&at.field("os").field("name")),
        Some("linux") => windows::not_on_linux(report, at, spec),
        Some("windows") => windows::only_on_linux(report, at, spec),
        Some(name) => report.unsupported(&at.field("os"), name, &["linux", "windows"]),
    }
    windows::host_process(report, at, spec);
}

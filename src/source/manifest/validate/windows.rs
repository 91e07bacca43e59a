//! What the API checks for pods of Windows. We run none, but a manifest is refused for the same
//! reasons everywhere.

use super::format::DNS_SUBDOMAIN;
use super::report::{Path, Report};
use crate::pod::core;

/// Calls `visit` with each container and the path of it.
fn each_container(at: &Path<'_>, spec: &core::PodSpec, mut visit: impl FnMut(&Path<'_>, &core::Container)) {
    let lists =
        [("initContainers", spec.init_containers.as_deref().unwrap_or_default()), ("containers", &spec.containers)];
    for (name, containers) in lists {
        let list = at.field(name);
        containers.iter().enumerate().for_each(|(i, c)| visit(&list.index(i), c));
    }
}

pub fn options(report: &mut Report, at: &Path<'_>, options: Option<&core::WindowsSecurityContextOptions>) {
    let Some(options) = options else { return };
    if let Some(name) = &options.gmsa_credential_spec_name {
        report.format(&at.field("gmsaCredentialSpecName"), name, DNS_SUBDOMAIN);
    }
    if let Some(spec) = &options.gmsa_credential_spec {
        let at = at.field("gmsaCredentialSpec");
        match spec.len() {
            0 => report.invalid(&at, "", "must not be empty"),
            65_537.. => report.invalid(&at, spec, "must not be larger than 64 KiB"),
            _ => {}
        }
    }
    if let Some(name) = &options.run_as_user_name {
        if let Err(why) = user_name(name) {
            report.invalid(&at.field("runAsUserName"), name, why);
        }
    }
}

/// `USER` or `DOMAIN\USER`, as Active Directory has them.
fn user_name(name: &str) -> Result<(), &'static str> {
    if name.bytes().any(|b| b.is_ascii_control()) {
        return Err("must not contain control characters");
    }
    let (domain, user) = name.split_once('\\').map_or((None, name), |(domain, user)| (Some(domain), user));
    if let Some(domain) = domain {
        let net_bios = (1..=15).contains(&domain.chars().count())
            && !domain.starts_with('.')
            && !domain.contains(['\\', '/', ':', '*', '?', '"', '<', '>', '|']);
        let dns = domain.split('.').all(|part| {
            let inner = part.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'-');
            (1..=63).contains(&part.len()) && inner && !part.starts_with('-') && !part.ends_with('-')
        });
        if domain.len() >= 256 || !(net_bios || dns) {
            return Err("must have the name of a NetBIOS or DNS domain of less than 256 bytes before the backslash");
        }
    }
    if user.is_empty() || user.len() > 104 || user.chars().all(|c| c == '.' || c == ' ') {
        return Err("must have a user of at most 104 bytes, not only dots and spaces");
    }
    match user.contains(['"', '/', '\\', ':', ';', '|', '=', ',', '+', '*', '?', '<', '>', '@', '[', ']']) {
        true => Err("must not have any of \"/\\:;|=,+*?<>@[] in the user"),
        false => Ok(()),
    }
}

/// Containers that are processes of a Windows host: all of a pod or none.
pub fn host_process(report: &mut Report, at: &Path<'_>, spec: &core::PodSpec) {
    let of = |options: Option<&core::WindowsSecurityContextOptions>| options.and_then(|o| o.host_process);
    let pod = of(spec.security_context.as_ref().and_then(|c| c.windows_options.as_ref()));
    let (mut all, mut processes) = (0, 0);
    each_container(at, spec, |at, c| {
        let own = of(c.security_context.as_ref().and_then(|c| c.windows_options.as_ref()));
        all += 1;
        processes += usize::from(own.or(pod) == Some(true));
        if let (Some(pod), Some(own)) = (pod, own) {
            if pod != own {
                let (context, why) = (at.field("securityContext"), "must be the same as for the pod");
                report.invalid(&context.field("windowsOptions").field("hostProcess"), own, why);
            }
        }
    });
    if processes > 0 && processes != all {
        report.invalid(at, "", "must have all containers as hostProcess containers, or none");
    }
    if processes > 0 && spec.host_network != Some(true) {
        report.invalid(&at.field("hostNetwork"), false, "must be true for hostProcess containers");
    }
}

pub fn not_on_linux(report: &mut Report, at: &Path<'_>, spec: &core::PodSpec) {
    const WHY: &str = "may not be set for a Linux pod";
    if spec.security_context.as_ref().is_some_and(|c| c.windows_options.is_some()) {
        report.forbidden(&at.field("securityContext").field("windowsOptions"), WHY);
    }
    each_container(at, spec, |at, c| {
        if c.security_context.as_ref().is_some_and(|c| c.windows_options.is_some()) {
            report.forbidden(&at.field("securityContext").field("windowsOptions"), WHY);
        }
    });
}

pub fn only_on_linux(report: &mut Report, at: &Path<'_>, spec: &core::PodSpec) {
    let of_spec = [
        ("hostUsers", spec.host_users.is_some()),
        ("hostPID", spec.host_pid == Some(true)),
        ("hostIPC", spec.host_ipc == Some(true)),
        ("shareProcessNamespace", spec.share_process_namespace.is_some()),
    ];
    refuse(report, at, &of_spec);
    if let Some(c) = &spec.security_context {
        let fields = [
            ("appArmorProfile", c.app_armor_profile.is_some()),
            ("seLinuxOptions", c.se_linux_options.is_some()),
            ("seccompProfile", c.seccomp_profile.is_some()),
            ("fsGroup", c.fs_group.is_some()),
            ("fsGroupChangePolicy", c.fs_group_change_policy.is_some()),
            ("sysctls", c.sysctls.as_ref().is_some_and(|s| !s.is_empty())),
            ("runAsUser", c.run_as_user.is_some()),
            ("runAsGroup", c.run_as_group.is_some()),
            ("supplementalGroups", c.supplemental_groups.is_some()),
            ("supplementalGroupsPolicy", c.supplemental_groups_policy.is_some()),
            ("seLinuxChangePolicy", c.se_linux_change_policy.is_some()),
        ];
        refuse(report, &at.field("securityContext"), &fields);
    }
    each_container(at, spec, |at, c| {
        let Some(c) = &c.security_context else { return };
        let fields = [
            ("appArmorProfile", c.app_armor_profile.is_some()),
            ("seLinuxOptions", c.se_linux_options.is_some()),
            ("seccompProfile", c.seccomp_profile.is_some()),
            ("capabilities", c.capabilities.is_some()),
            ("readOnlyRootFilesystem", c.read_only_root_filesystem.is_some()),
            ("privileged", c.privileged.is_some()),
            ("allowPrivilegeEscalation", c.allow_privilege_escalation.is_some()),
            ("procMount", c.proc_mount.is_some()),
            ("runAsUser", c.run_as_user.is_some()),
            ("runAsGroup", c.run_as_group.is_some()),
        ];
        refuse(report, &at.field("securityContext"), &fields);
    });
}

fn refuse(report: &mut Report, at: &Path<'_>, fields: &[(&'static str, bool)]) {
    for (name, _) in fields.iter().filter(|(_, set)| *set) {
        report.forbidden(&at.field(name), "may not be set for a Windows pod");
    }
}

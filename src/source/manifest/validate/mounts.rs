//! Volume mounts and volume devices of a container.

use std::collections::HashSet;

use super::container::Context;
use super::format::{NO_BACKSTEPS, RELATIVE_PATH};
use super::report::{Path, Report, each, text};
use crate::pod::core;

pub fn check(report: &mut Report, at: &Path<'_>, c: &core::Container, cx: &Context<'_>) {
    volume_mounts(report, &at.field("volumeMounts"), c, cx);
    volume_devices(report, &at.field("volumeDevices"), c, cx);
}

fn volume_mounts(report: &mut Report, at: &Path<'_>, c: &core::Container, cx: &Context<'_>) {
    let devices = || c.volume_devices.iter().flatten();
    let device_names: HashSet<_> = devices().map(|d| d.name.as_str()).collect();
    let device_paths: HashSet<_> = devices().map(|d| d.device_path.as_str()).collect();
    let mut paths = HashSet::new();
    for (at, mount) in each(at, &c.volume_mounts) {
        match mount.name.as_str() {
            "" => report.required(&at.field("name")),
            name if !cx.volumes.contains_key(name) => report.not_found(&at.field("name"), name),
            name if device_names.contains(name) => {
                report.invalid(&at.field("name"), name, "must not stand in volumeDevices too");
            }
            _ => {}
        }
        match mount.mount_path.as_str() {
            "" => report.required(&at.field("mountPath")),
            path if !paths.insert(path) => report.invalid(&at.field("mountPath"), path, "must be unique"),
            path if device_paths.contains(path) => {
                report.invalid(&at.field("mountPath"), path, "must not stand in volumeDevices too");
            }
            _ => {}
        }
        sub_path(report, &at, mount);
        propagation(report, &at, mount, c);
    }
}

fn sub_path(report: &mut Report, at: &Path<'_>, mount: &core::VolumeMount) {
    let (path, expression) = (text(&mount.sub_path), text(&mount.sub_path_expr));
    report.format(&at.field("subPath"), path, RELATIVE_PATH);
    if !path.is_empty() && !expression.is_empty() {
        report.invalid(&at.field("subPathExpr"), expression, "may not be given together with subPath");
    }
    report.format(&at.field("subPathExpr"), expression, RELATIVE_PATH);
}

fn propagation(report: &mut Report, at: &Path<'_>, mount: &core::VolumeMount, c: &core::Container) {
    if let Some(mode) = mount.mount_propagation.as_deref() {
        let at = at.field("mountPropagation");
        report.choice(&at, mode, &["Bidirectional", "HostToContainer", "None"]);
        let privileged = c.security_context.as_ref().is_some_and(|s| s.privileged == Some(true));
        if mode == "Bidirectional" && !privileged {
            report.forbidden(&at, "may be Bidirectional only in a privileged container");
        }
    }
    if let Some(mode) = mount.recursive_read_only.as_deref() {
        let at = at.field("recursiveReadOnly");
        report.choice(&at, mode, &["Disabled", "Enabled", "IfPossible"]);
        if matches!(mode, "Enabled" | "IfPossible") {
            if mount.read_only != Some(true) {
                report.forbidden(&at, "may be set only where readOnly is true");
            }
            if mount.mount_propagation.as_deref().is_some_and(|m| m != "None") {
                report.forbidden(&at, "may be set only where mountPropagation is None or not set");
            }
        }
    }
}

fn volume_devices(report: &mut Report, at: &Path<'_>, c: &core::Container, cx: &Context<'_>) {
    let has_devices = c.volume_devices.as_ref().is_some_and(|d| !d.is_empty());
    if has_devices && !cx.host_users {
        report.forbidden(at, "may not be set when hostUsers is false");
    }
    let mounts = || c.volume_mounts.iter().flatten();
    let mount_names: HashSet<_> = mounts().map(|m| m.name.as_str()).collect();
    let mount_paths: HashSet<_> = mounts().map(|m| m.mount_path.as_str()).collect();
    let (mut names, mut paths) = (HashSet::new(), HashSet::new());
    for (at, device) in each(at, &c.volume_devices) {
        let (name, path) = (device.name.as_str(), device.device_path.as_str());
        let name_at = at.field("name");
        match cx.volumes.get(name) {
            _ if name.is_empty() => report.required(&name_at),
            None => report.not_found(&name_at, name),
            Some(v) if v.persistent_volume_claim.is_none() && v.ephemeral.is_none() => {
                report.invalid(&name_at, name, "must be a persistentVolumeClaim or ephemeral volume");
            }
            Some(_) if !names.insert(name) => report.invalid(&name_at, name, "must be unique"),
            Some(_) if mount_names.contains(name) => {
                report.invalid(&name_at, name, "must not stand in volumeMounts too");
            }
            Some(_) => {}
        }
        let path_at = at.field("devicePath");
        report.present_format(&path_at, path, NO_BACKSTEPS);
        if !path.is_empty() && !paths.insert(path) {
            report.invalid(&path_at, path, "must be unique");
        }
        if !path.is_empty() && mount_paths.contains(path) {
            report.invalid(&path_at, path, "must not stand in volumeMounts too");
        }
    }
}

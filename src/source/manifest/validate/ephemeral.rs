//! Ephemeral containers, which are added to a pod that is there already.

use super::container::{Context, check};
use super::report::{Path, Report, Unique, each, text};
use crate::pod::{as_container, core};

const NEVER: &str = "may not be set for an ephemeral container";

/// Checks those of `spec`, which has those of `before` and more.
pub fn check_all(report: &mut Report, at: &Path<'_>, spec: &core::PodSpec, before: &[core::EphemeralContainer]) {
    let cx = Context::new(spec);
    let list = at.field("ephemeralContainers");
    let new = spec.ephemeral_containers.as_deref().unwrap_or_default();
    for old in before {
        match new.iter().find(|c| c.name == old.name) {
            None => report.forbidden(&list, format_args!("{:?} is there and can't be removed", old.name)),
            Some(c) if c != old => {
                report.forbidden(&list, format_args!("{:?} is there and can't be changed", old.name))
            }
            Some(_) => {}
        }
    }
    let mut names = Unique::default();
    let others = || spec.init_containers.iter().flatten().chain(&spec.containers);
    let mut unseen = Report::default();
    others().for_each(|c| names.check(&mut unseen, at, &c.name));
    for (at, c) in each(&list, &spec.ephemeral_containers) {
        check(report, &at, &as_container(c), &cx);
        names.check(report, &at.field("name"), &c.name);
        let target = text(&c.target_container_name);
        if !target.is_empty() && !others().any(|c| c.name == target) {
            report.not_found(&at.field("targetContainerName"), target);
        }
        forbidden(report, &at, c);
    }
}

/// Nothing may rely on them, and they get nothing of their own.
fn forbidden(report: &mut Report, at: &Path<'_>, c: &core::EphemeralContainer) {
    let has_resources = |r: &core::ResourceRequirements| *r != core::ResourceRequirements::default();
    let fields = [
        ("ports", c.ports.as_ref().is_some_and(|list| !list.is_empty())),
        ("resources", c.resources.as_ref().is_some_and(has_resources)),
        ("resizePolicy", c.resize_policy.as_ref().is_some_and(|list| !list.is_empty())),
        ("restartPolicy", c.restart_policy.is_some()),
        ("restartPolicyRules", c.restart_policy_rules.as_ref().is_some_and(|list| !list.is_empty())),
        ("livenessProbe", c.liveness_probe.is_some()),
        ("readinessProbe", c.readiness_probe.is_some()),
        ("startupProbe", c.startup_probe.is_some()),
        ("lifecycle", c.lifecycle.is_some()),
    ];
    for (name, _) in fields.into_iter().filter(|(_, set)| *set) {
        report.forbidden(&at.field(name), NEVER);
    }
    for (at, mount) in each(&at.field("volumeMounts"), &c.volume_mounts) {
        for (name, path) in [("subPath", &mount.sub_path), ("subPathExpr", &mount.sub_path_expr)] {
            if !text(path).is_empty() {
                report.forbidden(&at.field(name), NEVER);
            }
        }
    }
}

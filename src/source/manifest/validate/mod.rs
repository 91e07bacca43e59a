//! Whether a pod is one that Kubernetes would take (pkg/apis/core/validation of release 1.36, with
//! all features that are stable or beta), and that a node can run without an API server. Pure: a
//! pod in, its problems out. Knows nothing of files and lines; the caller finds the lines by the
//! fields.

mod container;
mod env;
mod ephemeral;
mod format;
mod metadata;
mod mounts;
mod network;
pub mod object;
mod probe;
mod report;
mod resources;
mod scheduling;
mod security;
#[cfg(test)]
mod tests;
mod volume;
mod windows;

use format::DNS_SUBDOMAIN;
use report::{Path, Report, each, text};

use crate::pod::core;
use crate::yaml::Problem;

/// All problems of a pod to which defaults were given, its metadata's first, then its spec's. The
/// name is that of the manifest, without the node's; a namespace left out is `default`. The
/// problems have no lines yet.
pub fn validate_pod(pod: &core::Pod) -> Vec<Problem> {
    let mut report = Report::default();
    let empty = core::PodSpec::default();
    let spec = pod.spec.as_ref().unwrap_or(&empty);
    metadata::check(&mut report, &pod.metadata, spec);
    security::annotations(&mut report, &pod.metadata.annotations, spec);
    check_spec(&mut report, &Path::root("spec"), pod, spec);
    report.problems
}

/// The problems of a pod that is right as such, but needs an API server: it can't be a static pod.
/// A service account doesn't count, as it says nothing but which token to ask for.
pub fn validate_static(pod: &core::Pod) -> Vec<Problem> {
    let mut report = Report::default();
    let Some(spec) = &pod.spec else { return report.problems };
    let at = Path::root("spec");
    for (at, volume) in each(&at.field("volumes"), &spec.volumes) {
        volume::of_static_pod(&mut report, &at, volume);
    }
    if spec.resource_claims.as_ref().is_some_and(|c| !c.is_empty()) {
        report.forbidden(&at.field("resourceClaims"), "may not be used in a static pod: claims are in an API server");
    }
    if spec.scheduling_gates.as_ref().is_some_and(|g| !g.is_empty()) {
        report.forbidden(&at.field("schedulingGates"), "may not be used in a static pod: it is on its node already");
    }
    report.problems
}

/// The problems of ephemeral containers with defaults: those that `spec` has, where the pod has those of
/// `before` already (pkg/apis/core/validation `ValidatePodEphemeralContainersUpdate`; that the pod is
/// a static one is no problem here).
pub fn validate_ephemeral(spec: &core::PodSpec, before: &[core::EphemeralContainer]) -> Vec<Problem> {
    let mut report = Report::default();
    ephemeral::check_all(&mut report, &Path::root("spec"), spec, before);
    report.problems
}

fn check_spec(report: &mut Report, at: &Path<'_>, pod: &core::Pod, spec: &core::PodSpec) {
    volume::check_all(report, &at.field("volumes"), spec, text(&pod.metadata.name));
    scheduling::resource_claims(report, &at.field("resourceClaims"), &spec.resource_claims);
    container::check_all(report, at, spec);
    resources::of_pod(report, at, spec);
    lifetime(report, at, spec);
    network::check(report, at, spec);
    security::of_pod(report, at, spec);
    security::os(report, at, spec);
    scheduling::check(report, at, spec, &pod.metadata.labels);
    references(report, at, spec);
    if let Some(overhead) = &spec.overhead {
        resources::overhead(report, &at.field("overhead"), overhead);
    }
    let gated = spec.scheduling_gates.as_ref().is_some_and(|g| !g.is_empty());
    if gated && !text(&spec.node_name).is_empty() {
        report.forbidden(&at.field("nodeName"), "may not be set together with schedulingGates");
    }
}

fn lifetime(report: &mut Report, at: &Path<'_>, spec: &core::PodSpec) {
    report.choice(&at.field("restartPolicy"), text(&spec.restart_policy), &["Always", "OnFailure", "Never"]);
    match spec.termination_grace_period_seconds {
        None => report.required(&at.field("terminationGracePeriodSeconds")),
        Some(seconds) => report.not_negative(&at.field("terminationGracePeriodSeconds"), seconds),
    }
    if let Some(seconds) = spec.active_deadline_seconds {
        report.range(&at.field("activeDeadlineSeconds"), seconds, 1, i32::MAX.into());
    }
}

/// Names of other objects.
fn references(report: &mut Report, at: &Path<'_>, spec: &core::PodSpec) {
    let names = [
        ("serviceAccountName", &spec.service_account_name),
        ("nodeName", &spec.node_name),
        ("priorityClassName", &spec.priority_class_name),
    ];
    for (name, value) in names {
        if !text(value).is_empty() {
            report.format(&at.field(name), text(value), DNS_SUBDOMAIN);
        }
    }
    if let Some(class) = &spec.runtime_class_name {
        report.format(&at.field("runtimeClassName"), class, DNS_SUBDOMAIN);
    }
}

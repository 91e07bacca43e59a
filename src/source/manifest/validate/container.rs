//! Containers and init containers: names, images, ports, restarts. Ephemeral containers can't come
//! with a pod; see `ephemeral`.

use std::collections::{BTreeSet, HashSet};

use super::format::{DNS_LABEL, PORT_NAME};
use super::probe::{self, Termination};
use super::report::{Path, Report, Unique, each, text};
use super::{env, mounts, resources, security};
use crate::pod::{core, is_sidecar};

/// What the check of a container must know of its pod.
pub struct Context<'p> {
    pub volumes: env::Volumes<'p>,
    /// Names of the pod's resource claims.
    pub claims: BTreeSet<&'p str>,
    pub termination: Termination<'p>,
    /// Whether the containers' users are those of the host.
    pub host_users: bool,
    pub restart_policy: &'p str,
}

impl<'p> Context<'p> {
    pub fn new(spec: &'p core::PodSpec) -> Context<'p> {
        Context {
            volumes: spec.volumes.iter().flatten().map(|v| (v.name.as_str(), v)).collect(),
            claims: spec.resource_claims.iter().flatten().map(|c| c.name.as_str()).collect(),
            termination: Termination {
                grace_period: spec.termination_grace_period_seconds.filter(|s| *s >= 0),
                os: spec.os.as_ref().map(|os| os.name.as_str()),
            },
            host_users: spec.host_users != Some(false),
            restart_policy: text(&spec.restart_policy),
        }
    }
}

/// Checks all containers of a pod.
pub fn check_all(report: &mut Report, at: &Path<'_>, spec: &core::PodSpec) {
    let cx = Context::new(spec);
    let mut names = Unique::default();
    let mut host_ports = HostPorts::default();
    let list = at.field("containers");
    if spec.containers.is_empty() {
        report.required_because(&list, "at least one container");
    }
    for (i, c) in spec.containers.iter().enumerate() {
        let at = list.index(i);
        check(report, &at, c, &cx);
        names.check(report, &at.field("name"), &c.name);
        host_ports.check(report, &at.field("ports"), c);
        may_run_on(report, &at, c, &cx);
    }
    for (at, c) in each(&at.field("initContainers"), &spec.init_containers) {
        check(report, &at, c, &cx);
        names.check(report, &at.field("name"), &c.name);
        // Init containers run one by one: only ports of the same one are in each other's way.
        HostPorts::default().check(report, &at.field("ports"), c);
        init_only(report, &at, c, &cx);
    }
    if spec.ephemeral_containers.as_ref().is_some_and(|list| !list.is_empty()) {
        let why = "may not be set in a manifest; ephemeral containers are added to running pods";
        report.forbidden(&at.field("ephemeralContainers"), why);
    }
}

/// What all containers have in common.
pub fn check(report: &mut Report, at: &Path<'_>, c: &core::Container, cx: &Context<'_>) {
    report.present_format(&at.field("name"), &c.name, DNS_LABEL);
    let image = text(&c.image);
    report.present(&at.field("image"), image);
    if image != image.trim() {
        report.invalid(&at.field("image"), image, "must not begin or end with white space");
    }
    let policies = ["File", "FallbackToLogsOnError"];
    report.choice(&at.field("terminationMessagePolicy"), text(&c.termination_message_policy), &policies);
    ports(report, &at.field("ports"), &c.ports);
    env::env(report, &at.field("env"), &c.env, &cx.volumes);
    env::env_from(report, &at.field("envFrom"), &c.env_from);
    mounts::check(report, at, c, cx);
    pull_policy(report, &at.field("imagePullPolicy"), text(&c.image_pull_policy));
    if let Some(resources) = &c.resources {
        resources::of_container(report, &at.field("resources"), resources, &cx.claims);
    }
    resize_policy(report, &at.field("resizePolicy"), c, cx.restart_policy);
    if let Some(context) = &c.security_context {
        security::of_container(report, &at.field("securityContext"), context, cx.host_users);
    }
    restart_policy(report, at, c);
}

/// Containers that go on running have probes and hooks.
fn may_run_on(report: &mut Report, at: &Path<'_>, c: &core::Container, cx: &Context<'_>) {
    if let Some(lifecycle) = &c.lifecycle {
        probe::lifecycle(report, &at.field("lifecycle"), lifecycle, cx.termination);
    }
    probe::probes(report, at, c);
}

fn init_only(report: &mut Report, at: &Path<'_>, c: &core::Container, cx: &Context<'_>) {
    if is_sidecar(c) {
        return may_run_on(report, at, c, cx);
    }
    let fields = [
        ("lifecycle", c.lifecycle.is_some()),
        ("livenessProbe", c.liveness_probe.is_some()),
        ("readinessProbe", c.readiness_probe.is_some()),
        ("startupProbe", c.startup_probe.is_some()),
    ];
    for (name, _) in fields.iter().filter(|(_, set)| *set) {
        report.forbidden(&at.field(name), "may not be set for an init container without restartPolicy Always");
    }
    for (at, policy) in each(&at.field("resizePolicy"), &c.resize_policy) {
        if policy.restart_policy == "RestartContainer" {
            let why = "may not be set for an init container without restartPolicy Always";
            report.invalid(&at.field("restartPolicy"), &policy.restart_policy, why);
        }
    }
}

/// Restarts that a container decides on itself (KEP-5307).
fn restart_policy(report: &mut Report, at: &Path<'_>, c: &core::Container) {
    const POLICIES: &[&str] = &["Always", "Never", "OnFailure"];
    let rules = c.restart_policy_rules.as_deref().unwrap_or_default();
    let policy = at.field("restartPolicy");
    match c.restart_policy.as_deref() {
        None if rules.is_empty() => {}
        None => report.required_because(&policy, "must be set together with restartPolicyRules"),
        Some(value) if !POLICIES.contains(&value) => report.unsupported(&policy, value, POLICIES),
        Some(_) => {}
    }
    let list = at.field("restartPolicyRules");
    if rules.len() > 20 {
        report.too_many(&list, rules.len(), 20);
    }
    for (i, rule) in rules.iter().enumerate() {
        let at = list.index(i);
        report.choice(&at.field("action"), &rule.action, &["Restart"]);
        let at = at.field("exitCodes");
        let Some(codes) = &rule.exit_codes else {
            report.required(&at);
            continue;
        };
        report.choice(&at.field("operator"), &codes.operator, &["In", "NotIn"]);
        let count = codes.values.as_ref().map_or(0, Vec::len);
        if count > 255 {
            report.too_many(&at.field("values"), count, 255);
        }
    }
}

fn resize_policy(report: &mut Report, at: &Path<'_>, c: &core::Container, pod_policy: &str) {
    let mut names = Unique::default();
    for (at, policy) in each(at, &c.resize_policy) {
        names.check(report, &at, &policy.resource_name);
        report.choice(&at.field("resourceName"), &policy.resource_name, &["cpu", "memory"]);
        let at = at.field("restartPolicy");
        report.choice(&at, &policy.restart_policy, &["NotRequired", "RestartContainer"]);
        if pod_policy == "Never" && policy.restart_policy == "RestartContainer" {
            report.invalid(&at, &policy.restart_policy, "must be NotRequired in a pod with restartPolicy Never");
        }
    }
}

pub fn pull_policy(report: &mut Report, at: &Path<'_>, policy: &str) {
    report.choice(at, policy, &["Always", "IfNotPresent", "Never"]);
}

fn ports(report: &mut Report, at: &Path<'_>, ports: &Option<Vec<core::ContainerPort>>) {
    let mut names = Unique::default();
    for (at, port) in each(at, ports) {
        let name = text(&port.name);
        if !name.is_empty() {
            report.format(&at.field("name"), name, PORT_NAME);
            names.check(report, &at.field("name"), name);
        }
        match port.container_port {
            0 => report.required(&at.field("containerPort")),
            number => report.range(&at.field("containerPort"), number.into(), 1, 65535),
        }
        if let Some(number) = port.host_port.filter(|p| *p != 0) {
            report.range(&at.field("hostPort"), number.into(), 1, 65535);
        }
        report.choice(&at.field("protocol"), text(&port.protocol), &["SCTP", "TCP", "UDP"]);
    }
}

/// Host ports that are taken: protocol, address, number.
#[derive(Default)]
struct HostPorts<'p>(HashSet<(&'p str, &'p str, i32)>);

impl<'p> HostPorts<'p> {
    fn check(&mut self, report: &mut Report, at: &Path<'_>, c: &'p core::Container) {
        for (i, port) in c.ports.iter().flatten().enumerate() {
            let Some(number) = port.host_port.filter(|p| *p != 0) else { continue };
            let taken = (text(&port.protocol), text(&port.host_ip), number);
            if !self.0.insert(taken) {
                let (protocol, ip, _) = taken;
                report.duplicate(&at.index(i).field("hostPort"), format!("{protocol}/{ip}/{number}"));
            }
        }
    }
}

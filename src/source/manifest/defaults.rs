//! What the API server fills in for a pod that leaves it out (pkg/apis/core/v1/defaults.go and the
//! `default` markers of the API types). A static pod never passes the API server, so it is done
//! here. A field that is there but empty counts as left out, as in the API.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as QuantityText;

use crate::image::PullPolicy;
use crate::pod::core;
use crate::pod::quantity::Quantity;
use crate::pod::resources::aggregate;

type Resources = BTreeMap<String, QuantityText>;

/// Mode 0644 of files in volumes made from secrets, config maps and the downward API.
const FILE_MODE: i32 = 0o644;

/// Fills in the defaults of `pod`; doing it again changes nothing.
pub fn set_defaults(pod: &mut core::Pod) {
    let spec = pod.spec.get_or_insert_default();
    for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        requests_from_limits(container);
    }
    pod_level_limits(spec);
    pod_level_requests(spec);
    spec.enable_service_links.get_or_insert(true);
    if spec.host_network == Some(true) {
        for container in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
            host_ports(container);
        }
    }
    pod_spec(spec);
    for v in spec.volumes.iter_mut().flatten() {
        volume(v);
    }
    for c in spec.init_containers.iter_mut().flatten().chain(&mut spec.containers) {
        container(common!(c));
    }
    spec.ephemeral_containers.iter_mut().flatten().for_each(ephemeral_container);
    for list in spec.resources.iter_mut().flat_map(|r| [&mut r.limits, &mut r.requests]).chain([&mut spec.overhead]) {
        round_up(list);
    }
}

/// Fills in the defaults of one that is added to a pod.
pub fn ephemeral_container(c: &mut core::EphemeralContainer) {
    container(common!(c));
}

fn text(field: &mut Option<String>, default: &str) {
    if field.as_deref().unwrap_or_default().is_empty() {
        *field = Some(default.to_owned());
    }
}

fn number(field: &mut Option<i32>, default: i32) {
    if field.unwrap_or_default() == 0 {
        *field = Some(default);
    }
}

fn pod_spec(spec: &mut core::PodSpec) {
    text(&mut spec.dns_policy, "ClusterFirst");
    text(&mut spec.restart_policy, "Always");
    text(&mut spec.scheduler_name, "default-scheduler");
    spec.security_context.get_or_insert_default();
    spec.termination_grace_period_seconds.get_or_insert(30);
    // The old name of the field.
    if let Some(account) = spec.service_account.as_deref().filter(|a| !a.is_empty()) {
        text(&mut spec.service_account_name, account);
    }
}

/// The fields of a container, of whatever type, that have defaults.
struct Common<'c> {
    image: Option<&'c str>,
    image_pull_policy: &'c mut Option<String>,
    termination_message_path: &'c mut Option<String>,
    termination_message_policy: &'c mut Option<String>,
    ports: &'c mut Option<Vec<core::ContainerPort>>,
    env: &'c mut Option<Vec<core::EnvVar>>,
    resources: &'c mut Option<core::ResourceRequirements>,
    probes: [&'c mut Option<core::Probe>; 3],
    lifecycle: &'c mut Option<core::Lifecycle>,
}

macro_rules! common {
    ($c:expr) => {
        Common {
            image: $c.image.as_deref(),
            image_pull_policy: &mut $c.image_pull_policy,
            termination_message_path: &mut $c.termination_message_path,
            termination_message_policy: &mut $c.termination_message_policy,
            ports: &mut $c.ports,
            env: &mut $c.env,
            resources: &mut $c.resources,
            probes: [&mut $c.liveness_probe, &mut $c.readiness_probe, &mut $c.startup_probe],
            lifecycle: &mut $c.lifecycle,
        }
    };
}
use common;

fn container(c: Common<'_>) {
    text(c.image_pull_policy, PullPolicy::default_for(c.image.unwrap_or_default()).as_str());
    text(c.termination_message_path, "/dev/termination-log");
    text(c.termination_message_policy, "File");
    for port in c.ports.iter_mut().flatten() {
        text(&mut port.protocol, "TCP");
    }
    for source in c.env.iter_mut().flatten().filter_map(|v| v.value_from.as_mut()) {
        field_ref(&mut source.field_ref);
    }
    for list in c.resources.iter_mut().flat_map(|r| [&mut r.limits, &mut r.requests]) {
        round_up(list);
    }
    for p in c.probes.into_iter().flatten() {
        probe(p);
    }
    let hooks = c.lifecycle.iter_mut().flat_map(|l| [&mut l.post_start, &mut l.pre_stop]).flatten();
    hooks.filter_map(|h| h.http_get.as_mut()).for_each(http_get);
}

fn probe(p: &mut core::Probe) {
    number(&mut p.timeout_seconds, 1);
    number(&mut p.period_seconds, 10);
    number(&mut p.success_threshold, 1);
    number(&mut p.failure_threshold, 3);
    p.http_get.iter_mut().for_each(http_get);
    if let Some(grpc) = &mut p.grpc {
        grpc.service.get_or_insert_default();
    }
}

fn http_get(action: &mut core::HTTPGetAction) {
    text(&mut action.path, "/");
    text(&mut action.scheme, "HTTP");
}

fn field_ref(field: &mut Option<core::ObjectFieldSelector>) {
    if let Some(field) = field {
        text(&mut field.api_version, "v1");
    }
}

/// With the host's network, the port in the container is the port on the host.
fn host_ports(container: &mut core::Container) {
    for port in container.ports.iter_mut().flatten() {
        number(&mut port.host_port, port.container_port);
    }
}

fn volume(v: &mut core::Volume) {
    let unnamed = core::Volume { name: v.name.clone(), ..Default::default() };
    if *v == unnamed {
        v.empty_dir = Some(core::EmptyDirVolumeSource::default());
    }
    if let Some(image) = &mut v.image {
        let policy = PullPolicy::default_for(image.reference.as_deref().unwrap_or_default());
        text(&mut image.pull_policy, policy.as_str());
    }
    if let Some(host_path) = &mut v.host_path {
        host_path.type_.get_or_insert_default();
    }
    if let Some(secret) = &mut v.secret {
        secret.default_mode.get_or_insert(FILE_MODE);
    }
    if let Some(config_map) = &mut v.config_map {
        config_map.default_mode.get_or_insert(FILE_MODE);
    }
    if let Some(downward) = &mut v.downward_api {
        downward.default_mode.get_or_insert(FILE_MODE);
        downward.items.iter_mut().flatten().for_each(|file| field_ref(&mut file.field_ref));
    }
    v.projected.iter_mut().for_each(projected);
    if let Some(template) = v.ephemeral.as_mut().and_then(|e| e.volume_claim_template.as_mut()) {
        text(&mut template.spec.volume_mode, "Filesystem");
        for list in template.spec.resources.iter_mut().flat_map(|r| [&mut r.limits, &mut r.requests]) {
            round_up(list);
        }
    }
    network_volume(v);
}

fn projected(v: &mut core::ProjectedVolumeSource) {
    v.default_mode.get_or_insert(FILE_MODE);
    for source in v.sources.iter_mut().flatten() {
        let files = source.downward_api.iter_mut().flat_map(|d| d.items.iter_mut().flatten());
        files.for_each(|file| field_ref(&mut file.field_ref));
        if let Some(token) = &mut source.service_account_token {
            token.expiration_seconds.get_or_insert(3600);
        }
    }
}

fn network_volume(v: &mut core::Volume) {
    if let Some(iscsi) = &mut v.iscsi {
        text(&mut iscsi.iscsi_interface, "default");
    }
    if let Some(rbd) = &mut v.rbd {
        text(&mut rbd.pool, "rbd");
        text(&mut rbd.user, "admin");
        text(&mut rbd.keyring, "/etc/ceph/keyring");
    }
    if let Some(disk) = &mut v.azure_disk {
        text(&mut disk.caching_mode, "ReadWrite");
        text(&mut disk.kind, "Shared");
        text(&mut disk.fs_type, "ext4");
        disk.read_only.get_or_insert(false);
    }
    if let Some(scale_io) = &mut v.scale_io {
        text(&mut scale_io.storage_mode, "ThinProvisioned");
        text(&mut scale_io.fs_type, "xfs");
    }
}

fn requests_from_limits(container: &mut core::Container) {
    let Some(resources) = &mut container.resources else { return };
    let Some(limits) = &resources.limits else { return };
    let requests = resources.requests.get_or_insert_default();
    for (name, limit) in limits {
        requests.entry(name.clone()).or_insert_with(|| limit.clone());
    }
}

/// The API keeps no more than thousandths.
fn round_up(list: &mut Option<Resources>) {
    for quantity in list.iter_mut().flatten().map(|(_, q)| q) {
        let Some(exact) = Quantity::parse(&quantity.0) else { continue };
        let rounded = format!("{}m", exact.milli_value());
        let in_range = exact.milli_value() != i64::MAX && exact.milli_value() != i64::MIN;
        if in_range && Quantity::parse(&rounded) != Some(exact) {
            quantity.0 = rounded;
        }
    }
}

/// A pod that has resources of its own may not have less huge pages than its containers.
fn pod_level_limits(spec: &mut core::PodSpec) {
    let containers = aggregate(spec, |r| r.limits.as_ref());
    let Some(resources) = &mut spec.resources else { return };
    let empty = |list: &Option<Resources>| list.as_ref().is_none_or(BTreeMap::is_empty);
    if empty(&resources.limits) && empty(&resources.requests) {
        return;
    }
    for (name, quantity) in containers.into_iter().filter(|(name, _)| name.starts_with("hugepages-")) {
        if resources.requests.as_ref().is_none_or(|r| !r.contains_key(&name)) {
            resources.limits.get_or_insert_default().entry(name).or_insert_with(|| to_text(quantity));
        }
    }
}

/// A pod with limits of its own requests what its containers request, or where these request
/// nothing, its limits.
fn pod_level_requests(spec: &mut core::PodSpec) {
    let containers = aggregate(spec, |r| r.requests.as_ref());
    let Some(resources) = &mut spec.resources else { return };
    let Some(limits) = resources.limits.as_ref().filter(|l| !l.is_empty()) else { return };
    let mut requests = resources.requests.take().unwrap_or_default();
    for (name, quantity) in containers {
        if matches!(name.as_str(), "cpu" | "memory") {
            requests.entry(name).or_insert_with(|| to_text(quantity));
        }
    }
    for (name, limit) in limits {
        if matches!(name.as_str(), "cpu" | "memory") || name.starts_with("hugepages-") {
            requests.entry(name.clone()).or_insert_with(|| limit.clone());
        }
    }
    resources.requests = Some(requests).filter(|r| !r.is_empty());
}

fn to_text(quantity: Quantity) -> QuantityText {
    QuantityText(match quantity.is_whole() {
        true => quantity.value().to_string(),
        false => format!("{}m", quantity.milli_value()),
    })
}

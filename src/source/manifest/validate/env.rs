//! Environment variables, and the references to fields and resources that they share with
//! downward API volumes.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as QuantityText;

use super::format::{
    ANNOTATION_KEY, DATA_KEY, DNS_LABEL, DNS_SUBDOMAIN, DNS_SUBDOMAIN_PREFIX, ENV_NAME, NO_BACKSTEPS, QUALIFIED_NAME,
};
use super::report::{Path, Report, each, text};
use super::resources;
use crate::pod::core;
use crate::pod::quantity::Quantity;

const ENV_FIELDS: &[&str] = &[
    "metadata.name",
    "metadata.namespace",
    "metadata.uid",
    "spec.nodeName",
    "spec.serviceAccountName",
    "status.hostIP",
    "status.hostIPs",
    "status.podIP",
    "status.podIPs",
];

pub const VOLUME_FIELDS: &[&str] =
    &["metadata.annotations", "metadata.labels", "metadata.name", "metadata.namespace", "metadata.uid"];

const RESOURCES: &[&str] = &[
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
];

/// The volumes of a pod, by their names.
pub type Volumes<'p> = BTreeMap<&'p str, &'p core::Volume>;

/// Checks `env`. `volumes` are those of the pod, which a file of variables may lie in.
pub fn env(report: &mut Report, at: &Path<'_>, vars: &Option<Vec<core::EnvVar>>, volumes: &Volumes<'_>) {
    for (at, var) in each(at, vars) {
        report.present_format(&at.field("name"), &var.name, ENV_NAME);
        let Some(source) = &var.value_from else { continue };
        let at = at.field("valueFrom");
        if !text(&var.value).is_empty() {
            report.invalid(&at, "", "may not be given when `value` is not empty");
        }
        value_from(report, &at, source, volumes);
    }
}

fn value_from(report: &mut Report, at: &Path<'_>, source: &core::EnvVarSource, volumes: &Volumes<'_>) {
    let mut count = 0;
    // The name that `spec.nodeName` had long ago is still taken.
    if let Some(field) = source.field_ref.as_ref().inspect(|_| count += 1).filter(|f| f.field_path != "spec.host") {
        field_ref(report, &at.field("fieldRef"), field, ENV_FIELDS);
    }
    if let Some(field) = source.resource_field_ref.as_ref().inspect(|_| count += 1) {
        resource_field_ref(report, &at.field("resourceFieldRef"), field);
    }
    if let Some(key) = source.config_map_key_ref.as_ref().inspect(|_| count += 1) {
        key_ref(report, &at.field("configMapKeyRef"), &key.name, &key.key);
    }
    if let Some(key) = source.secret_key_ref.as_ref().inspect(|_| count += 1) {
        key_ref(report, &at.field("secretKeyRef"), &key.name, &key.key);
    }
    if let Some(key) = source.file_key_ref.as_ref().inspect(|_| count += 1) {
        file_key_ref(report, &at.field("fileKeyRef"), key, volumes);
    }
    if count != 1 {
        let why = "must be exactly one of fieldRef, resourceFieldRef, configMapKeyRef, secretKeyRef and fileKeyRef";
        report.invalid(at, "", why);
    }
}

pub fn env_from(report: &mut Report, at: &Path<'_>, sources: &Option<Vec<core::EnvFromSource>>) {
    for (at, source) in each(at, sources) {
        if !text(&source.prefix).is_empty() {
            report.format(&at.field("prefix"), text(&source.prefix), ENV_NAME);
        }
        let config_map = source.config_map_ref.as_ref().map(|s| ("configMapRef", &s.name));
        let secret = source.secret_ref.as_ref().map(|s| ("secretRef", &s.name));
        if config_map.is_some() == secret.is_some() {
            report.invalid(&at, "", "must be exactly one of configMapRef and secretRef");
        }
        for (field, name) in config_map.into_iter().chain(secret) {
            report.present_format(&at.field(field).field("name"), name, DNS_SUBDOMAIN_PREFIX);
        }
    }
}

fn key_ref(report: &mut Report, at: &Path<'_>, name: &str, key: &str) {
    report.format(&at.field("name"), name, DNS_SUBDOMAIN);
    report.present_format(&at.field("key"), key, DATA_KEY);
}

fn file_key_ref(report: &mut Report, at: &Path<'_>, file: &core::FileKeySelector, volumes: &Volumes<'_>) {
    report.present_format(&at.field("key"), &file.key, ENV_NAME);
    report.present_format(&at.field("path"), &file.path, NO_BACKSTEPS);
    let at = at.field("volumeName");
    report.present_format(&at, &file.volume_name, DNS_LABEL);
    match volumes.get(file.volume_name.as_str()) {
        _ if file.volume_name.is_empty() => {}
        None => report.not_found(&at, &file.volume_name),
        Some(volume) if volume.empty_dir.is_none() => {
            report.invalid(&at, &file.volume_name, "must be the name of an emptyDir volume");
        }
        Some(_) => {}
    }
}

/// Checks a reference to a field of the pod, of which `fields` may be named; single labels and
/// annotations may always.
pub fn field_ref(report: &mut Report, at: &Path<'_>, field: &core::ObjectFieldSelector, fields: &[&str]) {
    report.choice(&at.field("apiVersion"), text(&field.api_version), &["v1"]);
    let path = field.field_path.as_str();
    let subscript = path.strip_suffix("']").and_then(|p| p.split_once("['"));
    let at = at.field("fieldPath");
    match subscript {
        Some(("metadata.annotations", key)) => report.format(&at, key, ANNOTATION_KEY),
        Some(("metadata.labels", key)) => report.format(&at, key, QUALIFIED_NAME),
        _ if path.is_empty() => report.required(&at),
        _ if !fields.contains(&path) => report.unsupported(&at, path, fields),
        _ => {}
    }
}

/// Checks a reference to a resource of a container.
pub fn resource_field_ref(report: &mut Report, at: &Path<'_>, field: &core::ResourceFieldSelector) {
    let resource = field.resource.as_str();
    let huge_pages = resource.starts_with("limits.hugepages-") || resource.starts_with("requests.hugepages-");
    if resource.is_empty() {
        report.required(&at.field("resource"));
    } else if !huge_pages && !RESOURCES.contains(&resource) {
        report.unsupported(&at.field("resource"), resource, RESOURCES);
    } else if let Some(divisor) = &field.divisor {
        check_divisor(report, &at.field("divisor"), resource, divisor);
    }
}

fn check_divisor(report: &mut Report, at: &Path<'_>, resource: &str, divisor: &QuantityText) {
    const OF_CPU: &[&str] = &["m", ""];
    const OF_BYTES: &[&str] = &["", "k", "M", "G", "T", "P", "E", "Ki", "Mi", "Gi", "Ti", "Pi", "Ei"];
    let Some(value) = resources::quantity(report, at, divisor).filter(|v| !v.is_zero()) else { return };
    let units = if resource.ends_with(".cpu") { OF_CPU } else { OF_BYTES };
    if !is_unit(&divisor.0, value, units) {
        let allowed: Vec<_> = units.iter().map(|u| format!("1{u}")).collect();
        report.invalid(at, &divisor.0, format_args!("must be 1 of a unit: {}", allowed.join(", ")));
    }
}

/// Whether `value`, written as `text`, is one of a unit. How it is written counts: 1024 is no 1Ki,
/// but 1024Ki is 1Mi, and 1000 is 1k.
fn is_unit(text: &str, value: Quantity, units: &[&str]) -> bool {
    let family = |text: &str| match text {
        _ if text.ends_with('i') => 'b',
        // An exponent, unless it is the suffix for 10^18.
        _ if text.contains('e') || text.contains('E') && !text.ends_with('E') => 'e',
        _ => 'd',
    };
    let one = Quantity::parse("1");
    let unit = |u: &&str| Quantity::parse(&format!("1{u}"));
    Some(value) == one || units.iter().any(|u| unit(u) == Some(value) && family(u) == family(text))
}

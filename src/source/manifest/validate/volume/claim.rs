//! The claim that an ephemeral volume makes.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use super::super::format::{DNS_LABEL, DNS_SUBDOMAIN};
use super::super::metadata::{check_annotations, check_labels, label_selector};
use super::super::report::{Path, Report, text};
use super::super::resources;
use crate::pod::core;
use crate::pod::quantity::Quantity;

pub fn ephemeral(report: &mut Report, at: &Path<'_>, v: &core::EphemeralVolumeSource) {
    let at = at.field("volumeClaimTemplate");
    let Some(template) = &v.volume_claim_template else { return report.required(&at) };
    if let Some(meta) = &template.metadata {
        template_metadata(report, &at.field("metadata"), meta);
    }
    claim(report, &at.field("spec"), &template.spec);
}

/// The names of classes, of a claim and of a volume alike.
pub fn class_names(report: &mut Report, at: &Path<'_>, storage: &Option<String>, attributes: &Option<String>) {
    for (name, class) in [("storageClassName", storage), ("volumeAttributesClassName", attributes)] {
        if !text(class).is_empty() {
            report.format(&at.field(name), text(class), DNS_SUBDOMAIN);
        }
    }
}

/// Only labels and annotations of a template are taken.
fn template_metadata(report: &mut Report, at: &Path<'_>, meta: &ObjectMeta) {
    check_annotations(report, &at.field("annotations"), &meta.annotations);
    check_labels(report, &at.field("labels"), &meta.labels);
    let fields = [
        ("creationTimestamp", meta.creation_timestamp.is_some()),
        ("deletionGracePeriodSeconds", meta.deletion_grace_period_seconds.is_some()),
        ("deletionTimestamp", meta.deletion_timestamp.is_some()),
        ("finalizers", meta.finalizers.is_some()),
        ("generateName", !text(&meta.generate_name).is_empty()),
        ("generation", meta.generation.unwrap_or_default() != 0),
        ("managedFields", meta.managed_fields.is_some()),
        ("name", !text(&meta.name).is_empty()),
        ("namespace", !text(&meta.namespace).is_empty()),
        ("ownerReferences", meta.owner_references.is_some()),
        ("resourceVersion", !text(&meta.resource_version).is_empty()),
        ("selfLink", !text(&meta.self_link).is_empty()),
        ("uid", !text(&meta.uid).is_empty()),
    ];
    for (name, _) in fields.iter().filter(|(_, set)| *set) {
        report.forbidden(&at.field(name), "may not be set in a template");
    }
}

/// Checks the access modes of a claim or a volume.
pub fn access_modes(report: &mut Report, at: &Path<'_>, modes: &Option<Vec<String>>) {
    const MODES: &[&str] = &["ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod"];
    let modes = modes.as_deref().unwrap_or_default();
    if modes.is_empty() {
        report.required_because(at, "at least one access mode");
    }
    for mode in modes.iter().filter(|m| !MODES.contains(&m.as_str())) {
        report.unsupported(at, mode, MODES);
    }
    let one_pod = modes.iter().filter(|m| *m == "ReadWriteOncePod").count();
    if one_pod > 0 && one_pod < modes.len() {
        report.forbidden(at, "may not have ReadWriteOncePod together with other modes");
    }
}

/// Checks the spec of a claim.
pub fn claim(report: &mut Report, at: &Path<'_>, spec: &core::PersistentVolumeClaimSpec) {
    access_modes(report, &at.field("accessModes"), &spec.access_modes);
    label_selector(report, &at.field("selector"), spec.selector.as_ref());
    let storage = spec.resources.as_ref().and_then(|r| r.requests.as_ref()).and_then(|r| r.get("storage"));
    let requests = at.field("resources");
    let storage_at = requests.field("requests");
    let storage_at = storage_at.key("storage");
    match storage {
        None => report.required(&storage_at),
        Some(text) => {
            let value = resources::quantity(report, &storage_at, text);
            if value.is_some_and(|v| v <= Quantity::default()) {
                report.invalid(&storage_at, &text.0, "must be greater than 0");
            }
        }
    }
    class_names(report, at, &spec.storage_class_name, &spec.volume_attributes_class_name);
    if let Some(mode) = &spec.volume_mode {
        report.choice(&at.field("volumeMode"), mode, &["Block", "Filesystem"]);
    }
    data_sources(report, at, spec);
}

fn data_sources(report: &mut Report, at: &Path<'_>, spec: &core::PersistentVolumeClaimSpec) {
    let source = spec.data_source.as_ref().map(|s| (text(&s.api_group), s.kind.as_str(), s.name.as_str()));
    let reference = spec.data_source_ref.as_ref().map(|s| (text(&s.api_group), s.kind.as_str(), s.name.as_str()));
    for (name, object) in [("dataSource", source), ("dataSourceRef", reference)] {
        let (at, Some((group, kind, object))) = (at.field(name), object) else { continue };
        report.present(&at.field("name"), object);
        report.present(&at.field("kind"), kind);
        if group.is_empty() && kind != "PersistentVolumeClaim" {
            report.invalid(&at, kind, "must be PersistentVolumeClaim where there is no apiGroup");
        } else if !group.is_empty() {
            report.format(&at.field("apiGroup"), group, DNS_SUBDOMAIN);
        }
    }
    let namespace = spec.data_source_ref.as_ref().map(|s| text(&s.namespace)).unwrap_or_default();
    if !namespace.is_empty() {
        report.format(&at.field("dataSourceRef").field("namespace"), namespace, DNS_LABEL);
        if source.is_some() {
            report.invalid(at, "dataSource", "may not be given together with dataSourceRef.namespace");
        }
    } else if source.is_some() && reference.is_some() && source != reference {
        report.invalid(at, "dataSource", "must be the same as dataSourceRef");
    }
}

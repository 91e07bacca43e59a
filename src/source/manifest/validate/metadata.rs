//! `metadata`: names, labels, and the annotations that mean something to the API
//! (apimachinery/pkg/api/validation/objectmeta.go).

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta, OwnerReference};

use super::format::{ANNOTATION_KEY, DNS_LABEL, DNS_SUBDOMAIN, DNS_SUBDOMAIN_PREFIX, LABEL_VALUE, QUALIFIED_NAME};
use super::report::{Path, Report, each, text};
use super::scheduling;
use crate::pod::{core, labels};

const MAX_ANNOTATIONS: usize = 256 * 1024;
const TOLERATIONS: &str = "scheduler.alpha.kubernetes.io/tolerations";
const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Checks the metadata of a pod. A namespace may be left out; it is `default` then.
pub fn check(report: &mut Report, meta: &ObjectMeta, spec: &core::PodSpec) {
    check_object(report, meta, true);
    own_annotations(report, &Path::root("metadata").field("annotations"), meta, spec);
}

/// Checks the metadata of any object. `namespaced`: it is of a kind that is in a namespace.
pub fn check_object(report: &mut Report, meta: &ObjectMeta, namespaced: bool) {
    let at = Path::root("metadata");
    if let Some(prefix) = meta.generate_name.as_deref().filter(|n| !n.is_empty()) {
        report.format(&at.field("generateName"), prefix, DNS_SUBDOMAIN_PREFIX);
    }
    report.present_format(&at.field("name"), text(&meta.name), DNS_SUBDOMAIN);
    if let Some(namespace) = meta.namespace.as_deref().filter(|n| !n.is_empty()) {
        match namespaced {
            true => report.format(&at.field("namespace"), namespace, DNS_LABEL),
            false => report.forbidden(&at.field("namespace"), "may not be set: objects of this kind are in none"),
        }
    }
    report.not_negative(&at.field("generation"), meta.generation.unwrap_or_default());
    check_labels(report, &at.field("labels"), &meta.labels);
    check_annotations(report, &at.field("annotations"), &meta.annotations);
    owners(report, &at.field("ownerReferences"), &meta.owner_references);
    finalizers(report, &at.field("finalizers"), &meta.finalizers);
    for (at, entry) in each(&at.field("managedFields"), &meta.managed_fields) {
        report.choice(&at.field("operation"), text(&entry.operation), &["Apply", "Update"]);
        if !text(&entry.fields_type).is_empty() {
            report.choice(&at.field("fieldsType"), text(&entry.fields_type), &["FieldsV1"]);
        }
    }
}

pub fn check_labels(report: &mut Report, at: &Path<'_>, labels: &Option<BTreeMap<String, String>>) {
    for (key, value) in labels.iter().flatten() {
        report.format(at, key, QUALIFIED_NAME);
        report.format(at, value, LABEL_VALUE);
    }
}

pub fn check_annotations(report: &mut Report, at: &Path<'_>, annotations: &Option<BTreeMap<String, String>>) {
    let mut size = 0;
    for (key, value) in annotations.iter().flatten() {
        report.format(at, key, ANNOTATION_KEY);
        size += key.len() + value.len();
    }
    if size > MAX_ANNOTATIONS {
        report.too_long(at, MAX_ANNOTATIONS);
    }
}

/// Annotations for a signer of certificates: like others, but all with a domain.
pub fn check_user_annotations(report: &mut Report, at: &Path<'_>, annotations: &Option<BTreeMap<String, String>>) {
    check_annotations(report, at, annotations);
    for key in annotations.iter().flatten().map(|(key, _)| key).filter(|key| !key.contains('/')) {
        report.invalid(at, key, "must have a domain and '/' before it");
    }
}

fn owners(report: &mut Report, at: &Path<'_>, owners: &Option<Vec<OwnerReference>>) {
    let mut controllers = 0;
    for (at, owner) in each(at, owners) {
        let version = owner.api_version.rsplit('/').next().unwrap_or_default();
        let fields = [("apiVersion", version), ("kind", &owner.kind), ("name", &owner.name), ("uid", &owner.uid)];
        for (name, value) in fields {
            if value.is_empty() {
                report.invalid(&at.field(name), value, "must not be empty");
            }
        }
        if owner.api_version == "v1" && owner.kind == "Event" {
            report.invalid(&at, "Event", "may not be an owner");
        }
        controllers += usize::from(owner.controller == Some(true));
        if controllers > 1 && owner.controller == Some(true) {
            report.invalid(&at.field("controller"), true, "only one owner may be the controller");
        }
    }
}

fn finalizers(report: &mut Report, at: &Path<'_>, finalizers: &Option<Vec<String>>) {
    for (at, name) in each(at, finalizers) {
        report.format(&at, name, QUALIFIED_NAME);
        if !name.contains('/') && !matches!(name.as_str(), "kubernetes" | "orphan" | "foregroundDeletion") {
            report.invalid(&at, name, "must be a name with a domain before it, or a standard finalizer");
        }
    }
    let has = |name: &str| finalizers.iter().flatten().any(|f| f == name);
    if has("orphan") && has("foregroundDeletion") {
        report.invalid(
            at,
            finalizers.as_deref().unwrap_or_default(),
            "may not have both orphan and foregroundDeletion",
        );
    }
}

/// Annotations of pods that the API reads (ValidatePodSpecificAnnotations). Those for seccomp and
/// AppArmor are checked with the security contexts.
fn own_annotations(report: &mut Report, at: &Path<'_>, meta: &ObjectMeta, spec: &core::PodSpec) {
    let get = |key: &str| meta.annotations.as_ref().and_then(|a| a.get(key)).map(String::as_str);
    if let Some(value) = get(labels::CONFIG_MIRROR) {
        if text(&spec.node_name).is_empty() {
            report.invalid(&at.key(labels::CONFIG_MIRROR), value, "spec.nodeName must be set for a mirror pod");
        }
    }
    if let Some(value) = get(TOLERATIONS).filter(|v| !v.is_empty()) {
        let at = at.key(TOLERATIONS);
        match serde_json::from_str::<Vec<core::Toleration>>(value) {
            Ok(list) => scheduling::tolerations(report, &at, &Some(list)),
            Err(e) => report.invalid(&at, value, format_args!("must be a list of tolerations as JSON: {e}")),
        }
    }
    if let Some(value) = get(DELETION_COST) {
        let plain =
            value.parse::<i32>().is_ok_and(|_| !value.starts_with('+') && (value == "0" || !value.starts_with('0')));
        if !plain {
            report.invalid(&at.key(DELETION_COST), value, "must be a 32-bit integer");
        }
    }
}

/// Checks a label selector (apimachinery/pkg/apis/meta/v1/validation).
pub fn label_selector(report: &mut Report, at: &Path<'_>, selector: Option<&LabelSelector>) {
    let Some(selector) = selector else { return };
    check_labels(report, &at.field("matchLabels"), &selector.match_labels);
    for (at, requirement) in each(&at.field("matchExpressions"), &selector.match_expressions) {
        let values = requirement.values.as_deref().unwrap_or_default();
        values_fit(report, &at, &requirement.operator, values.len(), &["In", "NotIn", "Exists", "DoesNotExist"]);
        report.format(&at.field("key"), &requirement.key, QUALIFIED_NAME);
        label_values(report, &at.field("values"), &requirement.values);
    }
}

pub fn label_values(report: &mut Report, at: &Path<'_>, values: &Option<Vec<String>>) {
    for (at, value) in each(at, values) {
        report.format(&at, value, LABEL_VALUE);
    }
}

/// Checks that an operator of a requirement is known, and has as many values as it takes.
pub fn values_fit(report: &mut Report, at: &Path<'_>, operator: &str, count: usize, operators: &[&str]) {
    let values = at.field("values");
    match operator {
        _ if !operators.contains(&operator) => report.unsupported(&at.field("operator"), operator, operators),
        "In" | "NotIn" if count == 0 => {
            report.required_because(&values, "must be given when `operator` is In or NotIn")
        }
        "Exists" | "DoesNotExist" if count > 0 => {
            report.forbidden(&values, "may not be given when `operator` is Exists or DoesNotExist");
        }
        "Gt" | "Lt" if count != 1 => {
            report.required_because(&values, "must be exactly one when `operator` is Gt or Lt");
        }
        _ => {}
    }
}

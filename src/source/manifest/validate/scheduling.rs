//! What the scheduler reads: tolerations, affinity, spreading, gates, resource claims. On a node
//! of its own little of it has an effect, but it must be right.

use std::collections::{BTreeMap, HashSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector;

use super::format::{DNS_LABEL, DNS_SUBDOMAIN, LABEL_VALUE, QUALIFIED_NAME};
use super::metadata::{check_labels, label_selector, label_values, values_fit};
use super::report::{Path, Report, Unique, each, text};
use crate::pod::core;

pub type Labels = Option<BTreeMap<String, String>>;

/// Checks all of it for a pod that has `labels`.
pub fn check(report: &mut Report, at: &Path<'_>, spec: &core::PodSpec, labels: &Labels) {
    check_labels(report, &at.field("nodeSelector"), &spec.node_selector);
    if let Some(affinity) = &spec.affinity {
        check_affinity(report, &at.field("affinity"), affinity, labels);
    }
    for (at, gate) in each(&at.field("readinessGates"), &spec.readiness_gates) {
        report.format(&at.field("conditionType"), &gate.condition_type, QUALIFIED_NAME);
    }
    let mut gates = Unique::default();
    for (at, gate) in each(&at.field("schedulingGates"), &spec.scheduling_gates) {
        report.format(&at, &gate.name, QUALIFIED_NAME);
        gates.check(report, &at, &gate.name);
    }
    spread(report, &at.field("topologySpreadConstraints"), spec, labels);
    tolerations(report, &at.field("tolerations"), &spec.tolerations);
    if let Some(policy) = &spec.preemption_policy {
        report.choice(&at.field("preemptionPolicy"), policy, &["PreemptLowerPriority", "Never"]);
    }
    if let Some(group) = &spec.scheduling_group {
        let at = at.field("schedulingGroup");
        report.present_format(&at.field("podGroupName"), text(&group.pod_group_name), DNS_SUBDOMAIN);
    }
}

pub fn resource_claims(report: &mut Report, at: &Path<'_>, claims: &Option<Vec<core::PodResourceClaim>>) {
    let mut names = Unique::default();
    for (at, claim) in each(at, claims) {
        report.present_format(&at.field("name"), &claim.name, DNS_LABEL);
        names.check(report, &at.field("name"), &claim.name);
        match (&claim.resource_claim_name, &claim.resource_claim_template_name) {
            (Some(_), Some(_)) => {
                report.invalid(&at, &claim.name, "may not have both resourceClaimName and resourceClaimTemplateName");
            }
            (None, None) => {
                report.invalid(&at, &claim.name, "must have resourceClaimName or resourceClaimTemplateName");
            }
            _ => {}
        }
        let references = [
            ("resourceClaimName", &claim.resource_claim_name),
            ("resourceClaimTemplateName", &claim.resource_claim_template_name),
        ];
        for (name, reference) in references {
            if let Some(reference) = reference {
                report.format(&at.field(name), reference, DNS_SUBDOMAIN);
            }
        }
    }
}

pub fn tolerations(report: &mut Report, at: &Path<'_>, tolerations: &Option<Vec<core::Toleration>>) {
    for (at, t) in each(at, tolerations) {
        let (key, operator, effect, value) = (text(&t.key), text(&t.operator), text(&t.effect), text(&t.value));
        let operator_at = at.field("operator");
        if !key.is_empty() {
            report.format(&at.field("key"), key, QUALIFIED_NAME);
        }
        if key.is_empty() && operator != "Exists" {
            report.invalid(&operator_at, operator, "must be Exists when `key` is empty, which means all keys");
        }
        if t.toleration_seconds.is_some() && effect != "NoExecute" {
            report.invalid(&at.field("effect"), effect, "must be NoExecute when `tolerationSeconds` is set");
        }
        match operator {
            "" | "Equal" if !(LABEL_VALUE.holds)(value) => report.invalid(&operator_at, value, LABEL_VALUE.says),
            "" | "Equal" => {}
            "Exists" if !value.is_empty() => {
                report.invalid(&operator_at, value, "`value` must be empty when `operator` is Exists");
            }
            "Exists" => {}
            _ => report.unsupported(&operator_at, operator, &["Equal", "Exists"]),
        }
        if !effect.is_empty() {
            report.choice(&at.field("effect"), effect, &["NoSchedule", "PreferNoSchedule", "NoExecute"]);
        }
    }
}

fn check_affinity(report: &mut Report, at: &Path<'_>, affinity: &core::Affinity, labels: &Labels) {
    const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
    const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";
    if let Some(node) = &affinity.node_affinity {
        let at = at.field("nodeAffinity");
        if let Some(selector) = &node.required_during_scheduling_ignored_during_execution {
            node_selector(report, &at.field(REQUIRED), selector);
        }
        for (at, term) in each(&at.field(PREFERRED), &node.preferred_during_scheduling_ignored_during_execution) {
            report.range(&at.field("weight"), term.weight.into(), 1, 100);
            // A value that no label can have does no harm where it is only preferred.
            node_selector_term(report, &at.field("preference"), &term.preference, false);
        }
    }
    let near = affinity.pod_affinity.as_ref().map(|a| {
        (
            &a.required_during_scheduling_ignored_during_execution,
            &a.preferred_during_scheduling_ignored_during_execution,
        )
    });
    let apart = affinity.pod_anti_affinity.as_ref().map(|a| {
        (
            &a.required_during_scheduling_ignored_during_execution,
            &a.preferred_during_scheduling_ignored_during_execution,
        )
    });
    for (name, terms) in [("podAffinity", near), ("podAntiAffinity", apart)] {
        let (at, Some((required, preferred))) = (at.field(name), terms) else { continue };
        for (at, term) in each(&at.field(REQUIRED), required) {
            pod_affinity_term(report, &at, term, labels);
        }
        for (at, term) in each(&at.field(PREFERRED), preferred) {
            report.range(&at.field("weight"), term.weight.into(), 1, 100);
            pod_affinity_term(report, &at.field("podAffinityTerm"), &term.pod_affinity_term, labels);
        }
    }
}

/// Checks a selector of nodes.
pub fn node_selector(report: &mut Report, at: &Path<'_>, selector: &core::NodeSelector) {
    let at = at.field("nodeSelectorTerms");
    if selector.node_selector_terms.is_empty() {
        report.required_because(&at, "must have at least one term");
    }
    for (i, term) in selector.node_selector_terms.iter().enumerate() {
        node_selector_term(report, &at.index(i), term, true);
    }
}

fn node_selector_term(report: &mut Report, at: &Path<'_>, term: &core::NodeSelectorTerm, check_values: bool) {
    const OPERATORS: &[&str] = &["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"];
    for (at, r) in each(&at.field("matchExpressions"), &term.match_expressions) {
        values_fit(report, &at, &r.operator, r.values.as_ref().map_or(0, Vec::len), OPERATORS);
        report.format(&at.field("key"), &r.key, QUALIFIED_NAME);
        if check_values {
            label_values(report, &at.field("values"), &r.values);
        }
    }
    for (at, r) in each(&at.field("matchFields"), &term.match_fields) {
        if !matches!(r.operator.as_str(), "In" | "NotIn") {
            report.unsupported(&at.field("operator"), &r.operator, &["In", "NotIn"]);
        } else if r.values.as_ref().map_or(0, Vec::len) != 1 {
            report.required_because(&at.field("values"), "must be exactly one for a field of the node");
        }
        if r.key != "metadata.name" {
            report.unsupported(&at.field("key"), &r.key, &["metadata.name"]);
            continue;
        }
        for (at, value) in each(&at.field("values"), &r.values) {
            report.format(&at, value, DNS_SUBDOMAIN);
        }
    }
}

fn pod_affinity_term(report: &mut Report, at: &Path<'_>, term: &core::PodAffinityTerm, labels: &Labels) {
    label_selector(report, &at.field("labelSelector"), term.label_selector.as_ref());
    label_selector(report, &at.field("namespaceSelector"), term.namespace_selector.as_ref());
    for (at, namespace) in each(&at.field("namespaces"), &term.namespaces) {
        report.format(&at, namespace, DNS_LABEL);
    }
    let keys = [("matchLabelKeys", &term.match_label_keys), ("mismatchLabelKeys", &term.mismatch_label_keys)];
    label_keys(report, at, keys, term.label_selector.as_ref(), labels);
    report.present_format(&at.field("topologyKey"), &term.topology_key, QUALIFIED_NAME);
}

/// Checks keys of labels that become part of a selector, with the values that the pod has.
fn label_keys(
    report: &mut Report,
    at: &Path<'_>,
    lists: [(&'static str, &Option<Vec<String>>); 2],
    selector: Option<&LabelSelector>,
    labels: &Labels,
) {
    let [(_, matching), (_, differing)] = lists;
    for (name, keys) in lists {
        let at = at.field(name);
        if selector.is_none() && keys.as_ref().is_some_and(|k| !k.is_empty()) {
            report.forbidden(&at, "may not be given without labelSelector");
            continue;
        }
        for (at, key) in each(&at, keys) {
            report.format(&at, key, QUALIFIED_NAME);
        }
    }
    let mut selected: HashSet<&str> = HashSet::new();
    if let Some(selector) = selector {
        selected.extend(selector.match_labels.iter().flatten().map(|(key, _)| key.as_str()));
        selected.extend(selector.match_expressions.iter().flatten().map(|r| r.key.as_str()));
    }
    let differing: HashSet<_> = differing.iter().flatten().collect();
    let matching_at = at.field("matchLabelKeys");
    for (at, key) in each(&matching_at, matching) {
        // A label that the pod doesn't have adds nothing to the selector.
        let has = labels.as_ref().is_some_and(|l| l.contains_key(key));
        if has && selected.contains(key.as_str()) {
            report.invalid(&at, key, "must not stand in labelSelector too");
        }
        if differing.contains(key) {
            report.invalid(&at, key, "must not stand in mismatchLabelKeys too");
        }
    }
}

fn spread(report: &mut Report, at: &Path<'_>, spec: &core::PodSpec, labels: &Labels) {
    let mut seen = HashSet::new();
    for (at, c) in each(at, &spec.topology_spread_constraints) {
        if c.max_skew < 1 {
            report.invalid(&at.field("maxSkew"), c.max_skew, "must be greater than 0");
        }
        report.present(&at.field("topologyKey"), &c.topology_key);
        let actions = ["DoNotSchedule", "ScheduleAnyway"];
        report.choice(&at.field("whenUnsatisfiable"), &c.when_unsatisfiable, &actions);
        if !seen.insert((c.topology_key.as_str(), c.when_unsatisfiable.as_str())) {
            report.duplicate(&at, format!("{}, {}", c.topology_key, c.when_unsatisfiable));
        }
        if let Some(domains) = c.min_domains {
            let at = at.field("minDomains");
            if domains < 1 {
                report.invalid(&at, domains, "must be greater than 0");
            }
            if c.when_unsatisfiable != "DoNotSchedule" {
                report.invalid(&at, domains, "may be set only when `whenUnsatisfiable` is DoNotSchedule");
            }
        }
        for (name, policy) in
            [("nodeAffinityPolicy", &c.node_affinity_policy), ("nodeTaintsPolicy", &c.node_taints_policy)]
        {
            if let Some(policy) = policy {
                report.choice(&at.field(name), policy, &["Honor", "Ignore"]);
            }
        }
        let keys = [("matchLabelKeys", &c.match_label_keys), ("mismatchLabelKeys", &None)];
        label_keys(report, &at, keys, c.label_selector.as_ref(), labels);
        label_selector(report, &at.field("labelSelector"), c.label_selector.as_ref());
    }
}

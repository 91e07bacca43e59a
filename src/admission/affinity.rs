//! Which nodes a pod is for: node selector, required node affinity, taints
//! (staging/src/k8s.io/component-helpers/scheduling/corev1).

use super::Node;
use crate::pod::{Pod, core};

/// Whether the node has all labels of the node selector, and fits one of the affinity's terms.
pub fn matches(spec: &core::PodSpec, node: &Node) -> bool {
    let mut selector = spec.node_selector.iter().flatten();
    if !selector.all(|(key, value)| node.labels.get(key) == Some(value)) {
        return false;
    }
    let affinity = spec.affinity.as_ref().and_then(|a| a.node_affinity.as_ref());
    let required = affinity.and_then(|a| a.required_during_scheduling_ignored_during_execution.as_ref());
    required.is_none_or(|r| r.node_selector_terms.iter().any(|term| matches_term(term, node)))
}

/// A term without any requirement fits no node.
fn matches_term(term: &core::NodeSelectorTerm, node: &Node) -> bool {
    let labels = term.match_expressions.as_deref().unwrap_or_default();
    let fields = term.match_fields.as_deref().unwrap_or_default();
    let label = |key: &str| node.labels.get(key).map(String::as_str);
    // The name is the only field that can be asked for.
    let field = |key: &str| (key == "metadata.name").then_some(node.name.as_str());
    !(labels.is_empty() && fields.is_empty())
        && labels.iter().all(|r| matches_requirement(r, label(&r.key)))
        && fields.iter().all(|r| matches_requirement(r, field(&r.key)))
}

fn matches_requirement(requirement: &core::NodeSelectorRequirement, value: Option<&str>) -> bool {
    let values = requirement.values.as_deref().unwrap_or_default();
    let listed = value.is_some_and(|value| values.iter().any(|v| v == value));
    let numbers = || -> Option<(i64, i64)> { Some((value?.parse().ok()?, values.first()?.parse().ok()?)) };
    match requirement.operator.as_str() {
        "In" => listed,
        "NotIn" => !listed,
        "Exists" => value.is_some(),
        "DoesNotExist" => value.is_none(),
        "Gt" => numbers().is_some_and(|(own, bound)| own > bound),
        "Lt" => numbers().is_some_and(|(own, bound)| own < bound),
        _ => false,
    }
}

pub fn tolerates(pod: &Pod, taint: &core::Taint) -> bool {
    pod.spec.tolerations.iter().flatten().any(|t| {
        let key = t.key.as_deref().unwrap_or_default();
        let effect = t.effect.as_deref().unwrap_or_default();
        let value = || t.value.as_deref().unwrap_or_default() == taint.value.as_deref().unwrap_or_default();
        let fits = match t.operator.as_deref() {
            Some("Exists") => true,
            None | Some("" | "Equal") => value(),
            Some(_) => false,
        };
        (effect.is_empty() || effect == taint.effect) && (key.is_empty() || key == taint.key) && fits
    })
}

//! How well a pod is to be served: its QoS class, and whether it is critical
//! (pkg/apis/core/v1/helper/qos, pkg/kubelet/types/pod_update.go).

use std::collections::BTreeMap;
use std::fmt;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as QuantityText;

use super::resources::quantity;
use super::{Pod, Source, core, labels};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QosClass {
    /// Has what it may use.
    Guaranteed,
    /// Asks for something, or is limited in something.
    Burstable,
    /// Takes what is left.
    BestEffort,
}

impl QosClass {
    /// The class of a pod whose defaults are filled in: by the resources of the pod as a whole where
    /// there are some, else by its containers, init containers among them.
    pub fn of(spec: &core::PodSpec) -> QosClass {
        let some = |list: &Option<BTreeMap<_, _>>| list.as_ref().is_some_and(|list| !list.is_empty());
        if let Some(whole) = spec.resources.as_ref().filter(|r| some(&r.requests) || some(&r.limits)) {
            return of_resources(Some(whole));
        }
        let containers = spec.init_containers.iter().flatten().chain(&spec.containers);
        let mut classes = containers.map(|c| of_resources(c.resources.as_ref()));
        let Some(first) = classes.next() else { return QosClass::BestEffort };
        if classes.all(|class| class == first) { first } else { QosClass::Burstable }
    }

    /// As it stands in a pod's status.
    pub fn as_str(self) -> &'static str {
        match self {
            QosClass::Guaranteed => "Guaranteed",
            QosClass::Burstable => "Burstable",
            QosClass::BestEffort => "BestEffort",
        }
    }
}

impl fmt::Display for QosClass {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Only CPU and memory count.
fn of_resources(resources: Option<&core::ResourceRequirements>) -> QosClass {
    let of = |list: Option<&BTreeMap<String, QuantityText>>, name| quantity(list, name).unwrap_or_default();
    let asks = ["cpu", "memory"].map(|name| {
        let request = of(resources.and_then(|r| r.requests.as_ref()), name);
        (request, of(resources.and_then(|r| r.limits.as_ref()), name))
    });
    if asks.iter().all(|(request, limit)| request.is_zero() && limit.is_zero()) {
        QosClass::BestEffort
    } else if asks.iter().all(|(request, limit)| request == limit && !limit.is_zero()) {
        QosClass::Guaranteed
    } else {
        QosClass::Burstable
    }
}

/// From this priority on a pod is critical: that of `system-cluster-critical`.
const CRITICAL_PRIORITY: i32 = 2_000_000_000;

/// A pod that the node, or the cluster, can't do without: each static one, and those of the highest
/// priorities. It preempts others and is not evicted.
pub fn is_critical(pod: &Pod) -> bool {
    let mirror = pod.meta.annotations.as_ref().is_some_and(|a| a.contains_key(labels::CONFIG_MIRROR));
    pod.source != Source::Api || mirror || pod.spec.priority.is_some_and(|p| p >= CRITICAL_PRIORITY)
}

/// A critical pod that says it is the node's: killed last when memory runs out.
pub fn is_node_critical(pod: &Pod) -> bool {
    is_critical(pod) && pod.spec.priority_class_name.as_deref() == Some("system-node-critical")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::testing::{pod, resources, spec};

    #[test]
    fn classes_by_containers() {
        use QosClass::{BestEffort, Burstable, Guaranteed};
        let full = "cpu=1 memory=1Gi / cpu=1 memory=1Gi";
        let table: &[(&[&str], QosClass)] = &[
            (&[""], BestEffort),
            (&["cpu=0 / memory=0"], BestEffort),
            (&["ephemeral-storage=1Gi / hugepages-2Mi=2Mi"], BestEffort),
            (&[full], Guaranteed),
            (&["cpu=1000m memory=1024Mi / cpu=1 memory=1Gi"], Guaranteed),
            (&[full, full], Guaranteed),
            (&["cpu=1 memory=1Gi ephemeral-storage=1Gi / cpu=1 memory=1Gi"], Guaranteed),
            (&["cpu=1 / cpu=1"], Burstable),
            (&["cpu=1 memory=1Gi / cpu=1 memory=2Gi"], Burstable),
            (&["/ cpu=1 memory=1Gi"], Burstable),
            (&["cpu=1 /"], Burstable),
            (&[full, ""], Burstable),
            (&[full, "cpu=1 / cpu=1"], Burstable),
        ];
        for (containers, want) in table {
            assert_eq!(QosClass::of(&spec(&[], containers)), *want, "{containers:?}");
        }
        // An init container counts as any other.
        assert_eq!(QosClass::of(&spec(&["cpu=1 /"], &[""])), Burstable);
        assert_eq!(QosClass::of(&spec(&[full], &[full])), Guaranteed);
        assert_eq!(QosClass::of(&spec(&[""], &[full])), Burstable);
        assert_eq!(QosClass::of(&core::PodSpec::default()), BestEffort);
    }

    #[test]
    fn the_resources_of_the_pod_decide_where_there_are_some() {
        use QosClass::{BestEffort, Burstable, Guaranteed};
        for (whole, want) in [
            ("cpu=1 memory=1Gi / cpu=1 memory=1Gi", Guaranteed),
            ("cpu=1 / cpu=2", Burstable),
            ("hugepages-2Mi=2Mi / hugepages-2Mi=2Mi", BestEffort),
            ("", Burstable),
        ] {
            let mut spec = spec(&[], &["cpu=100m / memory=1Mi"]);
            spec.resources = Some(resources(whole));
            assert_eq!(QosClass::of(&spec), want, "{whole:?}");
        }
    }

    #[test]
    fn who_is_critical() {
        let of = |source, priority, class: &str, mirror: bool| {
            let mut p = pod("a", spec(&[], &[""]));
            p.source = source;
            p.spec.priority = priority;
            p.spec.priority_class_name = Some(class.to_owned());
            if mirror {
                p.meta.annotations.get_or_insert_default().insert(labels::CONFIG_MIRROR.into(), "x".into());
            }
            (is_critical(&p), is_node_critical(&p))
        };
        let node = "system-node-critical";
        assert_eq!(of(Source::File, None, "", false), (true, false));
        assert_eq!(of(Source::Http, None, node, false), (true, true));
        assert_eq!(of(Source::Api, None, "", false), (false, false));
        assert_eq!(of(Source::Api, Some(1_999_999_999), node, false), (false, false));
        assert_eq!(of(Source::Api, Some(2_000_000_000), "", false), (true, false));
        assert_eq!(of(Source::Api, Some(2_000_001_000), node, false), (true, true));
        assert_eq!(of(Source::Api, None, "", true), (true, false));
    }
}

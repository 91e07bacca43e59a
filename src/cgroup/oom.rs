//! Which container the kernel kills first when memory runs out (pkg/kubelet/qos/policy.go).

use crate::pod::qos::{QosClass, is_node_critical};
use crate::pod::resources::{aggregate, quantity, request};
use crate::pod::{Pod, core, is_sidecar};

const GUARANTEED: i64 = -997;
const BEST_EFFORT: i64 = 1000;

/// The `oom_score_adj` of a container's processes. `memory` is the machine's, in bytes.
///
/// The kernel's own score is the share of memory that a process uses, in thousandths; a Burstable
/// container gets 1000 less the share that it asks for, so that who uses more than that goes first.
pub fn score_adj(pod: &Pod, container: &core::Container, memory: u64) -> i64 {
    if is_node_critical(pod) {
        return GUARANTEED;
    }
    match QosClass::of(&pod.spec) {
        QosClass::Guaranteed => return GUARANTEED,
        QosClass::BestEffort => return BEST_EFFORT,
        QosClass::Burstable => {}
    }
    let memory = i64::try_from(memory).unwrap_or(i64::MAX).max(1);
    let extra = unclaimed(&pod.spec);
    let score = |request: i64| {
        let asked = i128::from(request) + i128::from(extra);
        i64::try_from(1000 - 1000 * asked / i128::from(memory)).unwrap_or(i64::MIN)
    };
    let of = |c: &core::Container| request(c, "memory").value();
    let mut own = score(of(container));
    // A sidecar goes no sooner than any container that it serves.
    let is_init = pod.init_containers().iter().any(|c| c.name == container.name);
    if is_init && is_sidecar(container) {
        own = own.min(score(pod.containers().iter().map(of).min().unwrap_or(0)));
    }
    own.clamp(1000 + GUARANTEED, BEST_EFFORT - 1)
}

/// What the pod asks for as a whole beyond its containers, in bytes for each of them.
fn unclaimed(spec: &core::PodSpec) -> i64 {
    let whole = spec.resources.as_ref().and_then(|r| quantity(r.requests.as_ref(), "memory"));
    let Some(whole) = whole.filter(|q| !q.is_zero()) else { return 0 };
    let claimed = aggregate(spec, |r| r.requests.as_ref()).get("memory").copied().unwrap_or_default();
    let containers = spec.containers.len() + spec.init_containers.as_ref().map_or(0, Vec::len);
    let count = i64::try_from(containers).unwrap_or(i64::MAX).max(1);
    whole.value().saturating_sub(claimed.value()) / count
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::testing::{pod, resources, sidecar, spec};

    const GI: u64 = 1 << 30;

    #[test]
    fn by_class_and_request() {
        let table = [
            ("", 1000),
            ("cpu=1 memory=1Gi / cpu=1 memory=1Gi", -997),
            ("memory=256Mi", 938),
            ("cpu=1", 999),
            ("memory=1Gi", 750),
            ("memory=1Mi", 999),
            ("memory=4Gi", 3),
            ("memory=8Gi", 3),
            ("memory=9223372036854775807", 3),
        ];
        for (text, want) in table {
            let p = pod("p", spec(&[], &[text]));
            assert_eq!(score_adj(&p, &p.spec.containers[0], 4 * GI), want, "{text:?}");
        }
    }

    #[test]
    fn a_critical_pod_of_the_node_goes_last() {
        let mut p = pod("p", spec(&[], &[""]));
        p.spec.priority_class_name = Some("system-node-critical".to_owned());
        assert_eq!(score_adj(&p, &p.spec.containers[0], GI), -997);
    }

    #[test]
    fn sidecars() {
        let table = [
            // Its own request, when that protects it more.
            ("memory=2Gi", 500),
            // Else as the container that asks for least.
            ("memory=1Mi", 875),
            ("", 875),
        ];
        for (text, want) in table {
            let mut p = pod("p", spec(&[text], &["memory=1Gi", "memory=512Mi"]));
            sidecar(&mut p.spec.init_containers.as_mut().expect("is there")[0], true);
            let init = p.init_containers()[0].clone();
            assert_eq!(score_adj(&p, &init, 4 * GI), want, "{text:?}");
        }
        let p = pod("p", spec(&["memory=1Mi"], &["memory=1Gi"]));
        assert_eq!(score_adj(&p, &p.init_containers()[0], 4 * GI), 999);
    }

    #[test]
    fn what_the_pod_asks_for_as_a_whole_is_shared() {
        let mut p = pod("p", spec(&[], &["memory=512Mi", ""]));
        p.spec.resources = Some(resources("memory=1536Mi /"));
        assert_eq!(score_adj(&p, &p.spec.containers[0], 4 * GI), 750);
        assert_eq!(score_adj(&p, &p.spec.containers[1], 4 * GI), 875);
        let mut p = pod("p", spec(&["memory=256Mi"], &["memory=768Mi"]));
        sidecar(&mut p.spec.init_containers.as_mut().expect("is there")[0], true);
        p.spec.resources = Some(resources("memory=2Gi /"));
        // Half a GiB more for each; the sidecar asks for less than the container, and may stay.
        assert_eq!(score_adj(&p, &p.init_containers()[0], 4 * GI), 688);
    }
}

//! Resizing a pod in place: when the CPU and memory of its containers are all that changed, they can
//! be given to the running containers (KEP 1287, KEP 2837).

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as QuantityText;

use crate::pod::qos::QosClass;
use crate::pod::quantity::Quantity;
use crate::pod::resources::{aggregate, effective_limit, request};
use crate::pod::{Pod, core, is_sidecar};

/// What becomes of one container.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// Its resources are as they were; or it doesn't run, and has the new ones when it is started.
    Keep,
    UpdateInPlace,
    /// Its `resizePolicy` wants it restarted for such a change.
    Restart,
    /// It uses more memory, in bytes, than it is to have from now on: it would be killed. To be tried
    /// again when it uses less.
    Wait {
        usage: u64,
        limit: u64,
    },
}

/// A container as it is now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Observed {
    pub running: bool,
    /// What it needs of memory, in bytes; `None` when that isn't known.
    pub memory_usage: Option<u64>,
}

/// For each container and sidecar, by name, what becomes of it when `old`, as it runs, becomes
/// `new`. `None` when the pod has changed in something else too, or so much that its cgroup would be
/// another: then it can't be done in place.
pub fn decide(old: &Pod, new: &Pod, observed: impl Fn(&str) -> Observed) -> Option<Vec<(String, Change)>> {
    if identity(&old.spec) != identity(&new.spec) {
        return None;
    }
    let pairs = resizable(&old.spec).zip(resizable(&new.spec));
    let changes = pairs.map(|(before, after)| {
        let change = change((&old.spec, before), (&new.spec, after), observed(&after.name));
        (after.name.clone(), change)
    });
    Some(changes.collect())
}

/// Whether they differ in more than ephemeral containers.
pub fn differ(old: &core::PodSpec, new: &core::PodSpec) -> bool {
    let without = |spec: &core::PodSpec| core::PodSpec { ephemeral_containers: None, ..spec.clone() };
    old != new && (old.ephemeral_containers == new.ephemeral_containers || without(old) != without(new))
}

fn resizable(spec: &core::PodSpec) -> impl Iterator<Item = &core::Container> {
    spec.init_containers.iter().flatten().filter(|c| is_sidecar(c)).chain(&spec.containers)
}

fn change(
    (old, before): (&core::PodSpec, &core::Container),
    (new, after): (&core::PodSpec, &core::Container),
    observed: Observed,
) -> Change {
    if !observed.running {
        return Change::Keep;
    }
    let of = |spec, c, name| (request(c, name), effective_limit(spec, c, name));
    let changed = ["cpu", "memory"].map(|name| (name, of(old, before, name) != of(new, after, name)));
    let mut changed = changed.into_iter().filter(|(_, changed)| *changed).map(|(name, _)| name).peekable();
    if changed.peek().is_none() {
        return Change::Keep;
    }
    if changed.any(|name| restarts(after, name)) {
        return Change::Restart;
    }
    let limit = u64::try_from(effective_limit(new, after, "memory").value()).unwrap_or(0);
    match observed.memory_usage {
        Some(usage) if limit > 0 && usage > limit => Change::Wait { usage, limit },
        _ => Change::UpdateInPlace,
    }
}

fn restarts(container: &core::Container, resource: &str) -> bool {
    let mut policies = container.resize_policy.iter().flatten();
    policies.any(|p| p.resource_name == resource && p.restart_policy == "RestartContainer")
}

/// The pod as far as it can't be resized: two manifests whose pods are the same here can be the same
/// pod at different times. The amounts of CPU and memory are left out, but not which of them there
/// are; and the QoS class is in it, for that is where its cgroup lies. Ephemeral containers, which no
/// manifest gives, are left out too. Defaults need not be filled in before.
pub fn identity(spec: &core::PodSpec) -> (core::PodSpec, QosClass) {
    let mut spec = core::PodSpec { ephemeral_containers: None, ..spec.clone() };
    let containers = spec.init_containers.iter_mut().flatten().chain(&mut spec.containers);
    containers.filter_map(|c| c.resources.as_mut()).for_each(fill_requests);
    fill_requests_of_pod(&mut spec);
    let class = QosClass::of(&spec);
    let sidecars = spec.init_containers.iter_mut().flatten().filter(|c| is_sidecar(c));
    let resizable = sidecars.chain(&mut spec.containers).filter_map(|c| c.resources.as_mut());
    resizable.chain(&mut spec.resources).for_each(blank);
    (spec, class)
}

/// What isn't asked for is asked for as it is limited; the API server's default.
fn fill_requests(resources: &mut core::ResourceRequirements) {
    let Some(limits) = resources.limits.clone().filter(|limits| !limits.is_empty()) else { return };
    let requests = resources.requests.get_or_insert_default();
    for (name, amount) in limits {
        requests.entry(name).or_insert(amount);
    }
}

/// A pod with limits of its own asks for what its containers ask for, or else for its limits.
fn fill_requests_of_pod(spec: &mut core::PodSpec) {
    let asked = aggregate(spec, |r| r.requests.as_ref());
    let Some(whole) = spec.resources.as_mut().filter(|r| r.limits.as_ref().is_some_and(|l| !l.is_empty())) else {
        return;
    };
    let requests = whole.requests.get_or_insert_default();
    for (name, amount) in asked.into_iter().filter(|(name, _)| matches!(name.as_str(), "cpu" | "memory")) {
        requests.entry(name).or_insert_with(|| QuantityText(format!("{}m", amount.milli_value())));
    }
    fill_requests(whole);
}

fn blank(resources: &mut core::ResourceRequirements) {
    for list in [&mut resources.requests, &mut resources.limits].into_iter().flatten() {
        for (name, amount) in list {
            let is_some = Quantity::parse(&amount.0).is_some_and(|q| !q.is_zero());
            if is_some && matches!(name.as_str(), "cpu" | "memory") {
                *amount = QuantityText("*".to_owned());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::testing::{pod, resources, sidecar, spec};

    const RUNNING: Observed = Observed { running: true, memory_usage: None };

    fn changes(old: &core::PodSpec, new: &core::PodSpec, observed: Observed) -> Option<Vec<Change>> {
        let all = decide(&pod("p", old.clone()), &pod("p", new.clone()), |_| observed)?;
        Some(all.into_iter().map(|(_, change)| change).collect())
    }

    fn policy(resource: &str, restart: &str) -> core::ContainerResizePolicy {
        core::ContainerResizePolicy { resource_name: resource.to_owned(), restart_policy: restart.to_owned() }
    }

    #[test]
    fn amounts_alone_are_changed_in_place() {
        use Change::{Keep, UpdateInPlace};
        let base = "cpu=1 memory=64Mi / cpu=2 memory=128Mi";
        let table = [
            (base, Some(Keep)),
            ("cpu=1000m memory=64Mi / cpu=2 memory=131072Ki", Some(Keep)),
            ("cpu=500m memory=64Mi / cpu=2 memory=128Mi", Some(UpdateInPlace)),
            ("cpu=1 memory=64Mi / cpu=4 memory=256Mi", Some(UpdateInPlace)),
            ("cpu=1 memory=32Mi / cpu=2 memory=128Mi", Some(UpdateInPlace)),
            // A limit less, a limit more, another class, another resource.
            ("cpu=1 memory=64Mi / cpu=2", None),
            ("cpu=1 memory=64Mi / cpu=0 memory=128Mi", None),
            ("cpu=1 memory=64Mi ephemeral-storage=1Gi / cpu=2 memory=128Mi", None),
            ("cpu=1 memory=64Mi / cpu=1 memory=64Mi", None),
            ("", None),
        ];
        for (text, want) in table {
            let got = changes(&spec(&[], &[base]), &spec(&[], &[text]), RUNNING);
            assert_eq!(got, want.map(|change| vec![change]), "{text:?}");
        }
        let mut other = spec(&[], &[base]);
        other.containers[0].image = Some("other".to_owned());
        assert_eq!(changes(&spec(&[], &[base]), &other, RUNNING), None);
    }

    #[test]
    fn before_defaults_and_after() {
        let (bare, full) = (spec(&[], &["/ cpu=1 memory=1Gi"]), spec(&[], &["cpu=2 memory=2Gi / cpu=2 memory=2Gi"]));
        assert_eq!(identity(&bare), identity(&full));
        assert_eq!(identity(&bare).1, QosClass::Guaranteed);
        assert_ne!(identity(&bare), identity(&spec(&[], &["cpu=500m / cpu=1 memory=1Gi"])), "the class");
        let whole = |own: &str, containers: &str| {
            let mut s = spec(&[], &[containers]);
            s.resources = Some(resources(own));
            identity(&s).1
        };
        assert_eq!(whole("/ cpu=1 memory=1Gi", "cpu=1 memory=1Gi"), QosClass::Guaranteed);
        assert_eq!(whole("/ cpu=1 memory=1Gi", "cpu=500m memory=1Gi"), QosClass::Burstable);
        assert_eq!(whole("/ cpu=1 memory=1Gi", ""), QosClass::Guaranteed);
    }

    #[test]
    fn a_policy_may_want_a_restart() {
        use Change::{Restart, UpdateInPlace};
        let of = |text: &str| {
            let mut s = spec(&[], &[text]);
            s.containers[0].resize_policy =
                Some(vec![policy("memory", "RestartContainer"), policy("cpu", "NotRequired")]);
            s
        };
        let old = of("cpu=1 memory=1Gi / cpu=2 memory=2Gi");
        for (text, want) in [
            ("cpu=2 memory=1Gi / cpu=2 memory=2Gi", UpdateInPlace),
            ("cpu=1 memory=1Gi / cpu=2 memory=3Gi", Restart),
            ("cpu=2 memory=1500Mi / cpu=2 memory=2Gi", Restart),
        ] {
            assert_eq!(changes(&old, &of(text), RUNNING), Some(vec![want]), "{text}");
        }
        let stopped = Observed::default();
        assert_eq!(changes(&old, &of("cpu=1 memory=1Gi / cpu=2 memory=3Gi"), stopped), Some(vec![Change::Keep]));
    }

    #[test]
    fn memory_in_use_is_not_taken_away() {
        let (old, new) = (spec(&[], &["memory=1Mi / memory=8Mi"]), spec(&[], &["memory=1Mi / memory=4Mi"]));
        let using = |bytes| Observed { running: true, memory_usage: Some(bytes) };
        assert_eq!(changes(&old, &new, using(4 << 20)), Some(vec![Change::UpdateInPlace]));
        let wait = Change::Wait { usage: 5 << 20, limit: 4 << 20 };
        assert_eq!(changes(&old, &new, using(5 << 20)), Some(vec![wait]));
        assert_eq!(changes(&new, &old, using(9 << 20)), Some(vec![Change::Wait { usage: 9 << 20, limit: 8 << 20 }]));
    }

    #[test]
    fn sidecars_can_be_resized_and_init_containers_can_not() {
        let of = |init: &str, is_sidecar: bool| {
            let mut s = spec(&[init], &["cpu=1"]);
            sidecar(&mut s.init_containers.as_mut().expect("is there")[0], is_sidecar);
            s
        };
        let got = changes(&of("cpu=1", true), &of("cpu=2", true), RUNNING);
        assert_eq!(got, Some(vec![Change::UpdateInPlace, Change::Keep]));
        assert_eq!(changes(&of("cpu=1", false), &of("cpu=2", false), RUNNING), None);
    }

    #[test]
    fn the_pod_as_a_whole() {
        let of = |whole: &str| {
            let mut s = spec(&[], &["", "cpu=100m / cpu=200m memory=1Mi"]);
            s.resources = Some(resources(whole));
            s
        };
        let (old, new) = (of("cpu=1 memory=8Mi / cpu=2 memory=8Mi"), of("cpu=1 memory=8Mi / cpu=3 memory=8Mi"));
        // The one without limits has those of the pod.
        assert_eq!(changes(&old, &new, RUNNING), Some(vec![Change::UpdateInPlace, Change::Keep]));
    }
}

//! What stands in the cgroups of pods, of QoS classes, and of all pods together
//! (pkg/kubelet/cm/helpers_linux.go, qos_container_manager_linux.go).

use std::collections::BTreeMap;

use super::cpu;
use super::hierarchy::Version;
use super::policy::Policy;
use crate::pod::core;
use crate::pod::qos::QosClass;
use crate::pod::resources::{Amounts, ResourceList, huge_page_size, is_limited, limits, requests};

/// What is written into a cgroup. What is `None` stays as it is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Values {
    pub cpu_shares: Option<u64>,
    pub cpu_max: Option<CpuMax>,
    /// Bytes.
    pub memory_limit: Option<u64>,
    pub pids_limit: Option<u64>,
    /// Bytes by the size of the pages.
    pub huge_pages: BTreeMap<u64, u64>,
    /// Bytes that are never taken away, and bytes that are taken away last; on v2 only.
    pub memory_min: Option<u64>,
    pub memory_low: Option<u64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CpuMax {
    /// Microseconds in each period; `None` is no limit.
    pub quota: Option<u64>,
    /// Microseconds.
    pub period: u64,
}

/// More huge pages than any machine has.
const UNBOUNDED: u64 = 1 << 62;

fn unsigned(n: i64) -> u64 {
    u64::try_from(n).unwrap_or(0)
}

/// The limit of each size of huge pages that the kernel knows; a size that isn't asked for gets none.
fn huge_pages(asked: impl Iterator<Item = (String, i64)>, policy: &Policy) -> BTreeMap<u64, u64> {
    let mut all: BTreeMap<u64, u64> = policy.huge_page_sizes.iter().map(|size| (*size, 0)).collect();
    for (name, bytes) in asked {
        if let Some(limit) = huge_page_size(&name).and_then(|size| all.get_mut(&size)) {
            *limit = limit.saturating_add(unsigned(bytes));
        }
    }
    all
}

impl Values {
    /// For the cgroup of a pod.
    pub fn of_pod(spec: &core::PodSpec, policy: &Policy) -> Values {
        let asked = Amounts::from(requests(spec));
        let may = Amounts::from(limits(spec));
        let mut values = Values {
            pids_limit: policy.pod_pids_limit,
            huge_pages: huge_pages(asked.iter().map(|(name, amount)| (name.to_owned(), amount)), policy),
            ..Values::default()
        };
        let class = QosClass::of(spec);
        values.cpu_shares = Some(match class {
            QosClass::BestEffort => cpu::MIN_SHARES,
            QosClass::Guaranteed | QosClass::Burstable => cpu::shares(asked.get("cpu")),
        });
        if class != QosClass::BestEffort {
            let period = policy.cpu_period;
            if is_limited(spec, "cpu") {
                let quota = cpu::quota(may.get("cpu"), period).filter(|_| policy.cpu_quota);
                values.cpu_max = Some(CpuMax { quota, period });
            }
            if is_limited(spec, "memory") {
                values.memory_limit = Some(unsigned(may.get("memory")));
            }
        }
        if let Some(qos) = policy.memory_qos {
            let reserved = Some(if qos.reserve { unsigned(asked.get("memory")) } else { 0 });
            match class {
                QosClass::Guaranteed => values.memory_min = reserved,
                QosClass::Burstable => values.memory_low = reserved,
                QosClass::BestEffort => {}
            }
        }
        values
    }

    /// For the cgroup above all pods; `held` is what they are held to together
    /// ([`crate::node::capacity::Capacity::enforced`]).
    pub fn of_all_pods(held: &Amounts, policy: &Policy) -> Values {
        let v2 = policy.version == Version::V2;
        Values {
            cpu_shares: Some(cpu::shares(held.get("cpu"))),
            memory_limit: held.contains("memory").then(|| unsigned(held.get("memory"))),
            pids_limit: held.contains("pid").then(|| unsigned(held.get("pid"))),
            huge_pages: huge_pages(held.iter().map(|(name, amount)| (name.to_owned(), amount)), policy),
            // What an earlier agent protected, before the feature was turned off.
            memory_min: (v2 && policy.memory_qos.is_none()).then_some(0),
            memory_low: (v2 && policy.memory_qos.is_none()).then_some(0),
            ..Values::default()
        }
    }

    /// For the cgroup of a QoS class; Guaranteed pods have none of their own.
    pub fn of_class(class: QosClass, totals: &Totals, policy: &Policy) -> Values {
        let reserve = policy.memory_qos.map(|qos| if qos.reserve { totals.burstable_memory } else { 0 });
        let (shares, memory_low) = match class {
            QosClass::Burstable => (Some(cpu::shares(totals.burstable_cpu)), reserve),
            QosClass::BestEffort => (Some(cpu::MIN_SHARES), None),
            QosClass::Guaranteed => (None, None),
        };
        Values {
            cpu_shares: shares,
            // What is not held here is held below and above.
            huge_pages: policy.huge_page_sizes.iter().map(|size| (*size, UNBOUNDED)).collect(),
            memory_low,
            ..Values::default()
        }
    }

    /// What is protected in the cgroup above all pods; it changes as pods come and go.
    pub fn protected(totals: &Totals, policy: &Policy) -> Values {
        let of = |bytes| policy.memory_qos.map(|qos| if qos.reserve { bytes } else { 0 });
        Values {
            memory_min: of(totals.guaranteed_memory.saturating_add(totals.burstable_memory)),
            memory_low: of(totals.burstable_memory),
            ..Values::default()
        }
    }

    /// For a cgroup that others than pods are in, to hold it to what is reserved for them; with
    /// `compressible_only` without the limits at which they would be killed.
    pub fn of_reserve(reserved: &ResourceList, compressible_only: bool) -> Values {
        let all = Amounts::from(reserved.clone());
        let of = |name| (!compressible_only && all.contains(name)).then(|| unsigned(all.get(name)));
        Values {
            cpu_shares: all.contains("cpu").then(|| cpu::shares(all.get("cpu"))),
            memory_limit: of("memory"),
            pids_limit: of("pid"),
            ..Values::default()
        }
    }

    /// The wider of both in each value: while a pod is resized, its containers are at times below
    /// what they had, and at times above.
    pub fn widest(&self, other: &Values) -> Values {
        let cpu_max = match (self.cpu_max, other.cpu_max) {
            (Some(a), Some(b)) => {
                let quota = a.quota.zip(b.quota).map(|(a, b)| a.max(b));
                Some(CpuMax { quota, period: b.period })
            }
            _ => None,
        };
        let mut huge_pages = other.huge_pages.clone();
        for (size, bytes) in &self.huge_pages {
            let slot = huge_pages.entry(*size).or_default();
            *slot = (*slot).max(*bytes);
        }
        let both = |a: Option<u64>, b: Option<u64>| a.zip(b).map(|(a, b)| a.max(b));
        Values {
            cpu_shares: other.cpu_shares,
            cpu_max,
            memory_limit: both(self.memory_limit, other.memory_limit),
            pids_limit: both(self.pids_limit, other.pids_limit),
            huge_pages,
            memory_min: other.memory_min,
            memory_low: other.memory_low,
        }
    }
}

/// What the pods of the node ask for together, by QoS class.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Totals {
    /// Thousandths.
    pub burstable_cpu: i64,
    /// Bytes.
    pub burstable_memory: u64,
    pub guaranteed_memory: u64,
}

impl Totals {
    /// Of the pods that have not ended.
    pub fn of<'a>(pods: impl IntoIterator<Item = &'a core::PodSpec>) -> Totals {
        let mut all = Totals::default();
        for spec in pods {
            let asked = Amounts::from(requests(spec));
            let memory = unsigned(asked.get("memory"));
            match QosClass::of(spec) {
                QosClass::Guaranteed => all.guaranteed_memory = all.guaranteed_memory.saturating_add(memory),
                QosClass::Burstable => {
                    all.burstable_cpu = all.burstable_cpu.saturating_add(asked.get("cpu"));
                    all.burstable_memory = all.burstable_memory.saturating_add(memory);
                }
                QosClass::BestEffort => {}
            }
        }
        all
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::policy::{MemoryQos, example};
    use crate::pod::quantity::Quantity;
    use crate::pod::testing::{list, resources, spec};

    fn v1() -> Policy {
        Policy { huge_page_sizes: [2 << 20].into(), ..example(Version::V1) }
    }

    /// `shares quota/period memory`, `-` for what stays as it is.
    fn shown(v: &Values) -> String {
        let text = |n: Option<u64>| n.map_or("-".to_owned(), |n| n.to_string());
        let max = v.cpu_max.map_or("-".to_owned(), |m| {
            format!("{}/{}", m.quota.map_or("max".to_owned(), |q| q.to_string()), m.period)
        });
        format!("{} {max} {}", text(v.cpu_shares), text(v.memory_limit))
    }

    #[test]
    fn of_pods() {
        let table: &[(&[&str], &[&str], &str)] = &[
            (&[], &[""], "2 - -"),
            (&[], &["cpu=100m memory=32Mi / cpu=100m memory=32Mi"], "102 10000/100000 33554432"),
            (
                &[],
                &["cpu=250m memory=32Mi / cpu=500m memory=64Mi", "cpu=100m / cpu=250m memory=32Mi"],
                "358 75000/100000 100663296",
            ),
            // One container without a limit: the pod has none.
            (&[], &["cpu=250m / cpu=500m memory=64Mi", "cpu=100m"], "358 - -"),
            (&[], &["cpu=250m / cpu=500m memory=64Mi", "/ cpu=1"], "256 150000/100000 -"),
            (&[""], &["cpu=250m / cpu=500m memory=64Mi"], "256 - -"),
            (&["cpu=2 / cpu=2 memory=1Gi"], &["cpu=250m / cpu=500m memory=64Mi"], "2048 200000/100000 1073741824"),
            (&[], &["memory=32Mi"], "2 - -"),
            (&[], &["cpu=1m memory=1Mi / cpu=1m memory=1Mi"], "2 1000/100000 1048576"),
        ];
        for (init, containers, want) in table {
            let values = Values::of_pod(&spec(init, containers), &v1());
            assert_eq!(shown(&values), *want, "{init:?} {containers:?}");
        }
    }

    #[test]
    fn of_a_pod_with_resources_and_overhead_of_its_own() {
        let mut s = spec(&[], &["", "cpu=100m"]);
        s.resources = Some(resources("cpu=1 memory=64Mi / cpu=2 memory=128Mi"));
        assert_eq!(shown(&Values::of_pod(&s, &v1())), "1024 200000/100000 134217728");
        s.overhead = Some(list("cpu=500m memory=64Mi"));
        assert_eq!(shown(&Values::of_pod(&s, &v1())), "1536 250000/100000 201326592");
        let mut s = spec(&[], &["memory=1Mi / cpu=100m"]);
        s.resources = Some(resources("memory=64Mi /"));
        assert_eq!(shown(&Values::of_pod(&s, &v1())), "2 10000/100000 -");
    }

    #[test]
    fn as_the_policy_has_it() {
        let limited = spec(&[], &["cpu=100m memory=32Mi / cpu=200m memory=64Mi"]);
        let policy = Policy { cpu_quota: false, pod_pids_limit: Some(64), ..v1() };
        let values = Values::of_pod(&limited, &policy);
        assert_eq!((shown(&values).as_str(), values.pids_limit), ("102 max/100000 67108864", Some(64)));
        let policy = Policy { cpu_period: 10_000, ..v1() };
        assert_eq!(shown(&Values::of_pod(&limited, &policy)), "102 2000/10000 67108864");
    }

    #[test]
    fn huge_pages_are_only_for_who_asks() {
        let of = |text| Values::of_pod(&spec(&[], &[text]), &example(Version::V1)).huge_pages;
        assert_eq!(of(""), BTreeMap::from([(2 << 20, 0), (1 << 30, 0)]));
        let asks = of("hugepages-2Mi=8Mi hugepages-64Ki=64Ki / hugepages-2Mi=8Mi hugepages-64Ki=64Ki");
        assert_eq!(asks, BTreeMap::from([(2 << 20, 8 << 20), (1 << 30, 0)]));
    }

    #[test]
    fn memory_qos() {
        let guaranteed = "cpu=1 memory=1Mi / cpu=1 memory=1Mi";
        let on = |reserve| Some(MemoryQos { throttling_factor: 0.9, reserve });
        for (memory_qos, text, want) in [
            (None, guaranteed, (None, None)),
            (on(false), guaranteed, (Some(0), None)),
            (on(true), guaranteed, (Some(1 << 20), None)),
            (on(true), "memory=1Mi", (None, Some(1 << 20))),
            (on(true), "", (None, None)),
        ] {
            let values = Values::of_pod(&spec(&[], &[text]), &Policy { memory_qos, ..example(Version::V2) });
            assert_eq!((values.memory_min, values.memory_low), want, "{memory_qos:?} {text:?}");
        }
    }

    #[test]
    fn of_classes_by_what_their_pods_ask_for() {
        let specs = [
            spec(&[], &["cpu=1 memory=1Mi / cpu=1 memory=1Mi"]),
            spec(&[], &["cpu=250m memory=2Mi"]),
            spec(&["cpu=1"], &["cpu=100m"]),
            spec(&[], &[""]),
        ];
        let totals = Totals::of(&specs);
        let want = Totals { burstable_cpu: 1250, burstable_memory: 2 << 20, guaranteed_memory: 1 << 20 };
        assert_eq!(totals, want);
        let unbounded = BTreeMap::from([(2 << 20, 1 << 62)]);
        let burstable = Values::of_class(QosClass::Burstable, &totals, &v1());
        assert_eq!((burstable.cpu_shares, &burstable.huge_pages), (Some(1280), &unbounded));
        let best_effort = Values::of_class(QosClass::BestEffort, &totals, &v1());
        assert_eq!((best_effort.cpu_shares, &best_effort.huge_pages), (Some(2), &unbounded));
        let none = Values::of_class(QosClass::Burstable, &Totals::default(), &v1());
        assert_eq!((none.cpu_shares, none.memory_low), (Some(2), None));

        let memory_qos = Some(MemoryQos { throttling_factor: 0.9, reserve: true });
        let v2 = Policy { memory_qos, ..example(Version::V2) };
        assert_eq!(Values::of_class(QosClass::Burstable, &totals, &v2).memory_low, Some(2 << 20));
        let above = Values::protected(&totals, &v2);
        assert_eq!((above.memory_min, above.memory_low), (Some(3 << 20), Some(2 << 20)));
        assert_eq!(Values::protected(&totals, &v1()), Values::default());
    }

    #[test]
    fn of_all_pods() {
        let held: Amounts = [("cpu", 1900), ("memory", 1 << 30), ("pid", 32768), ("hugepages-2Mi", 4 << 20)]
            .map(|(name, amount)| (name.to_owned(), amount))
            .into_iter()
            .collect();
        let values = Values::of_all_pods(&held, &v1());
        assert_eq!((shown(&values).as_str(), values.pids_limit), ("1945 - 1073741824", Some(32768)));
        assert_eq!(values.huge_pages, BTreeMap::from([(2 << 20, 4 << 20)]));
        assert_eq!((values.memory_min, values.memory_low), (None, None));
        let values = Values::of_all_pods(&held, &example(Version::V2));
        assert_eq!((values.memory_min, values.memory_low), (Some(0), Some(0)));
    }

    #[test]
    fn of_what_is_reserved_for_others() {
        let reserved: ResourceList = [("cpu", "500m"), ("memory", "1Gi"), ("pid", "1000")]
            .map(|(name, q)| (name.to_owned(), Quantity::parse(q).expect("a quantity")))
            .into();
        let all = Values::of_reserve(&reserved, false);
        assert_eq!((shown(&all).as_str(), all.pids_limit), ("512 - 1073741824", Some(1000)));
        let compressible = Values::of_reserve(&reserved, true);
        assert_eq!((shown(&compressible).as_str(), compressible.pids_limit), ("512 - -", None));
        assert_eq!(Values::of_reserve(&ResourceList::new(), false), Values::default());
    }

    #[test]
    fn the_widest_holds_both() {
        let of = |text| Values::of_pod(&spec(&[], &[text]), &v1());
        let (small, large) = (of("cpu=1 / cpu=1 memory=8Mi"), of("cpu=2 / cpu=2 memory=4Mi"));
        assert_eq!(shown(&small.widest(&large)), "2048 200000/100000 8388608");
        assert_eq!(shown(&large.widest(&small)), "1024 200000/100000 8388608");
        assert_eq!(small.widest(&small), small);
    }
}

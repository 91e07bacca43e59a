//! What a pod asks for and what it may use, as sums over its containers
//! (staging/src/k8s.io/component-helpers/resource).

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as QuantityText;

use super::quantity::Quantity;
use super::{core, is_sidecar};

/// Quantities by the names of resources.
pub type ResourceList = BTreeMap<String, Quantity>;

type Texts = BTreeMap<String, QuantityText>;

/// The quantity of that name. One that can't be read is none; the manifest was checked before.
pub fn quantity(list: Option<&Texts>, name: &str) -> Option<Quantity> {
    list.and_then(|list| list.get(name)).and_then(|text| Quantity::parse(&text.0))
}

/// The request of one container; none given is nothing.
pub fn request(container: &core::Container, name: &str) -> Quantity {
    quantity(container.resources.as_ref().and_then(|r| r.requests.as_ref()), name).unwrap_or_default()
}

/// The limit of one container; zero is none.
pub fn limit(container: &core::Container, name: &str) -> Quantity {
    quantity(container.resources.as_ref().and_then(|r| r.limits.as_ref()), name).unwrap_or_default()
}

/// The container's own limit, else that of the pod as a whole; zero is none.
pub fn effective_limit(spec: &core::PodSpec, container: &core::Container, name: &str) -> Quantity {
    let own = limit(container, name);
    let whole = || spec.resources.as_ref().and_then(|r| quantity(r.limits.as_ref(), name));
    if own.is_zero() { whole().unwrap_or_default() } else { own }
}

/// What the containers of a pod need together at their most: all containers and sidecars, or one
/// init container with the sidecars before it.
pub fn aggregate(spec: &core::PodSpec, pick: impl Fn(&core::ResourceRequirements) -> Option<&Texts>) -> ResourceList {
    let of = |c: &core::Container| parsed(c.resources.as_ref().and_then(&pick));
    let mut running = ResourceList::new();
    let mut sidecars = ResourceList::new();
    let mut most = ResourceList::new();
    spec.containers.iter().for_each(|c| add(&mut running, of(c)));
    for c in spec.init_containers.iter().flatten() {
        let mut starting = sidecars.clone();
        add(&mut starting, of(c));
        if is_sidecar(c) {
            add(&mut running, of(c));
            sidecars = starting.clone();
        }
        raise(&mut most, starting);
    }
    raise(&mut running, most);
    running
}

/// What a pod asks for: its containers together, or what it says for itself as a whole, and its
/// overhead on top.
pub fn requests(spec: &core::PodSpec) -> ResourceList {
    let mut all = requests_without_overhead(spec);
    add(&mut all, parsed(spec.overhead.as_ref()));
    all
}

pub fn requests_without_overhead(spec: &core::PodSpec) -> ResourceList {
    let mut all = aggregate(spec, |r| r.requests.as_ref());
    all.extend(of_pod(spec, |r| r.requests.as_ref()));
    all
}

/// What a pod may use, likewise; there is overhead only on what is limited.
pub fn limits(spec: &core::PodSpec) -> ResourceList {
    let mut all = limits_without_overhead(spec);
    for (name, overhead) in parsed(spec.overhead.as_ref()) {
        if let Some(limit) = all.get_mut(&name).filter(|limit| !limit.is_zero()) {
            *limit = *limit + overhead;
        }
    }
    all
}

pub fn limits_without_overhead(spec: &core::PodSpec) -> ResourceList {
    let mut all = aggregate(spec, |r| r.limits.as_ref());
    all.extend(of_pod(spec, |r| r.limits.as_ref()));
    all
}

/// Whether the sum of the limits holds for the pod: each container has one, or the pod as a whole.
pub fn is_limited(spec: &core::PodSpec, name: &str) -> bool {
    let whole = spec.resources.as_ref().and_then(|r| quantity(r.limits.as_ref(), name));
    let mut containers = spec.init_containers.iter().flatten().chain(&spec.containers);
    whole.is_some_and(|q| !q.is_zero()) || containers.all(|c| !limit(c, name).is_zero())
}

/// The resources of the pod as a whole, of the kinds that it can have such of.
fn of_pod(
    spec: &core::PodSpec,
    pick: impl Fn(&core::ResourceRequirements) -> Option<&Texts>,
) -> impl Iterator<Item = (String, Quantity)> {
    let all = parsed(spec.resources.as_ref().and_then(pick)).into_iter();
    all.filter(|(name, _)| matches!(name.as_str(), "cpu" | "memory") || huge_page_size(name).is_some())
}

fn parsed(list: Option<&Texts>) -> Vec<(String, Quantity)> {
    let all = list.into_iter().flatten();
    all.filter_map(|(name, text)| Some((name.clone(), Quantity::parse(&text.0)?))).collect()
}

fn add(sum: &mut ResourceList, more: impl IntoIterator<Item = (String, Quantity)>) {
    for (name, quantity) in more {
        let slot = sum.entry(name).or_default();
        *slot = *slot + quantity;
    }
}

fn raise(most: &mut ResourceList, other: ResourceList) {
    for (name, quantity) in other {
        let slot = most.entry(name).or_insert(quantity);
        *slot = quantity.max(*slot);
    }
}

/// The size of the pages, in bytes, where `name` is `hugepages-SIZE`.
pub fn huge_page_size(name: &str) -> Option<u64> {
    let size = Quantity::parse(name.strip_prefix("hugepages-")?)?;
    u64::try_from(size.value()).ok().filter(|size| *size > 0)
}

/// Whole numbers by the names of resources: CPU in thousandths, all else in units.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Amounts(BTreeMap<String, i64>);

impl Amounts {
    /// None is 0.
    pub fn get(&self, name: &str) -> i64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    pub fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    pub fn set(&mut self, name: &str, amount: i64) {
        self.0.insert(name.to_owned(), amount);
    }

    pub fn add(&mut self, other: &Amounts) {
        for (name, amount) in &other.0 {
            let slot = self.0.entry(name.clone()).or_default();
            *slot = slot.saturating_add(*amount);
        }
    }

    /// The same as quantities.
    pub fn quantities(&self) -> BTreeMap<String, Quantity> {
        let quantity = |name: &str, amount| match name {
            "cpu" => Quantity::of_milli_value(amount),
            _ => Quantity::of_value(amount),
        };
        self.0.iter().map(|(name, amount)| (name.clone(), quantity(name, *amount))).collect()
    }

    pub fn iter(&self) -> impl Iterator<Item = (&str, i64)> {
        self.0.iter().map(|(name, amount)| (name.as_str(), *amount))
    }
}

impl From<ResourceList> for Amounts {
    /// Rounds up.
    fn from(list: ResourceList) -> Amounts {
        list.into_iter()
            .map(|(name, q)| if name == "cpu" { (name, q.milli_value()) } else { (name, q.value()) })
            .collect()
    }
}

impl FromIterator<(String, i64)> for Amounts {
    fn from_iter<T: IntoIterator<Item = (String, i64)>>(items: T) -> Amounts {
        Amounts(items.into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::testing::{list, resources, sidecar, spec};

    fn shown(amounts: impl Into<Amounts>) -> String {
        amounts.into().iter().map(|(name, amount)| format!("{name}={amount}")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn sums_over_containers() {
        let table: &[(&[&str], &[&str], &str)] = &[
            (&[], &[""], ""),
            (&[], &["cpu=100m memory=1Ki", "cpu=0.25"], "cpu=350 memory=1024"),
            (&["cpu=1"], &["cpu=100m", "cpu=200m"], "cpu=1000"),
            (&["cpu=100m memory=1Ki", "cpu=50m memory=2Ki"], &["cpu=200m"], "cpu=200 memory=2048"),
            // A sidecar runs on beside the containers,
            (&["sidecar cpu=100m"], &["cpu=200m"], "cpu=300"),
            // and beside the init containers after it, not those before it.
            (&["sidecar cpu=100m", "cpu=1"], &["cpu=200m"], "cpu=1100"),
            (&["cpu=1", "sidecar cpu=100m"], &["cpu=200m"], "cpu=1000"),
            (&["sidecar cpu=1", "cpu=3", "sidecar cpu=2", "cpu=1"], &["cpu=100m"], "cpu=4000"),
            (&[], &["example.com/gpu=2 hugepages-2Mi=4Mi"], "example.com/gpu=2 hugepages-2Mi=4194304"),
        ];
        for (init, containers, want) in table {
            let mut spec = spec(init, containers);
            for (c, text) in spec.init_containers.iter_mut().flatten().zip(*init) {
                sidecar(c, text.starts_with("sidecar"));
            }
            assert_eq!(shown(requests(&spec)), *want, "{init:?} {containers:?}");
        }
    }

    #[test]
    fn the_pod_as_a_whole_and_its_overhead() {
        let mut s = spec(&[], &["cpu=100m memory=1Ki / cpu=200m", "/ cpu=100m memory=4Ki"]);
        s.overhead = Some(list("cpu=50m memory=1Ki example.com/x=1"));
        assert_eq!(shown(requests(&s)), "cpu=150 example.com/x=1 memory=2048");
        assert_eq!(shown(limits(&s)), "cpu=350 memory=5120");
        assert_eq!(shown(requests_without_overhead(&s)), "cpu=100 memory=1024");
        s.resources = Some(resources("cpu=1 example.com/y=3 / memory=1Mi hugepages-2Mi=2Mi"));
        assert_eq!(shown(requests(&s)), "cpu=1050 example.com/x=1 memory=2048");
        assert_eq!(shown(limits(&s)), "cpu=350 hugepages-2Mi=2097152 memory=1049600");
    }

    #[test]
    fn a_sum_of_limits_holds_if_all_have_one() {
        let s = spec(&["/ cpu=1 memory=1Ki"], &["/ cpu=1", "/ cpu=1 memory=1Ki"]);
        assert!(is_limited(&s, "cpu"));
        assert!(!is_limited(&s, "memory"));
        assert!(!is_limited(&spec(&[""], &["/ cpu=1"]), "cpu"));
        let mut s = spec(&[], &[""]);
        s.resources = Some(resources("/ memory=1Ki cpu=0"));
        assert!(is_limited(&s, "memory"));
        assert!(!is_limited(&s, "cpu"));
    }

    #[test]
    fn huge_pages_by_name() {
        for (name, want) in [
            ("hugepages-2Mi", Some(2 << 20)),
            ("hugepages-1Gi", Some(1 << 30)),
            ("hugepages-64Ki", Some(64 << 10)),
            ("hugepages-", None),
            ("hugepages-0", None),
            ("hugepages--2Mi", None),
            ("memory", None),
        ] {
            assert_eq!(huge_page_size(name), want, "{name}");
        }
    }
}

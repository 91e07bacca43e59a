//! The resources of a container and of a sandbox, as the runtime is told them
//! (pkg/kubelet/kuberuntime/kuberuntime_container_linux.go, kuberuntime_sandbox_linux.go).

use std::collections::HashMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity as QuantityText;

use super::hierarchy::Version;
use super::policy::{MemoryQos, Policy};
use super::{cpu, oom};
use crate::config::MemorySwap;
use crate::cri::api;
use crate::pod::qos::{QosClass, is_critical};
use crate::pod::quantity::Quantity;
use crate::pod::resources::{
    ResourceList, effective_limit, huge_page_size, limit, limits_without_overhead, quantity, request,
    requests_without_overhead,
};
use crate::pod::{Pod, core};

/// What one container gets.
pub fn resources(pod: &Pod, container: &core::Container, policy: &Policy) -> api::LinuxContainerResources {
    let requests = container.resources.as_ref().and_then(|r| r.requests.as_ref());
    let memory_limit = effective_limit(&pod.spec, container, "memory");
    let mut out = linux(quantity(requests, "cpu"), effective_limit(&pod.spec, container, "cpu"), memory_limit, policy);
    out.oom_score_adj = oom::score_adj(pod, container, policy.memory);
    out.hugepage_limits = hugepage_limits(container, policy);
    swap(pod, container, policy, &mut out);
    if let Some(qos) = policy.memory_qos {
        out.unified.extend(memory_qos(pod, container, qos, policy.allocatable_memory));
    }
    out
}

/// What the runtime is told that a sandbox takes beside its containers; `None` when nothing.
pub fn overhead(pod: &Pod, policy: &Policy) -> Option<api::LinuxContainerResources> {
    let list = pod.spec.overhead.as_ref()?;
    let cpu = quantity(Some(list), "cpu");
    let memory = quantity(Some(list), "memory").unwrap_or_default();
    Some(linux(cpu, cpu.unwrap_or_default(), memory, policy))
}

/// What the runtime is told that the containers of a pod get together.
pub fn sandbox_resources(pod: &Pod, policy: &Policy) -> api::LinuxContainerResources {
    let (asked, may) = (requests_without_overhead(&pod.spec), limits_without_overhead(&pod.spec));
    let of = |list: &ResourceList, name: &str| list.get(name).copied();
    linux(of(&asked, "cpu"), of(&may, "cpu").unwrap_or_default(), of(&may, "memory").unwrap_or_default(), policy)
}

/// A request that isn't given is as the limit.
fn linux(
    cpu_request: Option<Quantity>,
    cpu_limit: Quantity,
    memory_limit: Quantity,
    policy: &Policy,
) -> api::LinuxContainerResources {
    let mut out = api::LinuxContainerResources {
        cpu_shares: signed(cpu::shares(cpu_request.unwrap_or(cpu_limit).milli_value())),
        memory_limit_in_bytes: memory_limit.value(),
        ..Default::default()
    };
    if policy.cpu_quota {
        out.cpu_period = signed(policy.cpu_period);
        out.cpu_quota = signed(cpu::quota(cpu_limit.milli_value(), policy.cpu_period).unwrap_or(0));
    }
    if policy.kill_whole_container {
        out.unified.insert("memory.oom.group".to_owned(), "1".to_owned());
    }
    out
}

fn signed(n: u64) -> i64 {
    i64::try_from(n).unwrap_or(i64::MAX)
}

/// For each size of pages that the kernel knows: what isn't asked for can't be used.
fn hugepage_limits(container: &core::Container, policy: &Policy) -> Vec<api::HugepageLimit> {
    let limits = container.resources.as_ref().and_then(|r| r.limits.as_ref()).into_iter().flatten();
    let asked: HashMap<u64, u64> = limits.filter_map(|(name, text)| asked_pages(name, text)).collect();
    let of = |size: &u64| api::HugepageLimit {
        page_size: page_size(*size),
        limit: asked.get(size).copied().unwrap_or(0),
        ..Default::default()
    };
    policy.huge_page_sizes.iter().map(of).collect()
}

fn asked_pages(name: &str, text: &QuantityText) -> Option<(u64, u64)> {
    let bytes = u64::try_from(Quantity::parse(&text.0)?.value()).ok()?;
    Some((huge_page_size(name)?, bytes))
}

/// `2MB`, as the kernel has it in the names of its files.
pub fn page_size(size: u64) -> String {
    let units = [(1u64 << 30, "GB"), (1 << 20, "MB"), (1 << 10, "KB")];
    match units.iter().find(|(unit, _)| size >= *unit) {
        Some((unit, suffix)) => format!("{}{suffix}", size / unit),
        None => format!("{size}B"),
    }
}

fn swap(pod: &Pod, container: &core::Container, policy: &Policy, out: &mut api::LinuxContainerResources) {
    let Some(behavior) = policy.swap_behavior else { return };
    match policy.version {
        // Memory and swap together: no more than memory alone.
        Version::V1 => out.memory_swap_limit_in_bytes = out.memory_limit_in_bytes,
        Version::V2 => {
            let may = behavior == MemorySwap::LimitedSwap && may_swap(pod, container);
            let bytes = if may { share_of_swap(container, policy) } else { 0 };
            out.unified.insert("memory.swap.max".to_owned(), bytes.to_string());
        }
    }
}

/// Only who asks for memory, and may use more than that.
fn may_swap(pod: &Pod, container: &core::Container) -> bool {
    let (asked, may) = (request(container, "memory"), limit(container, "memory"));
    let asks = !asked.is_zero() || !may.is_zero();
    !is_critical(pod) && QosClass::of(&pod.spec) == QosClass::Burstable && asks && asked != may
}

/// As large a part of the swap as the container asks for of the memory, in bytes; who asks for more
/// than there is gets none.
fn share_of_swap(container: &core::Container, policy: &Policy) -> u64 {
    let asked = u64::try_from(request(container, "memory").value()).unwrap_or(0);
    if asked > policy.memory || policy.memory == 0 {
        return 0;
    }
    let share = u128::from(asked) * u128::from(policy.swap) / u128::from(policy.memory);
    u64::try_from(share).unwrap_or(0)
}

fn memory_qos(
    pod: &Pod,
    container: &core::Container,
    qos: MemoryQos,
    allocatable: u64,
) -> impl Iterator<Item = (String, String)> {
    let bytes = |q: Quantity| u64::try_from(q.value()).unwrap_or(0);
    let (asked, may) = (bytes(request(container, "memory")), bytes(limit(container, "memory")));
    let reserved = if qos.reserve { asked } else { 0 };
    let protection = match QosClass::of(&pod.spec) {
        QosClass::Guaranteed => Some(("memory.min", reserved)),
        QosClass::Burstable => Some(("memory.low", reserved)),
        QosClass::BestEffort => None,
    };
    let high = match (asked, may) {
        // It has what it may use.
        (asked, may) if asked == may && asked > 0 => None,
        (asked, may) => throttled_at(asked, if may > 0 { may } else { allocatable }, qos.throttling_factor),
    };
    let all = protection.into_iter().chain(high.map(|high| ("memory.high", high)));
    all.map(|(file, bytes)| (file.to_owned(), bytes.to_string()))
}

/// Of the smallest pages; the kernel rounds down to its own, where those are larger.
const PAGE: u64 = 4096;

/// Whole pages, that far from `asked` to `most`; `None` when that is no room to be throttled in.
#[allow(clippy::cast_precision_loss, clippy::cast_possible_truncation, clippy::cast_sign_loss)]
fn throttled_at(asked: u64, most: u64, factor: f64) -> Option<u64> {
    let at = asked as f64 + (most as f64 - asked as f64) * factor;
    let high = (at / PAGE as f64).floor() as u64 * PAGE;
    (high > asked).then_some(high)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cgroup::policy::example;
    use crate::pod::Source;
    use crate::pod::testing::{list, pod, resources as res, spec};

    fn first(text: &str, policy: &Policy) -> api::LinuxContainerResources {
        let p = pod("p", spec(&[], &[text]));
        resources(&p, &p.spec.containers[0], policy)
    }

    fn unified(r: &api::LinuxContainerResources) -> Vec<String> {
        let mut all: Vec<_> = r.unified.iter().map(|(k, v)| format!("{k}={v}")).collect();
        all.sort();
        all
    }

    #[test]
    fn cpu_and_memory() {
        let policy = example(Version::V1);
        // (resources, shares, quota, memory)
        let table = [
            ("", 2, 0, 0),
            ("cpu=250m memory=32Mi / cpu=500m memory=64Mi", 256, 50_000, 64 << 20),
            ("/ cpu=500m", 512, 50_000, 0),
            ("cpu=0 / cpu=500m", 2, 50_000, 0),
            ("cpu=100m", 102, 0, 0),
            ("cpu=1m / cpu=1m memory=1Mi", 2, 1000, 1 << 20),
        ];
        for (text, shares, quota, memory) in table {
            let r = first(text, &policy);
            assert_eq!((r.cpu_shares, r.cpu_quota, r.memory_limit_in_bytes), (shares, quota, memory), "{text:?}");
            assert_eq!((r.cpu_period, unified(&r).len(), r.memory_swap_limit_in_bytes), (100_000, 0, 0), "{text:?}");
            assert_eq!((r.cpuset_cpus.as_str(), r.cpuset_mems.as_str()), ("", ""));
        }
        let r = first("/ cpu=500m memory=1Mi", &Policy { cpu_quota: false, ..policy });
        assert_eq!((r.cpu_shares, r.cpu_quota, r.cpu_period, r.oom_score_adj), (512, 0, 0, 999));
    }

    #[test]
    fn a_container_without_limits_has_those_of_the_pod() {
        let mut p = pod("p", spec(&[], &["", "cpu=100m / cpu=200m memory=1Mi"]));
        p.spec.resources = Some(res("/ cpu=1 memory=64Mi"));
        let of = |i: usize| resources(&p, &p.spec.containers[i], &example(Version::V1));
        assert_eq!((of(0).cpu_shares, of(0).cpu_quota, of(0).memory_limit_in_bytes), (1024, 100_000, 64 << 20));
        assert_eq!((of(1).cpu_shares, of(1).cpu_quota, of(1).memory_limit_in_bytes), (102, 20_000, 1 << 20));
    }

    #[test]
    fn huge_pages() {
        let shown = |text| -> Vec<String> {
            let all = first(text, &example(Version::V1)).hugepage_limits;
            all.iter().map(|l| format!("{}={}", l.page_size, l.limit)).collect()
        };
        assert_eq!(shown(""), ["2MB=0", "1GB=0"]);
        assert_eq!(shown("/ hugepages-2Mi=4Mi hugepages-64Ki=64Ki"), ["2MB=4194304", "1GB=0"]);
        assert_eq!([64 << 10, 2 << 20, 16 << 30].map(page_size), ["64KB", "2MB", "16GB"]);
    }

    #[test]
    fn all_of_a_container_dies_on_v2() {
        let policy = example(Version::V2);
        assert_eq!(unified(&first("", &policy)), ["memory.oom.group=1"]);
        assert_eq!(unified(&first("", &Policy { kill_whole_container: false, ..policy })), [""; 0]);
    }

    #[test]
    fn swap_on_v1_is_none() {
        for behavior in [MemorySwap::NoSwap, MemorySwap::LimitedSwap] {
            let policy = Policy { swap_behavior: Some(behavior), ..example(Version::V1) };
            let swap = |text| first(text, &policy).memory_swap_limit_in_bytes;
            assert_eq!((swap("/ memory=64Mi"), swap("")), (64 << 20, 0));
        }
    }

    #[test]
    fn swap_on_v2() {
        use MemorySwap::{LimitedSwap, NoSwap};
        let base = Policy { kill_whole_container: false, ..example(Version::V2) };
        // (behavior, source, resources, bytes); 2 GiB of swap and 4 of memory
        let table = [
            (NoSwap, Source::Api, "memory=1Gi", 0),
            (LimitedSwap, Source::Api, "memory=1Gi", 512 << 20),
            (LimitedSwap, Source::Api, "memory=1Gi / memory=2Gi", 512 << 20),
            (LimitedSwap, Source::File, "memory=1Gi", 0),
            (LimitedSwap, Source::Api, "memory=1Gi / memory=1Gi", 0),
            (LimitedSwap, Source::Api, "cpu=1", 0),
            (LimitedSwap, Source::Api, "", 0),
            (LimitedSwap, Source::Api, "memory=8Gi", 0),
        ];
        for (behavior, source, text, bytes) in table {
            let policy = Policy { swap_behavior: Some(behavior), ..base.clone() };
            let mut p = pod("p", spec(&[], &[text]));
            p.source = source;
            let r = resources(&p, &p.spec.containers[0], &policy);
            assert_eq!(unified(&r), [format!("memory.swap.max={bytes}")], "{behavior:?} {source} {text:?}");
        }
        assert_eq!(unified(&first("memory=1Gi", &base)), [""; 0], "the kernel can't");
    }

    #[test]
    fn memory_qos_values() {
        let base = Policy { kill_whole_container: false, ..example(Version::V2) };
        let on = |reserve| Policy { memory_qos: Some(MemoryQos { throttling_factor: 0.9, reserve }), ..base.clone() };
        // 4096-byte pages: 100 MiB + 0.9 * 100 MiB is whole; of 1 MiB above it is not.
        let table: &[(&str, bool, &[&str])] = &[
            ("memory=100Mi / memory=200Mi", true, &["memory.high=199229440", "memory.low=104857600"]),
            ("memory=100Mi / memory=200Mi", false, &["memory.high=199229440", "memory.low=0"]),
            ("memory=1Mi / memory=2Mi", false, &["memory.high=1990656", "memory.low=0"]),
            ("cpu=1 memory=1Mi / cpu=1 memory=1Mi", true, &["memory.min=1048576"]),
            // Towards what can be given out, 3 GiB.
            ("memory=1Gi", true, &["memory.high=3006476288", "memory.low=1073741824"]),
            ("", true, &["memory.high=2899099648"]),
            ("memory=4Gi", true, &["memory.low=4294967296"]),
        ];
        for (text, reserve, want) in table {
            assert_eq!(unified(&first(text, &on(*reserve))), *want, "{text:?} {reserve}");
        }
    }

    #[test]
    fn what_a_sandbox_is_told() {
        let policy = example(Version::V1);
        let mut p = pod("p", spec(&["cpu=1"], &["cpu=250m / cpu=500m memory=64Mi", "/ cpu=1 memory=64Mi"]));
        assert_eq!(overhead(&p, &policy), None);
        let sum = sandbox_resources(&p, &policy);
        assert_eq!((sum.cpu_shares, sum.cpu_quota, sum.memory_limit_in_bytes), (1024, 150_000, 128 << 20));
        p.spec.overhead = Some(list("cpu=250m memory=64Mi"));
        let more = overhead(&p, &policy).expect("there is some");
        assert_eq!((more.cpu_shares, more.cpu_quota, more.memory_limit_in_bytes), (256, 25_000, 64 << 20));
        assert_eq!(sandbox_resources(&p, &policy), sum);
    }
}

//! Rules for fields that have no place in `Config` yet, or that are about several fields
//! (pkg/kubelet/apis/config/validation). What a feature gate must allow in the kubelet is allowed
//! here; a field that is not served is told of anyway.

use std::collections::BTreeSet;

use super::check::Check;
use super::duration::GoDuration;
use super::kubelet::KubeletConfiguration;
use super::names;

pub(super) fn validate(k: &KubeletConfiguration, check: &mut Check) {
    policies(k, check);
    numbers(k, check);
    periods(k, check);
    together(k, check);
    node_allocatable(k, check);
    reserved_memory(k, check);
    taints(k, check);
}

fn policies(k: &KubeletConfiguration, check: &mut Check) {
    let choices: &[(&str, &str, &[&str])] = &[
        ("cpuManagerPolicy", &k.cpu_manager_policy, &["none", "static"]),
        ("memoryManagerPolicy", &k.memory_manager_policy, &["None", "Static"]),
        (
            "topologyManagerPolicy",
            &k.topology_manager_policy,
            &["none", "best-effort", "restricted", "single-numa-node"],
        ),
        ("topologyManagerScope", &k.topology_manager_scope, &["container", "pod"]),
        (
            "configMapAndSecretChangeDetectionStrategy",
            &k.config_map_and_secret_change_detection_strategy,
            &["Get", "Cache", "Watch"],
        ),
        (
            "imagePullCredentialsVerificationPolicy",
            &k.image_pull_credentials_verification_policy,
            &["NeverVerify", "NeverVerifyPreloadedImages", "NeverVerifyAllowlistedImages", "AlwaysVerify"],
        ),
        ("memoryReservationPolicy", &k.memory_reservation_policy, &["None", "TieredReservation"]),
        ("logging.format", &k.logging.format, &["text", "json"]),
    ];
    for (field, value, names) in choices {
        let names: Vec<(&str, ())> = names.iter().map(|name| (*name, ())).collect();
        check.one_of(field, value, &names, ());
    }
}

fn numbers(k: &KubeletConfiguration, check: &mut Check) {
    check.within("iptablesMasqueradeBit", k.iptables_masquerade_bit, 0..=31);
    check.within("iptablesDropBit", k.iptables_drop_bit, 0..=31);
    if k.max_open_files < 0 {
        check.fault("maxOpenFiles", format!("must be 0 or more, not {}", k.max_open_files));
    }
    if !(k.memory_throttling_factor > 0.0 && k.memory_throttling_factor <= 1.0) {
        let message = format!("must be more than 0 and at most 1, not {}", k.memory_throttling_factor);
        check.fault("memoryThrottlingFactor", message);
    }
    if let Some(tracing) = &k.tracing {
        if let Some(rate) = tracing.sampling_rate_per_million {
            check.within("tracing.samplingRatePerMillion", rate, 0..=1_000_000);
        }
    }
}

fn periods(k: &KubeletConfiguration, check: &mut Check) {
    check.period("streamingConnectionIdleTimeout", k.streaming_connection_idle_timeout);
    check.period("cpuManagerReconcilePeriod", k.cpu_manager_reconcile_period);
    check.period("logging.flushFrequency", k.logging.flush_frequency);
    check.positive("draManagerReconcilePeriod", k.dra_manager_reconcile_period);
}

fn together(k: &KubeletConfiguration, check: &mut Check) {
    let parallel = k.max_parallel_image_pulls.is_some_and(|n| n > 1);
    if parallel && k.serialize_image_pulls == Some(true) {
        let message = "must not be more than 1 while serializeImagePulls is true";
        check.fault_between("maxParallelImagePulls", "serializeImagePulls", message);
    }
    if k.image_gc_low_threshold_percent >= k.image_gc_high_threshold_percent {
        let (low, high) = (k.image_gc_low_threshold_percent, k.image_gc_high_threshold_percent);
        let message = format!("must be less than imageGCHighThresholdPercent, {high}, not {low}");
        check.fault_between("imageGCLowThresholdPercent", "imageGCHighThresholdPercent", message);
    }
    if k.image_maximum_gc_age > GoDuration::ZERO && k.image_maximum_gc_age <= k.image_minimum_gc_age {
        let (max, min) = (k.image_maximum_gc_age, k.image_minimum_gc_age);
        check.fault("imageMaximumGCAge", format!("must be more than imageMinimumGCAge, {min}, not {max}"));
    }
    if !k.system_cgroups.is_empty() && k.cgroup_root.is_empty() {
        check.fault("systemCgroups", "needs cgroupRoot to be set");
    }
    if k.run_once {
        check.fault("runOnce", "must not be true; there is no such mode");
    }
    if k.enable_system_log_query && !k.enable_system_log_handler {
        let message = "needs enableSystemLogHandler to be true";
        check.fault_between("enableSystemLogQuery", "enableSystemLogHandler", message);
    }
    let allowlisted = k.image_pull_credentials_verification_policy == "NeverVerifyAllowlistedImages";
    if !k.preloaded_images_verification_allowlist.is_empty() && !allowlisted {
        let message = "needs imagePullCredentialsVerificationPolicy to be NeverVerifyAllowlistedImages";
        check.fault("preloadedImagesVerificationAllowlist", message);
    }
    if !k.reserved_system_cpus.is_empty() {
        if !k.system_reserved_cgroup.is_empty() || !k.kube_reserved_cgroup.is_empty() {
            check.fault("reservedSystemCPUs", "can't be used with systemReservedCgroup or kubeReservedCgroup");
        }
        if !is_cpu_list(&k.reserved_system_cpus) {
            check.fault("reservedSystemCPUs", format!("must be a list like 0-1,3, not {:?}", k.reserved_system_cpus));
        }
    }
}

fn is_cpu_list(text: &str) -> bool {
    text.split(',').all(|item| {
        let (from, to) = item.split_once('-').unwrap_or((item, item));
        matches!((from.parse::<u32>(), to.parse::<u32>()), (Ok(from), Ok(to)) if from <= to)
    })
}

fn node_allocatable(k: &KubeletConfiguration, check: &mut Check) {
    const FIELD: &str = "enforceNodeAllocatable";
    let list = &k.enforce_node_allocatable;
    let mut seen = BTreeSet::new();
    for (i, item) in list.iter().enumerate() {
        let field = format!("{FIELD}[{i}]");
        if !seen.insert(item.as_str()) {
            check.fault(&field, format!("{item:?} stands here twice"));
            continue;
        }
        let cgroup = match item.as_str() {
            "none" if list.len() > 1 => {
                check.fault(&field, "\"none\" must stand alone");
                continue;
            }
            "none" => continue,
            "pods" => None,
            "system-reserved" | "system-reserved-compressible" => {
                Some(("systemReservedCgroup", &k.system_reserved_cgroup))
            }
            "kube-reserved" | "kube-reserved-compressible" => Some(("kubeReservedCgroup", &k.kube_reserved_cgroup)),
            other => {
                let names = "none, pods, system-reserved, system-reserved-compressible, kube-reserved, \
                             kube-reserved-compressible";
                check.fault(&field, format!("must be one of {names}, not {other:?}"));
                continue;
            }
        };
        if let Some((needs, _)) = cgroup.filter(|(_, cgroup)| cgroup.is_empty()) {
            check.fault(&field, format!("{item:?} needs {needs} to be set"));
        }
        if !k.cgroups_per_qos {
            check.fault_between(&field, "cgroupsPerQOS", format!("{item:?} needs cgroupsPerQOS to be true"));
        }
    }
    for item in ["system-reserved", "kube-reserved"] {
        let compressible = format!("{item}-compressible");
        if seen.contains(item) && seen.contains(compressible.as_str()) {
            check.fault(FIELD, format!("{item:?} and {compressible:?} exclude each other"));
        }
    }
}

fn reserved_memory(k: &KubeletConfiguration, check: &mut Check) {
    let mut seen = BTreeSet::new();
    for (i, reservation) in k.reserved_memory.iter().enumerate() {
        check.count(&format!("reservedMemory[{i}].numaNode"), reservation.numa_node);
        for (name, quantity) in &reservation.limits {
            let field = format!("reservedMemory[{i}].limits[{name}]");
            if name != "memory" && !name.starts_with("hugepages-") {
                check.fault(&field, "must be memory or hugepages-SIZE");
            }
            if check.quantity(&field, &quantity.0).is_zero() {
                check.fault(&field, "must be more than 0");
            }
            if !seen.insert((reservation.numa_node, name)) {
                check.fault(&field, format!("NUMA node {} has this twice", reservation.numa_node));
            }
        }
    }
}

/// pkg/util/taints, `CheckTaintValidation`.
fn taints(k: &KubeletConfiguration, check: &mut Check) {
    for (i, taint) in k.register_with_taints.iter().enumerate() {
        let field = |name: &str| format!("registerWithTaints[{i}].{name}");
        if let Err(message) = names::qualified_name(&taint.key) {
            check.fault(&field("key"), format!("{:?} {message}", taint.key));
        }
        let value = taint.value.as_deref().unwrap_or_default();
        if let Err(message) = names::label_value(value) {
            check.fault(&field("value"), format!("{value:?} {message}"));
        }
        let effects = [("NoSchedule", ()), ("PreferNoSchedule", ()), ("NoExecute", ())];
        check.one_of(&field("effect"), &taint.effect, &effects, ());
        if taint.time_added.is_some() {
            check.fault(&field("timeAdded"), "must not be set");
        }
    }
}

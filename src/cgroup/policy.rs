//! What of the configuration and the machine decides what is written into cgroups.

use std::collections::BTreeSet;

use super::hierarchy::{Hierarchy, Version};
use crate::config::{Config, MemorySwap};
use crate::node::capacity::Capacity;

#[derive(Debug, Clone, PartialEq)]
pub struct Policy {
    pub version: Version,
    /// Whether CPU limits are enforced.
    pub cpu_quota: bool,
    /// Microseconds.
    pub cpu_period: u64,
    /// Processes in a pod.
    pub pod_pids_limit: Option<u64>,
    /// Sizes of huge pages that the kernel knows, in bytes.
    pub huge_page_sizes: BTreeSet<u64>,
    /// Of the machine, in bytes.
    pub memory: u64,
    pub swap: u64,
    /// What of the memory pods can have, in bytes.
    pub allocatable_memory: u64,
    /// `None` when the kernel can't limit swap.
    pub swap_behavior: Option<MemorySwap>,
    /// Whether all of a container is killed when its memory is used up; on v2 only.
    pub kill_whole_container: bool,
    /// On v2 only.
    pub memory_qos: Option<MemoryQos>,
}

/// Memory is protected and throttled by requests (feature gate `MemoryQoS`).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MemoryQos {
    /// Where between request and limit a container is throttled, from 0 to 1.
    pub throttling_factor: f64,
    /// Whether what is asked for is protected (`memoryReservationPolicy: TieredReservation`).
    pub reserve: bool,
}

impl Policy {
    pub fn new(config: &Config, machine: &Capacity, hierarchy: &Hierarchy) -> Policy {
        let version = hierarchy.version();
        let v2 = version == Version::V2;
        let memory_qos = v2 && config.feature_gates.get("MemoryQoS").copied().unwrap_or(false);
        let allocatable = machine.allocatable(config).get("memory");
        Policy {
            version,
            cpu_quota: config.cgroup.cpu_cfs_quota,
            cpu_period: u64::try_from(config.cgroup.cpu_cfs_quota_period.as_micros()).unwrap_or(u64::MAX),
            pod_pids_limit: config.pod_pids_limit.filter(|limit| *limit > 0),
            huge_page_sizes: machine.huge_pages.keys().copied().collect(),
            memory: machine.memory,
            swap: machine.swap,
            allocatable_memory: u64::try_from(allocatable).unwrap_or(0),
            swap_behavior: hierarchy.limits_swap().then_some(config.memory_swap),
            kill_whole_container: v2 && !config.cgroup.single_process_oom_kill.unwrap_or(false),
            memory_qos: memory_qos.then_some(MemoryQos {
                throttling_factor: config.cgroup.memory_throttling_factor,
                reserve: config.cgroup.memory_reservation,
            }),
        }
    }
}

#[cfg(test)]
pub fn example(version: Version) -> Policy {
    Policy {
        version,
        cpu_quota: true,
        cpu_period: 100_000,
        pod_pids_limit: None,
        huge_page_sizes: BTreeSet::from([2 << 20, 1 << 30]),
        memory: 4 << 30,
        swap: 2 << 30,
        allocatable_memory: 3 << 30,
        swap_behavior: None,
        kill_whole_container: version == Version::V2,
        memory_qos: None,
    }
}

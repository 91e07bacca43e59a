//! Who the node is, and how it stands with the API server.

use std::net::IpAddr;
use std::time::Duration;

use super::{Machine, optional_path, rate};
use crate::config::Node;
use crate::config::check::Check;
use crate::config::fault::{Fault, Origin};
use crate::config::flags::Flags;
use crate::config::kubelet::KubeletConfiguration;
use crate::config::names;

/// Of the sync pool; each worker is a thread.
const MAX_WORKERS: i64 = 64;

/// The override or the host's name, as k8s.io/component-helpers/node/util has it.
pub(super) fn name(flags: &Flags, machine: &Machine, check: &mut Check) -> String {
    let given = &flags.own.hostname_override;
    let text = if given.is_empty() { &machine.host_name } else { given };
    let name = text.trim().to_lowercase();
    if let Err(message) = names::dns_subdomain(&name) {
        match given.is_empty() {
            true => check.faults.push(Fault {
                origin: Origin::Own,
                field: "node name".to_owned(),
                message: format!("the host's name, {text:?}, {message}; or set --hostname-override"),
            }),
            false => check.flag_fault("hostname-override", format!("{text:?} {message}")),
        }
    }
    name
}

pub(super) fn ips(flags: &Flags, check: &mut Check) -> Vec<IpAddr> {
    let mut ips: Vec<IpAddr> = Vec::new();
    for text in flags.own.node_ip.split(',').filter(|text| !text.is_empty()) {
        match text.trim().parse::<IpAddr>() {
            Ok(ip) if ips.iter().any(|other| other.is_ipv4() == ip.is_ipv4()) => {
                check.flag_fault("node-ip", "must have no more than one address of a family");
            }
            Ok(ip) => ips.push(ip),
            Err(_) => check.flag_fault("node-ip", format!("must be an IP address, not {text:?}")),
        }
    }
    ips
}

pub(super) fn workers(flags: &Flags, machine: &Machine, check: &mut Check) -> usize {
    match flags.own.workers {
        None => machine.cpus.saturating_mul(4).clamp(2, 8),
        Some(n @ 1..=MAX_WORKERS) => usize::try_from(n).unwrap_or(1),
        Some(n) => {
            check.flag_fault("workers", format!("must be between 1 and {MAX_WORKERS}, not {n}"));
            1
        }
    }
}

pub(super) fn node(k: &KubeletConfiguration, flags: &Flags, check: &mut Check) -> Node {
    let own = &flags.own;
    for (key, value) in &own.node_labels {
        if let Err(message) = names::qualified_name(key) {
            check.flag_fault("node-labels", format!("the key {key:?} {message}"));
        } else if !names::node_may_set(key) {
            check.flag_fault("node-labels", format!("a node may not give itself the label {key:?}"));
        }
        if let Err(message) = names::label_value(value) {
            check.flag_fault("node-labels", format!("the value {value:?} of {key:?} {message}"));
        }
    }
    let lease = check.within("nodeLeaseDurationSeconds", k.node_lease_duration_seconds, 1..=i32::MAX);
    if k.node_status_max_images < -1 {
        check.fault("nodeStatusMaxImages", format!("must be -1 or more, not {}", k.node_status_max_images));
    }
    Node {
        kubeconfig: optional_path(&own.kubeconfig),
        bootstrap_kubeconfig: optional_path(&own.bootstrap_kubeconfig),
        register: k.register_node,
        labels: own.node_labels.clone(),
        taints: k.register_with_taints.clone(),
        provider_id: Some(k.provider_id.clone()).filter(|id| !id.is_empty()),
        status_update_frequency: check.positive("nodeStatusUpdateFrequency", k.node_status_update_frequency),
        status_report_frequency: check.positive("nodeStatusReportFrequency", k.node_status_report_frequency),
        lease_duration: Duration::from_secs(u64::try_from(lease).unwrap_or_default()),
        status_max_images: u32::try_from(k.node_status_max_images).ok(),
        api_rate: rate("kubeAPIQPS", k.kube_api_qps, "kubeAPIBurst", k.kube_api_burst, check),
    }
}

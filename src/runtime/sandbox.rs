//! The configuration of a pod's sandbox (pkg/kubelet/kuberuntime/kuberuntime_sandbox.go).

use std::collections::HashMap;

use protobuf::{EnumOrUnknown, MessageField};

use super::Runtime;
use crate::cgroup::container;
use crate::cri::api;
use crate::pod::{Pod, core, labels};

/// What a host name may have.
const MAX_HOSTNAME: usize = 63;

pub fn config(pod: &Pod, runtime: &Runtime, attempt: u32) -> api::PodSandboxConfig {
    let (node, policy) = (&runtime.node, &runtime.policy);
    api::PodSandboxConfig {
        metadata: MessageField::some(api::PodSandboxMetadata {
            name: pod.name.name.to_string(),
            uid: pod.uid.to_string(),
            namespace: pod.name.namespace.to_string(),
            attempt,
            ..Default::default()
        }),
        // The runtime refuses one for a pod on the host's network.
        hostname: if pod.host_network() { String::new() } else { hostname(pod) },
        log_directory: node.paths.pod_logs(&pod.uid, &pod.name).to_string_lossy().into_owned(),
        port_mappings: if pod.host_network() { Vec::new() } else { port_mappings(pod) },
        labels: sandbox_labels(pod),
        annotations: pod.meta.annotations.clone().unwrap_or_default().into_iter().collect(),
        linux: MessageField::some(api::LinuxPodSandboxConfig {
            cgroup_parent: runtime.cgroups.cgroup_parent(pod),
            security_context: MessageField::some(security_context(pod)),
            overhead: container::overhead(pod, policy).into(),
            resources: MessageField::some(container::sandbox_resources(pod, policy)),
            ..Default::default()
        }),
        ..Default::default()
    }
}

fn hostname(pod: &Pod) -> String {
    let name = pod.spec.hostname.as_deref().unwrap_or(&pod.name.name);
    let cut: String = name.chars().take(MAX_HOSTNAME).collect();
    cut.trim_end_matches(['-', '.']).to_owned()
}

fn sandbox_labels(pod: &Pod) -> HashMap<String, String> {
    let mut all: HashMap<_, _> = pod.meta.labels.clone().unwrap_or_default().into_iter().collect();
    all.insert(labels::POD_NAME.to_owned(), pod.name.name.to_string());
    all.insert(labels::POD_NAMESPACE.to_owned(), pod.name.namespace.to_string());
    all.insert(labels::POD_UID.to_owned(), pod.uid.to_string());
    all
}

fn port_mappings(pod: &Pod) -> Vec<api::PortMapping> {
    let ports = pod.all_containers().flat_map(|c| c.ports.iter().flatten());
    ports
        .filter_map(|port| {
            let host_port = port.host_port.filter(|p| *p > 0)?;
            let protocol = match port.protocol.as_deref() {
                Some("UDP") => api::Protocol::UDP,
                Some("SCTP") => api::Protocol::SCTP,
                _ => api::Protocol::TCP,
            };
            Some(api::PortMapping {
                protocol: EnumOrUnknown::new(protocol),
                container_port: port.container_port,
                host_port,
                host_ip: port.host_ip.clone().unwrap_or_default(),
                ..Default::default()
            })
        })
        .collect()
}

fn security_context(pod: &Pod) -> api::LinuxSandboxSecurityContext {
    let context = pod.spec.security_context.clone().unwrap_or_default();
    let privileged = |c: &core::Container| c.security_context.as_ref().and_then(|s| s.privileged).unwrap_or(false);
    api::LinuxSandboxSecurityContext {
        namespace_options: MessageField::some(namespaces(pod)),
        run_as_user: context.run_as_user.map(int64).into(),
        run_as_group: context.run_as_user.and(context.run_as_group).map(int64).into(),
        privileged: pod.all_containers().any(privileged),
        supplemental_groups: context
            .fs_group
            .into_iter()
            .chain(context.supplemental_groups.unwrap_or_default())
            .collect(),
        seccomp: MessageField::some(api::SecurityProfile {
            profile_type: EnumOrUnknown::new(api::security_profile::ProfileType::RuntimeDefault),
            ..Default::default()
        }),
        ..Default::default()
    }
}

/// Which namespaces the pod shares with the node, and its containers with each other.
pub fn namespaces(pod: &Pod) -> api::NamespaceOption {
    let node_if = |host: Option<bool>, otherwise| match host {
        Some(true) => api::NamespaceMode::NODE,
        _ => otherwise,
    };
    let pid = match pod.spec.share_process_namespace {
        Some(true) => api::NamespaceMode::POD,
        _ => api::NamespaceMode::CONTAINER,
    };
    api::NamespaceOption {
        network: EnumOrUnknown::new(node_if(pod.spec.host_network, api::NamespaceMode::POD)),
        pid: EnumOrUnknown::new(node_if(pod.spec.host_pid, pid)),
        ipc: EnumOrUnknown::new(node_if(pod.spec.host_ipc, api::NamespaceMode::POD)),
        ..Default::default()
    }
}

pub fn int64(value: i64) -> api::Int64Value {
    api::Int64Value { value, ..Default::default() }
}

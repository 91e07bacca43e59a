//! The configuration of a pod's sandbox (pkg/kubelet/kuberuntime/kuberuntime_sandbox.go).

use std::collections::HashSet;

use protobuf::{EnumOrUnknown, MessageField};

use super::hostname::Hostname;
use super::{ConfigError, Context, Event, dns, labels, security};
use crate::cri::api;
use crate::pod::sysctl;
use crate::pod::{Pod, is_sidecar};

/// The configuration that the pod's sandbox is made with, and what is to be told when it is. The
/// runtime wants it again with each container.
pub fn sandbox(cx: &Context<'_>, attempt: u32) -> Result<(api::PodSandboxConfig, Vec<Event>), ConfigError> {
    let pod = cx.pod;
    let (dns, events) = dns::pod_dns(cx);
    let sysctls = pod.spec.security_context.iter().flat_map(|c| c.sysctls.iter().flatten());
    let config = api::PodSandboxConfig {
        metadata: MessageField::some(api::PodSandboxMetadata {
            name: pod.name.name.to_string(),
            uid: pod.uid.to_string(),
            namespace: pod.name.namespace.to_string(),
            attempt,
            ..Default::default()
        }),
        // The runtime refuses one for a pod on the host's network.
        hostname: if pod.host_network() { String::new() } else { Hostname::of_kernel(cx)? },
        log_directory: cx.node.paths.pod_logs(&pod.uid, &pod.name).to_string_lossy().into_owned(),
        dns_config: MessageField::some(dns),
        port_mappings: if pod.host_network() { Vec::new() } else { port_mappings(pod) },
        labels: labels::of_sandbox(pod),
        annotations: pod.meta.annotations.clone().unwrap_or_default().into_iter().collect(),
        linux: MessageField::some(api::LinuxPodSandboxConfig {
            security_context: MessageField::some(security::of_sandbox(cx)?),
            sysctls: sysctls.map(|s| (sysctl::with_dots(&s.name).into_owned(), s.value.clone())).collect(),
            ..Default::default()
        }),
        ..Default::default()
    };
    Ok((config, events))
}

/// Ports of the node that lead into the pod: of its containers and of its sidecars, which run beside
/// them; other init containers are gone by then. Ports without a host port need no mapping.
fn port_mappings(pod: &Pod) -> Vec<api::PortMapping> {
    let sidecars = pod.init_containers().iter().filter(|c| is_sidecar(c));
    let ports = pod.containers().iter().chain(sidecars).flat_map(|c| c.ports.iter().flatten());
    let mut seen = HashSet::new();
    ports
        .filter_map(|port| {
            let host_port = port.host_port.filter(|p| *p > 0)?;
            let protocol = match port.protocol.as_deref() {
                Some("UDP") => api::Protocol::UDP,
                Some("SCTP") => api::Protocol::SCTP,
                _ => api::Protocol::TCP,
            };
            let host_ip = port.host_ip.clone().unwrap_or_default();
            seen.insert((host_ip.clone(), host_port, protocol)).then(|| api::PortMapping {
                protocol: EnumOrUnknown::new(protocol),
                container_port: port.container_port,
                host_port,
                host_ip,
                ..Default::default()
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{context, node, pod};
    use super::*;

    #[test]
    fn ports() {
        let mapped = |spec: &str| {
            let all = port_mappings(&pod(spec));
            let show = |p: &api::PortMapping| {
                let protocol = p.protocol.enum_value_or_default();
                format!("{}:{}->{}/{protocol:?}", p.host_ip, p.host_port, p.container_port)
            };
            all.iter().map(show).collect::<Vec<_>>()
        };
        let spec = "{containers: [{name: a, image: i, ports: [{containerPort: 80, hostPort: 8080}, \
             {containerPort: 81}, {containerPort: 53, hostPort: 53, protocol: UDP}, \
             {containerPort: 53, hostPort: 53}, {containerPort: 9, hostPort: 8080, hostIP: 10.0.0.1}]}, \
             {name: b, image: i, ports: [{containerPort: 5, hostPort: 5, protocol: SCTP}]}], \
             initContainers: [{name: once, image: i, ports: [{containerPort: 7, hostPort: 7}]}, \
             {name: side, image: i, restartPolicy: Always, ports: [{containerPort: 6, hostPort: 6}]}]}";
        let want = [":8080->80/TCP", ":53->53/UDP", ":53->53/TCP", "10.0.0.1:8080->9/TCP", ":5->5/SCTP", ":6->6/TCP"];
        assert_eq!(mapped(spec), want);
    }

    #[test]
    fn the_hosts_network_has_neither_name_nor_mapping() {
        let node = node();
        let pod =
            pod("{hostNetwork: true, hostname: h, containers: [{name: a, image: i, ports: [{containerPort: 80}]}]}");
        let (config, _) = sandbox(&context(&pod, &node), 2).expect("a configuration");
        assert_eq!((config.hostname.as_str(), config.port_mappings.len()), ("", 0));
        assert_eq!(config.metadata.attempt, 2);
        assert_eq!(config.log_directory, "/logs/ns_web-n_u1");
    }

    #[test]
    fn sysctls_have_dots() {
        let node = node();
        let pod = pod(
            "{containers: [{name: a, image: i}], securityContext: {sysctls: [{name: net/ipv4/conf/a.b, value: '1'}]}}",
        );
        let (config, _) = sandbox(&context(&pod, &node), 0).expect("a configuration");
        let sysctls: Vec<_> = config.linux.sysctls.iter().collect();
        assert_eq!(sysctls, [(&"net.ipv4.conf.a/b".to_owned(), &"1".to_owned())]);
    }
}

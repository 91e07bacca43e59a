//! Ports of the node that pods want for themselves.

use std::fmt;

use crate::pod::{Pod, core, is_sidecar};

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HostPort {
    /// Empty means all addresses of the node.
    pub ip: String,
    pub protocol: String,
    pub port: i32,
}

impl fmt::Display for HostPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HostPort { ip, protocol, port } = self;
        match ip.as_str() {
            "" => write!(f, "{port}/{protocol}"),
            ip if ip.contains(':') => write!(f, "[{ip}]:{port}/{protocol}"),
            ip => write!(f, "{ip}:{port}/{protocol}"),
        }
    }
}

impl HostPort {
    fn conflicts(&self, other: &HostPort) -> bool {
        let same_address = self.ip == other.ip || self.ip.is_empty() || other.ip.is_empty();
        self.port == other.port && self.protocol == other.protocol && same_address
    }
}

/// Of all that runs beside each other: containers and sidecars.
fn host_ports(pod: &Pod) -> impl Iterator<Item = HostPort> {
    let running = pod.init_containers().iter().filter(|c| is_sidecar(c)).chain(pod.containers());
    running.flat_map(|c| c.ports.iter().flatten()).filter_map(host_port)
}

fn host_port(port: &core::ContainerPort) -> Option<HostPort> {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    Some(HostPort {
        ip: Some(text(&port.host_ip)).filter(|ip| ip != "0.0.0.0" && ip != "::").unwrap_or_default(),
        protocol: Some(text(&port.protocol)).filter(|p| !p.is_empty()).unwrap_or_else(|| "TCP".to_owned()),
        port: port.host_port.filter(|p| *p > 0)?,
    })
}

/// Those of the pod's that other pods have.
pub fn taken(pod: &Pod, others: &[&Pod]) -> Vec<HostPort> {
    let mut wanted: Vec<_> = host_ports(pod).collect();
    if !wanted.is_empty() {
        let used: Vec<_> = others.iter().flat_map(|other| host_ports(other)).collect();
        wanted.retain(|port| used.iter().any(|other| port.conflicts(other)));
    }
    wanted
}

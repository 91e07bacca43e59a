//! What the node is: its addresses.

pub mod capacity;

use std::net::{IpAddr, SocketAddr, UdpSocket};

/// The node's addresses: those that are configured, else the one that a packet to the outside would
/// leave from. Nothing is sent, and no name is resolved, to find it out.
pub fn addresses(configured: &[IpAddr]) -> Vec<String> {
    if !configured.is_empty() {
        return configured.iter().map(ToString::to_string).collect();
    }
    // Addresses for documentation: not on this network, so it is the default route that counts.
    let outside = ["192.0.2.1:9", "[2001:db8::1]:9"];
    let found = outside.iter().filter_map(|target| source_for(target.parse().ok()?));
    found.map(|ip| ip.to_string()).collect()
}

fn source_for(target: SocketAddr) -> Option<IpAddr> {
    let any = if target.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).ok()?;
    socket.connect(target).ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_unspecified() && !ip.is_loopback()).then_some(ip)
}

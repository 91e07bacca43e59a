//! What the node is: its addresses, what it has, and what of the machine its pods must not see; and its
//! object, as the API has it.

pub mod capacity;
pub mod conditions;
mod images;
mod info;
mod keeper;
mod lease;
mod look;
mod object;
mod pressure;
mod report;
mod seen;

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::path::Path;

use crate::pod::sysctl::Kernel;
pub use info::KUBELET_VERSION;
pub use keeper::{Keeper, Parts};
pub use object::{Object, Software};
pub use seen::{Known, Seen};

/// The kernel's version; `None` when it can't be read.
pub fn kernel() -> Option<Kernel> {
    Kernel::parse(&rustix::system::uname().release().to_string_lossy())
}

/// Whether SELinux is on.
pub fn has_selinux() -> bool {
    Path::new("/sys/fs/selinux/enforce").exists()
}

/// Directories in which CPUs tell how often they were throttled, and so what others on them do.
pub fn throttle_directories() -> Vec<String> {
    let Ok(entries) = std::fs::read_dir("/sys/devices/system/cpu") else { return Vec::new() };
    let directories = entries.flatten().map(|entry| entry.path().join("thermal_throttle"));
    let mut found: Vec<_> =
        directories.filter(|path| path.is_dir()).map(|path| path.to_string_lossy().into_owned()).collect();
    found.sort();
    found
}

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

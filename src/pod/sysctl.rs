//! Sysctls of pods: which may be set, and which not together with a namespace of the host
//! (pkg/kubelet/sysctl, component-helpers/node/util/sysctl).

use std::borrow::Cow;
use std::fmt;

use super::{Pod, core};

/// The reason that a pod with a sysctl that it may not set is refused for.
pub const FORBIDDEN: &str = "SysctlForbidden";

/// A namespace of the kernel that has values of its own of some sysctls.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Namespace {
    Ipc,
    Net,
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Namespace::Ipc => "IPC",
            Namespace::Net => "Net",
        })
    }
}

impl Namespace {
    /// The namespace that a sysctl, or all that begin with a prefix, belong to.
    pub fn of(sysctl: &str) -> Option<Namespace> {
        let ipc = ["kernel.shm", "kernel.msg", "fs.mqueue."];
        if sysctl == "kernel.sem" || ipc.iter().any(|prefix| sysctl.starts_with(prefix)) {
            return Some(Namespace::Ipc);
        }
        sysctl.starts_with("net.").then_some(Namespace::Net)
    }

    fn is_the_hosts(self, spec: &core::PodSpec) -> bool {
        let host = match self {
            Namespace::Ipc => spec.host_ipc,
            Namespace::Net => spec.host_network,
        };
        host == Some(true)
    }
}

/// A sysctl's name with dots between its parts. Where the first separator is a slash, dots belong to
/// the parts, and become slashes (sysctl.d(5)).
pub fn with_dots(name: &str) -> Cow<'_, str> {
    let first = name.chars().find(|c| matches!(c, '.' | '/'));
    if first != Some('/') {
        return Cow::Borrowed(name);
    }
    let swap = |c| match c {
        '/' => '.',
        '.' => '/',
        c => c,
    };
    Cow::Owned(name.chars().map(swap).collect())
}

/// Version of the kernel, as far as it decides about sysctls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Kernel {
    pub major: u32,
    pub minor: u32,
}

impl Kernel {
    /// From what `uname -r` says: `6.1.0-18-amd64`.
    pub fn parse(release: &str) -> Option<Kernel> {
        let mut numbers = release.split(|c: char| !c.is_ascii_digit());
        let mut number = || numbers.next()?.parse().ok();
        Some(Kernel { major: number()?, minor: number()? })
    }
}

/// Sysctls that touch nothing but the pod, and the kernel from which that holds.
const SAFE: [(&str, Kernel); 12] = [
    ("kernel.shm_rmid_forced", ALWAYS),
    ("net.ipv4.ip_local_port_range", ALWAYS),
    ("net.ipv4.tcp_syncookies", ALWAYS),
    ("net.ipv4.ping_group_range", ALWAYS),
    ("net.ipv4.ip_unprivileged_port_start", ALWAYS),
    ("net.ipv4.ip_local_reserved_ports", Kernel { major: 3, minor: 16 }),
    ("net.ipv4.tcp_keepalive_time", Kernel { major: 4, minor: 5 }),
    ("net.ipv4.tcp_fin_timeout", Kernel { major: 4, minor: 6 }),
    ("net.ipv4.tcp_keepalive_intvl", Kernel { major: 4, minor: 5 }),
    ("net.ipv4.tcp_keepalive_probes", Kernel { major: 4, minor: 5 }),
    ("net.ipv4.tcp_rmem", ALWAYS),
    ("net.ipv4.tcp_wmem", ALWAYS),
];

const ALWAYS: Kernel = Kernel { major: 0, minor: 0 };

/// Why a pod may not set a sysctl.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Forbidden {
    #[error("forbidden sysctl: {0:?} not allowlisted")]
    NotAllowed(String),
    #[error("forbidden sysctl: {0:?} not allowed with host {1} enabled")]
    WithHost(String, Namespace),
}

/// `allowedUnsafeSysctls` has an entry that no namespace of the kernel has a value of its own of: it
/// would be set for the whole node.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("allowedUnsafeSysctls: {0:?} belongs to no namespace of a pod")]
pub struct NotNamespaced(pub String);

/// What pods of this node may set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Allowlist {
    names: Vec<(String, Namespace)>,
    /// What stood before a `*`.
    prefixes: Vec<(String, Namespace)>,
}

impl Allowlist {
    /// The safe sysctls of `kernel` (an unknown one counts as the oldest) and those of `unsafe_ones`,
    /// which are names or end in `*`.
    pub fn new(kernel: Option<Kernel>, unsafe_ones: &[String]) -> Result<Allowlist, NotNamespaced> {
        let mut list = Allowlist { names: Vec::new(), prefixes: Vec::new() };
        let kernel = kernel.unwrap_or(ALWAYS);
        for (name, _) in SAFE.iter().filter(|(_, since)| *since <= kernel) {
            list.add(name)?;
        }
        for pattern in unsafe_ones {
            list.add(&with_dots(pattern))?;
        }
        Ok(list)
    }

    fn add(&mut self, pattern: &str) -> Result<(), NotNamespaced> {
        let prefix = pattern.strip_suffix('*');
        let name = prefix.unwrap_or(pattern);
        let namespace = Namespace::of(name).ok_or_else(|| NotNamespaced(pattern.to_owned()))?;
        let list = if prefix.is_some() { &mut self.prefixes } else { &mut self.names };
        list.push((name.to_owned(), namespace));
        Ok(())
    }

    /// Checks all sysctls of a pod.
    pub fn check(&self, pod: &Pod) -> Result<(), Forbidden> {
        let sysctls = pod.spec.security_context.iter().flat_map(|c| c.sysctls.iter().flatten());
        for sysctl in sysctls {
            let name = with_dots(&sysctl.name);
            let known = self.names.iter().find(|(allowed, _)| *allowed == name);
            let known = known.or_else(|| self.prefixes.iter().find(|(prefix, _)| name.starts_with(prefix)));
            match known {
                None => return Err(Forbidden::NotAllowed(name.into_owned())),
                Some((_, namespace)) if namespace.is_the_hosts(&pod.spec) => {
                    return Err(Forbidden::WithHost(name.into_owned(), *namespace));
                }
                Some(_) => {}
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::{PodName, PodUid, Source};

    fn pod(sysctl: &str, host_network: bool, host_ipc: bool) -> Pod {
        let sysctls = Some(vec![core::Sysctl { name: sysctl.to_owned(), value: "1".to_owned() }]);
        let security_context = Some(core::PodSecurityContext { sysctls, ..Default::default() });
        Pod {
            uid: PodUid::new("u"),
            name: PodName::new("ns", "p"),
            source: Source::File,
            origin: "".into(),
            status: None,
            meta: Default::default(),
            spec: core::PodSpec {
                security_context,
                host_network: Some(host_network),
                host_ipc: Some(host_ipc),
                ..Default::default()
            },
        }
    }

    #[test]
    fn names_with_slashes() {
        let table = [
            ("net.ipv4.conf.eth0", "net.ipv4.conf.eth0"),
            ("net/ipv4/conf/eth0.1/x", "net.ipv4.conf.eth0/1.x"),
            ("net.ipv4.conf.eth0/1.x", "net.ipv4.conf.eth0/1.x"),
            ("kernel", "kernel"),
        ];
        for (name, want) in table {
            assert_eq!(with_dots(name), want);
        }
    }

    #[test]
    fn kernels() {
        let kernel = |major, minor| Some(Kernel { major, minor });
        let table = [
            ("6.1.0-18-amd64", kernel(6, 1)),
            ("5.15.167.4-microsoft-standard-WSL2", kernel(5, 15)),
            ("4.19", kernel(4, 19)),
            ("4.9+", kernel(4, 9)),
            ("6", None),
            ("", None),
            ("x.y", None),
        ];
        for (release, want) in table {
            assert_eq!(Kernel::parse(release), want, "{release}");
        }
    }

    #[test]
    fn what_a_pod_may_set() {
        let unsafe_ones = ["kernel.msg*", "net/core/somaxconn", "net.ipv4.route.*"].map(str::to_owned);
        let new = Allowlist::new(Kernel::parse("6.1.0"), &unsafe_ones).expect("a list");
        let old = Allowlist::new(Kernel::parse("4.5.0"), &[]).expect("a list");
        let unknown = Allowlist::new(None, &[]).expect("a list");
        let not_allowed = |name: &str| Err(Forbidden::NotAllowed(name.to_owned()));
        let (net, ipc) = (|n: &str| Forbidden::WithHost(n.into(), Namespace::Net), Namespace::Ipc);
        let table = [
            (&new, "kernel.shm_rmid_forced", false, false, Ok(())),
            (&new, "kernel/shm_rmid_forced", true, false, Ok(())),
            (
                &new,
                "kernel.shm_rmid_forced",
                false,
                true,
                Err(Forbidden::WithHost("kernel.shm_rmid_forced".into(), ipc)),
            ),
            (&new, "net.ipv4.tcp_syncookies", true, false, Err(net("net.ipv4.tcp_syncookies"))),
            (&new, "net.ipv4.tcp_syncookies", false, true, Ok(())),
            (&new, "kernel.msgmax", false, false, Ok(())),
            (&new, "kernel.msgmax", false, true, Err(Forbidden::WithHost("kernel.msgmax".into(), ipc))),
            (&new, "net.core.somaxconn", false, false, Ok(())),
            (&new, "net.core.somaxconn", true, false, Err(net("net.core.somaxconn"))),
            (&new, "net.ipv4.route.gc", false, false, Ok(())),
            (&new, "net.ipv4.route", false, false, not_allowed("net.ipv4.route")),
            (&new, "kernel.shmmax", false, false, not_allowed("kernel.shmmax")),
            (&new, "vm.swappiness", false, false, not_allowed("vm.swappiness")),
            (&old, "net.ipv4.tcp_keepalive_time", false, false, Ok(())),
            (&old, "net.ipv4.tcp_fin_timeout", false, false, not_allowed("net.ipv4.tcp_fin_timeout")),
            (&old, "kernel.msgmax", false, false, not_allowed("kernel.msgmax")),
            (&unknown, "net.ipv4.tcp_rmem", false, false, Ok(())),
            (
                &unknown,
                "net.ipv4.ip_local_reserved_ports",
                false,
                false,
                not_allowed("net.ipv4.ip_local_reserved_ports"),
            ),
        ];
        for (list, name, host_network, host_ipc, want) in table {
            assert_eq!(list.check(&pod(name, host_network, host_ipc)), want, "{name}");
        }
        let said = not_allowed("a.b").map_err(|e: Forbidden| e.to_string());
        assert_eq!(said, Err("forbidden sysctl: \"a.b\" not allowlisted".to_owned()));
    }

    #[test]
    fn what_belongs_to_the_node_can_not_be_allowed() {
        for name in ["vm.swappiness", "kernel.*", "*", "netfilter.x", "fs.file-max"] {
            let refused = Allowlist::new(None, &[name.to_owned()]);
            assert_eq!(refused, Err(NotNamespaced(name.to_owned())));
        }
    }
}

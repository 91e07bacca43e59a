//! The pod's /etc/hosts (pkg/kubelet/kubelet_pods.go `makeHostsMount`).

use std::fmt::Write as _;

use super::Context;
use super::hostname::Hostname;
use crate::pod::core;

/// Where a container finds the file.
pub(super) const PATH: &str = "/etc/hosts";

const HEADER: &str = "# Kubernetes-managed hosts file.\n";
const HEADER_OF_HOST: &str = "# Kubernetes-managed hosts file (host network).\n";
const LOCAL: &str = "127.0.0.1\tlocalhost\n\
                     ::1\tlocalhost ip6-localhost ip6-loopback\n\
                     fe00::0\tip6-localnet\n\
                     fe00::0\tip6-mcastprefix\n\
                     fe00::1\tip6-allnodes\n\
                     fe00::2\tip6-allrouters\n";

/// The text of the pod's hosts file, to be written with mode 0644 and mounted into each container
/// that has none of its own: the node's file (`of_node` is its text) for a pod on the host's network,
/// else one with the pod's addresses. `None` when the pod has no address yet.
pub fn hosts_file(cx: &Context<'_>, pod_ips: &[String], of_node: &str) -> Option<String> {
    let mut text = String::new();
    if cx.pod.host_network() {
        text.push_str(HEADER_OF_HOST);
        text.push_str(of_node);
    } else if pod_ips.is_empty() {
        return None;
    } else {
        text.push_str(HEADER);
        text.push_str(LOCAL);
        let Hostname { name, domain } = Hostname::of(cx);
        for ip in pod_ips {
            let written = match &domain {
                Some(domain) => writeln!(text, "{ip}\t{name}.{domain}\t{name}"),
                None => writeln!(text, "{ip}\t{name}"),
            };
            debug_assert!(written.is_ok(), "a String takes all text");
        }
    }
    let aliases = cx.pod.spec.host_aliases.as_deref().unwrap_or_default();
    if !aliases.is_empty() {
        text.push_str("\n# Entries added by HostAliases.\n");
    }
    for alias in aliases {
        let names = alias.hostnames.as_deref().unwrap_or_default().join("\t");
        text.extend([alias.ip.as_str(), "\t", &names, "\n"]);
    }
    Some(text)
}

/// Whether the container mounts something of its own there.
pub fn has_own_hosts(container: &core::Container) -> bool {
    container.volume_mounts.iter().flatten().any(|mount| mount.mount_path == PATH)
}

#[cfg(test)]
mod tests {
    use super::super::testing::{context, node, pod};
    use super::*;

    const C: &str = "containers: [{name: c, image: i}]";

    fn text(spec: &str, ips: &[&str]) -> Option<String> {
        let (pod, node) = (pod(spec), node());
        let ips: Vec<_> = ips.iter().map(|ip| (*ip).to_owned()).collect();
        hosts_file(&context(&pod, &node), &ips, "127.0.0.1 localhost\n10.0.0.1 db\n")
    }

    #[test]
    fn a_pod_with_an_address_of_its_own() {
        let aliases = "hostAliases: [{ip: 10.1.2.3, hostnames: [foo, bar]}, {ip: '::9', hostnames: [baz]}]";
        let got = text(&format!("{{{C}, hostname: h, subdomain: s, {aliases}}}"), &["10.9.0.1", "fd00::1"]);
        let want = "# Kubernetes-managed hosts file.\n127.0.0.1\tlocalhost\n\
            ::1\tlocalhost ip6-localhost ip6-loopback\nfe00::0\tip6-localnet\nfe00::0\tip6-mcastprefix\n\
            fe00::1\tip6-allnodes\nfe00::2\tip6-allrouters\n10.9.0.1\th.s.ns.svc\th\nfd00::1\th.s.ns.svc\th\n\n\
            # Entries added by HostAliases.\n10.1.2.3\tfoo\tbar\n::9\tbaz\n";
        assert_eq!(got.as_deref(), Some(want));
        let plain = text(&format!("{{{C}}}"), &["10.9.0.1"]).expect("a file");
        assert!(plain.ends_with("ip6-allrouters\n10.9.0.1\tweb-n\n"), "{plain}");
        assert_eq!(text(&format!("{{{C}}}"), &[]), None);
    }

    #[test]
    fn a_pod_on_the_hosts_network() {
        let got = text(&format!("{{{C}, hostNetwork: true, hostAliases: [{{ip: 10.1.2.3, hostnames: [a]}}]}}"), &[]);
        let want = "# Kubernetes-managed hosts file (host network).\n127.0.0.1 localhost\n10.0.0.1 db\n\n\
            # Entries added by HostAliases.\n10.1.2.3\ta\n";
        assert_eq!(got.as_deref(), Some(want));
    }

    #[test]
    fn a_container_with_a_file_of_its_own() {
        let pod = pod("{containers: [{name: a, image: i, volumeMounts: [{name: v, mountPath: /etc/hosts}]}, \
             {name: b, image: i, volumeMounts: [{name: v, mountPath: /etc}]}], volumes: [{name: v}]}");
        let own: Vec<_> = pod.containers().iter().map(has_own_hosts).collect();
        assert_eq!(own, [true, false]);
    }
}

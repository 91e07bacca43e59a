//! The pod's host name and domain (pkg/kubelet/kubelet_pods.go `GeneratePodHostNameAndDomain`,
//! pkg/kubelet/util `GetNodenameForKernel`).

use super::{ConfigError, Context};

/// What a host name may have.
const MAX_HOSTNAME: usize = 63;
/// What the kernel takes as the node name.
const MAX_FQDN: usize = 64;

/// How the pod is called.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hostname {
    pub name: String,
    /// The domain of the pod's subdomain.
    pub domain: Option<String>,
}

impl Hostname {
    pub fn of(cx: &Context<'_>) -> Hostname {
        let spec = &cx.pod.spec;
        let set = |name: &Option<String>| name.clone().filter(|name| !name.is_empty());
        if let Some(name) = set(&spec.hostname_override) {
            return Hostname { name: cut(&name), domain: None };
        }
        let name = set(&spec.hostname).unwrap_or_else(|| cx.pod.name.name.to_string());
        let domain = set(&spec.subdomain).map(|subdomain| {
            let service = format!("{subdomain}.{}.svc", cx.pod.name.namespace);
            match &cx.node.cluster_dns.domain {
                Some(domain) => format!("{service}.{domain}"),
                None => service,
            }
        });
        Hostname { name: cut(&name), domain }
    }

    /// The host name that the kernel is to have in the pod.
    ///
    /// # Errors
    /// When it is to be the full name, and that is too long.
    pub fn of_kernel(cx: &Context<'_>) -> Result<String, ConfigError> {
        let Hostname { name, domain } = Hostname::of(cx);
        match domain {
            Some(domain) if cx.pod.spec.set_hostname_as_fqdn == Some(true) => {
                let fqdn = format!("{name}.{domain}");
                if fqdn.len() > MAX_FQDN { Err(ConfigError::FqdnTooLong { fqdn }) } else { Ok(fqdn) }
            }
            _ => Ok(name),
        }
    }
}

fn cut(name: &str) -> String {
    let cut: String = name.chars().take(MAX_HOSTNAME).collect();
    cut.trim_end_matches(['-', '.']).to_owned()
}

#[cfg(test)]
mod tests {
    use super::super::testing::{context, node, pod};
    use super::*;

    #[test]
    fn names() {
        let a = |n: usize| "a".repeat(n);
        let table: &[(String, Option<&str>, &str, Option<&str>)] = &[
            (String::new(), None, "web-n", None),
            ("hostname: other".into(), None, "other", None),
            ("hostname: ''".into(), None, "web-n", None),
            ("subdomain: group".into(), None, "web-n", Some("group.ns.svc")),
            ("subdomain: group".into(), Some("cluster.local"), "web-n", Some("group.ns.svc.cluster.local")),
            ("hostname: h, subdomain: group".into(), Some("c"), "h", Some("group.ns.svc.c")),
            (format!("hostname: {}", a(63)), None, &a(63), None),
            ("hostnameOverride: a.b.c".into(), None, "a.b.c", None),
            ("hostnameOverride: o, hostname: h, subdomain: s".into(), None, "o", None),
            (format!("hostnameOverride: {}.{}", a(62), "b"), None, &a(62), None),
        ];
        for (spec, domain, name, want) in table {
            let mut node = node();
            node.cluster_dns.domain = domain.map(str::to_owned);
            let pod = pod(&format!("{{containers: [{{name: c, image: i}}], {spec}}}"));
            let got = Hostname::of(&context(&pod, &node));
            assert_eq!((got.name.as_str(), got.domain.as_deref()), (*name, *want), "{spec}");
        }
    }

    #[test]
    fn a_long_pod_name_is_cut_to_a_host_name() {
        let node = node();
        let mut pod = pod("{containers: [{name: c, image: i}]}");
        pod.name = crate::pod::PodName::new("ns", format!("{}-.bcd", "a".repeat(61)));
        assert_eq!(Hostname::of(&context(&pod, &node)).name, "a".repeat(61));
    }

    #[test]
    fn the_kernels_name() {
        let mut node = node();
        node.cluster_dns.domain = Some("c".to_owned());
        let name = |spec: &str| {
            let pod = pod(&format!("{{containers: [{{name: c, image: i}}], {spec}}}"));
            Hostname::of_kernel(&context(&pod, &node))
        };
        assert_eq!(name("hostname: h, subdomain: s").as_deref(), Ok("h"));
        assert_eq!(name("hostname: h, setHostnameAsFQDN: true").as_deref(), Ok("h"));
        assert_eq!(name("hostname: h, subdomain: s, setHostnameAsFQDN: true").as_deref(), Ok("h.s.ns.svc.c"));
        let fits = format!("{}.s.ns.svc.c", "h".repeat(53));
        let spec = |n: usize| format!("hostname: {}, subdomain: s, setHostnameAsFQDN: true", "h".repeat(n));
        assert_eq!(name(&spec(53)), Ok(fits));
        let refused = name(&spec(54)).map_err(|e| e.to_string());
        let want = format!(
            "FQDN {}.s.ns.svc.c is too long: 64 characters is the max, 65 characters requested",
            "h".repeat(54)
        );
        assert_eq!(refused, Err(want));
    }
}

//! Name servers, search domains and options of a pod (pkg/kubelet/network/dns).

use super::resolv_conf::{self, ResolvConf, set_option};
use super::{Context, Event};
use crate::cri::api;

const MAX_SERVERS: usize = 3;
const MAX_SEARCHES: usize = 32;
/// Bytes of all search domains, with a space between each two.
const MAX_SEARCH_BYTES: usize = 2048;
/// Bytes of one search domain. Some resolvers abort over a longer one.
const MAX_DOMAIN: usize = 253;

/// The options of pods that ask the cluster's name service.
const CLUSTER_OPTIONS: &str = "ndots:5";
const FORMING: &str = "DNSConfigForming";
const MISSING_CLUSTER_DNS: &str = "MissingClusterDNS";

/// The pod's DNS configuration, and what of it could not be had.
pub fn pod_dns(cx: &Context<'_>) -> (api::DNSConfig, Vec<Event>) {
    let mut events = Vec::new();
    let mut conf = base(cx, &mut events);
    if let Some(own) = &cx.pod.spec.dns_config {
        conf.servers.extend(own.nameservers.iter().flatten().cloned());
        conf.searches.extend(own.searches.iter().flatten().cloned());
        dedupe(&mut conf.servers);
        dedupe(&mut conf.searches);
        for option in own.options.iter().flatten() {
            let name = option.name.clone().unwrap_or_default();
            let value = option.value.as_deref().filter(|value| !value.is_empty());
            set_option(&mut conf.options, value.map_or(name.clone(), |value| format!("{name}:{value}")));
        }
    }
    fit_servers(&mut conf.servers, &mut events);
    fit_searches(&mut conf.searches, &mut events);
    let ResolvConf { servers, searches, options } = conf;
    (api::DNSConfig { servers, searches, options, ..Default::default() }, events)
}

/// What the policy gives, before the pod's own configuration.
fn base(cx: &Context<'_>, events: &mut Vec<Event>) -> ResolvConf {
    let host = cx.resolv_conf.map(resolv_conf::parse);
    let cluster = &cx.node.cluster_dns;
    match cx.pod.spec.dns_policy.as_deref().unwrap_or("ClusterFirst") {
        "None" => return ResolvConf::default(),
        "Default" => {}
        // Not reached by the cluster's addresses, unless the pod says that it is.
        "ClusterFirst" if cx.pod.host_network() => {}
        policy if cluster.servers.is_empty() => {
            let why = format!(
                "dnsPolicy {policy:?} needs a clusterDNS, and none is configured. Falling back to \"Default\" policy."
            );
            events.push(Event::warning(MISSING_CLUSTER_DNS, why));
        }
        _ => {
            let mut searches = Vec::new();
            if let Some(domain) = &cluster.domain {
                let service = format!("svc.{domain}");
                searches.extend([format!("{}.{service}", cx.pod.name.namespace), service, domain.clone()]);
            }
            searches.extend(host.unwrap_or_default().searches);
            dedupe(&mut searches);
            let servers = cluster.servers.iter().map(ToString::to_string).collect();
            return ResolvConf { servers, searches, options: vec![CLUSTER_OPTIONS.to_owned()] };
        }
    }
    host.unwrap_or_else(|| nothing(cx))
}

/// For a pod that is to get nothing of the host's resolver. An empty list would be filled in by the
/// runtime; a resolver on the local machine is what an empty file means.
fn nothing(cx: &Context<'_>) -> ResolvConf {
    let local = |ip: &String| if ip.contains(':') { "::1" } else { "127.0.0.1" };
    let mut servers: Vec<String> = cx.node.ips.iter().map(|ip| local(ip).to_owned()).collect();
    if servers.is_empty() {
        servers.push("127.0.0.1".to_owned());
    }
    ResolvConf { servers, searches: vec![".".to_owned()], options: Vec::new() }
}

fn dedupe(list: &mut Vec<String>) {
    let mut seen = std::collections::HashSet::new();
    list.retain(|entry| seen.insert(entry.clone()));
}

fn fit_servers(servers: &mut Vec<String>, events: &mut Vec<Event>) {
    if servers.len() > MAX_SERVERS {
        servers.truncate(MAX_SERVERS);
        let applied = servers.join(" ");
        let why = format!("Nameserver limits were exceeded, the applied nameserver line is: {applied}");
        events.push(Event::warning(FORMING, why));
    }
}

fn fit_searches(searches: &mut Vec<String>, events: &mut Vec<Event>) {
    let before = searches.len();
    searches.truncate(MAX_SEARCHES);
    searches.retain(|domain| domain.len() <= MAX_DOMAIN);
    let mut bytes = 0;
    let fitting = searches.iter().take_while(|domain| {
        bytes += domain.len() + usize::from(bytes > 0);
        bytes <= MAX_SEARCH_BYTES
    });
    let fitting = fitting.count();
    searches.truncate(fitting);
    if searches.len() < before {
        let applied = searches.join(" ");
        let why = format!("Search Line limits were exceeded, the applied search line is: {applied}");
        events.push(Event::warning(FORMING, why));
    }
}

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use super::super::testing::{context, node, pod};
    use super::*;

    /// `servers; searches; options` and the reasons of the events.
    fn dns(spec: &str, resolv_conf: Option<&str>, cluster: Option<&str>) -> (String, Vec<Event>) {
        let mut node = node();
        if let Some(domain) = cluster {
            node.cluster_dns.servers = vec![IpAddr::from([10, 96, 0, 10])];
            node.cluster_dns.domain = Some(domain.to_owned()).filter(|d| !d.is_empty());
        }
        let pod = pod(&format!("{{containers: [{{name: c, image: i}}], {spec}}}"));
        let (conf, events) = pod_dns(&Context { resolv_conf, ..context(&pod, &node) });
        (format!("{}; {}; {}", conf.servers.join(" "), conf.searches.join(" "), conf.options.join(" ")), events)
    }

    const HOST: &str = "nameserver 192.0.2.53\nsearch edge.example svc.c\noptions ndots:2 edns0\n";

    #[test]
    fn policies() {
        let host = "192.0.2.53; edge.example svc.c; ndots:2 edns0";
        let cluster = "10.96.0.10; ns.svc.c svc.c c edge.example; ndots:5";
        let table = [
            ("", Some("c"), cluster),
            ("dnsPolicy: ClusterFirst", Some("c"), cluster),
            ("dnsPolicy: ClusterFirst", Some(""), "10.96.0.10; edge.example svc.c; ndots:5"),
            ("dnsPolicy: ClusterFirst, hostNetwork: true", Some("c"), host),
            ("dnsPolicy: ClusterFirstWithHostNet, hostNetwork: true", Some("c"), cluster),
            ("dnsPolicy: Default", Some("c"), host),
            ("dnsPolicy: Default", None, host),
            ("dnsPolicy: ClusterFirst, hostNetwork: true", None, host),
            ("dnsPolicy: None, dnsConfig: {nameservers: [1.1.1.1]}", Some("c"), "1.1.1.1; ; "),
        ];
        for (spec, domain, want) in table {
            let (got, events) = dns(spec, Some(HOST), domain);
            assert_eq!((got.as_str(), events), (want, vec![]), "{spec}");
        }
    }

    #[test]
    fn without_a_cluster_the_hosts_servers_are_taken() {
        for spec in ["dnsPolicy: ClusterFirst", "dnsPolicy: ClusterFirstWithHostNet, hostNetwork: true"] {
            let (got, events) = dns(spec, Some(HOST), None);
            assert_eq!(got, "192.0.2.53; edge.example svc.c; ndots:2 edns0");
            assert_eq!(events.iter().map(|e| e.reason).collect::<Vec<_>>(), [MISSING_CLUSTER_DNS]);
        }
    }

    #[test]
    fn a_pod_that_gets_nothing_of_the_host() {
        assert_eq!(dns("dnsPolicy: Default", None, None).0, "127.0.0.1 ::1; .; ");
        assert_eq!(dns("", None, Some("c")).0, "10.96.0.10; ns.svc.c svc.c c; ndots:5");
    }

    #[test]
    fn the_pods_own_configuration() {
        let own = "dnsConfig: {nameservers: [1.1.1.1, 192.0.2.53], searches: [more, svc.c], \
             options: [{name: ndots, value: '4'}, {name: edns0}, {name: rotate, value: ''}, \
             {name: timeout, value: '1'}]}";
        let (got, events) = dns(&format!("dnsPolicy: Default, {own}"), Some(HOST), None);
        assert_eq!(got, "192.0.2.53 1.1.1.1; edge.example svc.c more; ndots:4 edns0 rotate timeout:1");
        assert_eq!(events, []);
    }

    #[test]
    fn limits() {
        let said = |events: &[Event]| events.iter().map(|e| format!("{}: {}", e.reason, e.message)).collect::<Vec<_>>();
        let (got, events) = dns(
            "dnsPolicy: Default, dnsConfig: {nameservers: [1.1.1.1, 2.2.2.2, 3.3.3.3]}",
            Some("nameserver 192.0.2.53"),
            None,
        );
        assert_eq!(got, "192.0.2.53 1.1.1.1 2.2.2.2; ; ");
        let want = "DNSConfigForming: Nameserver limits were exceeded, \
             the applied nameserver line is: 192.0.2.53 1.1.1.1 2.2.2.2";
        assert_eq!(said(&events), [want]);

        let searches = |text: String| {
            let (got, events) = dns("dnsPolicy: Default", Some(&format!("search {text}")), None);
            let got = got.split("; ").nth(1).unwrap_or_default().to_owned();
            (got.split(' ').count(), got.len(), events.len())
        };
        let names = |n: usize, len: usize| (0..n).map(|i| format!("{i:0len$}")).collect::<Vec<_>>().join(" ");
        assert_eq!(searches(names(32, 10)), (32, 32 * 11 - 1, 0));
        assert_eq!(searches(names(33, 10)), (32, 32 * 11 - 1, 1));
        assert_eq!(searches(format!("{} b", "a".repeat(253))), (2, 255, 0));
        assert_eq!(searches(format!("{} b", "a".repeat(254))), (1, 1, 1));
        // 8 of 255 and 7 spaces are 2047 bytes: too long each. 16 of 127 and 15 spaces are 2047.
        assert_eq!(searches(names(16, 127)), (16, 2047, 0));
        assert_eq!(searches(names(17, 127)), (16, 2047, 1));
        assert_eq!(searches(format!("{} {}", names(16, 127), "x")), (16, 2047, 1));
        assert_eq!(searches(format!("{} {}", names(15, 127), "x".repeat(128))), (16, 2048, 0));
    }
}

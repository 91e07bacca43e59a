//! Names, DNS and host ports of the pod.

use super::format::{DNS_LABEL, DNS_SUBDOMAIN, IP, SEARCH_DOMAIN};
use super::report::{Path, Report, each, text};
use crate::pod::core;

// What the resolver of libc takes.
const MAX_NAMESERVERS: usize = 3;
const MAX_SEARCHES: usize = 32;
const MAX_SEARCH_BYTES: usize = 2048;

pub fn check(report: &mut Report, at: &Path<'_>, spec: &core::PodSpec) {
    host_ports(report, at, spec);
    let policies = ["ClusterFirstWithHostNet", "ClusterFirst", "Default", "None"];
    report.choice(&at.field("dnsPolicy"), text(&spec.dns_policy), &policies);
    dns_config(report, &at.field("dnsConfig"), spec);
    for (name, value) in [("hostname", &spec.hostname), ("subdomain", &spec.subdomain)] {
        if !text(value).is_empty() {
            report.format(&at.field(name), text(value), DNS_LABEL);
        }
    }
    if let Some(name) = &spec.hostname_override {
        hostname_override(report, &at.field("hostnameOverride"), name, spec);
    }
    for (at, alias) in each(&at.field("hostAliases"), &spec.host_aliases) {
        report.format(&at.field("ip"), &alias.ip, IP);
        for (at, name) in each(&at.field("hostnames"), &alias.hostnames) {
            report.format(&at, name, DNS_SUBDOMAIN);
        }
    }
}

fn hostname_override(report: &mut Report, at: &Path<'_>, name: &str, spec: &core::PodSpec) {
    if spec.set_hostname_as_fqdn == Some(true) {
        report.forbidden(at, "may not be set when setHostnameAsFQDN is true");
    }
    if spec.host_network == Some(true) {
        report.forbidden(at, "may not be set when hostNetwork is true");
    }
    if name.len() > 64 {
        report.too_long(at, 64);
    }
    report.format(at, name, DNS_SUBDOMAIN);
}

/// With the host's network there is no mapping of ports.
fn host_ports(report: &mut Report, at: &Path<'_>, spec: &core::PodSpec) {
    if spec.host_network != Some(true) {
        return;
    }
    let list = at.field("containers");
    for (i, container) in spec.containers.iter().enumerate() {
        let at = list.index(i);
        for (at, port) in each(&at.field("ports"), &container.ports) {
            let number = port.host_port.unwrap_or_default();
            if number != port.container_port {
                report.invalid(&at.field("hostPort"), number, "must be the containerPort when hostNetwork is true");
            }
        }
    }
}

fn dns_config(report: &mut Report, at: &Path<'_>, spec: &core::PodSpec) {
    let none = text(&spec.dns_policy) == "None";
    let Some(config) = &spec.dns_config else {
        if none {
            report.required_because(at, "must be given when dnsPolicy is None");
        }
        return;
    };
    let servers = config.nameservers.as_deref().unwrap_or_default();
    let servers_at = at.field("nameservers");
    if none && servers.is_empty() {
        report.required_because(&servers_at, "must have at least one when dnsPolicy is None");
    }
    if servers.len() > MAX_NAMESERVERS {
        report.invalid(&servers_at, servers, format_args!("must not have more than {MAX_NAMESERVERS}"));
    }
    for (at, server) in each(&servers_at, &config.nameservers) {
        report.format(&at, server, IP);
    }
    let searches = config.searches.as_deref().unwrap_or_default();
    let searches_at = at.field("searches");
    if searches.len() > MAX_SEARCHES {
        report.invalid(&searches_at, searches, format_args!("must not have more than {MAX_SEARCHES}"));
    }
    let bytes = searches.iter().map(|s| s.len() + 1).sum::<usize>().saturating_sub(1);
    if bytes > MAX_SEARCH_BYTES {
        let why = format!("must not have more than {MAX_SEARCH_BYTES} bytes, with the spaces between");
        report.invalid(&searches_at, searches, why);
    }
    for (at, search) in each(&searches_at, &config.searches) {
        report.format(&at, search, SEARCH_DOMAIN);
    }
    for (at, option) in each(&at.field("options"), &config.options) {
        if text(&option.name).is_empty() {
            report.required_because(&at, "must have a name");
        }
    }
}

//! `/metrics/cadvisor` and `/metrics/resource`: what containers use as series of Prometheus, with the
//! names and labels that dashboards look for (github.com/google/cadvisor metrics/prometheus.go,
//! pkg/kubelet/metrics/collectors/resource_metrics.go). Pure.

use super::node::Traffic;
use super::{ContainerStats, PodUsage, Usage};
use crate::cgroup::stats::{Memory, Stats};
use crate::cgroup::{Policy, container};
use crate::cri::{UnixNanos, api};
use crate::metrics::text::{Kind, Labels, Metric, Text, whole};

/// Something that has a cgroup, with its labels.
struct Row<'a> {
    container: &'a str,
    id: String,
    image: &'a str,
    name: &'a str,
    namespace: &'a str,
    pod: &'a str,
    started: f64,
    stats: Stats,
    written: Option<u64>,
    limits: Option<api::LinuxContainerResources>,
}

impl Row<'_> {
    fn show(&self, metric: &mut Metric<'_>, more: Labels<'_>, value: f64) {
        let all: [(&'static str, &str); 6] = [
            ("container", self.container),
            ("id", &self.id),
            ("image", self.image),
            ("name", self.name),
            ("namespace", self.namespace),
            ("pod", self.pod),
        ];
        metric.sample(&[&all, more].concat(), value);
    }
}

fn rows<'a>(usage: &'a Usage, policy: &Policy) -> Vec<Row<'a>> {
    let none = |id: &str, started, stats| Row {
        container: "",
        id: id.to_owned(),
        image: "",
        name: "",
        namespace: "",
        pod: "",
        started,
        stats,
        written: None,
        limits: None,
    };
    let booted = whole(u64::try_from(usage.machine.booted).unwrap_or_default());
    let mut rows = vec![none("/", booted, usage.machine.stats)];
    for pod in &usage.pods {
        let (namespace, name) = (&*pod.pod.name.namespace, &*pod.pod.name.name);
        rows.push(Row { namespace, pod: name, ..none(&pod.cgroup, seconds(pod.started), pod.stats) });
        rows.extend(pod.containers.iter().map(|c| {
            let spec = pod.pod.container(&c.name);
            Row {
                container: &c.name,
                image: &c.image,
                name: &c.id,
                namespace,
                pod: name,
                written: c.rootfs.bytes,
                limits: spec.map(|spec| container::resources(&pod.pod, &spec, policy)),
                ..none(&format!("{}/{}", pod.cgroup, c.id), seconds(c.started), c.stats)
            }
        }));
    }
    rows
}

pub fn cadvisor(usage: &Usage, policy: &Policy) -> String {
    let mut text = Text::default();
    let rows = rows(usage, policy);
    stats(&mut text, &rows);
    limits(&mut text, &rows);
    network(&mut text, usage);
    let now = usage.at.as_second();
    let mut seen = text.metric("container_last_seen", Kind::Gauge, "When it was last seen, in seconds since 1970.");
    rows.iter().for_each(|row| row.show(&mut seen, &[], whole(u64::try_from(now).unwrap_or_default())));
    let error = f64::from(u8::from(usage.incomplete));
    text.metric("container_scrape_error", Kind::Gauge, "1 if not all could be read.").sample(&[], error);
    let machine = &usage.machine;
    text.metric("machine_cpu_cores", Kind::Gauge, "CPUs that the machine has.").sample(&[], whole(machine.cpus));
    text.metric("machine_memory_bytes", Kind::Gauge, "Memory that the machine has.").sample(&[], whole(machine.memory));
    text.into_string()
}

fn stats(text: &mut Text, rows: &[Row<'_>]) {
    let mut cpu = text.metric("container_cpu_usage_seconds_total", Kind::Counter, "Time on CPUs.");
    for row in rows {
        if let Some(nanos) = row.stats.cpu {
            row.show(&mut cpu, &[("cpu", "total")], nanos_to_seconds(nanos));
        }
    }
    type Part = (&'static str, &'static str, fn(&Memory) -> u64);
    let memory: [Part; 3] = [
        ("container_memory_usage_bytes", "Memory in use, caches included.", |m| m.usage),
        ("container_memory_working_set_bytes", "Memory that can't be taken away without need.", |m| m.working_set),
        ("container_memory_rss", "Anonymous memory in bytes.", |m| m.rss),
    ];
    for (name, help, of) in memory {
        let mut metric = text.metric(name, Kind::Gauge, help);
        for row in rows {
            if let Some(memory) = &row.stats.memory {
                row.show(&mut metric, &[], whole(of(memory)));
            }
        }
    }
    let mut faults = text.metric("container_memory_failures_total", Kind::Counter, "Page faults.");
    for row in rows {
        if let Some(memory) = &row.stats.memory {
            for (kind, count) in [("pgfault", memory.page_faults), ("pgmajfault", memory.major_page_faults)] {
                row.show(&mut faults, &[("failure_type", kind), ("scope", "hierarchy")], whole(count));
            }
        }
    }
    let mut threads = text.metric("container_threads", Kind::Gauge, "Processes and threads.");
    for row in rows {
        if let Some(pids) = row.stats.pids {
            row.show(&mut threads, &[], whole(pids));
        }
    }
    let mut started = text.metric("container_start_time_seconds", Kind::Gauge, "When it was started, since 1970.");
    rows.iter().for_each(|row| row.show(&mut started, &[], row.started));
    let mut written = text.metric("container_fs_usage_bytes", Kind::Gauge, "What it has written outside of volumes.");
    for row in rows {
        if let Some(bytes) = row.written {
            row.show(&mut written, &[], whole(bytes));
        }
    }
}

/// What containers are held to.
fn limits(text: &mut Text, rows: &[Row<'_>]) {
    type Part = (&'static str, &'static str, fn(&api::LinuxContainerResources) -> Option<i64>);
    let all: [Part; 4] = [
        ("container_spec_cpu_period", "Period of the CPU quota in microseconds.", |r| Some(r.cpu_period)),
        ("container_spec_cpu_quota", "Microseconds of CPU in a period.", |r| Some(r.cpu_quota).filter(|n| *n > 0)),
        ("container_spec_cpu_shares", "Weight when CPUs are scarce.", |r| Some(r.cpu_shares)),
        ("container_spec_memory_limit_bytes", "Memory that it may use; 0 is no limit.", |r| {
            Some(r.memory_limit_in_bytes)
        }),
    ];
    for (name, help, of) in all {
        let mut metric = text.metric(name, Kind::Gauge, help);
        for row in rows {
            if let Some(value) = row.limits.as_ref().and_then(of) {
                row.show(&mut metric, &[], whole(u64::try_from(value).unwrap_or_default()));
            }
        }
    }
}

fn network(text: &mut Text, usage: &Usage) {
    type Part = (&'static str, &'static str, fn(&Traffic) -> u64);
    let received: [Part; 4] = [
        ("container_network_receive_bytes_total", "Bytes received.", |t| t.bytes),
        ("container_network_receive_packets_total", "Packets received.", |t| t.packets),
        ("container_network_receive_errors_total", "Errors while receiving.", |t| t.errors),
        ("container_network_receive_packets_dropped_total", "Packets dropped while receiving.", |t| t.dropped),
    ];
    let sent: [Part; 4] = [
        ("container_network_transmit_bytes_total", "Bytes sent.", |t| t.bytes),
        ("container_network_transmit_packets_total", "Packets sent.", |t| t.packets),
        ("container_network_transmit_errors_total", "Errors while sending.", |t| t.errors),
        ("container_network_transmit_packets_dropped_total", "Packets dropped while sending.", |t| t.dropped),
    ];
    let parts = received.into_iter().map(|part| (part, true)).chain(sent.into_iter().map(|part| (part, false)));
    for ((name, help, of), is_received) in parts {
        let mut metric = text.metric(name, Kind::Counter, help);
        for (labels, interface) in interfaces(usage) {
            let traffic = if is_received { &interface.received } else { &interface.sent };
            metric.sample(&labels, whole(of(traffic)));
        }
    }
}

/// Of the node, and of each pod with a network of its own.
fn interfaces(usage: &Usage) -> impl Iterator<Item = (Vec<(&'static str, &str)>, &super::Interface)> {
    let node = usage.machine.network.iter().map(|interface| {
        (vec![("id", "/"), ("interface", interface.name.as_str()), ("namespace", ""), ("pod", "")], interface)
    });
    let pods = usage.pods.iter().flat_map(|pod| {
        let (namespace, name) = (&*pod.pod.name.namespace, &*pod.pod.name.name);
        pod.network.iter().flatten().map(move |interface| {
            let id = pod.cgroup.as_str();
            let labels = vec![("id", id), ("interface", &interface.name), ("namespace", namespace), ("pod", name)];
            (labels, interface)
        })
    });
    node.chain(pods)
}

pub fn resource(usage: &Usage) -> String {
    let mut text = Text::default();
    let at = usage.at.as_millisecond();
    let node = &usage.machine.stats;
    let mut metric = text.metric("node_cpu_usage_seconds_total", Kind::Counter, "Time on CPUs of the node.");
    if let Some(cpu) = node.cpu {
        metric.sample_at(&[], nanos_to_seconds(cpu), at);
    }
    let mut metric = text.metric("node_memory_working_set_bytes", Kind::Gauge, "Working set of the node.");
    if let Some(memory) = &node.memory {
        metric.sample_at(&[], whole(memory.working_set), at);
    }
    let mut metric = text.metric("pod_cpu_usage_seconds_total", Kind::Counter, "Time on CPUs of the pod.");
    for (labels, pod) in pods(usage) {
        if let Some(cpu) = pod.stats.cpu {
            metric.sample_at(&labels, nanos_to_seconds(cpu), at);
        }
    }
    let mut metric = text.metric("pod_memory_working_set_bytes", Kind::Gauge, "Working set of the pod.");
    for (labels, pod) in pods(usage) {
        if let Some(memory) = &pod.stats.memory {
            metric.sample_at(&labels, whole(memory.working_set), at);
        }
    }
    let mut metric = text.metric("container_cpu_usage_seconds_total", Kind::Counter, "Time on CPUs of the container.");
    for (labels, container) in containers(usage) {
        if let Some(cpu) = container.stats.cpu {
            metric.sample_at(&labels, nanos_to_seconds(cpu), at);
        }
    }
    let mut metric = text.metric("container_memory_working_set_bytes", Kind::Gauge, "Working set of the container.");
    for (labels, container) in containers(usage) {
        if let Some(memory) = &container.stats.memory {
            metric.sample_at(&labels, whole(memory.working_set), at);
        }
    }
    let mut metric = text.metric("container_start_time_seconds", Kind::Gauge, "When it was started, since 1970.");
    for (labels, container) in containers(usage) {
        metric.sample(&labels, seconds(container.started));
    }
    let error = f64::from(u8::from(usage.incomplete));
    text.metric("resource_scrape_error", Kind::Gauge, "1 if not all could be read.").sample(&[], error);
    text.into_string()
}

fn pods(usage: &Usage) -> impl Iterator<Item = ([(&'static str, &str); 2], &PodUsage)> {
    usage.pods.iter().map(|pod| ([("namespace", &*pod.pod.name.namespace), ("pod", &*pod.pod.name.name)], pod))
}

fn containers(usage: &Usage) -> impl Iterator<Item = ([(&'static str, &str); 3], &ContainerStats)> {
    pods(usage).flat_map(|([namespace, name], pod)| {
        pod.containers.iter().map(move |c| ([("container", &*c.name), namespace, name], c))
    })
}

fn nanos_to_seconds(nanos: u64) -> f64 {
    whole(nanos) / 1e9
}

#[allow(clippy::cast_precision_loss)]
fn seconds(at: UnixNanos) -> f64 {
    at.0 as f64 / 1e9
}

//! `/metrics`: what the agent counts of itself and how it is. `/metrics/probes`: what probes said.

use std::fs;

use prometheus_client::encoding::prometheus_text;
use prometheus_client::registry::Registry;

use super::Parts;
use crate::cri::ContainerState;
use crate::metrics::METRICS;
use crate::metrics::text::{Kind, Text, whole};
use crate::probe::{Histogram, ProbeMetrics, Snapshot};
use crate::server::http::Response;

const FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";
pub fn page(text: String) -> Response {
    Response::new(200, FORMAT, text.into_bytes())
}

pub fn own(parts: &Parts) -> Response {
    let mut registry = Registry::default();
    METRICS.register(&mut registry);
    let mut counted = String::new();
    if let Err(e) = prometheus_text::encode(&mut counted, &registry) {
        return Response::text(500, format!("writing the metrics: {e}\n"));
    }
    let mut text = Text::default();
    node(&mut text, parts);
    process(&mut text, parts.started);
    page(counted + &text.into_string())
}

fn node(text: &mut Text, parts: &Parts) {
    let help = "The node's name; always 1.";
    text.metric("kubelet_node_name", Kind::Gauge, help).sample(&[("node", &parts.node_name)], 1.0);
    let version = concat!("v", env!("CARGO_PKG_VERSION"), "+cleat");
    let platform = format!("linux/{}", architecture());
    let mut build = text.metric("kubernetes_build_info", Kind::Gauge, "The version of the agent; always 1.");
    build.sample(&[("git_version", version), ("platform", &platform)], 1.0);
    let wanted = parts.store.list().iter().filter(|stored| !stored.ending).count();
    let mut desired = text.metric("kubelet_desired_pods", Kind::Gauge, "Pods that are to run.");
    desired.sample(&[("static", "true")], whole(wanted as u64));

    let cache = &parts.runtime.cache;
    let observed: Vec<_> = cache.uids().into_iter().filter_map(|uid| Some(cache.get(&uid)?.0)).collect();
    let running = observed.iter().filter(|o| o.sandboxes.iter().any(|s| s.sandbox.ready)).count();
    let mut pods = text.metric("kubelet_running_pods", Kind::Gauge, "Pods with a sandbox that is ready.");
    pods.sample(&[], whole(running as u64));
    let states = [
        (ContainerState::Created, "created"),
        (ContainerState::Exited, "exited"),
        (ContainerState::Running, "running"),
        (ContainerState::Unknown, "unknown"),
    ];
    let mut containers = text.metric("kubelet_running_containers", Kind::Gauge, "Containers by their state.");
    for (state, name) in states {
        let count = observed.iter().flat_map(|o| &o.containers).filter(|c| c.state() == state).count();
        if count > 0 {
            containers.sample(&[("container_state", name)], whole(count as u64));
        }
    }
}

/// As Go names it.
fn architecture() -> &'static str {
    match std::env::consts::ARCH {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        other => other,
    }
}

/// The names that all of Prometheus' libraries have.
fn process(text: &mut Text, started: i64) {
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let limits = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let (cpu, virtual_memory, resident) = read_stat(&stat, rustix::param::page_size() as u64);
    let mut gauge = |name, help, value: Option<u64>| {
        if let Some(value) = value {
            text.metric(name, Kind::Gauge, help).sample(&[], whole(value));
        }
    };
    gauge("process_start_time_seconds", "When the agent was started, since 1970.", u64::try_from(started).ok());
    gauge("process_resident_memory_bytes", "Memory of the agent that is in use.", resident);
    gauge("process_virtual_memory_bytes", "Addresses that the agent has taken.", virtual_memory);
    let open = fs::read_dir("/proc/self/fd").map(|entries| entries.count() as u64).ok();
    gauge("process_open_fds", "Open files of the agent.", open);
    gauge("process_max_fds", "Files that the agent may have open.", max_files(&limits));
    if let Some(ticks) = cpu {
        // A hundred of them are a second.
        let mut metric = text.metric("process_cpu_seconds_total", Kind::Counter, "Time of the agent on CPUs.");
        metric.sample(&[], whole(ticks) / 100.0);
    }
}

/// Ticks of CPU, bytes of addresses, bytes of memory.
fn read_stat(stat: &str, page: u64) -> (Option<u64>, Option<u64>, Option<u64>) {
    // The name, in parentheses, may hold anything.
    let fields: Vec<&str> = stat.rsplit_once(')').map_or(Vec::new(), |(_, rest)| rest.split_whitespace().collect());
    let number = |i: usize| fields.get(i).and_then(|field| field.parse::<u64>().ok());
    let cpu = number(11).zip(number(12)).map(|(user, system)| user + system);
    (cpu, number(20), number(21).map(|pages| pages.saturating_mul(page)))
}

fn max_files(limits: &str) -> Option<u64> {
    let line = limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
    line.split_whitespace().next()?.parse().ok()
}

pub fn probes(snapshot: &Snapshot) -> Response {
    let mut text = Text::default();
    let help = "Results of probes, by container and result.";
    let mut total = text.metric("prober_probe_total", Kind::Counter, help);
    for probe in &snapshot.probes {
        let results = [("successful", probe.successful), ("failed", probe.failed), ("unknown", probe.unknown)];
        for (result, count) in results.into_iter().filter(|(_, count)| *count > 0) {
            let more = [("pod_uid", probe.uid.as_str()), ("result", result)];
            total.sample(&[&labels(probe)[..], &more].concat(), whole(count));
        }
    }
    let help = "Duration of probes that succeeded.";
    let mut durations = text.metric("prober_probe_duration_seconds", Kind::Histogram, help);
    for probe in snapshot.probes.iter().filter(|probe| probe.durations.count() > 0) {
        let (buckets, all) = parts(&probe.durations);
        durations.histogram(&labels(probe), buckets, all);
    }
    let help = "How much later than due probes began.";
    let (buckets, all) = parts(&snapshot.lateness);
    text.metric("cleat_probe_lateness_seconds", Kind::Histogram, help).histogram(&[], buckets, all);
    page(text.into_string())
}

fn labels(probe: &ProbeMetrics) -> [(&'static str, &str); 4] {
    [
        ("probe_type", probe.kind.as_str()),
        ("container", &probe.container),
        ("pod", &probe.pod.name),
        ("namespace", &probe.pod.namespace),
    ]
}

fn parts(histogram: &Histogram) -> (impl Iterator<Item = (f64, u64)>, (u64, f64)) {
    let buckets = histogram.cumulative().map(|(ms, count)| (whole(ms) / 1000.0, count));
    (buckets, (histogram.count(), histogram.sum().as_secs_f64()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::time::Duration;

    use crate::pod::{PodName, PodUid};
    use crate::probe::{DURATION_BUCKETS, Kind as ProbeKind, LATENESS_BUCKETS};

    #[test]
    fn of_the_process() {
        let stat = "12 (a ) b) S 1 2 3 4 5 6 7 8 9 10 100 25 0 0 20 0 9 0 777 1000000 50 18446744073709551615";
        assert_eq!(read_stat(stat, 4096), (Some(125), Some(1_000_000), Some(204_800)));
        assert_eq!(read_stat("", 4096), (None, None, None));
        let limits = "Limit   Soft Limit  Hard Limit  Units\nMax open files            1024                 4096                 files\n";
        assert_eq!((max_files(limits), max_files("")), (Some(1024), None));
    }

    #[test]
    fn what_probes_said() {
        let mut durations = Histogram::new(&DURATION_BUCKETS);
        durations.observe(Duration::from_millis(7));
        let probe = ProbeMetrics {
            kind: ProbeKind::Liveness,
            container: Arc::from("main"),
            pod: PodName::new("ns", "web"),
            uid: PodUid::new("uid"),
            successful: 1,
            failed: 2,
            unknown: 0,
            durations,
        };
        let snapshot = Snapshot { probes: vec![probe], lateness: Histogram::new(&LATENESS_BUCKETS) };
        let text = String::from_utf8(probes(&snapshot).body).expect("is text");
        let labels = "probe_type=\"Liveness\",container=\"main\",pod=\"web\",namespace=\"ns\"";
        for line in [
            format!("prober_probe_total{{{labels},pod_uid=\"uid\",result=\"successful\"}} 1\n"),
            format!("prober_probe_total{{{labels},pod_uid=\"uid\",result=\"failed\"}} 2\n"),
            format!("prober_probe_duration_seconds_bucket{{{labels},le=\"0.005\"}} 0\n"),
            format!("prober_probe_duration_seconds_bucket{{{labels},le=\"0.01\"}} 1\n"),
            format!("prober_probe_duration_seconds_sum{{{labels}}} 0.007\n"),
        ] {
            assert!(text.contains(&line), "{line} is not in\n{text}");
        }
        assert!(!text.contains("result=\"unknown\""));
    }
}

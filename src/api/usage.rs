//! metrics.k8s.io, from which `kubectl top` tells what the node and its pods use.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Value, json};

use super::object::seconds;
use super::resource::Resource;
use crate::cgroup::stats::Stats;
use crate::server::kubelet::Parts;
use crate::server::kubelet::stats::{self, CLOSE, PodUsage, Rate, Usage};

pub const GROUP: &str = "metrics.k8s.io";
pub const VERSION: &str = "metrics.k8s.io/v1beta1";

/// What one container, or the node, uses now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Used {
    cpu: Rate,
    /// Bytes.
    memory: u64,
}

/// The metrics of all nodes or pods. CPU is told for the time since somebody last asked; when nobody
/// did, it is measured now, for somewhat longer than a second.
pub fn all(parts: &Parts, resource: Resource, node: &Value) -> Vec<Value> {
    match measure(parts, resource, node) {
        Ok(all) => all,
        Err(_) => {
            std::thread::sleep(CLOSE + Duration::from_millis(50));
            measure(parts, resource, node).unwrap_or_else(|known| known)
        }
    }
}

/// # Errors
/// With those that are known, when of some the rate isn't.
fn measure(parts: &Parts, resource: Resource, node: &Value) -> Result<Vec<Value>, Vec<Value>> {
    let usage = stats::read(parts, false);
    let now = Instant::now();
    let used = |id: &str, stats: Stats| {
        let memory = stats.memory?.working_set;
        Some(Used { cpu: stats::rate(parts, id, stats.cpu, now)?, memory })
    };
    let wanted;
    let all: Vec<Value> = match resource {
        Resource::Nodes => {
            wanted = 1;
            used("/", usage.machine.stats).map(|used| of_node(node, used, usage.at)).into_iter().collect()
        }
        _ => {
            wanted = usage.pods.iter().filter(|pod| !pod.containers.is_empty()).count();
            usage.pods.iter().filter_map(|pod| of_pod(pod, &usage, used)).collect()
        }
    };
    if all.len() == wanted { Ok(all) } else { Err(all) }
}

/// `None` unless all its containers are known.
fn of_pod(pod: &PodUsage, usage: &Usage, used: impl Fn(&str, Stats) -> Option<Used>) -> Option<Value> {
    // Each of them is read, so that all are known the next time.
    let all: Vec<_> = pod.containers.iter().map(|c| (&*c.name, used(&c.id, c.stats))).collect();
    let all: Vec<(&str, Used)> = all.into_iter().map(|(name, used)| Some((name, used?))).collect::<Option<_>>()?;
    let over = all.iter().map(|(_, used)| used.cpu.over).min()?;
    let containers: Vec<Value> =
        all.iter().map(|(name, used)| json!({"name": name, "usage": amounts(*used)})).collect();
    let name = &pod.pod.name;
    let mut metadata = json!({
        "name": &*name.name, "namespace": &*name.namespace, "creationTimestamp": seconds(usage.at),
    });
    if let Some(labels) = &pod.pod.meta.labels {
        metadata["labels"] = json!(labels);
    }
    Some(json!({
        "kind": "PodMetrics", "apiVersion": VERSION, "metadata": metadata,
        "timestamp": seconds(usage.at), "window": window(over), "containers": containers,
    }))
}

fn of_node(node: &Value, used: Used, at: Timestamp) -> Value {
    let metadata = json!({
        "name": node["metadata"]["name"], "labels": node["metadata"]["labels"], "creationTimestamp": seconds(at),
    });
    json!({
        "kind": "NodeMetrics", "apiVersion": VERSION, "metadata": metadata,
        "timestamp": seconds(at), "window": window(used.cpu.over), "usage": amounts(used),
    })
}

fn amounts(used: Used) -> Value {
    json!({"cpu": format!("{}n", used.cpu.per_second), "memory": format!("{}Ki", used.memory >> 10)})
}

/// As Go writes durations.
fn window(time: Duration) -> String {
    format!("{}s", time.as_millis() as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::cri::{self, UnixNanos};
    use crate::pod::testing;
    use crate::server::kubelet::stats::{ContainerStats, Machine};

    fn container(name: &str) -> ContainerStats {
        ContainerStats {
            id: format!("id-{name}"),
            name: Arc::from(name),
            image: String::new(),
            started: UnixNanos::default(),
            stats: Stats::default(),
            rootfs: cri::Usage::default(),
            logs: 0,
        }
    }

    fn used(ms: u64) -> Used {
        Used { cpu: Rate { per_second: 1_500_000, over: Duration::from_millis(ms) }, memory: 3 << 20 }
    }

    #[test]
    fn what_is_told() {
        let at = "2026-01-01T00:00:05.9Z".parse().expect("a time");
        let mut pod = testing::pod("web", testing::spec(&[], &["", ""]));
        pod.meta.labels = Some([("app".to_owned(), "web".to_owned())].into());
        let pod = PodUsage {
            pod: Arc::new(pod),
            started: UnixNanos::default(),
            cgroup: String::new(),
            stats: Stats::default(),
            network: None,
            containers: vec![container("a"), container("b")],
            volumes: Vec::new(),
        };
        let usage = Usage { at, machine: Machine::default(), all_pods: None, pods: Vec::new(), incomplete: false };
        let told =
            of_pod(&pod, &usage, |id, _| Some(used(if id == "id-a" { 30_000 } else { 1050 }))).expect("is known");
        assert_eq!((&told["window"], &told["timestamp"]), (&"1.05s".into(), &"2026-01-01T00:00:06Z".into()));
        assert_eq!(told["containers"][1], json!({"name": "b", "usage": {"cpu": "1500000n", "memory": "3072Ki"}}));
        assert_eq!(told["metadata"]["labels"]["app"], "web");
        assert_eq!(of_pod(&pod, &usage, |id, _| (id == "id-a").then(|| used(1))), None);
        let node = json!({"metadata": {"name": "n", "labels": {"a": "b"}, "uid": "u"}});
        let told = of_node(&node, used(2000), at);
        assert_eq!((&told["metadata"]["name"], &told["window"]), (&"n".into(), &"2s".into()));
        assert_eq!(told["usage"]["memory"], "3072Ki");
    }
}

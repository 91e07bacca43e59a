//! `/stats/summary`: the kubelet's summary, stats/v1alpha1
//! (staging/src/k8s.io/kubelet/pkg/apis/stats/v1alpha1/types.go).

use std::time::Instant;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::node::Traffic;
use super::{ContainerStats, Filesystem, Interface, PodUsage, Usage, VolumeUsage, rate, read};
use crate::cgroup::stats::Stats;
use crate::cri::UnixNanos;
use crate::server::http::{Query, Response};
use crate::server::kubelet::Parts;

/// With `only_cpu_and_memory`, nothing of disks and networks.
pub fn summary(parts: &Parts, query: &Query) -> Response {
    let all = !query.flag("only_cpu_and_memory");
    let usage = read(parts, all);
    let show = Show { parts, at: usage.at.to_string(), now: Instant::now(), all };
    let pods: Vec<Value> = usage.pods.iter().map(|pod| show.pod(pod)).collect();
    Response::json(&json!({"node": show.node(&usage), "pods": pods}))
}

struct Show<'a> {
    parts: &'a Parts,
    at: String,
    now: Instant,
    all: bool,
}

impl Show<'_> {
    fn node(&self, usage: &Usage) -> Value {
        let machine = &usage.machine;
        let mut node = self.cpu_and_memory("/", machine.stats);
        if let Some(memory) = node.get_mut("memory") {
            let used = machine.stats.memory.map_or(0, |m| m.working_set);
            memory["availableBytes"] = machine.memory.saturating_sub(used).into();
        }
        node.insert("nodeName".to_owned(), self.parts.node_name.as_str().into());
        let booted = Timestamp::from_second(machine.booted).unwrap_or_default();
        node.insert("startTime".to_owned(), booted.to_string().into());
        let mut pods = self.cpu_and_memory("pods", usage.all_pods.unwrap_or_default());
        pods.insert("name".to_owned(), "pods".into());
        node.insert("systemContainers".to_owned(), json!([pods]));
        if self.all {
            node.insert("network".to_owned(), self.network(&machine.network));
            node.insert(
                "rlimit".to_owned(),
                json!({"time": self.at, "maxpid": machine.max_pids, "curproc": machine.pids}),
            );
            if let Some(fs) = Filesystem::of(&self.parts.root_dir) {
                node.insert("fs".to_owned(), self.filesystem(fs, None, None));
            }
            if let Some(images) = self.images() {
                node.insert("runtime".to_owned(), json!({"imageFs": images}));
            }
        }
        Value::Object(node)
    }

    /// The place where the runtime keeps images.
    fn images(&self) -> Option<Value> {
        let places = self.parts.inspect.image_usage();
        let places = places.inspect_err(|e| log::warn!("asking where images are: {e}")).ok()?;
        let (path, usage) = places.into_iter().next()?;
        let fs = Filesystem::of(std::path::Path::new(&path))?;
        Some(self.filesystem(fs, usage.bytes, usage.inodes))
    }

    fn pod(&self, usage: &PodUsage) -> Value {
        let name = &usage.pod.name;
        let mut pod = self.cpu_and_memory(usage.pod.uid.as_str(), usage.stats);
        pod.insert(
            "podRef".to_owned(),
            json!({"name": &*name.name, "namespace": &*name.namespace, "uid": usage.pod.uid.as_str()}),
        );
        pod.insert("startTime".to_owned(), time(usage.started));
        let containers: Vec<Value> = usage.containers.iter().map(|c| self.container(c)).collect();
        pod.insert("containers".to_owned(), containers.into());
        if let Some(pids) = usage.stats.pids {
            pod.insert("process_stats".to_owned(), json!({"process_count": pids}));
        }
        if self.all {
            if let Some(interfaces) = &usage.network {
                pod.insert("network".to_owned(), self.network(interfaces));
            }
            if let Some(fs) = Filesystem::of(&self.parts.root_dir) {
                let bytes = |c: &ContainerStats| c.logs.saturating_add(c.rootfs.bytes.unwrap_or(0));
                let on_disk = usage.volumes.iter().filter(|volume| !volume.is_mount).map(|volume| volume.used.bytes);
                let used = usage.containers.iter().map(bytes).chain(on_disk).sum();
                pod.insert("ephemeral-storage".to_owned(), self.filesystem(fs, Some(used), None));
            }
        }
        if !usage.volumes.is_empty() {
            let volume = |volume: &VolumeUsage| {
                let used = volume.used;
                let mut value = self.filesystem(volume.filesystem, Some(used.bytes), Some(used.inodes));
                value["name"] = volume.name.as_str().into();
                value
            };
            pod.insert("volume".to_owned(), usage.volumes.iter().map(volume).collect());
        }
        Value::Object(pod)
    }

    fn container(&self, usage: &ContainerStats) -> Value {
        let mut container = self.cpu_and_memory(&usage.id, usage.stats);
        container.insert("name".to_owned(), (*usage.name).into());
        container.insert("startTime".to_owned(), time(usage.started));
        if self.all {
            let rootfs = json!({"time": self.at, "usedBytes": usage.rootfs.bytes, "inodesUsed": usage.rootfs.inodes});
            container.insert("rootfs".to_owned(), rootfs);
            container.insert("logs".to_owned(), json!({"time": self.at, "usedBytes": usage.logs}));
        }
        Value::Object(container)
    }

    fn cpu_and_memory(&self, id: &str, stats: Stats) -> Map<String, Value> {
        let mut map = Map::new();
        if let Some(cpu) = stats.cpu {
            let mut value = json!({"time": self.at, "usageCoreNanoSeconds": cpu});
            if let Some(rate) = rate(self.parts, id, stats.cpu, self.now) {
                value["usageNanoCores"] = rate.per_second.into();
            }
            map.insert("cpu".to_owned(), value);
        }
        if let Some(memory) = stats.memory {
            let mut value = json!({
                "time": self.at,
                "usageBytes": memory.usage,
                "workingSetBytes": memory.working_set,
                "rssBytes": memory.rss,
                "pageFaults": memory.page_faults,
                "majorPageFaults": memory.major_page_faults,
            });
            if let Some(limit) = memory.limit {
                value["availableBytes"] = limit.saturating_sub(memory.working_set).into();
            }
            map.insert("memory".to_owned(), value);
        }
        map
    }

    /// The first interface stands for all, as with the kubelet.
    fn network(&self, interfaces: &[Interface]) -> Value {
        let of = |interface: &Interface| {
            let Interface { name, received, sent } = interface;
            let [Traffic { bytes: rx, errors: rx_errors, .. }, Traffic { bytes: tx, errors: tx_errors, .. }] =
                [received, sent];
            json!({"name": name, "rxBytes": rx, "rxErrors": rx_errors, "txBytes": tx, "txErrors": tx_errors})
        };
        let first = interfaces.iter().find(|interface| interface.name == "eth0").or(interfaces.first());
        let mut value = first.map_or(json!({}), of);
        value["time"] = self.at.as_str().into();
        value["interfaces"] = interfaces.iter().map(of).collect();
        value
    }

    fn filesystem(&self, fs: Filesystem, used: Option<u64>, inodes_used: Option<u64>) -> Value {
        json!({
            "time": self.at,
            "availableBytes": fs.available,
            "capacityBytes": fs.capacity,
            "usedBytes": used.unwrap_or(fs.used),
            "inodesFree": fs.inodes_free,
            "inodes": fs.inodes,
            "inodesUsed": inodes_used.unwrap_or(fs.inodes.saturating_sub(fs.inodes_free)),
        })
    }
}

fn time(nanos: UnixNanos) -> Value {
    let seconds = Timestamp::from_second(nanos.0.div_euclid(1_000_000_000)).unwrap_or_default();
    seconds.to_string().into()
}

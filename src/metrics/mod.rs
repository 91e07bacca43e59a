//! What the agent counts of itself, under the kubelet's names where the meaning is the same
//! (pkg/kubelet/metrics/metrics.go). One set for the process, so that counting takes one line where
//! something happens; read by the server alone.

pub mod text;

use std::sync::LazyLock;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

pub static METRICS: LazyLock<Metrics> = LazyLock::new(Metrics::default);

/// Seconds; the usual buckets of Prometheus' libraries.
const DURATIONS: [f64; 11] = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0];
/// For starts of pods, which take longer.
const STARTS: [f64; 14] = [0.1, 0.25, 0.5, 1.0, 2.0, 3.0, 5.0, 10.0, 20.0, 45.0, 120.0, 300.0, 900.0, 3600.0];

fn durations() -> Histogram {
    Histogram::new(DURATIONS)
}

type Durations<L> = Family<L, Histogram, fn() -> Histogram>;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Operation {
    operation_type: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ContainerType {
    /// `container`, `init_container`, `ephemeral_container`
    pub container_type: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct FailedStart {
    pub container_type: &'static str,
    /// The reason that the container's status shows.
    pub code: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct HttpRequest {
    pub method: &'static str,
    pub path: &'static str,
    /// `readonly` or `readwrite`
    pub server_type: &'static str,
    /// `true` or `false`
    pub long_running: &'static str,
}

pub struct Metrics {
    runtime_operations: Family<Operation, Counter>,
    runtime_errors: Family<Operation, Counter>,
    runtime_durations: Durations<Operation>,
    pub pleg_relist_duration: Histogram,
    pub pleg_relist_interval: Histogram,
    pod_worker_durations: Durations<Operation>,
    /// From the first sight of a pod to the first time that it is seen to run.
    pub pod_start_duration: Histogram,
    pub started_pods: Counter,
    pub started_pods_errors: Counter,
    pub started_containers: Family<ContainerType, Counter>,
    pub started_containers_errors: Family<FailedStart, Counter>,
    pub http_requests: Family<HttpRequest, Counter>,
    pub http_durations: Durations<HttpRequest>,
    pub http_inflight: Family<HttpRequest, Gauge>,
    /// When the node last began to shut down, and when it was through with its pods; 0: never.
    pub shutdown_start: Seconds,
    pub shutdown_end: Seconds,
}

/// Seconds since 1970.
type Seconds = Gauge<f64, AtomicU64>;

impl Default for Metrics {
    fn default() -> Metrics {
        Metrics {
            runtime_operations: Family::default(),
            runtime_errors: Family::default(),
            runtime_durations: Family::new_with_constructor(durations),
            pleg_relist_duration: durations(),
            pleg_relist_interval: durations(),
            pod_worker_durations: Family::new_with_constructor(durations),
            pod_start_duration: Histogram::new(STARTS),
            started_pods: Counter::default(),
            started_pods_errors: Counter::default(),
            started_containers: Family::default(),
            started_containers_errors: Family::default(),
            http_requests: Family::default(),
            http_durations: Family::new_with_constructor(durations),
            http_inflight: Family::default(),
            shutdown_start: Gauge::default(),
            shutdown_end: Gauge::default(),
        }
    }
}

impl Metrics {
    pub fn register(&self, registry: &mut Registry) {
        let r = registry;
        r.register("kubelet_runtime_operations", "Calls to the container runtime", self.runtime_operations.clone());
        let (name, help) = ("kubelet_runtime_operations_errors", "Calls to the container runtime that failed");
        r.register(name, help, self.runtime_errors.clone());
        let (name, help) = ("kubelet_runtime_operations_duration_seconds", "Duration of calls to the runtime");
        r.register(name, help, self.runtime_durations.clone());
        let (name, help) = ("kubelet_pleg_relist_duration_seconds", "Duration of listing the runtime");
        r.register(name, help, self.pleg_relist_duration.clone());
        let (name, help) = ("kubelet_pleg_relist_interval_seconds", "Time between listings of the runtime");
        r.register(name, help, self.pleg_relist_interval.clone());
        let (name, help) = ("kubelet_pod_worker_duration_seconds", "Duration of a job of a pod");
        r.register(name, help, self.pod_worker_durations.clone());
        let (name, help) = ("kubelet_pod_start_duration_seconds", "Time from the first sight of a pod to its running");
        r.register(name, help, self.pod_start_duration.clone());
        r.register("kubelet_started_pods", "Sandboxes started or tried to start", self.started_pods.clone());
        let (name, help) = ("kubelet_started_pods_errors", "Sandboxes that could not be started");
        r.register(name, help, self.started_pods_errors.clone());
        r.register("kubelet_started_containers", "Containers started", self.started_containers.clone());
        let (name, help) = ("kubelet_started_containers_errors", "Containers that could not be started");
        r.register(name, help, self.started_containers_errors.clone());
        r.register("kubelet_http_requests", "Requests to the agent's ports", self.http_requests.clone());
        let (name, help) = ("kubelet_http_requests_duration_seconds", "Duration of requests to the agent's ports");
        r.register(name, help, self.http_durations.clone());
        let (name, help) = ("kubelet_http_inflight_requests", "Requests that are being answered");
        r.register(name, help, self.http_inflight.clone());
        let (name, help) = ("kubelet_graceful_shutdown_start_time_seconds", "When the last shutdown of the node began");
        r.register(name, help, self.shutdown_start.clone());
        let (name, help) = ("kubelet_graceful_shutdown_end_time_seconds", "When the last shutdown's pods had ended");
        r.register(name, help, self.shutdown_end.clone());
    }
}

/// A call to the runtime, by its name in the CRI, has ended.
pub fn runtime_operation(call: &'static str, took: Duration, ok: bool) {
    let operation = Operation { operation_type: operation(call) };
    METRICS.runtime_operations.get_or_create(&operation).inc();
    METRICS.runtime_durations.get_or_create(&operation).observe(took.as_secs_f64());
    if !ok {
        METRICS.runtime_errors.get_or_create(&operation).inc();
    }
}

/// A container was started, or could not be, for which `code` is the reason.
pub fn container_start(container_type: &'static str, code: Option<&'static str>) {
    match code {
        None => METRICS.started_containers.get_or_create(&ContainerType { container_type }).inc(),
        Some(code) => METRICS.started_containers_errors.get_or_create(&FailedStart { container_type, code }).inc(),
    };
}

/// A job of a pod has ended: `sync`, or `kill` for one that ends.
pub fn pod_worker(operation_type: &'static str, took: Duration) {
    METRICS.pod_worker_durations.get_or_create(&Operation { operation_type }).observe(took.as_secs_f64());
}

/// The kubelet's name of a call (pkg/kubelet/kuberuntime/instrumented_services.go).
fn operation(call: &'static str) -> &'static str {
    match call {
        "Version" => "version",
        "Status" => "status",
        "RunPodSandbox" => "run_podsandbox",
        "StopPodSandbox" => "stop_podsandbox",
        "RemovePodSandbox" => "remove_podsandbox",
        "PodSandboxStatus" => "podsandbox_status",
        "ListPodSandbox" => "list_podsandbox",
        "CreateContainer" => "create_container",
        "StartContainer" => "start_container",
        "StopContainer" => "stop_container",
        "RemoveContainer" => "remove_container",
        "ListContainers" => "list_containers",
        "ContainerStatus" => "container_status",
        "UpdateContainerResources" => "update_container",
        "ReopenContainerLog" => "reopen_container_log",
        "ExecSync" => "exec_sync",
        "Exec" => "exec",
        "Attach" => "attach",
        "PortForward" => "port_forward",
        "ListContainerStats" => "list_container_stats",
        "CheckpointContainer" => "checkpoint_container",
        "GetContainerEvents" => "get_container_events",
        "ListImages" => "list_images",
        "ImageStatus" => "image_status",
        "PullImage" => "pull_image",
        "RemoveImage" => "remove_image",
        "ImageFsInfo" => "image_fs_info",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_kinds() {
        runtime_operation("RunPodSandbox", Duration::from_millis(30), false);
        METRICS.started_containers.get_or_create(&ContainerType { container_type: "container" }).inc();
        let mut registry = Registry::default();
        METRICS.register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::prometheus_text::encode(&mut text, &registry).expect("is written");
        for line in [
            "# TYPE kubelet_runtime_operations_total counter",
            "# TYPE kubelet_started_pods_total counter",
            "# TYPE kubelet_pod_start_duration_seconds histogram",
        ] {
            assert!(text.lines().any(|l| l == line), "{line} is not in\n{text}");
        }
        for line in [
            "kubelet_runtime_operations_errors_total{operation_type=\"run_podsandbox\"} ",
            "kubelet_runtime_operations_duration_seconds_bucket{operation_type=\"run_podsandbox\",le=\"0.05\"} ",
            "kubelet_started_containers_total{container_type=\"container\"} ",
        ] {
            assert!(text.lines().any(|l| l.starts_with(line)), "{line} is not in\n{text}");
        }
    }
}

//! Files, flags and what was found on the machine, put together to a [`Config`]. Pure.

mod node;
mod server;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use crate::pod::quantity::Quantity;

use super::check::Check;
use super::duration::GoDuration;
use super::fault::{Fault, Origin};
use super::file::{self, Layer};
use super::flags::Flags;
use super::kubelet::{KubeletConfiguration, SERVED, SERVED_GATES, Strings};
use super::{
    Cgroup, CgroupDriver, Config, ContainerLog, CredentialProvider, DeadContainers, Dns, Error, HairpinMode, Image,
    Loaded, MemorySwap, ObjectChanges, Rate, StaticPodUrl, eviction, validate,
};

const DEFAULT_ROOT_DIR: &str = "/var/lib/cleat";
const DEFAULT_MANIFESTS: &str = "/etc/cleat/manifests";

/// What the machine says.
#[derive(Debug, Clone)]
pub(super) struct Machine {
    pub host_name: String,
    pub cpus: usize,
    /// The runtime's socket when none is configured.
    pub runtime_socket: PathBuf,
}

/// `layers` are in the order in which they are merged; with `--config`, the first is that file.
pub(super) fn resolve(layers: &[Layer], flags: &Flags, machine: &Machine) -> Result<Loaded, Error> {
    let main = !flags.own.config.is_empty();
    let mut k = file::merge(layers, main).map_err(|problem| {
        let fault = Fault { origin: Origin::Own, field: problem.field, message: problem.message };
        Error::Invalid(vec![fault])
    })?;
    k.settle();
    flags.apply(&mut k)?;
    let mut check = Check::new(layers, flags);
    validate::validate(&k, &mut check);
    let config = config(&k, flags, machine, !layers.is_empty(), &mut check);
    if !check.faults.is_empty() {
        check.faults.sort_by(|a, b| a.origin.cmp(&b.origin));
        return Err(Error::Invalid(check.faults));
    }
    let mut warnings = not_served(&k, layers, flags);
    if config.static_pod_path.is_none() && config.static_pod_url.is_none() && config.node.kubeconfig.is_none() {
        let message = "no source of pods is configured: set staticPodPath, staticPodURL or --kubeconfig";
        warnings.push(message.to_owned());
    }
    warnings.extend(server::open_to_all(&k, &config));
    Ok(Loaded { config, warnings })
}

/// A warning for each field and flag that is set to something that the agent doesn't do.
fn not_served(k: &KubeletConfiguration, layers: &[Layer], flags: &Flags) -> Vec<String> {
    let mut default = KubeletConfiguration::default();
    default.settle();
    let mut set: Vec<&str> = layers.iter().flat_map(Layer::fields).collect();
    set.extend(flags.fields().map(|field| field.split('.').next().unwrap_or(field)));
    set.sort_unstable();
    set.dedup();
    let (is, default) = (unserved(k), unserved(&default));
    let fields = set.into_iter().filter(|field| is.get(field) != default.get(field)).map(str::to_owned);
    let given = flags.without_field();
    let given = given.filter(|(name, why)| why.is_some() || !SERVED.contains(&format!("--{name}").as_str()));
    let known = |name: String| format!("{name} is known but not served yet; it is ignored");
    let flag = |(name, why): (&str, Option<&str>)| match why {
        Some(why) => format!("--{name} is ignored: {why}"),
        None => known(format!("--{name}")),
    };
    fields.map(known).chain(given.map(flag)).collect()
}

/// The configuration without what is served.
fn unserved(k: &KubeletConfiguration) -> serde_json::Value {
    let mut value = serde_json::to_value(k).unwrap_or_default();
    for field in SERVED {
        if let Some(slot) = value.pointer_mut(&format!("/{}", field.replace('.', "/"))) {
            slot.take();
        }
    }
    if let Some(gates) = value["featureGates"].as_object_mut() {
        gates.retain(|gate, _| !SERVED_GATES.contains(&gate.as_str()));
    }
    value
}

fn config(k: &KubeletConfiguration, flags: &Flags, machine: &Machine, files: bool, check: &mut Check) -> Config {
    let root_dir = root_dir(flags, check);
    let runtime_endpoint = check
        .socket("containerRuntimeEndpoint", &k.container_runtime_endpoint)
        .unwrap_or_else(|| machine.runtime_socket.clone());
    let image_endpoint =
        check.socket("imageServiceEndpoint", &k.image_service_endpoint).unwrap_or_else(|| runtime_endpoint.clone());
    Config {
        node_name: node::name(flags, machine, check),
        node_ips: node::ips(flags, check),
        node: node::node(k, flags, check),
        workers: node::workers(flags, machine, check),
        verbosity: k.logging.verbosity,
        feature_gates: k.feature_gates.clone(),

        static_pod_path: static_pod_path(k, flags, files, check),
        file_check_frequency: check.positive("fileCheckFrequency", k.file_check_frequency),
        static_pod_url: static_pod_url(k, flags, check),
        http_check_frequency: check.positive("httpCheckFrequency", k.http_check_frequency),
        sync_frequency: check.positive("syncFrequency", k.sync_frequency),
        object_changes: match k.config_map_and_secret_change_detection_strategy.as_str() {
            "Watch" => ObjectChanges::Watch,
            _ => ObjectChanges::Ask,
        },

        runtime_endpoint,
        image_endpoint,
        runtime_request_timeout: check.positive("runtimeRequestTimeout", k.runtime_request_timeout),
        image: image(k, flags, check),

        pod_logs_dir: pod_logs_dir(k, check),
        container_log: container_log(k, flags, check),
        crash_loop_max_backoff: crash_loop_max_backoff(k, check),
        dead_containers: dead_containers(flags, check),
        max_pods: check.count("maxPods", k.max_pods),
        pods_per_core: check.count("podsPerCore", k.pods_per_core),
        pod_pids_limit: u64::try_from(k.pod_pids_limit).ok(),
        seccomp_default: k.seccomp_default,
        allowed_unsafe_sysctls: k.allowed_unsafe_sysctls.clone(),
        local_storage_capacity_isolation: k.local_storage_capacity_isolation,
        volume_stats_agg_period: k.volume_stats_agg_period.std().filter(|d| !d.is_zero()),
        user_namespace_ids_per_pod: ids_per_pod(k, check),
        dns: dns(k, check),
        hairpin_mode: hairpin_mode(k, check),

        cgroup: cgroup(k, check),
        system_reserved: reserved("systemReserved", &k.system_reserved, check),
        kube_reserved: reserved("kubeReserved", &k.kube_reserved, check),
        enforce_node_allocatable: k.enforce_node_allocatable.clone(),
        fail_swap_on: k.fail_swap_on,
        memory_swap: memory_swap(k, check),
        oom_score_adj: check.within("oomScoreAdj", k.oom_score_adj, -1000..=1000),
        eviction: eviction::read(k, check),

        server: server::server(k, flags, &root_dir, check),
        api: server::api(flags, &root_dir, check),
        event_rate: rate("eventRecordQPS", k.event_record_qps, "eventBurst", k.event_burst, check),
        shutdown: server::shutdown(k, check),
        root_dir,
    }
}

fn root_dir(flags: &Flags, check: &mut Check) -> PathBuf {
    let given = &flags.own.root_dir;
    if !given.is_empty() && !given.starts_with('/') {
        check.flag_fault("root-dir", format!("must be an absolute path, not {given:?}"));
    }
    PathBuf::from(if given.is_empty() { DEFAULT_ROOT_DIR } else { given })
}

/// Without a file and without another source, the default directory.
fn static_pod_path(k: &KubeletConfiguration, flags: &Flags, files: bool, check: &Check) -> Option<PathBuf> {
    let sources = flags.has("pod-manifest-path") || flags.has("manifest-url") || flags.has("kubeconfig");
    match files || sources {
        true => check.path("staticPodPath", &k.static_pod_path),
        false => Some(DEFAULT_MANIFESTS.into()),
    }
}

fn static_pod_url(k: &KubeletConfiguration, flags: &Flags, check: &mut Check) -> Option<StaticPodUrl> {
    let url = k.static_pod_url.clone();
    let ca_file = optional_path(&flags.own.manifest_url_ca_file);
    if ca_file.is_some() && !url.starts_with("https://") {
        check.flag_fault("manifest-url-ca-file", "needs a staticPodURL with https");
    }
    if url.is_empty() {
        return None;
    }
    let host = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    if host.is_none_or(|host| host.is_empty() || host.starts_with('/')) {
        check.fault("staticPodURL", format!("must be a URL like http://host/pods.yaml, not {url:?}"));
    }
    let mut headers = Vec::new();
    for (name, values) in &k.static_pod_url_header {
        let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        let clean = values.iter().all(|value| !value.contains(['\r', '\n', '\0']));
        if name.is_empty() || !name.bytes().all(token) || !clean {
            // Its value may be a password.
            check.fault(&format!("staticPodURLHeader[{name}]"), "is not an HTTP header");
        }
        headers.extend(values.iter().map(|value| (name.clone(), value.clone())));
    }
    Some(StaticPodUrl { url, headers, ca_file })
}

fn optional_path(text: &str) -> Option<PathBuf> {
    (!text.is_empty()).then(|| text.into())
}

fn rate(qps_field: &str, qps: i32, burst_field: &str, burst: i32, check: &mut Check) -> Option<Rate> {
    let rate = Rate { qps: check.count(qps_field, qps), burst: check.count(burst_field, burst) };
    (rate.qps > 0).then_some(rate)
}

fn percent(field: &str, value: i32, check: &mut Check) -> u8 {
    u8::try_from(check.within(field, value, 0..=100)).unwrap_or_default()
}

fn image(k: &KubeletConfiguration, flags: &Flags, check: &mut Check) -> Image {
    let parallel = k.max_parallel_image_pulls.map(|n| check.within("maxParallelImagePulls", n, 1..=i32::MAX));
    let own = &flags.own;
    let credential_provider = match (&own.image_credential_provider_config, &own.image_credential_provider_bin_dir) {
        (config, dir) if config.is_empty() && dir.is_empty() => None,
        (config, dir) => {
            if config.is_empty() {
                check.flag_fault("image-credential-provider-bin-dir", "needs --image-credential-provider-config");
            }
            if dir.is_empty() {
                check.flag_fault("image-credential-provider-config", "needs --image-credential-provider-bin-dir");
            }
            Some(CredentialProvider { config: config.into(), bin_dir: dir.into() })
        }
    };
    Image {
        max_parallel_pulls: match k.serialize_image_pulls {
            Some(true) => Some(1),
            _ => parallel.and_then(|n| usize::try_from(n).ok()),
        },
        pull_rate: rate("registryPullQPS", k.registry_pull_qps, "registryBurst", k.registry_burst, check),
        gc_high_threshold: percent("imageGCHighThresholdPercent", k.image_gc_high_threshold_percent, check),
        gc_low_threshold: percent("imageGCLowThresholdPercent", k.image_gc_low_threshold_percent, check),
        minimum_gc_age: check.period("imageMinimumGCAge", k.image_minimum_gc_age),
        maximum_gc_age: Some(check.period("imageMaximumGCAge", k.image_maximum_gc_age)).filter(|d| !d.is_zero()),
        credential_provider,
        archive_dir: optional_path(&own.image_archive_dir).unwrap_or_else(|| IMAGE_ARCHIVES.into()),
    }
}

/// Where image archives are looked for unless a flag says otherwise.
const IMAGE_ARCHIVES: &str = "/etc/cleat/images";

/// Pods' log paths are built from it and compared, and stand in metrics: absolute, clean and ASCII.
fn pod_logs_dir(k: &KubeletConfiguration, check: &mut Check) -> PathBuf {
    const FIELD: &str = "podLogsDir";
    let path = check.path(FIELD, &k.pod_logs_dir).unwrap_or_default();
    let text = path.to_string_lossy().into_owned();
    let trimmed = text.trim_end_matches('/');
    let clean = |part: &str| !matches!(part, "" | "." | "..");
    if !text.starts_with('/') {
        check.fault(FIELD, format!("must be an absolute path, not {text:?}"));
    } else if trimmed.is_empty() {
        check.fault(FIELD, "must not be the root directory");
    } else if !trimmed.split('/').skip(1).all(clean) {
        check.fault(FIELD, format!("must have no empty part, \".\" or \"..\" in it, not {text:?}"));
    }
    if !text.is_ascii() {
        check.fault(FIELD, format!("must consist of ASCII characters, not {text:?}"));
    }
    trimmed.into()
}

fn container_log(k: &KubeletConfiguration, flags: &Flags, check: &mut Check) -> ContainerLog {
    let max_size = check.quantity("containerLogMaxSize", &k.container_log_max_size).value();
    if max_size == 0 && Quantity::parse(&k.container_log_max_size) == Some(Quantity::default()) {
        check.fault("containerLogMaxSize", "must be more than 0");
    }
    let max_files = check.within("containerLogMaxFiles", k.container_log_max_files, 2..=i32::MAX);
    let max_workers = check.within("containerLogMaxWorkers", k.container_log_max_workers, 1..=i32::MAX);
    let interval = k.container_log_monitor_interval;
    if interval < GoDuration::from_secs(3) {
        check.fault("containerLogMonitorInterval", format!("must be 3s or more, not {interval}"));
    }
    ContainerLog {
        max_size: u64::try_from(max_size).unwrap_or_default(),
        max_files: u32::try_from(max_files).unwrap_or_default(),
        max_workers: usize::try_from(max_workers).unwrap_or_default(),
        monitor_interval: interval.std().unwrap_or_default(),
        max_total_size: max_total_size(flags, check),
    }
}

fn max_total_size(flags: &Flags, check: &mut Check) -> Option<u64> {
    const FLAG: &str = "container-log-max-total-size";
    let text = &flags.own.container_log_max_total_size;
    if text.is_empty() {
        return None;
    }
    let bytes = Quantity::parse(text).and_then(|q| u64::try_from(q.value()).ok()).filter(|bytes| *bytes > 0);
    if bytes.is_none() {
        check.flag_fault(FLAG, format!("must be a quantity of bytes like 100Mi, not {text:?}"));
    }
    bytes
}

fn crash_loop_max_backoff(k: &KubeletConfiguration, check: &mut Check) -> Duration {
    let period = k.crash_loop_back_off.max_container_restart_period;
    let range = GoDuration::from_secs(1)..=GoDuration::from_secs(300);
    check.within("crashLoopBackOff.maxContainerRestartPeriod", period, range).std().unwrap_or_default()
}

/// pkg/kubelet/container/container_gc.go
fn dead_containers(flags: &Flags, check: &mut Check) -> DeadContainers {
    // Any number below zero is no limit, as the kubelet has it.
    let limit = |given: Option<i64>, default| usize::try_from(given.unwrap_or(default)).ok();
    let min_age = flags.own.min_dead_age.std();
    if min_age.is_none() {
        check.flag_fault("minimum-container-ttl-duration", "must not be negative");
    }
    DeadContainers {
        min_age: min_age.unwrap_or_default(),
        each: limit(flags.own.max_dead_each, 1),
        total: limit(flags.own.max_dead, -1),
    }
}

fn ids_per_pod(k: &KubeletConfiguration, check: &mut Check) -> u32 {
    let ids = k.user_namespaces.ids_per_pod;
    match u32::try_from(ids) {
        Ok(n) if n > 0 && n % 65536 == 0 => n,
        _ => {
            let message = format!("must be a multiple of 65536 below 2^32, not {ids}");
            check.fault("userNamespaces.idsPerPod", message);
            0
        }
    }
}

fn dns(k: &KubeletConfiguration, check: &mut Check) -> Dns {
    let servers = k.cluster_dns.iter().enumerate();
    Dns {
        cluster_servers: servers.filter_map(|(i, text)| check.ip(&format!("clusterDNS[{i}]"), text)).collect(),
        cluster_domain: Some(k.cluster_domain.clone()).filter(|domain| !domain.is_empty()),
        resolv_conf: check.path("resolvConf", &k.resolv_conf),
    }
}

fn hairpin_mode(k: &KubeletConfiguration, check: &mut Check) -> HairpinMode {
    let modes = [
        ("promiscuous-bridge", HairpinMode::PromiscuousBridge),
        ("hairpin-veth", HairpinMode::HairpinVeth),
        ("none", HairpinMode::None),
    ];
    check.one_of("hairpinMode", &k.hairpin_mode, &modes, HairpinMode::None)
}

fn cgroup(k: &KubeletConfiguration, check: &mut Check) -> Cgroup {
    let root = k.cgroup_root.trim_end_matches('/');
    let clean = |part: &str| !matches!(part, "" | "." | "..");
    let fits = root.is_empty() || root.starts_with('/') && root.split('/').skip(1).all(clean);
    if !fits {
        check.fault("cgroupRoot", format!("must be a path like /pods, not {:?}", k.cgroup_root));
    }
    let drivers = [("cgroupfs", CgroupDriver::Cgroupfs), ("systemd", CgroupDriver::Systemd)];
    let periods = GoDuration::from_millis(1)..=GoDuration::from_secs(1);
    Cgroup {
        root: root.to_owned(),
        driver: check.one_of("cgroupDriver", &k.cgroup_driver, &drivers, CgroupDriver::Cgroupfs),
        per_qos: k.cgroups_per_qos,
        fail_v1: k.fail_cgroup_v1,
        cpu_cfs_quota: k.cpu_cfs_quota,
        cpu_cfs_quota_period: check
            .within("cpuCFSQuotaPeriod", k.cpu_cfs_quota_period, periods)
            .std()
            .unwrap_or_default(),
        single_process_oom_kill: k.single_process_oom_kill,
        memory_throttling_factor: k.memory_throttling_factor,
        memory_reservation: k.memory_reservation_policy == "TieredReservation",
        kube_reserved: k.kube_reserved_cgroup.clone(),
        system_reserved: k.system_reserved_cgroup.clone(),
    }
}

fn reserved(field: &str, texts: &Strings, check: &mut Check) -> BTreeMap<String, Quantity> {
    let mut quantities = BTreeMap::new();
    for (name, text) in texts {
        let field = format!("{field}[{name}]");
        if !matches!(name.as_str(), "cpu" | "memory" | "ephemeral-storage" | "pid") {
            check.fault(&field, "must be one of cpu, memory, ephemeral-storage, pid");
        }
        quantities.insert(name.clone(), check.quantity(&field, text));
    }
    quantities
}

fn memory_swap(k: &KubeletConfiguration, check: &mut Check) -> MemorySwap {
    let behaviors =
        [("", MemorySwap::NoSwap), ("NoSwap", MemorySwap::NoSwap), ("LimitedSwap", MemorySwap::LimitedSwap)];
    check.one_of("memorySwap.swapBehavior", &k.memory_swap.swap_behavior, &behaviors, MemorySwap::NoSwap)
}

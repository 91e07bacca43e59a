//! The kubelet's defaults (pkg/kubelet/apis/config/v1beta1), and how a file's zeros turn into them.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

use crate::yaml::{Key, Node, Value};

use super::duration::GoDuration;
use super::kubelet::{
    Authentication, Authorization, CrashLoopBackOff, KubeletConfiguration, Logging, LoggingOptions, MemorySwap,
    OutputRouting, Strings, UserNamespaces, WebhookAuthentication, WebhookAuthorization,
};

/// The default of `evictionHard` on Linux (pkg/kubelet/eviction).
const DEFAULT_EVICTION_HARD: [(&str, &str); 5] = [
    ("imagefs.available", "15%"),
    ("imagefs.inodesFree", "5%"),
    ("memory.available", "100Mi"),
    ("nodefs.available", "10%"),
    ("nodefs.inodesFree", "5%"),
];

impl Default for KubeletConfiguration {
    /// The kubelet's defaults, but for `address` and `containerRuntimeEndpoint`, which are chosen
    /// when nothing is set, and `failCgroupV1`. What depends on other fields is left open until
    /// [`KubeletConfiguration::settle`].
    fn default() -> KubeletConfiguration {
        let secs = GoDuration::from_secs;
        KubeletConfiguration {
            enable_server: true,
            static_pod_path: String::new(),
            pod_logs_dir: "/var/log/pods".to_owned(),
            sync_frequency: secs(60),
            file_check_frequency: secs(20),
            http_check_frequency: secs(20),
            static_pod_url: String::new(),
            static_pod_url_header: BTreeMap::new(),
            address: String::new(),
            port: 10250,
            read_only_port: 0,
            tls_cert_file: String::new(),
            tls_private_key_file: String::new(),
            tls_cipher_suites: Vec::new(),
            tls_curve_preferences: Vec::new(),
            tls_min_version: String::new(),
            rotate_certificates: false,
            server_tls_bootstrap: false,
            authentication: Authentication::default(),
            authorization: Authorization::default(),
            registry_pull_qps: 5,
            registry_burst: 10,
            image_pull_credentials_verification_policy: "NeverVerifyPreloadedImages".to_owned(),
            preloaded_images_verification_allowlist: Vec::new(),
            event_record_qps: 50,
            event_burst: 100,
            enable_debugging_handlers: true,
            enable_contention_profiling: false,
            healthz_port: 10248,
            healthz_bind_address: "127.0.0.1".to_owned(),
            oom_score_adj: -999,
            cluster_domain: String::new(),
            cluster_dns: Vec::new(),
            streaming_connection_idle_timeout: secs(4 * 3600),
            node_status_update_frequency: GoDuration::ZERO,
            node_status_report_frequency: GoDuration::ZERO,
            node_lease_duration_seconds: 40,
            image_minimum_gc_age: secs(120),
            image_maximum_gc_age: GoDuration::ZERO,
            image_gc_high_threshold_percent: 85,
            image_gc_low_threshold_percent: 80,
            volume_stats_agg_period: secs(60),
            kubelet_cgroups: String::new(),
            system_cgroups: String::new(),
            cgroup_root: String::new(),
            cgroups_per_qos: true,
            cgroup_driver: "cgroupfs".to_owned(),
            cpu_manager_policy: "none".to_owned(),
            single_process_oom_kill: None,
            cpu_manager_policy_options: Strings::new(),
            cpu_manager_reconcile_period: secs(10),
            dra_manager_reconcile_period: secs(60),
            memory_manager_policy: "None".to_owned(),
            topology_manager_policy: "none".to_owned(),
            topology_manager_scope: "container".to_owned(),
            topology_manager_policy_options: Strings::new(),
            qos_reserved: Strings::new(),
            runtime_request_timeout: secs(120),
            hairpin_mode: "promiscuous-bridge".to_owned(),
            max_pods: 110,
            pod_cidr: String::new(),
            pod_pids_limit: -1,
            resolv_conf: "/etc/resolv.conf".to_owned(),
            run_once: false,
            cpu_cfs_quota: true,
            cpu_cfs_quota_period: GoDuration::from_millis(100),
            node_status_max_images: 50,
            max_open_files: 1_000_000,
            content_type: "application/vnd.kubernetes.protobuf".to_owned(),
            kube_api_qps: 50,
            kube_api_burst: 100,
            serialize_image_pulls: None,
            max_parallel_image_pulls: None,
            eviction_hard: None,
            eviction_soft: Strings::new(),
            eviction_soft_grace_period: Strings::new(),
            eviction_pressure_transition_period: secs(300),
            eviction_max_pod_grace_period: 0,
            eviction_minimum_reclaim: Strings::new(),
            merge_default_eviction_settings: false,
            pods_per_core: 0,
            enable_controller_attach_detach: true,
            protect_kernel_defaults: false,
            make_iptables_util_chains: true,
            iptables_masquerade_bit: 14,
            iptables_drop_bit: 15,
            feature_gates: BTreeMap::new(),
            fail_swap_on: true,
            memory_swap: MemorySwap::default(),
            container_log_max_size: "10Mi".to_owned(),
            container_log_max_files: 5,
            container_log_max_workers: 1,
            container_log_monitor_interval: secs(10),
            config_map_and_secret_change_detection_strategy: "Watch".to_owned(),
            system_reserved: Strings::new(),
            kube_reserved: Strings::new(),
            reserved_system_cpus: String::new(),
            show_hidden_metrics_for_version: String::new(),
            system_reserved_cgroup: String::new(),
            kube_reserved_cgroup: String::new(),
            enforce_node_allocatable: vec!["pods".to_owned()],
            allowed_unsafe_sysctls: Vec::new(),
            volume_plugin_dir: "/usr/libexec/kubernetes/kubelet-plugins/volume/exec/".to_owned(),
            provider_id: String::new(),
            kernel_memcg_notification: false,
            logging: Logging::default(),
            enable_system_log_handler: true,
            enable_system_log_query: false,
            shutdown_grace_period: GoDuration::ZERO,
            shutdown_grace_period_critical_pods: GoDuration::ZERO,
            shutdown_grace_period_by_pod_priority: Vec::new(),
            crash_loop_back_off: CrashLoopBackOff::default(),
            reserved_memory: Vec::new(),
            enable_profiling_handler: true,
            enable_debug_flags_handler: true,
            seccomp_default: false,
            memory_throttling_factor: 0.9,
            memory_reservation_policy: "None".to_owned(),
            register_with_taints: Vec::new(),
            register_node: true,
            tracing: None,
            local_storage_capacity_isolation: true,
            container_runtime_endpoint: String::new(),
            image_service_endpoint: String::new(),
            fail_cgroup_v1: false,
            user_namespaces: UserNamespaces::default(),
        }
    }
}

impl Default for WebhookAuthentication {
    fn default() -> WebhookAuthentication {
        WebhookAuthentication { enabled: true, cache_ttl: GoDuration::from_secs(120) }
    }
}

impl Default for Authorization {
    fn default() -> Authorization {
        Authorization { mode: "Webhook".to_owned(), webhook: WebhookAuthorization::default() }
    }
}

impl Default for WebhookAuthorization {
    fn default() -> WebhookAuthorization {
        WebhookAuthorization {
            cache_authorized_ttl: GoDuration::from_secs(300),
            cache_unauthorized_ttl: GoDuration::from_secs(30),
        }
    }
}

impl Default for CrashLoopBackOff {
    fn default() -> CrashLoopBackOff {
        CrashLoopBackOff { max_container_restart_period: GoDuration::from_secs(300) }
    }
}

impl Default for UserNamespaces {
    fn default() -> UserNamespaces {
        UserNamespaces { ids_per_pod: 65536 }
    }
}

impl Default for Logging {
    fn default() -> Logging {
        Logging {
            format: "text".to_owned(),
            flush_frequency: GoDuration::from_secs(5),
            verbosity: 0,
            vmodule: Vec::new(),
            options: LoggingOptions::default(),
        }
    }
}

impl Default for OutputRouting {
    fn default() -> OutputRouting {
        OutputRouting { split_stream: false, info_buffer_size: Quantity("0".to_owned()) }
    }
}

impl KubeletConfiguration {
    /// Fills in what a file leaves open. Where the kubelet's type is no pointer, zero and `""` mean
    /// "not set" there; and some defaults depend on other fields.
    pub fn settle(&mut self) {
        let d = KubeletConfiguration::default();
        or(&mut self.pod_logs_dir, d.pod_logs_dir);
        or(&mut self.sync_frequency, d.sync_frequency);
        or(&mut self.file_check_frequency, d.file_check_frequency);
        or(&mut self.http_check_frequency, d.http_check_frequency);
        or(&mut self.port, d.port);
        or(&mut self.authentication.webhook.cache_ttl, d.authentication.webhook.cache_ttl);
        or(&mut self.authorization.mode, d.authorization.mode);
        let (webhook, default) = (&mut self.authorization.webhook, d.authorization.webhook);
        or(&mut webhook.cache_authorized_ttl, default.cache_authorized_ttl);
        or(&mut webhook.cache_unauthorized_ttl, default.cache_unauthorized_ttl);
        or(&mut self.registry_burst, d.registry_burst);
        or(&mut self.image_pull_credentials_verification_policy, d.image_pull_credentials_verification_policy);
        or(&mut self.event_burst, d.event_burst);
        or(&mut self.healthz_bind_address, d.healthz_bind_address);
        or(&mut self.streaming_connection_idle_timeout, d.streaming_connection_idle_timeout);
        or(&mut self.node_lease_duration_seconds, d.node_lease_duration_seconds);
        or(&mut self.image_minimum_gc_age, d.image_minimum_gc_age);
        or(&mut self.volume_stats_agg_period, d.volume_stats_agg_period);
        or(&mut self.cgroup_driver, d.cgroup_driver);
        or(&mut self.cpu_manager_policy, d.cpu_manager_policy);
        or(&mut self.cpu_manager_reconcile_period, d.cpu_manager_reconcile_period);
        or(&mut self.dra_manager_reconcile_period, d.dra_manager_reconcile_period);
        or(&mut self.memory_manager_policy, d.memory_manager_policy);
        or(&mut self.topology_manager_policy, d.topology_manager_policy);
        or(&mut self.topology_manager_scope, d.topology_manager_scope);
        or(&mut self.runtime_request_timeout, d.runtime_request_timeout);
        or(&mut self.hairpin_mode, d.hairpin_mode);
        or(&mut self.max_pods, d.max_pods);
        or(&mut self.max_open_files, d.max_open_files);
        or(&mut self.content_type, d.content_type);
        or(&mut self.kube_api_burst, d.kube_api_burst);
        or(&mut self.eviction_pressure_transition_period, d.eviction_pressure_transition_period);
        or(&mut self.container_log_max_size, d.container_log_max_size);
        let strategy = &mut self.config_map_and_secret_change_detection_strategy;
        or(strategy, d.config_map_and_secret_change_detection_strategy);
        or(&mut self.volume_plugin_dir, d.volume_plugin_dir);
        or(&mut self.logging.format, d.logging.format);
        or(&mut self.logging.flush_frequency, d.logging.flush_frequency);
        or(&mut self.memory_reservation_policy, d.memory_reservation_policy);
        self.settle_dependent();
    }

    fn settle_dependent(&mut self) {
        let report = match self.node_status_update_frequency {
            GoDuration::ZERO => GoDuration::from_secs(300),
            update => update,
        };
        or(&mut self.node_status_report_frequency, report);
        or(&mut self.node_status_update_frequency, GoDuration::from_secs(10));
        if self.pod_pids_limit < 0 {
            self.pod_pids_limit = -1;
        }
        let parallel = self.max_parallel_image_pulls.is_some_and(|n| n > 1);
        self.serialize_image_pulls.get_or_insert(!parallel);
        let hard = self.eviction_hard.get_or_insert_with(default_eviction_hard);
        if self.merge_default_eviction_settings {
            for (signal, value) in default_eviction_hard() {
                hard.entry(signal).or_insert(value);
            }
        }
    }
}

/// `evictionHard` with its default, as a file would hold it.
pub(super) fn eviction_hard_tree() -> Node {
    let map = |entries| Node { value: Value::Map(entries), line: 0 };
    let entry = |name: &str, node| (Key { name: name.to_owned(), line: 0 }, node);
    let text = |s: &str| Node { value: Value::Str(s.to_owned()), line: 0 };
    let signals = DEFAULT_EVICTION_HARD.iter().map(|(signal, value)| entry(signal, text(value))).collect();
    map(vec![entry("evictionHard", map(signals))])
}

fn default_eviction_hard() -> Strings {
    DEFAULT_EVICTION_HARD.iter().map(|(signal, value)| ((*signal).to_owned(), (*value).to_owned())).collect()
}

fn or<T: Default + PartialEq>(slot: &mut T, default: T) {
    if *slot == T::default() {
        *slot = default;
    }
}

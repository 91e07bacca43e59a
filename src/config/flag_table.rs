//! The flags of `cleat run`: the kubelet's of 1.36, and our own. Sorted by name. Most set a field of
//! the configuration file, as the kubelet's do.

use super::flag_value::{feature_gates, headers, labels, thresholds};
use super::flags::{Flag, Kind, Target, set};

/// `FIELD` is a path in the file, `slot` the same in `KubeletConfiguration`.
macro_rules! field {
    ($kind:ident, $name:literal, $field:literal, $($slot:ident).+, $help:literal) => {
        Flag {
            name: $name,
            kind: Kind::$kind,
            target: Target::Field($field, |c, values| set(&mut c.$($slot).+, values)),
            help: $help,
        }
    };
}

macro_rules! own {
    ($kind:ident, $name:literal, $slot:ident, $help:literal) => {
        Flag {
            name: $name,
            kind: Kind::$kind,
            target: Target::Own(|own, values| set(&mut own.$slot, values)),
            help: $help,
        }
    };
}

macro_rules! ignored {
    ($kind:ident, $name:literal, $why:literal, $help:literal) => {
        Flag { name: $name, kind: Kind::$kind, target: Target::Ignored($why), help: $help }
    };
}

pub(super) const FLAGS: &[Flag] = &[
    field!(
        Text,
        "address",
        "address",
        address,
        "IP address that the servers listen on; 127.0.0.1 unless given, and with --kubeconfig all for the HTTPS port"
    ),
    field!(
        List,
        "allowed-unsafe-sysctls",
        "allowedUnsafeSysctls",
        allowed_unsafe_sysctls,
        "unsafe sysctls, or patterns ending in *, that pods may use"
    ),
    field!(
        Bool,
        "anonymous-auth",
        "authentication.anonymous.enabled",
        authentication.anonymous.enabled,
        "serve requests without credentials"
    ),
    own!(Int, "api-port", api_port, "loopback port of this node's Kubernetes API, 10270 unless given; 0 turns it off"),
    own!(
        Path,
        "api-socket",
        api_socket,
        "unix socket of that API; /run/cleat/api.sock, or api.sock under --root-dir, unless given; empty turns it off"
    ),
    field!(
        Bool,
        "authentication-token-webhook",
        "authentication.webhook.enabled",
        authentication.webhook.enabled,
        "have the API server check bearer tokens"
    ),
    field!(
        Duration,
        "authentication-token-webhook-cache-ttl",
        "authentication.webhook.cacheTTL",
        authentication.webhook.cache_ttl,
        "how long a checked token is remembered"
    ),
    field!(Text, "authorization-mode", "authorization.mode", authorization.mode, "AlwaysAllow or Webhook"),
    field!(
        Duration,
        "authorization-webhook-cache-authorized-ttl",
        "authorization.webhook.cacheAuthorizedTTL",
        authorization.webhook.cache_authorized_ttl,
        "how long a yes of the webhook is remembered"
    ),
    field!(
        Duration,
        "authorization-webhook-cache-unauthorized-ttl",
        "authorization.webhook.cacheUnauthorizedTTL",
        authorization.webhook.cache_unauthorized_ttl,
        "how long a no of the webhook is remembered"
    ),
    own!(Path, "bootstrap-kubeconfig", bootstrap_kubeconfig, "kubeconfig to get the first client certificate with"),
    own!(Path, "cert-dir", cert_dir, "where certificates are kept; pki under the root directory unless given"),
    field!(Text, "cgroup-driver", "cgroupDriver", cgroup_driver, "cgroupfs or systemd"),
    field!(Text, "cgroup-root", "cgroupRoot", cgroup_root, "cgroup under which those of pods are made"),
    field!(Bool, "cgroups-per-qos", "cgroupsPerQOS", cgroups_per_qos, "make cgroups for QoS classes and pods"),
    field!(
        Path,
        "client-ca-file",
        "authentication.x509.clientCAFile",
        authentication.x509.client_ca_file,
        "authorities whose client certificates are trusted"
    ),
    ignored!(Text, "cloud-provider", "it concerns cloud providers only", "name of the cloud provider"),
    field!(List, "cluster-dns", "clusterDNS", cluster_dns, "addresses of the cluster's DNS servers"),
    field!(Text, "cluster-domain", "clusterDomain", cluster_domain, "DNS domain of the cluster"),
    own!(Path, "config", config, "configuration file, a KubeletConfiguration"),
    own!(Path, "config-dir", config_dir, "directory with drop-ins for it, *.conf, applied in the order of their names"),
    field!(
        Int,
        "container-log-max-files",
        "containerLogMaxFiles",
        container_log_max_files,
        "log files kept of a container"
    ),
    field!(
        Text,
        "container-log-max-size",
        "containerLogMaxSize",
        container_log_max_size,
        "size at which a container's log is rotated"
    ),
    own!(
        Text,
        "container-log-max-total-size",
        container_log_max_total_size,
        "size of the logs of all pods together, from which on the oldest are removed; no limit unless given"
    ),
    field!(
        Text,
        "container-runtime-endpoint",
        "containerRuntimeEndpoint",
        container_runtime_endpoint,
        "socket of the container runtime, unix:///path; looked for unless given"
    ),
    field!(
        Bool,
        "contention-profiling",
        "enableContentionProfiling",
        enable_contention_profiling,
        "profile lock contention"
    ),
    field!(Bool, "cpu-cfs-quota", "cpuCFSQuota", cpu_cfs_quota, "enforce CPU limits"),
    field!(Duration, "cpu-cfs-quota-period", "cpuCFSQuotaPeriod", cpu_cfs_quota_period, "period of the CPU quota"),
    field!(Text, "cpu-manager-policy", "cpuManagerPolicy", cpu_manager_policy, "none or static"),
    field!(
        Pairs,
        "cpu-manager-policy-options",
        "cpuManagerPolicyOptions",
        cpu_manager_policy_options,
        "options of that policy"
    ),
    field!(
        Duration,
        "cpu-manager-reconcile-period",
        "cpuManagerReconcilePeriod",
        cpu_manager_reconcile_period,
        "how often CPU assignments are written again"
    ),
    field!(
        Bool,
        "enable-controller-attach-detach",
        "enableControllerAttachDetach",
        enable_controller_attach_detach,
        "leave attaching of volumes to the controller"
    ),
    field!(
        Bool,
        "enable-debugging-handlers",
        "enableDebuggingHandlers",
        enable_debugging_handlers,
        "serve logs, exec and the like"
    ),
    field!(Bool, "enable-server", "enableServer", enable_server, "serve the HTTPS API"),
    field!(
        List,
        "enforce-node-allocatable",
        "enforceNodeAllocatable",
        enforce_node_allocatable,
        "which reservations are enforced"
    ),
    field!(Int, "event-burst", "eventBurst", event_burst, "events that may be sent at once"),
    field!(Int, "event-qps", "eventRecordQPS", event_record_qps, "events a second; 0 means no limit"),
    Flag {
        name: "eviction-hard",
        kind: Kind::Thresholds,
        target: Target::Field("evictionHard", |c, values| {
            c.eviction_hard = Some(thresholds(values)?);
            Ok(())
        }),
        help: "thresholds at which pods are evicted at once",
    },
    field!(
        Int,
        "eviction-max-pod-grace-period",
        "evictionMaxPodGracePeriod",
        eviction_max_pod_grace_period,
        "longest grace period, in seconds, in a soft eviction"
    ),
    field!(
        Pairs,
        "eviction-minimum-reclaim",
        "evictionMinimumReclaim",
        eviction_minimum_reclaim,
        "how much an eviction frees at least"
    ),
    field!(
        Duration,
        "eviction-pressure-transition-period",
        "evictionPressureTransitionPeriod",
        eviction_pressure_transition_period,
        "how long a pressure condition stays"
    ),
    Flag {
        name: "eviction-soft",
        kind: Kind::Thresholds,
        target: Target::Field("evictionSoft", |c, values| {
            c.eviction_soft = thresholds(values)?;
            Ok(())
        }),
        help: "thresholds at which pods are evicted after a grace period",
    },
    field!(
        Pairs,
        "eviction-soft-grace-period",
        "evictionSoftGracePeriod",
        eviction_soft_grace_period,
        "those grace periods"
    ),
    ignored!(Bool, "exit-on-lock-contention", "there is no lock file", "end when the lock file is contended"),
    ignored!(
        Bool,
        "experimental-allocatable-ignore-eviction",
        "the kubelet has deprecated it",
        "leave thresholds out of allocatable"
    ),
    ignored!(Path, "experimental-mounter-path", "the kubelet has deprecated it", "mount program"),
    field!(Bool, "fail-cgroupv1", "failCgroupV1", fail_cgroup_v1, "refuse to run on cgroup v1"),
    field!(Bool, "fail-swap-on", "failSwapOn", fail_swap_on, "refuse to run with swap on"),
    Flag {
        name: "feature-gates",
        kind: Kind::Pairs,
        target: Target::Field("featureGates", feature_gates),
        help: "feature gates, GATE=true",
    },
    field!(
        Duration,
        "file-check-frequency",
        "fileCheckFrequency",
        file_check_frequency,
        "how often the manifests are read without a sign of change"
    ),
    field!(Text, "hairpin-mode", "hairpinMode", hairpin_mode, "promiscuous-bridge, hairpin-veth or none"),
    field!(Text, "healthz-bind-address", "healthzBindAddress", healthz_bind_address, "IP address of the health server"),
    field!(Int, "healthz-port", "healthzPort", healthz_port, "port of the health server; 0 turns it off"),
    own!(Text, "hostname-override", hostname_override, "name of the node instead of the host's name"),
    field!(
        Duration,
        "http-check-frequency",
        "httpCheckFrequency",
        http_check_frequency,
        "how often the manifest URL is read"
    ),
    own!(
        Path,
        "image-archive-dir",
        image_archive_dir,
        "image archives that are imported when pods need them; /etc/cleat/images unless given"
    ),
    own!(
        Path,
        "image-credential-provider-bin-dir",
        image_credential_provider_bin_dir,
        "directory of credential provider plugins"
    ),
    own!(Path, "image-credential-provider-config", image_credential_provider_config, "configuration of those plugins"),
    field!(
        Int,
        "image-gc-high-threshold",
        "imageGCHighThresholdPercent",
        image_gc_high_threshold_percent,
        "percent of disk use above which images are removed"
    ),
    field!(
        Int,
        "image-gc-low-threshold",
        "imageGCLowThresholdPercent",
        image_gc_low_threshold_percent,
        "percent of disk use down to which they are removed"
    ),
    field!(
        Text,
        "image-service-endpoint",
        "imageServiceEndpoint",
        image_service_endpoint,
        "socket of the image service; the runtime's unless given"
    ),
    field!(
        Bool,
        "kernel-memcg-notification",
        "kernelMemcgNotification",
        kernel_memcg_notification,
        "have the kernel tell of memory thresholds"
    ),
    field!(Int, "kube-api-burst", "kubeAPIBurst", kube_api_burst, "requests to the API server that may go out at once"),
    field!(Text, "kube-api-content-type", "contentType", content_type, "content type of requests to the API server"),
    field!(Int, "kube-api-qps", "kubeAPIQPS", kube_api_qps, "requests to the API server a second"),
    field!(Pairs, "kube-reserved", "kubeReserved", kube_reserved, "resources kept for this agent and the runtime"),
    field!(Text, "kube-reserved-cgroup", "kubeReservedCgroup", kube_reserved_cgroup, "cgroup of those"),
    own!(Path, "kubeconfig", kubeconfig, "kubeconfig of the API server; standalone without it"),
    field!(Text, "kubelet-cgroups", "kubeletCgroups", kubelet_cgroups, "cgroup to run this agent in"),
    field!(
        Bool,
        "local-storage-capacity-isolation",
        "localStorageCapacityIsolation",
        local_storage_capacity_isolation,
        "enforce limits of ephemeral storage"
    ),
    ignored!(Path, "lock-file", "there is no lock file", "lock file"),
    field!(
        Duration,
        "log-flush-frequency",
        "logging.flushFrequency",
        logging.flush_frequency,
        "longest time between log flushes"
    ),
    field!(
        Text,
        "log-text-info-buffer-size",
        "logging.options.text.infoBufferSize",
        logging.options.text.info_buffer_size,
        "buffer for info messages"
    ),
    field!(
        Bool,
        "log-text-split-stream",
        "logging.options.text.splitStream",
        logging.options.text.split_stream,
        "errors to stderr, the rest to stdout"
    ),
    field!(Text, "logging-format", "logging.format", logging.format, "text or json"),
    field!(
        Bool,
        "make-iptables-util-chains",
        "makeIPTablesUtilChains",
        make_iptables_util_chains,
        "keep the kubelet's iptables chains"
    ),
    field!(Text, "manifest-url", "staticPodURL", static_pod_url, "URL to read pods from"),
    own!(
        Path,
        "manifest-url-ca-file",
        manifest_url_ca_file,
        "authorities that may have signed its certificate; the system's unless given"
    ),
    Flag {
        name: "manifest-url-header",
        kind: Kind::Text,
        target: Target::Field("staticPodURLHeader", |c, values| {
            c.static_pod_url_header = headers(values)?;
            Ok(())
        }),
        help: "NAME:VALUE headers to send there",
    },
    field!(Int, "max-open-files", "maxOpenFiles", max_open_files, "files that this agent may have open"),
    field!(Int, "max-pods", "maxPods", max_pods, "pods that may run on this node"),
    own!(Int, "maximum-dead-containers", max_dead, "dead containers kept on the node; -1, the default, is no limit"),
    own!(
        Int,
        "maximum-dead-containers-per-container",
        max_dead_each,
        "earlier instances kept of each container; 1 unless given, -1 for no limit"
    ),
    field!(Text, "memory-manager-policy", "memoryManagerPolicy", memory_manager_policy, "None or Static"),
    own!(
        Duration,
        "minimum-container-ttl-duration",
        min_dead_age,
        "how long a dead container is kept at least; 0 unless given"
    ),
    field!(
        Duration,
        "minimum-image-ttl-duration",
        "imageMinimumGCAge",
        image_minimum_gc_age,
        "age at which unused images may be removed"
    ),
    own!(Text, "node-ip", node_ip, "addresses of the node, one a family"),
    Flag {
        name: "node-labels",
        kind: Kind::Pairs,
        target: Target::Own(|own, values| {
            own.node_labels = labels(values)?;
            Ok(())
        }),
        help: "labels of the node",
    },
    field!(
        Int,
        "node-status-max-images",
        "nodeStatusMaxImages",
        node_status_max_images,
        "images in the node's status; -1 means all"
    ),
    field!(
        Duration,
        "node-status-update-frequency",
        "nodeStatusUpdateFrequency",
        node_status_update_frequency,
        "how often the node's status is computed"
    ),
    field!(Int, "oom-score-adj", "oomScoreAdj", oom_score_adj, "oom_score_adj of this agent"),
    field!(Text, "pod-cidr", "podCIDR", pod_cidr, "addresses of pods when standalone"),
    ignored!(
        Text,
        "pod-infra-container-image",
        "it is deprecated, and the runtime's configuration names the sandbox image",
        "image of the pod sandbox"
    ),
    field!(Path, "pod-manifest-path", "staticPodPath", static_pod_path, "directory of manifests, or a manifest"),
    field!(
        Int,
        "pod-max-pids",
        "podPidsLimit",
        pod_pids_limit,
        "processes that a pod may have; -1 means no limit of its own"
    ),
    field!(Int, "pods-per-core", "podsPerCore", pods_per_core, "pods a core; 0 means no limit"),
    field!(Int, "port", "port", port, "port of the HTTPS API"),
    field!(
        Bool,
        "protect-kernel-defaults",
        "protectKernelDefaults",
        protect_kernel_defaults,
        "refuse to run when kernel settings differ"
    ),
    field!(Text, "provider-id", "providerID", provider_id, "the node's id at its provider"),
    field!(Pairs, "qos-reserved", "qosReserved", qos_reserved, "memory kept for the guaranteed tier"),
    field!(Int, "read-only-port", "readOnlyPort", read_only_port, "port of the read-only API; 0 turns it off"),
    field!(Bool, "register-node", "registerNode", register_node, "register with the API server"),
    field!(
        List,
        "register-with-taints",
        "registerWithTaints",
        register_with_taints,
        "taints to register with, KEY=VALUE:EFFECT"
    ),
    field!(Int, "registry-burst", "registryBurst", registry_burst, "pulls that may start at once"),
    field!(Int, "registry-qps", "registryPullQPS", registry_pull_qps, "pulls a second; 0 means no limit"),
    field!(Text, "reserved-cpus", "reservedSystemCPUs", reserved_system_cpus, "CPUs kept for the system"),
    field!(
        Text,
        "reserved-memory",
        "reservedMemory",
        reserved_memory,
        "memory kept on a NUMA node, NODE:TYPE=QUANTITY,..."
    ),
    field!(Path, "resolv-conf", "resolvConf", resolv_conf, "resolver configuration that pods start from"),
    own!(
        Path,
        "root-dir",
        root_dir,
        "directory of the agent's own state and of pods' volumes; /var/lib/cleat unless given"
    ),
    field!(Bool, "rotate-certificates", "rotateCertificates", rotate_certificates, "renew the client certificate"),
    field!(
        Bool,
        "rotate-server-certificates",
        "serverTLSBootstrap",
        server_tls_bootstrap,
        "have the cluster sign the serving certificate"
    ),
    field!(Bool, "runonce", "runOnce", run_once, "refused: the kubelet gave it up"),
    ignored!(Text, "runtime-cgroups", "the runtime is not ours to place", "cgroup of the runtime"),
    field!(
        Duration,
        "runtime-request-timeout",
        "runtimeRequestTimeout",
        runtime_request_timeout,
        "timeout of calls to the runtime, but for long ones"
    ),
    field!(
        Bool,
        "seccomp-default",
        "seccompDefault",
        seccomp_default,
        "RuntimeDefault as the seccomp profile of pods without one"
    ),
    field!(Bool, "serialize-image-pulls", "serializeImagePulls", serialize_image_pulls, "pull one image at a time"),
    field!(
        Duration,
        "streaming-connection-idle-timeout",
        "streamingConnectionIdleTimeout",
        streaming_connection_idle_timeout,
        "longest idle time of a streaming connection"
    ),
    field!(Duration, "sync-frequency", "syncFrequency", sync_frequency, "longest time between syncs of a pod"),
    field!(Text, "system-cgroups", "systemCgroups", system_cgroups, "cgroup for the processes that have none"),
    field!(Pairs, "system-reserved", "systemReserved", system_reserved, "resources kept for the system"),
    field!(Text, "system-reserved-cgroup", "systemReservedCgroup", system_reserved_cgroup, "cgroup of the system"),
    field!(Path, "tls-cert-file", "tlsCertFile", tls_cert_file, "serving certificate"),
    field!(List, "tls-cipher-suites", "tlsCipherSuites", tls_cipher_suites, "cipher suites of the server"),
    field!(
        List,
        "tls-curve-preferences",
        "tlsCurvePreferences",
        tls_curve_preferences,
        "key exchanges of the server, as numbers"
    ),
    field!(Text, "tls-min-version", "tlsMinVersion", tls_min_version, "lowest TLS version, like VersionTLS12"),
    field!(Path, "tls-private-key-file", "tlsPrivateKeyFile", tls_private_key_file, "key of the serving certificate"),
    own!(
        Path,
        "token-auth-file",
        token_auth_file,
        "tokens that the HTTPS API takes: lines of token,user,uid,\"group1,group2\""
    ),
    field!(
        Text,
        "topology-manager-policy",
        "topologyManagerPolicy",
        topology_manager_policy,
        "none, best-effort, restricted or single-numa-node"
    ),
    field!(
        Pairs,
        "topology-manager-policy-options",
        "topologyManagerPolicyOptions",
        topology_manager_policy_options,
        "options of that policy"
    ),
    field!(Text, "topology-manager-scope", "topologyManagerScope", topology_manager_scope, "container or pod"),
    field!(Int, "v", "logging.verbosity", logging.verbosity, "how much is logged"),
    field!(List, "vmodule", "logging.vmodule", logging.vmodule, "how much is logged of a part, PATTERN=N"),
    field!(Path, "volume-plugin-dir", "volumePluginDir", volume_plugin_dir, "directory of volume plugins"),
    field!(
        Duration,
        "volume-stats-agg-period",
        "volumeStatsAggPeriod",
        volume_stats_agg_period,
        "how often disk use of volumes is computed; negative turns it off"
    ),
    own!(Int, "workers", workers, "pods synced at the same time; four for each CPU, from 2 to 8, unless given"),
];

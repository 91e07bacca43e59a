//! The agent's configuration: a `KubeletConfiguration` file, a directory with drop-ins, and flags,
//! merged in that order into one checked value. [`load`] does the I/O; the rest is pure. Knows
//! nothing of the agent's other parts.

mod check;
mod defaults;
pub mod duration;
pub mod eviction;
mod fault;
mod file;
mod flag_table;
mod flag_value;
pub mod flags;
pub mod kubelet;
mod load;
mod names;
mod resolve;
#[cfg(test)]
mod tests;
mod validate;

use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use k8s_openapi::api::core::v1::Taint;

use crate::pod::quantity::Quantity;
pub use fault::{Fault, Origin};
pub use load::load;

/// What [`load`] gives.
#[derive(Debug, Clone, PartialEq)]
pub struct Loaded {
    pub config: Config,
    /// To be logged once each.
    pub warnings: Vec<String>,
}

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Flag(#[from] flags::FlagError),
    #[error("can't read the configuration {}: {source}", path.display())]
    Read { path: PathBuf, source: std::io::Error },
    #[error("invalid configuration:{}", fault::list(.0))]
    Invalid(Vec<Fault>),
}

/// Everything that can be set, checked and in the types that the agent works with. Absolute paths,
/// unless a flag gave a relative one.
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// A DNS subdomain, in lower case.
    pub node_name: String,
    /// At most one of each family; empty means to find them out.
    pub node_ips: Vec<IpAddr>,
    pub node: Node,
    pub root_dir: PathBuf,
    /// How many pods are synced at the same time.
    pub workers: usize,
    /// 0 is the least.
    pub verbosity: u32,
    pub feature_gates: BTreeMap<String, bool>,

    /// A directory of manifests, or one manifest.
    pub static_pod_path: Option<PathBuf>,
    pub file_check_frequency: Duration,
    pub static_pod_url: Option<StaticPodUrl>,
    pub http_check_frequency: Duration,
    pub sync_frequency: Duration,
    pub object_changes: ObjectChanges,

    /// Unix sockets.
    pub runtime_endpoint: PathBuf,
    pub image_endpoint: PathBuf,
    pub runtime_request_timeout: Duration,
    pub image: Image,

    /// Without a slash at its end.
    pub pod_logs_dir: PathBuf,
    pub container_log: ContainerLog,
    /// Longest delay between two starts of a container.
    pub crash_loop_max_backoff: Duration,
    pub dead_containers: DeadContainers,
    pub max_pods: u32,
    /// 0 means no limit.
    pub pods_per_core: u32,
    /// Processes in a pod; `None` is the machine's limit.
    pub pod_pids_limit: Option<u64>,
    pub seccomp_default: bool,
    /// Names, or patterns that end in `*`.
    pub allowed_unsafe_sysctls: Vec<String>,
    pub local_storage_capacity_isolation: bool,
    /// `None` turns the measuring of volumes off.
    pub volume_stats_agg_period: Option<Duration>,
    /// IDs that a pod with its own user namespace gets; a multiple of 65536.
    pub user_namespace_ids_per_pod: u32,
    pub dns: Dns,
    pub hairpin_mode: HairpinMode,

    pub cgroup: Cgroup,
    pub system_reserved: BTreeMap<String, Quantity>,
    pub kube_reserved: BTreeMap<String, Quantity>,
    pub enforce_node_allocatable: Vec<String>,
    pub fail_swap_on: bool,
    pub memory_swap: MemorySwap,
    pub oom_score_adj: i32,
    pub eviction: eviction::Eviction,

    pub server: Server,
    pub api: Api,
    /// `None` means no limit.
    pub event_rate: Option<Rate>,
    pub shutdown: Shutdown,
}

/// The node as the API server knows it.
#[derive(Debug, Clone, PartialEq)]
pub struct Node {
    /// Without one there is no API server.
    pub kubeconfig: Option<PathBuf>,
    pub bootstrap_kubeconfig: Option<PathBuf>,
    pub register: bool,
    pub labels: BTreeMap<String, String>,
    pub taints: Vec<Taint>,
    pub provider_id: Option<String>,
    pub status_update_frequency: Duration,
    pub status_report_frequency: Duration,
    pub lease_duration: Duration,
    /// `None` means all.
    pub status_max_images: Option<u32>,
    /// `None` means no limit.
    pub api_rate: Option<Rate>,
}

/// How it is found out that a ConfigMap or a Secret of the API server is another than before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ObjectChanges {
    /// A few are watched, the others asked for each `syncFrequency`.
    Watch,
    /// All are asked for each `syncFrequency` (`Cache`, and `Get`).
    Ask,
}

/// A limit on how often something is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// A second.
    pub qps: u32,
    pub burst: u32,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StaticPodUrl {
    pub url: String,
    /// In the order of their names, then as given.
    pub headers: Vec<(String, String)>,
    /// Who may have signed the server's certificate; `None` means whom the system trusts. The kubelet
    /// has no such.
    pub ca_file: Option<PathBuf>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Image {
    /// Pulls at the same time; `None` means no limit.
    pub max_parallel_pulls: Option<usize>,
    /// `None` means no limit.
    pub pull_rate: Option<Rate>,
    /// Percent of disk use; 100 turns garbage collection by use off.
    pub gc_high_threshold: u8,
    pub gc_low_threshold: u8,
    pub minimum_gc_age: Duration,
    /// `None` means that age alone removes no image.
    pub maximum_gc_age: Option<Duration>,
    pub credential_provider: Option<CredentialProvider>,
    /// Where archives of images lie.
    pub archive_dir: PathBuf,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CredentialProvider {
    /// A file, or a directory of files.
    pub config: PathBuf,
    pub bin_dir: PathBuf,
}

/// Which containers that have ended are kept, beside the newest of each name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeadContainers {
    pub min_age: Duration,
    /// Earlier instances of one container of one pod; `None` means no limit.
    pub each: Option<usize>,
    /// On the whole node; `None` means no limit.
    pub total: Option<usize>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ContainerLog {
    /// Bytes.
    pub max_size: u64,
    pub max_files: u32,
    pub max_workers: usize,
    pub monitor_interval: Duration,
    /// Bytes of the logs of all pods together; `None` means no limit. The kubelet has no such.
    pub max_total_size: Option<u64>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dns {
    pub cluster_servers: Vec<IpAddr>,
    pub cluster_domain: Option<String>,
    /// `None` means that pods get nothing of the host's resolver.
    pub resolv_conf: Option<PathBuf>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HairpinMode {
    PromiscuousBridge,
    HairpinVeth,
    None,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Cgroup {
    /// Empty, or a path that begins with a slash.
    pub root: String,
    pub driver: CgroupDriver,
    pub per_qos: bool,
    pub fail_v1: bool,
    pub cpu_cfs_quota: bool,
    pub cpu_cfs_quota_period: Duration,
    /// `None` means the default of the cgroup version.
    pub single_process_oom_kill: Option<bool>,
    /// Where between request and limit the memory of a container is throttled: more than 0, at most 1.
    pub memory_throttling_factor: f64,
    /// Whether the memory that pods ask for is protected (`memoryReservationPolicy: TieredReservation`).
    pub memory_reservation: bool,
    /// What the reserves are for, where they are to be enforced; empty when not given.
    pub kube_reserved: String,
    pub system_reserved: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CgroupDriver {
    Cgroupfs,
    Systemd,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MemorySwap {
    NoSwap,
    LimitedSwap,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Whether there is an HTTPS API.
    pub enabled: bool,
    /// Of the HTTPS API. Unless something else is set it is all addresses, as with the kubelet, where
    /// an API server has to reach the node; and else 127.0.0.1.
    pub address: IpAddr,
    /// Of the read-only API. 127.0.0.1 unless something else is set, since it asks for no credentials.
    pub read_only_address: IpAddr,
    pub port: u16,
    /// `None` means that there is no read-only API.
    pub read_only_port: Option<u16>,
    pub healthz: Option<SocketAddr>,
    pub tls: Tls,
    pub anonymous: bool,
    /// Tokens and whose they are. The kubelet has no such.
    pub token_auth_file: Option<PathBuf>,
    pub client_ca_file: Option<PathBuf>,
    /// How long an answer of the API server about a token is remembered; `None` means that tokens
    /// are not looked at.
    pub token_webhook: Option<Duration>,
    pub authorization: Authorization,
    pub debugging_handlers: bool,
    pub system_log_handler: bool,
    /// A stream on which nothing happens ends after so long; `None` means never.
    pub streaming_idle: Option<Duration>,
    /// All that is configured, as `/configz` shows it.
    pub configuration: serde_json::Value,
}

/// The Kubernetes API of this node alone. The kubelet has no such.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Api {
    /// A unix socket for root; `None` turns it off.
    pub socket: Option<PathBuf>,
    /// Of the loopback address; `None` turns it off.
    pub port: Option<u16>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tls {
    /// `None` means to make a self-signed one in `cert_dir`.
    pub certificate: Option<Certificate>,
    pub cert_dir: PathBuf,
    pub cipher_suites: Vec<String>,
    pub min_version: TlsVersion,
    /// Whether the cluster is asked to sign the serving certificate.
    pub bootstrap: bool,
    /// Whether the client certificate is renewed.
    pub rotate_client: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certificate {
    pub cert_file: PathBuf,
    pub key_file: PathBuf,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TlsVersion {
    Default,
    Tls10,
    Tls11,
    Tls12,
    Tls13,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Authorization {
    AlwaysAllow,
    /// How long a yes and a no of the API server are remembered.
    Webhook {
        authorized_ttl: Duration,
        unauthorized_ttl: Duration,
    },
}

/// How pods end when the machine shuts down.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Shutdown {
    /// As they come.
    Off,
    /// `total` for all, of which the last `critical` is for critical pods.
    Graceful { total: Duration, critical: Duration },
    /// From the least priority up: pods of at least this priority get this long.
    ByPriority(Vec<(i32, Duration)>),
}

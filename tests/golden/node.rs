//! The node that the golden requests are made on, and what a manifest can have otherwise: comment
//! lines of the form `# with SETTING [VALUE]`.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::Path;

use cleat::admission;
use cleat::cgroup::Version;
use cleat::cgroup::policy::{MemoryQos, Policy};
use cleat::cri::{Image, ImageUser};
use cleat::local::{Service, ServicePort};
use cleat::pod::core;
use cleat::pod::env::Resources;
use cleat::pod::quantity::Quantity;
use cleat::pod::sysctl::{Allowlist, Kernel};
use cleat::runtime::Paths;
use cleat::runtime::request::{ClusterDns, Handler, IdRange, Lookup, Node, Source};

pub const NAME: &str = "edge-1";
pub const HOSTS: &str = "127.0.0.1 localhost\n192.0.2.10 edge-1\n";
const RESOLV_CONF: &str = "nameserver 192.0.2.53\nsearch edge.example\noptions ndots:2\n";

const PLENTY: [&str; 6] = ["cpu", "memory", "pods", "ephemeral-storage", "hugepages-2Mi", "hugepages-1Gi"];

pub struct Setting {
    pub node: Node,
    pub resolv_conf: Option<String>,
    pub handler: Handler,
    pub ids: Option<IdRange>,
    pub volume_groups: Vec<i64>,
    pub pod_ips: Vec<String>,
    pub image: Image,
    /// A node that has more than enough.
    pub admission: admission::Node,
    /// With their namespaces.
    pub services: Vec<(&'static str, Service)>,
    pub policy: Policy,
}

impl Setting {
    /// The setting that a manifest's comments describe.
    pub fn of(manifest: &str) -> Result<Setting, String> {
        let mut setting = Setting::usual();
        for line in manifest.lines().filter_map(|line| line.strip_prefix("# with ")) {
            let (what, value) = line.split_once(' ').unwrap_or((line, ""));
            setting.change(what, value)?;
        }
        Ok(setting)
    }

    fn usual() -> Setting {
        let node = Node {
            paths: Paths::new(Path::new("/var/lib/cleat"), Path::new("/var/log/pods")),
            ips: vec!["192.0.2.10".to_owned(), "2001:db8::10".to_owned()],
            cluster_dns: ClusterDns {
                servers: vec![IpAddr::from([10, 96, 0, 10])],
                domain: Some("cluster.local".to_owned()),
            },
            seccomp_default: false,
            selinux: false,
            masked_paths: vec!["/sys/devices/system/cpu/cpu0/thermal_throttle".to_owned()],
            allocatable: allocatable(),
        };
        let image = Image {
            id: "sha256:0a1b".to_owned(),
            repo_tags: vec![],
            repo_digests: vec![],
            size: 1,
            user: None,
            pinned: false,
        };
        Setting {
            node,
            resolv_conf: Some(RESOLV_CONF.to_owned()),
            handler: Handler { recursive_read_only: true, user_namespaces: true, groups_policy: true },
            ids: Some(IdRange { first: 196_608, length: 65_536 }),
            volume_groups: Vec::new(),
            pod_ips: vec!["10.90.0.7".to_owned()],
            image,
            admission: admission::Node {
                name: NAME.to_owned(),
                labels: admission::node_labels(NAME, &Default::default()),
                taints: Vec::new(),
                allocatable: PLENTY.map(|name| (name.to_owned(), i64::MAX)).into_iter().collect(),
                sysctls: Allowlist::new(Kernel::parse("6.1.0"), &["kernel.msg*".to_owned()]).expect("a list"),
                strict_supplemental_groups: true,
            },
            services: Vec::new(),
            policy: Policy {
                version: Version::V2,
                cpu_quota: true,
                cpu_period: 100_000,
                pod_pids_limit: None,
                huge_page_sizes: BTreeSet::from([2 << 20]),
                memory: 4 << 30,
                swap: 0,
                allocatable_memory: 3 << 30,
                swap_behavior: None,
                kill_whole_container: true,
                memory_qos: None,
            },
        }
    }

    fn change(&mut self, what: &str, value: &str) -> Result<(), String> {
        let words = || value.split(' ').filter(|w| !w.is_empty()).map(str::to_owned).collect();
        match what {
            "no-cluster-dns" => self.node.cluster_dns = ClusterDns::default(),
            "no-resolv-conf" => self.resolv_conf = None,
            "resolv-conf" => self.resolv_conf = Some(value.replace("; ", "\n")),
            "seccomp-default" => self.node.seccomp_default = true,
            "selinux" => self.node.selinux = true,
            "old-runtime" => self.handler = Handler::default(),
            "no-ids" => self.ids = None,
            "volume-group" => self.volume_groups = vec![value.parse().map_err(|_| "volume-group: a number")?],
            "pod-ips" => self.pod_ips = words(),
            "image-user" => {
                self.image.user = Some(value.parse().map_or(ImageUser::Name(value.to_owned()), ImageUser::Uid));
            }
            "services" => self.services = services(),
            "cgroup-v1" => {
                self.policy.version = Version::V1;
                self.policy.kill_whole_container = false;
            }
            "no-cpu-quota" => self.policy.cpu_quota = false,
            "memory-qos" => {
                self.policy.memory_qos = Some(MemoryQos { throttling_factor: 0.9, reserve: true });
            }
            _ => return Err(format!("no setting is called {what:?}")),
        }
        Ok(())
    }
}

fn services() -> Vec<(&'static str, Service)> {
    vec![
        service("default", "kubernetes", "10.96.0.1", &[("https", 443, "TCP")]),
        service("default", "my-db", "10.96.0.20", &[("sql", 5432, "TCP"), ("stats", 9187, "UDP")]),
        service("default", "headless", "None", &[("", 80, "TCP")]),
        service("other", "hidden", "10.96.0.30", &[("", 80, "TCP")]),
    ]
}

fn allocatable() -> Resources {
    let amounts = [("cpu", "3900m"), ("memory", "3Gi"), ("ephemeral-storage", "20Gi"), ("pods", "110")];
    amounts.map(|(name, text)| (name.to_owned(), Quantity::parse(text).expect("a quantity"))).into()
}

fn service(namespace: &'static str, name: &str, ip: &str, ports: &[(&str, i32, &str)]) -> (&'static str, Service) {
    let port = |(name, port, protocol): &(&str, i32, &str)| ServicePort {
        name: (*name).to_owned(),
        port: *port,
        protocol: (*protocol).to_owned(),
    };
    let ports = ports.iter().map(port).collect();
    (namespace, Service { name: name.to_owned(), cluster_ip: ip.to_owned(), ports })
}

/// What variables can refer to.
pub struct Objects;

impl Lookup for Objects {
    fn config_map(&self, name: &str) -> Option<BTreeMap<&str, &str>> {
        match name {
            "settings" => Some(BTreeMap::from([("LEVEL", "3"), ("MODE", "fast"), ("app.yaml", "a: 1\n")])),
            "odd" => Some(BTreeMap::from([("good", "1"), ("a=b", "2")])),
            _ => None,
        }
    }

    fn secret(&self, name: &str) -> Option<BTreeMap<&str, &[u8]>> {
        match name {
            "creds" => {
                Some(BTreeMap::from([("MODE", &b"from-secret"[..]), ("password", b"hunter2"), ("user", b"admin")]))
            }
            "binary" => Some(BTreeMap::from([("key", &b"\xff\x00"[..])])),
            _ => None,
        }
    }

    fn env_file(&self, volume: &str, path: &str) -> Result<Option<String>, String> {
        let files = BTreeMap::from([
            ("config/good.env", "# made by the init container\nADDRESS='db.example'\nQUOTE='a # b\n c'\n"),
            ("config/bad.env", "ADDRESS=\"db.example\"\n"),
        ]);
        Ok(files.get(format!("{volume}/{path}").as_str()).map(|text| (*text).to_owned()))
    }
}

/// What the volumes' room says of a volume that lies at `path`.
pub fn source<'a>(volume: &core::Volume, path: &'a Path) -> Source<'a> {
    let files = volume.config_map.is_some()
        || volume.secret.is_some()
        || volume.downward_api.is_some()
        || volume.projected.is_some();
    let claim = volume.persistent_volume_claim.as_ref();
    match volume {
        v if v.image.is_some() => Source::Image("sha256:9f8e"),
        _ if claim.is_some_and(|c| c.claim_name.starts_with("block")) => {
            Source::Device { path, read_only: claim.and_then(|c| c.read_only) == Some(true) }
        }
        v => Source::Path {
            path,
            read_only: files || claim.and_then(|c| c.read_only) == Some(true),
            relabel: files || v.empty_dir.is_some(),
        },
    }
}

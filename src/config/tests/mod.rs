//! Configurations as a whole: what files and flags come to, and what is said about wrong ones.

use std::path::{Path, PathBuf};
use std::time::Duration;

use super::file::Layer;
use super::flags::{FlagError, Flags, Parsed, parse};
use super::resolve::{Machine, resolve};
use super::*;

mod command_line;
mod faults;

const HEAD: &str = "apiVersion: kubelet.config.k8s.io/v1beta1\nkind: KubeletConfiguration\n";

fn flags(args: &[&str]) -> Result<Flags, FlagError> {
    match parse(args.iter().copied())? {
        Parsed::Run(flags) => Ok(*flags),
        Parsed::Help => panic!("help was asked for"),
    }
}

fn machine() -> Machine {
    Machine { host_name: " Edge-7\n".to_owned(), cpus: 3, runtime_socket: "/found.sock".into() }
}

/// `files` without their heads; the first is the main file when `--config` is among the arguments.
fn run(files: &[&str], args: &[&str]) -> Result<Loaded, Error> {
    let mut layers = Vec::new();
    for (i, text) in files.iter().enumerate() {
        let path = format!("/etc/cleat/{i}.yaml");
        layers.push(Layer::parse(Path::new(&path), &format!("{HEAD}{text}")).map_err(Error::Invalid)?);
    }
    resolve(&layers, &flags(args)?, &machine())
}

fn good(files: &[&str], args: &[&str]) -> Config {
    run(files, args).unwrap_or_else(|e| panic!("{files:?} {args:?}: {e}")).config
}

fn secs(n: u64) -> Duration {
    Duration::from_secs(n)
}

#[test]
fn defaults() {
    let Loaded { config: c, warnings } = run(&[], &[]).unwrap();
    assert_eq!(warnings, Vec::<String>::new());
    assert_eq!((c.node_name.as_str(), c.workers, c.verbosity), ("edge-7", 8, 0));
    assert_eq!((c.root_dir.to_str(), c.pod_logs_dir.to_str()), (Some("/var/lib/cleat"), Some("/var/log/pods")));
    assert_eq!(c.static_pod_path, Some("/etc/cleat/manifests".into()));
    assert_eq!((c.file_check_frequency, c.http_check_frequency, c.sync_frequency), (secs(20), secs(20), secs(60)));
    assert_eq!((c.runtime_endpoint.to_str(), c.image_endpoint.to_str()), (Some("/found.sock"), Some("/found.sock")));
    assert_eq!(c.runtime_request_timeout, secs(120));
    let image = Image {
        max_parallel_pulls: Some(1),
        pull_rate: Some(Rate { qps: 5, burst: 10 }),
        gc_high_threshold: 85,
        gc_low_threshold: 80,
        minimum_gc_age: secs(120),
        maximum_gc_age: None,
        credential_provider: None,
        archive_dir: "/etc/cleat/images".into(),
    };
    assert_eq!(c.image, image);
    let log = ContainerLog {
        max_size: 10 << 20,
        max_files: 5,
        max_workers: 1,
        monitor_interval: secs(10),
        max_total_size: None,
    };
    assert_eq!(c.container_log, log);
    assert_eq!((c.max_pods, c.pod_pids_limit, c.crash_loop_max_backoff), (110, None, secs(300)));
    assert_eq!(c.dns.resolv_conf, Some("/etc/resolv.conf".into()));
    let cgroup = Cgroup {
        root: String::new(),
        driver: CgroupDriver::Cgroupfs,
        per_qos: true,
        fail_v1: false,
        cpu_cfs_quota: true,
        cpu_cfs_quota_period: Duration::from_millis(100),
        single_process_oom_kill: None,
        memory_throttling_factor: 0.9,
        memory_reservation: false,
        kube_reserved: String::new(),
        system_reserved: String::new(),
    };
    assert_eq!(c.cgroup, cgroup);
    assert_eq!((c.fail_swap_on, c.memory_swap, c.oom_score_adj), (true, MemorySwap::NoSwap, -999));
    let server = &c.server;
    assert_eq!((server.address.to_string().as_str(), server.port, server.read_only_port), ("127.0.0.1", 10250, None));
    assert_eq!(server.healthz.map(|a| a.to_string()).as_deref(), Some("127.0.0.1:10248"));
    assert_eq!((server.anonymous, server.token_webhook), (false, Some(secs(120))));
    let webhook = Authorization::Webhook { authorized_ttl: secs(300), unauthorized_ttl: secs(30) };
    assert_eq!(server.authorization, webhook);
    assert_eq!(server.tls.cert_dir, PathBuf::from("/var/lib/cleat/pki"));
    assert_eq!((c.event_rate, c.shutdown), (Some(Rate { qps: 50, burst: 100 }), Shutdown::Off));
    assert_eq!((c.node.kubeconfig, c.node.register, c.node.lease_duration), (None, true, secs(40)));
    assert_eq!((c.node.status_update_frequency, c.node.status_report_frequency), (secs(10), secs(300)));
    let hard: Vec<String> = c.eviction.hard.iter().map(|(signal, amount)| format!("{signal} {amount:?}")).collect();
    let percents = ["nodefs.available Percent(10.0)", "nodefs.inodesFree Percent(5.0)"];
    assert_eq!((hard.len(), hard.get(1..3).unwrap_or_default()), (5, &percents.map(str::to_owned)[..]));
}

/// The HTTPS API is where an API server reaches it, and never where anybody may use it unasked.
#[test]
fn where_the_servers_listen() {
    let open = "authentication: {anonymous: {enabled: true}}\nauthorization: {mode: AlwaysAllow}";
    let open_given = &format!("address: 0.0.0.0\n{open}");
    let anonymous = "authentication: {anonymous: {enabled: true}}";
    let stays = "the API server can't reach port 10250 of this node: since authentication.anonymous.enabled is true and \
                 authorization.mode is AlwaysAllow, it stays at 127.0.0.1";
    let anybody = "whoever reaches port 10250 at 0.0.0.0 may run commands in all pods of this node, since \
                   authentication.anonymous.enabled is true and authorization.mode is AlwaysAllow";
    let joined: &[&str] = &["--kubeconfig=/k"];
    let table = [
        ("", [].as_slice(), "127.0.0.1", "127.0.0.1", None),
        ("", joined, "0.0.0.0", "127.0.0.1", None),
        ("address: 192.0.2.1", joined, "192.0.2.1", "192.0.2.1", None),
        ("address: 127.0.0.1", joined, "127.0.0.1", "127.0.0.1", None),
        // The API server decides what the anonymous may.
        (anonymous, joined, "0.0.0.0", "127.0.0.1", None),
        (open, joined, "127.0.0.1", "127.0.0.1", Some(stays)),
        (open_given, joined, "0.0.0.0", "0.0.0.0", Some(anybody)),
        (open_given, &["--kubeconfig=/k", "--enable-server=false"], "0.0.0.0", "0.0.0.0", None),
    ];
    for (file, args, address, read_only, warning) in table {
        let Loaded { config, warnings } = run(&[file], args).unwrap();
        let is = (config.server.address.to_string(), config.server.read_only_address.to_string());
        assert_eq!(is, (address.to_owned(), read_only.to_owned()), "{file} {args:?}");
        let told = warnings.iter().find(|text| !text.starts_with("no source of pods"));
        assert_eq!(told.map(String::as_str), warning, "{file} {args:?}");
    }
}

/// How changes of objects are found out, and what limits the telling of events.
#[test]
fn what_the_api_server_is_asked_and_told() {
    let changes =
        |value: &str| good(&[&format!("configMapAndSecretChangeDetectionStrategy: {value}")], &[]).object_changes;
    for (value, want) in [("Watch", ObjectChanges::Watch), ("Cache", ObjectChanges::Ask), ("Get", ObjectChanges::Ask)] {
        assert_eq!(changes(value), want, "{value}");
    }
    let rate = |qps, burst| Some(Rate { qps, burst });
    for (file, want) in [
        ("", rate(50, 100)),
        ("eventRecordQPS: 5", rate(5, 100)),
        ("eventRecordQPS: 5\neventBurst: 7", rate(5, 7)),
        ("eventRecordQPS: 0", None),
    ] {
        assert_eq!(good(&[file], &[]).event_rate, want, "{file}");
    }
}

/// What the conformance runner writes.
#[test]
fn the_file_of_the_conformance_cell() {
    let file = "
address: 0.0.0.0
authentication:
  anonymous: {enabled: true}
  webhook: {enabled: false}
authorization: {mode: AlwaysAllow}
cgroupDriver: cgroupfs
cgroupRoot: /conf-0
containerRuntimeEndpoint: unix:///w/c0/ctr.sock
enableControllerAttachDetach: false
evictionHard: {imagefs.available: 0%, memory.available: 1Mi, nodefs.available: 0%}
failCgroupV1: false
failSwapOn: false
fileCheckFrequency: 5s
healthzPort: 0
httpCheckFrequency: 2s
imageGCHighThresholdPercent: 100
imageGCLowThresholdPercent: 99
maxPods: 250
podLogsDir: /w/c0/logs
port: 10250
readOnlyPort: 10255
registryPullQPS: 0
resolvConf: /w/c0/resolv.conf
seccompDefault: false
serializeImagePulls: false
staticPodPath: /w/c0/manifests1
syncFrequency: 5s
volumePluginDir: /w/c0/volume-plugins
";
    let args = ["--config", "/etc/cleat/0.yaml", "--root-dir", "/w/c0/root1", "--hostname-override", "edge-1"];
    let Loaded { config: c, warnings } = run(&[file], &args).unwrap();
    assert_eq!(c.node_name, "edge-1");
    assert_eq!(c.static_pod_path, Some("/w/c0/manifests1".into()));
    assert_eq!((c.runtime_endpoint.to_str(), c.cgroup.root.as_str()), (Some("/w/c0/ctr.sock"), "/conf-0"));
    assert_eq!((c.server.address.to_string().as_str(), c.server.read_only_port), ("0.0.0.0", Some(10255)));
    assert_eq!((c.server.healthz, c.server.authorization), (None, Authorization::AlwaysAllow));
    assert_eq!((c.image.max_parallel_pulls, c.image.pull_rate, c.fail_swap_on), (None, None, false));
    let memory = eviction::Amount::Quantity(Quantity::parse("1Mi").unwrap());
    assert_eq!(c.eviction.hard, BTreeMap::from([(eviction::Signal::MemoryAvailable, memory)]));
    assert!(warnings.iter().all(|w| w.ends_with(" is known but not served yet; it is ignored")), "{warnings:?}");
}

/// As kubeadm writes it: zeros for what is not set.
#[test]
fn a_file_of_kubeadm() {
    let file = r#"
authentication:
  anonymous:
    enabled: false
  webhook:
    cacheTTL: 0s
    enabled: true
  x509:
    clientCAFile: /etc/kubernetes/pki/ca.crt
authorization:
  mode: Webhook
  webhook:
    cacheAuthorizedTTL: 0s
    cacheUnauthorizedTTL: 0s
cgroupDriver: systemd
clusterDNS:
- 10.96.0.10
clusterDomain: cluster.local
containerRuntimeEndpoint: ""
cpuManagerReconcilePeriod: 0s
crashLoopBackOff: {}
evictionPressureTransitionPeriod: 0s
fileCheckFrequency: 0s
healthzBindAddress: 127.0.0.1
healthzPort: 10248
httpCheckFrequency: 0s
imageMaximumGCAge: 0s
imageMinimumGCAge: 0s
logging:
  flushFrequency: 0
  options:
    json:
      infoBufferSize: "0"
    text:
      infoBufferSize: "0"
  verbosity: 0
memorySwap: {}
nodeStatusReportFrequency: 0s
nodeStatusUpdateFrequency: 0s
rotateCertificates: true
runtimeRequestTimeout: 0s
shutdownGracePeriod: 0s
shutdownGracePeriodCriticalPods: 0s
staticPodPath: /etc/kubernetes/manifests
streamingConnectionIdleTimeout: 0s
syncFrequency: 0s
volumeStatsAggPeriod: 0s
"#;
    let Loaded { config: c, warnings } = run(&[file], &["--config=/etc/cleat/0.yaml"]).unwrap();
    assert_eq!((c.sync_frequency, c.file_check_frequency, c.runtime_request_timeout), (secs(60), secs(20), secs(120)));
    assert_eq!((c.runtime_endpoint.to_str(), c.cgroup.driver), (Some("/found.sock"), CgroupDriver::Systemd));
    assert_eq!((c.server.token_webhook, c.volume_stats_agg_period), (Some(secs(120)), Some(secs(60))));
    assert_eq!(c.server.client_ca_file, Some("/etc/kubernetes/pki/ca.crt".into()));
    assert!(warnings.iter().all(|w| w.ends_with(" is known but not served yet; it is ignored")), "{warnings:?}");
}

#[test]
fn file_then_drop_ins_then_flags() {
    let file = "maxPods: 1\nsyncFrequency: 1s\nreadOnlyPort: 1\nclusterDNS: [10.0.0.1, 10.0.0.2]\n\
                systemReserved: {cpu: 200m, memory: 1Gi}\nfeatureGates: {A: true, B: true}\ncgroupRoot: /x";
    let drop_ins = [
        "maxPods: 2\nreadOnlyPort: 2\nclusterDNS: [10.0.0.3]\nsystemReserved: {memory: 2Gi}\nfeatureGates: {B: false}",
        "maxPods: 3\nsystemReserved: {cpu: null, pid: '100'}\ncgroupRoot: null",
    ];
    let args = ["--config=0", "--config-dir=d", "--max-pods=4", "--feature-gates", "B=true,C=1"];
    let c = good(&[file, drop_ins[0], drop_ins[1]], &args);
    assert_eq!((c.max_pods, c.server.read_only_port, c.sync_frequency), (4, Some(2), secs(1)));
    assert_eq!(c.dns.cluster_servers, ["10.0.0.3".parse::<IpAddr>().unwrap()]);
    let reserved: Vec<(&str, i64)> = c.system_reserved.iter().map(|(k, v)| (k.as_str(), v.value())).collect();
    assert_eq!(reserved, [("memory", 2 << 30), ("pid", 100)]);
    assert_eq!(c.cgroup.root, "");
    let gates: Vec<(&str, bool)> = c.feature_gates.iter().map(|(k, v)| (k.as_str(), *v)).collect();
    assert_eq!(gates, [("A", true), ("B", true), ("C", true)]);
    // A mapping in a flag replaces those of the files.
    let c = good(&[file], &["--config=0", "--system-reserved=pid=5"]);
    assert_eq!(c.system_reserved.keys().collect::<Vec<_>>(), ["pid"]);
}

#[test]
fn eviction_hard_of_files_drop_ins_and_flags() {
    let hard = |files: &[&str], args: &[&str]| -> Vec<String> {
        good(files, args).eviction.hard.keys().map(ToString::to_string).collect()
    };
    let all = ["memory.available", "nodefs.available", "nodefs.inodesFree", "imagefs.available", "imagefs.inodesFree"];
    let memory = "evictionHard: {memory.available: 1Gi}";
    let merged = format!("{memory}\nmergeDefaultEvictionSettings: true");
    let table: &[(&[&str], &[&str], &[&str])] = &[
        (&["maxPods: 1"], &["--config=0"], &all),
        (&[memory], &["--config=0"], &["memory.available"]),
        (&["evictionHard: {}"], &["--config=0"], &[]),
        (&[&merged], &["--config=0"], &all),
        (&["maxPods: 1", memory], &["--config=0", "--config-dir=d"], &all),
        (&[memory, "evictionHard: {pid.available: '10'}"], &["--config=0"], &["memory.available", "pid.available"]),
        (&[memory], &["--config-dir=d"], &["memory.available"]),
        (&[], &["--eviction-hard=pid.available<5%"], &["pid.available"]),
        (&[&merged], &["--config=0", "--eviction-hard", "pid.available<5%"], &["pid.available"]),
    ];
    for (files, args, signals) in table {
        assert_eq!(hard(files, args), *signals, "{files:?} {args:?}");
    }
}

#[test]
fn defaults_that_depend_on_other_fields() {
    let c = good(&["nodeStatusUpdateFrequency: 30s"], &[]);
    assert_eq!((c.node.status_update_frequency, c.node.status_report_frequency), (secs(30), secs(30)));
    assert_eq!(good(&["maxParallelImagePulls: 4"], &[]).image.max_parallel_pulls, Some(4));
    assert_eq!(good(&["maxParallelImagePulls: 1"], &[]).image.max_parallel_pulls, Some(1));
    assert_eq!(good(&["serializeImagePulls: false"], &[]).image.max_parallel_pulls, None);
    assert_eq!(good(&["enforceNodeAllocatable: []"], &[]).enforce_node_allocatable, Vec::<String>::new());
    let memory = |text| {
        let cgroup = good(&[text], &[]).cgroup;
        (cgroup.memory_throttling_factor, cgroup.memory_reservation)
    };
    assert_eq!(memory("memoryThrottlingFactor: 0.5"), (0.5, false));
    let tiered = "featureGates: {MemoryQoS: true}\nmemoryReservationPolicy: TieredReservation";
    assert_eq!(memory(tiered), (0.9, true));
    assert_eq!(good(&["podPidsLimit: -5"], &[]).pod_pids_limit, None);
    assert_eq!(good(&["volumeStatsAggPeriod: -1s"], &[]).volume_stats_agg_period, None);
    let nothing = good(&["evictionMinimumReclaim: {memory.available: '0', pid.available: 0%}"], &[]).eviction;
    assert!(nothing.minimum_reclaim.is_empty());
    assert_eq!(good(&["resolvConf: ''"], &[]).dns.resolv_conf, None);
    assert_eq!(good(&["logging: {flushFrequency: 5000000000, verbosity: 3}"], &[]).verbosity, 3);
    assert_eq!(good(&["maxPods: null\nauthentication: null"], &[]).max_pods, 110);
    assert_eq!(good(&["podLogsDir: /logs//"], &[]).pod_logs_dir, PathBuf::from("/logs"));
    let by_priority = "shutdownGracePeriodByPodPriority:\n- {priority: 9, shutdownGracePeriodSeconds: 1}\n\
                       - {priority: 0, shutdownGracePeriodSeconds: 30}";
    let expected = Shutdown::ByPriority(vec![(0, secs(30)), (9, secs(1))]);
    assert_eq!(good(&[by_priority], &[]).shutdown, expected);
}

#[test]
fn sources_of_pods() {
    let file = |text: &str, args: &[&str]| run(&[text], args).unwrap();
    let none = file("maxPods: 110", &["--config=0"]);
    assert_eq!(none.config.static_pod_path, None);
    let message = "no source of pods is configured: set staticPodPath, staticPodURL or --kubeconfig";
    assert_eq!(none.warnings, [message]);
    // A relative path starts at the file that has it.
    let c = file("staticPodPath: manifests\nresolvConf: r", &[]).config;
    assert_eq!(c.static_pod_path, Some("/etc/cleat/manifests".into()));
    assert_eq!(c.dns.resolv_conf, Some("/etc/cleat/r".into()));
    let url = "staticPodURL: http://h/x\nstaticPodURLHeader: {b: [2, '1'], a: ['3']}".replace("[2,", "['2',");
    let c = file(&url, &[]).config;
    let pairs = [("a", "3"), ("b", "2"), ("b", "1")].map(|(k, v)| (k.to_owned(), v.to_owned())).to_vec();
    assert_eq!(c.static_pod_url, Some(StaticPodUrl { url: "http://h/x".to_owned(), headers: pairs, ca_file: None }));
    let c = good(
        &[],
        &["--manifest-url=https://h/y", "--manifest-url-header", "a:hello,b:again", "--manifest-url-header=b:x"],
    );
    assert_eq!(c.static_pod_path, None);
    assert_eq!(c.static_pod_url.map(|u| u.headers.len()), Some(3));
    let c = good(&[], &["--manifest-url=https://h/y", "--manifest-url-ca-file=/ca.pem"]);
    assert_eq!(c.static_pod_url.and_then(|u| u.ca_file), Some("/ca.pem".into()));
    assert_eq!(good(&[], &["--kubeconfig=/k"]).static_pod_path, None);
    assert_eq!(good(&[], &["--pod-manifest-path", "x.yaml"]).static_pod_path, Some("x.yaml".into()));
}

#[test]
fn load_reads_the_file_and_its_drop_ins_in_order() {
    let dir = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(&path, format!("{HEAD}{text}")).unwrap();
        path.to_str().unwrap().to_owned()
    };
    let main = write("main.yaml", "maxPods: 1\npodsPerCore: 1\nreadOnlyPort: 1");
    write("d/10-a.conf", "maxPods: 2\npodsPerCore: 2\nreadOnlyPort: 2");
    write("d/20/z.conf", "maxPods: 3\npodsPerCore: 3");
    write("d/30.conf", "maxPods: 4");
    write("d/40.yaml", "maxPods: 5");
    let drop_ins = dir.path().join("d").to_str().unwrap().to_owned();
    let args = ["--config", &main, "--config-dir", &drop_ins, "--hostname-override=n"];
    let c = load(&flags(&args).unwrap()).unwrap().config;
    assert_eq!((c.max_pods, c.pods_per_core, c.server.read_only_port), (4, 3, Some(2)));

    write("d/30.conf", "foo: 1");
    write("d/10-a.conf", "bar: 1");
    let error = load(&flags(&args).unwrap()).unwrap_err().to_string();
    let expected = format!(
        "invalid configuration:\n  {drop_ins}/10-a.conf:3: bar: unknown field\n  {drop_ins}/30.conf:3: foo: unknown field"
    );
    assert_eq!(error, expected);

    let error = load(&flags(&["--config=/no/such/file"]).unwrap()).unwrap_err().to_string();
    assert_eq!(error, "can't read the configuration /no/such/file: No such file or directory (os error 2)");
}

//! What is said about wrong configurations, and about which place.

use std::path::Path;

use super::{flags, machine, run};
use crate::config::fault;
use crate::config::file::Layer;
use crate::config::flags::Flags;
use crate::config::resolve::{Machine, resolve};

/// Each with its exact text; lines count the two of the head.
#[test]
fn wrong_files() {
    let at = |line: u32, rest: &str| format!("invalid configuration: /etc/cleat/0.yaml:{line}: {rest}");
    let unit = "the units are h, m, s, ms, us and ns";
    let table: &[(&str, String)] = &[
        ("maxpods: 1", at(3, "maxpods: unknown field")),
        (
            "maxPods: 1\nfoo: 1\nmemorySwap:\n  bar: {x: 1}\nmaxPods: 2",
            "invalid configuration:\n  /etc/cleat/0.yaml:4: foo: unknown field\
             \n  /etc/cleat/0.yaml:6: memorySwap.bar: unknown field\
             \n  /etc/cleat/0.yaml:7: \"maxPods\" stands here again"
                .to_owned(),
        ),
        ("maxPods: many", at(3, "maxPods: invalid type: string \"many\", expected i32")),
        ("maxPods: 9999999999", at(3, "maxPods: invalid value: integer `9999999999`, expected i32")),
        ("address: [1]", at(3, "address: invalid type: sequence, expected a string")),
        ("failSwapOn: 1", at(3, "failSwapOn: invalid type: integer `1`, expected a boolean")),
        ("syncFrequency: 20", at(3, "syncFrequency: invalid type: integer `20`, expected a duration like \"1m30s\"")),
        ("syncFrequency: '20'", at(3, &format!("syncFrequency: \"20\" has no unit; {unit}"))),
        ("syncFrequency: -5s", at(3, "syncFrequency: must not be negative, not -5s")),
        ("address: localhost", at(3, "address: must be an IP address, not \"localhost\"")),
        ("healthzBindAddress: x", at(3, "healthzBindAddress: must be an IP address, not \"x\"")),
        ("port: 70000", at(3, "port: must be between 1 and 65535, not 70000")),
        ("readOnlyPort: -1", at(3, "readOnlyPort: must be between 0 and 65535, not -1")),
        ("maxPods: -1", at(3, "maxPods: must be 0 or more, not -1")),
        ("oomScoreAdj: -1001", at(3, "oomScoreAdj: must be between -1000 and 1000, not -1001")),
        ("cgroupDriver: docker", at(3, "cgroupDriver: must be one of cgroupfs, systemd, not \"docker\"")),
        ("hairpinMode: on", at(3, "hairpinMode: invalid type: boolean `true`, expected a string")),
        ("tlsMinVersion: TLS1", {
            let names = "VersionTLS10, VersionTLS11, VersionTLS12, VersionTLS13";
            at(3, &format!("tlsMinVersion: must be one of {names}, not \"TLS1\""))
        }),
        (
            "memorySwap:\n  swapBehavior: x",
            at(4, "memorySwap.swapBehavior: must be one of NoSwap, LimitedSwap, not \"x\""),
        ),
        ("authorization: {mode: x}", at(3, "authorization.mode: must be one of AlwaysAllow, Webhook, not \"x\"")),
        (
            "containerRuntimeEndpoint: /run/x.sock",
            at(3, "containerRuntimeEndpoint: must be written unix:///run/x.sock"),
        ),
        (
            "imageServiceEndpoint: tcp://h:1",
            at(
                3,
                "imageServiceEndpoint: must be a socket like unix:///run/containerd/containerd.sock, not \"tcp://h:1\"",
            ),
        ),
        (
            "imageGCHighThresholdPercent: 70",
            at(3, "imageGCLowThresholdPercent: must be less than imageGCHighThresholdPercent, 70, not 80"),
        ),
        ("imageGCHighThresholdPercent: 101", {
            at(3, "imageGCHighThresholdPercent: must be between 0 and 100, not 101")
        }),
        ("imageMaximumGCAge: 1m", at(3, "imageMaximumGCAge: must be more than imageMinimumGCAge, 2m0s, not 1m0s")),
        (
            "serializeImagePulls: true\nmaxParallelImagePulls: 2",
            at(4, "maxParallelImagePulls: must not be more than 1 while serializeImagePulls is true"),
        ),
        (
            "crashLoopBackOff:\n  maxContainerRestartPeriod: 301s",
            at(4, "crashLoopBackOff.maxContainerRestartPeriod: must be between 1s and 5m0s, not 5m1s"),
        ),
        ("cpuCFSQuotaPeriod: 2s", at(3, "cpuCFSQuotaPeriod: must be between 1ms and 1s, not 2s")),
        ("containerLogMaxFiles: 1", at(3, "containerLogMaxFiles: must be between 2 and 2147483647, not 1")),
        ("containerLogMaxSize: big", at(3, "containerLogMaxSize: must be a quantity like 100Mi, not \"big\"")),
        ("containerLogMaxSize: '0'", at(3, "containerLogMaxSize: must be more than 0")),
        ("containerLogMonitorInterval: 2s", at(3, "containerLogMonitorInterval: must be 3s or more, not 2s")),
        (
            "evictionHard:\n  memory.available: 1Mi\n  memory.free: 1Mi",
            at(
                5,
                "evictionHard[memory.free]: is no eviction signal; there are memory.available, \
                 allocatableMemory.available, nodefs.available, nodefs.inodesFree, imagefs.available, \
                 imagefs.inodesFree, containerfs.available, containerfs.inodesFree, pid.available",
            ),
        ),
        (
            "evictionHard: {memory.available: lots}",
            at(
                3,
                "evictionHard[memory.available]: \"lots\" is neither a quantity like 100Mi nor a percentage like 10%",
            ),
        ),
        (
            "evictionHard: {memory.available: 120%}",
            at(3, "evictionHard[memory.available]: must be between 0% and 100%, not 120%"),
        ),
        (
            "evictionHard: {memory.available: '0'}",
            at(3, "evictionHard[memory.available]: must be more than 0, not 0; 0% turns it off"),
        ),
        (
            "evictionSoft:\n  memory.available: 1Gi",
            at(4, "evictionSoft[memory.available]: needs a grace period in evictionSoftGracePeriod"),
        ),
        (
            "evictionSoftGracePeriod: {memory.available: 1}",
            at(3, "evictionSoftGracePeriod[memory.available]: invalid type: integer `1`, expected a string"),
        ),
        (
            "evictionSoftGracePeriod: {memory.available: '1'}",
            at(3, &format!("evictionSoftGracePeriod[memory.available]: \"1\" has no unit; {unit}")),
        ),
        ("systemReserved: {cpu: x}", at(3, "systemReserved[cpu]: must be a quantity like 100Mi, not \"x\"")),
        ("clusterDNS: [10.0.0.1, dns]", at(3, "clusterDNS[1]: must be an IP address, not \"dns\"")),
        (
            "enforceNodeAllocatable: [pods, system-reserved]",
            at(3, "enforceNodeAllocatable[1]: \"system-reserved\" needs systemReservedCgroup to be set"),
        ),
        ("cgroupsPerQOS: false", at(3, "enforceNodeAllocatable[0]: \"pods\" needs cgroupsPerQOS to be true")),
        (
            "podLogsDir: /logs/../x",
            at(3, "podLogsDir: must have no empty part, \".\" or \"..\" in it, not \"/logs/../x\""),
        ),
        ("cgroupRoot: pods", at(3, "cgroupRoot: must be a path like /pods, not \"pods\"")),
        ("staticPodURL: h/x", at(3, "staticPodURL: must be a URL like http://host/pods.yaml, not \"h/x\"")),
        (
            "staticPodURL: http://h\nstaticPodURLHeader: {a b: [x]}",
            at(4, "staticPodURLHeader[a b]: is not an HTTP header"),
        ),
        ("cpuManagerPolicy: x", at(3, "cpuManagerPolicy: must be one of none, static, not \"x\"")),
        ("iptablesDropBit: 32", at(3, "iptablesDropBit: must be between 0 and 31, not 32")),
        ("maxOpenFiles: -1", at(3, "maxOpenFiles: must be 0 or more, not -1")),
        ("nodeStatusMaxImages: -2", at(3, "nodeStatusMaxImages: must be -1 or more, not -2")),
        ("maxParallelImagePulls: 0", at(3, "maxParallelImagePulls: must be between 1 and 2147483647, not 0")),
        (
            "tracing: {samplingRatePerMillion: -1}",
            at(3, "tracing.samplingRatePerMillion: must be between 0 and 1000000, not -1"),
        ),
        ("systemCgroups: /s", at(3, "systemCgroups: needs cgroupRoot to be set")),
        (
            "enableSystemLogQuery: true\nenableSystemLogHandler: false",
            at(3, "enableSystemLogQuery: needs enableSystemLogHandler to be true"),
        ),
        (
            "preloadedImagesVerificationAllowlist: [a]",
            at(
                3,
                "preloadedImagesVerificationAllowlist: needs imagePullCredentialsVerificationPolicy to be \
                 NeverVerifyAllowlistedImages",
            ),
        ),
        ("enforceNodeAllocatable: [pods, none]", at(3, "enforceNodeAllocatable[1]: \"none\" must stand alone")),
        ("enforceNodeAllocatable: [pods, pods]", at(3, "enforceNodeAllocatable[1]: \"pods\" stands here twice")),
        (
            "kubeReservedCgroup: /k\nenforceNodeAllocatable: [kube-reserved, kube-reserved-compressible]",
            at(4, "enforceNodeAllocatable: \"kube-reserved\" and \"kube-reserved-compressible\" exclude each other"),
        ),
        (
            "reservedSystemCPUs: 0-1\nkubeReservedCgroup: /k",
            at(3, "reservedSystemCPUs: can't be used with systemReservedCgroup or kubeReservedCgroup"),
        ),
        (
            "reservedMemory:\n- numaNode: 0\n  limits: {cpu: 1}",
            at(5, "reservedMemory[0].limits[cpu]: must be memory or hugepages-SIZE"),
        ),
        (
            "reservedMemory:\n- {numaNode: 0, limits: {memory: 1Gi}}\n- {numaNode: 0, limits: {memory: 1Gi}}",
            at(5, "reservedMemory[1].limits[memory]: NUMA node 0 has this twice"),
        ),
        (
            "registerWithTaints:\n- {key: a b, effect: NoExecute}",
            at(
                4,
                "registerWithTaints[0].key: \"a b\" must consist of letters, digits, '-', '_' and '.', \
                 and begin and end with a letter or digit",
            ),
        ),
        ("evictionSoftGracePeriod: {memory.available: -1s}", {
            at(3, "evictionSoftGracePeriod[memory.available]: must not be negative, not -1s")
        }),
        ("kubeReserved: {gpu: '1'}", at(3, "kubeReserved[gpu]: must be one of cpu, memory, ephemeral-storage, pid")),
        ("runOnce: true", at(3, "runOnce: must not be true; there is no such mode")),
        ("tlsCertFile: /c", at(3, "tlsCertFile: needs tlsPrivateKeyFile to be set")),
        ("shutdownGracePeriod: 500ms", at(3, "shutdownGracePeriod: must be 0s, or 1s or more, not 500ms")),
        (
            "shutdownGracePeriodCriticalPods: 5s",
            at(3, "shutdownGracePeriodCriticalPods: must be no more than shutdownGracePeriod, 0s, not 5s"),
        ),
        (
            "registerWithTaints:\n- {key: k, effect: Never}",
            at(
                4,
                "registerWithTaints[0].effect: must be one of NoSchedule, PreferNoSchedule, NoExecute, not \"Never\"",
            ),
        ),
        ("userNamespaces: {idsPerPod: 1}", {
            at(3, "userNamespaces.idsPerPod: must be a multiple of 65536 below 2^32, not 1")
        }),
        ("reservedSystemCPUs: 3-1", at(3, "reservedSystemCPUs: must be a list like 0-1,3, not \"3-1\"")),
        ("memoryThrottlingFactor: 1.5", at(3, "memoryThrottlingFactor: must be more than 0 and at most 1, not 1.5")),
        (
            "readOnlyPort: 65536\nport: 0x1ffff\nrunOnce: true",
            "invalid configuration:\n  /etc/cleat/0.yaml:3: readOnlyPort: must be between 0 and 65535, not 65536\
             \n  /etc/cleat/0.yaml:4: port: must be between 1 and 65535, not 131071\
             \n  /etc/cleat/0.yaml:5: runOnce: must not be true; there is no such mode"
                .to_owned(),
        ),
    ];
    for (text, message) in table {
        let error = run(&[text], &["--config=0"]).map(|l| l.config).map_err(|e| e.to_string());
        assert_eq!(error, Err(message.clone()), "{text}");
    }
}

#[test]
fn files_that_are_something_else() {
    let table = [
        ("", "/f: the file is empty"),
        ("---\n# nothing\n", "/f: the file is empty"),
        ("- 1", "/f:1: a mapping with kind KubeletConfiguration is expected here"),
        ("kind: KubeletConfiguration", "/f:1: apiVersion: is missing; it must be kubelet.config.k8s.io/v1beta1"),
        ("\napiVersion: v1\nkind: Pod", "/f:2: apiVersion: must be kubelet.config.k8s.io/v1beta1, not \"v1\""),
        ("apiVersion: kubelet.config.k8s.io/v1beta1\nkind: 7", "/f:2: kind: must be KubeletConfiguration"),
        ("a: 1\n---\na: 2", "/f:3: more than one document where one is expected"),
    ];
    for (text, message) in table {
        let faults = Layer::parse(Path::new("/f"), text).map_err(|faults| fault::list(&faults).trim().to_owned());
        assert_eq!(faults.map(|_| ()), Err(message.to_owned()), "{text}");
    }
}

/// A fault is told at the last place that set the field.
#[test]
fn the_place_of_a_fault() {
    let table: &[(&[&str], &[&str], &str)] = &[
        (&["maxPods: -1", "syncFrequency: 1s"], &[], "/etc/cleat/0.yaml:3: maxPods: must be 0 or more, not -1"),
        (&["maxPods: 1", "\nmaxPods: -1"], &[], "/etc/cleat/1.yaml:4: maxPods: must be 0 or more, not -1"),
        (&["maxPods: 1"], &["--max-pods=-1"], "--max-pods: must be 0 or more, not -1"),
        (&[], &["--sync-frequency=0"], "--sync-frequency: must be more than 0s"),
        (&["port: 1"], &["--port=0"], "--port: must be between 1 and 65535, not 0"),
        (
            &["evictionHard: {memory.available: x}", "evictionHard: {pid.available: 5%}"],
            &[],
            "/etc/cleat/0.yaml:3: evictionHard[memory.available]: \
             \"x\" is neither a quantity like 100Mi nor a percentage like 10%",
        ),
        (
            &[],
            &["--eviction-hard=memory.available<x"],
            "--eviction-hard: \"x\" is neither a quantity like 100Mi nor a percentage like 10%",
        ),
        (&[], &["--root-dir=state"], "--root-dir: must be an absolute path, not \"state\""),
        (&[], &["--workers=0"], "--workers: must be between 1 and 64, not 0"),
        (&[], &["--node-ip=10.0.0.1,10.0.0.2"], "--node-ip: must have no more than one address of a family"),
        (&[], &["--node-ip=here"], "--node-ip: must be an IP address, not \"here\""),
        (
            &[],
            &["--hostname-override=my_board"],
            "--hostname-override: \"my_board\" must consist of lower case letters, digits, '-' and '.', \
             and begin and end with a letter or digit",
        ),
        (
            &[],
            &["--node-labels=kubernetes.io/role=x"],
            "--node-labels: a node may not give itself the label \"kubernetes.io/role\"",
        ),
        (
            &[],
            &["--image-credential-provider-config=/c"],
            "--image-credential-provider-config: needs --image-credential-provider-bin-dir",
        ),
    ];
    for (files, args, message) in table {
        let error = run(files, args).map(|l| l.config).map_err(|e| e.to_string());
        assert_eq!(error, Err(format!("invalid configuration: {message}")), "{files:?} {args:?}");
    }
}

#[test]
fn the_host_must_have_a_name() {
    let nameless = Machine { host_name: String::new(), ..machine() };
    let error = resolve(&[], &Flags::default(), &nameless).map(|l| l.config).map_err(|e| e.to_string());
    let message =
        "invalid configuration: node name: the host's name, \"\", must not be empty; or set --hostname-override";
    assert_eq!(error, Err(message.to_owned()));
    let config = resolve(&[], &flags(&["--hostname-override", " Edge-1 "]).unwrap(), &nameless).unwrap().config;
    assert_eq!(config.node_name, "edge-1");
}

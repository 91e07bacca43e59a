use super::*;
use crate::pod::testing::{pod, sidecar, spec};

/// A node with 4 CPUs, 1 GiB and room for 3 pods, and its pods.
struct Busy {
    node: Node,
    pods: Vec<Arc<Pod>>,
}

impl Busy {
    fn new(pods: Vec<Pod>) -> Busy {
        let has = [
            ("cpu", 4000),
            ("memory", 1 << 30),
            ("pods", 3),
            ("ephemeral-storage", 10 << 30),
            ("hugepages-2Mi", 8 << 20),
            ("example.com/gpu", 1),
        ];
        let configured = [("disk", "ssd"), ("rank", "5")].map(|(k, v)| (k.to_owned(), v.to_owned()));
        let node = Node {
            name: "edge-1".to_owned(),
            labels: node_labels("edge-1", &configured.into()),
            taints: Vec::new(),
            allocatable: has.map(|(name, n)| (name.to_owned(), n)).into_iter().collect(),
            sysctls: Allowlist::new(None, &[]).expect("a list"),
            strict_supplemental_groups: false,
        };
        Busy { node, pods: pods.into_iter().map(Arc::new).collect() }
    }

    fn admit(&self, pod: &Pod) -> Result<Vec<PodUid>, Refusal> {
        admit(pod, &self.node, &self.pods)
    }

    /// `ok`, `preempt a b`, or the reason.
    fn says(&self, pod: &Pod) -> String {
        match self.admit(pod) {
            Ok(victims) if victims.is_empty() => "ok".to_owned(),
            Ok(victims) => {
                format!("preempt {}", victims.iter().map(PodUid::as_str).collect::<Vec<_>>().join(" "))
            }
            Err(refusal) => refusal.reason,
        }
    }
}

fn static_pod(name: &str, text: &str) -> Pod {
    pod(name, spec(&[], &[text]))
}

fn api_pod(name: &str, text: &str, priority: i32) -> Pod {
    let mut p = static_pod(name, text);
    p.source = Source::Api;
    p.spec.priority = Some(priority);
    p
}

#[test]
fn what_the_node_holds() {
    let node = Busy::new(vec![static_pod("a", "cpu=1 memory=512Mi example.com/gpu=1")]);
    let table = [
        ("", "ok"),
        ("cpu=3 memory=512Mi", "ok"),
        ("cpu=3001m", "OutOfcpu"),
        ("memory=513Mi", "OutOfmemory"),
        ("ephemeral-storage=11Gi", "OutOfephemeral-storage"),
        ("hugepages-2Mi=8Mi", "ok"),
        ("hugepages-2Mi=10Mi", "OutOfhugepages-2Mi"),
        ("hugepages-1Gi=1Gi", "OutOfhugepages-1Gi"),
        ("example.com/gpu=1", "OutOfexample.com/gpu"),
        // Not the node's to count.
        ("example.com/other=5", "ok"),
        ("cpu=4 memory=1Gi", "OutOfcpu"),
    ];
    for (text, want) in table {
        assert_eq!(node.says(&api_pod("new", text, 0)), want, "{text:?}");
    }
    let refusal = node.admit(&api_pod("new", "cpu=3500m", 0)).expect_err("is too much");
    assert_eq!(refusal.message, "Node has not enough cpu, requested: 3500, used: 1000, capacity: 4000");
    assert!(refusal.may_pass_when_a_pod_ends());
    let refusal = node.admit(&api_pod("new", "cpu=5", 0)).expect_err("is too much");
    assert!(!refusal.may_pass_when_a_pod_ends(), "{refusal:?}");
}

#[test]
fn init_containers_and_overhead_count() {
    let node = Busy::new(Vec::new());
    let mut p = pod("new", spec(&["cpu=4"], &["cpu=1"]));
    p.source = Source::Api;
    assert_eq!(node.says(&p), "ok");
    p.spec.overhead = Some(crate::pod::testing::list("cpu=1m"));
    assert_eq!(node.says(&p), "OutOfcpu");
}

#[test]
fn how_many_pods_there_may_be() {
    let node = Busy::new(["a", "b", "c"].map(|name| static_pod(name, "")).into());
    assert_eq!(node.says(&api_pod("new", "", 0)), "OutOfpods");
    // One that is there already is no further pod.
    assert_eq!(node.says(&static_pod("c", "cpu=1")), "ok");
    let refusal = node.admit(&static_pod("new", "")).expect_err("is one too many");
    assert_eq!(refusal.reason, "UnexpectedAdmissionError");
    assert!(refusal.message.contains("[(res: pods, q: 1)]"), "{}", refusal.message);
    assert!(refusal.may_pass_when_a_pod_ends());
}

#[test]
fn critical_pods_preempt() {
    let guaranteed = |name| api_pod(name, "cpu=2 memory=256Mi / cpu=2 memory=256Mi", 0);
    let burstable = |name, text| api_pod(name, text, 0);
    let cases: Vec<(Vec<Pod>, &str, &str)> = vec![
        // Nothing that may be ended.
        (vec![static_pod("s", "cpu=4")], "cpu=1", "UnexpectedAdmissionError"),
        // One class is enough.
        (vec![guaranteed("g"), burstable("b", "cpu=2")], "cpu=1", "preempt b"),
        // Who comes nearest to what is lacking; of equals the smaller one.
        (vec![burstable("b1", "cpu=500m"), burstable("b2", "cpu=3")], "cpu=2", "preempt b2"),
        (vec![burstable("b1", "cpu=2 memory=8Mi"), burstable("b2", "cpu=2 memory=4Mi")], "cpu=1", "preempt b2"),
        (vec![burstable("b1", "cpu=1"), burstable("b2", "cpu=3")], "cpu=4", "preempt b2 b1"),
        // Burstable ones before Guaranteed ones, as far as they go.
        (vec![guaranteed("g"), burstable("b", "cpu=2")], "cpu=3", "preempt b g"),
        // For a place, the least important one.
        (vec![guaranteed("g"), burstable("b", "cpu=100m"), api_pod("e", "", 0)], "", "preempt e"),
        // Even all together would not do.
        (vec![static_pod("s", "cpu=2"), burstable("b", "cpu=2")], "cpu=3", "UnexpectedAdmissionError"),
        (vec![burstable("b", "memory=1Gi")], "cpu=1 memory=512Mi", "preempt b"),
    ];
    for (pods, text, want) in cases {
        let names: Vec<_> = pods.iter().map(|p| p.uid.to_string()).collect();
        assert_eq!(Busy::new(pods).says(&static_pod("new", text)), want, "{names:?} {text:?}");
    }
    // A pod of the cluster that isn't critical preempts nobody.
    assert_eq!(Busy::new(vec![api_pod("b", "cpu=4", 0)]).says(&api_pod("new", "cpu=1", 10)), "OutOfcpu");
    // Among critical ones the more important does.
    let node = Busy::new(vec![api_pod("b", "cpu=4", 2_000_000_000)]);
    assert_eq!(node.says(&api_pod("new", "cpu=1", 2_000_001_000)), "preempt b");
    assert_eq!(node.says(&static_pod("new", "cpu=1")), "UnexpectedAdmissionError");
}

#[test]
fn no_room_is_made_for_who_does_not_fit_otherwise() {
    let node = Busy::new(vec![api_pod("b", "cpu=4", 0)]);
    let mut p = static_pod("new", "cpu=1");
    p.spec.node_name = Some("other".to_owned());
    let refusal = node.admit(&p).expect_err("is elsewhere");
    assert_eq!((refusal.reason.as_str(), &refusal.wants), ("NodeName", &Wants::Node));
    // A pod that isn't critical hears of resources first.
    p.source = Source::Api;
    assert_eq!(node.says(&p), "OutOfcpu");
}

fn with_ports(name: &str, ports: &[(&str, &str, i32)]) -> Pod {
    let mut p = static_pod(name, "");
    let port = |(ip, protocol, port): &(&str, &str, i32)| core::ContainerPort {
        container_port: 80,
        host_port: Some(*port),
        host_ip: Some((*ip).to_owned()).filter(|ip| !ip.is_empty()),
        protocol: Some((*protocol).to_owned()).filter(|p| !p.is_empty()),
        ..Default::default()
    };
    p.spec.containers[0].ports = Some(ports.iter().map(port).collect());
    p
}

#[test]
fn host_ports() {
    let node = Busy::new(vec![with_ports("a", &[("", "", 8080), ("192.0.2.1", "TCP", 9090), ("::1", "UDP", 53)])]);
    let table: &[(&str, &str, i32, bool)] = &[
        ("", "TCP", 8080, false),
        ("127.0.0.1", "TCP", 8080, false),
        ("", "UDP", 8080, true),
        ("", "TCP", 8081, true),
        ("192.0.2.2", "TCP", 9090, true),
        ("192.0.2.1", "TCP", 9090, false),
        ("0.0.0.0", "TCP", 9090, false),
        ("::", "UDP", 53, false),
        ("", "TCP", 0, true),
    ];
    for (ip, protocol, port, fits) in table {
        let got = node.says(&with_ports("new", &[(ip, protocol, *port)]));
        assert_eq!(got, if *fits { "ok" } else { "NodePorts" }, "{ip} {protocol} {port}");
    }
    let refusal = node.admit(&with_ports("new", &[("", "", 8081), ("", "UDP", 53)])).expect_err("is taken");
    let port = HostPort { ip: String::new(), protocol: "UDP".to_owned(), port: 53 };
    assert_eq!(refusal.wants, Wants::HostPorts(vec![port]));
    assert!(refusal.message.ends_with(": 53/UDP") && refusal.may_pass_when_a_pod_ends(), "{refusal:?}");
}

#[test]
fn ports_of_sidecars_and_not_of_init_containers() {
    let mut p = pod("a", spec(&[""], &[""]));
    p.spec.init_containers.as_mut().expect("is there")[0].ports =
        with_ports("x", &[("", "", 8080)]).spec.containers[0].ports.clone();
    let wanted = with_ports("new", &[("", "", 8080)]);
    assert_eq!(Busy::new(vec![p.clone()]).says(&wanted), "ok");
    sidecar(&mut p.spec.init_containers.as_mut().expect("is there")[0], true);
    assert_eq!(Busy::new(vec![p]).says(&wanted), "NodePorts");
}

#[test]
fn selectors_and_affinity() {
    let node = Busy::new(Vec::new());
    let selected = |key: &str, value: &str| {
        let mut p = static_pod("new", "");
        p.spec.node_selector = Some([(key.to_owned(), value.to_owned())].into());
        node.says(&p)
    };
    assert_eq!(selected("disk", "ssd"), "ok");
    assert_eq!(selected("kubernetes.io/hostname", "edge-1"), "ok");
    assert_eq!(selected("kubernetes.io/os", "linux"), "ok");
    assert_eq!(selected("disk", "hdd"), "NodeAffinity");
    assert_eq!(selected("none", ""), "NodeAffinity");

    let requirement = |text: &str| {
        let mut words = text.split(' ').map(str::to_owned);
        core::NodeSelectorRequirement {
            key: words.next().unwrap_or_default(),
            operator: words.next().unwrap_or_default(),
            values: Some(words.collect()),
        }
    };
    let required = |terms: Vec<core::NodeSelectorTerm>| {
        let mut p = static_pod("new", "");
        p.spec.affinity = Some(core::Affinity {
            node_affinity: Some(core::NodeAffinity {
                required_during_scheduling_ignored_during_execution: Some(core::NodeSelector {
                    node_selector_terms: terms,
                }),
                ..Default::default()
            }),
            ..Default::default()
        });
        node.says(&p) == "ok"
    };
    let labels = |texts: &[&str]| core::NodeSelectorTerm {
        match_expressions: Some(texts.iter().map(|t| requirement(t)).collect()),
        ..Default::default()
    };
    let table = [
        ("disk In ssd nvme", true),
        ("disk In hdd", false),
        ("none In x", false),
        ("disk NotIn hdd", true),
        ("none NotIn x", true),
        ("disk NotIn ssd", false),
        ("disk Exists", true),
        ("none Exists", false),
        ("none DoesNotExist", true),
        ("disk DoesNotExist", false),
        ("rank Gt 4", true),
        ("rank Gt 5", false),
        ("rank Lt 6", true),
        ("disk Gt 1", false),
        ("none Lt 6", false),
        ("disk Like ssd", false),
    ];
    for (text, want) in table {
        assert_eq!(required(vec![labels(&[text])]), want, "{text}");
    }
    assert!(!required(vec![labels(&["disk In ssd", "rank In 6"])]), "all of a term");
    assert!(required(vec![labels(&["disk In hdd"]), labels(&["rank In 5"])]), "one of the terms");
    assert!(!required(vec![labels(&[])]) && !required(Vec::new()), "no requirement fits none");
    let field = |text| core::NodeSelectorTerm { match_fields: Some(vec![requirement(text)]), ..Default::default() };
    assert!(required(vec![field("metadata.name In edge-1")]));
    assert!(!required(vec![field("metadata.name In edge-2")]) && !required(vec![field("metadata.uid In edge-1")]));
}

#[test]
fn taints_hold_off_pods_of_the_cluster() {
    let mut node = Busy::new(Vec::new());
    let taint = |effect: &str| core::Taint {
        key: "gone".to_owned(),
        value: Some("yes".to_owned()),
        effect: effect.to_owned(),
        ..Default::default()
    };
    node.node.taints = vec![taint("NoSchedule"), taint("NoExecute")];
    let tolerating = |key: &str, operator: &str, value: &str, effect: &str| {
        let some = |text: &str| Some(text.to_owned()).filter(|t| !t.is_empty());
        let mut p = api_pod("new", "", 0);
        p.spec.tolerations = Some(vec![core::Toleration {
            key: some(key),
            operator: some(operator),
            value: some(value),
            effect: some(effect),
            ..Default::default()
        }]);
        node.says(&p)
    };
    assert_eq!(node.says(&api_pod("new", "", 0)), "TaintToleration");
    assert_eq!(node.says(&static_pod("new", "")), "ok");
    for (key, operator, value, effect, want) in [
        ("", "Exists", "", "", "ok"),
        ("gone", "Exists", "", "NoExecute", "ok"),
        ("gone", "Equal", "yes", "", "ok"),
        ("gone", "", "yes", "", "ok"),
        ("gone", "Equal", "no", "", "TaintToleration"),
        ("gone", "Exists", "", "NoSchedule", "TaintToleration"),
        ("other", "Exists", "", "", "TaintToleration"),
        ("gone", "Lt", "yes", "", "TaintToleration"),
    ] {
        assert_eq!(tolerating(key, operator, value, effect), want, "{key} {operator} {value} {effect}");
    }
}

#[test]
fn what_this_system_can_not_run() {
    let mut node = Busy::new(Vec::new());
    let mut p = static_pod("new", "");
    p.spec.os = Some(core::PodOS { name: "windows".to_owned() });
    assert_eq!(node.says(&p), "PodOSNotSupported");
    p.meta.labels = Some([("kubernetes.io/os".to_owned(), "windows".to_owned())].into());
    assert_eq!(node.says(&p), "PodOSSelectorNodeLabelDoesNotMatch");
    p.spec.os = Some(core::PodOS { name: "linux".to_owned() });
    p.meta.labels = None;
    assert_eq!(node.says(&p), "ok");
    p.spec.security_context.get_or_insert_default().supplemental_groups_policy = Some("Strict".to_owned());
    assert_eq!(node.says(&p), "SupplementalGroupsPolicyNotSupported");
    node.node.strict_supplemental_groups = true;
    assert_eq!(node.says(&p), "ok");
    let windows = core::WindowsSecurityContextOptions { host_process: Some(true), ..Default::default() };
    p.spec.containers[0].security_context.get_or_insert_default().windows_options = Some(windows);
    let refusal = node.admit(&p).expect_err("is for Windows");
    assert_eq!(refusal.message, "securityContext.windowsOptions of container c0 is set, and the node runs linux");
}

#[test]
fn a_sysctl_that_is_not_allowed() {
    let node = Busy::new(Vec::new());
    let mut p = static_pod("new", "cpu=100");
    let sysctl = core::Sysctl { name: "kernel.msgmax".to_owned(), value: "1".to_owned() };
    p.spec.security_context.get_or_insert_default().sysctls = Some(vec![sysctl]);
    let refusal = node.admit(&p).expect_err("is refused");
    assert_eq!((refusal.reason.as_str(), refusal.may_pass_when_a_pod_ends()), ("SysctlForbidden", false));
    assert_eq!(refusal.message, "forbidden sysctl: \"kernel.msgmax\" not allowlisted");
}

#[test]
fn labels_of_a_node() {
    let labels = node_labels("edge-1", &[("kubernetes.io/arch".to_owned(), "mine".to_owned())].into());
    let get = |key: &str| labels.get(key).map(String::as_str);
    assert_eq!((get("kubernetes.io/os"), get("kubernetes.io/arch")), (Some("linux"), Some("mine")));
    assert_eq!([architecture("x86_64"), architecture("aarch64"), architecture("arm")], ["amd64", "arm64", "arm"]);
}

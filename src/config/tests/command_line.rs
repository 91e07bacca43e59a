//! The command line.

use super::{good, run, secs};
use crate::config::flags::{Kind, Parsed, Target, help, parse};
use crate::config::{eviction, flag_table, kubelet};

#[test]
fn flags_in_the_kubelets_syntax() {
    let c = good(
        &[],
        &[
            "--read_only_port=10255",
            "--healthz-port",
            "0",
            "--fail-swap-on=false",
            "--seccomp-default",
            "-v",
            "2",
            "--cluster-dns=10.0.0.1,fd00::1",
            "--cluster-dns",
            "10.0.0.2",
            "--eviction-soft=memory.available<1.5Gi",
            "--eviction-soft-grace-period=memory.available=1m30s",
            "--register-with-taints=a=b:NoSchedule,c:NoExecute",
            "--node-labels=site=x,rack",
            "--node-ip=10.0.0.9,fd00::9",
            "--container-log-max-size=40Ki",
            "--max-pods=3",
            "--max-pods=5",
            "--workers",
            "5",
            "--reserved-memory=0:memory=1Gi,hugepages-2Mi=2Mi",
            "--image-credential-provider-config=/c",
            "--image-credential-provider-bin-dir=/d",
        ],
    );
    assert_eq!((c.server.read_only_port, c.server.healthz, c.fail_swap_on), (Some(10255), None, false));
    assert_eq!((c.seccomp_default, c.verbosity, c.max_pods, c.workers), (true, 2, 5, 5));
    let servers: Vec<String> = c.dns.cluster_servers.iter().map(ToString::to_string).collect();
    assert_eq!(servers, ["10.0.0.1", "fd00::1", "10.0.0.2"]);
    let soft = c.eviction.soft.get(&eviction::Signal::MemoryAvailable).map(|s| s.grace_period);
    assert_eq!(soft, Some(secs(90)));
    let taints: Vec<_> =
        c.node.taints.iter().map(|t| (t.key.as_str(), t.value.as_deref(), t.effect.as_str())).collect();
    assert_eq!(taints, [("a", Some("b"), "NoSchedule"), ("c", None, "NoExecute")]);
    assert_eq!(c.node.labels.get("rack").map(String::as_str), Some(""));
    assert_eq!((c.node_ips.len(), c.container_log.max_size), (2, 40 << 10));
    assert_eq!(c.image.credential_provider.map(|p| p.bin_dir), Some("/d".into()));
}

#[test]
fn wrong_flags() {
    let table: &[(&[&str], &str)] = &[
        (&["--max-pod=1"], "unknown flag --max-pod; did you mean --max-pods?"),
        (&["--no-such-thing-at-all"], "unknown flag --no-such-thing-at-all; --help lists the flags"),
        (&["-x"], "unknown flag -x; --help lists the flags"),
        (&["--max-pods"], "--max-pods needs a value, as in --max-pods=N"),
        (&["--fail-swap-on", "false"], {
            "unexpected argument \"false\"; there are only flags here, and a boolean one takes its value as --flag=false"
        }),
        (&["--max-pods=x"], "--max-pods: \"x\" is not a whole number"),
        (&["--max-pods=x", "--max-pods=1"], "--max-pods: \"x\" is not a whole number"),
        (&["--max-pods=99999999999"], "--max-pods: 99999999999 is out of range"),
        (&["--fail-swap-on=maybe"], "--fail-swap-on: \"maybe\" is neither true nor false"),
        (&["--sync-frequency=20"], "--sync-frequency: \"20\" has no unit; the units are h, m, s, ms, us and ns"),
        (&["--system-reserved=cpu"], "--system-reserved: \"cpu\" is not of the form KEY=VALUE"),
        (&["--eviction-hard=pid.available=5%"], "--eviction-hard: \"pid.available=5%\" is not of the form KEY<VALUE"),
        (&["--manifest-url-header=x"], "--manifest-url-header: \"x\" is not of the form KEY:VALUE"),
        (&["--register-with-taints=a=b"], "--register-with-taints: \"a=b\" is not of the form KEY=VALUE:EFFECT"),
        (&["--feature-gates=A=2"], "--feature-gates: \"2\" is neither true nor false"),
        (&["--workers=many"], "--workers: \"many\" is not a whole number"),
    ];
    for (args, message) in table {
        let error = run(&[], args).map(|l| l.config).map_err(|e| e.to_string());
        assert_eq!(error, Err((*message).to_owned()), "{args:?}");
    }
}

#[test]
fn warnings_of_flags() {
    let args = [
        "--pod-infra-container-image=pause:3",
        "--bootstrap-kubeconfig=/k",
        "--pod-manifest-path=/m",
        "--max-pods=110",
        "--port=10251",
        "--v=4",
        "--anonymous-auth=true",
    ];
    let expected = [
        "--pod-infra-container-image is ignored: it is deprecated, and the runtime's configuration names the sandbox image",
    ];
    assert_eq!(run(&[], &args).unwrap().warnings, expected);
    // Of what is served, nothing is said; of a part that is not, it is.
    let part = run(&["staticPodPath: /m\nlogging: {verbosity: 4}\nmaxPods: 110\nsyncFrequency: 60s"], &[]).unwrap();
    assert_eq!(part.warnings, Vec::<String>::new());
    let gate =
        |name: &str| run(&[&format!("staticPodPath: /m\nfeatureGates: {{{name}: true}}")], &[]).unwrap().warnings;
    assert_eq!(gate("MemoryQoS"), Vec::<String>::new());
    assert_eq!(gate("CPUManagerPolicyAlphaOptions"), ["featureGates is known but not served yet; it is ignored"]);
    let part = run(&["staticPodPath: /m\nlogging: {verbosity: 4, format: json}"], &[]).unwrap();
    assert_eq!(part.warnings, ["logging is known but not served yet; it is ignored"]);
}

#[test]
fn what_is_served_is_known() {
    let known = serde_json::to_value(kubelet::KubeletConfiguration::default()).unwrap();
    for name in kubelet::SERVED {
        let found = match name.strip_prefix("--") {
            Some(flag) => flag_table::FLAGS.iter().any(|f| f.name == flag),
            None => known.pointer(&format!("/{}", name.replace('.', "/"))).is_some(),
        };
        assert!(found, "{name}");
    }
}

/// The name that a flag gives its field must be the field's, or faults and warnings miss it.
#[test]
fn flags_name_their_fields() {
    let known = serde_json::to_value(kubelet::KubeletConfiguration::default()).unwrap();
    for flag in flag_table::FLAGS {
        let Target::Field(field, set) = &flag.target else { continue };
        let pointer = format!("/{}", field.replace('.', "/"));
        assert!(known.pointer(&pointer).is_some(), "{}: {field}", flag.name);
        let text = match flag.kind {
            Kind::Bool => match known.pointer(&pointer) {
                Some(serde_json::Value::Bool(true)) => "false",
                _ => "true",
            },
            Kind::Int => "7",
            Kind::Duration => "7s",
            Kind::Pairs => "a=true",
            Kind::Thresholds => "a<7",
            Kind::List => match flag.name {
                "register-with-taints" => "a=b:c",
                "vmodule" => "a=7",
                _ => "7",
            },
            Kind::Text | Kind::Path => match flag.name {
                "manifest-url-header" => "a:b",
                "reserved-memory" => "0:memory=7",
                _ => "seven",
            },
        };
        let mut changed = kubelet::KubeletConfiguration::default();
        set(&mut changed, &[text.to_owned()]).unwrap();
        let is = serde_json::to_value(&changed).unwrap();
        let top = field.split('.').next().unwrap();
        let differ: Vec<&String> =
            known.as_object().unwrap().iter().filter(|(k, v)| is.get(k) != Some(v)).map(|(k, _)| k).collect();
        assert_eq!(differ, [top], "{}", flag.name);
    }
}

#[test]
fn help_lists_every_flag() {
    assert!(matches!(parse(["--help", "--nonsense"]), Ok(Parsed::Help)));
    assert!(matches!(parse(["-h"]), Ok(Parsed::Help)));
    let help = help();
    for flag in flag_table::FLAGS {
        assert!(help.contains(&format!("--{}", flag.name)) && help.contains(flag.help), "{}", flag.name);
    }
    assert!(
        help.contains("\n      --max-pods N                          pods that may run on this node (field maxPods)\n")
    );
    let names: Vec<&str> = flag_table::FLAGS.iter().map(|f| f.name).collect();
    assert!(names.is_sorted(), "the table is sorted");
}

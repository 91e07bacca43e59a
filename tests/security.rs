//! Security contexts: what a process in a container is and may do, as the kernel tells it.

mod support;

use std::collections::BTreeSet;
use std::fs;

use cleat::cri::proto::runtime::RuntimeHandlerFeatures;
use serde_json::{Value, json};
use support::manifest::Manifest;
use support::node::{Node, SOON};
use support::{Agent, FakeCri, variant};

/// Waits for the end of a job, and tells what each of its containers has written.
fn outputs<const N: usize>(node: &Node, job: &str, containers: [&str; N]) -> [String; N] {
    let pod =
        node.agent.wait_pod(job, SOON, |pod| matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed")));
    containers.map(|container| node.log(&pod, container, 0))
}

#[test]
fn users_and_groups() {
    let node = Node::start();
    let directory = node.shared("images");
    for (name, user) in [("user", "1234"), ("named", "nobody")] {
        let name = format!("cleat.local/{name}:1");
        let archive = variant(&directory, &name, json!({"User": user}));
        node.containerd.import(&archive, &name);
    }
    let script =
        "id -u; id -g; echo $(id -G | tr ' ' '\\n' | sort -nu); touch /d/$(id -u); stat -c '%u %g' /d/$(id -u)";
    let volume = "volumes: [{name: d, emptyDir: {}}]";
    let mount = "volumeMounts: [{name: d, mountPath: /d}]";
    let of_pod =
        "securityContext: {runAsUser: 1001, runAsGroup: 2002, fsGroup: 3003, supplementalGroups: [4004, 5005]}";
    let own = |fields: &str| format!("{mount}, securityContext: {{{fields}}}");
    node.add(
        &Manifest::job("ids")
            .spec(volume)
            .spec(of_pod)
            .main(script, mount)
            .container("root", script, &own("runAsUser: 0, runAsGroup: 0"))
            .container("user", script, &own("runAsUser: 65534")),
    );
    let image = |name: &str, fields: &str| {
        let fields = format!("image: 'cleat.local/{name}:1', securityContext: {{{fields}}}");
        Manifest::job(&format!("image-{name}")).main("id -u; id -g", &fields)
    };
    node.add(&image("user", "runAsNonRoot: true"));
    node.add(&image("named", "runAsNonRoot: true"));
    let non_root = |name: &str, fields: &str| {
        Manifest::job(name).main("id -u", &format!("securityContext: {{runAsNonRoot: true{fields}}}"))
    };
    node.add(&non_root("root-image", ""));
    node.add(&non_root("root", ", runAsUser: 0"));
    node.add(&non_root("fine", ", runAsUser: 99"));
    let of_pod = "securityContext: {supplementalGroupsPolicy: Strict}";
    node.add(&Manifest::job("strict").spec(of_pod).main("true", ""));

    let ids = |user: u32, group: u32| {
        let groups: BTreeSet<_> = [group, 3003, 4004, 5005].into();
        let groups: Vec<_> = groups.iter().map(ToString::to_string).collect();
        format!("{user}\n{group}\n{}\n{user} 3003", groups.join(" "))
    };
    let want = [ids(1001, 2002), ids(0, 0), ids(65534, 2002)];
    assert_eq!(outputs(&node, "ids", ["main", "root", "user"]), want);
    assert_eq!(node.output("image-user"), "1234\n0");
    assert_eq!(node.output("fine"), "99");
    for (name, why) in [
        ("image-named", "cannot verify user is non-root"),
        ("root-image", "image will run as root"),
        ("root", "runAsUser breaks non-root policy"),
    ] {
        let message = node.waits(name, "CreateContainerConfigError");
        assert!(message.contains(why), "{name}: {message}");
    }
    // This runtime can't.
    let strict = node.reaches("strict", "Failed");
    assert_eq!(strict["status"]["reason"], "SupplementalGroupsPolicyNotSupported");
}

/// Bits of the effective capabilities.
const BITS: [(&str, u32); 6] =
    [("CHOWN", 0), ("KILL", 5), ("NET_BIND_SERVICE", 10), ("NET_ADMIN", 12), ("NET_RAW", 13), ("SYS_ADMIN", 21)];

fn capabilities(status: &str) -> Vec<&'static str> {
    let mask = status.lines().find_map(|line| line.strip_prefix("CapEff:")).expect("is there");
    let mask = u64::from_str_radix(mask.trim(), 16).expect("a number");
    BITS.iter().filter(|(_, bit)| mask >> bit & 1 == 1).map(|(name, _)| *name).collect()
}

/// A line of `/proc/PID/status` as a number.
fn number(status: &str, name: &str) -> u32 {
    let line = status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
    line.unwrap_or_else(|| panic!("{name} in {status:?}")).trim().parse().expect("a number")
}

#[test]
fn privileges() {
    let node = Node::start();
    let status = "grep -e CapEff -e NoNewPrivs -e Seccomp: /proc/self/status";
    let context = |fields: &str| format!("securityContext: {{{fields}}}");
    node.add(
        &Manifest::job("caps")
            .main(status, "")
            .container("add", status, &context("capabilities: {add: [NET_ADMIN]}"))
            .container("drop", status, &context("capabilities: {drop: [KILL, NET_RAW]}"))
            .container("one", status, &context("capabilities: {drop: [ALL], add: [NET_BIND_SERVICE]}"))
            .container("all", status, &context("capabilities: {add: [ALL]}"))
            .container("privileged", status, &context("privileged: true"))
            .container("quiet", status, &context("allowPrivilegeEscalation: false")),
    );
    let mount = "mount -t tmpfs x /mnt 2>/dev/null && echo mounted || echo refused; ls /dev | grep -c kmsg";
    let mount = format!("mkdir /mnt; {mount}");
    node.add(&Manifest::job("devices").main(&mount, "").container("all", &mount, &context("privileged: true")));
    let volume = "volumes: [{name: d, emptyDir: {}}]";
    let root = "touch /x 2>/dev/null && echo wrote || echo refused; touch /d/x && echo volume;
        echo m >/dev/termination-log && echo message";
    let with = |fields: &str| format!("volumeMounts: [{{name: d, mountPath: /d}}], {}", context(fields));
    node.add(&Manifest::job("roots").spec(volume).main(root, &with("readOnlyRootFilesystem: true")).container(
        "writable",
        root,
        &with("readOnlyRootFilesystem: false"),
    ));
    let masked = "cat /proc/timer_list | wc -c; ls /sys/firmware | wc -l; (echo x >/proc/sys/kernel/domainname) 2>/dev/null || echo refused";
    node.add(&Manifest::job("masks").main(masked, &context("procMount: Default")));
    node.add(&Manifest::job("unmasked").main("true", &context("procMount: Unmasked")));

    let names = ["main", "add", "drop", "one", "all", "privileged", "quiet"];
    let [main, add, drop, one, all, privileged, quiet] = outputs(&node, "caps", names);
    assert_eq!(capabilities(&main), ["CHOWN", "KILL", "NET_BIND_SERVICE", "NET_RAW"]);
    assert_eq!(capabilities(&add), ["CHOWN", "KILL", "NET_BIND_SERVICE", "NET_ADMIN", "NET_RAW"]);
    assert_eq!(capabilities(&drop), ["CHOWN", "NET_BIND_SERVICE"]);
    assert_eq!(capabilities(&one), ["NET_BIND_SERVICE"]);
    assert_eq!(capabilities(&all).len(), BITS.len());
    assert_eq!(capabilities(&privileged).len(), BITS.len());
    assert_eq!([&main, &privileged, &quiet].map(|status| number(status, "NoNewPrivs")), [0, 0, 1]);
    assert_eq!(outputs(&node, "devices", ["main", "all"]), ["refused\n0", "mounted\n1"]);
    let want = ["refused\nvolume\nmessage", "wrote\nvolume\nmessage"];
    assert_eq!(outputs(&node, "roots", ["main", "writable"]), want);
    assert_eq!(node.output("masks"), "0\n0\nrefused");
    node.told("may be Unmasked only when hostUsers is false");
}

/// A profile that lets all be done but making directories.
const NO_MKDIR: &str = r#"{"defaultAction": "SCMP_ACT_ALLOW", "syscalls": [
    {"names": ["mkdir", "mkdirat"], "action": "SCMP_ACT_ERRNO"}]}"#;

#[test]
fn seccomp_sysctls_and_other_systems() {
    let node = Node::start();
    let profiles = node.agent.root().join("seccomp");
    fs::create_dir_all(&profiles).expect("makes");
    fs::write(profiles.join("no-mkdir.json"), NO_MKDIR).expect("writes");
    let filter = "grep Seccomp: /proc/self/status; mkdir /made && echo made";
    let of_pod = "securityContext: {seccompProfile: {type: RuntimeDefault}}";
    let own = |profile: &str| format!("securityContext: {{seccompProfile: {{{profile}}}}}");
    node.add(
        &Manifest::job("filtered")
            .spec(of_pod)
            .main(filter, "")
            .container("free", filter, &own("type: Unconfined"))
            .container("local", filter, &own("type: Localhost, localhostProfile: no-mkdir.json")),
    );
    node.add(&Manifest::job("unfiltered").main(filter, ""));
    node.add(&Manifest::job("lost").main("true", &own("type: Localhost, localhostProfile: none.json")));
    let sysctls = |fields: &str| format!("securityContext: {{sysctls: [{fields}]}}");
    let safe =
        "{name: kernel.shm_rmid_forced, value: \"1\"}, {name: net.ipv4.ip_unprivileged_port_start, value: \"100\"}";
    let read = "cat /proc/sys/kernel/shm_rmid_forced /proc/sys/net/ipv4/ip_unprivileged_port_start";
    node.add(&Manifest::job("safe").spec(&sysctls(safe)).main(read, ""));
    let refused = [
        ("unsafe", sysctls("{name: kernel.msgmax, value: \"10000\"}"), "SysctlForbidden"),
        ("of-the-node", sysctls("{name: vm.swappiness, value: \"1\"}"), "SysctlForbidden"),
        ("other-system", "os: {name: windows}".to_owned(), "PodOSNotSupported"),
        ("options", "securityContext: {windowsOptions: {runAsUserName: someone}}".to_owned(), "PodOSNotSupported"),
    ];
    for (name, spec, _) in &refused {
        node.add(&Manifest::pod(name).spec(spec).main("sleep 1000", ""));
    }

    let said = outputs(&node, "filtered", ["main", "free", "local"]);
    let [main, free, local] = said.map(|text| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>().join(" "));
    assert_eq!((main.as_str(), free.as_str()), ("Seccomp: 2 made", "Seccomp: 0 made"));
    // Its two streams are in any order.
    assert!(local.contains("Seccomp: 2") && local.contains("not permitted") && !local.ends_with(" made"), "{local}");
    assert_eq!(node.output("unfiltered").replace('\t', " "), "Seccomp: 0\nmade");
    assert_eq!(node.output("safe"), "1\n100");
    for (name, _, reason) in &refused {
        let pod = node.agent.wait_pod(name, SOON, |pod| pod["status"]["phase"] == "Failed");
        assert_eq!(pod["status"]["reason"], *reason, "{name}");
    }
    node.agent.wait_pod("lost", SOON, |pod| {
        let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
        waiting["message"].as_str().is_some_and(|message| message.contains("none.json"))
    });
    let ran: BTreeSet<_> = node.containerd.containers().into_iter().filter_map(|c| name_of_pod(&c.labels)).collect();
    assert!(refused.iter().all(|(name, ..)| !ran.contains(&format!("{name}-edge-1"))), "{ran:?}");
    assert!(ran.contains("safe-edge-1"));
}

fn name_of_pod(labels: &std::collections::BTreeMap<String, String>) -> Option<String> {
    labels.get("io.kubernetes.pod.name").cloned()
}

/// What the configuration changes: `seccompDefault`, `allowedUnsafeSysctls`.
#[test]
fn by_configuration() {
    let node = Node::configured(json!({"seccompDefault": true, "allowedUnsafeSysctls": ["kernel.msg*"]}));
    let of_pod = "securityContext: {sysctls: [{name: kernel.msgmax, value: \"10000\"}]}";
    let look = "grep -o 'Seccomp:.[0-9]' /proc/self/status; cat /proc/sys/kernel/msgmax";
    let free = "securityContext: {seccompProfile: {type: Unconfined}}";
    let privileged = "securityContext: {privileged: true}";
    node.add(&Manifest::job("job").spec(of_pod).main(look, "").container("free", look, free).container(
        "privileged",
        look,
        privileged,
    ));
    let want = [2, 0, 0].map(|filter| format!("Seccomp:\t{filter}\n10000"));
    assert_eq!(outputs(&node, "job", ["main", "free", "privileged"]), want);
}

/// `supplementalGroupsPolicy: Strict` is for runtimes that have it.
#[test]
fn strict_groups() {
    let cri = FakeCri::start();
    cri.edit(|model| model.features.supplemental_groups_policy = true);
    let mut agent = Agent::on_host(&cri);
    agent.start();
    let context = "securityContext: {supplementalGroups: [4004], supplementalGroupsPolicy: Strict}";
    agent.write_manifest("a.yaml", &Manifest::pod("a").spec(context).main("", "").to_string());
    agent.wait_pod("a", SOON, |pod| pod["status"]["phase"] == "Running");
    let config = cri.look(|model| model.container("a-edge-1").expect("is there").config.clone());
    let context = &config.linux.security_context;
    assert_eq!(context.supplemental_groups_policy.value(), 1, "{context:?}");
    assert_eq!(context.supplemental_groups, [4004]);
}

/// `hostUsers: false`: refused where the runtime has no user namespaces; else each pod has a range of
/// IDs of its own, the same one after a restart of the agent.
#[test]
fn user_namespaces() {
    let cri = FakeCri::start();
    let mut agent = Agent::on_host(&cri);
    agent.start();
    let pod = |name: &str| Manifest::pod(name).spec("hostUsers: false").main("", "").to_string();
    agent.write_manifest("a.yaml", &pod("a"));
    support::eventually("the refusal", SOON, || {
        let told = agent.log().contains("hostUsers: false needs user namespaces, which the runtime doesn't support");
        if told { Ok(()) } else { Err("it isn't told".to_owned()) }
    });
    assert!(cri.look(|model| model.container("a-edge-1").is_none()));
    let features = RuntimeHandlerFeatures { user_namespaces: true, ..Default::default() };
    cri.edit(|model| model.handlers.insert(String::new(), features));
    agent.write_manifest("b.yaml", &pod("b"));
    let runs = |pod: &Value| pod["status"]["phase"] == "Running";
    let range = |name: &str| {
        let full = format!("{name}-edge-1");
        let config = cri.look(|model| model.container(&full).expect("is there").config.clone());
        let context = &config.linux.security_context;
        let users = &context.namespace_options.userns_options;
        assert_eq!(users.uids, users.gids);
        let [mapping] = users.uids.as_slice() else { panic!("{users:?}") };
        assert_eq!((mapping.container_id, mapping.length), (0, 65536));
        mapping.host_id
    };
    ["a", "b"].iter().for_each(|name| drop(agent.wait_pod(name, SOON, runs)));
    let before = ["a", "b"].map(range);
    assert!(before[0] != before[1] && before.iter().all(|id| *id >= 65536 && id % 65536 == 0), "{before:?}");
    // A restart of the container after one of the agent.
    agent.kill();
    agent.start();
    cri.exit_container("a-edge-1", 1);
    agent.wait_pod("a", SOON, |pod| pod["status"]["containerStatuses"][0]["restartCount"] == 1 && runs(pod));
    assert_eq!(["a", "b"].map(range), before);
}

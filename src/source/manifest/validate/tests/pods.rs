//! Metadata, lifetime, network, security.

use super::{containers, expect, specs};

/// Each pod has the given metadata besides a name.
fn metadata(table: &[(&str, &[&str])]) {
    for (fields, want) in table {
        let want: Vec<_> = want.iter().map(|w| format!("metadata.{w}")).collect();
        let want: Vec<_> = want.iter().map(String::as_str).collect();
        let spec = "containers: [{name: main, image: a}]";
        expect(&format!("metadata: {{name: web, {fields}}}\nspec: {{{spec}}}"), &want);
    }
}

#[test]
fn names_and_labels() {
    let long = "a".repeat(63);
    metadata(&[
        ("name: a.b-c, namespace: kube-system, generateName: web-", &[]),
        ("name: ''", &["name: Required value"]),
        ("name: Web", &["name: Invalid value: \"Web\": must be a DNS subdomain"]),
        (&format!("name: {}", "a".repeat(253)), &[]),
        (&format!("name: {}", "a".repeat(254)), &["name: Invalid value"]),
        ("generateName: Web", &["generateName: Invalid value: \"Web\""]),
        ("namespace: ''", &[]),
        ("namespace: a.b", &["namespace: Invalid value: \"a.b\": must be a DNS label"]),
        (&format!("labels: {{a.b/{long}: {long}, c: ''}}"), &[]),
        (&format!("labels: {{{long}a: b}}"), &["labels: Invalid value"]),
        ("labels: {a: b c, d e: f}", &["labels: Invalid value: \"b c\"", "labels: Invalid value: \"d e\""]),
        ("generation: -1", &["generation: Invalid value: -1"]),
    ]);
}

#[test]
fn annotations() {
    let max = 256 * 1024;
    metadata(&[
        ("annotations: {A.b/C: any}", &[]),
        ("annotations: {a b: any}", &["annotations: Invalid value: \"a b\""]),
        (&format!("annotations: {{a: {}}}", "x".repeat(max - 1)), &[]),
        (&format!("annotations: {{a: {}}}", "x".repeat(max)), &["annotations: Too long: may not be more than 262144"]),
        (
            "annotations: {kubernetes.io/config.mirror: x}",
            &["annotations[kubernetes.io/config.mirror]: Invalid value: \"x\""],
        ),
        ("annotations: {controller.kubernetes.io/pod-deletion-cost: '-5'}", &[]),
        (
            "annotations: {controller.kubernetes.io/pod-deletion-cost: '+5'}",
            &["annotations[controller.kubernetes.io/pod-deletion-cost]: Invalid value: \"+5\""],
        ),
        (
            "annotations: {controller.kubernetes.io/pod-deletion-cost: '3000000000'}",
            &["annotations[controller.kubernetes.io/pod-deletion-cost]: Invalid value"],
        ),
        ("annotations: {scheduler.alpha.kubernetes.io/tolerations: '[{\"operator\": \"Exists\"}]'}", &[]),
        (
            "annotations: {scheduler.alpha.kubernetes.io/tolerations: '{}'}",
            &["annotations[scheduler.alpha.kubernetes.io/tolerations]: Invalid value: \"{}\": must be a list"],
        ),
        (
            "annotations: {scheduler.alpha.kubernetes.io/tolerations: '[{}]'}",
            &["annotations[scheduler.alpha.kubernetes.io/tolerations][0].operator: Invalid value"],
        ),
    ]);
}

#[test]
fn what_objects_of_the_api_have() {
    let owner = "apiVersion: apps/v1, kind: ReplicaSet, name: r, uid: u, controller: true";
    metadata(&[
        (&format!("ownerReferences: [{{{owner}}}, {{apiVersion: v1, kind: Node, name: node, uid: u}}]"), &[]),
        (
            &format!("ownerReferences: [{{{owner}}}, {{{owner}}}]"),
            &["ownerReferences[1].controller: Invalid value: true"],
        ),
        (
            "ownerReferences: [{apiVersion: v1, kind: Event, name: ''}]",
            &[
                "ownerReferences[0].name: Invalid value",
                "ownerReferences[0].uid: Invalid value",
                "ownerReferences[0]: Invalid value: \"Event\"",
            ],
        ),
        ("finalizers: [a.b/c, kubernetes]", &[]),
        ("finalizers: [a b/c]", &["finalizers[0]: Invalid value: \"a b/c\""]),
        ("finalizers: [mine]", &["finalizers[0]: Invalid value: \"mine\""]),
        ("finalizers: [orphan, foregroundDeletion]", &["finalizers: Invalid value"]),
        ("managedFields: [{operation: Update, fieldsType: FieldsV1, manager: kubectl}]", &[]),
        (
            "managedFields: [{operation: Delete, fieldsType: FieldsV2}]",
            &["managedFields[0].operation: Unsupported value", "managedFields[0].fieldsType: Unsupported value"],
        ),
    ]);
}

#[test]
fn lifetime_and_references() {
    specs(&[
        ("restartPolicy: OnFailure", &[]),
        (
            "restartPolicy: always",
            &["restartPolicy: Unsupported value: \"always\": one of \"Always\", \"OnFailure\", \"Never\""],
        ),
        ("terminationGracePeriodSeconds: 0", &[]),
        ("terminationGracePeriodSeconds: -1", &["terminationGracePeriodSeconds: Invalid value: -1"]),
        ("activeDeadlineSeconds: 1", &[]),
        ("activeDeadlineSeconds: 2147483647", &[]),
        ("activeDeadlineSeconds: 0", &["activeDeadlineSeconds: Invalid value: 0: must be from 1 to 2147483647"]),
        ("activeDeadlineSeconds: 2147483648", &["activeDeadlineSeconds: Invalid value"]),
        (
            "serviceAccountName: a.b, nodeName: n.example.com, runtimeClassName: kata, priorityClassName: system-node-critical, priority: 2000001000",
            &[],
        ),
        ("serviceAccountName: A", &["serviceAccountName: Invalid value: \"A\""]),
        ("serviceAccount: A", &["serviceAccountName: Invalid value: \"A\""]),
        ("nodeName: A", &["nodeName: Invalid value: \"A\""]),
        ("runtimeClassName: ''", &["runtimeClassName: Invalid value: \"\""]),
        ("priorityClassName: a_b", &["priorityClassName: Invalid value: \"a_b\""]),
        ("imagePullSecrets: [{name: ''}]", &[]),
    ]);
}

#[test]
fn network() {
    let port = |fields: &str| {
        format!("hostNetwork: true, containers: [{{name: a, image: i, ports: [{{containerPort: 80, {fields}}}]}}]")
    };
    specs(&[
        ("dnsPolicy: ClusterFirstWithHostNet", &[]),
        ("dnsPolicy: Host", &["dnsPolicy: Unsupported value: \"Host\""]),
        ("hostname: a-b, subdomain: c, setHostnameAsFQDN: true", &[]),
        ("hostname: a.b", &["hostname: Invalid value: \"a.b\": must be a DNS label"]),
        ("subdomain: A", &["subdomain: Invalid value: \"A\""]),
        ("hostnameOverride: a.b", &[]),
        (&format!("hostnameOverride: {}", "a".repeat(64)), &[]),
        (&format!("hostnameOverride: {}", "a".repeat(65)), &["hostnameOverride: Too long: may not be more than 64"]),
        ("hostnameOverride: ''", &["hostnameOverride: Invalid value"]),
        ("hostnameOverride: a, setHostnameAsFQDN: true", &["hostnameOverride: Forbidden"]),
        ("hostnameOverride: a, hostNetwork: true", &["hostnameOverride: Forbidden"]),
        ("hostAliases: [{ip: 10.0.0.1, hostnames: [a.b, c]}, {ip: '::1'}]", &[]),
        (
            "hostAliases: [{ip: 10.0.0, hostnames: [a_b]}]",
            &["hostAliases[0].ip: Invalid value: \"10.0.0\"", "hostAliases[0].hostnames[0]: Invalid value: \"a_b\""],
        ),
        (
            "hostAliases: [{ip: 010.0.0.1}, {ip: '::ffff:10.0.0.1'}]",
            &["hostAliases[0].ip: Invalid value", "hostAliases[1].ip: Invalid value"],
        ),
        (&port(""), &[]),
        (&port("hostPort: 80"), &[]),
        (
            &port("hostPort: 81"),
            &["containers[0].ports[0].hostPort: Invalid value: 81: must be the containerPort when hostNetwork"],
        ),
    ]);
}

#[test]
fn dns_config() {
    let config = |fields: &str| format!("dnsConfig: {{{fields}}}");
    let searches = |n: usize| vec!["a.b"; n].join(", ");
    let label = "a".repeat(63);
    // 8 domains of 253 bytes with the spaces between, one more space and 16 bytes make 2048.
    let long = format!("{label}.{label}.{label}.{}", "a".repeat(61));
    let domains = |n: usize| vec![long.as_str(); n].join(", ");
    specs(&[
        (
            &config(
                "nameservers: [1.1.1.1, '2001:db8::1', 9.9.9.9], searches: [., a.b., _a_b.c], options: [{name: ndots, value: '2'}]",
            ),
            &[],
        ),
        (
            &config("nameservers: [1.1.1.1, 1.1.1.2, 1.1.1.3, 1.1.1.4]"),
            &["dnsConfig.nameservers: Invalid value: [\"1.1.1.1\""],
        ),
        (&config("nameservers: [dns.example.com]"), &["dnsConfig.nameservers[0]: Invalid value: \"dns.example.com\""]),
        (&config(&format!("searches: [{}]", searches(32))), &[]),
        (&config(&format!("searches: [{}]", searches(33))), &["dnsConfig.searches: Invalid value"]),
        (&config(&format!("searches: [{}, {}]", domains(8), "a".repeat(16))), &[]),
        (&config(&format!("searches: [{}, {}]", domains(8), "a".repeat(17))), &["dnsConfig.searches: Invalid value"]),
        (&config("searches: [a..b]"), &["dnsConfig.searches[0]: Invalid value: \"a..b\""]),
        (&config("options: [{value: a}]"), &["dnsConfig.options[0]: Required value"]),
        ("dnsPolicy: None", &["dnsConfig: Required value"]),
        ("dnsPolicy: None, dnsConfig: {searches: [a]}", &["dnsConfig.nameservers: Required value"]),
        ("dnsPolicy: None, dnsConfig: {nameservers: [1.1.1.1]}", &[]),
    ]);
}

#[test]
fn namespaces_of_the_host() {
    specs(&[
        ("hostNetwork: true, hostPID: true, hostIPC: true", &[]),
        ("shareProcessNamespace: true", &[]),
        ("shareProcessNamespace: false, hostPID: true", &[]),
        ("shareProcessNamespace: true, hostPID: true", &["shareProcessNamespace: Invalid value: true"]),
        ("hostUsers: false", &[]),
        (
            "hostUsers: false, hostNetwork: true, hostPID: true, hostIPC: true",
            &["hostNetwork: Forbidden", "hostPID: Forbidden", "hostIPC: Forbidden"],
        ),
        ("hostUsers: true, hostPID: true", &[]),
    ]);
}

/// Each pod has the given security context.
fn contexts(table: &[(&str, &[&str])]) {
    for (fields, want) in table {
        let want: Vec<_> = want.iter().map(|w| format!("securityContext.{w}")).collect();
        let want: Vec<_> = want.iter().map(String::as_str).collect();
        specs(&[(&format!("securityContext: {{{fields}}}"), &want)]);
    }
}

#[test]
fn security_of_the_pod() {
    contexts(&[
        (
            "runAsUser: 0, runAsGroup: 4294967295, fsGroup: 1, supplementalGroups: [0, 4294967295], runAsNonRoot: true",
            &[],
        ),
        ("runAsUser: -1", &["runAsUser: Invalid value: -1: must be from 0 to 4294967295"]),
        ("runAsGroup: 4294967296", &["runAsGroup: Invalid value"]),
        ("fsGroup: -1", &["fsGroup: Invalid value"]),
        ("supplementalGroups: [1, -1]", &["supplementalGroups[1]: Invalid value: -1"]),
        (
            "fsGroupChangePolicy: OnRootMismatch, supplementalGroupsPolicy: Strict, seLinuxChangePolicy: MountOption",
            &[],
        ),
        ("fsGroupChangePolicy: Never", &["fsGroupChangePolicy: Unsupported value: \"Never\""]),
        ("supplementalGroupsPolicy: Loose", &["supplementalGroupsPolicy: Unsupported value"]),
        ("seLinuxChangePolicy: Never", &["seLinuxChangePolicy: Unsupported value"]),
        ("sysctls: [{name: net.core.somaxconn, value: '1'}, {name: net/ipv4/conf/a.b, value: ''}]", &[]),
        ("sysctls: [{name: '', value: a}]", &["sysctls[0].name: Required value"]),
        ("sysctls: [{name: a_, value: a}]", &["sysctls[0].name: Invalid value: \"a_\""]),
        ("sysctls: [{name: a, value: '1'}, {name: a, value: '2'}]", &["sysctls[1].name: Duplicate value: \"a\""]),
    ]);
    let sysctl =
        |host: &str, name: &str| format!("{host}: true, securityContext: {{sysctls: [{{name: {name}, value: '1'}}]}}");
    let net = "securityContext.sysctls[0].name: Invalid value: \"net";
    specs(&[
        (&sysctl("hostNetwork", "net.core.somaxconn"), &[net]),
        (&sysctl("hostNetwork", "net/core/somaxconn"), &[net]),
        (&sysctl("hostNetwork", "kernel.sem"), &[]),
        (&sysctl("hostIPC", "kernel.shm_rmid_forced"), &["securityContext.sysctls[0].name: Invalid value"]),
        (&sysctl("hostIPC", "kernel.sem"), &["securityContext.sysctls[0].name: Invalid value"]),
        (&sysctl("hostIPC", "fs.mqueue.msg_max"), &["securityContext.sysctls[0].name: Invalid value"]),
        (&sysctl("hostIPC", "net.core.somaxconn"), &[]),
    ]);
}

#[test]
fn profiles() {
    let seccomp = |fields: &str| format!("seccompProfile: {{{fields}}}");
    let app_armor = |fields: &str| format!("appArmorProfile: {{{fields}}}");
    let long = |n: usize| format!("type: Localhost, localhostProfile: {}", "a".repeat(n));
    let table: &[(&str, &[&str])] = &[
        (&seccomp("type: RuntimeDefault"), &[]),
        (&seccomp("type: Localhost, localhostProfile: profiles/a.json"), &[]),
        (&seccomp(""), &["seccompProfile.type: Required value"]),
        (&seccomp("type: Default"), &["seccompProfile.type: Unsupported value: \"Default\""]),
        (&seccomp("type: Localhost"), &["seccompProfile.localhostProfile: Required value"]),
        (&seccomp("type: Localhost, localhostProfile: /a"), &["seccompProfile.localhostProfile: Invalid value"]),
        (&seccomp("type: Localhost, localhostProfile: ../a"), &["seccompProfile.localhostProfile: Invalid value"]),
        (&seccomp("type: Unconfined, localhostProfile: a"), &["seccompProfile.localhostProfile: Invalid value: \"a\""]),
        (&app_armor("type: Unconfined"), &[]),
        (&app_armor(&long(4095)), &[]),
        (&app_armor(&long(4096)), &["appArmorProfile.localhostProfile: Too long"]),
        (&app_armor(""), &["appArmorProfile.type: Required value"]),
        (&app_armor("type: Default"), &["appArmorProfile.type: Unsupported value"]),
        (&app_armor("type: Localhost"), &["appArmorProfile.localhostProfile: Required value"]),
        (&app_armor("type: Localhost, localhostProfile: ''"), &["appArmorProfile.localhostProfile: Required value"]),
        (&app_armor("type: Localhost, localhostProfile: ' a'"), &["appArmorProfile.localhostProfile: Invalid value"]),
        (&app_armor("type: RuntimeDefault, localhostProfile: a"), &["appArmorProfile.localhostProfile: Invalid value"]),
    ];
    contexts(table);
    for (fields, want) in table {
        let want: Vec<_> = want.iter().map(|w| format!("securityContext.{w}")).collect();
        let want: Vec<_> = want.iter().map(String::as_str).collect();
        containers(&[(&format!("securityContext: {{{fields}}}"), &want)]);
    }
}

#[test]
fn security_of_containers() {
    let context = |fields: &str| format!("securityContext: {{{fields}}}");
    containers(&[
        (
            &context(
                "runAsUser: 4294967295, capabilities: {add: [ANY, ALL], drop: [ALL]}, privileged: true, readOnlyRootFilesystem: true",
            ),
            &[],
        ),
        (&context("runAsUser: -1"), &["securityContext.runAsUser: Invalid value: -1"]),
        (&context("runAsGroup: -1"), &["securityContext.runAsGroup: Invalid value: -1"]),
        (&context("procMount: Default"), &[]),
        (&context("procMount: Full"), &["securityContext.procMount: Unsupported value: \"Full\""]),
        (&context("procMount: Unmasked"), &["securityContext.procMount: Invalid value: \"Unmasked\""]),
        (&context("allowPrivilegeEscalation: false, capabilities: {add: [SYS_ADMIN]}"), &[]),
        (&context("allowPrivilegeEscalation: true, privileged: true"), &[]),
        (
            &context("allowPrivilegeEscalation: false, privileged: true"),
            &["securityContext: Invalid value: \"\": may not be privileged"],
        ),
        (
            &context("allowPrivilegeEscalation: false, capabilities: {add: [CAP_SYS_ADMIN]}"),
            &["securityContext: Invalid value: \"\": may not add CAP_SYS_ADMIN"],
        ),
    ]);
    let unmasked = "hostUsers: false, containers: [{name: a, image: i, securityContext: {procMount: Unmasked}}]";
    specs(&[(unmasked, &[])]);
}

#[test]
fn old_annotations_of_profiles() {
    let pod = |annotation: &str, spec: &str, want: &[&str]| {
        let spec = format!("containers: [{{name: main, image: a}}], {spec}");
        expect(&format!("metadata: {{name: web, annotations: {{{annotation}}}}}\nspec: {{{spec}}}"), want);
    };
    const SECCOMP: &str = "seccomp.security.alpha.kubernetes.io/pod";
    const CONTAINER: &str = "container.seccomp.security.alpha.kubernetes.io/main";
    const APP_ARMOR: &str = "container.apparmor.security.beta.kubernetes.io";
    for good in ["runtime/default", "docker/default", "unconfined", "localhost/a"] {
        pod(&format!("{SECCOMP}: {good}, {CONTAINER}: {good}"), "", &[]);
    }
    let at = |key: &str| format!("metadata.annotations[{key}]: Invalid value");
    pod(&format!("{SECCOMP}: localhost/../a"), "", &[&at(SECCOMP)]);
    pod(&format!("{CONTAINER}: none"), "", &[&at(CONTAINER)]);
    pod(&format!("{APP_ARMOR}/main: localhost/p"), "", &[]);
    pod(&format!("{APP_ARMOR}/main: p"), "", &[&at(&format!("{APP_ARMOR}/main"))]);
    pod(&format!("{APP_ARMOR}/other: unconfined"), "", &[&at(&format!("{APP_ARMOR}/other"))]);

    let seccomp = |fields: &str| format!("securityContext: {{seccompProfile: {{{fields}}}}}");
    let field = "spec.securityContext.seccompProfile";
    pod(&format!("{SECCOMP}: docker/default"), &seccomp("type: RuntimeDefault"), &[]);
    pod(&format!("{SECCOMP}: unconfined"), &seccomp("type: RuntimeDefault"), &[&format!("{field}.type: Forbidden")]);
    pod(
        &format!("{SECCOMP}: unconfined"),
        &seccomp("type: Localhost, localhostProfile: a"),
        &[&format!("{field}.type: Forbidden")],
    );
    pod(&format!("{SECCOMP}: localhost/a"), &seccomp("type: Localhost, localhostProfile: a"), &[]);
    pod(
        &format!("{SECCOMP}: localhost/b"),
        &seccomp("type: Localhost, localhostProfile: a"),
        &[&format!("{field}.localhostProfile: Forbidden")],
    );
    let inherited = "securityContext: {appArmorProfile: {type: RuntimeDefault}}";
    pod(&format!("{APP_ARMOR}/main: runtime/default"), inherited, &[]);
    pod(
        &format!("{APP_ARMOR}/main: unconfined"),
        inherited,
        &["spec.containers[0].securityContext.appArmorProfile.type: Forbidden: must say what the annotation says"],
    );
}

#[test]
fn operating_systems() {
    let windows = |fields: &str| format!("securityContext: {{windowsOptions: {{{fields}}}}}");
    specs(&[
        ("os: {name: linux}", &[]),
        ("os: {name: windows}", &[]),
        ("os: {name: ''}", &["os.name: Required value"]),
        ("os: {name: plan9}", &["os: Unsupported value: \"plan9\": one of \"linux\", \"windows\""]),
        (&windows("runAsUserName: 'NT AUTHORITY\\SYSTEM', gmsaCredentialSpecName: a.b, gmsaCredentialSpec: x"), &[]),
        (&windows("runAsUserName: ''"), &["securityContext.windowsOptions.runAsUserName: Invalid value"]),
        (&windows("runAsUserName: 'a\\b\\c'"), &["securityContext.windowsOptions.runAsUserName: Invalid value"]),
        (&windows("runAsUserName: 'a*b'"), &["securityContext.windowsOptions.runAsUserName: Invalid value"]),
        (&windows("runAsUserName: ' . '"), &["securityContext.windowsOptions.runAsUserName: Invalid value"]),
        (&windows("runAsUserName: \"a\\tb\""), &["securityContext.windowsOptions.runAsUserName: Invalid value"]),
        (&windows("gmsaCredentialSpecName: A"), &["securityContext.windowsOptions.gmsaCredentialSpecName: Invalid"]),
        (&windows(&format!("gmsaCredentialSpec: {}", "a".repeat(65536))), &[]),
        (
            &windows(&format!("gmsaCredentialSpec: {}", "a".repeat(65537))),
            &["securityContext.windowsOptions.gmsaCredentialSpec: Invalid value"],
        ),
        (
            "os: {name: linux}, containers: [{name: a, image: i, securityContext: {windowsOptions: {}}}]",
            &["containers[0].securityContext.windowsOptions: Forbidden: may not be set for a Linux pod"],
        ),
        (&windows("gmsaCredentialSpec: ''"), &["securityContext.windowsOptions.gmsaCredentialSpec: Invalid value"]),
        (
            &format!("os: {{name: linux}}, {}", windows("runAsUserName: a")),
            &["securityContext.windowsOptions: Forbidden: may not be set for a Linux pod"],
        ),
        (
            "os: {name: windows}, hostPID: true, securityContext: {runAsUser: 1}, \
             containers: [{name: a, image: i, securityContext: {privileged: true}}]",
            &[
                "hostPID: Forbidden",
                "securityContext.runAsUser: Forbidden",
                "containers[0].securityContext.privileged: Forbidden",
            ],
        ),
        (&format!("hostNetwork: true, {}", windows("hostProcess: true")), &[]),
        (&windows("hostProcess: true"), &["hostNetwork: Invalid value: false"]),
        (
            "hostNetwork: true, securityContext: {windowsOptions: {hostProcess: true}}, \
             containers: [{name: a, image: i, securityContext: {windowsOptions: {hostProcess: false}}}, {name: b, image: i}]",
            &[
                "containers[0].securityContext.windowsOptions.hostProcess: Invalid value: false",
                ": Invalid value: \"\": must have all",
            ],
        ),
    ]);
}

//! Containers: names, images, ports, variables, mounts, restarts.

use super::{containers, expect, specs};

#[test]
fn names_and_images() {
    let long = "a".repeat(63);
    let too_long = "a".repeat(64);
    containers(&[
        (&format!("name: {long}"), &[]),
        (&format!("name: {too_long}"), &["name: Invalid value: \"aaa"]),
        ("name: Foo_", &["name: Invalid value: \"Foo_\": must be a DNS label: at most 63 lower case letters"]),
        ("name: ''", &["name: Required value"]),
        ("image: ''", &["image: Required value"]),
        ("image: ' a'", &["image: Invalid value: \" a\": must not begin or end with white space"]),
        ("image: 'A B'", &[]),
        ("INIT image: 'a '", &["image: Invalid value"]),
        ("imagePullPolicy: Never", &[]),
        (
            "imagePullPolicy: never",
            &["imagePullPolicy: Unsupported value: \"never\": one of \"Always\", \"IfNotPresent\", \"Never\""],
        ),
        ("terminationMessagePolicy: FallbackToLogsOnError", &[]),
        ("terminationMessagePolicy: Logs", &["terminationMessagePolicy: Unsupported value: \"Logs\""]),
        ("terminationMessagePath: relative", &[]),
    ]);
}

#[test]
fn names_differ_over_all_lists() {
    specs(&[
        (
            "containers: [{name: a, image: i}, {name: b, image: i}, {name: a, image: i}]",
            &["containers[2].name: Duplicate value: \"a\""],
        ),
        (
            "containers: [{name: a, image: i}], initContainers: [{name: b, image: i}, {name: a, image: i}]",
            &["initContainers[1].name: Duplicate value: \"a\""],
        ),
        ("containers: []", &["containers: Required value"]),
        (
            "ephemeralContainers: [{name: debug, image: i}]",
            &["ephemeralContainers: Forbidden: may not be set in a manifest"],
        ),
        ("ephemeralContainers: []", &[]),
    ]);
}

#[test]
fn ports() {
    containers(&[
        ("ports: [{containerPort: 1}, {containerPort: 65535, hostPort: 65535, protocol: SCTP, name: a}]", &[]),
        ("ports: [{containerPort: 0}]", &["ports[0].containerPort: Required value"]),
        ("ports: [{}]", &["ports[0].containerPort: Required value"]),
        ("ports: [{containerPort: 65536}]", &["ports[0].containerPort: Invalid value: 65536: must be from 1 to 65535"]),
        ("ports: [{containerPort: -1}]", &["ports[0].containerPort: Invalid value: -1"]),
        ("ports: [{containerPort: 80, hostPort: 70000}]", &["ports[0].hostPort: Invalid value: 70000"]),
        ("ports: [{containerPort: 80, protocol: tcp}]", &["ports[0].protocol: Unsupported value: \"tcp\""]),
        ("ports: [{containerPort: 80, name: HTTP}]", &["ports[0].name: Invalid value: \"HTTP\""]),
        ("ports: [{containerPort: 80, name: a23456789012345}]", &[]),
        ("ports: [{containerPort: 80, name: a234567890123456}]", &["ports[0].name: Invalid value"]),
        (
            "ports: [{containerPort: 80, name: a}, {containerPort: 81, name: a}]",
            &["ports[1].name: Duplicate value: \"a\""],
        ),
        (
            "ports: [{containerPort: 80, hostPort: 8080}, {containerPort: 81, hostPort: 8080}]",
            &["ports[1].hostPort: Duplicate value: \"TCP//8080\""],
        ),
        (
            "ports: [{containerPort: 80, hostPort: 80}, {containerPort: 80, hostPort: 80, protocol: UDP}, \
             {containerPort: 80, hostPort: 80, hostIP: 127.0.0.1}]",
            &[],
        ),
        (
            "INIT ports: [{containerPort: 80, hostPort: 80}, {containerPort: 81, hostPort: 80}]",
            &["ports[1].hostPort: Duplicate value"],
        ),
    ]);
    let port = "ports: [{containerPort: 80, hostPort: 80}]";
    specs(&[
        (
            &format!("containers: [{{name: a, image: i, {port}}}, {{name: b, image: i, {port}}}]"),
            &["containers[1].ports[0].hostPort: Duplicate value: \"TCP//80\""],
        ),
        (&format!("containers: [{{name: a, image: i, {port}}}], initContainers: [{{name: b, image: i, {port}}}]"), &[]),
    ]);
}

#[test]
fn variables() {
    let one_of = "env[0].valueFrom: Invalid value: \"\": must be exactly one of";
    containers(&[
        ("env: [{name: A}, {name: 'a b.c-1$', value: ''}, {name: A}]", &[]),
        ("env: [{name: ''}]", &["env[0].name: Required value"]),
        ("env: [{name: a=b}]", &["env[0].name: Invalid value: \"a=b\": must be printable ASCII"]),
        ("env: [{name: ä}]", &["env[0].name: Invalid value"]),
        ("env: [{name: A, valueFrom: {}}]", &[one_of]),
        (
            "env: [{name: A, valueFrom: {secretKeyRef: {name: s, key: k}, configMapKeyRef: {name: c, key: k}}}]",
            &[one_of],
        ),
        (
            "env: [{name: A, value: b, valueFrom: {secretKeyRef: {name: s, key: k}}}]",
            &["env[0].valueFrom: Invalid value: \"\": may not be given when `value` is not empty"],
        ),
        ("env: [{name: A, value: '', valueFrom: {secretKeyRef: {name: s, key: k}}}]", &[]),
        (
            "env: [{name: A, valueFrom: {secretKeyRef: {name: S, key: ..k}}}]",
            &["env[0].valueFrom.secretKeyRef.name: Invalid", "env[0].valueFrom.secretKeyRef.key: Invalid"],
        ),
        (
            "env: [{name: A, valueFrom: {configMapKeyRef: {name: c}}}]",
            &["env[0].valueFrom.configMapKeyRef.key: Required value"],
        ),
    ]);
}

#[test]
fn variables_from_a_file() {
    let file = |key: &str, path: &str, volume: &str| {
        format!("env: [{{name: A, valueFrom: {{fileKeyRef: {{key: {key}, path: {path}, volumeName: {volume}}}}}}}]")
    };
    containers(&[
        (&file("K", "a/b.env", "data"), &[]),
        (&file("''", "a", "data"), &["env[0].valueFrom.fileKeyRef.key: Required value"]),
        (&file("a=b", "a", "data"), &["env[0].valueFrom.fileKeyRef.key: Invalid value"]),
        (&file("K", "''", "data"), &["env[0].valueFrom.fileKeyRef.path: Required value"]),
        (&file("K", "a/../b", "data"), &["env[0].valueFrom.fileKeyRef.path: Invalid value"]),
        (&file("K", "a", "''"), &["env[0].valueFrom.fileKeyRef.volumeName: Required value"]),
        (&file("K", "a", "nowhere"), &["env[0].valueFrom.fileKeyRef.volumeName: Not found: \"nowhere\""]),
        (&file("K", "a", "claim"), &["env[0].valueFrom.fileKeyRef.volumeName: Invalid value: \"claim\""]),
    ]);
}

#[test]
fn fields_of_the_pod() {
    let field = |path: &str| format!("env: [{{name: A, valueFrom: {{fieldRef: {{fieldPath: {path:?}}}}}}}]");
    let at = "env[0].valueFrom.fieldRef.fieldPath: ";
    for good in [
        "metadata.name",
        "metadata.namespace",
        "metadata.uid",
        "metadata.labels['a.b/c']",
        "metadata.annotations['A.b/c']",
        "spec.nodeName",
        "spec.host",
        "spec.serviceAccountName",
        "status.hostIP",
        "status.hostIPs",
        "status.podIP",
        "status.podIPs",
    ] {
        containers(&[(&field(good), &[])]);
    }
    containers(&[
        (&field(""), &[&format!("{at}Required value")]),
        (&field("metadata.labels"), &[&format!("{at}Unsupported value: \"metadata.labels\"")]),
        (&field("metadata.labels['a b']"), &[&format!("{at}Invalid value: \"a b\"")]),
        (&field("metadata.labels['A.b/c']"), &[&format!("{at}Invalid value")]),
        (&field("metadata.annotations['a b']"), &[&format!("{at}Invalid value: \"a b\"")]),
        (&field("metadata.name['a']"), &[&format!("{at}Unsupported value")]),
        (&field("status.phase"), &[&format!("{at}Unsupported value")]),
        (
            "env: [{name: A, valueFrom: {fieldRef: {apiVersion: v2, fieldPath: metadata.name}}}]",
            &["env[0].valueFrom.fieldRef.apiVersion: Unsupported value: \"v2\""],
        ),
    ]);
}

#[test]
fn resources_of_the_container() {
    let resource = |name: &str, divisor: &str| {
        format!("env: [{{name: A, valueFrom: {{resourceFieldRef: {{resource: {name:?}, divisor: {divisor:?}}}}}}}]")
    };
    let at = "env[0].valueFrom.resourceFieldRef";
    for (name, good, bad) in [
        ("limits.cpu", &["0", "1", "1m", "1000m", "0.001"][..], &["2", "10m", "1k", "1Ki", "1e-3"][..]),
        (
            "requests.memory",
            &["0", "1", "1k", "1000", "1M", "1G", "1T", "1P", "1E", "1Ki", "1Mi", "1Gi", "1Ti", "1Pi", "1Ei", "1024Ki"],
            &["1m", "2", "1024", "1000Ki", "1e3", "10Mi", "-1"],
        ),
        ("limits.ephemeral-storage", &["1", "1Gi"], &["1m"]),
        ("requests.hugepages-2Mi", &["1Mi"], &["3Mi"]),
    ] {
        for divisor in good {
            containers(&[(&resource(name, divisor), &[])]);
        }
        for divisor in bad {
            containers(&[(
                &resource(name, divisor),
                &[&format!("{at}.divisor: Invalid value: {divisor:?}: must be 1")],
            )]);
        }
    }
    containers(&[
        (&resource("limits.cpu", "x"), &[&format!("{at}.divisor: Invalid value: \"x\": must be a quantity")]),
        (&resource("", "1"), &[&format!("{at}.resource: Required value")]),
        (&resource("cpu", "1"), &[&format!("{at}.resource: Unsupported value: \"cpu\"")]),
    ]);
}

#[test]
fn variables_from_sources() {
    let one_of = "envFrom[0]: Invalid value: \"\": must be exactly one of configMapRef and secretRef";
    containers(&[
        ("envFrom: [{prefix: A_, secretRef: {name: s}}, {configMapRef: {name: c-}}]", &[]),
        ("envFrom: [{}]", &[one_of]),
        ("envFrom: [{secretRef: {name: s}, configMapRef: {name: c}}]", &[one_of]),
        ("envFrom: [{prefix: a=, secretRef: {name: s}}]", &["envFrom[0].prefix: Invalid value"]),
        ("envFrom: [{secretRef: {}}]", &["envFrom[0].secretRef.name: Required value"]),
        ("envFrom: [{configMapRef: {name: A}}]", &["envFrom[0].configMapRef.name: Invalid value"]),
    ]);
}

#[test]
fn mounts() {
    let mount = |fields: &str| format!("volumeMounts: [{{name: data, mountPath: /data, {fields}}}]");
    containers(&[
        ("volumeMounts: [{name: data, mountPath: /a}, {name: data, mountPath: 'b:c', subPath: x/..y}]", &[]),
        ("volumeMounts: [{name: nowhere, mountPath: /a}]", &["volumeMounts[0].name: Not found: \"nowhere\""]),
        ("volumeMounts: [{mountPath: /a}]", &["volumeMounts[0].name: Required value"]),
        ("volumeMounts: [{name: data}]", &["volumeMounts[0].mountPath: Required value"]),
        (
            "volumeMounts: [{name: data, mountPath: /a}, {name: more, mountPath: /a}]",
            &["volumeMounts[1].mountPath: Invalid value: \"/a\": must be unique"],
        ),
        (&mount("subPath: /abs"), &["volumeMounts[0].subPath: Invalid value: \"/abs\": must be a relative path"]),
        (&mount("subPath: a/../b"), &["volumeMounts[0].subPath: Invalid value"]),
        (&mount("subPathExpr: $(A)/b"), &[]),
        (&mount("subPathExpr: ../$(A)"), &["volumeMounts[0].subPathExpr: Invalid value"]),
        (
            &mount("subPath: a, subPathExpr: b"),
            &["volumeMounts[0].subPathExpr: Invalid value: \"b\": may not be given together with subPath"],
        ),
        (&mount("mountPropagation: HostToContainer"), &[]),
        (&mount("mountPropagation: Both"), &["volumeMounts[0].mountPropagation: Unsupported value: \"Both\""]),
        (
            &mount("mountPropagation: Bidirectional"),
            &["volumeMounts[0].mountPropagation: Forbidden: may be Bidirectional only in a privileged container"],
        ),
        (&format!("securityContext: {{privileged: true}}, {}", mount("mountPropagation: Bidirectional")), &[]),
        (&mount("readOnly: true, recursiveReadOnly: Enabled, mountPropagation: None"), &[]),
        (&mount("recursiveReadOnly: Disabled"), &[]),
        (&mount("recursiveReadOnly: Always"), &["volumeMounts[0].recursiveReadOnly: Unsupported value"]),
        (
            &mount("recursiveReadOnly: IfPossible"),
            &["volumeMounts[0].recursiveReadOnly: Forbidden: may be set only where readOnly"],
        ),
        (
            &mount("readOnly: true, recursiveReadOnly: IfPossible, mountPropagation: HostToContainer"),
            &["volumeMounts[0].recursiveReadOnly: Forbidden: may be set only where mountPropagation"],
        ),
    ]);
}

#[test]
fn devices() {
    let path = |path: &str| format!("volumeDevices: [{{name: claim, devicePath: {path}}}]");
    containers(&[
        (&path("/dev/xvda"), &[]),
        (&path("''"), &["volumeDevices[0].devicePath: Required value"]),
        (&path("/dev/../a"), &["volumeDevices[0].devicePath: Invalid value"]),
        ("volumeDevices: [{devicePath: /a}]", &["volumeDevices[0].name: Required value"]),
        ("volumeDevices: [{name: nowhere, devicePath: /a}]", &["volumeDevices[0].name: Not found: \"nowhere\""]),
        ("volumeDevices: [{name: data, devicePath: /a}]", &["volumeDevices[0].name: Invalid value: \"data\""]),
        (
            "volumeDevices: [{name: claim, devicePath: /a}, {name: claim, devicePath: /a}]",
            &["volumeDevices[1].name: Invalid value", "volumeDevices[1].devicePath: Invalid value"],
        ),
        (
            "volumeDevices: [{name: claim, devicePath: /a}], volumeMounts: [{name: claim, mountPath: /b}]",
            &["volumeMounts[0].name: Invalid value", "volumeDevices[0].name: Invalid value"],
        ),
        (
            "volumeDevices: [{name: claim, devicePath: /a}], volumeMounts: [{name: claim2, mountPath: /a}]",
            &["volumeMounts[0].mountPath: Invalid value", "volumeDevices[0].devicePath: Invalid value"],
        ),
    ]);
    expect(
        "metadata: {name: web}\nspec: {hostUsers: false, volumes: [{name: c, persistentVolumeClaim: {claimName: c}}], \
         containers: [{name: a, image: i, volumeDevices: [{name: c, devicePath: /a}]}]}",
        &["spec.containers[0].volumeDevices: Forbidden: may not be set when hostUsers is false"],
    );
}

#[test]
fn restarts() {
    let rule = |fields: &str| format!("restartPolicy: Never, restartPolicyRules: [{{{fields}}}]");
    let codes = |codes: &str| rule(&format!("action: Restart, exitCodes: {{{codes}}}"));
    let many = vec!["{action: Restart, exitCodes: {operator: In, values: [1]}}"; 21].join(", ");
    let values = (0..256).map(|n| n.to_string()).collect::<Vec<_>>().join(", ");
    containers(&[
        ("restartPolicy: OnFailure", &[]),
        ("restartPolicy: Sometimes", &["restartPolicy: Unsupported value: \"Sometimes\""]),
        ("INIT restartPolicy: Never", &[]),
        ("INIT restartPolicy: Sometimes", &["restartPolicy: Unsupported value: \"Sometimes\""]),
        (&codes("operator: In, values: [1, 2]"), &[]),
        (&format!("INIT {}", codes("operator: NotIn, values: [0]")), &[]),
        (&codes("operator: Is"), &["restartPolicyRules[0].exitCodes.operator: Unsupported value: \"Is\""]),
        (
            &codes(&format!("operator: In, values: [{values}]")),
            &["restartPolicyRules[0].exitCodes.values: Too many: 256: may not be more than 255"],
        ),
        (&rule("action: Restart"), &["restartPolicyRules[0].exitCodes: Required value"]),
        (&rule("action: Restart, exitCodes: {operator: In}"), &[]),
        (
            &rule("action: Stop, exitCodes: {operator: In}"),
            &["restartPolicyRules[0].action: Unsupported value: \"Stop\""],
        ),
        (
            "restartPolicyRules: [{action: Restart, exitCodes: {operator: In}}]",
            &["restartPolicy: Required value: must be set together with restartPolicyRules"],
        ),
        (
            &format!("restartPolicy: Never, restartPolicyRules: [{many}]"),
            &["restartPolicyRules: Too many: 21: may not be more than 20"],
        ),
    ]);
}

#[test]
fn resizing() {
    let policy =
        |name: &str, policy: &str| format!("resizePolicy: [{{resourceName: {name}, restartPolicy: {policy}}}]");
    containers(&[
        (&policy("cpu", "NotRequired"), &[]),
        (&policy("disk", "NotRequired"), &["resizePolicy[0].resourceName: Unsupported value: \"disk\""]),
        (&policy("cpu", "Never"), &["resizePolicy[0].restartPolicy: Unsupported value: \"Never\""]),
        (
            "resizePolicy: [{resourceName: cpu, restartPolicy: NotRequired}, {resourceName: cpu, restartPolicy: NotRequired}]",
            &["resizePolicy[1]: Duplicate value: \"cpu\""],
        ),
        (&format!("INIT {}", policy("cpu", "RestartContainer")), &["resizePolicy[0].restartPolicy: Invalid value"]),
        (&format!("INIT restartPolicy: Always, {}", policy("cpu", "RestartContainer")), &[]),
    ]);
    specs(&[(
        &format!("restartPolicy: Never, containers: [{{name: a, image: i, {}}}]", policy("cpu", "RestartContainer")),
        &["containers[0].resizePolicy[0].restartPolicy: Invalid value: \"RestartContainer\": must be NotRequired"],
    )]);
}

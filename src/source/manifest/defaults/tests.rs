use serde_json::{Value, json};

use super::*;
use crate::yaml::{decode, parse_one};

/// The pod with the given spec, with defaults, as JSON.
fn defaulted(spec: &str) -> Value {
    let text = format!("spec: {{{spec}}}");
    let node = parse_one(&text, &mut Vec::new()).expect("parses").expect("is not empty");
    let decoded = decode::<core::Pod>(&node).expect("is a pod");
    assert_eq!(decoded.unknown, [], "{spec}");
    let mut pod = decoded.value;
    set_defaults(&mut pod);
    let once = pod.clone();
    set_defaults(&mut pod);
    assert_eq!(pod, once, "{spec}: defaults of defaults");
    serde_json::to_value(pod).expect("is JSON")
}

/// Each spec has a value at a JSON pointer below `spec`.
fn check(table: &[(&str, &str, Value)]) {
    for (spec, at, want) in table {
        let got = defaulted(spec);
        let got = got.pointer(&format!("/spec{at}")).unwrap_or(&Value::Null);
        assert_eq!(got, want, "{spec}: {at}");
    }
}

/// Each container has a value at a JSON pointer below it.
fn containers(table: &[(&str, &str, Value)]) {
    for (fields, at, want) in table {
        for list in ["containers", "initContainers", "ephemeralContainers"] {
            let at = format!("/{list}/0{at}");
            check(&[(&format!("{list}: [{{name: a, image: i:1, {fields}}}]"), &at, want.clone())]);
        }
    }
}

#[test]
fn of_the_pod() {
    check(&[
        ("", "/restartPolicy", json!("Always")),
        ("restartPolicy: ''", "/restartPolicy", json!("Always")),
        ("restartPolicy: Never", "/restartPolicy", json!("Never")),
        ("", "/dnsPolicy", json!("ClusterFirst")),
        ("hostNetwork: true", "/dnsPolicy", json!("ClusterFirst")),
        ("", "/terminationGracePeriodSeconds", json!(30)),
        ("terminationGracePeriodSeconds: 0", "/terminationGracePeriodSeconds", json!(0)),
        ("", "/schedulerName", json!("default-scheduler")),
        ("", "/securityContext", json!({})),
        ("", "/enableServiceLinks", json!(true)),
        ("enableServiceLinks: false", "/enableServiceLinks", json!(false)),
        ("", "/serviceAccountName", Value::Null),
        ("serviceAccount: old", "/serviceAccountName", json!("old")),
        ("serviceAccount: old, serviceAccountName: new", "/serviceAccountName", json!("new")),
        ("overhead: {cpu: 0.0001}", "/overhead/cpu", json!("1m")),
    ]);
    let mut nothing = core::Pod::default();
    set_defaults(&mut nothing);
    assert_eq!(nothing.spec.and_then(|s| s.restart_policy).as_deref(), Some("Always"));
}

#[test]
fn of_containers() {
    containers(&[
        ("", "/terminationMessagePath", json!("/dev/termination-log")),
        ("terminationMessagePath: /m", "/terminationMessagePath", json!("/m")),
        ("", "/terminationMessagePolicy", json!("File")),
        ("ports: [{containerPort: 1}]", "/ports/0/protocol", json!("TCP")),
        ("ports: [{containerPort: 1, protocol: UDP}]", "/ports/0/protocol", json!("UDP")),
        ("ports: [{containerPort: 1}]", "/ports/0/hostPort", Value::Null),
        (
            "env: [{name: A, valueFrom: {fieldRef: {fieldPath: metadata.name}}}]",
            "/env/0/valueFrom/fieldRef/apiVersion",
            json!("v1"),
        ),
        (
            "resources: {requests: {memory: 1n, cpu: 100m}}",
            "/resources/requests",
            json!({"memory": "1m", "cpu": "100m"}),
        ),
        ("resources: {requests: {memory: 1.5Gi}}", "/resources/requests/memory", json!("1.5Gi")),
    ]);
}

#[test]
fn of_image_pull_policies() {
    let by_digest = format!("a:latest@sha256:{}", "0".repeat(64));
    for (image, policy) in [
        ("a", "Always"),
        ("a:latest", "Always"),
        ("a:1", "IfNotPresent"),
        ("localhost:5000/a", "Always"),
        ("localhost:5000/a:1", "IfNotPresent"),
        ("a@sha256:00", "IfNotPresent"),
        ("a:1@sha256:00", "IfNotPresent"),
        (by_digest.as_str(), "Always"),
        // No digest, so no name.
        ("a:latest@sha256:00", "IfNotPresent"),
        ("", "IfNotPresent"),
    ] {
        let volume = format!("volumes: [{{name: v, image: {{reference: '{image}'}}}}]");
        check(&[(&volume, "/volumes/0/image/pullPolicy", json!(policy))]);
        containers(&[
            (&format!("image: '{image}'"), "/imagePullPolicy", json!(policy)),
            (&format!("image: '{image}', imagePullPolicy: Never"), "/imagePullPolicy", json!("Never")),
        ]);
    }
}

#[test]
fn of_probes_and_hooks() {
    for kind in ["livenessProbe", "readinessProbe", "startupProbe"] {
        let at = |field: &str| format!("/{kind}{field}");
        containers(&[
            (
                &format!("{kind}: {{httpGet: {{port: 80}}}}"),
                &at(""),
                json!({"httpGet": {"port": 80, "path": "/", "scheme": "HTTP"}, "periodSeconds": 10,
                    "timeoutSeconds": 1, "successThreshold": 1, "failureThreshold": 3}),
            ),
            (
                &format!("{kind}: {{periodSeconds: 2, timeoutSeconds: 0, failureThreshold: 7, successThreshold: 5}}"),
                &at(""),
                json!({"periodSeconds": 2, "timeoutSeconds": 1, "successThreshold": 5, "failureThreshold": 7}),
            ),
            (&format!("{kind}: {{grpc: {{port: 1}}}}"), &at("/grpc"), json!({"port": 1, "service": ""})),
        ]);
    }
    for hook in ["postStart", "preStop"] {
        let at = format!("/lifecycle/{hook}/httpGet");
        let want = json!({"port": 80, "path": "/", "scheme": "HTTP"});
        containers(&[(&format!("lifecycle: {{{hook}: {{httpGet: {{port: 80}}}}}}"), &at, want)]);
    }
}

#[test]
fn of_ports_on_the_network_of_the_host() {
    let ports = "[{name: a, ports: [{containerPort: 80}, {containerPort: 81, hostPort: 82}]}]";
    let hosts = |list: &str, spec: &str| {
        let pod = defaulted(&format!("{list}: {ports}, {spec}"));
        let ports = pod.pointer(&format!("/spec/{list}/0/ports")).and_then(Value::as_array).cloned();
        ports.expect("has ports").iter().map(|p| p["hostPort"].clone()).collect::<Vec<_>>()
    };
    for list in ["containers", "initContainers"] {
        assert_eq!(hosts(list, "hostNetwork: true"), [json!(80), json!(82)]);
        assert_eq!(hosts(list, "hostNetwork: false"), [Value::Null, json!(82)]);
    }
    assert_eq!(hosts("ephemeralContainers", "hostNetwork: true"), [Value::Null, json!(82)]);
}

#[test]
fn of_volumes() {
    let table: &[(&str, &str, Value)] = &[
        ("", "/emptyDir", json!({})),
        ("hostPath: {path: /a}", "/hostPath", json!({"path": "/a", "type": ""})),
        ("hostPath: {path: /a}", "/emptyDir", Value::Null),
        ("secret: {secretName: s}", "/secret/defaultMode", json!(420)),
        ("secret: {secretName: s, defaultMode: 0}", "/secret/defaultMode", json!(0)),
        ("configMap: {name: c}", "/configMap/defaultMode", json!(420)),
        (
            "downwardAPI: {items: [{path: a, fieldRef: {fieldPath: metadata.name}}]}",
            "/downwardAPI",
            json!({"defaultMode": 420,
                "items": [{"path": "a", "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}]}),
        ),
        (
            "projected: {sources: [{serviceAccountToken: {path: t}}, \
             {downwardAPI: {items: [{path: a, fieldRef: {fieldPath: metadata.name}}]}}]}",
            "/projected",
            json!({"defaultMode": 420, "sources": [{"serviceAccountToken": {"path": "t", "expirationSeconds": 3600}},
                {"downwardAPI": {"items": [{"path": "a",
                    "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.name"}}]}}]}),
        ),
        ("iscsi: {targetPortal: p, iqn: i, lun: 0}", "/iscsi/iscsiInterface", json!("default")),
        (
            "rbd: {monitors: [m], image: i}",
            "/rbd",
            json!({"monitors": ["m"], "image": "i", "pool": "rbd", "user": "admin", "keyring": "/etc/ceph/keyring"}),
        ),
        (
            "azureDisk: {diskName: a, diskURI: b}",
            "/azureDisk",
            json!({"diskName": "a", "diskURI": "b", "cachingMode": "ReadWrite", "kind": "Shared",
                "fsType": "ext4", "readOnly": false}),
        ),
        ("scaleIO: {secretRef: {name: s}}", "/scaleIO/storageMode", json!("ThinProvisioned")),
        ("scaleIO: {secretRef: {name: s}}", "/scaleIO/fsType", json!("xfs")),
        ("ephemeral: {volumeClaimTemplate: {}}", "/ephemeral/volumeClaimTemplate/spec/volumeMode", json!("Filesystem")),
    ];
    for (fields, at, want) in table {
        let at = format!("/volumes/0{at}");
        check(&[(&format!("volumes: [{{name: v, {fields}}}]"), &at, want.clone())]);
    }
}

#[test]
fn requests_follow_limits() {
    let both = json!({"cpu": "1", "memory": "16Mi"});
    for list in ["containers", "initContainers"] {
        let of = |resources: &str| format!("{list}: [{{name: a, resources: {{{resources}}}}}]");
        let at = format!("/{list}/0/resources/requests");
        check(&[
            (&of("limits: {cpu: 1, memory: 16Mi}"), &at, both.clone()),
            (&of("limits: {cpu: 2, memory: 16Mi}, requests: {cpu: 1}"), &at, both.clone()),
            (&of("requests: {cpu: 1}"), &at, json!({"cpu": "1"})),
            (&of(""), &at, Value::Null),
        ]);
    }
}

#[test]
fn resources_of_the_pod_as_a_whole() {
    let containers = "containers: [{name: a, resources: {requests: {cpu: 100m}}}, \
                      {name: b, resources: {requests: {cpu: 200m}, limits: {hugepages-2Mi: 4Mi}}}]";
    let pages = json!("4194304");
    let of = |resources: &str| format!("{containers}, resources: {{{resources}}}");
    check(&[
        (containers, "/resources", Value::Null),
        (&of(""), "/resources", json!({})),
        (
            &of("limits: {cpu: 1, memory: 1Gi}"),
            "/resources",
            json!({"limits": {"cpu": "1", "memory": "1Gi", "hugepages-2Mi": pages},
                "requests": {"cpu": "300m", "memory": "1Gi", "hugepages-2Mi": pages}}),
        ),
        (
            &of("requests: {cpu: 1}"),
            "/resources",
            json!({"limits": {"hugepages-2Mi": pages}, "requests": {"cpu": "1", "hugepages-2Mi": pages}}),
        ),
    ]);
}

#[test]
fn what_containers_need_together() {
    let cpu = |spec: &str| {
        let text = format!("{{{spec}}}");
        let node = parse_one(&text, &mut Vec::new()).expect("parses").expect("is not empty");
        let spec = decode::<core::PodSpec>(&node).expect("is a spec").value;
        aggregate(&spec, |r| r.requests.as_ref()).get("cpu").map(|q| q.milli_value())
    };
    let c = |kind: &str, cpu: &str| format!("{{name: a, resources: {{requests: {{cpu: {cpu}}}}}, {kind}}}");
    let side = |cpu| c("restartPolicy: Always", cpu);
    let table = [
        (format!("containers: [{}, {}]", c("", "1"), c("", "200m")), Some(1200)),
        (format!("containers: [{}], initContainers: [{}]", c("", "1"), c("", "3")), Some(3000)),
        (format!("containers: [{}], initContainers: [{}, {}]", c("", "1"), c("", "2"), c("", "3")), Some(3000)),
        (format!("containers: [{}], initContainers: [{}, {}]", c("", "1"), side("2"), c("", "3")), Some(5000)),
        (format!("containers: [{}], initContainers: [{}, {}]", c("", "1"), c("", "3"), side("1")), Some(3000)),
        (format!("containers: [{}], initContainers: [{}, {}]", c("", "1"), side("1"), side("1")), Some(3000)),
        (format!("containers: [{}]", c("", "x")), None),
    ];
    for (spec, want) in table {
        assert_eq!(cpu(&spec), want, "{spec}");
    }
}

use jiff::Timestamp;

use crate::local::{Body, Kind, Object};
use crate::pod::Source;
use crate::pod::identity::Origin;
use crate::source::manifest::{Manifest, read};

fn manifest(text: &str) -> Manifest {
    let origin = Origin { source: Source::File, node_name: "n", place: "/m/a.yaml", seen: Timestamp::UNIX_EPOCH };
    read(text, origin)
}

fn document(kind: Kind, rest: &str) -> String {
    let version = match kind {
        Kind::RuntimeClass => "node.k8s.io/v1",
        Kind::PriorityClass => "scheduling.k8s.io/v1",
        _ => "v1",
    };
    format!("apiVersion: {version}\nkind: {kind}\nmetadata: {{name: x}}\n{rest}\n")
}

fn object(kind: Kind, rest: &str) -> Object {
    let mut m = manifest(&document(kind, rest));
    assert_eq!((&m.problems, &m.warnings), (&vec![], &vec![]), "{rest}");
    m.objects.pop().expect("an object")
}

fn told(text: &str) -> Vec<String> {
    let m = manifest(text);
    m.problems.iter().chain(&m.warnings).map(ToString::to_string).collect()
}

#[test]
fn objects_stand_beside_pods() {
    let pod = "apiVersion: v1\nkind: Pod\nmetadata: {name: web}\nspec: {containers: [{name: main, image: i}]}\n";
    let map = document(Kind::ConfigMap, "data: {a: '1', b: null}\nbinaryData: {c: /w==}\nimmutable: true");
    let secret = document(Kind::Secret, "data: {a: aHVudGVy}\nstringData: {a: over, b: plain}");
    let list = |kind: &str| {
        format!(
            "apiVersion: v1\nkind: List\nitems:\n- apiVersion: v1\n  kind: {kind}\n  metadata: {{name: other, namespace: ns}}\n"
        )
    };
    let m = manifest(&[pod, &map, &secret, &list("ConfigMap")].join("---\n"));
    assert_eq!((&m.problems, &m.warnings), (&vec![], &vec![]));
    assert_eq!(m.pods.len(), 1);
    let keys: Vec<_> = m.objects.iter().map(|o| o.key.to_string()).collect();
    assert_eq!(keys, ["ConfigMap default/x", "Secret default/x", "ConfigMap ns/other"]);
    let Body::ConfigMap(map) = &m.objects[0].body else { panic!("a config map") };
    assert_eq!((map.data["a"].as_str(), map.data["b"].as_str(), map.immutable), ("1", "", true));
    assert_eq!(map.binary_data["c"].0, [0xff]);
    let Body::Secret(secret) = &m.objects[1].body else { panic!("a secret") };
    assert_eq!((secret.data["a"].bytes(), secret.data["b"].bytes()), (b"over".as_slice(), b"plain".as_slice()));
    assert_eq!(secret.kind, "Opaque");
    let in_list = told(&list("Secret").replace("name: other", "name: Other"));
    assert_eq!(in_list.len(), 1);
    assert!(in_list[0].starts_with("line 6: items[0].metadata.name: Invalid value: \"Other\""), "{in_list:?}");
    // A manifest of nothing but objects is no mistake.
    assert!(told(&document(Kind::ConfigMap, "")).is_empty());
}

#[test]
fn base64_may_be_broken_into_lines() {
    let Body::Secret(secret) = object(Kind::Secret, "data:\n  a: |\n    aHVu\n    dGVy\n  b: ''").body else {
        panic!("a secret")
    };
    assert_eq!((secret.data["a"].bytes(), secret.data["b"].bytes()), (b"hunter".as_slice(), b"".as_slice()));
}

#[test]
fn volumes_and_claims() {
    let Body::PersistentVolumeClaim(claim) = object(
        Kind::PersistentVolumeClaim,
        "spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}, storageClassName: ''}\nstatus: {phase: Bound}",
    )
    .body
    else {
        panic!("a claim")
    };
    assert_eq!(claim.volume_mode.as_deref(), Some("Filesystem"));
    let hostname = "nodeAffinity: {required: {nodeSelectorTerms: [{matchExpressions: [{key: a, operator: Exists}]}]}}";
    let volume = object(
        Kind::PersistentVolume,
        &format!("spec: {{capacity: {{storage: 1Gi}}, accessModes: [ReadWriteOnce], local: {{path: /d}}, {hostname}}}"),
    );
    assert_eq!(volume.key.to_string(), "PersistentVolume x");
    let Body::PersistentVolume(volume) = volume.body else { panic!("a volume") };
    assert_eq!(volume.local.map(|l| l.path).as_deref(), Some("/d"));
}

#[test]
fn classes() {
    let Body::RuntimeClass(class) = object(
        Kind::RuntimeClass,
        "handler: kata\noverhead: {podFixed: {memory: 120Mi}}\nscheduling: {nodeSelector: {a: b}}",
    )
    .body
    else {
        panic!("a runtime class")
    };
    assert_eq!((class.handler.as_str(), class.overhead["memory"].0.as_str()), ("kata", "120Mi"));
    let Body::PriorityClass(class) = object(Kind::PriorityClass, "value: 1000\ndescription: d").body else {
        panic!("a priority class")
    };
    assert_eq!((class.value, class.preemption_policy.as_str()), (1000, "PreemptLowerPriority"));
}

#[test]
fn what_is_refused_says_where() {
    const KEY: &str =
        "must be a key: at most 253 letters, digits, '-', '_' and '.', not beginning with '..', and not '.'";
    let volume = |rest: &str| format!("spec: {{capacity: {{storage: 1Gi}}, accessModes: [ReadWriteOnce], {rest}}}");
    let claim = |rest: &str| format!("spec: {{accessModes: [ReadWriteOnce], {rest}}}");
    let table: &[(Kind, String, &str)] = &[
        (Kind::ConfigMap, "data: {a/b: x}".into(), &format!("line 4: data[a/b]: Invalid value: \"a/b\": {KEY}")),
        (
            Kind::ConfigMap,
            "data: {port: 80}".into(),
            "line 4: data.port: invalid type: integer `80`, expected a string",
        ),
        (
            Kind::ConfigMap,
            "data: {a: x}\nbinaryData:\n  a: eA==".into(),
            "line 4: data[a]: Invalid value: \"a\": stands in binaryData too",
        ),
        (Kind::ConfigMap, "dat: {a: x}".into(), "line 4: dat: unknown field"),
        (
            Kind::Secret,
            "stringData:\n  a/b: x".into(),
            &format!("line 5: stringData[a/b]: Invalid value: \"a/b\": {KEY}"),
        ),
        (
            Kind::Secret,
            "type: kubernetes.io/tls\nstringData: {tls.crt: x}".into(),
            "line 1: data[tls.key]: Required value",
        ),
        (Kind::Secret, "type: kubernetes.io/basic-auth".into(), "line 1: data[password]: Required value"),
        (
            Kind::Secret,
            "immutable: 5".into(),
            "line 4: immutable: must be of another type; what stands there is not shown, since this is a secret",
        ),
        (
            Kind::PersistentVolume,
            volume("nfs: {server: s, path: /}"),
            "line 4: spec: Required value: must specify a volume type, of those that a node has itself: hostPath or local",
        ),
        (
            Kind::PersistentVolume,
            volume("local: {path: /d}"),
            "line 4: spec.nodeAffinity: Required value: a local volume is on one node",
        ),
        (
            Kind::PersistentVolume,
            volume("hostPath: {path: /a/../b}"),
            "line 4: spec.hostPath.path: Invalid value: \"/a/../b\": must not contain '..'",
        ),
        (
            Kind::PersistentVolume,
            volume("hostPath: {path: /d}, volumeMode: Block"),
            "line 4: spec.volumeMode: Forbidden: may not be Block for a hostPath",
        ),
        (
            Kind::PersistentVolume,
            "spec: {accessModes: [ReadWriteOnce], hostPath: {path: /d}}".into(),
            "line 4: spec.capacity: Required value",
        ),
        (
            Kind::PersistentVolumeClaim,
            claim("resources: {requests: {storage: 0}}"),
            "line 4: spec.resources.requests[storage]: Invalid value: \"0\": must be greater than 0",
        ),
        (
            Kind::PersistentVolumeClaim,
            claim("volumeMode: File, resources: {requests: {storage: 1}}"),
            "line 4: spec.volumeMode: Unsupported value: \"File\": one of \"Block\", \"Filesystem\"",
        ),
        (
            Kind::RuntimeClass,
            "handler: Kata_1".into(),
            "line 4: handler: Invalid value: \"Kata_1\": must be a DNS label: at most 63 lower case letters, digits and '-', with a letter or digit at both ends",
        ),
        (Kind::PriorityClass, "value: 1000000001".into(), "line 4: value: Forbidden: may not be more than 1000000000"),
        (
            Kind::PriorityClass,
            "value: 1\npreemptionPolicy: Always".into(),
            "line 5: preemptionPolicy: Unsupported value: \"Always\": one of \"Never\", \"PreemptLowerPriority\"",
        ),
    ];
    for (kind, rest, want) in table {
        let told = told(&document(*kind, rest));
        assert!(told.contains(&(*want).to_owned()), "{kind} {rest}\n{told:#?}\n{want}");
    }
    let name = told("apiVersion: v1\nkind: PersistentVolume\nmetadata: {name: x, namespace: ns}\n");
    assert!(name.iter().any(|p| p.starts_with("line 3: metadata.namespace: Forbidden")), "{name:?}");
    assert_eq!(told("apiVersion: v1\nkind: ConfigMap\n"), ["line 1: metadata.name: Required value"]);
}

#[test]
fn a_mebibyte_and_no_more() {
    let told = |kind, n: usize| {
        told(&document(
            kind,
            &format!("{}: {{a: {}}}", if kind == Kind::Secret { "stringData" } else { "data" }, "x".repeat(n)),
        ))
    };
    for kind in [Kind::ConfigMap, Kind::Secret] {
        assert!(told(kind, 1 << 20).is_empty());
        let problems = told(kind, (1 << 20) + 1);
        assert_eq!(problems.len(), 1);
        assert!(problems[0].ends_with("data: Too long: may not be more than 1048576 bytes"), "{problems:?}");
    }
}

/// Whatever is wrong with a secret, its values are in no message.
#[test]
fn a_broken_secret_is_not_shown() {
    let values = ["hunter2", "aHVudGVyMg", "20482048"];
    let texts = [
        "data: {pw: hunter2}",
        "data: hunter2",
        "data: [hunter2]",
        "data: {pw: [hunter2]}",
        "data: {pw: 20482048}",
        "stringData: {pw: 20482048}",
        "stringData: 20482048",
        "type: 20482048",
        "type: kubernetes.io/dockerconfigjson\nstringData: {.dockerconfigjson: hunter2}",
        "type: kubernetes.io/tls\nstringData: {tls.crt: hunter2}",
        "stringData: {pw/x: hunter2}",
        "stringData:\n  pw: hunter2\n pw2: hunter2",
        "stringData:\n  pw: \"hunter2",
        "stringData: {pw: hunter2",
        "stringData:\n\tpw: hunter2",
        "stringData: {pw: hunter2: x}",
        "pw: hunter2",
        "immutable: hunter2",
        "metadata: {name: x, annotations: {last: 20482048}}",
        "metadata: {name: x, annotations: {kubectl.kubernetes.io/last-applied-configuration: '{\"data\":{\"pw\":\"aHVudGVyMg==\"}}'}}\ndata: {pw: aHVudGVyMg}",
    ];
    for text in texts {
        let text = document(Kind::Secret, text);
        let m = manifest(&text);
        let shown = format!("{m:?}\n{m:#?}\n{:?}", told(&text));
        for value in values {
            assert!(!shown.contains(value), "{value} is shown of\n{text}\n{shown}");
        }
    }
}

//! Ephemeral containers that are added to a pod.

use super::super::validate_ephemeral;
use crate::pod::core;
use crate::source::manifest::defaults;
use crate::yaml::{decode, parse_one};

/// With defaults.
fn read(list: &str) -> Vec<core::EphemeralContainer> {
    let node = parse_one(&format!("ephemeralContainers: {list}\ncontainers: []"), &mut Vec::new());
    let node = node.unwrap_or_else(|e| panic!("{list}\n{e}")).expect("is not empty");
    let decoded = decode::<core::PodSpec>(&node).unwrap_or_else(|e| panic!("{list}\n{e}"));
    assert_eq!(decoded.unknown, [], "{list}");
    let mut list = decoded.value.ephemeral_containers.unwrap_or_default();
    list.iter_mut().for_each(defaults::ephemeral_container);
    list
}

#[test]
fn of_a_pod_that_is_there() {
    let spec = super::pod(
        "metadata: {name: web}\nspec: {containers: [{name: main, image: a}], initContainers: [{name: init, image: a}], \
         volumes: [{name: data, emptyDir: {}}]}",
    );
    let spec = spec.spec.unwrap_or_default();
    let table: &[(&str, &str, &[&str])] = &[
        ("[]", "[]", &[]),
        ("[]", "[{name: d, image: i, stdin: true, tty: true, targetContainerName: main}]", &[]),
        (
            "[]",
            "[{name: d, image: i, targetContainerName: init, securityContext: {capabilities: {add: [SYS_PTRACE]}}}]",
            &[],
        ),
        ("[]", "[{name: d, image: i, volumeMounts: [{name: data, mountPath: /d}]}]", &[]),
        ("[{name: d, image: i}]", "[{name: d, image: i}, {name: e, image: i}]", &[]),
        (
            "[{name: d, image: i}]",
            "[{name: e, image: i}]",
            &["Containers: Forbidden: \"d\" is there and can't be removed"],
        ),
        ("[{name: d, image: i}]", "[]", &["Containers: Forbidden: \"d\" is there"]),
        (
            "[{name: d, image: i}]",
            "[{name: d, image: j}]",
            &["Containers: Forbidden: \"d\" is there and can't be changed"],
        ),
        ("[]", "[{name: main, image: i}]", &["Containers[0].name: Duplicate value"]),
        ("[]", "[{name: init, image: i}]", &["Containers[0].name: Duplicate value"]),
        ("[]", "[{name: d, image: i}, {name: d, image: i}]", &["Containers[1].name: Duplicate value"]),
        ("[]", "[{image: i}]", &["Containers[0].name: Required value"]),
        ("[]", "[{name: a_b, image: i}]", &["Containers[0].name: Invalid value"]),
        ("[]", "[{name: d}]", &["Containers[0].image: Required value"]),
        ("[]", "[{name: d, image: i, imagePullPolicy: Nope}]", &["Containers[0].imagePullPolicy: Unsupported value"]),
        ("[]", "[{name: d, image: i, targetContainerName: x}]", &["Containers[0].targetContainerName: Not found"]),
        (
            "[]",
            "[{name: d, image: i}, {name: e, image: i, targetContainerName: d}]",
            &["Containers[1].targetContainerName: Not found"],
        ),
        ("[]", "[{name: d, image: i, ports: [{containerPort: 80}]}]", &["Containers[0].ports: Forbidden"]),
        ("[]", "[{name: d, image: i, resources: {limits: {cpu: 1}}}]", &["Containers[0].resources: Forbidden"]),
        ("[]", "[{name: d, image: i, resources: {}}]", &[]),
        ("[]", "[{name: d, image: i, lifecycle: {}}]", &["Containers[0].lifecycle: Forbidden"]),
        ("[]", "[{name: d, image: i, livenessProbe: {}}]", &["Containers[0].livenessProbe: Forbidden"]),
        ("[]", "[{name: d, image: i, readinessProbe: {}}]", &["Containers[0].readinessProbe: Forbidden"]),
        ("[]", "[{name: d, image: i, startupProbe: {}}]", &["Containers[0].startupProbe: Forbidden"]),
        ("[]", "[{name: d, image: i, restartPolicy: Always}]", &["Containers[0].restartPolicy: Forbidden"]),
        (
            "[]",
            "[{name: d, image: i, volumeMounts: [{name: data, mountPath: /d, subPath: a}]}]",
            &["Containers[0].volumeMounts[0].subPath: Forbidden"],
        ),
        (
            "[]",
            "[{name: d, image: i, volumeMounts: [{name: none, mountPath: /d}]}]",
            &["Containers[0].volumeMounts[0].name: Not found"],
        ),
    ];
    for (before, after, want) in table {
        let spec = core::PodSpec { ephemeral_containers: Some(read(after)), ..spec.clone() };
        let problems: Vec<_> = validate_ephemeral(&spec, &read(before)).iter().map(ToString::to_string).collect();
        let fits = problems.len() == want.len()
            && problems.iter().zip(*want).all(|(got, want)| got.starts_with(&format!("spec.ephemeral{want}")));
        assert!(fits, "{before} {after}\n got: {problems:#?}\nwant: {want:#?}");
    }
}

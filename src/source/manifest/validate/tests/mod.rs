//! Tables of pods that are taken and pods that are refused, written as manifests.

mod containers;
mod ephemeral;
mod handlers;
mod pods;
mod real;
mod resources;
mod scheduling;
mod volumes;

use super::super::defaults::set_defaults;
use super::{validate_pod, validate_static};
use crate::pod::core;
use crate::yaml::{decode, parse_one};

/// The pod of a manifest, with defaults.
pub(super) fn pod(manifest: &str) -> core::Pod {
    let mut warnings = Vec::new();
    let node = parse_one(manifest, &mut warnings).unwrap_or_else(|e| panic!("{manifest}\n{e}"));
    let decoded = decode::<core::Pod>(&node.expect("is not empty")).unwrap_or_else(|e| panic!("{manifest}\n{e}"));
    // A field that the API doesn't know would make a test that tests nothing.
    assert_eq!(decoded.unknown, [], "{manifest}");
    let mut pod = decoded.value;
    set_defaults(&mut pod);
    pod
}

/// Checks that the pod of `manifest` has the problems of `want`, each `field: beginning of message`.
fn expect(manifest: &str, want: &[&str]) {
    let problems = validate_pod(&pod(manifest));
    let got: Vec<_> = problems.iter().map(ToString::to_string).collect();
    let fits = got.len() == want.len() && got.iter().zip(want).all(|(got, want)| got.starts_with(want));
    assert!(fits, "{manifest}\n got: {got:#?}\nwant: {want:#?}");
}

/// Each pod has the given spec, one container if it names none, and the problems with `spec.` put
/// before their fields.
fn specs(table: &[(&str, &[&str])]) {
    for (spec, want) in table {
        let containers = if spec.contains("containers:") { "" } else { "containers: [{name: main, image: a}], " };
        let dot = |w: &str| if w.starts_with(':') { "" } else { "." };
        let want: Vec<_> = want.iter().map(|w| format!("spec{}{w}", dot(w))).collect();
        let want: Vec<_> = want.iter().map(String::as_str).collect();
        expect(&format!("metadata: {{name: web}}\nspec: {{{containers}{spec}}}"), &want);
    }
}

/// Each pod has one container, or init container, with the given fields, and the problems with the
/// container's path put before their fields. Volumes are there to be mounted.
fn containers(table: &[(&str, &[&str])]) {
    for (fields, want) in table {
        let volumes = "volumes: [{name: data}, {name: more}, {name: claim, persistentVolumeClaim: {claimName: c}}, \
                       {name: claim2, persistentVolumeClaim: {claimName: d}}]";
        let (list, fields) = match fields.strip_prefix("INIT ") {
            Some(fields) => ("containers: [{name: other, image: b}], initContainers", fields),
            None => ("containers", *fields),
        };
        let at = list.rsplit(' ').next().unwrap_or_default();
        let want: Vec<_> = want.iter().map(|w| format!("spec.{at}[0].{w}")).collect();
        let want: Vec<_> = want.iter().map(String::as_str).collect();
        let manifest =
            format!("metadata: {{name: web}}\nspec: {{{volumes}, {list}: [{{name: main, image: a, {fields}}}]}}");
        expect(&manifest, &want);
    }
}

/// Each pod has one volume with the given fields, and the problems with the volume's path put
/// before their fields.
fn volumes(table: &[(&str, &[&str])]) {
    for (fields, want) in table {
        let want: Vec<_> = want.iter().map(|w| format!("volumes[0]{w}")).collect();
        let want: Vec<_> = want.iter().map(String::as_str).collect();
        specs(&[(&format!("volumes: [{{name: data, {fields}}}]"), &want)]);
    }
}

#[test]
fn a_pod_with_everything_is_taken() {
    expect(include_str!("manifests/everything.yaml"), &[]);
}

#[test]
fn a_manifest_without_a_spec_has_its_problems_told() {
    expect("kind: Pod", &["metadata.name: Required value", "spec.containers: Required value: at least one container"]);
}

#[test]
fn without_defaults_nothing_panics() {
    let bare = core::Pod::default();
    let fields: Vec<_> = validate_pod(&bare).into_iter().map(|p| p.field).collect();
    assert_eq!(
        fields,
        [
            "metadata.name",
            "spec.containers",
            "spec.restartPolicy",
            "spec.terminationGracePeriodSeconds",
            "spec.dnsPolicy"
        ]
    );
    assert_eq!(validate_static(&bare), []);
}

#[test]
fn problems_have_lines_by_their_fields() {
    let manifest = "metadata:\n  name: web\nspec:\n  containers:\n  - name: main\n    image: a\n    ports:\n    - {containerPort: 80}\n    - {containerPort: 81,\n       hostPort: 99999}\n";
    let node = parse_one(manifest, &mut Vec::new()).expect("parses").expect("is not empty");
    let problems = validate_pod(&pod(manifest));
    let [problem] = problems.as_slice() else { panic!("{problems:?}") };
    assert_eq!((problem.field.as_str(), problem.line), ("spec.containers[0].ports[1].hostPort", 0));
    assert_eq!(node.line_of(&problem.field), 10);
}

#[test]
fn there_is_an_end_of_problems() {
    let ports = vec!["{containerPort: 0}"; 5000].join(", ");
    let manifest = format!("metadata: {{name: web}}\nspec: {{containers: [{{name: a, image: a, ports: [{ports}]}}]}}");
    let problems = validate_pod(&pod(&manifest));
    assert_eq!(problems.len(), 101);
    assert_eq!(problems[100].to_string(), "Too many: there are more problems than these");
}

#[test]
fn long_values_are_cut() {
    let manifest =
        format!("metadata: {{name: {}}}\nspec: {{containers: [{{name: a, image: a}}]}}", "Ä".repeat(100_000));
    let message = validate_pod(&pod(&manifest)).remove(0).message;
    assert!(message.starts_with("Invalid value: \"ÄÄÄ") && message.len() < 600, "{message}");
}

#[test]
fn static_pods_need_no_api_server() {
    let table: &[(&str, &[&str])] = &[
        ("serviceAccountName: someone", &[]),
        ("imagePullSecrets: [{name: pull}]", &[]),
        (
            "volumes: [{name: s, secret: {secretName: s}}, {name: c, configMap: {name: c}}, \
             {name: p, persistentVolumeClaim: {claimName: p}}, \
             {name: x, projected: {sources: [{secret: {name: s}}, {configMap: {name: c}}]}}]",
            &[],
        ),
        (
            "volumes: [{name: a}, {name: p, projected: {sources: [{secret: {name: s}}, \
             {serviceAccountToken: {path: token}}]}}]",
            &["spec.volumes[1].projected.sources[1].serviceAccountToken: Forbidden: may not be used in a static pod"],
        ),
        (
            "volumes: [{name: p, projected: {sources: [{clusterTrustBundle: {name: b, path: b}}, \
             {podCertificate: {signerName: a.b/c, keyType: ED25519, keyPath: k}}]}}]",
            &[
                "spec.volumes[0].projected.sources[0].clusterTrustBundle: Forbidden",
                "spec.volumes[0].projected.sources[1].podCertificate: Forbidden",
            ],
        ),
        (
            "volumes: [{name: a, nfs: {server: s, path: /p}}, {name: b, csi: {driver: d.example}}, \
             {name: c, iscsi: {targetPortal: '1.2.3.4', iqn: 'iqn.2001-04.com.example:disk', lun: 0}}]",
            &[
                "spec.volumes[0].nfs: Forbidden: is not served here",
                "spec.volumes[1].csi: Forbidden: is not served here",
                "spec.volumes[2].iscsi: Forbidden: is not served here",
            ],
        ),
        (
            "volumes: [{name: a, ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], \
             resources: {requests: {storage: 1Gi}}}}}}]",
            &["spec.volumes[0].ephemeral: Forbidden: may not be used in a static pod: an API server makes its claim"],
        ),
        ("resourceClaims: [{name: c, resourceClaimName: d}]", &["spec.resourceClaims: Forbidden"]),
        ("schedulingGates: [{name: g}]", &["spec.schedulingGates: Forbidden"]),
    ];
    for (spec, want) in table {
        let manifest = format!("metadata: {{name: web}}\nspec: {{containers: [{{name: a, image: a}}], {spec}}}");
        let pod = pod(&manifest);
        assert_eq!(validate_pod(&pod), [], "{spec}");
        let got: Vec<_> = validate_static(&pod).iter().map(ToString::to_string).collect();
        let fits = got.len() == want.len() && got.iter().zip(*want).all(|(g, w)| g.starts_with(w));
        assert!(fits, "{spec}\n got: {got:#?}\nwant: {want:#?}");
    }
}

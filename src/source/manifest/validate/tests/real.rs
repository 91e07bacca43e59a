//! Manifests as people have them.

use super::{expect, pod, validate_static};

#[test]
fn manifests_of_the_world_are_taken() {
    let manifests = [
        include_str!("manifests/kube-apiserver.yaml"),
        include_str!("manifests/etcd.yaml"),
        include_str!("manifests/kube-vip.yaml"),
        include_str!("manifests/coredns.yaml"),
        include_str!("manifests/node-exporter.yaml"),
        include_str!("manifests/traefik.yaml"),
    ];
    for manifest in manifests {
        expect(manifest, &[]);
        assert_eq!(validate_static(&pod(manifest)), [], "{manifest}");
    }
}

#[test]
fn a_pod_dumped_from_a_cluster_is_right_but_for_its_token() {
    let manifest = include_str!("manifests/dumped.yaml");
    expect(manifest, &[]);
    let fields: Vec<_> = validate_static(&pod(manifest)).into_iter().map(|p| p.field).collect();
    assert_eq!(fields, ["spec.volumes[0].projected.sources[0].serviceAccountToken"]);
}

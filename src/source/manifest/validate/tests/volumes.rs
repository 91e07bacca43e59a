//! Volumes of every kind.

use super::{expect, specs, volumes};

#[test]
fn names_and_number_of_sources() {
    specs(&[
        ("volumes: [{name: a}, {name: b, emptyDir: {}}]", &[]),
        ("volumes: [{}]", &["volumes[0].name: Required value"]),
        ("volumes: [{name: A}]", &["volumes[0].name: Invalid value: \"A\": must be a DNS label"]),
        ("volumes: [{name: a}, {name: a}]", &["volumes[1].name: Duplicate value: \"a\""]),
        (
            "volumes: [{name: a, emptyDir: {}, hostPath: {path: /a}, secret: {}}]",
            &[
                "volumes[0].hostPath: Forbidden: may not specify more than one volume type",
                "volumes[0].secret: Forbidden: may not specify more than one volume type",
            ],
        ),
    ]);
}

#[test]
fn on_the_node() {
    volumes(&[
        ("emptyDir: {medium: Memory, sizeLimit: 64Mi}", &[]),
        ("emptyDir: {medium: HugePages-2Mi, sizeLimit: 0}", &[]),
        ("emptyDir: {medium: HugePages}", &[]),
        ("emptyDir: {medium: Disk}", &[".emptyDir.medium: Unsupported value: \"Disk\""]),
        ("emptyDir: {medium: HugePages-x}", &[".emptyDir.medium: Unsupported value"]),
        ("emptyDir: {sizeLimit: -1}", &[".emptyDir.sizeLimit: Forbidden"]),
        ("emptyDir: {sizeLimit: much}", &[".emptyDir.sizeLimit: Invalid value: \"much\": must be a quantity"]),
        ("hostPath: {path: /a/..b}", &[]),
        ("hostPath: {path: relative}", &[]),
        ("hostPath: {}", &[".hostPath.path: Required value"]),
        ("hostPath: {path: /a/../b}", &[".hostPath.path: Invalid value: \"/a/../b\": must not contain '..'"]),
        ("hostPath: {path: /a, type: Dir}", &[".hostPath.type: Unsupported value: \"Dir\""]),
        ("gitRepo: {repository: a, directory: b}", &[]),
        ("gitRepo: {directory: /b}", &[".gitRepo.repository: Required value", ".gitRepo.directory: Invalid value"]),
        ("image: {reference: a}", &[]),
        ("image: {}", &[".image.reference: Required value"]),
        ("image: {reference: a, pullPolicy: Ever}", &[".image.pullPolicy: Unsupported value: \"Ever\""]),
        ("persistentVolumeClaim: {claimName: Any Name}", &[]),
        ("persistentVolumeClaim: {}", &[".persistentVolumeClaim.claimName: Required value"]),
    ]);
    for kind in ["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"] {
        volumes(&[(&format!("hostPath: {{path: /a, type: '{kind}'}}"), &[])]);
    }
}

#[test]
fn files() {
    for (kind, name) in [("secret", "secretName"), ("configMap", "name")] {
        let v = |fields: &str| format!("{kind}: {{{name}: a, {fields}}}");
        let at = |rest: &str| format!(".{kind}{rest}");
        volumes(&[
            (&v("defaultMode: 0, items: [{key: a, path: b/..c, mode: 0777}]"), &[]),
            (&v("defaultMode: 511"), &[]),
            (&v(&format!("{name}: ''")), &[&at(&format!(".{name}: Required value"))]),
            (&v("defaultMode: 512"), &[&at(".defaultMode: Invalid value: 512: must be a file mode")]),
            (&v("defaultMode: -1"), &[&at(".defaultMode: Invalid value: -1")]),
            (&v("items: [{}]"), &[&at(".items[0].key: Required value"), &at(".items[0].path: Required value")]),
            (&v("items: [{key: a, path: /b}]"), &[&at(".items[0].path: Invalid value: \"/b\"")]),
            (&v("items: [{key: a, path: b/../c}]"), &[&at(".items[0].path: Invalid value")]),
            (&v("items: [{key: a, path: ..data}]"), &[&at(".items[0].path: Invalid value")]),
            (&v("items: [{key: a, path: b, mode: 01000}]"), &[&at(".items[0].mode: Invalid value: 512")]),
        ]);
    }
}

#[test]
fn downward_api() {
    let item = |fields: &str| format!("downwardAPI: {{items: [{{path: a, {fields}}}]}}");
    let at = |rest: &str| format!(".downwardAPI{rest}");
    let name = "fieldRef: {fieldPath: metadata.name}";
    volumes(&[
        ("downwardAPI: {}", &[]),
        ("downwardAPI: {defaultMode: 512}", &[".downwardAPI.defaultMode: Invalid value"]),
        (&item("fieldRef: {fieldPath: metadata.labels}, mode: 0400"), &[]),
        (&item("fieldRef: {fieldPath: 'metadata.annotations[''a'']'}"), &[]),
        (&item("resourceFieldRef: {containerName: main, resource: limits.cpu, divisor: 1m}"), &[]),
        (&item(""), &[&at(".items[0]: Required value")]),
        (&item(&format!("path: ../a, {name}")), &[&at(".items[0].path: Invalid value")]),
        (&item(&format!("mode: 512, {name}")), &[&at(".items[0].mode: Invalid value")]),
        (&item("fieldRef: {fieldPath: spec.nodeName}"), &[&at(".items[0].fieldRef.fieldPath: Unsupported value")]),
        (&item(&format!("{name}, resourceFieldRef: {{resource: limits.cpu}}")), &[&at(".items[0]: Invalid value")]),
        (
            &item("resourceFieldRef: {resource: cpu}"),
            &[
                &at(".items[0].resourceFieldRef.containerName: Required value"),
                &at(".items[0].resourceFieldRef.resource: Unsupported value"),
            ],
        ),
    ]);
}

#[test]
fn projected() {
    let sources = |sources: &str| format!("projected: {{sources: [{sources}]}}");
    let at = |rest: &str| format!(".projected{rest}");
    volumes(&[
        (
            &sources(
                "{secret: {name: s, items: [{key: a, path: a}]}}, {configMap: {name: c, items: [{key: a, path: b}]}}, \
                 {downwardAPI: {items: [{path: c, fieldRef: {fieldPath: metadata.name}}]}}, \
                 {serviceAccountToken: {path: token}}, {}",
            ),
            &[],
        ),
        ("projected: {defaultMode: 512}", &[".projected.defaultMode: Invalid value"]),
        (&sources("{secret: {}}"), &[&at(".sources[0].secret.name: Required value")]),
        (&sources("{configMap: {}}"), &[&at(".sources[0].configMap.name: Required value")]),
        (&sources("{secret: {name: s}, configMap: {name: c}}"), &[&at(".sources[0]: Forbidden: may not specify more")]),
        (
            &sources(
                "{secret: {name: s, items: [{key: a, path: a}]}}, {configMap: {name: c, items: [{key: b, path: a}]}}",
            ),
            &[&at(": Invalid value: \"a\": is the path of more than one file")],
        ),
        (&sources("{serviceAccountToken: {}}"), &[&at(".sources[0].serviceAccountToken.path: Required value")]),
        (&sources("{serviceAccountToken: {path: t, expirationSeconds: 600}}"), &[]),
        (
            &sources("{serviceAccountToken: {path: t, expirationSeconds: 599}}"),
            &[&at(".sources[0].serviceAccountToken.expirationSeconds: Invalid value: 599")],
        ),
        (
            &sources("{serviceAccountToken: {path: t, expirationSeconds: 4294967297}}"),
            &[&at(".sources[0].serviceAccountToken.expirationSeconds: Invalid value")],
        ),
    ]);
}

#[test]
fn projected_certificates() {
    let bundle = |fields: &str| format!("projected: {{sources: [{{clusterTrustBundle: {{path: b, {fields}}}}}]}}");
    let certificate = |fields: &str| {
        format!("projected: {{sources: [{{podCertificate: {{signerName: a.b/c, keyType: ED25519, {fields}}}}}]}}")
    };
    let b = |rest: &str| format!(".projected.sources[0].clusterTrustBundle{rest}");
    let c = |rest: &str| format!(".projected.sources[0].podCertificate{rest}");
    volumes(&[
        (&bundle("name: a.b:c:d"), &[]),
        (&bundle("name: plain"), &[]),
        (&bundle("signerName: a.b/c, labelSelector: {}"), &[]),
        (&bundle(""), &[&b(": Required value: must specify name or signerName")]),
        (&bundle("name: a, signerName: a.b/c"), &[&b(": Invalid value")]),
        (&bundle("name: ''"), &[&b(".name: Required value")]),
        (&bundle("name: a.b:c:D"), &[&b(".name: Invalid value")]),
        (&bundle("name: a, labelSelector: {}"), &[&b(".labelSelector: Invalid value")]),
        (&bundle("signerName: c"), &[&b(".signerName: Invalid value: \"c\"")]),
        (&bundle("name: a, path: ''"), &[&b(".path: Required value")]),
        (&certificate("credentialBundlePath: a, maxExpirationSeconds: 7862400, userAnnotations: {a.b/c: d}"), &[]),
        (&certificate("keyPath: a, certificateChainPath: b"), &[]),
        (&certificate(""), &[&c(": Required value: must specify")]),
        (&certificate("keyPath: a, signerName: c"), &[&c(".signerName: Invalid value: \"c\"")]),
        (&certificate("keyPath: /a"), &[&c(".keyPath: Invalid value")]),
        (
            &certificate("keyPath: a, certificateChainPath: a"),
            &[".projected: Invalid value: \"a\": is the path of more than one file"],
        ),
        (&certificate("keyPath: a, keyType: RSA1024"), &[&c(".keyType: Unsupported value: \"RSA1024\"")]),
        (&certificate("keyPath: a, maxExpirationSeconds: 3599"), &[&c(".maxExpirationSeconds: Invalid value: 3599")]),
        (&certificate("keyPath: a, maxExpirationSeconds: 7862401"), &[&c(".maxExpirationSeconds: Invalid value")]),
        (
            &certificate("keyPath: a, signerName: kubernetes.io/c, maxExpirationSeconds: 86401"),
            &[&c(".maxExpirationSeconds: Invalid value")],
        ),
        (&certificate("keyPath: a, userAnnotations: {plain: d}"), &[&c(".userAnnotations: Invalid value: \"plain\"")]),
    ]);
}

#[test]
fn network() {
    let long = "a".repeat(60);
    volumes(&[
        ("nfs: {server: s, path: /a}", &[]),
        (
            "nfs: {path: a}",
            &[".nfs.server: Required value", ".nfs.path: Invalid value: \"a\": must be an absolute path"],
        ),
        ("nfs: {server: s}", &[".nfs.path: Required value"]),
        ("iscsi: {targetPortal: p, iqn: 'iqn.2001-04.com.example:storage.a', lun: 255}", &[]),
        (
            "iscsi: {targetPortal: p, iqn: eui.0123456789abcdef, lun: 0, chapAuthSession: true, secretRef: {name: s}}",
            &[],
        ),
        ("iscsi: {targetPortal: p, iqn: 'naa.0123456789abcdef0123456789abcdef', lun: 0}", &[]),
        (
            "iscsi: {lun: 256}",
            &[".iscsi.targetPortal: Required value", ".iscsi.iqn: Required value", ".iscsi.lun: Invalid value: 256"],
        ),
        ("iscsi: {targetPortal: p, iqn: iqn.2001.com.example, lun: 0}", &[".iscsi.iqn: Invalid value"]),
        ("iscsi: {targetPortal: p, iqn: eui.0123, lun: 0}", &[".iscsi.iqn: Invalid value"]),
        (
            "iscsi: {targetPortal: p, iqn: eui.0123456789abcdef, initiatorName: x, lun: 0, chapAuthDiscovery: true}",
            &[".iscsi.secretRef: Required value", ".iscsi.initiatorName: Invalid value: \"x\""],
        ),
        (
            &format!(
                "iscsi: {{targetPortal: {long}, iqn: eui.0123456789abcdef, initiatorName: eui.0123456789abcdef, lun: 0}}"
            ),
            &[".name: Invalid value: \"data\""],
        ),
        ("fc: {targetWWNs: [a], lun: 0}", &[]),
        ("fc: {wwids: [a]}", &[]),
        ("fc: {}", &[".fc.targetWWNs: Required value"]),
        ("fc: {targetWWNs: [a], wwids: [b], lun: 1}", &[".fc.targetWWNs: Invalid value"]),
        ("fc: {targetWWNs: [a]}", &[".fc.lun: Required value"]),
        ("fc: {targetWWNs: [a], lun: 256}", &[".fc.lun: Invalid value: 256"]),
        ("rbd: {monitors: [a], image: b}", &[]),
        ("rbd: {monitors: []}", &[".rbd.monitors: Required value", ".rbd.image: Required value"]),
        ("cephfs: {monitors: []}", &[".cephfs.monitors: Required value"]),
        ("glusterfs: {}", &[".glusterfs.endpoints: Required value", ".glusterfs.path: Required value"]),
        ("csi: {driver: Csi.example.com, nodePublishSecretRef: {name: s}}", &[]),
        ("csi: {}", &[".csi.driver: Required value"]),
        (&format!("csi: {{driver: {}}}", "a".repeat(64)), &[".csi.driver: Too long: may not be more than 63"]),
        ("csi: {driver: a_b}", &[".csi.driver: Invalid value: \"a_b\""]),
        (
            "csi: {driver: a, nodePublishSecretRef: {name: S}}",
            &[".csi.nodePublishSecretRef.name: Invalid value: \"S\""],
        ),
        ("flexVolume: {driver: a/b, options: {c: d}}", &[]),
        (
            "flexVolume: {options: {k8s.io/a: b}}",
            &[".flexVolume.driver: Required value", ".flexVolume.options[k8s.io/a]: Invalid value"],
        ),
        ("quobyte: {registry: 'a:1,[::1]:2', volume: v}", &[]),
        ("quobyte: {registry: a}", &[".quobyte.registry: Invalid value", ".quobyte.volume: Required value"]),
        (
            &format!("quobyte: {{volume: v, tenant: {}}}", "a".repeat(65)),
            &[".quobyte.registry: Required value", ".quobyte.tenant: Too long: may not be more than 64"],
        ),
        ("flocker: {datasetName: a}", &[]),
        ("flocker: {}", &[".flocker: Required value"]),
        (
            "flocker: {datasetName: a/b, datasetUUID: c}",
            &[".flocker: Invalid value", ".flocker.datasetName: Invalid value"],
        ),
        ("storageos: {volumeName: a, volumeNamespace: b}", &[]),
        ("storageos: {volumeName: a, volumeNamespace: B}", &[".storageos.volumeNamespace: Invalid value: \"B\""]),
        (
            "storageos: {secretRef: {name: ''}}",
            &[".storageos.volumeName: Required value", ".storageos.secretRef.name: Required value"],
        ),
    ]);
}

#[test]
fn clouds() {
    volumes(&[
        ("gcePersistentDisk: {pdName: a, partition: 255}", &[]),
        (
            "gcePersistentDisk: {partition: 256}",
            &[".gcePersistentDisk.pdName: Required value", ".gcePersistentDisk.partition: Invalid value"],
        ),
        (
            "awsElasticBlockStore: {partition: -1}",
            &[".awsElasticBlockStore.volumeID: Required value", ".awsElasticBlockStore.partition: Invalid value"],
        ),
        ("azureFile: {}", &[".azureFile.secretName: Required value", ".azureFile.shareName: Required value"]),
        ("azureDisk: {diskName: a, diskURI: 'https://a'}", &[]),
        ("azureDisk: {diskName: a, diskURI: /subscriptions/a, kind: Managed}", &[]),
        ("azureDisk: {diskName: a, diskURI: b, kind: Managed}", &[".azureDisk.diskURI: Invalid value: \"b\""]),
        (
            "azureDisk: {diskName: a, diskURI: 'https://a', cachingMode: Some, kind: Other}",
            &[".azureDisk.cachingMode: Unsupported value", ".azureDisk.kind: Unsupported value"],
        ),
        ("cinder: {secretRef: {}}", &[".cinder.volumeID: Required value", ".cinder.secretRef.name: Required value"]),
        ("vsphereVolume: {}", &[".vsphereVolume.volumePath: Required value"]),
        ("photonPersistentDisk: {}", &[".photonPersistentDisk.pdID: Required value"]),
        ("portworxVolume: {}", &[".portworxVolume.volumeID: Required value"]),
        (
            "scaleIO: {secretRef: {name: s}}",
            &[
                ".scaleIO.gateway: Required value",
                ".scaleIO.system: Required value",
                ".scaleIO.volumeName: Required value",
            ],
        ),
    ]);
}

#[test]
fn claims_of_ephemeral_volumes() {
    let template = |spec: &str| {
        format!(
            "ephemeral: {{volumeClaimTemplate: {{spec: {{accessModes: [ReadWriteOnce], \
             resources: {{requests: {{storage: 1Gi}}}}, {spec}}}}}}}"
        )
    };
    let at = |rest: &str| format!(".ephemeral.volumeClaimTemplate{rest}");
    volumes(&[
        (&template("storageClassName: a, volumeMode: Block, selector: {matchLabels: {a: b}}"), &[]),
        ("ephemeral: {}", &[".ephemeral.volumeClaimTemplate: Required value"]),
        (&template("accessModes: []"), &[&at(".spec.accessModes: Required value")]),
        (&template("accessModes: [Some]"), &[&at(".spec.accessModes: Unsupported value: \"Some\"")]),
        (&template("accessModes: [ReadWriteOncePod, ReadWriteOnce]"), &[&at(".spec.accessModes: Forbidden")]),
        (&template("resources: {}"), &[&at(".spec.resources.requests[storage]: Required value")]),
        (
            &template("resources: {requests: {storage: 0}}"),
            &[&at(".spec.resources.requests[storage]: Invalid value: \"0\"")],
        ),
        (
            &template("resources: {requests: {storage: x}}"),
            &[&at(".spec.resources.requests[storage]: Invalid value: \"x\"")],
        ),
        (&template("storageClassName: A"), &[&at(".spec.storageClassName: Invalid value: \"A\"")]),
        (&template("volumeAttributesClassName: A"), &[&at(".spec.volumeAttributesClassName: Invalid value")]),
        (&template("volumeMode: Tape"), &[&at(".spec.volumeMode: Unsupported value: \"Tape\"")]),
        (&template("dataSource: {kind: PersistentVolumeClaim, name: a}"), &[]),
        (
            &template("dataSource: {kind: Other}"),
            &[&at(".spec.dataSource.name: Required value"), &at(".spec.dataSource: Invalid value: \"Other\"")],
        ),
        (
            &template(
                "dataSource: {apiGroup: a.b, kind: C, name: d}, dataSourceRef: {apiGroup: a.b, kind: C, name: e}",
            ),
            &[&at(".spec: Invalid value: \"dataSource\": must be the same as dataSourceRef")],
        ),
        (&template("dataSource: {apiGroup: a.b, name: c}"), &[&at(".spec.dataSource.kind: Required value")]),
        (
            &template(
                "dataSource: {kind: PersistentVolumeClaim, name: a}, \
                 dataSourceRef: {kind: PersistentVolumeClaim, name: a, namespace: b}",
            ),
            &[&at(".spec: Invalid value: \"dataSource\": may not be given together with dataSourceRef.namespace")],
        ),
        (
            &template("dataSourceRef: {apiGroup: A, kind: C, name: e, namespace: Ns}"),
            &[&at(".spec.dataSourceRef.apiGroup: Invalid value"), &at(".spec.dataSourceRef.namespace: Invalid value")],
        ),
        (
            "ephemeral: {volumeClaimTemplate: {metadata: {name: a, labels: {b: c d}}, \
             spec: {accessModes: [ReadWriteOnce], resources: {requests: {storage: 1Gi}}}}}",
            &[&at(".metadata.labels: Invalid value: \"c d\""), &at(".metadata.name: Forbidden")],
        ),
    ]);
    let claim = "ephemeral: {volumeClaimTemplate: {spec: {accessModes: [ReadWriteOnce], \
                 resources: {requests: {storage: 1Gi}}}}}";
    specs(&[
        (
            &format!("volumes: [{{name: a, {claim}}}, {{name: b, persistentVolumeClaim: {{claimName: web-a}}}}]"),
            &["volumes[1].persistentVolumeClaim.claimName: Invalid value: \"web-a\""],
        ),
        (&format!("volumes: [{{name: a, {claim}}}, {{name: b, persistentVolumeClaim: {{claimName: web-b}}}}]"), &[]),
    ]);
    let name = "a".repeat(252);
    expect(
        &format!(
            "metadata: {{name: {name}}}\nspec: {{containers: [{{name: a, image: i}}], volumes: [{{name: v, {claim}}}]}}"
        ),
        &["spec.volumes[0].name: Invalid value: \"v\": gives the claim the name"],
    );
}

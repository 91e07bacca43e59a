//! Volumes that are made of files which we write: secrets, config maps, the downward API, and what
//! is projected into one directory.

use std::collections::HashSet;

use super::super::env::{VOLUME_FIELDS, field_ref, resource_field_ref};
use super::super::format::{FILE_PATH, SIGNER_NAME, is_dns_subdomain};
use super::super::metadata::{check_user_annotations, label_selector};
use super::super::report::{Path, Report, each, text};
use crate::pod::core;

fn mode(report: &mut Report, at: &Path<'_>, mode: Option<i32>) {
    if let Some(mode) = mode.filter(|m| !(0..=0o777).contains(m)) {
        report.invalid(at, mode, "must be a file mode from 0 to 0777 (octal), which is 511");
    }
}

fn items(report: &mut Report, at: &Path<'_>, items: &Option<Vec<core::KeyToPath>>) {
    for (at, item) in each(&at.field("items"), items) {
        report.present(&at.field("key"), &item.key);
        report.present_format(&at.field("path"), &item.path, FILE_PATH);
        mode(report, &at.field("mode"), item.mode);
    }
}

fn downward_items(report: &mut Report, at: &Path<'_>, items: &Option<Vec<core::DownwardAPIVolumeFile>>) {
    for (at, file) in each(&at.field("items"), items) {
        report.present_format(&at.field("path"), &file.path, FILE_PATH);
        mode(report, &at.field("mode"), file.mode);
        match (&file.field_ref, &file.resource_field_ref) {
            (Some(_), Some(_)) => report.invalid(&at, "", "may not have both fieldRef and resourceFieldRef"),
            (Some(field), None) => field_ref(report, &at.field("fieldRef"), field, VOLUME_FIELDS),
            (None, Some(field)) => {
                let at = at.field("resourceFieldRef");
                report.present(&at.field("containerName"), text(&field.container_name));
                resource_field_ref(report, &at, field);
            }
            (None, None) => report.required_because(&at, "must specify fieldRef or resourceFieldRef"),
        }
    }
}

pub fn secret(report: &mut Report, at: &Path<'_>, v: &core::SecretVolumeSource) {
    report.present(&at.field("secretName"), text(&v.secret_name));
    mode(report, &at.field("defaultMode"), v.default_mode);
    items(report, at, &v.items);
}

pub fn config_map(report: &mut Report, at: &Path<'_>, v: &core::ConfigMapVolumeSource) {
    report.present(&at.field("name"), &v.name);
    mode(report, &at.field("defaultMode"), v.default_mode);
    items(report, at, &v.items);
}

pub fn downward_api(report: &mut Report, at: &Path<'_>, v: &core::DownwardAPIVolumeSource) {
    mode(report, &at.field("defaultMode"), v.default_mode);
    downward_items(report, at, &v.items);
}

/// Paths that the sources of one volume write to.
#[derive(Default)]
struct Paths<'v>(HashSet<&'v str>);

impl<'v> Paths<'v> {
    fn take(&mut self, report: &mut Report, volume: &Path<'_>, path: &'v str) {
        if !path.is_empty() && !self.0.insert(path) {
            report.invalid(volume, path, "is the path of more than one file");
        }
    }
}

pub fn projected(report: &mut Report, at: &Path<'_>, v: &core::ProjectedVolumeSource) {
    mode(report, &at.field("defaultMode"), v.default_mode);
    let mut paths = Paths::default();
    for (source_at, source) in each(&at.field("sources"), &v.sources) {
        projection(report, &source_at, source);
        for path in paths_of(source) {
            paths.take(report, at, path);
        }
        let kinds = [
            source.secret.is_some(),
            source.config_map.is_some(),
            source.downward_api.is_some(),
            source.service_account_token.is_some(),
            source.cluster_trust_bundle.is_some(),
            source.pod_certificate.is_some(),
        ];
        if kinds.iter().filter(|set| **set).count() > 1 {
            report.forbidden(&source_at, "may not specify more than one source");
        }
    }
}

fn projection(report: &mut Report, at: &Path<'_>, source: &core::VolumeProjection) {
    if let Some(secret) = &source.secret {
        let at = at.field("secret");
        report.present(&at.field("name"), &secret.name);
        items(report, &at, &secret.items);
    }
    if let Some(map) = &source.config_map {
        let at = at.field("configMap");
        report.present(&at.field("name"), &map.name);
        items(report, &at, &map.items);
    }
    if let Some(downward) = &source.downward_api {
        downward_items(report, &at.field("downwardAPI"), &downward.items);
    }
    if let Some(token) = &source.service_account_token {
        let at = at.field("serviceAccountToken");
        let seconds = token.expiration_seconds.unwrap_or_default();
        report.range(&at.field("expirationSeconds"), seconds, 600, 1 << 32);
        report.present_format(&at.field("path"), &token.path, FILE_PATH);
    }
    if let Some(bundle) = &source.cluster_trust_bundle {
        trust_bundle(report, &at.field("clusterTrustBundle"), bundle);
    }
    if let Some(certificate) = &source.pod_certificate {
        pod_certificate(report, &at.field("podCertificate"), certificate);
    }
}

fn paths_of(source: &core::VolumeProjection) -> impl Iterator<Item = &str> {
    let secrets = source.secret.iter().flat_map(|s| s.items.iter().flatten());
    let maps = source.config_map.iter().flat_map(|m| m.items.iter().flatten());
    let downward = source.downward_api.iter().flat_map(|d| d.items.iter().flatten());
    let certificates = source
        .pod_certificate
        .iter()
        .flat_map(|c| [text(&c.credential_bundle_path), text(&c.key_path), text(&c.certificate_chain_path)]);
    (secrets.chain(maps).map(|item| item.path.as_str()))
        .chain(downward.map(|file| file.path.as_str()))
        .chain(source.cluster_trust_bundle.iter().map(|b| b.path.as_str()))
        .chain(certificates)
}

fn trust_bundle(report: &mut Report, at: &Path<'_>, bundle: &core::ClusterTrustBundleProjection) {
    match (bundle.name.as_deref(), bundle.signer_name.as_deref()) {
        (Some(_), Some(_)) => report.invalid(at, "", "may not have both name and signerName"),
        (Some(name), None) => {
            if name.is_empty() {
                report.required(&at.field("name"));
            } else if !is_trust_bundle_name(name) {
                let why = "must be a DNS subdomain, or a signer's name with ':' for '/' and another ':' before that";
                report.invalid(&at.field("name"), name, why);
            }
            if bundle.label_selector.is_some() {
                report.invalid(&at.field("labelSelector"), "", "must not be set together with name");
            }
        }
        (None, Some(signer)) => {
            report.present_format(&at.field("signerName"), signer, SIGNER_NAME);
            label_selector(report, &at.field("labelSelector"), bundle.label_selector.as_ref());
        }
        (None, None) => report.required_because(at, "must specify name or signerName"),
    }
    report.present_format(&at.field("path"), &bundle.path, FILE_PATH);
}

/// `NAME`, or `DOMAIN:SIGNER:NAME` for a bundle that belongs to a signer.
fn is_trust_bundle_name(name: &str) -> bool {
    is_dns_subdomain(name.rsplit_once(':').map_or(name, |(_, name)| name))
}

fn pod_certificate(report: &mut Report, at: &Path<'_>, c: &core::PodCertificateProjection) {
    const KEY_TYPES: &[&str] = &["RSA3072", "RSA4096", "ECDSAP256", "ECDSAP384", "ECDSAP521", "ED25519"];
    const DAY: i64 = 24 * 60 * 60;
    report.present_format(&at.field("signerName"), &c.signer_name, SIGNER_NAME);
    check_user_annotations(report, &at.field("userAnnotations"), &c.user_annotations);
    report.choice(&at.field("keyType"), &c.key_type, KEY_TYPES);
    if let Some(seconds) = c.max_expiration_seconds {
        let domain = c.signer_name.split('/').next().unwrap_or_default();
        let own = domain == "kubernetes.io" || domain.ends_with(".kubernetes.io");
        report.range(&at.field("maxExpirationSeconds"), seconds.into(), 3600, if own { DAY } else { 91 * DAY });
    }
    let paths = [
        ("credentialBundlePath", text(&c.credential_bundle_path)),
        ("keyPath", text(&c.key_path)),
        ("certificateChainPath", text(&c.certificate_chain_path)),
    ];
    for (name, path) in paths {
        report.format(&at.field(name), path, FILE_PATH);
    }
    if paths.iter().all(|(_, path)| path.is_empty()) {
        let why = "must specify credentialBundlePath, keyPath or certificateChainPath";
        report.required_because(at, why);
    }
}

/// Refuses what only an API server hands out, and what this node has no driver for.
pub fn of_static_pod(report: &mut Report, at: &Path<'_>, volume: &core::Volume) {
    if volume.ephemeral.is_some() {
        let why =
            "may not be used in a static pod: an API server makes its claim; use emptyDir or a persistentVolumeClaim";
        report.forbidden(&at.field("ephemeral"), why);
    }
    if let Some(kind) = without_driver(volume) {
        let why =
            "is not served here; mount it on the node, and name the place in a hostPath or a local PersistentVolume";
        report.forbidden(&at.field(kind), why);
    }
    let at = at.field("projected");
    let Some(projected) = &volume.projected else { return };
    for (at, source) in each(&at.field("sources"), &projected.sources) {
        let kinds = [
            ("serviceAccountToken", source.service_account_token.is_some()),
            ("clusterTrustBundle", source.cluster_trust_bundle.is_some()),
            ("podCertificate", source.pod_certificate.is_some()),
        ];
        for (name, _) in kinds.iter().filter(|(_, set)| *set) {
            let why = "may not be used in a static pod: it comes from an API server";
            report.forbidden(&at.field(name), why);
        }
    }
}

fn without_driver(v: &core::Volume) -> Option<&'static str> {
    let kinds = [
        ("nfs", v.nfs.is_some()),
        ("iscsi", v.iscsi.is_some()),
        ("csi", v.csi.is_some()),
        ("fc", v.fc.is_some()),
        ("flexVolume", v.flex_volume.is_some()),
        ("cephfs", v.cephfs.is_some()),
        ("rbd", v.rbd.is_some()),
        ("glusterfs", v.glusterfs.is_some()),
        ("gitRepo", v.git_repo.is_some()),
        ("gcePersistentDisk", v.gce_persistent_disk.is_some()),
        ("awsElasticBlockStore", v.aws_elastic_block_store.is_some()),
        ("azureDisk", v.azure_disk.is_some()),
        ("azureFile", v.azure_file.is_some()),
        ("cinder", v.cinder.is_some()),
        ("flocker", v.flocker.is_some()),
        ("photonPersistentDisk", v.photon_persistent_disk.is_some()),
        ("portworxVolume", v.portworx_volume.is_some()),
        ("quobyte", v.quobyte.is_some()),
        ("scaleIO", v.scale_io.is_some()),
        ("storageos", v.storageos.is_some()),
        ("vsphereVolume", v.vsphere_volume.is_some()),
    ];
    kinds.iter().find(|(_, set)| *set).map(|(name, _)| *name)
}

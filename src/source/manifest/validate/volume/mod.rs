//! Volumes: names, that there is one source, and the sources that lie on the node.

mod claim;
mod files;
mod network;

use std::collections::HashSet;

use super::container::pull_policy;
use super::format::{DNS_LABEL, DNS_SUBDOMAIN, NO_BACKSTEPS, RELATIVE_PATH, is_dns_subdomain};
use super::report::{OneOf, Path, Report, Unique, each, text};
use super::resources;
use crate::pod::core;
use crate::pod::quantity::Quantity;

pub use claim::{access_modes, claim, class_names};
pub use files::of_static_pod;

/// Checks the volumes of the pod called `pod_name`.
pub fn check_all(report: &mut Report, at: &Path<'_>, spec: &core::PodSpec, pod_name: &str) {
    let mut names = Unique::default();
    let ephemeral = spec.volumes.iter().flatten().filter(|v| v.ephemeral.is_some() && !pod_name.is_empty());
    let created: HashSet<_> = ephemeral.map(|v| claim_name(pod_name, &v.name)).collect();
    for (at, volume) in each(at, &spec.volumes) {
        report.present_format(&at.field("name"), &volume.name, DNS_LABEL);
        names.check(report, &at.field("name"), &volume.name);
        source(report, &at, volume);
        if let Some(claim) = volume.persistent_volume_claim.as_ref().filter(|c| created.contains(&c.claim_name)) {
            let at = at.field("persistentVolumeClaim");
            report.invalid(&at.field("claimName"), &claim.claim_name, "is the claim of one of the ephemeral volumes");
        }
        let portal = volume.iscsi.as_ref().filter(|i| i.initiator_name.is_some()).map(|i| i.target_portal.len());
        if portal.is_some_and(|len| volume.name.len() + 1 + len > 64) {
            let why = "must have at most 63 bytes together with iscsi.targetPortal where iscsi.initiatorName is set";
            report.invalid(&at.field("name"), &volume.name, why);
        }
        if volume.ephemeral.is_some() && !pod_name.is_empty() && !volume.name.is_empty() {
            let claim = claim_name(pod_name, &volume.name);
            if !is_dns_subdomain(&claim) {
                let why = format!("gives the claim the name {claim}, which {}", DNS_SUBDOMAIN.says);
                report.invalid(&at.field("name"), &volume.name, why);
            }
        }
    }
}

/// The claim that is made for an ephemeral volume.
fn claim_name(pod_name: &str, volume: &str) -> String {
    format!("{pod_name}-{volume}")
}

/// In the order in which the API looks for them: of two sources, the second is one too many.
fn source(report: &mut Report, at: &Path<'_>, v: &core::Volume) {
    let mut sources = OneOf::new(report, at, "volume type");
    sources
        .field("emptyDir", v.empty_dir.as_ref(), empty_dir)
        .field("hostPath", v.host_path.as_ref(), host_path)
        .field("gitRepo", v.git_repo.as_ref(), git_repo)
        .field("gcePersistentDisk", v.gce_persistent_disk.as_ref(), network::gce_disk)
        .field("awsElasticBlockStore", v.aws_elastic_block_store.as_ref(), network::aws_disk)
        .field("secret", v.secret.as_ref(), files::secret)
        .field("nfs", v.nfs.as_ref(), network::nfs)
        .field("iscsi", v.iscsi.as_ref(), network::iscsi)
        .field("glusterfs", v.glusterfs.as_ref(), network::glusterfs)
        .field("flocker", v.flocker.as_ref(), network::flocker)
        .field("persistentVolumeClaim", v.persistent_volume_claim.as_ref(), |r, at, claim| {
            r.present(&at.field("claimName"), &claim.claim_name);
        })
        .field("rbd", v.rbd.as_ref(), network::rbd)
        .field("cinder", v.cinder.as_ref(), network::cinder)
        .field("cephfs", v.cephfs.as_ref(), network::cephfs)
        .field("quobyte", v.quobyte.as_ref(), network::quobyte)
        .field("downwardAPI", v.downward_api.as_ref(), files::downward_api)
        .field("fc", v.fc.as_ref(), network::fc)
        .field("flexVolume", v.flex_volume.as_ref(), network::flex)
        .field("configMap", v.config_map.as_ref(), files::config_map)
        .field("azureFile", v.azure_file.as_ref(), network::azure_file)
        .field("vsphereVolume", v.vsphere_volume.as_ref(), network::vsphere)
        .field("photonPersistentDisk", v.photon_persistent_disk.as_ref(), network::photon)
        .field("portworxVolume", v.portworx_volume.as_ref(), network::portworx)
        .field("azureDisk", v.azure_disk.as_ref(), network::azure_disk)
        .field("storageos", v.storageos.as_ref(), network::storage_os)
        .field("projected", v.projected.as_ref(), files::projected)
        .field("scaleIO", v.scale_io.as_ref(), network::scale_io)
        .field("csi", v.csi.as_ref(), csi)
        .field("ephemeral", v.ephemeral.as_ref(), claim::ephemeral)
        .field("image", v.image.as_ref(), image)
        .end();
}

fn empty_dir(report: &mut Report, at: &Path<'_>, dir: &core::EmptyDirVolumeSource) {
    let medium = text(&dir.medium);
    let huge_pages = |size: &str| Quantity::parse(size).is_some();
    if !matches!(medium, "" | "Memory" | "HugePages") && !medium.strip_prefix("HugePages-").is_some_and(huge_pages) {
        report.unsupported(&at.field("medium"), medium, &["", "Memory", "HugePages", "HugePages-SIZE"]);
    }
    let Some(limit) = &dir.size_limit else { return };
    let at = at.field("sizeLimit");
    if resources::quantity(report, &at, limit).is_some_and(Quantity::is_negative) {
        report.forbidden(&at, "may not be negative");
    }
}

pub fn host_path(report: &mut Report, at: &Path<'_>, v: &core::HostPathVolumeSource) {
    const TYPES: &[&str] =
        &["", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate", "File", "FileOrCreate", "Socket"];
    report.present_format(&at.field("path"), &v.path, NO_BACKSTEPS);
    report.choice(&at.field("type"), text(&v.type_), TYPES);
}

fn git_repo(report: &mut Report, at: &Path<'_>, v: &core::GitRepoVolumeSource) {
    report.present(&at.field("repository"), &v.repository);
    report.format(&at.field("directory"), text(&v.directory), RELATIVE_PATH);
}

fn csi(report: &mut Report, at: &Path<'_>, v: &core::CSIVolumeSource) {
    let driver = at.field("driver");
    if v.driver.len() > 63 {
        report.too_long(&driver, 63);
    }
    if v.driver.is_empty() {
        report.required(&driver);
    } else if !is_dns_subdomain(&v.driver.to_lowercase()) {
        report.invalid(&driver, &v.driver, DNS_SUBDOMAIN.says);
    }
    if let Some(secret) = &v.node_publish_secret_ref {
        report.present_format(&at.field("nodePublishSecretRef").field("name"), &secret.name, DNS_SUBDOMAIN);
    }
}

fn image(report: &mut Report, at: &Path<'_>, v: &core::ImageVolumeSource) {
    report.present(&at.field("reference"), text(&v.reference));
    pull_policy(report, &at.field("pullPolicy"), text(&v.pull_policy));
}

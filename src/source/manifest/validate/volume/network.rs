//! Volumes that come over a network or from a cloud. Most need drivers which have left Kubernetes;
//! the API still takes them.

use super::super::format::DNS_LABEL;
use super::super::report::{Path, Report, text};
use crate::pod::core;

/// Checks that none of the fields is empty.
fn all_present(report: &mut Report, at: &Path<'_>, fields: &[(&'static str, &str)]) {
    for (name, value) in fields {
        report.present(&at.field(name), value);
    }
}

fn secret_name(report: &mut Report, at: &Path<'_>, secret: &Option<core::LocalObjectReference>) {
    if let Some(secret) = secret {
        report.present(&at.field("secretRef").field("name"), &secret.name);
    }
}

pub fn nfs(report: &mut Report, at: &Path<'_>, v: &core::NFSVolumeSource) {
    all_present(report, at, &[("server", &v.server), ("path", &v.path)]);
    if !v.path.is_empty() && !v.path.starts_with('/') {
        report.invalid(&at.field("path"), &v.path, "must be an absolute path");
    }
}

pub fn iscsi(report: &mut Report, at: &Path<'_>, v: &core::ISCSIVolumeSource) {
    report.present(&at.field("targetPortal"), &v.target_portal);
    report.present(&at.field("iqn"), &v.iqn);
    report.range(&at.field("lun"), v.lun.into(), 0, 255);
    let authenticates = v.chap_auth_discovery == Some(true) || v.chap_auth_session == Some(true);
    if authenticates && v.secret_ref.is_none() {
        report.required_because(&at.field("secretRef"), "must be set for CHAP");
    }
    let names = [("iqn", Some(&v.iqn).filter(|n| !n.is_empty())), ("initiatorName", v.initiator_name.as_ref())];
    for (field, name) in names {
        if let Some(name) = name.filter(|n| !is_iscsi_name(n)) {
            let why = "must be an iSCSI name: iqn.YYYY-MM.DOMAIN:NAME, eui. and 16 hexadecimal digits, or naa. and 32";
            report.invalid(&at.field(field), name, why);
        }
    }
}

fn is_iscsi_name(name: &str) -> bool {
    let digits = |text: &str, count| text.len() == count && text.bytes().all(|b| b.is_ascii_digit());
    let alphanumeric = |text: &str, count| text.len() == count && text.bytes().all(|b| b.is_ascii_alphanumeric());
    let iqn = |rest: &str| {
        let (date, rest) = rest.split_once('.')?;
        let (year, month) = date.split_once('-')?;
        let (domain, own) = rest.split_once(':')?;
        let domain_fits = !domain.is_empty() && domain.bytes().all(|b| b.is_ascii_alphanumeric() || b"-.".contains(&b));
        let own_fits = !own.is_empty() && !own.contains([',', ';', '*', '&', '$', '|', ' ', '\t', '\n', '\r', '\u{c}']);
        Some(digits(year, 4) && digits(month, 2) && domain_fits && own_fits)
    };
    if let Some(rest) = name.strip_prefix("iqn.") {
        return iqn(rest).unwrap_or(false);
    }
    name.strip_prefix("eui.").is_some_and(|id| alphanumeric(id, 16))
        || name.strip_prefix("naa.").is_some_and(|id| alphanumeric(id, 32))
}

pub fn fc(report: &mut Report, at: &Path<'_>, v: &core::FCVolumeSource) {
    let has = |list: &Option<Vec<String>>| list.as_ref().is_some_and(|l| !l.is_empty());
    let names = at.field("targetWWNs");
    match (has(&v.target_wwns), has(&v.wwids)) {
        (false, false) => report.required_because(&names, "must specify targetWWNs or wwids"),
        (true, true) => report.invalid(&names, "", "may not be given together with wwids"),
        _ => {}
    }
    match v.lun {
        _ if !has(&v.target_wwns) => {}
        None => report.required_because(&at.field("lun"), "must be set together with targetWWNs"),
        Some(lun) => report.range(&at.field("lun"), lun.into(), 0, 255),
    }
}

pub fn rbd(report: &mut Report, at: &Path<'_>, v: &core::RBDVolumeSource) {
    if v.monitors.is_empty() {
        report.required(&at.field("monitors"));
    }
    report.present(&at.field("image"), &v.image);
}

pub fn cephfs(report: &mut Report, at: &Path<'_>, v: &core::CephFSVolumeSource) {
    if v.monitors.is_empty() {
        report.required(&at.field("monitors"));
    }
}

pub fn cinder(report: &mut Report, at: &Path<'_>, v: &core::CinderVolumeSource) {
    report.present(&at.field("volumeID"), &v.volume_id);
    secret_name(report, at, &v.secret_ref);
}

pub fn glusterfs(report: &mut Report, at: &Path<'_>, v: &core::GlusterfsVolumeSource) {
    all_present(report, at, &[("endpoints", &v.endpoints), ("path", &v.path)]);
}

pub fn flocker(report: &mut Report, at: &Path<'_>, v: &core::FlockerVolumeSource) {
    let (name, uuid) = (text(&v.dataset_name), text(&v.dataset_uuid));
    match (name.is_empty(), uuid.is_empty()) {
        (true, true) => report.required_because(at, "must specify datasetName or datasetUUID"),
        (false, false) => report.invalid(at, "", "may not have both datasetName and datasetUUID"),
        _ => {}
    }
    if name.contains('/') {
        report.invalid(&at.field("datasetName"), name, "must not contain '/'");
    }
}

pub fn quobyte(report: &mut Report, at: &Path<'_>, v: &core::QuobyteVolumeSource) {
    let at_registry = at.field("registry");
    report.present(&at_registry, &v.registry);
    if text(&v.tenant).len() > 64 {
        report.too_long(&at.field("tenant"), 64);
    }
    let pair = |pair: &str| pair.rsplit_once(':').is_some_and(|(host, _)| !host.contains(':') || host.ends_with(']'));
    if !v.registry.is_empty() && !v.registry.split(',').all(pair) {
        report.invalid(&at_registry, &v.registry, "must be HOST:PORT, or more of them with commas between");
    }
    report.present(&at.field("volume"), &v.volume);
}

pub fn flex(report: &mut Report, at: &Path<'_>, v: &core::FlexVolumeSource) {
    report.present(&at.field("driver"), &v.driver);
    let options = at.field("options");
    for key in v.options.iter().flatten().map(|(key, _)| key) {
        let domain = format!(".{}", key.split('/').next().unwrap_or_default().to_lowercase());
        if domain.ends_with(".kubernetes.io") || domain.ends_with(".k8s.io") {
            report.invalid(&options.key(key), key, "may not be of kubernetes.io or k8s.io");
        }
    }
}

pub fn gce_disk(report: &mut Report, at: &Path<'_>, v: &core::GCEPersistentDiskVolumeSource) {
    report.present(&at.field("pdName"), &v.pd_name);
    report.range(&at.field("partition"), v.partition.unwrap_or_default().into(), 0, 255);
}

pub fn aws_disk(report: &mut Report, at: &Path<'_>, v: &core::AWSElasticBlockStoreVolumeSource) {
    report.present(&at.field("volumeID"), &v.volume_id);
    report.range(&at.field("partition"), v.partition.unwrap_or_default().into(), 0, 255);
}

pub fn azure_file(report: &mut Report, at: &Path<'_>, v: &core::AzureFileVolumeSource) {
    all_present(report, at, &[("secretName", &v.secret_name), ("shareName", &v.share_name)]);
}

pub fn azure_disk(report: &mut Report, at: &Path<'_>, v: &core::AzureDiskVolumeSource) {
    all_present(report, at, &[("diskName", &v.disk_name), ("diskURI", &v.disk_uri)]);
    if let Some(mode) = &v.caching_mode {
        report.choice(&at.field("cachingMode"), mode, &["None", "ReadOnly", "ReadWrite"]);
    }
    if let Some(kind) = &v.kind {
        report.choice(&at.field("kind"), kind, &["Dedicated", "Managed", "Shared"]);
        let start = if kind == "Managed" { "/subscriptions/" } else { "https://" };
        if !v.disk_uri.is_empty() && !v.disk_uri.starts_with(start) {
            report.invalid(&at.field("diskURI"), &v.disk_uri, format_args!("must begin with {start} for this kind"));
        }
    }
}

pub fn vsphere(report: &mut Report, at: &Path<'_>, v: &core::VsphereVirtualDiskVolumeSource) {
    report.present(&at.field("volumePath"), &v.volume_path);
}

pub fn photon(report: &mut Report, at: &Path<'_>, v: &core::PhotonPersistentDiskVolumeSource) {
    report.present(&at.field("pdID"), &v.pd_id);
}

pub fn portworx(report: &mut Report, at: &Path<'_>, v: &core::PortworxVolumeSource) {
    report.present(&at.field("volumeID"), &v.volume_id);
}

pub fn scale_io(report: &mut Report, at: &Path<'_>, v: &core::ScaleIOVolumeSource) {
    let fields = [("gateway", v.gateway.as_str()), ("system", &v.system), ("volumeName", text(&v.volume_name))];
    all_present(report, at, &fields);
}

pub fn storage_os(report: &mut Report, at: &Path<'_>, v: &core::StorageOSVolumeSource) {
    report.present_format(&at.field("volumeName"), text(&v.volume_name), DNS_LABEL);
    if !text(&v.volume_namespace).is_empty() {
        report.format(&at.field("volumeNamespace"), text(&v.volume_namespace), DNS_LABEL);
    }
    secret_name(report, at, &v.secret_ref);
}

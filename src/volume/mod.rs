//! Volumes: where each of a pod's volumes lies on the node, made ready before the pod's containers
//! start. A file a kind.
//!
//! Knows nothing of the runtime.

mod atomic;
mod downward_api;
mod host_path;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use crate::disk;
use crate::pod::{Pod, core};

/// Why a volume could not be made ready.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("hostPath {path} is not {wanted}")]
    Type { path: String, wanted: &'static str },
    #[error("{what} {path}: {source}")]
    Io { what: &'static str, path: String, source: io::Error },
    #[error("{0}")]
    Invalid(String),
    #[error("volumes of kind {0} are not served yet")]
    NotServed(&'static str),
}

impl Error {
    fn io(what: &'static str, path: &Path, source: io::Error) -> Error {
        Error::Io { what, path: path.display().to_string(), source }
    }
}

/// Makes all volumes of `pod` ready below `directory`, its `volumes`, and returns where they lie.
/// Made ready once, they are only looked after.
///
/// # Errors
/// The first volume that isn't ready, by its name.
pub fn setup(pod: &Pod, directory: &Path) -> Result<BTreeMap<String, PathBuf>, (String, Error)> {
    let volumes = pod.spec.volumes.iter().flatten();
    volumes
        .map(|volume| {
            let place = one(pod, volume, directory).map_err(|e| (volume.name.clone(), e))?;
            Ok((volume.name.clone(), place))
        })
        .collect()
}

fn one(pod: &Pod, volume: &core::Volume, directory: &Path) -> Result<PathBuf, Error> {
    let own = |plugin: &str| directory.join(plugin).join(&volume.name);
    if let Some(source) = &volume.host_path {
        return host_path::setup(source);
    }
    if let Some(source) = &volume.empty_dir {
        return empty_dir(source, own("kubernetes.io~empty-dir"));
    }
    if let Some(source) = &volume.downward_api {
        return downward_api::setup(pod, source, own("kubernetes.io~downward-api"));
    }
    Err(Error::NotServed(kind(volume)))
}

fn empty_dir(source: &core::EmptyDirVolumeSource, path: PathBuf) -> Result<PathBuf, Error> {
    if source.medium.as_deref().is_some_and(|m| !m.is_empty()) {
        return Err(Error::NotServed("emptyDir with a medium"));
    }
    if !path.is_dir() {
        disk::make_dir(&path, 0o777).map_err(|e| Error::io("making", &path, e))?;
    }
    Ok(path)
}

fn kind(volume: &core::Volume) -> &'static str {
    match volume {
        v if v.config_map.is_some() => "configMap",
        v if v.secret.is_some() => "secret",
        v if v.projected.is_some() => "projected",
        v if v.persistent_volume_claim.is_some() => "persistentVolumeClaim",
        v if v.nfs.is_some() => "nfs",
        v if v.iscsi.is_some() => "iscsi",
        v if v.csi.is_some() => "csi",
        v if v.image.is_some() => "image",
        v if v.ephemeral.is_some() => "ephemeral",
        _ => "that the volume is of",
    }
}

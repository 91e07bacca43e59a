//! Volumes: where each of a pod's volumes lies on the node, made ready before the pod's containers
//! start, kept up to date while they run, and taken away after them. A file a kind.
//!
//! What is made lies in the pod's directory, where the kubelet has it:
//! `volumes/kubernetes.io~KIND/NAME`, and `volume-subpaths/NAME/CONTAINER/INDEX` for parts of
//! volumes. Every step can be the last one before a power cut, and all of them may be done again.
//!
//! Knows nothing of the runtime.

mod atomic;
mod claim;
mod config_map;
mod downward_api;
mod empty_dir;
mod host_path;
mod keys;
mod memory;
mod ownership;
mod projected;
mod secret;
pub mod subpath;
mod teardown;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

pub use teardown::teardown;

use crate::local::Objects;
use crate::pod::quantity::Quantity;
use crate::pod::{Pod, core};

/// Why a volume could not be made ready.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("hostPath {path} is not {wanted}")]
    Type { path: String, wanted: &'static str },
    #[error("{what} {path}: {source}")]
    Io { what: &'static str, path: String, source: io::Error },
    #[error("{kind} {name:?} not found")]
    NotFound { kind: &'static str, name: String },
    /// `kind`: `config` or `secret`.
    #[error("references non-existent {kind} key: {key}")]
    NoKey { kind: &'static str, key: String },
    #[error("{0}")]
    Claim(String),
    #[error("{0}")]
    Invalid(String),
    #[error("subPath {path:?}: {why}")]
    SubPath { path: String, why: String },
    #[error("volumes of kind {0} are not served here")]
    NotServed(&'static str),
    /// Of somebody else, who has to unmount it.
    #[error(
        "{0} is mounted in the pod's directory by somebody else; what is there is left as it is until that is unmounted"
    )]
    Foreign(String),
}

impl Error {
    fn io(what: &'static str, path: &Path, source: io::Error) -> Error {
        Error::Io { what, path: path.display().to_string(), source }
    }

    /// What is missing may come, and a full disk gets room; until then, what was there before is
    /// still good for a pod that runs.
    fn may_pass(&self) -> bool {
        matches!(self, Error::NotFound { .. } | Error::NoKey { .. } | Error::Io { .. })
    }
}

/// What a pod's volumes are made from.
#[derive(Clone, Copy)]
pub struct Context<'a> {
    pub pod: &'a Pod,
    /// The pod's own directory, which is there.
    pub directory: &'a Path,
    pub objects: &'a Objects,
    /// What pods may have of the node (`cpu`, `memory`, `ephemeral-storage`), as far as it is known.
    pub allocatable: &'a BTreeMap<String, Quantity>,
}

impl Context<'_> {
    /// Where a volume of this plugin lies.
    fn path(&self, plugin: &str, volume: &str) -> PathBuf {
        self.directory.join("volumes").join(format!("kubernetes.io~{plugin}")).join(volume)
    }

    /// The group that the pod's volumes belong to.
    fn fs_group(&self) -> Option<u32> {
        let group = self.pod.spec.security_context.as_ref()?.fs_group?;
        u32::try_from(group).ok()
    }

    /// The user that all containers of the pod are told to run as; `None` when one is told nothing, or
    /// another one (pkg/volume/util/util.go, FsUserFrom).
    fn user(&self) -> Option<u32> {
        let of_pod = self.pod.spec.security_context.as_ref().and_then(|context| context.run_as_user);
        let own = |c: &core::Container| c.security_context.as_ref().and_then(|context| context.run_as_user);
        let mut all = self.pod.all_containers().map(|container| own(container).or(of_pod));
        let first = all.next()??;
        all.all(|user| user == Some(first)).then_some(first).and_then(|user| u32::try_from(user).ok())
    }
}

/// Where a volume lies.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A directory or a file of the node.
    Path {
        path: PathBuf,
        /// It may be mounted only for reading.
        read_only: bool,
        /// It is the pod's own: with SELinux, it may be given the pod's label.
        relabel: bool,
    },
    /// A block device of the node, for `volumeDevices`.
    Device { path: PathBuf, read_only: bool },
    /// An image, which the runtime mounts; a mount's subPath is the runtime's, too.
    Image { reference: String, pull_policy: Option<String> },
}

/// The volumes of a pod.
#[derive(Debug, Default)]
pub struct Ready {
    /// By the volumes' names.
    pub places: BTreeMap<String, Place>,
    /// Volumes that are as they were, since what they are made from is no longer there, or could not
    /// be written.
    pub stale: Vec<(String, Error)>,
}

/// Makes all volumes of the pod ready and returns where they lie. Made ready once, they are brought
/// up to date: nothing is written when nothing changed.
///
/// # Errors
/// The first volume that isn't ready, by its name; all others are done all the same.
pub fn setup(context: &Context<'_>) -> Result<Ready, (String, Error)> {
    let mut ready = Ready::default();
    let mut failed = None;
    for volume in context.pod.spec.volumes.iter().flatten() {
        match one(context, volume, &mut ready) {
            Ok(place) => _ = ready.places.insert(volume.name.clone(), place),
            Err(e) => failed = failed.or(Some((volume.name.clone(), e))),
        }
    }
    failed.map_or(Ok(ready), Err)
}

fn one(context: &Context<'_>, volume: &core::Volume, ready: &mut Ready) -> Result<Place, Error> {
    let name = volume.name.as_str();
    if let Some(source) = &volume.host_path {
        let path = host_path::setup(source)?;
        return Ok(Place::Path { path, read_only: false, relabel: false });
    }
    if let Some(source) = &volume.empty_dir {
        let path = empty_dir::setup(context, source, name)?;
        return Ok(Place::Path { path, read_only: false, relabel: true });
    }
    if let Some(source) = &volume.persistent_volume_claim {
        return claim::setup(context, source, name);
    }
    if let Some(source) = &volume.image {
        let reference = source.reference.clone().unwrap_or_default();
        return Ok(Place::Image { reference, pull_policy: source.pull_policy.clone() });
    }
    let (plugin, in_memory, payload) = files(context, volume)?;
    let path = context.path(plugin, name);
    let group = context.fs_group().map(ownership::Group::reading);
    let made = payload.and_then(|payload| {
        match in_memory {
            true => memory::setup(&path, memory::Kind::Tmpfs { size: empty_dir::memory_size(context, None) }, group)?,
            false => empty_dir::make(&path, group)?,
        }
        atomic::write(&path, &payload, group).map_err(|e| Error::io("writing to", &path, e))
    });
    match made {
        Ok(_) => {}
        Err(e) if e.may_pass() && atomic::is_written(&path) => ready.stale.push((name.to_owned(), e)),
        Err(e) => return Err(e),
    }
    Ok(Place::Path { path, read_only: true, relabel: true })
}

type Files = Result<atomic::Payload, Error>;

/// Kinds that are files which we write: the plugin, whether they are only in memory, the files.
fn files(context: &Context<'_>, volume: &core::Volume) -> Result<(&'static str, bool, Files), Error> {
    if let Some(source) = &volume.config_map {
        return Ok(("configmap", false, config_map::files(context, source)));
    }
    if let Some(source) = &volume.secret {
        return Ok(("secret", true, secret::files(context, source)));
    }
    if let Some(source) = &volume.downward_api {
        return Ok(("downward-api", true, downward_api::files(context, source)));
    }
    if let Some(source) = &volume.projected {
        return Ok(("projected", true, projected::files(context, source)));
    }
    Err(Error::NotServed(kind(volume)))
}

fn kind(volume: &core::Volume) -> &'static str {
    match volume {
        v if v.nfs.is_some() => "nfs",
        v if v.iscsi.is_some() => "iscsi",
        v if v.csi.is_some() => "csi",
        v if v.ephemeral.is_some() => "ephemeral",
        _ => "that the volume is of",
    }
}

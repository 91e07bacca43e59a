//! persistentVolumeClaim: a volume that outlives the pod, on the node itself: hostPath or local
//! (pkg/volume/local).

use std::fs;
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use super::ownership::{self, Group};
use super::{Context, Error, Place, host_path};
use crate::disk;
use crate::local::PersistentVolume;
use crate::pod::core;

pub fn setup(
    context: &Context<'_>,
    source: &core::PersistentVolumeClaimVolumeSource,
    name: &str,
) -> Result<Place, Error> {
    let namespace = &context.pod.name.namespace;
    let (_, volume) = context.objects.volume_of(namespace, &source.claim_name).map_err(Error::Claim)?;
    let read_only = source.read_only.unwrap_or(false);
    if let Some(host_path) = &volume.host_path {
        let path = host_path::setup(host_path)?;
        return Ok(Place::Path { path, read_only, relabel: false });
    }
    let Some(local) = &volume.local else { return Err(Error::NotServed("that the claim's volume is of")) };
    local_volume(context, volume, PathBuf::from(&local.path), read_only, name)
}

fn local_volume(
    context: &Context<'_>,
    volume: &PersistentVolume,
    path: PathBuf,
    read_only: bool,
    name: &str,
) -> Result<Place, Error> {
    let kind = fs::metadata(&path).map_err(|e| Error::io("looking at the local volume", &path, e))?.file_type();
    if volume.volume_mode.as_deref() == Some("Block") {
        return match kind.is_block_device() {
            true => Ok(Place::Device { path, read_only }),
            false => Err(Error::Invalid(format!("local volume {} is not a block device", path.display()))),
        };
    }
    if kind.is_block_device() {
        let why = "is a block device; give it a file system, mount that, and name the place where it is";
        return Err(Error::Invalid(format!("local volume {} {why}", path.display())));
    }
    if let (Some(gid), false) = (context.fs_group(), read_only) {
        give(context, &path, gid, name)?;
    }
    Ok(Place::Path { path, read_only, relabel: !read_only })
}

/// Gives the volume to the pod's group, once for the pod: what it does with it then is its own.
fn give(context: &Context<'_>, path: &Path, gid: u32, name: &str) -> Result<(), Error> {
    let done = context.directory.join("plugins/kubernetes.io~local-volume").join(name);
    let mark = format!("fsGroup {gid} of {}\n", path.display());
    if fs::read(&done).is_ok_and(|written| written == mark.as_bytes()) {
        return Ok(());
    }
    let policy = context.pod.spec.security_context.as_ref().and_then(|s| s.fs_group_change_policy.as_deref());
    let outcome = ownership::take_tree(path, Group::writing(gid), policy == Some("OnRootMismatch"))
        .map_err(|e| Error::io("changing the group of", path, e))?;
    if let Some(first) = outcome.first {
        let (path, failed) = (path.display(), outcome.failed);
        log::warn!(
            "{}: {path}: {failed} files could not be given to group {gid}; the first: {first}",
            context.pod.name
        );
    }
    let noted = (|| -> io::Result<()> {
        fs::create_dir_all(done.parent().unwrap_or(&done))?;
        disk::write_atomic(&done, mark.as_bytes(), 0o600)
    })();
    noted.map_err(|e| Error::io("writing", &done, e))
}

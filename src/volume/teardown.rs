//! The end of a pod's volumes. What they are is seen from the pod's directory alone, since nobody
//! may know the pod any more: what is mounted where we mount is unmounted, and what is left is
//! removed. What somebody else has mounted in there is left as it is.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::Path;

use rustix::io::Errno;
use rustix::mount::{MountPropagationFlags, UnmountFlags, mount_change};

use super::{Error, subpath};
use crate::disk;
use crate::disk::mounts::{self, Mount};

/// Where volumes are, and what else is noted of them, below the pod's directory.
const DIRECTORIES: [&str; 3] = [subpath::DIRECTORY, "volumes", "plugins"];

/// Takes away all volumes that lie in the pod's directory, after its containers have ended. It may
/// be done again, and is done when it isn't there.
///
/// # Errors
/// What somebody else has mounted, while all around it is gone; or what could not be unmounted or
/// removed.
pub fn teardown(pod_directory: &Path) -> Result<(), Error> {
    let mounts = match mounts::below(pod_directory) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        result => result.map_err(|e| Error::io("reading the mounts below", pod_directory, e))?,
    };
    let root = fs::canonicalize(pod_directory).map_err(|e| Error::io("looking at", pod_directory, e))?;
    let whose: Vec<_> = mounts.iter().map(|mount| (mount, owner(&root, mount, &mounts))).collect();
    let foreign: Vec<_> = whose.iter().filter(|(_, owner)| *owner == Owner::Other).map(|(m, _)| &m.path).collect();
    let mut failed = None;
    for (mount, _) in whose.iter().filter(|(_, owner)| *owner == Owner::Us) {
        // What is below one, or covered by it, can't be reached without it.
        if foreign.iter().any(|f| f.starts_with(&mount.path) || mount.path.starts_with(f)) {
            continue;
        }
        if let Err(e) = unmount(&mount.path) {
            failed = failed.or(Some(Error::io("unmounting", &mount.path, e)));
        }
    }
    let removed = disk::remove_entries(&root, &DIRECTORIES).map_err(|e| Error::io("removing volumes in", &root, e));
    let foreign = foreign.first().map(|path| Error::Foreign(path.display().to_string()));
    foreign.or(failed).map_or(removed, Err)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Owner {
    Us,
    /// It lies on a part of a volume that we have mounted, and goes with that: the kernel shows
    /// there what is mounted in the volume.
    Part,
    Other,
}

/// Whose a mount is: ours if it is where we mount, and of the kind that we mount there.
fn owner(root: &Path, mount: &Mount, all: &[Mount]) -> Owner {
    let Ok(path) = mount.path.strip_prefix(root) else { return Owner::Other };
    let path: Vec<_> = path.iter().map(OsStr::to_string_lossy).collect();
    let is_index = |text: &str| text.bytes().all(|b| b.is_ascii_digit());
    let ours = match path.iter().map(AsRef::as_ref).collect::<Vec<_>>().as_slice() {
        ["volumes", "kubernetes.io~secret" | "kubernetes.io~projected" | "kubernetes.io~downward-api", _] => {
            mount.kind == "tmpfs"
        }
        ["volumes", "kubernetes.io~empty-dir", _] => matches!(mount.kind.as_str(), "tmpfs" | "hugetlbfs"),
        [subpath::DIRECTORY, _, _, index] => is_index(index),
        [subpath::DIRECTORY, _, _, index, ..] if is_index(index) => {
            let part = mount.path.ancestors().nth(path.len() - 4);
            let on_part = all.iter().any(|m| Some(m.path.as_path()) == part);
            return if on_part { Owner::Part } else { Owner::Other };
        }
        _ => false,
    };
    if ours { Owner::Us } else { Owner::Other }
}

/// Unmounts what is on top at `path`. That nothing is mounted there is no error.
pub(super) fn unmount(path: &Path) -> io::Result<()> {
    match rustix::mount::unmount(path, UnmountFlags::NOFOLLOW) {
        Ok(()) | Err(Errno::INVAL | Errno::NOENT) => Ok(()),
        Err(Errno::BUSY) => {
            // Somebody looks into it, or something is mounted in it. It goes from here now, and as
            // such when they are done. What it shares with others must not go from them too.
            log::info!("{}: still in use; it is detached", path.display());
            mount_change(path, MountPropagationFlags::PRIVATE | MountPropagationFlags::REC)?;
            Ok(rustix::mount::unmount(path, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH)?)
        }
        Err(e) => Err(e.into()),
    }
}

#[cfg(test)]
mod tests;

//! What the volumes of a pod take up that lie in its directory: empty ones, and those made from
//! ConfigMaps, Secrets and the downward API (pkg/kubelet/server/stats/volume_stat_calculator.go).

use std::collections::HashSet;
use std::fs;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use rustix::fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, openat, statat};

use super::Filesystem;

/// Files and directories that are looked at for one answer. What would take more is not told of.
pub const MOST: usize = 100_000;
/// Directories below each other.
const DEPTH: usize = 64;

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct VolumeUsage {
    pub name: String,
    pub filesystem: Filesystem,
    pub used: Used,
    /// It is a file system of its own: in memory, or a disk.
    pub is_mount: bool,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Used {
    pub bytes: u64,
    pub inodes: u64,
}

/// Those in `directory`, as `kubernetes.io~KIND/NAME`. Takes what it looks at from `left`.
pub fn read(directory: &Path, left: &mut usize) -> Vec<VolumeUsage> {
    let entries = |path: &Path| fs::read_dir(path).into_iter().flatten().flatten().map(|entry| entry.path());
    let volumes = entries(directory).flat_map(|kind| entries(&kind).collect::<Vec<_>>());
    let mut all: Vec<_> = volumes.filter_map(|path| volume(&path, left)).collect();
    all.sort_by(|a, b| a.name.cmp(&b.name));
    all
}

fn volume(path: &Path, left: &mut usize) -> Option<VolumeUsage> {
    let name = path.file_name()?.to_str()?.to_owned();
    let (own, above) = (fs::symlink_metadata(path).ok()?, fs::symlink_metadata(path.parent()?).ok()?);
    let filesystem = own.is_dir().then(|| Filesystem::of(path))??;
    let is_mount = own.dev() != above.dev();
    let used = match is_mount {
        true => Used { bytes: filesystem.used, inodes: filesystem.inodes.saturating_sub(filesystem.inodes_free) },
        false => {
            let root = open(CWD, path).ok()?;
            let mut walk = Walk {
                device: own.dev(),
                left,
                seen: HashSet::new(),
                used: Used { bytes: own.blocks() * 512, inodes: 1 },
            };
            walk.below(&root, DEPTH)?;
            walk.used
        }
    };
    Some(VolumeUsage { name, filesystem, used, is_mount })
}

fn open(at: impl AsFd, path: impl rustix::path::Arg) -> rustix::io::Result<OwnedFd> {
    // A container may put a link in the place of a directory at any time.
    openat(at, path, OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())
}

struct Walk<'a> {
    device: u64,
    left: &'a mut usize,
    /// Files that have several names.
    seen: HashSet<u64>,
    used: Used,
}

impl Walk<'_> {
    /// `None` when it is too much. What goes meanwhile takes nothing.
    fn below(&mut self, directory: &OwnedFd, depth: usize) -> Option<()> {
        let Ok(entries) = Dir::read_from(directory) else { return Some(()) };
        for entry in entries.flatten() {
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            *self.left = self.left.checked_sub(1)?;
            let Ok(stat) = statat(directory, name, AtFlags::SYMLINK_NOFOLLOW) else { continue };
            let is_directory = FileType::from_raw_mode(stat.st_mode) == FileType::Directory;
            if stat.st_dev != self.device || (stat.st_nlink > 1 && !is_directory && !self.seen.insert(stat.st_ino)) {
                continue;
            }
            self.used.inodes += 1;
            self.used.bytes = self.used.bytes.saturating_add(u64::try_from(stat.st_blocks).unwrap_or(0) * 512);
            if is_directory {
                let depth = depth.checked_sub(1)?;
                if let Ok(below) = open(directory, name) {
                    self.below(&below, depth)?;
                }
            }
        }
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn what_volumes_take() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join("volumes").join(name);
        for name in ["kubernetes.io~empty-dir/data/sub", "kubernetes.io~secret/key"] {
            fs::create_dir_all(at(name)).expect("makes");
        }
        fs::write(at("kubernetes.io~empty-dir/data/sub/file"), [1; 100_000]).expect("writes");
        fs::hard_link(at("kubernetes.io~empty-dir/data/sub/file"), at("kubernetes.io~empty-dir/data/again"))
            .expect("links");
        symlink("/usr", at("kubernetes.io~empty-dir/data/out")).expect("links");
        symlink("/usr", at("kubernetes.io~empty-dir/link")).expect("links");
        let mut left = MOST;
        let all = read(&at(""), &mut left);
        let names: Vec<_> = all.iter().map(|v| (v.name.as_str(), v.used.inodes, v.is_mount)).collect();
        // The directory, the one below, the file, the link.
        assert_eq!(names, [("data", 4, false), ("key", 1, false)]);
        let bytes = all.first().map(|v| v.used.bytes).unwrap_or_default();
        assert!((100_000..200_000).contains(&bytes), "{bytes}");
        assert!(all.iter().all(|v| v.filesystem.capacity > 0) && left == MOST - 4, "{left}");
        assert_eq!(read(&at(""), &mut 2).len(), 1, "what is too much is left out");
        let deep = (0..DEPTH + 1).fold(at("kubernetes.io~empty-dir/deep"), |path, _| path.join("d"));
        fs::create_dir_all(deep).expect("makes");
        assert_eq!(read(&at(""), &mut MOST.clone()).len(), 2, "so is what is too deep");
        assert!(read(&at("none"), &mut left).is_empty());
    }
}

//! fsGroup: files of a volume are given to a group, which may then use them
//! (pkg/volume/volume_linux.go).

use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;

use rustix::fs::{AtFlags, Dir, FileType, Gid, Mode, OFlags, Stat, chmod, chownat, fstat, open, openat};

use crate::disk::mounts::{self, MountId};

/// What a group is given.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Group {
    pub gid: u32,
    /// What its members may do with files, beyond what they may already.
    file: u32,
}

/// For directories too: what is made in one belongs to the group.
const DIRECTORY: u32 = 0o2110;

impl Group {
    /// Members may read.
    pub fn reading(gid: u32) -> Group {
        Group { gid, file: 0o440 }
    }

    /// Members may read and write.
    pub fn writing(gid: u32) -> Group {
        Group { gid, file: 0o660 }
    }

    /// The mode of a file of the group that would have `mode` without it.
    pub fn file_mode(self, mode: u32) -> u32 {
        mode | self.file
    }

    pub fn directory_mode(self, mode: u32) -> u32 {
        mode | self.file | DIRECTORY
    }

    fn mode(self, stat: &Stat) -> u32 {
        let mode = stat.st_mode & 0o7777;
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => self.directory_mode(mode),
            _ => self.file_mode(mode),
        }
    }

    /// Whether a directory is as [`take`] would make it.
    fn has(self, stat: &Stat) -> bool {
        stat.st_gid == self.gid && self.mode(stat) == stat.st_mode & 0o7777
    }
}

/// Gives one file to the group, and writes nothing when it is the group's already. `file` may be
/// open as a mere path. Of a link only the group is changed.
pub fn take(file: impl AsFd, group: Group) -> io::Result<()> {
    let stat = fstat(&file)?;
    let owned = stat.st_gid == group.gid;
    if !owned {
        chownat(&file, "", None, Some(Gid::from_raw(group.gid)), AtFlags::EMPTY_PATH)?;
    }
    let mode = group.mode(&stat);
    // The change of the group may have taken the set-user-ID bit away.
    if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink && (!owned || mode != stat.st_mode & 0o7777) {
        // A path of this kind leads to the open file itself, whatever its name is by now.
        chmod(format!("/proc/self/fd/{}", file.as_fd().as_raw_fd()), Mode::from_raw_mode(mode))?;
    }
    Ok(())
}

/// Gives one directory to the group.
pub fn take_path(path: &Path, group: Group) -> io::Result<()> {
    take(open(path, PATH | OFlags::DIRECTORY, Mode::empty())?, group)
}

const PATH: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// As deep as trees are followed; each level takes two open files.
const MAX_DEPTH: usize = 100;

/// What became of a tree.
#[derive(Debug, Default)]
pub struct Outcome {
    /// How many files stayed as they were though they should not, and the first reason.
    pub failed: usize,
    pub first: Option<io::Error>,
}

/// Gives a directory with all in it to the group; what is mounted in it is left alone, and links
/// are not followed. The directory itself is the last, so that one that was interrupted is told
/// from one that is done. With `on_root_mismatch`, one whose root is the group's is left as it is.
///
/// # Errors
/// When the tree can't be read. That a file can't be changed is no error, since there are file
/// systems without groups; it is in the outcome.
pub fn take_tree(path: &Path, group: Group, on_root_mismatch: bool) -> io::Result<Outcome> {
    // The volume itself may be a link, of whoever made the node.
    let root = open(path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    let stat = fstat(&root)?;
    let mut walk = Walk { group, mount: mounts::id_of(&root)?, outcome: Outcome::default(), levels: Vec::new() };
    if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
        walk.take(&root);
        return Ok(walk.outcome);
    }
    if !(on_root_mismatch && group.has(&stat)) {
        walk.enter(root)?;
        walk.run()?;
    }
    Ok(walk.outcome)
}

struct Walk {
    group: Group,
    mount: MountId,
    outcome: Outcome,
    levels: Vec<(OwnedFd, Dir)>,
}

impl Walk {
    fn run(&mut self) -> io::Result<()> {
        while let Some((file, dir)) = self.levels.last_mut() {
            let entry = match dir.read().transpose() {
                Ok(Some(entry)) => entry,
                Ok(None) | Err(rustix::io::Errno::NOENT) => {
                    if let Some((file, _)) = self.levels.pop() {
                        self.take(&file);
                    }
                    continue;
                }
                Err(e) => return Err(e.into()),
            };
            if matches!(entry.file_name().to_bytes(), b"." | b"..") {
                continue;
            }
            match openat(&*file, entry.file_name(), PATH, Mode::empty()) {
                Ok(child) => self.child(child)?,
                // Somebody who uses the volume has removed it.
                Err(rustix::io::Errno::NOENT) => {}
                Err(e) => self.fail(e.into()),
            }
        }
        Ok(())
    }

    fn child(&mut self, child: OwnedFd) -> io::Result<()> {
        if FileType::from_raw_mode(fstat(&child)?.st_mode) != FileType::Directory {
            self.take(&child);
            return Ok(());
        }
        if mounts::id_of(&child)? != self.mount {
            return Ok(());
        }
        if self.levels.len() >= MAX_DEPTH {
            self.fail(io::Error::other(format!("more than {MAX_DEPTH} levels of directories")));
            return Ok(());
        }
        self.enter(child)
    }

    fn enter(&mut self, directory: OwnedFd) -> io::Result<()> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let dir = Dir::new(openat(&directory, ".", flags, Mode::empty())?)?;
        self.levels.push((directory, dir));
        Ok(())
    }

    fn take(&mut self, file: &OwnedFd) {
        if let Err(e) = take(file, self.group) {
            self.fail(e);
        }
    }

    fn fail(&mut self, e: io::Error) {
        self.outcome.failed += 1;
        self.outcome.first.get_or_insert(e);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};

    fn is_root() -> bool {
        rustix::process::geteuid().is_root()
    }

    #[test]
    fn modes() {
        let table = [
            (Group::reading(1), 0o400, 0o440, 0o2550),
            (Group::reading(1), 0o644, 0o644, 0o2754),
            (Group::writing(1), 0o600, 0o660, 0o2770),
            (Group::writing(1), 0o755, 0o775, 0o2775),
            (Group::writing(1), 0o1777, 0o1777, 0o3777),
        ];
        for (group, mode, file, directory) in table {
            assert_eq!(group.file_mode(mode), file, "{group:?} {mode:o}");
            assert_eq!(group.directory_mode(mode), directory, "{group:?} {mode:o}");
        }
    }

    #[test]
    fn a_tree_is_taken_and_links_are_not_followed() {
        if !is_root() {
            return;
        }
        let dir = tempfile::tempdir().expect("a directory");
        let (tree, outside) = (dir.path().join("tree"), dir.path().join("outside"));
        fs::create_dir_all(tree.join("a/b")).expect("makes");
        for (path, mode) in [(tree.join("a/file"), 0o600), (tree.join("a/suid"), 0o4755), (outside.clone(), 0o600)] {
            fs::write(&path, "x").expect("writes");
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("changes");
        }
        symlink(&outside, tree.join("a/link")).expect("links");
        let outcome = take_tree(&tree, Group::writing(4711), false).expect("reads");
        assert_eq!(outcome.failed, 0, "{outcome:?}");
        let of = |path: &Path| fs::symlink_metadata(path).map(|m| (m.gid(), m.mode() & 0o7777)).expect("is there");
        assert_eq!(of(&tree), (4711, 0o2775));
        assert_eq!(of(&tree.join("a/b")), (4711, 0o2775));
        assert_eq!(of(&tree.join("a/file")), (4711, 0o660));
        assert_eq!(of(&tree.join("a/suid")), (4711, 0o4775));
        assert_eq!(of(&tree.join("a/link")).0, 4711);
        assert_eq!(of(&outside), (0, 0o600));
        // Nothing is written where nothing is to be changed.
        let changed = |path: &Path| fs::symlink_metadata(path).map(|m| (m.ctime(), m.ctime_nsec())).expect("is there");
        let before = changed(&tree.join("a/file"));
        take_tree(&tree, Group::writing(4711), false).expect("reads");
        assert_eq!(changed(&tree.join("a/file")), before);
        // With the root as it should be, the rest isn't looked at.
        lchown(tree.join("a/file"), Some(0), Some(0)).expect("changes");
        take_tree(&tree, Group::writing(4711), true).expect("reads");
        assert_eq!(of(&tree.join("a/file")).0, 0);
        take_tree(&tree, Group::writing(4712), true).expect("reads");
        assert_eq!(of(&tree.join("a/file")).0, 4712);
    }

    #[test]
    fn what_is_mounted_in_it_and_what_is_too_deep_stay() {
        let Some(scratch) = crate::disk::mounts::scratch::Scratch::new() else { return };
        let (tree, other) = (scratch.path().join("tree"), scratch.path().join("other"));
        fs::create_dir_all(tree.join("mnt")).expect("makes");
        fs::create_dir(&other).expect("makes");
        rustix::mount::mount_bind(&other, tree.join("mnt")).expect("mounts");
        fs::create_dir_all(tree.join(["deep"; 2 * MAX_DEPTH].join("/"))).expect("makes");
        let outcome = take_tree(&tree, Group::writing(4711), false).expect("reads");
        assert_eq!(outcome.failed, 1, "{outcome:?}");
        assert_eq!(fs::metadata(&other).expect("is there").gid(), 0);
        assert_eq!(fs::metadata(&tree).expect("is there").gid(), 4711);
    }

    /// A thread exchanges a directory for a link to somebody's, again and again.
    #[test]
    fn a_race_with_links_changes_nothing_outside() {
        use std::sync::atomic::{AtomicBool, Ordering};
        if !is_root() {
            return;
        }
        let dir = tempfile::tempdir().expect("a directory");
        let (tree, precious) = (dir.path().join("tree"), dir.path().join("precious"));
        fs::create_dir_all(tree.join("a")).expect("makes");
        fs::create_dir(&precious).expect("makes");
        fs::write(precious.join("data"), "x").expect("writes");
        symlink(&precious, tree.join("link")).expect("links");
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    for (from, to) in [("a", "c"), ("link", "a"), ("a", "link"), ("c", "a")] {
                        fs::rename(tree.join(from), tree.join(to)).expect("renames");
                    }
                }
            });
            for i in 0..2000 {
                take_tree(&tree, Group::writing(5000 + i % 2), false).expect("reads");
            }
            stop.store(true, Ordering::Relaxed);
        });
        for path in [precious.join("data"), precious] {
            assert_eq!(fs::metadata(path).expect("is there").gid(), 0);
        }
    }
}

//! Removal of a directory with all in it that can't lead to what is mounted there, nor to where a
//! link points, whatever others do to the directory meanwhile: it goes from directory to directory
//! by open files, never by path, and enters none that lies on another mount. A mount that comes
//! after that covers what is removed, and is not touched. What is mounted on a file or an empty
//! directory, the kernel itself doesn't let go.

use std::ffi::{CStr, CString, OsStr};
use std::fs::{self, File};
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags, openat, renameat, unlinkat};
use rustix::io::Errno;

use super::mounts::{self, MountId};

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// As deep as it is gone with all directories open; what is deeper is moved up first.
const MAX_OPEN: usize = 64;
/// After so many readings of a directory somebody fills it as fast as it is emptied.
const MAX_READINGS: u32 = 100_000;

/// Removes a directory with all in it. Links are removed, never followed. With a mount point
/// anywhere below, nothing is removed: what is mounted there is somebody's data.
///
/// # Errors
/// When there is a mount below, or something can't be removed. That it isn't there is no error.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Err(no_place(path)) };
    let meta = match fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(e) => return Err(e),
    };
    if meta.is_dir() {
        if let Some(mount) = mounts::below(path)?.first() {
            return Err(busy(&mount.path));
        }
    }
    let parent_dir = File::open(parent)?;
    Walk::new(&parent_dir, parent, OnError::Stop)?.remove(&parent_dir, name)
}

/// Removes these entries of a directory as [`remove_tree`] does, but goes on around what is mounted
/// or can't be removed. The directory itself must not be a mount point.
///
/// # Errors
/// The first thing that stays.
pub fn remove_entries(directory: &Path, names: &[&str]) -> io::Result<()> {
    let (Some(above), Some(name)) = (directory.parent(), directory.file_name()) else {
        return Err(no_place(directory));
    };
    let above_dir = File::open(above)?;
    let dir = match openat(&above_dir, name, DIRECTORY, Mode::empty()) {
        Ok(dir) => File::from(dir),
        Err(Errno::NOENT) => return Ok(()),
        Err(e) => return Err(e.into()),
    };
    let mut walk = Walk::new(&above_dir, directory, OnError::GoOn)?;
    if mounts::id_of(&dir)? != walk.mount {
        return Err(busy(directory));
    }
    for name in names {
        walk.remove(&dir, OsStr::new(name))?;
    }
    walk.first.map_or(Ok(()), Err)
}

fn no_place(path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, format!("{} is no place in a directory", path.display()))
}

fn busy(path: &Path) -> io::Error {
    let message = format!("{} is mounted there; unmount it to let the rest be removed", path.display());
    io::Error::new(io::ErrorKind::ResourceBusy, message)
}

/// A directory that is being emptied.
struct Level {
    dir: Dir,
    /// Its name in the one above.
    name: CString,
    /// Something was removed from it since its reading began.
    changed: bool,
    readings: u32,
}

/// What to do about what can't be removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OnError {
    Stop,
    GoOn,
}

struct Walk {
    mount: MountId,
    levels: Vec<Level>,
    /// Of the directory that is being emptied, for messages.
    path: PathBuf,
    /// How many directories were moved up.
    moved: u64,
    on_error: OnError,
    /// The first thing that stays.
    first: Option<io::Error>,
}

impl Walk {
    /// For what is on the mount of `dir`, in the directory at `path`.
    fn new(dir: &File, path: &Path, on_error: OnError) -> io::Result<Walk> {
        let mount = mounts::id_of(dir)?;
        Ok(Walk { mount, levels: Vec::new(), path: path.to_owned(), moved: 0, on_error, first: None })
    }

    fn remove(&mut self, parent: &File, name: &OsStr) -> io::Result<()> {
        let done = self.child(parent, &CString::new(name.as_bytes())?, FileType::Unknown);
        self.settle(done)?;
        while let Some(level) = self.levels.last_mut() {
            match level.dir.read() {
                Some(Err(Errno::NOENT)) | None if level.changed && level.readings < MAX_READINGS => {
                    // A directory that is changed while it is read may be told of in part.
                    level.changed = false;
                    level.readings += 1;
                    level.dir.rewind();
                }
                Some(Err(Errno::NOENT)) | None => {
                    let done = self.leave(parent);
                    self.settle(done)?;
                }
                Some(Err(e)) => return Err(self.failed(c".", e)),
                Some(Ok(entry)) if matches!(entry.file_name().to_bytes(), b"." | b"..") => {}
                Some(Ok(entry)) => {
                    let dir = level.dir.fd()?.try_clone_to_owned()?;
                    let done = self.child(&dir, entry.file_name(), entry.file_type());
                    self.settle(done)?;
                }
            }
        }
        Ok(())
    }

    /// Notes that something is gone from the directory that is being emptied, or that it stays.
    fn settle(&mut self, done: io::Result<bool>) -> io::Result<()> {
        match (done, self.levels.last_mut()) {
            (Ok(gone), Some(level)) => level.changed |= gone,
            (Ok(_), None) => {}
            (Err(e), _) if self.on_error == OnError::Stop => return Err(e),
            (Err(e), _) => _ = self.first.get_or_insert(e),
        }
        Ok(())
    }

    /// Removes what is no directory, and begins with what is one. Whether something is gone.
    fn child(&mut self, dir: impl AsFd + Copy, name: &CStr, kind: FileType) -> io::Result<bool> {
        if kind != FileType::Directory && self.unlink(dir, name)? {
            return Ok(true);
        }
        match self.levels.len() < MAX_OPEN {
            true => self.enter(dir, name),
            false => self.move_up(dir, name),
        }
    }

    /// Whether `name` is no directory, and gone now.
    fn unlink(&self, dir: impl AsFd, name: &CStr) -> io::Result<bool> {
        match unlinkat(dir, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => Ok(true),
            Err(Errno::ISDIR) => Ok(false),
            Err(Errno::BUSY) => Err(busy(&self.at(name))),
            Err(e) => Err(self.failed(name, e)),
        }
    }

    fn enter(&mut self, dir: impl AsFd, name: &CStr) -> io::Result<bool> {
        let child = match openat(&dir, name, DIRECTORY, Mode::empty()) {
            Ok(child) => child,
            Err(Errno::NOENT) => return Ok(true),
            // It was a directory a moment ago.
            Err(Errno::NOTDIR | Errno::LOOP) => return self.unlink(dir, name),
            Err(e) => return Err(self.failed(name, e)),
        };
        if mounts::id_of(&child)? != self.mount {
            return Err(busy(&self.at(name)));
        }
        self.path = self.at(name);
        self.levels.push(Level { dir: Dir::new(child)?, name: name.to_owned(), changed: false, readings: 0 });
        Ok(false)
    }

    /// The directory is empty: it goes too.
    fn leave(&mut self, root: &File) -> io::Result<bool> {
        let Some(Level { name, .. }) = self.levels.pop() else { return Ok(false) };
        self.path.pop();
        let result = match self.levels.last_mut() {
            Some(above) => unlinkat(above.dir.fd()?, &name, AtFlags::REMOVEDIR),
            None => unlinkat(root, &name, AtFlags::REMOVEDIR),
        };
        match result {
            Ok(()) | Err(Errno::NOENT) => Ok(true),
            // What stays in it has been told of.
            Err(Errno::NOTEMPTY | Errno::EXIST) if self.first.is_some() => Ok(false),
            Err(Errno::BUSY) => Err(busy(&self.at(&name))),
            Err(e) => Err(self.failed(&name, e)),
        }
    }

    /// Moves a directory to the top, where it is found when that is read again.
    fn move_up(&mut self, dir: impl AsFd + Copy, name: &CStr) -> io::Result<bool> {
        let path = self.at(name);
        let Some(top) = self.levels.first_mut() else { return Ok(false) };
        loop {
            self.moved += 1;
            let new = CString::new(format!(".moved-{}", self.moved))?;
            match renameat(dir, name, top.dir.fd()?, &new) {
                Ok(()) | Err(Errno::NOENT) => break,
                // One that others put there, or a file.
                Err(Errno::EXIST | Errno::NOTEMPTY | Errno::NOTDIR) => {}
                Err(Errno::BUSY | Errno::XDEV) => return Err(busy(&path)),
                Err(e) => return Err(self.failed(name, e)),
            }
        }
        top.changed = true;
        Ok(true)
    }

    fn at(&self, name: &CStr) -> PathBuf {
        self.path.join(OsStr::from_bytes(name.to_bytes()))
    }

    fn failed(&self, name: &CStr, e: Errno) -> io::Error {
        let error = io::Error::from(e);
        io::Error::new(error.kind(), format!("{}: {error}", self.at(name).display()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::disk::mounts::scratch::Scratch;
    use std::os::unix::fs::symlink;

    fn tree(root: &Path) -> PathBuf {
        let tree = root.join("tree");
        fs::create_dir_all(tree.join("a/b/c")).expect("makes");
        fs::write(tree.join("a/b/file"), "x").expect("writes");
        tree
    }

    #[test]
    fn links_are_removed_and_not_followed() {
        let dir = tempfile::tempdir().expect("a directory");
        let (tree, precious) = (tree(dir.path()), dir.path().join("precious"));
        fs::create_dir(&precious).expect("makes");
        fs::write(precious.join("data"), "x").expect("writes");
        symlink(&precious, tree.join("a/link")).expect("links");
        symlink(&precious, dir.path().join("link")).expect("links");
        remove_tree(&tree).expect("removes");
        remove_tree(&tree).expect("is gone already");
        remove_tree(&dir.path().join("link")).expect("removes the link");
        remove_tree(&dir.path().join("none/at/all")).expect("is gone already");
        let left: Vec<_> = fs::read_dir(dir.path()).expect("reads").map(|e| e.expect("reads").file_name()).collect();
        assert_eq!(left, ["precious"]);
        assert!(precious.join("data").exists());
        assert!(remove_tree(Path::new("/")).is_err());
    }

    #[test]
    fn a_file_and_many_files() {
        let dir = tempfile::tempdir().expect("a directory");
        let (file, many) = (dir.path().join("file"), dir.path().join("many"));
        fs::write(&file, "x").expect("writes");
        remove_tree(&file).expect("removes");
        fs::create_dir(&many).expect("makes");
        for i in 0..3000 {
            fs::write(many.join(format!("a-long-enough-name-for-many-blocks-{i}")), "").expect("writes");
        }
        remove_tree(&many).expect("removes");
        assert!(!file.exists() && !many.exists());
    }

    /// A container can make a tree that no path reaches, and that no stack or table of files holds.
    #[test]
    fn deeper_than_any_path() {
        let dir = tempfile::tempdir().expect("a directory");
        let tree = dir.path().join("tree");
        fs::create_dir(&tree).expect("makes");
        let mut at: std::os::fd::OwnedFd = File::open(&tree).expect("opens").into();
        for _ in 0..5000 {
            rustix::fs::mkdirat(&at, "deep", Mode::RWXU).expect("makes");
            at = openat(&at, "deep", OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).expect("opens");
        }
        remove_tree(&tree).expect("removes");
        assert!(!tree.exists());
    }

    #[test]
    fn with_a_mount_below_nothing_is_removed() {
        let Some(scratch) = Scratch::new() else { return };
        let (tree, precious) = (tree(scratch.path()), scratch.path().join("precious"));
        fs::create_dir(&precious).expect("makes");
        fs::write(precious.join("data"), "x").expect("writes");
        for target in ["a/b/c", "a/b/file"] {
            let target = tree.join(target);
            let source = if target.is_dir() { precious.clone() } else { precious.join("data") };
            rustix::mount::mount_bind(&source, &target).expect("mounts");
            let refused = remove_tree(&tree).expect_err("is refused").to_string();
            assert!(refused.contains(&target.display().to_string()), "{refused}");
            assert!(tree.join("a/b/file").exists() && precious.join("data").exists());
            rustix::mount::unmount(&target, rustix::mount::UnmountFlags::empty()).expect("unmounts");
        }
        remove_tree(&tree).expect("removes");
    }

    /// The table of mounts is only a courtesy: without it, deletion still enters no mount.
    #[test]
    fn a_mount_that_is_not_known_of_is_not_entered() {
        let Some(scratch) = Scratch::new() else { return };
        let (tree, precious) = (tree(scratch.path()), scratch.path().join("precious"));
        fs::create_dir(&precious).expect("makes");
        fs::write(precious.join("data"), "x").expect("writes");
        for target in ["a/b/c", "a/b", "a"] {
            rustix::mount::mount_bind(&precious, tree.join(target)).expect("mounts");
            let parent = File::open(scratch.path()).expect("opens");
            let mut walk = Walk::new(&parent, scratch.path(), OnError::Stop).expect("is told");
            let refused = walk.remove(&parent, OsStr::new("tree")).expect_err(target);
            assert_eq!(refused.kind(), io::ErrorKind::ResourceBusy, "{refused}");
            assert!(refused.to_string().contains(&tree.join(target).display().to_string()), "{refused}");
            assert!(precious.join("data").exists());
        }
    }

    #[test]
    fn all_around_a_mount_is_removed() {
        let Some(scratch) = Scratch::new() else { return };
        let (tree, precious) = (tree(scratch.path()), scratch.path().join("precious"));
        fs::create_dir(&precious).expect("makes");
        fs::write(precious.join("data"), "x").expect("writes");
        for name in ["a/b/more", "a/file", "other", "kept"] {
            fs::write(tree.join(name), "x").expect("writes");
        }
        for target in ["a/b/c", "a/b/file"] {
            let source = if target == "a/b/c" { precious.clone() } else { precious.join("data") };
            rustix::mount::mount_bind(&source, tree.join(target)).expect("mounts");
        }
        let stays = remove_entries(&tree, &["none", "a", "other"]).expect_err("something stays").to_string();
        assert!(stays.contains("is mounted there"), "{stays}");
        let names = |path: &Path| {
            let entries = fs::read_dir(path).expect("reads");
            let mut names: Vec<_> = entries.map(|e| e.expect("reads").file_name()).collect();
            names.sort();
            names
        };
        assert_eq!(names(&tree), ["a", "kept"]);
        assert_eq!(names(&tree.join("a")), ["b"]);
        assert_eq!(names(&tree.join("a/b")), ["c", "file"]);
        assert_eq!(names(&precious), ["data"]);
        for target in ["a/b/c", "a/b/file"] {
            rustix::mount::unmount(tree.join(target), rustix::mount::UnmountFlags::empty()).expect("unmounts");
        }
        remove_entries(&tree, &["none", "a", "other"]).expect("removes");
        assert_eq!(names(&tree), ["kept"]);
        // The directory itself is somebody's: nothing in it is ours.
        rustix::mount::mount_bind(&precious, &tree).expect("mounts");
        remove_entries(&tree, &["data"]).expect_err("is refused");
        assert_eq!(names(&precious), ["data"]);
    }

    /// A thread mounts and unmounts somebody's data in the tree while it is removed.
    #[test]
    fn a_race_with_mounts_deletes_nothing_of_theirs() {
        use std::sync::atomic::{AtomicBool, Ordering};
        let Some(scratch) = Scratch::new() else { return };
        let (tree, precious) = (scratch.path().join("tree"), scratch.path().join("precious"));
        fs::create_dir(&precious).expect("makes");
        fs::write(precious.join("data"), "x").expect("writes");
        let stop = AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    let target = tree.join("a/b");
                    if rustix::mount::mount_bind(&precious, &target).is_ok() {
                        // The tree may have been moved or removed with it by then.
                        let _ = rustix::mount::unmount(&target, rustix::mount::UnmountFlags::DETACH);
                    }
                }
            });
            for _ in 0..500 {
                fs::create_dir_all(tree.join("a")).expect("makes");
                let _ = fs::create_dir(tree.join("a/b"));
                let _ = remove_tree(&tree);
            }
            stop.store(true, Ordering::Relaxed);
        });
        assert!(precious.join("data").exists());
    }
}

//! subPath: a part of a volume. What is in a volume is its containers' to change, at any moment, so
//! a path in it is not to be believed: it is gone along by open files from the volume's root, links
//! are followed by hand as far as they stay in the volume, and what was found that way is mounted
//! at a place of ours, which the runtime is given (pkg/volume/util/subpath).

use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{FileType, Mode, OFlags, fchmod, fstat, mkdirat, open, openat, readlinkat};
use rustix::io::Errno;
use rustix::mount::mount_bind;

use super::Error;
use super::teardown::unmount;
use crate::disk;
use crate::disk::mounts;

/// Where the parts of a pod's volumes are mounted, below the pod's directory.
pub const DIRECTORY: &str = "volume-subpaths";

const PATH: OFlags = OFlags::PATH.union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// As many links are followed as the kernel would follow.
const MAX_LINKS: usize = 40;
const MAX_DEPTH: usize = 255;

/// A container's mount of a part of a volume.
#[derive(Debug, Clone, Copy)]
pub struct SubPath<'a> {
    pub volume: &'a str,
    pub container: &'a str,
    /// Which of the container's mounts it is.
    pub index: usize,
    /// `subPath`, or `subPathExpr` with its variables expanded.
    pub path: &'a str,
}

/// Makes the part of the volume at `root` ready, with its directories if they are not there, and
/// returns the place to mount from. Called again, it gives the same place, and what is at the path
/// by then. What is mounted goes with the pod's other volumes, in [`super::teardown`].
///
/// # Errors
/// When the path leads out of the volume, or can't be had.
pub fn bind(pod_directory: &Path, root: &Path, part: &SubPath<'_>) -> Result<PathBuf, Error> {
    let steps = steps(part.path)?;
    let found = resolve(root, steps, Missing::Make)
        .map_err(|why| Error::SubPath { path: part.path.to_owned(), why: why.to_string() })?;
    let target = pod_directory.join(DIRECTORY).join(part.volume).join(part.container).join(part.index.to_string());
    attach(&found, &target).map_err(|e| Error::io("mounting a part of a volume at", &target, e))?;
    Ok(target)
}

/// The text of a file in the volume at `root`; `None` when it isn't there.
///
/// # Errors
/// When the path leads out of the volume, or to something else than a text file of at most `max`
/// bytes.
pub fn read(root: &Path, path: &str, max: u64) -> Result<Option<String>, Error> {
    let refused = |why: String| Error::SubPath { path: path.to_owned(), why };
    let found = match resolve(root, steps(path)?, Missing::Refuse) {
        Ok(found) => found,
        Err(Why::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(why) => return Err(refused(why.to_string())),
    };
    // What was found is a mere path; it is opened by its number, which no link can change.
    let flags = i32::try_from((OFlags::NONBLOCK | OFlags::CLOEXEC).bits()).unwrap_or(0);
    let opened =
        fs::File::options().read(true).custom_flags(flags).open(format!("/proc/self/fd/{}", found.as_raw_fd()));
    let file = opened.map_err(|e| refused(e.to_string()))?;
    let mut bytes = Vec::new();
    match file.metadata() {
        Ok(meta) if meta.is_file() => {}
        Ok(_) => return Err(refused("is not a file".to_owned())),
        Err(e) => return Err(refused(e.to_string())),
    }
    file.take(max + 1).read_to_end(&mut bytes).map_err(|e| refused(e.to_string()))?;
    if bytes.len() as u64 > max {
        return Err(refused(format!("is longer than {max} bytes")));
    }
    String::from_utf8(bytes).map(Some).map_err(|_| refused("is not UTF-8 text".to_owned()))
}

/// What to do with directories that are not there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Missing {
    Make,
    Refuse,
}

/// The parts of a path that goes nowhere but down.
fn steps(path: &str) -> Result<Vec<OsString>, Error> {
    let refused = |why: &str| Error::SubPath { path: path.to_owned(), why: why.to_owned() };
    let parts = Path::new(path).components().filter(|part| !matches!(part, Component::CurDir));
    let step = |part| match part {
        Component::Normal(name) => Ok(name.to_owned()),
        Component::ParentDir => Err(refused("must not contain '..'")),
        _ => Err(refused("must be a relative path")),
    };
    parts.map(step).collect()
}

#[derive(Debug, thiserror::Error)]
enum Why {
    #[error("{} leads out of the volume", .0.display())]
    Outside(PathBuf),
    #[error("too many links")]
    Links,
    #[error("too many directories")]
    Depth,
    #[error("{}: {source}", path.display())]
    Io { path: PathBuf, source: io::Error },
}

/// A way into a volume.
struct Way {
    /// The volume's root, as the kernel names it.
    root: PathBuf,
    missing: Missing,
    /// The mode of directories that are made: the root's.
    mode: Mode,
    /// The open directories from the root to where we are.
    stack: Vec<OwnedFd>,
    /// Their names, for messages.
    path: PathBuf,
    links: usize,
}

/// Opens what is at `steps` below `root`, as a mere path.
fn resolve(root: &Path, steps: Vec<OsString>, missing: Missing) -> Result<OwnedFd, Why> {
    let at_root = |source| Why::Io { path: root.to_owned(), source };
    let file = open(root, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).map_err(|e| at_root(e.into()))?;
    let real = fs::read_link(format!("/proc/self/fd/{}", file.as_raw_fd())).map_err(at_root)?;
    let mode = fstat(&file).map_err(|e| at_root(e.into()))?.st_mode & 0o2777;
    let mode = Mode::from_raw_mode(mode);
    let mut way = Way { root: real, missing, mode, stack: vec![file], path: PathBuf::new(), links: 0 };
    let mut rest: Vec<OsString> = steps.into_iter().rev().collect();
    while let Some(step) = rest.pop() {
        match step.as_bytes() {
            b"." => {}
            b".." => way.up()?,
            _ => way.step(&step, &mut rest)?,
        }
    }
    way.stack.pop().ok_or(Why::Outside(way.path))
}

impl Way {
    fn failed(&self, step: &OsStr, e: impl Into<io::Error>) -> Why {
        Why::Io { path: self.path.join(step), source: e.into() }
    }

    /// Back by the way we came, wherever the directory has been moved to meanwhile.
    fn up(&mut self) -> Result<(), Why> {
        if self.stack.len() <= 1 {
            return Err(Why::Outside(self.path.join("..")));
        }
        self.stack.pop();
        self.path.pop();
        Ok(())
    }

    fn step(&mut self, step: &OsStr, rest: &mut Vec<OsString>) -> Result<(), Why> {
        let Some(here) = self.stack.last() else { return Err(Why::Outside(self.path.clone())) };
        let next = match openat(here, step, PATH, Mode::empty()) {
            Err(Errno::NOENT) if self.missing == Missing::Make => {
                make(here, step, self.mode).map_err(|e| self.failed(step, e))?;
                openat(here, step, PATH, Mode::empty())
            }
            result => result,
        };
        let next = next.map_err(|e| self.failed(step, e))?;
        let kind = fstat(&next).map_err(|e| self.failed(step, e))?.st_mode;
        if FileType::from_raw_mode(kind) == FileType::Symlink {
            return self.link(step, &next, rest);
        }
        if self.stack.len() >= MAX_DEPTH {
            return Err(Why::Depth);
        }
        self.stack.push(next);
        self.path.push(step);
        Ok(())
    }

    /// Puts what a link says in its place.
    fn link(&mut self, step: &OsStr, link: &OwnedFd, rest: &mut Vec<OsString>) -> Result<(), Why> {
        self.links += 1;
        if self.links > MAX_LINKS {
            return Err(Why::Links);
        }
        let target = readlinkat(link, "", Vec::new()).map_err(|e| self.failed(step, e))?;
        let target = PathBuf::from(OsString::from_vec(target.into_bytes()));
        let target = match target.is_absolute() {
            // By the node's paths it may be one of the volume; it is gone along from the root then.
            true => {
                let inside = target.strip_prefix(&self.root).map_err(|_| Why::Outside(self.path.join(step)))?;
                self.stack.truncate(1);
                self.path.clear();
                inside.to_owned()
            }
            false => target,
        };
        rest.extend(target.components().rev().map(|part| part.as_os_str().to_owned()));
        Ok(())
    }
}

/// Makes a directory, with the mode whatever the umask.
fn make(parent: &OwnedFd, name: &OsStr, mode: Mode) -> io::Result<()> {
    match mkdirat(parent, name, Mode::RWXU) {
        Ok(()) => {}
        Err(Errno::EXIST) => return Ok(()),
        Err(e) => return Err(e.into()),
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let made = openat(parent, name, flags, Mode::empty())?;
    let stat = fstat(&made)?;
    // Unless somebody has put another one in its place.
    if stat.st_uid == rustix::process::geteuid().as_raw() && stat.st_mode & 0o777 == 0o700 {
        fchmod(&made, mode)?;
    }
    Ok(())
}

/// Mounts `found` at `target`, unless it is there already.
fn attach(found: &OwnedFd, target: &Path) -> io::Result<()> {
    let parent = target.parent().unwrap_or(target);
    if !parent.is_dir() {
        fs::create_dir_all(parent)?;
    }
    let found_stat = fstat(found)?;
    let is_dir = FileType::from_raw_mode(found_stat.st_mode) == FileType::Directory;
    let parent = open(parent, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
    // Of mounts on each other there is at most one, or what a fault left.
    for _ in 0..MAX_LINKS {
        let there = match open(target, PATH, Mode::empty()) {
            Ok(there) => there,
            Err(Errno::NOENT) => {
                place(target, is_dir)?;
                continue;
            }
            Err(e) => return Err(e.into()),
        };
        let stat = fstat(&there)?;
        if mounts::id_of(&there)? == mounts::id_of(&parent)? {
            if (FileType::from_raw_mode(stat.st_mode) == FileType::Directory) != is_dir {
                disk::remove_tree(target)?;
                continue;
            }
            // A path of this kind leads to the open file itself, whatever its name is by now.
            return Ok(mount_bind(format!("/proc/self/fd/{}", found.as_raw_fd()), target)?);
        }
        if (stat.st_dev, stat.st_ino) == (found_stat.st_dev, found_stat.st_ino) {
            return Ok(());
        }
        drop(there);
        unmount(target)?;
    }
    Err(io::Error::new(io::ErrorKind::ResourceBusy, "what is mounted there can't be unmounted"))
}

/// Something to mount on.
fn place(target: &Path, is_dir: bool) -> io::Result<()> {
    match is_dir {
        true => disk::make_dir(target, 0o750),
        false => fs::File::create(target).map(drop),
    }
}

#[cfg(test)]
mod tests;

//! What is mounted where, as the kernel tells it.

use std::ffi::OsStr;
use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

/// A mount of this process's mount namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    pub path: PathBuf,
    /// The kind of file system: `tmpfs`, `ext4`.
    pub kind: String,
}

/// The mounts at `path` and below. A mount comes before the one that it lies on or below.
pub fn below(path: &Path) -> io::Result<Vec<Mount>> {
    let path = fs::canonicalize(path)?;
    let table = fs::read("/proc/self/mountinfo")?;
    let all = table.split(|b| *b == b'\n').filter_map(parse);
    let mut mounts: Vec<_> = all.filter(|mount| mount.path.starts_with(&path)).collect();
    // The table has a mount after those that it covers.
    mounts.reverse();
    mounts.sort_by(|a, b| b.path.cmp(&a.path));
    Ok(mounts)
}

/// `ID PARENT DEVICE ROOT PATH OPTIONS [TAG…] - KIND SOURCE OPTIONS`
fn parse(line: &[u8]) -> Option<Mount> {
    let mut fields = line.split(|b| *b == b' ');
    let path = PathBuf::from(OsStr::from_bytes(&unescape(fields.nth(4)?)));
    let kind = fields.skip_while(|field| *field != b"-").nth(1)?;
    Some(Mount { path, kind: String::from_utf8_lossy(kind).into_owned() })
}

/// `\040` and its like, as mountinfo writes blanks.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((first, tail)) = rest.split_first() {
        let octal = tail.get(..3).and_then(|digits| std::str::from_utf8(digits).ok());
        match octal.filter(|_| *first == b'\\').and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(byte) => {
                out.push(byte);
                rest = tail.get(3..).unwrap_or_default();
            }
            None => {
                out.push(*first);
                rest = tail;
            }
        }
    }
    out
}

/// A mount's number in the kernel. It tells two mounts of one file system apart, which a device
/// number doesn't, and it is not given out anew while the file is open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MountId(u64);

/// The mount on which an open file lies.
pub fn id_of(file: impl AsFd) -> io::Result<MountId> {
    // statx knows it since Linux 5.8 only, this since 3.15.
    let path = format!("/proc/self/fdinfo/{}", file.as_fd().as_raw_fd());
    let info = fs::read_to_string(path)?;
    let id = info.lines().find_map(|line| line.strip_prefix("mnt_id:")?.trim().parse().ok());
    id.map(MountId).ok_or_else(|| io::Error::other("the kernel does not tell the mount of a file"))
}

/// A directory for tests that mount: whatever is mounted in it is gone with it.
#[cfg(test)]
pub mod scratch {
    use super::*;
    use rustix::mount::{UnmountFlags, unmount};

    pub struct Scratch(tempfile::TempDir);

    impl Scratch {
        /// `None` where we may not mount; such a test says so and ends.
        #[expect(clippy::print_stderr, reason = "the reader of the test's output is told")]
        pub fn new() -> Option<Scratch> {
            if !rustix::process::geteuid().is_root() {
                eprintln!("skipped: only root may mount");
                return None;
            }
            Some(Scratch(tempfile::tempdir().expect("a directory")))
        }

        pub fn path(&self) -> &Path {
            self.0.path()
        }

        /// What is mounted in it, by its path below it.
        pub fn mounted(&self) -> Vec<PathBuf> {
            let root = fs::canonicalize(self.path()).expect("is there");
            let all = below(self.path()).expect("reads");
            all.iter().filter_map(|m| m.path.strip_prefix(&root).ok().map(Path::to_owned)).collect()
        }
    }

    impl Drop for Scratch {
        fn drop(&mut self) {
            // One that is covered is reached when what covers it is gone.
            for _ in 0..10 {
                for mount in below(self.0.path()).unwrap_or_default() {
                    let _ = unmount(&mount.path, UnmountFlags::DETACH);
                }
            }
            assert!(std::thread::panicking() || self.mounted().is_empty(), "something is left mounted");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_is_read_with_its_blanks() {
        assert_eq!(unescape(br"/a\040b\134c\011"), b"/a b\\c\t");
        assert_eq!(unescape(br"/plain\0"), br"/plain\0");
        let mount = |path: &str, kind: &str| Some(Mount { path: path.into(), kind: kind.into() });
        let table: &[(&[u8], Option<Mount>)] = &[
            (b"36 35 98:0 / /mnt/a\\040b rw,noatime master:1 shared:2 - ext3 /dev/root rw", mount("/mnt/a b", "ext3")),
            (b"36 35 98:0 / /mnt rw - tmpfs tmpfs rw", mount("/mnt", "tmpfs")),
            (b"36 35 98:0 /", None),
            (b"36 35 98:0 / /mnt rw shared:2", None),
            (b"", None),
        ];
        for (line, want) in table {
            assert_eq!(&parse(line), want, "{:?}", String::from_utf8_lossy(line));
        }
    }

    #[test]
    fn this_machine_has_mounts() {
        let mounts = below(Path::new("/")).expect("reads");
        let at = |path: &str| mounts.iter().position(|m| m.path == Path::new(path));
        assert!(at("/proc").is_some_and(|proc| at("/").is_some_and(|root| proc < root)), "{mounts:?}");
        let id = |path: &str| id_of(fs::File::open(path).expect("opens")).expect("is told");
        assert_eq!(id("/proc"), id("/proc/self"));
        assert_ne!(id("/proc"), id("/"));
    }
}

//! Files that survive a power cut, and removal that crosses no mount.
//!
//! Knows nothing of pods.

use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// Writes a file so that at every instant the old content or the new one is there, whole.
///
/// # Errors
/// When it can't be written; then the old content is there.
pub fn write_atomic(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let parent = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut temporary = std::ffi::OsString::from(".");
    temporary.push(name);
    temporary.push(".new");
    let temporary = parent.join(temporary);
    let result = (|| {
        let mut file = File::options().write(true).create(true).truncate(true).mode(mode).open(&temporary)?;
        file.write_all(content)?;
        file.sync_all()?;
        fs::rename(&temporary, path)?;
        File::open(parent)?.sync_all()
    })();
    if result.is_err() {
        // A full disk must not keep a part of what it could not take.
        let _ = fs::remove_file(&temporary);
    }
    result
}

/// Makes a directory and those above it, with `mode` for itself whatever the umask.
pub fn make_dir(path: &Path, mode: u32) -> io::Result<()> {
    fs::create_dir_all(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

/// Removes a directory with all in it. Links are removed, never followed. With a mount point
/// anywhere below, nothing is removed: what is mounted there is somebody's data.
///
/// # Errors
/// When there is a mount below, or something can't be removed. That it isn't there is no error.
pub fn remove_tree(path: &Path) -> io::Result<()> {
    if !path.try_exists()? {
        return Ok(());
    }
    let mounts = mounts_below(path)?;
    if let Some(mount) = mounts.first() {
        let message = format!("{} is still mounted; unmount it to let the rest be removed", mount.display());
        return Err(io::Error::new(io::ErrorKind::ResourceBusy, message));
    }
    match fs::remove_dir_all(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

/// Mount points at `path` and below, the deepest first.
pub fn mounts_below(path: &Path) -> io::Result<Vec<PathBuf>> {
    let path = fs::canonicalize(path)?;
    let table = fs::read("/proc/self/mountinfo")?;
    let mut mounts: Vec<_> = table
        .split(|b| *b == b'\n')
        .filter_map(|line| line.split(|b| *b == b' ').nth(4))
        .map(|field| PathBuf::from(std::ffi::OsStr::from_bytes(&unescape(field))))
        .filter(|mount| mount.starts_with(&path))
        .collect();
    mounts.sort_by(|a, b| b.cmp(a));
    Ok(mounts)
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn a_write_replaces_the_whole_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("state");
        write_atomic(&path, b"one", 0o600).expect("writes");
        write_atomic(&path, b"2", 0o600).expect("writes");
        assert_eq!(fs::read(&path).expect("reads"), b"2");
        assert_eq!(fs::metadata(&path).expect("is there").permissions().mode() & 0o777, 0o600);
        assert_eq!(fs::read_dir(dir.path()).expect("reads").count(), 1, "no temporary file stays");
        assert!(write_atomic(&dir.path().join("none/state"), b"x", 0o600).is_err());
    }

    #[test]
    fn removal_follows_no_link() {
        let dir = tempfile::tempdir().expect("a directory");
        let (tree, precious) = (dir.path().join("tree"), dir.path().join("precious"));
        fs::create_dir_all(tree.join("a/b")).expect("makes");
        fs::create_dir(&precious).expect("makes");
        fs::write(precious.join("data"), "x").expect("writes");
        symlink(&precious, tree.join("a/link")).expect("links");
        remove_tree(&tree).expect("removes");
        remove_tree(&tree).expect("is gone already");
        assert!(!tree.exists() && precious.join("data").exists());
    }

    #[test]
    fn mount_points_are_read_with_their_blanks() {
        assert_eq!(unescape(br"/a\040b\134c\011"), b"/a b\\c\t");
        assert_eq!(unescape(br"/plain\0"), br"/plain\0");
        let mounts = mounts_below(Path::new("/")).expect("reads");
        assert!(mounts.contains(&PathBuf::from("/proc")));
        assert_eq!(mounts.last(), Some(&PathBuf::from("/")));
    }
}

//! Files that survive a power cut, mounts, and removal that crosses no mount.
//!
//! Knows nothing of pods.

pub mod checked;
pub mod mounts;
mod remove;

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

pub use remove::{remove_entries, remove_tree};

/// What stands before and behind the name of a file that is being written.
const BEFORE: &str = ".";
const BEHIND: &str = ".new";

/// Whether a file of this name is one that [`write_atomic`] is writing.
pub fn is_temporary(name: &str) -> bool {
    name.strip_prefix(BEFORE).and_then(|rest| rest.strip_suffix(BEHIND)).is_some_and(|name| !name.is_empty())
}

/// Writes a file so that at every instant the old content or the new one is there, whole.
///
/// # Errors
/// When it can't be written; then the old content is there.
pub fn write_atomic(path: &Path, content: &[u8], mode: u32) -> io::Result<()> {
    let parent = path.parent().ok_or(io::ErrorKind::InvalidInput)?;
    let name = path.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    let mut temporary = OsString::from(BEFORE);
    temporary.push(name);
    temporary.push(BEHIND);
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

/// The content of a file that has at most `max` bytes.
///
/// # Errors
/// When it can't be read, or has more.
pub fn read(path: &Path, max: u64) -> io::Result<Vec<u8>> {
    let mut content = Vec::new();
    File::open(path)?.take(max.saturating_add(1)).read_to_end(&mut content)?;
    match u64::try_from(content.len()) {
        Ok(length) if length <= max => Ok(content),
        _ => Err(io::Error::other(format!("it has more than {max} bytes"))),
    }
}

/// As [`read`], for text.
pub fn read_text(path: &Path, max: u64) -> io::Result<String> {
    String::from_utf8(read(path, max)?).map_err(|e| io::Error::new(io::ErrorKind::InvalidData, e))
}

/// What is in a directory of ours; nothing when it isn't there yet, or can't be read.
pub fn entries(directory: &Path) -> Vec<PathBuf> {
    match fs::read_dir(directory) {
        Ok(entries) => entries.flatten().map(|entry| entry.path()).collect(),
        Err(e) => {
            if e.kind() != io::ErrorKind::NotFound {
                log::error!("{}: {e}", directory.display());
            }
            Vec::new()
        }
    }
}

/// Renames a file that can't be used, so that it is in nobody's way and can be looked at.
pub fn put_aside(path: &Path, why: &str) {
    let mut aside = path.as_os_str().to_owned();
    aside.push(".bad");
    log::warn!("{}: {why}; put aside as {}", path.display(), aside.to_string_lossy());
    if let Err(e) = fs::rename(path, &aside) {
        log::warn!("{}: {e}", path.display());
    }
}

/// Makes a directory and those above it, with `mode` for itself whatever the umask.
pub fn make_dir(path: &Path, mode: u32) -> io::Result<()> {
    fs::create_dir_all(path)?;
    fs::set_permissions(path, fs::Permissions::from_mode(mode))
}

#[cfg(test)]
mod tests {
    use super::*;

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
    fn a_read_has_a_bound() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("state");
        fs::write(&path, "four").expect("writes");
        assert_eq!(read_text(&path, 4).expect("reads"), "four");
        assert_eq!(read(&path, 3).expect_err("is too long").to_string(), "it has more than 3 bytes");
        fs::write(&path, [0xff]).expect("writes");
        assert_eq!(read(&path, 4).expect("reads"), [0xff]);
        assert_eq!(read_text(&path, 4).expect_err("is no text").kind(), io::ErrorKind::InvalidData);
        assert_eq!(read(&dir.path().join("none"), 4).expect_err("is not there").kind(), io::ErrorKind::NotFound);
    }
}

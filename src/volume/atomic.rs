//! A directory of files that change all at once: `..data` points to a directory with the files, and
//! each name to the file in `..data`. A change makes a new directory and moves the pointer, so that
//! no reader sees half of it (pkg/volume/util/atomic_writer.go).

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};

const DATA: &str = "..data";
const NEW_DATA: &str = "..data_tmp";

/// A file of such a volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content {
    pub bytes: Vec<u8>,
    pub mode: u32,
}

/// The files by their paths, which are relative and go nowhere but down.
pub type Payload = BTreeMap<PathBuf, Content>;

/// Makes `directory` hold `payload` and nothing else. Returns whether anything changed.
///
/// # Errors
/// When it can't be written; then the files are as they were.
pub fn write(directory: &Path, payload: &Payload) -> io::Result<bool> {
    if let Some(bad) = payload.keys().find(|path| !is_safe(path)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("unsafe path {}", bad.display())));
    }
    let old = fs::read_link(directory.join(DATA)).ok();
    if old.as_ref().is_some_and(|old| holds(&directory.join(old), payload)) {
        link_names(directory, payload)?;
        return Ok(false);
    }
    let version = make_version(directory, payload)?;
    let pointer = directory.join(NEW_DATA);
    remove_if_there(&pointer)?;
    symlink(&version, &pointer)?;
    fs::rename(&pointer, directory.join(DATA))?;
    link_names(directory, payload)?;
    drop_stale(directory, &version)?;
    Ok(true)
}

fn is_safe(path: &Path) -> bool {
    let mut parts = path.components().peekable();
    parts.peek().is_some()
        && parts.all(|part| matches!(part, Component::Normal(name) if !name.to_string_lossy().starts_with("..")))
}

fn holds(version: &Path, payload: &Payload) -> bool {
    let same = |(path, content): (&PathBuf, &Content)| {
        let path = version.join(path);
        let mode = fs::symlink_metadata(&path).map(|m| m.permissions().mode() & 0o7777);
        mode.is_ok_and(|mode| mode == content.mode) && fs::read(&path).is_ok_and(|bytes| bytes == content.bytes)
    };
    payload.iter().all(same) && count_files(version).is_ok_and(|n| n == payload.len())
}

fn count_files(directory: &Path) -> io::Result<usize> {
    let mut n = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        n += if entry.file_type()?.is_dir() { count_files(&entry.path())? } else { 1 };
    }
    Ok(n)
}

/// A new directory with the files, under a name that was never used here.
fn make_version(directory: &Path, payload: &Payload) -> io::Result<PathBuf> {
    let mut n: u64 = 0;
    let name = loop {
        let name = PathBuf::from(format!("..v{n}"));
        match fs::create_dir(directory.join(&name)) {
            Ok(()) => break name,
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => n += 1,
            Err(e) => return Err(e),
        }
    };
    let version = directory.join(&name);
    fs::set_permissions(&version, fs::Permissions::from_mode(0o755))?;
    for (path, content) in payload {
        let path = version.join(path);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        fs::write(&path, &content.bytes)?;
        fs::set_permissions(&path, fs::Permissions::from_mode(content.mode))?;
    }
    Ok(name)
}

/// The links that readers use; those of names that are no more are removed.
fn link_names(directory: &Path, payload: &Payload) -> io::Result<()> {
    let first = |path: &PathBuf| path.components().next().map(|c| PathBuf::from(c.as_os_str()));
    let names: std::collections::BTreeSet<PathBuf> = payload.keys().filter_map(first).collect();
    for name in &names {
        let target = Path::new(DATA).join(name);
        let link = directory.join(name);
        if fs::read_link(&link).ok().as_ref() != Some(&target) {
            remove_if_there(&link)?;
            symlink(&target, &link)?;
        }
    }
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        if !name.to_string_lossy().starts_with("..") && !names.contains(Path::new(&name)) {
            remove_if_there(&entry.path())?;
        }
    }
    Ok(())
}

fn drop_stale(directory: &Path, current: &Path) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let stale = name.to_string_lossy().starts_with("..") && *name != *current.as_os_str() && *name != *DATA;
        if stale && entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        }
    }
    Ok(())
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
        result => result,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(files: &[(&str, &str, u32)]) -> Payload {
        let content = |text: &str, mode| Content { bytes: text.as_bytes().to_vec(), mode };
        files.iter().map(|(path, text, mode)| (PathBuf::from(path), content(text, *mode))).collect()
    }

    fn read(dir: &Path, name: &str) -> String {
        fs::read_to_string(dir.join(name)).expect("reads")
    }

    #[test]
    fn files_change_together() {
        let dir = tempfile::tempdir().expect("a directory");
        let dir = dir.path();
        assert!(write(dir, &payload(&[("a", "1", 0o644), ("sub/b", "2", 0o440)])).expect("writes"));
        assert_eq!((read(dir, "a"), read(dir, "sub/b")), ("1".into(), "2".into()));
        let mode = fs::metadata(dir.join("sub/b")).expect("is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o440);
        assert!(!write(dir, &payload(&[("a", "1", 0o644), ("sub/b", "2", 0o440)])).expect("writes"));
        let open = fs::read_link(dir.join(DATA)).expect("a link");
        assert!(write(dir, &payload(&[("a", "3", 0o644), ("c", "", 0o600)])).expect("writes"));
        assert_ne!(fs::read_link(dir.join(DATA)).expect("a link"), open);
        assert_eq!((read(dir, "a"), read(dir, "c")), ("3".into(), String::new()));
        let mut names: Vec<_> = fs::read_dir(dir)
            .expect("reads")
            .map(|e| e.expect("reads").file_name().into_string().expect("text"))
            .collect();
        names.sort();
        assert_eq!(names, ["..data", "..v1", "a", "c"]);
    }

    #[test]
    fn a_lost_link_is_mended_and_a_changed_mode_is_a_change() {
        let dir = tempfile::tempdir().expect("a directory");
        let dir = dir.path();
        write(dir, &payload(&[("a", "1", 0o644)])).expect("writes");
        fs::remove_file(dir.join("a")).expect("removes");
        assert!(!write(dir, &payload(&[("a", "1", 0o644)])).expect("writes"));
        assert_eq!(read(dir, "a"), "1");
        assert!(write(dir, &payload(&[("a", "1", 0o600)])).expect("writes"));
    }

    #[test]
    fn paths_lead_nowhere_but_down() {
        let dir = tempfile::tempdir().expect("a directory");
        for path in ["../x", "/x", "a/../../x", "..x", "a/..b", ""] {
            let refused = write(dir.path(), &payload(&[(path, "1", 0o644)])).expect_err(path);
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{path}");
        }
    }
}

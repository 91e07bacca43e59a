//! A directory of files that change all at once: `..data` points to a directory with the files, and
//! each name to the file in `..data`. A change makes a new directory and moves the pointer, so that
//! no reader sees half of it (pkg/volume/util/atomic_writer.go).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::fs;
use std::io;
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, PermissionsExt, fchown, symlink};
use std::path::{Component, Path, PathBuf};

use super::ownership::{self, Group};
use crate::disk;

const DATA: &str = "..data";
const NEW_DATA: &str = "..data_tmp";

/// A file of such a volume. What is in it may be secret, and is not shown.
#[derive(Clone, PartialEq, Eq)]
pub struct Content {
    pub bytes: Vec<u8>,
    pub mode: u32,
    /// `None`: the agent.
    pub owner: Option<u32>,
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "({} bytes, mode {:o})", self.bytes.len(), self.mode)
    }
}

/// The files by their paths, which are relative and go nowhere but down.
pub type Payload = BTreeMap<PathBuf, Content>;

/// Whether `directory` was written to before.
pub fn is_written(directory: &Path) -> bool {
    directory.join(DATA).is_dir()
}

/// Makes `directory` hold `payload` and nothing else, all of it the group's. Returns whether
/// anything changed.
///
/// # Errors
/// When it can't be written; then the files are as they were.
pub fn write(directory: &Path, payload: &Payload, group: Option<Group>) -> io::Result<bool> {
    if let Some(bad) = payload.keys().find(|path| !is_safe(path)) {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, format!("unsafe path {}", bad.display())));
    }
    group.map_or(Ok(()), |group| ownership::take_path(directory, group))?;
    let old = fs::read_link(directory.join(DATA)).ok();
    let version = match old.filter(|old| holds(&directory.join(old), payload, group)) {
        Some(version) => version,
        None => {
            let version = make_version(directory, payload, group)?;
            let pointer = directory.join(NEW_DATA);
            remove_if_there(&pointer)?;
            symlink(&version, &pointer)?;
            fs::rename(&pointer, directory.join(DATA))?;
            link_names(directory, payload)?;
            drop_stale(directory, &version)?;
            return Ok(true);
        }
    };
    link_names(directory, payload)?;
    // What a power cut left behind.
    drop_stale(directory, &version)?;
    Ok(false)
}

fn is_safe(path: &Path) -> bool {
    let mut parts = path.components().peekable();
    parts.peek().is_some()
        && parts.all(|part| matches!(part, Component::Normal(name) if !name.to_string_lossy().starts_with("..")))
}

fn holds(version: &Path, payload: &Payload, group: Option<Group>) -> bool {
    let same = |(path, content): (&PathBuf, &Content)| {
        let path = version.join(path);
        let owned = |meta: fs::Metadata| {
            meta.mode() & 0o7777 == file_mode(content.mode, group)
                && group.is_none_or(|g| g.gid == meta.gid())
                && content.owner.is_none_or(|owner| owner == meta.uid())
        };
        fs::symlink_metadata(&path).is_ok_and(owned) && fs::read(&path).is_ok_and(|bytes| bytes == content.bytes)
    };
    payload.iter().all(same) && count_files(version).is_ok_and(|n| n == payload.len())
}

fn file_mode(mode: u32, group: Option<Group>) -> u32 {
    group.map_or(mode, |group| group.file_mode(mode))
}

fn count_files(directory: &Path) -> io::Result<usize> {
    let mut n = 0;
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        n += if entry.file_type()?.is_dir() { count_files(&entry.path())? } else { 1 };
    }
    Ok(n)
}

/// A new directory with the files, under a name that is free.
fn make_version(directory: &Path, payload: &Payload, group: Option<Group>) -> io::Result<PathBuf> {
    let mut n: u64 = 0;
    let name = loop {
        let name = PathBuf::from(format!("..v{n}"));
        match fs::create_dir(directory.join(&name)) {
            Ok(()) => break name,
            Err(e) if e.kind() == io::ErrorKind::AlreadyExists => n += 1,
            Err(e) => return Err(e),
        }
    };
    let result = fill(&directory.join(&name), payload, group);
    if result.is_err() {
        // A full volume must not keep a part of what it could not take.
        let _ = disk::remove_tree(&directory.join(&name));
    }
    result.map(|()| name)
}

fn fill(version: &Path, payload: &Payload, group: Option<Group>) -> io::Result<()> {
    let mut directories = BTreeSet::from([version.to_owned()]);
    for (path, content) in payload {
        let path = version.join(path);
        let above = path.ancestors().skip(1).take_while(|above| above.starts_with(version));
        directories.extend(above.map(Path::to_owned));
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent)?;
        }
        let mut file = fs::File::options().write(true).create_new(true).mode(0o600).open(&path)?;
        io::Write::write_all(&mut file, &content.bytes)?;
        content.owner.map_or(Ok(()), |owner| fchown(&file, Some(owner), None))?;
        file.set_permissions(fs::Permissions::from_mode(content.mode))?;
        group.map_or(Ok(()), |group| ownership::take(&file, group))?;
    }
    for directory in directories {
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o755))?;
        group.map_or(Ok(()), |group| ownership::take_path(&directory, group))?;
    }
    Ok(())
}

/// The links that readers use; those of names that are no more are removed.
fn link_names(directory: &Path, payload: &Payload) -> io::Result<()> {
    let first = |path: &PathBuf| path.components().next().map(|c| PathBuf::from(c.as_os_str()));
    let names: BTreeSet<PathBuf> = payload.keys().filter_map(first).collect();
    for name in &names {
        let target = Path::new(DATA).join(name);
        let link = directory.join(name);
        if fs::read_link(&link).ok().as_ref() == Some(&target) {
            continue;
        }
        match link.symlink_metadata().is_ok_and(|meta| meta.is_dir()) {
            // Made for a subPath whose key was not there yet.
            true => fs::remove_dir(&link)?,
            false => remove_if_there(&link)?,
        }
        symlink(&target, &link)?;
    }
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let ours = !name.to_string_lossy().starts_with("..") && !entry.file_type()?.is_dir();
        if ours && !names.contains(Path::new(&name)) {
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
        if stale {
            disk::remove_tree(&entry.path())?;
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
        let content = |text: &str, mode| Content { bytes: text.as_bytes().to_vec(), mode, owner: None };
        files.iter().map(|(path, text, mode)| (PathBuf::from(path), content(text, *mode))).collect()
    }

    fn read(dir: &Path, name: &str) -> String {
        fs::read_to_string(dir.join(name)).expect("reads")
    }

    #[test]
    fn files_change_together() {
        let dir = tempfile::tempdir().expect("a directory");
        let dir = dir.path();
        assert!(write(dir, &payload(&[("a", "1", 0o644), ("sub/b", "2", 0o440)]), None).expect("writes"));
        assert_eq!((read(dir, "a"), read(dir, "sub/b")), ("1".into(), "2".into()));
        let mode = fs::metadata(dir.join("sub/b")).expect("is there").permissions().mode();
        assert_eq!(mode & 0o777, 0o440);
        assert!(!write(dir, &payload(&[("a", "1", 0o644), ("sub/b", "2", 0o440)]), None).expect("writes"));
        let open = fs::read_link(dir.join(DATA)).expect("a link");
        assert!(write(dir, &payload(&[("a", "3", 0o644), ("c", "", 0o600)]), None).expect("writes"));
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
        write(dir, &payload(&[("a", "1", 0o644)]), None).expect("writes");
        fs::remove_file(dir.join("a")).expect("removes");
        assert!(!write(dir, &payload(&[("a", "1", 0o644)]), None).expect("writes"));
        assert_eq!(read(dir, "a"), "1");
        assert!(write(dir, &payload(&[("a", "1", 0o600)]), None).expect("writes"));
    }

    #[test]
    fn paths_lead_nowhere_but_down() {
        let dir = tempfile::tempdir().expect("a directory");
        for path in ["../x", "/x", "a/../../x", "..x", "a/..b", ""] {
            let refused = write(dir.path(), &payload(&[(path, "1", 0o644)]), None).expect_err(path);
            assert_eq!(refused.kind(), io::ErrorKind::InvalidInput, "{path}");
        }
    }
}

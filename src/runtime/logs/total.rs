//! The limit on the logs of all pods together, for small disks.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// What came of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limited {
    /// Files.
    pub removed: usize,
    /// Bytes over the limit that only living logs hold.
    pub excess: u64,
}

/// A file of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
struct LogFile {
    path: PathBuf,
    /// Bytes on the disk.
    size: u64,
    /// When it was put aside, from its name; the log that is being written has none.
    aside: Option<String>,
}

/// Removes files that were put aside, the oldest of all first, until all logs in `directory` have no
/// more than `max` bytes.
///
/// # Errors
/// When the directory can't be read.
pub fn limit(directory: &Path, max: u64) -> io::Result<Limited> {
    let (remove, excess) = plan(files(directory)?, max);
    let mut removed = 0;
    for path in remove {
        match fs::remove_file(&path) {
            Ok(()) => removed += 1,
            // Its pod went meanwhile.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => log::warn!("removing {}: {e}", path.display()),
        }
    }
    Ok(Limited { removed, excess })
}

/// What is to be removed, and how many bytes are too many even then.
fn plan(files: Vec<LogFile>, max: u64) -> (Vec<PathBuf>, u64) {
    let total: u64 = files.iter().map(|file| file.size).sum();
    let mut excess = total.saturating_sub(max);
    let mut aside: Vec<_> = files.into_iter().filter(|file| file.aside.is_some()).collect();
    aside.sort_by(|a, b| a.aside.cmp(&b.aside).then_with(|| a.path.cmp(&b.path)));
    let mut remove = Vec::new();
    for file in aside {
        if excess == 0 {
            break;
        }
        excess = excess.saturating_sub(file.size);
        remove.push(file.path);
    }
    (remove, excess)
}

/// All files of all logs: `POD/CONTAINER/N.log`, and what was put aside of it.
fn files(directory: &Path) -> io::Result<Vec<LogFile>> {
    let mut files = Vec::new();
    for pod in fs::read_dir(directory)? {
        for container in entries(&pod?.path()) {
            files.extend(entries(&container).into_iter().filter_map(log_file));
        }
    }
    Ok(files)
}

/// What is in a directory; nothing when it has gone, or is none.
fn entries(directory: &Path) -> Vec<PathBuf> {
    let is_link = fs::symlink_metadata(directory).is_ok_and(|meta| meta.file_type().is_symlink());
    match fs::read_dir(directory) {
        Ok(entries) if !is_link => entries.flatten().map(|entry| entry.path()).collect(),
        _ => Vec::new(),
    }
}

fn log_file(path: PathBuf) -> Option<LogFile> {
    use std::os::unix::fs::MetadataExt;
    let meta = fs::symlink_metadata(&path).ok().filter(fs::Metadata::is_file)?;
    let name = path.file_name()?.to_str()?;
    let (number, rest) = name.split_once(".log")?;
    let aside = rest.strip_prefix('.').map(str::to_owned);
    let ours = number.bytes().all(|b| b.is_ascii_digit()) && (rest.is_empty() || aside.is_some());
    ours.then(|| LogFile { path: path.clone(), size: meta.blocks() * 512, aside })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(name: &str, size: u64) -> LogFile {
        let aside = name.split_once(".log.").map(|(_, stamp)| stamp.to_owned());
        LogFile { path: name.into(), size, aside }
    }

    #[test]
    fn what_is_removed() {
        let files = || {
            vec![
                file("a/0.log", 50),
                file("a/0.log.20240101-000002", 30),
                file("a/0.log.20240101-000000.gz", 10),
                file("b/1.log", 40),
                file("b/1.log.20240101-000001", 20),
            ]
        };
        let table: [(u64, &[&str], u64); 6] = [
            (150, &[], 0),
            (149, &["a/0.log.20240101-000000.gz"], 0),
            (140, &["a/0.log.20240101-000000.gz"], 0),
            (139, &["a/0.log.20240101-000000.gz", "b/1.log.20240101-000001"], 0),
            (90, &["a/0.log.20240101-000000.gz", "b/1.log.20240101-000001", "a/0.log.20240101-000002"], 0),
            (60, &["a/0.log.20240101-000000.gz", "b/1.log.20240101-000001", "a/0.log.20240101-000002"], 30),
        ];
        for (max, remove, excess) in table {
            let remove: Vec<_> = remove.iter().map(PathBuf::from).collect();
            assert_eq!(plan(files(), max), (remove, excess), "{max}");
        }
    }

    #[test]
    fn only_logs_are_touched() {
        let dir = tempfile::tempdir().expect("a directory");
        let container = dir.path().join("ns_pod_uid/main");
        let outside = tempfile::tempdir().expect("a directory");
        fs::create_dir_all(&container).expect("makes");
        let big = vec![b'x'; 64 << 10];
        for name in ["0.log", "0.log.20240101-000000", "0.log.20240101-000001.gz", "other", "x.log.1"] {
            fs::write(container.join(name), &big).expect("writes");
        }
        fs::write(outside.path().join("0.log.20240101-000000"), &big).expect("writes");
        std::os::unix::fs::symlink(outside.path(), dir.path().join("ns_pod_uid/link")).expect("links");
        let limited = limit(dir.path(), 1).expect("reads");
        assert_eq!((limited.removed, limited.excess), (2, (64 << 10) - 1));
        let mut left: Vec<_> = fs::read_dir(&container).expect("reads").flatten().map(|e| e.file_name()).collect();
        left.sort();
        assert_eq!(left, ["0.log", "other", "x.log.1"]);
        assert!(outside.path().join("0.log.20240101-000000").exists());
    }
}

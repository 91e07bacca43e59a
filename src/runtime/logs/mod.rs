//! Rotation of container logs (pkg/kubelet/logs/container_log_manager.go): a log that has grown too
//! long is put aside under the time of day, compressed when the next one is, and removed when there
//! are too many. The whole node has a limit too (`--container-log-max-total-size`), which the
//! kubelet lacks.

pub mod read;
pub mod record;
mod tail;
mod total;

use std::fs::{self, File};
use std::io::{self, BufReader, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crossbeam::channel::{Receiver, select, tick};
use flate2::Compression;
use flate2::write::GzEncoder;
use jiff::Timestamp;

use crate::cri::{ContainerId, Cri};
use crate::pleg::Cache;

const COMPRESSED: &str = ".gz";
/// A file that is being written; one that is found was left by an agent that was killed.
const UNFINISHED: &str = ".tmp";

pub struct Rotation {
    pub cri: Arc<dyn Cri>,
    pub cache: Arc<Cache>,
    /// Bytes from which on a log is rotated.
    pub max_size: u64,
    /// Files a container has, the one being written included.
    pub max_files: usize,
    /// Bytes that the logs of all pods may have; `None` is no limit.
    pub max_total: Option<u64>,
    /// Where the logs of all pods are.
    pub directory: PathBuf,
}

impl Rotation {
    /// Looks at all logs in each `interval`, until the sender of `stop` is gone.
    pub fn run(self, interval: Duration, stop: &Receiver<()>) {
        let ticks = tick(interval);
        loop {
            select! {
                recv(stop) -> _ => return,
                recv(ticks) -> _ => {
                    self.look();
                    self.limit();
                }
            }
        }
    }

    fn look(&self) {
        let max_size = self.max_total.map_or(self.max_size, |total| share(self.max_size, total, self.count()));
        for uid in self.cache.uids() {
            let Some((observed, _)) = self.cache.get(&uid) else { return };
            for c in observed.containers.iter().filter(|c| c.is_running() && !c.status.log_path.is_empty()) {
                let path = Path::new(&c.status.log_path);
                if fs::metadata(path).is_ok_and(|meta| meta.len() < max_size) {
                    continue;
                }
                if let Err(e) = self.rotate(&c.status.container.id, path) {
                    let container = &c.status.container;
                    log::warn!("{}: rotating the log of {}: {e}", container.pod.name, container.name);
                }
            }
        }
    }

    /// Logs that are being written.
    fn count(&self) -> u64 {
        let pods = self.cache.uids().into_iter().filter_map(|uid| self.cache.get(&uid));
        pods.map(|(observed, _)| observed.containers.iter().filter(|c| c.is_running()).count() as u64).sum()
    }

    fn rotate(&self, id: &ContainerId, log: &Path) -> io::Result<()> {
        if !log.try_exists()? {
            // Whoever removed it: the runtime makes it again when asked to.
            return self.reopen(id);
        }
        let plan = plan(rotated(log)?, self.max_files);
        for path in plan.remove {
            fs::remove_file(path)?;
        }
        for path in plan.compress {
            compress(&path)?;
        }
        let aside = with_suffix(log, &format!(".{}", stamp(Timestamp::now(), &rotated(log)?)));
        fs::rename(log, &aside)?;
        self.reopen(id).inspect_err(|_| {
            // The runtime still writes to the file that was put aside.
            if let Err(e) = fs::rename(&aside, log) {
                log::warn!("{}: {e}", aside.display());
            }
        })
    }

    /// Makes room when all logs together are too large: what was put aside goes, the oldest of all
    /// first. What is being written stays, so that of each container the last lines are there.
    fn limit(&self) {
        let Some(max_total) = self.max_total else { return };
        match total::limit(&self.directory, max_total) {
            Ok(total::Limited { removed: 0, .. }) => {}
            Ok(total::Limited { removed, .. }) => {
                log::info!("removed {removed} old log files, to keep all logs below {max_total} bytes");
            }
            Err(e) => log::warn!("limiting the logs in {}: {e}", self.directory.display()),
        }
    }

    fn reopen(&self, id: &ContainerId) -> io::Result<()> {
        self.cri.reopen_container_log(id).map_err(io::Error::other)
    }
}

/// The size from which on a log is rotated when all logs together may have `total` bytes: those that
/// are being written take no more than half of it, so that there is something that can be removed.
fn share(max_size: u64, total: u64, logs: u64) -> u64 {
    max_size.min(total / 2 / logs.max(1)).max(1)
}

/// The name of a log that is put aside now: the time of day, and after those that were put aside
/// before even when the clock was turned back, since the order of the names is that of the lines.
fn stamp(now: Timestamp, before: &[PathBuf]) -> String {
    const FORMAT: &str = "%Y%m%d-%H%M%S";
    let time = |path: &PathBuf| {
        let name = path.file_name()?.to_str()?.trim_end_matches(UNFINISHED).trim_end_matches(COMPRESSED);
        let time = jiff::civil::DateTime::strptime(FORMAT, name.rsplit('.').next()?).ok()?;
        time.to_zoned(jiff::tz::TimeZone::UTC).ok().map(|zoned| zoned.timestamp())
    };
    let after = before.iter().filter_map(time).max().map(|last| last + jiff::SignedDuration::from_secs(1));
    after.map_or(now, |after| after.max(now)).strftime(FORMAT).to_string()
}

/// What is to be done with the files of a log before it is rotated.
#[derive(Debug, Default, PartialEq)]
struct Plan {
    remove: Vec<PathBuf>,
    compress: Vec<PathBuf>,
}

/// `files`: what was put aside before, oldest first, which is by name. One more is about to come.
fn plan(files: Vec<PathBuf>, max_files: usize) -> Plan {
    let has = |path: &PathBuf, suffix: &str| path.to_string_lossy().ends_with(suffix);
    let (mut remove, kept): (Vec<_>, Vec<_>) = files.iter().cloned().partition(|path| {
        // Its compression was finished, but not its removal.
        has(path, UNFINISHED) || (!has(path, COMPRESSED) && files.contains(&with_suffix(path, COMPRESSED)))
    });
    // One place is that of the log, one that of what is put aside now.
    let surplus = kept.len().saturating_sub(max_files.saturating_sub(2));
    let mut kept = kept.into_iter();
    remove.extend(kept.by_ref().take(surplus));
    Plan { remove, compress: kept.filter(|path| !has(path, COMPRESSED)).collect() }
}

/// All files of a log but itself.
pub fn rotated(log: &Path) -> io::Result<Vec<PathBuf>> {
    let (Some(directory), Some(name)) = (log.parent(), log.file_name()) else { return Ok(Vec::new()) };
    let prefix = format!("{}.", name.to_string_lossy());
    let mut files = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if entry.file_name().to_string_lossy().starts_with(&prefix) {
            files.push(entry.path());
        }
    }
    files.sort();
    Ok(files)
}

fn compress(path: &Path) -> io::Result<()> {
    let unfinished = with_suffix(path, UNFINISHED);
    let mut from = BufReader::new(File::open(path)?);
    let mut to = GzEncoder::new(File::create(&unfinished)?, Compression::default());
    io::copy(&mut from, &mut to)?;
    to.finish()?.flush()?;
    fs::rename(&unfinished, with_suffix(path, COMPRESSED))?;
    fs::remove_file(path)
}

fn with_suffix(path: &Path, suffix: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(suffix);
    name.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Read;

    #[test]
    fn what_is_removed_and_what_is_compressed() {
        let paths = |names: &[&str]| names.iter().map(PathBuf::from).collect::<Vec<_>>();
        type Names = &'static [&'static str];
        let table: [(Names, usize, Names, Names); 7] = [
            (&[], 5, &[], &[]),
            (&["0.log.1"], 5, &[], &["0.log.1"]),
            (&["0.log.1.gz", "0.log.2"], 5, &[], &["0.log.2"]),
            (&["0.log.1.gz", "0.log.2.gz", "0.log.3.gz", "0.log.4"], 5, &["0.log.1.gz"], &["0.log.4"]),
            (&["0.log.1", "0.log.1.gz", "0.log.2.tmp"], 5, &["0.log.1", "0.log.2.tmp"], &[]),
            (&["0.log.1.gz", "0.log.2"], 2, &["0.log.1.gz", "0.log.2"], &[]),
            (&["0.log.1"], 3, &[], &["0.log.1"]),
        ];
        for (files, max, remove, compress) in table {
            let want = Plan { remove: paths(remove), compress: paths(compress) };
            assert_eq!(plan(paths(files), max), want, "{files:?} of {max}");
        }
    }

    #[test]
    fn a_log_s_share_of_the_node_s_limit() {
        for (max_size, total, logs, want) in [(10, 100, 0, 10), (10, 100, 5, 10), (10, 100, 10, 5), (10, 1, 10, 1)] {
            assert_eq!(share(max_size, total, logs), want, "{total} for {logs}");
        }
    }

    #[test]
    fn names_are_in_order_whatever_the_clock_does() {
        let now: Timestamp = "2024-05-06T07:08:09Z".parse().expect("a time");
        let table: [(&[&str], &str); 6] = [
            (&[], "20240506-070809"),
            (&["0.log.20240506-070808.gz"], "20240506-070809"),
            (&["0.log.20240506-070809"], "20240506-070810"),
            (&["0.log.20240506-070809.gz", "0.log.20240506-070810"], "20240506-070811"),
            (&["0.log.20300101-000000"], "20300101-000001"),
            (&["0.log.other", "0.log.20200101-000000.tmp"], "20240506-070809"),
        ];
        for (before, want) in table {
            let before: Vec<_> = before.iter().map(PathBuf::from).collect();
            assert_eq!(stamp(now, &before), want, "{before:?}");
        }
    }

    #[test]
    fn a_compressed_log_is_the_same_log() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("0.log.1");
        let text = "a line\n".repeat(10_000);
        fs::write(&path, &text).expect("writes");
        compress(&path).expect("compresses");
        let log = dir.path().join("0.log");
        assert_eq!(rotated(&log).expect("lists"), [dir.path().join("0.log.1.gz")]);
        let file = File::open(dir.path().join("0.log.1.gz")).expect("opens");
        let mut back = String::new();
        flate2::read::GzDecoder::new(file).read_to_string(&mut back).expect("reads");
        assert_eq!(back, text);
    }
}

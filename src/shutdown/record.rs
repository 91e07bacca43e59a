//! When the node last shut down: in its metrics, and on disk, where the kubelet has it.

use std::path::{Path, PathBuf};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::disk;
use crate::metrics::METRICS;

/// Bytes of the file.
const MAX_FILE: u64 = 4096;

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Times {
    start_time: Option<Timestamp>,
    /// When all pods had ended, or had had their time.
    end_time: Option<Timestamp>,
}

#[derive(Debug, Clone)]
pub struct Record {
    path: PathBuf,
    times: Times,
}

impl Record {
    /// With the times of the last shutdown, which the metrics show from now on.
    pub fn open(root: &Path) -> Record {
        let path = root.join("graceful_node_shutdown_state");
        let times = match disk::read(&path, MAX_FILE) {
            Ok(text) => serde_json::from_slice(&text).unwrap_or_else(|e| {
                log::warn!("{}: {e}", path.display());
                Times::default()
            }),
            Err(e) => {
                if e.kind() != std::io::ErrorKind::NotFound {
                    log::warn!("reading {}: {e}", path.display());
                }
                Times::default()
            }
        };
        let record = Record { path, times };
        record.show();
        record
    }

    /// It begins.
    pub fn begin(&mut self, now: Timestamp) {
        self.times = Times { start_time: Some(now), end_time: None };
        self.show();
    }

    /// It is through.
    pub fn end(&mut self, now: Timestamp) {
        self.times.end_time = Some(now);
        self.show();
    }

    fn show(&self) {
        let seconds = |at: Option<Timestamp>| at.map_or(0.0, |at| at.as_duration().as_secs_f64());
        METRICS.shutdown_start.set(seconds(self.times.start_time));
        METRICS.shutdown_end.set(seconds(self.times.end_time));
    }

    /// Writes it to disk; a disk that can't be written costs no more than that.
    pub fn write(&self) {
        let text = serde_json::to_vec(&self.times).map_err(std::io::Error::from);
        if let Err(e) = text.and_then(|text| disk::write_atomic(&self.path, &text, 0o600)) {
            log::warn!("writing {}: {e}", self.path.display());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_known_after_the_reboot() {
        let dir = tempfile::tempdir().expect("a directory");
        let at = |s| Timestamp::from_second(s).expect("in range");
        let mut record = Record::open(dir.path());
        assert_eq!(record.times, Times::default());
        record.begin(at(100));
        record.end(at(130));
        record.write();
        let times = Record::open(dir.path()).times;
        assert_eq!(times, Times { start_time: Some(at(100)), end_time: Some(at(130)) });
        record.begin(at(200));
        record.write();
        assert_eq!(Record::open(dir.path()).times.end_time, None);
        for text in ["{", "{\"startTime\": 5}", "", "[]"] {
            std::fs::write(&record.path, text).expect("writes");
            assert_eq!(Record::open(dir.path()).times, Times::default(), "{text}");
        }
    }
}

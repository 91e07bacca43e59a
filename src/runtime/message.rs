//! What a container says when it ends: its termination message, else the end of its log
//! (pkg/kubelet/kuberuntime/kuberuntime_container.go `getTerminationMessage`).

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::Runtime;
use super::memory::Memory;
use crate::cri::ContainerState;
use crate::pleg::{Observed, ObservedContainer};
use crate::pod::PodUid;

/// Bytes of a termination message, its last ones.
const MAX_MESSAGE: u64 = 4096;
/// Of a log that stands in for one.
const MAX_LOG_LINES: usize = 80;
const MAX_LOG_BYTES: usize = 2048;
/// What of the log's end is looked at for them.
const LOG_TAIL: u64 = 64 << 10;

impl Runtime {
    /// Reads what containers that have ended left behind, once for each.
    pub(super) fn read_messages(&self, uid: &PodUid, memory: &mut Memory, observed: &Observed) {
        for c in observed.containers.iter().filter(|c| c.state() == ContainerState::Exited) {
            let id = &c.status.container.id;
            if !memory.messages.contains_key(id) {
                memory.messages.insert(id.clone(), self.message(uid, c));
            }
        }
        memory.messages.retain(|id, _| observed.containers.iter().any(|c| c.status.container.id == *id));
    }

    fn message(&self, uid: &PodUid, c: &ObservedContainer) -> String {
        let container = &c.status.container;
        let path = self.node.paths.termination_log(uid, &container.name, container.notes.restart_count);
        let own = match container.notes.termination_message_path.is_empty() {
            true => String::new(),
            false => told(&path, tail(&path, MAX_MESSAGE)),
        };
        let fall_back = container.notes.termination_message_policy == "FallbackToLogsOnError";
        if !own.is_empty() || !fall_back || c.status.exit_code == 0 || c.status.log_path.is_empty() {
            return own;
        }
        let path = Path::new(&c.status.log_path);
        end_of_log(&told(path, tail(path, LOG_TAIL)))
    }
}

fn told(path: &Path, read: io::Result<String>) -> String {
    read.unwrap_or_else(|e| {
        if e.kind() != io::ErrorKind::NotFound {
            log::debug!("{}: {e}", path.display());
        }
        String::new()
    })
}

/// The last `max` bytes of a file.
fn tail(path: &Path, max: u64) -> io::Result<String> {
    let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
    let mut file = File::options().read(true).custom_flags(i32::try_from(flags.bits()).unwrap_or(0)).open(path)?;
    let length = file.metadata()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(max)))?;
    let mut bytes = Vec::new();
    file.take(max).read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// The last lines of a log in the runtime's format, without what the runtime put before them.
fn end_of_log(log: &str) -> String {
    let mut lines: Vec<String> = Vec::new();
    let mut partial = false;
    for line in log.lines() {
        let mut fields = line.splitn(4, ' ');
        let (Some(_), Some(_), Some(tag), Some(text)) = (fields.next(), fields.next(), fields.next(), fields.next())
        else {
            continue;
        };
        match lines.last_mut().filter(|_| partial) {
            Some(last) => last.push_str(text),
            None => lines.push(text.to_owned()),
        }
        partial = tag == "P";
    }
    let skip = lines.len().saturating_sub(MAX_LOG_LINES);
    let text: String = lines.iter().skip(skip).map(|line| format!("{line}\n")).collect();
    let from = text.len().saturating_sub(MAX_LOG_BYTES);
    let from = (from..=text.len()).find(|i| text.is_char_boundary(*i)).unwrap_or(text.len());
    text.get(from..).unwrap_or_default().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_a_log() {
        let log = "t0\nt1 stdout F one\nt2 stderr P two-\nt3 stderr F half\nt4 stdout F \n";
        assert_eq!(end_of_log(log), "one\ntwo-half\n\n");
        let long: String = (0..100).map(|i| format!("t stdout F line {i}\n")).collect();
        let end = end_of_log(&long);
        assert_eq!(end.lines().count(), 80);
        assert!(end.starts_with("line 20\n") && end.ends_with("line 99\n"));
        let wide = format!("t stdout F {}\n", "é".repeat(2000));
        assert!(end_of_log(&wide).len() <= MAX_LOG_BYTES);
    }

    #[test]
    fn the_tail_of_a_file() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("f");
        std::fs::write(&path, "0123456789").expect("writes");
        assert_eq!(tail(&path, 4).expect("reads"), "6789");
        assert_eq!(tail(&path, 40).expect("reads"), "0123456789");
        let link = dir.path().join("link");
        std::os::unix::fs::symlink(&path, &link).expect("links");
        assert!(tail(&link, 4).is_err(), "no link is followed");
    }
}

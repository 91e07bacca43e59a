//! The events of this node: taken on a thread of their own, so that nobody who records one waits, and
//! written to disk rarely, since that may be an SD card.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, RecvTimeoutError, bounded};
use parking_lot::Mutex;

use super::{Event, Occurrence, RECORDED, Recorder};
use crate::disk;
use crate::pod::{PodName, PodUid};

/// What waits to be taken.
const CHANNEL: usize = 256;
/// Events on disk, and the bytes that a file of them may have.
const ON_DISK: usize = 300;
const MAX_FILE: u64 = 2 << 20;
/// The least time between two writes.
const WRITE_EVERY: Duration = Duration::from_secs(600);

/// Finds the UID of the pod that has this name now.
pub type UidOf = Box<dyn Fn(&PodName) -> Option<PodUid> + Send>;
/// Called when the events have changed; must not wait.
pub type Changed = Box<dyn Fn() + Send>;

pub struct Log {
    path: PathBuf,
    state: Mutex<State>,
}

struct State {
    recorder: Recorder,
    /// Whether the disk lacks something.
    dirty: bool,
}

impl Log {
    /// With the events that are in the file at `path`; a file that can't be read is as good as none.
    pub fn open(path: PathBuf) -> Log {
        let before = read(&path).unwrap_or_else(|e| {
            if e.kind() != io::ErrorKind::NotFound {
                log::warn!("the events in {} are lost: {e}", path.display());
            }
            Vec::new()
        });
        Log { path, state: Mutex::new(State { recorder: Recorder::new(before), dirty: false }) }
    }

    /// Takes all that is recorded from now on.
    ///
    /// # Errors
    /// When there can be no thread for it.
    pub fn start(self: &Arc<Self>, uid_of: UidOf, changed: Changed) -> io::Result<()> {
        let (recorded, occurrences) = bounded(CHANNEL);
        let log = self.clone();
        let run = move || log.run(&occurrences, &uid_of, &changed);
        std::thread::Builder::new().name("events".to_owned()).spawn(run)?;
        // A second log in one process takes nothing: its channel ends here.
        let _ = RECORDED.set(recorded);
        Ok(())
    }

    /// Those that were told of last stand last.
    pub fn events(&self) -> Vec<Arc<Event>> {
        self.state.lock().recorder.events().cloned().collect()
    }

    fn run(&self, occurrences: &Receiver<Occurrence>, uid_of: &UidOf, changed: &Changed) {
        let mut next_write = Instant::now() + WRITE_EVERY;
        loop {
            let wait = match self.state.lock().dirty {
                true => next_write.saturating_duration_since(Instant::now()),
                false => Duration::from_secs(u64::from(u32::MAX)),
            };
            match occurrences.recv_timeout(wait) {
                Ok(occurrence) => {
                    let uid = uid_of(&occurrence.pod);
                    if self.observe(occurrence, uid.as_ref()) {
                        changed();
                    }
                }
                Err(RecvTimeoutError::Timeout) => {
                    self.write();
                    next_write = Instant::now() + WRITE_EVERY;
                }
                Err(RecvTimeoutError::Disconnected) => return,
            }
        }
    }

    pub(super) fn observe(&self, occurrence: Occurrence, uid: Option<&PodUid>) -> bool {
        let mut state = self.state.lock();
        let changed = state.recorder.observe(occurrence, uid);
        state.dirty |= changed;
        changed
    }

    /// Writes what the disk lacks.
    pub fn write(&self) {
        let events: Vec<Arc<Event>> = {
            let mut state = self.state.lock();
            if !std::mem::take(&mut state.dirty) {
                return;
            }
            state.recorder.events().rev().take(ON_DISK).cloned().collect()
        };
        let events: Vec<&Event> = events.iter().rev().map(AsRef::as_ref).collect();
        let text = serde_json::to_vec(&events).map_err(io::Error::other);
        if let Err(e) = text.and_then(|text| disk::write_atomic(&self.path, &text, 0o600)) {
            log::warn!("writing the events to {}: {e}", self.path.display());
        }
    }
}

fn read(path: &Path) -> io::Result<Vec<Event>> {
    if std::fs::metadata(path)?.len() > MAX_FILE {
        return Err(io::Error::other("the file is too large"));
    }
    serde_json::from_slice(&std::fs::read(path)?).map_err(io::Error::other)
}

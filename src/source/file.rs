//! The file source: a thread that watches a directory of manifests (or one file) with inotify and
//! reads all of it now and then besides. What the files mean is decided in `files`.

use std::collections::HashSet;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use rustix::event::{PollFd, PollFlags, poll};
use rustix::fs::inotify;

use super::files::{DirectoryId, Entry, FileSet, Stamp};
use super::mux::Channel;
use super::report::tell;
use super::wake;
use crate::local::{Publisher, with_classes};
use crate::pod::Pod;

/// A longer file is no manifest.
const MAX_FILE: u64 = 10 << 20;
/// While the directory can't be watched: how often to try again.
const RETRY: Duration = Duration::from_secs(1);

pub struct FileSource {
    directory: PathBuf,
    only: Option<String>,
    frequency: Duration,
    set: FileSet,
    objects: Publisher,
    channel: Channel,
    watch: Option<OwnedFd>,
}

/// What woke the thread.
#[derive(Default)]
struct Woken {
    touched: HashSet<String>,
    /// The directory is to be listed.
    look: bool,
    /// And all of its files are to be read.
    full: bool,
    stop: bool,
}

impl FileSource {
    /// `path`: a directory, or one manifest. `frequency`: between full readings.
    pub fn new(
        path: &Path,
        node_name: &str,
        frequency: Duration,
        ran_before: Vec<Arc<Pod>>,
        objects: Publisher,
        channel: Channel,
    ) -> FileSource {
        let (directory, only) = match (path.is_file(), path.parent(), path.file_name()) {
            (true, Some(parent), Some(name)) => (parent, Some(name.to_string_lossy().into_owned())),
            _ => (path, None),
        };
        let set =
            FileSet::new(&directory.to_string_lossy(), only.as_deref(), node_name, ran_before, objects.recorded());
        FileSource { directory: directory.to_owned(), only, frequency, set, objects, channel, watch: None }
    }

    /// Runs until the waker is dropped or the sync loop is gone.
    pub fn run(mut self, wake: UnixStream) {
        let mut woken = Woken { full: true, ..Woken::default() };
        let mut full_at = Instant::now();
        while !woken.stop {
            let now = Instant::now();
            if woken.full || now >= full_at {
                woken.full = true;
                full_at = now + self.frequency;
            }
            let retry = if woken.look || woken.full { self.look(&woken, now) } else { None };
            let (reports, again) = self.set.settle(now);
            reports.into_iter().for_each(tell);
            // Before the pods, which may refer to them.
            if let Some((by_place, objects)) = self.set.objects() {
                if self.objects.publish(&by_place, objects).is_err() {
                    return;
                }
            }
            if let Some(pods) = self.set.pods() {
                let objects = self.objects.objects();
                let pods = pods.into_iter().map(|pod| with_classes(pod, &objects)).collect();
                if self.channel.set(pods).is_err() {
                    return;
                }
            }
            let until = [again, retry].into_iter().flatten().fold(full_at, Instant::min);
            woken = self.wait(&wake, until);
        }
    }

    /// Reads what there is to read; returns when to try again if it could not.
    fn look(&mut self, woken: &Woken, now: Instant) -> Option<Instant> {
        // Watch first, so that nothing that changes after the listing is missed.
        let watching = self.watch();
        let listing = watching.and_then(|()| list(&self.directory, self.only.as_deref()));
        let (id, entries) = match listing {
            Ok(listing) => listing,
            Err(e) => {
                self.watch = None;
                self.set.cannot_read(&e.to_string()).into_iter().for_each(tell);
                return Some(now + RETRY);
            }
        };
        let (names, reports) = self.set.list(id, &entries, &woken.touched, woken.full, now);
        reports.into_iter().for_each(tell);
        for name in names {
            let (stamp, content) = match read(&self.directory.join(&name)) {
                Ok((stamp, text)) => (Some(stamp), Ok(text)),
                // It went between the listing and now; the next listing says so.
                Err(e) if e.kind() == io::ErrorKind::NotFound => continue,
                Err(e) => (None, Err(e.to_string())),
            };
            self.set.load(&name, stamp, content, now, Timestamp::now());
        }
        None
    }

    fn watch(&mut self) -> io::Result<()> {
        use inotify::{CreateFlags, WatchFlags as W};
        if self.watch.is_some() {
            return Ok(());
        }
        let fd = inotify::init(CreateFlags::NONBLOCK | CreateFlags::CLOEXEC)?;
        let events = W::CREATE | W::MODIFY | W::CLOSE_WRITE | W::ATTRIB | W::DELETE | W::MOVED_FROM | W::MOVED_TO;
        inotify::add_watch(&fd, &self.directory, events | W::DELETE_SELF | W::MOVE_SELF | W::ONLYDIR)?;
        self.watch = Some(fd);
        Ok(())
    }

    /// Sleeps until something happens in the directory, the waker is used, or it is time.
    fn wait(&mut self, wake: &UnixStream, until: Instant) -> Woken {
        let left = until.saturating_duration_since(Instant::now());
        // Rounded up: a wake-up too early would only spin.
        let timeout = rustix::time::Timespec {
            tv_sec: i64::try_from(left.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: i64::from(left.subsec_nanos()),
        };
        let mut fds = vec![PollFd::new(wake, PollFlags::IN)];
        fds.extend(self.watch.as_ref().map(|fd| PollFd::new(fd, PollFlags::IN)));
        let mut woken = Woken::default();
        if let Err(e) = poll(&mut fds, Some(&timeout)) {
            if e != rustix::io::Errno::INTR {
                log::error!("{}: waiting for changes: {e}", self.directory.display());
                std::thread::sleep(RETRY);
            }
            return woken;
        }
        let ready = |i: usize| fds.get(i).is_some_and(|fd: &PollFd<'_>| !fd.revents().is_empty());
        let (asked, changed) = (ready(0), ready(1));
        drop(fds);
        woken.look = !changed;
        if asked {
            match wake::asked(wake) {
                true => woken.full = true,
                false => woken.stop = true,
            }
        }
        if changed {
            self.events(&mut woken);
        }
        woken
    }

    fn events(&mut self, woken: &mut Woken) {
        use inotify::ReadFlags as R;
        let Some(fd) = self.watch.take() else { return };
        let mut lost = false;
        let mut buffer = [std::mem::MaybeUninit::uninit(); 4096];
        let mut reader = inotify::Reader::new(fd.as_fd(), &mut buffer);
        let now = Instant::now();
        // Nothing to read any more ends it, as any error does.
        while let Ok(event) = reader.next() {
            let flags = event.events();
            // The watch ends with its directory; on an overflow names were dropped.
            lost |= flags.intersects(R::IGNORED | R::UNMOUNT | R::MOVE_SELF | R::DELETE_SELF);
            woken.full |= flags.contains(R::QUEUE_OVERFLOW);
            let Some(name) = event.file_name().and_then(|n| n.to_str().ok()) else { continue };
            if flags.contains(R::MODIFY) {
                self.set.is_written(name, now);
            } else {
                self.set.is_closed(name);
                woken.touched.insert(name.to_owned());
                woken.look = true;
            }
        }
        if lost {
            woken.look = true;
        } else {
            self.watch = Some(fd);
        }
    }
}

fn list(directory: &Path, only: Option<&str>) -> io::Result<(DirectoryId, Vec<Entry>)> {
    let meta = fs::metadata(directory)?;
    let id = DirectoryId(meta.dev(), meta.ino());
    let mut entries = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if only.is_some_and(|only| only != name) {
            continue;
        }
        match fs::metadata(entry.path()) {
            Ok(meta) => entries.push(Entry { name, stamp: meta.is_file().then(|| stamp(&meta)) }),
            // It went since, or is a link to nothing: not there.
            Err(e) if e.kind() == io::ErrorKind::NotFound => {}
            Err(e) => return Err(e),
        }
    }
    Ok((id, entries))
}

fn stamp(meta: &fs::Metadata) -> Stamp {
    let nanos = |seconds: i64, nanos: i64| i128::from(seconds) * 1_000_000_000 + i128::from(nanos);
    Stamp {
        inode: meta.ino(),
        size: meta.size(),
        mtime: nanos(meta.mtime(), meta.mtime_nsec()),
        ctime: nanos(meta.ctime(), meta.ctime_nsec()),
    }
}

fn read(path: &Path) -> io::Result<(Stamp, String)> {
    // Not to hang on what was a file a moment ago and is a pipe now.
    let flags = i32::try_from(rustix::fs::OFlags::NONBLOCK.bits()).unwrap_or(0);
    let file = File::options().read(true).custom_flags(flags).open(path)?;
    let meta = file.metadata()?;
    let mut bytes = Vec::new();
    file.take(MAX_FILE + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE {
        return Err(io::Error::other(format!("longer than {} MiB, no manifest", MAX_FILE >> 20)));
    }
    let text = String::from_utf8(bytes).map_err(|_| io::Error::other("not UTF-8 text, no manifest"))?;
    Ok((stamp(&meta), text))
}

/// Starts the source on a thread of its own, which `wake` wakes and ends.
pub fn spawn(source: FileSource, wake: UnixStream) -> io::Result<()> {
    let thread = std::thread::Builder::new().name("source-file".to_owned());
    thread.spawn(move || source.run(wake)).map(drop)
}

#[cfg(test)]
mod tests {
    use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};

    use super::*;

    /// On 32-bit ARM a system call of the old kind would refuse the file, or see another year.
    #[test]
    fn a_file_of_the_year_2100_is_seen_as_such() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("web.yaml");
        fs::write(&path, "kind: Pod").expect("writes");
        let time = || Timespec { tv_sec: 4_102_444_800, tv_nsec: 5 };
        let times = Timestamps { last_access: time(), last_modification: time() };
        utimensat(CWD, &path, &times, AtFlags::empty()).expect("sets the times");
        let (stamp, text) = read(&path).expect("reads");
        assert_eq!((stamp.mtime, text.as_str()), (4_102_444_800_000_000_005, "kind: Pod"));
        let (_, entries) = list(dir.path(), None).expect("lists");
        assert_eq!(entries, [Entry { name: "web.yaml".to_owned(), stamp: Some(stamp) }]);
    }
}

//! Reading a container's log, and following it while it is written and rotated, without losing or
//! doubling a line.
//!
//! The file that is read is held open, so it may be renamed, compressed or removed meanwhile. The
//! directory is watched, and the file that takes its name is opened at once; or, when that has been
//! put aside too by then, under its new name. The old one is read to its end before the new one: it is
//! at its end when its writer has closed it. When one came and went before it could be opened, the
//! reading ends with an error instead of going on without its lines.

use std::cmp::Ordering;
use std::collections::VecDeque;
use std::ffi::{CStr, OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::inotify::{self, CreateFlags, ReadFlags, WatchFlags};

use super::record::{Decoder, Filter};
use super::tail;

const PIECE: usize = 64 << 10;
/// Rotated files that wait to be read. They are on the disk for as long as they do.
const MAX_NEXT: usize = 8;
/// How long to wait for a sign of the log before looking at the container again.
const LOOK: Duration = Duration::from_secs(5);
/// The same, once the log was closed or the container has ended.
const LOOK_SOON: Duration = Duration::from_millis(100);
/// A log that nobody has closed is at its end when nothing came for so long, although there is a
/// new one or the container has ended.
const QUIET: Duration = Duration::from_secs(3);
/// The longest that the client is waited for without looking at the directory.
const SEND: Duration = Duration::from_millis(500);
/// What is sent between two looks at it.
const SENT: usize = 16 << 10;

/// What is wanted of a log.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Options {
    pub filter: Filter,
    /// Begin with the last so many lines.
    pub tail: Option<u64>,
    /// Go on until the container has ended.
    pub follow: bool,
}

/// Where a log is shown.
pub trait Sink: Write {
    /// Sends what was written, for so long at most; whether all is sent.
    ///
    /// # Errors
    /// When whoever reads it is gone, or takes nothing for too long.
    fn send_within(&mut self, time: Duration) -> io::Result<bool>;
    /// Whoever reads it is gone.
    fn has_hung_up(&self) -> bool;
    /// To be waited on for that.
    fn fd(&self) -> Option<BorrowedFd<'_>>;
}

/// Shows the log at `path`. `runs` tells whether the container runs.
///
/// # Errors
/// When the log can't be read or shown, or when lines of it were removed before they could be read.
pub fn show(path: &Path, options: &Options, sink: &mut dyn Sink, runs: &dyn Fn() -> bool) -> io::Result<()> {
    let mut log = Log::open(path, options.follow)?;
    if let Some(lines) = options.tail {
        let at = tail::start(log.file(), lines, options.filter.stream)?;
        log.file().seek(SeekFrom::Start(at))?;
    }
    let mut decoder = Decoder::new(options.filter.clone());
    let (mut piece, mut shown) = (vec![0; PIECE], Vec::new());
    // The log of one that had ended before is not written any more.
    let mut ended = if runs() { None } else { Instant::now().checked_sub(QUIET) };
    let mut moved = Instant::now();
    loop {
        let n = log.file().read(&mut piece)?;
        if n > 0 {
            moved = Instant::now();
            decoder.feed(piece.get(..n).unwrap_or_default(), &mut shown);
            log.send(&shown, sink)?;
            shown.clear();
            if decoder.is_done() {
                return Ok(());
            }
            continue;
        }
        if !options.follow {
            return Ok(());
        }
        // In this order: what it had done before it ended is noticed.
        if ended.is_none() && !runs() {
            ended = Some(Instant::now());
        }
        log.notice()?;
        let now = Instant::now();
        let quiet = |since: Instant| now.saturating_duration_since(since.max(moved)) >= QUIET;
        let over = match (log.next.front(), ended) {
            // With two newer ones its writer has long gone on.
            (Some(next), _) => log.current.closed || log.next.len() > 1 || quiet(next.appeared),
            (None, Some(ended)) => log.current.closed || now.saturating_duration_since(ended) >= QUIET,
            (None, None) => false,
        };
        match log.position()? {
            // What came between the last reading and the closing.
            Position::Before => {}
            // Somebody has cut it, as copytruncate does.
            Position::Behind => {
                log.file().seek(SeekFrom::Start(0))?;
                decoder.next_file();
            }
            Position::End if over => match log.next.pop_front() {
                None => return Ok(()),
                Some(next) => {
                    log.current = next;
                    decoder.next_file();
                }
            },
            Position::End => {
                let soon = log.current.closed || !log.next.is_empty() || ended.is_some();
                if log.wait(if soon { LOOK_SOON } else { LOOK }, sink)? {
                    return Ok(());
                }
            }
        }
    }
}

/// A log that is being read.
struct Log {
    path: PathBuf,
    current: Piece,
    /// The files that took its name since.
    next: VecDeque<Piece>,
    watch: Option<Watch>,
}

struct Watch {
    inotify: OwnedFd,
    directory: i32,
}

/// One file of a log. It is watched for as long as it is open.
struct Piece {
    file: File,
    watch: Option<i32>,
    /// Its writer has closed it.
    closed: bool,
    appeared: Instant,
    /// The name that it was put aside under, if it was.
    aside: Option<OsString>,
}

/// What happened in the directory.
#[derive(Default)]
struct Seen {
    /// Something has the log's name that may be another file.
    renewed: bool,
    /// How many files were made under that name.
    made: usize,
    /// Names that it was put aside under.
    aside: Vec<OsString>,
}

/// What stands behind the name of a log that was put aside and not compressed yet.
fn is_stamp(suffix: &[u8]) -> bool {
    suffix.strip_prefix(b".").is_some_and(|stamp| !stamp.is_empty() && !stamp.contains(&b'.'))
}

/// Where the reading is.
enum Position {
    Before,
    End,
    Behind,
}

impl Watch {
    fn new(directory: &Path) -> io::Result<Watch> {
        let inotify = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
        let flags = WatchFlags::CREATE | WatchFlags::MOVED_TO | WatchFlags::ONLYDIR;
        let directory = inotify::add_watch(&inotify, directory, flags)?;
        Ok(Watch { inotify, directory })
    }

    /// Watches an open file, by whatever name it has by now.
    fn add(&self, file: &File) -> io::Result<i32> {
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        Ok(inotify::add_watch(&self.inotify, path, WatchFlags::MODIFY | WatchFlags::CLOSE_WRITE)?)
    }
}

/// Which file it is, whatever its name.
fn identity(file: &File) -> io::Result<(u64, u64)> {
    let meta = file.metadata()?;
    Ok((meta.dev(), meta.ino()))
}

impl Log {
    fn open(path: &Path, follow: bool) -> io::Result<Log> {
        // The directory is watched before the file is opened, so that no other takes its name unseen.
        let watch = path.parent().filter(|_| follow).map(Watch::new).transpose()?;
        let current = Log::piece(watch.as_ref(), File::open(path)?)?;
        let mut log = Log { path: path.to_owned(), current, next: VecDeque::new(), watch };
        // What was made before it was opened may be itself.
        log.take_in()?;
        Ok(log)
    }

    fn piece(watch: Option<&Watch>, file: File) -> io::Result<Piece> {
        let watch = watch.map(|watch| watch.add(&file)).transpose()?;
        Ok(Piece { file, watch, closed: false, appeared: Instant::now(), aside: None })
    }

    fn file(&mut self) -> &mut File {
        &mut self.current.file
    }

    /// Takes in what happened to the files and in their directory.
    fn notice(&mut self) -> io::Result<()> {
        match self.take_in()? {
            (made, opened) if opened < made => {
                Err(io::Error::other("the log was rotated faster than it is read; lines would be lost"))
            }
            _ => Ok(()),
        }
    }

    fn events(&mut self) -> io::Result<Seen> {
        let mut seen = Seen::default();
        let Some(watch) = &self.watch else { return Ok(seen) };
        let name = self.path.file_name().unwrap_or_default().as_encoded_bytes();
        let mut buffer = [MaybeUninit::uninit(); 4 << 10];
        let mut events = inotify::Reader::new(&watch.inotify, &mut buffer);
        loop {
            let event = match events.next() {
                Ok(event) => event,
                Err(rustix::io::Errno::AGAIN) => break,
                Err(rustix::io::Errno::INTR) => continue,
                Err(e) => return Err(e.into()),
            };
            let flags = event.events();
            seen.renewed |= flags.contains(ReadFlags::QUEUE_OVERFLOW);
            if let Some(file) = event.file_name().filter(|_| event.wd() == watch.directory).map(CStr::to_bytes) {
                if file == name {
                    seen.renewed = true;
                    seen.made += usize::from(flags.contains(ReadFlags::CREATE));
                } else if file.strip_prefix(name).is_some_and(is_stamp) && flags.contains(ReadFlags::MOVED_TO) {
                    seen.aside.push(OsStr::from_bytes(file).to_owned());
                }
            }
            if flags.contains(ReadFlags::CLOSE_WRITE) {
                let pieces = self.next.iter_mut().chain([&mut self.current]);
                pieces.filter(|piece| piece.watch == Some(event.wd())).for_each(|piece| piece.closed = true);
            }
        }
        Ok(seen)
    }

    /// Opens what is new. Returns how many files were made, and how many of those opened.
    fn take_in(&mut self) -> io::Result<(usize, usize)> {
        let (mut made, mut opened) = (0, 0);
        // Until nothing has happened since: only then is it certain which file was made after which.
        loop {
            let seen = self.events()?;
            if !seen.renewed && seen.aside.is_empty() {
                break;
            }
            made += seen.made;
            for name in seen.aside {
                opened += usize::from(self.renew(&self.path.with_file_name(&name), Some(name))?);
            }
            if seen.renewed {
                opened += usize::from(self.renew(&self.path.clone(), None)?);
            }
        }
        // The names are in the order of the lines; the one without is the newest.
        self.next.make_contiguous().sort_by(|a, b| (a.aside.is_none(), &a.aside).cmp(&(b.aside.is_none(), &b.aside)));
        Ok((made, opened))
    }

    /// Opens this file, if it isn't known. Whether it is there and was not.
    fn renew(&mut self, path: &Path, aside: Option<OsString>) -> io::Result<bool> {
        let file = match File::open(path) {
            Ok(file) => file,
            // It is made anew, and seen then; or it is gone for good.
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(false),
            Err(e) => return Err(e),
        };
        let new = identity(&file)?;
        for piece in self.next.iter_mut().chain([&mut self.current]) {
            if identity(&piece.file)? == new {
                piece.aside = aside;
                return Ok(false);
            }
        }
        if self.next.len() >= MAX_NEXT {
            return Err(io::Error::other("the log is written faster than it is read; lines would be lost"));
        }
        let piece = Log::piece(self.watch.as_ref(), file)?;
        self.next.push_back(Piece { aside, ..piece });
        Ok(true)
    }

    fn position(&mut self) -> io::Result<Position> {
        let at = self.file().stream_position()?;
        Ok(match at.cmp(&self.file().metadata()?.len()) {
            Ordering::Less => Position::Before,
            Ordering::Equal => Position::End,
            Ordering::Greater => Position::Behind,
        })
    }

    /// Sends, and while that waits for the client, goes on watching.
    fn send(&mut self, bytes: &[u8], sink: &mut dyn Sink) -> io::Result<()> {
        for piece in bytes.chunks(SENT) {
            sink.write_all(piece)?;
            while !sink.send_within(SEND)? {
                self.notice()?;
            }
        }
        Ok(())
    }

    /// Waits for a sign of the log; `true` when whoever reads it is gone.
    fn wait(&self, time: Duration, sink: &dyn Sink) -> io::Result<bool> {
        let Some(watch) = &self.watch else { return Ok(true) };
        let mut fds = vec![PollFd::from_borrowed_fd(watch.inotify.as_fd(), PollFlags::IN)];
        fds.extend(sink.fd().map(|fd| PollFd::from_borrowed_fd(fd, PollFlags::RDHUP)));
        let time = Timespec::try_from(time).ok();
        match poll(&mut fds, time.as_ref()) {
            Ok(_) | Err(rustix::io::Errno::INTR) => Ok(sink.has_hung_up()),
            Err(e) => Err(e.into()),
        }
    }
}

#[cfg(test)]
mod tests;

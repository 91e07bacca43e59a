//! Logs that are read while a writer like a runtime's writes and rotates them.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering as Atomic};
use std::thread;

use super::super::record::Stream;
use super::*;

/// Keeps what it is given; or, when slow, takes it only now and then.
#[derive(Default)]
struct Shown {
    text: Vec<u8>,
    /// Bytes that it was given, for others to see.
    seen: Arc<AtomicUsize>,
    waiting: usize,
    slow: Option<Duration>,
}

impl Write for Shown {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.text.extend_from_slice(bytes);
        self.waiting += bytes.len();
        self.seen.fetch_add(bytes.len(), Atomic::Relaxed);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Sink for Shown {
    fn send_within(&mut self, _: Duration) -> io::Result<bool> {
        let Some(time) = self.slow else { return Ok(true) };
        thread::sleep(time);
        self.waiting = self.waiting.saturating_sub(8 << 10);
        Ok(self.waiting == 0)
    }

    fn has_hung_up(&self) -> bool {
        false
    }

    fn fd(&self) -> Option<BorrowedFd<'_>> {
        None
    }
}

fn record(content: &str) -> String {
    format!("2024-01-01T00:00:00.000000000Z stdout F {content}\n")
}

fn shown(path: &Path, options: &Options, runs: bool) -> String {
    let mut sink = Shown::default();
    show(path, options, &mut sink, &|| runs).expect("shows");
    String::from_utf8(sink.text).expect("is text")
}

#[test]
fn without_following() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("0.log");
    let text: String = (0..1000).map(|i| record(&format!("line {i}"))).collect();
    fs::write(&path, text).expect("writes");
    let stderr = Filter { stream: Some(Stream::Stderr), ..Filter::default() };
    let limit = Filter { limit: Some(10), ..Filter::default() };
    let table = [
        (Options { tail: Some(2), ..Options::default() }, "line 998\nline 999\n"),
        (Options { tail: Some(0), ..Options::default() }, ""),
        (Options { filter: stderr, ..Options::default() }, ""),
        (Options { filter: limit.clone(), ..Options::default() }, "line 0\nlin"),
        (Options { filter: limit, tail: Some(1), follow: true }, "line 999\n"),
    ];
    for (options, want) in table {
        assert_eq!(shown(&path, &options, false), want, "{options:?}");
    }
    assert_eq!(shown(&path, &Options::default(), true).lines().count(), 1000);
    assert!(show(&dir.path().join("none"), &Options::default(), &mut Shown::default(), &|| true).is_err());
}

/// Writes numbered lines, and puts the file aside every now and then as it is done to a runtime: it
/// goes on writing to the old file for a moment, and closes it then. Of the old files the last two
/// stay. Line 0 is there before. `keep_up`: waits for a reader, by the bytes that it has `seen`, that
/// is more than that behind.
fn write_and_rotate(path: &Path, lines: usize, each: usize, seen: &AtomicUsize, keep_up: bool) {
    let create = |path: &Path| fs::File::options().create(true).append(true).open(path).expect("opens");
    let mut file = create(path);
    let mut old: Option<fs::File> = None;
    let mut aside_files = VecDeque::new();
    let until = Instant::now() + Duration::from_secs(60);
    while seen.load(Atomic::Relaxed) == 0 {
        assert!(Instant::now() < until, "the reader has not begun");
        thread::sleep(Duration::from_millis(1));
    }
    for i in 1..lines {
        if i % each == each - 1 {
            let aside = path.with_extension(format!("log.{i:08}"));
            fs::rename(path, &aside).expect("renames");
            // Into the file that has lost its name already.
            file.write_all(record(&format!("{i:08}")).as_bytes()).expect("writes");
            old = Some(std::mem::replace(&mut file, create(path)));
            aside_files.push_back(aside);
            if aside_files.len() > 2 {
                // While it may still be read.
                fs::remove_file(aside_files.pop_front().expect("has one")).expect("removes");
            }
            continue;
        }
        drop(old.take());
        let until = Instant::now() + Duration::from_secs(60);
        while keep_up && seen.load(Atomic::Relaxed) / LINE + 2 * each < i {
            assert!(Instant::now() < until, "the reader has stopped");
            thread::sleep(Duration::from_millis(1));
        }
        let text = record(&format!("{i:08}"));
        let (first, second) = text.split_at(i % text.len());
        file.write_all(first.as_bytes()).expect("writes");
        file.write_all(second.as_bytes()).expect("writes");
    }
}

/// Bytes of a line that is shown.
const LINE: usize = 9;

fn follow(lines: usize, each: usize, slow: Option<Duration>, keep_up: bool) -> io::Result<String> {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("0.log");
    fs::write(&path, record("00000000")).expect("writes");
    let over = Arc::new(AtomicBool::new(false));
    let mut sink = Shown { slow, ..Shown::default() };
    let writer = {
        let (path, over, seen) = (path.clone(), over.clone(), sink.seen.clone());
        thread::spawn(move || {
            write_and_rotate(&path, lines, each, &seen, keep_up);
            over.store(true, Atomic::Release);
        })
    };
    let options = Options { follow: true, ..Options::default() };
    let result = show(&path, &options, &mut sink, &|| !over.load(Atomic::Acquire));
    writer.join().expect("writes");
    result.map(|()| String::from_utf8(sink.text).expect("is text"))
}

#[track_caller]
fn assert_whole(got: &str, lines: usize) {
    let wrong = (0..lines).zip(got.lines()).find(|(i, line)| *line != format!("{i:08}"));
    assert_eq!((wrong, got.lines().count()), (None, lines));
}

#[test]
fn no_line_is_lost_or_doubled_over_rotations() {
    let got = follow(50_000, 1_000, None, true).expect("shows");
    assert_whole(&got, 50_000);
}

/// A reader that is behind by some files gets them all; one that is behind by too many is told.
#[test]
fn a_slow_reader() {
    let got = follow(20_000, 5_000, Some(Duration::from_millis(5)), true).expect("shows");
    assert_whole(&got, 20_000);
    let lost = follow(20_000, 100, Some(Duration::from_millis(20)), false);
    assert!(lost.is_err_and(|e| e.to_string().contains("faster than it is read")));
}

#[test]
fn a_log_that_is_cut() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("0.log");
    fs::write(&path, record("a longer line before")).expect("writes");
    let over = Arc::new(AtomicBool::new(false));
    let reader = {
        let (path, over) = (path.clone(), over.clone());
        thread::spawn(move || {
            let mut sink = Shown::default();
            let options = Options { follow: true, ..Options::default() };
            // In turn: read all, then cut, then read again.
            show(&path, &options, &mut sink, &|| {
                if fs::metadata(&path).is_ok_and(|meta| meta.len() > 55) {
                    fs::write(&path, record("after")).expect("writes");
                }
                !over.load(Atomic::Acquire)
            })
            .expect("shows");
            String::from_utf8(sink.text).expect("is text")
        })
    };
    let until = Instant::now() + Duration::from_secs(20);
    while fs::metadata(&path).expect("is there").len() > 55 {
        assert!(Instant::now() < until, "it was not cut");
        thread::sleep(Duration::from_millis(5));
    }
    over.store(true, Atomic::Release);
    let got = reader.join().expect("ends");
    assert!(got.ends_with("after\n"), "{got}");
}

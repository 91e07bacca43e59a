//! Where the last lines of a log begin.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use super::record::{MAX_PREFIX, Prefix, Stream};

/// Bytes that are looked at together, from the end on.
const BLOCK: u64 = 64 << 10;

/// The offset from which on there are `lines` whole lines of the stream, or of both: a line that goes
/// over several records is one. What still has no end counts as one too.
///
/// # Errors
/// Of reading.
pub fn start(file: &File, lines: u64, stream: Option<Stream>) -> io::Result<u64> {
    let size = file.metadata()?.len();
    let mut scan = Scan { file, stream, wanted: lines, found: 0, after: None };
    let mut block = Vec::new();
    let mut end = size;
    while end > 0 {
        let begin = end.saturating_sub(BLOCK);
        block.resize(usize::try_from(end - begin).unwrap_or_default(), 0);
        file.read_exact_at(&mut block, begin)?;
        for (i, _) in block.iter().enumerate().rev().filter(|(_, byte)| **byte == b'\n') {
            // A record begins behind this line end.
            if let Some(offset) = scan.record(begin + i as u64 + 1)? {
                return Ok(offset);
            }
        }
        end = begin;
    }
    Ok(scan.record(0)?.unwrap_or(0))
}

struct Scan<'a> {
    file: &'a File,
    stream: Option<Stream>,
    wanted: u64,
    found: u64,
    /// Where the record behind the one looked at begins; `None` before the last record.
    after: Option<u64>,
}

impl Scan<'_> {
    /// Looks at the record that begins at `offset`; gives the answer when it is found.
    fn record(&mut self, offset: u64) -> io::Result<Option<u64>> {
        let Some(after) = self.after.replace(offset) else {
            // Behind the last line end there is nothing yet, or the beginning of a record.
            return Ok((self.wanted == 0).then_some(offset));
        };
        let mut bytes = [0; MAX_PREFIX];
        let most = usize::try_from(after - offset).unwrap_or(MAX_PREFIX).min(MAX_PREFIX);
        let bytes = bytes.get_mut(..most).unwrap_or_default();
        self.file.read_exact_at(bytes, offset)?;
        let Some(prefix) = Prefix::parse(bytes) else { return Ok(None) };
        if self.stream.is_some_and(|stream| stream != prefix.stream) || prefix.partial && self.found > 0 {
            return Ok(None);
        }
        self.found += 1;
        Ok((self.found > self.wanted).then_some(after))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::logs::record::{Decoder, Filter};
    use std::io::Write;

    fn tail(log: &str, lines: u64, stream: Option<Stream>) -> String {
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(log.as_bytes()).expect("writes");
        let at = usize::try_from(start(&file, lines, stream).expect("reads")).expect("fits");
        let mut out = Vec::new();
        Decoder::new(Filter { stream, ..Filter::default() }).feed(&log.as_bytes()[at..], &mut out);
        String::from_utf8(out).expect("is text")
    }

    #[test]
    fn the_last_lines() {
        let log = "T stdout F one\nT stderr F two\nT stdout P thr\nT stdout F ee\nnone\nT stdout F four\n";
        let table: &[(&str, u64, Option<Stream>, &str)] = &[
            (log, 0, None, ""),
            (log, 1, None, "four\n"),
            (log, 2, None, "three\nfour\n"),
            (log, 3, None, "two\nthree\nfour\n"),
            (log, 4, None, "one\ntwo\nthree\nfour\n"),
            (log, 9, None, "one\ntwo\nthree\nfour\n"),
            (log, 1, Some(Stream::Stderr), "two\n"),
            (log, 3, Some(Stream::Stdout), "one\nthree\nfour\n"),
            ("", 5, None, ""),
            ("T stdout F one\nT stdout P tw", 1, None, "one\ntw"),
            ("T stdout F one\nT stdout P tw\n", 1, None, "tw"),
            ("T stdout F one\nT stdout P tw\n", 2, None, "one\ntw"),
        ];
        for (log, lines, stream, want) in table {
            assert_eq!(tail(log, *lines, *stream), *want, "{log:?} {lines} {stream:?}");
        }
    }

    #[test]
    fn over_many_blocks() {
        let content = "x".repeat(1000);
        let log: String = (0..1000).map(|i| format!("T stdout F {i} {content}\n")).collect();
        for lines in [0, 1, 63, 64, 65, 500, 999, 1000, 1001] {
            let got = tail(&log, lines, None);
            let first = 1000 - lines.min(1000);
            assert_eq!(got.lines().count() as u64, lines.min(1000));
            assert!(lines == 0 || got.starts_with(&format!("{first} ")), "{lines}");
        }
    }
}

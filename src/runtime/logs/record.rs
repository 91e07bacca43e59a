//! Lines of a container's log as the runtime writes them: `TIME STREAM TAG CONTENT`, where the tag
//! `P` says that the line goes on in the next record and `F` that it ends here
//! (staging/src/k8s.io/cri-client/pkg/logs). Pure.

use jiff::Timestamp;

/// Bytes that time, stream and tag take at most.
pub const MAX_PREFIX: usize = 128;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

/// What stands before a record's content.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Prefix<'a> {
    pub time: &'a str,
    pub stream: Stream,
    /// The line goes on in the next record.
    pub partial: bool,
    /// Bytes of it, the last space included.
    pub length: usize,
}

impl Prefix<'_> {
    /// Of the bytes that a record begins with; `None` when they are no prefix, or not a whole one.
    pub fn parse(bytes: &[u8]) -> Option<Prefix<'_>> {
        let mut fields = bytes.splitn(4, |b| *b == b' ');
        let (time, stream, tag) = (fields.next()?, fields.next()?, fields.next()?);
        fields.next()?;
        let stream = match stream {
            b"stdout" => Stream::Stdout,
            b"stderr" => Stream::Stderr,
            _ => return None,
        };
        let length = time.len() + tag.len() + b"stdout".len() + 3;
        // Tags may be followed by others, with colons between them.
        let partial = tag.split(|b| *b == b':').next() == Some(b"P");
        Some(Prefix { time: std::str::from_utf8(time).ok()?, stream, partial, length })
    }
}

/// What of a log is wanted, and how it is shown.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Filter {
    pub since: Option<Timestamp>,
    /// `None` means both.
    pub stream: Option<Stream>,
    /// Put the time before each line.
    pub timestamps: bool,
    /// Bytes after which it ends.
    pub limit: Option<u64>,
}

impl Filter {
    fn takes(&self, prefix: &Prefix<'_>) -> bool {
        let time = || prefix.time.parse::<Timestamp>().ok();
        self.stream.is_none_or(|stream| stream == prefix.stream)
            && self.since.is_none_or(|since| time().is_some_and(|time| time >= since))
    }
}

/// Takes the contents out of the records. Holds no more of them than a prefix.
#[derive(Debug, Clone)]
pub struct Decoder {
    filter: Filter,
    left: u64,
    at: At,
    /// A line begins with the next record that is shown.
    fresh: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum At {
    Prefix(Vec<u8>),
    Content {
        partial: bool,
    },
    /// A record that is not shown.
    Skipped,
}

impl Decoder {
    pub fn new(filter: Filter) -> Decoder {
        let left = filter.limit.unwrap_or(u64::MAX);
        Decoder { filter, left, at: At::Prefix(Vec::new()), fresh: true }
    }

    /// Nothing more is wanted.
    pub fn is_done(&self) -> bool {
        self.left == 0
    }

    /// The file ends here; the next one begins with a record.
    pub fn next_file(&mut self) {
        self.at = At::Prefix(Vec::new());
    }

    /// Appends what is shown of `bytes`, which go on where the last ones ended.
    pub fn feed(&mut self, mut bytes: &[u8], out: &mut Vec<u8>) {
        while !bytes.is_empty() && self.left > 0 {
            let end = bytes.iter().position(|b| *b == b'\n');
            let (piece, rest) = bytes.split_at(end.unwrap_or(bytes.len()));
            self.piece(piece, out);
            match end {
                Some(_) => self.line_end(out),
                None => return,
            }
            bytes = rest.get(1..).unwrap_or_default();
        }
    }

    /// A part of a record, without its end.
    fn piece(&mut self, piece: &[u8], out: &mut Vec<u8>) {
        let prefix = match &mut self.at {
            At::Skipped => return,
            At::Content { .. } => return self.put(piece, out),
            At::Prefix(prefix) => prefix,
        };
        // Most often the record is there as a whole.
        let room = MAX_PREFIX.saturating_sub(prefix.len());
        let (head, tail) = piece.split_at(room.min(piece.len()));
        prefix.extend_from_slice(head);
        let bytes = std::mem::take(prefix);
        match Prefix::parse(&bytes) {
            Some(parsed) if self.filter.takes(&parsed) => {
                self.at = At::Content { partial: parsed.partial };
                if self.fresh && self.filter.timestamps {
                    self.put(parsed.time.as_bytes(), out);
                    self.put(b" ", out);
                }
                self.fresh = false;
                self.put(bytes.get(parsed.length..).unwrap_or_default(), out);
                self.put(tail, out);
            }
            Some(_) => self.at = At::Skipped,
            // It is no record; it will not become one.
            None if bytes.len() >= MAX_PREFIX => self.at = At::Skipped,
            None => self.at = At::Prefix(bytes),
        }
    }

    fn line_end(&mut self, out: &mut Vec<u8>) {
        if let At::Content { partial: false } = self.at {
            self.put(b"\n", out);
            self.fresh = true;
        }
        self.at = match std::mem::replace(&mut self.at, At::Skipped) {
            At::Prefix(mut bytes) => {
                bytes.clear();
                At::Prefix(bytes)
            }
            _ => At::Prefix(Vec::new()),
        };
    }

    fn put(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let n = usize::try_from(self.left).map_or(bytes.len(), |left| left.min(bytes.len()));
        out.extend_from_slice(bytes.get(..n).unwrap_or_default());
        self.left -= n as u64;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
2024-01-01T00:00:01.000000001Z stdout F one
2024-01-01T00:00:02Z stderr F two
2024-01-01T00:00:03Z stdout P thr
2024-01-01T00:00:03Z stdout F ee
no record at all
2024-01-01T00:00:04Z stdout F 
2024-01-01T01:00:05+01:00 stdout F:x  five 
2024-01-01T00:00:06Z nowhere F six
";

    fn shown(filter: &Filter, log: &str, piece: usize) -> String {
        let mut decoder = Decoder::new(filter.clone());
        let mut out = Vec::new();
        log.as_bytes().chunks(piece).for_each(|piece| decoder.feed(piece, &mut out));
        String::from_utf8(out).expect("is text")
    }

    #[test]
    fn what_is_shown() {
        let since = |text: &str| Some(text.parse().expect("a time"));
        let all = "one\ntwo\nthree\n\n five \n";
        let table = [
            (Filter::default(), all.to_owned()),
            (Filter { stream: Some(Stream::Stderr), ..Filter::default() }, "two\n".to_owned()),
            (Filter { stream: Some(Stream::Stdout), ..Filter::default() }, all.replace("two\n", "")),
            (Filter { since: since("2024-01-01T00:00:03Z"), ..Filter::default() }, "three\n\n five \n".to_owned()),
            (
                Filter { timestamps: true, since: since("2024-01-01T00:00:02.5Z"), ..Filter::default() },
                "2024-01-01T00:00:03Z three\n2024-01-01T00:00:04Z \n2024-01-01T01:00:05+01:00  five \n".to_owned(),
            ),
            (
                Filter { timestamps: true, limit: Some(33), ..Filter::default() },
                "2024-01-01T00:00:01.000000001Z on".to_owned(),
            ),
        ];
        for (filter, want) in table {
            for piece in 1..200 {
                assert_eq!(shown(&filter, LOG, piece), want, "{filter:?} by {piece}");
            }
        }
        for limit in 0..=all.len() {
            let filter = Filter { limit: Some(limit as u64), ..Filter::default() };
            assert_eq!(shown(&filter, LOG, 7), all[..limit]);
        }
    }

    #[test]
    fn nothing_is_held_but_prefixes() {
        let mut decoder = Decoder::new(Filter::default());
        let mut out = Vec::new();
        for _ in 0..1000 {
            decoder.feed(&[b'x'; 100], &mut out);
        }
        assert_eq!((out.len(), &decoder.at), (0, &At::Skipped));
        decoder.feed(b"\n2024-01-01T00:00:01Z stdout F ok", &mut out);
        decoder.next_file();
        decoder.feed(b"2024-01-01T00:00:01Z stdout F new\n", &mut out);
        assert_eq!(out, b"oknew\n");
    }
}

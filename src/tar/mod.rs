//! Tar files as streams: what is in them, and making them. Nothing here touches a disk.

mod read;
mod write;

use std::io::{self, Read};

pub use read::{Entry, Kind, Reader};
pub use write::Writer;

const BLOCK: usize = 512;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error(transparent)]
    Io(#[from] io::Error),
    #[error("it is no tar file: {0}")]
    Broken(&'static str),
    #[error("it ends in the middle; it may still be being written")]
    Truncated,
}

/// Bytes that can be passed over.
pub trait Source: Read {
    /// Passes over `n` bytes, all of which must be there.
    fn skip(&mut self, n: u64) -> io::Result<()>;
    /// Reads the rest, of which nothing is wanted but that it is sound.
    fn drain(&mut self) -> io::Result<()>;
}

/// What can only be read from its start to its end.
pub struct Stream<R>(pub R);

impl<R: Read> Read for Stream<R> {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.0.read(buf)
    }
}

impl<R: Read> Source for Stream<R> {
    fn skip(&mut self, n: u64) -> io::Result<()> {
        match io::copy(&mut Read::by_ref(&mut self.0).take(n), &mut io::sink())? {
            skipped if skipped == n => Ok(()),
            _ => Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }

    fn drain(&mut self) -> io::Result<()> {
        io::copy(&mut self.0, &mut io::sink()).map(drop)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let long = format!("{}/{}", "d".repeat(120), "f".repeat(90));
        let mut bytes = Vec::new();
        let mut writer = Writer::new(&mut bytes);
        writer.directory("d", 0o755, 0).expect("writes");
        writer.file("d/empty", 0o600, 1, 0, &mut io::empty()).expect("writes");
        writer.file(&long, 0o4755, 1 << 30, 700, &mut io::repeat(b'x')).expect("writes");
        writer.link("d/link", &"t".repeat(150), 0).expect("writes");
        writer.end().expect("ends");
        let mut reader = Reader::new(Box::new(Stream(&bytes[..])));
        let mut found = Vec::new();
        while let Some(entry) = reader.next_entry().expect("reads") {
            let mut content = Vec::new();
            reader.copy_to(&mut content).expect("reads");
            found.push((entry.name, entry.kind, entry.mode, content.len() as u64 == entry.size));
        }
        let want = [
            ("d/".to_owned(), Kind::Directory, 0o755, true),
            ("d/empty".to_owned(), Kind::File, 0o600, true),
            (long, Kind::File, 0o4755, true),
            ("d/link".to_owned(), Kind::Other, 0o777, true),
        ];
        assert_eq!(found, want);
        let short = Writer::new(io::sink()).file("short", 0o644, 0, 3, &mut &b"ab"[..]);
        assert_eq!(short.map_err(|e| e.kind()), Err(io::ErrorKind::UnexpectedEof));
    }
}

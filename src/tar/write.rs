//! Making a tar file: as GNU's, whose way with long names every tar understands.

use std::io::{self, Read, Write};

use super::BLOCK;

/// Bytes that a header has for a name, and for where a link leads.
const NAME: usize = 100;
/// The largest size that fits in a header's octal digits.
const MAX_OCTAL: u64 = 0o777_7777_7777;

pub struct Writer<W> {
    out: W,
}

impl<W: Write> Writer<W> {
    pub fn new(out: W) -> Writer<W> {
        Writer { out }
    }

    pub fn directory(&mut self, name: &str, mode: u32, mtime: u64) -> io::Result<()> {
        let name = if name.ends_with('/') { name.to_owned() } else { format!("{name}/") };
        self.entry(&name, "", b'5', mode, mtime, 0)
    }

    pub fn link(&mut self, name: &str, target: &str, mtime: u64) -> io::Result<()> {
        self.entry(name, target, b'2', 0o777, mtime, 0)
    }

    /// # Errors
    /// Also when there is less than `size` to read: then the archive is broken.
    pub fn file(&mut self, name: &str, mode: u32, mtime: u64, size: u64, from: &mut impl Read) -> io::Result<()> {
        self.entry(name, "", b'0', mode, mtime, size)?;
        if io::copy(&mut from.take(size), &mut self.out)? != size {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "it became shorter while it was read"));
        }
        self.pad(size)
    }

    pub fn end(mut self) -> io::Result<()> {
        self.out.write_all(&[0; 2 * BLOCK])?;
        self.out.flush()
    }

    fn entry(&mut self, name: &str, target: &str, kind: u8, mode: u32, mtime: u64, size: u64) -> io::Result<()> {
        for (text, kind) in [(name, b'L'), (target, b'K')] {
            if text.len() > NAME {
                let length = text.len() as u64 + 1;
                self.out.write_all(&header("././@LongLink", "", kind, 0o644, 0, length))?;
                self.out.write_all(text.as_bytes())?;
                self.out.write_all(&[0])?;
                self.pad(length)?;
            }
        }
        self.out.write_all(&header(name, target, kind, mode, mtime, size))
    }

    fn pad(&mut self, size: u64) -> io::Result<()> {
        let block = BLOCK as u64;
        let zeros = [0; BLOCK];
        let left = usize::try_from((block - size % block) % block).unwrap_or(0);
        self.out.write_all(zeros.get(..left).unwrap_or_default())
    }
}

fn header(name: &str, target: &str, kind: u8, mode: u32, mtime: u64, size: u64) -> [u8; BLOCK] {
    let mut block = [0; BLOCK];
    let mut put = |at: usize, room: usize, bytes: &[u8]| {
        for (to, from) in block.iter_mut().skip(at).take(room).zip(bytes) {
            *to = *from;
        }
    };
    put(0, NAME, name.as_bytes());
    put(100, 8, format!("{mode:07o}").as_bytes());
    for owner in [108, 116] {
        put(owner, 8, b"0000000");
    }
    match size {
        0..=MAX_OCTAL => put(124, 12, format!("{size:011o}").as_bytes()),
        // Binary, for what octal digits have no room.
        _ => put(124, 12, &[&[0x80, 0, 0, 0][..], &size.to_be_bytes()].concat()),
    }
    put(136, 12, format!("{:011o}", mtime.min(MAX_OCTAL)).as_bytes());
    put(148, 8, b"        ");
    put(156, 1, &[kind]);
    put(157, NAME, target.as_bytes());
    put(257, 8, b"ustar  \0");
    let sum: u32 = block.iter().map(|byte| u32::from(*byte)).sum();
    for (to, from) in block.iter_mut().skip(148).zip(format!("{sum:06o}\0 ").bytes()) {
        *to = from;
    }
    block
}

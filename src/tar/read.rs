//! The entries of a tar file, and the content of those that are wanted.

use std::io::{self, Read, Write};

use super::{BLOCK, Error, Source};

/// Bytes of a header that only says more of the next entry.
const MAX_EXTRA: u64 = 1 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    File,
    Directory,
    /// Links, devices, and whatever else there may be.
    Other,
}

#[derive(Debug)]
pub struct Entry {
    pub name: String,
    pub size: u64,
    pub kind: Kind,
    pub mode: u32,
}

pub struct Reader<'a> {
    source: Box<dyn Source + 'a>,
    /// Bytes of the current entry that have not been read, and those that fill its last block.
    left: u64,
    padding: u64,
}

/// What headers say of the entry behind them.
#[derive(Default)]
struct Extra {
    name: Option<String>,
    size: Option<u64>,
}

impl<'a> Reader<'a> {
    pub fn new(source: Box<dyn Source + 'a>) -> Reader<'a> {
        Reader { source, left: 0, padding: 0 }
    }

    /// `None` at the end that a whole archive has.
    pub fn next_entry(&mut self) -> Result<Option<Entry>, Error> {
        let mut extra = Extra::default();
        loop {
            self.source.skip(self.left + self.padding).map_err(truncated)?;
            (self.left, self.padding) = (0, 0);
            let mut block = [0; BLOCK];
            self.source.read_exact(&mut block).map_err(truncated)?;
            if block.iter().all(|b| *b == 0) {
                self.source.drain().map_err(truncated)?;
                return Ok(None);
            }
            let header = Header(&block);
            header.check()?;
            let size = header.size().ok_or(Error::Broken("an entry without a size"))?;
            let kind = header.kind();
            self.begin(extra.size.filter(|_| !matches!(kind, b'x' | b'g' | b'L' | b'K')).unwrap_or(size))?;
            match kind {
                b'x' => self.read_pax(&mut extra)?,
                b'L' => {
                    let name = self.extra_content()?;
                    extra.name = Some(text(&name));
                }
                // For all that follow, or the long name of a link.
                b'g' | b'K' => {}
                kind => {
                    let name = extra.name.unwrap_or_else(|| header.name());
                    let kind = match kind {
                        b'0' | 0 | b'7' => Kind::File,
                        b'5' => Kind::Directory,
                        _ => Kind::Other,
                    };
                    return Ok(Some(Entry { name, size: self.left, kind, mode: header.mode() }));
                }
            }
        }
    }

    /// The current entry's content. The caller has looked at its size.
    pub fn content(&mut self) -> Result<Vec<u8>, Error> {
        let mut content = Vec::new();
        let read = Read::by_ref(&mut self.source).take(self.left).read_to_end(&mut content).map_err(truncated)?;
        self.left -= u64::try_from(read).unwrap_or(self.left);
        match self.left {
            0 => Ok(content),
            _ => Err(Error::Truncated),
        }
    }

    /// Passes the current entry's content on, piece by piece.
    pub fn copy_to(&mut self, mut out: &mut dyn Write) -> Result<(), Error> {
        let copied = io::copy(&mut Read::by_ref(&mut self.source).take(self.left), &mut out)?;
        self.left -= copied;
        match self.left {
            0 => Ok(()),
            _ => Err(Error::Truncated),
        }
    }

    fn begin(&mut self, size: u64) -> Result<(), Error> {
        let block = BLOCK as u64;
        self.padding = (block - size % block) % block;
        self.left = size;
        // So that adding them can't overflow.
        (size < 1 << 60).then_some(()).ok_or(Error::Broken("an entry of an impossible size"))
    }

    fn extra_content(&mut self) -> Result<Vec<u8>, Error> {
        match self.left {
            0..=MAX_EXTRA => self.content(),
            _ => Err(Error::Broken("a header of an impossible size")),
        }
    }

    /// `LENGTH KEY=VALUE\n`, again and again.
    fn read_pax(&mut self, extra: &mut Extra) -> Result<(), Error> {
        let content = self.extra_content()?;
        for record in content.split(|b| *b == b'\n') {
            let record = text(record);
            let Some((key, value)) = record.split_once(' ').and_then(|(_, pair)| pair.split_once('=')) else {
                continue;
            };
            match key {
                "path" => extra.name = Some(value.to_owned()),
                "size" => extra.size = Some(value.parse().map_err(|_| Error::Broken("a size that is no number"))?),
                _ => {}
            }
        }
        Ok(())
    }
}

fn truncated(e: io::Error) -> Error {
    match e.kind() {
        io::ErrorKind::UnexpectedEof => Error::Truncated,
        _ => Error::Io(e),
    }
}

struct Header<'b>(&'b [u8; BLOCK]);

impl Header<'_> {
    fn field(&self, at: usize, len: usize) -> &[u8] {
        self.0.get(at..at + len).unwrap_or_default()
    }

    /// The sum of all bytes, with blanks for those of the sum itself.
    fn check(&self) -> Result<(), Error> {
        let sum: u64 =
            self.0.iter().enumerate().map(|(i, b)| if (148..156).contains(&i) { 32 } else { u64::from(*b) }).sum();
        (octal(self.field(148, 8)) == Some(sum)).then_some(()).ok_or(Error::Broken("a header's check sum is wrong"))
    }

    fn size(&self) -> Option<u64> {
        match self.field(124, 12) {
            // Binary, for what octal digits have no room.
            [first, rest @ ..] if first & 0x80 != 0 => {
                let start = u64::from(first & 0x7f);
                rest.iter().try_fold(start, |n, b| n.checked_mul(256)?.checked_add(u64::from(*b)))
            }
            digits => octal(digits),
        }
    }

    fn mode(&self) -> u32 {
        octal(self.field(100, 8)).and_then(|mode| u32::try_from(mode).ok()).unwrap_or(0)
    }

    fn kind(&self) -> u8 {
        self.field(156, 1).first().copied().unwrap_or_default()
    }

    fn name(&self) -> String {
        let name = text(self.field(0, 100));
        let prefix = if self.field(257, 6) == b"ustar\0" { text(self.field(345, 155)) } else { String::new() };
        if prefix.is_empty() { name } else { format!("{prefix}/{name}") }
    }
}

fn octal(field: &[u8]) -> Option<u64> {
    let digits = std::str::from_utf8(field).ok()?.trim_matches(['\0', ' ']);
    if digits.is_empty() { Some(0) } else { u64::from_str_radix(digits, 8).ok() }
}

fn text(field: &[u8]) -> String {
    let end = field.iter().position(|b| *b == 0).unwrap_or(field.len());
    String::from_utf8_lossy(field.get(..end).unwrap_or_default()).into_owned()
}

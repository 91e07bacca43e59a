//! The plain bytes of a file that may be compressed.

use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek, SeekFrom};
use std::path::Path;

use flate2::bufread::MultiGzDecoder;
use ruzstd::decoding::errors::{FrameDecoderError, ReadFrameHeaderError};
use ruzstd::decoding::{BlockDecodingStrategy, FrameDecoder};

use super::Error;
use crate::tar::{Source, Stream};

const BUFFER: usize = 64 << 10;

/// The plain bytes of the file at `path`.
pub fn open(path: &Path) -> Result<Box<dyn Read>, Error> {
    Ok(match Kind::of(path)? {
        (Kind::Plain, file) => Box::new(file),
        (Kind::Gzip, file) => Box::new(gzip(file)),
        (Kind::Zstd, file) => Box::new(Zstd::new(file)),
    })
}

/// The same, for looking here and there.
pub fn source(path: &Path) -> Result<Box<dyn Source>, Error> {
    Ok(match Kind::of(path)? {
        (Kind::Plain, file) => Box::new(Plain { len: file.metadata()?.len(), file: BufReader::new(file) }),
        (Kind::Gzip, file) => Box::new(Stream(gzip(file))),
        (Kind::Zstd, file) => Box::new(Stream(Zstd::new(file))),
    })
}

enum Kind {
    Plain,
    Gzip,
    Zstd,
}

impl Kind {
    fn of(path: &Path) -> Result<(Kind, File), Error> {
        let mut file = File::open(path)?;
        let mut start = Vec::new();
        Read::by_ref(&mut file).take(6).read_to_end(&mut start)?;
        file.rewind()?;
        let kind = match start.as_slice() {
            [0x1f, 0x8b, ..] => Kind::Gzip,
            // The second is of a frame with nothing in it, which tools put first.
            [0x28, 0xb5, 0x2f, 0xfd, ..] | [0x50..=0x5f, 0x2a, 0x4d, 0x18, ..] => Kind::Zstd,
            [0xfd, b'7', b'z', b'X', b'Z', 0] => return Err(Error::Compression("xz")),
            [b'B', b'Z', b'h', ..] => return Err(Error::Compression("bzip2")),
            [0x04, 0x22, 0x4d, 0x18, ..] => return Err(Error::Compression("lz4")),
            _ => Kind::Plain,
        };
        Ok((kind, file))
    }
}

struct Plain {
    file: BufReader<File>,
    len: u64,
}

impl Read for Plain {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        self.file.read(buf)
    }
}

impl Source for Plain {
    fn skip(&mut self, n: u64) -> io::Result<()> {
        let left = self.len.saturating_sub(self.file.stream_position()?);
        let n = i64::try_from(n).ok().filter(|_| n <= left).ok_or(io::ErrorKind::UnexpectedEof)?;
        self.file.seek_relative(n)
    }

    fn drain(&mut self) -> io::Result<()> {
        self.file.seek(SeekFrom::End(0)).map(drop)
    }
}

fn gzip(file: File) -> MultiGzDecoder<BufReader<File>> {
    MultiGzDecoder::new(BufReader::with_capacity(BUFFER, file))
}

/// All frames of a zstd file, one after the other.
struct Zstd {
    file: BufReader<File>,
    decoder: FrameDecoder,
    in_frame: bool,
}

impl Zstd {
    fn new(file: File) -> Zstd {
        Zstd { file: BufReader::with_capacity(BUFFER, file), decoder: FrameDecoder::new(), in_frame: false }
    }

    /// Goes on to the next frame; `false` when there is none.
    fn next_frame(&mut self) -> io::Result<bool> {
        if self.file.fill_buf()?.is_empty() {
            return Ok(false);
        }
        match self.decoder.reset(&mut self.file) {
            Ok(()) => self.in_frame = true,
            Err(FrameDecoderError::ReadFrameHeaderError(ReadFrameHeaderError::SkipFrame { length, .. })) => {
                let length = u64::from(length);
                if io::copy(&mut Read::by_ref(&mut self.file).take(length), &mut io::sink())? < length {
                    return Err(io::ErrorKind::UnexpectedEof.into());
                }
            }
            Err(FrameDecoderError::WindowSizeTooBig { requested }) => {
                let message = format!(
                    "unpacking it would take {} MiB of memory, which is more than 100; compress it without --long and \
                     --ultra",
                    requested >> 20
                );
                return Err(io::Error::other(message));
            }
            Err(e) => return Err(broken(e)),
        }
        Ok(true)
    }
}

impl Read for Zstd {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        loop {
            if !self.in_frame {
                if !self.next_frame()? {
                    return Ok(0);
                }
                continue;
            }
            while self.decoder.can_collect() == 0 && !self.decoder.is_finished() {
                let some = BlockDecodingStrategy::UptoBlocks(1);
                self.decoder.decode_blocks(&mut self.file, some).map_err(broken)?;
            }
            match self.decoder.read(buf)? {
                0 if !buf.is_empty() => self.in_frame = false,
                n => return Ok(n),
            }
        }
    }
}

/// What the decoder found, as the end of the file when it is that.
fn broken(e: FrameDecoderError) -> io::Error {
    let mut source: Option<&(dyn std::error::Error + 'static)> = Some(&e);
    while let Some(inner) = source {
        let io = inner.downcast_ref::<io::Error>();
        if io.is_some_and(|io| io.kind() == io::ErrorKind::UnexpectedEof) {
            return io::ErrorKind::UnexpectedEof.into();
        }
        source = inner.source();
    }
    io::Error::new(io::ErrorKind::InvalidData, format!("zstd: {e}"))
}

//! The body of a request, taken out of what comes after the head. Pure.

use super::head::{Framing, Refusal};

/// A line with a chunk's length, and all trailers together.
const MAX_LINE: usize = 256;
const MAX_TRAILERS: usize = 4 << 10;

/// Where in the body the next byte belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// So many bytes are left, with a known length.
    Rest(u64),
    ChunkLine,
    /// So many bytes of the chunk are left.
    Chunk(u64),
    ChunkEnd,
    /// The trailers so far have so many bytes.
    Trailers(usize),
    Done,
}

/// Takes a body apart. What it gives never has more than `limit` bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decoder {
    state: State,
    limit: usize,
}

const TOO_LARGE: Refusal = Refusal { status: 413, why: "the body is too large" };
const BROKEN: Refusal = Refusal { status: 400, why: "the chunks of the body are broken" };

impl Decoder {
    /// # Errors
    /// When the body is known to be larger than `limit`.
    pub fn new(framing: Framing, limit: usize) -> Result<Decoder, Refusal> {
        let state = match framing {
            Framing::None => State::Done,
            Framing::Length(length) if usize::try_from(length).is_ok_and(|length| length <= limit) => {
                State::Rest(length)
            }
            Framing::Length(_) => return Err(TOO_LARGE),
            Framing::Chunked => State::ChunkLine,
        };
        Ok(Decoder { state, limit })
    }

    pub fn is_done(&self) -> bool {
        self.state == State::Done
    }

    /// Appends to `body` what `input` holds of it, and returns how many bytes of `input` it took.
    /// What is left then is either the start of something incomplete, or, when done, the next request.
    ///
    /// # Errors
    /// When the chunks are broken, or there is too much in them.
    pub fn take(&mut self, input: &[u8], body: &mut Vec<u8>) -> Result<usize, Refusal> {
        let mut taken = 0;
        loop {
            let rest = input.get(taken..).unwrap_or_default();
            taken += match self.state {
                State::Done => return Ok(taken),
                _ if rest.is_empty() => return Ok(taken),
                State::Rest(left) => {
                    let n = copy(rest, left, body);
                    self.state = match left - n as u64 {
                        0 => State::Done,
                        left => State::Rest(left),
                    };
                    n
                }
                State::Chunk(left) => {
                    let n = copy(rest, left, body);
                    self.state = match left - n as u64 {
                        0 => State::ChunkEnd,
                        left => State::Chunk(left),
                    };
                    n
                }
                State::ChunkLine => {
                    let Some(line) = line(rest, MAX_LINE)? else { return Ok(taken) };
                    let room = self.limit.saturating_sub(body.len()) as u64;
                    self.state = match chunk_length(line)? {
                        0 => State::Trailers(0),
                        n if n > room => return Err(TOO_LARGE),
                        n => State::Chunk(n),
                    };
                    line.len() + 2
                }
                State::ChunkEnd => {
                    let Some(end) = rest.get(..2) else { return Ok(taken) };
                    if end != b"\r\n" {
                        return Err(BROKEN);
                    }
                    self.state = State::ChunkLine;
                    2
                }
                State::Trailers(before) => {
                    let Some(line) = line(rest, MAX_TRAILERS - before)? else { return Ok(taken) };
                    let length = line.len() + 2;
                    self.state = if line.is_empty() { State::Done } else { State::Trailers(before + length) };
                    length
                }
            };
        }
    }
}

fn copy(from: &[u8], most: u64, to: &mut Vec<u8>) -> usize {
    let n = usize::try_from(most).map_or(from.len(), |most| most.min(from.len()));
    to.extend_from_slice(from.get(..n).unwrap_or_default());
    n
}

/// The line without its end; `None` while it isn't whole.
fn line(bytes: &[u8], most: usize) -> Result<Option<&[u8]>, Refusal> {
    let bounded = bytes.get(..most.min(bytes.len())).unwrap_or_default();
    match bounded.iter().position(|b| *b == b'\n') {
        Some(end) => match bounded.get(..end).and_then(|line| line.strip_suffix(b"\r")) {
            Some(line) if !line.contains(&b'\r') => Ok(Some(line)),
            _ => Err(BROKEN),
        },
        None if bytes.len() >= most => Err(BROKEN),
        None => Ok(None),
    }
}

fn chunk_length(line: &[u8]) -> Result<u64, Refusal> {
    let text = std::str::from_utf8(line).map_err(|_| BROKEN)?;
    let (digits, extension) = text.split_once(';').unwrap_or((text, ""));
    let clean = extension.bytes().all(|b| b == b'\t' || !b.is_ascii_control());
    let digits = digits.trim_end_matches([' ', '\t']);
    let hex = (1..=8).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit());
    u64::from_str_radix(digits, 16).ok().filter(|_| hex && clean).ok_or(BROKEN)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Feeds in pieces of so many bytes; returns the body, and what is left.
    fn run(framing: Framing, input: &[u8], piece: usize) -> Result<(Vec<u8>, Vec<u8>, bool), Refusal> {
        let mut decoder = Decoder::new(framing, 16)?;
        let (mut body, mut pending) = (Vec::new(), Vec::new());
        for piece in input.chunks(piece) {
            pending.extend_from_slice(piece);
            let taken = decoder.take(&pending, &mut body)?;
            pending.drain(..taken);
        }
        Ok((body, pending, decoder.is_done()))
    }

    #[test]
    fn bodies() {
        type Want = Result<(&'static str, &'static str, bool), u16>;
        let table: &[(Framing, &str, Want)] = &[
            (Framing::None, "GET", Ok(("", "GET", true))),
            (Framing::Length(3), "abcGET", Ok(("abc", "GET", true))),
            (Framing::Length(5), "abc", Ok(("abc", "", false))),
            (Framing::Length(17), "", Err(413)),
            (Framing::Length(u64::MAX), "", Err(413)),
            (Framing::Chunked, "3\r\nabc\r\n0\r\n\r\nGET", Ok(("abc", "GET", true))),
            (
                Framing::Chunked,
                "3;x=y\r\nabc\r\nA\r\n0123456789\r\n0\r\nT: r\r\n\r\nG",
                Ok(("abc0123456789", "G", true)),
            ),
            (Framing::Chunked, "3\r\nab", Ok(("ab", "", false))),
            (Framing::Chunked, "0\r\n\r", Ok(("", "\r", false))),
            (Framing::Chunked, "3\nabc\n0\n\n", Err(400)),
            (Framing::Chunked, "3\r\nabcd\r\n", Err(400)),
            (Framing::Chunked, "3\r\nabc\n0\r\n\r\n", Err(400)),
            (Framing::Chunked, "\r\n", Err(400)),
            (Framing::Chunked, "+3\r\nabc\r\n", Err(400)),
            (Framing::Chunked, "0x3\r\nabc\r\n", Err(400)),
            (Framing::Chunked, " 3\r\nabc\r\n", Err(400)),
            (Framing::Chunked, "3;\x01\r\nabc\r\n", Err(400)),
            (Framing::Chunked, "3;a\rb\r\nabc\r\n", Err(400)),
            (Framing::Chunked, "fffffffff\r\n", Err(400)),
            (Framing::Chunked, "ffffffff\r\n", Err(413)),
            (Framing::Chunked, "8\r\n01234567\r\n9\r\n", Err(413)),
        ];
        for (framing, input, want) in table {
            for piece in 1..=input.len().max(1) {
                let got = run(*framing, input.as_bytes(), piece);
                let want = want.map(|(body, rest, done)| (body.as_bytes().to_vec(), rest.as_bytes().to_vec(), done));
                assert_eq!(got.map_err(|refusal| refusal.status), want, "{input:?} by {piece}");
            }
        }
    }

    #[test]
    fn lines_without_an_end() {
        let long = "1".repeat(MAX_LINE);
        assert_eq!(run(Framing::Chunked, long.as_bytes(), 1).map_err(|r| r.status), Err(400));
        let trailers = format!("0\r\n{}", "a: b\r\n".repeat(1000));
        assert_eq!(run(Framing::Chunked, trailers.as_bytes(), 7).map_err(|r| r.status), Err(400));
    }
}

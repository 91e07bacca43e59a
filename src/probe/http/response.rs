//! Reading an answer: its head, and as much of its body as is worth it.

use std::io::{self, ErrorKind};

use super::{Stream, describe};

/// More of a head is no head of a health check.
const MAX_HEAD: usize = 64 << 10;
const MAX_HEADERS: usize = 128;
/// What is read of a body, so that the other side can send it in peace; the rest is dropped.
const MAX_BODY: usize = 10 << 10;
/// Answers on the way to the real one (status 1xx).
const MAX_INTERIM: usize = 5;

/// Why there is no answer.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The other side speaks, but not TLS.
    #[cfg_attr(not(feature = "tls"), expect(dead_code, reason = "nobody is asked over TLS"))]
    #[error("tls: the answer came without it")]
    NotTls,
    /// The other side is to blame.
    #[error("{0}")]
    Failure(String),
    /// Nothing can be said of the other side: as with the kubelet, when the body breaks off.
    #[error("{0}")]
    Error(String),
}

#[derive(Debug, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    pub location: Option<String>,
}

impl Response {
    /// Where it says to go on.
    pub fn redirect(&self) -> Option<&str> {
        let location = self.location.as_deref().filter(|l| !l.is_empty())?;
        matches!(self.status, 301 | 302 | 303 | 307 | 308).then_some(location)
    }
}

/// How the body's end is known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Body {
    Length(u64),
    Chunked,
    /// By that of the connection.
    Open,
}

struct Head {
    response: Response,
    body: Body,
}

/// Reads an answer, and drops its body if that is to be read at all.
pub fn read(stream: &mut dyn Stream, with_body: bool) -> Result<Response, Fault> {
    let mut buffer = Buffer { stream, bytes: Vec::with_capacity(1024), at: 0 };
    for _ in 0..MAX_INTERIM {
        let head = buffer.head()?;
        if (100..200).contains(&head.response.status) && head.response.status != 101 {
            continue;
        }
        // Of what is followed only the head matters.
        if with_body && head.response.redirect().is_none() {
            buffer.body(head.body).map_err(|e| Fault::Error(format!("reading the body: {}", describe(&e))))?;
        }
        return Ok(head.response);
    }
    Err(Fault::Failure("answers without end".to_owned()))
}

/// What has been read and not been looked at yet.
struct Buffer<'a> {
    stream: &'a mut dyn Stream,
    bytes: Vec<u8>,
    at: usize,
}

impl Buffer<'_> {
    fn unread(&self) -> &[u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// Reads more; `false` at the end.
    fn more(&mut self) -> io::Result<bool> {
        let mut piece = [0; 2048];
        let n = loop {
            match self.stream.read(&mut piece) {
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                result => break result?,
            }
        };
        self.bytes.extend_from_slice(piece.get(..n).unwrap_or_default());
        Ok(n > 0)
    }

    fn head(&mut self) -> Result<Head, Fault> {
        loop {
            if let Some((length, head)) = parse(self.unread())? {
                self.at += length;
                return Ok(head);
            }
            if self.unread().len() > MAX_HEAD {
                return Err(Fault::Failure("the head of the answer is too long".to_owned()));
            }
            match self.more() {
                Ok(true) => {}
                Ok(false) => return Err(Fault::Failure("the connection was closed without an answer".to_owned())),
                Err(e) => return Err(Fault::Failure(describe(&e))),
            }
        }
    }

    fn body(&mut self, body: Body) -> io::Result<()> {
        match body {
            Body::Length(length) => self.skip(usize::try_from(length).unwrap_or(MAX_BODY).min(MAX_BODY)),
            Body::Open => loop {
                match self.more() {
                    Ok(true) if self.unread().len() < MAX_BODY => {}
                    // TLS without a proper end is common.
                    Err(e) if e.kind() != ErrorKind::UnexpectedEof => return Err(e),
                    _ => return Ok(()),
                }
            },
            Body::Chunked => self.chunks(),
        }
    }

    fn skip(&mut self, length: usize) -> io::Result<()> {
        while self.unread().len() < length {
            if !self.more()? {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
        self.at += length;
        Ok(())
    }

    /// The chunks; what may follow the last one is of no interest.
    fn chunks(&mut self) -> io::Result<()> {
        let start = self.at;
        while self.at - start < MAX_BODY {
            let (head, length) = loop {
                match httparse::parse_chunk_size(self.unread()) {
                    Ok(httparse::Status::Complete(chunk)) => break chunk,
                    Ok(httparse::Status::Partial) if self.unread().len() < MAX_BODY => {}
                    _ => return Err(io::Error::new(ErrorKind::InvalidData, "its chunks make no sense")),
                }
                if !self.more()? {
                    return Err(ErrorKind::UnexpectedEof.into());
                }
            };
            self.at += head;
            if length == 0 {
                break;
            }
            // With the line's end that follows.
            self.skip(usize::try_from(length).unwrap_or(MAX_BODY).min(MAX_BODY) + 2)?;
        }
        Ok(())
    }
}

/// `None` while the head isn't whole; else its length and what it says.
fn parse(bytes: &[u8]) -> Result<Option<(usize, Head)>, Fault> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut parsed = httparse::Response::new(&mut headers);
    let mut config = httparse::ParserConfig::default();
    config.allow_obsolete_multiline_headers_in_responses(true);
    config.allow_spaces_after_header_name_in_responses(true);
    let length = match config.parse_response(&mut parsed, bytes) {
        Ok(httparse::Status::Complete(length)) => length,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(e) => return Err(Fault::Failure(format!("the answer is no HTTP: {e}"))),
    };
    let status = parsed.code.unwrap_or_default();
    let header = |name: &str| {
        let found = parsed.headers.iter().find(|h| h.name.eq_ignore_ascii_case(name));
        found.map(|h| String::from_utf8_lossy(h.value).trim().to_owned())
    };
    let chunked = header("transfer-encoding").is_some_and(|e| e.to_ascii_lowercase().ends_with("chunked"));
    let body = match (status, header("content-length").map(|l| l.parse())) {
        (100..200 | 204 | 304, _) => Body::Length(0),
        _ if chunked => Body::Chunked,
        (_, Some(Ok(length))) => Body::Length(length),
        (_, Some(Err(_))) => return Err(Fault::Failure("the answer has a bad Content-Length".to_owned())),
        (_, None) => Body::Open,
    };
    Ok(Some((length, Head { response: Response { status, location: header("location") }, body })))
}

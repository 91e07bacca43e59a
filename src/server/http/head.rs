//! The head of a request: read strictly, since what two readers of one connection could understand
//! differently is how requests are smuggled. Pure.

use super::path::{Path, Query};

/// Bytes of a head, the empty line at its end included: room for a command of `exec` in the query.
pub const MAX_HEAD: usize = 64 << 10;
const MAX_HEADERS: usize = 64;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Get,
    Head,
    Post,
    Put,
    Patch,
    Delete,
    Options,
    /// Any other: nothing of ours has a use for it.
    Other,
}

impl Method {
    fn parse(text: &str) -> Method {
        match text {
            "GET" => Method::Get,
            "HEAD" => Method::Head,
            "POST" => Method::Post,
            "PUT" => Method::Put,
            "PATCH" => Method::Patch,
            "DELETE" => Method::Delete,
            "OPTIONS" => Method::Options,
            _ => Method::Other,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Method::Get => "GET",
            Method::Head => "HEAD",
            Method::Post => "POST",
            Method::Put => "PUT",
            Method::Patch => "PATCH",
            Method::Delete => "DELETE",
            Method::Options => "OPTIONS",
            Method::Other => "other",
        }
    }
}

/// How the body comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Framing {
    None,
    /// This many bytes; not 0.
    Length(u64),
    Chunked,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    pub method: Method,
    pub path: Path,
    pub query: Query,
    /// Names in lower case.
    headers: Vec<(String, String)>,
    pub framing: Framing,
    /// HTTP/1.1 rather than 1.0.
    pub chunks: bool,
    /// Whether the client means to send another request.
    pub keep_alive: bool,
    /// The client waits for a `100 Continue` before it sends the body.
    pub expects_continue: bool,
}

/// A request that is not looked at further; the connection ends with the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    pub status: u16,
    pub why: &'static str,
}

const fn bad(why: &'static str) -> Refusal {
    Refusal { status: 400, why }
}

impl Head {
    /// The value of the one header of this name, given in lower case. `None` too when there are
    /// several: what is security's must not depend on which of them is looked at.
    pub fn header(&self, name: &str) -> Option<&str> {
        let mut values = self.headers.iter().filter(|(n, _)| n == name).map(|(_, value)| value.as_str());
        let first = values.next()?;
        values.next().is_none().then_some(first)
    }

    /// All headers, for handing them on.
    pub fn headers(&self) -> impl Iterator<Item = (&str, &str)> {
        self.headers.iter().map(|(name, value)| (name.as_str(), value.as_str()))
    }

    /// Whether a comma-separated header has this token, in any case.
    pub fn has_token(&self, name: &str, token: &str) -> bool {
        let values = self.headers.iter().filter(|(n, _)| n == name).flat_map(|(_, value)| value.split(','));
        values.map(str::trim).any(|value| value.eq_ignore_ascii_case(token))
    }

    /// What the client wants to change to: `SPDY/3.1`, `websocket`.
    pub fn upgrade(&self) -> Option<&str> {
        self.header("upgrade").filter(|_| self.has_token("connection", "upgrade"))
    }

    /// A head for tests of handlers.
    #[cfg(test)]
    pub fn example(method: &str, target: &str, headers: &[(&str, &str)]) -> Head {
        Head::example_with_host(method, target, &[&[("Host", "x")], headers].concat())
    }

    /// As [`Head::example`], with all headers given.
    #[cfg(test)]
    pub fn example_with_host(method: &str, target: &str, headers: &[(&str, &str)]) -> Head {
        let headers: String = headers.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
        let text = format!("{method} {target} HTTP/1.1\r\n{headers}\r\n");
        parse(text.as_bytes()).unwrap_or_else(|refusal| panic!("{target}: {}", refusal.why))
    }
}

/// How far a head has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// It ends before this byte.
    Whole(usize),
    Partial,
}

/// Looks for the end of the head in what has come; `looked` bytes of it were looked at before.
///
/// # Errors
/// When no head can come of it any more.
pub fn find_end(bytes: &[u8], looked: usize) -> Result<Progress, Refusal> {
    let from = looked.saturating_sub(3);
    let new = bytes.get(from..).unwrap_or_default();
    for (i, byte) in new.iter().enumerate() {
        let at = from + i;
        let before = |n: usize| at.checked_sub(n).and_then(|i| bytes.get(i)).copied();
        match byte {
            b'\n' if before(1) != Some(b'\r') => return Err(bad("a line ends without a carriage return")),
            b'\n' if before(2) == Some(b'\n') && before(3) == Some(b'\r') => return Ok(Progress::Whole(at + 1)),
            b'\n' => {}
            _ if before(1) == Some(b'\r') => return Err(bad("a carriage return stands within a line")),
            0 => return Err(bad("there is a NUL in the head")),
            _ => {}
        }
        if at >= MAX_HEAD {
            return Err(Refusal { status: 431, why: "the head is too long" });
        }
    }
    Ok(Progress::Partial)
}

/// Reads a head that [`find_end`] found whole.
///
/// # Errors
/// When it is none, or could be read in two ways.
pub fn parse(bytes: &[u8]) -> Result<Head, Refusal> {
    // httparse skips empty lines here.
    if !bytes.first().is_some_and(u8::is_ascii_alphabetic) {
        return Err(bad("this is no HTTP request"));
    }
    let mut slots = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut slots);
    match request.parse(bytes) {
        Ok(httparse::Status::Complete(length)) if length == bytes.len() => {}
        Err(httparse::Error::TooManyHeaders) => return Err(Refusal { status: 431, why: "too many headers" }),
        _ => return Err(bad("this is no HTTP request")),
    }
    let chunks = request.version == Some(1);
    let target = request.path.unwrap_or_default();
    if !target.bytes().all(|b| b.is_ascii_graphic() && b != b'#') {
        return Err(bad("the target has characters that have to be escaped"));
    }
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let mut headers = Vec::with_capacity(request.headers.len());
    for header in request.headers.iter() {
        let value = std::str::from_utf8(header.value).map_err(|_| bad("a header is not UTF-8"))?;
        headers.push((header.name.to_ascii_lowercase(), value.trim_matches([' ', '\t']).to_owned()));
    }
    let mut head = Head {
        method: Method::parse(request.method.unwrap_or_default()),
        path: Path::parse(path).map_err(bad)?,
        query: Query::parse(query),
        headers,
        framing: Framing::None,
        chunks,
        keep_alive: chunks,
        expects_continue: false,
    };
    match (head.count("host"), chunks) {
        (1, _) | (0, false) => {}
        _ => return Err(bad("there has to be one Host header")),
    }
    head.framing = framing(&head)?;
    head.keep_alive = match chunks {
        true => !head.has_token("connection", "close"),
        false => head.has_token("connection", "keep-alive"),
    };
    head.expects_continue = match head.header("expect") {
        Some(value) if value.eq_ignore_ascii_case("100-continue") => chunks && head.framing != Framing::None,
        None if head.count("expect") == 0 => false,
        _ => return Err(Refusal { status: 417, why: "an expectation that can't be met" }),
    };
    Ok(head)
}

fn framing(head: &Head) -> Result<Framing, Refusal> {
    let coding = match (head.count("transfer-encoding"), head.header("transfer-encoding")) {
        (0, _) => false,
        (1, Some(value)) if value.eq_ignore_ascii_case("chunked") => true,
        (1, _) => return Err(Refusal { status: 501, why: "chunked is the only transfer encoding" }),
        _ => return Err(bad("there is more than one Transfer-Encoding")),
    };
    match (head.count("content-length"), coding) {
        (0, false) => Ok(Framing::None),
        (0, true) if !head.chunks => Err(bad("HTTP/1.0 has no Transfer-Encoding")),
        (0, true) => Ok(Framing::Chunked),
        (_, true) => Err(bad("there are both Content-Length and Transfer-Encoding")),
        (1, false) => {
            let text = head.header("content-length").unwrap_or_default();
            let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
            match text.parse().ok().filter(|_| digits) {
                Some(0) => Ok(Framing::None),
                Some(length) => Ok(Framing::Length(length)),
                None => Err(bad("Content-Length is no number")),
            }
        }
        _ => Err(bad("there is more than one Content-Length")),
    }
}

impl Head {
    fn count(&self, name: &str) -> usize {
        self.headers.iter().filter(|(n, _)| n == name).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the server does it: find the end, then parse.
    fn read(bytes: &[u8]) -> Result<Option<Head>, Refusal> {
        match find_end(bytes, 0)? {
            Progress::Whole(end) => parse(&bytes[..end]).map(Some),
            Progress::Partial => Ok(None),
        }
    }

    #[test]
    fn what_is_read() {
        let text = b"POST /exec/ns/pod/c?command=ls&x=%20 HTTP/1.1\r\nHost: a\r\nX-One:  two \r\nConnection: Upgrade, x\r\nUpgrade: SPDY/3.1\r\nContent-Length: 12\r\nExpect: 100-continue\r\n\r\nbody";
        let head = read(text).expect("is good").expect("is whole");
        assert_eq!((head.method, head.path.segments()), (Method::Post, vec!["exec", "ns", "pod", "c"]));
        assert_eq!((head.query.get("x"), head.query.raw()), (Some(" "), "command=ls&x=%20"));
        assert_eq!((head.header("x-one"), head.upgrade()), (Some("two"), Some("SPDY/3.1")));
        assert_eq!(head.framing, Framing::Length(12));
        assert!(head.keep_alive && head.expects_continue && head.chunks);
        let old = read(b"GET / HTTP/1.0\r\n\r\n").expect("is good").expect("is whole");
        assert!(!old.keep_alive && !old.chunks);
        let close =
            read(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: a, Close\r\n\r\n").expect("is good").expect("whole");
        assert!(!close.keep_alive);
        let twice =
            read(b"GET / HTTP/1.1\r\nhost: x\r\nAuthorization: a\r\nAuthorization: b\r\n\r\n").expect("is good");
        assert_eq!(twice.expect("is whole").header("authorization"), None);
    }

    #[test]
    fn what_is_refused() {
        let long = format!("GET /{} HTTP/1.1\r\nHost: x\r\n\r\n", "a".repeat(MAX_HEAD));
        let many = format!("GET / HTTP/1.1\r\nHost: x\r\n{}\r\n", "A: b\r\n".repeat(MAX_HEADERS));
        let table: &[(&str, u16, &str)] = &[
            ("GET / HTTP/1.1\r\n\r\n", 400, "Host"),
            ("GET / HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400, "Host"),
            ("GET / HTTP/1.1\nHost: a\n\n", 400, "carriage return"),
            ("GET / HTTP/1.1\r\nHost: a\n", 400, "carriage return"),
            ("GET / HTTP/1.1\r\nHost: a\rb\r\n\r\n", 400, "carriage return"),
            ("GET / HTTP/1.1\r\nHost: a\0\r\n\r\n", 400, "NUL"),
            ("GET / HTTP/1.1\r\nHost: a\r\nX: a\r\n b\r\n\r\n", 400, "no HTTP"),
            ("GET / HTTP/1.1\r\nHost : a\r\n\r\n", 400, "no HTTP"),
            ("GET / HTTP/1.1\r\nHost: a\r\n: b\r\n\r\n", 400, "no HTTP"),
            ("GET / HTTP/2.0\r\nHost: a\r\n\r\n", 400, "no HTTP"),
            ("\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n", 400, "no HTTP"),
            ("\r\n\r\n", 400, "no HTTP"),
            ("GET http://a/ HTTP/1.1\r\nHost: a\r\n\r\n", 400, "slash"),
            ("GET /a#b HTTP/1.1\r\nHost: a\r\n\r\n", 400, "escaped"),
            ("GET /ä HTTP/1.1\r\nHost: a\r\n\r\n", 400, "escaped"),
            ("GET /../etc HTTP/1.1\r\nHost: a\r\n\r\n", 400, "\"..\""),
            ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "both"),
            ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\nContent-Length: 3\r\n\r\n", 400, "more than one"),
            ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3, 3\r\n\r\n", 400, "no number"),
            ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: +3\r\n\r\n", 400, "no number"),
            ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: -3\r\n\r\n", 400, "no number"),
            ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 0x3\r\n\r\n", 400, "no number"),
            ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length:\r\n\r\n", 400, "no number"),
            ("POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 99999999999999999999\r\n\r\n", 400, "no number"),
            ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: gzip, chunked\r\n\r\n", 501, "only"),
            ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: xchunked\r\n\r\n", 501, "only"),
            (
                "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n",
                400,
                "more than one",
            ),
            ("POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding : chunked\r\n\r\n", 400, "no HTTP"),
            ("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "HTTP/1.0"),
            ("GET / HTTP/1.1\r\nHost: a\r\nExpect: tea\r\n\r\n", 417, "expectation"),
            ("\x16\x03\x01\x02\x00", 400, "NUL"),
            (&long, 431, "too long"),
            (&many, 431, "too many"),
        ];
        for (text, status, why) in table {
            match read(text.as_bytes()) {
                Err(refusal) => {
                    assert!(refusal.status == *status && refusal.why.contains(why), "{text:.80?}: {refusal:?}");
                }
                other => panic!("{text:.80?}: {other:?}"),
            }
        }
    }

    #[test]
    fn an_end_that_comes_in_pieces() {
        let text = b"GET / HTTP/1.1\r\nHost: a\r\n\r\nGET";
        for split in 0..text.len() {
            let looked = match find_end(&text[..split], 0) {
                Ok(Progress::Whole(end)) => {
                    assert_eq!(end, text.len() - 3);
                    continue;
                }
                other => {
                    assert_eq!(other, Ok(Progress::Partial), "{split}");
                    split
                }
            };
            assert_eq!(find_end(text, looked), Ok(Progress::Whole(text.len() - 3)), "{split}");
        }
        let long = vec![b'a'; MAX_HEAD + 1];
        assert_eq!(find_end(&long, 0).map_err(|r| r.status), Err(431));
    }
}

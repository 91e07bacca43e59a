//! What handlers give back, and how it is written. Pure.

use std::io;

use serde::Serialize;

use super::head::{Head, Method, Refusal};
use super::stream::{Out, Raw};

/// An answer that is known whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    /// Beside those of the framing. Values have no line end in them: they are the program's own.
    pub headers: Vec<(&'static str, String)>,
    pub body: Vec<u8>,
}

pub const TEXT: &str = "text/plain; charset=utf-8";
pub const JSON: &str = "application/json";

impl Response {
    pub fn new(status: u16, content_type: &str, body: Vec<u8>) -> Response {
        Response { status, headers: vec![("Content-Type", content_type.to_owned())], body }
    }

    pub fn text(status: u16, body: impl Into<String>) -> Response {
        Response::new(status, TEXT, body.into().into_bytes())
    }

    /// 200 with JSON.
    pub fn json(value: &impl Serialize) -> Response {
        match serde_json::to_vec(value) {
            Ok(body) => Response::new(200, JSON, body),
            Err(e) => Response::text(500, format!("cannot be written as JSON: {e}\n")),
        }
    }

    pub fn with_header(mut self, name: &'static str, value: impl Into<String>) -> Response {
        self.headers.push((name, value.into()));
        self
    }

    pub fn not_found() -> Response {
        Response::text(404, "404 page not found\n")
    }
}

impl From<Refusal> for Response {
    fn from(refusal: Refusal) -> Response {
        Response::text(refusal.status, format!("{}\n", refusal.why))
    }
}

/// What writes the body of an answer while the client reads it.
pub type Writer = Box<dyn FnOnce(&mut Out<'_>) -> io::Result<()> + Send>;
/// What speaks another protocol on a connection; it writes the head of the answer too.
pub type Speaker = Box<dyn FnOnce(Raw<'_>) -> io::Result<()> + Send>;

/// An answer.
pub enum Reply {
    Whole(Response),
    /// A head, without a body, and what writes the body. When that fails the connection ends before
    /// the body does, so that the client can tell.
    Stream(Response, Writer),
    Upgrade(Speaker),
}

impl From<Response> for Reply {
    fn from(response: Response) -> Reply {
        Reply::Whole(response)
    }
}

/// How the end of an answer's body is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ending {
    Length(usize),
    Chunks,
    /// The end of the connection.
    Close,
}

/// The head of an answer, as bytes.
pub fn encode_head(response: &Response, ending: Ending, keep_alive: bool) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 {} {}\r\n", response.status, reason(response.status));
    for (name, value) in &response.headers {
        text.push_str(name);
        text.push_str(": ");
        text.push_str(value);
        text.push_str("\r\n");
    }
    match ending {
        Ending::Length(length) => text.push_str(&format!("Content-Length: {length}\r\n")),
        Ending::Chunks => text.push_str("Transfer-Encoding: chunked\r\n"),
        Ending::Close => {}
    }
    text.push_str("X-Content-Type-Options: nosniff\r\n");
    text.push_str(if keep_alive { "\r\n" } else { "Connection: close\r\n\r\n" });
    text.into_bytes()
}

/// A whole answer, as bytes.
pub fn encode(response: &Response, head_only: bool, keep_alive: bool) -> Vec<u8> {
    let mut bytes = encode_head(response, Ending::Length(response.body.len()), keep_alive);
    if !head_only {
        bytes.extend_from_slice(&response.body);
    }
    bytes
}

/// How a stream that answers `head` is framed.
pub fn ending(head: &Head) -> Ending {
    match head.chunks {
        true => Ending::Chunks,
        false => Ending::Close,
    }
}

pub fn has_body(head: &Head) -> bool {
    head.method != Method::Head
}

pub fn reason(status: u16) -> &'static str {
    match status {
        101 => "Switching Protocols",
        200 => "OK",
        201 => "Created",
        202 => "Accepted",
        204 => "No Content",
        301 => "Moved Permanently",
        302 => "Found",
        304 => "Not Modified",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        408 => "Request Timeout",
        409 => "Conflict",
        410 => "Gone",
        413 => "Content Too Large",
        415 => "Unsupported Media Type",
        417 => "Expectation Failed",
        422 => "Unprocessable Content",
        429 => "Too Many Requests",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        501 => "Not Implemented",
        502 => "Bad Gateway",
        503 => "Service Unavailable",
        504 => "Gateway Timeout",
        _ => "Unknown",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_an_answer() {
        let response = Response::text(404, "none\n").with_header("Allow", "GET");
        let want = "HTTP/1.1 404 Not Found\r\nContent-Type: text/plain; charset=utf-8\r\nAllow: GET\r\nContent-Length: 5\r\nX-Content-Type-Options: nosniff\r\n";
        let text = |head_only, keep| String::from_utf8(encode(&response, head_only, keep)).expect("is text");
        assert_eq!(text(false, true), format!("{want}\r\nnone\n"));
        assert_eq!(text(true, false), format!("{want}Connection: close\r\n\r\n"));
        let head = String::from_utf8(encode_head(&response, Ending::Chunks, true)).expect("is text");
        assert!(head.contains("\r\nTransfer-Encoding: chunked\r\n") && !head.contains("Content-Length"), "{head}");
    }
}

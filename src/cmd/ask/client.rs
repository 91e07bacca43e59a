//! One request after the other over the agent's socket.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::Error;

/// Bytes of the head of an answer.
const MAX_HEAD: u64 = 64 << 10;

#[derive(Clone)]
pub struct Client {
    socket: PathBuf,
}

/// An answer whose body is still to be read.
pub struct Answer {
    pub status: u16,
    pub body: Body,
}

pub enum Body {
    Length(io::Take<BufReader<UnixStream>>),
    /// And the bytes that are left of the chunk.
    Chunks(BufReader<UnixStream>, u64),
    Ended,
}

impl Client {
    pub fn new(socket: &Path) -> Client {
        Client { socket: socket.to_owned() }
    }

    /// Asks, and gives the answer whatever it is.
    pub fn open(&self, method: &str, target: &str, headers: &str, body: &str) -> Result<Answer, Error> {
        let headers = format!("Connection: close\r\nContent-Length: {}\r\n{headers}", body.len());
        let reader = self.send_request(method, target, &headers, body)?;
        answer(reader).map_err(Error::Answer)
    }

    /// Asks for a connection on which another protocol is spoken.
    pub fn upgrade(&self, target: &str, headers: &str) -> Result<BufReader<UnixStream>, Error> {
        let headers = format!("Connection: Upgrade\r\n{headers}");
        let mut reader = self.send_request("POST", target, &headers, "")?;
        let head = Head::read(&mut reader).map_err(Error::Answer)?;
        match head.status {
            101 => Ok(reader),
            status => Err(Error::Refused(message(Answer { status, body: head.body(reader).map_err(Error::Answer)? })?)),
        }
    }

    fn send_request(
        &self,
        method: &str,
        target: &str,
        headers: &str,
        body: &str,
    ) -> Result<BufReader<UnixStream>, Error> {
        let connect = |source| Error::Connect { socket: self.socket.display().to_string(), source };
        let mut stream = UnixStream::connect(&self.socket).map_err(connect)?;
        let head = format!("{method} {target} HTTP/1.1\r\nHost: cleat\r\n{headers}\r\n");
        stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(body.as_bytes())).map_err(connect)?;
        Ok(BufReader::new(stream))
    }

    /// Gets what must not be refused.
    pub fn get(&self, target: &str, headers: &str) -> Result<Answer, Error> {
        let answer = self.open("GET", target, headers, "")?;
        if answer.status < 300 { Ok(answer) } else { Err(Error::Refused(message(answer)?)) }
    }

    pub fn json(&self, target: &str, headers: &str) -> Result<Value, Error> {
        serde_json::from_reader(self.get(target, headers)?.body).map_err(|e| Error::Answer(e.into()))
    }

    /// Sends an object.
    pub fn send(&self, method: &str, target: &str, body: &str) -> Result<Value, Error> {
        let answer = self.open(method, target, "Content-Type: application/json\r\n", body)?;
        if answer.status >= 300 {
            return Err(Error::Refused(message(answer)?));
        }
        serde_json::from_reader(answer.body).map_err(|e| Error::Answer(e.into()))
    }
}

/// What a refusal says.
pub fn message(mut answer: Answer) -> Result<String, Error> {
    let mut text = String::new();
    answer.body.read_to_string(&mut text).map_err(Error::Answer)?;
    let status: Value = serde_json::from_str(&text).unwrap_or_default();
    let message = status["message"].as_str().map(str::to_owned);
    Ok(message.unwrap_or_else(|| format!("{}: {}", answer.status, text.trim_end())))
}

fn answer(mut reader: BufReader<UnixStream>) -> io::Result<Answer> {
    let head = Head::read(&mut reader)?;
    Ok(Answer { status: head.status, body: head.body(reader)? })
}

/// What of an answer's head is of interest.
struct Head {
    status: u16,
    length: Option<String>,
    chunked: bool,
}

fn broken() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "it is no HTTP")
}

impl Head {
    fn read(reader: &mut BufReader<UnixStream>) -> io::Result<Head> {
        let mut head = Vec::new();
        loop {
            let before = head.len();
            let left = MAX_HEAD.saturating_sub(before as u64);
            if reader.by_ref().take(left).read_until(b'\n', &mut head)? == 0 {
                return Err(broken());
            }
            if head.get(before..) == Some(b"\r\n") {
                break;
            }
        }
        let mut slots = [httparse::EMPTY_HEADER; 32];
        let mut response = httparse::Response::new(&mut slots);
        response.parse(&head).map_err(|_| broken())?;
        let header = |name: &str| {
            let header = response.headers.iter().find(|h| h.name.eq_ignore_ascii_case(name));
            header.and_then(|h| std::str::from_utf8(h.value).ok())
        };
        Ok(Head {
            status: response.code.unwrap_or_default(),
            length: header("content-length").map(str::to_owned),
            chunked: header("transfer-encoding") == Some("chunked"),
        })
    }

    fn body(&self, reader: BufReader<UnixStream>) -> io::Result<Body> {
        Ok(match &self.length {
            Some(length) => Body::Length(reader.take(length.parse().map_err(|_| broken())?)),
            None if self.chunked => Body::Chunks(reader, 0),
            None => Body::Ended,
        })
    }
}

impl Read for Body {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Body::Ended => Ok(0),
            Body::Length(reader) => reader.read(buffer),
            Body::Chunks(reader, left) => {
                if *left == 0 {
                    let mut line = String::new();
                    reader.by_ref().take(64).read_line(&mut line)?;
                    let length = u64::from_str_radix(line.trim_end(), 16);
                    // An answer that breaks off has no last chunk.
                    *left = length.map_err(|_| io::Error::from(io::ErrorKind::UnexpectedEof))?;
                    if *left == 0 {
                        *self = Body::Ended;
                        return Ok(0);
                    }
                }
                let n = reader.by_ref().take(*left).read(buffer)?;
                *left -= n as u64;
                match (n, *left) {
                    (0, _) => return Err(io::ErrorKind::UnexpectedEof.into()),
                    (_, 0) => reader.read_exact(&mut [0; 2])?,
                    _ => {}
                }
                Ok(n)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers() {
        let table: &[(&str, Option<(u16, &str)>)] = &[
            ("HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nabcdef", Some((200, "abc"))),
            (
                "HTTP/1.1 404 N\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\na\r\n0123456789\r\n0\r\n\r\n",
                Some((404, "abc0123456789")),
            ),
            ("HTTP/1.1 204 N\r\n\r\n", Some((204, ""))),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab", None),
            ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n", None),
            ("HTTP/1.1 200 OK\r\n", None),
            ("hello\r\n\r\n", None),
        ];
        for (text, want) in table {
            let (ours, mut theirs) = UnixStream::pair().expect("a pair");
            theirs.write_all(text.as_bytes()).expect("writes");
            drop(theirs);
            let read = || {
                let mut answer = answer(BufReader::new(ours))?;
                let mut body = String::new();
                answer.body.read_to_string(&mut body)?;
                Ok::<_, io::Error>((answer.status, body))
            };
            assert_eq!(read().ok(), want.map(|(status, body)| (status, body.to_owned())), "{text:?}");
        }
    }
}

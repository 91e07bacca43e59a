//! A small HTTP/1.1 server: a thread that accepts, and a lane whose threads each serve one
//! connection. One request a connection; every part of it is bounded in size and time.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;

use crate::lane::Lane;

const MAX_HEAD: usize = 16 << 10;
const MAX_HEADERS: usize = 64;
/// Threads that serve, and connections that wait for one.
const THREADS: usize = 8;
const CONNECTIONS: usize = 64;
/// For the whole request, and for each piece of the answer.
const TIMEOUT: Duration = Duration::from_secs(10);

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request {
    pub path: String,
    /// Behind the question mark; empty without one.
    pub query: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    pub content_type: &'static str,
    pub body: Vec<u8>,
}

impl Response {
    pub fn text(status: u16, body: String) -> Response {
        Response { status, content_type: "text/plain; charset=utf-8", body: body.into_bytes() }
    }

    pub fn json(value: &impl Serialize) -> Response {
        match serde_json::to_vec(value) {
            Ok(body) => Response { status: 200, content_type: "application/json", body },
            Err(e) => Response::text(500, format!("cannot be written as JSON: {e}\n")),
        }
    }
}

type Handler = Arc<dyn Fn(&Request) -> Response + Send + Sync>;

/// Listens at `address` and serves from a thread of its own. Returns where it listens.
///
/// # Errors
/// When it can't listen there.
pub fn serve(
    address: SocketAddr,
    name: &'static str,
    handler: impl Fn(&Request) -> Response + Send + Sync + 'static,
) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address)?;
    let bound = listener.local_addr()?;
    let handler: Handler = Arc::new(handler);
    std::thread::Builder::new().name(name.to_owned()).spawn(move || accept(&listener, name, &handler))?;
    Ok(bound)
}

fn accept(listener: &TcpListener, name: &'static str, handler: &Handler) {
    let lane = Lane::new(name, THREADS);
    let open = Arc::new(AtomicUsize::new(0));
    for stream in listener.incoming() {
        let stream = match stream {
            Ok(stream) => stream,
            Err(e) => {
                // Out of file descriptors, most likely; it gets no better by haste.
                log::warn!("accepting a connection: {e}");
                std::thread::sleep(Duration::from_millis(100));
                continue;
            }
        };
        if open.load(Ordering::Relaxed) >= CONNECTIONS {
            continue;
        }
        let counted = Counted::new(&open);
        let handler = handler.clone();
        lane.submit(move || {
            if let Err(e) = connection(stream, &handler) {
                log::debug!("a connection: {e}");
            }
            drop(counted);
        });
    }
}

/// Counts a connection for as long as it lives.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(open: &Arc<AtomicUsize>) -> Counted {
        open.fetch_add(1, Ordering::Relaxed);
        Counted(open.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

fn connection(mut stream: TcpStream, handler: &Handler) -> io::Result<()> {
    stream.set_write_timeout(Some(TIMEOUT))?;
    let (response, head_only) = match read_head(&mut stream)? {
        Asked::Get(request) => (handler(&request), false),
        Asked::Head(request) => (handler(&request), true),
        Asked::Refused(status, why) => (Response::text(status, format!("{why}\n")), false),
    };
    let head = format!(
        "HTTP/1.1 {} {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        response.status,
        reason(response.status),
        response.content_type,
        response.body.len()
    );
    stream.write_all(head.as_bytes())?;
    if !head_only {
        stream.write_all(&response.body)?;
    }
    stream.flush()
}

enum Asked {
    Get(Request),
    Head(Request),
    Refused(u16, &'static str),
}

fn read_head(stream: &mut impl ReadWithin) -> io::Result<Asked> {
    let until = Instant::now() + TIMEOUT;
    let mut buffer = Vec::with_capacity(1024);
    loop {
        let mut piece = [0; 1024];
        let n = stream.read_within(&mut piece, until)?;
        if n == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        buffer.extend_from_slice(piece.get(..n).unwrap_or_default());
        if let Some(head) = parse(&buffer) {
            return Ok(head);
        }
        if buffer.len() > MAX_HEAD {
            return Ok(Asked::Refused(431, "the request's head is too long"));
        }
    }
}

/// A read with a point in time at which it ends.
trait ReadWithin {
    fn read_within(&mut self, buffer: &mut [u8], until: Instant) -> io::Result<usize>;
}

impl ReadWithin for TcpStream {
    fn read_within(&mut self, buffer: &mut [u8], until: Instant) -> io::Result<usize> {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        self.set_read_timeout(Some(left))?;
        self.read(buffer)
    }
}

/// `None` while the head isn't whole.
fn parse(bytes: &[u8]) -> Option<Asked> {
    let mut headers = [httparse::EMPTY_HEADER; MAX_HEADERS];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Partial) => return None,
        Ok(httparse::Status::Complete(_)) => {}
        Err(httparse::Error::TooManyHeaders) => return Some(Asked::Refused(431, "too many headers")),
        Err(_) => return Some(Asked::Refused(400, "no HTTP request")),
    }
    let target = request.path.unwrap_or_default();
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    let parsed = Request { path: path.to_owned(), query: query.to_owned() };
    Some(match request.method {
        Some("GET") => Asked::Get(parsed),
        Some("HEAD") => Asked::Head(parsed),
        _ => Asked::Refused(405, "only GET and HEAD"),
    })
}

fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        400 => "Bad Request",
        404 => "Not Found",
        405 => "Method Not Allowed",
        431 => "Request Header Fields Too Large",
        _ => "Internal Server Error",
    }
}

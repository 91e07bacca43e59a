//! The server as its clients see it.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, Sender, bounded, unbounded};

use super::*;

/// Far longer than anything here takes.
const SOON: Duration = Duration::from_secs(30);

/// Says what it is asked. `/stream` writes until it is released.
struct Echo {
    seen: Sender<String>,
    release: Receiver<()>,
}

impl Service for Echo {
    fn class(&self, head: &Head, _: &Peer) -> Class {
        match head.path.segments().first() {
            Some(&"stream") => Class::Stream,
            Some(&"body") => Class::Slow,
            _ => Class::Quick,
        }
    }

    fn serve(&self, request: &mut Request<'_>) -> Reply {
        let path = request.head.path.text();
        self.seen.send(format!("{} {path}", request.head.method.as_str())).expect("the test listens");
        let release = self.release.clone();
        match path.as_str() {
            "/body" => match request.body.read(1 << 10) {
                Ok(body) => Response::new(200, TEXT, body).into(),
                Err(refusal) => refusal.into(),
            },
            "/stream" => stream(move |out| {
                out.write_all(b"one\n")?;
                out.flush()?;
                release.recv().map_err(io::Error::other)?;
                out.write_all(b"two\n")
            }),
            "/broken" => stream(|out| {
                out.write_all(b"one\n")?;
                Err(io::Error::other("expected"))
            }),
            "/large" => Response::new(200, TEXT, vec![b'x'; 4 << 20]).into(),
            "/upgrade" => Reply::Upgrade(Box::new(|mut raw: Raw<'_>| {
                raw.write_all(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")?;
                let mut heard = [0; 5];
                let n = raw.read_within(&mut heard, SOON)?;
                raw.write_all(&heard[..n])
            })),
            _ => Response::text(200, format!("{path}?{}\n", request.head.query.raw())).into(),
        }
    }
}

fn stream(write: impl FnOnce(&mut Out<'_>) -> io::Result<()> + Send + 'static) -> Reply {
    Reply::Stream(Response::new(200, TEXT, Vec::new()), Box::new(write))
}

struct Server {
    address: SocketAddr,
    seen: Receiver<String>,
    release: Sender<()>,
}

fn start() -> Server {
    let tcp = Tcp::bind(SocketAddr::from(([127, 0, 0, 1], 0))).expect("listens");
    let address = tcp.address().expect("has an address");
    let ((seen, sees), (release, released)) = (unbounded(), bounded(0));
    let service = Arc::new(Echo { seen, release: released });
    super::start(vec![Endpoint { listener: Box::new(tcp), service }]).expect("starts");
    Server { address, seen: sees, release }
}

impl Server {
    fn connect(&self) -> TcpStream {
        let socket = TcpStream::connect(self.address).expect("connects");
        socket.set_read_timeout(Some(SOON)).expect("sets it");
        socket
    }

    /// All that comes for what is sent, until the server ends it.
    fn ask(&self, request: &[u8]) -> String {
        let mut socket = self.connect();
        socket.write_all(request).expect("writes");
        read_all(&mut socket)
    }
}

fn read_all(socket: &mut TcpStream) -> String {
    let mut answer = Vec::new();
    socket.read_to_end(&mut answer).expect("reads to the end");
    String::from_utf8(answer).expect("is text")
}

/// Reads until what has come ends with this.
fn read_until(socket: &mut TcpStream, end: &str) -> String {
    let mut text = Vec::new();
    while !text.ends_with(end.as_bytes()) {
        let mut byte = [0];
        assert_eq!(socket.read(&mut byte).expect("reads"), 1, "{}", String::from_utf8_lossy(&text));
        text.push(byte[0]);
    }
    String::from_utf8(text).expect("is text")
}

#[test]
fn requests_one_after_the_other() {
    let server = start();
    let mut socket = server.connect();
    for piece in ["GET /a?x=y HT", "TP/1.1\r\nHost:", " h\r\n", "\r\n"] {
        socket.write_all(piece.as_bytes()).expect("writes");
    }
    let first = read_until(&mut socket, "/a?x=y\n");
    assert!(first.starts_with("HTTP/1.1 200 OK\r\n") && !first.contains("Connection: close"), "{first}");
    // Two at once; the second asks for the end.
    let two = b"HEAD /b HTTP/1.1\r\nHost: h\r\n\r\nGET /c HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    socket.write_all(two).expect("writes");
    let rest = read_all(&mut socket);
    assert!(
        !rest.contains("/b?") && rest.contains("Connection: close\r\n") && rest.ends_with("\r\n\r\n/c?\n"),
        "{rest}"
    );
    assert_eq!(server.seen.try_iter().collect::<Vec<_>>(), ["GET /a", "HEAD /b", "GET /c"]);
    let old = server.ask(b"GET /d HTTP/1.0\r\n\r\n");
    assert!(old.ends_with("/d?\n"), "{old}");
}

#[test]
fn bodies() {
    let server = start();
    let mut socket = server.connect();
    let whole = "POST /body HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\n\r\nhello";
    let chunked =
        "POST /body HTTP/1.1\r\nHost: h\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n";
    socket.write_all(format!("{whole}{chunked}").as_bytes()).expect("writes");
    read_until(&mut socket, "\r\n\r\nhello");
    read_until(&mut socket, "\r\n\r\nabcde");
    let expects = "POST /body HTTP/1.1\r\nHost: h\r\nContent-Length: 2\r\nExpect: 100-continue\r\n\r\n";
    socket.write_all(expects.as_bytes()).expect("writes");
    read_until(&mut socket, "HTTP/1.1 100 Continue\r\n\r\n");
    socket.write_all(b"ok").expect("writes");
    read_until(&mut socket, "\r\n\r\nok");
    for (body, status) in [("Content-Length: 9999\r\n\r\n", "413"), ("Transfer-Encoding: chunked\r\n\r\nx\r\n", "400")]
    {
        let answer = server.ask(format!("POST /body HTTP/1.1\r\nHost: h\r\n{body}").as_bytes());
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{answer}");
    }
}

/// What stands behind a body that could be read in two ways is never taken for a request.
#[test]
fn nothing_is_smuggled() {
    let server = start();
    let hidden = "GET /smuggled HTTP/1.1\r\nHost: h\r\n\r\n";
    let length = hidden.len();
    let table = [
        (format!("Content-Length: {length}\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n{hidden}"), "400"),
        (format!("Transfer-Encoding: chunked\r\nContent-Length: 0\r\n\r\n{hidden}"), "400"),
        (format!("Content-Length: 0\r\nContent-Length: {length}\r\n\r\n{hidden}"), "400"),
        (format!("Transfer-Encoding: identity\r\n\r\n{hidden}"), "501"),
        (format!("Transfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n{hidden}"), "501"),
        (format!("Transfer-Encoding:\x0bchunked\r\n\r\n0\r\n\r\n{hidden}"), "400"),
        (format!("Content-Length: 1\n{hidden}"), "400"),
        (format!("X: y\rContent-Length: 0\r\n\r\n{hidden}"), "400"),
        (format!("Content-Length : 0\r\n\r\n{hidden}"), "400"),
        // A body of a handler that reads none: it is skipped when it is there, whatever is in it.
        (format!("Connection: close\r\nContent-Length: {length}\r\n\r\n{hidden}"), "200"),
        // The rest of it isn't there: the connection ends instead.
        (format!("Content-Length: 100000\r\n\r\n{hidden}"), "200"),
        (format!("Transfer-Encoding: chunked\r\n\r\nffff\r\n{hidden}"), "200"),
    ];
    for (rest, status) in table {
        let answer = server.ask(format!("POST /visible HTTP/1.1\r\nHost: h\r\n{rest}").as_bytes());
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{rest:?}: {answer}");
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{rest:?}: {answer}");
    }
    assert!(server.seen.try_iter().all(|seen| seen == "POST /visible"));
}

#[test]
fn streams() {
    let server = start();
    let mut socket = server.connect();
    socket.write_all(b"GET /stream HTTP/1.1\r\nHost: h\r\n\r\n").expect("writes");
    let head = read_until(&mut socket, "4\r\none\n\r\n");
    assert!(head.contains("Transfer-Encoding: chunked\r\n"), "{head}");
    server.release.send(()).expect("it waits");
    assert_eq!(read_until(&mut socket, "0\r\n\r\n"), "4\r\ntwo\n\r\n0\r\n\r\n");
    socket.write_all(b"GET /next HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").expect("writes");
    assert!(read_all(&mut socket).ends_with("/next?\n"), "the connection goes on");
    let broken = server.ask(b"GET /broken HTTP/1.1\r\nHost: h\r\n\r\n");
    assert!(!broken.contains("0\r\n\r\n"), "its end is missing, so that the client can tell: {broken}");
    let mut upgraded = server.connect();
    upgraded.write_all(b"GET /upgrade HTTP/1.1\r\nHost: h\r\n\r\nearly").expect("writes");
    assert!(read_all(&mut upgraded).ends_with("\r\n\r\nearly"));
}

#[test]
fn streams_are_bounded_and_keep_nobody_waiting() {
    let server = start();
    let request = b"GET /stream HTTP/1.1\r\nHost: h\r\n\r\n";
    let mut sockets: Vec<_> = (0..64).map(|_| server.connect()).collect();
    for socket in &mut sockets {
        socket.write_all(request).expect("writes");
        read_until(socket, "4\r\none\n\r\n");
    }
    let refused = server.ask(request);
    assert!(refused.starts_with("HTTP/1.1 429 ") && refused.contains("Retry-After: 1\r\n"), "{refused}");
    assert!(server.ask(b"GET /quick HTTP/1.0\r\n\r\n").ends_with("/quick?\n"));
    for _ in &sockets {
        server.release.send(()).expect("it waits");
    }
    for mut socket in sockets {
        read_until(&mut socket, "0\r\n\r\n");
    }
}

/// Half-open ones make room for those that mean it, and so do those that take no answer.
#[test]
fn a_crowd_keeps_nobody_out() {
    let server = start();
    let mut crowd = Vec::new();
    for i in 0..700 {
        let mut socket = server.connect();
        // Some say nothing, some never end.
        if i % 2 == 0 {
            socket.write_all(b"GET /slow HTTP/1.1\r\nHost: ").expect("writes");
        }
        crowd.push(socket);
    }
    let start = Instant::now();
    assert!(server.ask(b"GET /quick HTTP/1.0\r\n\r\n").ends_with("/quick?\n"));
    for _ in 0..20 {
        let mut socket = server.connect();
        socket.write_all(b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n").expect("writes");
        crowd.push(socket);
        assert!(server.ask(b"GET /quick HTTP/1.0\r\n\r\n").ends_with("/quick?\n"));
    }
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    let has_ended = |socket: &mut TcpStream| {
        socket.set_read_timeout(Some(Duration::from_millis(1))).expect("sets it");
        // Closed, or reset since it had not read all.
        !matches!(socket.read(&mut [0]), Err(e) if e.kind() == io::ErrorKind::WouldBlock)
    };
    assert!(crowd.iter_mut().take(100).all(has_ended), "the oldest have made room");
}

#[test]
fn a_client_that_goes_early() {
    let server = start();
    let mut socket = server.connect();
    socket.write_all(b"GET /a HTTP/1.1\r\n").expect("writes");
    socket.shutdown(Shutdown::Write).expect("ends");
    assert_eq!(read_all(&mut socket), "");
    assert!(server.seen.try_iter().next().is_none());
}

//! Handing a connection that is to be upgraded on to a server of this machine, byte for byte: what is
//! spoken on it is the business of its two ends.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, Ipv4Addr, Shutdown, SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};

use super::http::{self, Connection, Head, Raw, Reply, Response, is_pending};

const CONNECT_TIME: Duration = Duration::from_secs(5);
/// For the other server's answer to the request.
const ANSWER_TIME: Duration = Duration::from_secs(30);
/// Bytes of the head of that answer, and of the body of a refusal.
const MAX_ANSWER: usize = 64 << 10;
/// What is on its way in each direction.
const BUFFER: usize = 16 << 10;

/// Where the other server is, and what is asked of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    address: SocketAddr,
    /// As it stands in the URL.
    host: String,
    /// Path and query.
    target: String,
}

impl Upstream {
    /// # Errors
    /// Why the URL can't be used.
    pub fn parse(url: &str) -> Result<Upstream, String> {
        let refused = |why: &str| format!("{url:?}: {why}");
        let rest = url.strip_prefix("http://").ok_or_else(|| refused("it is not reached by plain http"))?;
        let (host, target) = match rest.find('/') {
            Some(at) => rest.split_at(at),
            None => (rest, "/"),
        };
        let loopback = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let address = match host.strip_prefix("localhost") {
            Some(port) => {
                port.strip_prefix(':').and_then(|port| port.parse().ok()).map(|p| SocketAddr::new(loopback, p))
            }
            None => host.parse::<SocketAddr>().ok(),
        };
        let mut address = address.ok_or_else(|| refused("it has no address and port"))?;
        // A server that listens everywhere may call itself that.
        if address.ip().is_unspecified() {
            address.set_ip(loopback);
        }
        if !target.bytes().all(|b| b.is_ascii_graphic()) {
            return Err(refused("it is no URL"));
        }
        Ok(Upstream { address, host: host.to_owned(), target: target.to_owned() })
    }

    /// The request, as it is made of the client's: with its headers, but for those that are between
    /// the client and us.
    fn request(&self, head: &Head) -> Vec<u8> {
        const OURS: [&str; 7] =
            ["host", "authorization", "cookie", "content-length", "transfer-encoding", "expect", "te"];
        let mut text = format!("{} {} HTTP/1.1\r\nHost: {}\r\n", head.method.as_str(), self.target, self.host);
        for (name, value) in head.headers().filter(|(name, _)| !OURS.contains(name)) {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        text.push_str("\r\n");
        text.into_bytes()
    }
}

/// Connects to the other server and passes on what comes, until both are at their end or nothing has
/// come for `idle`.
pub fn hand_on(upstream: Upstream, head: &Head, idle: Option<Duration>) -> Reply {
    let request = upstream.request(head);
    Reply::Upgrade(Box::new(move |mut raw: Raw<'_>| {
        let (mut socket, answer) = match open(&upstream, &request) {
            Ok(open) => open,
            Err(e) => {
                let text = format!("the runtime's streaming server at {}: {e}\n", upstream.address);
                return raw.write_all(&http::encode(&Response::text(502, text), false, false));
            }
        };
        raw.write_all(&answer.bytes)?;
        if !answer.upgraded {
            return Ok(());
        }
        socket.set_nonblocking(true)?;
        let received = std::mem::take(&mut raw.received);
        pump(raw.connection, &mut socket, received, idle)
    }))
}

struct Answer {
    /// All that has come of it, the head at least; of a refusal the body too.
    bytes: Vec<u8>,
    upgraded: bool,
}

fn open(upstream: &Upstream, request: &[u8]) -> io::Result<(TcpStream, Answer)> {
    let mut socket = TcpStream::connect_timeout(&upstream.address, CONNECT_TIME)?;
    socket.set_nodelay(true)?;
    socket.set_write_timeout(Some(ANSWER_TIME))?;
    socket.write_all(request)?;
    let until = Instant::now() + ANSWER_TIME;
    let mut bytes = Vec::new();
    let (status, body_at, length) = loop {
        read_some(&mut socket, &mut bytes, until)?;
        let mut slots = [httparse::EMPTY_HEADER; 64];
        let mut response = httparse::Response::new(&mut slots);
        match response.parse(&bytes) {
            Ok(httparse::Status::Complete(at)) => {
                let length = response.headers.iter().find(|h| h.name.eq_ignore_ascii_case("content-length"));
                let length = length.and_then(|h| std::str::from_utf8(h.value).ok()?.trim().parse::<usize>().ok());
                break (response.code.unwrap_or_default(), at, length);
            }
            Ok(httparse::Status::Partial) if bytes.len() < MAX_ANSWER => {}
            _ => return Err(io::Error::new(ErrorKind::InvalidData, "an answer that is no HTTP")),
        }
    };
    if status == 101 {
        return Ok((socket, Answer { bytes, upgraded: true }));
    }
    // A refusal, with what it says.
    let whole = length.map_or(MAX_ANSWER, |length| body_at.saturating_add(length)).min(MAX_ANSWER);
    while bytes.len() < whole {
        match read_some(&mut socket, &mut bytes, until) {
            Ok(()) => {}
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => break,
            Err(e) => return Err(e),
        }
    }
    let body = bytes.get(body_at..whole.min(bytes.len())).unwrap_or_default().to_vec();
    let answer = http::encode(&Response::new(status, http::TEXT, body), false, false);
    Ok((socket, Answer { bytes: answer, upgraded: false }))
}

fn read_some(socket: &mut TcpStream, bytes: &mut Vec<u8>, until: Instant) -> io::Result<()> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() {
        return Err(ErrorKind::TimedOut.into());
    }
    socket.set_read_timeout(Some(left))?;
    let mut piece = [0; 4 << 10];
    match socket.read(&mut piece) {
        Ok(0) => Err(ErrorKind::UnexpectedEof.into()),
        Ok(n) => {
            bytes.extend_from_slice(piece.get(..n).unwrap_or_default());
            Ok(())
        }
        Err(e) if e.kind() == ErrorKind::Interrupted => Ok(()),
        Err(e) if e.kind() == ErrorKind::WouldBlock => Err(ErrorKind::TimedOut.into()),
        Err(e) => Err(e),
    }
}

/// One direction.
struct Pipe {
    bytes: Vec<u8>,
    sent: usize,
    /// Nothing more comes.
    ended: bool,
    /// And the other side was told so.
    told: bool,
}

impl Pipe {
    fn new(bytes: Vec<u8>) -> Pipe {
        Pipe { bytes, sent: 0, ended: false, told: false }
    }

    fn is_empty(&self) -> bool {
        self.sent >= self.bytes.len()
    }

    /// Whether something was read.
    fn fill(&mut self, read: impl FnOnce(&mut [u8]) -> io::Result<usize>) -> io::Result<bool> {
        if !self.is_empty() || self.ended {
            return Ok(false);
        }
        self.bytes.resize(BUFFER, 0);
        self.sent = 0;
        let result = read(&mut self.bytes);
        self.bytes.truncate(*result.as_ref().unwrap_or(&0));
        match result {
            Ok(n) => {
                self.ended = n == 0;
                Ok(true)
            }
            Err(e) if is_pending(&e) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Whether something was written.
    fn drain(&mut self, write: impl FnOnce(&[u8]) -> io::Result<usize>) -> io::Result<bool> {
        if self.is_empty() {
            return Ok(false);
        }
        match write(self.bytes.get(self.sent..).unwrap_or_default()) {
            Ok(0) => Err(ErrorKind::WriteZero.into()),
            Ok(n) => {
                self.sent += n;
                Ok(true)
            }
            Err(e) if is_pending(&e) => Ok(false),
            Err(e) => Err(e),
        }
    }

    /// Whether it is time to tell the other side of the end; once.
    fn ends(&mut self) -> bool {
        let ends = self.ended && self.is_empty() && !self.told;
        self.told |= ends;
        ends
    }
}

/// Passes on what comes from either side. Ends when the other server has ended, or the client has
/// broken off.
fn pump(client: &mut Connection, server: &mut TcpStream, received: Vec<u8>, idle: Option<Duration>) -> io::Result<()> {
    let (mut up, mut down) = (Pipe::new(received), Pipe::new(Vec::new()));
    let mut moved = Instant::now();
    loop {
        let progress = up.fill(|b| client.read(b))?
            | up.drain(|b| server.write(b))?
            | down.fill(|b| server.read(b))?
            | down.drain(|b| client.write(b))?;
        match client.flush() {
            Err(e) if !is_pending(&e) => return Err(e),
            _ => {}
        }
        if up.ends() {
            server.shutdown(Shutdown::Write)?;
        }
        if down.ended && down.is_empty() && !client.is_pending() {
            return Ok(());
        }
        if progress {
            moved = Instant::now();
            continue;
        }
        let left = idle.map(|idle| idle.saturating_sub(moved.elapsed()));
        if left.is_some_and(|left| left.is_zero()) {
            return Err(io::Error::new(ErrorKind::TimedOut, "nothing was sent for too long"));
        }
        let flags = |reads: bool, writes: bool| {
            let read = if reads { PollFlags::IN } else { PollFlags::empty() };
            read | if writes { PollFlags::OUT } else { PollFlags::empty() }
        };
        let client_flags = flags(up.is_empty() && !up.ended, !down.is_empty() || client.is_pending());
        let server_flags = flags(down.is_empty() && !down.ended, !up.is_empty());
        let mut fds = [
            PollFd::from_borrowed_fd(client.as_fd(), client_flags),
            PollFd::from_borrowed_fd(server.as_fd(), server_flags),
        ];
        http::wait(&mut fds, left.unwrap_or(Duration::from_secs(3600)))?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::os::unix::net::UnixStream;
    use std::thread;

    #[test]
    fn urls() {
        let good = [
            ("http://127.0.0.1:10010/exec/abc", "127.0.0.1:10010", "/exec/abc"),
            ("http://[::1]:80/attach/x?y=z", "[::1]:80", "/attach/x?y=z"),
            ("http://localhost:8080/", "127.0.0.1:8080", "/"),
            ("http://[::]:8080/a", "127.0.0.1:8080", "/a"),
        ];
        for (url, address, target) in good {
            let upstream = Upstream::parse(url).expect("is good");
            assert_eq!((upstream.address.to_string().as_str(), upstream.target.as_str()), (address, target), "{url}");
        }
        for url in
            ["", "/exec/abc", "https://127.0.0.1:1/", "http://host:80/", "http://127.0.0.1/x", "http://127.0.0.1:1/a b"]
        {
            assert!(Upstream::parse(url).is_err(), "{url}");
        }
    }

    #[test]
    fn the_request_that_is_handed_on() {
        let upstream = Upstream::parse("http://127.0.0.1:1/exec/token").expect("is good");
        let headers = [
            ("Connection", "Upgrade"),
            ("Upgrade", "SPDY/3.1"),
            ("X-Stream-Protocol-Version", "v4.channel.k8s.io"),
            ("X-Stream-Protocol-Version", "v3.channel.k8s.io"),
            ("Authorization", "Bearer secret"),
            ("Cookie", "a=b"),
        ];
        let request = upstream.request(&Head::example("POST", "/exec/ns/pod/c?command=x", &headers));
        let want = "POST /exec/token HTTP/1.1\r\nHost: 127.0.0.1:1\r\nconnection: Upgrade\r\nupgrade: SPDY/3.1\r\n\
                    x-stream-protocol-version: v4.channel.k8s.io\r\nx-stream-protocol-version: v3.channel.k8s.io\r\n\r\n";
        assert_eq!(String::from_utf8_lossy(&request), want);
    }

    /// A server that reads a request and answers it, then says back what it hears.
    fn server(answer: &'static str) -> Upstream {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
        let address = listener.local_addr().expect("has an address");
        thread::spawn(move || {
            let (mut socket, _) = listener.accept().expect("somebody connects");
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                socket.read_exact(&mut byte).expect("reads");
                request.extend(byte);
            }
            socket.write_all(answer.as_bytes()).expect("answers");
            if answer.contains(" 101 ") {
                io::copy(&mut socket.try_clone().expect("clones"), &mut socket).expect("says back");
            }
        });
        Upstream::parse(&format!("http://{address}/x")).expect("is good")
    }

    fn talk(upstream: Upstream, received: &[u8], idle: Option<Duration>, say: &[u8]) -> (Vec<u8>, io::Result<()>) {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let head = Head::example("POST", "/exec/ns/pod/c", &[("Connection", "Upgrade"), ("Upgrade", "x")]);
        let Reply::Upgrade(speak) = hand_on(upstream, &head, idle) else { panic!("no upgrade") };
        let received = received.to_vec();
        let thread = thread::spawn(move || {
            let mut connection = Connection::unix(ours).expect("a connection");
            speak(Raw { connection: &mut connection, received })
        });
        let mut writer = theirs.try_clone().expect("clones");
        let say = say.to_vec();
        let wrote = thread::spawn(move || {
            writer.write_all(&say).expect("says");
            if idle.is_none() {
                writer.shutdown(Shutdown::Write).expect("ends");
            }
        });
        let mut heard = Vec::new();
        theirs.read_to_end(&mut heard).expect("hears");
        wrote.join().expect("says all");
        (heard, thread.join().expect("ends"))
    }

    #[test]
    fn every_byte_and_the_end() {
        let upgrade = "HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\nfirst";
        let much: Vec<u8> = (0..3_000_000u32).map(|n| (n % 251) as u8).collect();
        let (heard, result) = talk(server(upgrade), b"early ", None, &much);
        result.expect("ends well");
        let want = [upgrade.as_bytes(), b"early ", &much].concat();
        assert!(heard == want, "{} bytes instead of {}", heard.len(), want.len());
    }

    #[test]
    fn refusals_and_silence() {
        let refusal = "HTTP/1.1 403 Forbidden\r\nContent-Length: 3\r\nX: y\r\n\r\nno\nmore";
        let (heard, result) = talk(server(refusal), b"", None, b"");
        result.expect("ends well");
        let heard = String::from_utf8(heard).expect("is text");
        assert!(heard.starts_with("HTTP/1.1 403 ") && heard.ends_with("\r\n\r\nno\n"), "{heard}");

        let (heard, _) = talk(server("nonsense\r\n\r\n"), b"", None, b"");
        assert!(heard.starts_with(b"HTTP/1.1 502 "), "{}", String::from_utf8_lossy(&heard));
        let closed = TcpListener::bind("127.0.0.1:0").expect("listens").local_addr().expect("has an address");
        let (heard, _) = talk(Upstream::parse(&format!("http://{closed}/")).expect("is good"), b"", None, b"");
        assert!(heard.starts_with(b"HTTP/1.1 502 "), "{}", String::from_utf8_lossy(&heard));

        let idle = Some(Duration::from_millis(100));
        let (heard, result) = talk(server("HTTP/1.1 101 x\r\n\r\n"), b"", idle, b"hello");
        assert!(heard.ends_with(b"hello"));
        assert_eq!(result.map_err(|e| e.kind()), Err(ErrorKind::TimedOut));
    }
}

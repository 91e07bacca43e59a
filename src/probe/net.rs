//! Connections that end by a deadline, whatever the other side does.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crossbeam::channel::bounded;

use crate::lane::Lane;

/// Lookups of names at the same time. The C library can't be told when to give up, so a lookup may
/// outlast whoever asked for it.
const LOOKUPS: usize = 8;
/// Lookups that may wait for their turn.
const LOOKUPS_WAITING: usize = 128;

/// Looks names up, on a lane of its own.
pub struct Resolver {
    lane: Lane,
    waiting: Arc<AtomicUsize>,
}

impl Default for Resolver {
    fn default() -> Resolver {
        Resolver { lane: Lane::new("lookup", LOOKUPS), waiting: Arc::default() }
    }
}

impl Resolver {
    /// The addresses of `host`, which may be one itself.
    fn lookup(&self, host: &str, port: u16, until: Instant) -> io::Result<Vec<SocketAddr>> {
        if let Ok(ip) = host.parse::<IpAddr>() {
            return Ok(vec![SocketAddr::new(ip, port)]);
        }
        if self.waiting.load(Ordering::Relaxed) >= LOOKUPS_WAITING {
            return Err(io::Error::other("too many lookups wait for the name servers"));
        }
        self.waiting.fetch_add(1, Ordering::Relaxed);
        let (tell, answer) = bounded(1);
        let (host, waiting) = (host.to_owned(), self.waiting.clone());
        self.lane.submit(move || {
            waiting.fetch_sub(1, Ordering::Relaxed);
            if Instant::now() < until {
                let found = (host.as_str(), port).to_socket_addrs().map(Iterator::collect::<Vec<_>>);
                // Whoever asked may have given up.
                let _ = tell.send(found);
            }
        });
        answer.recv_deadline(until).unwrap_or_else(|_| Err(ErrorKind::TimedOut.into()))
    }

    /// Connects to `host` and `port`.
    ///
    /// # Errors
    /// A text that says what was being done, and why it failed.
    pub fn connect(&self, host: &str, port: u16, until: Instant) -> Result<Timed, String> {
        let addresses = self.lookup(host, port, until).map_err(|e| format!("lookup {host}: {}", describe(&e)))?;
        let mut failure = format!("lookup {host}: no address");
        for (i, address) in addresses.iter().enumerate() {
            // One that doesn't answer leaves the others their share of the time.
            let share = left(until) / u32::try_from(addresses.len() - i).unwrap_or(1);
            match connect(address, share) {
                Ok(stream) => return Ok(Timed { stream, until }),
                Err(e) => failure = format!("dial tcp {address}: {}", describe(&e)),
            }
        }
        Err(failure)
    }
}

fn connect(address: &SocketAddr, timeout: Duration) -> io::Result<TcpStream> {
    match timeout.is_zero() {
        true => Err(ErrorKind::TimedOut.into()),
        false => TcpStream::connect_timeout(address, timeout),
    }
}

fn left(until: Instant) -> Duration {
    until.saturating_duration_since(Instant::now())
}

/// An error in a few words, without the numbers of the operating system.
pub fn describe(error: &io::Error) -> String {
    match error.kind() {
        ErrorKind::ConnectionRefused => "connection refused".to_owned(),
        ErrorKind::ConnectionReset => "connection reset by peer".to_owned(),
        ErrorKind::TimedOut => "no answer in time".to_owned(),
        ErrorKind::UnexpectedEof => "the connection was closed too early".to_owned(),
        ErrorKind::HostUnreachable => "no route to host".to_owned(),
        ErrorKind::NetworkUnreachable => "network is unreachable".to_owned(),
        _ => error.to_string(),
    }
}

/// A connection whose reads and writes fail with `TimedOut` when its time is over.
#[derive(Debug)]
pub struct Timed {
    stream: TcpStream,
    until: Instant,
}

impl Timed {
    fn within<T>(
        &mut self,
        limit: fn(&TcpStream, Option<Duration>) -> io::Result<()>,
        act: impl FnOnce(&mut TcpStream) -> io::Result<T>,
    ) -> io::Result<T> {
        let left = left(self.until);
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        limit(&self.stream, Some(left))?;
        act(&mut self.stream).map_err(|e| match e.kind() {
            ErrorKind::WouldBlock => ErrorKind::TimedOut.into(),
            _ => e,
        })
    }
}

impl Read for Timed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.within(TcpStream::set_read_timeout, |stream| stream.read(buffer))
    }
}

impl Write for Timed {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.within(TcpStream::set_write_timeout, |stream| stream.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn soon() -> Instant {
        Instant::now() + Duration::from_millis(200)
    }

    #[test]
    fn names_and_addresses() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
        let port = listener.local_addr().expect("has an address").port();
        let resolver = Resolver::default();
        let until = Instant::now() + Duration::from_secs(10);
        resolver.connect("127.0.0.1", port, until).expect("connects");
        resolver.connect("localhost", port, until).expect("connects to one of the addresses");
        // Longer than names can be, so that no name server is asked.
        let name = "x".repeat(300);
        let error = resolver.connect(&name, port, until).expect_err("is no name");
        assert!(error.starts_with(&format!("lookup {name}: ")), "{error}");
        drop(listener);
        let error = resolver.connect("127.0.0.1", port, until).expect_err("nobody listens");
        assert_eq!(error, format!("dial tcp 127.0.0.1:{port}: connection refused"));
        let error = resolver.connect("127.0.0.1", port, Instant::now()).expect_err("there is no time");
        assert_eq!(error, format!("dial tcp 127.0.0.1:{port}: no answer in time"));
    }

    #[test]
    fn reads_and_writes_end_in_time() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("listens");
        let port = listener.local_addr().expect("has an address").port();
        let mut stream = Resolver::default().connect("127.0.0.1", port, soon()).expect("connects");
        let error = stream.read(&mut [0]).expect_err("nobody says anything");
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        stream.until = soon();
        let error = loop {
            if let Err(e) = stream.write(&[0; 1 << 20]) {
                break e;
            }
        };
        assert_eq!(error.kind(), ErrorKind::TimedOut, "nobody reads");
    }
}

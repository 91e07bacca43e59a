//! What handlers write a long answer to, and what they speak another protocol over. Here writing
//! waits for the client, and no client can make it wait for ever.

use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use super::connection::{self, Connection};
use super::response::Ending;

/// A client that takes nothing for so long is given up.
pub const STALLED: Duration = Duration::from_secs(30);
/// What is gathered before it is sent.
const PIECE: usize = 16 << 10;

/// The body of an answer. What is written is gathered; a handler that waits for something flushes
/// first.
pub struct Out<'a> {
    to: Sink<'a>,
    ending: Ending,
    gathered: Vec<u8>,
    /// Framed bytes, and how many of them are sent.
    framed: Vec<u8>,
    sent: usize,
    /// When the client took something last.
    moved: Instant,
    stalled: Duration,
}

enum Sink<'a> {
    Connection(&'a mut Connection),
    /// For tests of handlers.
    Memory(&'a mut Vec<u8>),
}

impl<'a> Out<'a> {
    pub(super) fn new(connection: &'a mut Connection, ending: Ending, stalled: Duration) -> Out<'a> {
        Out::to(Sink::Connection(connection), ending, stalled)
    }

    /// Into memory, without framing.
    pub fn memory(bytes: &'a mut Vec<u8>) -> Out<'a> {
        Out::to(Sink::Memory(bytes), Ending::Close, STALLED)
    }

    fn to(to: Sink<'a>, ending: Ending, stalled: Duration) -> Out<'a> {
        let (gathered, framed) = (Vec::new(), Vec::new());
        Out { to, ending, gathered, framed, sent: 0, moved: Instant::now(), stalled }
    }

    /// Sends what was gathered, as far as the client takes it within `time`. Returns whether all of
    /// it is sent.
    ///
    /// # Errors
    /// When the client is gone, or takes nothing for too long.
    pub fn send_within(&mut self, time: Duration) -> io::Result<bool> {
        let until = Instant::now() + time;
        loop {
            if self.sent == self.framed.len() && !self.frame() {
                return self.settle(until);
            }
            let rest = self.framed.get(self.sent..).unwrap_or_default();
            let result = match &mut self.to {
                Sink::Connection(connection) => connection.write(rest),
                Sink::Memory(bytes) => bytes.write(rest),
            };
            match result {
                Ok(0) => return Err(ErrorKind::WriteZero.into()),
                Ok(n) => {
                    self.sent += n;
                    self.moved = Instant::now();
                }
                Err(e) if connection::is_pending(&e) => {
                    if !self.wait(until)? {
                        return Ok(false);
                    }
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Makes a frame of what was gathered; `false` when there is nothing.
    fn frame(&mut self) -> bool {
        self.framed.clear();
        self.sent = 0;
        if self.gathered.is_empty() {
            return false;
        }
        if self.ending == Ending::Chunks {
            self.framed.extend_from_slice(format!("{:x}\r\n", self.gathered.len()).as_bytes());
            self.framed.append(&mut self.gathered);
            self.framed.extend_from_slice(b"\r\n");
        } else {
            std::mem::swap(&mut self.framed, &mut self.gathered);
        }
        true
    }

    /// What TLS has taken is to be sent too.
    fn settle(&mut self, until: Instant) -> io::Result<bool> {
        loop {
            let Sink::Connection(connection) = &mut self.to else { return Ok(true) };
            match connection.flush() {
                Ok(()) => return Ok(true),
                Err(e) if connection::is_pending(&e) => {
                    if !self.wait(until)? {
                        return Ok(false);
                    }
                }
                Err(e) => return Err(e),
            }
        }
    }

    /// Waits for room; `false` when there is none by `until`.
    fn wait(&mut self, until: Instant) -> io::Result<bool> {
        let now = Instant::now();
        let end = self.moved + self.stalled;
        if now >= end {
            return Err(io::Error::new(ErrorKind::TimedOut, "the client takes nothing"));
        }
        if now >= until {
            return Ok(false);
        }
        if let Sink::Connection(connection) = &self.to {
            connection.wait(true, until.min(end).saturating_duration_since(now))?;
        }
        Ok(true)
    }

    /// The client takes no more.
    pub fn has_hung_up(&self) -> bool {
        match &self.to {
            Sink::Connection(connection) => connection.has_hung_up(),
            Sink::Memory(_) => false,
        }
    }

    /// To be waited on for [`Out::has_hung_up`], beside what the handler waits for.
    pub fn fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.to {
            Sink::Connection(connection) => Some(connection.as_fd()),
            Sink::Memory(_) => None,
        }
    }

    /// Sends all, and the end of the body.
    pub(super) fn end(mut self) -> io::Result<()> {
        self.flush()?;
        if self.ending == Ending::Chunks {
            self.framed = b"0\r\n\r\n".to_vec();
            self.sent = 0;
            self.flush()?;
        }
        Ok(())
    }
}

impl Write for Out<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.gathered.len() >= PIECE {
            self.flush()?;
        }
        let room = PIECE.saturating_sub(self.gathered.len()).max(1);
        let taken = bytes.get(..room.min(bytes.len())).unwrap_or_default();
        self.gathered.extend_from_slice(taken);
        Ok(taken.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        match self.send_within(Duration::MAX.min(self.stalled * 2))? {
            true => Ok(()),
            false => Err(ErrorKind::TimedOut.into()),
        }
    }
}

/// A connection on which another protocol is spoken from now on.
pub struct Raw<'a> {
    pub connection: &'a mut Connection,
    /// What came behind the request.
    pub received: Vec<u8>,
}

impl Raw<'_> {
    /// Writes all, waiting for the client.
    ///
    /// # Errors
    /// When the client is gone, or takes nothing for too long.
    pub fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        let mut out = Out::new(self.connection, Ending::Close, STALLED);
        out.write_all(bytes)?;
        out.flush()
    }

    /// Reads what there is, waiting for it; 0 is the end.
    ///
    /// # Errors
    /// When nothing comes for `time`, or the connection breaks.
    pub fn read_within(&mut self, buffer: &mut [u8], time: Duration) -> io::Result<usize> {
        if !self.received.is_empty() {
            let n = self.received.as_slice().read(buffer)?;
            self.received.drain(..n);
            return Ok(n);
        }
        read_within(self.connection, buffer, Instant::now() + time)
    }
}

/// Reads what there is, waiting until `until` for it; 0 is the end.
pub(super) fn read_within(connection: &mut Connection, buffer: &mut [u8], until: Instant) -> io::Result<usize> {
    loop {
        match connection.read(buffer) {
            Err(e) if connection::is_pending(&e) => {}
            result => return result,
        }
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(ErrorKind::TimedOut.into());
        }
        connection.wait(false, left)?;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixStream;

    #[test]
    fn chunks() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let mut connection = Connection::unix(ours).expect("a connection");
        let mut out = Out::new(&mut connection, Ending::Chunks, STALLED);
        out.write_all(b"one ").expect("writes");
        out.write_all(b"two").expect("writes");
        out.flush().expect("flushes");
        out.flush().expect("flushes nothing");
        out.write_all(b"three").expect("writes");
        out.end().expect("ends");
        drop(connection);
        let mut text = String::new();
        theirs.read_to_string(&mut text).expect("reads");
        assert_eq!(text, "7\r\none two\r\n5\r\nthree\r\n0\r\n\r\n");
    }

    #[test]
    fn a_client_that_takes_nothing_is_given_up() {
        let (ours, theirs) = UnixStream::pair().expect("a pair");
        let mut connection = Connection::unix(ours).expect("a connection");
        let mut out = Out::new(&mut connection, Ending::Close, Duration::from_millis(50));
        let error = loop {
            match out.write_all(&[b'x'; PIECE]) {
                Ok(()) => {}
                Err(e) => break e,
            }
        };
        assert_eq!(error.kind(), ErrorKind::TimedOut);
        assert!(out.gathered.len() + out.framed.len() <= 2 * PIECE + 16, "what waits is bounded");
        assert!(!out.has_hung_up());
        drop(theirs);
        assert!(out.has_hung_up());
    }

    #[test]
    fn sending_for_a_moment_only() {
        let (ours, mut theirs) = UnixStream::pair().expect("a pair");
        let mut connection = Connection::unix(ours).expect("a connection");
        let mut out = Out::new(&mut connection, Ending::Close, STALLED);
        let mut total = 0;
        loop {
            out.gathered.extend_from_slice(&[b'x'; PIECE]);
            total += PIECE;
            if !out.send_within(Duration::from_millis(10)).expect("the client is there") {
                break;
            }
        }
        let reader = std::thread::spawn(move || io::copy(&mut theirs, &mut io::sink()).expect("reads"));
        out.end().expect("sends the rest");
        drop(connection);
        assert_eq!(reader.join().expect("ends"), total as u64);
    }
}

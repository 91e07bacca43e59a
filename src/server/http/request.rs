//! What handlers are given, and the trait that they stand behind.

use std::time::{Duration, Instant};

use super::connection::{Connection, Peer};
use super::decode::Decoder;
use super::head::{Framing, Head, Refusal};
use super::response::{Reply, Response};
use super::stream;

/// How long a whole body may take.
const BODY_TIME: Duration = Duration::from_secs(30);

/// What a request takes of the agent: each class has threads of its own, so that none of them can
/// keep another one waiting.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Answered at once: how the agent is, which must not wait behind lists that many ask for, and
    /// refusals.
    Quick,
    /// Answered from memory.
    Read,
    /// Asks the runtime or the disk, or reads a body.
    Slow,
    /// Lasts for as long as the client likes.
    Stream,
}

/// What answers the requests of a listener.
pub trait Service: Send + Sync {
    /// Looks at the head alone, on the thread that all connections share: no I/O, no waiting.
    fn class(&self, head: &Head, peer: &Peer) -> Class;

    /// Answers, on a thread of that class.
    fn serve(&self, request: &mut Request<'_>) -> Reply;
}

pub struct Request<'a> {
    pub head: Head,
    pub peer: Peer,
    pub body: Body<'a>,
}

/// The body of a request, read when it is asked for: who may send one is known by then.
pub struct Body<'a> {
    from: From<'a>,
    framing: Framing,
    expects_continue: bool,
    /// Nothing of it is left on the connection.
    gone: bool,
}

enum From<'a> {
    Connection(&'a mut Connection, &'a mut Vec<u8>),
    /// For tests of handlers.
    Memory(Vec<u8>),
}

impl<'a> Body<'a> {
    pub(super) fn new(head: &Head, connection: &'a mut Connection, received: &'a mut Vec<u8>) -> Body<'a> {
        Body {
            from: From::Connection(connection, received),
            framing: head.framing,
            expects_continue: head.expects_continue,
            gone: head.framing == Framing::None,
        }
    }

    pub fn memory(bytes: Vec<u8>) -> Body<'static> {
        let framing = Framing::Length(bytes.len() as u64);
        Body { from: From::Memory(bytes), framing, expects_continue: false, gone: false }
    }

    /// Reads all of it; empty when it was read before.
    ///
    /// # Errors
    /// The answer when it is broken, comes too slowly, or has more than `limit` bytes.
    pub fn read(&mut self, limit: usize) -> Result<Vec<u8>, Response> {
        if self.gone {
            return Ok(Vec::new());
        }
        let (connection, received) = match &mut self.from {
            From::Memory(bytes) if bytes.len() > limit => {
                return Err(Refusal { status: 413, why: "the body is too large" }.into());
            }
            From::Memory(bytes) => {
                self.gone = true;
                return Ok(std::mem::take(bytes));
            }
            From::Connection(connection, received) => (connection, received),
        };
        let until = Instant::now() + BODY_TIME;
        let mut decoder = Decoder::new(self.framing, limit)?;
        let mut body = Vec::new();
        let mut asked = !self.expects_continue;
        loop {
            let taken = decoder.take(received, &mut body)?;
            received.drain(..taken);
            if decoder.is_done() {
                self.gone = true;
                return Ok(body);
            }
            if !std::mem::replace(&mut asked, true) && received.is_empty() {
                stream::Raw { connection, received: Vec::new() }
                    .write_all(b"HTTP/1.1 100 Continue\r\n\r\n")
                    .map_err(|_| Response::text(408, "the client is gone\n"))?;
            }
            let mut piece = [0; 8 << 10];
            match stream::read_within(connection, &mut piece, until) {
                Ok(n) if n > 0 => received.extend_from_slice(piece.get(..n).unwrap_or_default()),
                _ => return Err(Response::text(408, "the body did not come to its end in time\n")),
            }
        }
    }

    /// Whether the next request begins where this one has been read to; a body that nobody asked for
    /// is skipped if it is there.
    pub(super) fn skip(mut self) -> bool {
        if let (false, From::Connection(_, received)) = (self.gone, &mut self.from) {
            let limit = received.len();
            let whole = Decoder::new(self.framing, limit).and_then(|mut decoder| {
                let taken = decoder.take(received, &mut Vec::new())?;
                Ok(decoder.is_done().then_some(taken))
            });
            if let Ok(Some(taken)) = whole {
                received.drain(..taken);
                self.gone = true;
            }
        }
        self.gone
    }
}

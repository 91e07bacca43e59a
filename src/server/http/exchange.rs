//! One request and its answer, on a thread of the request's class.

use std::io;

use super::connection::{Connection, is_pending};
use super::head::Head;
use super::request::{Body, Request, Service};
use super::response::{self, Ending, Reply, Response, Speaker, Writer};
use super::stream::{Out, Raw, STALLED};

/// A connection after an answer.
pub struct Answered {
    pub connection: Connection,
    /// What came behind the request.
    pub received: Vec<u8>,
    /// What of the answer is still to be sent.
    pub rest: Vec<u8>,
    pub keep_alive: bool,
}

/// Answers a request; `None` when the connection is at its end.
pub fn run(mut connection: Connection, head: Head, mut received: Vec<u8>, service: &dyn Service) -> Option<Answered> {
    let peer = connection.peer();
    let (has_body, ending, wants_more) = (response::has_body(&head), response::ending(&head), head.keep_alive);
    let body = Body::new(&head, &mut connection, &mut received);
    let mut request = Request { head, peer, body };
    let reply = service.serve(&mut request);
    let keep_alive = request.body.skip() && wants_more;
    let result = match reply {
        Reply::Whole(answer) => whole(&mut connection, &answer, !has_body, keep_alive),
        Reply::Stream(answer, writer) => {
            let keep_alive = keep_alive && ending == Ending::Chunks;
            stream(&mut connection, &answer, has_body.then_some(writer), ending, keep_alive)
                .map(|()| (Vec::new(), keep_alive))
        }
        Reply::Upgrade(speaker) => {
            upgrade(&mut connection, std::mem::take(&mut received), speaker).map(|()| (Vec::new(), false))
        }
    };
    match result {
        Ok((rest, keep_alive)) => Some(Answered { connection, received, rest, keep_alive }),
        Err(e) => {
            log::debug!("answering {:?}: {e}", connection.address());
            None
        }
    }
}

/// Sends what the client takes at once; the rest, if any, is sent where that holds no thread.
fn whole(
    connection: &mut Connection,
    answer: &Response,
    head_only: bool,
    keep_alive: bool,
) -> io::Result<(Vec<u8>, bool)> {
    let mut rest = response::encode(answer, head_only, keep_alive);
    let mut sent = 0;
    loop {
        match connection.write(rest.get(sent..).unwrap_or_default()) {
            Ok(n) => sent += n,
            Err(e) if is_pending(&e) => break,
            Err(e) => return Err(e),
        }
        if sent >= rest.len() {
            break;
        }
    }
    rest.drain(..sent);
    rest.shrink_to_fit();
    Ok((rest, keep_alive))
}

fn stream(
    connection: &mut Connection,
    answer: &Response,
    writer: Option<Writer>,
    ending: Ending,
    keep_alive: bool,
) -> io::Result<()> {
    let head = response::encode_head(answer, ending, keep_alive);
    Raw { connection, received: Vec::new() }.write_all(&head)?;
    let Some(writer) = writer else { return Ok(()) };
    let mut out = Out::new(connection, ending, STALLED);
    writer(&mut out)?;
    out.end()
}

fn upgrade(connection: &mut Connection, received: Vec<u8>, speaker: Speaker) -> io::Result<()> {
    speaker(Raw { connection, received })
}

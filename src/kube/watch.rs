//! A watch: what happens to objects, one event a line, until the server or the connection ends it.

use std::io::{self, BufRead, BufReader, Read};
use std::time::Duration;

use serde::Deserialize;
use serde_json::Value;

use super::error::{Error, Status, describe};

/// Bytes of one event; more than the API server stores of an object.
const MAX_EVENT: u64 = 16 << 20;
/// A watch is ended by the server after so long, and up to twice that (client-go's reflector).
const SHORTEST: Duration = Duration::from_secs(300);

/// How long to have the server watch; `chance`: 0.0 to 1.0.
pub fn timeout(chance: f64) -> Duration {
    SHORTEST.mul_f64(1.0 + chance.clamp(0.0, 1.0))
}

#[derive(Debug, Clone, PartialEq)]
pub enum Event {
    Added(Value),
    Modified(Value),
    /// As it was last.
    Deleted(Value),
    /// Nothing happened up to this version.
    Bookmark(String),
}

/// Blocks for each event. Ends with `None` when the server says that it's over: watch again from the
/// version that was seen last. After an error, the same, unless it is [`Error::is_gone`]: then list.
pub struct Watch {
    reader: BufReader<Box<dyn Read + Send>>,
    server: String,
    request: String,
    over: bool,
    line: Vec<u8>,
}

#[derive(Deserialize)]
struct Wire {
    #[serde(rename = "type")]
    kind: String,
    object: Value,
}

impl Watch {
    pub(super) fn new(reader: Box<dyn Read + Send>, server: String, request: String) -> Watch {
        let reader = BufReader::with_capacity(4 << 10, reader);
        Watch { reader, server, request, over: false, line: Vec::new() }
    }

    fn read(&mut self) -> Result<Option<Event>, Error> {
        self.line.clear();
        let read = self.reader.by_ref().take(MAX_EVENT).read_until(b'\n', &mut self.line);
        read.map_err(|e| self.broke(&describe_io(e)))?;
        match self.line.last() {
            None => return Ok(None),
            Some(b'\n') => {}
            Some(_) if self.line.len() as u64 == MAX_EVENT => {
                return Err(self.unusable(format!("an event of more than {} MiB", MAX_EVENT >> 20)));
            }
            Some(_) => return Err(self.broke("the watch broke off in the midst of an event")),
        }
        let event = decode(&self.line).map_err(|e| self.unusable(e.to_string()))?;
        // One long event must not be paid for until the watch ends.
        if self.line.capacity() > 64 << 10 {
            self.line = Vec::new();
        }
        event.map(Some).map_err(|status| Error::Refused { request: self.request.clone(), status })
    }

    fn broke(&self, why: &str) -> Error {
        Error::Unreachable { server: self.server.clone(), why: why.to_owned() }
    }

    fn unusable(&self, why: String) -> Error {
        Error::Answer { request: self.request.clone(), why }
    }
}

fn decode(line: &[u8]) -> serde_json::Result<Result<Event, Status>> {
    let Wire { kind, object } = serde_json::from_slice(line)?;
    Ok(Ok(match kind.as_str() {
        "ADDED" => Event::Added(object),
        "MODIFIED" => Event::Modified(object),
        "DELETED" => Event::Deleted(object),
        "BOOKMARK" => Event::Bookmark(super::version(&object).to_owned()),
        "ERROR" => return Ok(Err(Status::deserialize(object)?)),
        other => return Err(serde::de::Error::custom(format!("an event of type {other:?}"))),
    }))
}

impl Iterator for Watch {
    type Item = Result<Event, Error>;

    fn next(&mut self) -> Option<Result<Event, Error>> {
        if self.over {
            return None;
        }
        let event = self.read().transpose();
        self.over = !matches!(event, Some(Ok(_)));
        event
    }
}

fn describe_io(error: io::Error) -> String {
    describe(&error.into())
}

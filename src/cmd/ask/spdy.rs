//! SPDY/3.1 as far as the streaming servers of container runtimes speak it: several streams over one
//! connection, without flow control. A runtime can be told over it that input has ended, which their
//! WebSockets have no word for.
//!
//! Headers are sent uncompressed, in stored blocks; those of answers say nothing, and are passed over.

use std::io::{self, BufReader, ErrorKind, Read, Write};
use std::net::Shutdown;
use std::os::unix::net::UnixStream;
use std::sync::Arc;

use parking_lot::Mutex;

use super::Error;
use super::client::Client;

const SYN_STREAM: u16 = 1;
const SYN_REPLY: u16 = 2;
const RST_STREAM: u16 = 3;
const PING: u16 = 6;
const GOAWAY: u16 = 7;
const FIN: u8 = 1;
/// Bytes of a data frame that is sent.
pub const PIECE: usize = 32 << 10;

/// What the server says.
#[derive(Debug, PartialEq, Eq)]
pub enum Frame {
    /// The stream is open.
    Reply(u32),
    Data {
        stream: u32,
        bytes: Vec<u8>,
        last: bool,
    },
    /// Nothing more comes on the stream.
    Reset(u32),
    /// Nothing more comes at all.
    Away,
    /// To be sent back.
    Ping(u32),
    Other,
}

/// A connection whose streams are opened by us.
pub struct Session {
    reader: BufReader<UnixStream>,
    writer: Writer,
    next: u32,
}

/// The way to the server, for several threads.
#[derive(Clone)]
pub struct Writer(Arc<Mutex<UnixStream>>);

impl Session {
    /// `protocol`: that of the streams.
    pub fn open(client: &Client, target: &str, protocol: &str) -> Result<Session, Error> {
        let headers = format!("Upgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: {protocol}\r\nContent-Length: 0\r\n");
        let reader = client.upgrade(target, &headers)?;
        let writer = Writer(Arc::new(Mutex::new(reader.get_ref().try_clone().map_err(Error::Answer)?)));
        Ok(Session { reader, writer, next: 1 })
    }

    /// Opens a stream, and waits until the server has it.
    pub fn stream(&mut self, headers: &[(&str, &str)]) -> Result<u32, Error> {
        let id = self.next;
        self.next += 2;
        self.writer.write(&syn_stream(id, headers)).map_err(Error::Answer)?;
        loop {
            match self.next_frame()? {
                Some(Frame::Reply(stream)) if stream == id => return Ok(id),
                // Whatever is said before is of streams that are open without their others.
                Some(Frame::Reply(_) | Frame::Other | Frame::Data { .. }) => {}
                _ => return Err(Error::Refused("the runtime's streaming server refuses a stream".to_owned())),
            }
        }
    }

    /// `None` at the end.
    pub fn next_frame(&mut self) -> Result<Option<Frame>, Error> {
        match read(&mut self.reader) {
            Ok(Frame::Ping(id)) => {
                self.writer.answer_ping(id);
                Ok(Some(Frame::Other))
            }
            Ok(frame) => Ok(Some(frame)),
            Err(e) if e.kind() == ErrorKind::UnexpectedEof => Ok(None),
            Err(e) => Err(Error::Answer(e)),
        }
    }

    pub fn writer(&self) -> Writer {
        self.writer.clone()
    }

    /// Ends the connection, also for whoever is writing to it.
    pub fn close(&self) {
        // One that has ended is closed already.
        let _ = self.reader.get_ref().shutdown(Shutdown::Both);
    }
}

impl Writer {
    pub fn data(&self, stream: u32, bytes: &[u8]) -> io::Result<()> {
        bytes.chunks(PIECE).try_for_each(|piece| self.write(&data(stream, piece, false)))
    }

    /// Nothing more comes from us on this stream.
    pub fn end(&self, stream: u32) -> io::Result<()> {
        self.write(&data(stream, &[], true))
    }

    /// Sends all that `from` gives, and the end of it.
    pub fn copy(&self, stream: u32, mut from: impl Read) -> io::Result<()> {
        let mut buffer = vec![0; PIECE];
        loop {
            match from.read(&mut buffer) {
                Ok(0) => return self.end(stream),
                Ok(n) => self.data(stream, buffer.get(..n).unwrap_or_default())?,
                Err(e) if e.kind() == ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
    }

    /// Not while another thread waits for the server to take something: who reads may not wait for that.
    fn answer_ping(&self, id: u32) {
        if let Some(mut stream) = self.0.try_lock() {
            // One who is gone needs no answer.
            let _ = stream.write_all(&control(PING, 0, &id.to_be_bytes()));
        }
    }

    fn write(&self, frame: &[u8]) -> io::Result<()> {
        // Frames must not get into each other; nothing else waits for this lock.
        self.0.lock().write_all(frame)
    }
}

fn control(kind: u16, flags: u8, payload: &[u8]) -> Vec<u8> {
    let mut frame = vec![0x80, 3];
    frame.extend(kind.to_be_bytes());
    frame.extend(word(flags, payload.len()));
    frame.extend(payload);
    frame
}

fn data(stream: u32, bytes: &[u8], last: bool) -> Vec<u8> {
    let mut frame = stream.to_be_bytes().to_vec();
    frame.extend(word(if last { FIN } else { 0 }, bytes.len()));
    frame.extend(bytes);
    frame
}

/// Flags, and a length of 24 bits.
fn word(flags: u8, length: usize) -> [u8; 4] {
    let length = u32::try_from(length).unwrap_or(u32::MAX) & 0xff_ffff;
    (u32::from(flags) << 24 | length).to_be_bytes()
}

fn syn_stream(id: u32, headers: &[(&str, &str)]) -> Vec<u8> {
    let mut block = Vec::new();
    let mut add = |bytes: &[u8]| {
        block.extend(u32::try_from(bytes.len()).unwrap_or(u32::MAX).to_be_bytes());
        block.extend(bytes);
    };
    for (name, value) in headers {
        add(name.as_bytes());
        add(value.as_bytes());
    }
    let count = u32::try_from(headers.len()).unwrap_or(u32::MAX).to_be_bytes();
    let block = [&count[..], &block].concat();
    let mut payload = [&id.to_be_bytes()[..], &[0; 6]].concat();
    // One zlib stream goes through all frames of a connection: its head comes with the first of them.
    if id == 1 {
        payload.extend([0x78, 0x01]);
    }
    let length = u16::try_from(block.len()).unwrap_or(u16::MAX);
    payload.push(0);
    payload.extend(length.to_le_bytes());
    payload.extend((!length).to_le_bytes());
    payload.extend(block);
    // An empty block: what is before it is to be read now.
    payload.extend([0, 0, 0, 0xff, 0xff]);
    control(SYN_STREAM, 0, &payload)
}

fn read(from: &mut impl Read) -> io::Result<Frame> {
    let mut head = [0; 8];
    from.read_exact(&mut head)?;
    let [a, b, c, d, flags, length @ ..] = head;
    let [x, y, z] = length;
    let length = u32::from_be_bytes([0, x, y, z]);
    let mut payload = Vec::new();
    from.take(u64::from(length)).read_to_end(&mut payload)?;
    if payload.len() as u64 != u64::from(length) {
        return Err(ErrorKind::UnexpectedEof.into());
    }
    let number = |bytes: &[u8]| {
        let bytes = bytes.first_chunk().ok_or(ErrorKind::InvalidData)?;
        Ok::<u32, io::Error>(u32::from_be_bytes(*bytes) & 0x7fff_ffff)
    };
    if a & 0x80 == 0 {
        return Ok(Frame::Data { stream: u32::from_be_bytes([a, b, c, d]), bytes: payload, last: flags & FIN != 0 });
    }
    Ok(match u16::from_be_bytes([c, d]) {
        SYN_REPLY => Frame::Reply(number(&payload)?),
        RST_STREAM => Frame::Reset(number(&payload)?),
        PING => Frame::Ping(number(&payload)?),
        GOAWAY => Frame::Away,
        _ => Frame::Other,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_that_is_opened() {
        let frame = syn_stream(1, &[("streamtype", "error")]);
        let (head, payload) = frame.split_at(8);
        assert_eq!(head[..5], [0x80, 3, 0, 1, 0]);
        assert_eq!(usize::from(head[7]), payload.len());
        assert_eq!(payload[..10], [0, 0, 0, 1, 0, 0, 0, 0, 0, 0]);
        // What the server's decompressor makes of it.
        let mut plain = Vec::new();
        let mut decoder = flate2::Decompress::new(true);
        plain.reserve(256);
        decoder.decompress_vec(&payload[10..], &mut plain, flate2::FlushDecompress::Sync).expect("is zlib");
        assert_eq!(plain, b"\0\0\0\x01\0\0\0\x0astreamtype\0\0\0\x05error");
        let second = syn_stream(3, &[("streamtype", "stdin")]);
        plain.clear();
        decoder.decompress_vec(&second[18..], &mut plain, flate2::FlushDecompress::Sync).expect("goes on");
        assert!(plain.ends_with(b"stdin"), "{plain:?}");
    }

    #[test]
    fn frames() {
        let table: &[(&[u8], Option<Frame>)] = &[
            (&data(5, b"abc", true), Some(Frame::Data { stream: 5, bytes: b"abc".to_vec(), last: true })),
            (&data(5, b"", false), Some(Frame::Data { stream: 5, bytes: vec![], last: false })),
            (&control(SYN_REPLY, 0, &[0, 0, 0, 7, 1, 2]), Some(Frame::Reply(7))),
            (&control(RST_STREAM, 0, &[0, 0, 0, 7, 0, 0, 0, 5]), Some(Frame::Reset(7))),
            (&control(GOAWAY, 0, &[0; 8]), Some(Frame::Away)),
            (&control(PING, 0, &[0, 0, 0, 2]), Some(Frame::Ping(2))),
            (&control(4, 0, &[]), Some(Frame::Other)),
            (&control(SYN_REPLY, 0, &[0]), None),
            (&data(5, b"abc", true)[..10], None),
            (&[0x80, 3], None),
        ];
        for (bytes, want) in table {
            assert_eq!(read(&mut &bytes[..]).ok(), *want, "{bytes:?}");
        }
    }
}

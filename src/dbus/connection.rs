//! A connection to a bus (D-Bus specification, "Authentication Protocol", "Message Bus"). It blocks, and
//! is one thread's own.

use std::collections::VecDeque;
use std::env;
use std::ffi::OsString;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStringExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use rustix::net::{
    RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, ReturnFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, recvmsg, sendmsg,
};

use super::wire::{BadMessage, FIXED, Kind, Message, Value};

const BUS: &str = "org.freedesktop.DBus";
const BUS_PATH: &str = "/org/freedesktop/DBus";
/// How long an answer may take; that of D-Bus' own library.
const ANSWER: Duration = Duration::from_secs(25);
/// Descriptors that can come with one message.
const MAX_FDS: usize = 8;
/// Messages that are kept while an answer is waited for.
pub const MAX_QUEUED: usize = 64;
/// Bytes of a line of the authentication.
const MAX_LINE: usize = 512;

#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0:?} is no address of a bus that can be used here: it must be unix:path=… or unix:abstract=…")]
    Address(String),
    #[error("connecting to the bus at {address}: {source}")]
    Connect { address: String, source: io::Error },
    #[error("the bus: {0}")]
    Io(#[from] io::Error),
    #[error("the bus at {0} doesn't let us in")]
    Refused(String),
    #[error(transparent)]
    Bad(#[from] BadMessage),
    #[error("{call}: no answer within {} s", ANSWER.as_secs())]
    Late { call: String },
    #[error("{call}: {name}: {message}")]
    Answer { call: String, name: String, message: String },
    #[error("{call}: the answer isn't what it should be")]
    Unexpected { call: String },
    #[error("more than {MAX_QUEUED} messages came while an answer was waited for")]
    TooMany,
}

/// Where a bus listens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Address {
    Path(PathBuf),
    Abstract(Vec<u8>),
}

impl Address {
    /// The system's bus: what `DBUS_SYSTEM_BUS_ADDRESS` says, else where it always is.
    ///
    /// # Errors
    /// When that says what can't be used here.
    pub fn system() -> Result<Address, Error> {
        match env::var("DBUS_SYSTEM_BUS_ADDRESS") {
            Ok(text) if !text.is_empty() => Address::parse(&text),
            _ => Ok(Address::Path("/run/dbus/system_bus_socket".into())),
        }
    }

    /// Of several addresses, the first that can be used.
    ///
    /// # Errors
    /// When there is none.
    pub fn parse(text: &str) -> Result<Address, Error> {
        let of_unix = |address: &str| {
            let keys = address.strip_prefix("unix:")?;
            keys.split(',').find_map(|pair| match pair.split_once('=')? {
                ("path", value) => Some(Address::Path(OsString::from_vec(unescape(value)?).into())),
                ("abstract", value) => Some(Address::Abstract(unescape(value)?)),
                _ => None,
            })
        };
        text.split(';').find_map(of_unix).ok_or_else(|| Error::Address(text.to_owned()))
    }

    fn socket_address(&self) -> io::Result<SocketAddr> {
        match self {
            Address::Path(path) => SocketAddr::from_pathname(path),
            Address::Abstract(name) => SocketAddr::from_abstract_name(name),
        }
    }
}

impl std::fmt::Display for Address {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Address::Path(path) => write!(f, "{}", path.display()),
            Address::Abstract(name) => write!(f, "@{}", String::from_utf8_lossy(name)),
        }
    }
}

/// `%2f` for `/`, and so on.
fn unescape(text: &str) -> Option<Vec<u8>> {
    let mut bytes = text.bytes();
    let mut out = Vec::new();
    while let Some(byte) = bytes.next() {
        out.push(match byte {
            b'%' => {
                let digits = [bytes.next()?, bytes.next()?];
                u8::from_str_radix(std::str::from_utf8(&digits).ok()?, 16).ok()?
            }
            byte => byte,
        });
    }
    Some(out)
}

pub struct Connection {
    socket: UnixStream,
    serial: u32,
    /// What came while an answer was waited for.
    queue: VecDeque<Message>,
    /// Descriptors that came before the end of their message.
    fds: VecDeque<OwnedFd>,
}

impl Connection {
    /// Connects to a bus, and makes itself known to it.
    ///
    /// # Errors
    /// When the bus isn't there, or doesn't want us.
    pub fn open(address: &Address) -> Result<Connection, Error> {
        let connect = || address.socket_address().and_then(|at| UnixStream::connect_addr(&at));
        let socket = connect().map_err(|source| Error::Connect { address: address.to_string(), source })?;
        socket.set_read_timeout(Some(ANSWER))?;
        socket.set_write_timeout(Some(ANSWER))?;
        authenticate(&socket).map_err(|source| match source.kind() {
            io::ErrorKind::PermissionDenied => Error::Refused(address.to_string()),
            _ => Error::Io(source),
        })?;
        let mut connection = Connection { socket, serial: 0, queue: VecDeque::new(), fds: VecDeque::new() };
        connection.ask_bus("Hello", vec![])?;
        Ok(connection)
    }

    /// Has signals come that are such as `rule` says.
    ///
    /// # Errors
    /// When the bus doesn't do it.
    pub fn add_match(&mut self, rule: &str) -> Result<(), Error> {
        self.ask_bus("AddMatch", vec![Value::Text(rule.to_owned())]).map(drop)
    }

    /// Who has a name now.
    ///
    /// # Errors
    /// When nobody has it.
    pub fn owner(&mut self, name: &str) -> Result<String, Error> {
        let mut answer = self.ask_bus("GetNameOwner", vec![Value::Text(name.to_owned())])?;
        match answer.body.take().and_then(|mut body| body.pop()) {
            Some(Value::Text(owner)) => Ok(owner),
            _ => Err(Error::Unexpected { call: "GetNameOwner".to_owned() }),
        }
    }

    /// Takes a name, to be called by it. Nobody else may have it.
    ///
    /// # Errors
    /// When the bus doesn't give it.
    pub fn own(&mut self, name: &str) -> Result<(), Error> {
        // Not to wait for it.
        let answer = self.ask_bus("RequestName", vec![Value::Text(name.to_owned()), Value::U32(4)])?;
        match answer.args() {
            [Value::U32(1)] => Ok(()),
            _ => Err(Error::Unexpected { call: format!("RequestName {name}") }),
        }
    }

    fn ask_bus(&mut self, member: &str, body: Vec<Value>) -> Result<Message, Error> {
        self.call(Message::call(BUS, BUS_PATH, BUS, member, body))
    }

    /// Calls somebody, and waits for the answer. What else comes meanwhile is kept.
    ///
    /// # Errors
    /// When there is none, or it says so.
    pub fn call(&mut self, message: Message) -> Result<Message, Error> {
        let name = message.member.clone().unwrap_or_default();
        let serial = self.send(message)?;
        let until = Instant::now() + ANSWER;
        loop {
            let Some(message) = self.read(Some(until))? else { return Err(Error::Late { call: name }) };
            if message.reply_to != Some(serial) {
                if self.queue.len() >= MAX_QUEUED {
                    return Err(Error::TooMany);
                }
                self.queue.push_back(message);
                continue;
            }
            if message.kind != Kind::Error {
                return Ok(message);
            }
            let told = match message.args().first() {
                Some(Value::Text(text)) => text.clone(),
                _ => String::new(),
            };
            return Err(Error::Answer { call: name, name: message.error.unwrap_or_default(), message: told });
        }
    }

    /// The next message; `None` when there is none until then.
    ///
    /// # Errors
    /// When the connection has ended.
    pub fn receive(&mut self, until: Option<Instant>) -> Result<Option<Message>, Error> {
        match self.queue.pop_front() {
            Some(message) => Ok(Some(message)),
            None => self.read(until),
        }
    }

    /// Sends a message, with its descriptors. Returns its serial number.
    ///
    /// # Errors
    /// When it can't be sent.
    pub fn send(&mut self, mut message: Message) -> Result<u32, Error> {
        self.serial = self.serial.checked_add(1).unwrap_or(1);
        message.serial = self.serial;
        let bytes = message.encode()?;
        let fds: Vec<_> = message.fds.iter().map(AsFd::as_fd).collect();
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(&fds)) {
            return Err(BadMessage.into());
        }
        let sent = sendmsg(&self.socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL);
        let sent = sent.map_err(io::Error::from)?;
        self.socket.write_all(bytes.get(sent..).unwrap_or_default())?;
        Ok(self.serial)
    }

    fn read(&mut self, until: Option<Instant>) -> Result<Option<Message>, Error> {
        let mut fixed = [0; FIXED];
        if !self.fill(&mut fixed, until)? {
            return Ok(None);
        }
        let mut bytes = vec![0; Message::length(&fixed)?];
        let (head, rest) = bytes.split_at_mut_checked(FIXED).ok_or(BadMessage)?;
        head.copy_from_slice(&fixed);
        // What has begun comes to its end.
        if !self.fill(rest, Some(Instant::now() + ANSWER))? {
            return Err(BadMessage.into());
        }
        let mut message = Message::decode(&bytes)?;
        if message.fd_count > self.fds.len() {
            return Err(BadMessage.into());
        }
        message.fds = self.fds.drain(..message.fd_count).collect();
        Ok(Some(message))
    }

    /// Fills the buffer. Returns whether its first byte came in time.
    fn fill(&mut self, buffer: &mut [u8], until: Option<Instant>) -> Result<bool, Error> {
        let mut filled = 0;
        while let Some(rest) = buffer.get_mut(filled..).filter(|rest| !rest.is_empty()) {
            // No timeout is said by `None`; zero is not allowed.
            let left = until.map(|until| until.saturating_duration_since(Instant::now()).max(Duration::from_millis(1)));
            self.socket.set_read_timeout(left)?;
            let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
            let mut control = RecvAncillaryBuffer::new(&mut space);
            let received = recvmsg(&self.socket, &mut [IoSliceMut::new(rest)], &mut control, RecvFlags::CMSG_CLOEXEC);
            let received = match received {
                Err(rustix::io::Errno::INTR) => continue,
                Err(rustix::io::Errno::AGAIN) if filled == 0 => return Ok(false),
                received => received.map_err(io::Error::from)?,
            };
            for message in control.drain() {
                if let RecvAncillaryMessage::ScmRights(fds) = message {
                    self.fds.extend(fds);
                }
            }
            if received.flags.contains(ReturnFlags::CTRUNC) || self.fds.len() > MAX_FDS {
                return Err(BadMessage.into());
            }
            if received.bytes == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof).into());
            }
            filled += received.bytes;
        }
        Ok(true)
    }
}

/// Says who we are, which the kernel confirms, and that we take descriptors.
fn authenticate(mut socket: &UnixStream) -> io::Result<()> {
    let uid = rustix::process::geteuid().as_raw().to_string();
    let uid: String = uid.bytes().map(|digit| format!("{digit:02x}")).collect();
    for (said, want) in [(format!("\0AUTH EXTERNAL {uid}"), "OK"), ("NEGOTIATE_UNIX_FD".to_owned(), "AGREE_UNIX_FD")] {
        socket.write_all(format!("{said}\r\n").as_bytes())?;
        let answer = line(socket)?;
        if answer.split(' ').next() != Some(want) {
            return Err(io::ErrorKind::PermissionDenied.into());
        }
    }
    socket.write_all(b"BEGIN\r\n")
}

/// A line of the bus; byte by byte, for nothing after it may be read yet.
fn line(mut socket: &UnixStream) -> io::Result<String> {
    let mut line = Vec::new();
    while !line.ends_with(b"\r\n") {
        let mut byte = [0];
        socket.read_exact(&mut byte)?;
        line.extend(byte);
        if line.len() > MAX_LINE {
            return Err(io::ErrorKind::InvalidData.into());
        }
    }
    Ok(String::from_utf8_lossy(&line).trim_end().to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::net::UnixListener;

    #[test]
    fn addresses() {
        let path = |path: &str| Some(Address::Path(path.into()));
        let table = [
            ("unix:path=/run/bus", path("/run/bus")),
            ("unix:guid=1,path=/a%20b", path("/a b")),
            ("tcp:host=h;unix:path=/x", path("/x")),
            ("unix:abstract=/tmp/b", Some(Address::Abstract(b"/tmp/b".to_vec()))),
            ("unix:path=/a%2", None),
            ("tcp:host=h", None),
            ("", None),
        ];
        for (text, want) in table {
            assert_eq!(Address::parse(text).ok(), want, "{text}");
        }
    }

    /// A bus of a few lines: lets one in, and then does as it is told.
    fn bus(answer: impl FnOnce(&UnixStream) + Send + 'static) -> (Address, tempfile::TempDir) {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("bus");
        let listener = UnixListener::bind(&path).expect("listens");
        std::thread::spawn(move || {
            let (socket, _) = listener.accept().expect("comes");
            for answer in ["OK 1234\r\n", "AGREE_UNIX_FD\r\n", ""] {
                line(&socket).expect("says something");
                (&socket).write_all(answer.as_bytes()).expect("is told");
            }
            answer(&socket);
        });
        (Address::Path(path), dir)
    }

    fn over(socket: &UnixStream) -> Connection {
        let socket = socket.try_clone().expect("can be shared");
        Connection { socket, serial: 0, queue: VecDeque::new(), fds: VecDeque::new() }
    }

    #[test]
    fn an_answer_is_found_among_others_and_brings_its_descriptor() {
        let (address, _dir) = bus(|socket| {
            let mut bus = over(socket);
            let next = |bus: &mut Connection| bus.receive(None).expect("is there").expect("a message");
            let hello = next(&mut bus);
            bus.send(hello.answer(vec![Value::Text(":1.1".to_owned())])).expect("is sent");
            let call = next(&mut bus);
            bus.send(Message::signal("/p", "i.f", "First", vec![Value::U32(1)])).expect("is sent");
            let (reader, writer) = rustix::pipe::pipe().expect("a pipe");
            let mut answer = call.answer(vec![Value::Fd(0)]);
            answer.fds.push(reader);
            bus.send(answer).expect("is sent");
            std::fs::File::from(writer).write_all(b"held").expect("is written");
            let call = next(&mut bus);
            bus.send(call.refusal("a.b.No", "because")).expect("is sent");
        });
        let mut connection = Connection::open(&address).expect("is let in");
        let mut answer = connection.call(Message::call("a.b", "/p", "i.f", "Give", vec![])).expect("is answered");
        let mut text = String::new();
        std::fs::File::from(answer.fds.remove(0)).read_to_string(&mut text).expect("is read");
        assert_eq!(text, "held");
        let refused = connection.call(Message::call("a.b", "/p", "i.f", "Do", vec![])).expect_err("is refused");
        assert_eq!(refused.to_string(), "Do: a.b.No: because");
        let signal = connection.receive(None).expect("is there").expect("a message");
        assert!(signal.is("i.f", "First"));
        assert!(matches!(connection.receive(None), Err(Error::Io(_))), "the bus is gone");
    }

    #[test]
    fn who_is_not_let_in() {
        let dir = tempfile::tempdir().expect("a directory");
        let path = dir.path().join("bus");
        let listener = UnixListener::bind(&path).expect("listens");
        std::thread::spawn(move || {
            let (socket, _) = listener.accept().expect("comes");
            line(&socket).expect("says something");
            (&socket).write_all(b"REJECTED EXTERNAL\r\n").expect("is told");
        });
        assert!(matches!(Connection::open(&Address::Path(path)), Err(Error::Refused(_))));
        let nowhere = Connection::open(&Address::Path(dir.path().join("none"))).err().expect("is not there");
        assert!(nowhere.to_string().contains("none: No such file"), "{nowhere}");
    }
}

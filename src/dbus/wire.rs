//! Messages of D-Bus in bytes (D-Bus specification, "Message Protocol"). Pure.

use std::os::fd::OwnedFd;

/// Bytes of a message; ours have some hundreds.
pub const MAX_MESSAGE: usize = 1 << 20;
/// Of its fixed part: what its length can be told from.
pub const FIXED: usize = 16;
/// Variants within variants.
const MAX_DEPTH: usize = 16;

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Kind {
    #[default]
    Call,
    Return,
    Error,
    Signal,
}

/// A value in a message's body. Of containers there is the variant only.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    Byte(u8),
    Bool(bool),
    I32(i32),
    U32(u32),
    I64(i64),
    U64(u64),
    Text(String),
    Path(String),
    Signature(String),
    /// The place of a descriptor among those of the message.
    Fd(u32),
    Variant(Box<Value>),
}

#[derive(Debug, Default)]
pub struct Message {
    pub kind: Kind,
    pub serial: u32,
    /// The serial number of what this answers.
    pub reply_to: Option<u32>,
    pub path: Option<String>,
    pub interface: Option<String>,
    pub member: Option<String>,
    /// The name of an error.
    pub error: Option<String>,
    pub destination: Option<String>,
    /// Set by the bus, whatever the sender says.
    pub sender: Option<String>,
    /// `None` when there are values in it that aren't known here.
    pub body: Option<Vec<Value>>,
    pub fds: Vec<OwnedFd>,
    /// How many descriptors come with it.
    pub(super) fd_count: usize,
}

/// What came is no message; nothing after it can be understood.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("what came over the bus is no message of D-Bus")]
pub struct BadMessage;

impl Message {
    pub fn call(destination: &str, path: &str, interface: &str, member: &str, body: Vec<Value>) -> Message {
        Message {
            destination: Some(destination.to_owned()),
            path: Some(path.to_owned()),
            interface: Some(interface.to_owned()),
            member: Some(member.to_owned()),
            body: Some(body),
            ..Message::default()
        }
    }

    pub fn signal(path: &str, interface: &str, member: &str, body: Vec<Value>) -> Message {
        Message {
            kind: Kind::Signal,
            path: Some(path.to_owned()),
            interface: Some(interface.to_owned()),
            member: Some(member.to_owned()),
            body: Some(body),
            ..Message::default()
        }
    }

    /// The answer to this call.
    pub fn answer(&self, body: Vec<Value>) -> Message {
        Message {
            kind: Kind::Return,
            reply_to: Some(self.serial),
            destination: self.sender.clone(),
            body: Some(body),
            ..Message::default()
        }
    }

    /// The answer that this call can't be served.
    pub fn refusal(&self, error: &str, message: &str) -> Message {
        let body = vec![Value::Text(message.to_owned())];
        Message { kind: Kind::Error, error: Some(error.to_owned()), ..self.answer(body) }
    }

    /// Whether it is this member of this interface.
    pub fn is(&self, interface: &str, member: &str) -> bool {
        self.interface.as_deref() == Some(interface) && self.member.as_deref() == Some(member)
    }

    pub fn args(&self) -> &[Value] {
        self.body.as_deref().unwrap_or_default()
    }

    /// The message in bytes, without its descriptors.
    ///
    /// # Errors
    /// When it is longer than a message may be.
    pub fn encode(&self) -> Result<Vec<u8>, BadMessage> {
        let values = self.args();
        let mut body = Writer(Vec::new());
        values.iter().for_each(|value| body.value(value));
        let signature: String = values.iter().map(Value::code).collect();
        let kind = match self.kind {
            Kind::Call => 1,
            Kind::Return => 2,
            Kind::Error => 3,
            Kind::Signal => 4,
        };
        let mut fields = Writer(Vec::new());
        let text = |value: &Option<String>| value.clone().map(Value::Text);
        let fds = u32::try_from(self.fds.len()).map_err(|_| BadMessage)?;
        let all = [
            (1, self.path.clone().map(Value::Path)),
            (2, text(&self.interface)),
            (3, text(&self.member)),
            (4, text(&self.error)),
            (5, self.reply_to.map(Value::U32)),
            (6, text(&self.destination)),
            (7, text(&self.sender)),
            (8, (!signature.is_empty()).then_some(Value::Signature(signature))),
            (9, (fds > 0).then_some(Value::U32(fds))),
        ];
        for (code, value) in all.into_iter().filter_map(|(code, value)| Some((code, value?))) {
            fields.align(8);
            fields.0.push(code);
            fields.value(&Value::Variant(Box::new(value)));
        }
        let length = |bytes: &Writer| u32::try_from(bytes.0.len()).map_err(|_| BadMessage);
        // Little endian, no flags, version 1.
        let mut out = Writer(vec![b'l', kind, 0, 1]);
        out.value(&Value::U32(length(&body)?));
        out.value(&Value::U32(self.serial));
        out.value(&Value::U32(length(&fields)?));
        // Its values are aligned as they are within the whole: 16 bytes are before them.
        out.0.extend(fields.0);
        out.align(8);
        out.0.extend(body.0);
        if out.0.len() > MAX_MESSAGE { Err(BadMessage) } else { Ok(out.0) }
    }

    /// How long the message is whose first bytes these are.
    ///
    /// # Errors
    /// When it is none, or longer than a message may be.
    pub fn length(fixed: &[u8; FIXED]) -> Result<usize, BadMessage> {
        let mut reader = Reader::new(fixed)?;
        reader.at = 4;
        let body = reader.length()?;
        reader.at = 12;
        let fields = reader.length()?;
        let length = (FIXED + fields).next_multiple_of(8) + body;
        if length > MAX_MESSAGE { Err(BadMessage) } else { Ok(length) }
    }

    /// The message that these bytes are, without its descriptors.
    ///
    /// # Errors
    /// When they are none.
    pub fn decode(bytes: &[u8]) -> Result<Message, BadMessage> {
        let mut reader = Reader::new(bytes)?;
        let kind = match bytes.get(1) {
            Some(1) => Kind::Call,
            Some(2) => Kind::Return,
            Some(3) => Kind::Error,
            Some(4) => Kind::Signal,
            _ => return Err(BadMessage),
        };
        reader.at = 4;
        let body_length = reader.length()?;
        let mut message = Message { kind, serial: reader.u32()?, ..Message::default() };
        let end = reader.length()? + FIXED;
        let mut signature = String::new();
        while reader.at < end {
            reader.align(8)?;
            let code = reader.byte()?;
            let value = reader.variant(0)?;
            match (code, value) {
                (1, Value::Path(path)) => message.path = Some(path),
                (2, Value::Text(name)) => message.interface = Some(name),
                (3, Value::Text(name)) => message.member = Some(name),
                (4, Value::Text(name)) => message.error = Some(name),
                (5, Value::U32(serial)) => message.reply_to = Some(serial),
                (6, Value::Text(name)) => message.destination = Some(name),
                (7, Value::Text(name)) => message.sender = Some(name),
                (8, Value::Signature(text)) => signature = text,
                (9, Value::U32(count)) => message.fd_count = usize::try_from(count).map_err(|_| BadMessage)?,
                (1..=9, _) => return Err(BadMessage),
                // There may be others some day.
                _ => {}
            }
        }
        reader.align(8)?;
        let body = bytes.get(reader.at..).filter(|body| body.len() == body_length).ok_or(BadMessage)?;
        let mut reader = Reader { bytes: body, ..reader };
        reader.at = 0;
        let values: Result<Vec<_>, _> = signature.chars().map(|code| reader.value(code, 0)).collect();
        message.body = values.ok();
        Ok(message)
    }
}

impl Value {
    /// The code of its type.
    fn code(&self) -> char {
        match self {
            Value::Byte(_) => 'y',
            Value::Bool(_) => 'b',
            Value::I32(_) => 'i',
            Value::U32(_) => 'u',
            Value::I64(_) => 'x',
            Value::U64(_) => 't',
            Value::Text(_) => 's',
            Value::Path(_) => 'o',
            Value::Signature(_) => 'g',
            Value::Fd(_) => 'h',
            Value::Variant(_) => 'v',
        }
    }
}

/// Values are aligned as of its beginning.
struct Writer(Vec<u8>);

impl Writer {
    fn align(&mut self, to: usize) {
        self.0.resize(self.0.len().next_multiple_of(to), 0);
    }

    fn value(&mut self, value: &Value) {
        match value {
            Value::Byte(byte) => self.0.push(*byte),
            Value::Bool(truth) => self.put(&u32::from(*truth).to_le_bytes()),
            Value::I32(number) => self.put(&number.to_le_bytes()),
            Value::U32(number) | Value::Fd(number) => self.put(&number.to_le_bytes()),
            Value::I64(number) => self.put(&number.to_le_bytes()),
            Value::U64(number) => self.put(&number.to_le_bytes()),
            Value::Text(text) | Value::Path(text) => {
                // What is too long for it makes a message that is not sent.
                self.put(&u32::try_from(text.len()).unwrap_or(u32::MAX).to_le_bytes());
                self.0.extend(text.bytes());
                self.0.push(0);
            }
            Value::Signature(text) => {
                self.0.push(u8::try_from(text.len()).unwrap_or(u8::MAX));
                self.0.extend(text.bytes());
                self.0.push(0);
            }
            Value::Variant(inner) => {
                self.value(&Value::Signature(inner.code().to_string()));
                self.value(inner);
            }
        }
    }

    /// A number, which is aligned to its own size.
    fn put(&mut self, bytes: &[u8]) {
        self.align(bytes.len());
        self.0.extend(bytes);
    }
}

struct Reader<'b> {
    bytes: &'b [u8],
    at: usize,
    big_endian: bool,
}

impl<'b> Reader<'b> {
    /// Of a message, the first byte of which says in which order those of numbers are.
    fn new(message: &'b [u8]) -> Result<Reader<'b>, BadMessage> {
        match message.first() {
            Some(b'l') => Ok(Reader { bytes: message, at: 0, big_endian: false }),
            Some(b'B') => Ok(Reader { bytes: message, at: 0, big_endian: true }),
            _ => Err(BadMessage),
        }
    }

    fn take(&mut self, length: usize) -> Result<&'b [u8], BadMessage> {
        let end = self.at.checked_add(length).ok_or(BadMessage)?;
        let taken = self.bytes.get(self.at..end).ok_or(BadMessage)?;
        self.at = end;
        Ok(taken)
    }

    fn align(&mut self, to: usize) -> Result<(), BadMessage> {
        let padding = self.at.next_multiple_of(to) - self.at;
        self.take(padding).map(drop)
    }

    fn byte(&mut self) -> Result<u8, BadMessage> {
        self.take(1)?.first().copied().ok_or(BadMessage)
    }

    /// A number of so many bytes.
    fn number<const N: usize>(&mut self) -> Result<[u8; N], BadMessage> {
        self.align(N)?;
        let mut bytes: [u8; N] = self.take(N)?.try_into().map_err(|_| BadMessage)?;
        if self.big_endian {
            bytes.reverse();
        }
        Ok(bytes)
    }

    fn u32(&mut self) -> Result<u32, BadMessage> {
        self.number().map(u32::from_le_bytes)
    }

    fn length(&mut self) -> Result<usize, BadMessage> {
        let length = usize::try_from(self.u32()?).map_err(|_| BadMessage)?;
        if length > MAX_MESSAGE { Err(BadMessage) } else { Ok(length) }
    }

    fn text(&mut self, length: usize) -> Result<String, BadMessage> {
        let text = self.take(length)?.to_vec();
        if self.byte()? != 0 {
            return Err(BadMessage);
        }
        String::from_utf8(text).map_err(|_| BadMessage)
    }

    fn value(&mut self, code: char, depth: usize) -> Result<Value, BadMessage> {
        Ok(match code {
            'y' => Value::Byte(self.byte()?),
            'b' => Value::Bool(self.u32()? != 0),
            'i' => Value::I32(self.number().map(i32::from_le_bytes)?),
            'u' => Value::U32(self.u32()?),
            'x' => Value::I64(self.number().map(i64::from_le_bytes)?),
            't' => Value::U64(self.number().map(u64::from_le_bytes)?),
            'h' => Value::Fd(self.u32()?),
            's' | 'o' => {
                let length = self.length()?;
                let text = self.text(length)?;
                if code == 's' { Value::Text(text) } else { Value::Path(text) }
            }
            'g' => {
                let length = usize::from(self.byte()?);
                Value::Signature(self.text(length)?)
            }
            'v' if depth < MAX_DEPTH => Value::Variant(Box::new(self.variant(depth + 1)?)),
            _ => return Err(BadMessage),
        })
    }

    /// What a variant holds.
    fn variant(&mut self, depth: usize) -> Result<Value, BadMessage> {
        let length = usize::from(self.byte()?);
        let signature = self.text(length)?;
        let mut codes = signature.chars();
        match (codes.next(), codes.next()) {
            (Some(code), None) => self.value(code, depth),
            _ => Err(BadMessage),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> Value {
        Value::Text(text.to_owned())
    }

    fn again(message: &Message) -> Message {
        let bytes = message.encode().expect("is written");
        let fixed = bytes.first_chunk().expect("has a fixed part");
        assert_eq!(Message::length(fixed), Ok(bytes.len()));
        Message::decode(&bytes).expect("is read")
    }

    #[test]
    fn a_message_comes_as_it_went() {
        let body = vec![
            text("shutdown"),
            Value::Byte(7),
            Value::U64(u64::MAX - 1),
            Value::Bool(true),
            Value::I32(-5),
            Value::I64(-6),
            Value::Path("/a".to_owned()),
            Value::Signature("su".to_owned()),
            Value::Variant(Box::new(Value::Variant(Box::new(Value::U32(9))))),
            Value::Fd(0),
            text(""),
        ];
        let mut call = Message::call("org.example.A", "/org/example", "org.example.I", "Do", body.clone());
        call.serial = 77;
        let got = again(&call);
        assert_eq!((got.kind, got.serial, got.reply_to), (Kind::Call, 77, None));
        assert_eq!(got.destination.as_deref(), Some("org.example.A"));
        assert_eq!(got.path.as_deref(), Some("/org/example"));
        assert!(got.is("org.example.I", "Do") && !got.is("org.example.I", "Other"));
        assert_eq!(got.body, Some(body));
        let mut asked = Message { sender: Some(":1.5".to_owned()), serial: 3, ..Message::default() };
        let refusal = again(&asked.refusal("org.example.No", "why"));
        assert_eq!((refusal.kind, refusal.reply_to), (Kind::Error, Some(3)));
        assert_eq!((refusal.error.as_deref(), refusal.args()), (Some("org.example.No"), &[text("why")][..]));
        assert_eq!(refusal.destination, asked.sender.take());
        let signal = again(&Message::signal("/p", "i.f", "S", vec![Value::Bool(false)]));
        assert_eq!((signal.kind, signal.args()), (Kind::Signal, &[Value::Bool(false)][..]));
    }

    /// As another program writes it: big endian, with a field and a value that aren't known here.
    #[test]
    fn what_is_not_known_is_passed_over() {
        let mut bytes = vec![b'B', 4, 0, 1, 0, 0, 0, 4, 0, 0, 0, 2, 0, 0, 0, 0];
        bytes.extend([42, 1, b'u', 0, 0, 0, 0, 1]);
        bytes.extend([2, 1, b's', 0, 0, 0, 0, 3, b'a', b'.', b'b', 0, 0, 0, 0, 0]);
        bytes.extend([8, 1, b'g', 0, 2, b'a', b's', 0]);
        bytes[15] = u8::try_from(bytes.len() - 16).expect("is short");
        bytes.extend([0, 0, 0, 0]);
        let message = Message::decode(&bytes).expect("is read");
        assert_eq!((message.kind, message.serial, message.interface.as_deref()), (Kind::Signal, 2, Some("a.b")));
        assert_eq!((message.body.as_ref(), message.args().len()), (None, 0));
    }

    #[test]
    fn no_bytes_do_harm() {
        let mut call = Message::call("a.b", "/p", "i.f", "M", vec![text("t"), Value::Variant(Box::new(text("v")))]);
        call.serial = 1;
        let good = call.encode().expect("is written");
        for length in 0..good.len() {
            assert!(Message::decode(&good[..length]).is_err(), "of {length} bytes");
        }
        for at in 0..good.len() {
            for bit in 0..8 {
                let mut bad = good.clone();
                bad[at] ^= 1 << bit;
                // It may be another message, or none.
                let _ = Message::decode(&bad);
            }
        }
        let mut long = *good.first_chunk::<FIXED>().expect("has a fixed part");
        long[7] = 1;
        assert_eq!(Message::length(&long), Err(BadMessage));
        // Variants without end.
        let mut deep = Message::signal("/p", "i.f", "S", vec![Value::Byte(0)]);
        let mut value = Value::Byte(0);
        for _ in 0..40 {
            value = Value::Variant(Box::new(value));
        }
        deep.body = Some(vec![value]);
        assert_eq!(again(&deep).body, None);
    }
}

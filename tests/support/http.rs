//! A client of the agent's ports in a cell: plain or with TLS, one request a connection.

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use rustls::{ClientConfig, ClientConnection, RootCertStore, StreamOwned};

use super::Cell;

const LOOPBACK: &str = "127.0.0.1";
const SOON: Duration = Duration::from_secs(30);

#[derive(Clone)]
pub struct Client {
    cell: Arc<Cell>,
    port: u16,
    tls: Option<Arc<ClientConfig>>,
    /// What the server's certificate has to be for.
    name: &'static str,
    /// Headers of each request.
    headers: String,
}

pub enum Stream {
    Plain(TcpStream),
    Tls(Box<StreamOwned<ClientConnection, TcpStream>>),
}

/// Whether a client shows who it is.
pub struct Identity {
    pub chain: Vec<CertificateDer<'static>>,
    pub key: PrivateKeyDer<'static>,
}

/// An authority that a test makes, and what it signs.
pub struct Authority {
    key: rcgen::KeyPair,
    params: rcgen::CertificateParams,
    certificate: rcgen::Certificate,
}

impl Authority {
    pub fn new(name: &str) -> Authority {
        let mut params = rcgen::CertificateParams::new(vec![]).expect("has no names");
        params.distinguished_name.push(rcgen::DnType::CommonName, name);
        params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
        let key = rcgen::KeyPair::generate().expect("a key");
        let certificate = params.self_signed(&key).expect("is signed");
        Authority { key, params, certificate }
    }

    pub fn write(&self, path: PathBuf) -> PathBuf {
        fs::write(&path, self.certificate.pem()).expect("writes");
        path
    }

    /// Its key, PEM.
    pub fn key_pem(&self) -> String {
        self.key.serialize_pem()
    }

    /// A client's certificate.
    pub fn identity(&self, user: &str, group: Option<&str>) -> Identity {
        let (certificate, key) = self.client(user, group.as_slice());
        Identity {
            chain: vec![CertificateDer::from_pem_slice(certificate.as_bytes()).expect("is one")],
            key: PrivateKeyDer::from_pem_slice(key.as_bytes()).expect("is a key"),
        }
    }

    /// A client's certificate and its key, PEM.
    pub fn client(&self, user: &str, groups: &[&str]) -> (String, String) {
        self.sign(&Authority::of_client(user, groups))
    }

    /// As [`Authority::client`], of one that has ended.
    pub fn ended_client(&self, user: &str, groups: &[&str]) -> (String, String) {
        let mut params = Authority::of_client(user, groups);
        (params.not_before, params.not_after) = (rcgen::date_time_ymd(2020, 1, 1), rcgen::date_time_ymd(2020, 2, 1));
        self.sign(&params)
    }

    fn of_client(user: &str, groups: &[&str]) -> rcgen::CertificateParams {
        let mut params = rcgen::CertificateParams::new(vec![]).expect("has no names");
        params.distinguished_name = rcgen::DistinguishedName::new();
        params.distinguished_name.push(rcgen::DnType::CommonName, user);
        for group in groups {
            params.distinguished_name.push(rcgen::DnType::OrganizationName, *group);
        }
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ClientAuth];
        params
    }

    /// A server's certificate for these names and addresses, and its key, PEM.
    pub fn server(&self, names: &[&str]) -> (String, String) {
        let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
        let mut params = rcgen::CertificateParams::new(names).expect("are names");
        params.extended_key_usages = vec![rcgen::ExtendedKeyUsagePurpose::ServerAuth];
        self.sign(&params)
    }

    /// As [`Authority::server`], of one that has ended.
    pub fn ended_server(&self, name: &str) -> (String, String) {
        let mut params = rcgen::CertificateParams::new(vec![name.to_owned()]).expect("is a name");
        (params.not_before, params.not_after) = (rcgen::date_time_ymd(2020, 1, 1), rcgen::date_time_ymd(2020, 2, 1));
        self.sign(&params)
    }

    fn sign(&self, params: &rcgen::CertificateParams) -> (String, String) {
        let key = rcgen::KeyPair::generate().expect("a key");
        let issuer = rcgen::Issuer::from_params(&self.params, &self.key);
        let certificate = params.signed_by(&key, &issuer).expect("is signed");
        (certificate.pem(), key.serialize_pem())
    }
}

/// An answer with its whole body.
#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    /// Names in lower case.
    pub headers: Vec<(String, String)>,
    pub body: String,
}

impl Answer {
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str())
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.body).unwrap_or_else(|e| panic!("{e}: {}", self.body))
    }
}

impl Client {
    pub fn plain(cell: &Arc<Cell>, port: u16) -> Client {
        Client { cell: cell.clone(), port, tls: None, name: LOOPBACK, headers: String::new() }
    }

    /// Trusts the certificate in a file alone.
    pub fn tls(cell: &Arc<Cell>, port: u16, trusted: &Path, identity: Option<Identity>) -> Client {
        let mut roots = RootCertStore::empty();
        roots.add(CertificateDer::from_pem_file(trusted).expect("a certificate")).expect("can be trusted");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
        let builder = builder.expect("has versions").with_root_certificates(roots);
        let config = match identity {
            Some(Identity { chain, key }) => builder.with_client_auth_cert(chain, key).expect("they fit"),
            None => builder.with_no_client_auth(),
        };
        Client { cell: cell.clone(), port, tls: Some(Arc::new(config)), name: LOOPBACK, headers: String::new() }
    }

    pub fn named(self, name: &'static str) -> Client {
        Client { name, ..self }
    }

    pub fn with_token(mut self, token: &str) -> Client {
        self.headers = format!("Authorization: Bearer {token}\r\n");
        self
    }

    pub fn connect(&self) -> io::Result<Stream> {
        let socket = self.cell.connect(self.port)?;
        socket.set_read_timeout(Some(SOON))?;
        socket.set_write_timeout(Some(SOON))?;
        let Some(config) = &self.tls else { return Ok(Stream::Plain(socket)) };
        let name = ServerName::try_from(self.name).expect("is a name");
        let tls = ClientConnection::new(config.clone(), name).map_err(io::Error::other)?;
        Ok(Stream::Tls(Box::new(StreamOwned::new(tls, socket))))
    }

    /// Sends bytes as they are, and reads all that comes.
    pub fn raw(&self, bytes: &[u8]) -> io::Result<String> {
        let mut stream = self.connect()?;
        stream.write_all(bytes)?;
        stream.flush()?;
        let mut answer = Vec::new();
        match stream.read_to_end(&mut answer) {
            Ok(_) => {}
            // It had not read all of it, and so could not end well.
            Err(e) if e.kind() == io::ErrorKind::ConnectionReset && !answer.is_empty() => {}
            Err(e) => return Err(e),
        }
        Ok(String::from_utf8_lossy(&answer).into_owned())
    }

    /// A request whose answer's body is still to be read.
    pub fn open(&self, method: &str, path: &str, headers: &str) -> io::Result<Opened> {
        let mut stream = self.connect()?;
        let own = &self.headers;
        write!(stream, "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n{own}{headers}\r\n")?;
        stream.flush()?;
        Opened::read(BufReader::with_capacity(64 << 10, stream), method == "HEAD")
    }

    pub fn send(&self, method: &str, path: &str) -> io::Result<Answer> {
        let mut opened = self.open(method, path, "Connection: close\r\n")?;
        let mut body = Vec::new();
        opened.read_to_end(&mut body)?;
        let Opened { status, headers, .. } = opened;
        Ok(Answer { status, headers, body: String::from_utf8_lossy(&body).into_owned() })
    }

    #[track_caller]
    pub fn get(&self, path: &str) -> Answer {
        self.send("GET", path).unwrap_or_else(|e| panic!("GET {path}: {e}"))
    }
}

/// An answer whose body is read as it comes, without its framing.
pub struct Opened {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    /// What comes behind the head, as it is.
    pub stream: BufReader<Stream>,
    rest: Rest,
}

enum Rest {
    Length(u64),
    /// So many bytes of the chunk are left.
    Chunk(u64),
    Close,
    Done,
}

impl Opened {
    fn read(mut stream: BufReader<Stream>, no_body: bool) -> io::Result<Opened> {
        let mut line = String::new();
        stream.read_line(&mut line)?;
        let status = line.split(' ').nth(1).and_then(|code| code.parse().ok());
        let status = status.ok_or_else(|| io::Error::other(format!("no answer but {line:?}")))?;
        let mut headers = Vec::new();
        loop {
            line.clear();
            stream.read_line(&mut line)?;
            let Some((name, value)) = line.trim_end().split_once(": ") else { break };
            headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
        let header = |name: &str| headers.iter().find(|(n, _)| n == name).map(|(_, value)| value.as_str());
        let rest = match (header("content-length"), header("transfer-encoding")) {
            _ if no_body => Rest::Done,
            (Some(length), _) => Rest::Length(length.parse().map_err(io::Error::other)?),
            (None, Some(_)) => Rest::Chunk(0),
            (None, None) => Rest::Close,
        };
        Ok(Opened { status, headers, stream, rest })
    }

    fn next_chunk(&mut self) -> io::Result<u64> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let length = u64::from_str_radix(line.trim_end(), 16);
        length.map_err(|_| io::Error::new(io::ErrorKind::UnexpectedEof, format!("the body breaks off with {line:?}")))
    }

    fn line_end(&mut self) -> io::Result<()> {
        let mut end = [0; 2];
        self.stream.read_exact(&mut end)?;
        assert_eq!(&end, b"\r\n", "a chunk ends with something else");
        Ok(())
    }
}

impl Read for Opened {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if let Rest::Chunk(0) = self.rest {
            let length = self.next_chunk()?;
            self.rest = Rest::Chunk(length);
            if length == 0 {
                self.line_end()?;
                self.rest = Rest::Done;
            }
        }
        let most = match self.rest {
            Rest::Length(left) | Rest::Chunk(left) => left.min(buffer.len() as u64) as usize,
            Rest::Close => buffer.len(),
            Rest::Done => 0,
        };
        if most == 0 {
            return Ok(0);
        }
        let n = self.stream.read(&mut buffer[..most])?;
        match &mut self.rest {
            Rest::Length(left) => *left -= n as u64,
            Rest::Chunk(left) => {
                *left -= n as u64;
                if *left == 0 && n > 0 {
                    self.line_end()?;
                }
            }
            Rest::Close | Rest::Done => {}
        }
        Ok(n)
    }
}

impl Stream {
    pub fn socket(&self) -> &TcpStream {
        match self {
            Stream::Plain(socket) => socket,
            Stream::Tls(tls) => &tls.sock,
        }
    }
}

impl Read for Stream {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.read(buffer),
            Stream::Tls(tls) => tls.read(buffer),
        }
    }
}

impl Write for Stream {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        match self {
            Stream::Plain(socket) => socket.write(buffer),
            Stream::Tls(tls) => tls.write(buffer),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Stream::Plain(socket) => socket.flush(),
            Stream::Tls(tls) => tls.flush(),
        }
    }
}

/// A WebSocket of Kubernetes: each message begins with the number of its channel.
pub struct WebSocket(BufReader<Stream>);

impl WebSocket {
    #[track_caller]
    pub fn open(client: &Client, path: &str) -> WebSocket {
        let headers = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                       Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Protocol: v4.channel.k8s.io\r\n";
        let opened = client.open("GET", path, headers).unwrap_or_else(|e| panic!("{path}: {e}"));
        assert_eq!(opened.status, 101, "{path}");
        WebSocket(opened.stream)
    }

    /// Up to 124 bytes.
    pub fn send(&mut self, channel: u8, bytes: &[u8]) -> io::Result<()> {
        let length = u8::try_from(bytes.len() + 1).expect("fits");
        assert!(length < 126);
        // Masked with zeros, which change nothing.
        let mut frame = vec![0x82, 0x80 | length, 0, 0, 0, 0, channel];
        frame.extend_from_slice(bytes);
        self.0.get_mut().write_all(&frame)?;
        self.0.get_mut().flush()
    }

    /// The next message that is not empty; `None` at the end.
    pub fn receive(&mut self) -> io::Result<Option<(u8, Vec<u8>)>> {
        loop {
            let mut head = [0; 2];
            match self.0.read_exact(&mut head) {
                Err(e) if e.kind() == io::ErrorKind::UnexpectedEof => return Ok(None),
                result => result?,
            }
            let length = match head[1] & 127 {
                126 => {
                    let mut more = [0; 2];
                    self.0.read_exact(&mut more)?;
                    u64::from(u16::from_be_bytes(more))
                }
                127 => {
                    let mut more = [0; 8];
                    self.0.read_exact(&mut more)?;
                    u64::from_be_bytes(more)
                }
                length => u64::from(length),
            };
            let mut message = vec![0; usize::try_from(length).expect("fits")];
            self.0.read_exact(&mut message)?;
            match head[0] & 15 {
                8 => return Ok(None),
                1 | 2 if message.len() > 1 => return Ok(Some((message.remove(0), message))),
                _ => {}
            }
        }
    }

    /// All that comes on each channel, to the end.
    #[track_caller]
    pub fn receive_all(mut self) -> [String; 4] {
        let mut channels: [Vec<u8>; 4] = Default::default();
        while let Some((channel, bytes)) = self.receive().expect("receives") {
            channels[usize::from(channel)].extend_from_slice(&bytes);
        }
        channels.map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
    }
}

//! What probes ask: servers in the test's own process, in a cell's network or on loopback, that answer
//! as the test wants and tell what they were asked.

use std::collections::{BTreeMap, VecDeque};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use cleat::cri::proto::health::{HealthCheckRequest, HealthCheckResponse, health_check_response::ServingStatus};
use cleat::cri::proto::health_services::CHECK;
use futures_util::FutureExt;
use grpcio::{
    EnvBuilder, RpcContext, RpcStatus, RpcStatusCode, Server, ServerBuilder, ServerCredentials, ServiceBuilder,
    UnarySink,
};
use parking_lot::{Condvar, Mutex};
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use super::cell::{Cell, HOST_IP};

/// An HTTP server. It goes on for as long as the test's process does.
#[derive(Clone)]
pub struct Target {
    pub address: SocketAddr,
    shared: Arc<Shared>,
}

#[derive(Default)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    /// What is said of each path: the first once, and the last for ever.
    answers: BTreeMap<String, VecDeque<Answer>>,
    requests: Vec<Request>,
}

#[derive(Debug, Clone)]
pub enum Answer {
    Status(u16),
    Redirect(String),
    /// None, and the connection stays.
    Silence,
}

#[derive(Debug, Clone)]
pub struct Request {
    pub at: Instant,
    pub path: String,
    /// All of it up to the empty line.
    pub head: String,
    /// Which of the server's connections it came over.
    pub connection: usize,
}

impl Target {
    /// In a cell, on the node's address.
    pub fn in_cell(cell: &Cell) -> Target {
        Target::on(cell.in_network(|| listen(HOST_IP)), None)
    }

    /// As [`Target::in_cell`], over TLS, with a certificate that nobody should trust.
    pub fn tls_in_cell(cell: &Cell) -> Target {
        Target::on(cell.in_network(|| listen(HOST_IP)), Some(tls()))
    }

    fn on(listener: TcpListener, tls: Option<Arc<ServerConfig>>) -> Target {
        let address = listener.local_addr().expect("it has an address");
        let target = Target { address, shared: Arc::default() };
        let shared = target.shared.clone();
        thread::spawn(move || {
            for (connection, stream) in listener.incoming().enumerate() {
                let (stream, shared, tls) = (stream.expect("accepts"), shared.clone(), tls.clone());
                thread::spawn(move || match tls {
                    Some(config) => {
                        let tls = ServerConnection::new(config).expect("TLS begins");
                        serve(&shared, connection, &mut StreamOwned::new(tls, stream));
                    }
                    None => serve(&shared, connection, &mut { stream }),
                });
            }
        });
        target
    }

    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// From now on this is said of a path, which otherwise is 200: each once, and the last for ever.
    pub fn says(&self, path: &str, answers: impl IntoIterator<Item = Answer>) {
        let answers = answers.into_iter().collect();
        self.shared.state.lock().answers.insert(path.to_owned(), answers);
    }

    /// As [`Target::says`], with plain statuses.
    pub fn statuses(&self, path: &str, statuses: &[u16]) {
        self.says(path, statuses.iter().map(|status| Answer::Status(*status)));
    }

    /// The requests for a path, in order.
    pub fn requests(&self, path: &str) -> Vec<Request> {
        self.shared.state.lock().requests.iter().filter(|r| r.path == path).cloned().collect()
    }

    pub fn count(&self, path: &str) -> usize {
        self.shared.state.lock().requests.iter().filter(|r| r.path == path).count()
    }

    /// All requests up to now, which it forgets.
    pub fn take(&self) -> Vec<Request> {
        std::mem::take(&mut self.shared.state.lock().requests)
    }

    /// Waits until so many requests for the path have come, and returns them.
    #[track_caller]
    pub fn wait(&self, path: &str, count: usize, within: Duration) -> Vec<Request> {
        let deadline = Instant::now() + within;
        let mut state = self.shared.state.lock();
        loop {
            let found: Vec<_> = state.requests.iter().filter(|r| r.path == path).cloned().collect();
            if found.len() >= count {
                return found;
            }
            let late = self.shared.changed.wait_until(&mut state, deadline).timed_out();
            assert!(!late, "{} requests for {path} within {within:?}, not {count}", found.len());
        }
    }
}

fn listen(ip: &str) -> TcpListener {
    TcpListener::bind((ip, 0)).expect("listens")
}

/// A listener that accepts nothing: its queue is full, so that connections to it are not made.
pub struct Deaf {
    pub address: SocketAddr,
    _open: Vec<std::net::TcpStream>,
    _listener: TcpListener,
}

impl Deaf {
    pub fn in_cell(cell: &Cell) -> Deaf {
        cell.in_network(|| {
            let listener = listen(HOST_IP);
            let address = listener.local_addr().expect("it has an address");
            // The kernel takes no more than the shortest queue asks for, and drops what comes then.
            rustix::net::listen(&listener, 0).expect("shortens its queue");
            let connect = || std::net::TcpStream::connect_timeout(&address, Duration::from_millis(300));
            let open: Vec<_> = std::iter::from_fn(|| connect().ok()).take(64).collect();
            assert!(open.len() < 64, "the queue doesn't fill up");
            Deaf { address, _open: open, _listener: listener }
        })
    }
}

trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

fn serve(shared: &Shared, connection: usize, stream: &mut dyn Stream) {
    let Some(head) = read_head(stream) else { return };
    let path = head.split(' ').nth(1).unwrap_or_default().to_owned();
    let answer = {
        let mut state = shared.state.lock();
        state.requests.push(Request { at: Instant::now(), path: path.clone(), head, connection });
        let answers = state.answers.entry(path).or_default();
        match answers.len() {
            0 => Answer::Status(200),
            1 => answers[0].clone(),
            _ => answers.pop_front().expect("there are some"),
        }
    };
    shared.changed.notify_all();
    let text = match answer {
        Answer::Status(status) => format!("HTTP/1.1 {status} Said\r\nContent-Length: 0\r\n\r\n"),
        Answer::Redirect(to) => format!("HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n"),
        Answer::Silence => {
            // Until the other side has gone.
            let _ = stream.read(&mut [0]);
            return;
        }
    };
    // Who asked may have gone.
    let _ = stream.write_all(text.as_bytes()).and_then(|()| stream.flush());
}

/// `None` when the connection ends before; a TCP probe makes no request.
fn read_head(stream: &mut dyn Stream) -> Option<String> {
    let mut head = Vec::new();
    let mut piece = [0; 1024];
    while !head.ends_with(b"\r\n\r\n") {
        match stream.read(&mut piece) {
            Ok(n) if n > 0 => head.extend_from_slice(&piece[..n]),
            _ => return None,
        }
    }
    Some(String::from_utf8_lossy(&head).into_owned())
}

fn tls() -> Arc<ServerConfig> {
    let read = |file: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/probe/http/tests").join(file);
        std::fs::read(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
    };
    let (certificate, key) = (CertificateDer::from(read("cert.der")), PrivatePkcs8KeyDer::from(read("key.der")));
    let config = ServerConfig::builder_with_provider(Arc::new(rustls::crypto::ring::default_provider()))
        .with_safe_default_protocol_versions()
        .expect("there are versions")
        .with_no_client_auth()
        .with_single_cert(vec![certificate], key.into());
    Arc::new(config.expect("a certificate with its key"))
}

/// A gRPC server with the health service, in a cell on the node's address.
pub struct Health {
    pub port: u16,
    services: Arc<Mutex<BTreeMap<String, ServingStatus>>>,
    _server: Server,
}

impl Health {
    pub fn in_cell(cell: &Cell) -> Health {
        let services = Arc::<Mutex<BTreeMap<String, ServingStatus>>>::default();
        let known = services.clone();
        let check = move |context: RpcContext<'_>, request: HealthCheckRequest, sink: UnarySink<_>| {
            let status = known.lock().get(&request.service).copied();
            match status {
                Some(status) => {
                    let answer = HealthCheckResponse { status: status.into(), ..Default::default() };
                    context.spawn(sink.success(answer).map(drop));
                }
                None => {
                    let status = RpcStatus::with_message(RpcStatusCode::NOT_FOUND, "unknown service".to_owned());
                    context.spawn(sink.fail(status).map(drop));
                }
            }
        };
        let service = ServiceBuilder::new().add_unary_handler(&CHECK, check).build();
        let env = Arc::new(EnvBuilder::new().cq_count(1).name_prefix("health").build());
        let mut server = ServerBuilder::new(env).register_service(service).build().expect("build the server");
        let address = format!("{HOST_IP}:0");
        let port = cell.in_network(|| server.add_listening_port(&address, ServerCredentials::insecure()));
        server.start();
        Health { port: port.expect("listens"), services, _server: server }
    }

    /// What is said of a service; of those that it wasn't told of it says that it doesn't know them.
    pub fn set(&self, service: &str, status: ServingStatus) {
        self.services.lock().insert(service.to_owned(), status);
    }
}

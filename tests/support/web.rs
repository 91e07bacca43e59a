//! A web server in a cell that says what a test wants, and keeps what it was asked.

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use super::{Cell, eventually};

/// What the server does with a request.
#[derive(Debug, Clone)]
pub enum Says {
    /// A body with an `ETag`, or status 304 to who knows it.
    Body(String),
    /// Bytes as they are, and the end of the connection.
    Raw(Vec<u8>),
    /// Nothing, for as long as the client waits.
    Nothing,
}

#[derive(Default)]
struct State {
    says: Option<Says>,
    /// The heads of the requests, in lower case, with the status or what else was done.
    asked: Vec<(String, &'static str)>,
}

pub struct Web {
    port: u16,
    cell: Arc<Cell>,
    state: Arc<Mutex<State>>,
    serving: Option<(Arc<AtomicBool>, JoinHandle<()>)>,
}

impl Web {
    /// A server on the cell's loopback.
    pub fn start(cell: &Arc<Cell>, port: u16, says: Says) -> Web {
        let mut web = Web { port, cell: cell.clone(), state: Arc::default(), serving: None };
        web.says(says);
        web.open();
        web
    }

    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}/pods", self.port)
    }

    pub fn says(&self, says: Says) {
        lock(&self.state).says = Some(says);
    }

    /// Forgets what it was asked, and waits until it was asked so often again; what it did then.
    #[track_caller]
    pub fn asked(&self, times: usize) -> Vec<(String, &'static str)> {
        lock(&self.state).asked.clear();
        eventually("requests", Duration::from_secs(90), || match &lock(&self.state).asked {
            asked if asked.len() >= times => Ok(asked.clone()),
            asked => Err(format!("{} of {times}", asked.len())),
        })
    }

    /// Listens again after [`Web::close`].
    pub fn open(&mut self) {
        let listener = self.cell.in_network(|| TcpListener::bind(("127.0.0.1", self.port)).expect("listens"));
        let (end, state) = (Arc::new(AtomicBool::new(false)), self.state.clone());
        let ends = end.clone();
        let thread = thread::spawn(move || {
            for stream in listener.incoming() {
                if ends.load(Ordering::Relaxed) {
                    return;
                }
                let (stream, state) = (stream.expect("accepts"), state.clone());
                thread::spawn(move || serve(stream, &state));
            }
        });
        self.serving = Some((end, thread));
    }

    /// Nobody listens any more.
    pub fn close(&mut self) {
        if let Some((end, thread)) = self.serving.take() {
            end.store(true, Ordering::Relaxed);
            let _ = self.cell.connect(self.port);
            thread.join().expect("the server ends");
        }
    }
}

impl Drop for Web {
    fn drop(&mut self) {
        self.close();
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}

fn serve(mut stream: TcpStream, state: &Mutex<State>) {
    let mut reader = BufReader::new(stream.try_clone().expect("a second handle"));
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        match reader.read_line(&mut head) {
            Ok(n) if n > 0 => {}
            _ => return,
        }
    }
    let head = head.to_ascii_lowercase();
    let says = lock(state).says.clone().expect("it has something to say");
    let (did, answer) = match says {
        Says::Body(body) => {
            let tag = format!("\"{:x}\"", body.bytes().fold(5381u64, |h, b| h.wrapping_mul(33) ^ u64::from(b)));
            match head.contains(&format!("if-none-match: {tag}\r\n")) {
                true => (
                    "304",
                    format!("HTTP/1.1 304 Not Modified\r\nETag: {tag}\r\nConnection: close\r\n\r\n").into_bytes(),
                ),
                false => {
                    let length = body.len();
                    let head = format!(
                        "HTTP/1.1 200 OK\r\nETag: {tag}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
                    );
                    ("200", (head + &body).into_bytes())
                }
            }
        }
        Says::Raw(bytes) => ("raw", bytes),
        Says::Nothing => ("nothing", Vec::new()),
    };
    lock(state).asked.push((head, did));
    if did == "nothing" {
        // Until the client has enough of it.
        let _ = reader.read_line(&mut String::new());
    }
    // It may have had enough.
    let _ = stream.write_all(&answer);
}

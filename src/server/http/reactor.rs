//! The one thread that all connections share while they wait: it accepts, does the handshakes of TLS,
//! reads heads, and sends what of an answer its client didn't take at once. A request whose head is
//! whole leaves with its connection for a thread of its class, and the connection comes back.
//!
//! Connections that wait are bounded in number and in memory. When there are too many, the one that
//! has waited longest makes room: a client that means it sends its request at once.

use std::collections::HashMap;
use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, Sender, unbounded};
use rustix::buffer::spare_capacity;
use rustix::event::epoll::{self, EventData, EventFlags};
use rustix::event::{EventfdFlags, Timespec, eventfd};

use super::classes::Classes;
use super::connection::{self, Connection};
use super::exchange::{self, Answered};
use super::head::{self, Head, Progress, Refusal};
use super::request::{Class, Service};
use super::response::{self, Response};
use super::stream::STALLED;

/// Connections that wait at the same time.
const MAX_WAITING: usize = 512;
/// Bytes that they hold together: answers that their clients are slow to take, nearly all of it.
const MAX_HELD: usize = 8 << 20;
/// What each may hold even when that is reached.
const SHARE: usize = MAX_HELD / MAX_WAITING;
/// For the handshake and the head of a request.
const HEAD_TIME: Duration = Duration::from_secs(10);
/// Between requests, as the kubelet's.
const IDLE_TIME: Duration = Duration::from_secs(90);
/// For a client to read its last answer, before an unread rest of its request makes that vanish.
const LINGER_TIME: Duration = Duration::from_secs(2);
/// What is thrown away of it.
const LINGER_BYTES: usize = 256 << 10;
/// Connections accepted before others are looked at again.
const ACCEPTED: usize = 64;
/// Without a descriptor for another connection, and none to close: how long to wait.
const EXHAUSTED: Duration = Duration::from_millis(100);

/// Where connections of one kind come from.
pub trait Listen: Send {
    fn fd(&self) -> BorrowedFd<'_>;
    /// The next connection.
    ///
    /// # Errors
    /// `WouldBlock` when there is none.
    fn accept(&self) -> io::Result<Connection>;
}

/// A listener, and what answers there.
pub struct Endpoint {
    pub listener: Box<dyn Listen>,
    pub service: Arc<dyn Service>,
}

/// Serves these from now on, on a thread of its own.
///
/// # Errors
/// Of the system, or when there can't be a thread.
pub fn start(endpoints: Vec<Endpoint>) -> io::Result<()> {
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let wake = Arc::new(eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?);
    epoll::add(&epoll, &wake, EventData::new_u64(WAKE), EventFlags::IN)?;
    for (token, endpoint) in (0..).zip(&endpoints) {
        epoll::add(&epoll, endpoint.listener.fd(), EventData::new_u64(token), EventFlags::IN)?;
    }
    let (back, returned) = unbounded();
    let next = endpoints.len() as u64;
    let (waiting, classes) = (HashMap::new(), Classes::default());
    let mut reactor = Reactor { epoll, endpoints, waiting, next, held: 0, classes, wake, back, returned };
    let thread = std::thread::Builder::new().name("http".to_owned());
    thread.spawn(move || {
        if let Err(e) = reactor.run() {
            log::error!("the HTTP server has ended: {e}");
        }
    })?;
    Ok(())
}

const WAKE: u64 = u64::MAX;

struct Reactor {
    epoll: OwnedFd,
    endpoints: Vec<Endpoint>,
    waiting: HashMap<u64, Waiting>,
    next: u64,
    /// Bytes that those who wait hold.
    held: usize,
    classes: Classes,
    wake: Arc<OwnedFd>,
    /// Connections come back over this. They are bounded by the classes, so it needs no bound.
    back: Sender<(Answered, Arc<dyn Service>)>,
    returned: Receiver<(Answered, Arc<dyn Service>)>,
}

/// A connection that waits for its client.
struct Waiting {
    connection: Connection,
    service: Arc<dyn Service>,
    received: Vec<u8>,
    phase: Phase,
    /// When this wait began.
    since: Instant,
    deadline: Instant,
    /// What it was counted with.
    held: usize,
}

enum Phase {
    /// Of so many bytes it is known that the head doesn't end in them.
    Reading {
        looked: usize,
    },
    Writing {
        rest: Vec<u8>,
        sent: usize,
        keep_alive: bool,
    },
    /// All is said; what still comes is thrown away, up to so many bytes.
    Lingering {
        left: usize,
    },
}

enum Step {
    Wait,
    Request(Box<Head>),
    Close,
}

impl Reactor {
    fn run(&mut self) -> io::Result<()> {
        let mut events = Vec::with_capacity(64);
        loop {
            let timeout = self.next_deadline();
            events.clear();
            match epoll::wait(&self.epoll, spare_capacity(&mut events), timeout.as_ref()) {
                Ok(_) | Err(rustix::io::Errno::INTR) => {}
                Err(e) => return Err(e.into()),
            }
            let now = Instant::now();
            for event in &events {
                match event.data.u64() {
                    WAKE => self.take_back(now),
                    token if token < self.endpoints.len() as u64 => self.accept(token, now),
                    token => self.advance(token, now),
                }
            }
            self.expire(now);
        }
    }

    /// Looked at once a second at most: a deadline may be late, but not early.
    fn next_deadline(&self) -> Option<Timespec> {
        let next = self.waiting.values().map(|w| w.deadline).min()?;
        let left = next.saturating_duration_since(Instant::now());
        Timespec::try_from(left.max(Duration::from_millis(250))).ok()
    }

    fn expire(&mut self, now: Instant) {
        let late = |(token, w): (&u64, &Waiting)| (w.deadline <= now).then_some(*token);
        let late: Vec<u64> = self.waiting.iter().filter_map(late).collect();
        for token in late {
            self.close(token, "its time is over");
        }
    }

    fn accept(&mut self, token: u64, now: Instant) {
        for _ in 0..ACCEPTED {
            let Some(endpoint) = usize::try_from(token).ok().and_then(|i| self.endpoints.get(i)) else { return };
            match endpoint.listener.accept() {
                Ok(connection) => {
                    let service = endpoint.service.clone();
                    self.wait(Waiting::new(connection, service, now), now);
                }
                Err(e) if connection::is_pending(&e) => return,
                Err(e) if is_exhausted(&e) => {
                    if !self.evict_oldest("there are too many open files") {
                        log::warn!("accepting a connection: {e}");
                        std::thread::sleep(EXHAUSTED);
                        return;
                    }
                }
                // That one has gone again.
                Err(e) => log::debug!("accepting a connection: {e}"),
            }
        }
    }

    fn take_back(&mut self, now: Instant) {
        // To be woken again; it says nothing else.
        let _ = rustix::io::read(&self.wake, &mut [0; 8]);
        while let Ok((answered, service)) = self.returned.try_recv() {
            self.wait(Waiting::answered(answered, service, now), now);
        }
    }

    /// Takes a connection in, making room for it.
    fn wait(&mut self, waiting: Waiting, now: Instant) {
        while self.waiting.len() >= MAX_WAITING {
            self.evict_oldest("there are too many");
        }
        let token = self.next;
        self.next += 1;
        let added =
            epoll::add(&self.epoll, &waiting.connection, EventData::new_u64(token), EventFlags::IN | EventFlags::RDHUP);
        if let Err(e) = added {
            return log::warn!("watching a connection: {e}");
        }
        self.waiting.insert(token, waiting);
        self.advance(token, now);
    }

    fn advance(&mut self, token: u64, now: Instant) {
        let Some(waiting) = self.waiting.get_mut(&token) else { return };
        let step = waiting.step(now);
        let held = waiting.holds();
        self.held = self.held + held - std::mem::replace(&mut waiting.held, held);
        match step {
            Step::Wait => {
                let flags = waiting.interest();
                if let Err(e) = epoll::modify(&self.epoll, &waiting.connection, EventData::new_u64(token), flags) {
                    log::warn!("watching a connection: {e}");
                    self.close(token, "it can't be watched");
                }
            }
            Step::Close => self.close(token, "it has ended"),
            Step::Request(head) => {
                if let Some(waiting) = self.take_out(token) {
                    self.dispatch(waiting, *head, now);
                }
            }
        }
        while self.held > MAX_HELD {
            let large = self.waiting.iter().filter(|(_, w)| w.held > SHARE);
            let oldest = large.min_by_key(|(_, w)| w.since).map(|(token, _)| *token);
            let Some(oldest) = oldest else { break };
            self.close(oldest, "it holds too much");
        }
    }

    fn take_out(&mut self, token: u64) -> Option<Waiting> {
        let waiting = self.waiting.remove(&token)?;
        self.held -= waiting.held;
        if let Err(e) = epoll::delete(&self.epoll, &waiting.connection) {
            log::warn!("watching a connection no more: {e}");
        }
        Some(waiting)
    }

    fn close(&mut self, token: u64, why: &str) {
        if let Some(waiting) = self.take_out(token) {
            log::debug!("closing the connection of {:?}: {why}", waiting.connection.address());
        }
    }

    fn evict_oldest(&mut self, why: &str) -> bool {
        let last_words = |w: &Waiting| !matches!(w.phase, Phase::Lingering { .. });
        let oldest = self.waiting.iter().min_by_key(|(_, w)| (last_words(w), w.since)).map(|(token, _)| *token);
        oldest.inspect(|token| self.close(*token, why)).is_some()
    }

    fn dispatch(&mut self, waiting: Waiting, head: Head, now: Instant) {
        let Waiting { connection, service, received, .. } = waiting;
        let class = service.class(&head, &connection.peer());
        let Some(place) = self.classes.enter(class) else {
            let status = if class == Class::Stream { 429 } else { 503 };
            let busy = Response::text(status, "too many requests are being served; try again\n");
            let rest = response::encode(&busy.with_header("Retry-After", "1"), !response::has_body(&head), false);
            let answered = Answered { connection, received, rest, keep_alive: false };
            return self.wait(Waiting::answered(answered, service, now), now);
        };
        let (back, wake) = (self.back.clone(), self.wake.clone());
        place.work(move || {
            if let Some(answered) = exchange::run(connection, head, received, &*service) {
                // Without the thread there is no server any more.
                let _ = back.send((answered, service));
                let _ = rustix::io::write(&*wake, &1u64.to_ne_bytes());
            }
        });
    }
}

fn is_exhausted(error: &io::Error) -> bool {
    let errno = rustix::io::Errno::from_io_error(error);
    use rustix::io::Errno;
    matches!(errno, Some(Errno::MFILE | Errno::NFILE | Errno::NOMEM | Errno::NOBUFS))
}

impl Waiting {
    fn new(connection: Connection, service: Arc<dyn Service>, now: Instant) -> Waiting {
        let phase = Phase::Reading { looked: 0 };
        Waiting { connection, service, received: Vec::new(), phase, since: now, deadline: now + HEAD_TIME, held: 0 }
    }

    fn answered(answered: Answered, service: Arc<dyn Service>, now: Instant) -> Waiting {
        let Answered { connection, received, rest, keep_alive } = answered;
        let phase = Phase::Writing { rest, sent: 0, keep_alive };
        Waiting { connection, service, received, phase, since: now, deadline: now + STALLED, held: 0 }
    }

    /// Bytes.
    fn holds(&self) -> usize {
        let rest = if let Phase::Writing { rest, .. } = &self.phase { rest.capacity() } else { 0 };
        self.received.capacity() + rest + self.connection.held()
    }

    fn interest(&self) -> EventFlags {
        match self.phase {
            Phase::Writing { .. } => EventFlags::OUT,
            _ if self.connection.is_pending() => EventFlags::IN | EventFlags::OUT,
            _ => EventFlags::IN,
        }
    }

    /// Goes on as far as can be done without waiting.
    fn step(&mut self, now: Instant) -> Step {
        loop {
            let result = match self.phase {
                Phase::Reading { looked } => self.read(looked, now),
                Phase::Writing { .. } => self.write(now),
                Phase::Lingering { left } => self.linger(left),
            };
            match result {
                Ok(None) => {}
                Ok(Some(step)) => return step,
                Err(e) if connection::is_pending(&e) => return Step::Wait,
                Err(e) => {
                    log::debug!("the connection of {:?}: {e}", self.connection.address());
                    return Step::Close;
                }
            }
        }
    }

    fn read(&mut self, looked: usize, now: Instant) -> io::Result<Option<Step>> {
        match head::find_end(&self.received, looked) {
            Ok(Progress::Whole(end)) => {
                let bytes: Vec<u8> = self.received.drain(..end).collect();
                match head::parse(&bytes) {
                    Ok(head) => return Ok(Some(Step::Request(Box::new(head)))),
                    Err(refusal) => self.refuse(refusal, now),
                }
                return Ok(None);
            }
            Err(refusal) => {
                self.refuse(refusal, now);
                return Ok(None);
            }
            Ok(Progress::Partial) => self.phase = Phase::Reading { looked: self.received.len() },
        }
        let mut piece = [0; 4 << 10];
        match self.connection.read(&mut piece)? {
            0 => Ok(Some(Step::Close)),
            n => {
                if self.received.is_empty() {
                    self.deadline = self.deadline.min(now + HEAD_TIME);
                }
                self.received.extend_from_slice(piece.get(..n).unwrap_or_default());
                Ok(None)
            }
        }
    }

    fn refuse(&mut self, refusal: Refusal, now: Instant) {
        log::debug!("a request of {:?} is refused: {}", self.connection.address(), refusal.why);
        let rest = response::encode(&refusal.into(), false, false);
        self.received = Vec::new();
        self.phase = Phase::Writing { rest, sent: 0, keep_alive: false };
        self.deadline = now + STALLED;
    }

    fn write(&mut self, now: Instant) -> io::Result<Option<Step>> {
        let Phase::Writing { rest, sent, keep_alive } = &mut self.phase else { return Ok(None) };
        if let Some(bytes) = rest.get(*sent..).filter(|bytes| !bytes.is_empty()) {
            *sent += self.connection.write(bytes)?;
            self.deadline = now + STALLED;
            return Ok(None);
        }
        self.connection.flush()?;
        self.since = now;
        // Bytes of the next request may be here already; an empty buffer is given back.
        self.received.shrink_to_fit();
        if *keep_alive {
            (self.phase, self.deadline) = (Phase::Reading { looked: 0 }, now + IDLE_TIME);
        } else {
            self.received = Vec::new();
            self.connection.finish();
            (self.phase, self.deadline) = (Phase::Lingering { left: LINGER_BYTES }, now + LINGER_TIME);
        }
        Ok(None)
    }

    fn linger(&mut self, left: usize) -> io::Result<Option<Step>> {
        let n = self.connection.read(&mut [0; 4 << 10])?;
        let left = left.saturating_sub(n);
        self.phase = Phase::Lingering { left };
        Ok((n == 0 || left == 0).then_some(Step::Close))
    }
}

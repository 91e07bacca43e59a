//! A private bus of D-Bus, and a logind on it as far as the agent has to do with it. The machine shuts
//! down when the test says so, and nothing comes of it.

use std::fs;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use cleat::dbus::{Address, Connection, Kind, Message, Value};
use parking_lot::Mutex;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pipe::{PipeFlags, pipe_with};

use super::cell::require;
use super::node::SOON;
use super::{Process, eventually};

const LOGIND: &str = "org.freedesktop.login1";
const PATH: &str = "/org/freedesktop/login1";
const MANAGER: &str = "org.freedesktop.login1.Manager";

const CONFIG: &str = r#"<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <listen>unix:path={socket}</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow send_destination="*"/>
    <allow receive_sender="*"/>
    <allow own="*"/>
  </policy>
</busconfig>
"#;

/// A bus on a socket of its own. It ends with the test.
pub struct Bus {
    process: Process,
    socket: PathBuf,
}

impl Bus {
    pub fn start(dir: &Path) -> Bus {
        require(&["dbus-daemon", "setpriv"]);
        let (config, socket) = (dir.join("bus.conf"), dir.join("bus"));
        fs::write(&config, CONFIG.replace("{socket}", &socket.display().to_string())).expect("writes");
        let log = fs::File::create(dir.join("bus.log")).expect("make its log");
        let mut command = Process::host_command("dbus-daemon");
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("share its log")).stderr(log);
        command.args(["--nofork", "--nopidfile"]).arg(format!("--config-file={}", config.display()));
        let bus = Bus { process: Process::on_host("dbus-daemon", command), socket };
        eventually("the bus", SOON, || bus.try_connect().map(drop));
        bus
    }

    /// As `DBUS_SYSTEM_BUS_ADDRESS` has it.
    pub fn address(&self) -> String {
        format!("unix:path={}", self.socket.display())
    }

    fn try_connect(&self) -> Result<Connection, String> {
        Connection::open(&Address::Path(self.socket.clone())).map_err(|e| e.to_string())
    }

    #[track_caller]
    pub fn connect(&self) -> Connection {
        self.try_connect().unwrap_or_else(|e| panic!("{e}"))
    }
}

#[derive(Default)]
struct State {
    delay: Duration,
    preparing: bool,
    /// Its ends of the locks, in the order in which they were taken.
    locks: Vec<OwnedFd>,
    /// By whom the last one was taken.
    holder: Option<String>,
}

impl State {
    fn held(&self) -> usize {
        self.locks.iter().filter(|lock| is_held(lock)).count()
    }
}

/// Dropping it takes it off the bus.
pub struct Logind {
    state: Arc<Mutex<State>>,
    say: Option<Sender<Message>>,
    thread: Option<JoinHandle<()>>,
}

impl Logind {
    /// One that waits so long at most, until it is told to read `drop_in`.
    pub fn start(bus: &Bus, delay: Duration, drop_in: PathBuf) -> Logind {
        let state = Arc::new(Mutex::new(State { delay, ..State::default() }));
        let mut connection = bus.connect();
        connection.own(LOGIND).expect("is its name");
        connection.own("org.freedesktop.systemd1").expect("is its name");
        let (say, said) = channel();
        let shared = state.clone();
        let thread = thread::spawn(move || serve(connection, &said, &shared, &drop_in));
        Logind { state, say: Some(say), thread: Some(thread) }
    }

    /// The machine begins to shut down, or is not to do so any more.
    pub fn prepare(&self, shut_down: bool) {
        self.state.lock().preparing = shut_down;
        self.say(prepare_for_shutdown(shut_down));
    }

    fn say(&self, message: Message) {
        self.say.as_ref().expect("it serves").send(message).expect("it serves");
    }

    /// How long it waits at most.
    pub fn delay(&self) -> Duration {
        self.state.lock().delay
    }

    /// Who took a lock last, by its name on the bus.
    pub fn holder(&self) -> String {
        self.state.lock().holder.clone().expect("there was one")
    }

    /// How many locks have been taken, whether they are held or not.
    pub fn taken(&self) -> usize {
        self.state.lock().locks.len()
    }

    /// Whether the machine has to wait.
    pub fn is_held(&self) -> bool {
        self.state.lock().held() > 0
    }

    /// Waits until so many locks have been taken, of which the last one is held.
    #[track_caller]
    pub fn waits_for(&self, taken: usize) {
        eventually("a lock", SOON, || {
            let state = self.state.lock();
            let is = (state.locks.len(), state.held());
            if is == (taken, 1) { Ok(()) } else { Err(format!("of {} locks, {} are held", is.0, is.1)) }
        });
    }

    #[track_caller]
    pub fn waits_no_more(&self) {
        eventually("the end of the lock", SOON, || if self.is_held() { Err("it is held".to_owned()) } else { Ok(()) });
    }
}

impl Drop for Logind {
    fn drop(&mut self) {
        drop(self.say.take());
        let ended = self.thread.take().is_some_and(|thread| thread.join().is_ok());
        assert!(ended || thread::panicking(), "it failed");
    }
}

pub fn prepare_for_shutdown(shut_down: bool) -> Message {
    Message::signal(PATH, MANAGER, "PrepareForShutdown", vec![Value::Bool(shut_down)])
}

fn serve(mut bus: Connection, say: &Receiver<Message>, state: &Mutex<State>, drop_in: &Path) {
    loop {
        match say.try_recv() {
            Ok(message) => _ = bus.send(message).expect("is sent"),
            Err(std::sync::mpsc::TryRecvError::Empty) => {}
            Err(std::sync::mpsc::TryRecvError::Disconnected) => return,
        }
        let soon = Instant::now() + Duration::from_millis(20);
        let Some(call) = bus.receive(Some(soon)).expect("the bus is there") else { continue };
        if call.kind == Kind::Call {
            bus.send(answer(&call, &mut state.lock(), drop_in)).expect("is sent");
        }
    }
}

fn answer(call: &Message, state: &mut State, drop_in: &Path) -> Message {
    let args: Vec<_> = call.args().iter().map(text).collect();
    let args: Vec<_> = args.iter().map(String::as_str).collect();
    match (call.member.as_deref().unwrap_or_default(), &args[..]) {
        ("Get", [MANAGER, "InhibitDelayMaxUSec"]) => {
            let micros = u64::try_from(state.delay.as_micros()).expect("is short");
            call.answer(vec![Value::Variant(Box::new(Value::U64(micros)))])
        }
        ("Get", [MANAGER, "PreparingForShutdown"]) => {
            call.answer(vec![Value::Variant(Box::new(Value::Bool(state.preparing)))])
        }
        ("Inhibit", ["shutdown", "cleat", _, "delay"]) if !state.preparing => {
            let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
            state.locks.push(ours);
            state.holder = call.sender.clone();
            let mut answer = call.answer(vec![Value::Fd(0)]);
            answer.fds.push(theirs);
            answer
        }
        ("Inhibit", _) => call.refusal("org.freedesktop.login1.OperationInProgress", "a shutdown is under way"),
        ("KillUnit", ["systemd-logind.service", "all", "1"]) => {
            let text = fs::read_to_string(drop_in).unwrap_or_default();
            let seconds = text.lines().find_map(|line| line.strip_prefix("InhibitDelayMaxSec=")?.parse().ok());
            state.delay = seconds.map_or(state.delay, Duration::from_secs);
            call.answer(vec![])
        }
        other => call.refusal("org.freedesktop.DBus.Error.UnknownMethod", &format!("{other:?}")),
    }
}

fn text(value: &Value) -> String {
    match value {
        Value::Text(text) => text.clone(),
        Value::I32(number) => number.to_string(),
        other => format!("{other:?}"),
    }
}

/// Whether somebody has the other end.
fn is_held(lock: &OwnedFd) -> bool {
    let mut fds = [PollFd::new(lock, PollFlags::empty())];
    poll(&mut fds, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).expect("polls");
    !fds[0].revents().contains(PollFlags::HUP)
}

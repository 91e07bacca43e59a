//! A CRI v1 server with an in-memory runtime behind it, which can be told to misbehave.
//!
//! ```ignore
//! let cri = FakeCri::start();
//! cri.on("RunPodSandbox").of("web").delay(Duration::from_secs(3));
//! cri.on("StartContainer").times(2).fail(RpcStatusCode::UNAVAILABLE, "not now");
//! let hang = cri.on("ListContainers").hang();
//! // … start the agent on cri.socket(), give it a pod …
//! hang.remove();
//! cri.wait(Duration::from_secs(10), |m| m.running("web") == 1);
//! cri.exit_container("web/main", 1);
//! cri.wait(Duration::from_secs(10), |m| m.count_of("CreateContainer", "web/main") == 2);
//! ```
//!
//! Its rules are those of containerd 1.6: names stay taken until their sandbox or container is removed,
//! the same errors for what isn't there, no container events unless switched on. It doesn't know the
//! agent.

mod containers;
mod faults;
mod model;
mod operations;
mod sandboxes;
mod serve;

use std::fs::OpenOptions;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use grpcio::{EnvBuilder, Environment, RpcStatusCode, Server, ServerBuilder, ServerCredentials};
use parking_lot::Mutex;
use tempfile::TempDir;

use self::faults::{Kind, status};
pub use self::model::{Call, Container, Model, Sandbox, State, Subject};
use self::model::{OnExec, OnTerm};
use self::serve::{METHODS, Shared, services};
use super::{BUSYBOX, PAUSE};

/// The server. Dropping it ends it and removes its socket.
pub struct FakeCri {
    shared: Arc<Shared>,
    server: Mutex<Option<Server>>,
    env: Arc<Environment>,
    socket: PathBuf,
    _dir: TempDir,
}

/// What remains of the runtime's state over a restart.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Memory {
    Kept,
    /// Sandboxes and containers are gone, as after a reboot; images stay.
    Lost,
}

impl FakeCri {
    /// Starts it with no pods and the test images present.
    pub fn start() -> FakeCri {
        let dir = tempfile::Builder::new().prefix("cleat-cri-").tempdir().expect("make the socket's directory");
        let cri = FakeCri {
            shared: Arc::new(Shared::default()),
            server: Mutex::new(None),
            env: Arc::new(EnvBuilder::new().cq_count(1).name_prefix("fake-cri").build()),
            socket: dir.path().join("cri.sock"),
            _dir: dir,
        };
        cri.edit(|model| [PAUSE, BUSYBOX].map(|image| model.add_image(image)));
        cri.listen();
        cri
    }

    pub fn socket(&self) -> &Path {
        &self.socket
    }

    fn listen(&self) {
        let mut builder = ServerBuilder::new(self.env.clone()).requests_slot_per_cq(128);
        for service in services(&self.shared) {
            builder = builder.register_service(service);
        }
        let mut server = builder.build().expect("build the CRI server");
        let address = format!("unix:{}", self.socket.display());
        server.add_listening_port(&address, ServerCredentials::insecure()).expect("bind the CRI socket");
        server.start();
        *self.server.lock() = Some(server);
    }

    /// Ends the server: the socket is gone, calls under way break and have no effect, containers run on.
    #[track_caller]
    pub fn stop(&self) {
        let server = self.server.lock().take().expect("the server runs");
        self.shared.break_calls();
        drop(server);
        assert!(self.shared.wait_idle(Duration::from_secs(10)), "calls did not end with the server");
        if self.socket.exists() {
            std::fs::remove_file(&self.socket).expect("remove the socket");
        }
    }

    /// Starts the stopped server again, on the same socket. Faults stay.
    #[track_caller]
    pub fn restart(&self, memory: Memory) {
        assert!(self.server.lock().is_none(), "stop the server first");
        if memory == Memory::Lost {
            self.edit(Model::forget_pods);
        }
        self.listen();
    }

    /// Begins a fault for a method of the CRI, as `RunPodSandbox`.
    #[track_caller]
    pub fn on(&self, method: &str) -> FaultBuilder<'_> {
        let known = METHODS.iter().find(|known| **known == method);
        let method = known.unwrap_or_else(|| panic!("{method} is not one of {METHODS:?}"));
        FaultBuilder { cri: self, method, of: None, times: None }
    }

    /// Removes all faults; what hangs goes on.
    pub fn clear_faults(&self) {
        self.shared.change(|state| state.faults.clear());
    }

    /// Switches container events on or off. While they are off, as at first, the call for them is
    /// UNIMPLEMENTED; switching them off ends the streams there are.
    pub fn set_events(&self, on: bool) {
        self.shared.change(|state| state.events_on = on);
    }

    /// Looks at the model. Don't call the server in there.
    pub fn look<T>(&self, look: impl FnOnce(&Model) -> T) -> T {
        look(&self.shared.lock().model)
    }

    /// Changes the model as the test likes.
    pub fn edit<T>(&self, edit: impl FnOnce(&mut Model) -> T) -> T {
        self.shared.change(|state| edit(&mut state.model))
    }

    /// Waits until `holds`; panics after `within` with the state and the last calls.
    #[track_caller]
    pub fn wait(&self, within: Duration, mut holds: impl FnMut(&Model) -> bool) {
        if let Err(model) = self.shared.wait(Instant::now() + within, |state| holds(&state.model)) {
            panic!("not within {within:?}:\n{model}");
        }
    }

    /// Watches that `holds` does so for all of this time; panics otherwise.
    #[track_caller]
    pub fn holds(&self, time: Duration, mut holds: impl FnMut(&Model) -> bool) {
        let broken = self.shared.wait(Instant::now() + time, |state| !holds(&state.model));
        assert!(broken.is_err(), "did not hold for {time:?}:\n{}", self.look(Model::to_string));
    }

    /// Ends the running container by itself, with an exit code.
    #[track_caller]
    pub fn exit_container(&self, who: &str, code: i32) {
        let reason = if code == 0 { "Completed" } else { "Error" };
        self.edit(|model| {
            let id = running(model, who);
            model.exit(&id, code, reason);
        });
    }

    /// Ends the process of the newest sandbox: it isn't ready any more, its containers run on.
    #[track_caller]
    pub fn kill_sandbox(&self, who: &str) {
        self.edit(|model| {
            let found = model.sandbox(who).map(|s| s.id.clone());
            let id = found.unwrap_or_else(|| panic!("no sandbox {who}:\n{model}"));
            model.kill_sandbox(&id);
        });
    }

    /// From now on these containers take so long to end when they are asked to, and end with 0. When the
    /// timeout of the call is shorter they are killed, with 137.
    pub fn set_stop_duration(&self, who: &str, takes: Duration) {
        self.edit(|model| model.on_term.push(OnTerm { who: who.to_owned(), takes, code: 0 }));
    }

    /// As [`FakeCri::set_stop_duration`], with an exit code.
    pub fn set_stop(&self, who: &str, takes: Duration, code: i32) {
        self.edit(|model| model.on_term.push(OnTerm { who: who.to_owned(), takes, code }));
    }

    /// From now on commands in these containers take so long, and end with this code, having said `output`.
    /// One that takes longer than the timeout of its call is ended, and the call fails.
    pub fn set_exec(&self, who: &str, takes: Duration, code: i32, output: &str) {
        let (who, output) = (who.to_owned(), output.to_owned());
        self.edit(|model| {
            model.on_exec.retain(|rule| rule.who != who);
            model.on_exec.push(OnExec { who, takes, code, output });
        });
    }

    /// Writes a line to the log of the running container, as from its standard output.
    #[track_caller]
    pub fn write_log(&self, who: &str, line: &str) {
        let path = self.look(|model| model.containers[&running(model, who)].log_path.clone());
        let path = path.unwrap_or_else(|| panic!("{who} has no log"));
        let mut file =
            OpenOptions::new().append(true).open(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
        writeln!(file, "{} stdout F {line}", jiff::Timestamp::now()).expect("write the log");
    }
}

impl Drop for FakeCri {
    fn drop(&mut self) {
        self.shared.break_calls();
        drop(self.server.lock().take());
        self.shared.wait_idle(Duration::from_secs(10));
    }
}

#[track_caller]
fn running(model: &Model, who: &str) -> String {
    let running: Vec<_> = model.containers_of(who).filter(|c| c.is_running()).collect();
    match running[..] {
        [one] => one.id.clone(),
        _ => panic!("{} running containers are {who}, not one:\n{model}", running.len()),
    }
}

/// A fault that is being told. It is there once it has got its kind.
#[must_use]
pub struct FaultBuilder<'a> {
    cri: &'a FakeCri,
    method: &'static str,
    of: Option<String>,
    times: Option<u32>,
}

impl FaultBuilder<'_> {
    /// Only for calls about this; see [`Subject::is`].
    pub fn of(mut self, who: &str) -> Self {
        self.of = Some(who.to_owned());
        self
    }

    /// Only for so many calls.
    pub fn times(mut self, times: u32) -> Self {
        self.times = Some(times);
        self
    }

    /// Calls take so much longer. What they take by arriving, as a name, is taken meanwhile.
    pub fn delay(self, time: Duration) -> Fault {
        self.add(Kind::Delay(time))
    }

    /// Calls are answered when the fault is removed.
    pub fn hang(self) -> Fault {
        self.add(Kind::Hang)
    }

    /// Calls fail and do nothing.
    pub fn fail(self, code: RpcStatusCode, message: &str) -> Fault {
        self.add(Kind::Fail(status(code, message)))
    }

    /// Calls do what they should, and then fail: the answer is lost.
    pub fn fail_after(self, code: RpcStatusCode, message: &str) -> Fault {
        self.add(Kind::FailAfter(status(code, message)))
    }

    /// Calls do nothing and are answered with bytes that aren't a message.
    pub fn garbage(self) -> Fault {
        self.add(Kind::Garbage)
    }

    /// Calls do nothing and are answered with a message that has no field set.
    pub fn empty(self) -> Fault {
        self.add(Kind::Empty)
    }

    fn add(self, kind: Kind) -> Fault {
        let FaultBuilder { cri, method, of, times } = self;
        let id = cri.shared.change(|state| state.faults.add(method, of, kind, times));
        Fault { shared: cri.shared.clone(), id }
    }
}

/// A fault that is there until it is removed. Dropping this leaves it there.
pub struct Fault {
    shared: Arc<Shared>,
    id: u64,
}

impl Fault {
    /// Removes it. Calls that hang or are delayed by it go on.
    pub fn remove(self) {
        self.shared.change(|state| state.faults.remove(self.id));
    }

    /// How many calls it has met.
    pub fn hits(&self) -> u32 {
        self.shared.lock().faults.hits(self.id)
    }

    /// Waits until it has met so many calls; panics after `within`.
    #[track_caller]
    pub fn wait_hits(&self, hits: u32, within: Duration) {
        if let Err(model) = self.shared.wait(Instant::now() + within, |state| state.faults.hits(self.id) >= hits) {
            panic!("the fault met {} calls, not {hits}, within {within:?}:\n{model}", self.hits());
        }
    }
}

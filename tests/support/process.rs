//! A process that ends with the test, however the test ends.

use std::os::unix::process::ExitStatusExt;
use std::process::{Child, Command, ExitStatus};
use std::sync::mpsc::{Sender, channel};
use std::sync::{LazyLock, Mutex};
use std::time::Duration;
use std::{fs, io, thread};

use rustix::process::{Pid, Signal, kill_process};

use super::eventually;

/// A running program. Dropping it kills it.
pub struct Process {
    name: String,
    /// What this process started: the program, or an `nsenter` whose one child it is.
    child: Child,
    /// The program itself, as numbered on the host.
    pid: Pid,
    status: Option<ExitStatus>,
}

impl Process {
    /// A command that runs `program` on the host, for [`Process::on_host`]: the kernel kills it when
    /// this test's process ends, even by KILL.
    pub fn host_command(program: &str) -> Command {
        let mut command = Command::new("setpriv");
        command.args(["--pdeathsig", "KILL", "--", program]);
        command
    }

    /// Starts a [`Process::host_command`].
    #[track_caller]
    pub fn on_host(name: &str, command: Command) -> Process {
        let child = spawn_dying(command).unwrap_or_else(|e| panic!("start {name}: {e}"));
        let pid = pid_of(child.id());
        Process { name: name.to_owned(), child, pid, status: None }
    }

    /// Takes over an `nsenter` that has forked, or is about to fork, the program `name`.
    #[track_caller]
    pub(super) fn behind_nsenter(name: &str, mut child: Child) -> Process {
        let (pid, status) = eventually(&format!("the start of {name}"), Duration::from_secs(10), || {
            if let Some(pid) = child_of(child.id()) {
                return Ok((pid, None));
            }
            let status = child.try_wait().expect("wait for nsenter");
            status.map(|status| (pid_of(child.id()), Some(status))).ok_or_else(|| "nsenter has no child".to_owned())
        });
        Process { name: name.to_owned(), child, pid, status }
    }

    /// The program's process id on the host.
    pub fn pid(&self) -> i32 {
        self.pid.as_raw_nonzero().get()
    }

    /// Sends a signal to the program. Nothing happens when it has ended.
    pub fn signal(&mut self, signal: Signal) {
        if self.exited().is_none() {
            // It may end between the two; then there's nobody to tell.
            let _ = kill_process(self.pid, signal);
        }
    }

    /// How it ended, or `None` while it runs.
    pub fn exited(&mut self) -> Option<ExitStatus> {
        if self.status.is_none() {
            self.status = self.child.try_wait().unwrap_or_else(|e| panic!("wait for {}: {e}", self.name));
        }
        self.status
    }

    /// Waits until it has ended; panics after `within`.
    #[track_caller]
    pub fn wait(&mut self, within: Duration) -> ExitStatus {
        eventually(&format!("the end of {}", self.name), within, || self.exited().ok_or("it runs".to_owned()))
    }

    /// Sends KILL and waits for the end.
    #[track_caller]
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        // A stopped nsenter would not see that its child has ended.
        let _ = kill_process(pid_of(self.child.id()), Signal::CONT);
        self.wait(Duration::from_secs(10));
    }

    /// Stops the program where it is (SIGSTOP) and waits until it has stopped.
    #[track_caller]
    pub fn pause(&mut self) {
        self.signal(Signal::STOP);
        self.wait_for("stop", |state| state == 'T');
    }

    /// Lets a paused program run on.
    #[track_caller]
    pub fn resume(&mut self) {
        self.signal(Signal::CONT);
        let _ = kill_process(pid_of(self.child.id()), Signal::CONT);
        self.wait_for("run on", |state| state != 'T');
    }

    /// Waits for a state of the program, and of its nsenter, which stops and goes on with its child.
    #[track_caller]
    fn wait_for(&self, verb: &str, wanted: impl Fn(char) -> bool) {
        let pids = [self.pid(), pid_of(self.child.id()).as_raw_nonzero().get()];
        eventually(&format!("{} should {verb}", self.name), Duration::from_secs(10), || {
            let states = pids.map(|pid| stat(pid).map(|(_, state)| state));
            if states.iter().flatten().all(|s| wanted(*s)) { Ok(()) } else { Err(format!("states {states:?}")) }
        });
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if self.exited().is_none() {
            let _ = kill_process(self.pid, Signal::KILL);
            // Should it be stopped, it would not see that its child has ended.
            let _ = kill_process(pid_of(self.child.id()), Signal::CONT);
            let _ = self.child.wait();
        }
    }
}

/// Whether the program ended by this signal.
pub fn ended_by(status: ExitStatus, signal: Signal) -> bool {
    status.signal() == Some(signal.as_raw())
}

fn pid_of(raw: u32) -> Pid {
    Pid::from_raw(raw.try_into().expect("a process id fits")).expect("a process id isn't 0")
}

/// The first process whose parent is `parent`.
fn child_of(parent: u32) -> Option<Pid> {
    let all = fs::read_dir("/proc").expect("list /proc");
    let pids = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
    pids.filter(|pid| stat(*pid).is_some_and(|(ppid, _)| ppid == parent)).find_map(Pid::from_raw)
}

/// Parent and state of a process, or `None` when there's no such process.
fn stat(pid: i32) -> Option<(u32, char)> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name, in parentheses, may hold anything.
    let mut rest = text.rsplit_once(')')?.1.split_whitespace();
    let state = rest.next()?.chars().next()?;
    Some((rest.next()?.parse().ok()?, state))
}

/// Starts a command of [`Process::host_command`]. The kernel watches the thread that forks, and a test's
/// thread may end before the process does: so one thread starts them all.
fn spawn_dying(command: Command) -> io::Result<Child> {
    type Order = (Command, Sender<io::Result<Child>>);
    static SPAWNER: LazyLock<Mutex<Sender<Order>>> = LazyLock::new(|| {
        let (orders, queue) = channel::<Order>();
        thread::spawn(move || {
            for (mut command, answer) in queue {
                answer.send(command.spawn()).expect("the caller waits");
            }
        });
        Mutex::new(orders)
    });
    let (answer, child) = channel();
    SPAWNER.lock().expect("no one panics with it").send((command, answer)).expect("the spawner runs");
    child.recv().expect("the spawner answers")
}

//! A cell: mount, network, process and cgroup namespaces of a test's own, in which a private
//! container runtime and an agent run as if the machine were theirs. `cell.sh` makes it and takes it
//! away, also when this process is killed.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc::channel;
use std::thread;
use std::time::Duration;

use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

use super::{NODE, Process, eventually};

/// The node's address in a cell.
pub const HOST_IP: &str = "192.0.2.10";

const SCRIPT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/support/cell.sh");
const PROGRAMS: &[&str] =
    &["awk", "env", "find", "ip", "mount", "nsenter", "realpath", "setpriv", "setsid", "umount", "unshare"];

/// Dropping it ends every process in it and leaves nothing.
pub struct Cell {
    dir: PathBuf,
    cgroup: String,
    holder: Child,
    /// The cell lives as long as this is open.
    life: Option<ChildStdin>,
    /// The first process of the namespaces, as numbered on the host.
    pid: i32,
}

impl Cell {
    pub fn start() -> Cell {
        require(PROGRAMS);
        assert!(rustix::process::geteuid().is_root(), "a cell needs root: run the tests as root");
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let cgroup = format!("cleat-cell-{}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        // `cell.sh hold` removes it.
        let dir = tempfile::Builder::new().prefix("cleat-").tempdir().expect("make the cell's directory").keep();
        let log = fs::File::create(dir.join("cell.log")).expect("make the cell's log");
        let mut holder = Command::new("setsid") // not to be hit by the terminal's Ctrl-C
            .args(["sh", SCRIPT, "hold"])
            .args([&dir, Path::new(&cgroup), Path::new(NODE), program_dir()])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .expect("start cell.sh");
        let mut cell = Cell { life: holder.stdin.take(), dir, cgroup, holder, pid: 0 };
        cell.pid = cell.wait_ready();
        cell
    }

    /// Waits for the line `ready PID` of `cell.sh`.
    fn wait_ready(&mut self) -> i32 {
        let out = self.holder.stdout.take().expect("its output is a pipe");
        let (tell, told) = channel();
        thread::spawn(move || {
            let mut line = String::new();
            let _ = BufReader::new(out).read_line(&mut line);
            let _ = tell.send(line);
        });
        let line = told.recv_timeout(Duration::from_secs(30)).unwrap_or_default();
        line.strip_prefix("ready ").and_then(|pid| pid.trim().parse().ok()).unwrap_or_else(|| {
            let log = fs::read_to_string(self.dir.join("cell.log")).unwrap_or_default();
            panic!("the cell did not start: {line}{log}")
        })
    }

    /// A directory of the cell that is the same inside and outside. It goes with the cell.
    pub fn dir(&self) -> &Path {
        &self.dir
    }

    /// The cell's cgroup, the root of all cgroups in it, below the mount point of each hierarchy.
    pub fn cgroup(&self) -> &str {
        &self.cgroup
    }

    /// The first process of the cell, as numbered on the host.
    pub fn pid(&self) -> i32 {
        self.pid
    }

    /// Where a path of the cell can be seen from outside, mounts and `/proc` of the cell included.
    pub fn path(&self, path: impl AsRef<Path>) -> PathBuf {
        let path = path.as_ref();
        Path::new(&format!("/proc/{}/root", self.pid)).join(path.strip_prefix("/").unwrap_or(path))
    }

    /// A command that runs `program` in the cell. Its working directory will be `/`.
    pub fn command(&self, program: &str) -> Command {
        let mut command = Command::new("sh");
        command.args([SCRIPT, "enter"]).arg(&self.dir).arg(self.pid.to_string()).arg(program);
        command
    }

    /// Starts a [`Cell::command`] that stays.
    #[track_caller]
    pub fn spawn(&self, name: &str, mut command: Command) -> Process {
        let child = command.spawn().unwrap_or_else(|e| panic!("start {name}: {e}"));
        Process::behind_nsenter(name, child)
    }

    /// Runs this with the cell's network. Sockets that it makes stay there, whoever uses them.
    #[track_caller]
    pub fn in_network<T: Send>(&self, make: impl FnOnce() -> T + Send) -> T {
        let network = fs::File::open(format!("/proc/{}/ns/net", self.pid)).expect("open the cell's network");
        let enter = || move_into_link_name_space(network.as_fd(), Some(LinkNameSpaceType::Network));
        // A thread that has entered has to end.
        thread::scope(|scope| {
            let thread = scope.spawn(|| {
                enter().expect("enter the cell's network");
                make()
            });
            thread.join().expect("it is made")
        })
    }

    /// Runs a program in the cell to its end.
    #[track_caller]
    pub fn output(&self, program: &str, args: &[&str]) -> Output {
        self.command(program).args(args).stdin(Stdio::null()).output().unwrap_or_else(|e| panic!("run {program}: {e}"))
    }

    /// As [`Cell::output`]: its standard output, or else what it complained of.
    #[track_caller]
    pub fn run(&self, program: &str, args: &[&str]) -> Result<String, String> {
        let out = self.output(program, args);
        if out.status.success() {
            Ok(String::from_utf8_lossy(&out.stdout).into_owned())
        } else {
            let told = String::from_utf8_lossy(&out.stderr);
            Err(format!("{program} {}: {}: {}", args.join(" "), out.status, told.trim_end()))
        }
    }

    /// Connects to a port of the cell's loopback interface.
    pub fn connect(&self, port: u16) -> io::Result<TcpStream> {
        let address = SocketAddr::from(([127, 0, 0, 1], port));
        self.in_network(|| TcpStream::connect_timeout(&address, Duration::from_secs(10)))
    }

    /// Mount points of the cell below a directory.
    pub fn mounts_below(&self, dir: &Path) -> Vec<PathBuf> {
        let table = fs::read_to_string(format!("/proc/{}/mountinfo", self.pid)).expect("read the cell's mounts");
        let points = table.lines().filter_map(|line| line.split(' ').nth(4)).map(PathBuf::from);
        points.filter(|point| point.starts_with(dir) && point != dir).collect()
    }

    /// Process id in the cell and command line of each process there.
    pub fn processes(&self) -> Vec<(i32, Vec<String>)> {
        let all = fs::read_dir(self.path("/proc")).expect("list the cell's processes");
        let pids = all.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse::<i32>().ok());
        let command_line = |pid: &i32| fs::read_to_string(self.path(format!("/proc/{pid}/cmdline"))).ok();
        let args = |line: String| line.split_terminator('\0').map(str::to_owned).collect();
        pids.filter_map(|pid| Some((pid, args(command_line(&pid)?)))).collect()
    }

    /// The cgroups in the cell, as paths from the cell's root, whatever the hierarchy.
    pub fn cgroups(&self) -> Vec<String> {
        let tops = fs::read_to_string(self.dir.join("cgroups")).expect("read the list of the cell's cgroups");
        let mut found = Vec::new();
        for top in tops.lines().map(Path::new) {
            let mut todo = vec![top.to_owned()];
            while let Some(dir) = todo.pop() {
                // A cgroup may go while we look.
                let Ok(entries) = fs::read_dir(&dir) else { continue };
                let dirs = entries.flatten().filter(|e| e.file_type().is_ok_and(|t| t.is_dir()));
                todo.extend(dirs.map(|e| e.path()));
                if let Some(path) =
                    dir.strip_prefix(top).ok().filter(|p| *p != Path::new("") && *p != Path::new("init"))
                {
                    found.push(format!("/{}", path.display()));
                }
            }
        }
        found.sort();
        found.dedup();
        found
    }
}

impl Drop for Cell {
    fn drop(&mut self) {
        drop(self.life.take());
        let log = fs::read_to_string(self.dir.join("cell.log")).unwrap_or_default();
        let end = || match self.holder.try_wait() {
            Ok(Some(status)) if status.success() => Ok(()),
            other => Err(format!("{other:?} {log}")),
        };
        if thread::panicking() {
            let _ = self.holder.wait();
        } else {
            eventually("the end of the cell", Duration::from_secs(30), end);
        }
    }
}

/// Panics when programs are missing, and says which.
#[track_caller]
pub fn require(programs: &[&str]) {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = |program: &str| std::env::split_paths(&path).any(|dir| dir.join(program).is_file());
    let missing: Vec<_> = programs.iter().filter(|p| !found(p)).collect();
    assert!(
        missing.is_empty(),
        "programs are missing: {missing:?}. On Debian: apt install containerd runc containernetworking-plugins \
         busybox-static gcc libc6-dev iproute2 iptables util-linux python3 curl dbus-daemon"
    );
}

/// The directory of the agent's program.
fn program_dir() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_cleat")).parent().expect("a program has a directory")
}

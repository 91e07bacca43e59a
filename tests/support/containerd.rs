//! A private containerd in a [`Cell`]: its own state, network range and images, nothing shared with
//! the machine's.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use cleat::cri::proto::runtime::{ImageStatusRequest, RemoveImageRequest, StatusRequest};
use parking_lot::Mutex;
use rustix::process::Signal;
use serde::Deserialize;

use super::cell::require;
use super::{BUSYBOX, Cell, PAUSE, Process, eventually, image_client, images, runtime_client, within};

const PROGRAMS: &[&str] = &["containerd", "containerd-shim-runc-v2", "ctr", "curl", "iptables", "runc"];
const CNI_PLUGINS: &[&str] = &["bridge", "host-local", "loopback", "portmap"];
const CNI_DIRS: &[&str] = &["/usr/lib/cni", "/opt/cni/bin", "/usr/libexec/cni"];
/// Addresses of pods begin with this.
pub const POD_NETWORK: &str = "10.91.";

/// Of its two handlers, `other` runs a program in the cell's directory that a test may put there.
const CONFIG: &str = r#"version = 2
root = "{dir}/containerd/root"
state = "{dir}/containerd/state"
disabled_plugins = ["io.containerd.internal.v1.opt"]
[grpc]
  address = "{dir}/containerd.sock"
[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{pause}"
  netns_mounts_under_state_dir = true
  disable_apparmor = true
  restrict_oom_score_adj = {restrict}
  [plugins."io.containerd.grpc.v1.cri".containerd]
    snapshotter = "overlayfs"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.other]
    runtime_type = "io.containerd.runc.v2"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.other.options]
    BinaryName = "{dir}/other-runc"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{plugins}"
    conf_dir = "{dir}/cni"
"#;

const NETWORK: &str = r#"{"cniVersion": "1.0.0", "name": "cell", "plugins": [
  {"type": "bridge", "bridge": "cell0", "isGateway": true, "ipMasq": false, "hairpinMode": true,
   "ipam": {"type": "host-local", "dataDir": "{dir}/ipam", "ranges": [[{"subnet": "{network}0.0/16"}]],
            "routes": [{"dst": "0.0.0.0/0"}]}},
  {"type": "portmap", "capabilities": {"portMappings": true}}]}
"#;

/// Dropping it leaves nothing of it: no process, mount, cgroup, interface or file.
pub struct Containerd {
    /// `None` while it is stopped. Goes before the cell.
    process: Mutex<Option<Process>>,
    cell: Arc<Cell>,
}

/// A task of containerd: what runs of a container.
#[derive(Debug, Clone, PartialEq)]
pub struct Task {
    /// Process id in the cell; see [`Containerd::cell`] and [`Cell::path`] for its `/proc`.
    pub pid: i32,
    /// `RUNNING`, `STOPPED`, `CREATED`, `PAUSED`, …
    pub status: String,
}

/// A container as containerd knows it: of a pod's sandbox, or of a container in a pod.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct Container {
    #[serde(rename = "ID")]
    pub id: String,
    #[serde(default)]
    pub labels: BTreeMap<String, String>,
    pub image: String,
    /// The OCI specification.
    #[serde(default)]
    pub spec: serde_json::Value,
}

impl Container {
    pub fn is_sandbox(&self) -> bool {
        self.labels.get("io.cri-containerd.kind").is_some_and(|kind| kind == "sandbox")
    }
}

/// What there is of pods. Empty when the last of them is gone for good.
#[derive(Debug, Default, PartialEq)]
pub struct Leftovers {
    pub sandboxes: Vec<String>,
    pub containers: Vec<String>,
    pub tasks: Vec<String>,
    /// Writable snapshots, one for each container that isn't removed.
    pub snapshots: Vec<String>,
    /// Mount points below [`Cell::dir`].
    pub mounts: Vec<PathBuf>,
    /// Files of network namespaces.
    pub netns: Vec<PathBuf>,
    /// Process ids in the cell.
    pub shims: Vec<i32>,
    /// Pod addresses that are taken.
    pub addresses: Vec<String>,
    /// The node's ends of the pods' network interfaces.
    pub interfaces: Vec<String>,
}

impl Leftovers {
    pub fn is_empty(&self) -> bool {
        *self == Leftovers::default()
    }
}

impl Containerd {
    /// Starts it, waits until it can run pods, and imports the test images.
    pub fn start() -> Containerd {
        require(PROGRAMS);
        let plugins = CNI_DIRS.iter().find(|dir| CNI_PLUGINS.iter().all(|p| Path::new(dir).join(p).exists()));
        let plugins = plugins.unwrap_or_else(|| {
            panic!("no directory of {CNI_DIRS:?} has {CNI_PLUGINS:?} (Debian: containernetworking-plugins)")
        });
        let images = images();
        let cell = Arc::new(Cell::start());
        let dir = cell.dir().to_str().expect("a plain path");
        let config = CONFIG
            .replace("{dir}", dir)
            .replace("{pause}", PAUSE)
            .replace("{plugins}", plugins)
            .replace("{restrict}", if may_lower_oom_score() { "false" } else { "true" });
        fs::create_dir(cell.dir().join("cni")).expect("make the network's directory");
        let network = NETWORK.replace("{dir}", dir).replace("{network}", POD_NETWORK);
        fs::write(cell.dir().join("cni/10-cell.conflist"), network).expect("write the network's configuration");
        fs::write(cell.dir().join("containerd.toml"), config).expect("write containerd's configuration");
        let containerd = Containerd { process: Mutex::new(None), cell };
        containerd.launch();
        containerd.import(&images.pause, PAUSE);
        containerd.import(&images.busybox, BUSYBOX);
        containerd
    }

    /// Starts it again after [`Containerd::stop`] or [`Containerd::kill`], with what it had.
    #[track_caller]
    pub fn launch(&self) {
        let mut running = self.process.lock();
        assert!(running.is_none(), "containerd runs already");
        let log = fs::OpenOptions::new().create(true).append(true).open(self.log_path()).expect("open its log");
        let mut command = self.cell.command("containerd");
        command.arg("--config").arg(self.cell.dir().join("containerd.toml"));
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("share its log")).stderr(log);
        let mut process = self.cell.spawn("containerd", command);
        let client = runtime_client(&self.socket());
        let log = self.log_path();
        eventually("containerd's start", Duration::from_secs(60), || {
            if let Some(status) = process.exited() {
                panic!("containerd ended: {status}\n{}", tail(&log, 30));
            }
            let status =
                client.status(&StatusRequest::new(), within(Duration::from_secs(5))).map_err(|e| e.to_string())?.status;
            let unmet = status.conditions.iter().find(|c| !c.status).cloned();
            unmet.map_or(Ok(()), |c| Err(format!("{} is false: {}", c.type_, c.message)))
        });
        *running = Some(process);
    }

    /// What a node has after a power cut: nothing runs, and the runtime knows of nothing that did. The
    /// agent must not run meanwhile.
    #[track_caller]
    pub fn forget_everything(&self) {
        self.kill();
        let dir = self.cell.dir().to_str().expect("a plain path").to_owned();
        // All of the cell but its first process and the shell itself; the processes' mounts go with them.
        let wipe =
            "for p in $(ls /proc | grep '^[0-9]'); do [ $p = 1 ] || [ $p = $$ ] || kill -KILL $p; done 2>/dev/null
            sleep 0.2
            grep -o \"$1/containerd/[^ ]*\" /proc/self/mountinfo | sort -r | while read m; do umount -l $m; done
            rm -rf $1/containerd/* $1/ipam
            for c in $(find /sys/fs/cgroup -depth -type d -path '*kubepods*'); do rmdir $c; done 2>/dev/null; true";
        self.cell.run("sh", &["-c", wipe, "sh", &dir]).unwrap_or_else(|e| panic!("{e}"));
        self.launch();
        let images = images();
        self.import(&images.pause, PAUSE);
        self.import(&images.busybox, BUSYBOX);
    }

    /// Ends it with TERM; the pods run on.
    #[track_caller]
    pub fn stop(&self) {
        let mut process = self.process.lock().take().expect("containerd runs");
        process.signal(Signal::TERM);
        process.wait(Duration::from_secs(20));
    }

    /// Ends it with KILL; the pods run on, the socket's file stays.
    #[track_caller]
    pub fn kill(&self) {
        self.process.lock().take().expect("containerd runs").kill();
    }

    /// Stops it where it is: calls to it hang.
    #[track_caller]
    pub fn pause(&self) {
        self.process.lock().as_mut().expect("containerd runs").pause();
    }

    #[track_caller]
    pub fn resume(&self) {
        self.process.lock().as_mut().expect("containerd runs").resume();
    }

    /// The CRI socket, the same path inside and outside of the cell.
    pub fn socket(&self) -> PathBuf {
        self.cell.dir().join("containerd.sock")
    }

    /// Where it runs; see [`Cell::command`], [`Cell::spawn`] and [`Cell::run`] for running others beside it.
    pub fn cell(&self) -> &Arc<Cell> {
        &self.cell
    }

    pub fn log_path(&self) -> PathBuf {
        self.cell.dir().join("containerd.log")
    }

    /// Runs `ctr` in the namespace of the pods.
    #[track_caller]
    pub fn try_ctr(&self, args: &[&str]) -> Result<String, String> {
        let socket = self.socket();
        let own = ["--address", socket.to_str().expect("a plain path"), "--namespace", "k8s.io"];
        self.cell.run("ctr", &[&own, args].concat())
    }

    /// As [`Containerd::try_ctr`]; panics with what `ctr` says when it fails.
    #[track_caller]
    pub fn ctr(&self, args: &[&str]) -> String {
        self.try_ctr(args).unwrap_or_else(|e| panic!("{e}"))
    }

    /// Imports a docker archive and waits until the CRI knows its image `name`.
    #[track_caller]
    pub fn import(&self, archive: &Path, name: &str) {
        self.ctr(&["images", "import", archive.to_str().expect("a plain path")]);
        let client = image_client(&self.socket());
        let mut request = ImageStatusRequest::new();
        request.image.mut_or_insert_default().image = name.to_owned();
        eventually(&format!("image {name}"), Duration::from_secs(20), || {
            let answer = client.image_status(&request, within(Duration::from_secs(5))).map_err(|e| e.to_string())?;
            answer.image.into_option().map(|_| ()).ok_or_else(|| "not there".to_owned())
        });
    }

    /// Removes an image with all its names and content.
    #[track_caller]
    pub fn forget_image(&self, name: &str) {
        let mut request = RemoveImageRequest::new();
        request.image.mut_or_insert_default().image = name.to_owned();
        let removed = image_client(&self.socket()).remove_image(&request, within(Duration::from_secs(20)));
        removed.unwrap_or_else(|e| panic!("remove {name}: {e}"));
    }

    /// Makes the handler `other` a runtime that leaves a mark when it runs something: the file that is
    /// returned.
    #[track_caller]
    pub fn other_handler(&self) -> PathBuf {
        let (program, mark) = (self.cell.dir().join("other-runc"), self.cell.dir().join("ran"));
        let script = format!("#!/bin/sh\necho ran >>{}\nexec runc \"$@\"\n", mark.display());
        fs::write(&program, script).expect("writes");
        fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("changes");
        mark
    }

    /// Gets a URL from inside the cell: status and body, or why there is no answer.
    pub fn http_get(&self, url: &str) -> Result<(u16, String), String> {
        curl(self.cell.command("curl"), url)
    }

    /// What runs, by container id.
    #[track_caller]
    pub fn tasks(&self) -> BTreeMap<String, Task> {
        let table = self.ctr(&["tasks", "ls"]);
        let rows = table.lines().skip(1).map(|line| line.split_whitespace().collect::<Vec<_>>());
        rows.map(|row| match row[..] {
            [id, pid, status] => {
                (id.to_owned(), Task { pid: pid.parse().expect("a process id"), status: status.to_owned() })
            }
            _ => panic!("ctr tasks ls: {table}"),
        })
        .collect()
    }

    /// All containers, those of sandboxes included. One that goes meanwhile is left out.
    #[track_caller]
    pub fn containers(&self) -> Vec<Container> {
        let all = "set -e; for c in $(ctr -a \"$1\" -n k8s.io containers ls -q); do \
            ctr -a \"$1\" -n k8s.io containers info $c 2>\"$1.error\" || grep -q 'not found' \"$1.error\"; done";
        let socket = self.socket();
        let docs = self.cell.run("sh", &["-c", all, "sh", socket.to_str().expect("a plain path")]);
        let docs = docs.unwrap_or_else(|e| panic!("{e}"));
        let parsed: Result<_, _> = serde_json::Deserializer::from_str(&docs).into_iter().collect();
        parsed.unwrap_or_else(|e| panic!("ctr containers info: {e}: {docs}"))
    }

    /// What there still is of pods; containerd must run.
    #[track_caller]
    pub fn leftovers(&self) -> Leftovers {
        let (sandboxes, containers): (Vec<_>, Vec<_>) = self.containers().into_iter().partition(Container::is_sandbox);
        let ids = |all: Vec<Container>| all.into_iter().map(|c| c.id).collect();
        let snapshots = self.ctr(&["snapshots", "ls"]);
        let active = |line: &str| line.split_whitespace().last() == Some("Active");
        let links = self.cell.run("ip", &["-o", "link", "show", "type", "veth"]).unwrap_or_else(|e| panic!("{e}"));
        let interfaces = links.lines().filter_map(|line| line.split(": ").nth(1)?.split('@').next());
        let dir = self.cell.dir();
        Leftovers {
            sandboxes: ids(sandboxes),
            containers: ids(containers),
            tasks: self.tasks().into_keys().collect(),
            snapshots: snapshots.lines().filter(|l| active(l)).filter_map(first_word).collect(),
            mounts: self.cell.mounts_below(dir).into_iter().filter(|p| *p != dir.join("containerd")).collect(),
            netns: list(&self.cell.path(dir.join("containerd/state/io.containerd.grpc.v1.cri/netns"))),
            shims: self.shims(),
            addresses: list(&dir.join("ipam/cell")).iter().filter_map(|p| address(p)).collect(),
            interfaces: interfaces.filter(|i| i.starts_with("veth")).map(str::to_owned).collect(),
        }
    }

    fn shims(&self) -> Vec<i32> {
        let is_shim = |args: &[String]| args.first().is_some_and(|a| a.contains("containerd-shim"));
        self.cell.processes().into_iter().filter(|(_, args)| is_shim(args)).map(|(pid, _)| pid).collect()
    }
}

impl Drop for Containerd {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- end of containerd's log\n{}", tail(&self.log_path(), 20));
        }
    }
}

/// Runs `curl`, given as a command, on one URL: status and body, or why there is no answer.
fn curl(mut command: Command, url: &str) -> Result<(u16, String), String> {
    command.args([
        "--noproxy",
        "*",
        "--silent",
        "--show-error",
        "--max-time",
        "10",
        "--write-out",
        "\n%{http_code}",
        url,
    ]);
    let out = command.stdin(Stdio::null()).output().map_err(|e| format!("curl: {e}"))?;
    if !out.status.success() {
        return Err(String::from_utf8_lossy(&out.stderr).trim_end().to_owned());
    }
    let text = String::from_utf8_lossy(&out.stdout);
    let (body, code) = text.rsplit_once('\n').ok_or("curl wrote no status")?;
    Ok((code.parse().map_err(|e| format!("curl's status {code:?}: {e}"))?, body.to_owned()))
}

/// The last lines of a file, for a failure's report.
pub(super) fn tail(path: &Path, lines: usize) -> String {
    let text = fs::read(path).map(|b| String::from_utf8_lossy(&b).into_owned()).unwrap_or_else(|e| e.to_string());
    let all: Vec<_> = text.lines().collect();
    all[all.len().saturating_sub(lines)..].join("\n")
}

/// Whether processes here may be given a negative oom_score_adj.
fn may_lower_oom_score() -> bool {
    let try_it = "echo -100 >/proc/self/oom_score_adj";
    Command::new("sh").args(["-c", try_it]).stderr(Stdio::null()).status().expect("run sh").success()
}

/// The entries of a directory, none when there's no such directory.
fn list(dir: &Path) -> Vec<PathBuf> {
    fs::read_dir(dir).into_iter().flatten().map(|e| e.expect("list a directory").path()).collect()
}

fn first_word(line: &str) -> Option<String> {
    line.split_whitespace().next().map(str::to_owned)
}

fn address(path: &Path) -> Option<String> {
    path.file_name()?.to_str().filter(|name| name.starts_with(POD_NETWORK)).map(str::to_owned)
}

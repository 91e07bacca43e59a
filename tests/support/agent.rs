//! The agent's process, in a cell or on the host, with the directories and the configuration that it
//! is given.

use std::fs;
use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use rustix::process::Signal;
use serde_json::{Value, json};
use tempfile::TempDir;

use super::containerd::tail;
use super::{Cell, Containerd, FakeCri, NODE, Process, eventually};

/// The agent of this build, or another one that `CLEAT` names.
static PROGRAM: LazyLock<String> =
    LazyLock::new(|| std::env::var("CLEAT").unwrap_or_else(|_| env!("CARGO_BIN_EXE_cleat").to_owned()));

/// Dropping it kills the process, not the pods. On a failed test it shows the end of the agent's log.
pub struct Agent {
    /// Goes first.
    process: Option<Process>,
    place: Place,
    dir: PathBuf,
    config: Value,
    flags: Vec<String>,
    environment: Vec<(String, String)>,
    port: u16,
}

enum Place {
    Cell(Arc<Cell>),
    Host(TempDir),
}

impl Agent {
    /// An agent on a private containerd, not started yet.
    pub fn on_containerd(containerd: &Containerd) -> Agent {
        Agent::in_cell(containerd.cell(), &containerd.socket())
    }

    /// An agent in a cell, on any socket: what it does to cgroups and below `/var` stays in the cell.
    pub fn in_cell(cell: &Arc<Cell>, socket: &Path) -> Agent {
        Agent::new(cell.dir().join("agent"), Place::Cell(cell.clone()), "0.0.0.0", [10255, 10250], socket)
    }

    /// An agent on the host, without pod cgroups, not started yet.
    pub fn on_host(cri: &FakeCri) -> Agent {
        let dir = tempfile::Builder::new().prefix("cleat-agent-").tempdir().expect("make the agent's directory");
        let mut agent =
            Agent::new(dir.path().to_owned(), Place::Host(dir), "127.0.0.1", [free_port(), free_port()], cri.socket());
        agent.configure(json!({"cgroupsPerQOS": false, "enforceNodeAllocatable": []}));
        agent
    }

    fn new(dir: PathBuf, place: Place, address: &str, [port, tls_port]: [u16; 2], socket: &Path) -> Agent {
        for sub in ["manifests", "logs", "root"] {
            fs::create_dir_all(dir.join(sub)).expect("make the agent's directories");
        }
        let resolv = dir.join("resolv.conf");
        fs::write(&resolv, "nameserver 192.0.2.53\nsearch edge.example\n").expect("write resolv.conf");
        let config = json!({
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "staticPodPath": dir.join("manifests"),
            "podLogsDir": dir.join("logs"),
            "containerRuntimeEndpoint": format!("unix://{}", socket.display()),
            "address": address,
            "port": tls_port,
            "readOnlyPort": port,
            "healthzPort": 0,
            "authentication": {"anonymous": {"enabled": true}, "webhook": {"enabled": false}},
            "authorization": {"mode": "AlwaysAllow"},
            "cgroupDriver": "cgroupfs",
            "failCgroupV1": false,
            "failSwapOn": false,
            "evictionHard": {"memory.available": "1Mi", "nodefs.available": "0%", "imagefs.available": "0%"},
            "imageGCHighThresholdPercent": 100,
            "imageGCLowThresholdPercent": 99,
            "resolvConf": resolv,
        });
        Agent { process: None, place, dir, config, flags: Vec::new(), environment: Vec::new(), port }
    }

    /// Sets fields of the KubeletConfiguration for the next start; null takes a field away.
    pub fn configure(&mut self, fields: Value) {
        let config = self.config.as_object_mut().expect("the configuration is an object");
        for (name, value) in fields.as_object().expect("fields by name") {
            match value {
                Value::Null => config.remove(name),
                value => config.insert(name.clone(), value.clone()),
            };
        }
    }

    /// More flags for its next start.
    pub fn flags(&mut self, flags: &[&str]) {
        self.flags.extend(flags.iter().map(|flag| (*flag).to_owned()));
    }

    /// A variable of its environment, from its next start on.
    pub fn environment(&mut self, name: &str, value: &str) {
        self.environment.push((name.to_owned(), value.to_owned()));
    }

    /// Starts it and waits until it says that it is healthy.
    #[track_caller]
    pub fn start(&mut self) {
        self.launch();
        eventually("the agent's health", Duration::from_secs(30), || {
            let process = self.process.as_mut().expect("it was started");
            if let Some(status) = process.exited() {
                panic!("the agent ended: {status}");
            }
            self.healthz()
        });
    }

    /// Starts it and doesn't wait.
    #[track_caller]
    pub fn launch(&mut self) {
        let ended = self.process.as_mut().is_none_or(|process| process.exited().is_some());
        assert!(ended, "the agent runs already");
        let config = self.dir.join("config.yaml");
        fs::write(&config, self.config.to_string()).expect("write the agent's configuration");
        let log = fs::OpenOptions::new().create(true).append(true).open(self.log_path()).expect("open its log");
        let mut command = match &self.place {
            Place::Cell(cell) => cell.command(&PROGRAM),
            Place::Host(_) => Process::host_command(&PROGRAM),
        };
        command.arg("run").arg("--config").arg(config).arg("--root-dir").arg(self.root());
        command.args(["--hostname-override", NODE]).args(&self.flags);
        command.envs(self.environment.iter().map(|(name, value)| (name, value)));
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("share its log")).stderr(log);
        self.process = Some(match &self.place {
            Place::Cell(cell) => cell.spawn("the agent", command),
            Place::Host(_) => Process::on_host("the agent", command),
        });
    }

    /// Ends it with TERM and returns how it ended; panics when it hasn't after 20 s.
    #[track_caller]
    pub fn stop(&mut self) -> ExitStatus {
        let process = self.process();
        process.signal(Signal::TERM);
        let status = process.wait(Duration::from_secs(20));
        self.process = None;
        status
    }

    /// Ends it with KILL.
    #[track_caller]
    pub fn kill(&mut self) {
        self.process().kill();
        self.process = None;
    }

    /// [`Agent::stop`] and [`Agent::start`].
    #[track_caller]
    pub fn restart(&mut self) {
        self.stop();
        self.start();
    }

    /// Its process, for other signals and for `/proc`; panics when it wasn't started.
    #[track_caller]
    pub fn process(&mut self) -> &mut Process {
        self.process.as_mut().expect("the agent was started")
    }

    /// Gets a path from the read-only port: status and body, or why there is no answer.
    pub fn get(&self, path: &str) -> Result<(u16, String), String> {
        let connect = || TcpStream::connect(("127.0.0.1", self.port));
        let stream = match &self.place {
            Place::Cell(cell) => cell.in_network(connect),
            Place::Host(_) => connect(),
        };
        get(stream, path).map_err(|e| format!("{path}: {e}"))
    }

    /// Whether `/healthz` answers 200, or what else it does.
    pub fn healthz(&self) -> Result<(), String> {
        match self.get("/healthz")? {
            (200, _) => Ok(()),
            (status, body) => Err(format!("/healthz: {status}: {body}")),
        }
    }

    /// The items of `/pods`.
    pub fn try_pods(&self) -> Result<Vec<Value>, String> {
        let (status, body) = self.get("/pods")?;
        if status != 200 {
            return Err(format!("/pods: {status}: {body}"));
        }
        let mut list: Value = serde_json::from_str(&body).map_err(|e| format!("/pods: {e}: {body}"))?;
        match list["items"].take() {
            Value::Array(items) => Ok(items),
            Value::Null => Ok(Vec::new()),
            other => Err(format!("/pods: items is {other}")),
        }
    }

    /// As [`Agent::try_pods`]; panics when there's no answer.
    #[track_caller]
    pub fn pods(&self) -> Vec<Value> {
        self.try_pods().unwrap_or_else(|e| panic!("{e}"))
    }

    /// Waits until the pod `name` (as in its manifest, without the node's name) is listed and meets the
    /// predicate, and returns it. Panics after `within` with the pod as it is.
    #[track_caller]
    pub fn wait_pod(&self, name: &str, within: Duration, mut meets: impl FnMut(&Value) -> bool) -> Value {
        eventually(&format!("pod {name}"), within, || {
            let pod = self.find_pod(name)?.ok_or("it isn't listed")?;
            if meets(&pod) { Ok(pod) } else { Err(format!("its status is {:#}", pod["status"])) }
        })
    }

    /// Waits until no pod `name` is listed.
    #[track_caller]
    pub fn wait_gone(&self, name: &str, within: Duration) {
        eventually(&format!("the end of pod {name}"), within, || {
            self.find_pod(name)?.map_or(Ok(()), |pod| Err(format!("its status is {:#}", pod["status"])))
        });
    }

    fn find_pod(&self, name: &str) -> Result<Option<Value>, String> {
        let full = format!("{name}-{NODE}");
        Ok(self.try_pods()?.into_iter().find(|pod| pod["metadata"]["name"] == full.as_str()))
    }

    /// Puts a manifest, new or in place of the old one, with one rename.
    #[track_caller]
    pub fn write_manifest(&self, file: &str, text: &str) {
        let fresh = self.dir.join(format!("{file}.new"));
        fs::write(&fresh, text).expect("write the manifest");
        fs::rename(&fresh, self.manifests().join(file)).expect("rename the manifest");
    }

    #[track_caller]
    pub fn remove_manifest(&self, file: &str) {
        fs::remove_file(self.manifests().join(file)).expect("remove the manifest");
    }

    pub fn manifests(&self) -> PathBuf {
        self.dir.join("manifests")
    }

    /// Its `--root-dir`. What it mounts there in a cell shows through [`Cell::path`].
    pub fn root(&self) -> PathBuf {
        self.dir.join("root")
    }

    /// Where the pods' logs go.
    pub fn pod_logs(&self) -> PathBuf {
        self.dir.join("logs")
    }

    pub fn log_path(&self) -> PathBuf {
        self.dir.join("agent.log")
    }

    /// All that it has logged, over all its starts.
    pub fn log(&self) -> String {
        fs::read(self.log_path()).map(|b| String::from_utf8_lossy(&b).into_owned()).unwrap_or_default()
    }
}

impl Drop for Agent {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- end of the agent's log\n{}", tail(&self.log_path(), 60));
        }
    }
}

/// Gets a path over a connection of its own: status and body.
fn get(stream: io::Result<TcpStream>, path: &str) -> io::Result<(u16, String)> {
    let mut stream = stream?;
    stream.set_read_timeout(Some(Duration::from_secs(10)))?;
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")?;
    let mut text = String::new();
    stream.read_to_string(&mut text)?;
    let status = text.split(' ').nth(1).and_then(|code| code.parse().ok());
    let body = text.split_once("\r\n\r\n").map(|(_, body)| body.to_owned());
    status.zip(body).ok_or_else(|| io::Error::other(format!("this is no answer: {text:?}")))
}

/// A port of 127.0.0.1 that was free just now.
fn free_port() -> u16 {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").expect("bind a free port");
    listener.local_addr().expect("it has an address").port()
}

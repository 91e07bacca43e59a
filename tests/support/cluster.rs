//! A real control plane in a cell: Debian's etcd, and a kube-apiserver that `scripts/kube-apiserver` has
//! made or that `KUBE_APISERVER` names, with a certificate authority of the test's own, RBAC and node
//! authorisation. No controllers run: what they would do, a test does.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use rustix::process::Signal;
use serde_json::{Value, json};

use super::cell::HOST_IP;
use super::containerd::tail;
use super::http::Authority;
use super::kubectl::Kubectl;
use super::{Cell, NODE, Process, eventually};

/// Of the API server, on the cell's loopback interface.
pub const PORT: u16 = 6443;
/// A token that a node can be bootstrapped with.
pub const BOOTSTRAP_TOKEN: &str = "bootstrap-of-the-tests";
const ETCD: &str = "http://127.0.0.1:2379";
const START: Duration = Duration::from_secs(120);

/// Where the kube-apiserver is.
///
/// # Errors
/// Why there is none: then the test is to be skipped, and to say so.
pub fn kube_apiserver() -> Result<PathBuf, String> {
    let made = || {
        let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
        let target = target.unwrap_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("target"));
        target.join("kube-apiserver/kube-apiserver")
    };
    let path = std::env::var_os("KUBE_APISERVER").map_or_else(made, PathBuf::from);
    if !path.is_file() {
        return Err(format!("there is no kube-apiserver at {}: scripts/kube-apiserver makes one", path.display()));
    }
    let etcd = std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default()).any(|d| d.join("etcd").is_file());
    if etcd { Ok(path) } else { Err("there is no etcd: Debian's etcd-server has it".to_owned()) }
}

/// Ends with its cell; nothing of it is elsewhere.
pub struct Cluster {
    /// `None` while it is stopped.
    apiserver: Option<Process>,
    etcd: Option<Process>,
    program: PathBuf,
    /// As 1.20.
    version: (u32, u32),
    dir: PathBuf,
    authority: Authority,
    cell: Arc<Cell>,
    pub kubectl: Kubectl,
}

impl Cluster {
    /// Starts one with a namespace `default` that pods can be created in, if there is what it takes.
    pub fn start(cell: &Arc<Cell>) -> Result<Cluster, String> {
        let program = kube_apiserver()?;
        let dir = cell.dir().join("cluster");
        fs::create_dir_all(&dir).expect("makes a directory");
        let authority = Authority::new("tests");
        authority.write(dir.join("ca.crt"));
        fs::write(dir.join("ca.key"), authority.key_pem()).expect("writes");
        let write = |name: &str, (certificate, key): (String, String)| {
            fs::write(dir.join(format!("{name}.crt")), certificate).expect("writes");
            fs::write(dir.join(format!("{name}.key")), key).expect("writes");
        };
        write("server", authority.server(&["127.0.0.1", HOST_IP, "localhost", "kubernetes", "10.96.0.1"]));
        write("kubelet-client", authority.client("kube-apiserver-kubelet-client", &["system:masters"]));
        write("accounts", authority.client("accounts", &[]));
        let tokens = format!("{BOOTSTRAP_TOKEN},system:bootstrap:tests,1,\"system:bootstrappers\"\n");
        fs::write(dir.join("tokens.csv"), tokens).expect("writes");
        let admin = dir.join("admin.conf");
        let kubectl = Kubectl::new(cell, &admin);
        let version = version(&program);
        let mut cluster =
            Cluster { apiserver: None, etcd: None, program, version, dir, authority, cell: cell.clone(), kubectl };
        let (certificate, key) = cluster.authority.client("admin", &["system:masters"]);
        fs::write(&admin, cluster.kubeconfig(&by_certificate(&certificate, &key))).expect("writes");
        cluster.start_etcd();
        cluster.start_apiserver();
        cluster.namespace("default");
        Ok(cluster)
    }

    fn start_etcd(&mut self) {
        let mut command = self.cell.command("etcd");
        command.arg("--data-dir").arg(self.dir.join("etcd"));
        command.args(["--listen-client-urls", ETCD, "--advertise-client-urls", ETCD]);
        let peer = "http://127.0.0.1:2380";
        command.args(["--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer]);
        command.args(["--initial-cluster", &format!("default={peer}")]);
        self.etcd = Some(self.spawn("etcd", command));
    }

    /// Starts it and waits until it is ready.
    #[track_caller]
    pub fn start_apiserver(&mut self) {
        let mut command = self.cell.command(&self.program.display().to_string());
        let file = |name: &str| self.dir.join(name).display().to_string();
        let port = PORT.to_string();
        for (flag, value) in [
            ("etcd-servers", ETCD),
            ("bind-address", "127.0.0.1"),
            ("advertise-address", HOST_IP),
            ("secure-port", &port),
            ("cert-dir", &file("certificates")),
            ("tls-cert-file", &file("server.crt")),
            ("tls-private-key-file", &file("server.key")),
            ("client-ca-file", &file("ca.crt")),
            ("token-auth-file", &file("tokens.csv")),
            ("service-account-issuer", "https://kubernetes.default.svc"),
            ("service-account-key-file", &file("accounts.crt")),
            ("service-account-signing-key-file", &file("accounts.key")),
            ("service-cluster-ip-range", "10.96.0.0/24"),
            ("authorization-mode", "Node,RBAC"),
            ("enable-admission-plugins", "NodeRestriction"),
            ("allow-privileged", "true"),
            ("kubelet-client-certificate", &file("kubelet-client.crt")),
            ("kubelet-client-key", &file("kubelet-client.key")),
            ("kubelet-preferred-address-types", "InternalIP"),
        ] {
            command.arg(format!("--{flag}={value}"));
        }
        // What later ones always do.
        let gates = [("BoundServiceAccountTokenVolume", (1, 21)), ("EphemeralContainers", (1, 23))];
        for (gate, _) in gates.into_iter().filter(|(_, since)| self.version < *since) {
            command.arg(format!("--feature-gates={gate}=true"));
        }
        self.apiserver = Some(self.spawn("kube-apiserver", command));
        let log = self.log();
        eventually("the API server", START, || {
            let process = self.apiserver.as_mut().expect("it was started");
            if let Some(status) = process.exited() {
                panic!("kube-apiserver ended: {status}: {}", tail(&log, 30));
            }
            self.kubectl.attempt(&["get", "--raw", "/readyz"]).map(drop)
        });
    }

    fn spawn(&self, name: &str, mut command: Command) -> Process {
        let log = fs::OpenOptions::new().create(true).append(true).open(self.dir.join(format!("{name}.log")));
        let log = log.expect("open its log");
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("share its log")).stderr(log);
        self.cell.spawn(name, command)
    }

    fn log(&self) -> PathBuf {
        self.dir.join("kube-apiserver.log")
    }

    /// Ends the API server; what it stored stays.
    #[track_caller]
    pub fn stop_apiserver(&mut self) {
        if let Some(mut process) = self.apiserver.take() {
            process.signal(Signal::KILL);
            process.wait(Duration::from_secs(20));
        }
    }

    /// Replaces all that the API server has stored by nothing.
    #[track_caller]
    pub fn empty(&mut self) {
        self.stop_apiserver();
        if let Some(mut etcd) = self.etcd.take() {
            etcd.kill();
        }
        fs::remove_dir_all(self.dir.join("etcd")).expect("removes");
        self.start_etcd();
        self.start_apiserver();
        self.namespace("default");
    }

    /// A namespace with what controllers put there, for pods that want no token.
    #[track_caller]
    pub fn namespace(&self, name: &str) {
        let authority = fs::read_to_string(self.dir.join("ca.crt")).expect("reads");
        let objects = json!({"kind": "List", "apiVersion": "v1", "items": [
            {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": name}},
            {"kind": "ServiceAccount", "apiVersion": "v1", "metadata": {"name": "default", "namespace": name},
             "automountServiceAccountToken": false},
            {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": "kube-root-ca.crt", "namespace": name},
             "data": {"ca.crt": authority}},
        ]});
        // An API server makes its own namespaces some moments after it is ready.
        let file = self.cell.dir().join("namespace.json");
        fs::write(&file, objects.to_string()).expect("writes");
        eventually("the namespace", START, || self.kubectl.attempt(&["apply", "-f", &file.display().to_string()]));
    }

    /// A kubeconfig for the node, with a certificate of its own.
    pub fn node_kubeconfig(&self) -> PathBuf {
        let (certificate, key) = self.authority.client(&format!("system:node:{NODE}"), &["system:nodes"]);
        self.write_kubeconfig("node.conf", &by_certificate(&certificate, &key))
    }

    /// A certificate of the node that ended long ago, and its key, PEM.
    pub fn ended_certificate(&self) -> (String, String) {
        self.authority.ended_client(&format!("system:node:{NODE}"), &["system:nodes"])
    }

    /// A kubeconfig with the token of a bootstrapper, whom RBAC allows what it allows in a real cluster.
    #[track_caller]
    pub fn bootstrap_kubeconfig(&self) -> PathBuf {
        self.kubectl.run(&[
            "create",
            "clusterrolebinding",
            "bootstrappers",
            "--clusterrole=system:node-bootstrapper",
            "--group=system:bootstrappers",
        ]);
        self.write_kubeconfig("bootstrap.conf", &json!({ "token": BOOTSTRAP_TOKEN }))
    }

    fn write_kubeconfig(&self, file: &str, user: &Value) -> PathBuf {
        let path = self.dir.join(file);
        fs::write(&path, self.kubeconfig(user)).expect("writes");
        path
    }

    fn kubeconfig(&self, user: &Value) -> String {
        let authority = BASE64.encode(fs::read(self.dir.join("ca.crt")).expect("reads"));
        let server = format!("https://127.0.0.1:{PORT}");
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "tests",
            "clusters": [{"name": "tests", "cluster": {"server": server, "certificate-authority-data": authority}}],
            "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "tests"}}],
            "users": [{"name": "tests", "user": user}],
        })
        .to_string()
    }

    /// The authority's certificate.
    pub fn authority(&self) -> PathBuf {
        self.dir.join("ca.crt")
    }

    /// Approves a certificate signing request and signs it, as controllers do: good since `passed` and for
    /// `left`, seconds.
    #[track_caller]
    pub fn sign(&self, name: &str, passed: i64, left: i64) {
        self.kubectl.run(&["certificate", "approve", name]);
        let request = self.kubectl.json(&["get", "csr", name]);
        let text = |field: &str| request["spec"][field].as_str().expect("is text").to_owned();
        let file = |name: &str| self.dir.join(name);
        fs::write(file("request.csr"), BASE64.decode(text("request")).expect("is base64")).expect("writes");
        let serving = text("signerName").ends_with("kubelet-serving");
        let usage = if serving { "serverAuth" } else { "clientAuth" };
        fs::write(file("request.ext"), format!("extendedKeyUsage={usage}\n{}", names(&request))).expect("writes");
        fs::write(file("index.txt"), "").expect("writes");
        fs::create_dir_all(file("signed")).expect("makes a directory");
        let (index, signed) = (file("index.txt"), file("signed"));
        let config = format!(
            "[ca]\ndefault_ca=d\n[d]\ndatabase={}\nnew_certs_dir={}\ndefault_md=sha256\nrand_serial=yes\npolicy=p\n\
             [p]\norganizationName=optional\ncommonName=supplied\n",
            index.display(),
            signed.display()
        );
        fs::write(file("ca.conf"), config).expect("writes");
        let at = |seconds| {
            let at = jiff::Timestamp::now() + jiff::SignedDuration::from_secs(seconds);
            at.strftime("%Y%m%d%H%M%SZ").to_string()
        };
        let mut openssl = Command::new("openssl");
        openssl.args(["ca", "-batch", "-notext", "-startdate", &at(-passed), "-enddate", &at(left)]);
        for (flag, name) in [
            ("-config", "ca.conf"),
            ("-in", "request.csr"),
            ("-cert", "ca.crt"),
            ("-keyfile", "ca.key"),
            ("-extfile", "request.ext"),
        ] {
            openssl.arg(flag).arg(file(name));
        }
        let out = openssl.output().expect("openssl runs");
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        let mut signed = request;
        signed["status"]["certificate"] = BASE64.encode(&out.stdout).into();
        let target = format!("/apis/certificates.k8s.io/v1/certificatesigningrequests/{name}/status");
        self.kubectl.raw("replace", &target, &signed).expect("is signed");
    }

    /// Waits for a certificate signing request that nobody has signed yet.
    #[track_caller]
    pub fn pending_request(&self, signer: &str) -> String {
        eventually(&format!("a request to {signer}"), START, || {
            let all = self.kubectl.attempt_json(&["get", "csr"])?;
            let items = all["items"].as_array().into_iter().flatten();
            let mut open = items.filter(|item| item["spec"]["signerName"] == signer && item["status"] == json!({}));
            let name = open.next().and_then(|item| item["metadata"]["name"].as_str());
            name.map(str::to_owned).ok_or_else(|| all.to_string())
        })
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- end of the API server's log\n{}", tail(&self.log(), 30));
        }
    }
}

fn by_certificate(certificate: &str, key: &str) -> Value {
    json!({"client-certificate-data": BASE64.encode(certificate), "client-key-data": BASE64.encode(key)})
}

/// The names that a request is for, as an extension of the certificate.
fn names(request: &Value) -> String {
    let text = request["spec"]["request"].as_str().expect("is text");
    let mut openssl = Command::new("openssl");
    openssl.args(["req", "-noout", "-text"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = openssl.spawn().expect("openssl runs");
    let pem = BASE64.decode(text).expect("is base64");
    std::io::Write::write_all(&mut child.stdin.take().expect("is piped"), &pem).expect("writes");
    let out = child.wait_with_output().expect("ends");
    let shown = String::from_utf8_lossy(&out.stdout).into_owned();
    let line = shown.lines().skip_while(|line| !line.contains("Subject Alternative Name")).nth(1);
    let names = line.map(|line| line.trim().replace("IP Address:", "IP:"));
    names.map(|names| format!("subjectAltName={names}\n")).unwrap_or_default()
}

/// Of `Kubernetes v1.20.2-…`.
fn version(program: &Path) -> (u32, u32) {
    let out = Command::new(program).arg("--version").output().expect("kube-apiserver runs");
    let text = String::from_utf8_lossy(&out.stdout).into_owned();
    let numbers = text.split_once(" v").map(|(_, rest)| rest.split(['.', '-', '+']).map(str::parse::<u32>));
    let numbers: Vec<_> = numbers.into_iter().flatten().map_while(Result::ok).collect();
    match numbers[..] {
        [major, minor, ..] => (major, minor),
        _ => panic!("{}: this is no version: {text:?}", program.display()),
    }
}

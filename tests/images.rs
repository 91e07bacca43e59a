//! How pods get their images on a real containerd: from a real registry that wants a password, hangs, dies
//! or has had enough, and from archives where there is no registry at all.

mod support;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::Stdio;
use std::time::Duration;

use serde_json::{Value, json};
use support::node::{Node, SOON, pod};
use support::registry::PASSWORD;
use support::{BUSYBOX, Registry, archive, eventually};

/// A pod whose container sleeps, of an image and with more in its spec.
fn sleeper(name: &str, image: &str, more: &Value) -> String {
    let mut spec = json!({
        "terminationGracePeriodSeconds": 0,
        "containers": [{"name": "main", "image": image, "command": ["sleep", "100000"]}],
    });
    spec.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}).to_string()
}

fn waiting(pod: &Value) -> (String, String) {
    let waiting = &pod["status"]["containerStatuses"][0]["state"]["waiting"];
    let text = |key: &str| waiting[key].as_str().unwrap_or_default().to_owned();
    (text("reason"), text("message"))
}

/// Waits until the pod's container waits for this reason; the message.
#[track_caller]
fn waits(node: &Node, name: &str, reason: &str) -> String {
    let pod = node.agent.wait_pod(name, SOON, |pod| waiting(pod).0 == reason);
    waiting(&pod).1
}

/// A pod with an image that the node has starts while others wait for theirs.
#[track_caller]
fn a_neighbour_starts(node: &Node, name: &str) {
    node.write(name, &pod(name, "sleep 100000"));
    let running = |pod: &Value| pod["status"]["phase"] == "Running";
    node.agent.wait_pod(name, Duration::from_secs(20), running);
}

fn pull_secret(name: &str, config: &str) -> String {
    json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/dockerconfigjson",
        "metadata": {"name": name}, "stringData": {".dockerconfigjson": config},
    })
    .to_string()
}

fn with_secret(name: &str) -> Value {
    json!({"imagePullSecrets": [{"name": name}]})
}

#[test]
fn a_registry_that_wants_a_password() {
    let node = Node::start();
    let registry = Registry::start(&node.containerd, 5000, true);
    let image = registry.push(&node.containerd, "private/web:1", 1 << 10);
    node.write(
        "secrets",
        &format!(
            "{}\n---\n{}\n",
            pull_secret("good", &registry.docker_config(PASSWORD)),
            pull_secret("bad", &registry.docker_config("hunter2-hunter2")),
        ),
    );
    node.write("none", &sleeper("none", &image, &json!({})));
    node.write("bad", &sleeper("bad", &image, &with_secret("bad")));
    for name in ["none", "bad"] {
        waits(&node, name, "ErrImagePull");
        let message = waits(&node, name, "ImagePullBackOff");
        assert!(message.starts_with("Back-off pulling image"), "{message}");
        assert!(message.contains("401") || message.contains("authorization failed"), "{name}: {message}");
    }
    node.write("good", &sleeper("good", &image, &with_secret("good")));
    node.runs("good");
    let unknown = image.replace(":1", ":none");
    node.write("unknown", &sleeper("unknown", &unknown, &with_secret("good")));
    let message = waits(&node, "unknown", "ErrImagePull");
    assert!(message.contains("not found"), "{message}");
    // With the image there, a pod needs no credentials for it.
    node.remove("none");
    node.agent.wait_gone("none", SOON);
    node.write("there", &sleeper("there", &image, &json!({})));
    node.runs("there");
    a_neighbour_starts(&node, "neighbour");

    // The node's own credentials serve all pods; a file that comes later is seen at the next attempt.
    let other = registry.push(&node.containerd, "private/other:1", 1 << 10);
    node.write("node", &sleeper("node", &other, &json!({})));
    waits(&node, "node", "ErrImagePull");
    fs::write(node.agent.root().join("config.json"), registry.docker_config(PASSWORD)).expect("write the file");
    node.runs("node");

    let log = node.agent.log();
    assert!(!log.contains(PASSWORD) && !log.contains("hunter2"), "passwords are in the log");
    let pods = node.agent.get("/pods").expect("answers").1;
    assert!(!pods.contains(PASSWORD) && !pods.contains("hunter2"), "passwords are shown");
}

/// Says what it was asked, and answers with the password; one it has once refused.
const PROVIDER: &str = r#"#!/bin/sh
set -e
dir=$(dirname "$0")
cat >>"$dir/asked"
echo "$GREETING" >>"$dir/asked"
[ -e "$dir/ready" ] || { echo "not yet" >&2; exit 1; }
cat <<EOF
{"kind": "CredentialProviderResponse", "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
 "cacheKeyType": "Registry", "cacheDuration": "1h",
 "auth": {"127.0.0.1:5000": {"username": "edge", "password": "PASSWORD"}}}
EOF
"#;

#[test]
fn a_program_that_knows_passwords() {
    let dir = tempfile::tempdir().expect("makes a directory");
    let at = |name: &str| dir.path().join(name);
    let program = at("edge-provider");
    fs::write(&program, PROVIDER.replace("PASSWORD", PASSWORD)).expect("writes");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("may be run");
    let config = json!({
        "kind": "CredentialProviderConfig", "apiVersion": "kubelet.config.k8s.io/v1",
        "providers": [{
            "name": "edge-provider", "apiVersion": "credentialprovider.kubelet.k8s.io/v1",
            "matchImages": ["127.0.0.1:5000"], "defaultCacheDuration": "1m",
            "env": [{"name": "GREETING", "value": "hello provider"}],
        }],
    });
    fs::write(at("config.yaml"), config.to_string()).expect("writes");
    let flags = [
        format!("--image-credential-provider-config={}", at("config.yaml").display()),
        format!("--image-credential-provider-bin-dir={}", dir.path().display()),
    ];
    let node = Node::flagged(json!({}), &flags.each_ref().map(String::as_str));
    let registry = Registry::start(&node.containerd, 5000, true);
    let [first, second] =
        ["first", "second"].map(|name| registry.push(&node.containerd, &format!("{name}:1"), 1 << 10));

    // One that fails: the pull goes on without, and the pod waits.
    node.write("first", &sleeper("first", &first, &json!({})));
    let message = waits(&node, "first", "ImagePullBackOff");
    assert!(message.contains("401") || message.contains("authorization failed"), "{message}");
    a_neighbour_starts(&node, "neighbour");
    fs::write(at("ready"), "").expect("writes");
    node.runs("first");
    let asked = fs::read_to_string(at("asked")).expect("it was asked");
    assert!(asked.contains("CredentialProviderRequest") && asked.contains("hello provider"), "{asked}");
    // By the repository, as the kubelet asks.
    assert!(asked.contains(&format!("{:?}", first.trim_end_matches(":1"))), "{asked}");

    // What it said serves the whole registry, for as long as it said.
    node.write("second", &sleeper("second", &second, &json!({})));
    node.runs("second");
    assert_eq!(fs::read_to_string(at("asked")).expect("it was asked"), asked, "it was asked again");
    let log = node.agent.log();
    assert!(!log.contains(PASSWORD), "the password is in the log");
}

/// In front of a registry: while the file is there, it gives 2 MiB and is dead then.
const DIES: &str = r#"
import os, socket, sys, threading
left = 2 << 20
def pump(source, to, counted):
    global left
    try:
        while data := source.recv(65536):
            if counted and os.path.exists(sys.argv[1]):
                left -= len(data)
                if left < 0:
                    with open(sys.argv[1], "a") as told: print("died", file=told)
                    break
            to.sendall(data)
    except OSError: pass
    for end in (source, to):
        try: end.shutdown(socket.SHUT_RDWR)
        except OSError: pass
server = socket.create_server(("127.0.0.1", 5003))
while True:
    client = server.accept()[0]
    if left < 0 and os.path.exists(sys.argv[1]):
        client.close()
        continue
    behind = socket.create_connection(("127.0.0.1", 5000))
    threading.Thread(target=pump, args=(client, behind, False), daemon=True).start()
    threading.Thread(target=pump, args=(behind, client, True), daemon=True).start()
"#;

#[test]
fn a_slow_or_dead_registry_delays_nobody_else() {
    let node = Node::configured(json!({"serializeImagePulls": false}));
    let mut slow = Registry::start(&node.containerd, 5000, false);
    let cell = node.containerd.cell();
    let other = Registry::start(&node.containerd, 5001, false);
    let held = slow.push(&node.containerd, "held:1", 1 << 20);
    let torn = slow.push(&node.containerd, "torn:1", 64 << 20);
    let quick = other.push(&node.containerd, "quick:1", 1 << 10);

    // It takes connections and answers nothing.
    slow.process().pause();
    node.write("held", &sleeper("held", &held, &json!({})));
    waits(&node, "held", "ContainerCreating");
    node.write("quick", &sleeper("quick", &quick, &json!({})));
    a_neighbour_starts(&node, "local");
    node.runs("quick");
    slow.process().resume();
    node.runs("held");

    // It dies in the middle of a pull, and comes back.
    let dead = cell.dir().join("dead");
    fs::write(&dead, "").expect("write the file");
    let mut command = cell.command("python3");
    command.args(["-c", DIES]).arg(&dead).stdin(Stdio::null());
    let _relay = cell.spawn("the relay", command);
    eventually("the relay", SOON, || node.containerd.http_get("http://127.0.0.1:5003/v2/").map(drop));
    node.write("torn", &sleeper("torn", &torn.replace(":5000", ":5003"), &json!({})));
    waits(&node, "torn", "ErrImagePull");
    let told = fs::read_to_string(&dead).expect("read the file");
    assert!(told.contains("died"), "the pull didn't get to its middle");
    a_neighbour_starts(&node, "meanwhile");
    fs::remove_file(dead).expect("remove the file");
    node.runs("torn");
}

/// A registry that has had enough of this node: 429 to everything, with a count of the requests.
const ENOUGH: &str = r#"
import http.server, sys
class Enough(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        print(self.path, flush=True)
        body = b'{"errors": [{"code": "TOOMANYREQUESTS", "message": "enough"}]}'
        self.send_response(429)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    do_HEAD = do_GET
    def log_message(self, *args): pass
http.server.ThreadingHTTPServer(("127.0.0.1", 5002), Enough).serve_forever()
"#;

#[test]
fn a_registry_that_has_had_enough_is_asked_less_and_less() {
    let node = Node::start();
    let cell = node.containerd.cell();
    let asked = cell.dir().join("asked");
    let mut command = cell.command("python3");
    command.args(["-c", ENOUGH]).stdin(Stdio::null()).stdout(fs::File::create(&asked).expect("make the file"));
    let _server = cell.spawn("the registry", command);
    eventually("the registry", SOON, || node.containerd.http_get("http://127.0.0.1:5002/v2/").map(drop));

    node.write("limited", &sleeper("limited", "127.0.0.1:5002/limited:1", &json!({})));
    let message = waits(&node, "limited", "ErrImagePull");
    assert!(message.contains("429"), "{message}");
    waits(&node, "limited", "ImagePullBackOff");
    a_neighbour_starts(&node, "neighbour");
    // The second attempt comes after 10 s, the third 20 s later.
    let attempts = || {
        let log = node.agent.log();
        log.lines().filter(|line| line.contains("Pulling image \"127.0.0.1:5002/limited:1\"")).count()
    };
    eventually("the second attempt", SOON, || if attempts() >= 2 { Ok(()) } else { Err("one".to_owned()) });
    waits(&node, "limited", "ImagePullBackOff");
    assert_eq!(attempts(), 2);
}

#[test]
fn archives_bring_images_where_there_is_no_registry() {
    let containerd = support::Containerd::start();
    let archives = containerd.cell().dir().join("archives");
    fs::create_dir(&archives).expect("make the directory");
    let mut agent = support::Agent::on_containerd(&containerd);
    agent.flags(&["--image-archive-dir", archives.to_str().expect("a plain path")]);
    agent.start();
    let node = Node { agent, containerd };

    // The archive comes after the pod, as somebody copies it to the node by hand.
    let image = "registry.invalid/app:1";
    node.write("app", &sleeper("app", image, &json!({})));
    waits(&node, "app", "ErrImagePull");
    let made = archive(node.containerd.cell().dir(), image, 1 << 10);
    let put = |name: &str, program: &str| {
        let out = std::process::Command::new(program).arg("-c").arg(&made).output().expect("compresses");
        assert!(out.status.success(), "{program}: {}", String::from_utf8_lossy(&out.stderr));
        fs::write(archives.join("part"), out.stdout).expect("write the archive");
        fs::rename(archives.join("part"), archives.join(name)).expect("move the archive");
    };
    put("app.tar.gz", "gzip");
    node.runs("app");

    // Once it was imported, it isn't again, also not by another agent, unless the image is gone.
    let imports = || node.agent.log().lines().filter(|line| line.contains("app.tar.gz: imported")).count();
    let before = imports();
    node.remove("app");
    node.agent.wait_gone("app", SOON);
    node.write("again", &sleeper("again", image, &json!({})));
    node.runs("again");
    assert_eq!(imports(), before, "{}", node.agent.log());
    node.remove("again");
    node.agent.wait_gone("again", SOON);
    node.containerd.ctr(&["images", "rm", "--sync", image]);
    node.write("third", &sleeper("third", image, &json!({})));
    node.runs("third");

    // One that is damaged is told, and is in nobody's way.
    let mut damaged = fs::read(archives.join("app.tar.gz")).expect("read the archive");
    damaged.truncate(damaged.len() / 2);
    fs::write(archives.join("part"), damaged).expect("write the archive");
    fs::rename(archives.join("part"), archives.join("damaged.tar.gz")).expect("move the archive");
    node.told("damaged.tar.gz");
    a_neighbour_starts(&node, "neighbour");
}

#[test]
fn names_and_policies() {
    let node = Node::start();
    let of = |name: &str, image: &str, policy: &str| {
        let container =
            json!({"name": "main", "image": image, "imagePullPolicy": policy, "command": ["sleep", "100000"]});
        sleeper(name, image, &json!({"containers": [container]}))
    };
    node.write("never", &of("never", "cleat.local/none:1", "Never"));
    node.write("invalid", &of("invalid", "Not/A/Name:1", "IfNotPresent"));
    node.write("present", &of("present", BUSYBOX, "IfNotPresent"));
    let message = waits(&node, "never", "ErrImageNeverPull");
    assert!(message.contains("Never"), "{message}");
    let message = waits(&node, "invalid", "InvalidImageName");
    assert!(message.contains("Not/A/Name:1"), "{message}");
    node.runs("present");
    // It comes from elsewhere, and is used.
    node.containerd.ctr(&["images", "tag", BUSYBOX, "cleat.local/none:1"]);
    node.runs("never");
}

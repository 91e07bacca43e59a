//! The status page, in Debian's Chromium at the width of a phone, driven by WebDriver.
#![cfg(feature = "tls")]

mod support;

use std::fs;
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use serde_json::{Value, json};
use support::http::Client;
use support::node::{Node, SOON, pod};
use support::{Cell, NODE, Process, eventually};

const DRIVER_PORT: u16 = 9515;

/// A browser in the cell of a node.
struct Browser {
    cell: Arc<Cell>,
    /// Ends with the test, and the browser with its cell.
    _driver: Process,
    session: String,
}

impl Browser {
    fn start(cell: &Arc<Cell>) -> Browser {
        support::cell::require(&["chromedriver", "chromium"]);
        let mut command = cell.command("env");
        let home = cell.dir().join("browser");
        fs::create_dir_all(&home).expect("makes");
        command.arg(format!("HOME={}", home.display())).arg("chromedriver").arg(format!("--port={DRIVER_PORT}"));
        let log = fs::File::create(home.join("log")).expect("makes");
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("clones")).stderr(log);
        let driver = cell.spawn("chromedriver", command);
        let mut browser = Browser { cell: cell.clone(), _driver: driver, session: String::new() };
        let capabilities = json!({"capabilities": {"alwaysMatch": {
            "browserName": "chrome", "acceptInsecureCerts": true,
            "goog:loggingPrefs": {"browser": "ALL"},
            "goog:chromeOptions": {
                "args": ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--remote-debugging-pipe",
                         format!("--user-data-dir={}", home.join("profile").display())],
                "mobileEmulation": {"deviceMetrics": {"width": 390, "height": 844, "pixelRatio": 2.0, "touch": true}},
            },
        }}});
        browser.session = eventually("a browser", SOON, || {
            let told = || fs::read_to_string(home.join("log")).unwrap_or_default();
            let answer = browser.ask("POST", "/session", &capabilities).map_err(|e| format!("{e}\n{}", told()))?;
            Ok(answer["sessionId"].as_str().ok_or("there is no session")?.to_owned())
        });
        browser
    }

    /// What WebDriver answers.
    fn ask(&self, method: &str, path: &str, body: &Value) -> Result<Value, String> {
        let talk = || -> io::Result<String> {
            let mut stream = self.cell.connect(DRIVER_PORT)?;
            // A browser takes its time to start.
            stream.set_read_timeout(Some(Duration::from_secs(120)))?;
            let body = if method == "POST" { body.to_string() } else { String::new() };
            write!(
                stream,
                "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{DRIVER_PORT}\r\nConnection: close\r\n\
                 Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
                body.len()
            )?;
            // It doesn't always end the connection.
            let mut reader = BufReader::new(stream);
            let (mut line, mut length) = (String::new(), 0);
            while reader.read_line(&mut line)? > 2 {
                if let Some(value) = line.to_ascii_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().map_err(io::Error::other)?;
                }
                line.clear();
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body)?;
            Ok(String::from_utf8_lossy(&body).into_owned())
        };
        let body = talk().map_err(|e| format!("{path}: {e}"))?;
        let value: Value = serde_json::from_str(&body).map_err(|e| format!("{path}: {e}: {body}"))?;
        match value["value"]["error"].as_str() {
            Some(error) => Err(format!("{path}: {error}: {}", value["value"]["message"])),
            None => Ok(value["value"].clone()),
        }
    }

    #[track_caller]
    fn command(&self, name: &str, body: Value) -> Value {
        self.attempt(name, &body).unwrap_or_else(|e| panic!("{e}"))
    }

    fn attempt(&self, name: &str, body: &Value) -> Result<Value, String> {
        self.ask("POST", &format!("/session/{}/{name}", self.session), body)
    }

    #[track_caller]
    fn open(&self, address: &str) {
        self.command("url", json!({"url": address}));
    }

    /// What a script in the page returns.
    #[track_caller]
    fn script(&self, script: &str) -> Value {
        self.command("execute/sync", json!({"script": script, "args": []}))
    }

    /// Waits until a script returns this. While the page loads it may fail.
    #[track_caller]
    fn shows(&self, script: &str, want: impl Into<Value>) {
        let want = want.into();
        let run = |script: &str| self.attempt("execute/sync", &json!({"script": script, "args": []}));
        eventually(&format!("{script} to be {want}"), SOON, || match run(script) {
            Ok(value) if value == want => Ok(()),
            value => Err(format!("{value:?}, and the page says {:?}", run("return document.body.innerText"))),
        });
    }

    /// Complaints of the browser's own, of the content policy too.
    #[track_caller]
    fn complaints(&self) -> Vec<String> {
        let log = self.command("se/log", json!({"type": "browser"}));
        let severe = log.as_array().into_iter().flatten().filter(|line| line["level"] == "SEVERE");
        severe.map(|line| line["message"].to_string()).collect()
    }

    #[track_caller]
    fn screenshot(&self, path: &Path) {
        let image = self.ask("GET", &format!("/session/{}/screenshot", self.session), &Value::Null);
        let image = image.unwrap_or_else(|e| panic!("{e}"));
        let bytes = base64::engine::general_purpose::STANDARD.decode(image.as_str().expect("is text"));
        fs::write(path, bytes.expect("is base64")).expect("writes");
    }
}

fn address(node: &Node) -> String {
    let out =
        Command::new(env!("CARGO_BIN_EXE_cleat")).args(["dashboard", "--root-dir"]).arg(node.agent.root()).output();
    let out = out.expect("runs");
    assert!(out.status.success(), "{out:?}");
    String::from_utf8_lossy(&out.stdout).trim_end().to_owned()
}

fn status_of(name: &str) -> String {
    format!("return document.querySelector('[data-pod={name}-{NODE}]')?.dataset.status ?? null")
}

#[test]
fn a_pod_appears_fails_and_recovers() {
    let mut node = Node::start();
    let browser = Browser::start(node.containerd.cell());
    let address = address(&node);
    assert!(address.starts_with("https://127.0.0.1:10270/#token="), "{address}");

    // Without the token there is nothing to be seen.
    browser.open(address.split('#').next().expect("has a beginning"));
    browser.shows("return document.getElementById('note').hidden", false);
    browser.open(&address);
    browser.shows("return document.getElementById('live').textContent", "live");
    browser.shows("return document.getElementById('node').textContent", NODE);
    browser.shows("return document.getElementById('ready').textContent", "Ready");
    browser.shows("return document.getElementById('pods').innerText", "No pods.");
    assert_eq!(browser.script("return location.hash"), "", "the token is gone from the address bar");
    // A page that is loaded anew has no mark.
    browser.script("window.mark = 'the same'");

    let shared = node.shared("state");
    let script = "if [ -e /state/mended ]; then sleep 1000; fi; sleep 1; echo broken; exit 3";
    let volume = format!("volumes: [{{name: state, hostPath: {{path: {}}}}}]", shared.display());
    let manifest = pod("web", script)
        .replace("spec:\n", &format!("spec:\n  {volume}\n"))
        .replace("    image:", "    volumeMounts: [{name: state, mountPath: /state}]\n    resources: {requests: {cpu: 100m, memory: 64Mi}}\n    image:");
    node.write("web", &manifest);
    let long = "a-pod-with-a-name-that-is-far-longer-than-a-telephone-is-wide";
    node.write("long", &pod(long, "sleep 1000"));
    browser.shows(&status_of(long), "Running");
    browser.shows(&status_of("web"), "CrashLoopBackOff");
    let text = browser.script("return document.getElementById('pods').innerText");
    assert!(text.as_str().is_some_and(|t| t.contains("with 3 (Error)")), "it tells why: {text}");
    browser.shows("return document.getElementById('events').innerText.includes('BackOff')", true);
    browser.shows("return document.getElementById('resources').innerText.includes('64 MiB of')", true);
    browser.shows("return document.getElementById('resources').innerText.includes('Memory used')", true);
    let screenshot = Path::new(env!("CARGO_TARGET_TMPDIR")).join("page.png");
    browser.screenshot(&screenshot);
    browser.shows("return innerWidth", 390);
    browser.shows("return document.documentElement.scrollWidth <= innerWidth", true);
    let clipped = "return [...document.querySelectorAll('.row, .why, li, dd')].filter(e => e.clientHeight < 12 || \
                   e.scrollHeight > e.clientHeight + 2).map(e => e.innerText)";
    browser.shows(clipped, json!([]));
    assert_eq!(browser.complaints(), [""; 0]);

    fs::write(shared.join("mended"), "").expect("writes");
    browser.shows(&status_of("web"), "Running");
    node.remove("long");
    browser.shows(&status_of(long), Value::Null);

    // Also over a restart of the agent.
    node.agent.stop();
    browser.shows("return document.getElementById('live').textContent", "connecting");
    node.agent.start();
    browser.shows("return document.getElementById('live').textContent", "live");
    node.write("new", &pod("new", "sleep 1000"));
    browser.shows(&status_of("new"), "Running");
    assert_eq!(browser.script("return window.mark"), "the same");

    // What a pod says is text, whatever it looks like.
    node.remove("web");
    let markup = "echo '<img src=x onerror=\\\"window.mark=1\\\">' > /dev/termination-log; exit 1";
    node.write("markup", &pod("markup", markup).replace("spec:\n", "spec:\n  restartPolicy: Never\n"));
    browser.shows("return document.getElementById('pods').innerText.includes('<img src=x')", true);
    assert_eq!(browser.script("return window.mark"), "the same");

    browser.open("https://127.0.0.1:10270/#token=wrong");
    browser.shows("return document.getElementById('note').innerText.includes('not accepted')", true);
}

#[test]
fn what_the_token_of_the_page_may_see() {
    let node = Node::start();
    let (cell, certificate) = (node.containerd.cell(), node.agent.root().join("pki/kubelet.crt"));
    let nobody = Client::tls(cell, 10270, &certificate, None);
    let address = address(&node);
    let page = nobody.clone().with_token(address.split_once("#token=").expect("has one").1);
    for path in ["/api/v1/pods", "/api/v1/nodes", "/api/v1/events", "/api/v1/pods?watch=1&timeoutSeconds=1"] {
        assert_eq!((page.get(path).status, nobody.get(path).status), (200, 401), "{path}");
    }
    for (method, path) in [
        ("GET", "/api/v1/secrets"),
        ("GET", "/api/v1/configmaps"),
        ("GET", "/api/v1/namespaces/default/secrets/s"),
        ("GET", "/api/v1/namespaces/default/pods/web/log"),
        ("POST", "/api/v1/namespaces/default/pods/web/exec?command=id"),
        ("DELETE", "/api/v1/namespaces/default/pods/web"),
        ("POST", "/cleat/v1/namespaces/default/pods/web/restart"),
        ("GET", "/cleat/v1/images"),
    ] {
        assert_eq!(page.send(method, path).expect("answers").status, 403, "{method} {path}");
    }
    // The files need no credentials, hold no data, and are for loopback names.
    let open = |headers: &str| nobody.open("GET", "/", &format!("Accept: text/html\r\nConnection: close\r\n{headers}"));
    let opened = open("").expect("answers");
    let policy = opened.headers.iter().find(|(name, _)| name == "content-security-policy");
    assert!(
        opened.status == 200 && policy.is_some_and(|(_, p)| p.starts_with("default-src 'none'; script-src 'self'"))
    );
    let foreign = page.open("GET", "/api/v1/pods", "Origin: https://evil.example\r\nConnection: close\r\n");
    assert_eq!(foreign.expect("answers").status, 403);
    let rebound = page.raw(b"GET / HTTP/1.1\r\nHost: evil.example\r\nAccept: text/html\r\nConnection: close\r\n\r\n");
    assert!(rebound.expect("answers").starts_with("HTTP/1.1 403 "));
    // Only root may read the token.
    let mode = fs::metadata(node.agent.root().join("page-token.csv")).expect("is there").permissions();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o600);
}

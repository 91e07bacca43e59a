//! Our own commands, over the agent's socket, against pods on a real runtime.

mod support;

use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::fd::OwnedFd;
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use rustix::termios::{LocalModes, Winsize, tcgetattr, tcsetwinsize};
use support::node::{Node, SOON, pod};
use support::{NODE, eventually};

/// An agent, and the program that asks it.
struct Cli {
    node: Node,
}

impl Cli {
    fn start() -> Cli {
        Cli { node: Node::start() }
    }

    fn arguments(&self, args: &[&str]) -> Vec<String> {
        let socket = self.node.agent.root().join("api.sock").display().to_string();
        let (command, rest) = args.split_first().expect("there is a command");
        let mut all = vec![(*command).to_owned(), "--socket".to_owned(), socket];
        all.extend(rest.iter().map(|arg| (*arg).to_owned()));
        all
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = self.node.containerd.cell().command(env!("CARGO_BIN_EXE_cleat"));
        command.args(self.arguments(args)).stdin(Stdio::null());
        command
    }

    fn output(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("runs")
    }

    /// What it prints; it must not fail.
    #[track_caller]
    fn run(&self, args: &[&str]) -> String {
        let out = self.output(args);
        assert!(out.status.success(), "{args:?}: {out:?}");
        String::from_utf8_lossy(&out.stdout).into_owned()
    }

    /// What it complains of; it must fail.
    #[track_caller]
    fn refused(&self, args: &[&str]) -> String {
        let out = self.output(args);
        assert_eq!(out.status.code(), Some(1), "{args:?}: {out:?}");
        String::from_utf8_lossy(&out.stderr).into_owned()
    }

    /// Standard output and error, when it is given this to read.
    #[track_caller]
    fn fed(&self, args: &[&str], input: &[u8]) -> Output {
        let mut command = self.command(args);
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("runs");
        let mut stdin = child.stdin.take().expect("is piped");
        let input = input.to_vec();
        let writer = std::thread::spawn(move || stdin.write_all(&input));
        let out = child.wait_with_output().expect("ends");
        // One that ended early has not read all.
        let _ = writer.join().expect("is done");
        out
    }
}

/// The command in a terminal of its own.
struct InTerminal {
    child: Child,
    master: File,
    slave: File,
    shown: Arc<Mutex<String>>,
}

impl InTerminal {
    fn start(cli: &Cli, args: &[&str]) -> InTerminal {
        let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal");
        grantpt(&master).expect("is granted");
        unlockpt(&master).expect("is unlocked");
        let name = ptsname(&master, Vec::new()).expect("has a name").into_string().expect("is text");
        let open = || OwnedFd::from(File::options().read(true).write(true).open(&name).expect("opens"));
        let slave = File::from(open());
        let mut command = cli.node.containerd.cell().command("setsid");
        // Tells its process before it is that of the program.
        command.args(["-c", "-w", "sh", "-c", "echo process $$; exec \"$@\"", "sh", env!("CARGO_BIN_EXE_cleat")]);
        command.args(cli.arguments(args)).stdin(open()).stdout(open()).stderr(open());
        let child = command.spawn().expect("runs");
        let master = File::from(master);
        let shown = Arc::new(Mutex::new(String::new()));
        let (mut reader, all) = (master.try_clone().expect("clones"), shown.clone());
        std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(n @ 1..) = reader.read(&mut bytes) {
                all.lock().expect("is whole").push_str(&String::from_utf8_lossy(&bytes[..n]));
            }
        });
        InTerminal { child, master, slave, shown }
    }

    #[track_caller]
    fn shows(&self, text: &str) -> String {
        eventually(&format!("{text:?} on the terminal"), SOON, || {
            let shown = self.shown.lock().expect("is whole").clone();
            if shown.contains(text) { Ok(shown) } else { Err(shown) }
        })
    }

    fn types(&mut self, text: &str) {
        self.master.write_all(text.as_bytes()).expect("types");
    }

    fn resize(&self, columns: u16, rows: u16) {
        let size = Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 };
        tcsetwinsize(&self.slave, size).expect("resizes");
    }

    fn is_raw(&self) -> bool {
        !tcgetattr(&self.slave).expect("is a terminal").local_modes.contains(LocalModes::ICANON)
    }

    #[track_caller]
    fn ends(mut self) -> Option<i32> {
        let mut code = None;
        eventually("the end of the command", SOON, || match self.child.try_wait().expect("can be waited for") {
            Some(status) => {
                code = status.code();
                Ok(())
            }
            None => Err(self.shown.lock().expect("is whole").clone()),
        });
        assert!(!self.is_raw(), "the terminal is not given back");
        code
    }
}

#[test]
fn commands_in_containers() {
    let cli = Cli::start();
    cli.node.write("web", &pod("web", "sleep 1000"));
    cli.node.runs("web");
    assert_eq!(cli.run(&["exec", "web", "--", "echo", "a  b"]), "a  b\n");
    assert_eq!(cli.run(&["exec", &format!("pod/web-{NODE}"), "-c", "main", "--", "echo", "-n", "x"]), "x");
    let out = cli.output(&["exec", "web", "--", "sh", "-c", "echo out; echo err >&2; exit 7"]);
    let texts = [&out.stdout, &out.stderr].map(|bytes| String::from_utf8_lossy(bytes).into_owned());
    assert_eq!((texts, out.status.code()), (["out\n".to_owned(), "err\n".to_owned()], Some(7)));

    // The end of the input is told, and nothing is lost on the way.
    let much: Vec<u8> = (0..2_000_000u32).map(|n| (n % 251) as u8).collect();
    let out = cli.fed(&["exec", "-i", "web", "--", "cat"], &much);
    assert!(out.status.success() && out.stdout == much, "{} bytes, {:?}", out.stdout.len(), out.status);
    // One that doesn't read its input ends all the same.
    let out = cli.fed(&["exec", "-i", "web", "--", "true"], &much);
    assert!(out.status.success(), "{out:?}");
    // Without -i there is no input.
    let out = cli.fed(&["exec", "web", "--", "wc", "-c"], b"12345");
    assert_eq!(String::from_utf8_lossy(&out.stdout), "0\n");

    for (args, want) in [
        (&["exec", "none", "--", "true"][..], "pods \"none\" not found"),
        (&["exec", "web", "-c", "other", "--", "true"], "other"),
        (&["exec", "web", "--", "/no/such/program"], "/no/such/program"),
    ] {
        let told = cli.refused(args);
        assert!(told.starts_with("cleat: ") && told.contains(want), "{args:?}: {told}");
    }
    assert_eq!(cli.output(&["exec", "web"]).status.code(), Some(2));
}

#[test]
fn terminals() {
    let cli = Cli::start();
    cli.node.write("web", &pod("web", "sleep 1000"));
    cli.node.runs("web");
    let mut terminal =
        InTerminal::start(&cli, &["exec", "-it", "web", "--", "sh", "-c", "echo $((40+2)) ready; exec sh"]);
    terminal.shows("42 ready");
    assert!(terminal.is_raw());
    terminal.resize(91, 37);
    // The runtime sets the size when it hears of it.
    eventually("the size of the terminal", SOON, || {
        terminal.types("stty size\n");
        let shown = terminal.shown.lock().expect("is whole").clone();
        if shown.contains("37 91") { Ok(()) } else { Err(shown) }
    });
    // Ctrl-C is the container's.
    terminal.types("sleep 1000 || echo interrupted $((20+3))\n");
    eventually("the interrupt", SOON, || {
        terminal.types("\x03");
        let shown = terminal.shown.lock().expect("is whole").clone();
        if shown.contains("interrupted 23") || shown.contains("^C") { Ok(()) } else { Err(shown) }
    });
    terminal.types("exit 9\n");
    assert_eq!(terminal.ends(), Some(9));

    // Ended by a signal, it gives the terminal back.
    let terminal = InTerminal::start(&cli, &["exec", "-it", "web", "--", "sh", "-c", "echo $((40+2)) ready; exec sh"]);
    let shown = terminal.shows("42 ready");
    let process = shown.lines().find_map(|line| line.trim().strip_prefix("process ")).expect("it told").to_owned();
    cli.node.containerd.cell().run("kill", &["-TERM", &process]).expect("is sent");
    assert_eq!(terminal.ends(), Some(128 + 15));
}

#[test]
fn joining_main_processes() {
    let cli = Cli::start();
    let talks = pod("talks", "i=0; while true; do echo line $i; i=$((i+1)); sleep 0.2; done");
    cli.node.write("talks", &talks);
    let hears = pod("hears", "while read line; do echo heard $line; done; echo over; sleep 1000")
        .replace("    image:", "    stdin: true\n    image:");
    cli.node.write("hears", &hears);
    let shell = pod("shell", "exec sh").replace("    image:", "    stdin: true\n    tty: true\n    image:");
    cli.node.write("shell", &shell);
    for name in ["talks", "hears", "shell"] {
        cli.node.runs(name);
    }
    let mut attach = cli.command(&["attach", "talks"]).stdout(Stdio::piped()).spawn().expect("runs");
    let mut lines = BufReader::new(attach.stdout.take().expect("is piped")).lines();
    assert!(lines.next().expect("a line").expect("is text").starts_with("line "));
    attach.kill().expect("ends");
    attach.wait().expect("has ended");

    let mut attach = cli.command(&["attach", "-i", "hears"]);
    let mut attach = attach.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("runs");
    let mut stdin = attach.stdin.take().expect("is piped");
    let mut said = BufReader::new(attach.stdout.take().expect("is piped"));
    let mut line = String::new();
    stdin.write_all(b"one\n").expect("says");
    said.read_line(&mut line).expect("answers");
    assert_eq!(line, "heard one\n");
    attach.kill().expect("ends");
    attach.wait().expect("has ended");

    let mut terminal = InTerminal::start(&cli, &["attach", "-it", "shell"]);
    eventually("an answer of the shell", SOON, || {
        terminal.types("echo $((40+2)) here\n");
        let shown = terminal.shown.lock().expect("is whole").clone();
        if shown.contains("42 here") { Ok(()) } else { Err(shown) }
    });
    assert!(terminal.is_raw());
    // The shell ends, and with it what is attached.
    terminal.types("exit\n");
    assert_eq!(terminal.ends(), Some(0));
    let missing = cli.refused(&["attach", "none"]);
    assert!(missing.contains("pods \"none\" not found"), "{missing}");
}

#[test]
fn ports_of_pods() {
    let cli = Cli::start();
    let page = "mkdir /w; echo served > /w/index.html; httpd -f -p 8080 -h /w";
    cli.node.write("web", &pod("web", page));
    cli.node.runs("web");
    let mut forward = cli.command(&["port-forward", "web", "18080:8080", ":8081"]);
    let mut forward = forward.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("runs");
    let mut said = BufReader::new(forward.stdout.take().expect("is piped")).lines();
    let mut line = || said.next().expect("says where").expect("is text");
    assert_eq!(line(), "Forwarding from 127.0.0.1:18080 -> 8080");
    let closed = line();
    let closed = closed.strip_prefix("Forwarding from 127.0.0.1:").and_then(|rest| rest.split(' ').next());
    let closed: u16 = closed.and_then(|port| port.parse().ok()).expect("a port");
    let ask = |port: u16| {
        let mut stream = cli.node.containerd.cell().connect(port).expect("connects");
        let _ = stream.write_all(b"GET / HTTP/1.0\r\n\r\n");
        let mut text = String::new();
        let _ = stream.read_to_string(&mut text);
        text
    };
    // The server in the pod is started a moment after its container.
    eventually("the page", SOON, || match ask(18080) {
        text if text.ends_with("served\n") => Ok(()),
        text => Err(text),
    });
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| assert!(ask(18080).ends_with("served\n")));
        }
    });
    // Nobody listens there: that is told, and the others go on.
    assert_eq!(ask(closed), "");
    let mut complaints = BufReader::new(forward.stderr.take().expect("is piped")).lines();
    loop {
        let line = complaints.next().expect("complains").expect("is text");
        if line.starts_with("cleat: port 8081: ") {
            break;
        }
    }
    assert!(ask(18080).ends_with("served\n"));
    forward.kill().expect("ends");
    forward.wait().expect("has ended");
    assert!(cli.refused(&["port-forward", "none", "80"]).contains("pods \"none\" not found"));
    assert_eq!(cli.output(&["port-forward", "web"]).status.code(), Some(2));
}

#[test]
fn files_of_pods() {
    let cli = Cli::start();
    let script = "mkdir -p /d/sub /e; echo one > /d/one; echo -n > /d/empty; ln -s /etc /d/link; chmod 755 /d/one; \
                  head -c 3000000 /dev/urandom > /d/sub/big; md5sum < /d/sub/big; sleep 1000";
    cli.node.write("web", &pod("web", script));
    let web = cli.node.runs("web");
    eventually("the sum", SOON, || match cli.node.log(&web, "main", 0).is_empty() {
        true => Err("nothing is said yet".to_owned()),
        false => Ok(()),
    });
    let sum = cli.node.log(&web, "main", 0);
    let dir = cli.node.containerd.cell().dir().join("files");
    std::fs::create_dir(&dir).expect("makes");
    let here = |name: &str| dir.join(name).display().to_string();
    let read = |name: &str| std::fs::read(dir.join(name)).unwrap_or_else(|e| panic!("{name}: {e}"));

    cli.run(&["cp", "web:/d/one", &here("copy")]);
    assert_eq!(read("copy"), b"one\n");
    let out = cli.output(&["cp", "web:/d", &here("tree")]);
    let told = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(out.status.success() && told.contains("left out") && told.contains("d/link"), "{out:?}");
    assert_eq!((read("tree/one"), read("tree/empty")), (b"one\n".to_vec(), vec![]));
    assert!(!dir.join("tree/link").exists());
    let got = Command::new("md5sum").stdin(File::open(dir.join("tree/sub/big")).expect("opens")).output();
    assert_eq!(String::from_utf8_lossy(&got.expect("runs").stdout).trim_end(), sum);
    // Into a directory that is there.
    cli.run(&["cp", &format!("default/web-{NODE}:/d/one"), &here("tree/sub")]);
    assert_eq!(read("tree/sub/one"), b"one\n");

    // And back: into a directory that is there, under its name, and under another.
    cli.run(&["cp", &here("tree"), "web:/e"]);
    cli.run(&["cp", &here("tree"), "web:/e/other", "-c", "main"]);
    for tree in ["tree", "other"] {
        let check = format!("cd /e/{tree} && cat one && md5sum < sub/big && test -x one && test -f empty");
        assert_eq!(cli.run(&["exec", "web", "--", "sh", "-c", &check]), format!("one\n{sum}\n"), "{tree}");
    }
    for (args, want) in [
        (["cp", "web:/none", &here("x")], "none"),
        (["cp", &here("none"), "web:/e"], "No such file"),
        (["cp", &here("copy"), "web:/no/such/place"], "tar"),
        (["cp", "none:/d", &here("x")], "pods \"none\" not found"),
    ] {
        let told = cli.refused(&args);
        assert!(told.contains(want), "{args:?}: {told}");
    }
    assert!(!dir.join("x").exists());
    assert_eq!(cli.output(&["cp", &here("a"), &here("b")]).status.code(), Some(2));
}

#[test]
fn restarts() {
    let cli = Cli::start();
    // Shared with the test, so that the container can be mended.
    let shared = cli.node.shared("state");
    let script = "trap 'echo told to end; exit 0' TERM; if [ -e /state/mended ]; then echo started; while true; do sleep 0.1; done; fi; exit 1";
    let volume = format!("volumes: [{{name: state, hostPath: {{path: {}}}}}]", shared.display());
    let manifest = pod("web", script)
        .replace("spec:\n", &format!("spec:\n  {volume}\n"))
        .replace("    image:", "    volumeMounts: [{name: state, mountPath: /state}]\n    image:");
    cli.node.write("web", &manifest);
    cli.node.waits("web", "CrashLoopBackOff");
    // Whoever asks has mended it: it doesn't wait any longer, of which the back-off would tell.
    std::fs::write(shared.join("mended"), "").expect("writes");
    assert_eq!(cli.run(&["restart", "web"]), "pod/web: container main is restarted\n");
    let before = cli.node.runs("web");
    let count = |pod: &serde_json::Value| pod["status"]["containerStatuses"][0]["restartCount"].as_u64();
    eventually("the new container", SOON, || {
        let text = cli.run(&["logs", "web"]);
        if text == "started\n" { Ok(()) } else { Err(text) }
    });
    // One that runs is told to end, and comes back at once.
    assert_eq!(cli.run(&["restart", "pod/web", "-c", "main"]), "pod/web: container main is restarted\n");
    let after = cli.node.runs("web");
    assert_eq!(count(&after), count(&before).map(|n| n + 1));
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    eventually("what it said before", SOON, || {
        let text = cli.run(&["logs", "-p", "web"]);
        if text == "started\ntold to end\n" { Ok(()) } else { Err(text) }
    });
    let events = cli.run(&["events"]);
    assert!(events.contains("Container main is stopped on request, will be restarted"), "{events}");

    // Also one that would not be started again by itself; but not what has ended.
    let never = pod("once", "sleep 1000").replace("spec:\n", "spec:\n  restartPolicy: Never\n");
    cli.node.write("once", &never);
    cli.node.runs("once");
    cli.run(&["restart", "once"]);
    cli.node.runs("once");
    cli.node.write("over", &pod("over", "exit 0").replace("spec:\n", "spec:\n  restartPolicy: Never\n"));
    cli.node.reaches("over", "Succeeded");
    assert!(cli.refused(&["restart", "over"]).contains("has ended for good"));
    assert!(cli.refused(&["restart", "web", "-c", "other"]).contains("no container \"other\""));
    assert!(cli.refused(&["restart", "none"]).contains("pods \"none\" not found"));
}

#[test]
fn tables_and_formats() {
    let cli = Cli::start();
    cli.node.write("web", &pod("web", "sleep 1000"));
    cli.node.write("bad", &pod("bad", "exit 3"));
    cli.node.runs("web");
    cli.node.waits("bad", "CrashLoopBackOff");
    let images = cli.run(&["get", "images"]);
    let line = images.lines().find(|line| line.starts_with(support::BUSYBOX)).expect("is there");
    assert!(images.starts_with("IMAGE ") && line.ends_with("   2"), "{images}");
    let json: serde_json::Value = serde_json::from_str(&cli.run(&["get", "images", "-o", "json"])).expect("is JSON");
    assert!(json["items"][0]["sizeBytes"].as_u64().is_some_and(|n| n > 0), "{json}");
    assert!(cli.run(&["get", "image", "busybox", "-o", "name"]).starts_with("image/"));
    assert_eq!(cli.run(&["get", "pods", "-l", "app=web", "-o", "name"]), format!("pod/web-{NODE}\n"));
    let all = cli.run(&["get", "pods", "-A"]);
    assert!(all.starts_with("NAMESPACE   NAME ") && all.contains("\ndefault     bad-"), "{all}");
    assert!(!all.contains('\x1b'), "colours are for terminals: {all}");
    eventually("what is wrong, and what to do", SOON, || {
        let status = cli.run(&["status"]);
        let told = status.contains("CrashLoopBackOff") && status.contains(&format!("cleat logs bad-{NODE} -c main -p"));
        if told && status.contains("2 pods: 2 running.") { Ok(()) } else { Err(status) }
    });
    let terminal = InTerminal::start(&cli, &["get", "pods"]);
    let shown = terminal.shows("\x1b[32mRunning\x1b[0m");
    assert!(shown.contains("\x1b[31m"), "{shown}");
    assert_eq!(terminal.ends(), Some(0));

    let mut watch = cli.command(&["get", "pods", "-w"]).stdout(Stdio::piped()).spawn().expect("runs");
    let mut lines = BufReader::new(watch.stdout.take().expect("is piped")).lines();
    assert!(lines.next().expect("a line").expect("is text").starts_with("NAME "));
    cli.node.write("new", &pod("new", "sleep 1000"));
    loop {
        let line = lines.next().expect("goes on").expect("is text");
        if line.starts_with(&format!("new-{NODE} ")) && line.contains("Running") {
            break;
        }
    }
    watch.kill().expect("ends");
    watch.wait().expect("has ended");
}

/// What the shells make of our scripts, with pods that are there.
#[test]
fn completion_in_shells() {
    let cli = Cli::start();
    cli.node.write("web", &pod("web", "sleep 1000"));
    cli.node.runs("web");
    let cell = cli.node.containerd.cell();
    let script = |shell: &str| {
        let text = cell.run(env!("CARGO_BIN_EXE_cleat"), &["completion", shell]).expect("prints it");
        let path = cell.dir().join(if shell == "zsh" { "_cleat".to_owned() } else { format!("cleat.{shell}") });
        std::fs::write(&path, text).expect("writes");
        path.display().to_string()
    };
    let program = std::path::Path::new(env!("CARGO_BIN_EXE_cleat")).parent().expect("has one").display().to_string();
    let socket = cli.node.agent.root().join("api.sock").display().to_string();
    let (bash, zsh, fish) = (script("bash"), script("zsh"), script("fish"));
    // The words of a line, the last of which is to be completed, and what it can become.
    let table = [
        (vec!["resta"], "restart"),
        (vec!["logs", "--socket", &socket, "we"], "web-edge-1"),
        (vec!["exec", "--st"], "--stdin"),
    ];
    for (words, want) in table {
        let line = format!("cleat {}", words.join(" "));
        let quoted = words.iter().map(|word| format!("'{word}'")).collect::<Vec<_>>().join(" ");
        let bash = format!(
            "PATH={program}:$PATH; . {bash}; COMP_WORDS=(cleat {quoted}); COMP_CWORD={}; _cleat; echo \"${{COMPREPLY[*]}}\"",
            words.len()
        );
        assert_eq!(cell.run("bash", &["-c", &bash]).expect("completes"), format!("{want}\n"), "bash: {line}");
        let fish = format!(
            "set -x PATH {program} $PATH; set -x HOME {}; source {fish}; complete -C '{line}'",
            cell.dir().display()
        );
        let got = cell.run("fish", &["--no-config", "-c", &fish]).expect("completes");
        assert!(got.lines().any(|word| word == want), "fish: {line}: {got}");
        // Without a terminal zsh has no line to complete; what the function finds is told by a stand-in.
        let zsh = format!(
            "PATH={program}:$PATH; compdef() {{ : }}; . {zsh}; compadd() {{ print -lr -- ${{(P)2}} }}; \
             words=(cleat {quoted}); CURRENT={}; _cleat",
            words.len() + 1
        );
        assert_eq!(cell.run("zsh", &["-f", "-c", &zsh]).expect("completes"), format!("{want}\n"), "zsh: {line}");
    }
}

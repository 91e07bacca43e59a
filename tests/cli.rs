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

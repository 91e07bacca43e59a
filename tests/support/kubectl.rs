//! kubectl, the one in PATH or that which `KUBECTL` names, against an agent without a cluster.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::process::{Command, Output, Stdio};

use serde_json::Value;

use super::node::Node;

fn program() -> String {
    std::env::var("KUBECTL").unwrap_or_else(|_| "kubectl".to_owned())
}

pub struct Kubectl {
    pub node: Node,
    kubeconfig: String,
}

impl Kubectl {
    pub fn start() -> Kubectl {
        let node = Node::start();
        let root = node.agent.root();
        let out = Command::new(env!("CARGO_BIN_EXE_cleat")).args(["kubeconfig", "--root-dir"]).arg(&root).output();
        let out = out.expect("prints a kubeconfig");
        assert!(out.status.success(), "{out:?}");
        let path = node.containerd.cell().dir().join("kubeconfig");
        fs::write(&path, &out.stdout).expect("writes");
        Kubectl { kubeconfig: path.display().to_string(), node }
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = self.node.containerd.cell().command(&program());
        let home = self.node.containerd.cell().dir().display().to_string();
        command.env("HOME", &home).args(["--kubeconfig", &self.kubeconfig, "--cache-dir", &format!("{home}/cache")]);
        command.args(args).stdin(Stdio::null());
        command
    }

    pub fn output(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("runs")
    }

    /// What it prints; it must not fail.
    #[track_caller]
    pub fn run(&self, args: &[&str]) -> String {
        let out = self.output(args);
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success(), "kubectl {args:?}: {text}{}", String::from_utf8_lossy(&out.stderr));
        text
    }

    /// What it complains of; it must fail.
    #[track_caller]
    pub fn refused(&self, args: &[&str]) -> String {
        let out = self.output(args);
        assert!(!out.status.success(), "kubectl {args:?}: {}", String::from_utf8_lossy(&out.stdout));
        String::from_utf8_lossy(&out.stderr).into_owned()
    }

    #[track_caller]
    pub fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.run(&[args, &["-o", "json"]].concat())).expect("is JSON")
    }

    /// A file for `-f`.
    pub fn file(&self, name: &str, text: &str) -> String {
        let path = self.node.containerd.cell().dir().join(name);
        fs::write(&path, text).expect("writes");
        path.display().to_string()
    }

    /// The columns of each line.
    #[track_caller]
    pub fn table(&self, args: &[&str]) -> Vec<Vec<String>> {
        let text = self.run(args);
        text.lines().map(|line| line.split_whitespace().map(str::to_owned).collect()).collect()
    }

    /// Runs it on a terminal, on which this is typed, and returns what is seen there.
    #[track_caller]
    pub fn on_terminal(&self, args: &[&str], typed: &str) -> String {
        let inner = self.command(args);
        let quoted = |arg: &OsStr| format!("'{}'", arg.to_string_lossy());
        let words = std::iter::once(inner.get_program()).chain(inner.get_args()).map(quoted).collect::<Vec<_>>();
        let mut script = Command::new("script");
        // To the program `script`, a word is a word of a shell.
        script.args(["--quiet", "--return", "--command", &words.join(" "), "/dev/null"]);
        script.envs(inner.get_envs().filter_map(|(name, value)| Some((name, value?))));
        let mut child = script.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("runs");
        let mut keyboard = child.stdin.take().expect("is piped");
        keyboard.write_all(typed.as_bytes()).expect("types");
        let out = child.wait_with_output().expect("ends");
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success(), "kubectl {args:?}: {text}");
        text
    }
}

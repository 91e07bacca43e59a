//! kubectl, in a cell, as somebody. `KUBECTL` names another one than that in the path.

use std::ffi::OsStr;
use std::fs;
use std::io::Write;
use std::ops::Deref;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use serde_json::Value;

use super::Cell;
use super::node::Node;

#[derive(Clone)]
pub struct Kubectl {
    cell: Arc<Cell>,
    kubeconfig: PathBuf,
}

impl Kubectl {
    pub fn new(cell: &Arc<Cell>, kubeconfig: &Path) -> Kubectl {
        Kubectl { cell: cell.clone(), kubeconfig: kubeconfig.to_owned() }
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let program = std::env::var("KUBECTL").unwrap_or_else(|_| "kubectl".to_owned());
        let mut command = self.cell.command(&program);
        let home = self.cell.dir().display().to_string();
        command.env("HOME", &home).arg("--kubeconfig").arg(&self.kubeconfig);
        command.args(["--cache-dir", &format!("{home}/cache")]).args(args).stdin(Stdio::null());
        command
    }

    pub fn output(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("runs")
    }

    /// What it prints, or what it complains of.
    pub fn attempt(&self, args: &[&str]) -> Result<String, String> {
        let out = self.output(args);
        let text = String::from_utf8_lossy(&out.stdout).into_owned();
        let complaint = || format!("kubectl {args:?}: {text}{}", String::from_utf8_lossy(&out.stderr));
        if out.status.success() { Ok(text) } else { Err(complaint()) }
    }

    /// What it prints; it must not fail.
    #[track_caller]
    pub fn run(&self, args: &[&str]) -> String {
        self.attempt(args).unwrap_or_else(|e| panic!("{e}"))
    }

    /// What it complains of; it must fail.
    #[track_caller]
    pub fn refused(&self, args: &[&str]) -> String {
        self.attempt(args).map(|text| panic!("kubectl {args:?}: {text}")).unwrap_err()
    }

    /// An object or a list, as it is.
    pub fn attempt_json(&self, args: &[&str]) -> Result<Value, String> {
        let text = self.attempt(&[args, &["-o", "json"]].concat())?;
        serde_json::from_str(&text).map_err(|e| format!("{e}: {text}"))
    }

    #[track_caller]
    pub fn json(&self, args: &[&str]) -> Value {
        self.attempt_json(args).unwrap_or_else(|e| panic!("{e}"))
    }

    /// Sends an object to a path of the API as it is: `verb` is create or replace. kubectl knows all paths
    /// in newer versions only.
    pub fn raw(&self, verb: &str, path: &str, object: &Value) -> Result<String, String> {
        let file = self.file("sent.json", &object.to_string());
        self.attempt(&[verb, "--raw", path, "-f", &file])
    }

    #[track_caller]
    pub fn apply(&self, object: &Value) {
        let file = self.file("applied.json", &object.to_string());
        self.run(&["apply", "-f", &file]);
    }

    /// A file for `-f`.
    pub fn file(&self, name: &str, text: &str) -> String {
        let path = self.cell.dir().join(name);
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

/// An agent without a cluster, and kubectl with its credentials.
pub struct Standalone {
    pub node: Node,
    kubectl: Kubectl,
}

impl Standalone {
    pub fn start() -> Standalone {
        let node = Node::start();
        let root = node.agent.root();
        let out = Command::new(env!("CARGO_BIN_EXE_cleat")).args(["kubeconfig", "--root-dir"]).arg(&root).output();
        let out = out.expect("prints a kubeconfig");
        assert!(out.status.success(), "{out:?}");
        let cell = node.containerd.cell();
        let path = cell.dir().join("kubeconfig");
        fs::write(&path, &out.stdout).expect("writes");
        let kubectl = Kubectl::new(cell, &path);
        Standalone { node, kubectl }
    }
}

impl Deref for Standalone {
    type Target = Kubectl;

    fn deref(&self) -> &Kubectl {
        &self.kubectl
    }
}

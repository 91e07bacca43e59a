//! kubectl, in a cell, as somebody. `KUBECTL` names another one than that in the path.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::Arc;

use serde_json::Value;

use super::Cell;

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
        let file = self.cell.dir().join("sent.json");
        fs::write(&file, object.to_string()).expect("writes");
        self.attempt(&[verb, "--raw", path, "-f", &file.display().to_string()])
    }

    #[track_caller]
    pub fn apply(&self, object: &Value) {
        let path = self.cell.dir().join("applied.json");
        fs::write(&path, object.to_string()).expect("writes");
        self.run(&["apply", "-f", &path.display().to_string()]);
    }
}

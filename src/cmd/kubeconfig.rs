//! `cleat kubeconfig`: what kubectl needs to ask this node's agent.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use crate::api;

const USAGE: &str = "\
Usage: cleat kubeconfig [--root-dir DIR] [--cert-dir DIR] [--api-port PORT]

Prints a kubeconfig for this node's Kubernetes API. Whoever has it may do everything with the node's pods.
";

struct Options {
    root_dir: PathBuf,
    cert_dir: Option<PathBuf>,
    port: u16,
}

pub fn main(args: impl Iterator<Item = OsString>) -> ExitCode {
    let options = match parse(args) {
        Ok(Some(options)) => options,
        Ok(None) => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(e) => {
            eprintln!("cleat: {e}");
            return ExitCode::from(2);
        }
    };
    let certificate = options.cert_dir.unwrap_or_else(|| options.root_dir.join("pki")).join("kubelet.crt");
    match api::kubeconfig(&options.root_dir, &certificate, options.port) {
        Ok(text) => {
            print!("{text}");
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("cleat: {e} (the agent makes it when it starts, and root may read it)");
            ExitCode::FAILURE
        }
    }
}

/// `None`: help is wanted.
fn parse(args: impl Iterator<Item = OsString>) -> Result<Option<Options>, lexopt::Error> {
    use lexopt::prelude::*;
    let mut options = Options { root_dir: "/var/lib/cleat".into(), cert_dir: None, port: 10270 };
    let mut parser = lexopt::Parser::from_args(args);
    while let Some(arg) = parser.next()? {
        match arg {
            Short('h') | Long("help") => return Ok(None),
            Long("root-dir") => options.root_dir = parser.value()?.into(),
            Long("cert-dir") => options.cert_dir = Some(parser.value()?.into()),
            Long("api-port") => options.port = parser.value()?.parse()?,
            arg => return Err(arg.unexpected()),
        }
    }
    Ok(Some(options))
}

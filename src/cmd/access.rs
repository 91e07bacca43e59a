//! `cleat kubeconfig`, `cleat dashboard`: what kubectl and a browser need to ask this node's agent.

use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use crate::api;

const KUBECONFIG: &str = "\
Usage: cleat kubeconfig [--root-dir DIR] [--cert-dir DIR] [--api-port PORT]

Prints a kubeconfig for this node's Kubernetes API. Whoever has it may do everything with the node's pods.
";

const DASHBOARD: &str = "\
Usage: cleat dashboard [--root-dir DIR] [--api-port PORT]

Prints the address of the status page, with the token that it needs. Whoever has it may see the node's pods and
events, and nothing else. The page is for browsers of this machine; from another one, take the port over first:

  ssh -L 10270:127.0.0.1:10270 NODE

The browser warns of the certificate, for the agent has made it itself: its fingerprint is told by
openssl x509 -noout -fingerprint -sha256 -in /var/lib/cleat/pki/kubelet.crt
";

/// The flags of both.
pub const FLAGS: [&str; 3] = ["root-dir", "cert-dir", "api-port"];

struct Options {
    root_dir: PathBuf,
    cert_dir: Option<PathBuf>,
    port: u16,
}

pub fn kubeconfig(args: impl Iterator<Item = OsString>) -> ExitCode {
    answer(KUBECONFIG, args, |options| {
        let certificate = options.cert_dir.unwrap_or_else(|| options.root_dir.join("pki")).join("kubelet.crt");
        api::kubeconfig(&options.root_dir, &certificate, options.port)
    })
}

pub fn dashboard(args: impl Iterator<Item = OsString>) -> ExitCode {
    answer(DASHBOARD, args, |options| Ok(api::page_address(&options.root_dir, options.port)? + "\n"))
}

fn answer(
    usage: &str,
    args: impl Iterator<Item = OsString>,
    make: impl FnOnce(Options) -> io::Result<String>,
) -> ExitCode {
    let text = match parse(args) {
        Ok(Some(options)) => make(options),
        Ok(None) => Ok(usage.to_owned()),
        Err(e) => {
            eprintln!("cleat: {e}");
            return ExitCode::from(2);
        }
    };
    match text {
        Ok(text) => match io::stdout().write_all(text.as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_) => ExitCode::FAILURE,
        },
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

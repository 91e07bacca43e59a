//! The command line: a file a command, each thin.

mod access;
mod ask;
mod check;
mod complete;
mod run;

use std::ffi::OsString;
use std::process::ExitCode;

const USAGE: &str = "\
cleat keeps pods running on this machine through a container runtime.

Usage:
  cleat run [FLAGS]            run the agent; `cleat run --help` lists the flags
  cleat check FILE|DIR...      tell what is wrong in manifests
  cleat kubeconfig [FLAGS]     print a kubeconfig for this node's Kubernetes API
  cleat dashboard [FLAGS]      print the address of the status page, with its token
  cleat completion SHELL       print what bash, zsh or fish need to complete commands
  cleat --version
  cleat --help

Asked of the agent (`cleat COMMAND --help` lists the flags):
";

/// The commands that don't ask the agent.
const OTHERS: [&str; 7] = ["run", "check", "kubeconfig", "dashboard", "completion", "help", "version"];

/// Carries out the command line.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut args = args.into_iter().skip(1);
    let command = args.next().unwrap_or_default();
    match command.to_str() {
        Some("run") => run::main(args),
        Some("check") => check::main(args),
        Some("kubeconfig") => access::kubeconfig(args),
        Some("dashboard") => access::dashboard(args),
        Some("completion") => complete::script(args),
        Some(complete::WORDS) => complete::words(args),
        Some("--version" | "-V" | "version") => {
            println!("cleat {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        Some("--help" | "-h" | "help") => {
            print!("{USAGE}{}", ask::usage());
            ExitCode::SUCCESS
        }
        Some("") | None => {
            eprint!("{USAGE}{}", ask::usage());
            ExitCode::from(2)
        }
        Some(name) => ask::main(name, args).unwrap_or_else(|| {
            eprintln!("cleat: no command {name}; see cleat --help");
            ExitCode::from(2)
        }),
    }
}

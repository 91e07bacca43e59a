//! The command line: a file a command, each thin.

mod ask;
mod check;
mod kubeconfig;
mod run;

use std::ffi::OsString;
use std::process::ExitCode;

const USAGE: &str = "\
cleat keeps pods running on this machine through a container runtime.

Usage:
  cleat run [FLAGS]            run the agent; `cleat run --help` lists the flags
  cleat check FILE|DIR...      tell what is wrong in manifests
  cleat kubeconfig [FLAGS]     print a kubeconfig for this node's Kubernetes API
  cleat --version
  cleat --help
";

/// Carries out the command line.
pub fn main(args: impl IntoIterator<Item = OsString>) -> ExitCode {
    let mut args = args.into_iter().skip(1);
    let command = args.next().unwrap_or_default();
    match command.to_str() {
        Some("run") => run::main(args),
        Some("check") => check::main(args),
        Some("kubeconfig") => kubeconfig::main(args),
        Some("--version" | "-V" | "version") => {
            println!("cleat {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        Some("--help" | "-h" | "help") => {
            print!("{USAGE}\n{}", ask::usage());
            ExitCode::SUCCESS
        }
        Some("") | None => {
            eprint!("{USAGE}");
            ExitCode::from(2)
        }
        Some(name) => ask::main(name, args).unwrap_or_else(|| {
            eprintln!("cleat: no command {name}; see cleat --help");
            ExitCode::from(2)
        }),
    }
}

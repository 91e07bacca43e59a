//! The command line: a file a command, each thin.

mod check;
mod run;

use std::ffi::OsString;
use std::process::ExitCode;

const USAGE: &str = "\
cleat keeps pods running on this machine through a container runtime.

Usage:
  cleat run [FLAGS]            run the agent; `cleat run --help` lists the flags
  cleat check FILE|DIR...      tell what is wrong in manifests
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
        Some("--version" | "-V" | "version") => {
            println!("cleat {}", env!("CARGO_PKG_VERSION"));
            ExitCode::SUCCESS
        }
        Some("--help" | "-h" | "help") => {
            print!("{USAGE}");
            ExitCode::SUCCESS
        }
        _ => {
            match command.is_empty() {
                true => eprint!("{USAGE}"),
                false => eprintln!("cleat: no command {}; see cleat --help", command.to_string_lossy()),
            }
            ExitCode::from(2)
        }
    }
}

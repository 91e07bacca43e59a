//! The commands that ask the agent over its socket: a file a command.

mod advice;
mod apply;
mod client;
mod copy;
mod delete;
mod describe;
mod forward;
mod get;
mod images;
mod logs;
pub mod options;
mod print;
mod remote;
mod restart;
mod spdy;
mod status;
mod terminal;
mod top;

use std::ffi::OsString;
use std::fmt::Write as _;
use std::io;
use std::process::ExitCode;

use client::Client;
use options::{Options, Parsed};

/// Why a command failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("{0}")]
    Usage(String),
    #[error("asking the agent at {socket}: {source} (does it run, and are you root?)")]
    Connect { socket: String, source: io::Error },
    #[error("the agent's answer: {0}")]
    Answer(io::Error),
    /// What the agent says itself.
    #[error("{0}")]
    Refused(String),
    #[error("{path}: {why}")]
    File { path: String, why: String },
    #[error("writing: {0}")]
    Write(io::Error),
    #[error("listening on {address}: {source}")]
    Listen { address: String, source: io::Error },
    #[error("starting a thread: {0}")]
    Thread(io::Error),
    #[error("the terminal: {0}")]
    Terminal(io::Error),
    #[error("the command ended with {0}")]
    Exit(u8),
}

impl From<lexopt::Error> for Error {
    fn from(error: lexopt::Error) -> Error {
        Error::Usage(error.to_string())
    }
}

/// What stands behind a command.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Operands {
    None,
    KindName,
    /// Pods or nodes.
    Used,
    Pod,
    PodCommand,
    PodPorts,
    Places,
}

impl Operands {
    fn text(self) -> &'static str {
        match self {
            Operands::None => "",
            Operands::KindName => "KIND [NAME]",
            Operands::Used => "[pods|nodes [NAME]]",
            Operands::Pod => "POD",
            Operands::PodCommand => "POD -- COMMAND...",
            Operands::PodPorts => "POD [LOCAL:]PORT...",
            Operands::Places => "FROM TO",
        }
    }
}

pub struct Command {
    pub name: &'static str,
    pub operands: Operands,
    pub help: &'static str,
    /// The long names of its flags, beside `--socket`.
    pub flags: &'static [&'static str],
    run: fn(&Client, &Options) -> Result<(), Error>,
}

pub const COMMANDS: &[Command] = &[
    Command {
        name: "status",
        operands: Operands::None,
        help: "what runs, what is wrong, why, and what to do",
        flags: &[],
        run: status::run,
    },
    Command {
        name: "get",
        operands: Operands::KindName,
        help: "list pods, nodes, events, images, configmaps, secrets or namespaces",
        flags: &["namespace", "all-namespaces", "output", "selector", "watch"],
        run: get::run,
    },
    Command {
        name: "describe",
        operands: Operands::KindName,
        help: "tell all about an object, and what has happened to it",
        flags: &["namespace"],
        run: describe::run,
    },
    Command {
        name: "events",
        operands: Operands::None,
        help: "what has happened, the newest last",
        flags: &["namespace", "all-namespaces", "output", "watch"],
        run: get::events,
    },
    Command {
        name: "top",
        operands: Operands::Used,
        help: "what the node and its pods use",
        flags: &["namespace", "all-namespaces", "selector", "containers"],
        run: top::run,
    },
    Command {
        name: "logs",
        operands: Operands::Pod,
        help: "print what a container has written",
        flags: &["namespace", "container", "follow", "previous", "timestamps", "tail", "since"],
        run: logs::run,
    },
    Command {
        name: "exec",
        operands: Operands::PodCommand,
        help: "run a command in a container",
        flags: &["namespace", "container", "stdin", "tty"],
        run: remote::exec,
    },
    Command {
        name: "attach",
        operands: Operands::Pod,
        help: "join the main process of a container",
        flags: &["namespace", "container", "stdin", "tty"],
        run: remote::attach,
    },
    Command {
        name: "port-forward",
        operands: Operands::PodPorts,
        help: "make ports of a pod ports of this machine",
        flags: &["namespace", "address"],
        run: forward::run,
    },
    Command {
        name: "cp",
        operands: Operands::Places,
        help: "copy files to or from a container: POD:PATH, or a path here",
        flags: &["namespace", "container"],
        run: copy::run,
    },
    Command {
        name: "restart",
        operands: Operands::Pod,
        help: "stop the containers of a pod, and start them again at once",
        flags: &["namespace", "container"],
        run: restart::run,
    },
    Command {
        name: "apply",
        operands: Operands::None,
        help: "create or change objects in the manifest directory",
        flags: &["namespace", "filename"],
        run: apply::run,
    },
    Command {
        name: "delete",
        operands: Operands::KindName,
        help: "remove an object from the manifest directory",
        flags: &["namespace"],
        run: delete::run,
    },
];

pub fn command(name: &str) -> Option<&'static Command> {
    COMMANDS.iter().find(|c| c.name == name)
}

/// Of which objects the names are asked.
#[derive(Debug, Clone, Copy)]
pub struct Names<'a> {
    pub kind: &'a str,
    pub namespace: &'a str,
    pub socket: Option<&'a str>,
}

impl Default for Names<'_> {
    fn default() -> Self {
        Names { kind: "", namespace: "default", socket: None }
    }
}

/// The names of all objects of a kind; none where the agent doesn't say.
pub fn names(asked: &Names<'_>) -> Vec<String> {
    let socket = asked.socket.map_or_else(|| Options::default().socket, Into::into);
    let list =
        resource(asked.kind).and_then(|kind| Client::new(&socket).json(&path(kind, Some(asked.namespace), None), ""));
    let list = list.unwrap_or_default();
    let items = list["items"].as_array().into_iter().flatten();
    items.filter_map(|object| object["metadata"]["name"].as_str().map(str::to_owned)).collect()
}

/// What can be asked for.
pub fn kinds() -> Vec<String> {
    crate::api::Resource::ALL.iter().map(|r| r.name()).chain(["images"]).map(str::to_owned).collect()
}

/// A line for each command.
pub fn usage() -> String {
    let line =
        |c: &Command| format!("  {:<28} {}\n", format!("cleat {} {}", c.name, c.operands.text()).trim_end(), c.help);
    COMMANDS.iter().map(line).collect()
}

/// Carries out the command; `None` when it is none of these.
pub fn main(name: &str, args: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    let command = command(name)?;
    let result = Options::parse(command.flags, args).and_then(|parsed| match parsed {
        Parsed::Help => {
            print!("{}", help(command));
            Ok(())
        }
        Parsed::Options(options) => (command.run)(&Client::new(&options.socket), &options),
    });
    Some(match result {
        Ok(()) => ExitCode::SUCCESS,
        // Who reads has read enough.
        Err(Error::Write(e)) if e.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(Error::Exit(code)) => ExitCode::from(code),
        Err(e) => {
            eprintln!("cleat: {e}");
            ExitCode::from(if matches!(e, Error::Usage(_)) { 2 } else { 1 })
        }
    })
}

fn help(command: &Command) -> String {
    let mut text = format!("Usage: cleat {} {}\n\n{}\n\n", command.name, command.operands.text(), command.help);
    for flag in options::of(command.flags) {
        let short = flag.short.map_or("    ".to_owned(), |short| format!("-{short}, "));
        let name = format!("{short}--{} {}", flag.long, flag.value.unwrap_or_default());
        // Writing to a string can't fail.
        let _ = writeln!(text, "  {name:<32} {}", flag.help);
    }
    text
}

/// The resource that somebody means: `pod`, `pods`, `po`.
fn resource(text: &str) -> Result<crate::api::Resource, Error> {
    let text = text.to_lowercase();
    let all = crate::api::Resource::ALL;
    let is = |r: &crate::api::Resource| {
        r.name() == text || r.kind().to_lowercase() == text || r.short_names().contains(&text.as_str())
    };
    all.into_iter().find(is).ok_or_else(|| {
        let known = all.map(crate::api::Resource::name).join(", ");
        Error::Usage(format!("there is no kind {text:?}; there are {known}"))
    })
}

/// The path of a resource, or of one of its objects.
fn path(resource: crate::api::Resource, namespace: Option<&str>, name: Option<&str>) -> String {
    use crate::server::http::percent_encode;
    let mut path = "/api/v1".to_owned();
    if let Some(namespace) = namespace.filter(|_| resource.is_namespaced()) {
        path.push_str(&format!("/namespaces/{}", percent_encode(namespace)));
    }
    path.push_str(&format!("/{}", resource.name()));
    if let Some(name) = name {
        path.push_str(&format!("/{}", percent_encode(name)));
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flags_of_commands_are_there_and_differ() {
        for command in COMMANDS {
            for flag in command.flags {
                assert!(options::FLAGS.iter().any(|f| f.long == *flag), "{} --{flag}", command.name);
            }
            let mut shorts: Vec<char> = options::of(command.flags).filter_map(|f| f.short).collect();
            let count = shorts.len();
            shorts.sort_unstable();
            shorts.dedup();
            assert_eq!(shorts.len(), count, "{}", command.name);
        }
        let logs = COMMANDS.iter().find(|c| c.name == "logs").expect("is there");
        assert!(
            help(logs).contains("  -f, --follow                     go on with what is written\n"),
            "{}",
            help(logs)
        );
    }
}

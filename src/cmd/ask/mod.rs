//! The commands that ask the agent over its socket: a file a command.

mod apply;
mod client;
mod delete;
mod describe;
mod get;
mod logs;
mod options;
mod print;
mod status;

use std::ffi::OsString;
use std::io;
use std::process::ExitCode;

use client::Client;
use options::Options;

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
}

impl From<lexopt::Error> for Error {
    fn from(error: lexopt::Error) -> Error {
        Error::Usage(error.to_string())
    }
}

pub const USAGE: &str = "\
  cleat get KIND [NAME]        list pods, nodes, events, configmaps, secrets or namespaces
  cleat describe pod NAME      tell all about a pod, and what has happened to it
  cleat logs POD [-f] [-p]     print what a container has written
  cleat events                 what has happened, the newest last
  cleat status                 what runs, what is wrong, and why
  cleat apply -f FILE          create or change objects in the manifest directory
  cleat delete KIND NAME       remove an object from the manifest directory
      -n NAMESPACE, -A (all), -o wide|json|yaml|name, -l LABELS, -w (watch), -c CONTAINER, --tail N,
      --since SECONDS, --timestamps, --socket PATH
";

/// Carries out the command; `None` when it is none of these.
pub fn main(command: &str, args: impl Iterator<Item = OsString>) -> Option<ExitCode> {
    let run: fn(&Client, &Options) -> Result<(), Error> = match command {
        "get" => get::run,
        "describe" => describe::run,
        "logs" => logs::run,
        "events" => get::events,
        "status" => status::run,
        "apply" => apply::run,
        "delete" => delete::run,
        _ => return None,
    };
    let result = Options::parse(args).and_then(|options| run(&Client::new(&options.socket), &options));
    Some(match result {
        Ok(()) => ExitCode::SUCCESS,
        // Who reads has read enough.
        Err(Error::Write(e)) if e.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(e) => {
            eprintln!("cleat: {e}");
            ExitCode::from(if matches!(e, Error::Usage(_)) { 2 } else { 1 })
        }
    })
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

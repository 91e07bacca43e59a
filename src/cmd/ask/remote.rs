//! `cleat exec`, `cleat attach`: the streams of a process in a container, joined to ours.

use std::io::{self, Read, Write};

use serde_json::Value;

use super::client::Client;
use super::options::Options;
use super::spdy::{Frame, Session, Writer};
use super::{Error, path, terminal};
use crate::api::Resource;
use crate::server::http::percent_encode;

const PROTOCOL: &str = "v4.channel.k8s.io";

pub fn exec(client: &Client, options: &Options) -> Result<(), Error> {
    let pod = options.pod()?;
    if options.rest.is_empty() {
        return Err(Error::Usage("there has to be a command behind --: exec web -- ls /".to_owned()));
    }
    let wants = Wants { stdin: options.stdin, tty: options.tty && has_terminal(options.stdin) };
    let target = target(options, pod, "exec", wants, &options.rest);
    join(client, &target, wants)
}

pub fn attach(client: &Client, options: &Options) -> Result<(), Error> {
    let pod = options.pod()?;
    let object = client.json(&path(Resource::Pods, Some(options.namespace()), Some(pod)), "")?;
    let of_container = container(&object, options.container.as_deref());
    let has = |field: &str| of_container.is_some_and(|c| c[field] == true);
    if options.stdin && !has("stdin") {
        eprintln!("cleat: the container was started without stdin: nothing can be said to it");
    }
    // A container has a terminal or it hasn't: that was decided when it was made.
    let wants = Wants { stdin: options.stdin && has("stdin"), tty: has("tty") };
    if options.tty && !wants.tty {
        eprintln!("cleat: the container was started without a terminal");
    }
    let target = target(options, pod, "attach", wants, &[]);
    join(client, &target, wants)
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Wants {
    stdin: bool,
    tty: bool,
}

/// The container that is meant: the named one, or the first.
fn container<'p>(pod: &'p Value, name: Option<&str>) -> Option<&'p Value> {
    let lists = ["containers", "initContainers", "ephemeralContainers"];
    let mut all = lists.iter().filter_map(|list| pod["spec"][list].as_array()).flatten();
    match name {
        Some(name) => all.find(|c| c["name"] == name),
        None => all.next(),
    }
}

fn has_terminal(stdin: bool) -> bool {
    let has = stdin && terminal::is_here();
    if !has {
        eprintln!("cleat: there is no terminal to be used: standard input is none, or not passed on (-i)");
    }
    has
}

fn target(options: &Options, pod: &str, action: &str, wants: Wants, command: &[String]) -> String {
    let mut target = format!("{}/{action}?stdout=true", path(Resource::Pods, Some(options.namespace()), Some(pod)));
    let mut add = |name: &str, value: &str| target.push_str(&format!("&{name}={}", percent_encode(value)));
    for (name, on) in [("stdin", wants.stdin), ("stderr", !wants.tty), ("tty", wants.tty)] {
        if on {
            add(name, "true");
        }
    }
    if let Some(container) = &options.container {
        add("container", container);
    }
    command.iter().for_each(|word| add("command", word));
    target
}

/// What is asked for a command that is run for another one's sake.
pub fn command(options: &Options, pod: &str, stdin: bool, command: &[&str]) -> String {
    let command: Vec<String> = command.iter().map(|word| (*word).to_owned()).collect();
    target(options, pod, "exec", Wants { stdin, tty: false }, &command)
}

fn join(client: &Client, target: &str, wants: Wants) -> Result<(), Error> {
    let process = Process::start(client, target, wants.stdin, wants.tty)?;
    // Dropped, and the terminal given back, before anything is said about the end.
    let _raw = match (wants.tty && wants.stdin && terminal::is_here(), process.resize) {
        (true, resize) => {
            let raw = terminal::Raw::enter().map_err(Error::Terminal)?;
            if let Some(resize) = resize {
                let writer = process.session.writer();
                let mut tell = move |(width, height)| {
                    let size = serde_json::json!({"Width": width, "Height": height});
                    // A process that is gone has no use for it.
                    let _ = writer.data(resize, format!("{size}\n").as_bytes());
                };
                terminal::size().into_iter().for_each(&mut tell);
                raw.follow(tell).map_err(Error::Terminal)?;
            }
            Some(raw)
        }
        (false, _) => None,
    };
    process.feed(io::stdin())?;
    process.run(&mut io::stdout(), &mut io::stderr())
}

/// A process in a container.
pub struct Process {
    session: Session,
    error: u32,
    stdin: Option<u32>,
    stdout: u32,
    /// Not with a terminal.
    stderr: Option<u32>,
    resize: Option<u32>,
}

impl Process {
    pub fn start(client: &Client, target: &str, stdin: bool, tty: bool) -> Result<Process, Error> {
        let mut session = Session::open(client, target, PROTOCOL)?;
        let mut open = |kind| session.stream(&[("streamtype", kind)]);
        let error = open("error")?;
        let stdin = stdin.then(|| open("stdin")).transpose()?;
        let stdout = open("stdout")?;
        let stderr = (!tty).then(|| open("stderr")).transpose()?;
        let resize = tty.then(|| open("resize")).transpose()?;
        Ok(Process { session, error, stdin, stdout, stderr, resize })
    }

    /// Passes on all that comes from there, on a thread that nobody waits for.
    pub fn feed(&self, from: impl Read + Send + 'static) -> Result<(), Error> {
        let Some(stdin) = self.stdin else { return Ok(()) };
        let writer: Writer = self.session.writer();
        let work = move || {
            // What ends the process, or the connection, is told by what is read.
            let _ = writer.copy(stdin, from);
        };
        std::thread::Builder::new().name("stdin".to_owned()).spawn(work).map(drop).map_err(Error::Thread)
    }

    /// Passes on what the process says, to its end.
    ///
    /// # Errors
    /// [`Error::Exit`] when it failed.
    pub fn run(mut self, stdout: &mut impl Write, stderr: &mut impl Write) -> Result<(), Error> {
        let mut status = Vec::new();
        let mut open: Vec<u32> = [self.error, self.stdout].into_iter().chain(self.stderr).collect();
        while !open.is_empty() {
            let (ended, bytes) = match self.session.next_frame()? {
                None | Some(Frame::Away) => break,
                Some(Frame::Reset(stream)) => (Some(stream), None),
                Some(Frame::Data { stream, bytes, last }) => (last.then_some(stream), Some((stream, bytes))),
                Some(_) => continue,
            };
            match bytes {
                Some((stream, bytes)) if stream == self.stdout => write(stdout, &bytes)?,
                Some((stream, bytes)) if Some(stream) == self.stderr => write(stderr, &bytes)?,
                Some((stream, bytes)) if stream == self.error => status.extend(bytes),
                _ => {}
            }
            open.retain(|stream| Some(*stream) != ended);
            // It comes behind all output. A server that still has input for nobody may not get to ending
            // its streams.
            if serde_json::from_slice::<Value>(&status).is_ok() {
                break;
            }
        }
        outcome(&status)
    }
}

fn write(to: &mut impl Write, bytes: &[u8]) -> Result<(), Error> {
    to.write_all(bytes).and_then(|()| to.flush()).map_err(Error::Write)
}

/// What the status of a process says of it.
fn outcome(status: &[u8]) -> Result<(), Error> {
    if status.is_empty() {
        return Err(Error::Refused("the connection to the container broke off".to_owned()));
    }
    let text = String::from_utf8_lossy(status);
    let value: Value = serde_json::from_str(&text).unwrap_or_default();
    if value["status"] == "Success" {
        return Ok(());
    }
    let causes = value["details"]["causes"].as_array().into_iter().flatten();
    let code = causes.filter(|c| c["reason"] == "ExitCode").find_map(|c| c["message"].as_str()?.parse().ok());
    match code.filter(|_| value["reason"] == "NonZeroExitCode") {
        Some(code) => Err(Error::Exit(code)),
        None => Err(Error::Refused(value["message"].as_str().unwrap_or(text.trim_end()).to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn how_a_process_ended() {
        let failed = |code: &str| {
            json!({"status": "Failure", "reason": "NonZeroExitCode", "message": "m",
                   "details": {"causes": [{"reason": "ExitCode", "message": code}]}})
        };
        let table = [
            (json!({"status": "Success"}).to_string(), ""),
            (failed("7").to_string(), "exit 7"),
            (failed("300").to_string(), "m"),
            (
                json!({"status": "Failure", "reason": "InternalError", "message": "no such file"}).to_string(),
                "no such file",
            ),
            ("it went wrong\n".to_owned(), "it went wrong"),
            (String::new(), "the connection to the container broke off"),
        ];
        for (status, want) in table {
            let got = match outcome(status.as_bytes()) {
                Ok(()) => String::new(),
                Err(Error::Exit(code)) => format!("exit {code}"),
                Err(e) => e.to_string(),
            };
            assert_eq!(got, want, "{status}");
        }
    }

    #[test]
    fn what_is_asked() {
        let options = Options { container: Some("a b".to_owned()), ..Options::default() };
        let command = ["sh".to_owned(), "-c".to_owned(), "a&b".to_owned()];
        assert_eq!(
            target(&options, "web", "exec", Wants { stdin: true, tty: false }, &command),
            "/api/v1/namespaces/default/pods/web/exec?stdout=true&stdin=true&stderr=true&container=a%20b&command=sh&command=-c&command=a%26b"
        );
        let tty = target(&Options::default(), "web", "attach", Wants { stdin: false, tty: true }, &[]);
        assert!(tty.ends_with("/attach?stdout=true&tty=true"), "{tty}");
        let pod =
            json!({"spec": {"containers": [{"name": "a"}, {"name": "b"}], "ephemeralContainers": [{"name": "e"}]}});
        for (name, want) in [(None, Some("a")), (Some("b"), Some("b")), (Some("e"), Some("e")), (Some("x"), None)] {
            assert_eq!(container(&pod, name).and_then(|c| c["name"].as_str()), want);
        }
    }
}

//! `/exec`, `/attach`, `/portForward`, `/run` and `/checkpoint`: what is done in a container on
//! somebody's order, through the runtime. The first three go on over the runtime's own streaming
//! server, to which the connection is handed on.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;

use super::{Parts, Target, no_container};
use crate::cri::{self, Code, ContainerId, SandboxId, Streams};
use crate::pod::Pod;
use crate::server::http::{Head, JSON, Query, Reply, Request, Response};
use crate::server::proxy::{self, Upstream};
use crate::status::StoredPod;

/// Ports in one request.
const MAX_PORTS: usize = 64;

pub fn exec(parts: &Arc<Parts>, target: &Target, head: &Head, user: &str) -> Reply {
    connect(parts, head, || {
        let streams = streams(&head.query)?;
        let command: Vec<String> = head.query.all("command").map(str::to_owned).collect();
        if command.is_empty() {
            return Err(Response::text(400, "there has to be a command\n"));
        }
        let (stored, id) = container(parts, target)?;
        log::info!("{}: {user} runs a command in container {}", stored.pod.name, target.container);
        parts.inspect.exec(&id, &command, streams).map_err(failed)
    })
}

pub fn attach(parts: &Arc<Parts>, target: &Target, head: &Head, user: &str) -> Reply {
    connect(parts, head, || {
        let mut streams = streams(&head.query)?;
        let (stored, id) = container(parts, target)?;
        // Whether it has a terminal was decided when it was started.
        streams.tty = stored.pod.container(&target.container).and_then(|c| c.tty) == Some(true);
        streams.stderr &= !streams.tty;
        log::info!("{}: {user} attaches to container {}", stored.pod.name, target.container);
        parts.inspect.attach(&id, streams).map_err(failed)
    })
}

pub fn port_forward(parts: &Arc<Parts>, target: &Target, head: &Head, user: &str) -> Reply {
    connect(parts, head, || {
        let ports = ports(head)?;
        let stored = parts.pod(target)?;
        let sandbox = sandbox(parts, &stored.pod)?;
        log::info!("{}: {user} forwards ports to it", stored.pod.name);
        parts.inspect.port_forward(&sandbox, &ports).map_err(failed)
    })
}

/// Asks the runtime for a place to stream at, and hands the connection on to it.
fn connect(parts: &Parts, head: &Head, ask: impl FnOnce() -> Result<String, Response>) -> Reply {
    if head.upgrade().is_none() {
        return Response::text(400, "this has to be a request to upgrade, to SPDY/3.1 or websocket\n").into();
    }
    let url = match ask() {
        Ok(url) => url,
        Err(refusal) => return refusal.into(),
    };
    match Upstream::parse(&url) {
        Ok(upstream) => proxy::hand_on(upstream, head, parts.streaming_idle),
        Err(why) => Response::text(502, format!("the runtime's streaming server: {why}\n")).into(),
    }
}

/// `/run`: the command's output, once it has ended. The output of a long command is held whole, which
/// the runtime bounds at 16 MiB.
pub fn run(parts: &Parts, target: &Target, request: &Request<'_>, user: &str) -> Response {
    let command: Vec<String> =
        request.head.query.get("cmd").unwrap_or_default().split(' ').map(str::to_owned).collect();
    let (stored, id) = match container(parts, target) {
        Ok(found) => found,
        Err(refusal) => return refusal,
    };
    log::info!("{}: {user} runs a command in container {}", stored.pod.name, target.container);
    match parts.runtime.cri.exec_sync(&id, &command, Duration::ZERO) {
        Err(e) => failed(e),
        Ok(out) => {
            let output = [out.stdout, out.stderr].concat();
            match out.exit_code {
                0 => Response::new(200, JSON, output),
                code => {
                    let mut text = output;
                    // Writing to memory can't fail.
                    let _ = writeln!(text, "command {command:?} exited with {code}");
                    Response::new(500, crate::server::http::TEXT, text)
                }
            }
        }
    }
}

pub fn checkpoint(parts: &Parts, target: &Target, query: &Query, user: &str) -> Response {
    let timeout = match query.all("timeout").last() {
        None => Duration::ZERO,
        Some(text) => match text.parse() {
            Ok(seconds) => Duration::from_secs(seconds),
            Err(_) => return Response::text(404, "timeout is no number of seconds\n"),
        },
    };
    let (stored, id) = match container(parts, target) {
        Ok(found) => found,
        Err(refusal) => return refusal,
    };
    let pod = &stored.pod.name;
    // The names were checked when the pod was taken: none of them has a slash.
    let name = format!("checkpoint-{}_{}-{}-{}.tar", pod.name, pod.namespace, target.container, Timestamp::now());
    let directory = parts.root_dir.join("checkpoints");
    if let Err(e) = crate::disk::make_dir(&directory, 0o700) {
        return Response::text(500, format!("making {}: {e}\n", directory.display()));
    }
    let location = directory.join(name);
    log::info!("{pod}: {user} takes a checkpoint of container {}", target.container);
    let location = location.to_string_lossy();
    match parts.inspect.checkpoint_container(&id, &location, timeout) {
        Ok(()) => Response::json(&serde_json::json!({"items": [location]})),
        Err(e) if e.code == Code::Unimplemented => {
            Response::text(404, "the container runtime can't take checkpoints\n")
        }
        Err(e) => Response::text(500, format!("checkpointing of {pod}/{} failed ({e})\n", target.container)),
    }
}

/// The container of a path, as the runtime has it now.
fn container(parts: &Parts, target: &Target) -> Result<(StoredPod, ContainerId), Response> {
    let stored = parts.pod(target)?;
    let observed = parts.runtime.cache.get(&stored.pod.uid).map(|(observed, _)| observed);
    let newest = observed.as_ref().and_then(|o| o.newest(&target.container));
    let id = newest.map(|c| c.status.container.id.clone());
    let id = id.filter(|_| stored.pod.container(&target.container).is_some());
    let id = id.ok_or_else(|| no_container(&stored.pod, &target.container))?;
    Ok((stored, id))
}

fn sandbox(parts: &Parts, pod: &Pod) -> Result<SandboxId, Response> {
    let observed = parts.runtime.cache.get(&pod.uid).map(|(observed, _)| observed);
    let sandbox = observed.as_ref().and_then(|o| o.sandboxes.first()).filter(|s| s.sandbox.ready);
    let id = sandbox.map(|s| s.sandbox.id.clone());
    id.ok_or_else(|| Response::text(404, format!("pod {} has no sandbox that is ready\n", pod.name)))
}

/// What the runtime says, as HTTP has it.
fn failed(error: cri::Error) -> Response {
    let status = match error.code {
        Code::NotFound => 404,
        Code::InvalidArgument => 400,
        Code::ResourceExhausted => 429,
        Code::Unimplemented => 501,
        Code::Unavailable => 503,
        Code::DeadlineExceeded => 504,
        Code::AlreadyExists | Code::PermissionDenied | Code::Other => 500,
    };
    Response::text(status, format!("{error}\n"))
}

fn streams(query: &Query) -> Result<Streams, Response> {
    let on = |name: &str| query.get(name).is_some_and(|value| matches!(value, "1" | "true"));
    let (stdin, stdout, stderr, tty) =
        (on("input") || on("stdin"), on("output") || on("stdout"), on("error") || on("stderr"), on("tty"));
    let stderr = stderr && !tty;
    match stdin || stdout || stderr {
        true => Ok(Streams { stdin, stdout, stderr, tty }),
        false => Err(Response::text(400, "at least one of input, output and error has to be 1\n")),
    }
}

/// SPDY names the ports later, in its streams.
fn ports(head: &Head) -> Result<Vec<i32>, Response> {
    let texts = head.query.all("port").chain(head.query.all("ports")).flat_map(|value| value.split(','));
    let port = |text: &str| {
        let port = text.parse::<u16>().ok().filter(|port| *port > 0);
        port.map(i32::from).ok_or_else(|| Response::text(400, format!("{text:?} is no port\n")))
    };
    let ports: Vec<i32> =
        texts.filter(|text| !text.is_empty()).take(MAX_PORTS + 1).map(port).collect::<Result<_, _>>()?;
    if ports.len() > MAX_PORTS {
        return Err(Response::text(400, "these are too many ports\n"));
    }
    let websocket = head.upgrade().is_some_and(|name| name.eq_ignore_ascii_case("websocket"));
    // What is tunnelled is SPDY again.
    let tunnel = head.header("sec-websocket-protocol").is_some_and(|protocols| protocols.contains("SPDY/3.1"));
    match websocket && !tunnel && ports.is_empty() {
        true => Err(Response::text(400, "there has to be a port\n")),
        false => Ok(ports),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_connected() {
        let on = |stdin, stdout, stderr, tty| Some(Streams { stdin, stdout, stderr, tty });
        let table = [
            ("input=1&output=1&error=1", on(true, true, true, false)),
            ("stdin=true&stdout=true&tty=true&stderr=true", on(true, true, false, true)),
            ("output=1&input=0", on(false, true, false, false)),
            ("tty=1&error=1", None),
            ("", None),
        ];
        for (query, want) in table {
            assert_eq!(streams(&Query::parse(query)).ok(), want, "{query}");
        }
    }

    #[test]
    fn which_ports() {
        let websocket = [("Connection", "Upgrade"), ("Upgrade", "websocket")];
        let tunnel = [websocket[0], websocket[1], ("Sec-WebSocket-Protocol", "SPDY/3.1+portforward.k8s.io")];
        let spdy = [("Connection", "Upgrade"), ("Upgrade", "SPDY/3.1")];
        type Headers<'a> = &'a [(&'a str, &'a str)];
        let table: &[(Headers<'_>, &str, Option<&[i32]>)] = &[
            (&websocket, "?port=80&port=8080", Some(&[80, 8080])),
            (&websocket, "?ports=80,443", Some(&[80, 443])),
            (&websocket, "", None),
            (&websocket, "?port=0", None),
            (&websocket, "?port=70000", None),
            (&tunnel, "", Some(&[])),
            (&spdy, "", Some(&[])),
        ];
        for (headers, query, want) in table {
            let head = Head::example("GET", &format!("/portForward/ns/pod{query}"), headers);
            assert_eq!(ports(&head).ok().as_deref(), *want, "{headers:?} {query}");
        }
        let many = format!("/portForward/ns/pod?ports={}1", "1,".repeat(MAX_PORTS));
        assert!(ports(&Head::example("GET", &many, &websocket)).is_err());
    }
}

//! HTTP probes and hooks: a GET over a connection of its own, and what its answer means
//! (pkg/probe/http). HTTP/1.1 only; certificates are not looked at.

mod response;
#[cfg(test)]
mod tests;
mod tls;
mod url;

use std::fmt::Write as _;
use std::io::{Read, Write};
use std::time::Instant;

use super::net::{Resolver, describe};
use super::worker::Outcome;
use crate::pod::core;
use response::{Fault, Response};
use url::Url;

/// Requests that one probe makes at most, following redirects.
const MAX_REQUESTS: usize = 10;

/// What an `httpGet` asks for, ready to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Get {
    tls: bool,
    /// `None`: the pod's address.
    pub host: Option<String>,
    port: u16,
    path: String,
    /// The `Host` header, where it is given.
    host_header: Option<String>,
    /// The other headers, and the empty line.
    headers: String,
}

impl Get {
    /// `agent`: who asks, unless the action's headers say it.
    ///
    /// # Errors
    /// What is wrong with a header.
    pub fn new(action: &core::HTTPGetAction, port: u16, agent: &str) -> Result<Get, String> {
        let mut host_header = None;
        let mut headers = String::new();
        let (mut user_agent, mut accept) = (false, false);
        for core::HTTPHeader { name, value } in action.http_headers.iter().flatten() {
            let value = value.trim();
            if value.bytes().any(|b| b.is_ascii_control() && b != b'\t') {
                return Err(format!("the value of the header {name:?} holds a control character"));
            }
            match name.to_ascii_lowercase().as_str() {
                "host" => {
                    host_header.get_or_insert_with(|| value.to_owned());
                    continue;
                }
                // These say how the message is sent, which is not for the pod to tell.
                "connection" | "content-length" | "transfer-encoding" | "trailer" => continue,
                "user-agent" => user_agent = true,
                "accept" => accept = true,
                _ => {}
            }
            // An empty one is how not to send it at all.
            if !(value.is_empty() && (name.eq_ignore_ascii_case("user-agent") || name.eq_ignore_ascii_case("accept"))) {
                push(&mut headers, name, value);
            }
        }
        if !user_agent {
            push(&mut headers, "User-Agent", agent);
        }
        if !accept {
            push(&mut headers, "Accept", "*/*");
        }
        push(&mut headers, "Connection", "close");
        headers.push_str("\r\n");
        Ok(Get {
            tls: action.scheme.as_deref().is_some_and(|s| s.eq_ignore_ascii_case("https")),
            host: action.host.clone().filter(|h| !h.is_empty()),
            port,
            path: action.path.clone().unwrap_or_default(),
            host_header: host_header.filter(|h| !h.is_empty()),
            headers,
        })
    }

    fn in_the_open(mut self) -> Get {
        self.tls = false;
        let lines = self.headers.split_inclusive("\r\n");
        let secret = |line: &str| line.to_ascii_lowercase().starts_with("authorization:");
        self.headers = lines.filter(|line| !secret(line)).collect();
        self
    }

    fn request(&self, url: &Url, host_header: Option<&str>) -> String {
        let host = host_header.unwrap_or(&url.authority);
        format!("GET {} HTTP/1.1\r\nHost: {host}\r\n{}", url.target, self.headers)
    }
}

fn push(headers: &mut String, name: &str, value: &str) {
    // Writing to a string can't fail.
    let _ = write!(headers, "{name}: {value}\r\n");
}

/// Makes the request to `host`, and follows where it leads within that; says what the answer means
/// for a probe.
pub fn probe(resolver: &Resolver, get: &Get, host: &str, until: Instant) -> Outcome {
    match follow(resolver, get, host, true, until) {
        Ok((url, response)) => judge(&url, &response),
        Err((url, fault)) => {
            let told = format!("Get {:?}: {fault}", url.to_string());
            match fault {
                Fault::NotTls | Fault::Failure(_) => Outcome::Failure(told),
                Fault::Error(_) => Outcome::Error(told),
            }
        }
    }
}

/// Makes the request for a hook, to which any answer will do (pkg/kubelet/lifecycle/handlers.go).
/// Whoever answers a request over TLS without it is asked again without it, and without the header
/// that authorizes, as the kubelet has it; `Ok(true)` then.
///
/// # Errors
/// A text that says why there was no answer.
pub fn hook(resolver: &Resolver, get: &Get, host: &str, until: Instant) -> Result<bool, String> {
    let told = |(_, fault): (Url, Fault)| fault.to_string();
    match follow(resolver, get, host, false, until) {
        Err((_, Fault::NotTls)) => {
            follow(resolver, &get.clone().in_the_open(), host, false, until).map(|_| true).map_err(told)
        }
        answer => answer.map(|_| false).map_err(told),
    }
}

/// The answer that the request leads to, and where it came from.
fn follow(
    resolver: &Resolver,
    get: &Get,
    host: &str,
    with_body: bool,
    until: Instant,
) -> Result<(Url, Response), (Url, Fault)> {
    let first = Url::new(get.tls, host, get.port, &get.path);
    let mut url = first.clone();
    let mut host_header = get.host_header.as_deref();
    for _ in 0..MAX_REQUESTS {
        let response = match exchange(resolver, &url, &get.request(&url, host_header), with_body, until) {
            Ok(response) => response,
            Err(fault) => return Err((url, fault)),
        };
        let Some(location) = response.redirect() else { return Ok((url, response)) };
        let next = match url.join(location) {
            Ok(next) => next,
            Err(why) => return Err((url, Fault::Failure(why))),
        };
        if next.host != first.host {
            return Ok((url, response));
        }
        if next.authority != url.authority || next.tls != url.tls {
            host_header = None;
        }
        url = next;
    }
    Err((url, Fault::Failure(format!("{MAX_REQUESTS} redirects and no end"))))
}

fn judge(url: &Url, response: &Response) -> Outcome {
    let Response { status, location } = response;
    // The body stays out of it: it may hold what isn't for everybody.
    let told = format!("Get {:?}: status {status}", url.to_string());
    match (status, location) {
        (200..=299, _) => Outcome::Success,
        (300..=399, Some(location)) => Outcome::Warning(format!("{told}, not followed to {location:?}")),
        (300..=399, None) => Outcome::Warning(format!("{told}, which leads nowhere")),
        _ => Outcome::Failure(told),
    }
}

/// A connection, plain or not.
trait Stream: Read + Write {}
impl<T: Read + Write> Stream for T {}

fn exchange(resolver: &Resolver, url: &Url, request: &str, with_body: bool, until: Instant) -> Result<Response, Fault> {
    let stream = resolver.connect(&url.host, url.port, until).map_err(Fault::Failure)?;
    match url.tls {
        false => talk(&mut { stream }, request, with_body),
        true => talk(&mut tls::connect(stream, &url.host)?, request, with_body),
    }
}

fn talk(stream: &mut dyn Stream, request: &str, with_body: bool) -> Result<Response, Fault> {
    let failure = |e: std::io::Error| Fault::Failure(describe(&e));
    stream.write_all(request.as_bytes()).and_then(|()| stream.flush()).map_err(failure)?;
    response::read(stream, with_body)
}

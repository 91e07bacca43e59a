//! What a probe does, taken from its spec once, and doing it (pkg/kubelet/prober/prober.go).

use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;

use super::http::{self, Get};
use super::net::Resolver;
use super::worker::Outcome;
use super::{USER_AGENT, exec, grpc, tcp};
use crate::cri::{ContainerId, Cri};
use crate::pod::{core, env};

/// Tries of one probe while it can't be made.
const TRIES: usize = 3;
/// How much of an output is told, in bytes: as much as an event of the API holds.
const MAX_TOLD: usize = 1024;

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Handler {
    Exec(Vec<String>),
    Http(Get),
    Tcp {
        /// `None`: the pod's address.
        host: Option<String>,
        port: u16,
    },
    Grpc {
        port: u16,
        service: String,
    },
    /// What comes of it is known without trying.
    Settled(Outcome),
}

impl Handler {
    pub fn of(probe: &core::Probe, container: &core::Container) -> Handler {
        let ports = container.ports.as_deref().unwrap_or_default();
        let settled = |why: String| Handler::Settled(Outcome::Error(why));
        if let Some(exec) = &probe.exec {
            let words = exec.command.iter().flatten();
            let command: Result<_, _> = words.map(|word| env::expand(word, |name| variable(container, name))).collect();
            return command.map_or_else(|e| settled(format!("a word of the command: {e}")), Handler::Exec);
        }
        if let Some(action) = &probe.http_get {
            return match port(&action.port, ports).map(|port| Get::new(action, port, USER_AGENT)) {
                Ok(Ok(get)) => Handler::Http(get),
                Ok(Err(why)) => Handler::Settled(Outcome::Failure(why)),
                Err(why) => settled(why),
            };
        }
        if let Some(action) = &probe.tcp_socket {
            let host = action.host.clone().filter(|h| !h.is_empty());
            return port(&action.port, ports).map_or_else(settled, |port| Handler::Tcp { host, port });
        }
        if let Some(action) = &probe.grpc {
            let service = action.service.clone().unwrap_or_default();
            let port = number(action.port);
            return port.map_or_else(settled, |port| Handler::Grpc { port, service });
        }
        settled("the probe names no action".to_owned())
    }
}

/// What the container's spec itself says of a variable; what comes from elsewhere is empty.
fn variable<'c>(container: &'c core::Container, name: &str) -> Option<&'c str> {
    let last = container.env.iter().flatten().rev().find(|v| v.name == name)?;
    Some(last.value.as_deref().unwrap_or_default())
}

/// The number of a port, which may be given by the name that the container has for it.
///
/// # Errors
/// A text that says why there is none.
pub fn port(port: &IntOrString, ports: &[core::ContainerPort]) -> Result<u16, String> {
    match port {
        IntOrString::Int(port) => number(*port),
        IntOrString::String(name) => {
            let named = ports.iter().find(|p| p.name.as_deref() == Some(name));
            named.map_or_else(|| Err(format!("the container has no port {name:?}")), |p| number(p.container_port))
        }
    }
}

fn number(port: i32) -> Result<u16, String> {
    u16::try_from(port).ok().filter(|p| *p > 0).ok_or_else(|| format!("{port} is no port"))
}

/// What attempts are made with.
pub struct Means {
    cri: Arc<dyn Cri>,
    resolver: Resolver,
    grpc: grpc::Checker,
}

impl Means {
    pub fn new(cri: Arc<dyn Cri>) -> Means {
        Means { cri, resolver: Resolver::default(), grpc: grpc::Checker::default() }
    }

    /// Makes one probe, by blocking calls that end by `timeout` (the runtime's answer to an exec a
    /// little later). `ip` is the pod's address.
    pub fn probe(&self, handler: &Handler, id: &ContainerId, ip: Option<IpAddr>, timeout: Duration) -> Outcome {
        let until = Instant::now() + timeout;
        let mut tries = 1;
        loop {
            let outcome = match handler {
                Handler::Settled(outcome) => return outcome.clone(),
                handler => self.attempt(handler, id, ip, timeout, until),
            };
            match outcome {
                Outcome::Error(_) if tries < TRIES && Instant::now() < until => tries += 1,
                outcome => return cut(outcome),
            }
        }
    }

    fn attempt(
        &self,
        handler: &Handler,
        id: &ContainerId,
        ip: Option<IpAddr>,
        timeout: Duration,
        until: Instant,
    ) -> Outcome {
        let no_address = || Outcome::Error("the pod has no address".to_owned());
        let host = |host: &Option<String>| host.clone().or_else(|| ip.map(|ip| ip.to_string()));
        match handler {
            Handler::Settled(outcome) => outcome.clone(),
            Handler::Exec(command) => exec::probe(&*self.cri, id, command, timeout),
            Handler::Http(get) => match host(&get.host) {
                Some(host) => http::probe(&self.resolver, get, &host, until),
                None => no_address(),
            },
            Handler::Tcp { host: given, port } => match host(given) {
                Some(host) => tcp::probe(&self.resolver, &host, *port, until),
                None => no_address(),
            },
            Handler::Grpc { port, service } => match ip {
                Some(ip) => self.grpc.probe(ip, *port, service, until),
                None => no_address(),
            },
        }
    }
}

fn cut(outcome: Outcome) -> Outcome {
    let cut = |mut text: String| {
        if let Some(end) = (0..=MAX_TOLD).rev().find(|end| text.is_char_boundary(*end)) {
            text.truncate(end);
        }
        text
    };
    match outcome {
        Outcome::Success => Outcome::Success,
        Outcome::Warning(text) => Outcome::Warning(cut(text)),
        Outcome::Failure(text) => Outcome::Failure(cut(text)),
        Outcome::Error(text) => Outcome::Error(cut(text)),
    }
}

#[cfg(test)]
mod tests;

//! Lifecycle hooks: postStart and preStop (pkg/kubelet/lifecycle/handlers.go). They run on a lane,
//! since they take as long as they like.

use std::time::{Duration, Instant};

use crate::cri::{self, Code, ContainerId, Cri};
use crate::pod::{PodName, core};
use crate::probe::{self, Get, Resolver};
use crate::status::events;
use crate::yaml;

/// What the kubelet calls itself to the targets of hooks.
const USER_AGENT: &str = "kube-lifecycle/1.36";
/// A request that nobody limits ends with its container, or after so long.
const LONGEST: Duration = Duration::from_secs(24 * 60 * 60);

/// Where a hook runs.
#[derive(Debug, Clone)]
pub struct Place {
    pub id: ContainerId,
    /// What the container calls its ports; nothing where its pod isn't known.
    pub ports: Vec<core::ContainerPort>,
    /// The pod's address, or the node's for a pod on its network.
    pub ip: Option<String>,
}

impl Place {
    pub fn new(id: ContainerId, spec: Option<&core::Container>, ips: &[String]) -> Place {
        let ports = spec.and_then(|spec| spec.ports.clone()).unwrap_or_default();
        Place { id, ports, ip: ips.first().cloned() }
    }
}

/// How a hook succeeded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Success {
    Plain,
    /// It was to be asked over TLS, and answered without.
    WithoutTls,
}

/// Why a hook failed. What a command said stays out of it: it may be a secret, and this is told to
/// everybody.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("it took longer than the grace period")]
    TimedOut,
    #[error("its command exited with {0}")]
    Exit(i32),
    #[error(transparent)]
    Cri(#[from] cri::Error),
    #[error("its request: {0}")]
    Http(String),
    #[error("{0} can't be run as a hook")]
    Unsupported(&'static str),
    #[error("there is nothing to run in it")]
    Empty,
}

/// The preStop hook: of the pod's spec, else as noted on the container when it was made.
pub fn pre_stop(spec: Option<&core::Container>, container: &cri::Container) -> Option<core::LifecycleHandler> {
    match spec {
        Some(spec) => spec.lifecycle.as_ref()?.pre_stop.clone(),
        None => {
            let node = yaml::parse_one(&container.notes.pre_stop, &mut Vec::new()).ok()??;
            Some(yaml::decode::<core::LifecycleHandler>(&node).ok()?.value)
        }
    }
}

/// Runs a hook to its end, or until `timeout`; without one for as long as it takes.
pub fn run(
    (cri, resolver): (&dyn Cri, &Resolver),
    hook: &core::LifecycleHandler,
    place: &Place,
    timeout: Option<Duration>,
) -> Result<Success, Error> {
    if let Some(exec) = &hook.exec {
        return run_exec(cri, exec, place, timeout);
    }
    if let Some(sleep) = &hook.sleep {
        let wanted = Duration::from_secs(u64::try_from(sleep.seconds).unwrap_or(0));
        std::thread::sleep(timeout.map_or(wanted, |timeout| timeout.min(wanted)));
        return Ok(Success::Plain);
    }
    if let Some(action) = &hook.http_get {
        let until = Instant::now() + timeout.unwrap_or(LONGEST);
        return get(resolver, action, place, until).map_err(Error::Http);
    }
    // The API keeps it for old objects; the kubelet has never run it.
    if hook.tcp_socket.is_some() {
        return Err(Error::Unsupported("tcpSocket"));
    }
    Err(Error::Empty)
}

fn run_exec(
    cri: &dyn Cri,
    exec: &core::ExecAction,
    place: &Place,
    timeout: Option<Duration>,
) -> Result<Success, Error> {
    let command = exec.command.clone().unwrap_or_default();
    let output = match cri.exec_sync(&place.id, &command, timeout.unwrap_or_default()) {
        Err(e) if e.code == Code::DeadlineExceeded => return Err(Error::TimedOut),
        result => result?,
    };
    match output.exit_code {
        0 => Ok(Success::Plain),
        code => Err(Error::Exit(code)),
    }
}

fn get(resolver: &Resolver, action: &core::HTTPGetAction, place: &Place, until: Instant) -> Result<Success, String> {
    let get = Get::new(action, probe::port(&action.port, &place.ports)?, USER_AGENT)?;
    let host = get.host.clone().or_else(|| place.ip.clone()).ok_or("the pod has no address")?;
    let in_the_open = probe::hook(resolver, &get, &host, until)?;
    Ok(if in_the_open { Success::WithoutTls } else { Success::Plain })
}

/// Records what came of a hook, where that is worth it. `which`: `PostStart` or `PreStop`.
/// `of`: the pod, and the path of the container in it.
pub fn tell(result: &Result<Success, Error>, of: (&PodName, Option<String>), container: &str, which: &str) {
    let (pod, field) = of;
    let record = |reason: &str, message: String| events::record_of(events::Kind::Warning, pod, field, reason, &message);
    match result {
        Ok(Success::Plain) => {}
        Ok(Success::WithoutTls) => {
            let message = format!("{which}Hook of container {container} is to use HTTPS, and was answered over HTTP");
            record("LifecycleHTTPFallback", message);
        }
        Err(e) => record(&format!("Failed{which}Hook"), format!("{which}Hook of container {container} failed: {e}")),
    }
}

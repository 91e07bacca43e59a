//! Lifecycle hooks: postStart and preStop (pkg/kubelet/lifecycle/handlers.go). They run on a lane,
//! since they take as long as they like.

use std::time::Duration;

use crate::cri::{self, Code, ContainerId, Cri};
use crate::pod::core;
use crate::yaml;

/// How much of what a failed command said is told.
const MAX_OUTPUT: usize = 1024;

/// Where a hook runs.
#[derive(Debug, Clone)]
pub struct Place {
    id: ContainerId,
}

impl Place {
    pub fn new(id: ContainerId, spec: Option<&core::Container>, ips: &[String]) -> Place {
        let _ = (spec, ips);
        Place { id }
    }
}

/// Why a hook failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("it took longer than the grace period")]
    TimedOut,
    #[error("command {command:?} exited with {code}: {output:?}")]
    Exit { command: Vec<String>, code: i32, output: String },
    #[error(transparent)]
    Cri(#[from] cri::Error),
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
    cri: &dyn Cri,
    hook: &core::LifecycleHandler,
    place: &Place,
    timeout: Option<Duration>,
) -> Result<(), Error> {
    if let Some(exec) = &hook.exec {
        return run_exec(cri, exec, place, timeout);
    }
    if let Some(sleep) = &hook.sleep {
        let wanted = Duration::from_secs(u64::try_from(sleep.seconds).unwrap_or(0));
        std::thread::sleep(timeout.map_or(wanted, |timeout| timeout.min(wanted)));
        return Ok(());
    }
    if hook.http_get.is_some() {
        return Err(Error::Unsupported("httpGet"));
    }
    // The API keeps it for old objects; the kubelet has never run it.
    if hook.tcp_socket.is_some() {
        return Err(Error::Unsupported("tcpSocket"));
    }
    Err(Error::Empty)
}

fn run_exec(cri: &dyn Cri, exec: &core::ExecAction, place: &Place, timeout: Option<Duration>) -> Result<(), Error> {
    let command = exec.command.clone().unwrap_or_default();
    let output = match cri.exec_sync(&place.id, &command, timeout.unwrap_or_default()) {
        Err(e) if e.code == Code::DeadlineExceeded => return Err(Error::TimedOut),
        result => result?,
    };
    match output.exit_code {
        0 => Ok(()),
        code => {
            let said: Vec<u8> = output.stdout.into_iter().chain(output.stderr).take(MAX_OUTPUT).collect();
            Err(Error::Exit { command, code, output: String::from_utf8_lossy(&said).into_owned() })
        }
    }
}

//! Exec probes: whether a command in the container ends with 0 (pkg/probe/exec).

use std::time::Duration;

use super::worker::Outcome;
use crate::cri::{Code, ContainerId, Cri};

/// How much of the output is looked at, in bytes.
const MAX_OUTPUT: usize = 10 << 10;

/// Runs the command, by a call that the runtime answers when `timeout` is over. A runtime that
/// hangs may need longer: a probe is not to fail because of that alone.
pub fn probe(cri: &dyn Cri, id: &ContainerId, command: &[String], timeout: Duration) -> Outcome {
    match cri.exec_sync(id, command, timeout) {
        Ok(output) if output.exit_code == 0 => Outcome::Success,
        Ok(output) => {
            let mut text = output.stdout;
            text.extend(output.stderr);
            text.truncate(MAX_OUTPUT);
            match String::from_utf8_lossy(&text).trim() {
                "" => Outcome::Failure(format!("the command ended with exit code {}", output.exit_code)),
                text => Outcome::Failure(text.to_owned()),
            }
        }
        Err(e) if e.code == Code::DeadlineExceeded => {
            Outcome::Failure(format!("command {:?} timed out after {}s", command.join(" "), timeout.as_secs()))
        }
        Err(e) => Outcome::Error(e.to_string()),
    }
}

//! The conditions of the node, with the kubelet's reasons (pkg/kubelet/nodestatus/setters.go). Pure.

use std::time::{Duration, Instant};

use jiff::Timestamp;
use serde_json::{Value, json};

use crate::cri;

/// What the runtime said of itself is believed for so long.
const RUNTIME_STALE: Duration = Duration::from_secs(30);
/// The conditions of the runtime without which there can be no pods, and what is wrong without them.
const NEEDED: [(&str, &str); 2] =
    [("RuntimeReady", "container runtime not ready"), ("NetworkReady", "container runtime network not ready")];

/// What the node is short of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Pressure {
    pub memory: bool,
    pub disk: bool,
    pub pid: bool,
}

/// When the runtime said what about itself; `None`: never yet.
pub type Told<'a> = Option<(Instant, &'a [cri::Condition])>;

/// Why the node can't run pods; nothing when it can. `health`: what listing the runtime has shown.
pub fn hindrances(health: Result<(), String>, told: Told<'_>, now: Instant) -> Vec<String> {
    let mut why = Vec::new();
    if let Err(health) = health {
        why.push(format!("PLEG is not healthy: {health}"));
    }
    match told {
        Some((at, conditions)) if now.saturating_duration_since(at) <= RUNTIME_STALE => {
            let unmet = NEEDED.iter().filter_map(|(kind, wrong)| unmet(kind, wrong, conditions));
            why.extend(unmet);
        }
        _ => why.insert(0, "container runtime is down".to_owned()),
    }
    why
}

fn unmet(kind: &str, wrong: &str, conditions: &[cri::Condition]) -> Option<String> {
    match conditions.iter().find(|c| c.kind == kind) {
        Some(c) if c.ok => None,
        Some(c) => Some(format!("{wrong}: {kind}=false reason:{} message:{}", c.reason, c.message)),
        None => Some(format!("{wrong}: the runtime doesn't tell of {kind}")),
    }
}

/// The conditions that are this agent's, the one that says whether the node is ready last. `before`: those
/// that the server has, of which those that are as they were keep their time.
pub fn conditions(hindrances: &[String], pressure: Pressure, before: &[Value], now: Timestamp) -> Vec<Value> {
    let memory = match pressure.memory {
        false => ("False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
        true => ("True", "KubeletHasInsufficientMemory", "kubelet has insufficient memory available"),
    };
    let disk = match pressure.disk {
        false => ("False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
        true => ("True", "KubeletHasDiskPressure", "kubelet has disk pressure"),
    };
    let pid = match pressure.pid {
        false => ("False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
        true => ("True", "KubeletHasInsufficientPID", "kubelet has insufficient PID available"),
    };
    let pressures = [("MemoryPressure", memory), ("DiskPressure", disk), ("PIDPressure", pid)];
    let pressures = pressures.into_iter().map(|(kind, is)| condition(kind, is, before, now));
    pressures.chain([ready(hindrances, before, now)]).collect()
}

/// Whether the node is ready.
pub fn ready(hindrances: &[String], before: &[Value], now: Timestamp) -> Value {
    let why = match hindrances {
        [] => return condition("Ready", ("True", "KubeletReady", "kubelet is posting ready status"), before, now),
        [one] => one.clone(),
        all => format!("[{}]", all.join(", ")),
    };
    condition("Ready", ("False", "KubeletNotReady", &why), before, now)
}

fn condition(kind: &str, (status, reason, message): (&str, &str, &str), before: &[Value], now: Timestamp) -> Value {
    let now = seconds(now);
    let same = before.iter().find(|c| c["type"] == kind && c["status"] == status);
    let since = same.and_then(|c| c["lastTransitionTime"].as_str()).unwrap_or(&now);
    json!({
        "type": kind, "status": status, "reason": reason, "message": message,
        "lastHeartbeatTime": now, "lastTransitionTime": since,
    })
}

/// A time as the API has it.
pub fn seconds(at: Timestamp) -> String {
    format!("{:.0}", at.round(jiff::Unit::Second).unwrap_or(at))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(runtime: bool, network: bool) -> Vec<cri::Condition> {
        [("RuntimeReady", runtime), ("NetworkReady", network)]
            .map(|(kind, ok)| cri::Condition {
                kind: kind.to_owned(),
                ok,
                reason: "Why".to_owned(),
                message: "how".to_owned(),
            })
            .to_vec()
    }

    #[test]
    fn what_hinders() {
        let start = Instant::now();
        let at = |s| start + Duration::from_secs(s);
        let (good, no_network, none) = (told(true, true), told(true, false), told(false, false));
        let network = "container runtime network not ready: NetworkReady=false reason:Why message:how";
        let runtime = "container runtime not ready: RuntimeReady=false reason:Why message:how";
        let down = "container runtime is down";
        let table: &[(Result<(), String>, Told<'_>, &[&str])] = &[
            (Ok(()), Some((start, &good)), &[]),
            (Ok(()), Some((start, &no_network)), &[network]),
            (Ok(()), Some((start, &none)), &[runtime, network]),
            (Err("it hangs".to_owned()), Some((start, &good)), &["PLEG is not healthy: it hangs"]),
            (Err("it hangs".to_owned()), None, &[down, "PLEG is not healthy: it hangs"]),
            (
                Ok(()),
                Some((start, &[])),
                &[
                    "container runtime not ready: the runtime doesn't tell of RuntimeReady",
                    "container runtime network not ready: the runtime doesn't tell of NetworkReady",
                ],
            ),
        ];
        for (health, told, why) in table {
            assert_eq!(hindrances(health.clone(), *told, at(30)), *why);
        }
        assert_eq!(hindrances(Ok(()), Some((start, &good)), at(31)), [down]);
    }

    #[test]
    fn reasons_and_times() {
        let (first, later) =
            (Timestamp::from_second(1000).expect("a time"), Timestamp::from_second(2000).expect("a time"));
        let pressure = Pressure { memory: true, disk: true, pid: true };
        let fine = conditions(&[], Pressure::default(), &[], first);
        let bad = conditions(&["a".to_owned(), "b".to_owned()], pressure, &fine, later);
        let shown = |all: &[Value]| -> Vec<String> {
            all.iter()
                .map(|c| {
                    let text = |name: &str| c[name].as_str().expect("a text").to_owned();
                    [text("type"), text("status"), text("reason"), text("lastTransitionTime")].join(" ")
                })
                .collect()
        };
        assert_eq!(
            shown(&fine),
            [
                "MemoryPressure False KubeletHasSufficientMemory 1970-01-01T00:16:40Z",
                "DiskPressure False KubeletHasNoDiskPressure 1970-01-01T00:16:40Z",
                "PIDPressure False KubeletHasSufficientPID 1970-01-01T00:16:40Z",
                "Ready True KubeletReady 1970-01-01T00:16:40Z",
            ]
        );
        assert_eq!(
            shown(&bad),
            [
                "MemoryPressure True KubeletHasInsufficientMemory 1970-01-01T00:33:20Z",
                "DiskPressure True KubeletHasDiskPressure 1970-01-01T00:33:20Z",
                "PIDPressure True KubeletHasInsufficientPID 1970-01-01T00:33:20Z",
                "Ready False KubeletNotReady 1970-01-01T00:33:20Z",
            ]
        );
        assert_eq!(bad.last().expect("is there")["message"], "[a, b]");
        let again = conditions(&["a".to_owned()], pressure, &bad, Timestamp::from_second(3000).expect("a time"));
        let ready = again.last().expect("is there");
        assert_eq!((&ready["message"], &ready["lastTransitionTime"]), (&"a".into(), &"1970-01-01T00:33:20Z".into()));
        assert_eq!(ready["lastHeartbeatTime"], "1970-01-01T00:50:00Z");
    }
}

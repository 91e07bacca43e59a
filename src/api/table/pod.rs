//! The row of a pod: its `STATUS` is the reason that tells most.

use jiff::Timestamp;
use serde_json::Value;

use super::{human, list, or_none, since, text};

pub fn cells(pod: &Value, now: Timestamp) -> Vec<Value> {
    let statuses: Vec<&Value> = list(pod, "/status/containerStatuses").collect();
    let ready = statuses.iter().filter(|s| s["ready"] == true && s.pointer("/state/running").is_some()).count();
    let sidecars: Vec<&str> = list(pod, "/spec/initContainers")
        .filter(|c| c["restartPolicy"] == "Always")
        .filter_map(|c| c["name"].as_str())
        .collect();
    let is_sidecar = |s: &&&Value| s["name"].as_str().is_some_and(|name| sidecars.contains(&name));
    let init: Vec<&Value> = list(pod, "/status/initContainerStatuses").collect();
    let sidecar_statuses: Vec<&Value> = init.iter().filter(is_sidecar).copied().collect();
    let ready_sidecars = sidecar_statuses.iter().filter(|s| s["ready"] == true).count();
    let total = list(pod, "/spec/containers").count() + sidecars.len();
    let reason = reason(pod, &init, &statuses, &sidecars);
    // While init containers run, it is their restarts that are of interest.
    let counted: Vec<&Value> = match reason.starts_with("Init:") {
        true => init.clone(),
        false => statuses.iter().chain(&sidecar_statuses).copied().collect(),
    };
    let gates: Vec<&str> = list(pod, "/spec/readinessGates").filter_map(|g| g["conditionType"].as_str()).collect();
    let conditions: Vec<&Value> = list(pod, "/status/conditions").collect();
    let met = gates.iter().filter(|g| conditions.iter().any(|c| c["type"] == ***g && c["status"] == "True")).count();
    let gates_cell = if gates.is_empty() { "<none>".to_owned() } else { format!("{met}/{}", gates.len()) };
    vec![
        text(pod, "/metadata/name").into(),
        format!("{}/{total}", ready + ready_sidecars).into(),
        reason.into(),
        restarts(&counted, now).into(),
        since(pod, "/metadata/creationTimestamp", now).into(),
        or_none(text(pod, "/status/podIP")).into(),
        or_none(text(pod, "/spec/nodeName")).into(),
        or_none(text(pod, "/status/nominatedNodeName")).into(),
        gates_cell.into(),
    ]
}

fn restarts(statuses: &[&Value], now: Timestamp) -> String {
    let total: i64 = statuses.iter().filter_map(|s| s["restartCount"].as_i64()).sum();
    let ended = |s: &&Value| s.pointer("/lastState/terminated/finishedAt")?.as_str()?.parse::<Timestamp>().ok();
    match statuses.iter().filter_map(ended).max() {
        Some(last) if total > 0 => format!("{total} ({} ago)", human(now.duration_since(last).as_secs())),
        _ => total.to_string(),
    }
}

fn reason(pod: &Value, init: &[&Value], statuses: &[&Value], sidecars: &[&str]) -> String {
    let phase = text(pod, "/status/phase");
    let mut reason = match text(pod, "/status/reason") {
        "" => phase.to_owned(),
        reason => reason.to_owned(),
    };
    let mut initializing = false;
    for (i, status) in init.iter().enumerate() {
        let name = status["name"].as_str().unwrap_or_default();
        let ended = status.pointer("/state/terminated");
        let is_sidecar = sidecars.contains(&name);
        let done = ended.is_some_and(|t| t["exitCode"] == 0) || (is_sidecar && status["started"] == true);
        if done {
            continue;
        }
        let waiting = text(status, "/state/waiting/reason");
        reason = match ended {
            Some(ended) => format!("Init:{}", end(ended)),
            None if !waiting.is_empty() && waiting != "PodInitializing" => format!("Init:{waiting}"),
            None => format!("Init:{i}/{}", init.len()),
        };
        initializing = true;
        break;
    }
    if !initializing {
        let mut running = false;
        for status in statuses.iter().rev() {
            let waiting = text(status, "/state/waiting/reason");
            match status.pointer("/state/terminated") {
                _ if !waiting.is_empty() => waiting.clone_into(&mut reason),
                Some(ended) => reason = end(ended),
                None => running |= status["ready"] == true && status.pointer("/state/running").is_some(),
            }
        }
        if reason == "Completed" && running {
            let ready = list(pod, "/status/conditions").any(|c| c["type"] == "Ready" && c["status"] == "True");
            reason = if ready { "Running" } else { "NotReady" }.to_owned();
        }
    }
    match pod.pointer("/metadata/deletionTimestamp") {
        Some(_) => "Terminating".to_owned(),
        None if reason.is_empty() => "Unknown".to_owned(),
        None => reason,
    }
}

fn end(terminated: &Value) -> String {
    let signal = terminated["signal"].as_i64().unwrap_or_default();
    match terminated["reason"].as_str().filter(|reason| !reason.is_empty()) {
        Some(reason) => reason.to_owned(),
        None if signal != 0 => format!("Signal:{signal}"),
        None => format!("ExitCode:{}", terminated["exitCode"].as_i64().unwrap_or_default()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn statuses() {
        let running = || json!({"running": {}});
        let c = |name: &str, ready: bool, restarts: i64, state: Value| {
            json!({"name": name, "ready": ready, "restartCount": restarts, "state": state,
                   "lastState": {"terminated": {"finishedAt": "2026-01-01T00:00:00Z"}}})
        };
        let ended = |code: i64, reason: &str| json!({"terminated": {"exitCode": code, "reason": reason}});
        let wait = |reason: &str| json!({"waiting": {"reason": reason}});
        let table = [
            (json!({"phase": "Pending"}), ("0/1", "Pending", "0")),
            (json!({"phase": "Running", "containerStatuses": [c("a", true, 0, running())]}), ("1/1", "Running", "0")),
            (
                json!({"phase": "Running", "containerStatuses": [c("a", false, 3, wait("CrashLoopBackOff"))]}),
                ("0/1", "CrashLoopBackOff", "3 (60s ago)"),
            ),
            (
                json!({"phase": "Succeeded", "containerStatuses": [c("a", false, 0, ended(0, "Completed"))]}),
                ("0/1", "Completed", "0"),
            ),
            (
                json!({"phase": "Failed", "containerStatuses": [c("a", false, 0, ended(3, ""))]}),
                ("0/1", "ExitCode:3", "0"),
            ),
            (json!({"phase": "Failed", "reason": "Evicted"}), ("0/1", "Evicted", "0")),
            (
                json!({"phase": "Pending", "initContainerStatuses": [c("i", false, 0, running())],
                       "containerStatuses": [c("a", false, 0, wait("PodInitializing"))]}),
                ("0/1", "Init:0/1", "0"),
            ),
            (
                json!({"phase": "Pending", "initContainerStatuses": [c("i", false, 2, ended(1, "Error"))]}),
                ("0/1", "Init:Error", "2 (60s ago)"),
            ),
            (
                json!({"phase": "Running", "initContainerStatuses": [c("i", true, 0, ended(0, "Completed"))],
                       "containerStatuses": [c("a", true, 0, running())]}),
                ("1/1", "Running", "0"),
            ),
        ];
        for (status, (ready, reason, restarts)) in table {
            let pod = json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "a"}]}, "status": status});
            let now = "2026-01-01T00:01:00Z".parse().expect("a time");
            let cells = cells(&pod, now);
            assert_eq!(cells.get(1..4), Some(&[ready.into(), reason.into(), restarts.into()][..]), "{status}");
        }
    }
}

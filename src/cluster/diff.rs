//! What of a pod's status the API server has to be told (pkg/kubelet/status/status_manager.go): a
//! strategic merge patch with only what is other there. Pure.

use serde_json::{Map, Value, json};

use crate::pod::core;
use crate::status::{self, is_disruption, is_own};

/// Fields that this node sets. Of others it says nothing.
const FIELDS: [&str; 12] = [
    "phase",
    "reason",
    "message",
    "hostIP",
    "hostIPs",
    "podIP",
    "podIPs",
    "startTime",
    "initContainerStatuses",
    "containerStatuses",
    "ephemeralContainerStatuses",
    "observedGeneration",
];
/// Of those, lists whose items the API would merge by `ip`.
const MERGED: [&str; 2] = ["hostIPs", "podIPs"];
/// Conditions of ours that go away again.
const PASSING: [&str; 2] = ["PodResizeInProgress", "PodResizePending"];

/// A status as JSON.
pub fn json_of(status: &core::PodStatus) -> Value {
    // API types hold no value that JSON can't express.
    serde_json::to_value(status).unwrap_or_default()
}

/// Whether an object's end is final.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum End {
    /// A pod that has ended has done so for good.
    Final,
    /// A mirror's pod may run again: once there is room for it, or when the node is up again.
    Passing,
}

/// The patch that makes the status `there` what `want` says; `None` when it is so. `uid`: of the object,
/// which has to be the same one still.
pub fn patch(uid: &str, there: &Value, want: &core::PodStatus, end: End) -> Option<Value> {
    let mut want_json = json_of(want);
    settle(&mut want_json, there, want, end);
    let mut changes = Map::new();
    for field in FIELDS {
        match (there.get(field), want_json.get(field)) {
            (before, Some(after)) if before != Some(after) => {
                let mut after = after.clone();
                if let Some(items) = after.as_array_mut().filter(|_| MERGED.contains(&field)) {
                    items.insert(0, json!({"$patch": "replace"}));
                }
                changes.insert(field.to_owned(), after);
            }
            (Some(before), None) if !before.is_null() => _ = changes.insert(field.to_owned(), Value::Null),
            _ => {}
        }
    }
    let conditions = conditions(&there["conditions"], &want_json["conditions"]);
    if !conditions.is_empty() {
        changes.insert("conditions".to_owned(), conditions.into());
    }
    (!changes.is_empty()).then(|| json!({"metadata": {"uid": uid}, "status": changes}))
}

/// Whether somebody may wait for what a patch of the status `there` says. Other news may come a little
/// later, and together with what follows them.
pub fn is_urgent(there: &Value, patch: &Value) -> bool {
    let status = &patch["status"];
    let ready = |conditions: &Value| {
        let condition = find(conditions, &"Ready".into());
        condition.map(|condition| condition["status"] == "True")
    };
    let (before, after) = (ready(&there["conditions"]).unwrap_or_default(), ready(&status["conditions"]));
    let changes = ["phase", "ephemeralContainerStatuses"].iter().any(|field| status.get(*field).is_some());
    changes || after.is_some_and(|after| after != before)
}

/// What must not be taken back, or be said too early.
fn settle(json: &mut Value, there: &Value, want: &core::PodStatus, end: End) {
    let Some(fields) = json.as_object_mut() else { return };
    let copy = |fields: &mut Map<String, Value>, names: &[&str]| {
        for name in names {
            match there.get(*name) {
                Some(value) => _ = fields.insert((*name).to_owned(), value.clone()),
                None => _ = fields.remove(*name),
            }
        }
    };
    let ended_there = end == End::Final && matches!(there["phase"].as_str(), Some("Succeeded" | "Failed"));
    let all = want.container_statuses.iter().chain(&want.init_container_statuses).flatten();
    let runs = { all }.any(|c| c.state.as_ref().is_some_and(|state| state.running.is_some()));
    // Somebody may start another in its place, once it has ended.
    if ended_there || runs && status::is_terminal(want) {
        copy(fields, &["phase", "reason", "message"]);
    }
    if there.get("startTime").is_some_and(|time| !time.is_null()) {
        copy(fields, &["startTime"]);
    }
    // One that was refused here has no containers to tell of.
    for name in ["containerStatuses", "initContainerStatuses", "ephemeralContainerStatuses"] {
        if !fields.contains_key(name) {
            copy(fields, &[name]);
        }
    }
}

fn find<'v>(list: &'v Value, kind: &Value) -> Option<&'v Value> {
    list.as_array()?.iter().find(|c| c["type"] == *kind)
}

/// Our conditions that are others there.
fn conditions(there: &Value, want: &Value) -> Vec<Value> {
    let ours = |c: &&Value| c["type"].as_str().is_some_and(|kind| is_own(kind, c["reason"].as_str()));
    let mut out = Vec::new();
    for condition in want.as_array().into_iter().flatten().filter(ours) {
        let before = find(there, &condition["type"]);
        let mut after = condition.clone();
        if let (Some(before), Some(fields)) = (before, after.as_object_mut()) {
            // As long as it says the same, it does so since then.
            if before["status"] == condition["status"] {
                fields.insert("lastTransitionTime".to_owned(), before["lastTransitionTime"].clone());
            }
            let names = ["status", "reason", "message", "lastTransitionTime", "observedGeneration"];
            if names.iter().all(|name| before[name] == fields.get(*name).cloned().unwrap_or_default()) {
                continue;
            }
            // What it doesn't say any more.
            for name in ["reason", "message"] {
                if !before[name].is_null() {
                    fields.entry(name).or_insert(Value::Null);
                }
            }
        }
        out.push(after);
    }
    let passes = |c: &&Value| {
        let kind = c["type"].as_str().unwrap_or_default();
        PASSING.contains(&kind) || is_disruption(kind, c["reason"].as_str())
    };
    let passing = there.as_array().into_iter().flatten().filter(passes).map(|c| &c["type"]);
    let gone = passing.filter(|kind| want.is_array() && find(want, kind).is_none());
    out.extend(gone.map(|kind| json!({"$patch": "delete", "type": kind})));
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_somebody_waits_for_is_urgent() {
        let pending = json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]});
        let ready = |status: &str| json!({"status": {"conditions": [{"type": "Ready", "status": status}]}});
        for (there, patch, want) in [
            (pending.clone(), json!({"status": {"phase": "Running"}}), true),
            (pending.clone(), json!({"status": {"hostIP": "10.0.0.1", "containerStatuses": []}}), false),
            (pending.clone(), json!({"status": {"ephemeralContainerStatuses": []}}), true),
            (pending.clone(), ready("False"), false),
            (pending, ready("True"), true),
            (running(), ready("False"), true),
            (running(), ready("True"), false),
        ] {
            assert_eq!(is_urgent(&there, &patch), want, "{there} {patch}");
        }
    }

    fn status(json: Value) -> core::PodStatus {
        let node = crate::yaml::Node::from(json);
        crate::yaml::decode(&node).expect("a status").value
    }

    fn running() -> Value {
        json!({
            "phase": "Running", "hostIP": "10.0.0.1", "podIP": "10.1.0.5", "podIPs": [{"ip": "10.1.0.5"}],
            "startTime": "2030-01-01T00:00:00Z", "qosClass": "BestEffort",
            "conditions": [
                {"type": "Ready", "status": "True", "lastTransitionTime": "2030-01-01T00:00:05Z"},
                {"type": "example.com/gate", "status": "True"},
            ],
            "containerStatuses": [{"name": "c", "image": "i", "imageID": "", "ready": true, "restartCount": 0,
                "state": {"running": {}}}],
        })
    }

    fn with(edits: &[(&str, Value)]) -> Value {
        let mut json = running();
        for (pointer, value) in edits {
            *json.pointer_mut(pointer).expect("is there") = value.clone();
        }
        json
    }

    /// The status part of the patch.
    fn changes(there: Value, want: Value) -> Value {
        let patch = patch("u", &there, &status(want), End::Final);
        patch.map_or(Value::Null, |patch| {
            assert_eq!(patch["metadata"], json!({"uid": "u"}));
            patch["status"].clone()
        })
    }

    #[test]
    fn only_what_is_other() {
        let there = json_of(&status(running()));
        assert_eq!(changes(there.clone(), running()), Value::Null);
        // Times of what says the same are not ours to change, nor the start.
        let later = with(&[
            ("/conditions/0/lastTransitionTime", json!("2031-01-01T00:00:00Z")),
            ("/startTime", json!("2031-01-01T00:00:00Z")),
        ]);
        assert_eq!(changes(there.clone(), later), Value::Null);
        // What others have set is theirs, whatever is remembered of it.
        let gate = with(&[("/conditions/1/status", json!("False"))]);
        assert_eq!(changes(there.clone(), gate), Value::Null);
        let moved = with(&[("/podIP", json!("10.1.0.6")), ("/podIPs/0/ip", json!("10.1.0.6"))]);
        let want = json!({"podIP": "10.1.0.6", "podIPs": [{"$patch": "replace"}, {"ip": "10.1.0.6"}]});
        assert_eq!(changes(there.clone(), moved), want);
        let unready = with(&[(
            "/conditions/0",
            json!({"type": "Ready", "status": "False", "reason": "ContainersNotReady",
            "lastTransitionTime": "2030-01-01T00:01:00Z"}),
        )]);
        let want = json!({"conditions": [{"type": "Ready", "status": "False", "reason": "ContainersNotReady",
            "lastTransitionTime": "2030-01-01T00:01:00Z"}]});
        assert_eq!(changes(there.clone(), unready.clone()), want);
        // And back again: the reason goes.
        let back = changes(json_of(&status(unready)), running());
        assert_eq!(back["conditions"][0]["reason"], Value::Null);
        assert!(back["conditions"][0].as_object().is_some_and(|c| c.contains_key("reason")), "{back}");
        assert!(changes(json!({}), running())["containerStatuses"].is_array());
    }

    #[test]
    fn what_goes_away() {
        let mut there = json_of(&status(running()));
        there["message"] = json!("m");
        there["nominatedNodeName"] = json!("other");
        there["conditions"].as_array_mut().expect("a list").push(json!({"type": "PodResizePending", "status": "True"}));
        let want = json!({"message": null, "conditions": [{"$patch": "delete", "type": "PodResizePending"}]});
        assert_eq!(changes(there, running()), want);
    }

    #[test]
    fn the_end_is_told_when_it_is_one_and_not_taken_back() {
        let there = json_of(&status(running()));
        let failed = |state: Value| with(&[("/phase", json!("Failed")), ("/containerStatuses/0/state", state)]);
        let ending = changes(there.clone(), failed(json!({"running": {}})));
        assert_eq!(ending, Value::Null, "a container runs still");
        let ended = failed(json!({"terminated": {"exitCode": 1}}));
        assert_eq!(changes(there, ended.clone())["phase"], "Failed");
        assert!(changes(json_of(&status(ended)), running()).get("phase").is_none(), "it stays ended");
        // A mirror of a pod that was ended for the node's sake, and runs again.
        let mut there = failed(json!({"terminated": {"exitCode": 1}}));
        there["reason"] = json!("Terminated");
        let disrupted = json!({"type": "DisruptionTarget", "status": "True", "reason": "TerminationByKubelet"});
        let by_others = json!({"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"});
        for (condition, gone) in [(disrupted, true), (by_others, false)] {
            there["conditions"].as_array_mut().expect("a list").truncate(2);
            there["conditions"].as_array_mut().expect("a list").push(condition);
            let again = patch("u", &there, &status(running()), End::Passing).expect("is other");
            let again = &again["status"];
            assert_eq!((&again["phase"], &again["reason"]), (&json!("Running"), &Value::Null));
            let delete = json!([{"$patch": "delete", "type": "DisruptionTarget"}]);
            assert_eq!(again.get("conditions"), gone.then_some(&delete), "{there}");
        }
        // A pod that was refused says nothing of containers.
        let refused = json!({"phase": "Failed", "reason": "OutOfcpu", "message": "m"});
        let there = json!({"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "True"}]});
        assert_eq!(changes(there, refused.clone()), refused);
    }
}

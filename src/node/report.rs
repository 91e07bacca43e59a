//! When the status of the node is due to be reported: on each change, and now and then without one
//! (`nodeStatusReportFrequency`). Pure.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::time::{Duration, Instant};

use serde_json::Value;

/// What was reported last. Only marks of it are kept.
#[derive(Debug, Default)]
pub struct Reported(Option<Marks>);

#[derive(Debug)]
struct Marks {
    /// Of what was sent.
    sent: u64,
    /// Of what the server then had of it: it may not know all of our fields.
    kept: u64,
    at: Instant,
}

impl Reported {
    /// Whether `wanted` is to be sent to a server whose node is `there`.
    pub fn is_due(&self, wanted: &Value, there: &Value, every: Duration, now: Instant) -> bool {
        let Some(marks) = &self.0 else { return true };
        now.saturating_duration_since(marks.at) >= every
            || marks.sent != mark(wanted, wanted)
            || marks.kept != mark(wanted, &there["status"])
    }

    /// It was sent at `now`, and the server has this node since.
    pub fn sent(&mut self, wanted: &Value, answered: &Value, now: Instant) {
        let (sent, kept) = (mark(wanted, wanted), mark(wanted, &answered["status"]));
        self.0 = Some(Marks { sent, kept, at: now });
    }
}

/// A mark of what `status` has of the fields of `wanted`, without the time of the conditions' heartbeat,
/// and without what others put there.
fn mark(wanted: &Value, status: &Value) -> u64 {
    let mut hasher = DefaultHasher::new();
    for (name, ours) in wanted.as_object().into_iter().flatten() {
        let has = &status[name];
        match name.as_str() {
            "conditions" => {
                let kinds = ours.as_array().into_iter().flatten().map(|condition| &condition["type"]);
                for kind in kinds {
                    let condition = has.as_array().into_iter().flatten().find(|c| c["type"] == *kind);
                    for field in ["type", "status", "reason", "message", "lastTransitionTime"] {
                        condition.and_then(|c| c[field].as_str()).hash(&mut hasher);
                    }
                }
            }
            "capacity" | "allocatable" => {
                for resource in ours.as_object().into_iter().flat_map(serde_json::Map::keys) {
                    has[resource].as_str().hash(&mut hasher);
                }
            }
            _ => has.to_string().hash(&mut hasher),
        }
    }
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn on_a_change_and_now_and_then() {
        let every = Duration::from_secs(300);
        let (start, at) = (Instant::now(), |s| Instant::now() + Duration::from_secs(s));
        let wanted = json!({
            "capacity": {"cpu": "2"}, "nodeInfo": {"bootID": "1"}, "features": {"new": true},
            "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": "1"}],
        });
        // An old server, which doesn't keep what it doesn't know, and what others told it.
        let node = json!({"status": {
            "capacity": {"cpu": "2", "x.example/gpu": "1"}, "nodeInfo": {"bootID": "1"},
            "conditions": [
                {"type": "NetworkUnavailable", "status": "False"},
                {"type": "Ready", "status": "True", "lastHeartbeatTime": "1"}],
        }});
        let mut reported = Reported::default();
        assert!(reported.is_due(&wanted, &node, every, start), "nothing was reported yet");
        reported.sent(&wanted, &node, start);
        assert!(!reported.is_due(&wanted, &node, every, at(200)));
        assert!(reported.is_due(&wanted, &node, every, at(301)));
        let changes: [(&str, Value); 3] =
            [("/nodeInfo/bootID", "2".into()), ("/conditions/0/status", "False".into()), ("/capacity/cpu", "3".into())];
        for (path, value) in changes {
            let mut other = wanted.clone();
            *other.pointer_mut(path).expect("is there") = value;
            assert!(reported.is_due(&other, &node, every, start), "we: {path}");
        }
        let mut beaten = wanted.clone();
        beaten["conditions"][0]["lastHeartbeatTime"] = "2".into();
        assert!(!reported.is_due(&beaten, &node, every, start));
        // Somebody else at our fields, or at their own.
        let theirs: [(&str, Value, bool); 4] = [
            ("/status/conditions/1/status", "Unknown".into(), true),
            ("/status/capacity/cpu", "9".into(), true),
            ("/status/capacity/x.example~1gpu", "2".into(), false),
            ("/status/conditions/0/status", "True".into(), false),
        ];
        for (path, value, due) in theirs {
            let mut other = node.clone();
            *other.pointer_mut(path).expect("is there") = value;
            assert_eq!(reported.is_due(&wanted, &other, every, start), due, "they: {path}");
        }
    }
}

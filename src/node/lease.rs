//! The node's lease in `kube-node-lease`, by which the control plane knows that the node lives
//! (k8s.io/component-helpers/apimachinery/lease). Pure.

use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

pub const NAMESPACE: &str = "kube-node-lease";

/// What the lease is to say, but for the time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Terms {
    pub node: String,
    pub duration: Duration,
}

impl Terms {
    /// Between renewals: several may fail before the lease ends.
    pub fn period(&self) -> Duration {
        self.duration / 4
    }

    /// A lease where there is none. With the node that owns it, it goes when that goes.
    pub fn fresh(&self, node_uid: &str, now: Timestamp) -> Value {
        let bare = json!({
            "kind": "Lease", "apiVersion": "coordination.k8s.io/v1",
            "metadata": {"name": self.node, "namespace": NAMESPACE}, "spec": {},
        });
        self.renewed(bare, node_uid, now)
    }

    /// The lease as it was last seen, renewed. A renewal that somebody else's change comes before is
    /// refused by the server, by the version that it is of.
    pub fn renewed(&self, mut lease: Value, node_uid: &str, now: Timestamp) -> Value {
        let spec = &mut lease["spec"];
        spec["holderIdentity"] = self.node.as_str().into();
        spec["leaseDurationSeconds"] = self.duration.as_secs().into();
        spec["renewTime"] = format!("{now:.6}").into();
        let owners = lease["metadata"]["ownerReferences"].as_array();
        // One that an earlier node of this name owns would be taken away.
        let owned = owners.is_some_and(|owners| owners.iter().any(|owner| owner["uid"] == node_uid));
        if !owned {
            lease["metadata"]["ownerReferences"] =
                json!([{"apiVersion": "v1", "kind": "Node", "name": self.node, "uid": node_uid}]);
        }
        lease
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lease_is_made_and_renewed() {
        let terms = Terms { node: "edge".to_owned(), duration: Duration::from_secs(40) };
        assert_eq!(terms.period(), Duration::from_secs(10));
        let lease = terms.fresh("u1", Timestamp::from_second(1).expect("a time"));
        assert_eq!(
            lease,
            json!({
                "kind": "Lease", "apiVersion": "coordination.k8s.io/v1",
                "metadata": {"name": "edge", "namespace": "kube-node-lease", "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Node", "name": "edge", "uid": "u1"}]},
                "spec": {"holderIdentity": "edge", "leaseDurationSeconds": 40, "renewTime": "1970-01-01T00:00:01.000000Z"},
            })
        );
        let mut seen = lease;
        seen["metadata"]["resourceVersion"] = "7".into();
        seen["spec"]["leaseTransitions"] = 3.into();
        let again = terms.renewed(seen, "u2", Timestamp::from_millisecond(2500).expect("a time"));
        assert_eq!(again["spec"]["renewTime"], "1970-01-01T00:00:02.500000Z");
        assert_eq!(
            (&again["metadata"]["resourceVersion"], &again["spec"]["leaseTransitions"]),
            (&"7".into(), &3.into())
        );
        assert_eq!(
            again["metadata"]["ownerReferences"],
            json!([{"apiVersion": "v1", "kind": "Node", "name": "edge", "uid": "u2"}])
        );
        assert_eq!(terms.renewed(again.clone(), "u2", Timestamp::UNIX_EPOCH)["metadata"], again["metadata"]);
    }
}

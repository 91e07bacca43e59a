//! Mirror pods: what the API server shows of static pods (pkg/kubelet/pod/mirror_client.go). Pure.

use serde_json::{Map, Value, json};

use crate::pod::{Pod, labels};

/// What is to be done for a static pod and its mirror.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    Create,
    /// The mirror that is there; it is made anew afterwards if the pod is still wanted.
    Delete,
    /// The mirror is told how the pod is.
    Tell,
}

/// `pod`: the static pod, if it is still wanted; `mirror`: what the server has under its name.
pub fn act(pod: Option<&Pod>, mirror: Option<&Pod>) -> Option<Act> {
    match (pod, mirror) {
        (None, None) => None,
        (Some(_), None) => Some(Act::Create),
        (None, Some(_)) => Some(Act::Delete),
        (Some(pod), Some(mirror)) => {
            Some(match mirror.is_deleted() || hash(pod) != annotation(mirror, labels::CONFIG_MIRROR) {
                true => Act::Delete,
                false => Act::Tell,
            })
        }
    }
}

fn annotation<'p>(pod: &'p Pod, name: &str) -> Option<&'p str> {
    pod.meta.annotations.as_ref()?.get(name).map(String::as_str)
}

/// Whether this object of the server is a mirror.
pub fn is_one(object: &Pod) -> bool {
    annotation(object, labels::CONFIG_MIRROR).is_some()
}

/// What a static pod's mirror is known by.
pub fn hash(pod: &Pod) -> Option<&str> {
    annotation(pod, labels::CONFIG_HASH)
}

/// The mirror of a static pod. `node`: name and UID of the node, whose it is.
pub fn object(pod: &Pod, (name, uid): (&str, &str)) -> Value {
    let mut annotations: Map<String, Value> =
        pod.meta.annotations.iter().flatten().map(|(k, v)| (k.clone(), v.as_str().into())).collect();
    annotations.insert(labels::CONFIG_MIRROR.to_owned(), hash(pod).unwrap_or_default().into());
    let mut spec = serde_json::to_value(&pod.spec).unwrap_or_default();
    if let Some(spec) = spec.as_object_mut() {
        // The server works them out itself, from the class, and refuses any others.
        spec.remove("priority");
        spec.remove("preemptionPolicy");
    }
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "namespace": &*pod.name.namespace, "name": &*pod.name.name,
            "labels": pod.meta.labels, "annotations": annotations,
            "ownerReferences": [{"apiVersion": "v1", "kind": "Node", "name": name, "uid": uid, "controller": true}],
        },
        "spec": spec,
    })
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

    use super::*;
    use crate::pod::testing;

    fn pod(edit: impl FnOnce(&mut Pod)) -> Pod {
        let mut pod = testing::pod("web", testing::spec(&[], &["cpu=1"]));
        pod.meta.annotations = Some([(labels::CONFIG_HASH.to_owned(), "h1".to_owned())].into());
        edit(&mut pod);
        pod
    }

    fn mirror(hash: &str) -> Pod {
        pod(|p| p.meta.annotations = Some([(labels::CONFIG_MIRROR.to_owned(), hash.to_owned())].into()))
    }

    #[test]
    fn what_is_to_be_done() {
        let own = pod(|_| {});
        let mut ending = mirror("h1");
        ending.meta.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
        let table = [
            (None, None, None),
            (Some(&own), None, Some(Act::Create)),
            (Some(&own), Some(mirror("h1")), Some(Act::Tell)),
            (Some(&own), Some(mirror("h2")), Some(Act::Delete)),
            (Some(&own), Some(ending), Some(Act::Delete)),
            (None, Some(mirror("h1")), Some(Act::Delete)),
        ];
        for (pod, mirror, want) in table {
            assert_eq!(act(pod, mirror.as_ref()), want, "{mirror:?}");
        }
    }

    #[test]
    fn the_mirror() {
        let own = pod(|p| {
            p.meta.labels = Some([("app".to_owned(), "web".to_owned())].into());
            p.spec.priority = Some(5);
        });
        let object = object(&own, ("edge-1", "node-uid"));
        let meta = &object["metadata"];
        assert_eq!(
            (&meta["name"], &meta["namespace"], &meta["labels"]["app"]),
            (&json!("web"), &json!("default"), &json!("web"))
        );
        assert_eq!(meta["annotations"], json!({labels::CONFIG_HASH: "h1", labels::CONFIG_MIRROR: "h1"}));
        assert_eq!(meta["ownerReferences"][0]["uid"], "node-uid");
        assert!(meta.get("uid").is_none() && object["spec"].get("priority").is_none());
        assert_eq!(object["spec"]["containers"][0]["resources"]["requests"]["cpu"], "1");
    }
}

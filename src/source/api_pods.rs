//! The pods of this node as the API server tells them: a list, then what changes. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::Value;

use crate::kube::{self, Event};
use crate::pod::{Pod, PodName, PodUid, Source, core, labels};
use crate::yaml;

/// All pods that the server has for this node, by name.
#[derive(Debug, Default)]
pub struct ApiPods {
    /// Where they were read from, for messages.
    origin: Arc<str>,
    pods: BTreeMap<PodName, Arc<Pod>>,
    /// The version that a watch goes on from; empty while there is none.
    version: String,
}

/// What is wrong with an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// The pod stays as it was.
    Unusable(String),
    /// It is older than what was seen: this is another server than before, with another truth.
    Backwards,
}

/// What can't be used of what the server said; the rest is.
pub type Problems = Vec<String>;

impl ApiPods {
    pub fn new(origin: &str, before: Vec<Arc<Pod>>) -> ApiPods {
        let pods = before.into_iter().map(|pod| (pod.name.clone(), pod)).collect();
        ApiPods { origin: origin.into(), pods, version: String::new() }
    }

    pub fn version(&self) -> &str {
        &self.version
    }

    /// Those that are to run: all but mirrors of what runs here anyway.
    pub fn to_run(&self) -> Vec<Arc<Pod>> {
        self.pods.values().filter(|pod| !is_mirror(pod)).cloned().collect()
    }

    /// Mirrors of static pods, by name.
    pub fn mirrors(&self) -> BTreeMap<PodName, Arc<Pod>> {
        self.pods.iter().filter(|(_, pod)| is_mirror(pod)).map(|(name, pod)| (name.clone(), pod.clone())).collect()
    }

    /// Takes a whole list. A pod that can't be read stays as it was.
    pub fn replace(&mut self, list: kube::List, seen: Timestamp) -> Problems {
        let mut problems = Problems::new();
        let mut old = std::mem::take(&mut self.pods);
        for item in list.items {
            let name = name_of(&item);
            match decode(item, &self.origin, seen) {
                Ok(pod) => self.insert(pod, &mut old),
                Err(why) => {
                    problems.push(why);
                    self.pods.extend(name.and_then(|name| old.remove_entry(&name)));
                }
            }
        }
        self.version = list.resource_version;
        problems
    }

    /// A pod that is as it was stays the same value.
    fn insert(&mut self, pod: Pod, old: &mut BTreeMap<PodName, Arc<Pod>>) {
        let before = old.remove(&pod.name).filter(|before| same(before, &pod));
        self.pods.insert(pod.name.clone(), before.unwrap_or_else(|| Arc::new(pod)));
    }

    /// Takes one event of a watch. Returns whether the pods are others now.
    ///
    /// # Errors
    /// Why it can't be used; then the pod stays as it was.
    pub fn take(&mut self, event: Event, seen: Timestamp) -> Result<bool, Trouble> {
        match event {
            Event::Bookmark(version) => self.advance(&version).map(|()| false),
            Event::Added(object) | Event::Modified(object) => {
                self.advance(kube::version(&object))?;
                let pod = decode(object, &self.origin, seen).map_err(Trouble::Unusable)?;
                if self.pods.get(&pod.name).is_some_and(|before| same(before, &pod)) {
                    return Ok(false);
                }
                self.pods.insert(pod.name.clone(), Arc::new(pod));
                Ok(true)
            }
            Event::Deleted(object) => {
                self.advance(kube::version(&object))?;
                let unnamed = || Trouble::Unusable("a pod was deleted that has no name".to_owned());
                let name = name_of(&object).ok_or_else(unnamed)?;
                // A newer one of the same name may have come first.
                let uid = object["metadata"]["uid"].as_str().unwrap_or_default();
                let is_it = self.pods.get(&name).is_some_and(|pod| pod.uid.as_str() == uid);
                Ok(is_it && self.pods.remove(&name).is_some())
            }
        }
    }
}

impl ApiPods {
    /// Versions of one server only ever rise (kubernetes.io/docs/reference/using-api/api-concepts).
    fn advance(&mut self, version: &str) -> Result<(), Trouble> {
        let both = self.version.parse::<u64>().ok().zip(version.parse::<u64>().ok());
        if both.is_some_and(|(before, now)| now < before) {
            return Err(Trouble::Backwards);
        }
        self.version = version.to_owned();
        Ok(())
    }
}

/// But for when it was read.
fn same(before: &Pod, pod: &Pod) -> bool {
    before.meta.resource_version.is_some()
        && before.meta.resource_version == pod.meta.resource_version
        && before.uid == pod.uid
}

pub fn is_mirror(pod: &Pod) -> bool {
    pod.meta.annotations.as_ref().is_some_and(|all| all.contains_key(labels::CONFIG_MIRROR))
}

fn name_of(object: &Value) -> Option<PodName> {
    let text = |field: &str| object["metadata"][field].as_str();
    PodName::checked(text("namespace")?, text("name")?)
}

/// A pod as the API server has it.
///
/// # Errors
/// When it isn't one.
pub fn decode(mut object: Value, origin: &Arc<str>, seen: Timestamp) -> Result<Pod, String> {
    let name =
        name_of(&object).ok_or_else(|| format!("a pod without a usable name: {}", object["metadata"]["name"]))?;
    let wrong = |why: &str| format!("pod {name}: {why}");
    if let Some(meta) = object["metadata"].as_object_mut() {
        // Who set which field: long, and of no use here.
        meta.remove("managedFields");
    }
    let uid = object["metadata"]["uid"].as_str().and_then(PodUid::checked).ok_or_else(|| wrong("it has no UID"))?;
    let decoded = yaml::decode::<core::Pod>(&yaml::Node::from(object)).map_err(|e| wrong(&e.to_string()))?;
    let core::Pod { mut metadata, spec, status } = decoded.value;
    let spec = spec.ok_or_else(|| wrong("it has no spec"))?;
    let annotations = metadata.annotations.get_or_insert_default();
    annotations.insert(labels::CONFIG_SOURCE.to_owned(), Source::Api.as_str().to_owned());
    annotations.insert(labels::CONFIG_SEEN.to_owned(), seen.to_string());
    let status = status.map(Arc::new);
    Ok(Pod { uid, name, source: Source::Api, origin: origin.clone(), status, meta: metadata, spec })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(name: &str, uid: &str, version: &str) -> Value {
        json!({"metadata": {"namespace": "ns", "name": name, "uid": uid, "resourceVersion": version,
                "managedFields": [{"manager": "kubectl"}]},
            "spec": {"containers": [{"name": "c", "image": "i", "resources": {"limits": {"cpu": "1"}}}]},
            "status": {"phase": "Pending"}})
    }

    fn shown(pods: &ApiPods) -> Vec<String> {
        let of = |p: &Arc<Pod>| format!("{} {} {}", p.name, p.uid, p.meta.resource_version.clone().unwrap_or_default());
        pods.to_run().iter().map(of).collect()
    }

    fn list(items: Vec<Value>, version: &str) -> kube::List {
        kube::List { items, resource_version: version.to_owned() }
    }

    #[test]
    fn a_list_and_what_changes() {
        let seen = Timestamp::UNIX_EPOCH;
        let mut pods = ApiPods::new("https://k", Vec::new());
        let problems = pods.replace(list(vec![object("a", "1", "5"), object("b", "2", "6")], "7"), seen);
        assert_eq!((problems, pods.version()), (vec![], "7"));
        assert_eq!(shown(&pods), ["ns/a 1 5", "ns/b 2 6"]);
        let table = [
            (Event::Bookmark("8".to_owned()), Ok(false), "8"),
            (Event::Modified(object("a", "1", "9")), Ok(true), "9"),
            (Event::Modified(object("a", "1", "9")), Ok(false), "9"),
            (Event::Added(object("c", "3", "10")), Ok(true), "10"),
            // The end of one that has been made anew since.
            (Event::Deleted(object("a", "0", "11")), Ok(false), "11"),
            (Event::Deleted(object("b", "2", "12")), Ok(true), "12"),
        ];
        for (event, want, version) in table {
            assert_eq!((pods.take(event.clone(), seen), pods.version()), (want, version), "{event:?}");
        }
        assert_eq!(pods.take(Event::Bookmark("3".to_owned()), seen), Err(Trouble::Backwards));
        assert_eq!(shown(&pods), ["ns/a 1 9", "ns/c 3 10"]);
        let before = pods.to_run();
        pods.replace(list(vec![object("a", "1", "9"), object("d", "4", "1")], "13"), seen);
        assert_eq!(shown(&pods), ["ns/a 1 9", "ns/d 4 1"]);
        assert!(Arc::ptr_eq(&before[0], &pods.to_run()[0]), "it is the same");
    }

    #[test]
    fn what_cannot_be_read_stays() {
        let seen = Timestamp::UNIX_EPOCH;
        let mut pods = ApiPods::new("k", Vec::new());
        pods.replace(list(vec![object("a", "1", "5")], "5"), seen);
        let mut broken = object("a", "1", "6");
        broken["spec"]["containers"] = json!("none");
        let problems = pods.replace(list(vec![broken.clone()], "6"), seen);
        assert!(problems.len() == 1 && problems[0].starts_with("pod ns/a: "), "{problems:?}");
        assert_eq!(shown(&pods), ["ns/a 1 5"]);
        assert!(pods.take(Event::Modified(broken), seen).is_err());
        let mut evil = object("a", "1", "7");
        evil["metadata"]["name"] = json!("../a");
        assert!(pods.take(Event::Added(evil), seen).is_err());
        let mut evil = object("x", "../..", "7");
        evil["metadata"]["uid"] = json!("../../etc");
        assert!(pods.take(Event::Added(evil), seen).is_err());
        assert_eq!(shown(&pods), ["ns/a 1 5"]);
    }

    #[test]
    fn mirrors_are_not_run() {
        let mut mirror = object("static-n", "m", "3");
        mirror["metadata"]["annotations"] = json!({"kubernetes.io/config.mirror": "hash"});
        let mut pods = ApiPods::new("k", Vec::new());
        pods.replace(list(vec![mirror, object("a", "1", "5")], "5"), Timestamp::UNIX_EPOCH);
        assert_eq!(shown(&pods), ["ns/a 1 5"]);
        assert_eq!(pods.mirrors().into_keys().map(|n| n.to_string()).collect::<Vec<_>>(), ["ns/static-n"]);
    }

    #[test]
    fn a_pod_says_where_it_is_from_and_is_small() {
        let pod = decode(object("a", "1", "5"), &"k".into(), Timestamp::UNIX_EPOCH).expect("is a pod");
        let annotations = pod.meta.annotations.clone().unwrap_or_default();
        assert_eq!(annotations.get(labels::CONFIG_SOURCE).map(String::as_str), Some("api"));
        assert_eq!(pod.meta.managed_fields, None);
        assert_eq!(pod.status.as_ref().and_then(|s| s.phase.as_deref()), Some("Pending"));
    }
}

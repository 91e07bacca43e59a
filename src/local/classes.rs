//! What the classes that a pod names give it. In a cluster, the API server has done this before a
//! node hears of the pod (plugin/pkg/admission/runtimeclass, plugin/pkg/admission/priority). Pure.

use std::sync::Arc;

use super::{Body, Object, Objects, PriorityClass, RuntimeClass};
use crate::pod::{Pod, core};

/// The classes that are always there.
const BUILT_IN: [(&str, i32); 2] =
    [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)];

/// The pod with the overhead, the node selector and the tolerations of its RuntimeClass, and the
/// priority of its PriorityClass. What it says itself stays; what is not known yet is not there.
pub fn with_classes(pod: Arc<Pod>, objects: &Objects) -> Arc<Pod> {
    let spec = &pod.spec;
    let runtime = spec.runtime_class_name.as_deref().and_then(|name| objects.runtime_class(name));
    let priority = if spec.priority.is_none() { priority(spec, objects) } else { None };
    if runtime.is_none() && priority.is_none() {
        return pod;
    }
    let mut pod = pod;
    // Nobody else has this one: the values of before stay as they were.
    let spec = &mut Arc::make_mut(&mut pod).spec;
    if let Some(class) = runtime {
        take_runtime_class(spec, class);
    }
    if let Some((value, policy)) = priority {
        spec.priority = Some(value);
        spec.preemption_policy.get_or_insert(policy);
    }
    pod
}

fn take_runtime_class(spec: &mut core::PodSpec, class: &RuntimeClass) {
    if spec.overhead.is_none() && !class.overhead.is_empty() {
        spec.overhead = Some(class.overhead.clone());
    }
    if !class.node_selector.is_empty() {
        let selector = spec.node_selector.get_or_insert_default();
        for (key, value) in &class.node_selector {
            selector.entry(key.clone()).or_insert_with(|| value.clone());
        }
    }
    for toleration in &class.tolerations {
        let tolerations = spec.tolerations.get_or_insert_default();
        if !tolerations.contains(toleration) {
            tolerations.push(toleration.clone());
        }
    }
}

/// Priority and preemption policy: of the class that is named, else of the one for all that name none.
fn priority(spec: &core::PodSpec, objects: &Objects) -> Option<(i32, String)> {
    let of_class = |class: &PriorityClass| (class.value, class.preemption_policy.clone());
    match spec.priority_class_name.as_deref().unwrap_or_default() {
        "" => {
            let classes = objects.objects.values().filter_map(global_default);
            classes.min_by_key(|class| class.value).map(of_class)
        }
        name => {
            let built_in = BUILT_IN.iter().find(|(known, _)| *known == name);
            let built_in = built_in.map(|(_, value)| (*value, "PreemptLowerPriority".to_owned()));
            built_in.or_else(|| objects.priority_class(name).map(of_class))
        }
    }
}

fn global_default(object: &Arc<Object>) -> Option<&PriorityClass> {
    match &object.body {
        Body::PriorityClass(class) => Some(class).filter(|class| class.global_default),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use serde_json::json;

    use super::*;
    use crate::local::{Key, Kind, Node};
    use crate::pod::testing;

    fn class(name: &str, value: i32, global_default: bool) -> Arc<Object> {
        let body = PriorityClass { value, global_default, preemption_policy: "Never".to_owned() };
        let key = Key::new(Kind::PriorityClass, "", name);
        Arc::new(Object { key, labels: BTreeMap::new(), created: None, body: Body::PriorityClass(body) })
    }

    fn objects(global_default: bool) -> Objects {
        let amount = |text: &str| k8s_openapi::apimachinery::pkg::api::resource::Quantity(text.to_owned());
        let body = RuntimeClass {
            handler: "vm".to_owned(),
            overhead: [("memory".to_owned(), amount("64Mi"))].into(),
            node_selector: [("vm", "yes"), ("disk", "slow")].map(|(k, v)| (k.to_owned(), v.to_owned())).into(),
            tolerations: vec![core::Toleration { key: Some("vm".to_owned()), ..Default::default() }],
        };
        let key = Key::new(Kind::RuntimeClass, "", "vm");
        let runtime = Arc::new(Object { key, labels: BTreeMap::new(), created: None, body: Body::RuntimeClass(body) });
        let all = [runtime, class("high", 1000, false), class("usual", 10, global_default)];
        Objects::new(all, &BTreeMap::new(), &Node::default())
    }

    fn pod(spec: serde_json::Value) -> Arc<Pod> {
        Arc::new(testing::pod("web", serde_json::from_value(spec).expect("a spec")))
    }

    #[test]
    fn a_runtime_class_adds_what_the_pod_lacks() {
        let get = |spec: serde_json::Value| {
            let spec = with_classes(pod(spec), &objects(false)).spec.clone();
            let overhead = spec.overhead.unwrap_or_default().get("memory").map(|q| q.0.clone());
            let selector: Vec<_> = spec.node_selector.iter().flatten().map(|(k, v)| format!("{k}={v}")).collect();
            (overhead, selector.join(" "), spec.tolerations.map_or(0, |t| t.len()))
        };
        let some = |text: &str| Some(text.to_owned());
        let vm = json!({"containers": [], "runtimeClassName": "vm"});
        assert_eq!(get(vm), (some("64Mi"), "disk=slow vm=yes".to_owned(), 1));
        let own = json!({"containers": [], "runtimeClassName": "vm", "overhead": {"memory": "1Mi"},
            "nodeSelector": {"disk": "fast"}, "tolerations": [{"key": "vm"}]});
        assert_eq!(get(own), (some("1Mi"), "disk=fast vm=yes".to_owned(), 1));
        assert_eq!(get(json!({"containers": [], "runtimeClassName": "none"})), (None, String::new(), 0));
    }

    #[test]
    fn priorities() {
        let get = |spec: serde_json::Value, default| {
            let spec = with_classes(pod(spec), &objects(default)).spec.clone();
            (spec.priority, spec.preemption_policy.unwrap_or_default())
        };
        let never = || "Never".to_owned();
        let of = |name: &str| json!({"containers": [], "priorityClassName": name});
        assert_eq!(get(of("high"), true), (Some(1000), never()));
        assert_eq!(get(of("system-node-critical"), false), (Some(2_000_001_000), "PreemptLowerPriority".to_owned()));
        assert_eq!(get(of("none"), true), (None, String::new()));
        assert_eq!(get(json!({"containers": []}), true), (Some(10), never()));
        assert_eq!(get(json!({"containers": []}), false), (None, String::new()));
        assert_eq!(get(json!({"containers": [], "priority": 5}), true), (Some(5), String::new()));
    }

    #[test]
    fn nothing_new_is_the_same_value() {
        let plain = pod(json!({"containers": []}));
        assert!(Arc::ptr_eq(&with_classes(plain.clone(), &objects(false)), &plain));
    }
}

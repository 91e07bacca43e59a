//! Labels and annotations of sandboxes and containers (pkg/kubelet/kuberuntime/labels.go).

use std::collections::HashMap;

use crate::pod::{Pod, core, identity, labels};

pub fn of_sandbox(pod: &Pod) -> HashMap<String, String> {
    let mut all: HashMap<_, _> = pod.meta.labels.clone().unwrap_or_default().into_iter().collect();
    all.extend(of_pod(pod));
    all
}

pub fn of_container(pod: &Pod, container: &core::Container) -> HashMap<String, String> {
    let mut all: HashMap<_, _> = of_pod(pod).into();
    all.insert(labels::CONTAINER_NAME.to_owned(), container.name.clone());
    all
}

fn of_pod(pod: &Pod) -> [(String, String); 3] {
    [
        (labels::POD_NAME.to_owned(), pod.name.name.to_string()),
        (labels::POD_NAMESPACE.to_owned(), pod.name.namespace.to_string()),
        (labels::POD_UID.to_owned(), pod.uid.to_string()),
    ]
}

/// What is to be known of a container when nothing but the runtime is left to ask.
pub fn notes(pod: &Pod, container: &core::Container, restart_count: i32) -> HashMap<String, String> {
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let json = |value: Result<String, serde_json::Error>| value.ok();
    let pre_stop = container.lifecycle.as_ref().and_then(|l| l.pre_stop.as_ref());
    let ports = container.ports.as_ref().filter(|ports| !ports.is_empty());
    [
        (labels::CONTAINER_HASH, Some(identity::container_hash(container))),
        (labels::CONTAINER_RESTART_COUNT, Some(restart_count.to_string())),
        (labels::CONTAINER_TERMINATION_MESSAGE_PATH, Some(text(&container.termination_message_path))),
        (labels::CONTAINER_TERMINATION_MESSAGE_POLICY, Some(text(&container.termination_message_policy))),
        (labels::POD_DELETION_GRACE_PERIOD, pod.meta.deletion_grace_period_seconds.map(|s| s.to_string())),
        (labels::POD_TERMINATION_GRACE_PERIOD, pod.spec.termination_grace_period_seconds.map(|s| s.to_string())),
        (labels::CONTAINER_PRE_STOP_HANDLER, pre_stop.and_then(|hook| json(serde_json::to_string(hook)))),
        (labels::CONTAINER_PORTS, ports.and_then(|ports| json(serde_json::to_string(ports)))),
    ]
    .into_iter()
    .filter_map(|(key, value)| Some((key.to_owned(), value?)))
    .collect()
}

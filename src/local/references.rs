//! Which objects a pod refers to.

use std::collections::BTreeSet;

use super::{Key, Kind};
use crate::pod::{Pod, core};

/// The objects that the pod refers to, whether it can do without them or not.
pub fn references(pod: &Pod) -> BTreeSet<Key> {
    let spec = &pod.spec;
    let mut all = Found { namespace: &pod.name.namespace, keys: BTreeSet::new() };
    for volume in spec.volumes.iter().flatten() {
        all.volume(volume);
    }
    for container in pod.all_containers() {
        all.environment(container);
    }
    for secret in spec.image_pull_secrets.iter().flatten() {
        all.add(Kind::Secret, &secret.name);
    }
    if let Some(class) = &spec.runtime_class_name {
        all.add(Kind::RuntimeClass, class);
    }
    if let Some(class) = &spec.priority_class_name {
        all.add(Kind::PriorityClass, class);
    }
    all.keys
}

struct Found<'a> {
    namespace: &'a str,
    keys: BTreeSet<Key>,
}

impl Found<'_> {
    fn add(&mut self, kind: Kind, name: &str) {
        if !name.is_empty() {
            self.keys.insert(Key::new(kind, self.namespace, name));
        }
    }

    fn volume(&mut self, volume: &core::Volume) {
        if let Some(map) = &volume.config_map {
            self.add(Kind::ConfigMap, &map.name);
        }
        if let Some(name) = volume.secret.as_ref().and_then(|s| s.secret_name.as_deref()) {
            self.add(Kind::Secret, name);
        }
        if let Some(claim) = &volume.persistent_volume_claim {
            self.add(Kind::PersistentVolumeClaim, &claim.claim_name);
        }
        for source in volume.projected.iter().flat_map(|p| p.sources.iter().flatten()) {
            if let Some(map) = &source.config_map {
                self.add(Kind::ConfigMap, &map.name);
            }
            if let Some(secret) = &source.secret {
                self.add(Kind::Secret, &secret.name);
            }
        }
    }

    fn environment(&mut self, container: &core::Container) {
        for from in container.env_from.iter().flatten() {
            if let Some(map) = &from.config_map_ref {
                self.add(Kind::ConfigMap, &map.name);
            }
            if let Some(secret) = &from.secret_ref {
                self.add(Kind::Secret, &secret.name);
            }
        }
        for from in container.env.iter().flatten().filter_map(|var| var.value_from.as_ref()) {
            if let Some(key) = &from.config_map_key_ref {
                self.add(Kind::ConfigMap, &key.name);
            }
            if let Some(key) = &from.secret_key_ref {
                self.add(Kind::Secret, &key.name);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pod::{PodName, PodUid, Source};

    #[test]
    fn all_that_a_pod_refers_to() {
        let spec = serde_json::json!({
            "runtimeClassName": "kata", "priorityClassName": "high", "imagePullSecrets": [{"name": "pull"}],
            "initContainers": [{"name": "i", "envFrom": [{"configMapRef": {"name": "m1"}}, {"secretRef": {"name": "s1"}}]}],
            "containers": [{"name": "c", "env": [
                {"name": "A", "value": "x"},
                {"name": "B", "valueFrom": {"configMapKeyRef": {"name": "m2", "key": "k"}}},
                {"name": "C", "valueFrom": {"secretKeyRef": {"name": "s2", "key": "k", "optional": true}}},
                {"name": "D", "valueFrom": {"fieldRef": {"fieldPath": "metadata.name"}}}]}],
            "volumes": [
                {"name": "a", "emptyDir": {}}, {"name": "b", "configMap": {"name": "m3"}},
                {"name": "c", "secret": {"secretName": "s3"}},
                {"name": "d", "persistentVolumeClaim": {"claimName": "p"}},
                {"name": "e", "projected": {"sources": [{"configMap": {"name": "m4"}}, {"secret": {"name": "s4"}}]}}]
        });
        let pod = Pod {
            uid: PodUid::new("u"),
            name: PodName::new("ns", "web"),
            source: Source::File,
            origin: "".into(),
            status: None,
            meta: Default::default(),
            spec: serde_json::from_value(spec).expect("a spec"),
        };
        let all: Vec<_> = references(&pod).iter().map(ToString::to_string).collect();
        let want = [
            "ConfigMap ns/m1",
            "ConfigMap ns/m2",
            "ConfigMap ns/m3",
            "ConfigMap ns/m4",
            "Secret ns/pull",
            "Secret ns/s1",
            "Secret ns/s2",
            "Secret ns/s3",
            "Secret ns/s4",
            "PersistentVolumeClaim ns/p",
            "RuntimeClass kata",
            "PriorityClass high",
        ];
        assert_eq!(all, want);
    }
}

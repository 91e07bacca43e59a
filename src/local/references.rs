//! Which objects a pod refers to.

use std::collections::BTreeSet;

use super::{Key, Kind};
use crate::pod::{Pod, PodUid, Source, core};

/// The API server's service, of which every pod is told.
pub const MASTER: &str = "kubernetes";
pub const MASTER_NAMESPACE: &str = "default";

/// A token that a volume of a pod is to hold.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct WantedToken {
    pub namespace: String,
    pub pod: String,
    pub uid: PodUid,
    pub service_account: String,
    /// Empty: that of the API server.
    pub audience: String,
    pub seconds: i64,
}

/// What the API fills in.
const TOKEN_SECONDS: i64 = 3600;

impl WantedToken {
    pub fn new(pod: &Pod, source: &core::ServiceAccountTokenProjection) -> WantedToken {
        let account = pod.spec.service_account_name.clone().filter(|name| !name.is_empty());
        WantedToken {
            namespace: pod.name.namespace.to_string(),
            pod: pod.name.name.to_string(),
            uid: pod.uid.clone(),
            service_account: account.unwrap_or_else(|| "default".to_owned()),
            audience: source.audience.clone().unwrap_or_default(),
            seconds: source.expiration_seconds.unwrap_or(TOKEN_SECONDS),
        }
    }

    pub fn key(&self) -> Key {
        let WantedToken { uid, service_account, audience, seconds, .. } = self;
        Key::new(Kind::ServiceAccountToken, &self.namespace, &format!("{uid}/{service_account}/{seconds}/{audience}"))
    }
}

/// The tokens that the pod's volumes are to hold.
pub fn tokens(pod: &Pod) -> Vec<WantedToken> {
    let projected = pod.spec.volumes.iter().flatten().filter_map(|volume| volume.projected.as_ref());
    let sources = projected.flat_map(|projected| projected.sources.iter().flatten());
    let tokens = sources.filter_map(|source| source.service_account_token.as_ref());
    tokens.map(|source| WantedToken::new(pod, source)).collect()
}

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
    for container in pod.ephemeral_containers() {
        all.environment(&container);
    }
    for secret in spec.image_pull_secrets.iter().flatten() {
        all.add(Kind::Secret, &secret.name);
    }
    if let Some(class) = &spec.runtime_class_name {
        all.add(Kind::RuntimeClass, class);
    }
    if pod.source == Source::Api {
        // What its priority class gives a pod, the API server has given it.
        all.keys.extend(tokens(pod).iter().map(WantedToken::key));
        if spec.enable_service_links.unwrap_or(true) {
            all.keys.insert(Key::new(Kind::Services, &pod.name.namespace, ""));
        }
        all.keys.insert(Key::new(Kind::Services, MASTER_NAMESPACE, MASTER));
        return all.keys;
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

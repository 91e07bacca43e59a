//! How one object that pods refer to is asked for, and what the answer means.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Value, json};

use crate::kube::{self, Client, in_namespace, named, path};
use crate::local::{Body, Key, Kind, Object, SecretValue, Service, ServicePort, WantedToken};
use crate::source::manifest;
use crate::yaml::Node;

/// What came of asking.
#[derive(Debug, Clone, PartialEq)]
pub enum Found {
    /// It, and its version.
    Object(Box<Object>, String),
    /// A token, and for how long it is good.
    Token(Box<Object>, Duration),
    /// There is none; and from which version on, where that is told, or an empty text.
    Missing(String),
}

/// # Errors
/// `Ok(Err(…))`: it is there and can't be used.
pub fn object(client: &Client, key: &Key) -> Result<Result<Found, String>, kube::Error> {
    if key.kind == Kind::Services && key.name.is_empty() {
        let list = client.list(&in_namespace(&key.namespace, "services"), &[("resourceVersion", "0")])?;
        return Ok(Ok(services(key, &list.items)));
    }
    match client.get(&path_of(key)) {
        Ok(value) if key.kind == Kind::Services => Ok(Ok(services(key, &[value]))),
        Ok(value) => Ok(decode(key, value)),
        Err(e) if e.is_not_found() => Ok(Ok(Found::Missing(String::new()))),
        Err(e) => Err(e),
    }
}

/// Where a watch of a ConfigMap or a Secret is asked for.
pub fn collection_of(key: &Key) -> String {
    in_namespace(&key.namespace, if key.kind == Kind::Secret { "secrets" } else { "configmaps" })
}

fn path_of(key: &Key) -> String {
    let name = key.name.as_str();
    match key.kind {
        Kind::ConfigMap => named(&key.namespace, "configmaps", name),
        Kind::Secret => named(&key.namespace, "secrets", name),
        Kind::PersistentVolumeClaim => named(&key.namespace, "persistentvolumeclaims", name),
        Kind::PersistentVolume => path(&["api", "v1", "persistentvolumes", name]),
        Kind::RuntimeClass => path(&["apis", "node.k8s.io", "v1", "runtimeclasses", name]),
        Kind::PriorityClass => path(&["apis", "scheduling.k8s.io", "v1", "priorityclasses", name]),
        Kind::Services => named(&key.namespace, "services", name),
        Kind::ServiceAccountToken => named(&key.namespace, "serviceaccounts", name),
    }
}

/// What an object that the server told is.
///
/// # Errors
/// Why it can't be used.
pub fn decode(key: &Key, mut value: Value) -> Result<Found, String> {
    let version = kube::version(&value).to_owned();
    if let Some(meta) = value["metadata"].as_object_mut() {
        meta.remove("managedFields");
        // Changes of what is said about an object are none of what it holds.
        meta.remove("annotations");
        meta.remove("labels");
    }
    let read = manifest::read_object(key.kind, &Node::from(value));
    match read {
        Ok(object) if object.key == *key => Ok(Found::Object(Box::new(object), version)),
        Ok(object) => Err(format!("the answer is {}", object.key)),
        Err(why) => Err(why),
    }
}

fn services(key: &Key, items: &[Value]) -> Found {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let port = |port: &Value| ServicePort {
        name: text(&port["name"]),
        port: port["port"].as_i64().and_then(|n| i32::try_from(n).ok()).unwrap_or_default(),
        protocol: text(&port["protocol"]),
    };
    let service = |item: &Value| Service {
        name: text(&item["metadata"]["name"]),
        cluster_ip: text(&item["spec"]["clusterIP"]),
        ports: item["spec"]["ports"].as_array().into_iter().flatten().map(port).collect(),
    };
    let body = Body::Services(items.iter().map(service).collect());
    let object = Object { key: key.clone(), labels: BTreeMap::new(), created: None, body };
    Found::Object(Box::new(object), String::new())
}

/// Has a token made (authentication.k8s.io/v1 TokenRequest), bound to the pod.
///
/// # Errors
/// `Ok(Err(…))`: the answer holds none.
pub fn token(client: &Client, wanted: &WantedToken) -> Result<Result<Found, String>, kube::Error> {
    let mut spec = json!({
        "expirationSeconds": wanted.seconds,
        "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": wanted.pod, "uid": wanted.uid.as_str()},
    });
    // Without any, it is for the API server.
    spec["audiences"] = match wanted.audience.as_str() {
        "" => json!([]),
        audience => json!([audience]),
    };
    let request = json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec});
    let path = named(&wanted.namespace, "serviceaccounts", &wanted.service_account) + "/token";
    let answer = client.create(&path, &request)?;
    let Some(token) = answer["status"]["token"].as_str().filter(|token| !token.is_empty()) else {
        return Ok(Err("the answer holds no token".to_owned()));
    };
    // The server may give it another time than was asked for.
    let seconds = answer["spec"]["expirationSeconds"].as_u64().unwrap_or(wanted.seconds.unsigned_abs());
    let body = Body::ServiceAccountToken(SecretValue::new(token.as_bytes().to_vec()));
    let object = Object { key: wanted.key(), labels: BTreeMap::new(), created: None, body };
    Ok(Ok(Found::Token(Box::new(object), Duration::from_secs(seconds))))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        let of = |kind, namespace, name| path_of(&Key::new(kind, namespace, name));
        assert_eq!(of(Kind::Secret, "ns", "s"), "/api/v1/namespaces/ns/secrets/s");
        assert_eq!(of(Kind::PersistentVolume, "ns", "v"), "/api/v1/persistentvolumes/v");
        assert_eq!(of(Kind::RuntimeClass, "", "vm"), "/apis/node.k8s.io/v1/runtimeclasses/vm");
    }

    #[test]
    fn answers() {
        let key = Key::new(Kind::Secret, "ns", "s");
        let value = |name: &str, data: Value| {
            json!({"kind": "Secret", "apiVersion": "v1", "type": "Opaque", "data": data,
                "metadata": {"name": name, "namespace": "ns", "uid": "u", "resourceVersion": "7", "managedFields": [{}], "annotations": {"a": "b"}}})
        };
        let Ok(Found::Object(object, version)) = decode(&key, value("s", json!({"k": "aHVudGVyMg=="}))) else {
            panic!("is an object")
        };
        assert_eq!(version, "7");
        let Body::Secret(secret) = object.body else { panic!("is a secret") };
        assert_eq!(secret.data["k"].bytes(), b"hunter2");
        let wrong = decode(&key, value("other", json!({})));
        assert_eq!(wrong, Err("the answer is Secret ns/other".to_owned()));
        let broken = decode(&key, value("s", json!({"k": "hunter2 in the clear"}))).expect_err("is no base64");
        assert!(!broken.contains("hunter2"), "{broken}");
    }

    #[test]
    fn of_a_service_only_what_is_told() {
        let item = json!({"metadata": {"name": "web"}, "spec": {"clusterIP": "10.0.0.5", "type": "ClusterIP",
            "ports": [{"name": "http", "port": 80, "protocol": "TCP", "targetPort": 8080}]}});
        let Found::Object(object, _) = services(&Key::new(Kind::Services, "ns", ""), &[item]) else {
            panic!("is an object")
        };
        let port = ServicePort { name: "http".to_owned(), port: 80, protocol: "TCP".to_owned() };
        let want = Service { name: "web".to_owned(), cluster_ip: "10.0.0.5".to_owned(), ports: vec![port] };
        assert_eq!(object.body, Body::Services(vec![want]));
    }
}

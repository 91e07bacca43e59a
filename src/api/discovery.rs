//! What there is, told to clients before they ask for it: versions, resources, and of OpenAPI the
//! little that kubectl needs. Pure.

use serde_json::{Value, json};

use super::resource::Resource;
use super::usage;
use crate::server::http::Response;

pub fn version() -> Value {
    let (os, arch) = (std::env::consts::OS, std::env::consts::ARCH);
    let arch = match arch {
        "x86_64" => "amd64",
        "aarch64" => "arm64",
        arch => arch,
    };
    json!({
        "major": "1", "minor": "36", "gitVersion": crate::node::KUBELET_VERSION,
        "gitCommit": "", "gitTreeState": "clean", "buildDate": "1970-01-01T00:00:00Z",
        "goVersion": "", "compiler": "rustc", "platform": format!("{os}/{arch}"),
    })
}

pub fn paths() -> Value {
    json!({"paths": [
        "/api", "/api/v1", "/apis", "/apis/metrics.k8s.io", "/apis/metrics.k8s.io/v1beta1", "/healthz", "/livez", "/openapi/v2", "/openapi/v3", "/openapi/v3/api/v1",
        "/readyz", "/version",
    ]})
}

pub fn versions() -> Value {
    json!({"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": []})
}

pub fn groups() -> Value {
    json!({"kind": "APIGroupList", "apiVersion": "v1", "groups": [metrics_versions()]})
}

pub fn metrics_versions() -> Value {
    let version = json!({"groupVersion": usage::VERSION, "version": "v1beta1"});
    json!({"kind": "APIGroup", "apiVersion": "v1", "name": usage::GROUP, "versions": [version], "preferredVersion": version})
}

pub fn metrics_resources() -> Value {
    let one = |resource: Resource, kind: &str| {
        json!({
            "name": resource.name(), "singularName": "", "namespaced": resource.is_namespaced(), "kind": kind,
            "verbs": ["get", "list"],
        })
    };
    let all = [one(Resource::Nodes, "NodeMetrics"), one(Resource::Pods, "PodMetrics")];
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": usage::VERSION, "resources": all})
}

pub fn resources() -> Value {
    let mut all = Vec::new();
    for resource in Resource::ALL {
        let mut verbs = vec!["get", "list", "watch"];
        if resource.is_writable() {
            verbs.extend(["create", "delete", "deletecollection", "patch", "update"]);
        }
        all.push(json!({
            "name": resource.name(), "singularName": resource.kind().to_lowercase(),
            "namespaced": resource.is_namespaced(), "kind": resource.kind(), "verbs": verbs,
            "shortNames": resource.short_names(),
            "categories": if resource == Resource::Pods { vec!["all"] } else { vec![] },
        }));
    }
    let sub = |name: &str, kind: &str, verbs: &[&str]| json!({"name": name, "singularName": "", "namespaced": true, "kind": kind, "verbs": verbs});
    all.extend([
        sub("pods/attach", "PodAttachOptions", &["create", "get"]),
        sub("pods/ephemeralcontainers", "Pod", &["get", "patch", "update"]),
        sub("pods/exec", "PodExecOptions", &["create", "get"]),
        sub("pods/log", "Pod", &["get"]),
        sub("pods/portforward", "PodPortForwardOptions", &["create", "get"]),
        sub("pods/status", "Pod", &["get"]),
    ]);
    json!({"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": "v1", "resources": all})
}

/// A document without a schema: kubectl then leaves checking to the server. As protobuf, which old
/// ones ask for, that is nothing but the version, field 1.
pub fn openapi_v2(accept: &str) -> Response {
    // The name of old versions, with an @ in it, is none that they understand themselves.
    const PROTOBUF: &str = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf";
    match accept.contains("protobuf") {
        true => Response::new(200, PROTOBUF, b"\x0a\x032.0".to_vec()),
        false => Response::json(&json!({
            "swagger": "2.0", "info": {"title": "cleat", "version": env!("CARGO_PKG_VERSION")}, "paths": {},
        })),
    }
}

pub fn openapi_v3() -> Value {
    json!({"paths": {"api/v1": {"serverRelativeURL": "/openapi/v3/api/v1"}}})
}

/// That the server checks fields when an object is written is what kubectl looks for.
pub fn openapi_v3_v1() -> Value {
    let parameter =
        |name: &str| json!({"name": name, "in": "query", "schema": {"type": "string", "uniqueItems": true}});
    let parameters = [parameter("dryRun"), parameter("fieldValidation"), parameter("fieldManager")];
    let mut paths = serde_json::Map::new();
    for resource in Resource::ALL.into_iter().filter(|r| r.is_writable()) {
        let kind = json!({"group": "", "version": "v1", "kind": resource.kind()});
        let operation = |action: &str| {
            json!({
                "parameters": parameters, "responses": {"200": {"description": "OK"}},
                "x-kubernetes-action": action, "x-kubernetes-group-version-kind": kind,
            })
        };
        let one = format!("/api/v1/namespaces/{{namespace}}/{}/{{name}}", resource.name());
        paths.insert(one, json!({"patch": operation("patch"), "put": operation("put")}));
        let all = format!("/api/v1/namespaces/{{namespace}}/{}", resource.name());
        paths.insert(all, json!({"post": operation("post")}));
    }
    json!({"openapi": "3.0.0", "info": {"title": "cleat", "version": env!("CARGO_PKG_VERSION")}, "paths": paths})
}

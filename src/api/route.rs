//! What a request is about. Pure.

use serde_json::Value;

use super::resource::Resource;
use super::usage;
use crate::server::http::{Class, Head, Method};

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    Healthz,
    Version,
    Paths,
    /// `/api`, `/apis`, `/api/v1`.
    Versions,
    Groups,
    Resources,
    OpenApi2,
    OpenApi3,
    OpenApi3V1,
    /// `/apis/metrics.k8s.io`, and below it.
    MetricsVersions,
    MetricsResources,
    /// What nodes or pods use; all of them, or those of a namespace, or one of a name.
    Metrics(Resource, Option<String>),
    MetricsOf(Name),
    /// All objects of a resource; in all namespaces where none is given.
    List(Resource, Option<String>),
    Watch(Resource, Option<String>),
    Create(Resource, Option<String>),
    Get(Name),
    Replace(Name),
    Patch(Name),
    Delete(Name),
    /// All of those that are asked for.
    DeleteAll(Resource, String),
    /// Adds ephemeral containers.
    Ephemeral(Name),
    Log(Name),
    Exec(Name),
    Attach(Name),
    PortForward(Name),
    WrongMethod,
    NotFound,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Name {
    pub resource: Resource,
    /// Empty for those that are in none.
    pub namespace: String,
    pub name: String,
}

impl Name {
    /// That of an object.
    pub fn of(resource: Resource, object: &Value) -> Option<Name> {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).map(str::to_owned);
        let namespace = text("/metadata/namespace").unwrap_or_default();
        Some(Name { resource, namespace, name: text("/metadata/name")? })
    }
}

impl Route {
    pub fn of(head: &Head) -> Route {
        let segments = head.path.segments();
        let get = |route| match head.method {
            Method::Get | Method::Head => route,
            _ => Route::WrongMethod,
        };
        // Whoever leaves the name out means one object, not all.
        if head.path.directory && !matches!(head.method, Method::Get | Method::Head) {
            return Route::NotFound;
        }
        match segments.as_slice() {
            ["healthz" | "livez" | "readyz"] => get(Route::Healthz),
            ["version"] => get(Route::Version),
            [] => get(Route::Paths),
            ["api"] => get(Route::Versions),
            ["apis"] => get(Route::Groups),
            ["api", "v1"] => get(Route::Resources),
            ["apis", usage::GROUP] => get(Route::MetricsVersions),
            ["apis", usage::GROUP, "v1beta1", rest @ ..] => get(metrics(rest)),
            ["openapi", "v2"] => get(Route::OpenApi2),
            ["openapi", "v3"] => get(Route::OpenApi3),
            ["openapi", "v3", "api", "v1"] => get(Route::OpenApi3V1),
            ["api", "v1", "namespaces"] => collection(head, Resource::Namespaces, None),
            ["api", "v1", "namespaces", name] => object(head, Resource::Namespaces, "", name),
            ["api", "v1", "namespaces", namespace, resource, rest @ ..] => {
                match Resource::named(resource).filter(|r| r.is_namespaced()) {
                    Some(resource) => below(head, resource, namespace, rest),
                    None => Route::NotFound,
                }
            }
            ["api", "v1", resource, rest @ ..] => match (Resource::named(resource), rest) {
                (Some(resource), []) => collection(head, resource, None),
                (Some(resource), rest) if !resource.is_namespaced() => below(head, resource, "", rest),
                _ => Route::NotFound,
            },
            _ => Route::NotFound,
        }
    }

    /// What it takes of the agent.
    pub fn class(&self) -> Class {
        match self {
            Route::Watch(..) | Route::Log(_) | Route::Exec(_) | Route::Attach(_) | Route::PortForward(_) => {
                Class::Stream
            }
            Route::Create(..)
            | Route::Replace(_)
            | Route::Patch(_)
            | Route::Delete(_)
            | Route::DeleteAll(..)
            | Route::Ephemeral(_) => Class::Slow,
            // They may be measured first.
            Route::Metrics(..) | Route::MetricsOf(_) => Class::Slow,
            // Their annotations are in files.
            Route::Get(Name { resource: Resource::ConfigMaps | Resource::Secrets, .. }) => Class::Slow,
            Route::WrongMethod | Route::NotFound | Route::Healthz => Class::Quick,
            _ => Class::Read,
        }
    }

    /// Whether it only shows something that may be shown to all who are known.
    pub fn is_viewing(&self) -> bool {
        !matches!(
            self,
            Route::Create(..)
                | Route::Replace(_)
                | Route::Patch(_)
                | Route::Delete(_)
                | Route::DeleteAll(..)
                | Route::Ephemeral(_)
                | Route::Exec(_)
                | Route::Attach(_)
                | Route::PortForward(_)
        )
    }
}

fn metrics(rest: &[&str]) -> Route {
    let named = |resource, namespace: &str, name: &str| {
        Route::MetricsOf(Name { resource, namespace: namespace.to_owned(), name: name.to_owned() })
    };
    match rest {
        [] => Route::MetricsResources,
        ["nodes"] => Route::Metrics(Resource::Nodes, None),
        ["nodes", name] => named(Resource::Nodes, "", name),
        ["pods"] => Route::Metrics(Resource::Pods, None),
        ["namespaces", namespace, "pods"] => Route::Metrics(Resource::Pods, Some((*namespace).to_owned())),
        ["namespaces", namespace, "pods", name] => named(Resource::Pods, namespace, name),
        _ => Route::NotFound,
    }
}

fn collection(head: &Head, resource: Resource, namespace: Option<&str>) -> Route {
    let namespace = namespace.map(str::to_owned);
    match head.method {
        Method::Get if head.query.flag("watch") => Route::Watch(resource, namespace),
        Method::Get | Method::Head => Route::List(resource, namespace),
        Method::Post if resource.is_writable() && namespace.is_some() => Route::Create(resource, namespace),
        Method::Delete if resource.is_writable() => match namespace {
            Some(namespace) => Route::DeleteAll(resource, namespace),
            None => Route::WrongMethod,
        },
        _ => Route::WrongMethod,
    }
}

fn object(head: &Head, resource: Resource, namespace: &str, name: &str) -> Route {
    let name = Name { resource, namespace: namespace.to_owned(), name: name.to_owned() };
    match head.method {
        Method::Get | Method::Head => Route::Get(name),
        Method::Put if resource.is_writable() => Route::Replace(name),
        Method::Patch if resource.is_writable() => Route::Patch(name),
        Method::Delete if resource.is_writable() => Route::Delete(name),
        _ => Route::WrongMethod,
    }
}

fn below(head: &Head, resource: Resource, namespace: &str, rest: &[&str]) -> Route {
    let name = |name: &str| Name { resource, namespace: namespace.to_owned(), name: name.to_owned() };
    match (resource, rest) {
        (_, []) => collection(head, resource, (!namespace.is_empty()).then_some(namespace)),
        (_, [name]) => object(head, resource, namespace, name),
        (Resource::Pods | Resource::Nodes | Resource::Namespaces, [pod, "status"]) if head.method == Method::Get => {
            Route::Get(name(pod))
        }
        (Resource::Pods, [pod, "ephemeralcontainers"]) => match head.method {
            Method::Get | Method::Head => Route::Get(name(pod)),
            Method::Put | Method::Patch => Route::Ephemeral(name(pod)),
            _ => Route::WrongMethod,
        },
        (Resource::Pods, [pod, "log"]) if head.method == Method::Get => Route::Log(name(pod)),
        (Resource::Pods, [pod, action]) if matches!(head.method, Method::Get | Method::Post) => match *action {
            "exec" => Route::Exec(name(pod)),
            "attach" => Route::Attach(name(pod)),
            "portforward" => Route::PortForward(name(pod)),
            _ => Route::NotFound,
        },
        _ => Route::NotFound,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes() {
        let name = |resource, namespace: &str, name: &str| Name {
            resource,
            namespace: namespace.to_owned(),
            name: name.to_owned(),
        };
        let web = || name(Resource::Pods, "ns", "web");
        let ns = || Some("ns".to_owned());
        let table = [
            ("GET", "/api", Route::Versions),
            ("GET", "/apis", Route::Groups),
            ("GET", "/api/v1", Route::Resources),
            ("POST", "/api/v1", Route::WrongMethod),
            ("GET", "/api/v1/pods", Route::List(Resource::Pods, None)),
            ("GET", "/api/v1/pods?watch=true", Route::Watch(Resource::Pods, None)),
            ("GET", "/api/v1/namespaces/ns/pods?watch=1", Route::Watch(Resource::Pods, ns())),
            ("GET", "/api/v1/namespaces/ns/pods?watch=0", Route::List(Resource::Pods, ns())),
            ("GET", "/api/v1/nodes", Route::List(Resource::Nodes, None)),
            ("GET", "/api/v1/nodes/n", Route::Get(name(Resource::Nodes, "", "n"))),
            ("GET", "/api/v1/namespaces/ns", Route::Get(name(Resource::Namespaces, "", "ns"))),
            ("GET", "/api/v1/namespaces/ns/nodes", Route::NotFound),
            ("GET", "/api/v1/pods/web", Route::NotFound),
            ("POST", "/api/v1/pods", Route::WrongMethod),
            ("POST", "/api/v1/namespaces/ns/pods", Route::Create(Resource::Pods, ns())),
            ("POST", "/api/v1/namespaces/ns/events", Route::WrongMethod),
            ("GET", "/api/v1/namespaces/ns/pods/web", Route::Get(web())),
            ("PUT", "/api/v1/namespaces/ns/pods/web", Route::Replace(web())),
            ("PATCH", "/api/v1/namespaces/ns/pods/web", Route::Patch(web())),
            ("DELETE", "/api/v1/namespaces/ns/pods/web", Route::Delete(web())),
            ("DELETE", "/api/v1/namespaces/ns/pods", Route::DeleteAll(Resource::Pods, "ns".to_owned())),
            ("DELETE", "/api/v1/namespaces/ns/pods/", Route::NotFound),
            ("GET", "/api/v1/namespaces/ns/pods/", Route::List(Resource::Pods, ns())),
            ("DELETE", "/api/v1/pods", Route::WrongMethod),
            ("DELETE", "/api/v1/namespaces/ns/events", Route::WrongMethod),
            ("DELETE", "/api/v1/nodes/n", Route::WrongMethod),
            ("GET", "/api/v1/namespaces/ns/pods/web/log", Route::Log(web())),
            ("POST", "/api/v1/namespaces/ns/pods/web/log", Route::NotFound),
            ("POST", "/api/v1/namespaces/ns/pods/web/exec", Route::Exec(web())),
            ("GET", "/api/v1/namespaces/ns/pods/web/portforward", Route::PortForward(web())),
            ("GET", "/api/v1/namespaces/ns/pods/web/ephemeralcontainers", Route::Get(web())),
            ("PATCH", "/api/v1/namespaces/ns/pods/web/ephemeralcontainers", Route::Ephemeral(web())),
            ("DELETE", "/api/v1/namespaces/ns/pods/web/ephemeralcontainers", Route::WrongMethod),
            ("GET", "/api/v1/namespaces/ns/configmaps/web/log", Route::NotFound),
            ("GET", "/apis/apps/v1/deployments", Route::NotFound),
            ("GET", "/apis/metrics.k8s.io", Route::MetricsVersions),
            ("GET", "/apis/metrics.k8s.io/v1beta1", Route::MetricsResources),
            ("GET", "/apis/metrics.k8s.io/v1beta1/pods", Route::Metrics(Resource::Pods, None)),
            ("GET", "/apis/metrics.k8s.io/v1beta1/namespaces/ns/pods", Route::Metrics(Resource::Pods, ns())),
            ("GET", "/apis/metrics.k8s.io/v1beta1/namespaces/ns/pods/web", Route::MetricsOf(web())),
            ("GET", "/apis/metrics.k8s.io/v1beta1/nodes/n", Route::MetricsOf(name(Resource::Nodes, "", "n"))),
            ("GET", "/apis/metrics.k8s.io/v1beta1/pods/web", Route::NotFound),
            ("DELETE", "/apis/metrics.k8s.io/v1beta1/pods", Route::WrongMethod),
            ("GET", "/apis/metrics.k8s.io/v1/pods", Route::NotFound),
        ];
        for (method, path, want) in table {
            assert_eq!(Route::of(&Head::example(method, path, &[])), want, "{method} {path}");
        }
    }
}

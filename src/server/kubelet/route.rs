//! Which endpoint a request is for. Pure.

use crate::server::http::{Class, Head, Method};

/// What a port offers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Offer {
    /// How the agent is (`healthzPort`).
    Health,
    /// What changes nothing and shows no log (`readOnlyPort`).
    ReadOnly,
    /// All of it (`port`), to those who may.
    Full(Handlers),
}

/// What `enableDebuggingHandlers` and `enableSystemLogHandler` let.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Handlers {
    pub debugging: bool,
    pub system_log: bool,
}

/// A container of a pod, by the names in a path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub namespace: String,
    pub pod: String,
    /// To make sure that it is the pod that is meant.
    pub uid: Option<String>,
    /// Empty where the pod alone is meant.
    pub container: String,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Route {
    /// One check, or all of them.
    Health(Option<String>),
    Pods,
    RunningPods,
    Config,
    Metrics,
    ContainerMetrics,
    ResourceMetrics,
    ProbeMetrics,
    Summary,
    ContainerLog(Target),
    /// The segments below the host's log directory, and whether the path ends with a slash.
    HostLog(Vec<String>, bool),
    Exec(Target),
    Attach(Target),
    PortForward(Target),
    Run(Target),
    Checkpoint(Target),
    /// Turned off, and by what.
    Disabled(&'static str),
    /// The methods that there are.
    WrongMethod(&'static str),
    NotFound,
}

impl Route {
    pub fn of(head: &Head, offer: Offer) -> Route {
        let segments = head.path.segments();
        let handlers = match offer {
            Offer::Health => return health(&segments).map_or(Route::NotFound, |route| get(head, route)),
            Offer::ReadOnly => None,
            Offer::Full(handlers) => Some(handlers),
        };
        let open = health(&segments).or_else(|| read_only(&segments));
        if let Some(route) = open {
            return get(head, route);
        }
        let Some(handlers) = handlers else { return Route::NotFound };
        match segments.first() {
            Some(&("run" | "exec" | "attach" | "portForward" | "containerLogs" | "runningpods" | "logs"))
                if !handlers.debugging =>
            {
                Route::Disabled("enableDebuggingHandlers is false")
            }
            Some(&("configz" | "checkpoint")) if !handlers.debugging => Route::NotFound,
            Some(&"logs") if !handlers.system_log => Route::Disabled("enableSystemLogHandler is false"),
            _ => full(head, &segments),
        }
    }

    /// What it takes of the agent.
    pub fn class(&self) -> Class {
        match self {
            Route::Exec(_) | Route::Attach(_) | Route::PortForward(_) => Class::Stream,
            Route::ContainerLog(_) | Route::HostLog(..) | Route::Run(_) => Class::Stream,
            Route::ContainerMetrics | Route::ResourceMetrics | Route::Summary | Route::Checkpoint(_) => Class::Slow,
            Route::Pods | Route::RunningPods | Route::Config | Route::Metrics | Route::ProbeMetrics => Class::Read,
            Route::Health(_) | Route::Disabled(_) | Route::WrongMethod(_) | Route::NotFound => Class::Quick,
        }
    }

    /// Whether it lasts for as long as the client likes.
    pub fn is_long_running(&self) -> bool {
        matches!(self, Route::Exec(_) | Route::Attach(_) | Route::PortForward(_))
    }

    /// The name of the endpoint in metrics.
    pub fn bucket(&self) -> &'static str {
        match self {
            Route::Health(_) => "healthz",
            Route::Pods => "pods",
            Route::RunningPods => "runningpods",
            Route::Config => "configz",
            Route::Metrics => "metrics",
            Route::ContainerMetrics => "metrics/cadvisor",
            Route::ResourceMetrics => "metrics/resource",
            Route::ProbeMetrics => "metrics/probes",
            Route::Summary => "stats",
            Route::ContainerLog(_) => "containerLogs",
            Route::HostLog(..) => "logs",
            Route::Exec(_) => "exec",
            Route::Attach(_) => "attach",
            Route::PortForward(_) => "portForward",
            Route::Run(_) => "run",
            Route::Checkpoint(_) => "checkpoint",
            Route::Disabled(_) | Route::WrongMethod(_) | Route::NotFound => "other",
        }
    }
}

fn health(segments: &[&str]) -> Option<Route> {
    match segments {
        ["healthz"] => Some(Route::Health(None)),
        ["healthz", check] => Some(Route::Health(Some((*check).to_owned()))),
        _ => None,
    }
}

fn read_only(segments: &[&str]) -> Option<Route> {
    match segments {
        ["pods"] => Some(Route::Pods),
        ["stats", "summary"] => Some(Route::Summary),
        ["metrics"] => Some(Route::Metrics),
        ["metrics", "cadvisor"] => Some(Route::ContainerMetrics),
        ["metrics", "resource"] => Some(Route::ResourceMetrics),
        ["metrics", "probes"] => Some(Route::ProbeMetrics),
        _ => None,
    }
}

fn full(head: &Head, segments: &[&str]) -> Route {
    let target = |namespace: &str, pod: &str, uid: Option<&str>, container: &str| Target {
        namespace: namespace.to_owned(),
        pod: pod.to_owned(),
        uid: uid.map(str::to_owned),
        container: container.to_owned(),
    };
    match segments {
        ["runningpods"] => get(head, Route::RunningPods),
        ["configz"] => get(head, Route::Config),
        ["logs", path @ ..] => {
            let path = path.iter().map(|segment| (*segment).to_owned()).collect();
            get(head, Route::HostLog(path, head.path.directory))
        }
        ["containerLogs", ns, pod, container] => get(head, Route::ContainerLog(target(ns, pod, None, container))),
        ["exec", ns, pod, container] => get_or_post(head, Route::Exec(target(ns, pod, None, container))),
        ["exec", ns, pod, uid, container] => get_or_post(head, Route::Exec(target(ns, pod, Some(uid), container))),
        ["attach", ns, pod, container] => get_or_post(head, Route::Attach(target(ns, pod, None, container))),
        ["attach", ns, pod, uid, container] => get_or_post(head, Route::Attach(target(ns, pod, Some(uid), container))),
        ["portForward", ns, pod] => get_or_post(head, Route::PortForward(target(ns, pod, None, ""))),
        ["portForward", ns, pod, uid] => get_or_post(head, Route::PortForward(target(ns, pod, Some(uid), ""))),
        ["run", ns, pod, container] => post(head, Route::Run(target(ns, pod, None, container))),
        ["run", ns, pod, uid, container] => post(head, Route::Run(target(ns, pod, Some(uid), container))),
        ["checkpoint", ns, pod, container] => post(head, Route::Checkpoint(target(ns, pod, None, container))),
        _ => Route::NotFound,
    }
}

fn get(head: &Head, route: Route) -> Route {
    match head.method {
        Method::Get | Method::Head => route,
        _ => Route::WrongMethod("GET, HEAD"),
    }
}

fn get_or_post(head: &Head, route: Route) -> Route {
    match head.method {
        Method::Get | Method::Post => route,
        _ => Route::WrongMethod("GET, POST"),
    }
}

fn post(head: &Head, route: Route) -> Route {
    match head.method {
        Method::Post => route,
        _ => Route::WrongMethod("POST"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: Offer = Offer::Full(Handlers { debugging: true, system_log: true });

    fn target(uid: Option<&str>, container: &str) -> Target {
        let text = |s: &str| s.to_owned();
        Target { namespace: text("ns"), pod: text("pod"), uid: uid.map(text), container: text(container) }
    }

    #[test]
    fn all_endpoints() {
        let debugging_off = Offer::Full(Handlers { debugging: false, system_log: true });
        let log_off = Offer::Full(Handlers { debugging: true, system_log: false });
        let table = [
            ("GET", "/healthz", Offer::Health, Route::Health(None)),
            ("HEAD", "/healthz/", Offer::Health, Route::Health(None)),
            ("GET", "/healthz/ping", ALL, Route::Health(Some("ping".to_owned()))),
            ("POST", "/healthz", Offer::Health, Route::WrongMethod("GET, HEAD")),
            ("GET", "/pods", Offer::Health, Route::NotFound),
            ("GET", "/pods/", Offer::ReadOnly, Route::Pods),
            ("GET", "/stats/summary", Offer::ReadOnly, Route::Summary),
            ("GET", "/stats/", Offer::ReadOnly, Route::NotFound),
            ("GET", "/metrics", Offer::ReadOnly, Route::Metrics),
            ("GET", "/metrics/cadvisor", Offer::ReadOnly, Route::ContainerMetrics),
            ("GET", "/metrics/resource", ALL, Route::ResourceMetrics),
            ("GET", "/metrics/probes", ALL, Route::ProbeMetrics),
            ("GET", "/runningpods/", Offer::ReadOnly, Route::NotFound),
            ("GET", "/runningpods/", ALL, Route::RunningPods),
            ("GET", "/configz", Offer::ReadOnly, Route::NotFound),
            ("GET", "/configz", ALL, Route::Config),
            ("GET", "/configz", debugging_off, Route::NotFound),
            ("GET", "/containerLogs/ns/pod/c", Offer::ReadOnly, Route::NotFound),
            ("GET", "/containerLogs/ns/pod/c", ALL, Route::ContainerLog(target(None, "c"))),
            ("POST", "/containerLogs/ns/pod/c", ALL, Route::WrongMethod("GET, HEAD")),
            ("GET", "/containerLogs/ns/pod", ALL, Route::NotFound),
            ("GET", "/logs/", ALL, Route::HostLog(vec![], true)),
            ("GET", "/logs/pods/x.log", ALL, Route::HostLog(vec!["pods".to_owned(), "x.log".to_owned()], false)),
            ("GET", "/logs/x", log_off, Route::Disabled("enableSystemLogHandler is false")),
            ("GET", "/logs/x", Offer::ReadOnly, Route::NotFound),
            ("POST", "/exec/ns/pod/c", ALL, Route::Exec(target(None, "c"))),
            ("GET", "/exec/ns/pod/uid/c", ALL, Route::Exec(target(Some("uid"), "c"))),
            ("PUT", "/exec/ns/pod/c", ALL, Route::WrongMethod("GET, POST")),
            ("POST", "/exec/ns/pod/c", Offer::ReadOnly, Route::NotFound),
            ("POST", "/exec/ns/pod/c", Offer::Health, Route::NotFound),
            ("POST", "/exec/ns/pod/c", debugging_off, Route::Disabled("enableDebuggingHandlers is false")),
            ("GET", "/attach/ns/pod/c", ALL, Route::Attach(target(None, "c"))),
            ("POST", "/portForward/ns/pod", ALL, Route::PortForward(target(None, ""))),
            ("POST", "/portForward/ns/pod/uid", ALL, Route::PortForward(target(Some("uid"), ""))),
            ("POST", "/run/ns/pod/c", ALL, Route::Run(target(None, "c"))),
            ("GET", "/run/ns/pod/c", ALL, Route::WrongMethod("POST")),
            ("POST", "/checkpoint/ns/pod/c", ALL, Route::Checkpoint(target(None, "c"))),
            ("POST", "/checkpoint/ns/pod/c", debugging_off, Route::NotFound),
            ("GET", "/debug/pprof/", ALL, Route::NotFound),
            ("GET", "/", ALL, Route::NotFound),
        ];
        for (method, path, offer, want) in table {
            assert_eq!(Route::of(&Head::example(method, path, &[]), offer), want, "{method} {path} {offer:?}");
        }
    }
}

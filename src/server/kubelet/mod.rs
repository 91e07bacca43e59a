//! The kubelet API, on each of the ports that offer a part of it (pkg/kubelet/server/server.go).
//!
//! Shows what the agent knows, and hands on to the runtime what people want of it; changes nothing of
//! what the agent wants.

mod config;
mod health;
mod host_log;
pub(crate) mod log;
mod metrics;
mod pods;
mod route;
pub(crate) mod stats;
pub(crate) mod streaming;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::cri::Inspect;
use crate::metrics::{HttpRequest, METRICS};
use crate::pod::Pod;
use crate::runtime::Runtime;
use crate::server::auth::{Attributes, Authenticator, Authorizer};
use crate::server::http::{Class, Head, Peer, Reply, Request, Response, Service};
use crate::status::{Store, StoredPod};
use crate::sync_loop::Heartbeat;
use route::Route;
pub use route::{Handlers, Offer, Target};
pub use stats::Rates;

/// What the endpoints tell of.
pub struct Parts {
    pub runtime: Arc<Runtime>,
    pub inspect: Arc<dyn Inspect>,
    pub store: Arc<Store>,
    pub heartbeat: Arc<Heartbeat>,
    pub node_name: String,
    /// The agent's own directory.
    pub root_dir: PathBuf,
    /// The configuration in force, as JSON.
    pub configuration: serde_json::Value,
    /// A stream on which nothing happens ends after so long; `None` is never.
    pub streaming_idle: Option<Duration>,
    /// When the agent was started, in seconds since 1970.
    pub started: i64,
    pub rates: Rates,
}

/// Where the host's logs are.
const HOST_LOGS: &str = "/var/log";

/// Who may ask.
pub struct Access {
    pub authenticator: Authenticator,
    pub authorizer: Authorizer,
}

/// What answers on one port.
pub struct Kubelet {
    pub parts: Arc<Parts>,
    pub offer: Offer,
    /// `None` where everybody may.
    pub access: Option<Access>,
}

impl Service for Kubelet {
    fn class(&self, head: &Head, _: &Peer) -> Class {
        Route::of(head, self.offer).class()
    }

    fn serve(&self, request: &mut Request<'_>) -> Reply {
        let route = Route::of(&request.head, self.offer);
        let counted = Counted::new(&request.head, &route, self.access.is_none());
        let user = match self.admit(request) {
            Ok(user) => user,
            Err(refusal) => return refusal.into(),
        };
        counted.until_the_end_of(self.answer(route, request, &user))
    }
}

impl Kubelet {
    /// Who it is that asks, for log lines; or why they may not.
    fn admit(&self, request: &Request<'_>) -> Result<String, Response> {
        let Some(access) = &self.access else { return Ok("somebody".to_owned()) };
        let Some(user) = access.authenticator.authenticate(&request.head, &request.peer) else {
            return Err(Response::text(401, "Unauthorized\n").with_header("WWW-Authenticate", "Bearer"));
        };
        let attributes = Attributes::of(&request.head);
        match access.authorizer.authorize(&user, &attributes) {
            Ok(()) => Ok(user.name),
            Err(why) => Err(Response::text(403, why)),
        }
    }

    fn answer(&self, route: Route, request: &mut Request<'_>, user: &str) -> Reply {
        let parts = &self.parts;
        let query = &request.head.query;
        match route {
            Route::Health(check) => health::healthz(parts, check.as_deref(), query, Instant::now()).into(),
            Route::Pods => pods::pods(&parts.store).into(),
            Route::RunningPods => pods::running(&parts.runtime.cache).into(),
            Route::Config => config::configz(&parts.configuration).into(),
            Route::ContainerLog(target) => log::container_log(parts, &target, query),
            Route::HostLog(path, directory) => host_log::serve(Path::new(HOST_LOGS), &path, directory),
            Route::Exec(target) => streaming::exec(parts, &target, &request.head, user),
            Route::Attach(target) => streaming::attach(parts, &target, &request.head, user),
            Route::PortForward(target) => streaming::port_forward(parts, &target, &request.head, user),
            Route::Run(target) => streaming::run(parts, &target, request, user).into(),
            Route::Checkpoint(target) => streaming::checkpoint(parts, &target, query, user).into(),
            Route::Disabled(why) => Response::text(405, format!("this endpoint is disabled: {why}\n")).into(),
            Route::WrongMethod(allow) => {
                Response::text(405, "405 method not allowed\n").with_header("Allow", allow).into()
            }
            Route::Metrics => metrics::own(parts).into(),
            Route::ProbeMetrics => metrics::probes(&parts.runtime.probes.snapshot()).into(),
            Route::ContainerMetrics => {
                metrics::page(stats::cadvisor(&stats::read(parts, false), &parts.runtime.policy)).into()
            }
            Route::ResourceMetrics => metrics::page(stats::resource(&stats::read(parts, false))).into(),
            Route::Summary => stats::summary(parts, query).into(),
            Route::NotFound => Response::not_found().into(),
        }
    }
}

impl Parts {
    /// The pod of a path.
    fn pod(&self, target: &Target) -> Result<StoredPod, Response> {
        let named = |stored: &StoredPod| {
            let name = &stored.pod.name;
            *name.namespace == *target.namespace && *name.name == *target.pod
        };
        let right = |stored: &StoredPod| target.uid.as_ref().is_none_or(|uid| stored.pod.uid.as_str() == uid);
        let all = self.store.list();
        let found = all.into_iter().filter(|stored| named(stored) && right(stored)).min_by_key(|stored| stored.ending);
        found.ok_or_else(|| Response::text(404, format!("there is no pod {}/{}\n", target.namespace, target.pod)))
    }
}

fn no_container(pod: &Pod, name: &str) -> Response {
    Response::text(404, format!("there is no container {name:?} in pod {}\n", pod.name))
}

/// A request that is being answered, for the metrics.
struct Counted {
    labels: HttpRequest,
    start: Instant,
}

impl Counted {
    fn new(head: &Head, route: &Route, read_only: bool) -> Counted {
        let labels = HttpRequest {
            method: head.method.as_str(),
            path: route.bucket(),
            server_type: if read_only { "readonly" } else { "readwrite" },
            long_running: if route.is_long_running() { "true" } else { "false" },
        };
        METRICS.http_requests.get_or_create(&labels).inc();
        METRICS.http_inflight.get_or_create(&labels).inc();
        Counted { labels, start: Instant::now() }
    }

    /// An answer that takes time is being answered until all of it is.
    fn until_the_end_of(self, reply: Reply) -> Reply {
        match reply {
            Reply::Whole(_) => reply,
            Reply::Stream(head, write) => Reply::Stream(
                head,
                Box::new(move |out| {
                    let _counted = self;
                    write(out)
                }),
            ),
            Reply::Upgrade(speak) => Reply::Upgrade(Box::new(move |raw| {
                let _counted = self;
                speak(raw)
            })),
        }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        METRICS.http_inflight.get_or_create(&self.labels).dec();
        METRICS.http_durations.get_or_create(&self.labels).observe(self.start.elapsed().as_secs_f64());
    }
}

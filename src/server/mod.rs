//! The agent's HTTP endpoints: `/healthz`, and on the read-only port `/pods` too, as the kubelet's
//! (pkg/kubelet/server).
//!
//! Reads what the agent knows, and changes nothing.

pub mod http;
#[cfg(test)]
mod tests;

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;

use crate::pleg::Health;
use crate::pod::core;
use crate::status::{Store, StoredPod};
use crate::sync_loop::Heartbeat;
use http::{Request, Response};

/// The sync loop turns each second; after so long it is stuck.
const LOOP_STUCK: Duration = Duration::from_secs(30);

/// What the endpoints tell of.
pub struct Api {
    pub store: Arc<Store>,
    pub health: Arc<Health>,
    pub heartbeat: Arc<Heartbeat>,
}

impl Api {
    /// The read-only port.
    pub fn read_only(&self, request: &Request) -> Response {
        match request.path.as_str() {
            "/pods" | "/pods/" => self.pods(),
            _ => self.healthz_only(request),
        }
    }

    /// The health port.
    pub fn healthz_only(&self, request: &Request) -> Response {
        match request.path.as_str() {
            "/healthz" | "/healthz/" => self.healthz(Instant::now(), request.query.contains("verbose")),
            path => Response::text(404, format!("404 page not found: {path}\n")),
        }
    }

    fn healthz(&self, now: Instant, verbose: bool) -> Response {
        let turned = self.heartbeat.age(now);
        let sync_loop = match turned > LOOP_STUCK {
            true => Err(format!("it turned last {} s ago", turned.as_secs())),
            false => Ok(()),
        };
        let checks = [("ping", Ok(())), ("syncloop", sync_loop), ("runtime", self.health.check(now))];
        let healthy = checks.iter().all(|(_, result)| result.is_ok());
        if healthy && !verbose {
            return Response::text(200, "ok".to_owned());
        }
        let mut text = String::new();
        for (name, result) in &checks {
            // Writing to a string can't fail.
            let _ = match result {
                Ok(()) => writeln!(text, "[+]{name} ok"),
                Err(why) => writeln!(text, "[-]{name} failed: {why}"),
            };
        }
        text.push_str(if healthy { "healthz check passed\n" } else { "healthz check failed\n" });
        Response::text(if healthy { 200 } else { 500 }, text)
    }

    fn pods(&self) -> Response {
        let pods = self.store.list();
        let items = pods.iter().map(Item::of).collect();
        Response::json(&PodList { kind: "PodList", api_version: "v1", metadata: Empty {}, items })
    }
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct PodList<'a> {
    kind: &'static str,
    api_version: &'static str,
    metadata: Empty,
    items: Vec<Item<'a>>,
}

#[derive(Serialize)]
struct Empty {}

#[derive(Serialize)]
struct Item<'a> {
    metadata: &'a ObjectMeta,
    spec: &'a core::PodSpec,
    #[serde(skip_serializing_if = "Option::is_none")]
    status: Option<&'a core::PodStatus>,
    #[serde(rename = "status", skip_serializing_if = "Option::is_none")]
    unknown: Option<Pending>,
}

/// Of a pod that has not been looked at yet.
#[derive(Serialize)]
struct Pending {
    phase: &'static str,
}

impl Item<'_> {
    fn of(stored: &StoredPod) -> Item<'_> {
        let status = stored.status.as_deref();
        let unknown = status.is_none().then_some(Pending { phase: "Pending" });
        Item { metadata: &stored.pod.meta, spec: &stored.pod.spec, status, unknown }
    }
}

//! `/pods`: the pods that are wanted, with their status. `/runningpods/`: those that the runtime has.

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Serialize;

use crate::pleg::{Cache, Observed};
use crate::pod::core;
use crate::server::http::Response;
use crate::status::{Store, StoredPod};

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct List<T> {
    kind: &'static str,
    api_version: &'static str,
    metadata: Empty,
    items: Vec<T>,
}

#[derive(Serialize)]
struct Empty {}

impl<T: Serialize> List<T> {
    fn answer(items: Vec<T>) -> Response {
        Response::json(&List { kind: "PodList", api_version: "v1", metadata: Empty {}, items })
    }
}

pub fn pods(store: &Store) -> Response {
    let pods = store.list();
    List::answer(pods.iter().filter(|stored| !stored.ending).map(Item::of).collect())
}

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

/// As the runtime was seen last, whether the pods are wanted or not.
pub fn running(cache: &Cache) -> Response {
    let observed = cache.uids().into_iter().filter_map(|uid| Some(cache.get(&uid)?.0));
    let mut pods: Vec<_> = observed.filter_map(|observed| running_pod(&observed)).collect();
    pods.sort_by(|a, b| (&a.metadata.namespace, &a.metadata.name).cmp(&(&b.metadata.namespace, &b.metadata.name)));
    List::answer(pods)
}

fn running_pod(observed: &Arc<Observed>) -> Option<core::Pod> {
    let running: Vec<_> = observed.containers.iter().filter(|c| c.is_running()).collect();
    let ready = observed.sandboxes.iter().find(|s| s.sandbox.ready).map(|s| &s.sandbox.pod);
    let pod = ready.or_else(|| running.first().map(|c| &c.status.container.pod))?;
    let containers = running.iter().map(|c| core::Container {
        name: c.status.container.name.to_string(),
        image: Some(c.status.image.clone()).filter(|image| !image.is_empty()),
        ..Default::default()
    });
    Some(core::Pod {
        metadata: ObjectMeta {
            name: Some(pod.name.name.to_string()),
            namespace: Some(pod.name.namespace.to_string()),
            uid: Some(pod.uid.to_string()),
            ..Default::default()
        },
        spec: Some(core::PodSpec { containers: containers.collect(), ..Default::default() }),
        status: None,
    })
}

//! Ephemeral containers: they stand in no manifest, so the agent is asked to add them to the pod.

use serde_json::Value;

use super::{Patch, Result, Writer, body, is_dry, newest};
use crate::api::answer;
use crate::api::object::Object;
use crate::api::route::Name;
use crate::pod::{Pod, core};
use crate::server::http::{Method, Request, Response};
use crate::source::manifest::{defaults, validate};
use crate::sync_loop::orders::What;

impl Writer<'_> {
    pub fn ephemeral(&self, name: &Name, request: &mut Request<'_>) -> Result<Response> {
        let found = newest(self.store, name, self.manifests);
        let Some((version, Object::Pod { pod, .. })) = found.map(|entry| (entry.version, entry.object)) else {
            return Err(answer::not_found(name));
        };
        let live = || self.live(name).map(|(_, live)| live).unwrap_or_default();
        let document = match request.head.method {
            Method::Put => body(request)?,
            _ => Patch::of(request)?.apply(live())?,
        };
        super::same_version(name, &document, version)?;
        let list = containers(name, &pod, &document)?;
        if is_dry(request)? || list == pod.spec.ephemeral_containers.as_deref().unwrap_or_default() {
            return Ok(answer::ok(&live()));
        }
        let names: Vec<&str> = list.iter().map(|c| c.name.as_str()).collect();
        log::info!("{}: its ephemeral containers are to be {}", pod.name, names.join(", "));
        self.orders.give(pod.uid.clone(), What::Ephemeral(list)).map_err(|why| super::not_taken(name, why))?;
        Ok(answer::ok(&self.seen(name, version).unwrap_or_else(live)))
    }
}

/// Those that the pod has in `document`, all of them right and with defaults.
fn containers(name: &Name, pod: &Pod, document: &Value) -> Result<Vec<core::EphemeralContainer>> {
    let before = pod.spec.ephemeral_containers.as_deref().unwrap_or_default();
    let (list, is_whole) = match document.get("kind").and_then(Value::as_str) {
        Some("Pod") | None => (document.pointer("/spec/ephemeralContainers"), true),
        // What clients before 1.22 send, which don't see those that are there.
        Some("EphemeralContainers") => (document.get("ephemeralContainers"), false),
        Some(kind) => return Err(answer::failed(400, &format!("this has to be a Pod, not a {kind}"))),
    };
    let list: Option<Vec<core::EphemeralContainer>> = serde_json::from_value(list.cloned().unwrap_or_default())
        .map_err(|e| answer::failed(400, &format!("the ephemeral containers can't be read: {e}")))?;
    let mut list = list.unwrap_or_default();
    list.iter_mut().for_each(defaults::ephemeral_container);
    if !is_whole {
        let new = |old: &&core::EphemeralContainer| list.iter().all(|c| c.name != old.name);
        let old: Vec<_> = before.iter().filter(new).cloned().collect();
        list.extend(old);
    }
    // In the order in which they came, whatever a patch makes of it.
    list.sort_by_key(|c| before.iter().position(|b| b.name == c.name).unwrap_or(usize::MAX));
    let spec = core::PodSpec { ephemeral_containers: Some(list), ..pod.spec.clone() };
    let problems = validate::validate_ephemeral(&spec, before);
    match problems.is_empty() {
        true => Ok(spec.ephemeral_containers.unwrap_or_default()),
        false => {
            let problems: Vec<_> = problems.into_iter().map(|p| (p.field, p.message)).collect();
            Err(answer::invalid(name, &problems))
        }
    }
}

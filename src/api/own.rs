//! What Kubernetes' API has no word for, below `/cleat/v1`: the images of the node, and restarts.

use std::time::{Duration, Instant};

use crossbeam::channel::Sender;
use serde_json::json;

use super::answer;
use super::resource::Resource;
use super::route::Name;
use crate::cri::Cri;
use crate::runtime::{Done, Op, may_be_ordered};
use crate::server::http::{Class, Head, Method, Response};
use crate::status::{StoredPod, is_terminal};

/// How long the agent's main loop may take to hear of an order.
const HEARD: Duration = Duration::from_secs(3);

#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Own {
    Images,
    Restart(Name),
}

impl Own {
    pub fn of(head: &Head) -> Option<Own> {
        match (head.method, head.path.segments().as_slice()) {
            (Method::Get, ["cleat", "v1", "images"]) => Some(Own::Images),
            (Method::Post, ["cleat", "v1", "namespaces", namespace, "pods", name, "restart"]) => {
                let (namespace, name) = ((*namespace).to_owned(), (*name).to_owned());
                Some(Own::Restart(Name { resource: Resource::Pods, namespace, name }))
            }
            _ => None,
        }
    }

    pub fn class(&self) -> Class {
        Class::Slow
    }
}

/// All images that the runtime has.
pub fn images(cri: &dyn Cri) -> Result<Response, Response> {
    let images = cri.list_images().map_err(|e| answer::failed(503, &format!("asking the runtime: {e}")))?;
    let items: Vec<_> = images
        .into_iter()
        .map(|image| {
            let name = image.repo_tags.first().or(image.repo_digests.first()).unwrap_or(&image.id);
            json!({
                "kind": "Image", "metadata": {"name": name},
                "id": image.id, "tags": image.repo_tags, "digests": image.repo_digests,
                "sizeBytes": image.size, "pinned": image.pinned,
            })
        })
        .collect();
    Ok(answer::ok(&json!({"kind": "ImageList", "apiVersion": "cleat/v1", "items": items})))
}

/// Has containers of a pod restarted: the one, or all that run as long as the pod does. The answer
/// names them.
pub fn restart(
    orders: &Sender<Done>,
    stored: &StoredPod,
    container: Option<&str>,
    user: &str,
) -> Result<Response, Response> {
    let pod = &stored.pod;
    if stored.ending || stored.status.as_ref().is_some_and(|status| is_terminal(status)) {
        return Err(answer::failed(
            409,
            &format!("pod {} has ended for good, or is about to: nothing of it is started again", pod.name),
        ));
    }
    let names: Vec<String> = match container.filter(|name| !name.is_empty()) {
        Some(name) if may_be_ordered(pod, name) => vec![name.to_owned()],
        Some(name) => {
            let message = format!("pod {} has no container {name:?} that could be restarted", pod.name);
            return Err(answer::failed(400, &message));
        }
        None => pod.all_containers().map(|c| c.name.clone()).filter(|name| may_be_ordered(pod, name)).collect(),
    };
    log::info!("{}: {user} wants a restart of {}", pod.name, names.join(", "));
    for name in &names {
        let order = Done { uid: pod.uid.clone(), op: Op::Restart(name.clone()), at: Instant::now(), result: Ok(()) };
        orders.send_timeout(order, HEARD).map_err(|_| answer::failed(503, "the agent's main loop does not listen"))?;
    }
    Ok(answer::ok(&json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
        "details": {"name": &*pod.name.name, "kind": "pods", "containers": names},
    })))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn routes() {
        let of = |method, path| Own::of(&Head::example(method, path, &[]));
        assert_eq!(of("GET", "/cleat/v1/images"), Some(Own::Images));
        let path = "/cleat/v1/namespaces/ns/pods/web/restart";
        let name = Name { resource: Resource::Pods, namespace: "ns".to_owned(), name: "web".to_owned() };
        assert_eq!(of("POST", path), Some(Own::Restart(name)));
        for (method, path) in [("GET", path), ("POST", "/cleat/v1/images"), ("GET", "/cleat/v1"), ("GET", "/api/v1")] {
            assert_eq!(of(method, path), None, "{method} {path}");
        }
    }
}

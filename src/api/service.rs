//! Answers requests: who may ask, and which part of the API it is for.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::list::{self, Page};
use super::object::Secrets;
use super::own::{self, Own};
use super::resource::Resource;
use super::route::{Name, Route};
use super::selector::Selector;
use super::store::Store;
use super::table::{self, Include};
use super::watch::{self, Options, View};
use super::write::{self, Manifests, Writer};
use super::{answer, discovery, page, usage};
use crate::pod::Pod;
use crate::server::auth::{Authenticator, MASTERS, User};
use crate::server::http::{self, Address, Class, Head, JSON, Peer, Reply, Request, Response};
use crate::server::kubelet::{self, Parts, Target};
use crate::status::StoredPod;
use crate::sync_loop::orders::Orders;

/// Members may see all but the values of secrets.
const VIEWERS: &str = "cleat:viewers";
/// The container that commands run in unless another one is named.
const DEFAULT_CONTAINER: &str = "kubectl.kubernetes.io/default-container";
/// The longest time of a watch.
const MAX_WATCH: Duration = Duration::from_secs(3600);

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// The status page.
    Page,
    Viewer,
    Admin,
}

pub struct Service {
    pub parts: Arc<Parts>,
    pub store: Arc<Store>,
    /// `None` when the manifests are not in a directory.
    pub manifests: Option<Manifests>,
    /// What stands in no manifest.
    pub orders: Orders,
    /// For the TLS port; on the unix socket the user of the other process counts.
    pub authenticator: Authenticator,
}

impl http::Service for Service {
    fn class(&self, head: &Head, _: &Peer) -> Class {
        Own::of(head).map_or_else(|| Route::of(head).class(), |own| own.class())
    }

    fn serve(&self, request: &mut Request<'_>) -> Reply {
        if let Some(response) = page::serve(&request.head).or_else(|| page::refuse_foreign(&request.head)) {
            return response.into();
        }
        let route = Route::of(&request.head);
        let (user, role) = match self.admit(&request.head, &request.peer) {
            Ok(admitted) => admitted,
            Err(refusal) => return refusal.into(),
        };
        if role == Role::Viewer && !route.is_viewing() {
            let message = format!("{} may only look: it is in {VIEWERS}, not in {MASTERS}", user.name);
            return answer::failed(403, &message).into();
        }
        if role == Role::Page && !page::needs(&route) {
            return answer::failed(403, &format!("{} may only see what the status page shows", user.name)).into();
        }
        if let Some(own) = Own::of(&request.head) {
            return self.own(own, &request.head, &user, role).unwrap_or_else(|refusal| refusal).into();
        }
        self.answer(route, request, &user, role).unwrap_or_else(Reply::from)
    }
}

impl Service {
    fn admit(&self, head: &Head, peer: &Peer) -> Result<(User, Role), Response> {
        if let Address::Unix { uid } = peer.address {
            let own = rustix::process::geteuid().as_raw();
            return match uid == 0 || uid == own {
                true => Ok((User::master(format!("uid {uid}")), Role::Admin)),
                false => Err(answer::failed(403, "this socket is for root alone")),
            };
        }
        let user = self.authenticator.authenticate(head, peer).ok_or_else(|| answer::failed(401, "Unauthorized"))?;
        match (user.is_in(MASTERS), user.is_in(VIEWERS)) {
            (true, _) => Ok((user, Role::Admin)),
            (_, true) => Ok((user, Role::Viewer)),
            _ if user.is_in(page::GROUP) => Ok((user, Role::Page)),
            _ => Err(answer::failed(403, &format!("{} is neither in {MASTERS} nor in {VIEWERS}", user.name))),
        }
    }

    fn answer(&self, route: Route, request: &mut Request<'_>, user: &User, role: Role) -> Result<Reply, Response> {
        let secrets = if role == Role::Admin { Secrets::Shown } else { Secrets::Hidden };
        let writer = Writer { manifests: self.manifests.as_ref(), store: &self.store, orders: &self.orders };
        let head = &request.head;
        let json = |value: &Value| answer::ok(value);
        let response = match route {
            Route::Healthz => Response::text(200, "ok"),
            Route::Version => json(&discovery::version()),
            Route::Paths => json(&discovery::paths()),
            Route::Versions => json(&discovery::versions()),
            Route::Groups => json(&discovery::groups()),
            Route::Resources => json(&discovery::resources()),
            Route::OpenApi2 => discovery::openapi_v2(head.header("accept").unwrap_or_default()),
            Route::OpenApi3 => json(&discovery::openapi_v3()),
            Route::OpenApi3V1 => json(&discovery::openapi_v3_v1()),
            Route::MetricsVersions => json(&discovery::metrics_versions()),
            Route::MetricsResources => json(&discovery::metrics_resources()),
            Route::Metrics(resource, namespace) => self.metrics(&self.view(head, resource, namespace, secrets)?),
            Route::MetricsOf(name) => self.metrics_of(&name)?,
            Route::List(resource, namespace) => self.list(head, &self.view(head, resource, namespace, secrets)?)?,
            Route::Watch(resource, namespace) => {
                return self.watch(head, self.view(head, resource, namespace, secrets)?);
            }
            Route::Get(name) => self.get(head, &name, secrets)?,
            Route::Create(resource, namespace) => writer.create(resource, &namespace.unwrap_or_default(), request)?,
            Route::Replace(name) => writer.replace(&name, request)?,
            Route::Patch(name) => writer.patch(&name, request)?,
            Route::Delete(name) => writer.delete(&name, &write::DeleteOptions::of(request)?)?,
            Route::DeleteAll(resource, namespace) => {
                let view = self.view(head, resource, Some(namespace), secrets)?;
                let options = write::DeleteOptions::of(request)?;
                let (_, all) = view.list(&self.store);
                writer.delete_all(
                    &all.iter().filter_map(|object| Name::of(resource, object)).collect::<Vec<_>>(),
                    &options,
                )?;
                self.list(&request.head, &view)?
            }
            Route::Ephemeral(name) => writer.ephemeral(&name, request)?,
            Route::Log(name) => {
                let target = self.target(head, &name, Default::No)?;
                return Ok(answer::of_kubelet(kubelet::log::container_log(&self.parts, &target, &head.query)));
            }
            Route::Exec(name) => {
                let target = self.target(head, &name, Default::First)?;
                return Ok(answer::of_kubelet(kubelet::streaming::exec(&self.parts, &target, head, &user.name)));
            }
            Route::Attach(name) => {
                let target = self.target(head, &name, Default::First)?;
                return Ok(answer::of_kubelet(kubelet::streaming::attach(&self.parts, &target, head, &user.name)));
            }
            Route::PortForward(name) => {
                let target = self.target(head, &name, Default::First)?;
                return Ok(answer::of_kubelet(kubelet::streaming::port_forward(
                    &self.parts,
                    &target,
                    head,
                    &user.name,
                )));
            }
            Route::WrongMethod => {
                answer::failed(405, "the server does not allow this method on the requested resource")
            }
            Route::NotFound => answer::failed(404, "the server could not find the requested resource"),
        };
        Ok(response.into())
    }

    fn own(&self, own: Own, head: &Head, user: &User, role: Role) -> Result<Response, Response> {
        match own {
            Own::Images => own::images(&*self.parts.runtime.cri),
            Own::Restart(_) if role != Role::Admin => {
                Err(answer::failed(403, &format!("{} may only look: it is not in {MASTERS}", user.name)))
            }
            Own::Restart(name) => {
                let stored = self.stored(&name)?;
                own::restart(&self.parts.runtime.done, &stored, head.query.get("container"), &user.name)
            }
        }
    }

    fn view(
        &self,
        head: &Head,
        resource: Resource,
        namespace: Option<String>,
        secrets: Secrets,
    ) -> Result<View, Response> {
        let query = &head.query;
        let text = |name: &str| query.get(name).unwrap_or_default();
        let alias = |name: &str| self.real_name(resource, namespace.as_deref(), name);
        let selector = Selector::parse(resource, text("labelSelector"), text("fieldSelector"), alias)
            .map_err(|why| answer::failed(400, &why))?;
        let named = text("fieldSelector").split(',').find_map(|part| part.trim().strip_prefix("metadata.name="));
        let named = named.filter(|_| resource == Resource::Pods).map(|name| name.trim_start_matches('=').to_owned());
        let called = named.filter(|name| self.real_name(resource, namespace.as_deref(), name) != *name);
        Ok(View { resource, namespace, selector, secrets, called, table: wants_table(head) })
    }

    /// What a pod is called that somebody calls by the name in its manifest.
    fn real_name(&self, resource: Resource, namespace: Option<&str>, name: &str) -> String {
        let Some(manifests) = self.manifests.as_ref().filter(|_| matches!(resource, Resource::Pods | Resource::Events))
        else {
            return name.to_owned();
        };
        let (_, pods) = self.store.list(Resource::Pods);
        let has = |wanted: &str| {
            pods.iter().any(|(key, _)| *key.name == *wanted && namespace.is_none_or(|n| *key.namespace == *n))
        };
        // One that isn't there yet, or no more, has the node's name too.
        match has(name) || manifests.manifest_name(name) != name {
            true => name.to_owned(),
            false => format!("{name}-{}", manifests.node_name.to_lowercase()),
        }
    }

    fn list(&self, head: &Head, view: &View) -> Result<Response, Response> {
        let listed = view.page(&self.store, &Page::of(&head.query, self.store.version())?);
        let mut list = match view.table {
            Some(include) => {
                table::table(view.resource, &listed.objects, listed.version, include, false, Timestamp::now())
            }
            None => json!({
                "kind": format!("{}List", view.resource.kind()), "apiVersion": "v1",
                "metadata": {"resourceVersion": listed.version.to_string()}, "items": listed.objects,
            }),
        };
        if let Some(more) = listed.more {
            list["metadata"]["continue"] = more.token().into();
        }
        if let Some(left) = listed.left {
            list["metadata"]["remainingItemCount"] = left.into();
        }
        Ok(answer::ok(&list))
    }

    fn metrics(&self, view: &View) -> Response {
        let mut items = self.used(view.resource);
        items.retain(|item| {
            view.has(item["metadata"]["namespace"].as_str().unwrap_or_default()) && view.selector.matches(item)
        });
        if let Some(called) = &view.called {
            items.iter_mut().for_each(|item| write::call(item, called));
        }
        answer::ok(&json!({
            "kind": format!("{}MetricsList", view.resource.kind()), "apiVersion": usage::VERSION, "metadata": {},
            "items": items,
        }))
    }

    fn metrics_of(&self, name: &Name) -> Result<Response, Response> {
        let real = self.real_name(name.resource, Some(&name.namespace), &name.name);
        let is = |item: &&mut Value| {
            let metadata = &item["metadata"];
            metadata["name"] == *real && metadata["namespace"].as_str().unwrap_or_default() == name.namespace
        };
        let mut all = self.used(name.resource);
        let found = all.iter_mut().find(is).ok_or_else(|| answer::not_found(name))?;
        write::call(found, &name.name);
        Ok(answer::ok(found))
    }

    fn used(&self, resource: Resource) -> Vec<Value> {
        let (_, nodes) = self.store.list(Resource::Nodes);
        let node = nodes.first().map(|(_, entry)| entry.object.json(entry.version, Secrets::Hidden));
        usage::all(&self.parts, resource, &node.unwrap_or_default())
    }

    fn watch(&self, head: &Head, view: View) -> Result<Reply, Response> {
        let query = &head.query;
        let from = list::start(query, self.store.version())?;
        let time = query.get("timeoutSeconds").and_then(|t| t.parse().ok()).filter(|t| *t > 0);
        let time = time.map_or(MAX_WATCH, Duration::from_secs).min(MAX_WATCH);
        let options = Options { from, bookmarks: query.flag("allowWatchBookmarks"), time };
        let store = self.store.clone();
        let write = move |out: &mut http::Out<'_>| watch::watch(&store, &view, options, out);
        Ok(Reply::Stream(Response::new(200, JSON, Vec::new()), Box::new(write)))
    }

    fn get(&self, head: &Head, name: &Name, secrets: Secrets) -> Result<Response, Response> {
        let found = write::find(&self.store, name, self.manifests.as_ref());
        let (version, mut value) = found.ok_or_else(|| answer::not_found(name))?;
        if matches!(name.resource, Resource::ConfigMaps | Resource::Secrets) && secrets == Secrets::Shown {
            write::annotate(&mut value, self.manifests.as_ref(), name);
        }
        if let (Resource::Secrets, Secrets::Hidden, Some(object)) = (name.resource, secrets, value.as_object_mut()) {
            object.remove("data");
        }
        Ok(match wants_table(head) {
            Some(include) => {
                answer::ok(&table::table(name.resource, &[value], version, include, false, Timestamp::now()))
            }
            None => answer::ok(&value),
        })
    }

    fn stored(&self, name: &Name) -> Result<StoredPod, Response> {
        let real = self.real_name(Resource::Pods, Some(&name.namespace), &name.name);
        let named = |pod: &Pod| *pod.name.namespace == *name.namespace && *pod.name.name == *real;
        let all = self.parts.store.list().into_iter().filter(|stored| named(&stored.pod));
        all.min_by_key(|stored| stored.ending).ok_or_else(|| answer::not_found(name))
    }

    /// The container that is meant.
    fn target(&self, head: &Head, name: &Name, default: Default) -> Result<Target, Response> {
        let stored = self.stored(name)?;
        let pod = &stored.pod;
        let container = match head.query.get("container").filter(|name| !name.is_empty()) {
            Some(container) => container.to_owned(),
            None => default.container(pod).map_err(|why| answer::failed(400, &why))?,
        };
        Ok(Target {
            namespace: name.namespace.clone(),
            pod: pod.name.name.to_string(),
            uid: Some(pod.uid.to_string()),
            container,
        })
    }
}

/// Which container is meant when none is named.
#[derive(Debug, Clone, Copy)]
enum Default {
    /// The only one.
    No,
    First,
}

impl Default {
    fn container(self, pod: &Pod) -> Result<String, String> {
        let annotated = pod.meta.annotations.as_ref().and_then(|a| a.get(DEFAULT_CONTAINER));
        if let Some(name) = annotated.filter(|name| pod.container(name).is_some()) {
            return Ok(name.clone());
        }
        match (self, pod.containers()) {
            (_, [only]) => Ok(only.name.clone()),
            (Default::First, [first, ..]) => Ok(first.name.clone()),
            (_, all) => {
                let names: Vec<&str> = all.iter().map(|c| c.name.as_str()).collect();
                Err(format!(
                    "a container name must be specified for pod {}, choose one of: [{}]",
                    pod.name.name,
                    names.join(" ")
                ))
            }
        }
    }
}

/// Whether the client would rather have a table, and with what in it.
fn wants_table(head: &Head) -> Option<Include> {
    let accept = head.header("accept").unwrap_or_default();
    let table = accept.split(',').any(|kind| {
        let mut parameters = kind.split(';').map(str::trim);
        parameters.next() == Some(JSON) && parameters.any(|p| p == "as=Table")
    });
    table.then(|| Include::parse(head.query.get("includeObject")))
}
